"""The files that were posted in a group, as far as this machine knows and has them."""

from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.group.files.descriptor import File

FileState: TypeAlias = Literal["offered", "getting", "here", "gone"]
"""Known, and not here; asked for; whole on this machine's disk; and none of the members has it."""


class Haul(Struct, frozen=True):
    """What one member was asked for, of one file."""

    member: str
    next: int
    """The number of the part that has to come next; those before it have come."""
    upto: int
    """Those before this one were asked for."""
    window: int
    """How many parts are asked for at once."""
    until: int
    """Then somebody else is asked, UTC ms."""
    asked: int
    """When the last question went out, UTC ms."""
    missed: int = -1
    """The part that was asked for once more, because a later one has come before it; -1: none."""
    since: int = 0
    """When the count of what it brings began, UTC ms (`getting.SPELL_MS`)."""
    first: int = 0
    """The number of the part that had to come next then."""
    busy: int = 0
    """How often in a row it has said that it is too busy."""
    reminded: bool = False
    """It was asked once more, as nothing has come."""
    came: int = 0
    """When the last part came, or the first question went out, UTC ms."""
    gap: int = 0
    """The longest time between two of these, ms."""


class Holding(Struct, frozen=True):
    """One file that somebody has posted in a group."""

    file: File
    author: str
    """Who has posted it, and is asked first."""
    event: str
    """The id of the post."""
    at: int
    """When that came here, UTC ms."""
    state: FileState = "offered"
    have: int = 0
    """How many parts are on disk, from the first on."""
    haul: Haul | None = None
    """None: nobody was asked, or it is not wanted."""
    tried: tuple[str, ...] = ()
    """Members who were asked since the last pause, and did not have it or did not answer."""
    absent: tuple[str, ...] = ()
    """Those among them who have said that they do not have it."""
    liars: tuple[str, ...] = ()
    """Those who have sent something else: they are not asked for it again."""
    slow: tuple[str, ...] = ()
    """Those who have brought too little in the time that they had: they are asked when nobody else is left."""
    holders: tuple[str, ...] = ()
    """Other members who have said that they have it."""
    asked_by: tuple[str, ...] = ()
    """Members who were told that it is not here: as soon as it is they are told that too, until they ask again."""
    revived: tuple[str, ...] = ()
    """Members who have said that they have it when nobody had it any more, once for each time."""
    auto: bool = False
    """It is fetched although nobody here has asked for it."""
    spoilt: int = 0
    """How often in a row all parts were here, and together were not the file."""
    taken_back: int = 0
    """The place in its author's chain where the post is taken back, as somebody else has handed over and the author has
    not confirmed yet; 0: nobody has said so."""
    fault: str = ""
    """Why it is fetched no further, as a sentence; empty: nothing is wrong."""
