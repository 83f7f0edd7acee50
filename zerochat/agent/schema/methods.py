"""Every method and every notification with its shapes, and what a line on the control socket is."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from zerochat.agent.schema import (
    cases,
    completeness,
    connections,
    delivery,
    drafts,
    ephemeral,
    events,
    files,
    finding,
    groups,
    ledger,
    logs,
    members,
    proofs,
    settings,
    status,
    stream,
    telemetry,
)

PROTOCOL = 1
LINE_BYTES_MAX = 1 << 20
"""One line on the control socket, either way: a full page of history fits, a runaway client does not."""

# JSON-RPC's own error numbers, and one for everything that zerochat refuses (its name is in `data.code`).
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000

METHODS: dict[str, tuple[type[Struct], object]] = {
    "hello": (status.HelloParams, status.Hello),
    "status": (status.NoParams, status.Status),
    "groups": (status.NoParams, list[groups.GroupInfo]),
    "new": (groups.NewParams, groups.GroupInfo),
    "invite": (groups.InviteParams, groups.InvitationInfo),
    "invitations": (groups.GroupParams, list[groups.OpenInvitation]),
    "revoke": (groups.RevokeParams, groups.GroupInfo),
    "join": (groups.JoinParams, groups.JoinStatus),
    "cancel": (groups.CancelParams, groups.JoinStatus),
    "send": (events.SendParams, events.Sent),
    "attach": (files.AttachParams, events.Sent),
    "files": (files.FilesParams, files.FileList),
    "get": (files.FileParams, files.FileInfo),
    "drop": (files.FileParams, files.FileInfo),
    "save": (files.SaveParams, files.Saved),
    "picture": (files.PictureParams, files.Picture),
    "edit": (events.EditParams, events.Sent),
    "delete": (events.DeleteParams, events.Sent),
    "react": (events.ReactParams, events.Sent),
    "topic": (events.TopicParams, events.Sent),
    "announce": (events.AnnounceParams, events.Announced),
    "draft": (drafts.Draft, status.NoParams),
    "drafts": (drafts.DraftsParams, drafts.Drafts),
    "typing": (groups.GroupParams, ephemeral.Shared),
    "read": (ephemeral.ReadParams, ephemeral.Shared),
    "wait": (delivery.WaitParams, delivery.DeliveryReport),
    "delivery": (delivery.EventParams, delivery.DeliveryReport),
    "why": (delivery.EventParams, delivery.Fate),
    "ledger": (groups.GroupParams, ledger.Ledger),
    "log": (groups.GroupParams, logs.LogInfo),
    "terms": (logs.TermsParams, logs.LogInfo),
    "rows": (ledger.RowsParams, ledger.Rows),
    "proof": (proofs.ProofParams, proofs.ProofLines),
    "accuse": (cases.AccuseParams, cases.CaseInfo),
    "cases": (groups.GroupParams, list[cases.CaseInfo]),
    "case": (cases.CaseParams, cases.CasePart),
    "evidence": (proofs.EvidenceParams, proofs.Evidence),
    "import": (ledger.ImportParams, ledger.Imported),
    "history": (events.HistoryParams, events.History),
    "search": (finding.SearchParams, finding.Found),
    "members": (groups.GroupParams, list[members.MemberInfo]),
    "requests": (groups.GroupParams, list[groups.RequestInfo]),
    "answer": (groups.AnswerParams, groups.GroupInfo),
    "remove": (members.RemoveParams, groups.VoteInfo),
    "role": (members.RoleParams, members.MemberInfo),
    "rename": (members.RenameParams, groups.GroupInfo),
    "words": (members.WordsParams, members.WordsInfo),
    "verify": (members.VerifyParams, members.MemberInfo),
    "leave": (groups.GroupParams, groups.GroupInfo),
    "forget": (groups.GroupParams, status.NoParams),
    "resume": (groups.GroupParams, groups.GroupInfo),
    "dismiss": (groups.DismissParams, groups.GroupInfo),
    "ping": (connections.PeerParams, connections.Question),
    "features": (connections.FeaturesParams, connections.Question),
    "rotate": (connections.PeerParams, status.NoParams),
    "connect": (connections.ConnectParams, connections.ConnectionInfo),
    "offer": (connections.OfferParams, connections.OfferInfo),
    "connections": (status.NoParams, list[connections.ConnectionInfo]),
    "letters": (connections.PeerParams, list[connections.LetterInfo]),
    "tell": (connections.TellParams, connections.ToldInfo),
    "disconnect": (connections.PeerParams, status.NoParams),
    "subscribe": (stream.SubscribeParams, stream.Subscribed),
    "ack": (stream.AckParams, stream.Acked),
    "consumers": (status.NoParams, list[stream.ConsumerInfo]),
    "forget_consumer": (stream.ConsumerParams, status.NoParams),
    "settings": (status.NoParams, list[settings.SettingInfo]),
    "set": (settings.SetParams, settings.SettingInfo),
    "reload": (status.NoParams, status.NoParams),
    "telemetry": (status.NoParams, telemetry.TelemetryStatus),
    "telemetry_set": (telemetry.TelemetrySetParams, telemetry.TelemetryStatus),
    "telemetry_rows": (telemetry.TelemetryRowsParams, telemetry.TelemetryRows),
    "telemetry_names": (telemetry.TelemetryNamesParams, telemetry.TelemetryNames),
    "telemetry_delete": (status.NoParams, telemetry.TelemetryStatus),
    "backup": (status.NoParams, status.Copied),
    "stop": (status.NoParams, status.NoParams),
}
"""Every method with the shape of its params and of its result."""

NEWS: dict[str, type[Struct]] = {
    "item": stream.Item,
    "overflow": stream.Overflow,
    "taken": stream.Taken,
    "stopping": stream.Stopping,
    "event": events.Event,
    "amended": events.Amended,
    "file": files.FileNews,
    "receipt": delivery.ReceiptNews,
    "typing": ephemeral.TypingNews,
    "peer": members.PeerNews,
    "view": groups.ViewNews,
    "join": groups.JoinStatus,
    "invitation": groups.InvitationNews,
    "request": groups.RequestNews,
    "seating": groups.SeatingNews,
    "removed": groups.RemovedNews,
    "trust": members.TrustNews,
    "disagreement": groups.DisagreementNews,
    "pong": connections.PongNews,
    "features": connections.FeaturesNews,
    "connection": connections.ConnectionNews,
    "told": connections.ToldNews,
    "problem": connections.ProblemNews,
    "rotated": members.RotatedNews,
    "gap": completeness.GapNews,
    "late": completeness.LateNews,
    "fork": completeness.ForkNews,
    "complete": completeness.CompleteNews,
    "confirmed": completeness.ConfirmedNews,
    "refuted": completeness.RefutedNews,
    "differs": completeness.DiffersNews,
    "earlier": completeness.EarlierNews,
    "log_kept": logs.LogKeptNews,
    "log_stalled": logs.LogStalledNews,
    "log_split": logs.LogSplitNews,
}
"""Every notification with its shape."""


class Request(Struct, frozen=True):
    method: str
    id: int | str | UnsetType | None = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    jsonrpc: str = ""
