"""Routing 2.0: onion of anonymous `forward` messages, one layer per mediator.

A layer names only its next hop, so a mediator learns neither the sender nor later hops. Three forms of `forward` are
read: DIDComm v2.1, its first draft (`to`, `payloads~attach`), and RFC 0094 for v1 (`to`, `msg`); the first and the last
are written.

For several routing keys the specifications contradict each other: DIDComm v2.1 wraps in reverse order of `routingKeys`,
so the first key is the outermost layer; RFC 0094 and the drafts wrap in list order, so the last key is. The service
type decides (`Route.order`). A mediator named by DID instead of an address is always the outermost layer.

`please_ack` on a forward is ignored, as the specification demands: it would reveal the recipient's presence.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import msgspec

from zerochat.crypto.encoding import b64url, compact_json, strict_json
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.attachment import ATTACHMENTS_MAX, Attachment, attachment_bytes
from zerochat.didcomm.did import DID_CHARS_MAX, Document, did_key_of, short_form
from zerochat.didcomm.iso8601 import iso_seconds
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message, new_id, parse
from zerochat.didcomm.packer import PACKERS, Packer, Profile, TheirKey, envelope_kind
from zerochat.didcomm.protocols.mixing import Mix, below
from zerochat.didcomm.protocols.shared_mailbox import PROOF_CHARS
from zerochat.didcomm.service import Route, verkey
from zerochat.didcomm.uri import same_type
from zerochat.errors import Malformed, Refused

PROTOCOL: Final = "https://didcomm.org/routing/2.0"
FORWARD: Final = PROTOCOL + "/forward"
FORWARD_V1: Final = "https://didcomm.org/routing/1.0/forward"

HOPS_MAX: Final = 8
"""Layers of one onion; each adds a third to the envelope's size."""
UNWRAP_DEPTH_MAX: Final = 5
"""Nested forwards addressed to the reader: a mediator may add one, mixing a few more."""
NEXT_CHARS_MAX: Final = DID_CHARS_MAX + 256
"""A DID with a fragment."""
DELAY_MS_MAX: Final = 7 * 86_400_000
"""Mediators store mail for about that long."""

_MIX = "org.zerochat.mix"
_NOISE = "org.zerochat.noise"
_RECEIPT = "org.zerochat.receipt"
_SHARED = "org.zerochat.shared"
"""Extension members of the body."""


class Forward(Redacted, frozen=True):
    """A parsed forward."""

    REDACTED = ("envelopes",)

    next: str
    """A DID, a key id, or (v1) a bare verkey in base58."""
    envelopes: tuple[bytes, ...]
    """At least one."""
    delay_milli: int | None = None
    """Delay; a negative value means a random delay up to the amount."""
    expires_time: int | None = None
    """UTC seconds; undelivered envelopes are dropped then."""
    mix: Mix | None = None
    not_before: int | None = None
    """UTC seconds (`wait_until_time`, draft only); the later of delay and this counts."""
    wants_receipt: bool = False
    """Whether the sender requests a mediator receipt (`mediator_receipt.py`)."""
    shared: str = ""
    """The proof of a sender to a shared mailbox (`shared_mailbox.py`); empty: it is for one recipient."""


# --- reading --------------------------------------------------------------------------------------------------------


class _Body(msgspec.Struct):
    """Body of the forms in standard plaintexts."""

    next: str | None = None
    to: str | None = None
    msg: dict[str, Any] | str | None = None
    mix: dict[str, Any] | None = msgspec.field(name=_MIX, default=None)
    wants_receipt: Any = msgspec.field(name=_RECEIPT, default=False)
    shared: Any = msgspec.field(name=_SHARED, default="")


class _MixBody(msgspec.Struct):
    hop_chance: float
    hop_decay: float = 0.5
    noise_chance: float = 0.0


class _Timing(msgspec.Struct):
    delay_milli: int | None = None
    wait_until_time: str | None = None
    expires_time: str | None = None


class _Data(msgspec.Struct):
    base64: str | None = None
    json: dict[str, Any] | None = None


class _Payload(msgspec.Struct):
    data: _Data


class _Old(msgspec.Struct):
    """A forward of v1 or of the draft; neither requires an `@id`."""

    type: str = msgspec.field(name="@type")
    to: str
    msg: dict[str, Any] | str | None = None
    payloads: list[_Payload] = msgspec.field(name="payloads~attach", default_factory=list)
    timing: _Timing = msgspec.field(name="~timing", default_factory=_Timing)
    mix: dict[str, Any] | None = None


def is_forward(message: Message) -> bool:
    return same_type(message.type, FORWARD) or same_type(message.type, FORWARD_V1)


def forward_in(plain: bytes) -> Forward | None:
    """The forward in a plaintext of any form; None: another message. Raises like `read_forward`."""
    if b'"@type"' not in plain:
        message = parse(plain)
        return read_forward(message) if is_forward(message) else None
    tree = strict_json(plain, MESSAGE_BYTES_MAX)
    kind = tree.get("@type") if isinstance(tree, dict) else None
    if not isinstance(kind, str) or not (same_type(kind, FORWARD) or same_type(kind, FORWARD_V1)):
        return None
    old = _convert(tree, _Old)
    payloads = [_payload(entry.data) for entry in old.payloads[: ATTACHMENTS_MAX + 1]]
    if old.msg is not None:
        payloads.append(_member(old.msg))
    return Forward(
        _recipient(old.to),
        _checked(payloads),
        old.timing.delay_milli,
        _seconds(old.timing.expires_time),
        _mix(old.mix),
        _seconds(old.timing.wait_until_time),
    )


def read_forward(message: Message) -> Forward:
    """Decode a forward (`is_forward`). Raises Malformed, and Refused for a linked payload: a mediator that fetches
    URLs could be abused."""
    body = _convert(message.body, _Body)
    if body.msg is not None:
        payloads = [_member(body.msg)]
    elif any(attachment.base64 is None and attachment.json is None for attachment in message.attachments):
        raise Refused(why="forward: a payload that lies elsewhere")
    else:
        payloads = [attachment_bytes(attachment) for attachment in message.attachments]
    recipient = _recipient(body.to if body.next is None else body.next)
    options = message.delay_milli, message.expires_time, _mix(body.mix)
    shared = body.shared if isinstance(body.shared, str) and len(body.shared) == PROOF_CHARS else ""
    return Forward(recipient, _checked(payloads), *options, wants_receipt=body.wants_receipt is True, shared=shared)


def _recipient(name: str | None) -> str:
    if name is None or not 0 < len(name) <= NEXT_CHARS_MAX or not name.isascii():
        raise Malformed(why="forward: no recipient")
    return name


def _member(msg: dict[str, Any] | str) -> bytes:
    return msg.encode() if isinstance(msg, str) else compact_json(msg)


def _payload(data: _Data) -> bytes:
    if data.base64 is None and data.json is None:
        raise Refused(why="forward: a payload that lies elsewhere")
    return attachment_bytes(Attachment(base64=data.base64, json=data.json))


def _checked(payloads: list[bytes]) -> tuple[bytes, ...]:
    """Check that all payloads are envelopes."""
    if not 0 < len(payloads) <= ATTACHMENTS_MAX:
        raise Malformed(why="forward: no payload, or too many")
    for payload in payloads:
        envelope_kind(payload)
    return tuple(payloads)


def _mix(tree: dict[str, Any] | None) -> Mix | None:
    if tree is None:
        return None
    body = _convert(tree, _MixBody)
    return Mix(body.hop_chance, body.hop_decay, body.noise_chance)


def _seconds(text: str | None) -> int | None:
    return None if text is None or len(text) > 64 else iso_seconds(text)


_T = TypeVar("_T")


def _convert(tree: object, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(tree, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"forward: {error}") from None


# --- writing --------------------------------------------------------------------------------------------------------


def forward(
    envelope: bytes,
    recipient: str,
    *,
    to: str | None,
    random: Callable[[int], bytes],
    profile: Profile = "didcomm/v2",
    expires_time: int | None = None,
    delay_milli: int | None = None,
    mix: Mix | None = None,
    noise: int = 0,
    wants_receipt: bool = False,
    shared: str = "",
) -> bytes:
    """The plaintext of a forward of `envelope` for `recipient` (a DID, key id or verkey); `to`: the mediator.

    The envelope is inserted verbatim. `noise`: padding in bytes. `wants_receipt`: request a mediator receipt. `shared`:
    the proof of a sender to a shared mailbox.
    """
    body: dict[str, Any] = {"next" if profile == "didcomm/v2" else "to": recipient}
    if mix is not None:
        body[_MIX] = {"hop_chance": mix.hop_chance, "hop_decay": mix.hop_decay, "noise_chance": mix.noise_chance}
    if noise:
        body[_NOISE] = b64url(random(noise * 3 // 4))
    if wants_receipt:
        body[_RECEIPT] = True
    if shared:
        body[_SHARED] = shared
    message = Message(
        type=FORWARD if profile == "didcomm/v2" else FORWARD_V1,
        id=new_id(random),
        body=body,
        to=() if to is None or profile == "didcomm/v1" else (to,),
        expires_time=expires_time,
        delay_milli=delay_milli,
    )
    head = PACKERS[profile].dump(message).removesuffix(b"}")
    if profile == "didcomm/v2":
        return head + b',"attachments":[{"data":{"json":' + envelope + b"}}]}"
    return head + b',"msg":' + envelope + b"}"


def wrap(
    envelope: bytes,
    route: Route,
    to: str,
    *,
    resolve: Callable[[str], Document],
    random: Callable[[int], bytes],
    profile: Profile = "didcomm/v2",
    expires_time: int | None = None,
    delay_milli: int | None = None,
    mix: Mix | None = None,
    wants_receipt: bool = False,
    shared: str = "",
) -> bytes:
    """Wrap an envelope for every mediator of a route to the recipient `to` (its DID; in v1 a verkey).

    Delay, mix, receipt request and proof (`shared`) are for the innermost mediator, the expiry for all. A route whose
    `uri` is a DID has to be resolved before (`service.deliverables`). Raises Malformed for unusable keys and for an
    onion that is too long.
    """
    if len(route.routing_keys) > HOPS_MAX:
        raise Malformed(why="a route with too many mediators")
    packer = PACKERS[profile]
    recipient = _named(packer, to, resolve)
    for name in reversed(outermost_first(route)):
        hop = _hop(packer, name, resolve)
        plain = forward(
            envelope,
            recipient,
            to=short_form(as_did(name).partition("#")[0]),
            random=random,
            profile=profile,
            expires_time=expires_time,
            delay_milli=delay_milli,
            mix=mix,
            wants_receipt=wants_receipt,
            shared=shared,
        )
        envelope = packer.anoncrypt(plain, recipient=hop, random=random)
        recipient, delay_milli, mix, wants_receipt, shared = _named(packer, name, resolve), None, None, False, ""
    return envelope


def outermost_first(route: Route) -> tuple[str, ...]:
    """The routing keys, outermost layer first."""
    return route.routing_keys if route.order == "final" else route.routing_keys[::-1]


def rewrap(
    envelope: bytes,
    recipient: str,
    *,
    resolve: Callable[[str], Document],
    random: Callable[[int], bytes],
    profile: Profile = "didcomm/v2",
    mix: Mix | None = None,
    noise: int = 0,
    inner: str | None = None,
    expires_time: int | None = None,
) -> bytes:
    """Wrap an envelope in one more forward to `recipient` (DIDComm v2.1, "Rewrapping"), addressed to `inner`
    (default: the recipient), with padding. Raises Malformed."""
    packer = PACKERS[profile]
    target = inner or recipient
    plain = forward(
        envelope,
        _named(packer, target, resolve),
        to=short_form(recipient.partition("#")[0]),
        random=random,
        profile=profile,
        mix=mix,
        noise=noise,
        expires_time=expires_time,
    )
    return packer.anoncrypt(plain, recipient=_hop(packer, recipient, resolve), random=random)


def as_did(name: str) -> str:
    """A routing key as DID or DID URL; a bare v1 verkey becomes a did:key. Raises Malformed."""
    return name if name.startswith("did:") else did_key_of(verkey(name))


def _hop(packer: Packer, name: str, resolve: Callable[[str], Document]) -> TheirKey:
    """The key to encrypt a layer to: the named one, or the packer's choice."""
    did, _, fragment = as_did(name).partition("#")
    document = resolve(did)
    if packer.name == "didcomm/v2" and fragment:
        return TheirKey(f"{short_form(did)}#{fragment}", document.agreement_key(f"{did}#{fragment}"))
    return packer.their_key(document, short_form(did))


def _named(packer: Packer, name: str, resolve: Callable[[str], Document]) -> str:
    """A recipient's name in a forward: the shortest DID or key id; in v1 its verkey."""
    if packer.name == "didcomm/v1":
        return packer.their_key(resolve(as_did(name).partition("#")[0]), as_did(name)).kid
    did, mark, fragment = name.partition("#")
    return short_form(did) + mark + fragment if did.startswith("did:") else did


# --- forwards that are addressed to oneself -------------------------------------------------------------------------


class Opened(Protocol):
    """An opened envelope with its message."""

    @property
    def message(self) -> Message: ...


_O = TypeVar("_O", bound=Opened)


def open_through(
    envelope: bytes, opened: Callable[[bytes], _O], is_mine: Callable[[str], bool], depth: int = UNWRAP_DEPTH_MAX
) -> tuple[_O, ...]:
    """Open an envelope and the nested forwards addressed to the reader.

    `opened` opens one envelope; `is_mine`: whether a `next` names the reader. A forward to others is returned like any
    message. Raises Malformed for more than `depth` layers, or like `opened`.
    """
    outer = opened(envelope)
    if not is_forward(outer.message):
        return (outer,)
    found = read_forward(outer.message)
    if not is_mine(found.next):
        return (outer,)
    if depth == 0:
        raise Malformed(why="nested forwards beyond the limit")
    return tuple(inner for each in found.envelopes for inner in open_through(each, opened, is_mine, depth - 1))


# --- delays ---------------------------------------------------------------------------------------------------------


def delay(parsed: Forward, random: Callable[[int], bytes]) -> int:
    """The delay in ms: the requested amount, or for a negative one a uniform value up to it."""
    requested = parsed.delay_milli or 0
    amount = min(abs(requested), DELAY_MS_MAX)
    return amount if requested >= 0 else below(amount + 1, random)


def ready_at(parsed: Forward, now_ms: int, random: Callable[[int], bytes]) -> int:
    """Time to forward an envelope received at `now_ms` (both UTC ms): the later of delay and `not_before`."""
    latest = now_ms + DELAY_MS_MAX
    return min(max(now_ms + delay(parsed, random), (parsed.not_before or 0) * 1000), latest)
