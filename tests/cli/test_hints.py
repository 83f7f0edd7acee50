"""Commands that messages suggest can be pasted into a shell, once their placeholders are replaced."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import zerochat
from zerochat.cli.invitation_input import NoInvitation
from zerochat.cli.parser import VERBS, parse
from zerochat.errors import GroupExists

ROOT = Path(zerochat.__file__).parent
PLACEHOLDERS = {
    "NAME": "alice",
    "N": "3",
    "TIME": "24h",
    "COMMAND": "send",
    "{action}": "save",
    "{verb}": "join",
    "{writer}": "restore alice.zerochat",
}
NAMED = re.compile(r"[a-z]+([- ][a-z]+)*")
"""A command without arguments is only named: that `zerochat export` wrote a file, for example."""


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module except its docstring and those of functions; fields of f-strings in braces."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Module(body=[ast.Expr(value), *_]) | ast.FunctionDef(body=[ast.Expr(value), *_]):
                skipped.add(id(value))
            case ast.JoinedStr(values):
                skipped |= set(map(id, values))
                yield node.lineno, "".join(map(_piece, values))
            case ast.Constant(str(text)) if id(node) not in skipped:
                yield node.lineno, text


def _piece(value: ast.expr) -> str:
    match value:
        case ast.Constant(text):
            return str(text)
        case ast.FormattedValue(ast.Call(ast.Name("quoted"), arguments)):
            return " ".join("{name}" for _ in arguments)
        case ast.FormattedValue(ast.Name(name) | ast.Attribute(_, name)):
            return f"{{{name}}}"
    return "{name}"


def suggested() -> tuple[dict[str, str], dict[str, str]]:
    """The places of the commands with arguments, and of those that are only named."""
    found: dict[str, str] = {}
    named: dict[str, str] = {}
    for path in sorted(ROOT.rglob("*.py")):
        if "`zerochat " not in (source := path.read_text(encoding="utf-8")):
            continue
        for line, text in strings(ast.parse(source)):
            for command in re.findall(r"`zerochat ([^`]*)`", text):
                words = " ".join(command.split())
                (named if NAMED.fullmatch(words) else found).setdefault(words, f"{path.relative_to(ROOT)}:{line}")
    return found, named


def parsed(command: str) -> bool:
    text = " ".join(PLACEHOLDERS.get(word, word) for word in command.split())
    words = shlex.split(re.sub(r"\{[^}]*\}", "alice", text))
    words = words[: words.index("<file")] if "<file" in words else words
    try:
        return parse(words).verb in {verb for verbs in VERBS.values() for verb in verbs}
    except SystemExit as end:
        return end.code == 0


def test_suggested_commands_parse(capsys: pytest.CaptureFixture[str]) -> None:
    commands, _ = suggested()
    assert len(commands) > 50
    failed = {command: place for command, place in commands.items() if not parsed(command)}
    assert failed == {}, capsys.readouterr().err


def test_named_commands_exist() -> None:
    _, named = suggested()
    verbs = {verb for verbs in VERBS.values() for verb in verbs}
    assert {command: place for command, place in named.items() if command.split()[0] not in verbs} == {}


def test_a_field_with_several_words_stays_several_words() -> None:
    assert "`zerochat route add - <file`" in NoInvitation(verb=("route", "add")).sentence()
    assert "`zerochat leave 'a b'`" in GroupExists(group="a b").sentence()
