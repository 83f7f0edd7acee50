"""How two members come to have a DID each for the other, and how they replace it.

Of each pair, the one who joined later asks the other for the exchange: both can tell from the view who that is, so
requests never cross. Whoever comes back from a backup may have lost what it had with the other: then either may ask
again, and where both do, it is as the first time.
"""

from dataclasses import replace

from zerochat.didcomm.did import Identity, same_did
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import exchange
from zerochat.didcomm.rotation import Prior
from zerochat.errors import Malformed, Refused
from zerochat.group import sync
from zerochat.group.contact import (
    Reach,
    check_proof,
    new_identity,
    reach_of_did,
    sign_proof,
)
from zerochat.group.effects import Notify
from zerochat.group.mail import by_mail, own_reach, reach_of_member, reachable, send
from zerochat.group.membership import Member
from zerochat.group.notices import Rotated
from zerochat.group.relationship import Relationship, pack
from zerochat.group.relationship import rotate as rotated
from zerochat.group.state import Group
from zerochat.group.turn import Turn
from zerochat.group.wire.envelope import Opened, pack_to

MEET_MS, MEET_MS_MAX = 1_000, 30_000
"""An unanswered request for an exchange is repeated after this long, then ever more slowly."""
LISTEN_MS = 10_000
"""Whoever has been connected for so long and has said nothing is asked to, and has as long to answer."""
LISTEN_SLACK_MS = 500
"""It may have noticed that we are connected so much sooner."""
RENEW_MS, RENEW_MAIL_MS = 60_000, 3_600_000
"""A relationship that was asked for anew is not given up sooner for one more: where both sides have asked, one of the
requests comes late. And whoever is not answered for so long, over a link or over a mediator, asks for another one."""


def request(turn: Turn, name: str, member: str) -> None:
    """Prepare the request for an exchange, where it is ours to ask; it goes out as soon as there is a way."""
    group = turn.group(name)
    mine, theirs = group.view.members.get(group.me), group.view.members.get(member)
    if mine is None or theirs is None or turn.agent.reach is None or member in group.relationships:
        return
    if not _later(group, member) and not _unknown_way(turn, name, member):
        return
    _begin(turn, name, theirs)


def _begin(turn: Turn, name: str, theirs: Member, again: int = 0) -> None:
    group = turn.group(name)
    identity = pair_identity(turn, group)
    asking = exchange.request(identity, theirs.contact, name, {}, turn.moment.random)
    relationship = Relationship(theirs.did, identity, "", asking.id, theirs.contact, requester=True, again=again)
    turn.edit(name, relationships={**group.relationships, theirs.did: relationship})
    ask_again(turn, name, theirs.did)


def _later(group: Group, member: str) -> bool:
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
    patience = RENEW_MS if peer.link in turn.agent.up else RENEW_MAIL_MS
    if relationship.again and turn.now >= relationship.again + patience:  # the other side may have asked meanwhile
        _begin(turn, name, group.view.members[member], max(turn.now, group.lamport))
        return
    if reachable(turn, name, member):
        again = {"again": relationship.again} if relationship.again else {}
        proof = sign_proof(group.seed, name, relationship.mine.did, relationship.asked, member, relationship.again)
        message = Message(
            type=exchange.REQUEST,
            id=relationship.thid,
            thid=relationship.thid,
            pthid=name,
            body={"goal_code": "org.zerochat.contact", "member": group.me, "proof": proof, **again},
        )
        packer = turn.packer_of(name)
        send(turn, name, member, pack_to(relationship.mine, relationship.asked, message, packer, turn.moment))
    turn.edit_peer(name, member, tries=peer.tries + 1)
    turn.timer("meet", f"{name} {member}", min(MEET_MS << min(peer.tries, 10), MEET_MS_MAX))


def renew(turn: Turn, name: str, member: str) -> None:
    """We do not know what we have had with this member since our profile was copied: ask for a relationship in the
    place of that, unless we have just done so."""
    group = turn.group(name)
    theirs, known = group.view.members.get(member), group.relationships.get(member)
    if theirs is None or member not in group.peers or not reachable(turn, name, member):
        return
    if known is None or turn.now >= known.again + RENEW_MS:
        _begin(turn, name, theirs, max(turn.now, group.lamport))


def listen(turn: Turn, name: str, member: str, since: int, asked: bool = False) -> None:
    """Whoever is connected `since` then (UTC ms) has said something, at the latest when it was `asked` to. Else one of
    us has lost what we had together, because an older copy of its profile was put in the place of a newer one."""
    group = turn.group(name)
    peer, known = group.peers.get(member), group.relationships.get(member)
    if peer is None or peer.link not in turn.agent.up or peer.heard >= since - LISTEN_SLACK_MS:
        return
    if known is not None and known.established and not asked:
        turn.edit_peer(name, member, view="")  # so that it is asked for its own
        sync.send_sync(turn, name, member)
        turn.timer("listen", f"{name} {member} {turn.now} asked", LISTEN_MS)
    else:
        renew(turn, name, member)


def ask_anew(turn: Turn, name: str, member: str) -> None:
    """Where we are reached has changed: a request that is under way says so anew, in a new DID's document."""
    group = turn.group(name)
    relationship = group.relationships.get(member)
    if relationship is None:
        request(turn, name, member)
    elif not relationship.established and relationship.requester:
        forget(turn, name, member)
        request(turn, name, member)


def hear_exchange(turn: Turn, name: str, member: str, opened: Opened) -> None:
    """A message of the DID exchange with another member. Raises RemoteError."""
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
                return
            exchange.check_response(message, asked=relationship.asked, sender=opened.sender)
            _learn_reach(turn, name, member, opened.sender)
            established(turn, name, replace(relationship, theirs=opened.sender, greeted=True))
            complete = exchange.complete(relationship.thid, name, turn.moment.random)
            settled = turn.group(name).relationships[member]
            envelope = pack(settled, complete, turn.packer_of(name), turn.moment.random)
            send(turn, name, member, envelope)
        case _:
            raise Refused(why="a DID exchange message out of turn")


def _answer(turn: Turn, name: str, member: str, opened: Opened, known: Relationship | None) -> None:
    group = turn.group(name)
    proof, again = opened.message.body.get("proof"), opened.message.body.get("again", 0)
    if not isinstance(proof, str) or not _is_moment(again) or turn.agent.reach is None:
        raise Refused(why="a request for an exchange without proof of membership")
    check_proof(proof, member, name, opened.sender, group.contact.did, group.me, again)
    fresh = known is None or not known.established or not same_did(known.theirs, opened.sender)
    if known is None or fresh:
        if known is not None and known.greeted and not (again and again >= known.again + RENEW_MS):
            raise Refused(why="a second relationship with the same member")
        if known is not None and known.again and not known.established and _later(group, member):
            raise Refused(why="an exchange that we have asked for too")
        identity = pair_identity(turn, group)
        known = Relationship(member, identity, opened.sender, opened.message.id, "", requester=False, again=again)
        _learn_reach(turn, name, member, opened.sender)
        turn.edit(name, relationships={**turn.group(name).relationships, member: known})
    prior = Prior(group.contact.short, group.contact.kid_signing_short, group.contact.signing_seed)
    answer = exchange.response(opened.message, known.mine, prior, {}, now_s=turn.now // 1000, random=turn.moment.random)
    envelope = pack(known, answer, turn.packer_of(name), turn.moment.random)
    send(turn, name, member, envelope)
    if fresh:
        established(turn, name, known)  # after the answer, or the other side could not read what is said first


def _is_moment(given: object) -> bool:
    return type(given) is int and 0 <= given < 1 << 53


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


def established(turn: Turn, name: str, relationship: Relationship) -> None:
    """There is a relationship with this member now: say where we stand."""
    group = turn.group(name)
    turn.edit(name, relationships={**group.relationships, relationship.member: relationship})
    sync.send_sync(turn, name, relationship.member)
    turn.edit_peer(name, relationship.member, retry_at=turn.now + sync.RETRY_MS, tries=0)
    sync.repair(turn, name)


def heard(turn: Turn, name: str, relationship: Relationship) -> None:
    """A message has come from this member: keep what it changed in the relationship."""
    group, member = turn.group(name), relationship.member
    before = group.relationships[member]
    if relationship == before:
        return
    turn.edit(name, relationships={**group.relationships, member: relationship})
    if not relationship.established:
        forget(turn, name, member)
        turn.edit_peer(name, member, ended=turn.now)
    elif relationship.theirs != before.theirs:
        turn.say(Notify(Rotated(name, member)))
        sync.send_sync(turn, name, member)
    elif before.handover is not None and relationship.handover is None:
        turn.say(Notify(Rotated(name, member, mine=True)))


def rotate(turn: Turn, name: str, member: str) -> None:
    """Replace our own DID in the relationship with this member; it hears of it with our next message."""
    group = turn.group(name)
    identity = pair_identity(turn, group)
    relationship = rotated(group.relationships[member], identity, turn.now // 1000)
    turn.edit(name, relationships={**group.relationships, member: relationship})
    sync.send_sync(turn, name, member)


def forget(turn: Turn, name: str, member: str) -> None:
    """There is no relationship with this member any more."""
    relationships = turn.group(name).relationships
    turn.edit(name, relationships={did: one for did, one in relationships.items() if did != member})
