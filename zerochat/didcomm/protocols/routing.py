"""Routing 2.0: an envelope travels inside `forward` messages, one for each mediator on its way.

Every layer is anonymous and says no more than whom the next envelope is for, so a mediator learns neither who sent a
message nor what follows after the next hop. Three spellings of `forward` are read: that of DIDComm v2.1, that of its
first draft (`to`, `payloads~attach`), and that of RFC 0094 for v1 (`to`, `msg`). The first and the last are written.

With two or more routing keys the drafts and the final specification build opposite onions: the final one loops over
`routingKeys` in reverse, so that its first key is the outermost layer; RFC 0094 and the drafts wrap in the order of
the list, so that the last one is. Which it is, the type of the service says (`Route.order`). A mediator that is named
by its DID in place of an address is the outermost layer in either.

`please_ack` on a forward is never honoured, as the specification demands: whoever could ask for that would learn
whether somebody is there.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import msgspec

from zerochat.crypto.encoding import b64url, compact_json, strict_json
from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.attachment import ATTACHMENTS_MAX, Attachment, attachment_bytes
from zerochat.didcomm.did import DID_CHARS_MAX, Document, did_key_of, short_form
from zerochat.didcomm.iso8601 import iso_seconds
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message, new_id, parse
from zerochat.didcomm.packer import PACKERS, Packer, Profile, TheirKey, envelope_kind
from zerochat.didcomm.protocols.mixing import Mix, below
from zerochat.didcomm.service import Route, verkey
from zerochat.didcomm.uri import same_type
from zerochat.errors import Malformed, Refused

PROTOCOL: Final = "https://didcomm.org/routing/2.0"
FORWARD: Final = PROTOCOL + "/forward"
FORWARD_V1: Final = "https://didcomm.org/routing/1.0/forward"

HOPS_MAX: Final = 8
"""Layers of one onion. Nobody needs three mediators, and each layer costs a third of an envelope's size more."""
UNWRAP_DEPTH_MAX: Final = 5
"""Forwards addressed to oneself, one inside the other: a mediator may add one, and mixing a few more."""
NEXT_CHARS_MAX: Final = DID_CHARS_MAX + 256
"""A DID with a fragment."""
DELAY_MS_MAX: Final = 7 * 86_400_000
"""No mediator here keeps anything much longer than that."""

_MIX = "org.zerochat.mix"
_NOISE = "org.zerochat.noise"
_RECEIPT = "org.zerochat.receipt"
"""Members of the body that only zerochat writes, and that everybody else ignores."""


class Forward(Veiled, frozen=True):
    """What a mediator is asked for."""

    VEILED = ("envelopes",)

    next: str
    """A DID, the id of one of its keys, or (v1) a bare verkey in base58."""
    envelopes: tuple[bytes, ...]
    """One at least."""
    delay_milli: int | None = None
    """Wait this long; if negative, any time up to the amount."""
    expires_time: int | None = None
    """UTC seconds; whatever has not been delivered by then is dropped."""
    mix: Mix | None = None
    not_before: int | None = None
    """UTC seconds; only the draft has that (`wait_until_time`), and where there is a delay too, the later counts."""
    wants_receipt: bool = False
    """Whether the sender would like to have the mediator's word that it keeps it (`held.py`)."""


# --- reading --------------------------------------------------------------------------------------------------------


class _Body(msgspec.Struct):
    """The bodies of the two spellings that are messages like any other."""

    next: str | None = None
    to: str | None = None
    msg: dict[str, Any] | str | None = None
    mix: dict[str, Any] | None = msgspec.field(name=_MIX, default=None)
    wants_receipt: Any = msgspec.field(name=_RECEIPT, default=False)


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
    """A forward of v1 or of the draft, as it stands in its envelope; neither demands an `@id`."""

    type: str = msgspec.field(name="@type")
    to: str
    msg: dict[str, Any] | str | None = None
    payloads: list[_Payload] = msgspec.field(name="payloads~attach", default_factory=list)
    timing: _Timing = msgspec.field(name="~timing", default_factory=_Timing)
    mix: dict[str, Any] | None = None


def is_forward(message: Message) -> bool:
    return same_type(message.type, FORWARD) or same_type(message.type, FORWARD_V1)


def forward_in(plain: bytes) -> Forward | None:
    """The forward that a plaintext of any spelling is; None: it is another message. Raises like `read_forward`."""
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
    """What a message that `is_forward` asks for. Raises Malformed, and Refused for a payload that would have to be
    fetched from somewhere: a mediator that fetches is a tool against others."""
    body = _convert(message.body, _Body)
    if body.msg is not None:
        payloads = [_member(body.msg)]
    elif any(attachment.base64 is None and attachment.json is None for attachment in message.attachments):
        raise Refused(why="forward: a payload that lies elsewhere")
    else:
        payloads = [attachment_bytes(attachment) for attachment in message.attachments]
    recipient = _recipient(body.to if body.next is None else body.next)
    wishes = message.delay_milli, message.expires_time, _mix(body.mix)
    return Forward(recipient, _checked(payloads), *wishes, wants_receipt=body.wants_receipt is True)


def _recipient(name: str | None) -> str:
    if name is None or not 0 < len(name) <= NEXT_CHARS_MAX or not name.isascii():
        raise Malformed(why="forward: it does not say whom it is for")
    return name


def _member(msg: dict[str, Any] | str) -> bytes:
    return msg.encode() if isinstance(msg, str) else compact_json(msg)


def _payload(data: _Data) -> bytes:
    if data.base64 is None and data.json is None:
        raise Refused(why="forward: a payload that lies elsewhere")
    return attachment_bytes(Attachment(base64=data.base64, json=data.json))


def _checked(payloads: list[bytes]) -> tuple[bytes, ...]:
    """All of them envelopes: a mediator is no place for anything else."""
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
) -> bytes:
    """The plaintext of a forward: `envelope` is for `recipient` (a DID, a key id, a verkey), and `to` is the mediator.

    The envelope is put in as it is, not read and written again. `noise`: so many bytes more, which mean nothing.
    `wants_receipt`: ask for the mediator's word that it keeps it.
    """
    body: dict[str, Any] = {"next" if profile == "didcomm/v2" else "to": recipient}
    if mix is not None:
        body[_MIX] = {"hop_chance": mix.hop_chance, "hop_decay": mix.hop_decay, "noise_chance": mix.noise_chance}
    if noise:
        body[_NOISE] = b64url(random(noise * 3 // 4))
    if wants_receipt:
        body[_RECEIPT] = True
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
) -> bytes:
    """The envelope with a layer for every mediator on a route, which leads to the recipient `to` (its DID; or a
    verkey, in v1). Without routing keys it stays as it is.

    The wishes (delay, mix, receipt) are for the mediator next to the recipient, which is the innermost; the expiry is
    for all. A route whose `uri` is a DID has been made one with an address before (`service.deliverables`). Raises
    Malformed for keys that cannot be used or resolved, and for an onion that would be too long.
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
        )
        envelope = packer.anoncrypt(plain, recipient=hop, random=random)
        recipient, delay_milli, mix, wants_receipt = _named(packer, name, resolve), None, None, False
    return envelope


def outermost_first(route: Route) -> tuple[str, ...]:
    """The routing keys in the order in which their owners open the onion."""
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
    """The envelope inside one more forward to `recipient` (DIDComm v2.1, "Rewrapping"), for `inner` (by default the
    recipient itself), with so many bytes of noise. Raises Malformed."""
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
    """A routing key as a DID or DID URL: a bare verkey in base58, as v1 wrote them, is a did:key. Raises Malformed."""
    return name if name.startswith("did:") else did_key_of(verkey(name))


def _hop(packer: Packer, name: str, resolve: Callable[[str], Document]) -> TheirKey:
    """The key to encrypt a layer to: the one that is named, or whichever of the DID's the packer prefers."""
    did, _, fragment = as_did(name).partition("#")
    document = resolve(did)
    if packer.name == "didcomm/v2" and fragment:
        return TheirKey(f"{short_form(did)}#{fragment}", document.agreement_key(f"{did}#{fragment}"))
    return packer.their_key(document, short_form(did))


def _named(packer: Packer, name: str, resolve: Callable[[str], Document]) -> str:
    """A recipient as a forward names it: by its DID or key id, as short as it can be; in v1 by its verkey."""
    if packer.name == "didcomm/v1":
        return packer.their_key(resolve(as_did(name).partition("#")[0]), as_did(name)).kid
    did, mark, fragment = name.partition("#")
    return short_form(did) + mark + fragment if did.startswith("did:") else did


# --- forwards that are addressed to oneself -------------------------------------------------------------------------


class Opened(Protocol):
    """Whatever opens an envelope gives something that has its message."""

    @property
    def message(self) -> Message: ...


_O = TypeVar("_O", bound=Opened)


def open_through(
    envelope: bytes, opened: Callable[[bytes], _O], is_mine: Callable[[str], bool], depth: int = UNWRAP_DEPTH_MAX
) -> tuple[_O, ...]:
    """What an envelope holds, once the forwards in which mediators have wrapped it for us are off.

    `opened` opens one envelope; `is_mine` says whether a name in `next` means us. A forward to anybody else comes back
    like every other message. Raises Malformed for more than `depth` layers, and whatever `opened` raises.
    """
    outer = opened(envelope)
    if not is_forward(outer.message):
        return (outer,)
    found = read_forward(outer.message)
    if not is_mine(found.next):
        return (outer,)
    if depth == 0:
        raise Malformed(why="forwards inside forwards")
    return tuple(inner for each in found.envelopes for inner in open_through(each, opened, is_mine, depth - 1))


# --- delays ---------------------------------------------------------------------------------------------------------


def delay(wanted: Forward, random: Callable[[int], bytes]) -> int:
    """How many milliseconds to wait: the amount that was asked for, or for a negative one any up to it, all alike."""
    asked = wanted.delay_milli or 0
    amount = min(abs(asked), DELAY_MS_MAX)
    return amount if asked >= 0 else below(amount + 1, random)


def ready_at(wanted: Forward, now_ms: int, random: Callable[[int], bytes]) -> int:
    """When to pass on what came at `now_ms` (UTC milliseconds, as the result): the later of its two wishes."""
    latest = now_ms + DELAY_MS_MAX
    return min(max(now_ms + delay(wanted, random), (wanted.not_before or 0) * 1000), latest)
