"""Joining: from an invitation that somebody was handed to a seat in the group. The inviter's side is `invite.py`.

    exchanging --response--> asking --welcome--> done: the rest happens in peers.py and sync.py
        |  no answer in time, or a problem report: failed; the same invitation can be tried again, with the same keys

A lost message is repeated by the joiner, so the inviter needs no timer.
"""

from dataclasses import replace
from typing import Annotated

import msgspec

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public, ed25519_to_x25519_public
from zerochat.didcomm.invitation import Invitation
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols import exchange
from zerochat.errors import LocalError, Malformed, Overloaded, Refused, Unauthentic
from zerochat.group import clock, log, mail, peers
from zerochat.group.contact import check_proof, knock_link, new_identity, sign_consent, sign_proof, transport_key
from zerochat.group.effects import Admit, Dial, Dispatch, Hangup, Notify, Revoke
from zerochat.group.envelope import Opened, open_first, pack_to
from zerochat.group.event import Did, Id, load_event, parse_event
from zerochat.group.membership import CONTROL_MAX, check_all, genesis_of, heads_of, resolve_view
from zerochat.group.notices import JoinPhase, JoinProgress, ViewChanged
from zerochat.group.relationship import Relationship, pack, unpack
from zerochat.group.state import Chain, Group, Join, JoinState, Profile
from zerochat.group.turn import Turn
from zerochat.group.wire import JOIN_REQUEST, PROBLEM, PROBLEMS, WELCOME, ProblemBody, WelcomeBody, read_body
from zerochat.names import fault_of

JOIN_MS_MAX = 60_000
"""After this long without a seat the join has failed: a person is waiting."""
RETRY_MS, MAIL_RETRY_MS = 1_500, 5_000
JOINS_MAX = 16
EVIDENCE_BYTES_MAX = 2 * CONTROL_MAX * 1024
"""Every membership event that a group can have, at the size that they usually have."""
SEATED_MS = 8_000
"""How long a newcomer waits for the members before its join counts as done with those who are there."""


class JoinFailed(LocalError):
    """You have not joined: {why}. {remedy}"""


class AlreadyMember(LocalError):
    """You are in {group} already, so there is nothing to join."""


def accept(turn: Turn, invitation: Invitation, label: str) -> str:
    """Begin to join (or, after a failure, try again with the same keys). Returns the join's id."""
    link = knock_link(invitation.id)
    known = turn.agent.joins.get(link)
    if known is not None and known.phase == "done":
        if turn.agent.groups[known.group].state != "left":
            raise AlreadyMember(group=known.name)
        known = None
    if link in turn.agent.invitations:
        raise AlreadyMember(group=turn.group(turn.agent.invitations[link].group).name)
    assert turn.agent.reach is not None
    deadline = turn.now + JOIN_MS_MAX
    if known is not None:
        phase: JoinState = "asking" if known.relationship.established else "exchanging"
        join = replace(known, label=label, deadline=deadline, phase=phase)
    else:
        seed = turn.moment.random(32)
        identity = new_identity(turn.moment.random, mail.own_reach(turn, seed), invitation.envelope)
        join = Join(
            id=b64url(turn.moment.random(9)),
            invitation=invitation,
            label=label,
            relationship=Relationship("", identity, "", new_id(turn.moment.random), invitation.did, requester=True),
            seed=seed,
            me=did_key(ed25519_public(seed)),
            deadline=deadline,
            phase="exchanging",
        )
    others = {k: j for k, j in turn.agent.joins.items() if k != link}
    if len(others) >= JOINS_MAX:
        over = next((k for k, j in others.items() if j.phase == "failed" or (j.phase == "done" and j.seated)), None)
        if over is None:
            raise Overloaded(what="The number of joins under way", limit=JOINS_MAX)
        del others[over]
    turn.change(joins={**others, link: join})
    resume(turn, link)
    return join.id


def resume(turn: Turn, link: bytes) -> None:
    """Dial the inviter and knock; also after a restart in the middle of a join."""
    join = turn.agent.joins[link]
    if join.phase in ("exchanging", "asking"):
        invitation = join.invitation
        if invitation.endpoint is not None:
            turn.say(Dial(link, invitation.endpoint, invitation.server_key, invitation.knock_secret()))
        elif turn.agent.reach is not None and turn.agent.reach.pair and (key := _inviter_key(turn, join)) is not None:
            turn.say(Admit(link, key))
        _tell(turn, join, "dialling", f"Looking for whoever invited you, at {invitation.where}…")
        knock(turn, link)
    elif join.phase == "done" and not join.seated:
        turn.timer("seated", link.hex(), SEATED_MS)


def _inviter_key(turn: Turn, join: Join) -> bytes | None:
    """The CURVE key with which an inviter who only dials out can call us back: that of the invitation.

    None where it may not be let in: who made the invitation need not have the key, which could be a member's.
    """
    key = ed25519_to_x25519_public(join.invitation.key)
    members = (member for group in turn.agent.groups.values() for member in group.peers)
    if peers.opens_an_invitation(turn, key) or any(key == transport_key(member) for member in members):
        return None
    return key


def knock(turn: Turn, link: bytes) -> None:
    """Say (again) what the join waits for, or give up when its time is over."""
    join = turn.agent.joins.get(link)
    if join is None or join.phase not in ("exchanging", "asking"):
        return
    if turn.now >= join.deadline:
        _fail(
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
    retry = MAIL_RETRY_MS if mailed else RETRY_MS
    turn.timer("join", link.hex(), min(retry, join.deadline - turn.now))


def _send(turn: Turn, link: bytes, join: Join) -> None:
    relationship, packer = join.relationship, turn.packer(join.invitation.envelope)
    if join.phase == "exchanging":
        request = Message(
            type=exchange.REQUEST,
            id=relationship.thid,
            thid=relationship.thid,
            pthid=join.invitation.pthid,
            body={"goal_code": "org.zerochat.join", "member": join.me, "label": join.label},
        )
        _hand_over(turn, link, pack_to(relationship.mine, relationship.asked, request, packer, turn.moment))
        return
    assert join.contact is not None
    contact, inviter = join.contact.did, relationship.member
    body = {
        "group": join.group,
        "member": join.me,
        "label": join.label,
        "contact": contact,
        "consent": sign_consent(join.seed, join.group, inviter, join.me, join.label, contact),
        "proof": sign_proof(join.seed, join.group, relationship.mine.did, relationship.asked, inviter),
    }
    complete = exchange.complete(relationship.thid, join.invitation.pthid, turn.moment.random)
    request = Message(type=JOIN_REQUEST, id=new_id(turn.moment.random), body=body)
    for message in (complete, request):
        _hand_over(turn, link, pack(relationship, message, packer, turn.moment.random))


def _hand_over(turn: Turn, link: bytes, envelope: bytes) -> None:
    """Send an envelope to the inviter, over its mediator if there is no link."""
    join = turn.agent.joins[link]
    ways = join.invitation.mail
    if link in turn.agent.up or not ways:
        turn.say(Dispatch(link, envelope))
    else:
        # A person is waiting, so what has not worked is tried again all the same.
        way = next((way for way in ways if mail.works(turn, way.uri)), ways[0])
        mail.post(turn, way, join.relationship.theirs or join.invitation.did, envelope)


def link_up(turn: Turn, link: bytes) -> None:
    """The inviter can be reached."""
    join = turn.agent.joins[link]
    if join.phase in ("exchanging", "asking"):
        _tell(turn, join, "exchanging", "Found. Exchanging keys…")
        _send(turn, link, join)


class _ResponseBody(msgspec.Struct, frozen=True):
    group: Id
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    member: Did
    label: Annotated[str, msgspec.Meta(max_length=256)]
    proof: Annotated[str, msgspec.Meta(max_length=86)]


def hear_answer(turn: Turn, link: bytes, envelope: bytes) -> None:
    """The inviter says something to us as a joiner. Raises RemoteError."""
    join = turn.agent.joins[link]
    if join.phase not in ("exchanging", "asking"):
        return
    packer = turn.packer(join.invitation.envelope)
    if join.relationship.established:
        try:
            relationship, message = unpack(join.relationship, envelope, packer)
        except Unauthentic:
            pass
        else:
            join = replace(join, relationship=relationship)
            turn.change(joins={**turn.agent.joins, link: join})
            if not relationship.established:
                _fail(turn, link, "the inviter has ended the conversation", "Ask for a fresh invitation.")
                return
            match message.type:
                case kind if kind == WELCOME:
                    _hear_welcome(turn, link, read_body(message, WelcomeBody))
                case kind if kind == PROBLEM:
                    _hear_problem(turn, link, read_body(message, ProblemBody))
            return
    opened = open_first([join.relationship.mine], envelope, packer)
    if opened.message.type == PROBLEM and join.phase == "exchanging":
        # The refusal comes from a DID that we do not know, but over a connection that proved the inviter's server key,
        # and the worst that it can do is to end this try.
        if opened.message.pthid == join.relationship.thid:
            _hear_problem(turn, link, read_body(opened.message, ProblemBody))
        return
    if opened.message.type != exchange.RESPONSE or opened.message.thid != join.relationship.thid:
        raise Refused(why="an answer to another request")
    if not join.relationship.established:
        _hear_response(turn, link, opened)


def _hear_response(turn: Turn, link: bytes, opened: Opened) -> None:
    join = turn.agent.joins[link]
    exchange.check_response(opened.message, asked=join.invitation.did, sender=opened.sender)
    body = read_body(opened.message, _ResponseBody)
    check_proof(body.proof, body.member, body.group, opened.sender, join.invitation.did, join.me)
    if fault_of(body.name):
        raise Malformed(why="response: a group name that cannot be shown")
    name = body.name
    known = turn.agent.groups.get(body.group)
    twice = any(j.group == body.group and j.phase == "asking" and k != link for k, j in turn.agent.joins.items())
    if twice or (known is not None and known.state != "left"):  # whoever has left comes back as somebody new
        _already(turn, link, body.name)
        return
    assert turn.agent.reach is not None
    relationship = replace(join.relationship, member=body.member, theirs=opened.sender, greeted=True)
    contact = new_identity(turn.moment.random, mail.own_reach(turn, join.seed), join.invitation.envelope)
    join = replace(join, relationship=relationship, phase="asking", group=body.group, name=name, contact=contact)
    turn.change(joins={**turn.agent.joins, link: join})
    _tell(turn, join, "asking", f"Asking to join {name}…")
    _send(turn, link, join)


def _hear_problem(turn: Turn, link: bytes, body: ProblemBody) -> None:
    why = PROBLEMS.get(body.code, "the inviter refused")
    remedy = "Ask for a fresh invitation."
    if body.code == "e.p.req.name-taken":
        remedy = "Join with the same invitation under another name (`zerochat join … --name OTHER`)."
    _fail(turn, link, why, remedy)


def _hear_welcome(turn: Turn, link: bytes, body: WelcomeBody) -> None:
    """The evidence for the group, event by event; then we are in. Raises RemoteError when it does not hold."""
    join = turn.agent.joins[link]
    assert join.contact is not None
    evidence = {**join.evidence, body.part: [parse_event(record).record for record in body.records]}
    if body.group != join.group or sum(len(one) for part in evidence.values() for one in part) > EVIDENCE_BYTES_MAX:
        raise Refused(why="a welcome to another group, or one without end")
    if len(evidence) < body.parts:
        turn.change(joins={**turn.agent.joins, link: replace(join, evidence=evidence)})
        return
    events = [load_event(record) for _, part in sorted(evidence.items()) for record in part]
    if max(event.lamport for event in events) > turn.now + clock.AHEAD_MS_MAX:
        why = "this machine's clock is more than five minutes behind the group's"
        _fail(turn, link, why, "Set the clock, then try again with the same invitation.")
        return
    if any(event.group_id != join.group for event in events):
        raise Refused(why="a welcome whose evidence is of several groups")
    control = check_all(events)
    view = resolve_view(control)
    inviter, me = join.relationship.member, view.members.get(join.me)
    if join.group not in control or me is None or inviter not in view.members:
        raise Refused(why="a welcome to another group, or without us")
    genesis, known = control[join.group], turn.agent.groups.get(join.group)
    if known is not None and known.state != "left":
        _already(turn, link, known.name)
        return
    founding = genesis_of(genesis)
    group = Group(
        id=join.group,
        name=founding.name,
        profile=Profile(founding.keys, founding.path, founding.accountability, founding.envelope),
        state="active",
        me=join.me,
        seed=join.seed,
        contact=join.contact,
        control=control,
        view=view,
        created=genesis.time,
        chains={inviter: Chain(body.since)},
        lamport=max([event.lamport for event in events] + ([known.lamport] if known else [])),
        relationships={inviter: join.relationship},
        heads=heads_of(control),
    )
    if founding.envelope != join.invitation.envelope:
        raise Refused(why="an invitation that promised other envelopes")
    if not log.supported(group.profile):
        _fail(turn, link, "this group uses keys or a path that this version does not have", "Update zerochat.")
        return
    turn.put(group)
    for event in events:
        log.remember(turn, group.id, event, late=False)
    _end(turn, link, "done")
    for member in sorted(group.others):
        peers.meet(turn, group.id, member)
    turn.timer("gossip", group.id, 1)
    turn.say(Notify(ViewChanged(group.id)))
    turn.timer("seated", link.hex(), SEATED_MS)
    progress(turn, link)


def progress_all(turn: Turn, name: str) -> None:
    """Something has changed in this group: say so to whoever waits for a seat in it."""
    for link, one in turn.agent.joins.items():
        if one.group == name and not one.seated:
            progress(turn, link)


def progress(turn: Turn, link: bytes, final: bool = False) -> None:
    """Say how many members the newcomer is connected with, and when that is enough."""
    join = turn.agent.joins.get(link)
    if join is None or join.phase != "done" or join.seated:
        return
    group = turn.group(join.group)
    ready = sum(
        member in group.relationships
        and group.relationships[member].established
        and mail.reachable(turn, join.group, member)
        for member in group.peers
    )
    total = len(group.peers)
    if ready == total or final:
        turn.change(joins={**turn.agent.joins, link: replace(join, seated=True)})
        text = f"You are in {group.name}."
        if ready < total:
            text += f" {ready} of {total} members are connected; the others follow when they can be reached."
        _tell(turn, join, "joined", text, connected=ready, members=total)
    elif ready != join.connected:
        turn.change(joins={**turn.agent.joins, link: replace(join, connected=ready)})
        text = f"You are in {group.name}; {ready} of {total} members connected…"
        _tell(turn, join, "connecting", text, connected=ready, members=total)


def _end(turn: Turn, link: bytes, phase: JoinState) -> None:
    join = replace(turn.agent.joins[link], phase=phase, evidence={})
    turn.change(joins={**turn.agent.joins, link: join})
    if join.invitation.endpoint is None and (key := _inviter_key(turn, join)) is not None:
        turn.say(Revoke(key))
    turn.say(Hangup(link))


def _already(turn: Turn, link: bytes, name: str) -> None:
    error = AlreadyMember(group=name)
    _end(turn, link, "failed")
    _tell(turn, turn.agent.joins[link], "failed", error.sentence(), error=error.code)


def _fail(turn: Turn, link: bytes, why: str, remedy: str) -> None:
    error = JoinFailed(why=why, remedy=remedy)
    join = turn.agent.joins[link]
    _end(turn, link, "failed")
    _tell(turn, join, "failed", error.sentence(), error=error.code)


def _tell(
    turn: Turn, join: Join, phase: JoinPhase, text: str, connected: int = 0, members: int = 0, error: str = ""
) -> None:
    turn.say(Notify(JoinProgress(join.id, phase, text, join.group, connected, members, error)))
