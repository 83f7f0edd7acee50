"""Recipient's side of mediation and pickup with one mediator: a pure state machine.

    requested ── grant ──> granted         on each connection: request again, or synchronise the list of DIDs,
        └────── deny ────> denied          turn live mode on and fetch queued envelopes

Every function takes the state and returns the next one with messages for the mediator's connection. Received parcels
are acknowledged (`acknowledge`) only when they are on disk; until then the mediator redelivers them after every
reconnection, so duplicates are possible.

Up to UNACKNOWLEDGED_MAX parcels are requested without waiting for acknowledgements. No answer of a mediator triggers
the same request again at once, so a faulty mediator cannot cause a busy loop.
"""

from collections.abc import Callable, Iterable
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from zerochat.didcomm.did import same_did, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import mediation, pickup
from zerochat.didcomm.protocols.mediation import UPDATES_MAX, Change, Grant, Version
from zerochat.didcomm.protocols.pickup import Parcel
from zerochat.didcomm.protocols.routing import as_did

Random = Callable[[int], bytes]

DIDS_MAX: Final = 1024
"""DIDs registered with one mediator."""
PICKUPS_KEPT: Final = 4
UNACKNOWLEDGED_MAX: Final = 256
"""Unacknowledged parcels at which fetching pauses."""


class MediationState(Struct, frozen=True):
    """State of one mediator."""

    mediator: str
    """The mediator's DID from its invitation."""
    me: str
    """Our DID (long form) towards this mediator only."""
    pthid: str | None = None
    """Id of the invitation."""
    phase: Literal["requested", "granted", "denied"] = "requested"
    routing_did: str | None = None
    """Routing DID for our DID documents, once granted; None also in version 1.0."""
    endpoint: str = ""
    """1.0: the address for our DID documents, once granted."""
    routing_keys: tuple[str, ...] = ()
    """1.0: the keys to wrap for, as did:key."""
    desired: frozenset[str] = frozenset()
    """DIDs (long forms) to register; in version 1.0 keys as did:key."""
    registered: frozenset[str] = frozenset()
    """DIDs that the mediator confirmed."""
    refused: frozenset[str] = frozenset()
    """Desired DIDs that the mediator refused; retried on the next connection."""
    connected: bool = False
    pending: frozenset[str] = frozenset()
    """DIDs in an unanswered update of this connection."""
    pending_delivery: str | None = None
    """Id of the unanswered delivery request."""
    unacknowledged: frozenset[str] = frozenset()
    """Ids of parcels received over this connection and not acknowledged yet."""
    pickups: tuple[str, ...] = ()
    """Ids of the pickup requests of this connection, the last PICKUPS_KEPT."""
    fetches: bool = True
    """Whether the mediator has not refused a pickup request of this connection; some only deliver (ACA-Py)."""
    version: Version = "2.0"

    @property
    def pickup(self) -> pickup.Version:
        """The version of Message Pickup that goes with that of mediation."""
        return "2.0" if self.version == "1.0" else "3.0"


class MediationStep(Struct, frozen=True):
    """Result of a transition: the next state, messages to send, received parcels."""

    state: MediationState
    messages: tuple[Message, ...] = ()
    parcels: tuple[Parcel, ...] = ()


def connected(state: MediationState, random: Random) -> MediationStep:
    """A connection to the mediator was established."""
    fresh = replace(disconnected(state), connected=True, refused=frozenset())
    if state.phase == "granted":
        return _begin(fresh, random)
    request = replace(fresh, phase="requested")
    return MediationStep(
        request, _addressed(request, [mediation.request(random, pthid=state.pthid, version=state.version)])
    )


def disconnected(state: MediationState) -> MediationState:
    """The connection was lost."""
    return replace(
        state,
        connected=False,
        pending=frozenset(),
        pending_delivery=None,
        unacknowledged=frozenset(),
        pickups=(),
        fetches=True,
    )


def refuse_pickup(state: MediationState, thread: str | None) -> MediationState | None:
    """The mediator has reported a problem in this thread: the state without further pickup requests, if it is about one
    of them; None: it is about something else."""
    return replace(state, fetches=False, pending_delivery=None) if thread in state.pickups else None


def restart(state: MediationState, random: Random) -> MediationStep:
    """The mediator does not know us any more: request mediation again, on the same connection."""
    return connected(replace(state, phase="requested", registered=frozenset()), random)


def set_dids(state: MediationState, dids: Iterable[str], random: Random) -> MediationStep:
    """Register exactly these DIDs (long forms)."""
    desired = frozenset(dids)
    assert len(desired) <= DIDS_MAX
    changed = replace(state, desired=desired, refused=state.refused & desired)
    return _update(changed, random)


def acknowledge(state: MediationState, ids: Iterable[str], random: Random) -> MediationStep:
    """The parcels are on disk: acknowledge them. The mediator answers with the remaining count."""
    listed = list(dict.fromkeys(ids))
    if not listed or not state.connected:
        return MediationStep(state)
    batches = [listed[start : start + pickup.RECEIVED_MAX] for start in range(0, len(listed), pickup.RECEIVED_MAX)]
    messages = _addressed(state, [pickup.messages_received(batch, random, version=state.pickup) for batch in batches])
    return MediationStep(replace(state, unacknowledged=state.unacknowledged - set(listed)), messages)


def poll(state: MediationState, random: Random) -> MediationStep:
    """Request waiting messages unconditionally; also for a timer, in case an answer was lost."""
    if state.phase != "granted" or not state.connected or not state.fetches:
        return MediationStep(state)
    request = pickup.delivery_request(random, version=state.pickup)
    asked = replace(_asked(state, request), pending_delivery=request.id)
    return MediationStep(asked, _addressed(state, [request]))


def _asked(state: MediationState, request: Message) -> MediationState:
    return replace(state, pickups=(*state.pickups, request.id)[-PICKUPS_KEPT:])


def receive(state: MediationState, message: Message, random: Random) -> MediationStep:
    """Process an authenticated message from the mediator to `state.me`; other protocols change nothing. Raises
    Malformed."""
    kind = mediation.kind_of(message)
    if kind is not None:
        return _receive_mediation(state, message, kind[1], random)
    match pickup.kind_of(message):
        case "delivery":
            return _receive_delivery(state, message, random)
        case "status":
            waiting = pickup.read_status(message)
            if message.thid is not None and message.thid == state.pending_delivery:
                return MediationStep(replace(state, pending_delivery=None))
            if (
                waiting.count > len(state.unacknowledged)
                and state.pending_delivery is None
                and len(state.unacknowledged) < UNACKNOWLEDGED_MAX
            ):
                return poll(state, random)
    return MediationStep(state)


def _receive_delivery(state: MediationState, message: Message, random: Random) -> MediationStep:
    parcels = tuple(parcel for parcel in pickup.read_delivery(message) if parcel.id not in state.unacknowledged)
    held = state.unacknowledged | {parcel.id for parcel in parcels}
    if message.thid is None or message.thid != state.pending_delivery:
        return MediationStep(replace(state, unacknowledged=held), parcels=parcels)
    answered = replace(state, unacknowledged=held, pending_delivery=None)
    further = poll(answered, random) if parcels and len(held) < UNACKNOWLEDGED_MAX else MediationStep(answered)
    return replace(further, parcels=parcels)


def _receive_mediation(state: MediationState, message: Message, kind: mediation.Kind, random: Random) -> MediationStep:
    match kind:
        case "grant" if state.phase != "granted":
            return _begin(_granted(state, mediation.read_grant(message)), random)
        case "deny" if state.phase == "requested":
            return MediationStep(replace(state, phase="denied"))
        case "updated":
            return _update(_updated(state, message), random)
    return MediationStep(state)


def _granted(state: MediationState, grant: Grant) -> MediationState:
    if not grant.endpoint:
        return replace(state, phase="granted", routing_did=grant.routing[0])
    keys = tuple(as_did(key).partition("#")[0] for key in grant.routing)
    return replace(state, phase="granted", endpoint=grant.endpoint, routing_keys=keys)


def _updated(state: MediationState, message: Message) -> MediationState:
    """The mediator may name DIDs in either form, and keys in base58; the state has the long form, and did:keys."""
    registered, refused, pending = set(state.registered), set(state.refused), set(state.pending)
    long = {short_form(did): did for did in state.pending}
    for row in mediation.read_update_response(message):
        did = long.get(short_form(as_did(row.did).partition("#")[0]))
        if did is None:
            continue
        pending.discard(did)
        if row.result not in ("success", "no_change"):
            refused.add(did)
        elif row.action == "add":
            registered.add(did)
        else:
            registered.discard(did)
    return replace(state, registered=frozenset(registered), refused=frozenset(refused), pending=frozenset(pending))


def _begin(state: MediationState, random: Random) -> MediationStep:
    """After a grant or a reconnection: register every DID again (idempotent), because a mediator restored from a
    backup may have lost some."""
    updates = _update(replace(state, registered=state.registered - state.desired), random)
    live = pickup.live_delivery_change(True, random, version=state.pickup)
    fetch = poll(_asked(updates.state, live), random)
    return MediationStep(fetch.state, updates.messages + _addressed(state, [live]) + fetch.messages)


def _update(state: MediationState, random: Random) -> MediationStep:
    """Send the next changes; one update is pending at a time."""
    if state.phase != "granted" or not state.connected or state.pending:
        return MediationStep(state)
    missing = sorted(state.desired - state.registered - state.refused)
    surplus = sorted(state.registered - state.desired - state.refused)
    changes = [*(Change(did, "add") for did in missing), *(Change(did, "remove") for did in surplus)][:UPDATES_MAX]
    if not changes:
        return MediationStep(state)
    request = replace(state, pending=frozenset(change.did for change in changes))
    return MediationStep(request, _addressed(request, [mediation.update(changes, random, version=state.version)]))


def _addressed(state: MediationState, messages: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(replace(message, from_=state.me, to=(state.mediator,)) for message in messages)


def is_mediator(state: MediationState, sender: str) -> bool:
    """Whether a proven sender is the mediator."""
    return same_did(sender, state.mediator)
