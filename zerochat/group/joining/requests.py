"""Who has to wait until a person says whether it comes in: being asked, answering, and what is remembered of it."""

from contextlib import suppress

from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import LocalError, NotAMember, RemoteError
from zerochat.group.effects import Changed, Notify
from zerochat.group.inputs import AnswerRequest
from zerochat.group.joining.admission import add, give_welcome, problem, why_not_in
from zerochat.group.joining.invitations import Answer, way_back
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.lookup import find_group
from zerochat.group.membership import WRITER
from zerochat.group.notifications import JoinAnswered, JoinAsked
from zerochat.group.state import Claim, Request
from zerochat.group.sync import stale_profile
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import (
    JOIN_PENDING,
    JoinRequestBody,
)

REQUESTS_MAX, REFUSED_MAX = 16, 48
"""Requests that wait for an answer, and those whose answer is remembered because it was no."""
REQUEST_MS_MAX = 24 * 3_600_000
ANOTHER_MS = 10_000
"""Whoever waits may ask for another name than before, or for less; the person is told so no more often than this, and
until then it is let in as it was shown."""


class NoSuchRequest(LocalError):
    """Nobody called {who} waits to be let into {group}. `zerochat requests {group}` lists who does."""


class SeveralRequests(LocalError):
    """More than one waits to be let into {group} as {who}. Say which one by its key: `zerochat requests {group}`."""


class RequestChanged(LocalError):
    """{who} has changed its mind meanwhile, and asks to come in as {role}, under the name {label}. Nobody was let in:
    answer once more."""


def ask(turn: Turn, link: bytes, claimant: str, message: Message, body: JoinRequestBody, handle: bytes | None) -> str:
    """Have a person decide. Returns a problem code where nobody is asked, or nothing."""
    open_ = turn.agent.invitations[link]
    group = turn.group(open_.group)
    known = group.requests.get(body.member)
    if known is not None and known.refused:
        return "e.p.req.refused"
    if known is None and sum(not one.refused for one in group.requests.values()) >= REQUESTS_MAX:
        return "e.p.req.busy"
    until = min(open_.invitation.expires * 1000, turn.now + REQUEST_MS_MAX)
    back = handle or b""
    request = Request(body.member, body.label, body.role, turn.now, link, claimant, until, body, message.id, back)
    news = known is None
    if known is not None:
        more = known.role != WRITER and body.role == WRITER  # for that it has to take back what it has asked
        changed = (body.label, body.role) != (known.label, known.role) and not more
        news = changed and turn.now >= known.at + ANOTHER_MS
        if not news:
            request = replace(known, link=link, claimant=claimant, handle=back, thread=message.id)
    _put(turn, group.id, request)
    if news:
        turn.say(Notify(JoinAsked(group.id, body.member, body.label, body.role)))
        turn.timer("requests", group.id, 1)
    return ""


def pending(turn: Turn, relationship: Relationship, name: str, member: str) -> bytes:
    body = {"group": name, "until": turn.group(name).requests[member].until}
    message = Message(type=JOIN_PENDING, id=new_id(turn.moment.random), body=body)
    return pack(relationship, message, turn.packer_of(name), turn.moment.random)


def _put(turn: Turn, name: str, request: Request) -> None:
    turn.edit(name, requests={**turn.group(name).requests, request.member: request})


def drop(turn: Turn, name: str, member: str) -> None:
    turn.edit(name, requests={did: one for did, one in turn.group(name).requests.items() if did != member})


def answer(turn: Turn, command: AnswerRequest) -> Changed:
    """Somebody at this machine says whether whoever asks, by its name or key, comes in. Raises RequestChanged where it
    asks for something else than the person was shown, and Refused where we must let nobody in (`regain.check`)."""
    group, who, admit = find_group(turn.agent, command.group), command.who, command.admit
    if group.state != "active":
        raise NotAMember(group=group.name)
    if admit:
        stale_profile.check(group)
    waiting = [one for one in group.requests.values() if not one.refused and _claim_of(turn, one) is not None]
    found = [one for one in waiting if one.member == who] or [
        one for one in waiting if one.label.casefold() == who.casefold()
    ]
    if not found:
        raise NoSuchRequest(who=who, group=group.name)
    if len(found) > 1:
        raise SeveralRequests(who=who, group=group.name)
    (request,) = found
    if admit and (command.label or request.label, command.role or request.role) != (request.label, request.role):
        raise RequestChanged(who=command.label or who, label=request.label, role=request.role)
    open_ = turn.agent.invitations[request.link]
    code = why_not_in(turn, open_, group, request.asked) if admit else "e.p.req.refused"
    if code:
        _turn_down(turn, group.id, request, code)
        if not admit:
            _remember_refused(turn, group.id, replace(request, refused=True))
    else:
        drop(turn, group.id, request.member)
        kept = turn.agent, len(turn.effects)
        try:
            add(turn, request.link, request.claimant, request.asked)
        except RemoteError:  # it has asked twice with one key, say, or somebody else has let it in
            turn.agent = kept[0]
            del turn.effects[kept[1] :]
            turn.say(Notify(JoinAnswered(group.id, request.member, request.label, admitted=False)))
            return Changed(group.id)
        with suppress(RemoteError):  # it asks again, and has its welcome then
            give_welcome(turn, request.link, request.claimant, request.thread, _way_to(turn, request))
    turn.say(Notify(JoinAnswered(group.id, request.member, request.label, not code)))
    return Changed(group.id)


def close(turn: Turn, name: str) -> None:
    """We are no longer in the group: whoever waits for our answer would wait in vain, and is told so."""
    for request in list(turn.group(name).requests.values()):
        if request.refused:
            drop(turn, name, request.member)
        else:
            _turn_down(turn, name, request, "e.p.req.closed")
            turn.say(Notify(JoinAnswered(name, request.member, request.label, admitted=False)))


def revoke(turn: Turn, name: str, link: bytes) -> None:
    """An invitation is taken back: whoever waits because of it is told no, also who has lost its claim meanwhile."""
    for request in list(turn.group(name).requests.values()):
        if request.link == link and not request.refused:
            _turn_down(turn, name, request, "e.p.req.refused")
            _remember_refused(turn, name, replace(request, refused=True))
            turn.say(Notify(JoinAnswered(name, request.member, request.label, admitted=False)))


def _turn_down(turn: Turn, name: str, request: Request, code: str) -> None:
    drop(turn, name, request.member)
    if (claim := _claim_of(turn, request)) is not None:
        no = problem(turn, turn.agent.invitations[request.link], claim.relationship, code, request.thread)
        with suppress(RemoteError):
            _way_to(turn, request)(claim.relationship.theirs, no)


def _way_to(turn: Turn, request: Request) -> Answer:
    return way_back(turn, request.link, request.handle or None, mailed=not request.handle)


def _claim_of(turn: Turn, request: Request) -> Claim | None:
    open_ = turn.agent.invitations.get(request.link)
    return open_.claims.get(request.claimant) if open_ is not None else None


def _remember_refused(turn: Turn, name: str, request: Request) -> None:
    refused = sorted((one.at, did) for did, one in turn.group(name).requests.items() if one.refused)
    if len(refused) >= REFUSED_MAX:
        drop(turn, name, refused[0][1])
    _put(turn, name, request)


def expire(turn: Turn, name: str) -> None:
    """Nobody has answered in time, or what was answered need not be known any more."""
    group = turn.group(name)
    for did, request in group.requests.items():
        if request.until <= turn.now or request.link not in turn.agent.invitations:
            drop(turn, name, did)
            if not request.refused:
                turn.say(Notify(JoinAnswered(name, did, request.label, False)))
    left = [one.until - turn.now for one in turn.group(name).requests.values()]
    if left:
        turn.timer("requests", name, min(left))
