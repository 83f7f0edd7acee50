"""Episodes: whatever goes wrong with lines, machines, disks and clocks, everybody gets everything, once, in one order.

And the search finds what it is there to find: small faults of our own are each found by it.
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

from tests.support.mutants import MUTANTS, ROOM, Mutant
from tests.support.seeds import told_elsewhere
from zerochat.cli import main
from zerochat.group.key_modes import MODES
from zerochat.group.notifications import Gap
from zerochat.group.sync import acknowledgements
from zerochat.sim import Faults, Violation, batch, play_episode, relayed_checks, world
from zerochat.sim.batch import Plan, Played, least, run
from zerochat.sim.episode import (
    ATTACH,
    CLOCK,
    CRASH,
    CUT,
    DEEDS,
    FAULTS,
    FAULTS_MIN,
    FEUD,
    FULL,
    JOIN,
    REMARK,
    ROTATE,
    SAY,
    Act,
    script_of,
)
from zerochat.sim.initial_groups import KINDS, REAL_EVERY, REAL_KINDS, Beginning, beginning_of, begun
from zerochat.sim.node import stored
from zerochat.sim.shrink import shrunk
from zerochat.sim.trace import told

EVERYDAY, SLICE = 150, 30_000
MUTANT_SEEDS = 20_000


def script(seed: int) -> tuple[Act, ...]:
    *names, outsider = begun(beginning_of(seed)).nodes
    return script_of(seed, names, outsider)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, EVERYDAY, 50))
def test_whatever_goes_wrong_everybody_gets_everything(first):
    for seed in range(first, first + 50):
        assert play_episode(seed).done >= FAULTS_MIN


@pytest.mark.sim
@pytest.mark.greedy
def test_thirty_thousand_episodes_break_no_promise(budget, figures):
    broken: list[Played] = []
    found = run(Plan("episodes"), range(budget(SLICE)), 2, lambda one: broken.append(one) if one.violation else None)
    pace = found.played / found.seconds
    figures(f"{found.played:,} episodes, {found.faults / found.played:.1f} faults each, {pace:.0f} a second")
    assert not [one.violation for one in broken]
    assert found.faults >= FAULTS_MIN * found.played


@pytest.mark.slow
def test_an_episode_replays_exactly_in_another_process_too():
    assert len(told_elsewhere("[sim.play_episode(seed).digest.hexdigest() for seed in range(12)]")) == 1


def test_seed_704_whoever_is_told_alone_is_told_in_one_order():
    assert len(told_elsewhere("sim.play_episode(704).digest.hexdigest()")) == 1


def test_the_scripts_have_everything_in_them():
    seen = {act.kind for seed in range(300) for act in script(seed)}
    assert seen == {SAY, REMARK, ATTACH, FEUD, ROTATE, *DEEDS, *FAULTS}
    assert all(act.sentence() for seed in range(300) for act in script(seed))


def test_a_tenth_of_the_groups_have_real_envelopes_and_the_others_are_of_all_kinds():
    groups = [beginning_of(seed) for seed in range(KINDS * REAL_EVERY * REAL_KINDS)]
    real = [one for one in groups if one.envelope.startswith("didcomm/")]
    assert len(real) == len(groups) // REAL_EVERY and {one.envelope[-2:] for one in real} == {"v1", "v2"}
    assert {one.members for one in groups} == {2, 3, 4} and {one.keys for one in groups} == MODES.keys()
    assert len({one.policy for one in groups}) > KINDS // 3


def test_an_episode_leaves_the_group_that_it_begins_with_as_it_is():
    before = begun(beginning_of(3))
    kept = {name: (node.agent, list(node.log), dict(node.timers)) for name, node in before.nodes.items()}
    play_episode(3)
    assert begun(beginning_of(3)) is before
    assert kept == {name: (node.agent, node.log, node.timers) for name, node in before.nodes.items()}
    assert isinstance(beginning_of(3), Beginning)


# --- it would notice ------------------------------------------------------------------------------------------------


@pytest.mark.sim
@pytest.mark.parametrize("mutant", [*MUTANTS, *ROOM], ids=lambda mutant: mutant.name)
def test_every_mutant_is_killed(mutant: Mutant, monkeypatch, budget, figures):
    for seed in range(KINDS * REAL_EVERY):
        begun(beginning_of(seed))  # with nothing wrong yet
    mutant.apply(monkeypatch)
    others = set()
    for seed in range(budget(MUTANT_SEEDS)):
        if mutant.kind and all(act.kind != mutant.kind for act in script(seed)):
            continue
        try:
            mutant.play(seed) if mutant.play else play_episode(seed, lazy_turns=mutant.lazy_turns)
        except Violation as violation:
            said = str(violation).partition(": ")[2]
            if re.search(mutant.seen, said) and "stumbles over" not in said:
                figures(f"{mutant.name:40} killed by seed {seed:5}: {said[:100]}")
                return
            others.add(said[:60])
    raise AssertionError(f"{mutant.name} survives: {sorted(others)[:10]}")


def test_there_are_mutants_enough():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12


def some_violation(seeds: range) -> str:
    """What the first of these episodes says that breaks a promise."""
    for seed in seeds:
        try:
            play_episode(seed)
        except Violation as violation:
            return str(violation)
    return ""


def test_it_would_notice_a_state_that_is_read_back_as_something_else(monkeypatch):
    monkeypatch.setattr(world, "stored", lambda agent: replace(stored(agent), label="somebody else"))
    assert "does not find on its disk" in some_violation(range(20))


@pytest.mark.parametrize("limit", ["LIMBO_EVENTS_MAX", "EARLY_MAX"])
def test_it_would_notice_in_the_middle_of_an_episode_what_has_no_limit(monkeypatch, limit):
    monkeypatch.setattr(relayed_checks, limit, 0)
    assert "too early" in some_violation(range(400))


def test_seed_11316_a_file_goes_on_after_a_start_on_a_full_disk():
    play_episode(11316)


@pytest.mark.slow
def test_files_are_fetched_in_episodes():
    whole = 0
    for seed in range(60):
        for node in play_episode(seed).nodes.values():
            for group in node.agent.groups.values():
                whole += sum(one.state == "here" and one.author != group.me for one in group.files.values())
    assert whole > 3


def test_without_repair_it_takes_one_lost_word_and_a_short_script_says_so(monkeypatch):
    monkeypatch.setattr(acknowledgements, "repair", lambda turn, name: None)
    seed = next(seed for seed in range(1, 50) if broken(seed))
    short = least(seed)
    assert 1 <= len(short) <= 3 and any(act.kind in (SAY, REMARK) for act in short) and len(short) < len(script(seed))


def broken(seed: int) -> bool:
    try:
        play_episode(seed)
    except Violation:
        return True
    return False


def test_a_script_is_cut_down_to_what_it_takes():
    acts = tuple(Act(at, kind, "n0", "n1", 15_000) for at, kind in enumerate((SAY, CUT, FULL, CRASH, SAY, CLOCK, JOIN)))

    def needs_two(some):
        return {CUT, CLOCK} <= {act.kind for act in some} and any(act.for_ms > 500 for act in some if act.kind == CUT)

    short = shrunk(acts, needs_two)
    assert [(act.kind, act.for_ms) for act in short] == [(CUT, 2_000), (CLOCK, 500)]


def test_the_verb_says_what_it_takes_and_ends_with_a_code_of_its_own(monkeypatch, capsys):
    monkeypatch.setattr(acknowledgements, "repair", lambda turn, name: None)
    assert main(["sim", "--seeds", "8", "--jobs", "1"]) == 7
    out, err = capsys.readouterr()
    assert "broke a promise" in out and "lacks a post" in out and out.count("It takes no more than this") == 3
    assert "zerochat sim --seed" in out and "is worked out for the first 3" in out and not err


def test_what_is_said_of_a_broken_seed_is_so_and_plays_it_again(monkeypatch, capsys):
    with monkeypatch.context() as patched:
        patched.setattr(acknowledgements, "repair", lambda turn, name: None)
        assert main(["sim", "--seeds", "8", "--loss", "0.3", "--twice", "--jobs", "1"]) == 7
        out, _ = capsys.readouterr()
        assert "played twice each" in out and "the same way" not in out
        line = next(line for line in out.splitlines() if "The whole story" in line).partition(": zerochat ")[2]
        assert "--loss 0.3" in line and "--twice" in line
        assert main(line.split()) == 7
    again, _ = capsys.readouterr()
    assert "1 episode played" in again and " 0 steps" not in again
    assert int(again.partition(" faults,")[0].rpartition(" ")[2]) >= FAULTS_MIN
    assert int(out.partition(" faults each")[0].rpartition(" ")[2].partition(".")[0]) >= FAULTS_MIN


def test_whatever_gets_lost_before_there_is_calm_afterwards(capsys):
    """What may get lost for ever arrives by no deadline."""
    assert main(["sim", "--seeds", "20", "--loss", "1", "--jobs", "1"]) == 0
    assert "20 episodes played" in capsys.readouterr().out
    world = play_episode(1, faults=Faults(loss=0.05))
    assert world.faults.loss == 0.05


def test_a_story_is_told_in_sentences(capsys):
    assert main(["sim", "--seed", "10", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "n0 says something" in out and "No promise was broken." in out and "1 episode played" in out
    assert "nothing goes wrong any more but that 10% of what is sent gets lost" in out
    assert re.search(r"something that n\d sends to n\d is lost\n", out), "or nobody sees why something is lacking"
    assert "did:key" not in out and "(group=" not in out


def test_the_story_of_whoever_breaks_the_rules_is_told_in_sentences_too(capsys):
    assert main(["sim", "--byzantine", "--seed", "1", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "n1 has used an invitation of n0" in out and "is told: " in out and " tries: " in out
    assert "did:key" not in out and "b'" not in out and "None" not in out


def test_for_programs_each_sentence_of_a_story_is_a_line_of_json(capsys):
    assert main(["--format", "json", "sim", "--seed", "1", "--trace"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(line) == {"told"} and line["told"] for line in lines[:-1])
    assert lines[-1]["played"] == 1


def test_a_story_says_what_is_lacking_and_when_it_is_no_more():
    node = begun(beginning_of(3)).nodes["n0"]
    for gap, sentence in (
        (Gap("g", "a", 2, 3, "asked"), "n0 lacks number 3 of n1: others are asked"),
        (Gap("g", "a", 2, 5, "lost"), "n0 lacks numbers 3 to 5 of n1: nobody has it so far"),
        (Gap("g", "a", 3, 2, "filled"), "n0 lacks nothing of n1 any more"),
    ):
        assert told(node, gap, {"a": "n1"}) == sentence


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--seed 7 --seeds 20", "leave `--seeds` out"),
        ("--seed 7 --first 3 --seeds 4", "leave `--seeds` and `--first` out"),
        ("--histories --loss 0.9", "too little time"),
        ("--seeds -5", "at least 1"),
        ("--seed -5", "'-5' is not a whole number from 0 on"),
        ("--seed 9999999999999999", "of 15 digits at the most"),
        ("--seeds 0", "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(line, says, capsys):
    assert main(["sim", *line.split()]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_whoever_ends_it_is_told_what_was_played(form, monkeypatch, capsys):
    def one(plan, seed):
        if seed == 2:
            raise KeyboardInterrupt
        return Played(seed, steps=5, faults=4)

    monkeypatch.setattr(batch, "play_one", one)
    assert main(["sim", "--seeds", "5", "--jobs", "1", "--format", form]) == 130
    out = capsys.readouterr().out
    assert ("Interrupted: of 5, 2 episodes played, 4.0 faults each" in out) if form == "text" else '"played":2' in out


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_without_a_traceback():
    words = [sys.executable, "-P", "-m", "zerochat", "sim", "--seeds", "1000000", "--jobs", "2"]
    found = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, cwd=Path(__file__).parents[2]
    )
    time.sleep(4)  # it has long begun by then
    os.killpg(found.pid, signal.SIGINT)
    out, err = found.communicate(timeout=60)
    assert (found.returncode, err) == (130, "") and "Interrupted: of 1,000,000, " in out


@pytest.mark.slow
def test_what_came_of_attacks_is_the_same_in_every_form(capsys):
    assert main(["sim", "--byzantine", "--seeds", "2", "--jobs", "1", "--format", "jsonl"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["attacks"] and "faults" not in found
    assert main(["sim", "--byzantine", "--seeds", "2", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "tried nothing else" in out and "2 histories with members who break the rules played" in out
    for name, row in found["attacks"].items():
        assert [name, *(str(row[column]) for column in ("tried", "alone", "detected", "harmless"))] in [
            [line[:28].strip(), *line[28:].split()] for line in out.splitlines()
        ]


def test_more_loss_is_more_steps():
    quiet, noisy = (sum(play_episode(seed, faults=Faults(loss=p)).steps for seed in range(1, 9)) for p in (0, 0.5))
    assert noisy > quiet
