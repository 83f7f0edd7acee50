"""The tables of methods and notifications of the control protocol, and the request format."""

from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from zerochat.rpc import (
    completeness,
    connections,
    delivery,
    disputes,
    drafts,
    ephemeral,
    event_pages,
    events,
    files,
    groups,
    members,
    nearby,
    overlay,
    proofs,
    search,
    settings,
    status,
    subscriptions,
    telemetry,
    tlog,
    unread,
)

PROTOCOL = 1
LINE_BYTES_MAX = 1 << 20
"""The size of one line on the control socket in bytes, in both directions."""
BATCH_MAX = 100
"""Requests in one line."""

# JSON-RPC's error numbers, and one for all errors of zerochat (`data.code` has their names).
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000

READING: Final = ("get_", "list_", "search_", "wait_", "hello", "subscribe")
"""Beginnings of the names of the methods that change nothing."""

METHODS: dict[str, tuple[type[Struct], object]] = {
    "hello": (status.HelloParams, status.Hello),
    "get_status": (status.NoParams, status.Status),
    "list_groups": (status.NoParams, list[groups.GroupInfo]),
    "create_group": (groups.CreateGroupParams, groups.GroupInfo),
    "create_invitation": (groups.CreateInvitationParams, groups.InvitationInfo),
    "list_invitations": (groups.GroupParams, list[groups.OpenInvitation]),
    "revoke_invitation": (groups.RevokeInvitationParams, groups.GroupInfo),
    "join_group": (groups.JoinGroupParams, groups.JoinStatus),
    "cancel_join": (groups.CancelJoinParams, groups.JoinStatus),
    "send_message": (events.SendMessageParams, events.Sent),
    "send_files": (files.SendFilesParams, events.Sent),
    "list_files": (files.ListFilesParams, files.FileList),
    "fetch_file": (files.FileParams, files.FileInfo),
    "drop_file": (files.FileParams, files.FileInfo),
    "save_file": (files.SaveParams, files.Saved),
    "render_picture": (files.RenderPictureParams, files.Picture),
    "edit_message": (events.EditMessageParams, events.Sent),
    "delete_message": (events.DeleteMessageParams, events.Sent),
    "react": (events.ReactParams, events.Sent),
    "set_topic": (events.SetTopicParams, events.Sent),
    "pin_message": (events.PinParams, events.Sent),
    "list_pins": (groups.GroupParams, list[events.Event]),
    "announce_bot": (events.AnnounceParams, events.Announced),
    "save_draft": (drafts.Draft, status.NoParams),
    "list_drafts": (drafts.DraftsParams, drafts.Drafts),
    "send_typing": (groups.GroupParams, ephemeral.EphemeralResult),
    "send_read_receipt": (ephemeral.ReadReceiptParams, ephemeral.EphemeralResult),
    "mark_read": (unread.MarkReadParams, list[unread.ReadState]),
    "wait_for_delivery": (delivery.WaitParams, delivery.DeliveryReport),
    "get_delivery": (delivery.EventParams, delivery.DeliveryReport),
    "get_message_status": (delivery.EventParams, delivery.MessageStatus),
    "get_log_summary": (groups.GroupParams, event_pages.LogSummary),
    "get_tlog": (groups.GroupParams, tlog.TlogInfo),
    "set_tlog_terms": (tlog.SetTlogTermsParams, tlog.TlogInfo),
    "get_event_page": (event_pages.EventPageParams, event_pages.EventPage),
    "get_proof": (proofs.ProofParams, proofs.ProofLines),
    "accuse_member": (disputes.AccuseParams, disputes.CaseInfo),
    "list_cases": (groups.GroupParams, list[disputes.CaseInfo]),
    "get_case": (disputes.CaseParams, disputes.CasePart),
    "get_evidence": (proofs.EvidenceParams, proofs.Evidence),
    "import_events": (event_pages.ImportEventsParams, event_pages.Imported),
    "get_history": (events.HistoryParams, events.History),
    "search_messages": (search.SearchParams, search.Found),
    "list_members": (members.ListMembersParams, list[members.MemberInfo]),
    "get_overlay": (groups.GroupParams, overlay.OverlayInfo),
    "get_nearby": (status.NoParams, nearby.NearbyStatus),
    "set_nearby": (nearby.SetNearbyParams, nearby.NearbyStatus),
    "list_join_requests": (groups.GroupParams, list[groups.JoinRequestInfo]),
    "answer_join_request": (groups.AnswerJoinRequestParams, groups.GroupInfo),
    "open_conversation": (groups.OpenConversationParams, groups.GroupInfo),
    "answer_private_invitation": (groups.AnswerPrivateInvitationParams, groups.GroupInfo),
    "remove_member": (members.RemoveMemberParams, groups.VoteInfo),
    "set_role": (members.SetRoleParams, members.MemberInfo),
    "set_display_name": (members.SetDisplayNameParams, groups.GroupInfo),
    "get_safety_words": (members.SafetyWordsParams, members.SafetyWords),
    "ignore_member": (members.IgnoreMemberParams, members.IgnoredMember),
    "list_ignored": (groups.GroupParams, list[members.IgnoredMember]),
    "verify_member": (members.VerifyMemberParams, members.MemberInfo),
    "leave_group": (groups.GroupParams, groups.GroupInfo),
    "forget_group": (groups.GroupParams, status.NoParams),
    "set_retention": (groups.SetRetentionParams, groups.GroupInfo),
    "upgrade_group": (groups.GroupParams, groups.GroupInfo),
    "rekey_group": (groups.GroupParams, groups.GroupInfo),
    "resume_group": (groups.GroupParams, groups.GroupInfo),
    "dismiss_warnings": (groups.DismissWarningsParams, groups.GroupInfo),
    "ping_peer": (connections.PeerParams, connections.PendingReply),
    "query_features": (connections.QueryFeaturesParams, connections.PendingReply),
    "rotate_did": (connections.RotateParams, status.NoParams),
    "open_connection": (connections.OpenConnectionParams, connections.ConnectionInfo),
    "offer_connection": (connections.OfferConnectionParams, connections.ConnectionOffer),
    "list_connections": (status.NoParams, list[connections.ConnectionInfo]),
    "list_connection_messages": (connections.PeerParams, list[connections.ConnectionMessage]),
    "send_connection_message": (connections.SendConnectionMessageParams, connections.SentConnectionMessage),
    "close_connection": (connections.PeerParams, status.NoParams),
    "subscribe": (subscriptions.SubscribeParams, subscriptions.Subscribed),
    "acknowledge": (subscriptions.AcknowledgeParams, subscriptions.AcknowledgeResult),
    "list_consumers": (status.NoParams, list[subscriptions.ConsumerInfo]),
    "delete_consumer": (subscriptions.ConsumerParams, status.NoParams),
    "list_settings": (status.NoParams, list[settings.SettingInfo]),
    "change_setting": (settings.ChangeSettingParams, settings.SettingInfo),
    "reload_settings": (status.NoParams, status.NoParams),
    "get_telemetry": (status.NoParams, telemetry.TelemetryStatus),
    "set_telemetry": (telemetry.TelemetrySetParams, telemetry.TelemetryStatus),
    "get_telemetry_rows": (telemetry.TelemetryRowsParams, telemetry.TelemetryRows),
    "get_telemetry_names": (telemetry.TelemetryNamesParams, telemetry.TelemetryNames),
    "delete_telemetry": (status.NoParams, telemetry.TelemetryStatus),
    "create_backup": (status.NoParams, status.BackupCopy),
    "stop_agent": (status.NoParams, status.NoParams),
}
"""By method: the types of its params and its result."""

NOTIFICATIONS: dict[str, type[Struct]] = {
    "item": subscriptions.Item,
    "overflow": subscriptions.OverflowNotification,
    "consumer_taken": subscriptions.ConsumerTakenNotification,
    "backup_progress": status.BackupProgress,
    "stopping": subscriptions.StoppingNotification,
    "event": events.Event,
    "message_changed": events.MessageChanged,
    "file_changed": files.FileNotification,
    "receipt": delivery.ReceiptNotification,
    "typing": ephemeral.TypingNotification,
    "read_changed": unread.ReadState,
    "peer_changed": members.PeerNotification,
    "view_changed": groups.ViewNotification,
    "join_changed": groups.JoinStatus,
    "invitation_used": groups.InvitationNotification,
    "join_request": groups.JoinRequestNotification,
    "private_invitation": groups.PrivateInvitationNotification,
    "conversation_moved": groups.ConversationMovedNotification,
    "member_connections": groups.MemberConnectionsNotification,
    "removed": groups.RemovedNotification,
    "trust_changed": members.TrustNotification,
    "ignored_changed": members.IgnoredNotification,
    "warning": groups.WarningNotification,
    "pong": connections.PongNotification,
    "features": connections.FeaturesNotification,
    "connection_changed": connections.ConnectionNotification,
    "connection_message": connections.ConnectionMessageNotification,
    "connection_message_settled": connections.MessageSettledNotification,
    "problem_report": connections.ProblemNotification,
    "did_rotated": members.RotatedNotification,
    "gap": completeness.GapNotification,
    "late_event": completeness.LateNotification,
    "fork": completeness.ForkNotification,
    "complete": completeness.CompleteNotification,
    "confirmed": completeness.ConfirmedNotification,
    "refuted": completeness.RefutedNotification,
    "expired": completeness.ExpiredNotification,
    "validity_changed": completeness.ValidityNotification,
    "chain_difference": completeness.ChainDifferenceNotification,
    "backfill": completeness.BackfillNotification,
    "tlog_terms": tlog.TlogTermsNotification,
    "tlog_stalled": tlog.TlogStalledNotification,
    "tlog_split": tlog.TlogSplitNotification,
}
"""By notification: the type of its params."""


class Request(Struct, frozen=True):
    """Without an `id` it is a notification of the client, which is not answered."""

    method: str
    id: int | str | UnsetType | None = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    jsonrpc: str = ""
