"""Letting somebody in, on the side of the member whose invitation is used. The joiner's side is `join.py`.

The group's policy says whose decision that is: whoever has been invited comes in; or the inviter is asked about each;
or whoever has the invitation comes in, however many they are. Each joiner's DID takes one use. The same question gets
the same answer, because answers are lost too.
"""

from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import PublicKey
from zerochat.crypto.primitives import ed25519_to_x25519_secret
from zerochat.didcomm.did import Identity, resolve, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.protocols import exchange
from zerochat.didcomm.rotation import Prior
from zerochat.errors import Malformed, Refused, RemoteError, Unauthentic
from zerochat.group.effects import Notify
from zerochat.group.event_log import log
from zerochat.group.event_log.event import Did
from zerochat.group.joining import welcome
from zerochat.group.joining.admission import OLDER, add, give_welcome, problem, why_not_in
from zerochat.group.joining.cancellation import WITHDRAWN
from zerochat.group.joining.invitations import Answer, put_claim, way_back
from zerochat.group.joining.requests import ask, drop, pending
from zerochat.group.links import pairing, rate_limits
from zerochat.group.links.contact import check_consent, check_possession, check_proof, reach_of_did, sign_proof
from zerochat.group.links.relationship import Relationship, own_keys, pack, unpack
from zerochat.group.membership import MEMBERS_MAX, decisions
from zerochat.group.notifications import JoinAnswered
from zerochat.group.state import Claim, Group, OpenInvitation
from zerochat.group.sync import stale_profile
from zerochat.group.transaction import Turn
from zerochat.group.wire.envelope import Opened, open_first
from zerochat.group.wire.messages import (
    EVENTS,
    JOIN_REQUEST,
    PROBLEM,
    EventsBody,
    JoinRequestBody,
    read_body,
)
from zerochat.names import fault_of

CLAIMS_MAX = 2 * MEMBERS_MAX
"""Joiners whom one invitation remembers, where it is for as many as come."""
GIVEN_BACK_MAX = 16
"""So often a use of one invitation is given back: each time a person may have been asked."""


# --- hearing --------------------------------------------------------------------------------------------------------


def hear_knock(
    turn: Turn, link: bytes, envelope: bytes, handle: bytes | None, mailed: bool = False, called: bytes = b""
) -> None:
    """Something came in under an invitation of ours, over a connection (perhaps one that we have `called`) or by mail.
    Raises RemoteError; TooOften before anything is opened."""
    if not rate_limits.spend_knock(turn, link, len(envelope)):
        raise rate_limits.TooOften
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
        elif message.type == PROBLEM:
            _hear_withdrawal(turn, link, claimant, message, answer)
        elif message.type == EVENTS and claim.joined:
            _hear_leave(turn, link, claimant, message, answer, len(envelope))
        return
    own = Identity(open_.invitation.did, open_.seed, ed25519_to_x25519_secret(open_.seed))
    opened = open_first([own], envelope, packer)
    if opened.message.type == PROBLEM and short_form(opened.sender) in open_.claims:
        _hear_withdrawal(turn, link, short_form(opened.sender), opened.message, answer)
        return
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
    """Somebody who is a member already asks to join, or gives that up, by mail: our welcome has not come. Raises
    RemoteError."""
    for link, open_ in turn.agent.invitations.items():
        for claimant, claim in open_.claims.items():
            if open_.group == name and claim.relationship.member == member:
                answer = way_back(turn, link, None, mailed=True)
                if is_withdrawal(message):
                    _hear_withdrawal(turn, link, claimant, message, answer)
                else:
                    _hear_join_request(turn, link, claimant, message, answer, None)
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
        claim = _restored(turn, link, claimant)
    if claim is None:
        identity = pairing.pair_identity(turn, group)
        relationship = Relationship(member, identity, opened.sender, request.id, "", requester=False)
        why = _why_not(turn, open_, group, member)
        if why:
            answer(relationship.theirs, problem(turn, open_, relationship, why, request.id))
            return
        _make_room(turn, link)
        claim = put_claim(turn, link, claimant, Claim(relationship, at=turn.now))
    relationship = claim.relationship
    if group.state != "active":
        answer(relationship.theirs, problem(turn, open_, relationship, "e.p.req.closed", request.id))
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
    if stale_profile.suspended(group):
        return OLDER
    if len(group.view.members) >= MEMBERS_MAX:
        return "e.p.req.full"
    if member in group.view.members or member in group.view.former:
        return "e.p.msg"
    return ""


def _hear_leave(turn: Turn, link: bytes, claimant: str, message: Message, answer: Answer, size: int) -> None:
    """Whoever was let in leaves, and has never got as far as a link of its own (`parting.py`). Raises RemoteError."""
    open_ = turn.agent.invitations[link]
    claim, name = open_.claims[claimant], open_.group
    member = claim.relationship.member
    if member in turn.group(name).peers and rate_limits.spend(turn, name, member, size):
        log.hear(turn, name, member, read_body(message, EventsBody))
        decisions.settle(turn, name)
    if member not in turn.group(name).view.members:
        reply = problem(turn, open_, claim.relationship, WITHDRAWN, message.pthid or message.id)
        answer(claim.relationship.theirs, reply)


def _restored(turn: Turn, link: bytes, claimant: str) -> Claim | None:
    """The claim of somebody whom we have let in and forgotten, before it had its welcome; None: there is none."""
    group = turn.group(turn.agent.invitations[link].group)
    known = (one for one in group.relationships.values() if one.theirs and short_form(one.theirs) == claimant)
    relationship = next(known, None)
    if relationship is None or welcome.entry_of(group, relationship.member) is None:
        return None
    return put_claim(turn, link, claimant, Claim(relationship, joined=True, at=turn.now))


def _make_room(turn: Turn, link: bytes) -> None:
    """Forget the oldest of too many who have used an invitation: of those who are in or gone, or else of all. Whoever
    is forgotten too early says again who it is (`join.UNANSWERED_MAX`)."""
    open_ = turn.agent.invitations[link]
    if len(open_.claims) < CLAIMS_MAX:
        return
    peers_ = turn.group(open_.group).peers

    def rank(name: str) -> tuple[bool, int, str]:
        claim = open_.claims[name]
        peer = peers_.get(claim.relationship.member)
        return not (claim.joined and (peer is None or peer.heard)), claim.at, name

    _drop_claim(turn, link, min(open_.claims, key=rank))


def _drop_claim(turn: Turn, link: bytes, claimant: str) -> OpenInvitation:
    open_ = turn.agent.invitations[link]
    claims = {name: claim for name, claim in open_.claims.items() if name != claimant}
    open_ = replace(open_, claims=claims)
    turn.change(invitations={**turn.agent.invitations, link: open_})
    return open_


def is_withdrawal(message: Message) -> bool:
    return message.type == PROBLEM and message.body.get("code") == WITHDRAWN


def _hear_withdrawal(turn: Turn, link: bytes, claimant: str, message: Message, answer: Answer) -> None:
    """Whoever has used an invitation gives up (`parting.py`). Where it is not in yet, it gives the use back, as long as
    that is no way to bother somebody without end; once it is in, only it can say that it leaves, and for that it needs
    its welcome."""
    if not is_withdrawal(message):
        return
    open_ = turn.agent.invitations[link]
    claim, group = open_.claims[claimant], turn.group(open_.group)
    member = claim.relationship.member
    if claim.joined and member in group.view.members:
        give_welcome(turn, link, claimant, message.id, answer)
        return
    request = group.requests.get(member)
    if request is not None and request.claimant == claimant and not request.refused:
        drop(turn, group.id, member)
        turn.say(Notify(JoinAnswered(group.id, member, request.label, admitted=False)))
    refused = request is not None and request.refused
    if not claim.joined and not refused and open_.given_back < GIVEN_BACK_MAX:
        open_ = replace(_drop_claim(turn, link, claimant), given_back=open_.given_back + 1)
        turn.change(invitations={**turn.agent.invitations, link: open_})
    reply = problem(turn, open_, claim.relationship, WITHDRAWN, message.pthid or message.id)
    answer(claim.relationship.theirs, reply)


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
    # Also of a member: whoever else has claimed its key in time is told nothing of the group.
    check_proof(body.proof, body.member, group.id, relationship.theirs, open_.invitation.did, group.me)
    if body.member in group.view.removed:  # perhaps before its welcome came, so that it still waits for that
        answer(relationship.theirs, problem(turn, open_, relationship, "e.p.req.removed", message.id))
        return
    if body.member in group.view.former:
        raise Refused(why="a request to join by somebody who has left")  # a late copy: nobody is added twice
    if body.member not in group.view.members:
        check_possession(body.possession, body.transport, group.id, body.member)
        consented = (body.member, body.label, body.contact, body.role, body.transport)
        check_consent(body.consent, group.id, group.me, *consented)
        reach_of_did(body.contact)
        if fault_of(body.label):
            raise Malformed(why="join-request: a name that cannot be shown")
        code = why_not_in(turn, open_, group, body)
        if not code and group.view.policy.join == "ask":
            code = ask(turn, link, claimant, message, body, handle)
            if not code:
                answer(relationship.theirs, pending(turn, relationship, group.id, body.member))
                return
        if code:
            answer(relationship.theirs, problem(turn, open_, relationship, code, message.id))
            return
        add(turn, link, claimant, body)
    give_welcome(turn, link, claimant, message.id, answer)
