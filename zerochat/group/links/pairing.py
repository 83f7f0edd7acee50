"""Pairing: two members exchange pairwise DIDs, and replace them.

Of each pair, the member who joined later sends the exchange request; both can tell from the view who that is, so
requests never cross.

A member restored from a backup has lost its relationships since, so either side may request a new one. The request
proves its author but not its time: a mediator could replay an old one. Therefore the existing relationship stays until
the peer sends a message in the offered one, which takes freshly created keys. Where both request at once, the request
of the later joiner wins, as the first time.
"""

from typing import Any

from msgspec.structs import replace

from zerochat.didcomm.did import Identity, same_did
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import exchange
from zerochat.didcomm.rotation import Prior
from zerochat.errors import Malformed, Refused
from zerochat.group.backoff import Backoff
from zerochat.group.effects import Notify
from zerochat.group.links import mediator_receipts, neighbours
from zerochat.group.links.contact import Reach, check_proof, new_identity, reach_of_did, sign_proof
from zerochat.group.links.mediator_mail import goes_by_mail, own_reach_in, reach_of_member, seek, send
from zerochat.group.links.relationship import Relationship, pack, rotate
from zerochat.group.membership import Member
from zerochat.group.notifications import DidRotated
from zerochat.group.state import Group, RelationshipOffer
from zerochat.group.state.content_keys import PeerContentKey
from zerochat.group.sync import acknowledgements
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.envelope import OpenedMessage, pack_first
from zerochat.group.wire.messages import SYNC, ResponseBody, read_body

REQUEST_RETRY, REQUEST_RETRY_MAIL = Backoff(1_000, 30_000), Backoff(1_000, 3_600_000)
"""Exponential backoff of an unanswered exchange request; slower over a mediator, which keeps every copy."""
GREETING_DELAY_MS = 150
"""How long our first message to a responder waits for the responder's state and for attestations."""
SILENCE_MS = 30_000
"""A peer that has been connected this long without a message is asked for its state, and has as long to answer."""
SILENCE_SLACK_MS = 500
"""The peer may have noticed the connection this much earlier."""
RENEW_INTERVAL_MS = 60_000
"""A relationship without messages is not replaced sooner."""
OFFER_INTERVAL_MS = 500
"""A peer that already has a relationship gets at most one answer to a new request in this time: half of its retry
interval, so that a late answer does not make us ignore its next request."""
OFFERS_MAX = 8
"""At most so many offers at once, since old requests can be replayed."""


def request_exchange(tx: Transaction, name: str, member: str) -> None:
    """Prepare the exchange request, where it is ours to send; it goes out as soon as there is a route."""
    group = tx.group(name)
    mine, theirs = group.view.members.get(group.me), group.view.members.get(member)
    if mine is None or theirs is None or tx.agent.reach is None or member in group.links.relationships:
        return
    if not is_requester(group, member) and not _cannot_reach_us(tx, name, member):
        return
    _begin_exchange(tx, name, theirs)


def _begin_exchange(tx: Transaction, name: str, theirs: Member) -> None:
    group = tx.group(name)
    identity = pair_identity(tx, group)
    asking = exchange.request(identity, theirs.contact, name, {}, tx.context.random)
    relationship = Relationship(theirs.did, identity, "", asking.id, theirs.contact, requester=True)
    tx.update_links(name, relationships={**group.links.relationships, theirs.did: relationship})
    tx.update_exchange(name, theirs.did, requested_at=tx.now)
    retry_request(tx, name, theirs.did)


def is_requester(group: Group, member: str) -> bool:
    """Whether we joined after this member, so that the exchange request is ours to send."""
    mine, theirs = group.view.known(group.me), group.view.known(member)
    return mine is not None and theirs is not None and (mine.joined, mine.did) > (theirs.joined, theirs.did)


def _cannot_reach_us(tx: Transaction, name: str, member: str) -> bool:
    """Whether a member may be unable to send us a request, because our contact names no mailbox that we use.

    Either we have changed it: then we request even if the two requests may cross. Or we got our mediator after the
    contact was made, and neither can be dialled: then they cannot cross.
    """
    group = tx.group(name)
    ours, theirs = reach_of_did(group.contact.did), reach_of_member(group, member)
    present = own_reach_in(tx, group).routes
    if not goes_by_mail(tx, name, member) or not present:
        return False
    if ours.routes:
        return set(ours.routes).isdisjoint(present)
    neither_dialled = ours.pair is None and theirs.pair is None
    return neither_dialled and tx.agent.reach is not None and tx.agent.reach.pair is None


def retry_request(tx: Transaction, name: str, member: str) -> None:
    """Send the exchange request, if it is ours to send, until it is answered."""
    group = tx.group(name)
    relationship, peer = group.links.relationships.get(member), group.links.peers.get(member)
    if relationship is None and peer is not None:
        request_exchange(tx, name, member)
        return
    if relationship is None or peer is None or relationship.established or not relationship.requester:
        return
    if member not in group.view.members:
        return  # it left before it answered
    if seek(tx, name, member):
        proof = sign_proof(group.seed, name, relationship.mine.did, relationship.invited_by, member)
        message = Message(
            type=exchange.REQUEST,
            id=relationship.thid,
            thid=relationship.thid,
            pthid=name,
            body={"goal_code": "org.zerochat.contact", "member": group.me, "proof": proof},
        )
        packer = tx.packer_of(name)
        send(tx, name, member, pack_first(relationship.mine, relationship.invited_by, message, packer, tx.context))
    tx.update_retransmission(name, member, tries=peer.retransmission.tries + 1)
    retry = REQUEST_RETRY_MAIL if goes_by_mail(tx, name, member) else REQUEST_RETRY
    tx.set_timer(TimerKind.DID_EXCHANGE, f"{name} {member}", retry.delay_ms(peer.retransmission.tries))


def renew_relationship(tx: Transaction, name: str, member: str) -> None:
    """Our profile was restored from a copy, so the relationship may be outdated: request a new one, unless we just
    did."""
    group = tx.group(name)
    theirs, known, peer = (
        group.view.members.get(member),
        group.links.relationships.get(member),
        group.links.peers.get(member),
    )
    if theirs is None or peer is None or tx.agent.reach is None:
        return
    if known is None or (known.established and not _is_within(tx, peer.exchange.requested_at, RENEW_INTERVAL_MS)):
        _begin_exchange(tx, name, theirs)


def _is_within(tx: Transaction, at: int, ms: int) -> bool:
    """Whether a time was less than this long ago; a time in the future means that the clock was set back."""
    return 0 <= tx.now - at < ms


def watch_for_silence(tx: Transaction, name: str, member: str) -> None:
    """Check later that this connected member sends a message."""
    tx.set_timer(TimerKind.SILENCE, f"{name} {member} {tx.now}", SILENCE_MS)


def check_silence(tx: Transaction, name: str, member: str, since: int, asked: bool = False) -> None:
    """A member connected `since` then (UTC ms) must have sent a message, at the latest after it was `asked`. Otherwise
    one of us has lost the relationship, because its profile was replaced by an older copy."""
    group = tx.group(name)
    peer, known = group.links.peers.get(member), group.links.relationships.get(member)
    if peer is None or peer.link not in tx.agent.links_up or peer.last_received_at >= since - SILENCE_SLACK_MS:
        return
    if known is not None and known.established and not asked:
        tx.update_anti_entropy(name, member, view="")  # requests its state
        acknowledgements.send_sync(tx, name, member)
        tx.set_timer(TimerKind.SILENCE, f"{name} {member} {tx.now} asked", SILENCE_MS)
    else:
        renew_relationship(tx, name, member)


def restart_request(tx: Transaction, name: str, member: str) -> None:
    """Our reach has changed: restart a pending request with a new DID whose document says so."""
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    if relationship is None:
        request_exchange(tx, name, member)
    elif not relationship.established and relationship.requester and member in group.view.members:
        _begin_exchange(tx, name, group.view.members[member])


def receive_exchange(tx: Transaction, name: str, member: str, opened: OpenedMessage) -> Message | None:
    """A DID exchange message from another member. Returns the `sync` message that it carries, still to be processed.
    Raises RemoteError."""
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    message = opened.message
    match message.type:
        case exchange.REQUEST if opened.recipient == group.contact:
            _answer_request(tx, name, member, opened, relationship)
        case exchange.RESPONSE if relationship is not None and relationship.requester:
            if message.thid != relationship.thid or opened.recipient != relationship.mine:
                raise Refused(why="a response to another exchange request")
            if relationship.established:
                return None
            exchange.check_response(message, recipient=relationship.invited_by, sender=opened.sender)
            _learn_reach(tx, name, member, opened.sender)
            embedded = read_body(message, ResponseBody).sync
            establish(tx, name, replace(relationship, theirs=opened.sender, acknowledged=True))
            tx.update_exchange(name, member, greeting_due=True)
            return Message(type=SYNC, id=embedded.id, body=embedded.body) if embedded is not None else None
        case _:
            raise Refused(why="a DID exchange message out of turn")
    return None


def _answer_request(tx: Transaction, name: str, member: str, opened: OpenedMessage, known: Relationship | None) -> None:
    group = tx.group(name)
    proof = opened.message.body.get("proof")
    if not isinstance(proof, str) or tx.agent.reach is None:
        raise Refused(why="an exchange request without proof of membership")
    if member not in group.view.members:
        raise Refused(why="an exchange request by a former member")
    check_proof(proof, member, name, opened.sender, group.contact.did, group.me)
    if known is not None and _is_within(tx, group.links.peers[member].exchange.answered_at, OFFER_INTERVAL_MS):
        raise Refused(why="exchange requests in rapid succession")
    found = next((one for one in _known_relationships(group, member) if same_did(one.theirs, opened.sender)), None)
    fresh = found or Relationship(
        member, pair_identity(tx, group), opened.sender, opened.message.id, "", requester=False
    )
    if found is None and known is not None:
        _add_offer(tx, name, fresh)
    elif found is None:
        tx.update_links(name, relationships={**group.links.relationships, member: fresh})
    tx.update_exchange(name, member, answered_at=tx.now)
    _learn_reach(tx, name, member, opened.sender)  # otherwise it might not receive the answer
    prior = Prior(group.contact.short, group.contact.kid_signing_short, group.contact.signing_seed)
    body: dict[str, Any] = {}
    if known is None and found is None:  # otherwise it may have it already, or does not take up the offer
        sync = acknowledgements.sync_message(tx, name, member)
        body["sync"] = {"id": sync.id, "body": sync.body}
    now_s = tx.now // 1000
    answer = exchange.response(opened.message, fresh.mine, prior, body, now_s=now_s, random=tx.context.random)
    send(tx, name, member, pack(fresh, answer, tx.packer_of(name), tx.context.random))
    if found is None and known is None:
        establish(tx, name, fresh)  # after the answer, or the other side could not decrypt the first message


def _known_relationships(group: Group, member: str) -> list[Relationship]:
    """The relationships that we have with this member or have offered to it."""
    known = group.links.relationships.get(member)
    given = [known] if known is not None and known.established else []
    return given + [offer.relationship for offer in group.links.offers.get(member, ())]


def _add_offer(tx: Transaction, name: str, relationship: Relationship) -> None:
    """The existing relationship stays until the member sends a message in this one."""
    group, member = tx.group(name), relationship.member
    known, peer = group.links.relationships[member], group.links.peers[member]
    crossed = known.requester and peer.last_received_at <= peer.exchange.requested_at <= tx.now
    offers = (*group.links.offers.get(member, ()), RelationshipOffer(relationship, crossed))[-OFFERS_MAX:]
    tx.update_links(name, offers={**group.links.offers, member: offers})


def take_up_offer(tx: Transaction, name: str, relationship: Relationship) -> bool:
    """A member sent a message in an offered relationship, which replaces the existing one and earlier offers. Returns
    False where our own crossing request takes precedence: then we send it again."""
    group, member = tx.group(name), relationship.member
    offers = group.links.offers[member]
    place = next(place for place, one in enumerate(offers) if one.relationship.mine == relationship.mine)
    if offers[place].simultaneous and is_requester(group, member):
        renew_relationship(tx, name, member)
        return False
    rest = {did: each for did, each in group.links.offers.items() if did != member}
    later = offers[place + 1 :]
    tx.update_links(name, offers={**rest, member: later} if later else rest)
    tx.update_acks(name, member, upto={}, regressed_since=0)
    mediator_receipts.invalidate(tx, name, member)
    establish(tx, name, relationship)
    acknowledgements.send_sync(tx, name, member)
    return True


def pair_identity(tx: Transaction, group: Group) -> Identity:
    """A fresh pairwise DID. It contains our endpoints only if our contact has other ones: the first messages contain it
    several times, and in a wide-area network their size is latency."""
    reach = own_reach_in(tx, group)
    announced = reach_of_did(group.contact.did)
    nothing = Reach(b"", None, None)
    return new_identity(tx.context.random, nothing if reach == announced else reach, group.profile.envelope)


def _learn_reach(tx: Transaction, name: str, member: str, did: str) -> None:
    """Take the endpoints from a member's new pairwise DID, if it has announced none since its contact, which never
    changes."""
    group = tx.group(name)
    if member not in group.view.members or group.links.peers[member].reach is not None:
        return
    try:
        found = reach_of_did(did)
    except Malformed:
        return
    if found.pair is None and not found.routes:
        return  # no change to its contact
    before = reach_of_member(group, member)
    if (found := replace(found, server_key=before.server_key or found.server_key)) != before:
        tx.update_peer(name, member, reach=found)
        mediator_receipts.invalidate(tx, name, member)


def establish(tx: Transaction, name: str, relationship: Relationship) -> None:
    """The relationship with this member is complete. The responder sends its state with its answer, the requester its
    own after it (`send_greeting`), so one message each suffices; the second completes the exchange too.

    Nothing of an earlier relationship can be replayed in it, so the numbers and times of its keys begin anew: a clock
    that was wrong, or a thief that spoke as this member, may have taken them far ahead.
    """
    group, member = tx.group(name), relationship.member
    tx.update_links(name, relationships={**group.links.relationships, member: relationship})
    tx.update_peer(name, member, content_key=PeerContentKey())
    if (pair := group.dcgka.pairs.get(member)) is not None:
        tx.update_dcgka(name, pairs={**group.dcgka.pairs, member: replace(pair, at=0)})
    tx.update_retransmission(name, member, retry_at=tx.now + acknowledgements.RETRY_MS, tries=0)
    acknowledgements.retransmit(tx, name)
    watch_for_silence(tx, name, member)


def schedule_greeting(tx: Transaction, name: str, member: str) -> None:
    """Send the greeting after a while in any case."""
    if tx.peer(name, member).exchange.greeting_due:
        tx.set_timer(TimerKind.GREETING, f"{name} {member}", GREETING_DELAY_MS, if_unset=True)


def send_greeting(tx: Transaction, name: str, member: str) -> None:
    """Send our state to a member that has answered our request, if we have not yet."""
    peer = tx.group(name).links.peers.get(member)
    if peer is not None and peer.exchange.greeting_due:
        acknowledgements.send_sync(tx, name, member)


def update_relationship(tx: Transaction, name: str, relationship: Relationship) -> None:
    """A message from this member has changed its relationship: store that."""
    group, member = tx.group(name), relationship.member
    before = group.links.relationships[member]
    if relationship is before or relationship == before:
        return
    tx.update_links(name, relationships={**group.links.relationships, member: relationship})
    if not relationship.established:
        forget_relationship(tx, name, member)
        tx.update_exchange(name, member, ended_at=tx.now)
        if neighbours.is_ring(group):
            tx.set_timer(TimerKind.NEIGHBOURS, name, 1)
    elif relationship.theirs != before.theirs:
        tx.emit(Notify(DidRotated(name, member)))
        acknowledgements.send_sync(tx, name, member)
    elif before.rotation is not None and relationship.rotation is None:
        tx.emit(Notify(DidRotated(name, member, mine=True)))


def rotate_own_did(tx: Transaction, name: str, member: str) -> None:
    """Replace our own DID in the relationship with this member; it learns of it with our next message."""
    group = tx.group(name)
    identity = pair_identity(tx, group)
    relationship = rotate(group.links.relationships[member], identity, tx.now // 1000)
    tx.update_links(name, relationships={**group.links.relationships, member: relationship})
    acknowledgements.send_sync(tx, name, member)


def forget_relationship(tx: Transaction, name: str, member: str) -> None:
    """Drop the relationship and the offers of this member."""
    group = tx.group(name)
    tx.update_links(
        name,
        relationships={did: one for did, one in group.links.relationships.items() if did != member},
        offers={did: one for did, one in group.links.offers.items() if did != member},
    )
