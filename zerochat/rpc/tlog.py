"""The transparency log of an accountable group: its terms and its state."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.common import Author

TlogState = Literal["", "unkept", "kept", "stalled", "split"]


class TlogInfo(Struct, frozen=True, kw_only=True):
    """The state of a group's transparency log."""

    group: str
    state: TlogState
    """Empty: the group has no transparency log. `unkept`: it has no operator and witnesses now. `kept`: it is running.
    `stalled`: entries of mine have not been included for long. `split`: its operator has signed two versions, which is
    proof of equivocation; nothing more is submitted."""
    members_missing: int = 0
    """The number of members that are missing for enough witnesses."""
    operator: Author | None = None
    witnesses: list[Author] = field(default_factory=list)
    needed: int = 0
    """The number of witnesses that must cosign a checkpoint."""
    by: Author | None = None
    """The member that set the terms."""
    operating: bool = False
    """I am the operator."""
    witnessing: bool = False
    """I am a witness."""
    size: int = 0
    """The number of cosigned entries that are stored here."""
    shown_at: str | None = None
    """Everything posted before this time is included, by the witnesses' clocks; null: nothing is cosigned yet."""
    waiting: int = 0
    """My entries that are not included yet."""
    waiting_since: str | None = None
    ack_s: int = 0
    """The time limit for acknowledging a message before it must be logged, in seconds."""
    window_s: int = 0
    """The time limit for a defence, in seconds."""
    earlier: int = 0
    """The number of earlier logs with other terms."""
    accusations: int = 0
    """The number of entries that are accusations."""
    defences: int = 0
    """The number of entries that are defences."""
    closes: int = 0
    """The number of entries that close a subscription. All others are messages."""
    gone: bool = False
    """I have left the group; this is the last known state."""


class SetTlogTermsParams(Struct, frozen=True):
    """Set the operator and the witnesses, by name or DID."""

    group: str
    operator: str
    witnesses: list[str]


class TlogTermsNotification(Struct, frozen=True, kw_only=True):
    """The terms of the transparency log have changed. Without `operator` it has ended."""

    group: str
    operator: Author | None = None
    witnesses: list[Author] = field(default_factory=list)
    by: Author | None = None
    members_missing: int = 0


class TlogStalledNotification(Struct, frozen=True):
    """Entries of mine have not been included in the transparency log for long."""

    group: str
    since: str


class TlogSplitNotification(Struct, frozen=True):
    """The operator has signed two versions of the transparency log (equivocation)."""

    group: str
    operator: Author
