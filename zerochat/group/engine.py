"""The core's transition function: `step(agent, input, context) -> (agent, effects)`.

Pure: no clock, randomness, disk or network. The same function runs behind the sockets of `agent/`, in the simulator and
in the tests. A rejected message leaves the agent unchanged and is counted; a command that cannot be done is answered
with its error.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, assert_never

from zerochat.didcomm import PACKERS
from zerochat.didcomm.address_kinds import AddressKind, kind_of_host
from zerochat.didcomm.packer import Packer
from zerochat.errors import LocalError, Refused, RemoteError, Retry
from zerochat.group import clock_changes, commands, did_rotation, dispatch, retention
from zerochat.group.dcgka import receiver, ring_channels, routing
from zerochat.group.effects import CommandDone, CommandFailed, Effect, Rejected, SetTimer
from zerochat.group.event_log import own_events
from zerochat.group.external import (
    connections,
    mailbox_shares,
    mediators,
    outbox,
    relayed_posts,
    seclusion,
    short_links,
)
from zerochat.group.files import download, upload
from zerochat.group.inputs import (
    BatchEnded,
    ClockSet,
    CommandInput,
    FileFailed,
    FilesFound,
    FileVerified,
    HistoryRead,
    Input,
    LinkDown,
    LinkUp,
    MediatedOnly,
    OwnEventsRead,
    PartsRead,
    PartsStored,
    Received,
    Reconciled,
    Started,
    StepContext,
    TimerFired,
    TlogQueried,
    WebPostDelivered,
    WebPostFailed,
    WebReceived,
    WebSocketDown,
    WebSocketUp,
)
from zerochat.group.joining import (
    evidence,
    invitations,
    joiner,
    member_connections,
    private_conversations,
    private_invitations,
    requests,
)
from zerochat.group.links import (
    content_keys,
    mail_failures,
    mailboxes,
    mediator_mail,
    mediator_proof,
    neighbours,
    pairing,
    peers,
    rate_limits,
    ring_links,
)
from zerochat.group.links.contact import Reach
from zerochat.group.membership import leave
from zerochat.group.state import Agent, Group
from zerochat.group.sync import (
    acknowledgements,
    aggregation,
    anti_entropy,
    backfill,
    corroboration,
    fork_detection,
    history_requests,
    pull_requests,
    relay,
    stale_profile,
)
from zerochat.group.timer_kinds import START_DELAY_MS, TimerKind
from zerochat.group.tlog import operator, timers
from zerochat.group.tlog.dispatch import handle_query_result
from zerochat.group.transaction import Transaction

TIMER_RETRY_MS = 5_000
"""A timer whose handler was refused fires again after this time: many timers are set by their own handler only."""


class NotPossible(LocalError):
    """The group does not allow this now: {why}."""


class NotYet(LocalError):
    """{sentence}"""

    retry: ClassVar[Retry] = "later"


def step(
    agent: Agent, input_: Input, context: StepContext, packers: Mapping[str, Packer] = PACKERS
) -> tuple[Agent, list[Effect]]:
    """Apply one input to the agent. Never raises for anything that a peer or a user can cause.

    `packers` are the envelope formats by name; each group uses one of them.
    """
    if isinstance(input_, BatchEnded) and not any(group.log.unpublished for group in agent.groups.values()):
        return agent, []  # the usual case
    tx = Transaction(agent, context, packers)
    try:
        _apply(tx, input_)
        if tx.agent.clock_offset_ms != agent.clock_offset_ms:
            clock_changes.clamp_deadlines(tx)
        mediators.update_mailboxes(tx)
        short_links.update(tx)
        mailbox_shares.update(tx)
        if tx.agent.mediated_only:
            relayed_posts.divert(tx, agent)
    except RemoteError as error:
        if isinstance(input_, CommandInput):
            return agent, [CommandFailed(input_.ticket, _refusal(error))]
        again = [SetTimer(input_.key, TIMER_RETRY_MS)] if isinstance(input_, TimerFired) else []
        rejected = Transaction(agent, context, packers)
        if isinstance(input_, Received):
            _charge_rejected(rejected, input_, tx.work_us)
        return rejected.agent, [Rejected("dropped", error.code), *again]
    except LocalError as error:
        assert isinstance(input_, CommandInput)
        return agent, [CommandFailed(input_.ticket, error)]
    return tx.agent, tx.effects


def _charge_rejected(tx: Transaction, received: Received, work_us: int) -> None:
    """A rejected envelope, and the work on it, count against its sender's rate limits."""
    link, size = received.link, len(received.envelope)
    if (owner := dispatch.link_owner(tx.agent, link)) is not None:
        rate_limits.spend_envelope(tx, *owner, size)
        if work_us:
            rate_limits.settle_work(tx, *owner, work_us)
    elif link in tx.agent.joins:
        rate_limits.spend_inviter_envelope(tx, link, size)
        if work_us:
            rate_limits.settle_inviter_work(tx, link, work_us)
    elif (invitation := tx.agent.joiner_links.get(link, link)) in tx.agent.invitations:
        rate_limits.spend_join_envelope(tx, invitation, size)


def _apply(tx: Transaction, input_: Input) -> None:
    match input_:  # the most frequent first
        case Received(link, envelope, handle):
            dispatch.receive(tx, link, envelope, handle, input_.host)
        case TimerFired(key):
            _run_timer(tx, key)
        case BatchEnded():
            for group in tx.agent.groups.values():
                if group.log.unpublished:
                    own_events.sign_batch(tx, group.id)
                    with tx.attempt():
                        own_events.publish_batch(tx, group.id)
        case CommandInput(ticket, command):
            tx.emit(CommandDone(ticket, commands.handle_command(tx, command)))
        case Started():
            _apply_started(tx, input_)
        case MediatedOnly():
            seclusion.begin(tx)
        case ClockSet(by_ms):
            clock_changes.on_clock_set(tx, by_ms)
        case LinkUp(link):
            _update_link(tx, link, up=True)
        case LinkDown(link):
            _update_link(tx, link, up=False)
        case OwnEventsRead(group, member, records, messages):
            if group in tx.agent.groups and not member:
                private_conversations.move_posts(tx, group, records)
            elif group in tx.agent.groups:
                acknowledgements.send_retransmission(tx, group, member, records, messages)
        case HistoryRead():
            history_requests.send_response(tx, input_)
        case Reconciled():
            fork_detection.on_reconciled(tx, input_)
        case PartsRead():
            upload.send_parts(tx, input_)
        case PartsStored(group, file, upto):
            if group in tx.agent.groups:
                download.handle_stored(tx, group, file, upto)
        case FileVerified(group, file):
            if group in tx.agent.groups:
                download.handle_verified(tx, group, file)
        case FileFailed(group, file, why):
            if group in tx.agent.groups:
                download.handle_failure(tx, group, file, why)
        case TlogQueried():
            handle_query_result(tx, input_)
        case FilesFound(there):
            download.handle_files_found(tx, there)
        case WebReceived(envelope, handle):
            dispatch.receive_web(tx, envelope, handle, is_session=input_.is_session)
        case WebPostFailed(uri, reference):
            if uri:
                mail_failures.post_failed(tx, uri)
            outbox.post_failed(tx, reference, rejected=input_.rejected, retry_after_s=input_.retry_after_s)
        case WebPostDelivered(reference):
            outbox.post_delivered(tx, reference)
        case WebSocketUp(uri) | WebSocketDown(uri):
            _update_websocket(tx, uri, up=isinstance(input_, WebSocketUp))
        case _:
            assert_never(input_)


def _apply_started(tx: Transaction, started: Started) -> None:
    # One key serves all our groups: an agent that cannot be dialled does not announce it, and stays unlinkable.
    hidden = started.outbound_only or started.mediated_only
    reach = Reach(b"", None, None) if hidden else Reach(started.server_key, started.pair, started.queue)
    for name in tx.agent.groups if started.restored else ():
        stale_profile.start(tx, name)
    clock_changes.on_started(tx, started.rebooted)
    tx.update_agent(
        file_rules=started.file_rules,
        indicators=started.indicators,
        key_rotation=started.key_rotation,
        storage_rules=started.storage_rules,
        mail_rules=started.mail_rules,
        nearest=max(started.near_mediators, kind_of_host(started.pair.host) or AddressKind.PUBLIC),
        keep_ms=started.keep_ms,
        mediated_only=started.mediated_only,
    )
    _start(tx, reach, started.web)
    if started.cover_traffic:
        tx.set_timer(TimerKind.COVER_TRAFFIC, "", anti_entropy.cover_delay(tx))


def _refusal(error: RemoteError) -> LocalError:
    """The local form of a refusal: the reason alone, without the words about a peer."""
    if isinstance(error, stale_profile.OwnChainUncertain):
        return NotYet(sentence=error.sentence())
    return NotPossible(why=error.fields.get("why", error.sentence().removesuffix(".")))


# --- inputs ---------------------------------------------------------------------------------------------------------


def _start(tx: Transaction, reach: Reach, web: tuple[str, ...]) -> None:
    """The sockets are bound: allow and dial every known peer, and set the timers again. An error about one of them
    stops none of the others."""
    tx.update_agent(
        reach=reach,
        web_uris=web,
        links_up=frozenset(),
        websockets_up=frozenset(),
        endpoint_failures={},
        awaited_receipts={},
        peer_queries={},
        web_sessions={},
        joiner_links={},
        relayed_posts={},
        unrelaying=frozenset(),
    )
    mediator_proof.reset(tx)
    for name, one in list(tx.agent.connections.items()):
        connections.set_expiry(tx, name)
        outbox.resume(tx, name)
        if one.mediation is not None:
            with tx.attempt():
                mediators.begin_mediation(tx, name)
    for name, group in tx.agent.groups.items():
        if group.state != "left":
            _start_group(tx, name, group)
    for link in list(tx.agent.invitations):
        invitations.allow_joiners(tx, link)
    for link in list(tx.agent.joins):
        with tx.attempt():
            joiner.resume_join(tx, link)
    retention.schedule(tx)
    did_rotation.schedule(tx)


def _start_group(tx: Transaction, name: str, group: Group) -> None:
    for member in sorted(group.links.peers):
        with tx.attempt():
            _start_peer(tx, name, member)
    ring_links.allow_all(tx, name)
    pull_requests.reset(tx, name)
    tx.set_timer(TimerKind.ANTI_ENTROPY, name, START_DELAY_MS)
    tx.set_timer(TimerKind.RETRANSMIT, name, START_DELAY_MS)
    relay.schedule(tx, name)
    tx.set_timer(TimerKind.GAPS, name, START_DELAY_MS)
    tx.set_timer(TimerKind.BACKFILL, name, START_DELAY_MS)
    corroboration.schedule(tx, name)
    aggregation.start(tx, name, START_DELAY_MS)
    if any(one.state == "getting" for one in group.files.values()):
        # `FilesFound` is lost if the disk is full at start.
        tx.set_timer(TimerKind.DOWNLOAD, name, START_DELAY_MS)
    if group.view.has_tlog:
        tx.set_timer(TimerKind.TLOG, name, START_DELAY_MS)
    if group.sync.recovery:
        tx.set_timer(TimerKind.RECOVERY, name, 1)
    if group.trust.attestation_deadline:
        tx.set_timer(TimerKind.ATTESTATION, name, group.trust.attestation_deadline - tx.now)
    if group.joining.requests:
        tx.set_timer(TimerKind.JOIN_REQUESTS, name, 1)
    if group.joining.private or group.private is not None:
        tx.set_timer(TimerKind.PRIVATE_INVITATIONS, name, 1)
    if group.private is not None and group.private.moved_to:
        private_conversations.read_posts(tx, name)
    mailboxes.set_timer(tx, name)
    if group.mode.heals:
        tx.set_timer(TimerKind.KEY_ERASURE, name, START_DELAY_MS)
        tx.set_timer(TimerKind.KEY_EVENTS, name, START_DELAY_MS)
        if neighbours.is_ring(group):
            tx.set_timer(TimerKind.RING_CHANNELS, name, START_DELAY_MS)
            tx.set_timer(TimerKind.ROUTED, name, START_DELAY_MS)
    content_keys.set_timer(tx, name)
    if group.sync.acks_due:
        tx.set_timer(TimerKind.ACKNOWLEDGE, name, acknowledgements.ACK_DELAY_MS)
    for member in group.links.peers:
        pairing.schedule_greeting(tx, name, member)
    if group.state == "leaving":
        tx.set_timer(TimerKind.LEAVE, name, leave.LEAVE_MS_MAX)


def _start_peer(tx: Transaction, name: str, member: str) -> None:
    group = tx.group(name)
    peers.dial_peer(tx, name, member)
    pairing.retry_request(tx, name, member)
    if member in group.view.former:
        peers.begin_close(tx, name, member)
    elif member in group.view.members and mediator_mail.reach_of_member(group, member).pair is None:
        acknowledgements.send_sync(tx, name, member)  # no link will come up and trigger it


def _update_websocket(tx: Transaction, uri: str, up: bool) -> None:
    others = tx.agent.websockets_up - {uri}
    tx.update_agent(websockets_up=others | {uri} if up else others)
    for module in (mediators, relayed_posts):
        with tx.attempt():  # the WebSocket is up or down in any case
            (module.handle_websocket_up if up else module.handle_websocket_down)(tx, uri)


def _update_link(tx: Transaction, link: bytes, up: bool) -> None:
    agent = tx.agent
    if up == (link in agent.links_up):
        return
    tx.update_agent(links_up=agent.links_up | {link} if up else agent.links_up - {link})
    with tx.attempt():  # the link is up or down in any case
        _handle_link_change(tx, link, up)


def _handle_link_change(tx: Transaction, link: bytes, up: bool) -> None:
    if link in tx.agent.joins:
        if up:
            joiner.link_up(tx, link)
        return
    found = dispatch.link_owner(tx.agent, link)
    if found is None and up and (unlinked := ring_links.unlinked_owner(tx.agent, link)) is not None:
        ring_links.accept(tx, *unlinked)
    elif found is not None:
        name, member = found
        (peers.handle_link_up if up else peers.handle_link_down)(tx, name, member)
        if up:
            relay.schedule(tx, name)
        member_connections.update_progress(tx, name)


def _run_timer(tx: Transaction, key: str) -> None:
    """Run a timer of an earlier batch; its subject may be gone by now."""
    word, _, rest = key.partition(" ")
    name, *more = rest.split(" ")
    try:
        kind = TimerKind(word)
    except ValueError:
        raise Refused(why=f"an unknown timer {word}") from None
    match kind:
        case TimerKind.WEB_RETRY:
            mail_failures.retry_uri(tx, name)
        case TimerKind.RETENTION:
            retention.run_round(tx)
        case TimerKind.ROTATION:
            did_rotation.run_round(tx)
        case TimerKind.RELAYED_POSTS:
            relayed_posts.handle_timer(tx)
        case TimerKind.MEDIATOR_PROOF:
            payer = " ".join([name, *more])
            group = tx.agent.groups.get(name)
            if mediator_proof.handle_timer(tx, payer) and group is not None and more[0] in group.links.peers:
                mediator_mail.seek(tx, name, more[0])
        case TimerKind.COVER_TRAFFIC:
            anti_entropy.send_cover_traffic(tx)
        case TimerKind.MEDIATOR:
            mediators.poll_mediator(tx, name)
        case TimerKind.EXTERNAL_OUTBOX:
            outbox.handle_timer(tx, name)
        case TimerKind.CONNECTION_INVITATION:
            connections.expire_invitation(tx, name)
        case TimerKind.JOINER_LINK:
            invitations.disconnect_joiner(tx, bytes.fromhex(name))
        case TimerKind.INVITATION:
            invitations.expire_invitation(tx, bytes.fromhex(name))
        case TimerKind.JOIN:
            joiner.retry_join(tx, bytes.fromhex(name))
        case TimerKind.CHECK_WELCOME:
            evidence.check_welcome(tx, bytes.fromhex(name))
        case TimerKind.JOIN_PROGRESS:
            member_connections.update_join_progress(tx, bytes.fromhex(name), final=True)
        case _:
            group = tx.agent.groups.get(name)
            if group is not None and group.state != "left":
                _run_group_timer(tx, kind, name, more)


def _run_group_timer(tx: Transaction, kind: TimerKind, name: str, more: Sequence[str]) -> None:
    match kind:
        case TimerKind.ACKNOWLEDGE:
            acknowledgements.send_acks(tx, name)
        case TimerKind.ACK_SETS:
            aggregation.run_round(tx, name)
        case TimerKind.ACK_SETS_REPEAT:
            aggregation.repeat(tx, name)
        case TimerKind.RETRANSMIT:
            acknowledgements.retransmit(tx, name)
        case TimerKind.RELAY:
            relay.request_relay(tx, name, int(more[0]))
        case TimerKind.TLOG:
            timers.run_round(tx, name)
        case TimerKind.TLOG_APPEND:
            operator.append_entries(tx, name)
        case TimerKind.VIEWS:
            anti_entropy.compare_views(tx, name)
        case TimerKind.ANTI_ENTROPY:
            anti_entropy.run_round(tx, name)
        case TimerKind.REPORT:
            anti_entropy.report(tx, name)
        case TimerKind.GAPS:
            history_requests.request_missing(tx, name)
        case TimerKind.BACKFILL:
            backfill.request_page(tx, name)
        case TimerKind.CHAIN_HEADS:
            fork_detection.send_heads(tx, name, more[0])
        case TimerKind.COMPARE:
            fork_detection.request_differing(tx, name, more[0])
        case TimerKind.DOWNLOAD:
            download.start_downloads(tx, name)
        case TimerKind.DOWNLOAD_BUSY:
            download.retry_busy(tx, name, more[0])
        case TimerKind.FILES_AVAILABLE:
            download.retry_announcement(tx, name, more[0], int(more[1]))
        case TimerKind.CONTENT_KEYS:
            content_keys.erase_expired(tx, name)
        case TimerKind.CORROBORATION:
            corroboration.request(tx, name)
        case TimerKind.RECOVERY:
            stale_profile.request_own_events(tx, name)
        case TimerKind.DID_EXCHANGE:
            pairing.retry_request(tx, name, more[0])
        case TimerKind.GREETING:
            pairing.send_greeting(tx, name, more[0])
        case TimerKind.SILENCE:
            pairing.check_silence(tx, name, more[0], int(more[1]), bool(more[2:]))
        case TimerKind.CLOSE_PEER:
            peers.close_when_complete(tx, name, more[0], *map(int, more[1:]))
        case TimerKind.MAILBOX:
            mailboxes.run_timer(tx, name)
        case TimerKind.ATTESTATION | TimerKind.NEIGHBOURS:
            ring_links.adjust(tx, name)
            ring_channels.view_changed(tx, name)
            member_connections.update_progress(tx, name)
        case TimerKind.JOIN_REQUESTS:
            requests.expire_requests(tx, name)
        case TimerKind.PRIVATE_INVITATIONS:
            private_invitations.run_timer(tx, name)
        case TimerKind.KEY_ERASURE:
            receiver.erase(tx, name)
        case TimerKind.KEY_EVENTS:
            receiver.process_held(tx, name)
        case TimerKind.RING_CHANNELS:
            ring_channels.run(tx, name)
        case TimerKind.ROUTED:
            routing.pass_on(tx, name)
        case TimerKind.LEAVE:
            leave.finish_leaving(tx, name, final=True)
        case _:
            raise Refused(why=f"timer {kind} does not belong to a group")
