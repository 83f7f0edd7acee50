"""Histories of groups with a transparency log: witnesses crash, are offline or malicious, operators equivocate.

Invariants: no two honest members accept two versions of a log; every accepted entry has its content; a member that was
offline until messages to it were overdue finds them in the current or a replaced log, even if their author is gone;
only an operator that showed two logs is convicted.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import Note, cosignature, parse_checkpoint, parse_note
from zerochat.evidence.witness import Entry, checkpoint, entry_of, parse_entry
from zerochat.group.effects import AllowClient, SendEnvelope
from zerochat.group.inputs import CreateGroup, Received, SendPost, StepContext, SubmitTlogEntry
from zerochat.group.membership import TLOG, Policy, may_post
from zerochat.group.notifications import DifferenceFound, ForkDetected, TlogSplit, ViewDisagreement
from zerochat.group.state import Group
from zerochat.group.tlog import messages
from zerochat.group.tlog.adoption import current_tlog
from zerochat.group.transaction import Transaction
from zerochat.group.wire.tlog import (
    TLOG_EXTENSION,
    TLOG_SUBMIT,
    TlogEntryBody,
    TlogExtensionBody,
    TlogSubmitBody,
    pack_blob,
)
from zerochat.sim.actions import Users, random_rotation
from zerochat.sim.fast_crypto import TransparentPacker, cached_signatures
from zerochat.sim.low_limits import with_low_limits
from zerochat.sim.node import Node, Violation, check_logs
from zerochat.sim.world import SIMULATED_PACKERS, Faults, World

MINUTE = 60_000
CALM_MS_MAX = 150 * MINUTE
"""Time until overdue messages are in the log after the last fault: a malicious operator is replaced after five minutes,
and the next one must be honest."""
POLL_MS = 30_000
ENCRYPTED_EVERY = 10
OVERDUE_MS = 12 * MINUTE
"""Without faults, a message without an acknowledgement for this long is in the log."""


def envelope_of(seed: int) -> str:
    """The envelope format of a seed: a tenth use real encryption, of both versions in turn."""
    return f"didcomm/v{1 + seed // ENCRYPTED_EVERY % 2}" if seed % ENCRYPTED_EVERY == 0 else TransparentPacker.name


class TlogWorld(World):
    """A world with malicious witnesses."""

    check_deliveries = True

    def __init__(
        self, seed: int, members: int, liars: int, faults: Faults, trace: Callable[[str], None] | None
    ) -> None:
        self.isolated: set[str] = set()
        self.forked_by: set[str] = set()
        """Operators that have shown two logs."""
        super().__init__(seed, members, faults, envelope_of(seed), trace)
        names = list(self.nodes)
        self.malicious = set(random.Random(f"liars {seed}").sample(names[:4], liars))
        """Witnesses that claim to have content they lack, serve other content, and cosign a forked log."""
        for name in self.malicious:
            self.nodes[name].tlogs.malicious = True

    @property
    def honest(self) -> list[str]:
        return [name for name in self.nodes if name not in self.malicious]

    def _on_accusation(
        self, node: Node, notification: ForkDetected | ViewDisagreement | DifferenceFound | TlogSplit
    ) -> None:
        """Only operators that have shown two logs may be accused."""
        if not isinstance(notification, TlogSplit) or self.node_of(notification.operator) not in self.forked_by:
            super()._on_accusation(node, notification)

    def isolate(self, name: str) -> None:
        """Cut a node off; the others notice."""
        self.isolated.add(name)
        for other in self.nodes:
            for one, end in ((name, other), (other, name)):
                for link in [link for link, there in self.nodes[one].connected.items() if there == end]:
                    self._disconnect(self.nodes[one], link)

    def reconnect(self, name: str) -> None:
        self.isolated.discard(name)
        self._connect_all()

    def _frame(self, name: str, input_: Received) -> None:
        sender = self.nodes[name].connected.get(input_.link, "")
        if self.isolated.isdisjoint((name, sender)):
            super()._frame(name, input_)

    def _ends(self, node: Node, link: bytes) -> tuple[Node, AllowClient] | None:
        ends = super()._ends(node, link)
        return None if ends is not None and not self.isolated.isdisjoint((node.name, ends[0].name)) else ends

    def node_of(self, did: str) -> str:
        return next(
            (name for name, node in self.nodes.items() if any(one.me == did for one in node.agent.groups.values())), ""
        )

    # --- equivocating operator --------------------------------------------------------------------------------------

    def fork_tlog(self, rng: random.Random) -> None:
        """The operator shows some witnesses another log, cosigned by the malicious ones, and later all members with all
        cosignatures."""
        for name in self.nodes:
            group = self.group(name)
            log = current_tlog(group)
            if log is None or log.operated is None or name in self.isolated:
                continue
            blob = b"another log %d" % rng.randrange(100)
            record = entry_of("close", group.me, blob).record()
            self.forked_by.add(name)
            frontier = log.followed.frontier
            note = checkpoint(log.rules.origin, frontier.with_entry(record), group.seed)
            for liar in sorted(self.malicious):
                if self.group(liar).me in log.rules.witnesses:
                    note = self._cosigned(note, liar)
            for witness in rng.sample(log.rules.witnesses, rng.randint(1, len(log.rules.witnesses))):
                post = TlogSubmitBody(group.id, log.rules.origin, [TlogEntryBody(record.decode(), pack_blob(blob))])
                piece = TlogExtensionBody(
                    group.id, log.rules.origin, frontier.size, [record.decode()], note.serialize()
                )
                self._send_lie(name, witness, TLOG_SUBMIT, post)
                self._send_lie(name, witness, TLOG_EXTENSION, piece)
            if rng.random() < 0.7:  # the other log grows by the same amount
                self.run_command(name, SubmitTlogEntry(group.id, "close", b"the same log %d" % rng.randrange(100)))
            gather = partial(self._collect_cosignatures, name, log.rules.origin, frontier.size, record, note)
            self.after(rng.randint(1_000, MINUTE), gather)

    def _cosigned(self, note: Note, witness: str) -> Note:
        return note.with_line(cosignature(note.text, self.group(witness).seed, self.now // 1000))

    def _collect_cosignatures(self, name: str, origin: str, size: int, record: bytes, note: Note) -> None:
        """Send the forked log to all members, with the cosignatures of the witnesses that accepted it."""
        if name in self.isolated:
            return
        for one in self.honest:
            log = self.group(one).tlogs.by_name.get(origin)
            last = log.watched.last if log is not None and log.watched is not None else None
            if last is not None and last.text == note.text:
                note = self._cosigned(note, one)
        for member in self.group(name).others:
            piece = TlogExtensionBody(self.group(name).id, origin, size, [record.decode()], note.serialize())
            self._send_lie(name, member, TLOG_EXTENSION, piece)

    def _send_lie(self, name: str, to: str, kind: str, body: TlogSubmitBody | TlogExtensionBody) -> None:
        node = self.nodes[name]
        turn = Transaction(node.agent, StepContext(self.now, self.rng.randbytes), SIMULATED_PACKERS)
        messages.send_tlog_message(turn, self.group(name).id, to, kind, body)
        for effect in turn.effects:
            if isinstance(effect, SendEnvelope):
                self._dispatch(node, effect.link, effect.envelope)

    # --- invariants -------------------------------------------------------------------------------------------------

    def check_tlogs(self) -> None:
        """Raise Violation if two honest members accept different logs, or content that no honest witness has."""
        logs: dict[str, tuple[str, list[bytes]]] = {}
        for name in self.honest:
            node = self.nodes[name]
            self.check_node(name)
            if name in self.forked_by:
                continue  # its journal has the version that it sequenced
            for origin, log in self.group(name).tlogs.by_name.items():
                size = log.followed.frontier.size
                kept = node.tlogs.entries.get((self.group(name).id, origin), [])[:size]
                self._check_checkpoints(name, origin, log.followed.frontier, kept)
                other, longest = logs.setdefault(origin, (name, kept))
                if kept[: len(longest)] != longest[: len(kept)]:
                    raise Violation(f"seed {self.seed}: {name} and {other} accept two versions of one log")
                if len(kept) > len(longest):
                    logs[origin] = name, kept
        for origin, (name, records) in logs.items():
            for record in records:
                self._check_blob_held(origin, name, parse_entry(record))

    def _check_checkpoints(self, name: str, origin: str, frontier: Frontier, kept: Sequence[bytes]) -> None:
        place = Frontier()
        roots = [place.root()]
        for record in kept:
            place = place.with_entry(record)
            roots.append(place.root())
        if place != frontier:
            raise Violation(f"seed {self.seed}: {name} stores other entries than it accepts")
        for size, _, note in self.nodes[name].tlogs.notes.get((self.group(name).id, origin), []):
            if size < len(roots) and parse_checkpoint(parse_note(note.encode()).text).root != roots[size]:
                raise Violation(f"seed {self.seed}: {name} stores a checkpoint of another log")

    def _check_blob_held(self, origin: str, name: str, entry: Entry) -> None:
        """Of the cosigners, one is honest and not the author."""
        witnesses = self.group(name).tlogs.by_name[origin].rules.witnesses
        for one in self.honest:
            if self.group(one).me in witnesses and self.group(one).me != entry.author:
                blob = self.nodes[one].tlogs.blob(self.group(one).id, entry.hash)
                if blob is not None and entry.matches(blob):
                    return
        raise Violation(f"seed {self.seed}: {name} accepts an entry whose content no honest witness has")

    def overdue_entries(self, absent: str, since: int) -> list[str]:
        """Messages to an offline member that must be in the log by now and are not."""
        found = []
        member = self.group(absent).me
        for name in self.honest:
            group = self.group(name)
            one = group.streams.subscribers.get(member)
            if name == absent or group.streams.own is None or one is None or name in self.isolated:
                continue
            entries = self._entries(name, group)
            for kept in self.nodes[name].signed:
                ours = kept.author == group.me and kept.alias == group.streams.own.alias and one.begun < kept.time
                overdue = ours and since <= kept.time < self.now - OVERDUE_MS
                if overdue and entry_of("message", group.me, kept.message).record() not in entries:
                    found.append(f"{name} has not submitted its message of {kept.time}")
        return found

    def _entries(self, name: str, group: Group) -> set[bytes]:
        """The entries of all logs that this member follows."""
        found: set[bytes] = set()
        for origin, log in group.tlogs.by_name.items():
            found |= set(self.nodes[name].tlogs.entries.get((group.id, origin), [])[: log.followed.frontier.size])
        return found

    def texts(self, name: str) -> list[str]:
        return [str(row.record) for row in self.nodes[name].log]


@cached_signatures()
@with_low_limits
def play_accountable(
    seed: int,
    faults: Faults | None = None,
    trace: Callable[[str], None] | None = None,
    on_world: Callable[[TlogWorld], None] | None = None,
) -> TlogWorld:
    """One history of a group with a transparency log. `on_world` receives the world before the run. Raises
    Violation."""
    rng = random.Random(f"accountable {seed}")
    members = rng.choice((4, 4, 5, 7))
    liars = rng.choice((1, 2, 2) if members == 7 else (0, 1, 1))
    world = TlogWorld(seed, members, liars, faults or Faults(loss=0.1), trace)
    if on_world:
        on_world(world)
    world.set_rotation(random_rotation(f"accountable {seed}"))
    names = list(world.nodes)
    people = Users(world, random.Random(seed), names)
    founding = CreateGroup("world", names[0], world.envelope, "sender-key", Policy(remove="anyone", quorum=0), TLOG)
    world.run_command(names[0], founding)
    for name in names[1:]:
        people.join(name, names)
        if not world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=600_000):  # type: ignore[misc]
            raise Violation(f"seed {seed}: {name} never joined the group")
    people.stop()
    group = world.group(names[0]).id

    def agreed() -> bool:
        terms = {world.group(name).view.terms for name in names}
        (first,) = terms if len(terms) == 1 else (None,)
        return first is not None and len(first.rules.witnesses) == (7 if members == 7 else 4)

    if not world.run(agreed, CALM_MS_MAX, POLL_MS):
        raise Violation(f"seed {seed}: no operator was appointed")
    lying_operator = rng.random() < 0.5
    for number in range(rng.randint(6, 14)):
        what = rng.random()
        name = rng.choice([one for one in names if one not in world.isolated])
        if what < 0.35:
            world.run_command(name, SendPost(group, f"word {number} of {name}"))
        elif what < 0.5:
            world.run_command(name, SubmitTlogEntry(group, "close", f"close {number} of {name}".encode()))
        elif what < 0.65:
            world.restart(name)
        elif what < 0.8 and len(world.isolated) < 2:
            world.isolate(name)
        elif what < 0.9 and world.isolated:
            world.reconnect(rng.choice(sorted(world.isolated)))
        elif lying_operator:
            world.fork_tlog(rng)
        world.run(for_ms=rng.randint(0, 5 * MINUTE))
        world.check_tlogs()
    for name in sorted(world.isolated):
        world.reconnect(name)
    world.run(for_ms=3 * MINUTE)
    _absent_member_recovers(world, rng, people)
    return world


def _absent_member_recovers(world: TlogWorld, rng: random.Random, people: Users) -> None:
    """An honest member is offline while others post; it must find everything on its return, though one author is
    gone."""
    seed, names = world.seed, list(world.nodes)
    absent = rng.choice(world.honest)
    writers = [one for one in world.honest if may_post(world.group(one).view, world.group(one).me, 1 << 50)]
    gone = next((name for name in rng.sample(writers, len(writers)) if name != absent), "")
    if not gone:
        return
    since = world.now
    world.isolate(absent)
    for name in names:
        if name != absent:
            for number in range(2):
                world.run_command(name, SendPost(world.group(name).id, f"last words {number} of {name}"))
    world.run(for_ms=OVERDUE_MS + MINUTE)
    if not world.run(lambda: not world.overdue_entries(absent, since), CALM_MS_MAX, POLL_MS):
        raise Violation(f"seed {seed}: {world.overdue_entries(absent, since)[0]}")
    world.check_tlogs()
    world.isolate(gone)
    world.reconnect(absent)

    def heard() -> bool:
        texts = " ".join(world.texts(absent))
        signed = {one.message for one in world.nodes[absent].signed if one.author == world.group(gone).me}
        theirs = [one.message for one in world.nodes[gone].signed if one.author == world.group(gone).me]
        said = all(f"last words {number} of {gone}" in texts for number in range(2))
        return said and signed.issuperset(theirs[-2:])

    if not world.run(heard, CALM_MS_MAX, POLL_MS):
        raise Violation(f"seed {seed}: {absent} lacks messages of {gone} that are in the log")
    world.reconnect(gone)
    world.run(lambda: world.fully_connected() and not any(world.missing()), CALM_MS_MAX, POLL_MS)
    world.check_tlogs()
    check_logs(seed, [world.nodes[name] for name in world.honest], world.authored)
