"""Letting somebody in: why it cannot come in, the event that brings it in, and the welcome that it is given."""

from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.effects import Notify
from zerochat.group.event_log import log
from zerochat.group.event_log.event import ADD
from zerochat.group.joining import welcome
from zerochat.group.joining.invitations import Answer, put_claim
from zerochat.group.links import peers
from zerochat.group.links.contact import client_key
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.membership import MEMBERS_MAX, WRITER, ancestors, label_free
from zerochat.group.notifications import InvitationUsed
from zerochat.group.state import Group, OpenInvitation
from zerochat.group.sync import stale_profile
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import squeezed, write_runs
from zerochat.group.wire.messages import (
    PROBLEM,
    PROBLEMS,
    WELCOME,
    JoinRequestBody,
)

WELCOME_MS = 1_000
"""At most one welcome in this time: it may be a thousand times as long as what asks for it, and goes where that says.
A joiner that has lost one repeats itself later than this."""
OLDER = "e.p.req.older"


def problem(turn: Turn, open_: OpenInvitation, relationship: Relationship, code: str, thread: str) -> bytes:
    body = {"code": code, "comment": PROBLEMS[code]}
    message = Message(type=PROBLEM, id=new_id(turn.moment.random), pthid=thread, body=body)
    return pack(relationship, message, turn.packer(open_.invitation.envelope), turn.moment.random)


def why_not_in(turn: Turn, open_: OpenInvitation, group: Group, body: JoinRequestBody) -> str:
    """The problem code of why somebody cannot come in as it wants to, or nothing."""
    if group.state != "active":
        return "e.p.req.closed"
    if stale_profile.suspended(group):
        return OLDER
    if len(group.view.members) >= MEMBERS_MAX or len(group.peers) >= peers.PEERS_MAX:
        return "e.p.req.full"
    if not label_free(group.view, body.label):
        return "e.p.req.name-taken"
    if body.role == WRITER != open_.role:
        return "e.p.req.role"
    if peers.opens_an_invitation(turn, client_key(body.transport)):
        return "e.p.msg"
    return ""


def add(turn: Turn, link: bytes, claimant: str, body: JoinRequestBody) -> None:
    """Bring somebody in."""
    open_ = turn.agent.invitations[link]
    claim, group = open_.claims[claimant], turn.group(open_.group)
    added = {
        "member": body.member,
        "label": body.label,
        "contact": body.contact,
        "role": body.role,
        "transport": body.transport,
        "possession": body.possession,
        "consent": body.consent,
    }
    if open_.history != "all":
        added["history"] = open_.history
    turn.edit(group.id, relationships={**group.relationships, body.member: claim.relationship})
    log.append(turn, group.id, ADD, added)
    put_claim(turn, link, claimant, replace(claim, joined=True))
    left = open_.uses - len(open_.claims) if open_.uses else MEMBERS_MAX - len(turn.group(group.id).view.members)
    turn.say(Notify(InvitationUsed(group.id, body.label, left, link)))


def give_welcome(turn: Turn, link: bytes, claimant: str, thread: str, answer: Answer) -> None:
    """Give a new member its evidence for the group: the event that brings it in, and all its past. Always the same, so
    that parts which were sent at different times fit together. Raises Refused."""
    open_ = turn.agent.invitations[link]
    claim, group = open_.claims[claimant], turn.group(open_.group)
    member = claim.relationship.member
    if member not in group.peers:
        raise Refused(why="a request to join by a member whom there was no room for")
    entry = welcome.entry_of(group, member)
    if entry is None:
        raise Refused(why="a request to join by a member whom somebody else has let in")
    if turn.now < claim.welcomed + WELCOME_MS:
        return
    put_claim(turn, link, claimant, replace(claim, welcomed=turn.now))
    past = {name: group.control[name] for name in ancestors(group.control, [entry])}
    words = welcome.words(group, member, entry, past)
    since, parts = group.peers[member].base, welcome.parts(past, words)
    for number, events in enumerate(parts):
        part = {"group": group.id, "since": since, "part": number, "parts": len(parts), "runs": write_runs(events)}
        part["words"] = words if number == 0 else []
        reply = squeezed(Message(type=WELCOME, id=new_id(turn.moment.random), thid=thread, body=part), "words")
        answer(claim.relationship.theirs, pack(claim.relationship, reply, turn.packer_of(group.id), turn.moment.random))
