"""What the core asks of its owner: answers, live deliveries and dispatches."""

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.layers import MediaType


class Outcome(Redacted, frozen=True):
    """The outcome of an envelope: a counter name, and the answer on the same connection, if any."""

    REDACTED = ("answer",)

    what: str
    answer: bytes | None = None
    media_type: str = MediaType.ENCRYPTED
    """Media type of the answer."""


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
