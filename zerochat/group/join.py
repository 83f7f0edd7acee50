"""Joining: from an invitation that somebody was handed to a seat in the group, on both sides.

    joiner: exchanging --response--> asking --welcome--> (member: the rest happens in peers.py and sync.py)
                 |  no answer in time, or a problem report: failed; the same invitation can be tried again

The invitation's id is its secret: whoever has it can derive the CURVE key that the inviter admits for as long as the
invitation is open, and nobody else gets as far as a first byte. Each joiner's DID takes one use. A lost message is
repeated by the joiner; the inviter answers the same question the same way.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import msgspec

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public, ed25519_to_x25519_secret, x25519_public
from zerochat.didcomm import exchange
from zerochat.didcomm.did import resolve, short_form
from zerochat.didcomm.invitation import Invitation
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.rotation import Prior
from zerochat.errors import BadName, LocalError, Malformed, NotAMember, Overloaded, Refused, RemoteError, Unauthentic
from zerochat.group import log, peers
from zerochat.group.contact import (
    check_consent,
    check_proof,
    knock_link,
    new_identity,
    reach_of,
    sign_consent,
    sign_proof,
)
from zerochat.group.effects import Admit, Dial, Dispatch, Effect, Hangup, Notify, Reply, Revoke
from zerochat.group.envelope import Key, Opened, key_of, open_first, pack_to
from zerochat.group.event import ADD, Did, Event, Id, parse_event
from zerochat.group.membership import MEMBERS_MAX, check_control, genesis_of, heads_of, resolve_view
from zerochat.group.notices import InvitationUsed, JoinPhase, JoinProgress, ViewChanged
from zerochat.group.relationship import Relationship, pack, unpack
from zerochat.group.state import Chain, Claim, Group, Join, JoinState, OpenInvitation, Profile
from zerochat.group.turn import Turn
from zerochat.group.wire import JOIN_REQUEST, PROBLEM, WELCOME, JoinRequestBody, ProblemBody, WelcomeBody, read_body
from zerochat.names import checked_name

JOIN_MS_MAX = 60_000
"""After this long without a seat the join has failed: a person is waiting."""
RETRY_MS = 1_500
INVITATIONS_MAX = 64
JOINS_MAX = 16
USES_MAX = MEMBERS_MAX - 1

PROBLEMS = {
    "e.p.req.time": "the invitation has expired",
    "e.p.req.used": "the invitation has been used already",
    "e.p.req.name-taken": "somebody in the group has this name already",
    "e.p.req.full": "the group is full",
    "e.p.req.closed": "whoever invited you has left the group",
    "e.p.msg": "the inviter could not read the request; the two versions of zerochat may differ",
}
"""The report-problem codes of this protocol, with what they mean to a person."""


class JoinFailed(LocalError):
    """You have not joined: {why}. {remedy}"""


class AlreadyMember(LocalError):
    """You are in {group} already, so there is nothing to join."""


# --- the inviter ----------------------------------------------------------------------------------------------------


def invite(turn: Turn, group: Group, lifetime_s: int, uses: int) -> Invitation:
    """Make an invitation to a group and let whoever holds it knock."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    if len(turn.agent.invitations) >= INVITATIONS_MAX:
        raise Overloaded(what="The number of open invitations", limit=INVITATIONS_MAX)
    assert turn.agent.reach is not None
    seed = turn.moment.random(32)
    invitation = Invitation(
        id=turn.moment.random(16),
        key=ed25519_public(seed),
        server_key=turn.agent.reach.server_key,
        endpoint=turn.agent.reach.pair,
        expires=turn.now // 1000 + lifetime_s,
    )
    link = knock_link(invitation.id)
    uses = max(1, min(uses, USES_MAX))
    turn.change(invitations={**turn.agent.invitations, link: OpenInvitation(invitation, seed, group.id, uses)})
    admit_knock(turn, link)
    return invitation


def admit_knock(turn: Turn, link: bytes) -> None:
    """Let the holders of this invitation knock until it expires."""
    invitation = turn.agent.invitations[link].invitation
    left_ms = invitation.expires * 1000 - turn.now
    if left_ms > 0:
        turn.say(Admit(link, x25519_public(invitation.knock_secret())))
    turn.timer("invitation", link.hex(), left_ms)


def expire(turn: Turn, link: bytes) -> None:
    """An invitation's time is over: nobody knocks with it any more."""
    open_ = turn.agent.invitations.get(link)
    if open_ is None:
        return
    if open_.invitation.expires * 1000 > turn.now:
        admit_knock(turn, link)
        return
    turn.say(Revoke(x25519_public(open_.invitation.knock_secret())))
    unfinished = {claim.member for claim in open_.claims.values() if not claim.joined}
    group = turn.group(open_.group)
    turn.edit(group.id, relationships={m: r for m, r in group.relationships.items() if m not in unfinished})
    turn.change(invitations={k: v for k, v in turn.agent.invitations.items() if k != link})


def hear_knock(turn: Turn, link: bytes, envelope: bytes, handle: bytes | None) -> None:
    """Something came in under an invitation of ours. Raises RemoteError."""
    open_ = turn.agent.invitations[link]
    group = turn.group(open_.group)

    def answer(envelope: bytes) -> Effect:
        return Reply(handle, envelope) if handle is not None else Dispatch(link, envelope)

    for claim in open_.claims.values():
        relationship = group.relationships.get(claim.member)
        try:
            message = unpack(relationship, envelope, turn.packer) if relationship else None
        except RemoteError:
            continue
        if relationship is not None and message is not None:
            peers.greeted(turn, group.id, claim.member)
            if message.type == JOIN_REQUEST:
                _hear_join_request(turn, link, turn.group(group.id).relationships[claim.member], message, answer)
            return
    kid, _ = resolve(open_.invitation.did).agreement[0]
    own = Key(open_.invitation.did, "#" + kid.rpartition("#")[2], ed25519_to_x25519_secret(open_.seed))
    opened = open_first([own], envelope, turn)
    if opened.message.type != exchange.REQUEST:
        raise Refused(why="a DID exchange message out of turn")
    _hear_request(turn, link, opened, answer)


class _RequestBody(msgspec.Struct, frozen=True):
    member: Did
    label: Annotated[str, msgspec.Meta(max_length=256)] = ""


def _hear_request(turn: Turn, link: bytes, opened: Opened, answer: Callable[[bytes], Effect]) -> None:
    open_ = turn.agent.invitations[link]
    group, request = turn.group(open_.group), opened.message
    if request.pthid != open_.invitation.pthid:
        raise Refused(why="a request that is not bound to this invitation")
    member, claimant = read_body(request, _RequestBody).member, short_form(opened.sender)
    claim = open_.claims.get(claimant)
    relationship = group.relationships.get(claim.member) if claim else None
    if turn.agent.reach is None or (claim is not None and claim.member != member):
        raise Refused(why="a second name for the same joiner")
    if relationship is None:
        identity = new_identity(turn.moment.random, turn.agent.reach)
        relationship = Relationship(member, identity, opened.sender, request.id, "", requester=False)
        why = _why_not(turn, open_, group, member)
        if why:
            turn.say(answer(_problem(turn, relationship, why, request.id)))
            return
        turn.edit(group.id, relationships={**group.relationships, member: relationship})
        claims = {**open_.claims, claimant: Claim(member)}
        turn.change(invitations={**turn.agent.invitations, link: replace(open_, claims=claims)})
    public = resolve(open_.invitation.did)
    prior = Prior(public.did, public.authentication[0][0], open_.seed)
    body = {
        "group": group.id,
        "name": group.name,
        "member": group.me,
        "label": group.view.members[group.me].label,
        "proof": sign_proof(group.seed, group.id, relationship.mine.did, open_.invitation.did),
    }
    response = exchange.response(
        request, relationship.mine, prior, body, now_s=turn.now // 1000, random=turn.moment.random
    )
    turn.say(answer(pack(relationship, response, turn.packer, turn.moment.random)))


def _why_not(turn: Turn, open_: OpenInvitation, group: Group, member: str) -> str:
    """The problem code of why nobody (more) can join with this invitation, or nothing."""
    if open_.invitation.expires * 1000 <= turn.now:
        return "e.p.req.time"
    if len(open_.claims) >= open_.uses:
        return "e.p.req.used"
    if group.state != "active":
        return "e.p.req.closed"
    if len(group.view.members) >= MEMBERS_MAX:
        return "e.p.req.full"
    if member in group.relationships or member in group.view.members or member in group.view.former:
        return "e.p.msg"
    return ""


def _problem(turn: Turn, relationship: Relationship, code: str, thread: str) -> bytes:
    body = {"code": code, "comment": PROBLEMS[code]}
    message = Message(type=PROBLEM, id=new_id(turn.moment.random), pthid=thread, body=body)
    return pack(relationship, message, turn.packer, turn.moment.random)


def _hear_join_request(
    turn: Turn, link: bytes, relationship: Relationship, message: Message, answer: Callable[[bytes], Effect]
) -> None:
    open_ = turn.agent.invitations[link]
    body = read_body(message, JoinRequestBody)
    group = turn.group(open_.group)
    if body.group != group.id or body.member != relationship.member:
        raise Refused(why="a request to join that does not match its exchange")
    if body.member in group.view.former:
        raise Refused(why="a request to join by somebody who has left")  # a late copy: nobody is added twice
    if body.member not in group.view.members:
        check_consent(body.consent, body.group, body.member, body.label, body.client_key, body.contact)
        reach_of(resolve(body.contact))
        try:
            checked_name(body.label, "name")
        except BadName:
            raise Malformed(why="join-request: a name that cannot be shown") from None
        taken = {member.label.casefold() for member in group.view.members.values()}
        code = ""
        if group.state != "active":
            code = "e.p.req.closed"
        elif len(group.view.members) >= MEMBERS_MAX:
            code = "e.p.req.full"
        elif body.label.casefold() in taken:
            code = "e.p.req.name-taken"
        if code:
            turn.say(answer(_problem(turn, relationship, code, message.id)))
            return
        added = {
            "member": body.member,
            "label": body.label,
            "client_key": body.client_key,
            "contact": body.contact,
            "consent": body.consent,
        }
        log.append(turn, group.id, ADD, added)
        claims = {**open_.claims, short_form(relationship.theirs): Claim(body.member, joined=True)}
        open_ = replace(open_, claims=claims)
        turn.change(invitations={**turn.agent.invitations, link: open_})
        turn.say(Notify(InvitationUsed(group.id, body.label, open_.uses - len(claims))))
    group = turn.group(group.id)
    control = sorted(group.control.values(), key=lambda e: (e.lamport, e.author, e.id))
    welcome = {"group": group.id, "records": [e.wire for e in control], "since": group.peers[body.member].base}
    reply = Message(type=WELCOME, id=new_id(turn.moment.random), thid=message.id, body=welcome)
    turn.say(answer(pack(relationship, reply, turn.packer, turn.moment.random)))


# --- the joiner -----------------------------------------------------------------------------------------------------


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
        identity = new_identity(turn.moment.random, turn.agent.reach)
        join = Join(
            id=b64url(turn.moment.random(9)),
            invitation=invitation,
            label=label,
            relationship=Relationship("", identity, "", new_id(turn.moment.random), invitation.did, requester=True),
            seed=seed,
            client_secret=turn.moment.random(32),
            me=did_key(ed25519_public(seed)),
            deadline=deadline,
            phase="exchanging",
        )
    others = dict(list(turn.agent.joins.items())[-(JOINS_MAX - 1) :])
    turn.change(joins={**others, link: join})
    resume(turn, link)
    return join.id


def resume(turn: Turn, link: bytes) -> None:
    """Dial the inviter and knock; also after a restart in the middle of a join."""
    join = turn.agent.joins[link]
    if join.phase in ("exchanging", "asking"):
        invitation = join.invitation
        turn.say(Dial(link, invitation.endpoint, invitation.server_key, invitation.knock_secret()))
        _tell(turn, join, "dialling", f"Looking for whoever invited you, at {invitation.endpoint}…")
        knock(turn, link)


def knock(turn: Turn, link: bytes) -> None:
    """Say (again) what the join waits for, or give up when its time is over."""
    join = turn.agent.joins.get(link)
    if join is None or join.phase not in ("exchanging", "asking"):
        return
    if turn.now >= join.deadline:
        _fail(
            turn,
            link,
            "nobody answered at " + str(join.invitation.endpoint),
            "Whoever invited you must have zerochat open (or `zerochat agent` running) and be reachable from here."
            " The invitation is still good: try again with the same one.",
        )
        return
    if link in turn.agent.up:
        _send(turn, link, join)
    turn.timer("join", link.hex(), min(RETRY_MS, join.deadline - turn.now))


def _send(turn: Turn, link: bytes, join: Join) -> None:
    relationship = join.relationship
    if join.phase == "exchanging":
        request = Message(
            type=exchange.REQUEST,
            id=relationship.thid,
            thid=relationship.thid,
            pthid=join.invitation.pthid,
            body={"goal_code": "org.zerochat.join", "member": join.me, "label": join.label},
        )
        turn.say(Dispatch(link, pack_to(relationship.mine, relationship.asked, request, turn)))
        return
    assert join.contact is not None
    client_key, contact = b64url(x25519_public(join.client_secret)), join.contact.did
    body = {
        "group": join.group,
        "member": join.me,
        "label": join.label,
        "client_key": client_key,
        "contact": contact,
        "consent": sign_consent(join.seed, join.group, join.me, join.label, client_key, contact),
    }
    complete = exchange.complete(relationship.thid, join.invitation.pthid, turn.moment.random)
    request = Message(type=JOIN_REQUEST, id=new_id(turn.moment.random), body=body)
    for message in (complete, request):
        turn.say(Dispatch(link, pack(relationship, message, turn.packer, turn.moment.random)))


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
    if join.relationship.established:
        try:
            message = unpack(join.relationship, envelope, turn.packer)
        except Unauthentic:
            message = None
        if message is not None:
            match message.type:
                case kind if kind == WELCOME:
                    _hear_welcome(turn, link, read_body(message, WelcomeBody))
                case kind if kind == PROBLEM:
                    _hear_problem(turn, link, read_body(message, ProblemBody))
            return
    opened = open_first([key_of(join.relationship.mine)], envelope, turn)
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
    check_proof(body.proof, body.member, body.group, opened.sender, join.invitation.did)
    try:
        name = checked_name(body.name, "group")
    except BadName:
        raise Malformed(why="response: a group name that cannot be shown") from None
    known = turn.agent.groups.get(body.group)
    if known is not None:
        _end(turn, link, "failed")
        error = AlreadyMember(group=known.name)
        _tell(turn, join, "failed", error.sentence(), error=error.code)
        return
    assert turn.agent.reach is not None
    relationship = replace(join.relationship, member=body.member, theirs=opened.sender, greeted=True)
    contact = new_identity(turn.moment.random, turn.agent.reach)
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
    events = [parse_event(record) for record in body.records]
    control: dict[str, Event] = {}
    for event in events:
        if event.group_id != join.group or any(dep not in control for dep in event.deps):
            raise Refused(why="a welcome whose evidence does not hang together")
        check_control(event, control)
        control[event.id] = event
    view = resolve_view(control)
    inviter, me = join.relationship.member, view.members.get(join.me)
    if join.group not in control or me is None or inviter not in view.members or me.added_by != inviter:
        raise Refused(why="a welcome to another group, or without us")
    if me.contact != join.contact.did or me.client_key != x25519_public(join.client_secret):
        raise Refused(why="a welcome that changed our keys")
    genesis = control[join.group]
    founding = genesis_of(genesis)
    group = Group(
        id=join.group,
        name=founding.name,
        profile=Profile(founding.keys, founding.path, founding.accountability),
        state="active",
        me=join.me,
        seed=join.seed,
        client_secret=join.client_secret,
        contact=join.contact,
        control=control,
        view=view,
        created=genesis.time,
        chains={inviter: Chain(body.since)},
        lamport=max(event.lamport for event in events),
        relationships={inviter: join.relationship},
        heads=heads_of(control),
    )
    if not log.supported(group.profile):
        _fail(turn, link, "this group uses keys or a path that this version does not have", "Update zerochat.")
        return
    turn.put(group)
    for event in events:
        log.remember(turn, group.id, event, late=False)
    _end(turn, link, "done")
    turn.say(Hangup(link))
    for member in sorted(group.others):
        peers.meet(turn, group.id, member)
    turn.timer("gossip", group.id, 1)
    turn.say(Notify(ViewChanged(group.id)))
    turn.timer("seated", link.hex(), SEATED_MS)
    progress(turn, link)


SEATED_MS = 8_000
"""How long a newcomer waits for the members before its join counts as done with those who are there."""


def progress(turn: Turn, link: bytes, final: bool = False) -> None:
    """Say how many members the newcomer is connected with, and when that is enough."""
    join = turn.agent.joins.get(link)
    if join is None or join.phase != "done" or join.seated:
        return
    group = turn.group(join.group)
    ready = sum(
        peer.link in turn.agent.up and member in group.relationships and group.relationships[member].established
        for member, peer in group.peers.items()
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
    turn.change(joins={**turn.agent.joins, link: replace(turn.agent.joins[link], phase=phase)})
    turn.say(Hangup(link))


def _fail(turn: Turn, link: bytes, why: str, remedy: str) -> None:
    error = JoinFailed(why=why, remedy=remedy)
    join = turn.agent.joins[link]
    _end(turn, link, "failed")
    _tell(turn, join, "failed", error.sentence(), error=error.code)


def _tell(
    turn: Turn, join: Join, phase: JoinPhase, text: str, connected: int = 0, members: int = 0, error: str = ""
) -> None:
    turn.say(Notify(JoinProgress(join.id, phase, text, join.group, connected, members, error)))
