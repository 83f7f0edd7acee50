"""Mail: envelopes that go over mediators, to members who cannot be dialled and from everybody to us if we cannot.

A member says (in its contact, and in every `sync`) over which mediators it is reached. Whoever has no link to it wraps
its envelopes in forwards and posts them there; nothing else in the group changes. The innermost forward is for the
member's own *mailbox* key of that group, so its mediator learns neither the DIDs inside nor how many there are. A URI
that did not take something is left alone for a while; what was lost is repeated by the log, as always.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import did_key
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.primitives import ed25519_public, ed25519_to_x25519_secret
from zerochat.didcomm.did import Identity, resolve, short_form
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.protocols import routing
from zerochat.didcomm.service import Route, deliverables, routes
from zerochat.errors import Malformed, Refused, RemoteError, Unauthentic
from zerochat.group.effects import Dispatch, Measure, Post
from zerochat.group.links import mediator_receipts
from zerochat.group.links.contact import (
    ROUTES_MAX,
    ROUTING_KEYS_MAX,
    WAYS_CHARS_MAX,
    Reach,
    checked_route,
    mailbox_seed,
    reach_of_did,
)
from zerochat.group.links.relationship import own_keys
from zerochat.group.state import Agent, Awaited, Fault, Group
from zerochat.group.transaction import Turn

ENVELOPE = "didcomm/v2"
"""What forwards travel in, whatever is inside: mediators speak it, and it hides the sender."""
RETRY_MS, RETRY_MS_MAX = 2_000, 60_000
"""A URI that did not take something is tried again after this long, then ever more rarely."""
AGAIN_MS = 10_000
"""A URI that has worked for this long after a pause (or as long as the pause was) is as good as new."""
FAULTS_MAX = 256

Span: TypeAlias = tuple[int, int]
"""The first and the last of some events that follow each other in our chain, by their positions."""


# --- where we are reached -------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def mailbox(seed: bytes) -> str:
    """The did:key under which mediators keep what is for the member with this seed."""
    return did_key(ed25519_public(mailbox_seed(seed)))


def own_reach(turn: Turn, seed: bytes) -> Reach:
    """Where we are reached as the member with this seed. There must have been a start (`Started`)."""
    reach = turn.agent.reach
    assert reach is not None
    ways: list[Route] = []
    box, room = mailbox(seed), WAYS_CHARS_MAX
    for one in turn.agent.connections.values():
        state = one.mediation
        if state is None or state.phase != "granted" or state.routing_did is None or box in state.refused:
            continue
        way = way_over(state.mediator, state.routing_did)
        if way is not None:
            room -= len(way.uri) + len(box) + sum(map(len, way.routing_keys))
            if room >= 0:
                ways.append(replace(way, routing_keys=(*way.routing_keys, box)))
    return Reach(reach.server_key, reach.pair, reach.queue, tuple(ways[:ROUTES_MAX]))


@lru_cache(maxsize=64)
def way_over(mediator: str, routing_did: str) -> Route | None:
    """How others post to a mediator (the routing keys end with its own), as it says itself; None: they cannot.

    Plain HTTP by preference, because nobody needs an answer. Where the mediator is behind another one, so are we.
    """
    ways = [way for did in dict.fromkeys((routing_did, mediator)) for way in _ways_to(did, routing_did)]
    return next((way for way in ways if way.uri.startswith("http")), ways[0] if ways else None)


def _ways_to(did: str, routing_did: str) -> Iterator[Route]:
    try:
        found = routes(resolve(did))
    except Malformed:
        return
    for way in found:
        try:
            for near in deliverables(way, resolve):
                keys = (*routing.outermost_first(near), routing_did)
                if len(keys) < ROUTING_KEYS_MAX:
                    yield checked_route(Route(near.uri, keys, (), "final"))
        except Malformed:
            continue


def mailboxes(agent: Agent) -> frozenset[str]:
    """Every mailbox that our mediators should keep."""
    return frozenset(mailbox(seed) for seed in _seeds(agent))


def mailbox_keys(agent: Agent) -> dict[str, SecretKey]:
    """By mailbox, the key that proves to a mediator that it is ours (`mediation.with_proofs`)."""
    return {mailbox(seed): SecretKey("Ed25519", mailbox_seed(seed)) for seed in _seeds(agent)}


def _seeds(agent: Agent) -> list[bytes]:
    seeds = [group.seed for group in agent.groups.values() if group.state != "left"]
    seeds += [join.seed for join in agent.joins.values() if join.phase in ("exchanging", "asking") or join.parting]
    return seeds + [open_.seed for open_ in agent.invitations.values()]


# --- sending --------------------------------------------------------------------------------------------------------


def reach_of_member(group: Group, member: str) -> Reach:
    """Where a member is reached: as it said last, or as its contact says."""
    peer = group.peers.get(member)
    return peer.reach if peer and peer.reach else reach_of_did(group.view.members[member].contact)


def way_to(turn: Turn, name: str, member: str) -> Route | None:
    """The way over mediators to a member, if it has one that works as far as we know."""
    group = turn.group(name)
    if member not in group.view.members and member not in group.view.former:
        return None
    if member in group.view.former and not (group.peers.get(member) and group.peers[member].reach):
        return None
    return next((way for way in reach_of_member(group, member).mail if works(turn, way.uri)), None)


def reachable(turn: Turn, name: str, member: str) -> bool:
    """Whether something can be sent to this member now, over its link or by mail."""
    peer = turn.group(name).peers.get(member)  # none of whoever we have nothing to do with (yet)
    return peer is not None and (peer.link in turn.agent.up or way_to(turn, name, member) is not None)


def linked(turn: Turn, name: str, member: str) -> bool:
    """Whether the link to this member is up."""
    return turn.group(name).peers[member].link in turn.agent.up


def by_mail(turn: Turn, name: str, member: str) -> bool:
    """Whether what is sent to this member now goes over a mediator."""
    return not linked(turn, name, member) and way_to(turn, name, member) is not None


def send(turn: Turn, name: str, member: str, envelope: bytes, span: Span | None = None) -> None:
    """Send an envelope to one member, over its link if that is up, by mail otherwise. `span`: the events of ours in
    it."""
    peer = turn.group(name).peers[member]
    way = None if peer.link in turn.agent.up else way_to(turn, name, member)
    if way is None:
        turn.say(Dispatch(peer.link, envelope))
        return
    group = turn.group(name)
    relationship = group.relationships.get(member)
    known = relationship is not None and relationship.established
    recipient = relationship.theirs if relationship is not None and known else group.view.members[member].contact
    kept = post(turn, way, recipient, envelope)
    if kept is not None and span is not None:
        mediator = way.routing_keys[0].partition("#")[0]
        mediator_receipts.expect(turn, kept, Awaited(name, group.me, member, *span, mediator, turn.now))


def post(turn: Turn, way: Route, recipient: str, envelope: bytes) -> bytes | None:
    """Wrap an envelope for everybody on the way to this DID, and hand it over to the first. What the mediator keeps of
    it where it is asked for its receipt; None: it is not asked.

    It is asked wherever it could answer, which is over the connection that brings it: on a way over one mediator to a
    mailbox there. What does not go into the wrappings that the recipient has asked for (they grow by a third each) is
    lost to it.
    """
    asks, to = len(way.routing_keys) == 2, short_form(recipient)
    wrap = partial(routing.wrap, resolve=resolve, random=turn.moment.random)
    try:
        if asks:
            near, box = way.routing_keys
            kept = wrap(envelope, replace(way, routing_keys=(box,)), to)
            wrapped = wrap(kept, replace(way, routing_keys=(near,)), box, wants_receipt=True)
        else:
            kept = wrapped = wrap(envelope, way, to)
    except RemoteError:
        turn.say(Measure("dropped", "CannotWrap"))
        return None
    turn.say(Post(way.uri, wrapped, turn.packer(ENVELOPE).media_type, return_route=asks))
    return kept if asks else None


def way_of_did(turn: Turn, did: str) -> Route | None:
    """The way over mediators that a DID document names, if it names one that works as far as we know."""
    return next((way for way in reach_of_did(did).mail if works(turn, way.uri)), None)


def works(turn: Turn, uri: str) -> bool:
    """Whether a URI takes what we post, as far as we know."""
    fault = turn.agent.faults.get(uri)
    return fault is None or fault.until <= turn.now


def failed(turn: Turn, uri: str) -> bool:
    """A URI did not take what we posted: leave it alone for a while. Returns whether that is news."""
    fault = turn.agent.faults.get(uri)
    if fault is not None and fault.until > turn.now:
        return False
    again = fault is not None and turn.now - fault.until < max(AGAIN_MS, _pause(fault.tries))
    tries = fault.tries + 1 if fault is not None and again else 1
    delay = _pause(tries)
    kept = {k: one for k, one in turn.agent.faults.items() if turn.now - one.until < RETRY_MS_MAX}
    if len(kept) >= FAULTS_MAX and uri not in kept:
        kept = {k: one for k, one in kept.items() if turn.now < one.until}
    if len(kept) >= FAULTS_MAX and uri not in kept:
        return False  # it counts as one that works, so nothing may be sent there again because it does not
    turn.change(faults={**kept, uri: Fault(tries, turn.now + delay)})
    turn.timer("web", uri, delay)
    return True


def _pause(tries: int) -> int:
    return min(RETRY_MS << min(tries - 1, 10), RETRY_MS_MAX)


# --- receiving ------------------------------------------------------------------------------------------------------


class Owner(Struct, frozen=True):
    """Whose key an envelope is addressed to."""

    kind: Literal["mailbox", "contact", "member", "knock", "join", "connection"]
    key: SecretKey
    group: str = ""
    member: str = ""
    link: bytes = b""
    connection: str = ""


def owner_of(turn: Turn, packer: Packer, kids: tuple[str, ...]) -> tuple[str, Owner]:
    """The first of these key ids that is ours, and what it is for. Raises Refused."""
    wanted = set(kids)
    for kid, owner in _owners(turn, packer):
        if kid in wanted:
            return kid, owner
    raise Refused(why="mail for somebody else")


def _owners(turn: Turn, packer: Packer) -> Iterator[tuple[str, Owner]]:
    agent = turn.agent
    for name, group in agent.groups.items():
        if group.state == "left":
            continue
        yield from _mailbox_owner(group.seed, name)
        for kid, key in own_keys(packer, group.contact).items():
            yield kid, Owner("contact", key, group=name)
        for member, one in group.relationships.items():
            if member not in group.peers:
                continue
            offered = [offer.relationship.mine for offer in group.offers.get(member, ())]
            for identity in (one.mine, one.handover.old, *offered) if one.handover else (one.mine, *offered):
                for kid, key in own_keys(packer, identity).items():
                    yield kid, Owner("member", key, group=name, member=member)
    for link, open_ in agent.invitations.items():
        yield from _mailbox_owner(open_.seed, open_.group, link)
        own = Identity(open_.invitation.did, open_.seed, ed25519_to_x25519_secret(open_.seed))
        for identity in (own, *(claim.relationship.mine for claim in open_.claims.values())):
            for kid, key in own_keys(packer, identity).items():
                yield kid, Owner("knock", key, link=link)
    for link, join in agent.joins.items():
        yield from _mailbox_owner(join.seed, "", link)
        for kid, key in own_keys(packer, join.relationship.mine).items():
            yield kid, Owner("join", key, link=link)
    for name, connection in agent.connections.items():
        one = connection.relationship
        for identity in (one.mine, one.handover.old) if one.handover else (one.mine,):
            for kid, key in own_keys(packer, identity).items():
                yield kid, Owner("connection", key, connection=name)


@lru_cache(maxsize=256)
def _mailbox_owner(seed: bytes, group: str, link: bytes = b"") -> tuple[tuple[str, Owner], ...]:
    secret = ed25519_to_x25519_secret(mailbox_seed(seed))
    kid = resolve(mailbox(seed)).agreement[0].kid
    return ((kid, Owner("mailbox", SecretKey("X25519", secret), group=group, link=link)),)


def belongs(agent: Agent, owner: Owner, box: Owner) -> bool:
    """Whether what is for this owner may lie in a mailbox: in those of its own group, or of its own join."""
    if owner.link and owner.link == box.link:
        return True
    group = owner.group
    if owner.kind == "knock":
        group = agent.invitations[owner.link].group
    elif owner.kind == "join":
        group = agent.joins[owner.link].group
    return group == box.group != ""


def open_forward(packer: Packer, envelope: bytes, kid: str, owner: Owner) -> tuple[bytes, ...]:
    """What a forward to one of our mailboxes holds. Raises RemoteError."""

    def nobody(kid: str) -> PublicKey:
        raise Unauthentic()

    unpacked = packer.unpack(envelope, secret_of=lambda name: owner.key if name == kid else None, public_of=nobody)
    message = packer.parse(unpacked.plain)
    if not routing.is_forward(message):
        raise Refused(why="mail that is not a forward")
    return routing.read_forward(message).envelopes
