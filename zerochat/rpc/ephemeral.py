"""Indicators that are not in the event log: typing and read receipts."""

from msgspec import Struct


class ReadReceiptParams(Struct, frozen=True):
    """Tell the members that I have read the group's messages up to the Lamport time `upto`."""

    group: str
    upto: int


class EphemeralResult(Struct, frozen=True):
    """Result of `send_typing` and `send_read_receipt`.

    Nothing is sent unless the setting `share.typing` or `share.read_receipts` is on; by bots; in groups with more than
    32 members; and within four seconds of the last typing indicator (two for read receipts).
    """

    members: int = 0
    """The number of members that it was sent to."""


class TypingNotification(Struct, frozen=True):
    """A member is typing. It ends after six seconds without a repetition, or with the member's next message."""

    group: str
    member: str
    nick: str
