"""The log of a group that is accountable: who keeps it, and how it stands."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.common import Author

LogState = Literal["", "unkept", "kept", "stalled", "split"]


class LogInfo(Struct, frozen=True, kw_only=True):
    """How a group's log stands; answer of `log` and of `terms`."""

    group: str
    state: LogState
    """Empty: the group keeps none, and is not meant to. `unkept`: nobody keeps it yet, or any more: what is known rests
    on acknowledgements alone. `kept`. `stalled`: something of mine has had no place in it for long. `split`: its
    operator has signed two logs, which convicts it: I post in neither."""
    members_lacking: int = 0
    """So many more members it takes before it can be witnessed."""
    operator: Author | None = None
    witnesses: list[Author] = field(default_factory=list)
    needed: int = 0
    """So many of the witnesses have to cosign."""
    by: Author | None = None
    """Who has said who keeps it."""
    operating: bool = False
    """I am the operator."""
    witnessing: bool = False
    """I am a witness."""
    size: int = 0
    """Entries that so many witnesses have cosigned, as far as they are here."""
    shown_at: str | None = None
    """All that was posted before this is among them, by the witnesses' clocks; None: nothing is cosigned yet."""
    waiting: int = 0
    """Entries of mine that have no place in it yet."""
    waiting_since: str | None = None
    ack_s: int = 0
    """So long everybody has for acknowledging what is said, before it has to stand in the log."""
    window_s: int = 0
    """So long somebody who is accused has for an answer."""
    earlier: int = 0
    """Logs that there were before this one, by other terms."""
    accusations: int = 0
    """So many of the entries are accusations,"""
    defences: int = 0
    """so many are said against one,"""
    closes: int = 0
    """and so many say that somebody is not to hear its author any more; all others are messages."""
    gone: bool = False
    """I am no longer in the group: so it was when I was."""


class TermsParams(Struct, frozen=True):
    """Say who keeps a group's log from now on. Members, by name or key."""

    group: str
    operator: str
    witnesses: list[str]


class LogKeptNews(Struct, frozen=True, kw_only=True):
    """Somebody else keeps a group's log from now on, or nobody does (`operator` is None)."""

    group: str
    operator: Author | None = None
    witnesses: list[Author] = field(default_factory=list)
    by: Author | None = None
    members_lacking: int = 0


class LogStalledNews(Struct, frozen=True):
    """Something of mine has had no place in the log for long."""

    group: str
    since: str


class LogSplitNews(Struct, frozen=True):
    """The operator of a group's log has signed two of them. Nobody goes on in either."""

    group: str
    operator: Author
