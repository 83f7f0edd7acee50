"""Short links to sealed invitations, served by the inviter's mediator.

    inviter                                mediator                        joiner
      | -- publish: id, sealed bytes ------> |                               |
      | <- published: page, or refused ----- |  <- GET PAGE?_oobid=ID ------ |
      | -- keep: the ids still wanted -----> |  -- sealed bytes -----------> |  opens them with the KEY of the link

The link is `PAGE?_oobid=ID#KEY`. A fragment is not sent in a request, so the mediator can neither read the invitation
nor replace it: ChaCha20-Poly1305 under a key that only the link contains. The id is random and independent of the key.
`keep` drops all other links of this recipient, so one message serves revocation, use and recovery from lost messages.

The inviter is the mediator's recipient (`mediation.py`); this is an extension of Coordinate Mediation.
"""

import re
from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, strict_json
from zerochat.crypto.nacl_boxes import CHACHA_NONCE_BYTES, chacha20_poly1305_open, chacha20_poly1305_seal
from zerochat.crypto.primitives import hkdf_sha256
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols.bodies import read_body
from zerochat.didcomm.uri import same_type
from zerochat.errors import Malformed

PROTOCOL: Final = "https://zerochat.org/short-link/1.0"
Kind: TypeAlias = Literal["publish", "published", "refused", "keep"]
_TYPES: Final[dict[Kind, str]] = {
    "publish": f"{PROTOCOL}/publish",
    "published": f"{PROTOCOL}/published",
    "refused": f"{PROTOCOL}/refused",
    "keep": f"{PROTOCOL}/keep",
}
SEALED_TYPE: Final = f"{PROTOCOL}/sealed"
"""The `type` of the served document."""
REFUSALS: Final = ("full", "behind", "large")
"""The reasons of a refusal: no room for another link; not reachable for joiners; too many bytes."""

ID_BYTES: Final = 12
ID_CHARS: Final = 16
"""Shorter than the id of a mediator's own invitation, so that no client can replace it."""
KEY_BYTES: Final = 16
KEY_CHARS: Final = 22
SEALED_BYTES_MAX: Final = 4 * 1024
"""An invitation over three mediators has 3 KiB."""
PAGE_CHARS_MAX: Final = 256
IDS_MAX: Final = 256
"""Ids in one `keep`."""
_PAGE: Final = re.compile(r"https?://[A-Za-z0-9._~:/\[\]%-]+")
"""Links are pasted into shells, so a mediator may not choose quotes, spaces or others with a meaning there."""
_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{{ID_CHARS}}}")
_NONCE: Final = bytes(CHACHA_NONCE_BYTES)
"""A key seals one text only."""


class Publication(Struct, frozen=True):
    """A request to serve sealed bytes under an id until a time, UTC seconds."""

    oobid: str
    sealed: bytes
    until: int


class Answer(Struct, frozen=True):
    """The mediator's answer: the page of the link, or why it serves none."""

    page: str = ""
    why: str = ""


class _Publish(msgspec.Struct):
    oobid: str
    sealed: str
    until: int


class _Published(msgspec.Struct):
    page: str


class _Refused(msgspec.Struct):
    why: str


class _Keep(msgspec.Struct):
    oobids: list[str]


class _Sealed(msgspec.Struct):
    type: str
    sealed: str


# --- sealing --------------------------------------------------------------------------------------------------------


def seal(url: str, key: bytes) -> bytes:
    """The invitation link, encrypted and authenticated by the key of its short link."""
    return chacha20_poly1305_seal(_sealing_key(key), _NONCE, url.encode(), SEALED_TYPE.encode())


def open_sealed(sealed: bytes, key: bytes) -> str:
    """The invitation link. Raises Unauthentic or Malformed."""
    try:
        return chacha20_poly1305_open(_sealing_key(key), _NONCE, sealed, SEALED_TYPE.encode()).decode("ascii")
    except UnicodeDecodeError:
        raise Malformed(why="a sealed invitation that is no link") from None


def _sealing_key(key: bytes) -> bytes:
    return hkdf_sha256(key, b"zerochat/short-link/1")


def document(sealed: bytes) -> bytes:
    """The document that a mediator serves."""
    return compact_json({"type": SEALED_TYPE, "sealed": b64url(sealed)})


def read_document(text: str) -> bytes | None:
    """The sealed bytes in a served document; None: it is another document. Raises Malformed."""
    try:
        tree = msgspec.convert(strict_json(text.encode(errors="replace"), 2 * SEALED_BYTES_MAX), _Sealed)
    except (msgspec.ValidationError, Malformed):
        return None
    return b64url_bytes(tree.sealed) if tree.type == SEALED_TYPE else None


def link(page: str, oobid: str, key: bytes) -> str:
    return f"{page}?_oobid={oobid}#{b64url(key)}"


def key_of(link: str) -> bytes | None:
    """The key of a short link; None: it has none. Raises Malformed for a damaged one."""
    _, mark, fragment = link.partition("#")
    if not mark:
        return None
    key = b64url_bytes(fragment)
    if len(key) != KEY_BYTES:
        raise Malformed(why="a short link that is cut off")
    return key


# --- messages -------------------------------------------------------------------------------------------------------


def kind_of(message: Message) -> Kind | None:
    """The kind of a message; None: another protocol."""
    return next((kind for kind, uri in _TYPES.items() if same_type(message.type, uri)), None)


def publish(wanted: Publication, random: Callable[[int], bytes]) -> Message:
    body = {"oobid": wanted.oobid, "sealed": b64url(wanted.sealed), "until": wanted.until}
    return Message(type=_TYPES["publish"], id=new_id(random), body=body, return_route="all")


def keep(oobids: Collection[str], random: Callable[[int], bytes]) -> Message:
    """Drop all links of this recipient but these."""
    return Message(type=_TYPES["keep"], id=new_id(random), body={"oobids": sorted(oobids)}, return_route="all")


def answer(incoming: Message, given: Answer, random: Callable[[int], bytes]) -> Message:
    kind: Kind = "refused" if given.why else "published"
    body = {"why": given.why} if given.why else {"page": given.page}
    return Message(type=_TYPES[kind], id=new_id(random), body=body, thid=incoming.thread)


def read_publish(message: Message) -> Publication:
    """Raises Malformed."""
    body = read_body(message, _Publish)
    if not _ID.fullmatch(body.oobid) or body.until < 0 or len(body.sealed) > 2 * SEALED_BYTES_MAX:
        raise Malformed(why="short link: an invalid id, time or size")
    return Publication(body.oobid, b64url_bytes(body.sealed), body.until)


def read_keep(message: Message) -> frozenset[str]:
    """Raises Malformed."""
    found = read_body(message, _Keep).oobids
    if len(found) > IDS_MAX:
        raise Malformed(why="short link: too many ids")
    return frozenset(found)


def read_answer(message: Message) -> Answer:
    """Raises Malformed."""
    if kind_of(message) == "refused":
        why = read_body(message, _Refused).why
        return Answer(why=why if why in REFUSALS else "other")
    page = read_body(message, _Published).page
    if len(page) > PAGE_CHARS_MAX or not _PAGE.fullmatch(page):
        raise Malformed(why="short link: an invalid page")
    return Answer(page)
