"""Admission of a joiner: reasons to reject it, the add event, and the welcome with its evidence."""

from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.effects import Notify
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import ADD
from zerochat.group.joining import vouchers, welcome
from zerochat.group.joining.claims import put_claim
from zerochat.group.joining.invitations import ReplyPath
from zerochat.group.links import neighbours, peers, rate_limits
from zerochat.group.links.contact import client_key
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.membership import WRITER, ancestors, has_seat_for, label_free
from zerochat.group.notifications import InvitationUsed
from zerochat.group.state import Group, OpenInvitation
from zerochat.group.sync import stale_profile
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import compress_runs, write_runs
from zerochat.group.wire.messages import (
    PROBLEM,
    PROBLEMS,
    WELCOME,
    JoinRequestBody,
)

WELCOME_INTERVAL_MS = 1_000
"""At most one welcome per joiner in this time. It may be a thousand times larger than the request, and goes to an
address that the requester chose (amplification). A joiner that lost one retries later than this."""
WELCOME_EVENT_US = 50
"""The work of packing one membership event into a welcome, us."""
SUSPENDED_CODE = "e.p.req.older"


def problem_report(tx: Transaction, open_: OpenInvitation, relationship: Relationship, code: str, thread: str) -> bytes:
    body = {"code": code, "comment": PROBLEMS[code]}
    message = Message(type=PROBLEM, id=new_id(tx.context.random), pthid=thread, body=body)
    return pack(relationship, message, tx.packer(open_.invitation.envelope), tx.context.random)


def rejection_code(tx: Transaction, open_: OpenInvitation, group: Group, body: JoinRequestBody) -> str:
    """The problem code of why a joiner cannot be admitted, or an empty string."""
    if group.state != "active" or (group.private is not None and group.private.moved_to):
        return "e.p.req.closed"
    if stale_profile.is_suspended(group):
        return SUSPENDED_CODE
    if not has_seat_for(group.view, group.me) or len(group.links.peers) >= peers.PEERS_MAX:
        return "e.p.req.full"
    if not label_free(group.view, body.label):
        return "e.p.req.name-taken"
    if body.role == WRITER != open_.role:
        return "e.p.req.role"
    if not vouchers.is_invited(group, open_, body):
        return "e.p.req.other"
    if peers.is_invitation_key(tx, client_key(body.transport)):
        return "e.p.msg"
    return ""


def admit_joiner(tx: Transaction, link: bytes, claimant: str, body: JoinRequestBody) -> None:
    """Append the add event of a joiner."""
    open_ = tx.agent.invitations[link]
    claim, group = open_.claims[claimant], tx.group(open_.group)
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
    tx.update_links(group.id, relationships={**group.links.relationships, body.member: claim.relationship})
    own_events.append(tx, group.id, ADD, added)
    put_claim(tx, link, claimant, replace(claim, admitted=True))
    view = tx.group(group.id).view
    left = open_.uses - len(open_.claims) if open_.uses else view.members_max - len(view.members)
    tx.emit(Notify(InvitationUsed(group.id, body.label, left, link)))


def send_welcome(tx: Transaction, link: bytes, claimant: str, thread: str, answer: ReplyPath) -> None:
    """Send a new member its evidence: the event that adds it, with its causal past. The content is the same each time,
    so parts sent at different times fit together. The first is the price of an admission; each further one is charged
    to the member. Raises Refused, TooMuchWork included."""
    open_ = tx.agent.invitations[link]
    claim, group = open_.claims[claimant], tx.group(open_.group)
    member = claim.relationship.member
    if neighbours.is_ring(group) and member in group.view.members:  # its link may have been closed for another joiner
        peers.add_peer(tx, group.id, member)
        group = tx.group(open_.group)
    if member not in group.links.peers:
        raise Refused(why="a join request by a member whose link does not fit")
    entry = welcome.admission_event_of(group, member)
    if entry is None:
        raise Refused(why="a join request by a member whom another member admitted")
    if tx.now < claim.welcomed_at + WELCOME_INTERVAL_MS:
        return
    again = claim.welcomed_at > 0
    if again:
        rate_limits.charge_work(tx, group.id, member, len(group.control) * WELCOME_EVENT_US)
    put_claim(tx, link, claimant, replace(claim, welcomed_at=tx.now))
    past = {name: group.control[name] for name in ancestors(group.control, [entry])}
    attestations = welcome.attestations_for(group, member, entry, past)
    since, parts = group.links.peers[member].start_seq, welcome.welcome_parts(past, attestations)
    for number, events in enumerate(parts):
        part = {"group": group.id, "start_seq": since, "part": number, "parts": len(parts), "runs": write_runs(events)}
        part["attestations"] = attestations if number == 0 else []
        reply = compress_runs(
            Message(type=WELCOME, id=new_id(tx.context.random), thid=thread, body=part), "attestations"
        )
        packed = pack(claim.relationship, reply, tx.packer_of(group.id), tx.context.random)
        if again:
            rate_limits.charge_bytes(tx, group.id, member, len(packed))
        answer(claim.relationship.theirs, packed)
