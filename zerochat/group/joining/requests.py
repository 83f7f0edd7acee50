"""Join requests that wait for the user's decision: adding, answering, expiring; and revoking an invitation."""

from collections import Counter
from contextlib import suppress

from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import LocalError, NotAMember, RemoteError
from zerochat.group.effects import GroupChanged, Notify
from zerochat.group.inputs import AnswerJoinRequest
from zerochat.group.joining.admission import admit_joiner, problem_report, rejection_code, send_welcome
from zerochat.group.joining.invitations import ReplyPath, close_invitation, reply_path
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.lookup import find_group
from zerochat.group.membership import WRITER
from zerochat.group.notifications import JoinRequestAnswered, JoinRequested
from zerochat.group.state import Claim, JoinRequest
from zerochat.group.sync import stale_profile
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import (
    JOIN_PENDING,
    JoinRequestBody,
)

REQUESTS_MAX, REFUSED_MAX = 16, 48
"""Pending requests, and remembered refusals."""
REQUEST_MS_MAX = 24 * 3_600_000
CHANGE_INTERVAL_MS = 10_000
"""A waiting joiner may change the name or the role it asks for. The user is notified at most this often; until then it
is admitted as it was shown."""
PREFIX_MIN = 4
"""The minimum length of an abbreviated invitation name."""


class NoSuchRequest(LocalError):
    """{who} is not waiting to join {group}. `zerochat requests {group}` lists the pending requests."""


class AmbiguousRequest(LocalError):
    """Several requests to join {group} match {who}. Give the key; `zerochat requests {group}` lists them."""


class RequestChanged(LocalError):
    """{who} changed the request and now asks to join as {role} with the name {label}. Nothing was done: answer
    again."""


class NoSuchInvitation(LocalError):
    """No open invitation of yours to {group} is named {which}. `zerochat invite {group} --list` lists them."""


def add_request(
    tx: Transaction, link: bytes, claimant: str, message: Message, body: JoinRequestBody, handle: bytes | None
) -> str:
    """Queue a request for the user's decision. Returns a problem code if it cannot be queued, or an empty string."""
    open_ = tx.agent.invitations[link]
    group = tx.group(open_.group)
    known = group.joining.requests.get(body.member)
    if known is not None and known.refused:
        return "e.p.req.refused"
    if known is None and not _make_room(tx, group.id, link):
        return "e.p.req.busy"
    until = min(open_.invitation.expires * 1000, tx.now + REQUEST_MS_MAX)
    back = handle or b""
    request = JoinRequest(body.member, body.label, body.role, tx.now, link, claimant, until, body, message.id, back)
    news = known is None
    if known is not None:
        more = known.role != WRITER and body.role == WRITER  # to ask for more it must cancel its request first
        changed = (body.label, body.role) != (known.label, known.role) and not more
        news = changed and tx.now >= known.at + CHANGE_INTERVAL_MS
        if not news:
            request = replace(known, link=link, claimant=claimant, handle=back, thread=message.id)
    _put_request(tx, group.id, request)
    if news:
        tx.emit(Notify(JoinRequested(group.id, body.member, body.label, body.role)))
        tx.set_timer(TimerKind.JOIN_REQUESTS, group.id, 1)
    return ""


def _make_room(tx: Transaction, name: str, link: bytes) -> bool:
    """Whether one more request under this invitation fits. Where all places are taken, the invitation with the most
    requests gives up its latest (longest queue drop), so the holders of one cannot keep out those of another."""
    waiting = [one for one in tx.group(name).joining.requests.values() if not one.refused]
    if len(waiting) < REQUESTS_MAX:
        return True
    held = Counter(one.link for one in waiting)
    longest, most = held.most_common(1)[0]
    if most <= held[link] + 1:
        return False
    latest = max((one for one in waiting if one.link == longest), key=lambda one: (one.at, one.member))
    _reject(tx, name, latest, "e.p.req.busy")
    tx.emit(Notify(JoinRequestAnswered(name, latest.member, latest.label, admitted=False)))
    return True


def pending_reply(tx: Transaction, relationship: Relationship, name: str, member: str) -> bytes:
    body = {"group": name, "until": tx.group(name).joining.requests[member].until}
    message = Message(type=JOIN_PENDING, id=new_id(tx.context.random), body=body)
    return pack(relationship, message, tx.packer_of(name), tx.context.random)


def _put_request(tx: Transaction, name: str, request: JoinRequest) -> None:
    tx.update_joining(name, requests={**tx.group(name).joining.requests, request.member: request})


def drop_request(tx: Transaction, name: str, member: str) -> None:
    tx.update_joining(
        name, requests={did: one for did, one in tx.group(name).joining.requests.items() if did != member}
    )


def answer_request(tx: Transaction, command: AnswerJoinRequest) -> GroupChanged:
    """The user admits or refuses a joiner, named by label or key. Raises RequestChanged if the request differs from the
    one shown, and Refused while we may not admit members (`stale_profile.check`)."""
    group, who, admit = find_group(tx.agent, command.group), command.joiner, command.admit
    if group.state != "active":
        raise NotAMember(group=group.name)
    if admit:
        stale_profile.check_not_suspended(group)
    waiting = [one for one in group.joining.requests.values() if not one.refused and _claim_of(tx, one) is not None]
    found = [one for one in waiting if one.member == who] or [
        one for one in waiting if one.label.casefold() == who.casefold()
    ]
    if not found:
        raise NoSuchRequest(who=who, group=group.name)
    if len(found) > 1:
        raise AmbiguousRequest(who=who, group=group.name)
    (request,) = found
    if admit and (command.label or request.label, command.role or request.role) != (request.label, request.role):
        raise RequestChanged(who=command.label or who, label=request.label, role=request.role)
    open_ = tx.agent.invitations[request.link]
    code = rejection_code(tx, open_, group, request.asked) if admit else "e.p.req.refused"
    if code:
        _reject(tx, group.id, request, code)
        if not admit:
            _remember_refused(tx, group.id, replace(request, refused=True))
    else:
        drop_request(tx, group.id, request.member)
        try:
            with tx.savepoint():
                admit_joiner(tx, request.link, request.claimant, request.asked)
        except RemoteError:  # for instance two requests with one key, or another member admitted it
            tx.emit(Notify(JoinRequestAnswered(group.id, request.member, request.label, admitted=False)))
            return GroupChanged(group.id)
        with suppress(RemoteError):  # it retries, and gets its welcome then
            send_welcome(tx, request.link, request.claimant, request.thread, _reply_path_to(tx, request))
    tx.emit(Notify(JoinRequestAnswered(group.id, request.member, request.label, not code)))
    return GroupChanged(group.id)


def close_requests(tx: Transaction, name: str) -> None:
    """We are no longer in the group: reject all pending requests."""
    for request in list(tx.group(name).joining.requests.values()):
        if request.refused:
            drop_request(tx, name, request.member)
        else:
            _reject(tx, name, request, "e.p.req.closed")
            tx.emit(Notify(JoinRequestAnswered(name, request.member, request.label, admitted=False)))


def reject_requests_of(tx: Transaction, name: str, link: bytes) -> None:
    """An invitation was revoked: reject its pending requests, also those whose claim was dropped meanwhile."""
    for request in list(tx.group(name).joining.requests.values()):
        if request.link == link and not request.refused:
            _reject(tx, name, request, "e.p.req.refused")
            _remember_refused(tx, name, replace(request, refused=True))
            tx.emit(Notify(JoinRequestAnswered(name, request.member, request.label, admitted=False)))


def _reject(tx: Transaction, name: str, request: JoinRequest, code: str) -> None:
    drop_request(tx, name, request.member)
    if (claim := _claim_of(tx, request)) is not None:
        no = problem_report(tx, tx.agent.invitations[request.link], claim.relationship, code, request.thread)
        with suppress(RemoteError):
            _reply_path_to(tx, request)(claim.relationship.theirs, no)


def _reply_path_to(tx: Transaction, request: JoinRequest) -> ReplyPath:
    return reply_path(tx, request.link, request.handle or None, mailed=not request.handle)


def _claim_of(tx: Transaction, request: JoinRequest) -> Claim | None:
    open_ = tx.agent.invitations.get(request.link)
    return open_.claims.get(request.claimant) if open_ is not None else None


def _remember_refused(tx: Transaction, name: str, request: JoinRequest) -> None:
    refused = sorted((one.at, did) for did, one in tx.group(name).joining.requests.items() if one.refused)
    if len(refused) >= REFUSED_MAX:
        drop_request(tx, name, refused[0][1])
    _put_request(tx, name, request)


def expire_requests(tx: Transaction, name: str) -> None:
    """Drop requests that were not answered in time, and refusals that need not be remembered any more."""
    group = tx.group(name)
    for did, request in group.joining.requests.items():
        if request.until <= tx.now or request.link not in tx.agent.invitations:
            drop_request(tx, name, did)
            if not request.refused:
                tx.emit(Notify(JoinRequestAnswered(name, did, request.label, False)))
    left = [one.until - tx.now for one in tx.group(name).joining.requests.values()]
    if left:
        tx.set_timer(TimerKind.JOIN_REQUESTS, name, min(left))


# --- revocation -----------------------------------------------------------------------------------------------------


def invitation_name(link: bytes) -> str:
    """The local name of an open invitation, which does not reveal its secret."""
    return link.hex()[:16]


def revoke_invitation(tx: Transaction, group_ref: str, which: str) -> GroupChanged:
    """Close the invitation to a group with this name. Raises NoSuchInvitation."""
    group = find_group(tx.agent, group_ref)
    ours = [link for link, open_ in tx.agent.invitations.items() if open_.group == group.id]
    found = [link for link in ours if len(which) >= PREFIX_MIN and invitation_name(link).startswith(which.lower())]
    if len(found) != 1:
        raise NoSuchInvitation(group=group.name, which=ascii(which[:32]))
    (link,) = found
    reject_requests_of(tx, group.id, link)
    close_invitation(tx, link)
    return GroupChanged(group.id)
