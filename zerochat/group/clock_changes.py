"""Clock changes: after the machine's clock is set, time goes on as before until two members confirm the new time.

It is unknown which of the two times is right. Events dated by a clock that is a year ahead would be rejected for a year
(`lamport.check_not_ahead`), and so would everything that depends on them; a clock that is set back would delay every
timer. So the offset is subtracted (`Transaction.now`) until the times of two members agree with the new one
(`lamport.confirm_clock`).

Then the time jumps, as it may also between two processes. No deadline may lie further ahead after that than when it was
set.
"""

from msgspec.structs import replace

from zerochat.group import retention
from zerochat.group.external import outbox
from zerochat.group.files import download
from zerochat.group.joining import joiner, member_connections
from zerochat.group.links import mailboxes, mediator_mail
from zerochat.group.state import Connection, FileEntry, Join, Mailbox, OpenInvitation, Peer, PullRequest
from zerochat.group.sync import acknowledgements, pull_requests
from zerochat.group.transaction import Transaction

NEGLIGIBLE_MS = 60_000
"""A clock change up to this is adopted silently: far less than clocks may differ (`lamport.AHEAD_MS_MAX`)."""


def on_started(tx: Transaction, rebooted: bool) -> None:
    """The process has started. After a reboot (`rebooted`) the known clock offset is void."""
    if rebooted:
        tx.update_agent(clock_offset_ms=0, clock_confirmed_by=())
        retention.on_rebooted(tx)
    clamp_deadlines(tx)


def on_clock_set(tx: Transaction, by_ms: int) -> None:
    """The clock was set forward by so many ms. With no other member to agree or disagree, the new time is adopted at
    once: a machine without a clock learns the time this way. A leaving member still exchanges times. What was adopted
    without a member erases nothing (`retention.py`)."""
    leap = tx.agent.clock_offset_ms + by_ms
    alone = not any(group.others for group in tx.agent.groups.values() if group.state != "left")
    offset_ms = 0 if alone or abs(leap) <= NEGLIGIBLE_MS else leap
    tx.update_agent(clock_offset_ms=offset_ms, clock_confirmed_by=())
    retention.on_clock_adopted(tx, leap - offset_ms)
    clamp_deadlines(tx)


def clamp_deadlines(tx: Transaction) -> None:
    """The time may have jumped: cap every deadline at its maximum from now, and every past time at now."""
    for name, group in tx.agent.groups.items():
        peers = {did: _peer(tx, name, did, peer) for did, peer in group.links.peers.items()}
        gaps = {author: replace(gap, retry_at=min(gap.retry_at, tx.now)) for author, gap in group.sync.gaps.items()}
        reinstated = {
            author: replace(record, retry_at=min(record.retry_at, tx.now))
            for author, record in group.sync.reinstated_posts.items()
        }
        unreachable = {
            author: replace(record, retry_at=min(record.retry_at, tx.now))
            for author, record in group.sync.unreachable_authors.items()
        }
        deadline = (
            min(group.trust.attestation_deadline, tx.now + member_connections.ATTESTATION_MS)
            if group.trust.attestation_deadline
            else 0
        )
        pull_requests_ = {did: _pull_request(tx, name, did, record) for did, record in group.sync.pull_requests.items()}
        files = {key: _file_entry(tx, name, record) for key, record in group.files.items()}
        tx.update_group(
            name,
            links=replace(group.links, peers=peers, mailbox=_mailbox(tx, group.links.mailbox)),
            sync=replace(
                group.sync,
                gaps=gaps,
                reinstated_posts=reinstated,
                unreachable_authors=unreachable,
                pull_requests=pull_requests_,
            ),
            trust=replace(group.trust, attestation_deadline=deadline),
            files=files,
        )
    tx.update_agent(
        endpoint_failures={uri: record for uri, record in tx.agent.endpoint_failures.items() if record.until <= tx.now},
        invitations={link: _invitation(tx, record) for link, record in tx.agent.invitations.items()},
        joins={link: _join(tx, record) for link, record in tx.agent.joins.items()},
        connections={name: _connection(tx, one) for name, one in tx.agent.connections.items()},
        rotations=tuple(replace(one, since=min(one.since, tx.now)) for one in tx.agent.rotations),
    )


def _peer(tx: Transaction, name: str, member: str, peer: Peer) -> Peer:
    now, by_mail = tx.now, mediator_mail.goes_by_mail(tx, name, member)
    delay_ms = acknowledgements.MAIL_RETRY_MS_MAX if by_mail else acknowledgements.RETRY_MS
    exchange, anti_entropy = peer.exchange, peer.anti_entropy
    return replace(
        peer,
        last_received_at=min(peer.last_received_at, now),
        acks=replace(peer.acks, regressed_since=min(peer.acks.regressed_since, now)),
        retransmission=replace(
            peer.retransmission, retry_at=min(peer.retransmission.retry_at, now + delay_ms), no_room_until=0
        ),
        stored=replace(peer.stored, at=min(peer.stored.at, now)),
        exchange=replace(
            exchange,
            requested_at=min(exchange.requested_at, now),
            answered_at=min(exchange.answered_at, now),
        ),
        anti_entropy=replace(anti_entropy, view_answered_at=min(anti_entropy.view_answered_at, now), sync_sent_at=0),
    )


def _mailbox(tx: Transaction, record: Mailbox) -> Mailbox:
    return replace(record, grace_until=min(record.grace_until, tx.now + mailboxes.GRACE_MS))


def _pull_request(tx: Transaction, name: str, member: str, record: PullRequest) -> PullRequest:
    is_peer = member in tx.group(name).links.peers
    timeout = pull_requests.timeout_ms(tx, name, member) if is_peer else pull_requests.TIMEOUT_MAIL_MS
    return replace(record, until=min(record.until, tx.now + timeout))


def _file_entry(tx: Transaction, name: str, record: FileEntry) -> FileEntry:
    """Do not wait for a part until a deadline of the old time."""
    if record.download is None:
        return record
    now, fetching = tx.now, record.download
    # No member is asked while only our own disk is awaited.
    is_peer = fetching.member in tx.group(name).links.peers
    until = min(
        fetching.timeout_at, download.timeout_at(tx, name, fetching) if is_peer else now + download.TIMEOUT_MAIL_MS
    )
    return replace(
        record,
        download=replace(
            fetching,
            timeout_at=until,
            requested_at=min(fetching.requested_at, now),
            since=min(fetching.since, now),
            received_at=now,
        ),
    )


def _invitation(tx: Transaction, record: OpenInvitation) -> OpenInvitation:
    return replace(
        record, claims={claimant: replace(claim, welcomed_at=0) for claimant, claim in record.claims.items()}
    )


def _join(tx: Transaction, record: Join) -> Join:
    """A join that waits for a decision lasts as long as its invitation."""
    return (
        record if record.pending_tries else replace(record, deadline=min(record.deadline, tx.now + joiner.JOIN_MS_MAX))
    )


def _connection(tx: Transaction, one: Connection) -> Connection:
    waiting = {
        key: replace(each, since=min(each.since, tx.now), due=min(each.due, tx.now + outbox.RETRY.ceiling_ms))
        for key, each in one.outbox.items()
    }
    return replace(one, outbox=waiting) if waiting else one
