"""What is said again from time to time, in groups that keep a log; in others nothing of this ever happens."""

from zerochat.group.ledger import terms
from zerochat.group.stimuli import LookedUp
from zerochat.group.turn import Turn

ROUND_MS = 15_000
"""How often, give or take a quarter."""


def go(turn: Turn, name: str) -> None:
    """One round."""
    group = turn.group(name)
    if group.state != "active" or not group.view.ledger:
        return
    terms.look(turn, name)
    turn.timer("log", name, ROUND_MS * 3 // 4 + turn.moment.random(1)[0] * ROUND_MS // 510)


def looked_up(turn: Turn, said: LookedUp) -> None:
    """The journal has answered."""
