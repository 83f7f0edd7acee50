"""DIDComm v1 plaintext: `@` headers and `~` decorators around the body.

All other members are the body, including attachments named by a protocol (`request~attach`). Unknown decorators are
ignored; null and invalid times count as absent, as in v2.

v2 headers without a v1 equivalent become decorators of the same name (`~from`, `~to`, `~from_prior`, `~ack`), which
other agents ignore; so both formats carry everything.

Specified in: Aries RFC 0008 (ids, threads), 0011 (decorators), 0017 (attachments), 0020 (types), 0032 (timing), 0043
(l10n), 0092 (return route), 0317 (please_ack), 0348 (the prefix of types).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from zerochat.crypto.encoding import INTEGER_MAX, SHA2_256, compact_json, strict_json
from zerochat.didcomm.attachment import ATTACHMENTS_MAX, Attachment, dump_attachment, parse_attachment
from zerochat.didcomm.iso8601 import SECONDS_MAX, iso_seconds, iso_time
from zerochat.didcomm.message import (
    ACKS_MAX,
    DID_CHARS_MAX,
    FROM_PRIOR_CHARS_MAX,
    ID_CHARS_MAX,
    LANGUAGES_MAX,
    MESSAGE_BYTES_MAX,
    TO_MAX,
    TYPE_CHARS_MAX,
    Message,
    ReturnRoute,
)
from zerochat.didcomm.uri import DIDCOMM_ORG
from zerochat.errors import Malformed

OLD_TYPE_PREFIX: Final = "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/"
"""Former prefix of community types, read only; it means DIDCOMM_ORG."""

LANGUAGE_CHARS_MAX = 64
TIME_CHARS_MAX = 40
"""A time with nanoseconds and a zone has 35."""

_HEADERS = ("@", "~")
_ID = re.compile(r"[!-~]+")
"""Wider than in v2: a parent thread may be a DID with a service (RFC 0023), and slashes are allowed (RFC 0008)."""
_DID = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%;/?=&+~-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")

Members = Mapping[str, object]
_NOTHING: Members = {}


# --- writing --------------------------------------------------------------------------------------------------------


def dump_v1(message: Message) -> bytes:
    """Encode a message. Raises Malformed for one that a reader would refuse or misinterpret."""
    if any(name.startswith(_HEADERS) for name in message.body):
        raise Malformed(why="a body with a member that is a header in DIDComm v1")
    timing = {
        "out_time": _time_text(message.created_time),
        "expires_time": _time_text(message.expires_time),
        "delay_milli": message.delay_milli,
    }
    headers = {
        "@type": message.type,
        "@id": message.id,
        "~thread": _present({"thid": message.thid, "pthid": message.pthid}) or None,
        "~timing": _present(timing) or None,
        "~please_ack": _dump_please_ack(message.please_ack),
        "~ack": list(message.ack) or None,
        "~l10n": None if message.lang is None else {"locale": message.lang},
        "~accept_lang": list(message.accept_lang) or None,
        "~transport": _dump_return_route(message),
        "~from": message.from_,
        "~to": list(message.to) or None,
        "~from_prior": message.from_prior,
        "~attach": [dump_attachment_v1(attachment) for attachment in message.attachments] or None,
    }
    plain = compact_json({**_present(headers), **message.body})
    if len(plain) > MESSAGE_BYTES_MAX:
        raise Malformed(why=f"a message of more than {MESSAGE_BYTES_MAX} bytes")
    return plain


def _present(members: Members) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


def _time_text(seconds: int | None) -> str | None:
    if seconds is not None and not 0 <= seconds <= SECONDS_MAX:
        raise Malformed(why="a message with a time after the year 9999")
    return None if seconds is None else iso_time(seconds)


def _dump_please_ack(ids: tuple[str, ...]) -> dict[str, object] | None:
    """v1 requests an acknowledgement of this message only; other ids are an extension."""
    if not ids:
        return None
    return {"on": ["RECEIPT"]} if ids == ("",) else {"on": ["RECEIPT"], "ids": list(ids)}


def _dump_return_route(message: Message) -> dict[str, object] | None:
    if message.return_route is None:
        return None
    thread = message.thread if message.return_route == "thread" else None
    return _present({"return_route": message.return_route, "return_route_thread": thread})


def dump_attachment_v1(attachment: Attachment) -> dict[str, object]:
    """The attachment as JSON members of a message or a body."""
    tree = {_V1_NAMES.get(name, name): value for name, value in dump_attachment(attachment).items()}
    if attachment.lastmod_time is not None:
        tree["lastmod_time"] = _time_text(attachment.lastmod_time)
    return tree


_V1_NAMES = {"id": "@id", "media_type": "mime-type"}
_V2_NAMES = {old: new for new, old in _V1_NAMES.items()}
"""Attachment member names in both versions."""


# --- reading --------------------------------------------------------------------------------------------------------


def parse_v1(plain: bytes) -> Message:
    """Decode a plaintext from a peer. Raises Malformed."""
    tree = strict_json(plain, MESSAGE_BYTES_MAX)
    if not isinstance(tree, dict):
        raise Malformed(why="a message that is not an object")
    identifier, kind = _id(tree, "@id"), _text(tree, "@type", TYPE_CHARS_MAX)
    if identifier is None or kind is None:
        raise Malformed(why="a message without @id or @type")
    thread = tree.get("~thread")
    if thread is not None and not isinstance(thread, dict):
        raise Malformed(why="a message whose ~thread is not an object")
    return Message(
        type=plain_type(kind),
        id=identifier,
        body={name: value for name, value in tree.items() if not name.startswith(_HEADERS)},
        from_=None if tree.get("~from") is None else _did(tree["~from"]),
        to=tuple(_did(entry) for entry in _list(tree, "~to", TO_MAX)),
        thid=_id(thread or _NOTHING, "thid"),
        pthid=_id(thread or _NOTHING, "pthid"),
        from_prior=_text(tree, "~from_prior", FROM_PRIOR_CHARS_MAX),
        attachments=tuple(parse_attachment_v1(entry) for entry in _list(tree, "~attach", ATTACHMENTS_MAX)),
        **_hints(tree),
    )


def plain_type(uri: str) -> str:
    """The message type with the current prefix."""
    return DIDCOMM_ORG + uri[len(OLD_TYPE_PREFIX) :] if uri.startswith(OLD_TYPE_PREFIX) else uri


def parse_attachment_v1(tree: object) -> Attachment:
    """Decode an attachment, converting v1 names, times and hexadecimal SHA-256. Raises Malformed."""
    if not isinstance(tree, dict) or not isinstance(data := tree.get("data"), dict):
        raise Malformed(why="an attachment without data")
    if len(named := {_V2_NAMES.get(name, name): value for name, value in tree.items()}) != len(tree):
        raise Malformed(why="an attachment with a header in two ways")
    digest = data.get("sha256")
    if data.get("hash") is None and isinstance(digest, str) and _SHA256.fullmatch(digest):
        data = {**data, "hash": SHA2_256.hex() + digest}
    return parse_attachment({**named, "lastmod_time": _time(tree, "lastmod_time"), "data": data})


def _id(tree: Members, name: str) -> str | None:
    text = _text(tree, name, ID_CHARS_MAX)
    if text is not None and not _ID.fullmatch(text):
        raise Malformed(why="a message or thread id with characters that are not printable ASCII")
    return text


def _did(value: object) -> str:
    if not isinstance(value, str) or len(value) > DID_CHARS_MAX or not _DID.fullmatch(value):
        raise Malformed(why="a ~from or ~to that is not a DID")
    return value


def _text(tree: Members, name: str, chars_max: int) -> str | None:
    value = tree.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > chars_max):
        raise Malformed(why=f"a message whose {name} is not text, or too long")
    return value


def _list(tree: Members, name: str, size_max: int) -> list[object]:
    value = tree.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > size_max:
        raise Malformed(why=f"a message whose {name} is not a list, or too long")
    return value


# --- favours and hints: nonsense counts as absent -------------------------------------------------------------------


def _hints(tree: Members) -> dict[str, Any]:
    timing = _object(tree, "~timing")
    return {
        "created_time": _time(timing, "out_time"),
        "expires_time": _time(timing, "expires_time"),
        "delay_milli": _milli(timing),
        "please_ack": _please_ack(tree),
        "ack": _texts(tree, "~ack", ACKS_MAX, ID_CHARS_MAX),
        "lang": _language(_object(tree, "~l10n").get("locale")),
        "accept_lang": _texts(tree, "~accept_lang", LANGUAGES_MAX, LANGUAGE_CHARS_MAX),
        "return_route": _return_route(tree),
    }


def _language(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= LANGUAGE_CHARS_MAX else None


def _please_ack(tree: Members) -> tuple[str, ...]:
    """Older writers put an empty object; an outcome is acknowledged no differently from a receipt."""
    asked = tree.get("~please_ack")
    if not isinstance(asked, dict):
        return ()
    return _texts(asked, "ids", ACKS_MAX, ID_CHARS_MAX) or ("",)


def _return_route(tree: Members) -> ReturnRoute | None:
    value = _object(tree, "~transport").get("return_route")
    return value if value == "none" or value == "all" or value == "thread" else None


def _time(tree: Members, name: str) -> int | None:
    value = tree.get(name)
    return iso_seconds(value) if isinstance(value, str) and len(value) <= TIME_CHARS_MAX else None


def _milli(tree: Members) -> int | None:
    value = tree.get("delay_milli")
    return value if type(value) is int and -INTEGER_MAX <= value <= INTEGER_MAX else None


def _object(tree: Members, name: str) -> Members:
    value = tree.get(name)
    return value if isinstance(value, dict) else _NOTHING


def _texts(tree: Members, name: str, size_max: int, chars_max: int) -> tuple[str, ...]:
    value = tree.get(name)
    if not isinstance(value, list) or len(value) > size_max:
        return ()
    return tuple(item for item in value if isinstance(item, str) and len(item) <= chars_max)
