"""Stored corpora: for each parser a minimal set of cases that covers all branches reached so far.

One file for each, in JSON Lines, compressed (`xzcat` shows it), the shortest cases first: {"data"}, a character for
each byte, and {"source"}, the text it was made from, unless the data shows it. Every search starts from them, here and
in CI.
"""

import json
import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path

from fuzzing.run import Case, Cases, Target, branches_of, seen_by, set_up

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "fuzz_corpora"


def load(name: str) -> list[Case]:
    """The corpus of the parser with this name; nothing where there is none."""
    path = FOLDER / f"{name}.jsonl.xz"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    return [Case(*(line.get(part, "").encode("latin-1") for part in Case._fields)) for line in lines]


def keep(name: str, cases: Iterable[Case]) -> int:
    """Write the corpus of a parser; how many bytes it takes."""
    FOLDER.mkdir(exist_ok=True)
    lines = []
    for case in sorted(cases, key=lambda case: (len(case.data), case)):
        parts = {part: value.decode("latin-1") for part, value in case._asdict().items() if value}
        lines.append(json.dumps(parts, separators=(",", ":")) + "\n")
    return (FOLDER / f"{name}.jsonl.xz").write_bytes(lzma.compress("".join(lines).encode()))


def coverage(target: Target, corpus: Sequence[Case]) -> float:
    """The part of the branches of a block of fresh cases that the corpus, with the parser's own seeds, takes too. Cases
    that are too long to be learned do not count."""
    fresh = Cases(target, seed=1)
    set_up(target)
    wanted = seen_by(target, [case for case in fresh.cases(0) if case.is_learnable])
    return len(wanted & seen_by(target, [*fresh.before, *corpus])) / len(wanted)


def smallest(target: Target, cases: Sequence[Case]) -> tuple[list[Case], int]:
    """As few and as short of these cases as take, together, every branch that all of them take beyond the parser's own
    seeds (found greedily), and how many branches that are with these."""
    set_up(target)
    found: set[int] = set()
    for data in target.seeds() if target.form != "sealed" else ():
        found |= branches_of(target, Case(data))
    taken = [(case, frozenset(branches_of(target, case))) for case in dict.fromkeys(cases)]
    kept: list[Case] = []
    while taken := [(case, new) for case, branches in taken if (new := branches - found)]:
        case, new = min(taken, key=lambda pair: ((len(pair[0].data) + 200) / len(pair[1]), pair[0]))
        kept.append(case)
        found |= new
    return kept, len(found)
