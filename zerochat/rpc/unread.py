"""Unread messages: what each group has after its read marker."""

from typing import TypeAlias

from msgspec import Struct

Place: TypeAlias = tuple[int, str, str]
"""The place of an event in the order of the log: Lamport time, author's DID, id."""
UNREAD_MAX = 5_000
"""Unread messages counted per group."""


class ReadState(Struct, frozen=True, kw_only=True):
    """What is unread in a group, for all clients of the profile; also the notification `read_changed`."""

    group: str
    unread: int = 0
    """The number of messages of others after the read marker that are not deleted, at most 5,000."""
    mentions: int = 0
    """The number of unread messages that mention me, and of messages that an unread edit has made mention me."""
    first_unread: Place | None = None
    """The first unread message in the order of the log (Lamport time, author's DID, id), without those that arrived
    late before messages that were read (unless there are no others)."""
    read_upto: Place | None = None
    """The newest event that was read, in the same form; null: none."""


class MarkReadParams(Struct, frozen=True):
    """Mark everything up to the event with the local number `upto` as read; null: everything that has arrived. An empty
    `group` stands for all groups. The marker never moves back."""

    group: str = ""
    upto: int | None = None
