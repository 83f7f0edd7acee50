"""One simulated machine, and the invariants of its log."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from zerochat.agent.storage.state_parts import assemble, changes
from zerochat.crypto.encoding import b64url_bytes
from zerochat.didcomm.endpoint import Endpoint
from zerochat.evidence.messages import Equivocation, find_equivocation
from zerochat.group.effects import (
    AllowClient,
    ConfirmEvents,
    DeleteBlobs,
    DeleteLog,
    Dial,
    Effect,
    EraseContent,
    FreezeSignedAcks,
    JournalEffect,
    QueryTlog,
    ReadHistory,
    ReadOwnEvents,
    Reconcile,
    RefuteEvents,
    StoreBlob,
    StoreCheckpoint,
    StoreConflictingMessage,
    StoreEvent,
    StoreReceipt,
    StoreRejectedMessage,
    StoreSignedAck,
    StoreSignedMessage,
    StoreStatement,
    StoreTlog,
    StoreTlogEntries,
)
from zerochat.group.event_log import lamport
from zerochat.group.event_log.event import CONTROL, EXPIRED, LASTING, POST
from zerochat.group.inputs import HistoryRead, OwnEventsRead, Reconciled, TlogQueried
from zerochat.group.state import Agent, Group
from zerochat.group.sync import fork_detection
from zerochat.group.sync.history_policy import Entry, oldest_allowed, take_page
from zerochat.group.sync.negentropy import Items
from zerochat.sim.fast_crypto import event_of
from zerochat.sim.file_store import FileStore
from zerochat.sim.tlog_store import TlogStore

READ_BYTES_MAX = 256 * 1024
"""Bytes of a stream's messages in one answer to `ReadOwnEvents`."""


class Node(Struct):
    """One simulated machine: the core's state, its log, timers and connections."""

    name: str
    address: Endpoint
    queue_address: Endpoint
    server_key: bytes
    agent: Agent
    log: list[StoreEvent] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)
    allowed_clients: dict[bytes, AllowClient] = field(default_factory=dict)
    dialled: dict[bytes, Dial] = field(default_factory=dict)
    connected: dict[bytes, str] = field(default_factory=dict)
    """Our links that are up, with the node at the other end."""
    answers: dict[int, Effect] = field(default_factory=dict)
    recipients: dict[str, frozenset[str]] = field(default_factory=dict)
    """By post of ours: the members that it was addressed to."""
    positions: dict[str, int] = field(default_factory=dict)
    """By post of ours: its position in our chain."""
    dropped: dict[str, int] = field(default_factory=dict)
    hidden: bool = False
    mediated_only: bool = False
    """It dials nothing but its own mediators."""
    refuted: list[StoreEvent] = field(default_factory=list)
    """Relayed events that their author denied."""
    notified: dict[str, None] = field(default_factory=dict)
    """Events that clients were notified of, in order, without those refuted since."""
    relayed: set[str] = field(default_factory=set)
    """Ids of relayed events: they may arrive again from their author."""
    receipts: list[StoreReceipt] = field(default_factory=list)
    signed: list[StoreSignedMessage] = field(default_factory=list)
    """Messages of our streams and of those that we follow."""
    acks: dict[tuple[str, str], StoreSignedAck] = field(default_factory=dict)
    """By group and member: the last signed acknowledgement of our stream."""
    conflicts: dict[tuple[str, str], Equivocation] = field(default_factory=dict)
    """By group and author: two signed messages that contradict each other."""

    tlogs: TlogStore = field(default_factory=TlogStore)
    """Stored transparency logs."""
    files: FileStore = field(default_factory=FileStore)
    """Stored file contents."""

    def copy(self) -> "Node":
        """An independent copy."""
        kept = asdict(self)
        own = {
            name: value.copy()
            for name, value in kept.items()
            if isinstance(value, list | dict | set | TlogStore | FileStore)
        }
        return Node(**kept | own)

    def store(self, effect: JournalEffect) -> None:
        """Perform an effect on the journal."""
        match effect:
            case StoreEvent():
                known = None
                if effect.id in self.relayed:
                    known = next((row for row in self.log if row.id == effect.id), None)
                if effect.relayed_by or effect.history:
                    self.relayed.add(effect.id)
                self.refuted = [row for row in self.refuted if row.id != effect.id]
                if known is None:
                    self.log.append(effect)
                elif known.relayed_by and not effect.relayed_by:
                    self.log[self.log.index(known)] = replace(known, relayed_by="")
            case ConfirmEvents(group, author, after, upto):
                self.log = [
                    replace(row, relayed_by="")
                    if (row.group, row.author) == (group, author) and after < row.seq <= upto
                    else row
                    for row in self.log
                ]
            case RefuteEvents(group, author, after, upto):
                self._refute([row for row in self._relayed(group, author) if after < row.seq <= upto])
            case StoreReceipt():
                self.receipts.append(effect)
            case StoreSignedMessage():
                self.signed.append(effect)
                self.tlogs.store_signed(effect)
            case StoreSignedAck(group, _, member, alias, time, of):
                if any(
                    (one.group, one.alias, one.time, one.signature) == (group, alias, time, of) for one in self.signed
                ):
                    if not effect.before:
                        self.acks[group, member] = effect
                    self.tlogs.store_ack(effect)
            case EraseContent():
                self._erase(effect)
            case StoreStatement() | FreezeSignedAcks() | StoreRejectedMessage():
                pass
            case StoreTlog() | StoreTlogEntries() | StoreCheckpoint() | StoreBlob() | DeleteBlobs():
                self.tlogs.store(effect)
            case StoreConflictingMessage():
                self._compare(effect)
            case DeleteLog(group):
                for row in self.log:
                    if row.group == group:
                        self.notified.pop(row.id, None)
                self.log = [row for row in self.log if row.group != group]
                self.receipts = [one for one in self.receipts if one.group != group]
                self.signed = [one for one in self.signed if one.group != group]
                self.acks = {key: one for key, one in self.acks.items() if key[0] != group}
                self.tlogs.delete_group(group)
                self.conflicts = {key: one for key, one in self.conflicts.items() if key[0] != group}

    def _erase(self, effect: EraseContent) -> None:
        """Erase content at once."""

        def expires(group: str, author: str, seq: int, time: int) -> bool:
            limit = effect.ruled if author == effect.me and seq > effect.own_upto else effect.before
            return group == effect.group and time < limit

        for at, row in enumerate(self.log):
            if row.type not in LASTING and expires(row.group, row.author, row.seq, row.lamport):
                record = event_of(row.record).erased().record
                self.log[at] = replace(row, type=EXPIRED, record=record, target="")
        self.signed = [one for one in self.signed if not expires(one.group, one.author, one.upto, one.time)]

    def _compare(self, one: StoreConflictingMessage) -> None:
        stream = (kept.message for kept in self.signed if (kept.group, kept.author) == (one.group, one.author))
        for other in (one.beside,) if one.beside else stream:
            if found := find_equivocation(other, one.message):
                self.conflicts.setdefault((one.group, one.author), found)

    def read_own_events(self, asked: ReadOwnEvents) -> OwnEventsRead:
        """Our stored events and signed messages."""
        chain = sorted(
            (row.seq, row.record) for row in self.log if row.group == asked.group and row.author == asked.author
        )
        records = [record for seq, record in chain if seq > asked.after][: asked.limit]
        stream = (one for one in self.signed if asked.alias and (one.group, one.alias) == (asked.group, asked.alias))
        lacking = [(one.upto, one.message) for one in stream if one.time > asked.time]
        sizes = accumulate(len(message) for _, message in lacking)
        room = sum(size <= READ_BYTES_MAX for size in sizes)
        messages = lacking[: min(asked.limit, max(1, room))]
        return OwnEventsRead(asked.group, asked.member, tuple(records), tuple(messages))

    def query_tlog(self, asked: QueryTlog) -> TlogQueried:
        """Look up entries of a transparency log."""
        ours = (one for one in self.signed if one.group == asked.group)
        found = self.tlogs.answer(asked.group, asked.origin, asked.query, ours)
        return TlogQueried(asked.group, asked.origin, asked.query, found)

    def read_history(self, asked: ReadHistory) -> HistoryRead:
        """The stored events for a history request."""
        kept = [row for row in self.log if row.group == asked.group]

        def nth_post(number: int, before: int) -> int:
            times = sorted((row.lamport for row in kept if row.lamport < before and row.type == POST), reverse=True)
            return times[number - 1] if len(times) >= number else 0

        rows = kept
        if asked.backwards:
            rows = sorted(kept, key=lamport.sort_key, reverse=True)
        entries = (Entry(row.author, row.seq, row.lamport, len(row.record), at) for at, row in enumerate(rows))
        floor = oldest_allowed(asked.rules, asked.joined, nth_post)
        page, more = take_page(entries, asked.ranges, floor, asked.limit)
        records = tuple(rows[entry.key].record for entry in page)
        answer = asked.group, asked.member, asked.thread, records, asked.backwards, more
        return HistoryRead(*answer, asked.ranges, asked.page, asked.pages)

    def reconcile(self, asked: Reconcile) -> Reconciled:
        """One round of set reconciliation with a member."""
        kept = {row.id: row for row in self.log if row.group == asked.group}
        posts = [row for row in kept.values() if row.type not in CONTROL and row.lamport >= asked.since]
        items = Items(sorted((row.lamport, b64url_bytes(row.id)) for row in posts))

        def place_of(name: str) -> tuple[str, int] | None:
            return None if kept[name].relayed_by else (kept[name].author, kept[name].seq)

        return fork_detection.reconcile(asked, items, place_of)

    def _relayed(self, group: str, author: str) -> list[StoreEvent]:
        return [row for row in self.log if (row.group, row.author) == (group, author) and row.relayed_by]

    def _refute(self, rows: list[StoreEvent]) -> None:
        self.refuted += rows
        for row in rows:
            self.notified.pop(row.id, None)
        self.log = [row for row in self.log if row not in rows]


def round_trip(agent: Agent) -> Agent:
    """The state as the next process would read it from its journal: the parts of a checkpoint come back in the order in
    which they were first written, which is any order; here, the reverse."""
    parts = [(path, value) for path, value in changes(None, agent) if value is not None]
    found = assemble(Agent, reversed(parts))
    assert found is not None
    return found[0]


class Violation(AssertionError):
    """An invariant was violated; the message names the invariant, the node and the seed."""


def check_logs(seed: int, nodes: Sequence[Node], made: Collection[str], *, insiders: bool = False) -> None:
    """Raise Violation unless each node has its events once and in one order, and of the other nodes only real ones
    (`made`). `insiders`: other members are malicious; where authors sign posts, they can bring any member a post of
    another author, though the history policy keeps it from that member."""
    mine = {group.me for node in nodes for group in node.agent.groups.values()}
    meant: dict[str, frozenset[str]] = {}
    for node in nodes:
        own = {group.me for group in node.agent.groups.values()}
        for post, audience in node.recipients.items():
            meant[post] = audience | own
    orders = {}
    for node in nodes:
        ids = [row.id for row in node.log]
        if len(ids) != len(set(ids)):
            raise Violation(f"seed {seed}: {node.name} delivered an event twice")
        for group in node.agent.groups.values():
            rows = [row for row in node.log if row.group == group.id]
            addressed = {} if insiders and group.mode.signs_events else meant
            _check_log(f"seed {seed}: {node.name}", node, group, rows, mine, addressed, made)
            _check_notification_order(f"seed {seed}: {node.name}", node, rows)
            ordered = [row.id for row in sorted(rows, key=lamport.sort_key) if row.type not in CONTROL]
            orders[node.name, group.id] = ordered
        if node.notified.keys() - set(ids):
            raise Violation(f"seed {seed}: {node.name} no longer has an event that it has shown")
    for one, first in orders.items():
        for other, second in orders.items():
            both = set(first) & set(second)
            if [i for i in first if i in both] != [i for i in second if i in both]:
                raise Violation(f"seed {seed}: {one[0]} and {other[0]} disagree about the order")


def _check_log(
    who: str,
    node: Node,
    group: Group,
    rows: Sequence[StoreEvent],
    mine: Collection[str],
    meant: Mapping[str, Collection[str]],
    made: Collection[str],
) -> None:
    """The log of one group. `mine`: the members of all nodes; `meant`: by post, the members that it was addressed
    to."""
    places: dict[str, tuple[int, int]] = {}
    known: dict[str, int] = {}
    for row in rows:
        event = event_of(row.record)
        if event.id != row.id:
            raise Violation(f"{who} stores a record under another id")
        if row.author in mine and row.id not in made and not row.relayed_by:
            raise Violation(f"{who} stores an event that {row.author} never wrote")
        if row.type not in CONTROL and row.id not in node.relayed:
            # Relayed events arrive on request, in the position that their author gave them.
            begun, last = places.get(row.author, (row.seq, row.seq - 1))
            is_earlier = group.view.path == "ring" and row.seq < begun and row.late  # a chain may begin in the middle
            if row.seq <= last and not is_earlier:
                raise Violation(f"{who} broke the order of {row.author}")
            places[row.author] = begun, max(last, row.seq)
            if group.me not in meant.get(row.id, {group.me}) and not _may_have(group, row):
                raise Violation(f"{who} received a post that was not addressed to it")
        if any(known.get(cause, 0) >= row.lamport for cause in (event.pre, *event.deps, *event.conc)):
            raise Violation(f"{who} shows an effect before its cause")
        if any(dep not in known for dep in event.deps):
            raise Violation(f"{who} delivered before a cause")
        known[row.id] = row.lamport


def _may_have(group: Group, row: StoreEvent) -> bool:
    """Whether the history policy lets a member have an event from before its author knew the member."""
    me = group.view.known(group.me)
    rules = (group.view.policy.history, me.history if me is not None else "")
    return me is not None and row.lamport >= oldest_allowed(rules, me.joined, lambda _, __: 0)


def _check_notification_order(who: str, node: Node, rows: Sequence[StoreEvent]) -> None:
    """Clients append notified events of a group unless they are marked late, and insert those as the log does; the
    result must equal the log."""
    newest, order = 0, []
    for row in rows:
        if row.lamport < newest and not (row.late or row.history):
            raise Violation(f"{who} does not mark a late message as late")
        newest = max(newest, row.lamport)
        if row.id in node.notified:
            order.append(row.id)
    fresh = [
        name for name in order if name not in node.relayed
    ]  # relayed events were there before their author sent them
    shown = {row.id for row in rows} - node.relayed
    if fresh != [name for name in node.notified if name in shown]:
        raise Violation(f"{who} notified clients in another order than the log")
