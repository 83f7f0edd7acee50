"""Inviting: from an open invitation to a new member, on the inviter's side. The joiner's side is `join.py`.

The invitation's id is its secret: whoever has it can derive the CURVE key that we admit for as long as the invitation
is open, and nobody else gets as far as a first byte. Each joiner's DID takes one use. The same question gets the same
answer, because answers are lost too.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, TypeAlias

import msgspec

from zerochat.crypto.keys import PublicKey
from zerochat.crypto.primitives import (
    ed25519_public,
    ed25519_to_x25519_public,
    ed25519_to_x25519_secret,
    x25519_public,
)
from zerochat.didcomm.did import Identity, resolve, short_form
from zerochat.didcomm.invitation import Invitation
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.protocols import exchange
from zerochat.didcomm.rotation import Prior
from zerochat.errors import LocalError, Malformed, NotAMember, Refused, RemoteError, Unauthentic
from zerochat.group import log, mail, peers
from zerochat.group.contact import (
    call_link,
    check_consent,
    check_proof,
    knock_link,
    new_identity,
    reach_of,
    sign_proof,
    transport_key,
)
from zerochat.group.effects import Admit, Dial, Dispatch, Hangup, Notify, Reply, Revoke
from zerochat.group.envelope import Opened, open_first
from zerochat.group.event import ADD, Did
from zerochat.group.membership import MEMBERS_MAX
from zerochat.group.notices import InvitationUsed
from zerochat.group.relationship import Relationship, own_keys, pack, unpack
from zerochat.group.state import Claim, Group, OpenInvitation
from zerochat.group.turn import Turn
from zerochat.group.wire import (
    JOIN_REQUEST,
    PROBLEM,
    PROBLEMS,
    WELCOME,
    WELCOME_BYTES_MAX,
    JoinRequestBody,
    read_body,
)
from zerochat.names import fault_of

INVITATIONS_MAX = 64
CALLS_MAX = 16
CALL_MS = 90_000
"""How long a joiner stays dialled: longer than it tries."""
USES_MAX = MEMBERS_MAX - 1
WELCOME_MS = 1_000
"""At most one welcome in this time: it may be a thousand times as long as what asks for it, and goes where that says.
A joiner that has lost one repeats itself later than this."""


class TooManyInvitations(LocalError):
    """{limit} invitations are open, and no more fit. They close when they have been used or expire; make one for
    several people (`zerochat invite --uses N`), or with a shorter life (`--expires 1h`)."""


class NoWayHere(LocalError):
    """Nobody could answer an invitation from here: this agent only dials out (`network.hidden`) and has no mediator.
    Ask a mediator to take in what is for you (`zerochat route add LINK`), or let somebody else in the group invite."""


def invite(turn: Turn, group: Group, lifetime_s: int, uses: int) -> Invitation:
    """Make an invitation to a group and let whoever holds it knock."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    if len(turn.agent.invitations) >= INVITATIONS_MAX:
        used = next((link for link, open_ in turn.agent.invitations.items() if open_.used_up), None)
        if used is None:
            raise TooManyInvitations(limit=INVITATIONS_MAX)
        close(turn, used)
    assert turn.agent.reach is not None
    seed = turn.moment.random(32)
    reach = mail.own_reach(turn, seed)
    if reach.pair is None and not reach.mail:
        raise NoWayHere()
    invitation = Invitation(
        id=turn.moment.random(16),
        key=ed25519_public(seed),
        # The real one would tell who holds two invitations, of two groups, that they are from one agent.
        server_key=reach.server_key or ed25519_to_x25519_public(ed25519_public(seed)),
        endpoint=reach.pair,
        mail=reach.mail,
        expires=turn.now // 1000 + lifetime_s,
        envelope=group.profile.envelope,
    )
    link = knock_link(invitation.id)
    uses = max(1, min(uses, USES_MAX))
    knock_key = x25519_public(invitation.knock_secret())
    open_ = OpenInvitation(invitation, seed, knock_key, group.id, uses)
    turn.change(invitations={**turn.agent.invitations, link: open_})
    admit_knock(turn, link)
    return invitation


def admit_knock(turn: Turn, link: bytes) -> None:
    """Let the holders of this invitation knock until it expires."""
    open_ = turn.agent.invitations[link]
    left_ms = open_.invitation.expires * 1000 - turn.now
    if left_ms > 0:
        turn.say(Admit(link, open_.knock_key))
    turn.timer("invitation", link.hex(), left_ms)


def expire(turn: Turn, link: bytes) -> None:
    """An invitation's time is over: nobody knocks with it any more."""
    open_ = turn.agent.invitations.get(link)
    if open_ is None:
        return
    if open_.invitation.expires * 1000 > turn.now:
        admit_knock(turn, link)
        return
    close(turn, link)


def close(turn: Turn, link: bytes) -> None:
    """Nobody knocks with this invitation any more, and whoever was called because of it is hung up on."""
    for call_, invited in turn.agent.calls.items():
        if invited == link:
            hang_up(turn, call_)
    turn.say(Revoke(turn.agent.invitations[link].knock_key))
    turn.change(invitations={k: v for k, v in turn.agent.invitations.items() if k != link})


Answer: TypeAlias = Callable[[str, bytes], None]
"""How an envelope for the DID of a joiner goes back to it."""


def call(turn: Turn, link: bytes, theirs: str) -> bytes:
    """Dial a joiner who has answered by mail and can get none. Returns the link, which is not up yet: the joiner says
    everything again when it is. Raises Refused."""
    open_, reach = turn.agent.invitations[link], reach_of(resolve(theirs))
    name = call_link(open_.invitation.id, theirs)
    if reach.pair is None or (name not in turn.agent.calls and len(turn.agent.calls) >= CALLS_MAX):
        raise Refused(why="a joiner that cannot be reached")
    if name not in turn.agent.calls:
        turn.change(calls={**turn.agent.calls, name: link})
        turn.say(Dial(name, reach.pair, reach.server_key, ed25519_to_x25519_secret(open_.seed)))
        turn.timer("call", name.hex(), CALL_MS)
    return name


def hang_up(turn: Turn, name: bytes) -> None:
    """A joiner whom we have dialled is in, or has had time enough."""
    if name in turn.agent.calls:
        turn.change(calls={key: link for key, link in turn.agent.calls.items() if key != name})
        turn.say(Hangup(name))


def _way_back(turn: Turn, link: bytes, handle: bytes | None, mailed: bool, called: bytes = b"") -> Answer:
    """How whoever has just said something under an invitation of ours is answered."""

    def answer(theirs: str, envelope: bytes) -> None:
        if handle is not None:
            turn.say(Reply(handle, envelope))
        elif not mailed:
            turn.say(Dispatch(called or link, envelope))
        elif not reach_of(resolve(theirs)).mail:
            turn.say(Dispatch(call(turn, link, theirs), envelope))
        elif (way := mail.way_of_did(turn, theirs)) is not None:
            mail.post(turn, way, theirs, envelope)

    return answer


def hear_knock(
    turn: Turn, link: bytes, envelope: bytes, handle: bytes | None, mailed: bool = False, called: bytes = b""
) -> None:
    """Something came in under an invitation of ours, over a connection (perhaps one that we have `called`) or by mail.
    Raises RemoteError."""
    open_, answer = turn.agent.invitations[link], _way_back(turn, link, handle, mailed, called)
    packer = turn.packer(open_.invitation.envelope)
    named = _recipients(packer, envelope)
    for claimant, claim in open_.claims.items():
        if named.isdisjoint(own_keys(packer, claim.relationship.mine)):
            continue  # to read it once more would only take time
        try:
            relationship, message = unpack(claim.relationship, envelope, packer)
        except RemoteError:
            continue
        claim = replace(claim, relationship=relationship)
        _put_claim(turn, link, claimant, claim)
        if message.type == JOIN_REQUEST:
            _hear_join_request(turn, link, claimant, message, answer)
        return
    own = Identity(open_.invitation.did, open_.seed, ed25519_to_x25519_secret(open_.seed))
    opened = open_first([own], envelope, packer)
    if opened.message.type != exchange.REQUEST:
        raise Refused(why="a DID exchange message out of turn")
    _hear_request(turn, link, opened, answer)


def _recipients(packer: Packer, envelope: bytes) -> set[str]:
    """The key ids that an envelope says it is for; none for what is no envelope."""
    named: set[str] = set()

    def ask(kid: str) -> None:
        named.add(kid)

    def nobody(kid: str) -> PublicKey:
        raise Unauthentic()

    with suppress(RemoteError):
        packer.unpack(envelope, secret_of=ask, public_of=nobody)
    return named


def hear_again(turn: Turn, name: str, member: str, message: Message) -> None:
    """Somebody who is a member already asks to join, by mail: our welcome has not come. Raises RemoteError."""
    for link, open_ in turn.agent.invitations.items():
        for claimant, claim in open_.claims.items():
            if open_.group == name and claim.relationship.member == member:
                _hear_join_request(turn, link, claimant, message, _way_back(turn, link, None, mailed=True))
                return


class _RequestBody(msgspec.Struct, frozen=True):
    member: Did
    label: Annotated[str, msgspec.Meta(max_length=256)] = ""


def _hear_request(turn: Turn, link: bytes, opened: Opened, answer: Answer) -> None:
    open_ = turn.agent.invitations[link]
    group, request = turn.group(open_.group), opened.message
    if request.pthid != open_.invitation.pthid:
        raise Refused(why="a request that is not bound to this invitation")
    member, claimant = read_body(request, _RequestBody).member, short_form(opened.sender)
    claim = open_.claims.get(claimant)
    if turn.agent.reach is None or (claim is not None and claim.relationship.member != member):
        raise Refused(why="a second name for the same joiner")
    if claim is None:
        identity = new_identity(turn.moment.random, mail.own_reach(turn, group.seed), group.profile.envelope)
        relationship = Relationship(member, identity, opened.sender, request.id, "", requester=False)
        why = _why_not(turn, open_, group, member)
        if why:
            answer(relationship.theirs, _problem(turn, open_, relationship, why, request.id))
            return
        claim = _put_claim(turn, link, claimant, Claim(relationship))
    relationship = claim.relationship
    if group.state != "active":
        answer(relationship.theirs, _problem(turn, open_, relationship, "e.p.req.closed", request.id))
        return
    public = resolve(open_.invitation.did)
    prior = Prior(public.did, public.authentication[0].kid, open_.seed)
    body = {
        "group": group.id,
        "name": group.name,
        "member": group.me,
        "label": group.view.members[group.me].label,
        "proof": sign_proof(group.seed, group.id, relationship.mine.did, open_.invitation.did, member),
    }
    response = exchange.response(
        request, relationship.mine, prior, body, now_s=turn.now // 1000, random=turn.moment.random
    )
    answer(relationship.theirs, pack(relationship, response, turn.packer_of(group.id), turn.moment.random))


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
    if member in group.view.members or member in group.view.former:
        return "e.p.msg"
    return ""


def _put_claim(turn: Turn, link: bytes, claimant: str, claim: Claim) -> Claim:
    open_ = turn.agent.invitations[link]
    open_ = replace(open_, claims={**open_.claims, claimant: claim})
    turn.change(invitations={**turn.agent.invitations, link: open_})
    return claim


def _problem(turn: Turn, open_: OpenInvitation, relationship: Relationship, code: str, thread: str) -> bytes:
    body = {"code": code, "comment": PROBLEMS[code]}
    message = Message(type=PROBLEM, id=new_id(turn.moment.random), pthid=thread, body=body)
    return pack(relationship, message, turn.packer(open_.invitation.envelope), turn.moment.random)


def _hear_join_request(turn: Turn, link: bytes, claimant: str, message: Message, answer: Answer) -> None:
    open_ = turn.agent.invitations[link]
    relationship = open_.claims[claimant].relationship
    body = read_body(message, JoinRequestBody)
    group = turn.group(open_.group)
    if body.group != group.id or body.member != relationship.member:
        raise Refused(why="a request to join that does not match its exchange")
    if body.member in group.view.former:
        raise Refused(why="a request to join by somebody who has left")  # a late copy: nobody is added twice
    # Also of a member: whoever else has claimed its key in time is told nothing of the group.
    check_proof(body.proof, body.member, group.id, relationship.theirs, open_.invitation.did, group.me)
    if body.member not in group.view.members:
        check_consent(body.consent, group.id, group.me, body.member, body.label, body.contact)
        reach_of(resolve(body.contact))
        if fault_of(body.label):
            raise Malformed(why="join-request: a name that cannot be shown")
        taken = {member.label.casefold() for member in group.view.members.values()}
        code = ""
        if group.state != "active":
            code = "e.p.req.closed"
        elif len(group.view.members) >= MEMBERS_MAX or len(group.peers) >= peers.PEERS_MAX:
            code = "e.p.req.full"
        elif body.label.casefold() in taken:
            code = "e.p.req.name-taken"
        elif peers.opens_an_invitation(turn, transport_key(body.member)):
            code = "e.p.msg"
        if code:
            answer(relationship.theirs, _problem(turn, open_, relationship, code, message.id))
            return
        added = {
            "member": body.member,
            "label": body.label,
            "contact": body.contact,
            "consent": body.consent,
        }
        turn.edit(group.id, relationships={**group.relationships, body.member: relationship})
        log.append(turn, group.id, ADD, added)
        _put_claim(turn, link, claimant, replace(open_.claims[claimant], joined=True))
        turn.say(Notify(InvitationUsed(group.id, body.label, open_.uses - len(open_.claims))))
    group = turn.group(group.id)
    if body.member not in group.peers:
        raise Refused(why="a request to join by a member whom there was no room for")
    claim = turn.agent.invitations[link].claims[claimant]
    if turn.now < claim.welcomed + WELCOME_MS:
        return
    _put_claim(turn, link, claimant, replace(claim, welcomed=turn.now))
    since, parts = group.peers[body.member].base, _welcome_parts(group)
    for number, records in enumerate(parts):
        part = {"group": group.id, "records": records, "since": since, "part": number, "parts": len(parts)}
        reply = Message(type=WELCOME, id=new_id(turn.moment.random), thid=message.id, body=part)
        answer(relationship.theirs, pack(relationship, reply, turn.packer_of(group.id), turn.moment.random))


def _welcome_parts(group: Group) -> list[list[dict[str, object]]]:
    """Every membership event, causes first, in pieces that fit a message."""
    parts: list[list[dict[str, object]]] = [[]]
    size = 0
    for event in sorted(group.control.values(), key=lambda e: (e.lamport, e.author, e.id)):
        size += len(event.record)
        if parts[-1] and size > WELCOME_BYTES_MAX:
            parts.append([])
            size = len(event.record)
        parts[-1].append(event.wire)
    return parts
