"""Fork detection: differing chain heads trigger set reconciliation, which finds the first differing event.

Posts of pairwise groups are not signed: an author can send two members different events for one place, and neither
notices. Their syncs reveal it (`chain_heads.py`). If heads differ twice, some seconds apart, one member starts a
range-based set reconciliation (`negentropy.py`) of the posts since both joined. The initiator keeps the state, the
other member none; the I/O layer reads the log. The result is the first place where we have an event that the other
member lacks. That member is then asked for its event there, which is compared and not stored.

It proves nothing, not even to us: the author equivocates, or the member lies. The user is notified once per author and
member. Forks between stored events are reported by `event_log/delivery.py`, and signed forks of membership events by
`membership/resolve.py`.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Measure, Notify, Reconcile
from zerochat.group.event_log.event import Event
from zerochat.group.inputs import Reconciled
from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.notifications import DifferenceFound
from zerochat.group.state import Comparison, Difference, Group, PullPurpose
from zerochat.group.sync import acknowledgements, negentropy, pull_requests
from zerochat.group.sync.chain_heads import differing_authors
from zerochat.group.sync.positions import reported
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import RECONCILE, RECONCILE_BYTES_MAX, ReconcileBody, SyncBody

RECHECK_MS = 3_000
"""Heads count as differing when they do so twice, at least this far apart."""
INTERVAL_MS = 600_000
"""The shortest interval between reconciliations that we start with one member."""
TIMEOUT_MS = INTERVAL_MS // 2
"""The time limit of one reconciliation."""
ANSWER_WORK_US = 10_000
"""The work of one answer, us, in a log of 100,000 posts."""
ROUNDS_MAX = 8
"""Questions in one reconciliation, and answers to one member per half INTERVAL_MS."""
LOOKUPS_MAX = 4_096
"""The most events looked up per answer: a member may claim to lack everything."""
DIFFERENCES_MAX, DIFFERENCES_PER_MEMBER_MAX = 64, 8
"""The most differences stored, in all and per reporting member: no member can fill the table with lies."""


# --- detection --------------------------------------------------------------------------------------------------------


def compare_heads(tx: Transaction, name: str, member: str, salt: str, body: SyncBody) -> None:
    """Compare the chain heads in a member's sync with ours; `salt`: the id of that message. Raises Malformed."""
    group = tx.group(name)
    if not body.head_digests or body.view != group.view.checksum or not _both_members(group, member):
        return
    comparison = group.sync.comparisons.get(member, Comparison())
    differing = differing_authors(group, member, salt, reported(group.view, body), body.head_digests)
    authors = tuple(dict.fromkeys(author for author in differing if _may_record(group, author, member)))
    if not authors:
        if comparison.noticed_at:
            _store(tx, name, member, replace(comparison, noticed_at=0))
    elif 0 <= tx.now - comparison.started_at < INTERVAL_MS:
        pass
    elif not 0 < comparison.noticed_at <= tx.now:
        _store(tx, name, member, replace(comparison, noticed_at=tx.now))
        tx.set_timer(TimerKind.CHAIN_HEADS, f"{name} {member}", RECHECK_MS)  # it notices too, and sends its own again
    elif tx.now >= comparison.noticed_at + RECHECK_MS and mediator_mail.reachable(tx, name, member):
        started = Comparison(
            started_at=tx.now, authors=authors, answers_since=comparison.answers_since, answers=comparison.answers
        )
        _store(tx, name, member, started)
        tx.emit(Reconcile(name, member, "", True, _since(group, member), b"", authors))


def send_heads(tx: Transaction, name: str, member: str) -> None:
    """Send our own heads to a member that may see the same difference."""
    if _both_members(tx.group(name), member):
        acknowledgements.send_sync(tx, name, member)


def _both_members(group: Group, member: str) -> bool:
    """Whether we and the member are both members, as far as we know."""
    is_member = member in group.view.members and group.me in group.view.members
    return is_member and member in group.links.peers and member not in group.trust.quarantine


def _since(group: Group, member: str) -> int:
    """The Lamport time from which on both have received everything, or could have requested it."""
    return max(group.view.members[did].joined for did in (group.me, member))


def _may_record(group: Group, author: str, member: str) -> bool:
    """Whether a difference from this member about this author is news and fits the limits."""
    reported = [comparison for comparison in group.sync.differences if comparison.member == member]
    has_room = len(group.sync.differences) < DIFFERENCES_MAX and len(reported) < DIFFERENCES_PER_MEMBER_MAX
    return has_room and all(comparison.author != author for comparison in reported)


def _store(tx: Transaction, name: str, member: str, comparison: Comparison) -> None:
    group = tx.group(name)
    others = {did: other for did, other in group.sync.comparisons.items() if did in group.view.members}
    tx.update_sync(name, comparisons={**others, member: comparison})


# --- reconciliation ---------------------------------------------------------------------------------------------------


def receive_comparison(tx: Transaction, name: str, member: str, message: Message, body: ReconcileBody) -> None:
    """Process a member's reconciliation question or answer. Raises RemoteError."""
    group = tx.group(name)
    if body.group != name or not _both_members(group, member):
        raise Refused(why="a reconciliation of another group, or with a non-member")
    comparison, payload = group.sync.comparisons.get(member, Comparison()), b64url_bytes(body.message)
    if message.thid:
        if not (comparison.thread and message.thid == comparison.thread and _under_way(tx, comparison)):
            raise Refused(why="an answer without a question")
        _store(tx, name, member, replace(comparison, thread=""))  # one answer only: processing it costs time
        tx.emit(Reconcile(name, member, comparison.thread, True, _since(group, member), payload, comparison.authors))
        return
    if body.since < group.view.members[member].joined:
        raise Refused(why="a reconciliation of events that the member may not have")
    if not 0 <= tx.now - comparison.answers_since < INTERVAL_MS // 2:
        comparison = replace(comparison, answers_since=tx.now, answers=0)
    if comparison.answers >= ROUNDS_MAX:
        raise Refused(why="too many reconciliations")
    rate_limits.charge_work(tx, name, member, ANSWER_WORK_US)
    _store(tx, name, member, replace(comparison, answers=comparison.answers + 1))
    tx.emit(Reconcile(name, member, message.id, False, body.since, payload, ()))


def on_reconciled(tx: Transaction, result: Reconciled) -> None:
    """The log was compared: send the next message, or request the differing events."""
    name, member = result.group, result.member
    group = tx.agent.groups.get(name)
    relationship = group.links.relationships.get(member) if group is not None else None
    if group is None or relationship is None or not relationship.established or not _both_members(group, member):
        return
    if not result.initiator:
        if result.message:
            _send(tx, name, member, result, result.thread)
        else:
            tx.emit(Measure("dropped", Malformed.__name__))
        return
    comparison = group.sync.comparisons.get(member, Comparison())
    if comparison.thread or not _under_way(tx, comparison):
        return
    comparison = replace(comparison, differing=_first_of_each((*comparison.differing, *result.differing)))
    if result.message and comparison.rounds < ROUNDS_MAX:
        thread = _send(tx, name, member, result)
        _store(tx, name, member, replace(comparison, thread=thread, rounds=comparison.rounds + 1))
        return
    _store(tx, name, member, replace(comparison, authors=()))
    request_differing(tx, name, member)


def _under_way(tx: Transaction, comparison: Comparison) -> bool:
    return bool(comparison.authors) and 0 <= tx.now - comparison.started_at < TIMEOUT_MS


def _send(tx: Transaction, name: str, member: str, result: Reconciled, thid: str | None = None) -> str:
    body = {"group": name, "since": result.since, "message": b64url(result.message)}
    message = Message(type=RECONCILE, id=new_id(tx.context.random), thid=thid, body=body)
    relationship, packer = tx.group(name).links.relationships[member], tx.packer_of(name)
    mediator_mail.send(tx, name, member, pack(relationship, message, packer, tx.context.random))
    return message.id


# --- the differing events ---------------------------------------------------------------------------------------------


def request_differing(tx: Transaction, name: str, member: str) -> None:
    """Ask a member for its events at the places where it lacks ours."""
    comparison = tx.group(name).sync.comparisons.get(member)
    if comparison is None or not comparison.differing:
        return
    if not 0 <= tx.now - comparison.started_at < TIMEOUT_MS:
        _store(tx, name, member, replace(comparison, differing=()))
        return
    pull_requests.expire(tx, name)
    if pull_requests.is_free(tx, name, member):
        ranges = [(author, seq - 1, seq) for author, seq, _ in comparison.differing]
        pull_requests.send(tx, name, member, ranges, len(ranges), purpose=PullPurpose.COMPARE)
    tx.set_timer(TimerKind.COMPARE, f"{name} {member}", pull_requests.TIMEOUT_MS + 1)


def receive_differing(tx: Transaction, name: str, member: str, events: Sequence[Event]) -> None:
    """Compare a member's events at those places with ours."""
    comparison = tx.group(name).sync.comparisons.get(member)
    if comparison is None or not comparison.differing:
        return
    our_events = {(author, seq): event for author, seq, event in comparison.differing}
    for event in events:
        place = event.author, event.seq
        if our_events.get(place, event.id) != event.id:
            record_difference(tx, name, *place, member)
    _store(tx, name, member, replace(comparison, differing=()))
    tx.set_timer(TimerKind.CHAIN_HEADS, f"{name} {member}", RECHECK_MS)  # it may want to know too


def record_difference(tx: Transaction, name: str, author: str, seq: int, member: str, by: str = "") -> None:
    """A member has another event than we there; `by`: the member that relayed ours, if its author has not confirmed
    it."""
    group = tx.group(name)
    if _may_record(group, author, member):
        tx.update_sync(name, differences=(*group.sync.differences, Difference(author, seq, member, tx.now, by)))
        tx.emit(Notify(DifferenceFound(name, author, seq, member, by)))


# --- for the I/O layer ------------------------------------------------------------------------------------------------


def reconcile(
    question: Reconcile, items: negentropy.Items, place_of: Callable[[str], tuple[str, int] | None]
) -> Reconciled:
    """One reconciliation round over `items`, the posts of our log from `asked.since` on.

    `place_of`: the author and the place of an event by its id; None for an unconfirmed one.
    """

    def outcome(message: bytes, places: Iterable[tuple[str, int, str]] = ()) -> Reconciled:
        return Reconciled(
            question.group, question.member, question.thread, question.initiator, question.since, message, tuple(places)
        )

    try:
        if not question.initiator:
            return outcome(negentropy.respond(items, question.message, RECONCILE_BYTES_MAX))
        if not question.message:
            return outcome(negentropy.initial_message(items))
        learned = negentropy.process_response(items, question.message, RECONCILE_BYTES_MAX)
    except Malformed:
        return outcome(b"")
    missing_ids = map(b64url, learned.only_ours[:LOOKUPS_MAX])
    result = [(place, name) for name in missing_ids if (place := place_of(name)) is not None]
    places = [(author, seq, name) for (author, seq), name in result if author in question.authors]
    return outcome(learned.next_message or b"", _first_of_each(places))


def _first_of_each(places: Iterable[tuple[str, int, str]]) -> tuple[tuple[str, int, str], ...]:
    """The lowest place of each author."""
    first = {author: (author, seq, event) for author, seq, event in sorted(places, reverse=True)}
    return tuple(sorted(first.values()))
