"""Join cancellation on the joiner's side: the inviter is informed, and a joiner that was already admitted leaves.

    joiner                                inviter (inviter.py)
      | -- problem-report: withdrawn ----> |
      | <- problem-report: withdrawn ----- |  not admitted: request deleted, use of the invitation returned
      | <- welcome ----------------------- |  already admitted: only the joiner itself can sign its leave event
      | -- events: leave ----------------> |

The withdrawal is retransmitted for a short while, until it is answered. If the inviter cannot be reached in that time,
the joiner may remain a member that never connects (`member_connections.never_connected`).
"""

from collections.abc import Iterable

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import LocalError, RemoteError, Unauthentic
from zerochat.group.effects import SendEnvelope
from zerochat.group.event_log.event import ADD, LEAVE, Event, load_event
from zerochat.group.joining import member_connections, welcome
from zerochat.group.links.relationship import pack, unpack
from zerochat.group.membership import add_of, leave
from zerochat.group.state import Join, JoinState
from zerochat.group.state.joins import AWAITING_INVITER
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.envelope import open_first, pack_first
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS, PROBLEM, PROBLEMS, WELCOME, WelcomeBody, read_body

CANCEL_MS, RETRY_MS, MAIL_RETRY_MS = 15_000, 1_500, 5_000
"""How long a withdrawal is retransmitted, and the intervals over a link and over a mediator, which keeps every copy."""
WITHDRAWN_CODE = "e.p.req.withdrawn"
LIVE = AWAITING_INVITER | {JoinState.CONNECTING}
PREFIX_MIN = 4
"""The minimum length of an abbreviated join id."""


class NoSuchJoin(LocalError):
    """You are not joining any group{like}. `zerochat status` lists the joins in progress."""


class AmbiguousJoin(LocalError):
    """Several joins are in progress. Give the group's name or the join's id; `zerochat status` lists them."""


class JoinCancelled(LocalError):
    """You cancelled joining {what}."""


# --- sending --------------------------------------------------------------------------------------------------------


def cancel(tx: Transaction, join_ref: str) -> str:
    """The user cancels a join. `join_ref`: the join's id, its beginning, or the group's name; empty: the only join.
    Returns the id."""
    link, join = _find_join(tx, join_ref)
    error = JoinCancelled(what=join.name or "with this invitation")
    if join.state is JoinState.CONNECTING:
        leave.leave(tx, tx.group(join.group))
    else:
        begin_cancellation(tx, link)
    member_connections.end_exchange(tx, link, JoinState.FAILED)
    member_connections.notify_progress(tx, join, "failed", error.sentence(), error=error.code)
    return join.id


def _find_join(tx: Transaction, join_ref: str) -> tuple[bytes, Join]:
    live = [(k, one) for k, one in tx.agent.joins.items() if one.state in LIVE]
    found = [(k, one) for k, one in live if join_ref in ("", one.id, one.name, one.group)]
    if not found and len(join_ref) >= PREFIX_MIN:
        found = [(k, one) for k, one in live if one.id.startswith(join_ref)]
    if not found:
        raise NoSuchJoin(like=f" called {join_ref}" if join_ref else "")
    if len(found) > 1:
        raise AmbiguousJoin
    return found[0]


def begin_cancellation(tx: Transaction, link: bytes, known: Iterable[Event] = ()) -> None:
    """A join is about to fail: begin to inform the inviter. `known`: events of the welcome so far."""
    join = tx.agent.joins[link]
    if join.state is JoinState.EXCHANGING and link not in tx.agent.links_up and not join.invitation.mail:
        return  # the inviter has received nothing from us
    member_connections.update_join(tx, link, JoinState.CANCELLING, cancel_until=tx.now + CANCEL_MS)
    _sign_leave(tx, link, known)
    resume_cancellation(tx, link)


def resume_cancellation(tx: Transaction, link: bytes) -> None:
    """Retransmit the withdrawal, or stop after its deadline."""
    join = tx.agent.joins.get(link)
    if join is None or join.state is not JoinState.CANCELLING:
        return
    if tx.now >= join.cancel_until:
        _finish(tx, link)
        return
    _send_withdrawal(tx, link)
    mailed = link not in tx.agent.links_up and join.invitation.mail
    tx.set_timer(TimerKind.JOIN, link.hex(), MAIL_RETRY_MS if mailed else RETRY_MS)


def _finish(tx: Transaction, link: bytes) -> None:
    member_connections.update_join(tx, link, JoinState.FAILED, cancel_until=0)
    member_connections.disconnect(tx, link)


def _send_withdrawal(tx: Transaction, link: bytes) -> None:
    join = tx.agent.joins[link]
    relationship, packer = join.relationship, tx.packer(join.invitation.envelope)
    random = tx.context.random
    body = {"code": WITHDRAWN_CODE, "comment": PROBLEMS[WITHDRAWN_CODE]}
    message = Message(type=PROBLEM, id=new_id(random), pthid=relationship.thid, body=body)
    if not relationship.established:
        member_connections.send_to_inviter(
            tx, link, pack_first(relationship.mine, relationship.invited_by, message, packer, tx.context)
        )
        return
    if join.leave_event:
        runs = write_runs([load_event(join.leave_event)])
        message = Message(type=EVENTS, id=new_id(random), body={"view": "", "have": [], "runs": runs})
        # the invitation may be closed by now
        if (member := member_connections.link_to_inviter(join)) in tx.agent.links_up:
            tx.emit(SendEnvelope(member, pack(relationship, message, packer, random)))
    member_connections.send_to_inviter(tx, link, pack(relationship, message, packer, random))


# --- receiving ------------------------------------------------------------------------------------------------------


def receive_reply(tx: Transaction, link: bytes, envelope: bytes) -> None:
    """The inviter's answer to a joiner that has withdrawn. Raises RemoteError."""
    join = tx.agent.joins[link]
    packer = tx.packer(join.invitation.envelope)
    if join.relationship.established:
        try:
            relationship, message = unpack(join.relationship, envelope, packer)
        except Unauthentic:
            pass
        else:
            member_connections.update_join(tx, link, relationship=relationship)
            if not relationship.established or message.type == PROBLEM:
                _finish(tx, link)
            elif message.type == WELCOME:
                body = read_body(message, WelcomeBody)
                if body.group == join.group:
                    _sign_leave(tx, link, welcome.read_charged(tx, link, body)[0])
                    resume_cancellation(tx, link)
            return
    message = open_first([join.relationship.mine], envelope, packer).message
    if message.type == PROBLEM and message.pthid == join.relationship.thid:
        _finish(tx, link)


def _sign_leave(tx: Transaction, link: bytes, known: Iterable[Event]) -> None:
    """Sign our leave event if the welcome shows that we were admitted; once, as a second leave event would be a second
    history."""
    join = tx.agent.joins[link]
    inviter = join.relationship.member
    for event in known:
        if join.leave_event or event.type != ADD or event.author != inviter or event.group_id != join.group:
            continue
        try:
            if add_of(event).member != join.me:
                continue
            event.check_signature()
        except RemoteError:
            continue
        time = max(1, tx.now)
        gone = Event(join.group, LEAVE, join.me, 1, "", (event.id,), (), max(event.lamport + 1, time), time, {})
        join = member_connections.update_join(tx, link, leave_event=gone.signed(join.seed).record)
