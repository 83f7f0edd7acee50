"""The check of a complete welcome, in slices, and what follows from it: we are a member, or the join has failed.

A welcome can be all that a hostile branch has ever sent, and its inviter can be hostile. So what the check takes is
done over several steps, in which the agent serves the others; reading its parts is charged to the inviter; and while a
complete welcome is checked, further parts are dropped. A welcome is checked once for each try of the user.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from zerochat.errors import LocalError, Refused, RemoteError
from zerochat.group import retention
from zerochat.group.event_log import delivery, lamport, own_events
from zerochat.group.event_log.event import Event, load_event
from zerochat.group.joining import cancellation, member_connections, private_conversations, welcome
from zerochat.group.joining.member_connections import fail_join
from zerochat.group.links import rate_limits
from zerochat.group.membership import RECEIVED_MAX, PastCheck, attestation, member_names, resolve_view
from zerochat.group.membership.resolve import RecentCache
from zerochat.group.state import AttestationConflict, Group, Join, JoinState, ViewAttestation
from zerochat.group.state.joins import WelcomePart
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import HAVE_MAX, WELCOME_PARTS_MAX, WelcomeBody


class AlreadyMember(LocalError):
    """You are already a member of {group}."""


WRONG_GROUP = "the inviter answered for another group than the one the invitation is for"
EVIDENCE_BYTES_MAX = 2 * RECEIVED_MAX * 1024
"""Every membership event that a group can have, at their usual size."""
SLICE_WORK_US = rate_limits.STEP_WORK_US_MAX
"""The part of a check that is done at once."""
CHECKS_MAX = 64
"""Checks under way whose progress is remembered: more than joins."""
RESOLVED_MAX = 1024
"""For a welcome of more events the view is a slice of its own."""


class WelcomeCheck:
    """The check of the events of a complete welcome, in slices: a hostile branch can make many concurrent events."""

    def __init__(self, group: str, records: Sequence[bytes]) -> None:
        self.events: list[Event] = []
        self.control: dict[str, Event] = {}
        """The events by id, once all are checked."""
        self._group, self._records = group, records
        self._past: PastCheck | None = None

    def advance(self, most_us: int) -> bool:
        """Do about so much of the work; True: the events are checked. Raises RemoteError where they are invalid."""
        while len(self.events) < len(self._records):
            if most_us <= 0:
                return False
            most_us -= welcome.READ_WORK_US
            self.events.append(load_event(self._records[len(self.events)]))
            if self.events[-1].group_id != self._group:
                raise Refused(why="a welcome with events of several groups")
        if self._past is None:
            self._past = PastCheck(self.events)
        if self.control:
            resolve_view(self.control)  # it is remembered
            return True
        if most_us <= 0 or not self._past.advance(most_us):
            return False
        self.control = self._past.control
        return len(self.control) < RESOLVED_MAX


class _Rejection(msgspec.Struct, frozen=True):
    """Why a welcome is not accepted, and what the user can do."""

    why: str
    remedy: str
    conflict: AttestationConflict | None = None


def receive_welcome(tx: Transaction, link: bytes, body: WelcomeBody) -> None:
    """A part of the evidence for the group; once complete, it is checked. Raises RemoteError for an invalid part."""
    join = tx.agent.joins[link]
    if join.checking:
        return  # repeated
    if body.group != join.group:
        fail_join(tx, link, WRONG_GROUP, "Ask for a fresh invitation.")
        return
    if not _add_welcome_part(tx, link, body):
        return
    member_connections.update_join(tx, link, checking=True, start_seq=body.start_seq)
    check_welcome(tx, link)
    if tx.agent.joins[link].checking:
        member_connections.notify_progress(tx, join, "asking", f"Checking the evidence of {join.name}…")


def _add_welcome_part(tx: Transaction, link: bytes, body: WelcomeBody) -> bool:
    """Store a part; returns whether the welcome is complete. Raises RemoteError."""
    join = tx.agent.joins[link]
    events, attested = welcome.read_charged(tx, link, body)
    parts = {**join.welcome_parts, body.part: WelcomePart([event.record for event in events])}
    attestations = {one.member: ViewAttestation(tuple(one.heads), one.signature) for one in attested}
    attestations = {**join.attestations, **attestations}
    size = sum(len(record) for part in parts.values() for record in part.records)
    if size > EVIDENCE_BYTES_MAX or len(attestations) > HAVE_MAX or len(parts) > WELCOME_PARTS_MAX:
        raise Refused(why="a welcome that exceeds the limits")
    member_connections.update_join(tx, link, welcome_parts=parts, attestations=attestations)
    return len(parts) >= body.parts and all(part.records for part in parts.values())


_checks: RecentCache[tuple[bytes, ...], WelcomeCheck] = RecentCache(CHECKS_MAX)
"""By the records, what is done of each check. After a restart it begins again."""


def check_welcome(tx: Transaction, link: bytes) -> None:
    """Check the next part of a complete welcome; after the last one we are a member, or the join has failed."""
    join = tx.agent.joins.get(link)
    if join is None or not join.checking:
        return
    records = tuple(record for _, part in sorted(join.welcome_parts.items()) for record in part.records)
    check = _checks.take(records) or WelcomeCheck(join.group, records)
    try:
        if not check.advance(SLICE_WORK_US):
            _checks.put(records, check)
            tx.set_timer(TimerKind.CHECK_WELCOME, link.hex(), 1)
            return
    except RemoteError:
        pass  # `_group_or_rejection` says what it means
    _finish_welcome(tx, link, check)


def _finish_welcome(tx: Transaction, link: bytes, check: WelcomeCheck) -> None:
    events, join = check.events, tx.agent.joins[link]
    known = tx.agent.groups.get(join.group)
    if known is not None and known.state != "left":
        cancellation.begin_cancellation(tx, link, events)
        fail_already_member(tx, link, known.name)
        return
    found = _group_or_rejection(tx, join, check)
    if isinstance(found, _Rejection):
        cancellation.begin_cancellation(tx, link, events)
        fail_join(tx, link, found.why, found.remedy, found.conflict)
        return
    accepted = {did: one for did, one in found.trust.attestations.items() if did == join.relationship.member}
    log = replace(found.log, lamport=max(found.log.lamport, known.log.lamport if known else 0))
    tx.add_group(replace(found, log=log, retention=known.retention if known else found.retention))
    retention.schedule(tx)
    for event in events:
        delivery.store_event(tx, found.id, event, late=False)
    attestation.announce_forks(tx, found.id, {})
    if found.view.has_tlog:
        adoption.adopt_terms(tx, found.id, None)
        tx.set_timer(TimerKind.TLOG, found.id, adoption.FIRST_ROUND_MS)
    if join.voucher is not None:
        private_conversations.mark_joined(tx, join)
    member_connections.update_join(tx, link, attestations=accepted)
    member_connections.end_exchange(tx, link, JoinState.CONNECTING)
    member_connections.connect_members(tx, link)


def _group_or_rejection(tx: Transaction, join: Join, check: WelcomeCheck) -> Group | _Rejection:
    """The group of a complete welcome, or why we do not join it."""
    if max((event.lamport for event in check.events), default=0) > tx.now + lamport.AHEAD_MS_MAX:
        why = "this machine's clock is more than five minutes behind the group's"
        return _Rejection(why, "Set the clock, then try again with the same invitation.")
    try:
        group = welcome.group_from_welcome(join, check.control, join.start_seq)
    except RemoteError:
        return _Rejection("the inviter sent invalid evidence for the group", "Ask another member for an invitation.")
    if not own_events.is_supported(group.profile):
        keys, accountability, path = group.profile.keys, group.profile.accountability, group.profile.path
        kind = f"({keys}), accountability ({accountability}) or path ({path})"
        return _Rejection(f"this version does not support the group's keys {kind}", "Update zerochat.")
    if join.voucher is not None and (fault := private_conversations.fault_of(tx.agent, join, group)) is not None:
        return _Rejection(*fault)
    forked = group.view.forked
    if forked and group.view.policy.agreement == "strict":
        conflict = attestation.fork_evidence(group.control, group.id, forked)
        why = f"{member_names(group.view, list(forked))} signed two histories of {group.name}"
        return _Rejection(why, "Ask the members about it by other means.", conflict)
    return group


def fail_already_member(tx: Transaction, link: bytes, name: str) -> None:
    """The join fails: we are a member of this group."""
    error = AlreadyMember(group=name)
    join = member_connections.end_exchange(tx, link, JoinState.FAILED)
    member_connections.notify_progress(tx, join, "failed", error.sentence(), error=error.code)
