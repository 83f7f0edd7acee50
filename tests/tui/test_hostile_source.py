"""Static check: all text from the agent passes the sanitiser before a widget gets it.

The type checker finds a `str` where a function takes `Printable`; but Textual's own widgets and `Content` take `str`,
and `Printable(...)` accepts any text. So no argument of theirs may contain text of the control protocol outside of a
call that makes it printable.
"""

import ast
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from zerochat import rpc

ROOT = Path(__file__).parents[2] / "zerochat" / "tui"
SOURCES = sorted(ROOT.rglob("*.py"))
SHOWS = {
    *(
        "Content",
        "styled",
        "assemble",
        "from_text",
        "Printable",
        "Segment",
        "Text",
        "Strip",
        "Option",
        "Static",
        "Label",
    ),
    *(
        "Button",
        "update",
        "notify",
        "report",
        "flash",
        "report_error",
        "show_text",
        "show_briefly",
        "rows",
        "stylize",
        "rule",
        "note",
    ),
}
"""Calls that put text on the screen, or say that it may go there."""
CLEANS = {
    *("printable", "printable_line", "printable_key", "name_of", "names_text", "label", "byline", "past_byline"),
    *("label_of", "short_name", "format_size", "transfer_state", "key_suffix", "short_view", "hue_of", "summary_of"),
    *("clock_of", "clock_text", "day_text", "time_text", "display_time", "local_time"),
}
"""Calls that make text showable, or take nothing of it but a time, a colour or a place in a table."""
COUNTS = {"len", "cells", "get", "isinstance", "bool", "int", "sum", "any", "all", "startswith", "endswith"}
"""Calls whose answer is no text of what they are given: a number, or what stands for it in a table of ours."""
OURS = {
    "conversation.name": "Printable, made by Conversation",
    "row.text": "Printable, made by row_of",
    "quote_of(row).text": "Printable, made by quote_of",
    "paint.py each.text": "a piece of a line that is painted already",
    "pane.py part.text": "a piece of a line that is painted already",
    "paint.py columns.nick": "a width in cells",
    "chat_view.py event.at": "a place in the composer's text",
    "reply_bar.py self.text": "a sentence of ours",
    "choice.py self.value": "one of a few words of ours",
    "bars.py self.keys": "the keys of our own bindings",
    "help.py each.key": "the key of one of our own bindings",
    "clipboard.py Path(command[0]).name": "what a program of this machine is called",
}
"""What is called as a field of the protocol is, and is something else: in which file, or everywhere; and why."""


def _is_text(kind: object) -> bool:
    if typing.get_origin(kind) is typing.Literal:
        return False
    return kind is str or any(_is_text(each) for each in typing.get_args(kind))


FIELDS = {
    field.name
    for shape in vars(rpc).values()
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct)
    for field in msgspec.structs.fields(shape)
    if _is_text(field.type)
}
"""Whatever the agent tells as free text."""


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _told(node: ast.AST) -> set[str]:
    """The names that a function gives to text of the protocol as it came: by assignment, or in a `case`."""
    names = set()
    for each in ast.walk(node):
        match each:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value) if value.attr in FIELDS:
                names.add(name)
            case ast.MatchClass(kwd_attrs=fields, kwd_patterns=patterns):
                captures = zip(fields, patterns, strict=True)
                names |= {str(one.name) for field, one in captures if field in FIELDS and isinstance(one, ast.MatchAs)}
    return names


def _raw(node: ast.AST, told: set[str], shown: bool) -> Iterator[ast.expr]:
    """Text of the protocol under `node` that is `shown` without having been made showable."""
    match node:
        case ast.Call() if _called(node) in CLEANS | COUNTS:
            return
        case ast.Call():
            shown = shown or _called(node) in SHOWS
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if isinstance(node.func, ast.Attribute):
                given.append(node.func.value)
            for each in given:
                yield from _raw(each, told, shown)
            return
        case ast.Compare() | ast.Lambda():
            return
        case ast.IfExp():
            yield from _raw(node.body, told, shown)
            yield from _raw(node.orelse, told, shown)
            return
        case ast.Subscript():
            yield from _raw(node.value, told, shown)
            return
        case ast.Attribute() if shown and node.attr in FIELDS:
            yield node
            return
        case ast.Attribute():
            return
        case ast.Name() if shown and node.id in told:
            yield node
            return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and not isinstance(
            node, (ast.Module, ast.ClassDef)
        ):
            continue
        yield from _raw(child, told, shown)


def raw_in(tree: ast.Module, file: str = "") -> list[str]:
    """Each place, as its line and what stands there."""
    found = {}
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in function.body:
                for each in _raw(statement, _told(function), shown=False):
                    found[each.lineno, ast.unparse(each)] = None
    return [f"{line}: {text}" for line, text in found if not {text, f"{file} {text}"} & OURS.keys()]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_agent_text_is_sanitised(path):
    raw = raw_in(ast.parse(path.read_text(encoding="utf-8")), path.name)
    assert not raw, f"{path}: goes to the screen as somebody wrote it (printable, printable_line): {raw}"


@pytest.mark.parametrize(
    "line",
    [
        "Content(member.nick)",
        "Printable(f'{news.nick} is here')",
        "chat.tell(Printable(info.topic))",
        "self.update(Content('\\n').join([Content(event.body['text'])]))",
        "widget.update(f'{one.text}')",
        "Content.styled(invitation.url, 'bold')",
        "Content.assemble((member.nick, 'bold'))",
        "self.app.notify(status.warning, markup=False)",
        "Segment(quote.text)",
        "nick = member.nick; Content(nick)",
        "Option(Content(info.name if info.name else '?'))",
    ],
)
def test_the_rule_sees(line):
    assert raw_in(ast.parse(f"def draw():\n    {line}"))


@pytest.mark.parametrize(
    "line",
    [
        "Content(name_of(member.nick))",
        "Content(printable(event.body['text'], lines_max=3))",
        "Printable(f'{name_of(news.nick)} is here')",
        "Content('yes' if member.role == 'reader' else 'no')",
        "Content(SYMBOLS[member.connection])",
        "Content(ROLES.get(member.role, 'else'))",
        "link.ask('role', SetRoleParams(info.id))",
    ],
)
def test_the_rule_accepts(line):
    assert not raw_in(ast.parse(f"def draw():\n    {line}"))


def test_the_rule_knows_the_text_fields():
    assert {"nick", "text", "name", "topic", "label", "words", "url", "warning", "emoji"} <= FIELDS
