"""Mediator mail: envelopes for members that cannot be dialled travel over their mediators as nested forwards.

A member announces its mediator routes in its contact and in every `sync`. A sender without a link to it wraps its
envelopes in forwards and posts them there; nothing else in the group changes. The innermost forward is for the member's
*mailbox* key of that group, so its mediator learns neither the DIDs inside nor their number; `mailboxes.py` replaces
it when a member is gone. A URI that failed is not used for a while (exponential backoff); the log retransmits lost
events.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import did_key
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.primitives import ed25519_public, ed25519_to_x25519_secret
from zerochat.didcomm.address_kinds import AddressKind, kind_of_uri
from zerochat.didcomm.did import Identity, resolve, same_did, short_form
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.protocols import routing
from zerochat.didcomm.protocols.mediation_client import DIDS_MAX
from zerochat.didcomm.service import Route, deliverables, routes
from zerochat.errors import Malformed, Refused, RemoteError, Unauthentic
from zerochat.group.backoff import Backoff
from zerochat.group.effects import Measure, SendEnvelope, WebPost
from zerochat.group.links import mediator_proof, mediator_receipts
from zerochat.group.links.contact import (
    ROUTES_CHARS_MAX,
    ROUTES_MAX,
    ROUTING_KEYS_MAX,
    Reach,
    check_route,
    mailbox_seed,
    reach_of_did,
)
from zerochat.group.links.mediator_proof import ENVELOPE
from zerochat.group.links.relationship import own_keys
from zerochat.group.settings import MailRules
from zerochat.group.state import Agent, AwaitedReceipt, EndpointFailure, Group, JoinState
from zerochat.group.state.external import HeldEnvelope
from zerochat.group.state.joins import AWAITING_INVITER
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

RETRY = Backoff(2_000, 60_000)
"""Exponential backoff of a URI that failed."""
RECOVERED_MS = 10_000
"""A URI that has worked for this long after a pause (or as long as the pause was) counts as recovered: its backoff
starts anew."""
FAULTS_MAX = 256
AT_ONCE = MailRules()
"""For first contacts: no delay, no detour."""

Span: TypeAlias = tuple[int, int]
"""The first and the last position of consecutive events of our chain."""


# --- our own reach --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=DIDS_MAX)
def mailbox(seed: bytes, number: int = 0) -> str:
    """The did:key under which mediators store envelopes for the member with this seed."""
    return did_key(ed25519_public(mailbox_seed(seed, number)))


def own_reach_as(tx: Transaction, seed: bytes, number: int = 0) -> Reach:
    """Our endpoints and routes as the member with this seed and mailbox. Requires `Started`."""
    reach = tx.agent.reach
    assert reach is not None
    own_routes: list[Route] = []
    box, room = mailbox(seed, number), ROUTES_CHARS_MAX
    for one in tx.agent.connections.values():
        state = one.mediation
        if state is None or state.phase != "granted" or state.routing_did is None or box in state.refused:
            continue
        route = route_over(state.mediator, state.routing_did)
        if route is not None:
            room -= len(route.uri) + len(box) + sum(map(len, route.routing_keys))
            if room >= 0:
                own_routes.append(replace(route, routing_keys=(*route.routing_keys, box)))
    return Reach(reach.server_key, reach.pair, reach.queue, tuple(own_routes[:ROUTES_MAX]))


def own_reach_in(tx: Transaction, group: Group) -> Reach:
    """Our endpoints and routes as the member of a group."""
    return own_reach_as(tx, group.seed, group.links.mailbox.number)


def nearest_kind(tx: Transaction, seed: bytes) -> AddressKind:
    """The nearest kind of address that a peer of the member with this seed may name: the nearest of our own in that
    group, or what the settings permit. A name of ours counts as public, as its address is not known here."""
    own = [kind_of_uri(route.uri) for route in own_reach_as(tx, seed).routes]
    return max([tx.agent.nearest, *(kind for kind in own if kind is not None)])


def nearest_at(tx: Transaction, seed: bytes, uri: str) -> AddressKind:
    """The nearest kind of address behind this URI of a peer: any, where our own mediator is there."""
    if any(uri == route.uri for route in own_reach_as(tx, seed).routes):
        return AddressKind.LOOPBACK
    return nearest_kind(tx, seed)


def is_near_enough(tx: Transaction, seed: bytes, uri: str) -> bool:
    """Whether a URI of a peer counts. The address of a name is checked when it is dialled."""
    kind = kind_of_uri(uri)
    return kind in (None, AddressKind.PUBLIC) or kind <= nearest_at(tx, seed, uri)


@lru_cache(maxsize=64)
def route_over(mediator: str, routing_did: str) -> Route | None:
    """How others post to a mediator (the routing keys end with its own), by its own DID document; None: they cannot.

    Plain HTTP is preferred, because no answer is needed. Where the mediator is behind another one, so are we.
    """
    candidates = [route for did in dict.fromkeys((routing_did, mediator)) for route in _routes_to(did, routing_did)]
    return next((route for route in candidates if route.uri.startswith("http")), candidates[0] if candidates else None)


def _routes_to(did: str, routing_did: str) -> Iterator[Route]:
    try:
        found = routes(resolve(did))
    except Malformed:
        return
    for route in found:
        try:
            for near in deliverables(route, resolve):
                keys = (*routing.outermost_first(near), routing_did)
                if len(keys) < ROUTING_KEYS_MAX:
                    yield check_route(Route(near.uri, keys, (), "final"))
        except Malformed:
            continue


def mailboxes(agent: Agent) -> frozenset[str]:
    """Every mailbox that our mediators should serve, at most DIDS_MAX."""
    return frozenset(mailbox(*one) for one in islice(_mailboxes(agent), DIDS_MAX))


def mailbox_keys(agent: Agent) -> dict[str, SecretKey]:
    """By mailbox, the key that proves to a mediator that it is ours (`mediation.with_proofs`)."""
    return {mailbox(*one): SecretKey("Ed25519", mailbox_seed(*one)) for one in _mailboxes(agent)}


def _mailboxes(agent: Agent) -> Iterator[tuple[bytes, int]]:
    """Seed and number of every mailbox; those that are about to come or go are last."""
    groups = [group for group in agent.groups.values() if group.state != "left"]
    for group in groups:
        yield group.seed, group.links.mailbox.number
    for join in agent.joins.values():
        if join.state in AWAITING_INVITER | {JoinState.CANCELLING}:
            yield join.seed, 0
    for open_ in agent.invitations.values():
        yield open_.seed, 0
    for group in groups:
        one = group.links.mailbox
        if one.registering:
            yield group.seed, one.number + 1
        if one.grace_until:
            yield group.seed, one.number - 1


# --- sending --------------------------------------------------------------------------------------------------------


def reach_of_member(group: Group, member: str) -> Reach:
    """Where a member is reached: by its last announcement, or by its contact."""
    peer = group.links.peers.get(member)
    return peer.reach if peer and peer.reach else reach_of_did(group.view.members[member].contact)


def announced_routes(group: Group, member: str) -> Sequence[Route]:
    """All routes that a member announces, or a former member has announced."""
    peer = group.links.peers.get(member)
    if member in group.view.members or (member in group.view.former and peer is not None and peer.reach is not None):
        return reach_of_member(group, member).routes
    return ()


def is_cut_off(agent: Agent, group: Group, member: str) -> bool:
    """Whether we connect to our own mediators only, and a member has none that these can post to."""
    return agent.mediated_only and not any(map(_is_postable, announced_routes(group, member)))


def _is_postable(route: Route) -> bool:
    """Whether our mediators can post there for us."""
    return route.uri.startswith("http")


def _routes_to_member(tx: Transaction, name: str, member: str) -> Sequence[Route]:
    """The routes to a member that are no nearer than they may be, and do not pause after a failure."""
    group = tx.group(name)
    return _usable(tx, group.seed, announced_routes(group, member))


def _usable(tx: Transaction, seed: bytes, candidates: Iterable[Route]) -> Sequence[Route]:
    return [
        one
        for one in candidates
        if is_working(tx, one.uri)
        and is_near_enough(tx, seed, one.uri)
        and (not tx.agent.mediated_only or _is_postable(one))
    ]


def is_proved(tx: Transaction, seed: bytes, route: Route) -> bool:
    """Whether mail may go this way: the mediator there has proved itself, or is our own."""
    if mediator_proof.is_proved(tx, route):
        return True
    to = route.uri, short_form(mediator_proof.mediator_of(route))
    own = own_reach_as(tx, seed).routes if tx.agent.reach is not None else ()
    return any((one.uri, short_form(mediator_proof.mediator_of(one))) == to for one in own)


def route_to(tx: Transaction, name: str, member: str) -> Route | None:
    """The first route to a member that is working and proved; None: there is none."""
    seed = tx.group(name).seed
    return next((one for one in _routes_to_member(tx, name, member) if is_proved(tx, seed, one)), None)


def seek(tx: Transaction, name: str, member: str, *, earned: bool = False) -> bool:
    """Whether an envelope can be sent to this member now. If not, begin to prove one of its routes; `earned` as in
    `mediator_proof.begin`."""
    if reachable(tx, name, member):
        return True
    group = tx.group(name)
    if member in group.links.peers and tx.agent.reach is not None:
        routes_ = [(one, nearest_at(tx, group.seed, one.uri)) for one in _routes_to_member(tx, name, member)]
        mediator_proof.begin(tx, f"{name} {member}", routes_, earned=earned)
    return False


def reachable(tx: Transaction, name: str, member: str) -> bool:
    """Whether an envelope can be sent to this member now, over its link or by mail."""
    peer = tx.group(name).links.peers.get(member)  # None: no peer (yet)
    return peer is not None and (peer.link in tx.agent.links_up or route_to(tx, name, member) is not None)


def is_connected(tx: Transaction, name: str, member: str) -> bool:
    """Whether the link to this member is up."""
    return tx.peer(name, member).link in tx.agent.links_up


def goes_by_mail(tx: Transaction, name: str, member: str) -> bool:
    """Whether an envelope to this member would go over a mediator now."""
    return not is_connected(tx, name, member) and route_to(tx, name, member) is not None


def send(tx: Transaction, name: str, member: str, envelope: bytes, span: Span | None = None) -> None:
    """Send an envelope to one member, over its link if that is up, by mail otherwise. `span`: our events in it."""
    peer = tx.peer(name, member)
    route = None if peer.link in tx.agent.links_up else route_to(tx, name, member)
    if route is None:
        tx.emit(SendEnvelope(peer.link, envelope))
        return
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    known = relationship is not None and relationship.established
    recipient = relationship.theirs if relationship is not None and known else group.view.members[member].contact
    nearest = nearest_at(tx, group.seed, route.uri)
    kept = post(tx, route, recipient, envelope, nearest, f"{name} {member}", tx.agent.mail_rules)
    if kept is not None and span is not None:
        mediator = route.routing_keys[0].partition("#")[0]
        mediator_receipts.await_receipt(tx, kept, AwaitedReceipt(name, group.me, member, *span, mediator, tx.now))


def post_or_hold(
    tx: Transaction,
    payer: str,
    seed: bytes,
    candidates: Sequence[Route],
    held: HeldEnvelope,
    nearest: AddressKind | None = None,
    *,
    by_user: bool = False,
) -> None:
    """Post an envelope over the first proved one of these routes, for a peer that is not retransmitted to; or begin to
    prove one, and keep the envelope until then. `nearest`: None: by our addresses as the member with this seed.
    `by_user` as in `mediator_proof.begin`."""
    routes_ = [(one, nearest_at(tx, seed, one.uri) if nearest is None else nearest) for one in candidates]
    for route, kind in routes_:
        if is_proved(tx, seed, route):
            post(tx, route, held.recipient, held.envelope, kind, payer)
            return
    mediator_proof.begin(tx, payer, routes_, held, by_user=by_user)


def receive_proof(tx: Transaction, payer: str, envelope: bytes) -> None:
    """A mediator has answered a probe: post what has waited for it. Raises RemoteError."""
    probe = tx.agent.probes[payer].open
    assert probe is not None
    for held in mediator_proof.receive_answer(tx, payer, envelope):
        post(tx, probe.route, held.recipient, held.envelope, probe.nearest, payer)


def post(
    tx: Transaction,
    route: Route,
    recipient: str,
    envelope: bytes,
    nearest: AddressKind,
    payer: str,
    rules: MailRules = AT_ONCE,
) -> bytes | None:
    """Wrap an envelope for every hop on the route to this DID, and post it to the first, at no address nearer than
    `nearest`. Returns the envelope that the mediator stores, if its receipt was requested, else None.

    A receipt is requested wherever it can come back on the same connection: on a route over one mediator to a mailbox
    there. The last mediator before that mailbox is asked for a delay and detours (`rules`). An envelope that does not
    fit the requested wrappings (each adds a third) is dropped.
    """
    asks, to = len(route.routing_keys) == 2 and route.order == "final", short_form(recipient)
    wrap = partial(routing.wrap, resolve=resolve, random=tx.context.random)
    try:
        if len(route.routing_keys) >= 2 and route.order == "final":
            *mediator_keys, box = route.routing_keys
            kept = wrap(envelope, replace(route, routing_keys=(box,)), to)
            way = replace(route, routing_keys=tuple(mediator_keys))
            wrapped = wrap(kept, way, box, delay_milli=rules.delay_milli, mix=rules.mix, wants_receipt=asks)
        else:
            kept = wrapped = wrap(envelope, route, to)
    except RemoteError:
        tx.emit(Measure("dropped", "CannotWrap"))
        return None
    is_posted = post_wrapped(tx, route, wrapped, nearest, payer, asks=asks)
    return kept if asks and is_posted else None


def post_wrapped(
    tx: Transaction, route: Route, wrapped: bytes, nearest: AddressKind, payer: str, *, asks: bool = False
) -> bool:
    """Post an envelope for the first mediator of a route as `post` does; False: it exceeds the rate. `asks`: its answer
    is wanted."""
    if not mediator_proof.spend(tx, payer, route, len(wrapped)):
        tx.emit(Measure("dropped", "MailRate"))  # retransmission follows
        return False
    if mediator_proof.is_due(tx, route):
        mediator_proof.begin(tx, payer, [(route, nearest)])
    tx.emit(WebPost(route.uri, wrapped, tx.packer(ENVELOPE).media_type, return_route=asks, nearest=nearest))
    return True


def routes_of_did(tx: Transaction, seed: bytes, did: str) -> Sequence[Route]:
    """The usable mediator routes in the DID document of a peer of the member with this seed."""
    return _usable(tx, seed, reach_of_did(did).routes)


def is_working(tx: Transaction, uri: str) -> bool:
    """Whether a URI accepts posts, as far as we know."""
    fault = tx.agent.endpoint_failures.get(uri)
    return fault is None or fault.until <= tx.now


def record_failure(tx: Transaction, uri: str) -> bool:
    """A URI failed: pause it. Returns whether that is news."""
    fault = tx.agent.endpoint_failures.get(uri)
    if fault is not None and fault.until > tx.now:
        return False
    again = fault is not None and tx.now - fault.until < max(RECOVERED_MS, RETRY.delay_ms(fault.tries - 1))
    tries = fault.tries + 1 if fault is not None and again else 1
    delay = RETRY.delay_ms(tries - 1)
    kept = {k: one for k, one in tx.agent.endpoint_failures.items() if tx.now - one.until < RETRY.ceiling_ms}
    if len(kept) >= FAULTS_MAX and uri not in kept:
        kept = {k: one for k, one in kept.items() if tx.now < one.until}
    if len(kept) >= FAULTS_MAX and uri not in kept:
        return False  # it counts as working, so no retry may be triggered by its recovery
    tx.update_agent(endpoint_failures={**kept, uri: EndpointFailure(tries, tx.now + delay)})
    tx.set_timer(TimerKind.WEB_RETRY, uri, delay)
    return True


# --- receiving ------------------------------------------------------------------------------------------------------


class KeyOwner(Struct, frozen=True):
    """What a recipient key of an envelope is for."""

    kind: Literal["mailbox", "contact", "member", "invitation", "join", "connection", "probe"]
    key: SecretKey
    group: str = ""
    member: str = ""
    link: bytes = b""
    connection: str = ""
    payer: str = ""
    """The peer that a probe is for."""


def owner_of(tx: Transaction, packer: Packer, kids: tuple[str, ...]) -> tuple[str, KeyOwner]:
    """The first of these key ids that is ours, and its owner. Raises Refused."""
    wanted = set(kids)
    for kid, owner in _key_owners(tx, packer):
        if kid in wanted:
            return kid, owner
    raise Refused(why="mail for another recipient")


def _key_owners(tx: Transaction, packer: Packer) -> Iterator[tuple[str, KeyOwner]]:
    agent = tx.agent
    for name, group in agent.groups.items():
        if group.state == "left":
            continue
        # The one before may still have mail; the next one is in use already if our profile was restored.
        for number in range(max(0, group.links.mailbox.number - 1), group.links.mailbox.number + 2):
            yield from _mailbox_owner(group.seed, number, name)
        for kid, key in own_keys(packer, group.contact).items():
            yield kid, KeyOwner("contact", key, group=name)
        for member, one in group.links.relationships.items():
            if member not in group.links.peers:
                continue
            offered = [offer.relationship.mine for offer in group.links.offers.get(member, ())]
            for identity in (one.mine, one.rotation.old, *offered) if one.rotation else (one.mine, *offered):
                for kid, key in own_keys(packer, identity).items():
                    yield kid, KeyOwner("member", key, group=name, member=member)
    for link, open_ in agent.invitations.items():
        yield from _mailbox_owner(open_.seed, 0, open_.group, link)
        own = Identity(open_.invitation.did, open_.seed, ed25519_to_x25519_secret(open_.seed))
        for identity in (own, *(claim.relationship.mine for claim in open_.claims.values())):
            for kid, key in own_keys(packer, identity).items():
                yield kid, KeyOwner("invitation", key, link=link)
    for link, join in agent.joins.items():
        yield from _mailbox_owner(join.seed, 0, "", link)
        for kid, key in own_keys(packer, join.relationship.mine).items():
            yield kid, KeyOwner("join", key, link=link)
    for name, connection in agent.connections.items():
        one = connection.relationship
        for identity in (one.mine, one.rotation.old) if one.rotation else (one.mine,):
            for kid, key in own_keys(packer, identity).items():
                yield kid, KeyOwner("connection", key, connection=name)
    for payer, record in agent.probes.items():
        for kid, key in own_keys(packer, record.open.mine).items() if record.open is not None else ():
            yield kid, KeyOwner("probe", key, payer=payer)


@lru_cache(maxsize=DIDS_MAX)
def _mailbox_owner(seed: bytes, number: int, group: str, link: bytes = b"") -> tuple[tuple[str, KeyOwner], ...]:
    secret = ed25519_to_x25519_secret(mailbox_seed(seed, number))
    kid = resolve(mailbox(seed, number)).agreement[0].kid
    return ((kid, KeyOwner("mailbox", SecretKey("X25519", secret), group=group, link=link)),)


def may_be_in(agent: Agent, owner: KeyOwner, box: KeyOwner) -> bool:
    """Whether an envelope for this owner may come out of this mailbox: the mailbox of its own group or join."""
    if owner.link and owner.link == box.link:
        return True
    group = owner.group
    if owner.kind == "invitation":
        group = agent.invitations[owner.link].group
    elif owner.kind == "join":
        group = agent.joins[owner.link].group
    return group == box.group != ""


def open_forward(packer: Packer, envelope: bytes, kid: str, owner: KeyOwner) -> tuple[bytes, ...]:
    """The envelopes in a forward to one of our mailboxes. Raises RemoteError."""

    def unknown(kid: str) -> PublicKey:
        raise Unauthentic()

    unpacked = packer.unpack(envelope, secret_of=lambda name: owner.key if name == kid else None, public_of=unknown)
    message = packer.parse(unpacked.plain)
    if not routing.is_forward(message):
        raise Refused(why="mail that is not a forward to us")
    return routing.read_forward(message).envelopes


def rewrapped(packer: Packer, envelope: bytes, kid: str, owner: KeyOwner) -> tuple[bytes, ...]:
    """The envelopes in a forward that a mediator has addressed to us, its recipient (DIDComm v2.1, "Rewrapping");
    empty for any other envelope. Raises RemoteError for a forward to another recipient."""

    def unknown(kid: str) -> PublicKey:
        raise Unauthentic()

    try:
        unpacked = packer.unpack(envelope, secret_of=lambda name: owner.key if name == kid else None, public_of=unknown)
        message = packer.parse(unpacked.plain) if unpacked.kind == "anoncrypt" else None
    except RemoteError:
        return ()  # it names its sender, or has a further layer
    if message is None or not routing.is_forward(message):
        return ()
    found = routing.read_forward(message)
    recipient, ours = (routing.as_did(name).partition("#")[0] for name in (found.next, kid))
    if not same_did(recipient, ours):
        raise Refused(why="a forward to another recipient")
    return found.envelopes
