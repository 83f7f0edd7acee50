"""How two members come to have a DID each for the other, and how they replace it.

Of each pair, the one who joined later asks the other for the exchange: both can tell from the view who that is, so
requests never cross.

Whoever comes back from a backup has lost what it had with the others since, and either may ask anew. The request proves
who has made it, not when: a mediator could say an old one again. So what there is stays until the other side has said
something in what it was offered, and that takes keys that it has just made. Where both ask at once, the one who joined
later is heard, as the first time.
"""

from typing import Any

from msgspec.structs import replace

from zerochat.didcomm.did import Identity, same_did
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import exchange
from zerochat.didcomm.rotation import Prior
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Notify
from zerochat.group.links import mediator_receipts
from zerochat.group.links.contact import Reach, check_proof, new_identity, reach_of_did, sign_proof
from zerochat.group.links.mediator_mail import by_mail, own_reach, reach_of_member, reachable, send
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.links.relationship import rotate as rotated
from zerochat.group.membership import Member
from zerochat.group.notifications import Rotated
from zerochat.group.state import Group, Offer
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Turn
from zerochat.group.wire.envelope import Opened, pack_to
from zerochat.group.wire.messages import SYNC, ResponseBody, read_body

MEET_MS, MEET_MS_MAX, MEET_MAIL_MS_MAX = 1_000, 30_000, 3_600_000
"""An unanswered request for an exchange is repeated after this long, then ever more slowly; over a mediator, which
keeps it, more slowly still."""
GREET_MS = 150
"""How long the first word to whoever has answered a request waits for what it says of itself, and for somebody to
confirm what we were told."""
LISTEN_MS = 30_000
"""Whoever has been connected for so long and has said nothing is asked to, and has as long to answer."""
LISTEN_SLACK_MS = 500
"""It may have noticed that we are connected so much sooner."""
RENEW_MS = 60_000
"""What a member says nothing in is not given up sooner for one more."""
OFFER_MS = 500
"""Who has a relationship with us, and asks for another, is answered once in this time: half of that after which it asks
again, or an answer that came late would have the next question passed over, and the one after it is further away."""
OFFERS_MAX = 8
"""And so many at once: whoever keeps its mail could say that many old requests again."""


def request(turn: Turn, name: str, member: str) -> None:
    """Prepare the request for an exchange, where it is ours to ask; it goes out as soon as there is a way."""
    group = turn.group(name)
    mine, theirs = group.view.members.get(group.me), group.view.members.get(member)
    if mine is None or theirs is None or turn.agent.reach is None or member in group.relationships:
        return
    if not is_later(group, member) and not _unknown_way(turn, name, member):
        return
    _begin(turn, name, theirs)


def _begin(turn: Turn, name: str, theirs: Member) -> None:
    group = turn.group(name)
    identity = pair_identity(turn, group)
    asking = exchange.request(identity, theirs.contact, name, {}, turn.moment.random)
    relationship = Relationship(theirs.did, identity, "", asking.id, theirs.contact, requester=True)
    turn.edit(name, relationships={**group.relationships, theirs.did: relationship})
    turn.edit_peer(name, theirs.did, renewed_at=turn.now)
    ask_again(turn, name, theirs.did)


def is_later(group: Group, member: str) -> bool:
    """Whether we came into the group after this member, so that it is ours to ask."""
    mine, theirs = group.view.known(group.me), group.view.known(member)
    return mine is not None and theirs is not None and (mine.joined, mine.did) > (theirs.joined, theirs.did)


def _unknown_way(turn: Turn, name: str, member: str) -> bool:
    """Whether a member whom nobody can dial cannot ask us, because we have got our mediator after our contact was made:
    then no request of its own can cross ours."""
    group = turn.group(name)
    ours, theirs = reach_of_did(group.contact.did), reach_of_member(group, member)
    if ours.pair is not None or ours.mail or theirs.pair is not None or not by_mail(turn, name, member):
        return False
    return turn.agent.reach is not None and turn.agent.reach.pair is None and bool(own_reach(turn, group.seed).mail)


def ask_again(turn: Turn, name: str, member: str) -> None:
    """Send the request for an exchange, if it is ours to ask, until it is answered."""
    group = turn.group(name)
    relationship, peer = group.relationships.get(member), group.peers.get(member)
    if relationship is None and peer is not None:
        request(turn, name, member)
        return
    if relationship is None or peer is None or relationship.established or not relationship.requester:
        return
    if member not in group.view.members:
        return  # it has left before it answered
    if reachable(turn, name, member):
        proof = sign_proof(group.seed, name, relationship.mine.did, relationship.asked, member)
        message = Message(
            type=exchange.REQUEST,
            id=relationship.thid,
            thid=relationship.thid,
            pthid=name,
            body={"goal_code": "org.zerochat.contact", "member": group.me, "proof": proof},
        )
        packer = turn.packer_of(name)
        send(turn, name, member, pack_to(relationship.mine, relationship.asked, message, packer, turn.moment))
    turn.edit_peer(name, member, tries=peer.tries + 1)
    most = MEET_MAIL_MS_MAX if by_mail(turn, name, member) else MEET_MS_MAX
    turn.timer("meet", f"{name} {member}", min(MEET_MS << min(peer.tries, 12), most))


def renew(turn: Turn, name: str, member: str) -> None:
    """We do not know what we have had with this member since our profile was copied: ask for a relationship in the
    place of that, unless we have just done so."""
    group = turn.group(name)
    theirs, known, peer = group.view.members.get(member), group.relationships.get(member), group.peers.get(member)
    if theirs is None or peer is None or turn.agent.reach is None:
        return
    if known is None or (known.established and not _lately(turn, peer.renewed_at, RENEW_MS)):
        _begin(turn, name, theirs)


def _lately(turn: Turn, at: int, ms: int) -> bool:
    """Whether it was less than this long ago; what seems to be to come was before somebody has set the clock back."""
    return 0 <= turn.now - at < ms


def listen_from_now(turn: Turn, name: str, member: str) -> None:
    """See to it that something is heard from a member that is connected."""
    turn.timer("listen", f"{name} {member} {turn.now}", LISTEN_MS)


def listen(turn: Turn, name: str, member: str, since: int, asked: bool = False) -> None:
    """Whoever is connected `since` then (UTC ms) has said something, at the latest when it was `asked` to. Else one of
    us has lost what we had together, because an older copy of its profile was put in the place of a newer one."""
    group = turn.group(name)
    peer, known = group.peers.get(member), group.relationships.get(member)
    if peer is None or peer.link not in turn.agent.up or peer.heard >= since - LISTEN_SLACK_MS:
        return
    if known is not None and known.established and not asked:
        turn.edit_peer(name, member, view="")  # so that it is asked for its own
        acknowledgements.send_sync(turn, name, member)
        turn.timer("listen", f"{name} {member} {turn.now} asked", LISTEN_MS)
    else:
        renew(turn, name, member)


def ask_anew(turn: Turn, name: str, member: str) -> None:
    """Where we are reached has changed: a request that is under way says so anew, in a new DID's document."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    if relationship is None:
        request(turn, name, member)
    elif not relationship.established and relationship.requester and member in group.view.members:
        _begin(turn, name, group.view.members[member])


def hear_exchange(turn: Turn, name: str, member: str, opened: Opened) -> Message | None:
    """A message of the DID exchange with another member; gives what that has said with it (`sync.py`), which has still
    to be heard. Raises RemoteError."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    message = opened.message
    match message.type:
        case exchange.REQUEST if opened.recipient == group.contact:
            _answer(turn, name, member, opened, relationship)
        case exchange.RESPONSE if relationship is not None and relationship.requester:
            if message.thid != relationship.thid or opened.recipient != relationship.mine:
                raise Refused(why="an answer to another request")
            if relationship.established:
                return None
            exchange.check_response(message, asked=relationship.asked, sender=opened.sender)
            _learn_reach(turn, name, member, opened.sender)
            said = read_body(message, ResponseBody).sync
            established(turn, name, replace(relationship, theirs=opened.sender, greeted=True))
            turn.edit_peer(name, member, greet=True)
            return Message(type=SYNC, id=said.id, body=said.body) if said is not None else None
        case _:
            raise Refused(why="a DID exchange message out of turn")
    return None


def _answer(turn: Turn, name: str, member: str, opened: Opened, known: Relationship | None) -> None:
    group = turn.group(name)
    proof = opened.message.body.get("proof")
    if not isinstance(proof, str) or turn.agent.reach is None:
        raise Refused(why="a request for an exchange without proof of membership")
    if member not in group.view.members:
        raise Refused(why="a request for an exchange by somebody who has left")
    check_proof(proof, member, name, opened.sender, group.contact.did, group.me)
    if known is not None and _lately(turn, group.peers[member].offered_at, OFFER_MS):
        raise Refused(why="one request for an exchange after the other")
    found = next((one for one in _answered(group, member) if same_did(one.theirs, opened.sender)), None)
    fresh = found or Relationship(
        member, pair_identity(turn, group), opened.sender, opened.message.id, "", requester=False
    )
    if found is None and known is not None:
        _offer(turn, name, fresh)
    elif found is None:
        turn.edit(name, relationships={**group.relationships, member: fresh})
    turn.edit_peer(name, member, offered_at=turn.now)
    _learn_reach(turn, name, member, opened.sender)  # or it might not hear the answer
    prior = Prior(group.contact.short, group.contact.kid_signing_short, group.contact.signing_seed)
    body: dict[str, Any] = {}
    if known is None and found is None:  # else it may have heard it, or does not take this up, and drops it unheard
        said = acknowledgements.message_for(turn, name, member)
        body["sync"] = {"id": said.id, "body": said.body}
    now_s = turn.now // 1000
    answer = exchange.response(opened.message, fresh.mine, prior, body, now_s=now_s, random=turn.moment.random)
    send(turn, name, member, pack(fresh, answer, turn.packer_of(name), turn.moment.random))
    if found is None and known is None:
        established(turn, name, fresh)  # after the answer, or the other side could not read what is said first


def _answered(group: Group, member: str) -> list[Relationship]:
    """What this member has asked for and was given, or offered."""
    known = group.relationships.get(member)
    given = [known] if known is not None and known.established else []
    return given + [offer.relationship for offer in group.offers.get(member, ())]


def _offer(turn: Turn, name: str, relationship: Relationship) -> None:
    """What there is stays, until the member has said something in this one."""
    group, member = turn.group(name), relationship.member
    known, peer = group.relationships[member], group.peers[member]
    crossed = known.requester and peer.heard <= peer.renewed_at <= turn.now
    offers = (*group.offers.get(member, ()), Offer(relationship, crossed))[-OFFERS_MAX:]
    turn.edit(name, offers={**group.offers, member: offers})


def taken_up(turn: Turn, name: str, relationship: Relationship) -> bool:
    """A member has said something in what we have offered it: that takes the place of what there was, and of what was
    offered before. It may have lost more than that, and says so soon. False where it is ours to ask, and we have: then
    we do so again if that leads nowhere."""
    group, member = turn.group(name), relationship.member
    offers = group.offers[member]
    place = next(place for place, one in enumerate(offers) if one.relationship.mine == relationship.mine)
    if offers[place].crossed and is_later(group, member):
        renew(turn, name, member)
        return False
    rest = {did: each for did, each in group.offers.items() if did != member}
    later = offers[place + 1 :]
    turn.edit(name, offers={**rest, member: later} if later else rest)
    turn.edit_peer(name, member, acked={}, less_at=0)
    mediator_receipts.lose(turn, name, member)
    established(turn, name, relationship)
    acknowledgements.send_sync(turn, name, member)
    return True


def pair_identity(turn: Turn, group: Group) -> Identity:
    """A fresh DID for one other member. It says where we are reached only if our contact does not say the same: the
    first messages hold it several times over, and in a wide-area network their size is time."""
    reach = own_reach(turn, group.seed)
    said = reach_of_did(group.contact.did)
    nothing = Reach(b"", None, None)
    return new_identity(turn.moment.random, nothing if reach == said else reach, group.profile.envelope)


def _learn_reach(turn: Turn, name: str, member: str, did: str) -> None:
    """Whoever has never said where it is reached has since its contact was made (which lasts for ever) perhaps moved:
    the DID that it has just made for us says so."""
    group = turn.group(name)
    if member not in group.view.members or group.peers[member].reach is not None:
        return
    try:
        found = reach_of_did(did)
    except Malformed:
        return
    if found.pair is None and not found.mail:
        return  # as its contact says
    before = reach_of_member(group, member)
    if (found := replace(found, server_key=before.server_key or found.server_key)) != before:
        turn.edit_peer(name, member, reach=found)
        mediator_receipts.lose(turn, name, member)


def established(turn: Turn, name: str, relationship: Relationship) -> None:
    """There is a relationship with this member now. Whoever has answered says where it stands with its answer, and the
    other one when it has heard that (`greet`), so that one word of each is enough for both to know that they agree; the
    second one completes the exchange too."""
    group = turn.group(name)
    turn.edit(name, relationships={**group.relationships, relationship.member: relationship})
    turn.edit_peer(name, relationship.member, retry_at=turn.now + acknowledgements.RETRY_MS, tries=0)
    acknowledgements.repair(turn, name)
    listen_from_now(turn, name, relationship.member)


def greet_soon(turn: Turn, name: str, member: str) -> None:
    """Do so in any case after a while, though nothing more comes, or our word does not count yet."""
    if turn.group(name).peers[member].greet:
        turn.timer("greet", f"{name} {member}", GREET_MS, keep=True)


def greet(turn: Turn, name: str, member: str) -> None:
    """Say where we stand to a member that has answered us, if we have not yet."""
    peer = turn.group(name).peers.get(member)
    if peer is not None and peer.greet:
        acknowledgements.send_sync(turn, name, member)


def heard(turn: Turn, name: str, relationship: Relationship) -> None:
    """A message has come from this member: keep what it changed in the relationship."""
    group, member = turn.group(name), relationship.member
    before = group.relationships[member]
    if relationship is before or relationship == before:
        return
    turn.edit(name, relationships={**group.relationships, member: relationship})
    if not relationship.established:
        forget(turn, name, member)
        turn.edit_peer(name, member, ended=turn.now)
    elif relationship.theirs != before.theirs:
        turn.say(Notify(Rotated(name, member)))
        acknowledgements.send_sync(turn, name, member)
    elif before.handover is not None and relationship.handover is None:
        turn.say(Notify(Rotated(name, member, mine=True)))


def rotate(turn: Turn, name: str, member: str) -> None:
    """Replace our own DID in the relationship with this member; it hears of it with our next message."""
    group = turn.group(name)
    identity = pair_identity(turn, group)
    relationship = rotated(group.relationships[member], identity, turn.now // 1000)
    turn.edit(name, relationships={**group.relationships, member: relationship})
    acknowledgements.send_sync(turn, name, member)


def forget(turn: Turn, name: str, member: str) -> None:
    """There is no relationship with this member any more."""
    group = turn.group(name)
    turn.edit(
        name,
        relationships={did: one for did, one in group.relationships.items() if did != member},
        offers={did: one for did, one in group.offers.items() if did != member},
    )
