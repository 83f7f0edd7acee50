"""Message attachments (DIDComm v2.1): inline as base64url or JSON, or links with a hash.

Attachments are stored as received. Content is decoded and hashes are verified on access only.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from zerochat.crypto.encoding import INTEGER_MAX, SHA2_256, b64url_bytes, base58_bytes, compact_json
from zerochat.crypto.primitives import sha256
from zerochat.crypto.structs import Redacted
from zerochat.errors import Malformed

ATTACHMENTS_MAX = 16
LINKS_MAX = 16
NAME_CHARS_MAX = 256
"""An id, media type, format, file name or hash."""

_ID = re.compile(r"[A-Za-z0-9._~-]+")
_TO_URL = str.maketrans("+/", "-_")
_MULTIHASH_BYTES = len(SHA2_256) + 32


class Attachment(Redacted, frozen=True):
    """One attachment with at least one of base64, json and links, unverified."""

    REDACTED = ("base64", "json", "jws")

    id: str | None = None
    media_type: str | None = None
    format: str | None = None
    filename: str | None = None
    description: str | None = None
    base64: str | None = None
    json: object = None
    links: tuple[str, ...] = ()
    hash: str | None = None
    """The multihash of the linked content; required with links."""
    jws: Mapping[str, Any] | None = None
    """Detached signatures over the content (RFC 7515, Appendix F), for `jws.verify_detached`."""
    lastmod_time: int | None = None
    """Time of the last change, UTC seconds; a hint."""
    byte_count: int | None = None
    """Declared size of the content in bytes; a hint."""


def attachment_bytes(attachment: Attachment) -> bytes:
    """The inline content of an attachment: decoded `base64`, or else `json` in our encoding.

    The specification requires base64url; libraries with a version 1 heritage write standard base64, so either is
    accepted, but not a mixture. Raises Malformed, also for base64 content that does not match its hash; a hash over a
    JSON value is undefined and not checked.
    """
    if attachment.base64 is not None:
        text = attachment.base64
        if ("+" in text or "/" in text) and not ("-" in text or "_" in text):
            text = text.translate(_TO_URL)
        content = b64url_bytes(text)
        if attachment.hash is not None:
            check_hash(attachment, content)
        return content
    if attachment.json is None:
        raise Malformed(why="an attachment without inline content")
    return compact_json(attachment.json)


def check_hash(attachment: Attachment, content: bytes) -> None:
    """Raise Malformed unless the content matches the attachment's hash.

    The specification leaves the text form of a multihash open: bare base58 (`Qm…`), bare hexadecimal (`1220…`) and the
    multibases base58btc, base64url and base16 are accepted. SHA-256 only.
    """
    if attachment.hash is None or _multihash(attachment.hash) != SHA2_256 + sha256(content):
        raise Malformed(why="an attachment that does not match its hash, or has no supported one")


def _multihash(text: str) -> bytes:
    if text.startswith("Qm"):
        return base58_bytes(text, _MULTIHASH_BYTES)
    if text.startswith("z"):
        return base58_bytes(text[1:], _MULTIHASH_BYTES)
    if text.startswith("u"):
        return b64url_bytes(text[1:])
    digits = text.removeprefix("f")
    try:
        return bytes.fromhex(digits) if len(digits) == 2 * _MULTIHASH_BYTES else b""
    except ValueError:
        return b""


def dump_attachment(attachment: Attachment) -> dict[str, object]:
    """The attachment as JSON members of a message."""
    data = {
        "jws": attachment.jws,
        "hash": attachment.hash,
        "links": attachment.links or None,
        "base64": attachment.base64,
        "json": attachment.json,
    }
    headers = {
        "id": attachment.id,
        "media_type": attachment.media_type,
        "format": attachment.format,
        "filename": attachment.filename,
        "description": attachment.description,
        "lastmod_time": attachment.lastmod_time,
        "byte_count": attachment.byte_count,
        "data": {name: value for name, value in data.items() if value is not None},
    }
    return {name: value for name, value in headers.items() if value is not None}


def parse_attachment(tree: object) -> Attachment:
    """Decode one entry of a message's `attachments`. Raises Malformed."""
    if not isinstance(tree, dict) or not isinstance(data := tree.get("data"), dict):
        raise Malformed(why="an attachment without data")
    fields: dict[str, Any] = {}
    for name, value in tree.items():
        if value is not None and (read := _HEADERS.get(name)) is not None:
            fields[name] = read(value)
    for name, value in data.items():
        if value is not None and (read := _DATA.get(name)) is not None:
            fields[name] = read(value)
    if "base64" not in fields and "json" not in fields and not fields.get("links"):
        raise Malformed(why="an attachment with empty data")
    if fields.get("links") and "hash" not in fields:
        raise Malformed(why="an attachment whose links have no hash")
    return Attachment(**fields)


def _id(value: object) -> str:
    if not isinstance(value, str) or len(value) > NAME_CHARS_MAX or not _ID.fullmatch(value):
        raise Malformed(why="an attachment whose id has reserved characters or is too long")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or len(value) > NAME_CHARS_MAX:
        raise Malformed(why="an attachment with a header that is not text, or too long")
    return value


def _text(value: object) -> str:
    """Text limited only by the message size."""
    if not isinstance(value, str):
        raise Malformed(why="an attachment whose content or description is not text")
    return value


def _anything(value: object) -> object:
    return value


def _links(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > LINKS_MAX:
        raise Malformed(why="an attachment whose links are not a list, or too many")
    return tuple([_text(link) for link in value])


def _jws(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(why="an attachment whose jws is not an object")
    return value


def _number(value: object) -> int | None:
    """A non-negative integer hint; any other value counts as absent."""
    return value if type(value) is int and 0 <= value <= INTEGER_MAX else None


_HEADERS: dict[str, Callable[[object], object]] = {
    "id": _id,
    "media_type": _name,
    "format": _name,
    "filename": _name,
    "description": _text,
    "lastmod_time": _number,
    "byte_count": _number,
}
_DATA: dict[str, Callable[[object], object]] = {
    "base64": _text,
    "json": _anything,
    "links": _links,
    "hash": _name,
    "jws": _jws,
}
"""Decoders of non-null members, by name; the fields of Attachment have the same names."""
