"""Proof files of a group of three whole agents."""

from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, until
from tests.support.signed_agents import meet

people = agents.people


@pytest.fixture
def three(people: Any) -> list[Person]:
    persons: list[Person] = people("alice", "bob", "carol")
    meet(*persons)
    for n in range(3):
        sent = persons[0].client.send_message("friends", f"number {n}")
        assert persons[0].client.wait_for_delivery("friends", sent.id).complete
    until(lambda: all(person.texts()[-1:] == ["number 2"] for person in persons), "the last of it")
    return persons


def lines_of(person: Person, event: str = "", author: str = "") -> list[bytes]:
    page = person.client.get_proof("friends", event, author)
    assert page.last is None
    return [line.encode() for line in page.lines]
