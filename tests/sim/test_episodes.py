"""Episodes: under all faults every member gets everything, once, in one order.

Mutation tests: the simulator finds each of a list of seeded defects.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.marks import others_slow
from tests.support.mutants import MUTANTS, ROOM, Mutant
from tests.support.seeds import outputs_elsewhere
from zerochat.cli import main
from zerochat.group.key_modes import MODES
from zerochat.group.notifications import Gap
from zerochat.group.sync import acknowledgements
from zerochat.sim import Faults, Violation, batch, play_episode, relayed_checks, world
from zerochat.sim.batch import BatchPlan, SeedResult, minimal_script, run, shrink
from zerochat.sim.episode import (
    ANNOTATE,
    ATTACH,
    CLOCK,
    CRASH,
    CUT,
    FAULTS,
    FAULTS_MIN,
    FULL,
    JOIN,
    MUTUAL_REMOVAL,
    POST,
    PRIVATE,
    ROTATE,
    UPGRADE,
    USER_ACTIONS,
    Action,
    make_script,
)
from zerochat.sim.initial_groups import (
    ENCRYPTED_EVERY,
    ENCRYPTED_GROUPS,
    GROUPS,
    InitialGroup,
    build_world,
    initial_group_for,
)
from zerochat.sim.node import round_trip
from zerochat.sim.trace import describe

EVERYDAY, SLICE = 150, 30_000
MUTANT_SEEDS = 20_000


def script(seed: int) -> tuple[Action, ...]:
    *names, outsider = build_world(initial_group_for(seed)).nodes
    return make_script(seed, names, outsider)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, EVERYDAY, 50))
def test_episodes_violate_nothing(first):
    for seed in range(first, first + 50):
        assert play_episode(seed).fault_count >= FAULTS_MIN


@pytest.mark.sim
@pytest.mark.greedy
def test_thirty_thousand_episodes_violate_nothing(budget, figures):
    broken: list[SeedResult] = []
    found = run(
        BatchPlan("episodes"), range(budget(SLICE)), 2, lambda one: broken.append(one) if one.violation else None
    )
    pace = found.runs / found.seconds
    figures(f"{found.runs:,} episodes, {found.faults / found.runs:.1f} faults each, {pace:.0f} a second")
    assert not [one.violation for one in broken]
    assert found.faults >= FAULTS_MIN * found.runs


@pytest.mark.slow
def test_episode_replays_exactly():
    assert len(outputs_elsewhere("[sim.play_episode(seed).digest.hexdigest() for seed in range(12)]")) == 1


@pytest.mark.slow
def test_seed_704_single_recipient_order_is_deterministic():
    assert len(outputs_elsewhere("sim.play_episode(704).digest.hexdigest()")) == 1


@pytest.mark.slow
def test_scripts_cover_all_actions_and_faults():
    seen = {act.kind for seed in range(300) for act in script(seed)}
    assert seen == {POST, ANNOTATE, ATTACH, MUTUAL_REMOVAL, PRIVATE, ROTATE, UPGRADE, *USER_ACTIONS, *FAULTS}
    assert all(act.describe() for seed in range(300) for act in script(seed))


def test_initial_groups_cover_all_configurations():
    groups = [initial_group_for(seed) for seed in range(GROUPS * ENCRYPTED_EVERY * ENCRYPTED_GROUPS)]
    real = [one for one in groups if one.envelope.startswith("didcomm/")]
    assert len(real) == len(groups) // ENCRYPTED_EVERY and {one.envelope[-2:] for one in real} == {"v1", "v2"}
    assert {one.members for one in groups} == {2, 3, 4} and {one.keys for one in groups} == MODES.keys()
    assert len({one.policy for one in groups}) > GROUPS // 3


def test_episode_does_not_modify_its_initial_group():
    before = build_world(initial_group_for(3))
    kept = {name: (node.agent, list(node.log), dict(node.timers)) for name, node in before.nodes.items()}
    play_episode(3)
    assert build_world(initial_group_for(3)) is before
    assert kept == {name: (node.agent, node.log, node.timers) for name, node in before.nodes.items()}
    assert isinstance(initial_group_for(3), InitialGroup)


# --- it would notice ------------------------------------------------------------------------------------------------


@pytest.mark.sim
@pytest.mark.parametrize("mutant", [*MUTANTS, *ROOM], ids=lambda mutant: mutant.name)
def test_every_mutant_is_killed(mutant: Mutant, monkeypatch, budget, figures):
    for seed in range(GROUPS * ENCRYPTED_EVERY):
        build_world(initial_group_for(seed))  # with nothing wrong yet
    mutant.apply(monkeypatch)
    others = set()
    for seed in range(budget(MUTANT_SEEDS)):
        if mutant.kind and all(act.kind != mutant.kind for act in script(seed)):
            continue
        try:
            mutant.play(seed) if mutant.play else play_episode(seed, sync_every_steps=mutant.sync_every_steps)
        except Violation as violation:
            said = str(violation).partition(": ")[2]
            if re.search(mutant.seen, said) and "fails on" not in said:
                figures(f"{mutant.name:40} killed by seed {seed:5}: {said[:100]}")
                return
            others.add(said[:60])
    raise AssertionError(f"{mutant.name} survives: {sorted(others)[:10]}")


def test_number_of_mutants():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12


def some_violation(seeds: range) -> str:
    """What the first of these episodes says that breaks a promise."""
    for seed in seeds:
        try:
            play_episode(seed)
        except Violation as violation:
            return str(violation)
    return ""


def test_detects_lossy_serialisation(monkeypatch):
    monkeypatch.setattr(world, "round_trip", lambda agent: replace(round_trip(agent), label="somebody else"))
    assert "reads another state from disk" in some_violation(range(20))


@pytest.mark.parametrize("limit", others_slow(["EARLY_MAX", "BUFFER_EVENTS_MAX"]))
def test_detects_unbounded_state(monkeypatch, limit):
    monkeypatch.setattr(relayed_checks, limit, 0)
    assert "buffer" in some_violation(range(400))


def test_seed_11316_file_continues_after_a_full_disk():
    play_episode(11316)


@pytest.mark.slow
def test_files_are_fetched_in_episodes():
    whole = 0
    for seed in range(60):
        for node in play_episode(seed).nodes.values():
            for group in node.agent.groups.values():
                whole += sum(one.state == "here" and one.author != group.me for one in group.files.values())
    assert whole > 3


def test_without_retransmission_a_minimal_script_is_short(monkeypatch):
    monkeypatch.setattr(acknowledgements, "retransmit", lambda tx, name: None)
    seed = next(seed for seed in range(1, 50) if broken(seed))
    short = minimal_script(seed)
    assert (
        1 <= len(short) <= 3 and any(act.kind in (POST, ANNOTATE) for act in short) and len(short) < len(script(seed))
    )


def broken(seed: int) -> bool:
    try:
        play_episode(seed)
    except Violation:
        return True
    return False


def test_script_is_shrunk():
    acts = tuple(
        Action(at, kind, "n0", "n1", 15_000) for at, kind in enumerate((POST, CUT, FULL, CRASH, POST, CLOCK, JOIN))
    )

    def needs_two(some):
        return {CUT, CLOCK} <= {act.kind for act in some} and any(act.for_ms > 500 for act in some if act.kind == CUT)

    short = shrink(acts, needs_two)
    assert [(act.kind, act.for_ms) for act in short] == [(CUT, 2_000), (CLOCK, 500)]


def test_verb_prints_a_minimal_script(monkeypatch, capsys):
    monkeypatch.setattr(acknowledgements, "retransmit", lambda tx, name: None)
    assert main(["sim", "--seeds", "8", "--jobs", "1"]) == 7
    out, err = capsys.readouterr()
    assert "violated a guarantee" in out and "lacks a post" in out and out.count("Minimal fault schedule") == 3
    assert "zerochat sim --seed" in out and "for the first 3 violations" in out and not err


def test_replay_command_reproduces_the_violation(monkeypatch, capsys):
    with monkeypatch.context() as patched:
        patched.setattr(acknowledgements, "retransmit", lambda tx, name: None)
        assert main(["sim", "--seeds", "8", "--loss", "0.3", "--repeat", "--jobs", "1"]) == 7
        out, _ = capsys.readouterr()
        assert "run twice" in out and "equal results" not in out
        line = next(line for line in out.splitlines() if "Replay:" in line).partition(": zerochat ")[2]
        assert "--loss 0.3" in line and "--repeat" in line
        assert main(line.split()) == 7
    again, _ = capsys.readouterr()
    assert "1 episode run" in again and " 0 steps" not in again
    assert int(again.partition(" faults,")[0].rpartition(" ")[2]) >= FAULTS_MIN
    assert int(out.partition(" faults each")[0].rpartition(" ")[2].partition(".")[0]) >= FAULTS_MIN


@pytest.mark.slow
def test_calm_phase_bounds_the_loss(capsys):
    """With unbounded loss nothing arrives by a deadline."""
    assert main(["sim", "--seeds", "20", "--loss", "1", "--jobs", "1"]) == 0
    assert "20 episodes run" in capsys.readouterr().out
    world = play_episode(1, faults=Faults(loss=0.05))
    assert world.faults.loss == 0.05


def test_trace_is_sentences(capsys):
    assert main(["sim", "--seed", "10", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "n0 posts a message" in out and "No guarantee was violated." in out and "1 episode run" in out
    assert "all faults end, except that 10% of the frames are lost" in out
    assert re.search(r"a frame from n\d to n\d is lost\n", out), "or nobody sees why something is lacking"
    assert "did:key" not in out and "(group=" not in out


@pytest.mark.slow
def test_byzantine_trace_is_sentences(capsys):
    assert main(["sim", "--byzantine", "--seed", "3", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "n1 uses an invitation of n0" in out and "warns: " in out and " tries: " in out
    assert "did:key" not in out and "b'" not in out and "None" not in out


def test_trace_as_json_lines(capsys):
    assert main(["--format", "json", "sim", "--seed", "1", "--trace"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(line) == {"step"} and line["step"] for line in lines[:-1])
    assert lines[-1]["played"] == 1


def test_trace_reports_gaps():
    node = build_world(initial_group_for(3)).nodes["n0"]
    for gap, sentence in (
        (Gap("g", "a", 2, 3, "asked"), "n0 has a gap: event 3 of n1, requested from other members"),
        (Gap("g", "a", 2, 5, "lost"), "n0 has a gap: events 3 to 5 of n1, not available so far"),
        (Gap("g", "a", 3, 2, "filled"), "n0 has filled the gap of n1"),
    ):
        assert describe(node, gap, {"a": "n1"}) == sentence


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--seed 7 --seeds 20", "leave `--seeds` out"),
        ("--seed 7 --first 3 --seeds 4", "leave `--seeds` and `--first` out"),
        ("--histories --loss 0.9", "is too high"),
        ("--seeds -5", "at least 1"),
        ("--seed -5", "'-5' is not a whole number"),
        ("--seed 9999999999999999", "at most 15 digits"),
        ("--seeds 0", "at least 1"),
    ],
)
def test_invalid_options_are_refused(line, says, capsys):
    assert main(["sim", *line.split()]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_interrupted_run_prints_the_result_so_far(form, monkeypatch, capsys):
    def one(plan, seed):
        if seed == 2:
            raise KeyboardInterrupt
        return SeedResult(seed, steps=5, faults=4)

    monkeypatch.setattr(batch, "run_one", one)
    assert main(["sim", "--seeds", "5", "--jobs", "1", "--format", form]) == 130
    out = capsys.readouterr().out
    assert ("Interrupted: of 5, 2 episodes run, 4.0 faults each" in out) if form == "text" else '"played":2' in out


@pytest.mark.slow
def test_ctrl_c_ends_all_processes():
    words = [sys.executable, "-P", "-m", "zerochat", "sim", "--seeds", "1000000", "--jobs", "2"]
    found = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, cwd=Path(__file__).parents[2]
    )
    time.sleep(4)  # it has long begun by then
    os.killpg(found.pid, signal.SIGINT)
    out, err = found.communicate(timeout=60)
    assert (found.returncode, err) == (130, "") and "Interrupted: of 1,000,000, " in out


@pytest.mark.slow
def test_attack_results_agree_in_all_formats(capsys):
    assert main(["sim", "--byzantine", "--seeds", "2", "--jobs", "1", "--format", "jsonl"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["attacks"] and "faults" not in found
    assert main(["sim", "--byzantine", "--seeds", "2", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "tried only this attack" in out and "2 histories with malicious members run" in out
    for name, row in found["attacks"].items():
        assert [name, *(str(row[column]) for column in ("tried", "alone", "detected", "harmless"))] in [
            [line[:28].strip(), *line[28:].split()] for line in out.splitlines()
        ]


@pytest.mark.slow
def test_more_loss_is_more_steps():
    quiet, noisy = (sum(play_episode(seed, faults=Faults(loss=p)).steps for seed in range(1, 9)) for p in (0, 0.5))
    assert noisy > quiet
