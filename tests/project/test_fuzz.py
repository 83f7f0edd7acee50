"""The parsers under the fuzzer, briefly by default and long on request; and the fuzzer itself."""

import base64
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from fuzzing import branches, corpora, doors
from fuzzing.doors import storm
from fuzzing.group import place
from fuzzing.nodes import Base64, Bytes, Joined, Object, Peer4, as_text, dissect, paths, utf8
from fuzzing.people import ALICE
from fuzzing.run import BLOCK, Case, Cases, Form, attempt, forget, is_slow, limit_of, memory_bytes, run, spread
from fuzzing.targets import SLICE, TARGETS
from zerochat.agent.invitations import pasted_text as pasted
from zerochat.agent.invitations.pasted_text import ForAGroup, read_pasted
from zerochat.agent.network.zmq import multiplexing
from zerochat.crypto.encoding import CONTAINERS_MAX, FRACTIONS_MAX, b64url, strict_json
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.did import resolve
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed
from zerochat.group.event_log.event import POST, Event, foreign_event, parse_event

ROOT = Path(__file__).parents[2]
REFUSED = (b"c_i=", b'"type":"remove"', b'"type":"role"')
"""Seeds of a protocol that is not ours, and of somebody who has no right to what is said."""
COVERAGE_MIN = 0.9
"""Of the branches of a short search. A corpus that fits its parser has 0.96 or more; the rest is chance."""
FINDINGS = sorted((Path(__file__).parents[1] / "fuzz_findings").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_no_parser_fails_in_a_short_run(name):
    report = run(Cases(TARGETS[name], seed=2026), range(1), slow_ns=10**12)
    assert report.executions == BLOCK and report.accepted > 0
    assert not report.findings, [(finding.why, finding.data[:2000]) for finding in report.findings]


@pytest.mark.parametrize("name", TARGETS)
def test_no_parser_fails_on_the_corpus(name):
    for case in corpora.load(name):
        assert attempt(TARGETS[name], case.data)[1] is None


@pytest.mark.parametrize("name", TARGETS)
def test_a_corpus_has_accepted_cases(name):
    """With the seeds of its parser; a search that starts from refused cases gets no further than they do. No accepted
    backup can be learned: the journal makes it too long."""
    target = TARGETS[name]
    cases = Cases(target, seed=1, corpus=corpora.load(name))
    if not any(attempt(target, case.data)[0] for case in cases.before):
        fresh = [case for case in Cases(target, seed=1).cases(0) if attempt(target, case.data)[0]]
        assert fresh and not any(case.is_learnable for case in fresh), f"run scripts/fuzz {name} --keep"


@pytest.mark.slow
def test_the_corpora_are_not_outdated():
    """A corpus of an earlier format is refused at once: it misses branches that any short search takes."""
    measure = (
        "from fuzzing import branches; branches.watch()\n"
        "from fuzzing import corpora; from fuzzing.targets import TARGETS\n"
        "for name in TARGETS: print(name, corpora.coverage(TARGETS[name], corpora.load(name)))"
    )
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts")])}
    run = subprocess.run(
        [sys.executable, "-c", measure], env=os.environ | paths, stdout=subprocess.PIPE, text=True, check=True
    )
    found = {name: float(share) for name, share in map(str.split, run.stdout.splitlines())}
    assert found.keys() == TARGETS.keys()
    outdated = {name: share for name, share in found.items() if share < COVERAGE_MIN}
    assert not outdated, f"run scripts/fuzz {' '.join(outdated)} --keep"


@pytest.mark.fuzz
@pytest.mark.greedy
def test_no_parser_and_no_listener_fails_in_a_long_run(budget):
    """Three million executions and twenty thousand connections in a slice, in a process where the code says which
    branches it takes; `pytest -m fuzz -s` shows what it prints."""
    faulthandler.cancel_dump_traceback_later()  # it takes as long as it was asked to, and looks for hangs itself
    slices = str(budget(1000) / 1000)
    fuzz = [sys.executable, str(ROOT / "scripts" / "fuzz"), "--slices", slices, "--processes", "2", "--seed", "2027"]
    assert subprocess.run(fuzz).returncode == 0


@pytest.mark.slow
def test_the_listeners_survive_a_short_storm():
    found = storm(600, seed=2026)
    assert not found.faults and found.connections == 600 and found.members > 5


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_is_accepted(name):
    """And it is what its tree writes, or the changes would be made to something else."""
    target = TARGETS[name]
    for data in target.seeds():
        if target.form == "text":
            assert name == "json" or utf8(as_text(dissect(data.decode()))) == data  # that has other spellings, too
            assert attempt(target, data) == (not any(part in data for part in REFUSED), None)


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_past_findings_stay_fixed(path):
    finding = json.loads(path.read_text(encoding="utf-8"))
    target, data = TARGETS[finding["parser"]], base64.b64decode(finding["data"])
    forget()
    assert attempt(target, data)[1] is None
    if "ms of CPU" in finding["why"]:
        assert not is_slow(target, data, 4 * limit_of(target))  # somebody else may have the machine at the moment


@pytest.mark.parametrize("text", [b"[],", b"{},", b'{"":0},', b"[" * 60 + b"]" * 60 + b","], ids=repr)
def test_too_many_json_containers_are_refused_before_parsing(text):
    """It was found to take 50 to 80 ms: as long as some thousand honest messages."""
    long = b"[" + text * (ENVELOPE_BYTES_MAX // len(text) - 1) + b"0]"
    with pytest.raises(Malformed, match="objects and arrays"):
        strict_json(long, ENVELOPE_BYTES_MAX)
    short = b"[" + text * (CONTAINERS_MAX // text.count(text[:1]) - 1) + b"0]"
    strict_json(short, ENVELOPE_BYTES_MAX)
    assert strict_json(b'["' + b"{" * 100_000 + b'"]', ENVELOPE_BYTES_MAX) == ["{" * 100_000]


def test_too_many_json_fractions_are_refused_quickly():
    """It was found to take nine tenths of a second: Python reads `1e+308` ten times as slowly as `1.5`."""
    some, many = (b"[" + b",".join([b"1e+308"] * count) + b"]" for count in (FRACTIONS_MAX, FRACTIONS_MAX + 1))
    assert strict_json(some, ENVELOPE_BYTES_MAX) == [1e308] * FRACTIONS_MAX
    with pytest.raises(Malformed):
        strict_json(many, ENVELOPE_BYTES_MAX)
    usual = b"[" + b",".join([b"1.5"] * 100_000) + b"]"
    assert strict_json(usual, ENVELOPE_BYTES_MAX) == [1.5] * 100_000


def test_a_multiplexing_key_has_one_encoding():
    secret, host, carrier = (bytes([number]) * 32 for number in (1, 2, 3))
    header = multiplexing.make_header(secret, x25519_public(host), carrier, bytes(24))
    assert multiplexing.open_header(header, host, carrier) == x25519_public(secret)
    other = header[:31] + bytes([header[31] | 0x80]) + header[32:]
    with pytest.raises(Malformed, match="non-canonical key"):
        multiplexing.open_header(other, host, carrier)


def test_repeated_beginnings_of_a_code_are_bounded(monkeypatch):
    """It was found to take six tenths of a second, and as long as one likes with a longer text."""
    tried = []
    monkeypatch.setattr(pasted, "_read", lambda piece: tried.append(piece))
    with pytest.raises(ForAGroup):
        read_pasted("ZC:A a b c d e f g " * 3_000, 0)
    assert len(tried) == pasted.TRIES_MAX


def test_an_ambiguous_contact_encoding_is_refused():
    """A contact that is a list of one text is how runs spell a DID; as it stands in a file it would have another id
    than the one that everybody else hears."""
    event = Event(place().group.id, POST, place().sender, 1, "", (), (), 1, 1, {"contact": ["document"]})
    for read in (lambda: parse_event(event.wire), lambda: foreign_event(event.record)):
        with pytest.raises(Malformed, match="not a DID"):
            read()


# --- the script -----------------------------------------------------------------------------------------------------


def fuzz(*words):
    return subprocess.run([sys.executable, str(ROOT / "scripts" / "fuzz"), *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--processes", "0"], "'0' is not a whole number from 1 on"),
        (["--slices", "0"], "'0' is not a number above 0"),
        (["--seconds", "-3"], "'-3' is not a number above 0"),
        (["--replay", "/nonexistent"], "/nonexistent cannot be read: no such file"),
        (["--replay", str(ROOT / "README.md")], "README.md is no finding of the fuzzer"),
        (["links"], "no parser links; there are: link, code,"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_arguments_are_refused(words, says):
    run = fuzz(*words)
    assert run.returncode == 2 and says in run.stderr and "Traceback" not in run.stderr


def test_the_help_names_all_parsers():
    said = " ".join(fuzz("--help").stdout.split())
    assert ", ".join([*TARGETS, "doors", "work"]) in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["code", "doors"])
def test_ctrl_c_prints_a_summary(name):
    words = [sys.executable, str(ROOT / "scripts" / "fuzz"), name, "--seconds", "600", "--processes", "2"]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    time.sleep(4)  # it has long begun by then
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (130, "") and "Interrupted: " in out.splitlines()[-1]


# --- the fuzzer -----------------------------------------------------------------------------------------------------


class Planted:
    """A parser with a fault behind a few doors."""

    name = "planted"
    form: Form = "text"
    size_max = 5_000

    def seeds(self):
        return [b'{"header":"' + b64url(b'{"kind":"text","n":[1,2,3]}').encode() + b'"}']

    def seal(self, tree, dice):
        return tree

    def parse(self, data):
        try:
            tree = json.loads(data)
            header = json.loads(base64.urlsafe_b64decode(tree["header"] + "==="))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Malformed(why="as it should be") from None
        if isinstance(header, dict) and isinstance(header.get("n"), list):
            return dict.fromkeys(header["n"])
        raise Malformed(why="as it should be")


def test_a_finding_can_be_reproduced():
    report = run(Cases(Planted(), seed=1), range(20), slow_ns=10**12)
    assert {finding.why.partition(":")[0] for finding in report.findings} == {"TypeError"}
    for finding in report.findings:
        data = Cases(Planted(), seed=1).case(finding.case)
        assert data == finding.data
        assert attempt(Planted(), data)[1] == finding.why
    assert Cases(Planted(), seed=2).case(0) != Cases(Planted(), seed=1).case(0)


class Slow(Planted):
    """A parser that takes the more time the more braces there are."""

    def parse(self, data):
        start = time.thread_time_ns()
        while time.thread_time_ns() - start < data.count(b"{") * 1_000_000:
            pass


MAZE = """
def find(data):
    if data[:1] == b"m":
        if data[1:2] == b"a":
            if data[2:3] == b"z" or data[3:4] == b"z":
                return {}["e"]
    return [each for each in data if each > 300] or (0 if data else 1)
"""


class Maze:
    """A parser with a fault that no chance leads to, but every step of the way is a branch."""

    name = "maze"
    form: Form = "raw"
    size_max = 64

    def __init__(self):
        self.module = {"__taken__": branches.taken.add}
        exec(branches.marked(MAZE.encode(), "maze.py", "maze"), self.module)

    def seeds(self):
        return [b"some"]

    def seal(self, tree, dice):
        return tree

    def parse(self, data):
        return self.module["find"](data)


@pytest.mark.slow
def test_guided_search_reaches_deeper_branches():
    led = run(Cases(Maze(), seed=1), range(120), slow_ns=10**12, guided=True)
    assert {finding.why.partition(":")[0] for finding in led.findings} == {"KeyError"}
    assert any(case.data[:2] == b"ma" for case in led.learned)
    assert not run(Cases(Maze(), seed=1), range(120), slow_ns=10**12).findings


def test_a_corpus_is_minimal_and_readable(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "FOLDER", tmp_path)
    dice = Random(1)
    cases = [Case(b"m" + dice.randbytes(size)) for size in range(1, 30)]
    found, taken = corpora.smallest(Maze(), [*cases, Case(b"max"), Case(b"ma\xff"), Case(b"max", b"made of this")])
    assert found[0] == Case(b"max") and len(found) == 2 and taken > 4  # the other one: what is not "a"
    corpora.keep("maze", [*found, Case(bytes(range(256)), b"text")])
    assert set(corpora.load("maze")) == {*found, Case(bytes(range(256)), b"text")}
    assert corpora.load("another") == []


def test_instrumented_code_reports_branches_and_behaves_the_same():
    source = b"""
def f(a, b=0):
    "what it is for"
    try:
        c = a if a > 1 else b
        for each in range(c):
            b += each and 1
        else:
            b = b or -1
    except TypeError:
        return "type"
    match b:
        case -1:
            return None
    return [d for d in (1, 2, 3) if d > b]
"""
    plain, marked = {}, {"__taken__": branches.taken.add}
    exec(compile(source, "f", "exec"), plain)
    exec(branches.marked(source, "f", "f"), marked)
    ways = set()
    for given in ((0,), (1, 2), (3,), (9, 9), ("x",), (5, 0)):
        branches.taken.clear()
        assert marked["f"](*given) == plain["f"](*given)
        ways.add(frozenset(branches.taken))
    assert len(ways) >= 4 and marked["f"].__doc__ == plain["f"].__doc__


def test_a_slice_has_three_million_executions_of_all_targets():
    assert SLICE.keys() == TARGETS.keys() and sum(SLICE.values()) >= 3_000_000


def test_the_corpora_stay_small():
    assert sum(path.stat().st_size for path in corpora.FOLDER.iterdir()) < 1_500_000


def test_an_agent_that_ends_in_a_storm_is_noticed(monkeypatch):
    said = doors._one

    def last(agent, dice, found, left):
        said(agent, dice, found, left)
        if found.connections == 50:
            agent.process.kill()

    monkeypatch.setattr(doors, "_one", last)
    found = storm(100, seed=1)
    assert found.faults and "the agent has ended (-9)" in found.faults[0]


@pytest.mark.slow
def test_excessive_memory_is_found():
    tried = []

    class Greedy(Maze):
        def parse(self, data):
            size = 0 if tried else memory_bytes() + (100 << 20)
            tried.append(data)
            return len(b"x" * size)

    assert "MiB of memory" in run(Cases(Greedy(), seed=1), range(1), slow_ns=10**12).findings[0].why


@pytest.mark.slow
def test_slow_parsing_is_found():
    assert not is_slow(Slow(), b"{" * 4, slow_ns=5_000_000)
    assert is_slow(Slow(), b"{" * 8, slow_ns=5_000_000)


@pytest.mark.slow
def test_several_processes_find_the_same_as_one():
    alone = run(Cases(Planted(), seed=1), range(8), slow_ns=10**12)
    together = spread(Planted(), 1, 8 * BLOCK, 60, 2, lambda so_far: None)
    assert (together.executions, together.accepted) == (alone.executions, alone.accepted)
    assert {finding.why for finding in together.findings} >= {finding.why for finding in alone.findings}


def test_a_text_is_taken_apart_to_the_bottom():
    claims = b'{"iss":"' + ALICE.did.encode() + b'#key-1"}'
    token = ".".join(b64url(part) for part in (b'{"alg":"EdDSA"}', claims, bytes(64)))
    tree = dissect(json.dumps({"jwt": token}, separators=(",", ":")))
    kinds = {type(part) for path in paths(tree) if (part := _at(tree, path)) is not None}
    assert {Object, Joined, Base64, Peer4, Bytes} <= kinds
    assert json.loads(as_text(tree)) == {"jwt": token}


def _at(part, path):
    for step in path:
        part = part.parts[step]
    return part


def test_a_changed_document_gets_the_hash_that_belongs_to_it():
    tree = dissect(ALICE.did)
    assert isinstance(tree, Peer4)
    document = tree.parts[0]
    assert isinstance(document, Object)
    changed = as_text(tree.with_parts([document.put("service", dissect("[]"))]))
    assert changed != ALICE.did and resolve(changed).services == ()


def test_a_case_is_the_same_bytes_at_every_start():
    for name in ("link", "did", "rfc0019"):
        block = list(Cases(TARGETS[name], seed=3).block(1))
        assert block == list(Cases(TARGETS[name], seed=3).block(1))
        assert len(set(block)) > BLOCK // 2
