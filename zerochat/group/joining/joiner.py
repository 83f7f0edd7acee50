"""The joiner's side of a join: DID exchange, join request, welcome (the inviter's side is `inviter.py`).

    EXCHANGING --response--> REQUESTING --welcome--> CONNECTING: continued in member_connections.py
        |                        |  join-pending: PENDING, then as REQUESTING
        |  no answer in time, or a problem report: FAILED; a retry uses the same invitation and keys

The joiner retransmits, so the inviter needs no timer. While a member has to decide, the joiner waits as long as the
invitation lives, across restarts too, with exponential backoff. The states and transitions are in `state/joins.py`.
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
from zerochat.errors import LocalError, Malformed, Overloaded, Refused, Unauthentic
from zerochat.group.backoff import Backoff
from zerochat.group.effects import AllowClient, Dial, Disconnect
from zerochat.group.event_log.event import Did, Id
from zerochat.group.joining import cancellation, evidence, member_connections, vouchers
from zerochat.group.joining.member_connections import fail_join, send_to_inviter
from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.links.contact import (
    check_proof,
    join_link,
    new_identity,
    sign_consent,
    sign_possession,
    sign_proof,
    transport_public,
    transport_secret,
)
from zerochat.group.links.relationship import Relationship, pack, unpack
from zerochat.group.membership import (
    READER,
    WRITER,
)
from zerochat.group.state import Group, Join, JoinState
from zerochat.group.state.joins import ADMITTED, AWAITING_INVITER, ENDS, REQUESTED
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.envelope import OpenedMessage, open_first, pack_first
from zerochat.group.wire.messages import (
    JOIN_PENDING,
    JOIN_REQUEST,
    PROBLEM,
    PROBLEMS,
    WELCOME,
    PendingBody,
    ProblemBody,
    WelcomeBody,
    read_body,
)
from zerochat.names import fault_of

JOIN_MS_MAX = 60_000
"""After this long without an answer, and as long again without a connected member, the join has failed: a user is
waiting."""
RETRY, MAIL_RETRY = Backoff(1_500, 6_000), Backoff(5_000, 5_000)
"""Exponential backoff: an inviter of many is busiest when all of them wait."""
PENDING_MS_MAX = 24 * 3_600_000
"""How long to wait for a member's decision, if the invitation lives as long."""
PENDING_RETRY, PENDING_MAIL_RETRY = Backoff(5_000, 30_000), Backoff(60_000, 3_600_000)
"""Exponential backoff while a decision is pending; a mediator keeps every copy."""
UNANSWERED_MAX = 2
"""After so many unanswered requests the joiner repeats its exchange request: the inviter may have dropped its claim."""
JOINS_MAX = 16
PENDING_TEXT = "Waiting for a member of {name} to approve your request…"


class NoSuchRole(LocalError):
    """You cannot join as {role}. Join as reader or writer."""


class NoAnswerPossible(LocalError):
    """The inviter is reachable only through its mediator, and no answer could reach you: this agent only dials out
    (`network.hidden`) and has no mediator. Add one (`zerochat route add LINK`), for example the inviter's, then join
    again."""


def checked_role(role: str) -> str:
    """A role that joiners can ask for. Raises NoSuchRole."""
    if role not in (READER, WRITER):
        raise NoSuchRole(role=role)
    return role


def accept_invitation(
    tx: Transaction,
    invitation: Invitation,
    label: str,
    role: str = WRITER,
    private: tuple[Group, str, str] | None = None,
) -> str:
    """Begin to join, or retry a failed join with the same keys. Returns the join's id. `private`: the group, the
    member there that invites us to a private conversation, and its proof that it has founded that."""
    link, role = join_link(invitation.id), checked_role(role)
    known = tx.agent.joins.get(link)
    if known is not None and known.state in ADMITTED:
        if tx.agent.groups[known.group].state != "left":
            raise evidence.AlreadyMember(group=known.name)
        known = None
    if known is not None and (known.conflict is not None or known.leave_event):
        known = None  # this key has already left, if it ever was a member
    if link in tx.agent.invitations:
        raise evidence.AlreadyMember(group=tx.group(tx.agent.invitations[link].group).name)
    assert tx.agent.reach is not None
    deadline = tx.now + JOIN_MS_MAX
    if known is not None and known.state in ENDS:
        state = JoinState.REQUESTING if known.relationship.established else JoinState.EXCHANGING
        # `unanswered`: the inviter may have dropped our claim meanwhile.
        fresh = {"begun_at": tx.now, "pending_tries": 0, "unanswered": UNANSWERED_MAX, "cancel_until": 0}
        join = known.moved_to(state, label=label, role=role, deadline=deadline, **fresh)
    elif known is not None:
        state = JoinState.REQUESTING if known.state is JoinState.PENDING else known.state
        join = known.moved_to(state, label=label, role=role, deadline=deadline, pending_tries=0)
    else:
        seed = tx.context.random(32)
        reach = mediator_mail.own_reach_as(tx, seed)
        if invitation.endpoint is None and reach.pair is None and not reach.routes and not tx.agent.web_uris:
            raise NoAnswerPossible
        identity = new_identity(tx.context.random, reach, invitation.envelope)
        join = Join(
            id=b64url(tx.context.random(9)),
            invitation=invitation,
            label=label,
            relationship=Relationship("", identity, "", new_id(tx.context.random), invitation.did, requester=True),
            seed=seed,
            me=did_key(ed25519_public(seed)),
            deadline=deadline,
            state=JoinState.EXCHANGING,
            role=role,
            begun_at=tx.now,
        )
    if private is not None:
        join = replace(join, voucher=vouchers.voucher_for(*private, invitation.did, join.me))
    others = {k: j for k, j in tx.agent.joins.items() if k != link}
    if len(others) >= JOINS_MAX:
        failed = (k for k, j in others.items() if j.state is JoinState.FAILED)
        over = next(failed, next((k for k, j in others.items() if j.state is JoinState.JOINED), None))
        if over is None:
            raise Overloaded(what="The number of joins under way", limit=JOINS_MAX)
        del others[over]
    tx.update_agent(joins={**others, link: join})
    resume_join(tx, link)
    return join.id


def resume_join(tx: Transaction, link: bytes) -> None:
    """Connect to the inviter and send the pending request; also after a restart during a join."""
    join = tx.agent.joins[link]
    if join.state in AWAITING_INVITER or join.state is JoinState.CANCELLING:
        invitation = join.invitation
        if invitation.endpoint is not None and (
            join.voucher is None or mediator_mail.is_near_enough(tx, join.seed, str(invitation.endpoint))
        ):
            tx.emit(Dial(link, invitation.endpoint, invitation.server_key, invitation.join_secret_key()))
        elif invitation.endpoint is None and tx.agent.reach is not None and tx.agent.reach.pair:
            key = member_connections.inviter_key(tx, join)
            if key is not None:
                tx.emit(AllowClient(link, key))
        if join.state is JoinState.CANCELLING:
            cancellation.resume_cancellation(tx, link)
            return
        if join.checking:
            tx.set_timer(TimerKind.CHECK_WELCOME, link.hex(), 1)
            return
        member_connections.notify_progress(tx, join, "dialling", f"Connecting to the inviter at {invitation.address}…")
        retry_join(tx, link)
    elif join.state is JoinState.CONNECTING:
        tx.set_timer(TimerKind.JOIN_PROGRESS, link.hex(), member_connections.CONNECT_MS)


def retry_join(tx: Transaction, link: bytes) -> None:
    """Send the pending request again, or fail after the deadline."""
    join = tx.agent.joins.get(link)
    if join is None or join.state not in AWAITING_INVITER:
        cancellation.resume_cancellation(tx, link)
        return
    if join.checking:
        return  # it needs nothing more from the inviter to succeed or fail
    if tx.now >= join.deadline:
        cancellation.begin_cancellation(tx, link)
    if tx.now >= join.deadline and join.state is JoinState.PENDING:
        fail_join(tx, link, "your request was not answered in time", "Ask the inviter, then try again.")
        return
    if tx.now >= join.deadline:
        fail_join(
            tx,
            link,
            "no answer from " + join.invitation.address,
            "The inviter must have zerochat open (or `zerochat agent` running) and be reachable from here."
            f" {_missing_mediator(tx, join)}The invitation is still valid: try again with it.",
        )
        return
    mailed = link not in tx.agent.links_up and join.invitation.mail
    if link in tx.agent.links_up or mailed:
        _send_requests(tx, link, join)
        join = member_connections.update_join(tx, link, unanswered=join.unanswered + 1)
    retry = (MAIL_RETRY if mailed else RETRY).delay_ms(join.unanswered)
    if join.state is JoinState.PENDING:
        retry = (PENDING_MAIL_RETRY if mailed else PENDING_RETRY).delay_ms(join.pending_tries - 1)
        member_connections.update_join(tx, link, pending_tries=join.pending_tries + 1)
    tx.set_timer(TimerKind.JOIN, link.hex(), min(retry, join.deadline - tx.now))


def _missing_mediator(tx: Transaction, join: Join) -> str:
    """What a joiner without a mediator should know about an inviter that has one."""
    if not join.invitation.mail or mediator_mail.own_reach_as(tx, join.seed).routes:
        return ""
    return (
        "If you are behind a router too, its answers cannot reach you: add a mediator (`zerochat route add LINK`), for"
        " example the inviter's. "
    )


def _send_requests(tx: Transaction, link: bytes, join: Join) -> None:
    relationship, packer = join.relationship, tx.packer(join.invitation.envelope)
    if join.state is JoinState.EXCHANGING or join.unanswered >= UNANSWERED_MAX:
        request = Message(
            type=exchange.REQUEST,
            id=relationship.thid,
            thid=relationship.thid,
            pthid=join.invitation.pthid,
            body={"goal_code": "org.zerochat.join", "member": join.me, "label": join.label},
        )
        send_to_inviter(tx, link, pack_first(relationship.mine, relationship.invited_by, request, packer, tx.context))
    if join.state is JoinState.EXCHANGING:
        return
    assert join.contact is not None
    contact, inviter = join.contact.did, relationship.member
    role, transport = join.role, transport_public(join.seed)
    body = {
        "group": join.group,
        "member": join.me,
        "label": join.label,
        "contact": contact,
        "role": role,
        "transport": transport,
        "possession": sign_possession(join.seed, join.group, join.me),
        "consent": sign_consent(join.seed, join.group, inviter, join.me, join.label, contact, role, transport),
        "proof": sign_proof(join.seed, join.group, relationship.mine.did, relationship.invited_by, inviter),
    }
    if join.voucher is not None:
        body["voucher"] = join.voucher.signature
    complete = exchange.complete(relationship.thid, join.invitation.pthid, tx.context.random)
    request = Message(type=JOIN_REQUEST, id=new_id(tx.context.random), body=body)
    for message in (complete, request):
        send_to_inviter(tx, link, pack(relationship, message, packer, tx.context.random))


def link_up(tx: Transaction, link: bytes) -> None:
    """The link to the inviter is up."""
    join = tx.agent.joins[link]
    if join.checking:
        return
    if join.state in AWAITING_INVITER:
        if join.state is JoinState.PENDING:
            member_connections.notify_progress(tx, join, "asking", PENDING_TEXT.format(name=join.name))
        else:
            member_connections.notify_progress(tx, join, "exchanging", "Connected to the inviter. Exchanging keys…")
        _send_requests(tx, link, join)
    else:
        cancellation.resume_cancellation(tx, link)


class _ResponseBody(msgspec.Struct, frozen=True):
    group: Id
    nonce: Annotated[str, msgspec.Meta(max_length=22)]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    member: Did
    label: Annotated[str, msgspec.Meta(max_length=256)]
    proof: Annotated[str, msgspec.Meta(max_length=86)]


def receive_from_inviter(tx: Transaction, link: bytes, envelope: bytes) -> None:
    """An envelope from the inviter. Raises RemoteError; RateLimited before anything is decrypted."""
    if not rate_limits.spend_inviter_envelope(tx, link, len(envelope)):
        raise rate_limits.RateLimited
    join = tx.agent.joins[link]
    if join.state is JoinState.CANCELLING:
        cancellation.receive_reply(tx, link, envelope)
        return
    if join.state not in AWAITING_INVITER:
        return
    packer = tx.packer(join.invitation.envelope)
    if join.relationship.established:
        try:
            relationship, message = unpack(join.relationship, envelope, packer)
        except Unauthentic:
            pass
        else:
            join = member_connections.update_join(tx, link, relationship=relationship, unanswered=0)
            if not relationship.established:
                fail_join(tx, link, "the inviter ended the exchange", "Ask for a fresh invitation.")
                return
            match message.type:
                case kind if kind == JOIN_PENDING:
                    _receive_pending(tx, link, read_body(message, PendingBody))
                case kind if kind == WELCOME:
                    evidence.receive_welcome(tx, link, read_body(message, WelcomeBody))
                case kind if kind == PROBLEM:
                    _receive_problem(tx, link, read_body(message, ProblemBody))
            return
    opened = open_first([join.relationship.mine], envelope, packer)
    asked = join.state is JoinState.EXCHANGING or join.unanswered >= UNANSWERED_MAX
    if opened.message.type == PROBLEM and asked:
        # The refusal comes from an unknown DID, but over a connection that proved the inviter's server key, and at
        # worst it ends this try.
        if opened.message.pthid == join.relationship.thid:
            _receive_problem(tx, link, read_body(opened.message, ProblemBody))
        return
    if opened.message.type != exchange.RESPONSE or opened.message.thid != join.relationship.thid:
        raise Refused(why="an answer to another request")
    if not join.relationship.established or not same_did(join.relationship.theirs, opened.sender):
        _receive_response(tx, link, opened)


def _receive_response(tx: Transaction, link: bytes, opened: OpenedMessage) -> None:
    join = tx.agent.joins[link]
    exchange.check_response(opened.message, recipient=join.invitation.did, sender=opened.sender)
    body = read_body(opened.message, _ResponseBody)
    nonce = b64url_bytes(body.nonce)
    if len(nonce) != NONCE_BYTES or bound_id(nonce, body.group) != join.invitation.id:
        fail_join(tx, link, evidence.WRONG_GROUP, "Ask for a fresh invitation.")
        return
    check_proof(body.proof, body.member, body.group, opened.sender, join.invitation.did, join.me)
    if fault_of(body.name):
        raise Malformed(why="response: a group name with characters that cannot be displayed")
    if join.relationship.established and body.member != join.relationship.member:
        raise Refused(why="a response by another member than before")
    name = body.name
    known = tx.agent.groups.get(body.group)
    others = [k for k, j in tx.agent.joins.items() if j.group == body.group and j.state in REQUESTED and k != link]
    twice = any(tx.agent.joins[k].state is JoinState.REQUESTING for k in others)
    if twice or (known is not None and known.state != "left"):  # a former member returns with a new key
        cancellation.begin_cancellation(tx, link)
        evidence.fail_already_member(tx, link, body.name)
        return
    for k in others:  # a decision may take arbitrarily long
        cancellation.begin_cancellation(tx, k)
        fail_join(tx, k, "you have accepted another invitation to the same group", "Wait for its answer.")
    assert tx.agent.reach is not None
    relationship = replace(join.relationship, member=body.member, theirs=opened.sender, acknowledged=True)
    contact = new_identity(tx.context.random, mediator_mail.own_reach_as(tx, join.seed), join.invitation.envelope)
    state = JoinState.PENDING if join.state is JoinState.PENDING else JoinState.REQUESTING
    deadline = max(join.deadline, tx.now + JOIN_MS_MAX)  # a busy inviter has answered late, and will again
    found = {"group": body.group, "name": name, "contact": contact, "deadline": deadline}
    join = member_connections.update_join(tx, link, state, relationship=relationship, unanswered=0, **found)
    member_connections.notify_progress(tx, join, "asking", f"Asking to join {name}…")
    _send_requests(tx, link, join)
    invitation = join.invitation
    if invitation.endpoint is not None and join.state is not JoinState.PENDING:
        # A member uses another client key, and so another connection. By the time it must be allowed the inviter has
        # our join request; if not, we dial again.
        ours = transport_secret(join.seed)
        tx.emit(Dial(member_connections.link_to_inviter(join), invitation.endpoint, invitation.server_key, ours))


def _receive_pending(tx: Transaction, link: bytes, body: PendingBody) -> None:
    """A member has to decide. Raises Refused."""
    join = tx.agent.joins[link]
    if join.state not in REQUESTED or body.group != join.group:
        raise Refused(why="join-pending for another group")
    if join.state is JoinState.REQUESTING:
        deadline = max(join.deadline, min(join.invitation.expires * 1000, tx.now + PENDING_MS_MAX))
        join = member_connections.update_join(tx, link, JoinState.PENDING, pending_tries=1, deadline=deadline)
        tx.emit(Disconnect(member_connections.link_to_inviter(join)))
        member_connections.notify_progress(tx, join, "asking", PENDING_TEXT.format(name=join.name))


def _receive_problem(tx: Transaction, link: bytes, body: ProblemBody) -> None:
    join = tx.agent.joins[link]
    if body.code == "e.p.req.role" and join.role == WRITER:
        join = replace(join, role=READER)
        tx.update_agent(joins={**tx.agent.joins, link: join})
        text = f"This invitation is read-only. Asking to join {join.name} as a reader…"
        member_connections.notify_progress(tx, join, "asking", text)
        _send_requests(tx, link, join)
        return
    why = PROBLEMS.get(body.code, "the inviter refused")
    remedy = "Ask for a fresh invitation."
    if body.code == "e.p.req.name-taken":
        remedy = "Join with the same invitation and another name (`zerochat join … --name OTHER`)."
    elif body.code in ("e.p.req.busy", "e.p.req.older"):
        remedy = "Try again later with the same invitation."
    fail_join(tx, link, why, remedy)
