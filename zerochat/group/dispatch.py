"""Inbound dispatch: an envelope goes to the handler of its link, or of the key ids in its header (mail)."""

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
from zerochat.group.dcgka import complaints, ring_receiver
from zerochat.group.dcgka import receiver as sealed_messages
from zerochat.group.effects import Measure
from zerochat.group.event_log import receiving
from zerochat.group.external import (
    connections,
    key_mediation,
    mailbox_shares,
    mediators,
    relayed_posts,
    sending,
    sessions,
    short_links,
    standard_protocols,
)
from zerochat.group.files import download, upload
from zerochat.group.joining import inviter, joiner, member_connections, private_invitations
from zerochat.group.key_modes.dcgka import is_sealed
from zerochat.group.key_modes.deniable import is_tagged
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.links import (
    content_keys,
    hosts,
    mediator_mail,
    mediator_proof,
    mediator_receipts,
    neighbours,
    pairing,
    peers,
    rate_limits,
    ring_links,
    shared_mailboxes,
)
from zerochat.group.links.relationship import Relationship
from zerochat.group.membership import decisions, fork_proof, leave
from zerochat.group.messages import indicators
from zerochat.group.signed_streams import receiver
from zerochat.group.state import Agent, Group, PeerRef
from zerochat.group.sync import acknowledgements, aggregation, fork_detection, history_requests
from zerochat.group.tlog import follower
from zerochat.group.tlog.dispatch import receive_tlog_message
from zerochat.group.transaction import Transaction
from zerochat.group.wire.envelope import OpenedMessage, open_first
from zerochat.group.wire.files import (
    FILE_MESSAGES,
    FILE_PART,
    FILE_REQUEST,
    FILE_UNAVAILABLE,
    FilePartBody,
    FileRequestBody,
    FilesAvailableBody,
    FileUnavailableBody,
)
from zerochat.group.wire.frame import is_frame
from zerochat.group.wire.messages import (
    ACK_SETS,
    CONTENT,
    EVENTS,
    FORK_PROOF,
    HISTORY_REQUEST,
    HISTORY_RESPONSE,
    JOIN_REQUEST,
    KEY_COMPLAINT,
    KEY_EVENTS,
    MEMBER_CONNECTIONS,
    PRIVATE_INVITATION,
    READ,
    RECONCILE,
    ROUTED,
    SEALED,
    SIGNED,
    STATUS,
    SYNC,
    TYPING,
    AckSetsBody,
    EventsBody,
    ForkProofBody,
    HistoryRequestBody,
    HistoryResponseBody,
    KeyComplaintBody,
    KeyEventsBody,
    MemberConnectionsBody,
    PrivateInvitationBody,
    ReadBody,
    ReconcileBody,
    RoutedBody,
    SealedBody,
    SignedBody,
    StatusBody,
    SyncBody,
    TypingBody,
    read_body,
)
from zerochat.group.wire.tlog import TLOG_MESSAGES


def link_owner(agent: Agent, link: bytes) -> tuple[str, str] | None:
    """The group and the member that own a link; None: no member does."""
    for name, group in agent.groups.items():
        member = group.links.index.by_link.get(link)
        if member is not None:
            return name, member
    return None


def receive(tx: Transaction, link: bytes, envelope: bytes, handle: bytes | None, host: bytes = b"") -> None:
    """Handle an envelope that arrived over a link. `host`: as in `Received`. Raises RemoteError."""
    if link in tx.agent.invitations:
        inviter.receive_from_joiner(tx, link, envelope, handle)
        return
    if link in tx.agent.joins:
        joiner.receive_from_inviter(tx, link, envelope)
        return
    if link in tx.agent.joiner_links:
        inviter.receive_from_joiner(tx, tx.agent.joiner_links[link], envelope, handle, called=link)
        return
    owner = link_owner(tx.agent, link)
    if owner is None and (unlinked := ring_links.unlinked_owner(tx.agent, link)) is not None:
        owner = unlinked if ring_links.accept(tx, *unlinked) else None
    if owner is None:
        raise Refused(why="an envelope over a link that is closed, or that overtakes the welcome to its group")
    _receive_from_member(tx, *owner, envelope, host)


def _receive_from_member(tx: Transaction, name: str, member: str, envelope: bytes, host: bytes = b"") -> None:
    """Handle an envelope from another member: a group message, or the DID exchange that precedes them."""
    those = hosts.candidates(tx.group(name), member, host)
    if is_forwarded(envelope):
        sealed_messages.receive_forwarded(tx, name, member, envelope)
        leave.finish_leaving(tx, name)
        member_connections.update_progress(tx, name)
        return
    payer = next((did for did in those if rate_limits.spend_envelope(tx, name, did, len(envelope))), None)
    if payer is None:
        return
    authors = hosts.possible_authors(tx, name, those, envelope, payer)
    group, member = tx.group(name), authors[0]
    relationship = group.links.relationships.get(member)
    if is_signed(envelope):
        receiver.receive_signed(tx, name, member, envelope)
        leave.finish_leaving(tx, name)
        member_connections.update_progress(tx, name)
        return
    if is_sealed(envelope) or is_tagged(envelope):
        sealed_messages.receive_sealed(tx, name, member, envelope)
        leave.finish_leaving(tx, name)
        member_connections.update_progress(tx, name)
        return
    if (owner := _open_in_relationship(tx, group, member, envelope)) is not None:
        relationship, message = owner
        if message is not None:
            _handle_opened(tx, name, member, relationship, message, len(envelope))
        mediator_proof.credit(tx, f"{name} {member}", len(envelope))
        peers.handle_answer(tx, name, member, host)
        leave.finish_leaving(tx, name)
        decisions.enforce_decisions(tx, name)
        member_connections.update_progress(tx, name)
        return
    if is_frame(envelope):
        raise Unauthentic()  # received before its keys; it is retransmitted
    identities = [group.contact] + ([relationship.mine] if relationship else [])
    opened = open_first(identities, envelope, tx.packer_of(name))
    claimed_member = opened.message.body.get("member")
    if isinstance(claimed_member, str) and claimed_member in authors:
        member = claimed_member
    _receive_exchange(tx, name, member, opened)
    mediator_proof.credit(tx, f"{name} {member}", len(envelope))
    peers.handle_answer(tx, name, member, host)
    member_connections.update_progress(tx, name)


def _receive_exchange(tx: Transaction, name: str, member: str, opened: OpenedMessage) -> None:
    """Handle a message of the DID exchange and the sync embedded in it. Raises RemoteError if the exchange itself is
    invalid: an invalid sync is dropped and sent again."""
    sync = pairing.receive_exchange(tx, name, member, opened)
    if sync is not None:
        with tx.attempt():
            _handle_sync(tx, name, member, sync)
        leave.finish_leaving(tx, name)
        decisions.enforce_decisions(tx, name)
    if opened.message.type == exchange.RESPONSE:
        pairing.schedule_greeting(tx, name, member)


def _open_in_relationship(
    tx: Transaction, group: Group, member: str, envelope: bytes
) -> tuple[Relationship, Message | None] | None:
    """Open an envelope in the present relationship with a member, or in one that was offered to it and that it takes up
    by that. No message if taking it up fails; None: neither opens it."""
    packer = tx.packer_of(group.id)
    for offer in group.links.offers.get(member, ()):
        with suppress(Unauthentic, Malformed):
            relationship, message = group.mode.open(group.own_place, envelope, offer.relationship, packer)
            taken_up = relationship.established and pairing.take_up_offer(tx, group.id, relationship)
            return relationship, message if taken_up else None
    known = group.links.relationships.get(member)
    if known is not None and known.established:
        with suppress(Unauthentic):
            relationship, message = group.mode.open(group.own_place, envelope, known, packer)
            pairing.update_relationship(tx, group.id, relationship)
            return relationship, message
    return None


def _handle_opened(
    tx: Transaction, name: str, member: str, relationship: Relationship, message: Message, size: int
) -> None:
    """Open the seal of a message with content, where keys heal, and handle the message."""
    if relationship.established and message.type == CONTENT:
        inner = content_keys.opened(tx, name, member, message)
        if inner is None:
            acknowledgements.request_missing(tx, name, member)
            return
        message = inner
    elif tx.group(name).mode.heals and content_keys.has_content(message):
        raise Refused(why="content without a seal in a group whose keys heal")
    _handle_message(tx, name, member, relationship, message, size)


def _handle_message(
    tx: Transaction, name: str, member: str, relationship: Relationship, message: Message, size: int
) -> None:
    match message.type:
        case _ if not relationship.established:
            pass  # its last message ended the relationship
        case kind if kind == EVENTS:
            events = read_body(message, EventsBody)
            receiving.receive_events(tx, name, member, events)
            sealed_messages.settle(tx, name, member, events.sent)
        case kind if kind == SIGNED:
            receiver.receive_signed(tx, name, member, b64url_bytes(read_body(message, SignedBody).message))
        case kind if kind == SEALED:
            sealed = b64url_bytes(read_body(message, SealedBody).message)
            receive = sealed_messages.receive_forwarded if is_forwarded(sealed) else sealed_messages.receive_sealed
            receive(tx, name, member, sealed)
        case kind if kind == KEY_EVENTS:
            on_ring = neighbours.is_ring(tx.group(name))
            receive_key_events = (ring_receiver if on_ring else sealed_messages).receive_key_events
            receive_key_events(tx, name, member, read_body(message, KeyEventsBody))
        case kind if kind == ROUTED:
            ring_receiver.receive_routed(tx, name, member, read_body(message, RoutedBody))
        case kind if kind == KEY_COMPLAINT:
            complaints.receive(tx, name, member, read_body(message, KeyComplaintBody))
        case kind if kind == STATUS:
            receiving.receive_status(tx, name, member, read_body(message, StatusBody))
        case kind if kind == SYNC:
            _handle_sync(tx, name, member, message)
        case kind if kind == ACK_SETS:
            _handle_ack_sets(tx, name, member, read_body(message, AckSetsBody))
        case kind if kind == HISTORY_REQUEST:
            history_requests.receive_request(tx, name, member, message, read_body(message, HistoryRequestBody))
        case kind if kind == HISTORY_RESPONSE:
            if history_requests.receive_response(tx, name, member, message, read_body(message, HistoryResponseBody)):
                rate_limits.refund_envelope(tx, name, member, size)
        case kind if kind == RECONCILE:
            fork_detection.receive_comparison(tx, name, member, message, read_body(message, ReconcileBody))
        case kind if kind == FORK_PROOF:
            fork_proof.receive_proof(tx, name, member, read_body(message, ForkProofBody))
        case kind if kind in FILE_MESSAGES:
            _handle_file_message(tx, name, member, message, size)
        case kind if kind in TLOG_MESSAGES:
            receive_tlog_message(tx, name, member, message)
        case kind if kind == MEMBER_CONNECTIONS:
            member_connections.receive_connections_report(tx, name, member, read_body(message, MemberConnectionsBody))
        case kind if kind == PRIVATE_INVITATION:
            private_invitations.receive(tx, name, member, read_body(message, PrivateInvitationBody))
        case kind if kind == TYPING:
            indicators.receive_typing(tx, name, member, read_body(message, TypingBody))
        case kind if kind == READ:
            indicators.receive_read_receipt(tx, name, member, read_body(message, ReadBody))
        case kind if kind == JOIN_REQUEST or inviter.is_withdrawal(message):
            inviter.receive_repeated_request(tx, name, member, message)
        case _:
            standard_protocols.receive_message(tx, PeerRef(name, member), message, relationship)


def _handle_file_message(tx: Transaction, name: str, member: str, message: Message, size: int) -> None:
    match message.type:
        case kind if kind == FILE_REQUEST:
            upload.receive_request(tx, name, member, read_body(message, FileRequestBody))
        case kind if kind == FILE_PART:
            download.receive_part(tx, name, member, read_body(message, FilePartBody), size)
        case kind if kind == FILE_UNAVAILABLE:
            download.receive_unavailable(tx, name, member, read_body(message, FileUnavailableBody))
        case _:
            upload.receive_available(tx, name, member, read_body(message, FilesAvailableBody))


def _handle_ack_sets(tx: Transaction, name: str, member: str, body: AckSetsBody) -> None:
    if body.group != name or not neighbours.is_ring(tx.group(name)):
        raise Refused(why="acknowledgement sets for another group, or one that is no ring")
    acknowledgements.record_state(tx, name, member, body)
    aggregation.receive(tx, name, member, body.view, body.ack_sets)


def _handle_sync(tx: Transaction, name: str, member: str, message: Message) -> None:
    body = read_body(message, SyncBody)
    member_connections.receive_attestation(tx, name, member, body)
    receiving.receive_sync(tx, name, member, body)
    if body.guest:
        ring_links.settle_glare(tx, name, member)
    if tx.group(name).mode.heals:
        sealed_messages.receive_sync(tx, name, member, body)
    if body.tlog_size:
        follower.handle_reported_size(tx, name, member, body.tlog_size)
    fork_detection.compare_heads(tx, name, member, message.id, body)
    private_invitations.resend(tx, name, member)
    receiver.drain_buffer(tx, name, member)


Via: TypeAlias = Literal["web", "mediator"] | mediator_mail.KeyOwner
"""How an envelope arrived: posted to us, fetched from a mediator, or in a forward to this mailbox or connection."""


def receive_web(
    tx: Transaction,
    envelope: bytes,
    handle: int | None,
    via: Via = "web",
    depth: int = routing.UNWRAP_DEPTH_MAX,
    *,
    is_session: bool = False,
) -> None:
    """Handle an envelope that arrived over the web: its key ids name the recipient. It may also be a mediator receipt.
    Raises RemoteError."""
    tx.is_mail = True
    if via == "web" and mediator_receipt.is_receipt(envelope):
        mediator_receipts.receive_receipt(tx, envelope)
        return
    kind, kids = addressed_to(envelope)
    if via == "mediator" and (shared := shared_mailboxes.owner_of(tx.agent, kids)) is not None:
        _receive_shared(tx, *shared, envelope)
        return
    packer = tx.packer(kind)
    kid, owner = mediator_mail.owner_of(tx, packer, kids)
    if not _is_allowed_over(tx, owner, via):
        raise Refused(why="mail over a route of another recipient")
    if owner.kind in ("contact", "member", "join", "invitation") and kind != _expected_envelope(tx, owner):
        raise Refused(why="an envelope in another format than the group's")
    match owner.kind:
        case "mailbox":
            _receive_forwarded(tx, mediator_mail.open_forward(packer, envelope, kid, owner), owner, depth)
        case "member":
            _receive_mail(tx, owner.group, owner.member, envelope)
        case "contact":
            opened = open_first([tx.group(owner.group).contact], envelope, packer)
            member = opened.message.body.get("member")
            if not isinstance(member, str) or member not in tx.group(owner.group).links.peers:
                raise Refused(why="a DID exchange request from a non-member")
            if rate_limits.spend_envelope(tx, owner.group, member, len(envelope)):
                _receive_exchange(tx, owner.group, member, opened)
                mediator_proof.credit(tx, f"{owner.group} {member}", len(envelope))
            member_connections.update_progress(tx, owner.group)
        case "invitation":
            mediator_proof.credit(tx, owner.link.hex(), len(envelope))
            inviter.receive_from_joiner(tx, owner.link, envelope, None, mailed=True)
        case "join":
            mediator_proof.credit(tx, owner.link.hex(), len(envelope))
            joiner.receive_from_inviter(tx, owner.link, envelope)
        case "connection":
            if inner := mediator_mail.rewrapped(packer, envelope, kid, owner):
                _receive_forwarded(tx, inner, owner, depth)
            else:
                _receive_from_connection(tx, owner.connection, envelope, handle, is_session=is_session)
        case "probe":
            mediator_mail.receive_proof(tx, owner.payer, envelope)
        case _:
            assert_never(owner.kind)


def _receive_forwarded(tx: Transaction, envelopes: tuple[bytes, ...], via: mediator_mail.KeyOwner, depth: int) -> None:
    """Handle the envelopes in a forward to us."""
    if depth == 0:
        raise Malformed(why="nested forwards beyond the limit")
    for envelope in envelopes:
        receive_web(tx, envelope, None, via, depth - 1)


def _receive_mail(tx: Transaction, name: str, member: str, envelope: bytes) -> None:
    """Handle an envelope of a member from a mailbox. A rejected one counts against its sender's rate limits, as one
    that came over a link does (`engine.py`)."""
    spent_us = tx.work_us
    try:
        with tx.savepoint():
            _receive_from_member(tx, name, member, envelope)
            mediator_mail.seek(tx, name, member, earned=True)
    except RemoteError as error:
        tx.emit(Measure("dropped", error.code))
        if rate_limits.spend_envelope(tx, name, member, len(envelope)):
            rate_limits.settle_work(tx, name, member, tx.work_us - spent_us)


def _receive_shared(tx: Transaction, name: str, box: shared_mailboxes.SharedBox, envelope: bytes) -> None:
    """Handle an envelope to a shared mailbox of ours, which pays for it until its author is known."""
    ours, spent_us = tx.group(name).me, tx.work_us
    if rate_limits.is_exhausted(tx, name, ours):
        return
    try:
        with tx.savepoint():
            message = shared_mailboxes.opened(tx, name, box, envelope)
            sealed_messages.receive_forwarded(tx, name, ours, message, box)
            leave.finish_leaving(tx, name)
            member_connections.update_progress(tx, name)
    except RemoteError as error:
        tx.emit(Measure("dropped", error.code))
        if rate_limits.spend_envelope(tx, name, ours, len(envelope)):
            rate_limits.settle_work(tx, name, ours, tx.work_us - spent_us)


def _is_allowed_over(tx: Transaction, owner: mediator_mail.KeyOwner, via: Via) -> bool:
    """Whether we announced this route for this recipient.

    Otherwise a member of two groups could test whether one agent is in both, by writing to its DID of one group over
    its route of the other.
    """
    match via:
        case "web":
            return owner.kind in ("connection", "probe")
        case "mediator":
            return owner.kind == "mailbox" or _is_mediated_by_key(tx, owner)
        case mediator_mail.KeyOwner(kind="connection", connection=name):
            return owner.kind == "connection" and owner.connection == name
        case _:
            return owner.kind not in ("connection", "probe") and mediator_mail.may_be_in(tx.agent, owner, via)


def _is_mediated_by_key(tx: Transaction, owner: mediator_mail.KeyOwner) -> bool:
    return owner.kind == "connection" and key_mediation.is_mediated(tx.agent.connections[owner.connection])


def _expected_envelope(tx: Transaction, owner: mediator_mail.KeyOwner) -> str:
    if owner.kind == "invitation":
        return tx.agent.invitations[owner.link].invitation.envelope
    if owner.kind == "join":
        return tx.agent.joins[owner.link].invitation.envelope
    return tx.group(owner.group).profile.envelope


def _receive_from_connection(
    tx: Transaction, name: str, envelope: bytes, handle: int | None, *, is_session: bool
) -> None:
    before = tx.agent.connections[name].relationship
    message = connections.receive_envelope(tx, name, envelope, handle)
    mediators.handle_rotation(tx, name, before)
    with tx.attempt():
        standard_protocols.answer_invitation(tx, name)
    if message is None:
        return
    if is_session and handle is not None:
        with tx.attempt():
            sessions.receive(tx, name, message, handle)
    reply_handle = sending.usable_handle(tx, name, handle) if message.return_route in ("all", "thread") else None
    if standard_protocols.refuse_expired(tx, PeerRef(connection=name), message, reply_handle):
        return
    if short_links.receive(tx, name, message) or mailbox_shares.receive(tx, name, message):
        return
    if relayed_posts.receive(tx, name, message, lambda inner: receive_web(tx, inner, None)):
        return
    if mediators.receive_mediation(tx, name, message, lambda inner: receive_web(tx, inner, None, "mediator")):
        return
    relationship = tx.agent.connections[name].relationship
    standard_protocols.receive_message(tx, PeerRef(connection=name), message, relationship, reply_handle)
