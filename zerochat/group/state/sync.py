"""What is asked for, compared and got back of the history (`group/history/`)."""

from typing import Literal, Self

from msgspec import Struct, field
from msgspec.structs import replace


class Need(Struct, frozen=True):
    """A stretch of an author's chain that others have and we have not."""

    upto: int
    tries: int = 0
    """How often somebody was asked for it."""
    at: int = 0
    """Do not ask again before this, UTC ms."""
    since: int = 0
    """When it was first found missing, UTC ms."""


class Errand(Struct, frozen=True):
    """What we have asked one member for (`history/`): only its answer to that is listened to."""

    thread: str
    want: tuple[tuple[str, int, int], ...]
    until: int
    """UTC ms; then somebody else is asked."""
    back: bool = False
    page: int = 0
    """The number of the answer that comes next."""
    pages: int = 1
    """How many there may be."""
    purpose: Literal["", "compare", "second", "unheard", "unmet"] = ""
    """Not empty where we only want to see what the member has there, and take nothing in (`sync/fork_detection.py`,
    `sync/corroboration.py`), or nothing but what was left out (`sync/reinstated_posts.py`), or what somebody has said whom we
    have never met (`sync/unreachable_authors.py`)."""


class Unheard(Struct, frozen=True):
    """What was left out of one author's chain because it could only read then (`sync/reinstated_posts.py`)."""

    ids: dict[int, str] = field(default_factory=dict)
    """The events, by their places."""
    tries: int = 0
    """How often in a row somebody was asked for it in vain."""
    at: int = 0
    """Do not ask again before this, UTC ms."""


class Unmet(Struct, frozen=True):
    """What we have asked others for that a member has said whom we have never met (`sync/unreachable_authors.py`)."""

    answered: dict[str, int] = field(default_factory=dict)
    """By whoever has answered, up to where it had that chain then."""
    tries: int = 0
    """How often in a row somebody was asked in vain."""
    at: int = 0
    """Do not ask again before this, UTC ms."""


class Regain(Struct, frozen=True):
    """What we know of our own words that we may have lost (`sync/stale_profile.py`)."""

    unsure: bool = False
    """This profile was restored from a backup, and not everybody has told us yet where we stand."""
    claims: dict[str, int] = field(default_factory=dict)
    """How far members say that they have our chain."""
    asked: dict[str, int] = field(default_factory=dict)
    """How often each of them who is there was asked for it since somebody has brought some of it."""
    rounds: int = 0
    """How often we have asked since then while one of them was connected, and somebody was always there."""
    mailed: frozenset[str] = frozenset()
    """Those whom we have asked by mail, and not over a link since."""
    ignored: frozenset[str] = frozenset()
    """Members who have claimed that, and had nothing to show."""


class Comparison(Struct, frozen=True):
    """How far we are in comparing our log with a member's (`sync/fork_detection.py`)."""

    noticed: int = 0
    """Since when it seems that the member has something else, UTC ms; 0: it does not."""
    begun: int = 0
    """When we last began to compare, UTC ms."""
    authors: tuple[str, ...] = ()
    """Of whom it is about; none: nothing is compared now."""
    thread: str = ""
    """The question that it has not answered yet."""
    rounds: int = 0
    """How many we have asked."""
    places: tuple[tuple[str, int, str], ...] = ()
    """Of each author, the first place where we have something that the member lacks, and the id of that."""
    asked: int = 0
    """Since when the member's own questions are counted, UTC ms."""
    answers: int = 0
    """How many of those we have answered since."""


class Difference(Struct, frozen=True):
    """A member has something else than we in this place of an author's chain."""

    author: str
    seq: int
    member: str
    at: int
    """Since when we know, UTC ms."""
    by: str = ""
    """Who has handed ours over; empty: the author itself."""


class Second(Struct, frozen=True):
    """Whether anybody else has the same as what a member has handed over (`sync/corroboration.py`)."""

    seq: int
    id: str
    """The newest event of that."""
    by: str
    """Who has handed it over."""
    asked: tuple[str, ...] = ()
    """Who was asked."""
    member: str = ""
    """Who has the same; empty: nobody has said so."""


class Fetching(Struct, frozen=True):
    """The history from before our time, as far as it has been fetched."""

    done: bool = False
    """There is no more that we may have, as far as those say who could be asked."""
    waited: int = 0
    """How often in a row there was nobody to ask."""
    asked: frozenset[str] = frozenset()
    """The authors of whose chains we have asked for more."""
    got: int = 0
    """Events."""
    tries: int = 0
    """How often in a row nobody has answered, or with nothing new."""
    question: str = ""
    """The thread of what we have asked over a link, and nobody has answered yet."""
    unanswered: int = 0
    """How many of those have not counted as tries in this round, because they may have been lost."""
    asks: dict[str, int] = field(default_factory=dict)
    """How often we have asked each member, but for where that has brought us its author's own word."""
    pages: int = 1
    """How many answers we ask for at once: ever more, as long as none is lost."""
    late: int = 0
    """How often we have asked again since then, because there should be more."""
    due: int = 0
    """When we do so next, UTC ms."""

    def reopened(self) -> Self:
        """The same where it has turned out that there is more."""
        return replace(self, done=False, tries=0, unanswered=0, asks={}, late=0)
