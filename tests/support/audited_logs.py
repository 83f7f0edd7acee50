"""A journal with a played-out group log, for audits and archives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.ruled_world import Ruled
from zerochat.agent.archive.audit import Audit, AuditReport
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views import event_pages
from zerochat.group.inputs import ChangeRole, LeaveGroup, RemoveMember, SendPost
from zerochat.rpc import METHODS, EventPageParams, LogRow, LogSummary

KEY = bytes(range(32))


def kept(tmp_path: Path, world: Any, name: str) -> Journal:
    """A journal with what a node has remembered."""
    node = world.nodes[name]
    journal = Journal.create(tmp_path / f"{name}.db", KEY)
    journal.commit(node.agent, [*node.log, *node.receipts])
    return journal


def pages(journal: Journal, group: Any, about: LogSummary) -> Iterator[LogRow]:
    """As `Client.log` asks for them, and through the same bytes."""
    after = None
    while True:
        found = event_pages.event_page(journal, group, EventPageParams(group.id, about.latest, after))
        page: Any = msgspec.json.decode(msgspec.json.encode(found), type=METHODS["get_event_page"][1])
        yield from page.rows
        if page.last is None:
            return
        after = page.last


def checked(about: LogSummary, rows: Any) -> AuditReport:
    audit = Audit(about)
    for row in rows:
        audit.take(row)
    return audit.verdict()


@pytest.fixture(scope="module")
def played() -> Ruled:
    """Members who come, talk, change what they may, and go."""
    world = Ruled(4)
    for tx in range(3):
        for name in world.nodes:
            world.run_command(name, SendPost("friends", f"{name} says {tx}"))
        world.settle()
    world.says("n3", ChangeRole("friends", "", "reader"))
    for name in ("n1", "n2"):
        world.says(name, RemoveMember("friends", "n3"))
    world.says("n2", LeaveGroup("friends"))
    world.says("n0", SendPost("friends", "two are left"))
    return world


@pytest.fixture
def log(tmp_path: Path, played: Ruled) -> tuple[LogSummary, list[LogRow]]:
    with kept(tmp_path, played, "n1") as journal:
        group = played.group("n1")
        about = event_pages.log_summary(journal, group)
        return about, list(pages(journal, group, about))


def found(log: tuple[LogSummary, list[LogRow]], rows: list[LogRow], **about: Any) -> list[str]:
    ordered = sorted(rows, key=lambda row: (row.lamport, row.author, row.id))
    verdict = checked(replace(log[0], **{"events": len(rows), **about}), ordered)
    assert verdict.sound is (not verdict.violations)
    return [one.what for one in verdict.violations]
