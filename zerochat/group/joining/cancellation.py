"""Giving a join up, at the joiner's side: whoever has invited us hears of it, so that nobody waits for us, and we are
nobody's member that never comes.

joiner                                inviter (admission.py)
  | -- problem-report: withdrawn ----> |
  | <- problem-report: withdrawn ----- |  not let in: the request is forgotten, and the use of the invitation given back
  | <- welcome ----------------------- |  let in already: only the joiner itself can say that it leaves
  | -- events: leave ----------------> |

It is repeated for a short while, until there is an answer. Where nobody can be reached in that time, whoever has let us
in sees somebody who never arrives (`seating.never_arrived`).
"""

from collections.abc import Iterable

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import LocalError, RemoteError, Unauthentic
from zerochat.group.effects import Dispatch
from zerochat.group.event_log.event import ADD, LEAVE, Event, load_event
from zerochat.group.joining import member_connections, welcome
from zerochat.group.links.relationship import pack, unpack
from zerochat.group.membership import add_of, leave
from zerochat.group.state import Join
from zerochat.group.transaction import Turn
from zerochat.group.wire.envelope import open_first, pack_to
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS, PROBLEM, PROBLEMS, WELCOME, WelcomeBody, read_body

PARTING_MS, RETRY_MS, MAIL_RETRY_MS = 15_000, 1_500, 5_000
"""How long it is told, and how often; a mediator would keep every copy."""
WITHDRAWN = "e.p.req.withdrawn"
PREFIX_MIN = 4
"""The letters of a join's id that may stand for all of it."""


class NoJoin(LocalError):
    """You are not joining any group{like}. `zerochat status` lists what is under way."""


class SeveralJoins(LocalError):
    """You are joining several groups. Say which one, by its name or the join's id: `zerochat status` lists them."""


class JoinCancelled(LocalError):
    """You have given up joining {what}."""


# --- giving up ------------------------------------------------------------------------------------------------------


def cancel(turn: Turn, wanted: str) -> str:
    """Somebody at this machine has thought better of it; `wanted`: the join's id or its beginning, or the group's name;
    empty: the only one that there is. Returns the id."""
    link, join = _find(turn, wanted)
    error = JoinCancelled(what=join.name or "with that invitation")
    if join.phase == "done":
        leave.leave(turn, turn.group(join.group))
    else:
        begin(turn, link)
    member_connections.end(turn, link, "failed")
    member_connections.tell(turn, join, "failed", error.sentence(), error=error.code)
    return join.id


def _find(turn: Turn, wanted: str) -> tuple[bytes, Join]:
    live = [(k, one) for k, one in turn.agent.joins.items() if one.phase != "failed" and not one.seated]
    found = [(k, one) for k, one in live if wanted in ("", one.id, one.name, one.group)]
    if not found and len(wanted) >= PREFIX_MIN:
        found = [(k, one) for k, one in live if one.id.startswith(wanted)]
    if not found:
        raise NoJoin(like=f" called {wanted}" if wanted else "")
    if len(found) > 1:
        raise SeveralJoins
    return found[0]


def begin(turn: Turn, link: bytes, known: Iterable[Event] = ()) -> None:
    """A join is about to fail: begin to tell whoever has invited us. `known`: what it has given us."""
    join = turn.agent.joins[link]
    if join.phase == "exchanging" and link not in turn.agent.up and not join.invitation.mail:
        return  # it has not heard of us
    member_connections.change(turn, link, parting=turn.now + PARTING_MS)
    _take_leave(turn, link, known)
    again(turn, link)


def again(turn: Turn, link: bytes) -> None:
    """Say (once more) that we have given up, or let it be."""
    join = turn.agent.joins.get(link)
    if join is None or not join.parting:
        return
    if turn.now >= join.parting:
        _over(turn, link)
        return
    _say(turn, link)
    mailed = link not in turn.agent.up and join.invitation.mail
    turn.timer("join", link.hex(), MAIL_RETRY_MS if mailed else RETRY_MS)


def _over(turn: Turn, link: bytes) -> None:
    member_connections.change(turn, link, parting=0)
    member_connections.hang_up(turn, link)


def _say(turn: Turn, link: bytes) -> None:
    join = turn.agent.joins[link]
    relationship, packer = join.relationship, turn.packer(join.invitation.envelope)
    random = turn.moment.random
    body = {"code": WITHDRAWN, "comment": PROBLEMS[WITHDRAWN]}
    message = Message(type=PROBLEM, id=new_id(random), pthid=relationship.thid, body=body)
    if not relationship.established:
        member_connections.hand_over(
            turn, link, pack_to(relationship.mine, relationship.asked, message, packer, turn.moment)
        )
        return
    if join.farewell:
        runs = write_runs([load_event(join.farewell)])
        message = Message(type=EVENTS, id=new_id(random), body={"view": "", "have": [], "runs": runs})
        if (member := member_connections.link_to_inviter(join)) in turn.agent.up:  # the invitation may be closed by now
            turn.say(Dispatch(member, pack(relationship, message, packer, random)))
    member_connections.hand_over(turn, link, pack(relationship, message, packer, random))


# --- hearing --------------------------------------------------------------------------------------------------------


def hear(turn: Turn, link: bytes, envelope: bytes) -> None:
    """The inviter answers somebody who has given up. Raises RemoteError."""
    join = turn.agent.joins[link]
    packer = turn.packer(join.invitation.envelope)
    if join.relationship.established:
        try:
            relationship, message = unpack(join.relationship, envelope, packer)
        except Unauthentic:
            pass
        else:
            member_connections.change(turn, link, relationship=relationship)
            if not relationship.established or message.type == PROBLEM:
                _over(turn, link)
            elif message.type == WELCOME:
                body = read_body(message, WelcomeBody)
                if body.group == join.group:
                    _take_leave(turn, link, welcome.told(body)[0])
                    again(turn, link)
            return
    message = open_first([join.relationship.mine], envelope, packer).message
    if message.type == PROBLEM and message.pthid == join.relationship.thid:
        _over(turn, link)


def _take_leave(turn: Turn, link: bytes, known: Iterable[Event]) -> None:
    """Sign that we leave, if what we were given shows that we were let in: once, as a second leave would be a second
    history."""
    join = turn.agent.joins[link]
    inviter = join.relationship.member
    for event in known:
        if join.farewell or event.type != ADD or event.author != inviter or event.group_id != join.group:
            continue
        try:
            if add_of(event).member != join.me:
                continue
            event.check_signature()
        except RemoteError:
            continue
        time = max(1, turn.now)
        gone = Event(join.group, LEAVE, join.me, 1, "", (event.id,), (), max(event.lamport + 1, time), time, {})
        join = member_connections.change(turn, link, farewell=gone.signed(join.seed).record)
