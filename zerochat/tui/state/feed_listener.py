"""The groups of notifications, and the interface that receives the feed's changes."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from zerochat.rpc import (
    BackfillNotification,
    ChainDifferenceNotification,
    CompleteNotification,
    ConfirmedNotification,
    ConnectionMessageNotification,
    ConnectionNotification,
    ConversationMovedNotification,
    Event,
    FeaturesNotification,
    ForkNotification,
    GapNotification,
    IgnoredNotification,
    InvitationNotification,
    JoinRequestNotification,
    JoinStatus,
    MemberConnectionsNotification,
    MessageSettledNotification,
    PongNotification,
    PrivateInvitationNotification,
    ProblemNotification,
    RefutedNotification,
    RemovedNotification,
    RotatedNotification,
    Status,
    TlogSplitNotification,
    TlogStalledNotification,
    TlogTermsNotification,
    TrustNotification,
    TypingNotification,
    ValidityNotification,
    WarningNotification,
)
from zerochat.terminal_text import Printable
from zerochat.tui.messages.timeline import Key
from zerochat.tui.state.conversation import Conversation

TlogNotification: TypeAlias = TlogTermsNotification | TlogStalledNotification | TlogSplitNotification
"""Notifications about the transparency log."""
GroupNotification: TypeAlias = (
    JoinRequestNotification
    | PrivateInvitationNotification
    | ConversationMovedNotification
    | MemberConnectionsNotification
    | RemovedNotification
    | TrustNotification
    | IgnoredNotification
    | WarningNotification
)
"""Notifications about members and joiners."""
LogNotification: TypeAlias = (
    GapNotification
    | ForkNotification
    | CompleteNotification
    | ConfirmedNotification
    | RefutedNotification
    | ValidityNotification
    | ChainDifferenceNotification
    | BackfillNotification
)
"""Notifications about the event log."""
PeerRelatedNotification: TypeAlias = (
    PongNotification
    | FeaturesNotification
    | RotatedNotification
    | ConnectionNotification
    | ConnectionMessageNotification
    | MessageSettledNotification
    | ProblemNotification
)
"""Notifications caused by single peers."""


class FeedListener(Protocol):
    """Receives the changes."""

    def rows_changed(self, conversation: Conversation, keys: Sequence[Key] | None) -> None:
        """Rows were added or changed; None: any row may have changed."""

    def groups_changed(self) -> None: ...

    def read_changed(self, conversation: Conversation) -> None:
        """What is unread in a conversation changed; its rows are drawn."""

    def members_changed(self) -> None: ...

    def on_join_status(self, status: JoinStatus) -> None: ...

    def on_invitation_used(self, notification: InvitationNotification) -> None: ...

    def on_peer_notification(self, notification: PeerRelatedNotification) -> None: ...

    def warnings_changed(self) -> None: ...

    def on_group_notification(self, notification: GroupNotification) -> None: ...

    def on_log_notification(self, notification: LogNotification) -> None: ...

    def on_tlog_notification(self, notification: TlogNotification) -> None: ...

    def on_status(self, status: Status) -> None: ...

    def on_events(self, conversation: Conversation, events: Sequence[Event]) -> None:
        """Live events arrived."""

    def on_typing(self, notification: TypingNotification) -> None: ...

    def report_error(self, sentence: Printable) -> None:
        """Show an error."""
