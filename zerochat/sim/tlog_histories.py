"""Histories of groups that keep a log: witnesses crash, are away and lie up to their bound, an operator may show two
logs, and what must hold for all others.

No two of them believe two logs of one name: whatever a quorum has cosigned is the beginning of whatever else it has.
Nothing that is believed is without its bytes. And whoever was away for so long that a message to it was overdue finds
it in the log when it comes back, though its author is gone by then: in the one in force or in one that was replaced
since, also where the operator of that one has lied. Nobody is convicted but an operator that has shown two logs.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

from zerochat.evidence.merkle import Frontier
from zerochat.evidence.note import Note, cosignature, parse_checkpoint, parse_note
from zerochat.evidence.witness import Entry, checkpoint, entry_of, parse_entry
from zerochat.group.effects import Admit, Dispatch
from zerochat.group.inputs import CreateGroup, Moment, PostToLog, Received, SendPost
from zerochat.group.membership import LEDGER, Policy, may_post
from zerochat.group.notifications import Differs, Disagreement, Forked, LogSplit
from zerochat.group.state import Group
from zerochat.group.tlog import messages
from zerochat.group.tlog.adoption import current
from zerochat.group.transaction import Turn
from zerochat.group.wire.tlog import LOG_PIECE, LOG_POST, LogPieceBody, LogPostBody, PostedBody, packed
from zerochat.sim.actions import People, drawn_rotation
from zerochat.sim.crypto_cache import remembering
from zerochat.sim.low_limits import narrowed
from zerochat.sim.node import Node, Violation, check_logs
from zerochat.sim.null_packer import TransparentPacker
from zerochat.sim.world import SIMULATED_PACKERS, Faults, World

MINUTE = 60_000
CALM_MS = 150 * MINUTE
"""How long it may take, once nothing more goes wrong, until what is overdue is in the log: an operator that has lied is
replaced when entries have had no place for five minutes, and the next one has to be one that has not."""
LOOK_MS = 30_000
REAL_EVERY = 10
OVERDUE_MS = 12 * MINUTE
"""A message that somebody has not acknowledged for so long is in the log, where nothing goes wrong."""


def envelope_of(seed: int) -> str:
    """A tenth of the histories have really encrypted envelopes, of both generations by turns."""
    return f"didcomm/v{1 + seed // REAL_EVERY % 2}" if seed % REAL_EVERY == 0 else TransparentPacker.name


class Court(World):
    """A world in which some witnesses lie."""

    watchful = True

    def __init__(self, seed: int, members: int, liars: int, faults: Faults, say: Callable[[str], None] | None) -> None:
        self.away: set[str] = set()
        self.lied: set[str] = set()
        """The operators that have shown another log."""
        super().__init__(seed, members, faults, envelope_of(seed), say)
        names = list(self.nodes)
        self.liars = set(random.Random(f"liars {seed}").sample(names[:4], liars))
        """They say that they hold what they do not, give something else to whoever asks for it, and cosign whatever a
        lying operator shows."""
        for name in self.liars:
            self.nodes[name].logbook.lies = True

    @property
    def honest(self) -> list[str]:
        return [name for name in self.nodes if name not in self.liars]

    def _accused(self, node: Node, notice: Forked | Disagreement | Differs | LogSplit) -> None:
        """Nobody here is to be accused but who has shown two logs."""
        if not isinstance(notice, LogSplit) or self.name_of(notice.operator) not in self.lied:
            super()._accused(node, notice)

    def go_away(self, name: str) -> None:
        """Nothing gets there, nor away from there, and everybody notices."""
        self.away.add(name)
        for other in self.nodes:
            for one, end in ((name, other), (other, name)):
                for link in [link for link, there in self.nodes[one].connected.items() if there == end]:
                    self._disconnect(self.nodes[one], link)

    def come_back(self, name: str) -> None:
        self.away.discard(name)
        self._connect_all()

    def _frame(self, name: str, stimulus: Received) -> None:
        sender = self.nodes[name].connected.get(stimulus.link, "")
        if self.away.isdisjoint((name, sender)):
            super()._frame(name, stimulus)

    def _ends(self, node: Node, link: bytes) -> tuple[Node, Admit] | None:
        ends = super()._ends(node, link)
        return None if ends is not None and not self.away.isdisjoint((node.name, ends[0].name)) else ends

    def name_of(self, did: str) -> str:
        return next(
            (name for name, node in self.nodes.items() if any(one.me == did for one in node.agent.groups.values())), ""
        )

    # --- an operator that lies --------------------------------------------------------------------------------------

    def show_another(self, dice: random.Random) -> None:
        """Whoever operates the log shows some of the witnesses another one than the others have, already cosigned by
        those that lie; and later everybody, with all that have cosigned it by then."""
        for name in self.nodes:
            group = self.group(name)
            log = current(group)
            if log is None or log.operated is None or name in self.away:
                continue
            blob = b"another log %d" % dice.randrange(100)
            record = entry_of("close", group.me, blob).record()
            self.lied.add(name)
            frontier = log.followed.frontier
            note = checkpoint(log.rules.origin, frontier.with_entry(record), group.seed)
            for liar in sorted(self.liars):
                if self.group(liar).me in log.rules.witnesses:
                    note = self._cosigned(note, liar)
            for witness in dice.sample(log.rules.witnesses, dice.randint(1, len(log.rules.witnesses))):
                post = LogPostBody(group.id, log.rules.origin, [PostedBody(record.decode(), packed(blob))])
                piece = LogPieceBody(group.id, log.rules.origin, frontier.size, [record.decode()], note.written())
                self._lie(name, witness, LOG_POST, post)
                self._lie(name, witness, LOG_PIECE, piece)
            if dice.random() < 0.7:  # and lets the other log grow by as much, for whoever has not seen this one
                self.ask(name, PostToLog(group.id, "close", b"the same log %d" % dice.randrange(100)))
            gather = partial(self._gather, name, log.rules.origin, frontier.size, record, note)
            self.after(dice.randint(1_000, MINUTE), gather)

    def _cosigned(self, note: Note, witness: str) -> Note:
        return note.with_line(cosignature(note.text, self.group(witness).seed, self.now // 1000))

    def _gather(self, name: str, origin: str, size: int, record: bytes, note: Note) -> None:
        """An operator tells everybody of its other log, with the lines of those witnesses that have taken it."""
        if name in self.away:
            return
        for one in self.honest:
            log = self.group(one).logs.get(origin)
            last = log.watched.last if log is not None and log.watched is not None else None
            if last is not None and last.text == note.text:
                note = self._cosigned(note, one)
        for member in self.group(name).others:
            piece = LogPieceBody(self.group(name).id, origin, size, [record.decode()], note.written())
            self._lie(name, member, LOG_PIECE, piece)

    def _lie(self, name: str, to: str, kind: str, body: LogPostBody | LogPieceBody) -> None:
        node = self.nodes[name]
        turn = Turn(node.agent, Moment(self.now, self.dice.randbytes), SIMULATED_PACKERS)
        messages.say(turn, self.group(name).id, to, kind, body)
        for effect in turn.effects:
            if isinstance(effect, Dispatch):
                self._dispatch(node, effect.link, effect.envelope)

    # --- what must hold ---------------------------------------------------------------------------------------------

    def check_court(self) -> None:
        """Raise Violation where somebody honest believes what another one does not, or what nobody holds."""
        logs: dict[str, tuple[str, list[bytes]]] = {}
        for name in self.honest:
            node = self.nodes[name]
            self.look_at(name)
            if name in self.lied:
                continue  # its journal has the log that it gave places in, whichever a quorum has cosigned
            for origin, log in self.group(name).logs.items():
                size = log.followed.frontier.size
                kept = node.logbook.entries.get((self.group(name).id, origin), [])[:size]
                self._check_own(name, origin, log.followed.frontier, kept)
                other, longest = logs.setdefault(origin, (name, kept))
                if kept[: len(longest)] != longest[: len(kept)]:
                    raise Violation(f"seed {self.seed}: {name} and {other} believe two logs of one name")
                if len(kept) > len(longest):
                    logs[origin] = name, kept
        for origin, (name, records) in logs.items():
            for record in records:
                self._check_held(origin, name, parse_entry(record))

    def _check_own(self, name: str, origin: str, frontier: Frontier, kept: Sequence[bytes]) -> None:
        place = Frontier()
        roots = [place.root()]
        for record in kept:
            place = place.with_entry(record)
            roots.append(place.root())
        if place != frontier:
            raise Violation(f"seed {self.seed}: {name} keeps other entries than it believes")
        for size, _, note in self.nodes[name].logbook.notes.get((self.group(name).id, origin), []):
            if size < len(roots) and parse_checkpoint(parse_note(note.encode()).text).root != roots[size]:
                raise Violation(f"seed {self.seed}: {name} keeps a checkpoint of another log")

    def _check_held(self, origin: str, name: str, entry: Entry) -> None:
        """Of those who have cosigned, one is honest and not its author."""
        witnesses = self.group(name).logs[origin].rules.witnesses
        for one in self.honest:
            if self.group(one).me in witnesses and self.group(one).me != entry.author:
                blob = self.nodes[one].logbook.blob(self.group(one).id, entry.hash)
                if blob is not None and entry.is_of(blob):
                    return
        raise Violation(f"seed {self.seed}: {name} believes an entry whose bytes no honest witness holds")

    def owing(self, absent: str, since: int) -> list[str]:
        """What was said to a member who is away, so long ago that it must be in the log, and is not."""
        found = []
        member = self.group(absent).me
        for name in self.honest:
            group = self.group(name)
            one = group.subscribers.get(member)
            if name == absent or group.stream is None or one is None or name in self.away:
                continue
            entries = self._entries(name, group)
            for kept in self.nodes[name].signed:
                ours = kept.author == group.me and kept.alias == group.stream.alias and one.begun < kept.time
                overdue = ours and since <= kept.time < self.now - OVERDUE_MS
                if overdue and entry_of("message", group.me, kept.message).record() not in entries:
                    found.append(f"{name} has not posted what it said at {kept.time}")
        return found

    def _entries(self, name: str, group: Group) -> set[bytes]:
        """Whatever is in one of the logs that this member follows."""
        found: set[bytes] = set()
        for origin, log in group.logs.items():
            found |= set(self.nodes[name].logbook.entries.get((group.id, origin), [])[: log.followed.frontier.size])
        return found

    def texts(self, name: str) -> list[str]:
        return [str(row.record) for row in self.nodes[name].log]


@remembering()
@narrowed
def play_accountable(
    seed: int,
    faults: Faults | None = None,
    say: Callable[[str], None] | None = None,
    made: Callable[[Court], None] | None = None,
) -> Court:
    """One history of a group that keeps a log. `made`: handed the world before anything happens in it. Raises Violation
    with the seed when a promise is broken."""
    dice = random.Random(f"accountable {seed}")
    members = dice.choice((4, 4, 5, 7))
    liars = dice.choice((1, 2, 2) if members == 7 else (0, 1, 1))
    court = Court(seed, members, liars, faults or Faults(loss=0.1), say)
    if made:
        made(court)
    court.set_rotation(drawn_rotation(f"accountable {seed}"))
    names = list(court.nodes)
    people = People(court, random.Random(seed), names)
    founding = CreateGroup("court", names[0], court.envelope, "sender-key", Policy(remove="anyone", quorum=0), LEDGER)
    court.ask(names[0], founding)
    for name in names[1:]:
        people.join(name, names)
        if not court.run(lambda name=name: bool(court.nodes[name].agent.groups), for_ms=600_000):  # type: ignore[misc]
            raise Violation(f"seed {seed}: {name} never got into the group")
    people.stop()
    group = court.group(names[0]).id

    def agreed() -> bool:
        terms = {court.group(name).view.terms for name in names}
        (first,) = terms if len(terms) == 1 else (None,)
        return first is not None and len(first.rules.witnesses) == (7 if members == 7 else 4)

    if not court.run(agreed, CALM_MS, LOOK_MS):
        raise Violation(f"seed {seed}: nobody has said who keeps the log")
    lying_operator = dice.random() < 0.5
    for number in range(dice.randint(6, 14)):
        what = dice.random()
        name = dice.choice([one for one in names if one not in court.away])
        if what < 0.35:
            court.ask(name, SendPost(group, f"word {number} of {name}"))
        elif what < 0.5:
            court.ask(name, PostToLog(group, "close", f"close {number} of {name}".encode()))
        elif what < 0.65:
            court.restart(name)
        elif what < 0.8 and len(court.away) < 2:
            court.go_away(name)
        elif what < 0.9 and court.away:
            court.come_back(dice.choice(sorted(court.away)))
        elif lying_operator:
            court.show_another(dice)
        court.run(for_ms=dice.randint(0, 5 * MINUTE))
        court.check_court()
    for name in sorted(court.away):
        court.come_back(name)
    court.run(for_ms=3 * MINUTE)
    _away_and_back(court, dice, people)
    return court


def _away_and_back(court: Court, dice: random.Random, people: People) -> None:
    """Somebody honest is away while others speak, and finds all that when it comes back, though one of them is gone."""
    seed, names = court.seed, list(court.nodes)
    absent = dice.choice(court.honest)
    writers = [one for one in court.honest if may_post(court.group(one).view, court.group(one).me, 1 << 50)]
    gone = next((name for name in dice.sample(writers, len(writers)) if name != absent), "")
    if not gone:
        return
    since = court.now
    court.go_away(absent)
    for name in names:
        if name != absent:
            for number in range(2):
                court.ask(name, SendPost(court.group(name).id, f"last words {number} of {name}"))
    court.run(for_ms=OVERDUE_MS + MINUTE)
    if not court.run(lambda: not court.owing(absent, since), CALM_MS, LOOK_MS):
        raise Violation(f"seed {seed}: {court.owing(absent, since)[0]}")
    court.check_court()
    court.go_away(gone)
    court.come_back(absent)

    def heard() -> bool:
        texts = " ".join(court.texts(absent))
        signed = {one.message for one in court.nodes[absent].signed if one.author == court.group(gone).me}
        theirs = [one.message for one in court.nodes[gone].signed if one.author == court.group(gone).me]
        said = all(f"last words {number} of {gone}" in texts for number in range(2))
        return said and signed.issuperset(theirs[-2:])

    if not court.run(heard, CALM_MS, LOOK_MS):
        raise Violation(f"seed {seed}: {absent} lacks what {gone} has said and signed and posted")
    court.come_back(gone)
    court.run(lambda: court.seated() and not any(court.missing()), CALM_MS, LOOK_MS)
    court.check_court()
    check_logs(seed, [court.nodes[name] for name in court.honest], court.made)
