"""Sizes that keep a file readable: functions fit a screen, modules have one subject."""

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for package in ("analytics", "zerochat")
    for path in sorted((ROOT / package).rglob("*.py"))
}
TREES = {name: ast.parse(source) for name, source in SOURCES.items()}
LINES = {name: len(source.splitlines()) for name, source in SOURCES.items()}
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
MEDIAN_LINES_MAX = 200
SUMMARY_CHARS_MAX = 117
VOCABULARIES = {"zerochat/group/effects.py", "zerochat/group/inputs.py"}
"""Modules that define the words of the core, one record after the other."""
TABLES = {"handle_command", "add", "_add_new", "describe"}
"""Functions that are a table: a line or two for each command, notification or option."""


def test_functions_fit_a_screen():
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in TABLES
        if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_modules_have_one_subject():
    assert [name for name, lines in LINES.items() if lines > MODULE_LINES_MAX and name not in VOCABULARIES] == []
    assert statistics.median(LINES.values()) < MEDIAN_LINES_MAX


def test_modules_open_with_one_line():
    summaries = {name: (ast.get_docstring(tree) or "").partition("\n")[0] for name, tree in TREES.items()}
    assert [name for name, summary in summaries.items() if SOURCES[name].strip() and not summary] == []
    assert [name for name, summary in summaries.items() if len(summary) > SUMMARY_CHARS_MAX] == []


def test_imports_keep_their_names():
    """An import has another name here only where the module has something else of its name."""
    renamed = [
        f"{name}:{node.lineno} {one.name} as {one.asname}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zerochat")
        for one in node.names
        if one.asname and one.name not in _names_in(tree)
    ]
    assert renamed == []


def _names_in(tree: ast.AST) -> set[str]:
    """The names that a module defines, imports, or has as an argument."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id, ast.Store()) | ast.FunctionDef(id) | ast.ClassDef(id) | ast.arg(id) | ast.keyword(id):
                found.add(str(id))
            case ast.MatchAs(name=str(id)):
                found.add(id)
            case ast.alias(id, None) | ast.alias(_, id):
                found.add(str(id))
    return found
