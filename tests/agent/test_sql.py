"""Every SQL statement of the program compiles against the schema of its database.

A statement that no other test reaches could name a table or a column that does not exist.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import apsw
import apsw.ext
import pytest

import zerochat
from zerochat.agent.mediator import shared_mailboxes
from zerochat.agent.mediator.tables import SCHEMA as MEDIATOR
from zerochat.agent.storage.tables import SCHEMA as JOURNAL
from zerochat.bot.store import _SCHEMA as BOT

PACKAGE = Path(zerochat.__file__).parent
SCHEMAS = {"agent/mediator": MEDIATOR + shared_mailboxes.SCHEMA, "bot": BOT, "": JOURNAL}
"""The schema of the modules in a folder; the first one that fits."""
STATEMENT = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|WITH)\s")
CLAUSE = re.compile(r"\s*(?:FROM|WHERE|AND|ORDER BY|RETURNING) ")
LOCALS: dict[str, dict[str, Any]] = {
    "agent/mediator/store.py": {"table": ("messages", "delayed"), "where": ("", " AND target <> ''")},
    "agent/mediator/tables.py": {"table": ("messages", "delayed")},
    "agent/storage/disputes.py": {"table": "_TABLES", "where": ("WHERE group_id = ?",)},
    "agent/storage/erasure.py": {"table": ("keys", "receipts")},
    "agent/storage/journal.py": {"table": ("events", "receipts")},
    "agent/storage/search_index.py": {"positions": ("SELECT position FROM indexed_posts",)},
    "agent/storage/signed_messages.py": {"table": "_TABLES"},
    "agent/storage/tlog.py": {"table": "_TABLES"},
}
"""Values of the local variables in f-strings, or the name of a constant with them."""
CLAUSES_OF = {
    "agent/storage/disputes.py": "SELECT * FROM cases ",
    "agent/mediator/store.py": "SELECT * FROM messages, (SELECT target FROM delayed) ",
}
"""The statement before a clause that is a string of its own. A clause that begins with AND follows `WHERE 1`."""


@cache
def database(schema: str) -> apsw.Connection:
    made = apsw.Connection(":memory:")
    made.execute(schema)
    return made


def values(path: str, expression: ast.expr) -> tuple[str, ...]:
    """What an expression in an f-string can be: a constant of the module, or a local variable of LOCALS."""
    name = ast.unparse(expression)
    module = import_module("zerochat." + path.removesuffix(".py").replace("/", "."))
    found: Any = LOCALS.get(path, {}).get(name) or (str(getattr(module, name)),)
    return tuple(getattr(module, found)) if isinstance(found, str) else found


def texts(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and value of every string that may be SQL, with the f-strings filled in."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            first = node.values[0]
            plain = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            if not (isinstance(first, ast.Constant) and STATEMENT.match(str(first.value))) and not re.search(
                r" (?:WHERE|FROM) [a-z]", plain
            ):
                continue
            parts = [
                (str(part.value),) if isinstance(part, ast.Constant) else values(path, part.value)  # type: ignore[attr-defined]
                for part in node.values
            ]
            yield from ((node.lineno, "".join(chosen)) for chosen in product(*parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner | docs:
            yield node.lineno, node.value


def statements(path: str) -> Iterator[tuple[int, str]]:
    """Line and text of every SQL statement of a module."""
    for line, text in texts(path, ast.parse((PACKAGE / path).read_text())):
        if STATEMENT.match(text):
            yield line, text
        elif CLAUSE.match(text) and path in CLAUSES_OF:
            yield line, CLAUSES_OF[path] + "WHERE 1" * text.startswith(" AND") + text


MODULES = sorted(
    str(path.relative_to(PACKAGE))
    for path in PACKAGE.rglob("*.py")
    if re.search(r"\b(?:SELECT|INSERT (?:OR \w+ )?INTO|DELETE FROM|UPDATE \w+ SET)\s", path.read_text())
)


@pytest.mark.parametrize("path", MODULES)
def test_every_sql_statement_compiles(path: str):
    schema = next(schema for folder, schema in SCHEMAS.items() if path.startswith(folder))
    found = list(statements(path))
    wrong = []
    for line, statement in found:
        try:
            apsw.ext.query_info(database(schema), statement)
        except apsw.Error as error:
            wrong.append(f"{path}:{line}: {error}: {' '.join(statement.split())[:160]}")
    assert found and not wrong


def test_sql_is_found_in_all_modules_that_have_any():
    assert {f"agent/storage/{name}.py" for name in ("tables", "log_queries", "journal", "tlog", "signed_messages")} < {
        *MODULES
    }
    assert {"agent/mediator/store.py", "bot/store.py", "agent/telemetry/store.py"} < {*MODULES}
    assert sum(len(list(statements(path))) for path in MODULES) > 200
