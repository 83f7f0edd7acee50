"""The inviter's side of a join: DID exchange, join request, admission (the joiner's side is `joiner.py`).

The group's policy decides on admission: every holder of an invitation is admitted, the inviter is asked about each
joiner, or the invitation admits any number of joiners. Each joiner's DID takes one use. A repeated request gets the
same answer, because answers can be lost.
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
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import Did
from zerochat.group.joining import welcome
from zerochat.group.joining.admission import SUSPENDED_CODE, admit_joiner, problem_report, rejection_code, send_welcome
from zerochat.group.joining.cancellation import WITHDRAWN_CODE
from zerochat.group.joining.claims import drop_claim, put_claim
from zerochat.group.joining.invitations import ReplyPath, reply_path
from zerochat.group.joining.requests import add_request, drop_request, pending_reply
from zerochat.group.links import pairing, rate_limits
from zerochat.group.links.contact import check_consent, check_possession, check_proof, reach_of_did, sign_proof
from zerochat.group.links.relationship import Relationship, own_keys, pack, unpack
from zerochat.group.membership import decisions, has_seat_for
from zerochat.group.notifications import JoinRequestAnswered
from zerochat.group.state import Claim, Group, OpenInvitation
from zerochat.group.state.joins import InvitationState
from zerochat.group.sync import stale_profile
from zerochat.group.transaction import Transaction
from zerochat.group.wire.envelope import OpenedMessage, open_first
from zerochat.group.wire.messages import (
    EVENTS,
    JOIN_REQUEST,
    PROBLEM,
    EventsBody,
    JoinRequestBody,
    read_body,
)
from zerochat.names import fault_of

RETURNED_USES_MAX = 16
"""How often a use of one invitation is returned; each time a user may have been asked."""


# --- DID exchange ---------------------------------------------------------------------------------------------------


def receive_from_joiner(
    tx: Transaction, link: bytes, envelope: bytes, handle: bytes | None, mailed: bool = False, called: bytes = b""
) -> None:
    """An envelope under an invitation of ours, over a connection (perhaps to a joiner that we `called`) or by mail.
    Raises RemoteError; RateLimited before anything is decrypted."""
    if not rate_limits.spend_join_envelope(tx, link, len(envelope)):
        raise rate_limits.RateLimited
    open_, answer = tx.agent.invitations[link], reply_path(tx, link, handle, mailed, called)
    packer = tx.packer(open_.invitation.envelope)
    named = _recipient_kids(packer, envelope)
    for claimant, claim in open_.claims.items():
        if named.isdisjoint(own_keys(packer, claim.relationship.mine)):
            continue  # parsing it again would only take time
        try:
            relationship, message = unpack(claim.relationship, envelope, packer)
        except RemoteError:
            continue
        claim = replace(claim, relationship=relationship)
        put_claim(tx, link, claimant, claim)
        if message.type == JOIN_REQUEST:
            _receive_join_request(tx, link, claimant, message, answer, handle)
        elif message.type == PROBLEM:
            _receive_withdrawal(tx, link, claimant, message, answer)
        elif message.type == EVENTS and claim.admitted:
            _receive_leave(tx, link, claimant, message, answer, len(envelope))
        return
    own = Identity(open_.invitation.did, open_.seed, ed25519_to_x25519_secret(open_.seed))
    opened = open_first([own], envelope, packer)
    if opened.message.type == PROBLEM and short_form(opened.sender) in open_.claims:
        _receive_withdrawal(tx, link, short_form(opened.sender), opened.message, answer)
        return
    if opened.message.type != exchange.REQUEST:
        raise Refused(why="a DID exchange message out of turn")
    _receive_exchange_request(tx, link, opened, answer)


def _recipient_kids(packer: Packer, envelope: bytes) -> set[str]:
    """The recipient key ids that an envelope names; empty for invalid envelopes."""
    named: set[str] = set()

    def record(kid: str) -> None:
        named.add(kid)

    def unknown(kid: str) -> PublicKey:
        raise Unauthentic()

    with suppress(RemoteError):
        packer.unpack(envelope, secret_of=record, public_of=unknown)
    return named


def receive_repeated_request(tx: Transaction, name: str, member: str, message: Message) -> None:
    """A current member repeats its join request, or cancels it, by mail: it has not received our welcome. Raises
    RemoteError."""
    for link, open_ in tx.agent.invitations.items():
        for claimant, claim in open_.claims.items():
            if open_.group == name and claim.relationship.member == member:
                answer = reply_path(tx, link, None, mailed=True)
                if is_withdrawal(message):
                    _receive_withdrawal(tx, link, claimant, message, answer)
                else:
                    _receive_join_request(tx, link, claimant, message, answer, None)
                return


class _RequestBody(msgspec.Struct, frozen=True):
    member: Did
    label: Annotated[str, msgspec.Meta(max_length=256)] = ""


def _receive_exchange_request(tx: Transaction, link: bytes, opened: OpenedMessage, answer: ReplyPath) -> None:
    open_ = tx.agent.invitations[link]
    group, request = tx.group(open_.group), opened.message
    if request.pthid != open_.invitation.pthid:
        raise Refused(why="an exchange request for another invitation")
    member, claimant = read_body(request, _RequestBody).member, short_form(opened.sender)
    claim = open_.claims.get(claimant)
    if tx.agent.reach is None or (claim is not None and claim.relationship.member != member):
        raise Refused(why="a second member key for the same joiner")
    if claim is None:
        claim = _restore_claim(tx, link, claimant)
    if claim is None:
        identity = pairing.pair_identity(tx, group)
        relationship = Relationship(member, identity, opened.sender, request.id, "", requester=False)
        why = _exchange_rejection_code(tx, open_, group, member)
        if why:
            answer(relationship.theirs, problem_report(tx, open_, relationship, why, request.id))
            return
        claim = put_claim(tx, link, claimant, Claim(relationship, claimed_at=tx.now))
    relationship = claim.relationship
    if group.state != "active":
        answer(relationship.theirs, problem_report(tx, open_, relationship, "e.p.req.closed", request.id))
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
        request, relationship.mine, prior, body, now_s=tx.now // 1000, random=tx.context.random
    )
    answer(relationship.theirs, pack(relationship, response, tx.packer_of(group.id), tx.context.random))


def _exchange_rejection_code(tx: Transaction, open_: OpenInvitation, group: Group, member: str) -> str:
    """The problem code of why this invitation cannot be used (any more), or an empty string."""
    match open_.state_at(tx.now):
        case InvitationState.EXPIRED:
            return "e.p.req.time"
        case InvitationState.CLAIMED | InvitationState.USED_UP:
            return "e.p.req.used"
    if group.state != "active":
        return "e.p.req.closed"
    if stale_profile.is_suspended(group):
        return SUSPENDED_CODE
    if not has_seat_for(group.view, group.me):
        return "e.p.req.full"
    if member in group.view.members or member in group.view.former:
        return "e.p.msg"
    return ""


def _receive_leave(tx: Transaction, link: bytes, claimant: str, message: Message, answer: ReplyPath, size: int) -> None:
    """An admitted joiner leaves before it had a member link of its own (`cancellation.py`). Raises RemoteError."""
    open_ = tx.agent.invitations[link]
    claim, name = open_.claims[claimant], open_.group
    member = claim.relationship.member
    if member in tx.group(name).links.peers and rate_limits.spend_envelope(tx, name, member, size):
        receiving.receive_events(tx, name, member, read_body(message, EventsBody))
        decisions.enforce_decisions(tx, name)
    if member not in tx.group(name).view.members:
        reply = problem_report(tx, open_, claim.relationship, WITHDRAWN_CODE, message.pthid or message.id)
        answer(claim.relationship.theirs, reply)


def _restore_claim(tx: Transaction, link: bytes, claimant: str) -> Claim | None:
    """The claim of an admitted joiner that was evicted before it had its welcome; None: there is none."""
    group = tx.group(tx.agent.invitations[link].group)
    known = (one for one in group.links.relationships.values() if one.theirs and short_form(one.theirs) == claimant)
    relationship = next(known, None)
    if relationship is None or welcome.admission_event_of(group, relationship.member) is None:
        return None
    return put_claim(tx, link, claimant, Claim(relationship, admitted=True, claimed_at=tx.now))


def is_withdrawal(message: Message) -> bool:
    return message.type == PROBLEM and message.body.get("code") == WITHDRAWN_CODE


def _receive_withdrawal(tx: Transaction, link: bytes, claimant: str, message: Message, answer: ReplyPath) -> None:
    """A joiner cancels (`cancellation.py`). Before admission it returns its use of the invitation, a limited number of
    times. After admission only the joiner itself can sign that it leaves, and it needs its welcome for that."""
    if not is_withdrawal(message):
        return
    open_ = tx.agent.invitations[link]
    claim, group = open_.claims[claimant], tx.group(open_.group)
    member = claim.relationship.member
    if claim.admitted and member in group.view.members:
        send_welcome(tx, link, claimant, message.id, answer)
        return
    request = group.joining.requests.get(member)
    if request is not None and request.claimant == claimant and not request.refused:
        drop_request(tx, group.id, member)
        tx.emit(Notify(JoinRequestAnswered(group.id, member, request.label, admitted=False)))
    refused = request is not None and request.refused
    if not claim.admitted and not refused and open_.returned_uses < RETURNED_USES_MAX:
        open_ = replace(drop_claim(tx, link, claimant), returned_uses=open_.returned_uses + 1)
        tx.update_agent(invitations={**tx.agent.invitations, link: open_})
    reply = problem_report(tx, open_, claim.relationship, WITHDRAWN_CODE, message.pthid or message.id)
    answer(claim.relationship.theirs, reply)


# --- admission ------------------------------------------------------------------------------------------------------


def _receive_join_request(
    tx: Transaction, link: bytes, claimant: str, message: Message, answer: ReplyPath, handle: bytes | None
) -> None:
    open_ = tx.agent.invitations[link]
    relationship = open_.claims[claimant].relationship
    body = read_body(message, JoinRequestBody)
    group = tx.group(open_.group)
    if body.group != group.id or body.member != relationship.member:
        raise Refused(why="a join request that does not match its exchange")
    # Check members too: another party that claimed its key in time learns nothing of the group.
    check_proof(body.proof, body.member, group.id, relationship.theirs, open_.invitation.did, group.me)
    if body.member in group.view.removed:  # perhaps before it received its welcome
        answer(relationship.theirs, problem_report(tx, open_, relationship, "e.p.req.removed", message.id))
        return
    if body.member in group.view.former:
        raise Refused(why="a join request by a former member")  # a late copy: a key is added only once
    if body.member not in group.view.members:
        check_possession(body.possession, body.transport, group.id, body.member)
        consented = (body.member, body.label, body.contact, body.role, body.transport)
        check_consent(body.consent, group.id, group.me, *consented)
        reach_of_did(body.contact)
        if fault_of(body.label):
            raise Malformed(why="join-request: a name with characters that cannot be displayed")
        code = rejection_code(tx, open_, group, body)
        if not code and group.view.policy.join == "ask":
            code = add_request(tx, link, claimant, message, body, handle)
            if not code:
                answer(relationship.theirs, pending_reply(tx, relationship, group.id, body.member))
                return
        if code:
            answer(relationship.theirs, problem_report(tx, open_, relationship, code, message.id))
            return
        admit_joiner(tx, link, claimant, body)
    send_welcome(tx, link, claimant, message.id, answer)
