"""Files attached to messages: state, download, saving and preview."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.common import Author, Hops

FileState = Literal["offered", "getting", "here", "gone"]
"""Not downloaded; downloading; complete; requested, but no member has it any more."""


class Attachment(Struct, frozen=True, kw_only=True):
    """A file of a message and its state here."""

    id: str
    name: str
    """The author's file name: not a path, and untrusted."""
    size: int
    """Bytes."""
    type: str = ""
    """The MIME type that the author gave; empty: unknown."""
    state: FileState = "offered"
    have: int = 0
    """The number of bytes stored here."""
    from_: Author | None = field(default=None, name="from")
    """The member that it is downloaded from; null: none."""
    holders: int = 0
    """The number of other members that reported having it. All members report to the author."""
    of: int = 0
    """The number of other members."""
    fault: str = ""
    """Why the download does not continue, as a sentence; empty: no error."""


class FileInfo(Struct, frozen=True, kw_only=True):
    """A file and its message."""

    group: str
    event: str
    """The message's id."""
    author: Author
    posted_at: str
    """When the message was received."""
    file: Attachment


class FileNotification(Struct, frozen=True):
    """A file has progressed, another member has it, or its download has stopped; at most a few times per second."""

    group: str
    event: str
    file: Attachment


class SendFilesParams(Struct, frozen=True):
    """Send a message with files. The agent has copied them when it answers."""

    group: str
    paths: list[str]
    """Absolute paths of regular files, at most 8; a path that is not UTF-8 as a `file:` URI."""
    text: str = ""
    reply_to: str | None = None
    action: bool = False
    key: str | None = None
    hops: Hops = 0


class FileParams(Struct, frozen=True):
    group: str
    file: str
    """Its id or a prefix of at least four characters, its name, or the id of a message with one file."""


class SaveParams(Struct, frozen=True):
    """Save an unencrypted copy of a complete file. Nothing is overwritten: a free name is chosen."""

    group: str
    file: str
    to: str = ""
    """The absolute path of a file or folder, or its `file:` URI; empty: the user's download folder."""


class Saved(Struct, frozen=True):
    path: str
    """Its absolute path; one that is not UTF-8 as a `file:` URI."""
    size: int
    sha256: str
    """Of the content, in hexadecimal."""


class RenderPictureParams(Struct, frozen=True):
    """Decode a complete picture, scaled to fit these pixels, in a separate process."""

    group: str
    file: str
    width: int
    height: int


class Picture(Struct, frozen=True):
    width: int
    height: int
    pixels: bytes
    """Red, green and blue, one byte each, row by row (in base64)."""


class ListFilesParams(Struct, frozen=True):
    """The files of a group, newest first; `after`: the id of the last file of the previous page."""

    group: str
    after: str = ""


class FileList(Struct, frozen=True):
    files: list[FileInfo]
    more: bool = False
