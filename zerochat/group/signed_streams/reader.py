"""What stands in a signed message, for whoever has its key: its reader, and whoever is shown a proof."""

from collections.abc import Iterator

import msgspec

from zerochat.errors import Malformed
from zerochat.evidence.messages import Data
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes.sender_key import open_content
from zerochat.group.wire.event_runs import read_runs, runs_in
from zerochat.group.wire.messages import EventsBody


def body_of(key: bytes, message: Data) -> EventsBody:
    """The events that a message brings, and what its author had then. Raises Malformed, and Unauthentic for another
    key."""
    value = open_content(key, message)
    try:
        return msgspec.convert(value, EventsBody)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a signed message: {error}") from None


def events_in(key: bytes, message: Data, group: str, author: str) -> Iterator[Event]:
    """The events themselves; their ids are worked out anew. Raises as `body_of`."""
    body = body_of(key, message)
    yield from read_runs(group, runs_in(body.runs, body.packed), author)
