"""Sizes that keep a file readable: functions fit a screen, modules have one subject."""

import statistics

from tests.support.source_facts import Facts, facts

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
MEDIAN_LINES_MAX = 200
SUMMARY_CHARS_MAX = 117
VOCABULARIES = {"zerochat.group.effects", "zerochat.group.inputs"}
"""Modules that define the words of the core, one record after the other."""
TABLES = {"handle_command", "add", "_add_new", "describe", "_run_group_timer"}
"""Functions that are a table: a line or two for each command, notification, timer or option."""


def _facts() -> dict[str, Facts]:
    return {**facts(), **facts("analytics")}


def test_functions_fit_a_screen():
    long = [
        f"{name}:{function.line} {function.name}"
        for name, module in _facts().items()
        for function in module.functions
        if function.name not in TABLES and function.last_line - function.line >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_modules_have_one_subject():
    lines = {name: module.lines for name, module in _facts().items()}
    assert [name for name, count in lines.items() if count > MODULE_LINES_MAX and name not in VOCABULARIES] == []
    assert statistics.median(lines.values()) < MEDIAN_LINES_MAX


def test_modules_open_with_one_line():
    assert [name for name, module in _facts().items() if module.lines and not module.summary] == []
    assert [name for name, module in _facts().items() if len(module.summary) > SUMMARY_CHARS_MAX] == []


def test_imports_keep_their_names():
    """An import has another name here only where the module has something else of its name."""
    assert [f"{name}: {renamed}" for name, module in _facts().items() for renamed in module.renamed_imports] == []
