"""Real agents are killed with `kill -9` while they talk; no acknowledged data is lost.

After each kill the journal of the killed agent is examined in a copy. It must open and be intact; it must hold all
that it held at its previous death, all that any other member has recorded as acknowledged by it, and all that any other
member has received from it; and no two members may ever hold different events at one position of a chain.
"""

import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.agent_forks import Nursery
from tests.support.machines import GROUP, Machine, acknowledged, check, everybody_has, machines, meet
from zerochat.agent.api.client_connection import AgentGone
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.group.state import Agent

MEMBERS = ("alice", "bob", "carol", "dave")
STARTING_MAX = 2
"""How many are starting again while the others go on."""
BURST = 6
TALK_S, START_S = 0.06, 0.4
"""A kill comes within so much of the first word, or of the start: just in the middle of things."""
linux = pytest.mark.skipif(sys.platform != "linux", reason="agents are forked, and watched by pidfd")
WAYS = ("sending", "receiving", "both", "starting", "idle")


class Witness:
    """Remembers what each of them had on its disk, and compares."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._copy = folder / "journal.db"
        self.looks = 0
        self._places: dict[tuple[str, int], str] = {}
        """By author and position, the event that is there."""
        self._had: dict[str, set[str]] = defaultdict(set)
        """By name, the events that were on its disk."""
        self._must: dict[str, dict[str, int]] = defaultdict(dict)
        """By DID and author, up to where somebody has word that it has this author's chain."""

    def look(self, machine: Machine) -> Agent:
        """At what is on the disk of one that is dead, as the kill has left it."""
        for name in ("journal.db", "journal.db-wal"):
            source, target = machine.places.data / name, self._copy.with_name(name)
            target.unlink(missing_ok=True)
            if source.exists():
                shutil.copyfile(source, target)
        with Journal.open(self._copy, unlock(machine.places, None)) as journal:
            journal.check()
            state = journal.load(Agent)
            assert state is not None
            rows = journal.by_seq(0, 1 << 20)
            group = next(iter(state.groups.values()))
            assert not journal.refuted(group.id), f"{machine.name} holds that somebody has not said its own words"
        self.looks += 1
        ids = {row.id for row in rows}
        lost = self._had[machine.name] - ids
        assert not lost, f"{machine.name} had {len(lost)} events on its disk that are not there any more"
        self._had[machine.name] = ids
        for row in rows:
            assert self._places.setdefault((row.author, row.position), row.id) == row.id, (
                f"two events are in place {row.position} of one chain; {machine.name} has the second"
            )
        tops: Counter[str] = Counter()
        for row in rows:
            tops[row.author] = max(tops[row.author], row.position)
        for author, top in tops.items():
            chain = group.chain(author)
            assert chain.seq >= top and not chain.fork_seq, f"{machine.name}'s state and log do not fit together"
            self._claim(author, author, top)
        assert group.seq == tops[group.me], f"{machine.name}'s state and its own words do not fit together"
        for author, upto in self._must[group.me].items():
            assert tops[author] >= upto, f"{machine.name} lacks what it has told others that it has, or has told them"
        for did in group.links.peers:
            for author, upto in group.links.acks_of(did).items():
                self._claim(did, author, upto)
        return state

    def told(self, everybody: Sequence[Machine], dead: Machine) -> None:
        """Whatever those who live say of the dead one's having, it must have: of the last message of each."""
        for other in everybody:
            if other is dead or not other.awake:
                continue
            events = [event for event in other.client.get_history(GROUP, limit=30).events if event.type == "message"]
            for event in events[-2:]:
                report = other.client.get_delivery(GROUP, event.id)
                if any(one.nick == dead.name and one.delivered for one in report.members):
                    assert event.id in self._had[dead.name], f"{dead.name} lacks what {other.name} knows it to have"

    def _claim(self, did: str, author: str, upto: int) -> None:
        self._must[did][author] = max(upto, self._must[did].get(author, 0))


def chatter(machine: Machine, count: int, refused: list[str]) -> threading.Thread:
    """Have it say so many lines, one after the other, until it is dead, or refuses to (`refused`)."""

    def talk() -> None:
        for _ in range(count):
            try:
                machine.say(f"{machine.name} says {len(machine.said)}")
            except AgentGone:
                return
            except AgentError as error:
                refused.append(str(error))
                return
            if machine.unsaid:
                return

    thread = threading.Thread(target=talk)
    thread.start()
    return thread


def back(machine: Machine) -> None:
    """It has started again, and says what is not in its log."""
    machine.attend()
    unsaid, machine.unsaid = machine.unsaid, []
    said = set(machine.texts()) if unsaid else set()
    for text in unsaid:
        if text not in said:
            machine.client.send_message(GROUP, text)


def audited(machine: Machine) -> None:
    """Every hash, every signature, and no trace of anybody who has said two things in one place."""
    done = subprocess.run(
        [sys.executable, "-m", "zerochat", "audit", GROUP],
        env=machine.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and re.search(r"^result +valid$", done.stdout, re.MULTILINE), done.stdout + done.stderr
    ledger = machine.client.get_log_summary(GROUP)
    assert (ledger.refuted, ledger.conflicts) == (0, [])


@dataclass
class Tally:
    """What was done."""

    ways: Counter[str] = field(default_factory=Counter)
    cut_off: int = 0
    """Messages that were being said when their author died."""


def live_and_die(everybody: Sequence[Machine], kills: int, dice: random.Random, witness: Witness, tally: Tally) -> None:
    """They talk, and so often one of them is killed, looked at, and started again; in the end all are there."""
    starting: list[Machine] = []
    for _ in range(kills):
        while len(starting) >= STARTING_MAX:
            back(starting.pop(0))
        living = [machine for machine in everybody if machine not in starting]
        victim, way = dice.choice(living), dice.choices(WAYS, (4, 4, 4, 2, 1))[0]
        talking, refused = [], list[str]()
        if way in ("sending", "both"):
            talking.append(chatter(victim, BURST * 10, refused))
        if way in ("receiving", "both"):
            talking += [chatter(other, BURST, refused) for other in living if other is not victim]
        if way == "starting":
            victim.kill()
            victim.spawn()
        time.sleep(dice.uniform(0.0, START_S if way == "starting" else TALK_S))
        victim.kill()
        for thread in talking:
            thread.join(20)
            assert not thread.is_alive()
        assert not refused, refused
        tally.ways[way] += 1
        tally.cut_off += len(victim.unsaid)
        witness.look(victim)
        witness.told(living, victim)
        victim.spawn()
        starting.append(victim)
    for machine in starting:
        back(machine)


@contextmanager
def friends(folder: Path, nursery: Nursery) -> Iterator[list[Machine]]:
    """They know each other, and whenever one of them starts again, it does so from the nursery."""
    with machines(folder, MEMBERS) as everybody:
        meet(*everybody)
        for machine in everybody:
            machine.host = cast(Any, nursery)
        yield everybody


@pytest.mark.crash
@linux
def test_an_agent_killed_at_any_moment_loses_nothing(tmp_path, budget):
    kills, tally, witness = budget(150), Tally(), Witness(tmp_path / "copy")
    with Nursery() as nursery, friends(tmp_path, nursery) as everybody:
        begun = time.monotonic()
        live_and_die(everybody, kills, random.Random(9), witness, tally)
        alive = time.monotonic()
        everybody_has(everybody, sum(len(machine.said) for machine in everybody), 120)
        acknowledged(everybody)
        check(everybody)
        settled = time.monotonic()
        for machine in everybody:
            audited(machine)
            machine.kill()
            witness.look(machine)
    said = sum(len(machine.said) for machine in everybody)
    print(f"\n{kills} kills in {alive - begun:.0f} s, {dict(tally.ways)}; settled {settled - alive:.0f} s later")
    print(f"{said} messages of {len(everybody)} members, {tally.cut_off} of them cut off; 0 lost, 0 twice, 0 forked")


@pytest.mark.crash
@linux
def test_agents_that_send_before_committing_are_detected(tmp_path):
    """So that the one above says something."""
    caught = r"lacks what|had \d+ events on its disk|two events|do not fit|older copy of the profile"
    witness, dice = Witness(tmp_path / "copy"), random.Random(1)
    with (
        Nursery("hasty") as nursery,
        friends(tmp_path, nursery) as everybody,
        pytest.raises((AssertionError, AgentError), match=caught),
    ):
        live_and_die(everybody, 100, dice, witness, Tally())
