"""The recipient's side of mediation and pickup, as a value: what one of us knows of one mediator, and what to say next.

    asking ── grant ──> granted          on every new connection: ask again, or bring the list of DIDs up to date,
       └──── deny ───> denied            turn live mode on, and take what is waiting in bites

Every function takes the value and gives the next one with the messages to send, over the connection to the mediator
and no other. Envelopes come out as parcels, whose ids go to `acknowledge` when they are on disk and not before: until
then the mediator keeps them, and delivers them again after every reconnection. So a parcel may come twice.

Nothing here waits for an acknowledgement before it asks for more, up to HELD_MAX parcels; and nothing that a mediator
answers makes us ask the same question at once again, so a mad one cannot make us spin.
"""

from collections.abc import Callable, Iterable
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from zerochat.didcomm.did import same_did, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import mediation, pickup
from zerochat.didcomm.protocols.mediation import UPDATES_MAX, Change, Version
from zerochat.didcomm.protocols.pickup import Parcel

Random = Callable[[int], bytes]

DIDS_MAX: Final = 1024
"""DIDs registered with one mediator: more than anybody has relationships."""
HELD_MAX: Final = 256
"""Parcels that have come and are not on disk yet, before no more are asked for."""


class Mediated(Struct, frozen=True):
    """What a recipient knows of one mediator."""

    mediator: str
    """The mediator's DID, from its invitation."""
    me: str
    """The DID (long form) under which we speak to it, and to nobody else."""
    pthid: str | None = None
    """The id of the invitation."""
    phase: Literal["asking", "granted", "denied"] = "asking"
    routing_did: str | None = None
    """What stands in our DID documents as the endpoint, once it is granted."""
    wanted: frozenset[str] = frozenset()
    """The DIDs (long forms) that shall be registered."""
    registered: frozenset[str] = frozenset()
    """Those that are, by the mediator's word."""
    refused: frozenset[str] = frozenset()
    """Those of `wanted` that it has not taken; asked for again on the next connection."""
    connected: bool = False
    asked: frozenset[str] = frozenset()
    """DIDs in an update that has not been answered on this connection."""
    fetching: str | None = None
    """The id of the delivery request that has not been answered."""
    held: frozenset[str] = frozenset()
    """The ids of parcels that have come over this connection and are not acknowledged."""
    version: Version = "2.0"


class Said(Struct, frozen=True):
    """The next value, what to send to the mediator, and what has come from it."""

    state: Mediated
    messages: tuple[Message, ...] = ()
    parcels: tuple[Parcel, ...] = ()


def opened(state: Mediated, random: Random) -> Said:
    """A new connection to the mediator is there."""
    fresh = replace(closed(state), connected=True, refused=frozenset())
    if state.phase == "granted":
        return _begin(fresh, random)
    asking = replace(fresh, phase="asking")
    return Said(asking, _addressed(asking, [mediation.request(random, pthid=state.pthid, version=state.version)]))


def closed(state: Mediated) -> Mediated:
    """The connection is gone."""
    return replace(state, connected=False, asked=frozenset(), fetching=None, held=frozenset())


def want(state: Mediated, dids: Iterable[str], random: Random) -> Said:
    """From now on exactly these DIDs (long forms) shall be registered."""
    wanted = frozenset(dids)
    assert len(wanted) <= DIDS_MAX
    changed = replace(state, wanted=wanted, refused=state.refused & wanted)
    return _update(changed, random)


def acknowledge(state: Mediated, ids: Iterable[str], random: Random) -> Said:
    """These parcels are on disk. The mediator answers with what is still waiting, and that is asked for."""
    listed = list(dict.fromkeys(ids))
    if not listed or not state.connected:
        return Said(state)
    bites = [listed[start : start + pickup.RECEIVED_MAX] for start in range(0, len(listed), pickup.RECEIVED_MAX)]
    said = _addressed(state, [pickup.messages_received(bite, random) for bite in bites])
    return Said(replace(state, held=state.held - set(listed)), said)


def poll(state: Mediated, random: Random) -> Said:
    """Ask for what is waiting, whatever was believed; for a timer too, in case an answer was lost."""
    if state.phase != "granted" or not state.connected:
        return Said(state)
    asking = pickup.delivery_request(random)
    return Said(replace(state, fetching=asking.id), _addressed(state, [asking]))


def hear(state: Mediated, message: Message, random: Random) -> Said:
    """A message from the mediator: authenticated, and for `state.me`. Raises Malformed; what is not of these two
    protocols changes nothing."""
    kind = mediation.kind_of(message)
    if kind is not None:
        return _hear_mediation(state, message, kind[1], random)
    match pickup.kind_of(message):
        case "delivery":
            return _hear_delivery(state, message, random)
        case "status":
            waiting = pickup.read_status(message)
            if message.thid is not None and message.thid == state.fetching:
                return Said(replace(state, fetching=None))
            if waiting.count > len(state.held) and state.fetching is None and len(state.held) < HELD_MAX:
                return poll(state, random)
    return Said(state)


def _hear_delivery(state: Mediated, message: Message, random: Random) -> Said:
    parcels = tuple(parcel for parcel in pickup.read_delivery(message) if parcel.id not in state.held)
    held = state.held | {parcel.id for parcel in parcels}
    if message.thid is None or message.thid != state.fetching:
        return Said(replace(state, held=held), parcels=parcels)
    answered = replace(state, held=held, fetching=None)
    further = poll(answered, random) if parcels and len(held) < HELD_MAX else Said(answered)
    return replace(further, parcels=parcels)


def _hear_mediation(state: Mediated, message: Message, kind: mediation.Kind, random: Random) -> Said:
    match kind:
        case "grant" if state.phase != "granted":
            routing = mediation.read_grant(message)[0]
            return _begin(replace(state, phase="granted", routing_did=routing), random)
        case "deny" if state.phase == "asking":
            return Said(replace(state, phase="denied"))
        case "updated":
            return _update(_updated(state, message), random)
    return Said(state)


def _updated(state: Mediated, message: Message) -> Mediated:
    """The mediator names a DID in either form; we know the long one."""
    registered, refused, asked = set(state.registered), set(state.refused), set(state.asked)
    long = {short_form(did): did for did in state.asked}
    for row in mediation.read_update_response(message):
        did = long.get(short_form(row.did))
        if did is None:
            continue
        asked.discard(did)
        if row.result not in ("success", "no_change"):
            refused.add(did)
        elif row.action == "add":
            registered.add(did)
        else:
            registered.discard(did)
    return replace(state, registered=frozenset(registered), refused=frozenset(refused), asked=frozenset(asked))


def _begin(state: Mediated, random: Random) -> Said:
    """After a grant, or a reconnection: every DID is registered again, because a mediator that was put back from a
    backup may have forgotten some, and to add one twice changes nothing."""
    updates = _update(replace(state, registered=state.registered - state.wanted), random)
    live = _addressed(state, [pickup.live_delivery_change(True, random)])
    fetch = poll(updates.state, random)
    return Said(fetch.state, updates.messages + live + fetch.messages)


def _update(state: Mediated, random: Random) -> Said:
    """Ask for the next changes; one message at a time is under way."""
    if state.phase != "granted" or not state.connected or state.asked:
        return Said(state)
    missing = sorted(state.wanted - state.registered - state.refused)
    surplus = sorted(state.registered - state.wanted - state.refused)
    changes = [*(Change(did, "add") for did in missing), *(Change(did, "remove") for did in surplus)][:UPDATES_MAX]
    if not changes:
        return Said(state)
    asking = replace(state, asked=frozenset(change.did for change in changes))
    return Said(asking, _addressed(asking, [mediation.update(changes, random, version=state.version)]))


def _addressed(state: Mediated, messages: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(replace(message, from_=state.me, to=(state.mediator,)) for message in messages)


def speaks(state: Mediated, sender: str) -> bool:
    """Whether a proven sender is this mediator."""
    return same_did(sender, state.mediator)
