"""From an envelope to whoever it is for: over a link, whose owner is known, or by mail, where its key ids say it."""

from contextlib import suppress
from typing import Literal, TypeAlias, assert_never

from zerochat.crypto.encoding import b64url_bytes
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import addressed_to
from zerochat.didcomm.protocols import exchange, mediator_receipt, routing
from zerochat.errors import (
    Malformed,
    Refused,
    RemoteError,
    Unauthentic,
)
from zerochat.group.effects import Measure
from zerochat.group.event_log import log
from zerochat.group.external import connections, mediators, questions
from zerochat.group.files import download, upload
from zerochat.group.joining import inviter, joiner, member_connections
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.links import mediator_mail, mediator_receipts, pairing, peers, rate_limits
from zerochat.group.links.relationship import Relationship
from zerochat.group.membership import decisions, fork_proof, leave
from zerochat.group.messages import ephemeral
from zerochat.group.signed_streams import receiver
from zerochat.group.state import Agent, Group, Whom
from zerochat.group.sync import fork_detection, history_requests
from zerochat.group.tlog import dispatch as log_hearing
from zerochat.group.tlog import follower
from zerochat.group.transaction import Turn
from zerochat.group.wire.envelope import Opened, open_first
from zerochat.group.wire.ephemeral import READ, TYPING, ReadBody, TypingBody
from zerochat.group.wire.files import (
    FILE_ASK,
    FILE_HAVE,
    FILE_LACK,
    FILE_PART,
    FileAskBody,
    FileHaveBody,
    FileLackBody,
    FilePartBody,
)
from zerochat.group.wire.frame import is_frame
from zerochat.group.wire.messages import (
    COMPARE,
    EVENTS,
    JOIN_REQUEST,
    NEED,
    PROOF,
    SEATING,
    SHARE,
    SIGNED,
    STATUS,
    SYNC,
    CompareBody,
    EventsBody,
    NeedBody,
    ProofBody,
    SeatingBody,
    ShareBody,
    SignedBody,
    StatusBody,
    SyncBody,
    read_body,
)
from zerochat.group.wire.tlog import LOG_MESSAGES


def whose(agent: Agent, link: bytes) -> tuple[str, str] | None:
    """The group and the member behind a link."""
    for name, group in agent.groups.items():
        for member, peer in group.peers.items():
            if peer.link == link:
                return name, member
    return None


def receive(turn: Turn, link: bytes, envelope: bytes, handle: bytes | None) -> None:
    if link in turn.agent.invitations:
        inviter.hear_knock(turn, link, envelope, handle)
        return
    if link in turn.agent.joins:
        joiner.hear_answer(turn, link, envelope)
        return
    if link in turn.agent.calls:
        inviter.hear_knock(turn, turn.agent.calls[link], envelope, handle, called=link)
        return
    found = whose(turn.agent, link)
    if found is None:
        raise Unauthentic()
    _hear_member(turn, *found, envelope)


def _hear_member(turn: Turn, name: str, member: str, envelope: bytes) -> None:
    """An envelope from another member of a group: the group's own messages, or the exchange that precedes them."""
    if not rate_limits.spend(turn, name, member, len(envelope)):
        return
    group = turn.group(name)
    relationship = group.relationships.get(member)
    if is_signed(envelope):
        receiver.hear(turn, name, member, envelope)
        leave.settle(turn, name)
        member_connections.progress_all(turn, name)
        return
    if (found := _opened(turn, group, member, envelope)) is not None:
        relationship, message = found
        if message is not None:
            _hear_message(turn, name, member, relationship, message, len(envelope))
        leave.settle(turn, name)
        decisions.settle(turn, name)
        member_connections.progress_all(turn, name)
        return
    if is_frame(envelope):
        raise Unauthentic()  # it has come before we could read it, and comes again
    identities = [group.contact] + ([relationship.mine] if relationship else [])
    opened = open_first(identities, envelope, turn.packer_of(name))
    there = opened.message.body.get("member")
    if isinstance(there, str) and there != member and there in group.peers:
        peers.hear_another(turn, name, member, there, opened)
    else:
        _hear_exchange(turn, name, member, opened)
    member_connections.progress_all(turn, name)


def _hear_exchange(turn: Turn, name: str, member: str, opened: Opened) -> None:
    """A message of the exchange, and what it brings with it. Raises RemoteError where it is the first that is wrong:
    what comes with that can be said again."""
    said = pairing.hear_exchange(turn, name, member, opened)
    if said is not None:
        before, effects = turn.agent, len(turn.effects)
        try:
            _hear_sync(turn, name, member, said)
        except RemoteError as error:
            turn.agent = before
            del turn.effects[effects:]
            turn.say(Measure("dropped", error.code))
        leave.settle(turn, name)
        decisions.settle(turn, name)
    if opened.message.type == exchange.RESPONSE:
        pairing.greet_soon(turn, name, member)


def _opened(turn: Turn, group: Group, member: str, envelope: bytes) -> tuple[Relationship, Message | None] | None:
    """What a member has said in the relationship that we have with it, or in one that it was offered and takes up by
    that; no message, where that does not come about. None: in neither."""
    packer = turn.packer_of(group.id)
    for offer in group.offers.get(member, ()):
        with suppress(Unauthentic, Malformed):
            after, message = group.mode.open(group.place, envelope, offer.relationship, packer)
            heard = after.established and pairing.taken_up(turn, group.id, after)
            return after, message if heard else None
    known = group.relationships.get(member)
    if known is not None and known.established:
        with suppress(Unauthentic):
            after, message = group.mode.open(group.place, envelope, known, packer)
            pairing.heard(turn, group.id, after)
            return after, message
    return None


def _hear_message(turn: Turn, name: str, member: str, relationship: Relationship, message: Message, size: int) -> None:
    match message.type:
        case _ if not relationship.established:
            pass  # its last word: whatever else it says has nobody who says it
        case kind if kind == EVENTS:
            log.hear(turn, name, member, read_body(message, EventsBody))
        case kind if kind == SIGNED:
            receiver.hear(turn, name, member, b64url_bytes(read_body(message, SignedBody).message))
        case kind if kind == STATUS:
            log.hear_status(turn, name, member, read_body(message, StatusBody))
        case kind if kind == SYNC:
            _hear_sync(turn, name, member, message)
        case kind if kind == NEED:
            history_requests.hear_need(turn, name, member, message, read_body(message, NeedBody))
        case kind if kind == SHARE:
            if history_requests.hear_share(turn, name, member, message, read_body(message, ShareBody)):
                rate_limits.give_back(turn, name, member, size)
        case kind if kind == COMPARE:
            fork_detection.hear(turn, name, member, message, read_body(message, CompareBody))
        case kind if kind == PROOF:
            fork_proof.hear(turn, name, member, read_body(message, ProofBody))
        case kind if kind == FILE_ASK:
            upload.hear_ask(turn, name, member, read_body(message, FileAskBody))
        case kind if kind == FILE_PART:
            download.hear_part(turn, name, member, read_body(message, FilePartBody), size)
        case kind if kind == FILE_LACK:
            download.hear_lack(turn, name, member, read_body(message, FileLackBody))
        case kind if kind == FILE_HAVE:
            upload.hear_have(turn, name, member, read_body(message, FileHaveBody))
        case kind if kind in LOG_MESSAGES:
            log_hearing.hear(turn, name, member, message)
        case kind if kind == SEATING:
            member_connections.hear_seating(turn, name, member, read_body(message, SeatingBody))
        case kind if kind == TYPING:
            ephemeral.hear_typing(turn, name, member, read_body(message, TypingBody))
        case kind if kind == READ:
            ephemeral.hear_read(turn, name, member, read_body(message, ReadBody))
        case kind if kind == JOIN_REQUEST or inviter.is_withdrawal(message):
            inviter.hear_again(turn, name, member, message)
        case _:
            questions.hear(turn, Whom(name, member), message, relationship)


def _hear_sync(turn: Turn, name: str, member: str, message: Message) -> None:
    body = read_body(message, SyncBody)
    member_connections.hear_heads(turn, name, member, body)
    log.hear_sync(turn, name, member, body)
    if body.log:
        follower.told(turn, name, member, body.log)
    fork_detection.hear_tips(turn, name, member, message.id, body)
    receiver.follow(turn, name, member)


Via: TypeAlias = Literal["web", "mediator"] | mediator_mail.Owner
"""What an envelope came over: posted to us, fetched from a mediator, or out of this mailbox."""


def hear_mail(
    turn: Turn, envelope: bytes, handle: int | None, via: Via = "web", depth: int = routing.UNWRAP_DEPTH_MAX
) -> None:
    """An envelope that came over the web: whose it is, its key ids say. Or a mediator's held receipt. Raises
    RemoteError."""
    if via == "web" and mediator_receipt.may_be(envelope):
        mediator_receipts.hear(turn, envelope)
        return
    kind, kids = addressed_to(envelope)
    packer = turn.packer(kind)
    kid, owner = mediator_mail.owner_of(turn, packer, kids)
    if not _may_come(turn, owner, via):
        raise Refused(why="mail that has come on a way of somebody else's")
    if owner.kind in ("contact", "member", "join", "knock") and kind != _envelope_of(turn, owner):
        raise Refused(why="an envelope of another kind than the group's")
    match owner.kind:
        case "mailbox":
            if depth == 0:
                raise Malformed(why="forwards inside forwards")
            for inner in mediator_mail.open_forward(packer, envelope, kid, owner):
                hear_mail(turn, inner, None, owner, depth - 1)
        case "member":
            _hear_member(turn, owner.group, owner.member, envelope)
        case "contact":
            opened = open_first([turn.group(owner.group).contact], envelope, packer)
            member = opened.message.body.get("member")
            if not isinstance(member, str) or member not in turn.group(owner.group).peers:
                raise Refused(why="a request for an exchange by somebody who is not a member")
            if rate_limits.spend(turn, owner.group, member, len(envelope)):
                _hear_exchange(turn, owner.group, member, opened)
            member_connections.progress_all(turn, owner.group)
        case "knock":
            inviter.hear_knock(turn, owner.link, envelope, None, mailed=True)
        case "join":
            joiner.hear_answer(turn, owner.link, envelope)
        case "connection":
            _hear_connection(turn, owner.connection, envelope, handle)
        case _:
            assert_never(owner.kind)


def _may_come(turn: Turn, owner: mediator_mail.Owner, via: Via) -> bool:
    """Whether somebody who knows this way was told of it by us as whoever the envelope is for.

    Else anybody in two groups could find out who is in both, by writing to a member of one on the way to a member of
    the other.
    """
    match via:
        case "web":
            return owner.kind == "connection"
        case "mediator":
            return owner.kind == "mailbox"
        case _:
            return owner.kind != "connection" and mediator_mail.belongs(turn.agent, owner, via)


def _envelope_of(turn: Turn, owner: mediator_mail.Owner) -> str:
    if owner.kind == "knock":
        return turn.agent.invitations[owner.link].invitation.envelope
    if owner.kind == "join":
        return turn.agent.joins[owner.link].invitation.envelope
    return turn.group(owner.group).profile.envelope


def _hear_connection(turn: Turn, name: str, envelope: bytes, handle: int | None) -> None:
    before = turn.agent.connections[name].relationship
    message = connections.hear(turn, name, envelope, handle)
    mediators.moved(turn, name, before)
    if message is None:
        return
    if mediators.hear(turn, name, message, lambda inner: hear_mail(turn, inner, None, "mediator")):
        return
    relationship = turn.agent.connections[name].relationship
    back = handle if message.return_route in ("all", "thread") else None
    questions.hear(turn, Whom(connection=name), message, relationship, back)
