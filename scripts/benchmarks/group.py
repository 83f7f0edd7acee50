"""Group messages: the time until the last member has the last message of a batch, for 1 to 64 recipients.

This is the thesis' Table 8, and Figures 27 and 28 for one member, on one machine's loopback, with messages of the
thesis' size. Ours are real agents, one
process each, with journals on disk, joined through real invitations; a message counts when the member's agent has
notified its client. Beside them, in the same run: bare CURVE sockets with frames as large as our envelope (the floor),
the lean form (our keys and envelopes over such sockets, without journal, order, acknowledgements or display), and the
installed peers. Sender keys run beside pairwise keys, with the goal of half their time, and keys that heal beside
sender keys, with the goal of the same time. Idle agents still use some
processor time, so the others run while no agent of ours does: before, and unless `--quick`, again afterwards.

Messages of one batch share envelopes, so the kind of keys matters little. With `--singly` each of our messages has its
own envelope, like the peers'.

`--members`, `--batches` and `--keys` select cases. With `--record DIR` our agents record their telemetry too
(`ours/recording.py`), with longer pauses between bursts.

A case ends when all copies have arrived or no more come; the success rate is of the final count. Bytes are those that
the publisher's (or server's) TCP connections have sent, as Linux counts them, per message and member. Processor time is
that of all processes, the server's and the agents' journals and acknowledgements too, until all is quiet again; unlike
the time until the last message, it says much on a busy machine too. A peer that fails is reported as missing, and
everything else is still measured.
"""

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from benchmarks import Figure, Report, Row, Scale, scaled
from benchmarks.ours import recording
from benchmarks.ours.agents import Agents, NotReady
from benchmarks.ours.core import HEALING, MULTI, SIGNED, SINGLE, Star, has_keys
from benchmarks.ours.recording import Recording
from benchmarks.peers import rooms
from benchmarks.peers.cpu import cpu_ms
from benchmarks.peers.rooms import Burst, NotHere, Room
from zerochat.errors import LocalError
from zerochat.limits import MEMBERS_MAX

MEMBERS, MEMBERS_QUICK = (1, 2, 4, 8, 16, 32, 64), (1, 4, 8)
BATCHES, BATCHES_QUICK = (1, 10, 50, 100), (1, 100)
BATCHES_ONE, BATCHES_ONE_QUICK = (200, 500, 1000), (1000,)
"""Further batches to one member, as in the thesis' Figures 27 and 28."""
TEXT_BYTES = 7
"""The text length that gives the thesis' message of 773 B."""
ROUNDS, ROUNDS_TWICE = 3, 2
"""Bursts of a case; and where there are some before and some after ours, so many each time."""
WARM_UP = 12
"""Messages of the warm-up; no case has this number, so a recording can tell them apart."""
SETTLE_MS = 10_000
"""Virtual time in which two members finish their exchanges."""
CASE_S_MAX = 15.0
"""A peer that takes longer than this for one case runs it once; the range shows it."""
GOAL_MEMBERS, GOAL_BATCH, GOAL_LEAN, GOAL_LEAN_CPU, GOAL_SIGNED = 8, 100, 2.0, 1.5, 0.5
"""From this many members on, a batch of this size must be no slower than Tox, nor than this multiple of the lean form;
with sender keys, nor than this multiple of pairwise keys; with keys that heal, nor than sender keys. In processor time,
neither of the first two, with its own multiple."""
KINDS = (MULTI, SINGLE, SIGNED, HEALING)
FLOOR_IS = "CURVE sockets alone"

Case = tuple[int, int]
"""Members and batch."""
Bursts = dict[str, dict[Case, list[Burst]]]
"""By transport."""
FAILURES = (NotHere, NotReady, LocalError, OSError, subprocess.SubprocessError)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, nargs="+", metavar="N", help="groups of so many besides the publisher")
    parser.add_argument("--batches", type=int, nargs="+", metavar="N", help="so many messages at once")
    parser.add_argument("--singly", action="store_true", help="ours says each message when the one before is accepted")
    parser.add_argument("--keys", choices=KINDS, nargs="+", default=KINDS, help="groups with these keys (all)")
    recording.options(parser)


def measure(
    quick: bool,
    record: Path | None = None,
    members: Sequence[int] | None = None,
    batches: Sequence[int] | None = None,
    keys: Sequence[str] = KINDS,
    singly: bool = False,
) -> Report:
    recorded = Recording(record) if record is not None else None
    members = sorted({min(count, MEMBERS_MAX - 1) for count in members or scaled(quick, MEMBERS, MEMBERS_QUICK, (1,))})
    further = () if batches else scaled(quick, BATCHES_ONE, BATCHES_ONE_QUICK, ())
    usual = batches or scaled(quick, BATCHES, BATCHES_QUICK, (1,))
    batches_of = {count: (*usual, *(further if count == 1 else ())) for count in members}
    bursts: Bursts = defaultdict(lambda: defaultdict(list))
    missing: dict[str, None] = {}
    kinds = [kind for kind in keys if has_keys(kind)]
    missing |= {f"{kind} groups of ours": None for kind in keys if kind not in kinds}
    with terminated_politely(), tempfile.TemporaryDirectory(prefix="zcb-") as folder:
        rounds = ROUNDS if quick else ROUNDS_TWICE
        others = partial(measure_others, batches_of, rounds, kinds, Path(folder), bursts, missing)
        others()
        for kind in kinds:
            measure_ours(kind, batches_of, Path(folder) / kind, bursts, missing, recorded, singly=singly)
        if not quick:
            others()
    if recorded is not None:
        recorded.close("group")
    return Report([row for kind in kinds for row in rows_of(kind, bursts)], list(missing))


@contextlib.contextmanager
def terminated_politely() -> Iterator[None]:
    """Terminating this process also terminates its children."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(text: str) -> None:
    print(f"({text})", file=sys.stderr, flush=True)


# --- measuring --------------------------------------------------------------------------------------------------------


def measure_ours(
    keys: str,
    batches_of: Mapping[int, Sequence[int]],
    folder: Path,
    bursts: Bursts,
    missing: dict[str, None],
    recorded: Recording | None = None,
    *,
    singly: bool = False,
) -> None:
    """The same agents all along: the group grows from one size to the next. `batches_of`: by the number of members."""
    with (
        Agents(folder, keys, lambda text: say(f"{keys}: {text}")) as agents,
        recorded.ended() if recorded is not None else contextlib.nullcontext(),
    ):
        one_burst = (
            partial(burst_of, agents, singly)
            if recorded is None
            else partial(recorded_burst_of, agents, keys, recorded)
        )
        ours: dict[str, Callable[[int], Burst]] = {keys: one_burst}
        for count, batches in batches_of.items():
            try:
                agents.grow(count)
            except FAILURES as error:
                missing[f"{keys} groups of ours with {several(count, 'member')} ({error})"] = None
                return
            if recorded is not None:
                for number, member in enumerate((agents.publisher, *agents.listeners)):
                    recorded.begin(f"{keys}-{number}", member.client)
            in_turn(ours, count, batches, ROUNDS, bursts, missing)
            if not ours:
                return
            say(f"{keys}: {several(count, 'member')} measured")


def in_turn(
    ways: dict[str, Callable[[int], Burst]],
    count: int,
    batches: Sequence[int],
    rounds: int,
    bursts: Bursts,
    missing: dict[str, None],
) -> None:
    """Call everything once to warm up, then run each batch in turn, forward and backward. A way that fails is removed
    from `ways`."""

    def call(name: str, batch: int) -> Burst | None:
        try:
            return ways[name](batch)
        except FAILURES as error:
            missing[f"{name} with {several(count, 'member')} ({error})"] = None
            say(f"{name}: {error}")
            del ways[name]
            return None

    for name in list(ways):
        call(name, WARM_UP)
    for batch in batches:
        took = dict.fromkeys(ways, 0.0)
        for round_ in range(1 if Scale.smoke else rounds):
            for name in list(ways)[:: 1 if round_ % 2 == 0 else -1]:
                begun = time.monotonic()
                if took[name] <= CASE_S_MAX and (burst := call(name, batch)) is not None:
                    bursts[name][count, batch].append(burst)
                took[name] += time.monotonic() - begun


def burst_of(agents: Agents, singly: bool, batch: int) -> Burst:
    agents.rest()
    busy = cpu_ms(agents.pids())
    burst = agents.burst(batch, TEXT_BYTES, singly=singly)
    agents.rest()
    used = cpu_ms(agents.pids())
    return burst if busy is None or used is None else replace(burst, cpu_ms=used - busy)


def recorded_burst_of(agents: Agents, keys: str, recorded: Recording, batch: int) -> Burst:
    agents.rest()
    recorded.pause()
    burst = agents.burst(batch, TEXT_BYTES)
    size = {"keys": keys, "members": len(agents.listeners), "batch": batch}
    recorded.runs.append({**size, "ms": burst.ms, "came": burst.came, "wanted": burst.wanted})
    return burst


def measure_others(
    batches_of: Mapping[int, Sequence[int]],
    rounds: int,
    kinds: Sequence[str],
    folder: Path,
    bursts: Bursts,
    missing: dict[str, None],
) -> None:
    """All other ways in turn, at each size."""
    with contextlib.ExitStack() as stack:
        conferences = entered(stack, "Tox", partial(rooms.tox, list(batches_of), folder), missing)
        for count, batches in batches_of.items():
            with contextlib.ExitStack() as inner:
                here: dict[str, Callable[[int], Burst]] = {}
                for name, opener in ways(count, kinds, folder).items():
                    if (room := entered(inner, name, opener, missing)) is not None:
                        here[name] = partial(one_burst, room, count, sized=False)
                if conferences is not None:
                    here["Tox"] = partial(one_burst, conferences, count, sized=True)
                in_turn(here, count, batches, rounds, bursts, missing)
                if "Tox" not in here:
                    conferences = None
            say(f"everybody else: {several(count, 'member')}")


def one_burst(room: Room, count: int, batch: int, *, sized: bool) -> Burst:
    return room.burst(count, batch, TEXT_BYTES, sized=sized)


def entered(
    stack: contextlib.ExitStack,
    name: str,
    opener: Callable[[], contextlib.AbstractContextManager[Room]],
    missing: dict[str, None],
) -> Room | None:
    try:
        return stack.enter_context(opener())
    except NotHere as error:
        if name not in missing:
            say(f"{name}: {error}")
        missing[name] = None
        return None


def ways(
    count: int, kinds: Sequence[str], folder: Path
) -> dict[str, Callable[[], contextlib.AbstractContextManager[Room]]]:
    found: dict[str, Callable[[], contextlib.AbstractContextManager[Room]]] = {
        "IRC (ngircd, no encryption)": partial(rooms.irc, count, folder),
        "didcomm (SICPA)": partial(rooms.didcomm, count),
    }
    for keys in kinds:
        floor, lean = floor_and_lean(keys)
        size = envelope_bytes(keys if keys in (SIGNED, HEALING) else MULTI)
        found[floor] = partial(rooms.curve, "floor" if keys == MULTI else "floor-single", count, size)
        if keys in LEAN:
            found[lean] = partial(rooms.curve, LEAN[keys], count, size)
    return found


LEAN = {MULTI: "lean", SINGLE: "lean-single", SIGNED: "lean-signed"}


def floor_and_lean(keys: str) -> tuple[str, str]:
    """The names of the floor and of the lean form for a kind of keys."""
    return f"floor, {keys}", f"lean form, {keys}"


def envelope_bytes(keys: str) -> int:
    """Our envelope of one message for one member."""
    star = Star(2, keys)
    star.grow(2)
    star.run(for_ms=SETTLE_MS)
    return star.post_bytes("0" * TEXT_BYTES)


# --- setting side by side ---------------------------------------------------------------------------------------------


def rows_of(keys: str, bursts: Bursts) -> Iterator[Row]:
    ours = bursts[keys]
    for case in ours:
        yield time_row(keys, case, bursts)
    for case in ours:
        if all(burst.cpu_ms is not None for burst in ours[case]):
            yield cpu_row(keys, case, bursts)
    for case in ours:
        if all(burst.sent is not None for burst in ours[case]):
            yield bytes_row(keys, case, bursts)
    for count in sorted({count for count, _ in ours}):
        yield success_row(keys, count, bursts)


def sides(keys: str, bursts: Bursts) -> tuple[str, str, list[str]]:
    """The floor, the lean form and all peers of a kind of keys, as far as they were measured; to signing keys the
    pairwise ones are peers, and to keys that heal all others."""
    floor, lean = floor_and_lean(keys)
    own = [lean] if lean in bursts else []
    if keys in (SIGNED, HEALING):
        own += [kind for kind in KINDS[: KINDS.index(keys)] if kind in bursts]
    return floor, lean, [*own, *(name for name in bursts if not name.endswith(KINDS))]


def time_row(keys: str, case: Case, bursts: Bursts) -> Row:
    floor, lean, peers = sides(keys, bursts)
    count, batch = case

    def ms(name: str) -> Figure | None:
        found = bursts[name].get(case)
        return Figure.of([burst.ms for burst in found]) if found else None

    ours = ms(keys)
    assert ours is not None
    goal = None
    if count >= GOAL_MEMBERS and batch == GOAL_BATCH:
        limits = [(ms(lean), GOAL_LEAN), (ms("Tox"), 1.0)]
        if keys == SIGNED:
            limits += [(ms(MULTI), GOAL_SIGNED), (ms(SINGLE), GOAL_SIGNED)]
        if keys == HEALING:
            limits += [(ms(SIGNED), 1.0)]
        goal = min((figure.median * times for figure, times in limits if figure is not None), default=None)
    figures = {name: figure for name in peers if (figure := ms(name)) is not None}
    return Row(
        f"{called(keys, case)}: until the last has the last", "ms", "lower", ours, ms(floor), FLOOR_IS, figures, goal
    )


def cpu_row(keys: str, case: Case, bursts: Bursts) -> Row:
    floor, lean, peers = sides(keys, bursts)
    count, batch = case

    def each(name: str) -> Figure | None:
        found = [burst.cpu_ms / burst.wanted for burst in bursts[name].get(case, []) if burst.cpu_ms is not None]
        return Figure.of(found) if found else None

    ours = each(keys)
    assert ours is not None
    goal = None
    if count >= GOAL_MEMBERS and batch == GOAL_BATCH:
        limits = [(each(lean), GOAL_LEAN_CPU), (each("Tox"), 1.0)]
        goal = min((figure.median * times for figure, times in limits if figure is not None), default=None)
    figures = {name: figure for name in peers if (figure := each(name)) is not None}
    case_is = f"{called(keys, case)}: processor time of all for one to one"
    return Row(case_is, "ms", "lower", ours, each(floor), FLOOR_IS, figures, goal)


def bytes_row(keys: str, case: Case, bursts: Bursts) -> Row:
    floor, _, peers = sides(keys, bursts)

    def each(name: str) -> Figure | None:
        found = [burst.sent / burst.wanted for burst in bursts[name].get(case, []) if burst.sent is not None]
        return Figure.of(found) if found else None

    figures = {name: figure for name in peers if (figure := each(name)) is not None}
    ours = each(keys)
    assert ours is not None
    return Row(f"{called(keys, case)}: sent for one to one", "B", "lower", ours, each(floor), FLOOR_IS, figures)


def success_row(keys: str, count: int, bursts: Bursts) -> Row:
    """The worst burst of all batches counts as the low end."""
    floor, _, peers = sides(keys, bursts)

    def rate(name: str) -> Figure | None:
        found = [burst for (size, _), some in bursts[name].items() if size == count for burst in some]
        return Figure.of([100 * burst.came / burst.wanted for burst in found]) if found else None

    ours = rate(keys)
    assert ours is not None
    worst = Figure(ours.low, ours.low, ours.high)
    figures = {name: figure for name in peers if (figure := rate(name)) is not None}
    case = f"{keys}, {several(count, 'member')}: copies that came, at worst"
    return Row(case, "%", "higher", worst, rate(floor), FLOOR_IS, figures, 100.0)


def called(keys: str, case: Case) -> str:
    count, batch = case
    return f"{keys}, {several(count, 'member')}, {several(batch, 'message')}"


def several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
