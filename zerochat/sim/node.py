"""One simulated machine, and what must hold of what it has kept."""

from collections.abc import Collection, Sequence
from itertools import accumulate

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from zerochat.crypto.encoding import b64url_bytes
from zerochat.didcomm.endpoint import Endpoint
from zerochat.evidence.equivocation import Pair, contradiction
from zerochat.group.effects import (
    Admit,
    Compare,
    Confirm,
    Dial,
    DropBlobs,
    Effect,
    Fetch,
    Forget,
    KeepAck,
    KeepBlob,
    KeepEntries,
    KeepLog,
    KeepMessage,
    KeepNote,
    KeepRival,
    KeepStatement,
    KeepStray,
    LookUp,
    Recall,
    Receipt,
    Refute,
    Remember,
    Remembered,
    SealAcks,
)
from zerochat.group.event_log import lamport
from zerochat.group.event_log.event import CONTROL, POST
from zerochat.group.inputs import Compared, Fetched, LookedUp, Recalled
from zerochat.group.state import Agent, Group
from zerochat.group.sync import fork_detection as compare
from zerochat.group.sync.history_policy import Entry, floor_of, portion
from zerochat.group.sync.negentropy import Items
from zerochat.sim.crypto_cache import event_of
from zerochat.sim.file_store import Filing
from zerochat.sim.tlog_store import Logbook

RECALL_BYTES_MAX = 256 * 1024
"""Of a stream's messages in one answer to a `Recall`."""


class Node(Struct):
    """One simulated machine: the core's state, its log, its timers and its connections."""

    name: str
    address: Endpoint
    queue_address: Endpoint
    server_key: bytes
    agent: Agent
    log: list[Remember] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)
    admitted: dict[bytes, Admit] = field(default_factory=dict)
    dialled: dict[bytes, Dial] = field(default_factory=dict)
    connected: dict[bytes, str] = field(default_factory=dict)
    """Our links that are up, with the node at the other end."""
    answers: dict[int, Effect] = field(default_factory=dict)
    audiences: dict[str, frozenset[str]] = field(default_factory=dict)
    """For each post of ours, the members that it was meant for when it was made."""
    places: dict[str, int] = field(default_factory=dict)
    """And its place in our chain."""
    dropped: dict[str, int] = field(default_factory=dict)
    hidden: bool = False
    refuted: list[Remember] = field(default_factory=list)
    """What others have handed over and its author has not said."""
    told: dict[str, None] = field(default_factory=dict)
    """The events that its faces were told of, in that order, but for what was refuted since."""
    handed: set[str] = field(default_factory=set)
    """The events that others than their authors have brought: these may come once more, from the author."""
    receipts: list[Receipt] = field(default_factory=list)
    signed: list[KeepMessage] = field(default_factory=list)
    """The messages of our own streams, and of those that we hear."""
    acks: dict[tuple[str, str], KeepAck] = field(default_factory=dict)
    """By group and member: its last signed acknowledgement of our stream."""
    rivals: dict[tuple[str, str], Pair] = field(default_factory=dict)
    """By group and author: two signed messages of its that cannot both be."""

    logbook: Logbook = field(default_factory=Logbook)
    """What is kept of groups' logs."""
    files: Filing = field(default_factory=Filing)
    """The contents of files."""

    def copy(self) -> "Node":
        """Another node that knows the same, and goes its own way from here on."""
        kept = asdict(self)
        own = {
            name: value.copy()
            for name, value in kept.items()
            if isinstance(value, list | dict | set | Logbook | Filing)
        }
        return Node(**kept | own)

    def remember(self, effect: Remembered) -> None:
        """What the journal does with it."""
        match effect:
            case Remember():
                known = next((row for row in self.log if row.id == effect.id and row.id in self.handed), None)
                if effect.vouched or effect.history:
                    self.handed.add(effect.id)
                self.refuted = [row for row in self.refuted if row.id != effect.id]
                if known is None:
                    self.log.append(effect)
                elif known.vouched and not effect.vouched:
                    self.log[self.log.index(known)] = replace(known, vouched="")
            case Confirm(group, author, after, upto):
                self.log = [
                    replace(row, vouched="")
                    if (row.group, row.author) == (group, author) and after < row.seq <= upto
                    else row
                    for row in self.log
                ]
            case Refute(group, author, after, upto):
                self._refute([row for row in self._vouched(group, author) if after < row.seq <= upto])
            case Receipt():
                self.receipts.append(effect)
            case KeepMessage():
                self.signed.append(effect)
                self.logbook.signed(effect)
            case KeepAck(group, _, member, alias, time, of):
                if any(
                    (one.group, one.alias, one.time, one.signature) == (group, alias, time, of) for one in self.signed
                ):
                    if not effect.before:
                        self.acks[group, member] = effect
                    self.logbook.acknowledged(effect)
            case KeepStatement() | SealAcks() | KeepStray():
                pass
            case KeepLog() | KeepEntries() | KeepNote() | KeepBlob() | DropBlobs():
                self.logbook.keep(effect)
            case KeepRival():
                self._compare(effect)
            case Forget(group):
                for row in self.log:
                    if row.group == group:
                        self.told.pop(row.id, None)
                self.log = [row for row in self.log if row.group != group]
                self.receipts = [one for one in self.receipts if one.group != group]
                self.signed = [one for one in self.signed if one.group != group]
                self.acks = {key: one for key, one in self.acks.items() if key[0] != group}
                self.logbook.forget(group)
                self.rivals = {key: one for key, one in self.rivals.items() if key[0] != group}

    def _compare(self, one: KeepRival) -> None:
        stream = (kept.message for kept in self.signed if (kept.group, kept.author) == (one.group, one.author))
        for other in (one.beside,) if one.beside else stream:
            if found := contradiction(other, one.message):
                self.rivals.setdefault((one.group, one.author), found)

    def recall(self, asked: Recall) -> Recalled:
        """What the journal reads back of what we have said."""
        chain = sorted(
            (row.seq, row.record) for row in self.log if row.group == asked.group and row.author == asked.author
        )
        records = [record for seq, record in chain if seq > asked.after][: asked.limit]
        stream = (one for one in self.signed if asked.alias and (one.group, one.alias) == (asked.group, asked.alias))
        lacking = [(one.upto, one.message) for one in stream if one.time > asked.time]
        sizes = accumulate(len(message) for _, message in lacking)
        room = sum(size <= RECALL_BYTES_MAX for size in sizes)
        messages = lacking[: min(asked.limit, max(1, room))]
        return Recalled(asked.group, asked.member, tuple(records), tuple(messages))

    def look_up(self, asked: LookUp) -> LookedUp:
        """What the journal finds of a group's log."""
        ours = (one for one in self.signed if one.group == asked.group)
        found = self.logbook.answer(asked.group, asked.origin, asked.what, ours)
        return LookedUp(asked.group, asked.origin, asked.what, found)

    def fetch(self, asked: Fetch) -> Fetched:
        """What the journal finds of what a member asks for."""
        kept = [row for row in self.log if row.group == asked.group]

        def nth_post(number: int, before: int) -> int:
            times = sorted((row.lamport for row in kept if row.lamport < before and row.type == POST), reverse=True)
            return times[number - 1] if len(times) >= number else 0

        rows = kept
        if asked.back:
            rows = sorted(kept, key=lamport.place, reverse=True)
        entries = (Entry(row.author, row.seq, row.lamport, row.record) for row in rows)
        floor = floor_of(asked.rules, asked.joined, nth_post)
        records, more = portion(entries, asked.want, floor, asked.limit)
        answer = asked.group, asked.member, asked.thread, tuple(records), asked.back, more
        return Fetched(*answer, asked.want, asked.page, asked.pages)

    def compare(self, asked: Compare) -> Compared:
        """What comes of comparing the log with what a member says of its own."""
        kept = {row.id: row for row in self.log if row.group == asked.group}
        posts = [row for row in kept.values() if row.type not in CONTROL and row.lamport >= asked.since]
        items = Items(sorted((row.lamport, b64url_bytes(row.id)) for row in posts))

        def place_of(name: str) -> tuple[str, int] | None:
            return None if kept[name].vouched else (kept[name].author, kept[name].seq)

        return compare.look(asked, items, place_of)

    def _vouched(self, group: str, author: str) -> list[Remember]:
        return [row for row in self.log if (row.group, row.author) == (group, author) and row.vouched]

    def _refute(self, rows: list[Remember]) -> None:
        self.refuted += rows
        for row in rows:
            self.told.pop(row.id, None)
        self.log = [row for row in self.log if row not in rows]


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Agent).decode


def stored(agent: Agent) -> Agent:
    """What a process finds of the state that the one before it has stored."""
    return _decode(_encode(agent))


class Violation(AssertionError):
    """A promise was broken; the message says which, where and in which seed."""


def check_logs(seed: int, nodes: Sequence[Node], made: Collection[str]) -> None:
    """Raise Violation unless each of these nodes has what it has once, in one order, and of each other nothing
    but what was really said; `made` are the ids of that."""
    meant: dict[str, set[str]] = {}
    mine = {group.me for node in nodes for group in node.agent.groups.values()}
    for node in nodes:
        for group in node.agent.groups.values():
            for post, audience in node.audiences.items():
                meant[post] = {*audience, group.me}
    orders = {}
    for node in [node for node in nodes if node.agent.groups]:
        (group,) = node.agent.groups.values()
        ids = [row.id for row in node.log]
        if len(ids) != len(set(ids)):
            raise Violation(f"seed {seed}: {node.name} delivered an event twice")
        places: dict[str, int] = {}
        known: dict[str, int] = {}
        for row in node.log:
            event = event_of(row.record)
            if event.id != row.id:
                raise Violation(f"seed {seed}: {node.name} keeps a record under another name")
            if row.author in mine and row.id not in made and not row.vouched:
                raise Violation(f"seed {seed}: {node.name} keeps what {row.author} never said")
            if row.type not in CONTROL and row.id not in node.handed:
                # What others hand over comes when it is asked for, and goes where its author's own word puts it.
                if row.seq <= places.get(row.author, 0):
                    raise Violation(f"seed {seed}: {node.name} broke the order of {row.author}")
                places[row.author] = row.seq
                if group.me not in meant.get(row.id, {group.me}) and not _may_have(group, row):
                    raise Violation(f"seed {seed}: {node.name} got a post that was not meant for it")
            if any(known.get(cause, 0) >= row.lamport for cause in (event.pre, *event.deps, *event.conc)):
                raise Violation(f"seed {seed}: {node.name} shows an effect before its cause")
            if any(dep not in known for dep in event.deps):
                raise Violation(f"seed {seed}: {node.name} delivered before a cause")
            known[row.id] = row.lamport
        _check_announced(seed, node)
        orders[node.name] = [row.id for row in sorted(node.log, key=lamport.place) if row.type not in CONTROL]
    for one, first in orders.items():
        for other, second in orders.items():
            both = set(first) & set(second)
            if [i for i in first if i in both] != [i for i in second if i in both]:
                raise Violation(f"seed {seed}: {one} and {other} disagree about the order")


def _may_have(group: Group, row: Remember) -> bool:
    """Whether a member may have what was said before whoever said it knew of the member."""
    me = group.view.known(group.me)
    rules = (group.view.policy.history, me.history if me is not None else "")
    return me is not None and row.lamport >= floor_of(rules, me.joined, lambda _, __: 0)


def _check_announced(seed: int, node: Node) -> None:
    """What a face is told goes to the end of what it shows, where it is not said to be late; then it goes where the
    log has it. So it comes to the same as the log, read anew."""
    newest, order = 0, []
    for row in node.log:
        if row.lamport < newest and not (row.late or row.history):
            raise Violation(f"seed {seed}: {node.name} does not say of a late message that it is late")
        newest = max(newest, row.lamport)
        if row.id in node.told:
            order.append(row.id)
    if node.told.keys() - set(order):
        raise Violation(f"seed {seed}: {node.name} has not got any more what it has shown")
    fresh = [name for name in order if name not in node.handed]  # else it was there before its author said it
    if fresh != [name for name in node.told if name not in node.handed]:
        raise Violation(f"seed {seed}: {node.name} has told its faces of what it has in another order")
