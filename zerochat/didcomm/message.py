"""DIDComm v2.1 plaintext messages: headers, limits, encoding.

Unknown headers are ignored, as the specification demands ("Message Headers"), and null counts as absent, because common
libraries write it. Invalid headers about identity, type or routing are refused; invalid hints (times, languages,
acknowledgements, return route) count as absent. Bodies are validated by their protocols.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import field
from msgspec.structs import replace

from zerochat.crypto.encoding import INTEGER_MAX, compact_json, strict_json
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.attachment import ATTACHMENTS_MAX, Attachment, dump_attachment, parse_attachment
from zerochat.didcomm.uri import TYPE_CHARS_MAX, same_type
from zerochat.errors import Malformed

__all__ = [
    "ATTACHMENTS_MAX",
    "MESSAGE_BYTES_MAX",
    "PLAIN",
    "TYPE_CHARS_MAX",
    "Attachment",
    "Message",
    "ReturnRoute",
    "dump",
    "new_id",
    "parse",
    "same_id",
    "same_type",
]

MESSAGE_BYTES_MAX = 256 * 1024
"""Fits the longest post twice, and the welcome to a large group."""
ID_CHARS_MAX = 256
"""The specification says 32, and recommends UUIDs, which have 36."""
DID_CHARS_MAX = 4096
TO_MAX = 64
ACKS_MAX = 64
"""Message ids in one please_ack or ack."""
LANGUAGES_MAX = 16
FROM_PRIOR_CHARS_MAX = 24 * 1024
"""Three DIDs of the greatest length, in base64."""

PLAIN = "application/didcomm-plain+json"
_PLAIN_READ = (None, PLAIN, "didcomm-plain+json")

ReturnRoute: TypeAlias = Literal["none", "all", "thread"]

_ID = re.compile(r"[A-Za-z0-9._~-]+")
_DID = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%;/?=&+~-]+")
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8}){0,7}")
"""A language tag (RFC 5646), loosely."""


class Message(Redacted, frozen=True):
    """One plaintext message. Times in UTC seconds. `body` is any JSON object, so its values are Any."""

    REDACTED = ("body", "from_prior")

    type: str
    id: str
    body: dict[str, Any] = field(default_factory=dict)
    from_: str | None = None
    to: tuple[str, ...] = ()
    thid: str | None = None
    pthid: str | None = None
    created_time: int | None = None
    expires_time: int | None = None
    from_prior: str | None = None
    attachments: tuple[Attachment, ...] = ()
    please_ack: tuple[str, ...] = ()
    """Message ids to acknowledge; an empty id means this message."""
    ack: tuple[str, ...] = ()
    """Acknowledged message ids, oldest first."""
    lang: str | None = None
    accept_lang: tuple[str, ...] = ()
    """Preferred languages of the sender, best first."""
    return_route: ReturnRoute | None = None
    """Messages accepted on the connection of this message (extension "Return-Route")."""
    delay_milli: int | None = None
    """Forwards only: delay in ms; negative: random delay up to the amount ("Routing 2.0")."""

    @property
    def thread(self) -> str:
        """The id of the message's thread: a message without one begins its own."""
        return self.thid or self.id

    def addressed(self, from_: str | None, to: tuple[str, ...], from_prior: str | None) -> "Message":
        """The message with these addresses."""
        return replace(self, from_=from_, to=to, from_prior=from_prior)

    @property
    def requested_acks(self) -> tuple[str, ...]:
        """`please_ack`, with this message's own id resolved."""
        return tuple(name or self.id for name in self.please_ack)


def new_id(random: Callable[[int], bytes]) -> str:
    """A random message id (UUID version 4)."""
    raw = bytearray(random(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def same_id(one: str, other: str) -> bool:
    """Whether two message or thread ids are equal, ignoring case ("Message IDs")."""
    return one == other or one.lower() == other.lower()


# --- writing --------------------------------------------------------------------------------------------------------


def dump(message: Message) -> bytes:
    """Encode a message. Raises Malformed if it is too long."""
    tree: dict[str, Any] = {"typ": PLAIN, "id": message.id, "type": message.type}
    if message.from_ is not None:
        tree["from"] = message.from_
    if message.to:
        tree["to"] = message.to
    if message.thid is not None:
        tree["thid"] = message.thid
    if message.pthid is not None:
        tree["pthid"] = message.pthid
    if message.created_time is not None:
        tree["created_time"] = message.created_time
    if message.expires_time is not None:
        tree["expires_time"] = message.expires_time
    if message.delay_milli is not None:
        tree["delay_milli"] = message.delay_milli
    if message.from_prior is not None:
        tree["from_prior"] = message.from_prior
    if message.please_ack:
        tree["please_ack"] = message.please_ack
    if message.ack:
        tree["ack"] = message.ack
    if message.lang is not None:
        tree["lang"] = message.lang
    if message.accept_lang:
        tree["accept-lang"] = message.accept_lang
    if message.return_route is not None:
        tree["return_route"] = message.return_route
    tree["body"] = message.body
    if message.attachments:
        tree["attachments"] = [dump_attachment(attachment) for attachment in message.attachments]
    plain = compact_json(tree)
    if len(plain) > MESSAGE_BYTES_MAX:
        raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
    return plain


# --- reading --------------------------------------------------------------------------------------------------------


def parse(plain: bytes) -> Message:
    """Decode a plaintext from a peer. Raises Malformed."""
    tree = strict_json(plain, MESSAGE_BYTES_MAX)
    if not isinstance(tree, dict):
        raise Malformed(why="a message that is not an object")
    if tree.get("typ") not in _PLAIN_READ:
        raise Malformed(why="a message of another media type")
    fields: dict[str, Any] = {}
    for name, value in tree.items():
        if value is not None and (header := _HEADERS.get(name)) is not None:
            fields[header[0]] = header[1](value)
    if "id" not in fields or "type" not in fields:
        raise Malformed(why="a message without id or type")
    return Message(**fields)


def _id(value: object) -> str:
    if not isinstance(value, str) or len(value) > ID_CHARS_MAX or not _ID.fullmatch(value):
        raise Malformed(why="a message or thread id with reserved characters, or too long")
    return value


def _type(value: object) -> str:
    if not isinstance(value, str) or len(value) > TYPE_CHARS_MAX:
        raise Malformed(why="a message whose type is not text, or too long")
    return value


def _body(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(why="a message whose body is not an object")
    return value


def _did(value: object) -> str:
    if not isinstance(value, str):
        raise Malformed(why="a from or to that is not a DID")
    return _did_text(value)


@lru_cache(maxsize=512)
def _did_text(text: str) -> str:
    if len(text) > DID_CHARS_MAX or not _DID.fullmatch(text):
        raise Malformed(why="a from or to that is not a DID")
    return text


def _to(value: object) -> tuple[str, ...]:
    return tuple([_did(did) for did in _list(value, "to", TO_MAX)])


def _from_prior(value: object) -> str:
    if not isinstance(value, str) or len(value) > FROM_PRIOR_CHARS_MAX:
        raise Malformed(why="a message whose from_prior is not text, or too long")
    return value


def _attachments(value: object) -> tuple[Attachment, ...]:
    return tuple([parse_attachment(entry) for entry in _list(value, "attachments", ATTACHMENTS_MAX)])


def _list(value: object, name: str, size_max: int) -> list[object]:
    if not isinstance(value, list) or len(value) > size_max:
        raise Malformed(why=f"a message whose {name} is not a list, or too long")
    return value


# --- hints: invalid values count as absent ---------------------------------------------------------------------------


def _time(value: object) -> int | None:
    """A time in seconds; text and fractions, which some libraries write, count as absent."""
    return value if type(value) is int and 0 <= value <= INTEGER_MAX else None


def _milli(value: object) -> int | None:
    return value if type(value) is int and -INTEGER_MAX <= value <= INTEGER_MAX else None


def _ids(value: object) -> tuple[str, ...]:
    """The ids of an ack or please_ack; an empty id means this message. Some libraries write true."""
    if not isinstance(value, list):
        return ()
    names = [name for name in _list(value, "ack", ACKS_MAX) if isinstance(name, str) and len(name) <= ID_CHARS_MAX]
    return tuple([name for name in names if not name or _ID.fullmatch(name)])


def _language(value: object) -> str | None:
    return value if isinstance(value, str) and _LANGUAGE.fullmatch(value) else None


def _languages(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple([tag for tag in map(_language, _list(value, "accept-lang", LANGUAGES_MAX)) if tag])


def _return_route(value: object) -> ReturnRoute | None:
    return value if value == "none" or value == "all" or value == "thread" else None


_HEADERS: dict[str, tuple[str, Callable[[object], object]]] = {
    "id": ("id", _id),
    "type": ("type", _type),
    "body": ("body", _body),
    "from": ("from_", _did),
    "to": ("to", _to),
    "thid": ("thid", _id),
    "pthid": ("pthid", _id),
    "created_time": ("created_time", _time),
    "expires_time": ("expires_time", _time),
    "from_prior": ("from_prior", _from_prior),
    "attachments": ("attachments", _attachments),
    "please_ack": ("please_ack", _ids),
    "ack": ("ack", _ids),
    "lang": ("lang", _language),
    "accept-lang": ("accept_lang", _languages),
    "return_route": ("return_route", _return_route),
    "delay_milli": ("delay_milli", _milli),
}
"""Headers by wire name: the field, and the decoder of a non-null value."""
