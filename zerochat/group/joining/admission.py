"""Letting somebody in, on the side of the member whose invitation is used. The joiner's side is `join.py`.

The group's policy says whose decision that is: whoever has been invited comes in; or the inviter is asked about each;
or whoever has the invitation comes in, however many they are. Each joiner's DID takes one use. The same question gets
the same answer, because answers are lost too.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import msgspec

from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import PublicKey
from zerochat.crypto.primitives import ed25519_to_x25519_secret
from zerochat.didcomm.did import Identity, resolve, short_form
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.protocols import exchange
from zerochat.didcomm.rotation import Prior
from zerochat.errors import LocalError, Malformed, NotAMember, Refused, RemoteError, Unauthentic
from zerochat.group import log, peers
from zerochat.group.contact import (
    check_consent,
    check_possession,
    check_proof,
    client_key,
    reach_of_did,
    sign_proof,
)
from zerochat.group.effects import Changed, Notify
from zerochat.group.event import ADD, Did
from zerochat.group.find import find_group
from zerochat.group.joining import welcome
from zerochat.group.joining.invite import Answer, put_claim, way_back
from zerochat.group.membership import MEMBERS_MAX, WRITER, ancestors, label_free
from zerochat.group.notices import InvitationUsed, JoinAnswered, JoinAsked
from zerochat.group.relationship import Relationship, own_keys, pack, unpack
from zerochat.group.state import Claim, Group, OpenInvitation, Request
from zerochat.group.turn import Turn
from zerochat.group.wire.envelope import Opened, open_first
from zerochat.group.wire.messages import (
    JOIN_PENDING,
    JOIN_REQUEST,
    PROBLEM,
    PROBLEMS,
    WELCOME,
    JoinRequestBody,
    read_body,
)
from zerochat.group.wire.run import squeezed, write_runs
from zerochat.names import fault_of

CLAIMS_MAX = 2 * MEMBERS_MAX
"""Joiners whom one invitation remembers, where it is for as many as come."""
WELCOME_MS = 1_000
"""At most one welcome in this time: it may be a thousand times as long as what asks for it, and goes where that says.
A joiner that has lost one repeats itself later than this."""
REQUESTS_MAX, REFUSED_MAX = 16, 48
"""Requests that wait for an answer, and those whose answer is remembered because it was no."""
REQUEST_MS_MAX = 24 * 3_600_000
ANOTHER_MS = 10_000
"""Whoever waits may ask for another name or role than before; the person is told so no more often than this."""


class NoSuchRequest(LocalError):
    """Nobody called {who} waits to be let into {group}. `zerochat requests {group}` lists who does."""


class SeveralRequests(LocalError):
    """More than one waits to be let into {group} as {who}. Say which one by its key: `zerochat requests {group}`."""


# --- hearing --------------------------------------------------------------------------------------------------------


def hear_knock(
    turn: Turn, link: bytes, envelope: bytes, handle: bytes | None, mailed: bool = False, called: bytes = b""
) -> None:
    """Something came in under an invitation of ours, over a connection (perhaps one that we have `called`) or by mail.
    Raises RemoteError."""
    open_, answer = turn.agent.invitations[link], way_back(turn, link, handle, mailed, called)
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
        put_claim(turn, link, claimant, claim)
        if message.type == JOIN_REQUEST:
            _hear_join_request(turn, link, claimant, message, answer, handle)
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
                _hear_join_request(turn, link, claimant, message, way_back(turn, link, None, mailed=True), None)
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
        identity = peers.pair_identity(turn, group)
        relationship = Relationship(member, identity, opened.sender, request.id, "", requester=False)
        why = _why_not(turn, open_, group, member)
        if why:
            answer(relationship.theirs, _problem(turn, open_, relationship, why, request.id))
            return
        _make_room(turn, link)
        claim = put_claim(turn, link, claimant, Claim(relationship, at=turn.now))
    relationship = claim.relationship
    if group.state != "active":
        answer(relationship.theirs, _problem(turn, open_, relationship, "e.p.req.closed", request.id))
        return
    public = resolve(open_.invitation.did)
    prior = Prior(public.did, public.authentication[0].kid, open_.seed)
    body = {
        "group": group.id,
        "nonce": b64url(open_.nonce),
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
    if open_.uses and len(open_.claims) >= open_.uses:
        return "e.p.req.used"
    if group.state != "active":
        return "e.p.req.closed"
    if len(group.view.members) >= MEMBERS_MAX:
        return "e.p.req.full"
    if member in group.view.members or member in group.view.former:
        return "e.p.msg"
    return ""


def _make_room(turn: Turn, link: bytes) -> None:
    """Forget the oldest of too many who have used an invitation: of those who are in or gone, or else of all."""
    open_ = turn.agent.invitations[link]
    if len(open_.claims) < CLAIMS_MAX:
        return
    oldest = min(open_.claims, key=lambda name: (not open_.claims[name].joined, open_.claims[name].at, name))
    claims = {name: claim for name, claim in open_.claims.items() if name != oldest}
    turn.change(invitations={**turn.agent.invitations, link: replace(open_, claims=claims)})


def _problem(turn: Turn, open_: OpenInvitation, relationship: Relationship, code: str, thread: str) -> bytes:
    body = {"code": code, "comment": PROBLEMS[code]}
    message = Message(type=PROBLEM, id=new_id(turn.moment.random), pthid=thread, body=body)
    return pack(relationship, message, turn.packer(open_.invitation.envelope), turn.moment.random)


# --- letting in -----------------------------------------------------------------------------------------------------


def _hear_join_request(
    turn: Turn, link: bytes, claimant: str, message: Message, answer: Answer, handle: bytes | None
) -> None:
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
        check_possession(body.possession, body.transport, group.id, body.member)
        consented = (body.member, body.label, body.contact, body.role, body.transport)
        check_consent(body.consent, group.id, group.me, *consented)
        reach_of_did(body.contact)
        if fault_of(body.label):
            raise Malformed(why="join-request: a name that cannot be shown")
        code = _why_not_in(turn, open_, group, body)
        if not code and group.view.policy.join == "ask":
            code = _ask(turn, link, claimant, message, body, handle)
            if not code:
                answer(relationship.theirs, _pending(turn, relationship, group.id, body.member))
                return
        if code:
            answer(relationship.theirs, _problem(turn, open_, relationship, code, message.id))
            return
        _add(turn, link, claimant, body)
    _welcome(turn, link, claimant, message.id, answer)


def _why_not_in(turn: Turn, open_: OpenInvitation, group: Group, body: JoinRequestBody) -> str:
    """The problem code of why somebody cannot come in as it wants to, or nothing."""
    if group.state != "active":
        return "e.p.req.closed"
    if len(group.view.members) >= MEMBERS_MAX or len(group.peers) >= peers.PEERS_MAX:
        return "e.p.req.full"
    if not label_free(group.view, body.label):
        return "e.p.req.name-taken"
    if body.role == WRITER != open_.role:
        return "e.p.req.role"
    if peers.opens_an_invitation(turn, client_key(body.transport)):
        return "e.p.msg"
    return ""


def _add(turn: Turn, link: bytes, claimant: str, body: JoinRequestBody) -> None:
    """Bring somebody in."""
    open_ = turn.agent.invitations[link]
    claim, group = open_.claims[claimant], turn.group(open_.group)
    added = {
        "member": body.member,
        "label": body.label,
        "contact": body.contact,
        "role": body.role,
        "transport": body.transport,
        "possession": body.possession,
        "consent": body.consent,
    }
    turn.edit(group.id, relationships={**group.relationships, body.member: claim.relationship})
    log.append(turn, group.id, ADD, added)
    put_claim(turn, link, claimant, replace(claim, joined=True))
    left = open_.uses - len(open_.claims) if open_.uses else MEMBERS_MAX - len(turn.group(group.id).view.members)
    turn.say(Notify(InvitationUsed(group.id, body.label, left)))


def _welcome(turn: Turn, link: bytes, claimant: str, thread: str, answer: Answer) -> None:
    """Give a new member its evidence for the group: the event that brings it in, and all its past. Always the same, so
    that parts which were sent at different times fit together. Raises Refused."""
    open_ = turn.agent.invitations[link]
    claim, group = open_.claims[claimant], turn.group(open_.group)
    member = claim.relationship.member
    if member not in group.peers:
        raise Refused(why="a request to join by a member whom there was no room for")
    entry = welcome.entry_of(group, member)
    if entry is None:
        raise Refused(why="a request to join by a member whom somebody else has let in")
    if turn.now < claim.welcomed + WELCOME_MS:
        return
    put_claim(turn, link, claimant, replace(claim, welcomed=turn.now))
    past = {name: group.control[name] for name in ancestors(group.control, [entry])}
    words = welcome.words(group, member, entry, past)
    since, parts = group.peers[member].base, welcome.parts(past, words)
    for number, events in enumerate(parts):
        part = {"group": group.id, "since": since, "part": number, "parts": len(parts), "runs": write_runs(events)}
        if number == 0:
            part["words"] = words
        reply = squeezed(Message(type=WELCOME, id=new_id(turn.moment.random), thid=thread, body=part))
        answer(claim.relationship.theirs, pack(claim.relationship, reply, turn.packer_of(group.id), turn.moment.random))


# --- asking a person ------------------------------------------------------------------------------------------------


def _ask(turn: Turn, link: bytes, claimant: str, message: Message, body: JoinRequestBody, handle: bytes | None) -> str:
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
        news = (body.label, body.role) != (known.label, known.role) and turn.now >= known.at + ANOTHER_MS
        if not news:
            request = replace(known, handle=back, thread=message.id)
    _put_request(turn, group.id, request)
    if news:
        turn.say(Notify(JoinAsked(group.id, body.member, body.label, body.role)))
        turn.timer("requests", group.id, 1)
    return ""


def _pending(turn: Turn, relationship: Relationship, name: str, member: str) -> bytes:
    body = {"group": name, "until": turn.group(name).requests[member].until}
    message = Message(type=JOIN_PENDING, id=new_id(turn.moment.random), body=body)
    return pack(relationship, message, turn.packer_of(name), turn.moment.random)


def _put_request(turn: Turn, name: str, request: Request) -> None:
    turn.edit(name, requests={**turn.group(name).requests, request.member: request})


def _drop_request(turn: Turn, name: str, member: str) -> None:
    turn.edit(name, requests={did: one for did, one in turn.group(name).requests.items() if did != member})


def answer_request(turn: Turn, wanted: str, who: str, admit: bool) -> Changed:
    """Somebody at this machine says whether whoever asks, by its name or key, comes in."""
    group = find_group(turn.agent, wanted)
    if group.state != "active":
        raise NotAMember(group=group.name)
    waiting = [one for one in group.requests.values() if not one.refused and _claim_of(turn, one) is not None]
    found = [one for one in waiting if one.member == who] or [
        one for one in waiting if one.label.casefold() == who.casefold()
    ]
    if not found:
        raise NoSuchRequest(who=who, group=group.name)
    if len(found) > 1:
        raise SeveralRequests(who=who, group=group.name)
    (request,) = found
    open_, claim = turn.agent.invitations[request.link], _claim_of(turn, request)
    assert claim is not None
    answer = way_back(turn, request.link, request.handle or None, mailed=not request.handle)
    code = _why_not_in(turn, open_, group, request.asked) if admit else "e.p.req.refused"
    if code:
        _drop_request(turn, group.id, request.member)
        if not admit:
            _remember_refused(turn, group.id, replace(request, refused=True))
        with suppress(RemoteError):
            answer(claim.relationship.theirs, _problem(turn, open_, claim.relationship, code, request.thread))
    else:
        _drop_request(turn, group.id, request.member)
        kept = turn.agent, len(turn.effects)
        try:
            _add(turn, request.link, request.claimant, request.asked)
        except RemoteError:  # it has asked twice with one key, say, or somebody else has let it in
            turn.agent = kept[0]
            del turn.effects[kept[1] :]
            turn.say(Notify(JoinAnswered(group.id, request.member, request.label, admitted=False)))
            return Changed(group.id)
        with suppress(RemoteError):  # it asks again, and has its welcome then
            _welcome(turn, request.link, request.claimant, request.thread, answer)
    turn.say(Notify(JoinAnswered(group.id, request.member, request.label, not code)))
    return Changed(group.id)


def _claim_of(turn: Turn, request: Request) -> Claim | None:
    open_ = turn.agent.invitations.get(request.link)
    return open_.claims.get(request.claimant) if open_ is not None else None


def _remember_refused(turn: Turn, name: str, request: Request) -> None:
    refused = sorted((one.at, did) for did, one in turn.group(name).requests.items() if one.refused)
    if len(refused) >= REFUSED_MAX:
        _drop_request(turn, name, refused[0][1])
    _put_request(turn, name, request)


def expire(turn: Turn, name: str) -> None:
    """Nobody has answered in time, or what was answered need not be known any more."""
    group = turn.group(name)
    for did, request in group.requests.items():
        if request.until <= turn.now or request.link not in turn.agent.invitations:
            _drop_request(turn, name, did)
            if not request.refused:
                turn.say(Notify(JoinAnswered(name, did, request.label, False)))
    left = [one.until - turn.now for one in turn.group(name).requests.values()]
    if left:
        turn.timer("requests", name, min(left))
