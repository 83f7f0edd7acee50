"""The files that come with messages: what is known of each, how far it has come, and what can be done with it."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.common import Author

FileState = Literal["offered", "getting", "here", "gone"]
"""Not on this machine; on its way; whole on this machine; and asked for, but no member has it any more."""


class Attachment(Struct, frozen=True, kw_only=True):
    """One file, as a message names it and as it stands now."""

    id: str
    name: str
    """As its author has written it: no path, and nothing that could be trusted."""
    size: int
    """Bytes."""
    type: str = ""
    """A MIME type, as its author has guessed; empty: unknown."""
    state: FileState = "offered"
    have: int = 0
    """Bytes that are here."""
    from_: Author | None = field(default=None, name="from")
    """Who is asked for it now; None: nobody."""
    holders: int = 0
    """How many other members have said that they have it. All of them say so to whoever has posted it."""
    of: int = 0
    """How many other members there are."""
    fault: str = ""
    """Why it does not get on, as a sentence; empty: nothing is wrong."""


class FileInfo(Struct, frozen=True, kw_only=True):
    """A file, and the message that it came with."""

    group: str
    event: str
    """The message's id."""
    author: Author
    posted_at: str
    """When the message came here."""
    file: Attachment


class FileNews(Struct, frozen=True):
    """A file has got on, somebody else has it, or it is fetched no more; a few times a second at the most."""

    group: str
    event: str
    file: Attachment


class AttachParams(Struct, frozen=True):
    """Send a message with files. The agent reads them itself; when this is answered it has a copy of its own."""

    group: str
    paths: list[str]
    """Whole paths, each of a regular file; 8 at the most."""
    text: str = ""
    reply_to: str | None = None
    action: bool = False
    key: str | None = None


class FileParams(Struct, frozen=True):
    group: str
    file: str
    """Its id, the first letters of that (four or more), its name, or the id of a message that has one file."""


class SaveParams(Struct, frozen=True):
    """Save a file that is here, as a copy that is not encrypted. Nothing is overwritten: another name is taken."""

    group: str
    file: str
    to: str = ""
    """The whole path of a file or of a folder; empty: into the downloads of this user."""


class Saved(Struct, frozen=True):
    path: str
    size: int
    sha256: str
    """Of the content, as `sha256sum` prints it."""


class PictureParams(Struct, frozen=True):
    """See a picture that is here, not larger than so many pixels. It is decoded in a process of its own."""

    group: str
    file: str
    width: int
    height: int


class Picture(Struct, frozen=True):
    width: int
    height: int
    pixels: bytes
    """Three bytes for each, red, green and blue, row by row (in base64)."""


class FilesParams(Struct, frozen=True):
    """The files of a group, the newest first; `after`: those behind the one with this id."""

    group: str
    after: str = ""


class FileList(Struct, frozen=True):
    files: list[FileInfo]
    more: bool = False
