"""Telemetry recorded by whole agents."""

from typing import Any

import pytest

from tests.support.agents import Person
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.agent.telemetry import collection
from zerochat.agent.telemetry.schema import Record


@pytest.fixture(autouse=True)
def _may_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DO_NOT_TRACK", "ZEROCHAT_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)


def record(*those: Person) -> None:
    for person in those:
        status = person.client.call("get_telemetry")
        assert person.client.call("set_telemetry", on=True, consent=status.consent).recording


def kept(person: Person) -> list[Record]:
    """All that is recorded, in its order."""
    call = person.client.call
    return [row for rows in collection.batches(call, collection.last_batch(call)) for row in rows]


def of(person: Person, kind: type) -> list[Any]:
    return [row for row in kept(person) if type(row) is kind]


def reopened(person: Person) -> Journal:
    return Journal.open(person.places.journal, unlock(person.places, None))
