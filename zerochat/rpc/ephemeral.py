"""What is told in passing: who is writing, and up to where somebody has read. Nothing of it is on the log."""

from msgspec import Struct


class ReadParams(Struct, frozen=True):
    """I have read whatever of this group has the Lamport time `upto` or a lower one."""

    group: str
    upto: int


class Shared(Struct, frozen=True):
    """Answer of `typing` and `read`: how many members are told. It is 0 unless the setting `share.typing` or
    `share.read_receipts` has it told; for a bot; where nobody is connected, or the group has more than 32 members; and
    for what comes within four seconds of the last time (`read`: two)."""

    members: int = 0


class TypingNews(Struct, frozen=True):
    """`member` was writing just now. Take it for over after six seconds, or when a message of its comes; whoever goes
    on writing says so again."""

    group: str
    member: str
    nick: str
