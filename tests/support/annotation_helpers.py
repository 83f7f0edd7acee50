"""Finding a message by its text on a whole agent."""

from tests.support.agents import Person
from zerochat.rpc import Event


def message(person: Person, text: str, group: str = "friends") -> Event | None:
    events = person.client.get_history(group, limit=500).events
    return next((e for e in events if e.type == "message" and e.body["text"] == text), None)
