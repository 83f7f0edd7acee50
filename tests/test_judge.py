"""The judge: whoever withholds a message is found out, and nobody else ever is, whatever the clocks and the liars say.

SUPRA's lemmas as properties: a subscriber can always accuse a publisher that cheats (2), and one that is honest can
always defend itself (3).
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import islice

import pytest
from msgspec.structs import replace

from tests.quarrels import Quarrel, Story
from zerochat.errors import Malformed
from zerochat.evidence.case import Acknowledged, Case, Defence, Missing, parse_case
from zerochat.evidence.judge import OPEN, UPHELD, VOID, judge

EVERYDAY, SLICE = 40, 1_000
"""Histories; ten thousand of them with `--budget 10`."""

JUDGES = """
import json, sys
from pathlib import Path
from zerochat.evidence.case import parse_case
from zerochat.evidence.judge import judge
for path in sorted(Path(sys.argv[1]).iterdir()):
    found = judge(parse_case(path.read_bytes()))
    print(json.dumps([found.delivery, found.guilty]))
"""


def tried(seeds):
    """Judge all that comes of these histories, from the bytes of the cases alone. Returns how many were upheld, and how
    many of all."""
    upheld = found = 0
    for seed in seeds:
        for quarrel in Story(seed).play():
            judgement = judge(parse_case(quarrel.case.written()))
            assert (judgement.delivery == UPHELD) == quarrel.cheated, (seed, judgement)
            assert tuple(judgement.guilty) == quarrel.counts, (seed, judgement)
            upheld, found = upheld + quarrel.cheated, found + 1
    return upheld, found


def test_whoever_withholds_is_found_out_and_nobody_else():
    upheld, found = tried(range(EVERYDAY))
    assert upheld > EVERYDAY // 10 and found > 2 * EVERYDAY


@pytest.mark.sim
def test_a_thousand_histories_are_judged_as_they_were(budget, capsys):
    count = budget(SLICE)
    upheld, found = tried(range(count))
    with capsys.disabled():
        print(f"\n{count:,} histories, {found:,} cases, {upheld:,} upheld, all as it really was")
    assert upheld


def test_another_process_comes_to_the_same_from_the_file_alone(tmp_path):
    quarrels = [quarrel for seed in range(12) for quarrel in Story(seed).play()]
    for number, quarrel in enumerate(quarrels):
        (tmp_path / f"{number:04}.zcase").write_bytes(quarrel.case.written())
    said = subprocess.run(
        [sys.executable, "-c", JUDGES, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    here = [judge(quarrel.case) for quarrel in quarrels]
    assert [json.loads(line) for line in said.stdout.splitlines()] == [[one.delivery, one.guilty] for one in here]
    assert len(here) > 20


@cache
def upheld_ones() -> list[Quarrel]:
    stories = (quarrel for seed in range(400) for quarrel in Story(seed).play())
    return list(islice((one for one in stories if one.cheated), 3))


def defended_one() -> Quarrel:
    """A case that was dismissed because of a defence."""
    for seed in range(400):
        for quarrel in Story(seed).play():
            missing = quarrel.case.missing
            if missing is not None and missing.defences and judge(quarrel.case).delivery not in (UPHELD, VOID, OPEN):
                return quarrel
    raise AssertionError("no case with a defence")


def missing_of(quarrel: Quarrel) -> Missing:
    assert quarrel.case.missing is not None
    return quarrel.case.missing


def with_missing(quarrel: Quarrel, **changes):
    return replace(quarrel.case, missing=replace(missing_of(quarrel), **changes))


def test_a_case_that_leaves_a_defence_out_is_told_from_one_to_which_there_was_none():
    quarrel = defended_one()
    assert judge(with_missing(quarrel, defences=())).delivery == OPEN
    span = missing_of(quarrel).span
    shorter = replace(span, entries=span.entries[:1])
    assert judge(with_missing(quarrel, defences=(), span=shorter)).delivery == OPEN
    other = replace(span, before=0, peaks=())
    assert judge(with_missing(quarrel, span=other)).delivery == VOID


def test_a_defence_that_was_never_posted_does_not_count():
    for quarrel in upheld_ones():
        missing = missing_of(quarrel)
        defence = Defence(missing.accusation.digest, Acknowledged((missing.message,), b"x" * 192)).written()
        assert judge(with_missing(quarrel, defences=(*missing.defences, defence))).delivery == UPHELD


def test_nothing_is_upheld_once_any_part_of_the_file_was_changed():
    case, missing = upheld_ones()[0].case, missing_of(upheld_ones()[0])
    request, accept, confirm = case.subscription
    changed = [
        replace(case, rules=replace(case.rules, skew_ms=case.rules.skew_ms - 1)),
        replace(case, rules=replace(case.rules, witnesses=case.rules.witnesses[1:] + case.rules.witnesses[:1])),
        replace(case, subscription=(request, replace(accept, time=accept.time + 1), confirm)),
        replace(case, subscription=(replace(request, nonce="AA"), accept, confirm)),
        replace(case, missing=replace(missing, accusation=replace(missing.accusation, time=1))),
        replace(case, missing=replace(missing, message=missing.message[:-1] + bytes([missing.message[-1] ^ 1]))),
        replace(case, missing=replace(missing, filed=missing.filed.replace("index ", "index 1"))),
    ]
    assert judge(case).delivery == UPHELD
    assert [judge(one).delivery for one in changed] == [VOID] * len(changed)


@pytest.mark.parametrize(
    "written",
    [b"", b"{}", b"[]", b"\xff", b'{"zcase":2}', b'{"zcase":1,"rules":{}}', b'{"a":1' * 40_000],
    ids=["empty", "object", "list", "no text", "version", "no rules", "deep"],
)
def test_a_file_that_is_no_case_is_named(written):
    with pytest.raises(Malformed):
        parse_case(written)


def spoilt(written: bytes) -> Iterator[Case]:
    """What can still be read of a case that was cut off, or of which one byte is another."""
    for place in range(0, len(written) - 2, max(1, len(written) // 150)):
        for bytes_ in (written[:place], written[:place] + b"A" + written[place + 1 :]):
            with suppress(Malformed):
                yield parse_case(bytes_)


def test_a_spoilt_file_turns_no_verdict_round():
    """Some of it may be spoilt without harm: of more cosignatures than it takes, one."""
    upheld, dismissed = upheld_ones()[0].case, defended_one().case
    assert {judge(case).delivery for case in spoilt(upheld.written())} <= {UPHELD, VOID, OPEN}
    assert UPHELD not in {judge(case).delivery for case in spoilt(dismissed.written())}
