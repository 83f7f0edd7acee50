"""Posted files of a group: their descriptors, downloads and local copies."""

from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.group.files.descriptor import File

FileState: TypeAlias = Literal["offered", "getting", "here", "gone"]
"""Known but not stored here; being fetched; complete on disk; without any holder."""


class Download(Struct, frozen=True):
    """The download of one file from one member."""

    member: str
    next: int
    """The number of the next part; all before it have come."""
    requested: int
    """All parts before this one were requested."""
    window: int
    """The maximum number of outstanding parts."""
    timeout_at: int
    """When the source counts as silent, UTC ms."""
    requested_at: int
    """The time of the last request, UTC ms."""
    rerequested: int = -1
    """The part that was requested again, because a later one came before it; -1: none."""
    since: int = 0
    """When the current rate window began, UTC ms (`download.RATE_WINDOW_MS`)."""
    first: int = 0
    """The number of the next part then."""
    busy: int = 0
    """Consecutive busy answers."""
    reminded: bool = False
    """Whether it was asked again after a silence."""
    received_at: int = 0
    """When the last part came, or the first request went out, UTC ms."""
    gap: int = 0
    """The longest time between two of these, ms."""


class FileEntry(Struct, frozen=True):
    """One posted file of a group."""

    file: File
    author: str
    """The author of the post, and the first source."""
    event: str
    """The id of the post."""
    at: int
    """When the post was received, UTC ms."""
    lamport: int = 0
    """The Lamport time of the post; 0: unknown."""
    state: FileState = "offered"
    stored_parts: int = 0
    """How many parts are on disk, from the first on."""
    download: Download | None = None
    """None: not requested from a member, or not wanted."""
    tried: tuple[str, ...] = ()
    """Members asked since the last pause that lacked it or did not answer."""
    absent: tuple[str, ...] = ()
    """Those among them that reported it missing."""
    corrupt_sources: tuple[str, ...] = ()
    """Members that sent a wrong part: not asked again."""
    slow_sources: tuple[str, ...] = ()
    """Members that were too slow: asked when no other is left."""
    holders: tuple[str, ...] = ()
    """Other members that announced it."""
    waiting_members: tuple[str, ...] = ()
    """Members that asked for it while it was missing here; they are informed when it is available."""
    revived: tuple[str, ...] = ()
    """Members that announced it when no member had it any more, once for each time."""
    automatic: bool = False
    """It is fetched automatically, not for the user."""
    corrupt_count: int = 0
    """How often in a row all parts together were not the file."""
    deleted_at: int = 0
    """The position in its author's chain where the post is deleted, as relayed and not confirmed yet; 0: none."""
    error: str = ""
    """Why it is not fetched further, as a sentence; empty: no error."""
