"""Content keys: forward secrecy for what one member sends to another in a group whose keys heal.

Posts travel under message keys that are erased. What is sent again to one member travels in pairwise envelopes, whose
keys last: retransmitted and relayed events, history, parts of files. So each member announces a short-lived X25519 key,
its *content key*, with its state, its requests and its key events. Such a message is sealed to the recipient's latest
one (HPKE), within the usual envelope, which authenticates it:

    content   {"key": id of the content key, "sealed": HPKE(padded and compressed {"type", "body"})}

A new key is announced after some minutes, and the old ones are erased soon after (`_Lifetime`). If something comes
under an erased key, its recipient answers with its state, and so with a fresh key, and the sender sends it again.

Acknowledgements, requests, status and membership events are not sealed: they show who has what, but no content.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto import hpke
from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, strict_json
from zerochat.crypto.primitives import check_x25519_public, sha256, x25519_public
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Measure
from zerochat.group.event_log.event import CONTROL, POST
from zerochat.group.event_log.lamport import is_older
from zerochat.group.links import mediator_mail
from zerochat.group.state import Group
from zerochat.group.state.content_keys import HeldContentKey, PeerContentKey
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import runs_of
from zerochat.group.wire.files import FILE_PART
from zerochat.group.wire.messages import CONTENT, EVENTS, HISTORY_RESPONSE, ContentBody, EventsBody, read_body
from zerochat.group.wire.padding import CONTENT_BYTES_MAX, decode_payload, encode_payload

CONTENT_KINDS: Final = frozenset({EVENTS, HISTORY_RESPONSE, FILE_PART})
"""The messages with content; `events` only if they are not all membership events."""
KEY_ID_BYTES, NUMBER_BYTES = 8, 8
HELD_MAX: Final = 16
"""Content keys of one kind that are kept; updates make more than time does."""
MINUTE_MS: Final = 60_000
REPLACE_MS: Final = 10_000
"""The time in which a member that uses a key that we do not have makes us make one more, of the first few."""

_CONTEXT: Final = b"zerochat/content/1\n"


class _Lifetime(Struct, frozen=True):
    """How long a content key is announced, and how long it opens what comes, ms."""

    announced: int
    kept: int

    def until_replaced(self, held: int) -> int:
        """How long we do not make another key, however often members use keys that we do not have; `held`: the keys
        that we have. With more keys, one member could make us erase those that others are using."""
        return REPLACE_MS if held < HELD_MAX // 4 else self.kept // (HELD_MAX // 4)


LINKED: Final = _Lifetime(3 * MINUTE_MS, 10 * MINUTE_MS)
MAILED: Final = _Lifetime(12 * 60 * MINUTE_MS, 48 * 60 * MINUTE_MS)
"""For members that write to us over a mediator, which may hold it until we fetch it."""


class _Inner(Struct, frozen=True, forbid_unknown_fields=True):
    """A sealed message."""

    type: str
    body: dict[str, Any]


# --- our keys ---------------------------------------------------------------------------------------------------------


def announced(tx: Transaction, name: str, member: str) -> dict[str, str]:
    """The field with our content key in a message to this member; none where keys do not heal."""
    if not tx.group(name).mode.heals:
        return {}
    erase_expired(tx, name)
    by_mail = mediator_mail.goes_by_mail(tx, name, member)
    held, lifetime = _kept(tx, name, by_mail), MAILED if by_mail else LINKED
    if not held or tx.now >= held[0].made + lifetime.announced:
        held = _with_new(tx, name, by_mail)
        set_timer(tx, name)
    return {"content_key": b64url(x25519_public(held[0].secret) + held[0].number.to_bytes(NUMBER_BYTES))}


def renew(tx: Transaction, name: str) -> None:
    """Our keys heal: what is announced from now on is a new content key."""
    for by_mail in (False, True):
        if _kept(tx, name, by_mail):
            _with_new(tx, name, by_mail)


def _replace_lost(tx: Transaction, name: str, member: str) -> None:
    """A member uses a key that we do not have: we have erased it, or our profile is an older copy, and the member would
    ignore what we announced before."""
    by_mail = mediator_mail.goes_by_mail(tx, name, member)
    held, lifetime = _kept(tx, name, by_mail), MAILED if by_mail else LINKED
    if not held or tx.now >= held[0].made + lifetime.until_replaced(len(held)):
        _with_new(tx, name, by_mail)
        set_timer(tx, name)


def _kept(tx: Transaction, name: str, by_mail: bool) -> tuple[HeldContentKey, ...]:
    keys = tx.group(name).content_keys
    return _unexpired(tx, keys.mailed, MAILED) if by_mail else _unexpired(tx, keys.linked, LINKED)


def _with_new(tx: Transaction, name: str, by_mail: bool) -> tuple[HeldContentKey, ...]:
    """Our keys of one kind with a new one; the oldest of too many are erased."""
    keys = tx.group(name).content_keys
    number = max(tx.now, keys.number + 1)
    held = (HeldContentKey(tx.context.random(32), tx.now, number), *_kept(tx, name, by_mail))[:HELD_MAX]
    keys = replace(keys, mailed=held, number=number) if by_mail else replace(keys, linked=held, number=number)
    tx.update_group(name, content_keys=keys)
    return held


def _unexpired(tx: Transaction, keys: tuple[HeldContentKey, ...], lifetime: _Lifetime) -> tuple[HeldContentKey, ...]:
    """The keys that are not to be erased; after the clock was set back, none from the future."""
    left = tuple(one for one in keys if one.made <= tx.now < one.made + lifetime.kept)
    return keys if len(left) == len(keys) else left


def erase_expired(tx: Transaction, name: str) -> None:
    """Erase the content keys whose time is over."""
    keys = tx.group(name).content_keys
    linked, mailed = _kept(tx, name, False), _kept(tx, name, True)
    if (linked, mailed) != (keys.linked, keys.mailed):
        tx.update_group(name, content_keys=replace(keys, linked=linked, mailed=mailed))
    set_timer(tx, name)


def set_timer(tx: Transaction, name: str) -> None:
    """Set the timer for the oldest of our keys."""
    keys = tx.group(name).content_keys
    ends = [one.made + LINKED.kept for one in keys.linked] + [one.made + MAILED.kept for one in keys.mailed]
    if ends:
        tx.set_timer(TimerKind.CONTENT_KEYS, name, min(ends) - tx.now)


# --- sending ----------------------------------------------------------------------------------------------------------


def record(tx: Transaction, name: str, member: str, key: str) -> None:
    """A member announces its content key; empty: it does not. Raises Malformed."""
    if not (key and tx.group(name).mode.heals):
        return
    written = b64url_bytes(key)
    public, number = written[:-NUMBER_BYTES], int.from_bytes(written[-NUMBER_BYTES:])
    check_x25519_public(public)
    known = tx.peer(name, member).content_key.number  # a time, too
    if number != known and not is_older(number, known, tx.now):
        tx.update_peer(name, member, content_key=PeerContentKey(public, number))


def sealed(tx: Transaction, name: str, member: str, message: Message) -> Message | None:
    """The message as it may be sent to this member; None: its content key is not known yet."""
    group = tx.group(name)
    if not (group.mode.heals and has_content(message)):
        return message
    public = group.links.peers[member].content_key.public
    if not public:
        tx.emit(Measure("unsent", "ContentKeyMissing"))
        return None
    inner = encode_payload(compact_json({"type": message.type, "body": message.body}))
    box = hpke.seal(public, _info(group, group.me, member), inner, tx.context.random(32))
    return replace(message, type=CONTENT, body={"key": b64url(_key_id(public)), "sealed": b64url(box)})


def has_content(message: Message) -> bool:
    """Whether a message has more than membership events. Raises Malformed."""
    if message.type != EVENTS:
        return message.type in CONTENT_KINDS
    body = read_body(message, EventsBody)
    kinds = (item[3] if len(item) > 3 else POST for run in runs_of(body.runs, body.packed) for item in run.items)
    return not all(isinstance(kind, str) and kind in CONTROL for kind in kinds)


def _info(group: Group, sender: str, recipient: str) -> bytes:
    return _CONTEXT + "\n".join((group.id, sender, recipient)).encode()


def _key_id(public: bytes) -> bytes:
    return sha256(public)[:KEY_ID_BYTES]


# --- receiving --------------------------------------------------------------------------------------------------------


def opened(tx: Transaction, name: str, member: str, message: Message) -> Message | None:
    """The message in a sealed one; None: we have erased its key, so the sender needs a fresh one.

    Raises Unauthentic, Malformed or Refused.
    """
    group, body = tx.group(name), read_body(message, ContentBody)
    if not group.mode.heals:
        raise Refused(why="a sealed message in a group without content keys")
    named, held = b64url_bytes(body.key), (*_kept(tx, name, False), *_kept(tx, name, True))
    secret = next((one.secret for one in held if _key_id(x25519_public(one.secret)) == named), None)
    if secret is None:
        _replace_lost(tx, name, member)
        tx.emit(Measure("dropped", "ContentKeyErased"))
        return None
    plain = decode_payload(hpke.seal_open(secret, _info(group, member, group.me), b64url_bytes(body.sealed)))
    try:
        inner = msgspec.convert(strict_json(plain, CONTENT_BYTES_MAX), _Inner)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"sealed content: {error}") from None
    if inner.type not in CONTENT_KINDS:
        raise Refused(why="a sealed message without content")
    return replace(message, type=inner.type, body=inner.body)
