"""Counts roundabout words per thousand words of docstrings, user strings and pages.

    python scripts/wording.py PATH...            a figure for each path
    python scripts/wording.py --lines PATH...    and the lines that hold them

What counts is written for readers: docstrings, string literals of at least three words, Markdown, reStructuredText, and
the doc comments of Rust, so that other projects can be measured by the same rule.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

WORDS = (
    "whoever",
    "somebody",
    "nobody",
    "anybody",
    "that one",
    "puts? out",
    "lets? in",
    "hears?",
    "heard",
    "tells?",
    "told",
)
ROUNDABOUT = re.compile(rf"\b(?:{'|'.join(WORDS)}|what(?: \w+){{0,4}} (?:is|has))\b", re.IGNORECASE)
"""Pronouns in the place of an actor, and verbs in the place of a mechanism."""
WORDS_MIN = 3
"""A shorter string literal is a key or a name, not a sentence."""
PAGES = {".md", ".rst"}
RUST_DOC = re.compile(r"^\s*//[/!] ?(.*)$", re.MULTILINE)
SKIPPED = {"tests", "test", ".git", ".venv", "node_modules"}


class Count(NamedTuple):
    words: int
    found: list[tuple[Path, int, str]]

    @property
    def per_thousand(self) -> float:
        return 1000 * len(self.found) / self.words if self.words else 0.0


def passages(path: Path) -> Iterator[tuple[int, str]]:
    """The passages of a file that are written for readers: (line, text)."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= WORDS_MIN:
                yield node.lineno, node.value
    elif path.suffix == ".rs":
        yield from ((text.count("\n", 0, match.start()) + 1, match[1]) for match in RUST_DOC.finditer(text))
    else:
        yield from enumerate(text.split("\n"), 1)


def files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for each in sorted(path.rglob("*")):
        if each.suffix in {".py", ".rs", *PAGES} and not SKIPPED & set(each.relative_to(path).parts) and each.is_file():
            yield each


@cache
def count_file(path: Path) -> Count:
    """Cached: a folder and the folders inside it are often counted after each other."""
    words, found = 0, []
    for line, text in passages(path):
        words += len(text.split())
        found += [(path, line, match[0]) for match in ROUNDABOUT.finditer(text)]
    return Count(words, found)


def count(paths: list[Path]) -> Count:
    counts = [count_file(each) for path in paths for each in files(path)]
    return Count(sum(each.words for each in counts), [line for each in counts for line in each.found])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--lines", action="store_true", help="print each line that holds one")
    options = parser.parse_args()
    for path in options.paths:
        counted = count([path])
        print(f"{counted.per_thousand:6.2f} per thousand of {counted.words:7d} words  {path}")
        if options.lines:
            for file, line, words in counted.found:
                print(f"    {file}:{line}: {words}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
