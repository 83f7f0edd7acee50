"""Joining: from an invitation that somebody was handed to a seat in the group. The inviter's side is `invite.py`.

    exchanging --response--> asking --welcome--> done: the rest happens in seating.py, peers.py and sync.py
        |  no answer in time, or a problem report: failed; the same invitation can be tried again, with the same keys

A lost message is repeated by the joiner, so the inviter needs no timer. Where a member has to decide, the joiner waits
for as long as the invitation lives, over restarts too, and asks again ever more rarely.
"""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.did import same_did
from zerochat.didcomm.invitation import NONCE_BYTES, Invitation, bound_id
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols import exchange
from zerochat.errors import LocalError, Malformed, Overloaded, Refused, RemoteError, Unauthentic
from zerochat.group.effects import Admit, Dial, Hangup
from zerochat.group.event_log import lamport, log
from zerochat.group.event_log.event import Did, Id, load_event
from zerochat.group.joining import cancellation, member_connections, welcome
from zerochat.group.joining.member_connections import fail, hand_over
from zerochat.group.links import mediator_mail
from zerochat.group.links.contact import (
    check_proof,
    knock_link,
    new_identity,
    sign_consent,
    sign_possession,
    sign_proof,
    transport_name,
    transport_secret,
)
from zerochat.group.links.relationship import Relationship, pack, unpack
from zerochat.group.membership import (
    CONTROL_MAX,
    READER,
    WRITER,
    attestation,
    names,
)
from zerochat.group.state import Join, JoinState, Word
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Turn
from zerochat.group.wire.envelope import Opened, open_first, pack_to
from zerochat.group.wire.messages import (
    HAVE_MAX,
    JOIN_PENDING,
    JOIN_REQUEST,
    PROBLEM,
    PROBLEMS,
    WELCOME,
    WELCOME_PARTS_MAX,
    PendingBody,
    ProblemBody,
    WelcomeBody,
    read_body,
)
from zerochat.names import fault_of

JOIN_MS_MAX = 60_000
"""After this long without a seat the join has failed: a person is waiting."""
RETRY_MS, MAIL_RETRY_MS = 1_500, 5_000
RETRY_DOUBLINGS_MAX = 2
"""It asks ever more rarely: whoever invites many at once has most to do when all of them wait."""
PENDING_MS_MAX = 24 * 3_600_000
"""How long it waits for a member who has to decide, if the invitation lives as long."""
PENDING_RETRY_MS, PENDING_RETRY_MS_MAX = 5_000, 30_000
PENDING_MAIL_RETRY_MS, PENDING_MAIL_RETRY_MS_MAX = 60_000, 3_600_000
"""It asks again after this long, then ever more rarely; a mediator would keep every copy."""
UNANSWERED_MAX = 2
"""After so many questions without an answer it says who it is once more: the inviter may have forgotten it."""
JOINS_MAX = 16
EVIDENCE_BYTES_MAX = 2 * CONTROL_MAX * 1024
"""Every membership event that a group can have, at the size that they usually have."""
OTHER_GROUP = "whoever invited you has answered for another group than the invitation is for"
PENDING = "A member was asked whether you may join {name}. Waiting for the answer…"


class AlreadyMember(LocalError):
    """You are in {group} already, so there is nothing to join."""


class NoSuchRole(LocalError):
    """Nobody joins as {role}. Join as reader or writer."""


def checked_role(role: str) -> str:
    """A role that somebody can join with. Raises NoSuchRole."""
    if role not in (READER, WRITER):
        raise NoSuchRole(role=role)
    return role


def accept(turn: Turn, invitation: Invitation, label: str, role: str = WRITER) -> str:
    """Begin to join (or, after a failure, try again with the same keys). Returns the join's id."""
    link, role = knock_link(invitation.id), checked_role(role)
    known = turn.agent.joins.get(link)
    if known is not None and known.phase == "done":
        if turn.agent.groups[known.group].state != "left":
            raise AlreadyMember(group=known.name)
        known = None
    if known is not None and (known.contradiction is not None or known.farewell):
        known = None  # this key has left already, if it ever was in
    if link in turn.agent.invitations:
        raise AlreadyMember(group=turn.group(turn.agent.invitations[link].group).name)
    assert turn.agent.reach is not None
    deadline = turn.now + JOIN_MS_MAX
    if known is not None and known.phase == "failed":
        phase: JoinState = "asking" if known.relationship.established else "exchanging"
        join = replace(known, label=label, role=role, deadline=deadline, phase=phase, begun=turn.now)
        # The inviter may have forgotten us meanwhile.
        join = replace(join, pending=0, unanswered=UNANSWERED_MAX, parting=0)
    elif known is not None:
        join = replace(known, label=label, role=role, deadline=deadline, pending=0)
    else:
        seed = turn.moment.random(32)
        identity = new_identity(turn.moment.random, mediator_mail.own_reach(turn, seed), invitation.envelope)
        join = Join(
            id=b64url(turn.moment.random(9)),
            invitation=invitation,
            label=label,
            relationship=Relationship("", identity, "", new_id(turn.moment.random), invitation.did, requester=True),
            seed=seed,
            me=did_key(ed25519_public(seed)),
            deadline=deadline,
            phase="exchanging",
            role=role,
            begun=turn.now,
        )
    others = {k: j for k, j in turn.agent.joins.items() if k != link}
    if len(others) >= JOINS_MAX:
        failed = (k for k, j in others.items() if j.phase == "failed" and not j.parting)
        over = next(failed, next((k for k, j in others.items() if j.phase == "done" and j.seated), None))
        if over is None:
            raise Overloaded(what="The number of joins under way", limit=JOINS_MAX)
        del others[over]
    turn.change(joins={**others, link: join})
    resume(turn, link)
    return join.id


def resume(turn: Turn, link: bytes) -> None:
    """Dial the inviter and knock; also after a restart in the middle of a join."""
    join = turn.agent.joins[link]
    if join.phase in ("exchanging", "asking") or join.parting:
        invitation = join.invitation
        if invitation.endpoint is not None:
            turn.say(Dial(link, invitation.endpoint, invitation.server_key, invitation.knock_secret()))
        elif turn.agent.reach is not None and turn.agent.reach.pair:
            key = member_connections.inviter_key(turn, join)
            if key is not None:
                turn.say(Admit(link, key))
        if join.parting:
            cancellation.again(turn, link)
            return
        member_connections.tell(turn, join, "dialling", f"Looking for whoever invited you, at {invitation.where}…")
        knock(turn, link)
    elif join.phase == "done" and not join.seated:
        turn.timer("seated", link.hex(), member_connections.SEATED_MS)


def knock(turn: Turn, link: bytes) -> None:
    """Say (again) what the join waits for, or give up when its time is over."""
    join = turn.agent.joins.get(link)
    if join is None or join.phase not in ("exchanging", "asking"):
        cancellation.again(turn, link)
        return
    if turn.now >= join.deadline:
        cancellation.begin(turn, link)
    if turn.now >= join.deadline and join.pending:
        fail(turn, link, "nobody has said whether you may come in", "Ask whoever invited you, then try again.")
        return
    if turn.now >= join.deadline:
        fail(
            turn,
            link,
            "nobody answered at " + join.invitation.where,
            "Whoever invited you must have zerochat open (or `zerochat agent` running) and be reachable from here."
            " The invitation is still good: try again with the same one.",
        )
        return
    mailed = link not in turn.agent.up and join.invitation.mail
    if link in turn.agent.up or mailed:
        _send(turn, link, join)
        join = member_connections.change(turn, link, unanswered=join.unanswered + 1)
    retry = MAIL_RETRY_MS if mailed else RETRY_MS << min(join.unanswered, RETRY_DOUBLINGS_MAX)
    if join.pending:
        first, most = PENDING_RETRY_MS, PENDING_RETRY_MS_MAX
        if mailed:
            first, most = PENDING_MAIL_RETRY_MS, PENDING_MAIL_RETRY_MS_MAX
        retry = min(first << min(join.pending - 1, 10), most)
        turn.change(joins={**turn.agent.joins, link: replace(join, pending=join.pending + 1)})
    turn.timer("join", link.hex(), min(retry, join.deadline - turn.now))


def _send(turn: Turn, link: bytes, join: Join) -> None:
    relationship, packer = join.relationship, turn.packer(join.invitation.envelope)
    if join.phase == "exchanging" or join.unanswered >= UNANSWERED_MAX:
        request = Message(
            type=exchange.REQUEST,
            id=relationship.thid,
            thid=relationship.thid,
            pthid=join.invitation.pthid,
            body={"goal_code": "org.zerochat.join", "member": join.me, "label": join.label},
        )
        hand_over(turn, link, pack_to(relationship.mine, relationship.asked, request, packer, turn.moment))
    if join.phase == "exchanging":
        return
    assert join.contact is not None
    contact, inviter = join.contact.did, relationship.member
    role, transport = join.role, transport_name(join.seed)
    body = {
        "group": join.group,
        "member": join.me,
        "label": join.label,
        "contact": contact,
        "role": role,
        "transport": transport,
        "possession": sign_possession(join.seed, join.group, join.me),
        "consent": sign_consent(join.seed, join.group, inviter, join.me, join.label, contact, role, transport),
        "proof": sign_proof(join.seed, join.group, relationship.mine.did, relationship.asked, inviter),
    }
    complete = exchange.complete(relationship.thid, join.invitation.pthid, turn.moment.random)
    request = Message(type=JOIN_REQUEST, id=new_id(turn.moment.random), body=body)
    for message in (complete, request):
        hand_over(turn, link, pack(relationship, message, packer, turn.moment.random))


def link_up(turn: Turn, link: bytes) -> None:
    """The inviter can be reached."""
    join = turn.agent.joins[link]
    if join.phase in ("exchanging", "asking"):
        if join.pending:
            member_connections.tell(turn, join, "asking", PENDING.format(name=join.name))
        else:
            member_connections.tell(turn, join, "exchanging", "Found. Exchanging keys…")
        _send(turn, link, join)
    else:
        cancellation.again(turn, link)


class _ResponseBody(msgspec.Struct, frozen=True):
    group: Id
    nonce: Annotated[str, msgspec.Meta(max_length=22)]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    member: Did
    label: Annotated[str, msgspec.Meta(max_length=256)]
    proof: Annotated[str, msgspec.Meta(max_length=86)]


def hear_answer(turn: Turn, link: bytes, envelope: bytes) -> None:
    """The inviter says something to us as a joiner. Raises RemoteError."""
    join = turn.agent.joins[link]
    if join.parting:
        cancellation.hear(turn, link, envelope)
        return
    if join.phase not in ("exchanging", "asking"):
        return
    packer = turn.packer(join.invitation.envelope)
    if join.relationship.established:
        try:
            relationship, message = unpack(join.relationship, envelope, packer)
        except Unauthentic:
            pass
        else:
            join = member_connections.change(turn, link, relationship=relationship, unanswered=0)
            if not relationship.established:
                fail(turn, link, "the inviter has ended the conversation", "Ask for a fresh invitation.")
                return
            match message.type:
                case kind if kind == JOIN_PENDING:
                    _hear_pending(turn, link, read_body(message, PendingBody))
                case kind if kind == WELCOME:
                    _hear_welcome(turn, link, read_body(message, WelcomeBody))
                case kind if kind == PROBLEM:
                    _hear_problem(turn, link, read_body(message, ProblemBody))
            return
    opened = open_first([join.relationship.mine], envelope, packer)
    asked = join.phase == "exchanging" or join.unanswered >= UNANSWERED_MAX
    if opened.message.type == PROBLEM and asked:
        # The refusal comes from a DID that we do not know, but over a connection that proved the inviter's server key,
        # and the worst that it can do is to end this try.
        if opened.message.pthid == join.relationship.thid:
            _hear_problem(turn, link, read_body(opened.message, ProblemBody))
        return
    if opened.message.type != exchange.RESPONSE or opened.message.thid != join.relationship.thid:
        raise Refused(why="an answer to another request")
    if not join.relationship.established or not same_did(join.relationship.theirs, opened.sender):
        _hear_response(turn, link, opened)


def _hear_response(turn: Turn, link: bytes, opened: Opened) -> None:
    join = turn.agent.joins[link]
    exchange.check_response(opened.message, asked=join.invitation.did, sender=opened.sender)
    body = read_body(opened.message, _ResponseBody)
    nonce = b64url_bytes(body.nonce)
    if len(nonce) != NONCE_BYTES or bound_id(nonce, body.group) != join.invitation.id:
        fail(turn, link, OTHER_GROUP, "Ask for a fresh invitation.")
        return
    check_proof(body.proof, body.member, body.group, opened.sender, join.invitation.did, join.me)
    if fault_of(body.name):
        raise Malformed(why="response: a group name that cannot be shown")
    if join.relationship.established and body.member != join.relationship.member:
        raise Refused(why="a response by somebody else than before")
    name = body.name
    known = turn.agent.groups.get(body.group)
    others = [k for k, j in turn.agent.joins.items() if j.group == body.group and j.phase == "asking" and k != link]
    twice = any(not turn.agent.joins[k].pending for k in others)
    if twice or (known is not None and known.state != "left"):  # whoever has left comes back as somebody new
        cancellation.begin(turn, link)
        _already(turn, link, body.name)
        return
    for k in others:  # nobody knows when a person answers
        cancellation.begin(turn, k)
        fail(turn, k, "you have accepted another invitation to the same group", "Wait for the answer to that one.")
    assert turn.agent.reach is not None
    relationship = replace(join.relationship, member=body.member, theirs=opened.sender, greeted=True)
    contact = new_identity(turn.moment.random, mediator_mail.own_reach(turn, join.seed), join.invitation.envelope)
    join = replace(join, relationship=relationship, phase="asking", group=body.group, name=name, contact=contact)
    join = replace(join, unanswered=0)
    turn.change(joins={**turn.agent.joins, link: join})
    member_connections.tell(turn, join, "asking", f"Asking to join {name}…")
    _send(turn, link, join)
    invitation = join.invitation
    if invitation.endpoint is not None and not join.pending:
        # As a member we have another key, and so another connection. By the time that it must be let in the inviter
        # has heard what we ask; if not, it is dialled again.
        ours = transport_secret(join.seed)
        turn.say(Dial(member_connections.link_to_inviter(join), invitation.endpoint, invitation.server_key, ours))


def _hear_pending(turn: Turn, link: bytes, body: PendingBody) -> None:
    """A member has to decide. Raises Refused."""
    join = turn.agent.joins[link]
    if join.phase != "asking" or body.group != join.group:
        raise Refused(why="somebody was asked about another group")
    if not join.pending:
        deadline = min(join.invitation.expires * 1000, turn.now + PENDING_MS_MAX)
        join = replace(join, pending=1, deadline=max(deadline, join.deadline))
        turn.change(joins={**turn.agent.joins, link: join})
        turn.say(Hangup(member_connections.link_to_inviter(join)))
        member_connections.tell(turn, join, "asking", PENDING.format(name=join.name))


def _hear_problem(turn: Turn, link: bytes, body: ProblemBody) -> None:
    join = turn.agent.joins[link]
    if body.code == "e.p.req.role" and join.role == WRITER:
        join = replace(join, role=READER)
        turn.change(joins={**turn.agent.joins, link: join})
        text = f"This invitation is for reading only. Asking to join {join.name} as a reader…"
        member_connections.tell(turn, join, "asking", text)
        _send(turn, link, join)
        return
    why = PROBLEMS.get(body.code, "the inviter refused")
    remedy = "Ask for a fresh invitation."
    if body.code == "e.p.req.name-taken":
        remedy = "Join with the same invitation under another name (`zerochat join … --name OTHER`)."
    elif body.code in ("e.p.req.busy", "e.p.req.older"):
        remedy = "Try again later with the same invitation."
    fail(turn, link, why, remedy)


def _hear_welcome(turn: Turn, link: bytes, body: WelcomeBody) -> None:
    """The evidence for the group, event by event; then we are in. Raises RemoteError for what is no part of one."""
    join = turn.agent.joins[link]
    if body.group != join.group:
        fail(turn, link, OTHER_GROUP, "Ask for a fresh invitation.")
        return
    events, said = welcome.told(body)
    evidence = {**join.evidence, body.part: [event.record for event in events]}
    words = {**join.words, **{one.member: Word(tuple(one.heads), one.word) for one in said}}
    size = sum(len(one) for part in evidence.values() for one in part)
    if size > EVIDENCE_BYTES_MAX or len(words) > HAVE_MAX or len(evidence) > WELCOME_PARTS_MAX:
        raise Refused(why="a welcome without end")
    join = replace(join, evidence=evidence, words=words)
    turn.change(joins={**turn.agent.joins, link: join})
    if len(evidence) < body.parts or not all(evidence.values()):
        return
    events = [load_event(record) for _, part in sorted(evidence.items()) for record in part]
    if max(event.lamport for event in events) > turn.now + lamport.AHEAD_MS_MAX:
        why = "this machine's clock is more than five minutes behind the group's"
        cancellation.begin(turn, link, events)
        fail(turn, link, why, "Set the clock, then try again with the same invitation.")
        return
    known = turn.agent.groups.get(join.group)
    if known is not None and known.state != "left":
        cancellation.begin(turn, link, events)
        _already(turn, link, known.name)
        return
    try:
        group = welcome.founded(join, events, body.since)
    except RemoteError:
        cancellation.begin(turn, link, events)
        fail(turn, link, "what the inviter says of the group does not hold", "Ask somebody else in it to invite you.")
        return
    if not log.supported(group.profile):
        cancellation.begin(turn, link, events)
        kind = f"({group.profile.keys}), an accountability ({group.profile.accountability})"
        why = f"this group has keys {kind} or a path that this version does not have"
        fail(turn, link, why, "Update zerochat.")
        return
    if group.view.forked and group.view.policy.agreement == "strict":
        liars = names(group.view, list(group.view.forked))
        proof = attestation.fork_in(group.control, group.id, group.view.forked)
        why = f"{liars} has signed two histories of {group.name}"
        cancellation.begin(turn, link, events)
        fail(turn, link, why, "Ask the members, by other means, about that.", proof)
        return
    accepted = {did: word for did, word in group.words.items() if did == join.relationship.member}
    turn.put(replace(group, lamport=max(group.lamport, known.lamport if known else 0)))
    for event in events:
        log.remember(turn, group.id, event, late=False)
    attestation.accuse(turn, group.id, {})
    if group.view.ledger:
        adoption.adopt(turn, group.id, None)
        turn.timer("log", group.id, adoption.SOON_MS)
    turn.change(joins={**turn.agent.joins, link: replace(join, words=accepted)})
    member_connections.end(turn, link, "done")
    member_connections.begin(turn, link)


def _already(turn: Turn, link: bytes, name: str) -> None:
    error = AlreadyMember(group=name)
    join = member_connections.end(turn, link, "failed")
    member_connections.tell(turn, join, "failed", error.sentence(), error=error.code)
