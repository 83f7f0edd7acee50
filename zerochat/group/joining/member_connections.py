"""From the welcome to a seat: a newcomer meets the members, as far as what it was told of them is confirmed.

Whoever is confirmed is met at once, all at the same time; the others as soon as somebody confirms them
(`agreement.py`), or when nobody is there who could. In a group whose agreement is strict the newcomer counts as in when
all those who can be reached have signed for what it was told, and leaves again when one of them has signed something
else. Nobody waits for whoever is away.
"""

from typing import Any

from msgspec.structs import replace

from zerochat.crypto.primitives import ed25519_to_x25519_public
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import LocalError, Refused
from zerochat.group.effects import Dispatch, Hangup, Notify, Revoke
from zerochat.group.joining import welcome
from zerochat.group.links import mediator_mail, peers
from zerochat.group.links.contact import member_link
from zerochat.group.links.relationship import pack
from zerochat.group.membership import attestation, fork_proof, leave, names
from zerochat.group.notifications import Disagreement, JoinPhase, JoinProgress, Seating, ViewChanged
from zerochat.group.state import Contradiction, Group, Join, JoinState, Word
from zerochat.group.sync import acknowledgements, backfill
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import SEATING, SeatingBody, SyncBody

SEATED_MS = 8_000
"""How long a newcomer waits for one more member before its join counts as done with those who are there."""
AGREE_MS = 4_000
"""How long it waits for those who could confirm others."""
WATCH_MS = 26_000
"""How much longer it compares what the members say; where agreement is strict, it waits for as long for those who can
be reached."""
NEVER_MS = 600_000
"""Whoever was let in so long ago and has never said anything will hardly come: its join has failed long since."""


class JoinFailed(LocalError):
    """You have not joined: {why}. {remedy}"""


# --- telling --------------------------------------------------------------------------------------------------------


def tell(
    turn: Turn, join: Join, phase: JoinPhase, text: str, connected: int = 0, members: int = 0, error: str = ""
) -> None:
    turn.say(Notify(JoinProgress(join.id, phase, text, join.group, connected, members, error)))


def inviter_key(turn: Turn, join: Join) -> bytes | None:
    """The CURVE key with which an inviter who only dials out can call us back: that of the invitation.

    None where it may not be let in: who made the invitation need not have the key, which could be a member's.
    """
    key = ed25519_to_x25519_public(join.invitation.key)
    members = (group.view.known(member) for group in turn.agent.groups.values() for member in group.peers)
    if peers.opens_an_invitation(turn, key) or any(one is not None and key == one.transport for one in members):
        return None
    return key


def change(turn: Turn, link: bytes, **fields: Any) -> Join:
    """Change fields of a join."""
    join = replace(turn.agent.joins[link], **fields)
    turn.change(joins={**turn.agent.joins, link: join})
    return join


def end(turn: Turn, link: bytes, phase: JoinState) -> Join:
    """Nothing more is said over the link of the invitation, but perhaps that we have given up."""
    join = change(turn, link, phase=phase, evidence={})
    if not join.parting:
        hang_up(turn, link)
    return join


def hang_up(turn: Turn, link: bytes) -> None:
    """Close the link of the invitation of a join that is over."""
    join = turn.agent.joins[link]
    if join.invitation.endpoint is None and (key := inviter_key(turn, join)) is not None:
        turn.say(Revoke(key))
    turn.say(Hangup(link))
    group = turn.agent.groups.get(join.group)
    member = group is not None and group.me == join.me  # who is leaving, perhaps, and has to tell them
    if join.phase == "failed" and join.group and not member:
        turn.say(Hangup(link_to_inviter(join)))


def hand_over(turn: Turn, link: bytes, envelope: bytes) -> None:
    """Send an envelope to the inviter, over its mediator if there is no link."""
    join = turn.agent.joins[link]
    ways = join.invitation.mail
    if link in turn.agent.up or not ways:
        turn.say(Dispatch(link, envelope))
    else:
        # A person is waiting, so what has not worked is tried again all the same.
        way = next((way for way in ways if mediator_mail.works(turn, way.uri)), ways[0])
        mediator_mail.post(turn, way, join.relationship.theirs or join.invitation.did, envelope)


def link_to_inviter(join: Join) -> bytes:
    """The link between us and whoever has invited us, as members."""
    return member_link(join.group, join.me, join.relationship.member)


def fail(turn: Turn, link: bytes, why: str, remedy: str, contradiction: Contradiction | None = None) -> None:
    error = JoinFailed(why=why, remedy=remedy)
    end(turn, link, "failed")
    join = change(turn, link, contradiction=contradiction)
    tell(turn, join, "failed", error.sentence(), error=error.code)


# --- meeting --------------------------------------------------------------------------------------------------------


def begin(turn: Turn, link: bytes) -> None:
    """We are in: meet everybody of whom more than one has told us. The group and what it began with are there."""
    name = turn.agent.joins[link].group
    turn.edit(name, agree_by=turn.now + AGREE_MS)
    turn.edit(name, quarantine=attestation.unconfirmed(turn.group(name), late=False))
    group = turn.group(name)
    for member in sorted(group.others):
        if member not in group.quarantine:
            peers.meet(turn, name, member)
    turn.timer("gossip", name, 1)
    turn.timer("seated", link.hex(), SEATED_MS)
    turn.timer("agree", name, AGREE_MS)
    turn.say(Notify(ViewChanged(name)))
    settle(turn, name)
    progress(turn, link)


def hear_heads(turn: Turn, name: str, member: str, body: SyncBody) -> None:
    """A member says which membership events it has, and signs it. Raises Unauthentic or Malformed."""
    group = turn.group(name)
    if body.group != name or not body.word or member not in group.view.members:
        return
    known = group.words.get(member)
    if known is not None and known.at and (known.heads, known.sig) == (tuple(body.heads), body.word):
        return
    attestation.check_heads(member, name, body.heads, body.word)
    words = {did: word for did, word in group.words.items() if did in group.view.members}
    agrees = group.agree_by > 0 and attestation.covers(group.control, body.heads, group.entry)
    word = Word(tuple(body.heads), body.word, max(1, turn.now), agrees)
    turn.edit(name, words={**words, member: word})


def settle(turn: Turn, name: str) -> None:
    """Compare what the members have signed with what we began with, and meet whoever is confirmed by now."""
    group = turn.group(name)
    if not group.agree_by or group.state != "active":
        return
    for member in attestation.contradicting(group):
        if member not in group.disputed:
            _dispute(turn, name, member)
    group = turn.group(name)
    if group.state != "active":
        return
    late = turn.now >= group.agree_by
    watched = group.quarantine or group.disputed
    found = attestation.unconfirmed(group, late=late) if watched else ()
    if not group.disputed:  # without a contradiction nobody loses what it has
        found = tuple(did for did in found if did in group.quarantine)
    if found != group.quarantine:
        turn.edit(name, quarantine=found)
        for did in found:
            if did in group.peers:
                peers.close(turn, name, did)
        for did in group.quarantine:
            if did not in found and did in group.view.members:
                peers.meet(turn, name, did)
        turn.say(Notify(ViewChanged(name)))
        if not found:
            for did in turn.group(name).peers:
                acknowledgements.owe(turn, name, did)  # now we vouch for all that we know
    if late:
        fork_proof.show(turn, name)
    _conclude(turn, name)


def _strict(group: Group) -> bool:
    return group.view.policy.agreement == "strict"


def _conclude(turn: Turn, name: str) -> None:
    """See whether all is said, and there is nothing more to compare."""
    group = turn.group(name)
    late, last = turn.now >= group.agree_by, turn.now >= group.agree_by + WATCH_MS
    untold = [m for m in group.peers if m in group.view.members and not (m in group.words and group.words[m].at)]
    if late and _strict(group):
        untold = [member for member in untold if mediator_mail.reachable(turn, name, member)]
    # Whoever has left at once, and whose last word nobody can place any more, has contradicted nobody.
    if not group.quarantine and (last or not (untold or attestation.contradicting(group, certain=False))):
        turn.edit(name, agree_by=0)
        turn.timer("need", name, 1, keep=True)  # whoever has not talked to us by now may not be able to
    elif late and not last:
        turn.timer("agree", name, group.agree_by + WATCH_MS - turn.now)


def _joining(turn: Turn, name: str) -> bytes | None:
    """The link of the join that has brought us into this group, as long as it is not over."""
    joins = turn.agent.joins.items()
    return next((k for k, one in joins if one.group == name and one.phase == "done" and not one.seated), None)


def _dispute(turn: Turn, name: str, member: str) -> None:
    """A member has signed something else than whoever let us in."""
    group = turn.group(name)
    turn.edit(name, disputed=(*group.disputed, member))
    acceptor = attestation.acceptor_of(group)
    joins = turn.agent.joins.items()
    link = next((k for k, one in joins if one.group == name and one.phase == "done"), None)
    accepted = turn.agent.joins[link].words.get(acceptor) if link is not None else None
    found = attestation.contradiction_of(group, accepted, member) if accepted is not None else None
    if _strict(group) and (joining := _joining(turn, name)) is not None:
        leave.leave(turn, group)
        why = attestation.disputed(group, member)
        fail(turn, joining, why, "Ask the members, by other means, which of them is right.", found)
        return
    if link is not None:
        turn.change(joins={**turn.agent.joins, link: replace(turn.agent.joins[link], contradiction=found)})
    turn.say(Notify(Disagreement(name, "", attestation.disputed_sentence(group, member))))


def never_arrived(group: Group, member: str, now: int) -> bool:
    """Whether we have let this member in, and it has not come in all the time (UTC ms) that a join takes. Nobody else
    can tell: whom we hear nothing of the others may well hear. It is a member until it is put out, like any other."""
    known, peer = group.view.members.get(member), group.peers.get(member)
    if group.state != "active" or known is None or known.added_by != group.me or peer is None or peer.heard:
        return False
    entry = welcome.entry_of(group, member)
    return entry is not None and now >= group.control[entry].time + NEVER_MS


# --- progress -------------------------------------------------------------------------------------------------------


def progress_all(turn: Turn, name: str) -> None:
    """Something has changed in this group: see whom we can meet now, and say so to whoever waits for a seat in it."""
    settle(turn, name)
    for link, one in turn.agent.joins.items():
        if one.group == name and not one.seated:
            progress(turn, link)


def progress(turn: Turn, link: bytes, final: bool = False) -> None:
    """Say how many members the newcomer is connected with, who is awaited, and when that is enough."""
    join = turn.agent.joins.get(link)
    if join is None or join.phase != "done" or join.seated:
        return
    name = join.group
    group = turn.group(name)
    ready = [
        member
        for member in group.peers
        if member in group.relationships
        and group.relationships[member].established
        and mediator_mail.reachable(turn, name, member)
    ]
    awaited = [member for member in group.others if member not in ready]
    count, total = len(ready), len(ready) + len(awaited)
    undecided = _strict(group) and group.agree_by > 0
    if (final or not awaited) and not undecided:
        turn.change(joins={**turn.agent.joins, link: replace(join, seated=True)})
        backfill.begin(turn, name)
        text = f"You are in {group.name}."
        if awaited:
            text += f" {count} of {total} members are connected; the others follow when they can be reached."
        tell(turn, join, "joined", text, connected=count, members=total)
        _report(turn, name, count, total)
        return
    if final:
        turn.timer("seated", link.hex(), max(SEATED_MS, group.agree_by - turn.now))
    if count > join.most:  # where many join at once, it takes a while until all have met all
        turn.timer("seated", link.hex(), SEATED_MS)
    if count != join.connected:
        most = max(count, join.most)
        turn.change(joins={**turn.agent.joins, link: replace(join, connected=count, most=most)})
        text = f"You are in {group.name}; {count}/{total} members connected"
        text += f", waiting for {names(group.view, awaited)}…" if awaited else "; comparing what they say…"
        tell(turn, join, "connecting", text, connected=count, members=total)
        step = max(1, total // 4)
        if count // step != join.connected // step and count < total:
            _report(turn, name, count, total)


def _report(turn: Turn, name: str, connected: int, members: int) -> None:
    """Tell whoever let us in how far we are."""
    group = turn.group(name)
    acceptor = attestation.acceptor_of(group)
    relationship = group.relationships.get(acceptor)
    if acceptor not in group.peers or relationship is None or not relationship.established:
        return
    if group.peers[acceptor].link not in turn.agent.up:
        return  # it can wait, and by mail it would only be late
    body = {"group": name, "connected": connected, "members": members}
    message = Message(type=SEATING, id=new_id(turn.moment.random), body=body)
    mediator_mail.send(turn, name, acceptor, pack(relationship, message, turn.packer_of(name), turn.moment.random))


def hear_seating(turn: Turn, name: str, member: str, body: SeatingBody) -> None:
    """Somebody whom we have let in says how far it is. Raises Refused."""
    group = turn.group(name)
    newcomer = group.view.members.get(member)
    if body.group != name or newcomer is None or newcomer.added_by != group.me or body.connected > body.members:
        raise Refused(why="news of a seat by somebody whom we have not let in")
    turn.say(Notify(Seating(name, member, body.connected, body.members)))
