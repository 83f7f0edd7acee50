"""What the core asks of its owner: answers, live deliveries and dispatches."""

from typing import Final

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.layers import MediaType

UNANSWERED: Final = -1
"""The ticket of messages whose result does not matter."""


class Push(Redacted, frozen=True):
    """An envelope for a live connection."""

    REDACTED = ("envelope",)

    handle: int
    envelope: bytes


class Dispatch(Redacted, frozen=True):
    """An envelope for another address; `ticket` is returned in `dispatched`."""

    REDACTED = ("envelope",)

    ticket: int
    uri: str
    envelope: bytes
    media_type: str


class Outcome(Redacted, frozen=True):
    """The outcome of an envelope: a counter name, and the answer on the same connection, if any."""

    REDACTED = ("answer", "post")

    what: str
    answer: bytes | None = None
    media_type: str = MediaType.ENCRYPTED
    """Media type of the answer."""
    post: Dispatch | None = None
    """The answer, if it goes to an address of its recipient instead."""
