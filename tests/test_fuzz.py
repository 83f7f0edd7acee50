"""The parsers under the fuzzer, a short while every day and long on request; and the fuzzer itself, which must find."""

import base64
import json
import time
from pathlib import Path

import pytest

from fuzzing.nodes import Base64, Bytes, Joined, Object, Peer4, as_text, dissect, paths, utf8
from fuzzing.people import ALICE
from fuzzing.run import BLOCK, SLOW_NS, Cases, attempt, forget, is_slow, run, spread
from fuzzing.targets import TARGETS
from zerochat.crypto.encoding import CONTAINERS_MAX, b64url, strict_json
from zerochat.didcomm.did import resolve
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed

FINDINGS = sorted((Path(__file__).parent / "fuzz_findings").glob("*.json"))


@pytest.mark.parametrize("name", TARGETS)
def test_no_parser_fails_in_a_short_run(name):
    report = run(Cases(TARGETS[name], seed=2026), range(1), slow_ns=10**12)
    assert report.executions == BLOCK and report.accepted > 0
    assert not report.findings, [(finding.why, finding.data[:2000]) for finding in report.findings]


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_no_parser_fails_or_takes_long_in_a_long_run(name):
    report = spread(TARGETS[name], 2027, 100_000, float("inf"), 2, lambda so_far: None)
    assert not report.findings, [(finding.why, finding.case) for finding in report.findings]


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_is_accepted(name):
    """And it is what its tree writes, or the changes would be made to something else."""
    target = TARGETS[name]
    for data in target.seeds():
        tree = dissect(data.decode())
        if name not in ("code", "layers"):
            assert utf8(as_text(tree)) == data
            assert attempt(target, data) == (b"c_i=" not in data, None)


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_what_was_found_once_is_mended(path):
    finding = json.loads(path.read_text(encoding="utf-8"))
    target, data = TARGETS[finding["parser"]], base64.b64decode(finding["data"])
    forget()
    assert attempt(target, data)[1] is None
    if "ms of CPU" in finding["why"]:
        assert not is_slow(target, data, 4 * SLOW_NS)  # somebody else may have the machine at the moment


@pytest.mark.parametrize("text", [b"[],", b"{},", b'{"":0},', b"[" * 60 + b"]" * 60 + b","], ids=repr)
def test_half_a_megabyte_of_brackets_is_refused_before_it_is_parsed(text):
    """It was found to take 50 to 80 ms: as long as some thousand honest messages."""
    long = b"[" + text * (ENVELOPE_BYTES_MAX // len(text) - 1) + b"0]"
    with pytest.raises(Malformed, match="objects and arrays"):
        strict_json(long, ENVELOPE_BYTES_MAX)
    short = b"[" + text * (CONTAINERS_MAX // text.count(text[:1]) - 1) + b"0]"
    strict_json(short, ENVELOPE_BYTES_MAX)
    assert strict_json(b'["' + b"{" * 100_000 + b'"]', ENVELOPE_BYTES_MAX) == ["{" * 100_000]


# --- the fuzzer -----------------------------------------------------------------------------------------------------


class Planted:
    """A parser with a fault behind a few doors."""

    name = "planted"
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


def test_a_fault_is_found_and_can_be_had_again():
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


def test_what_takes_long_is_found():
    assert not is_slow(Slow(), b"{" * 4, slow_ns=5_000_000)
    assert is_slow(Slow(), b"{" * 8, slow_ns=5_000_000)


def test_several_processes_find_what_one_finds():
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
