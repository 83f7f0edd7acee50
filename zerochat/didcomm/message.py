"""The DIDComm v2.1 plaintext message: its headers, its limits, and its one way of being written.

Headers that zerochat does not know are ignored, as the specification demands ("Message Headers"), and a header that is
null counts as absent, because real libraries write that. What the body says is the business of the protocol that its
type names.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from zerochat.crypto.encoding import INTEGER_MAX, compact_json, strict_json
from zerochat.errors import Malformed

MESSAGE_BYTES_MAX = 256 * 1024
"""The longest post fits twice, and so does a welcome to a large group; far below what anybody could be flooded with."""
ID_CHARS_MAX = 256
TYPE_CHARS_MAX = 512
DID_CHARS_MAX = 4096
TO_MAX = 64
ATTACHMENTS_MAX = 16
FROM_PRIOR_CHARS_MAX = 24 * 1024
"""It holds three DIDs, each perhaps of the greatest length, and base64 adds a third."""

PLAIN = "application/didcomm-plain+json"
_PLAIN_READ = (None, PLAIN, "didcomm-plain+json")

_ID = re.compile(r"[A-Za-z0-9._~-]+")
_DID = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%;/?=&+~-]+")


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attachment; it holds at least one of base64, json and links. The content is as it came, unverified."""

    id: str | None = None
    media_type: str | None = None
    format: str | None = None
    filename: str | None = None
    description: str | None = None
    base64: str | None = field(default=None, repr=False)
    json: object = field(default=None, repr=False)
    links: tuple[str, ...] = ()
    hash: str | None = None
    """The multihash of what the links lead to; there are no links without it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One plaintext message. Times in UTC seconds. `body` is any JSON object, so its values are Any."""

    type: str
    id: str
    body: dict[str, Any] = field(default_factory=dict, repr=False)
    from_: str | None = None
    to: tuple[str, ...] = ()
    thid: str | None = None
    pthid: str | None = None
    created_time: int | None = None
    expires_time: int | None = None
    from_prior: str | None = field(default=None, repr=False)
    attachments: tuple[Attachment, ...] = ()

    @property
    def thread(self) -> str:
        """The id of the message's thread: a message without one begins its own."""
        return self.thid or self.id


def new_id(random: Callable[[int], bytes]) -> str:
    """A fresh message id: a random UUID (version 4), as everybody writes them."""
    raw = bytearray(random(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


# --- message types --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _type_parts(uri: str) -> tuple[str, str, str, str] | None:
    """Document URI, protocol, major version and message name of a Message Type URI; names as they are compared."""
    parts = uri.rsplit("/", 3)
    if len(parts) < 3:
        return None
    protocol, version, name = parts[-3:]
    major = version.partition(".")[0]
    if not (protocol and name and major.isascii() and major.isdigit()):
        return None
    return "".join(parts[:-3]), _plain_name(protocol), major, _plain_name(name)


def _plain_name(name: str) -> str:
    """Names are compared without regard to case and punctuation (DIDComm v2.1, "Semver Rules")."""
    return re.sub(r"[._-]", "", name).lower()


def same_type(one: str, other: str) -> bool:
    """Whether two Message Type URIs mean the same message, whatever their minor versions (DIDComm v2.1, "MTURI")."""
    return one == other or ((parts := _type_parts(one)) is not None and parts == _type_parts(other))


# --- writing --------------------------------------------------------------------------------------------------------


def dump(message: Message) -> bytes:
    """The plaintext of a message. Raises Malformed for one that its reader would refuse as too long."""
    headers = {
        "typ": PLAIN,
        "id": message.id,
        "type": message.type,
        "from": message.from_,
        "to": list(message.to) or None,
        "thid": message.thid,
        "pthid": message.pthid,
        "created_time": message.created_time,
        "expires_time": message.expires_time,
        "from_prior": message.from_prior,
        "body": message.body,
        "attachments": [_dump_attachment(attachment) for attachment in message.attachments] or None,
    }
    plain = compact_json({name: value for name, value in headers.items() if value is not None})
    if len(plain) > MESSAGE_BYTES_MAX:
        raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
    return plain


def _dump_attachment(attachment: Attachment) -> dict[str, object]:
    data = {
        "base64": attachment.base64,
        "json": attachment.json,
        "links": list(attachment.links) or None,
        "hash": attachment.hash,
    }
    headers = {
        "id": attachment.id,
        "media_type": attachment.media_type,
        "format": attachment.format,
        "filename": attachment.filename,
        "description": attachment.description,
        "data": {name: value for name, value in data.items() if value is not None},
    }
    return {name: value for name, value in headers.items() if value is not None}


# --- reading --------------------------------------------------------------------------------------------------------


def parse(plain: bytes) -> Message:
    """The message of a plaintext from a peer. Raises Malformed."""
    tree = strict_json(plain, MESSAGE_BYTES_MAX)
    if not isinstance(tree, dict):
        raise Malformed(why="a message that is not an object")
    if tree.get("typ") not in _PLAIN_READ:
        raise Malformed(why="a message of another media type")
    identifier, kind = _id(tree, "id"), _text(tree, "type", TYPE_CHARS_MAX)
    if identifier is None or kind is None:
        raise Malformed(why="a message without id or type")
    body = tree.get("body")
    if body is not None and not isinstance(body, dict):
        raise Malformed(why="a message whose body is not an object")
    sender = tree.get("from")
    return Message(
        type=kind,
        id=identifier,
        body=body or {},
        from_=None if sender is None else _did(sender),
        to=tuple(_did(did) for did in _list(tree, "to", TO_MAX)),
        thid=_id(tree, "thid"),
        pthid=_id(tree, "pthid"),
        created_time=_time(tree.get("created_time")),
        expires_time=_time(tree.get("expires_time")),
        from_prior=_text(tree, "from_prior", FROM_PRIOR_CHARS_MAX),
        attachments=tuple(_attachment(entry) for entry in _list(tree, "attachments", ATTACHMENTS_MAX)),
    )


def _attachment(tree: object) -> Attachment:
    if not isinstance(tree, dict) or not isinstance(data := tree.get("data"), dict):
        raise Malformed(why="an attachment without data")
    links = _list(data, "links", ATTACHMENTS_MAX)
    attachment = Attachment(
        id=_text(tree, "id", ID_CHARS_MAX),
        media_type=_text(tree, "media_type", ID_CHARS_MAX),
        format=_text(tree, "format", ID_CHARS_MAX),
        filename=_text(tree, "filename", ID_CHARS_MAX),
        description=_text(tree, "description", MESSAGE_BYTES_MAX),
        base64=_text(data, "base64", MESSAGE_BYTES_MAX),
        json=data.get("json"),
        links=tuple(link for link in links if isinstance(link, str)),
        hash=_text(data, "hash", ID_CHARS_MAX),
    )
    if attachment.base64 is None and attachment.json is None and not attachment.links:
        raise Malformed(why="an attachment whose data is empty")
    if links and (len(attachment.links) != len(links) or attachment.hash is None):
        raise Malformed(why="an attachment whose links are not text, or have no hash")
    return attachment


def _id(tree: dict[str, object], name: str) -> str | None:
    text = _text(tree, name, ID_CHARS_MAX)
    if text is not None and not _ID.fullmatch(text):
        raise Malformed(why="a message or thread id with characters that are not unreserved")
    return text


def _did(value: object) -> str:
    if not isinstance(value, str) or len(value) > DID_CHARS_MAX or not _DID.fullmatch(value):
        raise Malformed(why="a from or to that is not a DID")
    return value


def _time(value: object) -> int | None:
    """A time in seconds. Some libraries write text or fractions: what they meant is not guessed, so it is absent."""
    return value if type(value) is int and 0 <= value <= INTEGER_MAX else None


def _text(tree: dict[str, object], name: str, chars_max: int) -> str | None:
    value = tree.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > chars_max):
        raise Malformed(why=f"a message whose {name} is not text, or too long")
    return value


def _list(tree: dict[str, object], name: str, size_max: int) -> list[object]:
    value = tree.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > size_max:
        raise Malformed(why=f"a message whose {name} is not a list, or too long")
    return value
