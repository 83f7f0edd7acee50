"""Histories in which some members break the rules: what they may never get, whatever they sign and send.

Checked at the end, of those who keep the rules (the *honest*): nobody has stumbled; nobody has accused one of them;
nobody believes what was forged; all who know of each other agree on the members, and have each other's posts once and
in one order; and nobody has sent anything to whom it knew to be out. What members bring each other of another one's
words is nowhere its own before it says so itself; what they hand to an adversary is what that may have; what it can
have them remember has limits; nobody is known to have what it has not; and nobody is silenced for longer than it takes
to see through a lie. In a third of them the machines and lines of the honest fail too. Each attack has then been
*detected* (somebody has accused its author) or was *harmless*.
"""

import random
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.group.inputs import CreateGroup
from zerochat.group.key_modes import MODES
from zerochat.sim.actions import People, drawn_accountability, drawn_policy, drawn_rotation
from zerochat.sim.attacks import ATTACKS
from zerochat.sim.byzantine_world import Arena
from zerochat.sim.crypto_cache import remembering
from zerochat.sim.low_limits import narrowed
from zerochat.sim.world import EPOCH_MS, Faults

CALM_MS, ROUND_MS = 900_000, 15_000
"""How long the honest may take to agree once nobody does anything new, and how often that is looked at."""
AWAY_MS_MAX = 40_000
FRAGILE_EVERY, MISHAPS = 3, 0.4
"""In one history of so many the machines and lines of the honest fail too: so often, each time that somebody acts."""
HEADING = """\
How often each attack was tried in histories that broke no promise, and by how many members who tried nothing else
(alone): only of these can it be told whether somebody has accused them (detected), or nobody was harmed (harmless)."""


class Tally(Struct):
    """How often each attack was tried, and what came of it.

    What has come of it can only be told where an adversary has done nothing else: of these it is counted how many were
    accused by somebody (detected), and how many not, while nobody had any harm (harmless).
    """

    tried: dict[str, int] = field(default_factory=dict)
    alone: dict[str, set[tuple[int, str]]] = field(default_factory=dict)
    """By attack: seeds and adversaries."""
    detected: dict[str, int] = field(default_factory=dict)
    quarantines: int = 0
    """How often somebody honest kept away from a member whom nobody had confirmed."""

    def add(self, other: "Tally") -> None:
        """Count what came of other seeds too."""
        for mine, theirs in ((self.tried, other.tried), (self.detected, other.detected)):
            for attack, count in theirs.items():
                mine[attack] = mine.get(attack, 0) + count
        for attack, alone in other.alone.items():
            self.alone.setdefault(attack, set()).update(alone)
        self.quarantines += other.quarantines

    def rows(self) -> dict[str, dict[str, int]]:
        """By attack, what there is to say of it."""
        told = {}
        for name, tried in sorted(self.tried.items()):
            alone, seen = len(self.alone.get(name, ())), self.detected.get(name, 0)
            told[name] = {"tried": tried, "alone": alone, "detected": seen, "harmless": alone - seen}
        return told

    def table(self) -> str:
        lines = [HEADING, f"{'attack':28}{'tried':>8}{'alone':>8}{'detected':>10}{'harmless':>10}"]
        for name, row in self.rows().items():
            lines.append(f"{name:28}{row['tried']:8}{row['alone']:8}{row['detected']:10}{row['harmless']:10}")
        return "\n".join([*lines, f"members kept in quarantine for a while: {self.quarantines}"])


def _count(arena: Arena, tally: Tally) -> None:
    kinds = {name: {attack for who, attack in arena.tries if who == name} for name in arena.adversaries}
    for name, attack in arena.tries:
        tally.tried[attack] = tally.tried.get(attack, 0) + 1
        alone = tally.alone.setdefault(attack, set())
        if len(kinds[name]) == 1 and (arena.seed, name) not in alone:
            alone.add((arena.seed, name))
            tally.detected[attack] = tally.detected.get(attack, 0) + (name in arena.accused)
    tally.quarantines += len(arena.quarantined)


@remembering()
@narrowed
def play_byzantine(
    seed: int,
    faults: Faults | None = None,
    say: Callable[[str], None] | None = None,
    tally: Tally | None = None,
    attacks: Sequence[str] = (),
    made: Callable[[Arena], None] | None = None,
) -> Arena:
    """One whole history of four to seven members, of whom at most all but two break the rules (with these attacks;
    drawn by lot where none are named). `made`: handed the world before anything happens in it. Raises Violation
    with the seed when that has got them anything."""
    dice = random.Random(f"byzantine {seed}")
    count = dice.randint(4, 7)
    names = [f"n{number}" for number in range(count)]
    bad = sorted(dice.sample(names, dice.randint(1, count - 2)))
    arena = Arena(seed, count, bad, faults, say)
    if made:
        made(arena)
    arena.set_rotation(drawn_rotation(f"byzantine {seed}"))
    people, rogues = People(arena, dice, arena.honest), People(arena, dice, bad)
    arena.started = people.look
    lots = random.Random(f"mishaps {seed}")
    mishaps = MISHAPS if seed % FRAGILE_EVERY == 1 else 0.0
    arena.heed = lambda name, notice: (rogues if name in arena.adversaries else people).heed(name, notice)
    plans = {name: list(attacks) or dice.sample(list(ATTACKS), dice.choice((1, 1, 2, 3))) for name in bad}
    keys, policy = dice.choice(list(MODES)), drawn_policy(dice)
    fate = random.Random(f"history {seed}")
    policy = replace(policy, history=fate.choice(("all", "all", "all", "none", "last:2", f"since:{EPOCH_MS + 30_000}")))
    kept = drawn_accountability(keys, f"byzantine {seed}")
    arena.ask(names[0], CreateGroup("sim", names[0], arena.envelope, keys, policy, kept))
    deeds = dice.randint(0, 5)

    def live(most: int) -> None:
        nonlocal deeds
        for _ in range(dice.randint(0, most)):
            (rogues if dice.random() < 0.3 else people).say()
            if deeds and dice.random() < 0.3:
                deeds -= 1
                people.do()
            if dice.random() < 0.3:
                villain = dice.choice(bad)
                arena.attack(villain, dice.choice(plans[villain]))
            if fate.random() < 0.1:
                arena.go_away(fate.choice(arena.honest), fate.randint(1_000, AWAY_MS_MAX))
            if lots.random() < mishaps:
                arena.mishap(lots, lots.choice(arena.honest))
            arena.run(for_ms=dice.randint(0, 2_000))

    for name in names[1:]:
        (rogues if name in arena.adversaries else people).join(name, names)
        live(3)
        if dice.random() < 0.7:
            arena.run(lambda name=name: bool(arena.nodes[name].agent.groups), for_ms=100_000)  # type: ignore[misc]
    arena.run(for_ms=dice.randint(0, 60_000))
    live(6)
    for villain in bad:
        for attack in plans[villain]:
            for _ in range(2):
                arena.attack(villain, attack)
                arena.run(for_ms=dice.randint(0, 10_000))
    live(4)
    arena.mend()
    people.stop()
    rogues.stop()
    for _ in range(CALM_MS // ROUND_MS):
        arena.run(for_ms=ROUND_MS)
        if not any(arena.troubles()):
            break
    arena.check()
    if tally is not None:
        _count(arena, tally)
    return arena
