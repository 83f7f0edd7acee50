"""Every method and every notification with its shapes, and what a line on the control socket is."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from zerochat.agent.schema.completeness import (
    CompleteNews,
    ConfirmedNews,
    DiffersNews,
    EarlierNews,
    ForkNews,
    GapNews,
    LateNews,
    RefutedNews,
)
from zerochat.agent.schema.connections import (
    ConnectionInfo,
    ConnectionNews,
    ConnectParams,
    FeaturesNews,
    FeaturesParams,
    LetterInfo,
    OfferInfo,
    OfferParams,
    PeerParams,
    PongNews,
    ProblemNews,
    Question,
    TellParams,
    ToldInfo,
    ToldNews,
)
from zerochat.agent.schema.delivery import DeliveryReport, EventParams, Fate, ReceiptNews, WaitParams
from zerochat.agent.schema.events import Event, History, HistoryParams, SendParams, Sent, SubscribeParams
from zerochat.agent.schema.groups import (
    AnswerParams,
    CancelParams,
    DisagreementNews,
    DismissParams,
    GroupInfo,
    GroupParams,
    InvitationInfo,
    InvitationNews,
    InviteParams,
    JoinParams,
    JoinStatus,
    NewParams,
    RemovedNews,
    RequestInfo,
    RequestNews,
    SeatingNews,
    ViewNews,
    VoteInfo,
)
from zerochat.agent.schema.ledger import Imported, ImportParams, Ledger, Rows, RowsParams
from zerochat.agent.schema.members import (
    MemberInfo,
    PeerNews,
    RemoveParams,
    RenameParams,
    RoleParams,
    RotatedNews,
    TrustNews,
    VerifyParams,
    WordsInfo,
    WordsParams,
)
from zerochat.agent.schema.status import Copied, Hello, HelloParams, NoParams, Status

PROTOCOL = 1
LINE_BYTES_MAX = 1 << 20
"""One line on the control socket, either way: a full page of history fits, a runaway client does not."""

# JSON-RPC's own error numbers, and one for everything that zerochat refuses (its name is in `data.code`).
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000

METHODS: dict[str, tuple[type[Struct], object]] = {
    "hello": (HelloParams, Hello),
    "status": (NoParams, Status),
    "groups": (NoParams, list[GroupInfo]),
    "new": (NewParams, GroupInfo),
    "invite": (InviteParams, InvitationInfo),
    "join": (JoinParams, JoinStatus),
    "cancel": (CancelParams, JoinStatus),
    "send": (SendParams, Sent),
    "wait": (WaitParams, DeliveryReport),
    "delivery": (EventParams, DeliveryReport),
    "why": (EventParams, Fate),
    "ledger": (GroupParams, Ledger),
    "rows": (RowsParams, Rows),
    "import": (ImportParams, Imported),
    "history": (HistoryParams, History),
    "members": (GroupParams, list[MemberInfo]),
    "requests": (GroupParams, list[RequestInfo]),
    "answer": (AnswerParams, GroupInfo),
    "remove": (RemoveParams, VoteInfo),
    "role": (RoleParams, MemberInfo),
    "rename": (RenameParams, GroupInfo),
    "words": (WordsParams, WordsInfo),
    "verify": (VerifyParams, MemberInfo),
    "leave": (GroupParams, GroupInfo),
    "forget": (GroupParams, NoParams),
    "dismiss": (DismissParams, GroupInfo),
    "ping": (PeerParams, Question),
    "features": (FeaturesParams, Question),
    "rotate": (PeerParams, NoParams),
    "connect": (ConnectParams, ConnectionInfo),
    "offer": (OfferParams, OfferInfo),
    "connections": (NoParams, list[ConnectionInfo]),
    "letters": (PeerParams, list[LetterInfo]),
    "tell": (TellParams, ToldInfo),
    "disconnect": (PeerParams, NoParams),
    "subscribe": (SubscribeParams, NoParams),
    "backup": (NoParams, Copied),
    "stop": (NoParams, NoParams),
}
"""Every method with the shape of its params and of its result."""

NEWS: dict[str, type[Struct]] = {
    "event": Event,
    "receipt": ReceiptNews,
    "peer": PeerNews,
    "view": ViewNews,
    "join": JoinStatus,
    "invitation": InvitationNews,
    "request": RequestNews,
    "seating": SeatingNews,
    "removed": RemovedNews,
    "trust": TrustNews,
    "disagreement": DisagreementNews,
    "pong": PongNews,
    "features": FeaturesNews,
    "connection": ConnectionNews,
    "told": ToldNews,
    "problem": ProblemNews,
    "rotated": RotatedNews,
    "gap": GapNews,
    "late": LateNews,
    "fork": ForkNews,
    "complete": CompleteNews,
    "confirmed": ConfirmedNews,
    "refuted": RefutedNews,
    "differs": DiffersNews,
    "earlier": EarlierNews,
}
"""Every notification with its shape."""


class Request(Struct, frozen=True):
    method: str
    id: int | str | UnsetType | None = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    jsonrpc: str = ""
