"""The bodies of membership events: their shapes, and the policy that a group begins with."""

from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from zerochat.errors import Malformed
from zerochat.evidence.case import Rules
from zerochat.evidence.witness import WITNESSES_MAX, WITNESSES_MIN
from zerochat.group.event_log.event import ADD, GENESIS, TERMS, Did, Event
from zerochat.group.links.contact import CONTACT_CHARS_MAX
from zerochat.limits import KEEP_MS_MAX, KEEP_MS_MIN, MEMBERS_MAX
from zerochat.names import fault_of

QUORUM_MIN, QUORUM_MAX = 2, MEMBERS_MAX
SMALL_RECORD_BYTES_MAX = 2304
"""The record of an event that adds no member. With 32 ids of others, the longest name and the greatest numbers it has
2131 bytes; every member stores all of them."""
TERMS_BYTES_MAX = 5120
"""The record of a terms event, which names up to 32 witnesses."""

_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Contact = Annotated[str, msgspec.Meta(max_length=CONTACT_CHARS_MAX)]
_Token = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
_Signature = Annotated[str, msgspec.Meta(max_length=86)]
_Key = Annotated[str, msgspec.Meta(min_length=43, max_length=43)]
_Place = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]

JoinRule: TypeAlias = Literal["invited", "ask", "open"]
RemoveRule: TypeAlias = Literal["anyone", "admins", "quorum"]
RoleRule: TypeAlias = Literal["flat", "admins"]
AgreementRule: TypeAlias = Literal["permissive", "strict"]
HistoryRule: TypeAlias = Annotated[
    str, msgspec.Meta(max_length=24, pattern=r"^(none|all|last:[1-9][0-9]{0,6}|since:[0-9]{1,15})\Z")
]
KEEPERS_MAX = MEMBERS_MAX
TLOG = "tlog"
"""The accountability of a group that keeps a witnessed transparency log."""
ORIGIN_PREFIX = "zerochat/log/"
"""The origin of a transparency log is this and the id of the terms event that began it."""
TERMS_MS_MAX = 30 * 24 * 3_600_000
"""The longest period that terms may set."""
_PLACEHOLDER_DID = "did:key:z6Mk" + "1" * 44
DEFAULT_TIMES = Rules(
    origin="none",
    operator=_PLACEHOLDER_DID,
    witnesses=(_PLACEHOLDER_DID, _PLACEHOLDER_DID[:-1] + "2", _PLACEHOLDER_DID[:-1] + "3"),
)
"""The default periods, with placeholder members."""


class PolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of a group. Unknown rules cannot be followed, so unknown fields are rejected."""

    join: JoinRule
    remove: RemoveRule
    quorum: Annotated[int, msgspec.Meta(ge=0, le=QUORUM_MAX)]
    roles: RoleRule
    agreement: AgreementRule
    history: HistoryRule = "none"
    keepers: Annotated[int, msgspec.Meta(ge=0, le=KEEPERS_MAX)] = 0
    keep: Annotated[int, msgspec.Meta(ge=0, le=KEEP_MS_MAX)] = 0


class GenesisBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first event of a group: its name, profile, rules and first member."""

    name: _Label
    keys: _Token
    path: _Token
    accountability: _Token
    nonce: str
    label: _Label
    contact: _Contact
    envelope: _Token
    policy: PolicyBody
    transport: _Key
    """Ed25519; its X25519 map is the key with which the member dials the others."""
    possession: _Signature


class AddBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member joins: its keys, display name, role and contact, and its signed consent."""

    member: Did
    label: _Label
    contact: _Contact
    role: Literal["reader", "writer"]
    transport: _Key
    possession: _Signature
    consent: _Signature
    history: HistoryRule = "all"
    """The history rule of the invitation; the group's own rule limits it further."""


class RemoveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member is removed."""

    member: Did
    after: _Place
    """The member's events up to this position count; later ones are rejected."""


class VoteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The author votes to remove this member."""

    member: Did


class LeaveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The author leaves."""


class RoleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member gets another role. As `owner` it succeeds the author, who becomes an admin."""

    member: Did
    role: Literal["reader", "writer", "admin", "owner"]
    after: _Place
    """The role applies to the events of the member's chain after this position."""


class LabelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The author changes its display name."""

    label: _Label


_Ms = Annotated[int, msgspec.Meta(ge=1_000, le=TERMS_MS_MAX)]


class TermsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The operator and the witnesses of the group's transparency log from now on, and the periods by which members are
    judged: those of `case.Rules` by default."""

    operator: Did
    witnesses: Annotated[tuple[Did, ...], msgspec.Meta(min_length=WITNESSES_MIN, max_length=WITNESSES_MAX)]
    ack_ms: _Ms = DEFAULT_TIMES.ack_ms
    margin_ms: _Ms = DEFAULT_TIMES.margin_ms
    skew_ms: _Ms = DEFAULT_TIMES.skew_ms
    window_ms: _Ms = DEFAULT_TIMES.window_ms

    def __post_init__(self) -> None:
        if len(set(self.witnesses)) != len(self.witnesses):
            raise ValueError("a witness is named twice")
        if self.margin_ms >= self.ack_ms:
            raise ValueError("no time to wait for an acknowledgement")

    @property
    def has_default_times(self) -> bool:
        """Whether all periods are the default ones."""
        times = self.ack_ms, self.margin_ms, self.skew_ms, self.window_ms
        return times == (DEFAULT_TIMES.ack_ms, DEFAULT_TIMES.margin_ms, DEFAULT_TIMES.skew_ms, DEFAULT_TIMES.window_ms)


class UpgradeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The author agrees that the group gets other keys."""

    keys: Literal["dcgka"]
    final: bool
    """Enough members have agreed in the event's past, with its author: from here on the group has these keys."""


_S = TypeVar("_S", bound=msgspec.Struct)


def _read(event: Event, shape: type[_S]) -> _S:
    longest = TERMS_BYTES_MAX if event.type == TERMS else SMALL_RECORD_BYTES_MAX
    if event.type not in (GENESIS, ADD) and len(event.record) > longest:
        raise Malformed(why=f"{event.type}: too long")
    try:
        body = msgspec.convert(event.body, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"{event.type}: {error}") from None
    if any(fault_of(getattr(body, name, "x")) for name in ("name", "label")):
        raise Malformed(why=f"{event.type}: a name with characters that cannot be displayed")
    return body


def _genesis(event: Event) -> GenesisBody:
    body = _read(event, GenesisBody)
    if policy_of(body.policy).keep and body.accountability == TLOG:
        raise Malformed(why="genesis: a group with a transparency log keeps its messages as evidence")
    return body


def _add(event: Event) -> AddBody:
    return _read(event, AddBody)


def _remove(event: Event) -> RemoveBody:
    return _read(event, RemoveBody)


def _leave(event: Event) -> LeaveBody:
    return _read(event, LeaveBody)


def _vote(event: Event) -> VoteBody:
    return _read(event, VoteBody)


def _role(event: Event) -> RoleBody:
    return _read(event, RoleBody)


def _label(event: Event) -> LabelBody:
    return _read(event, LabelBody)


def _terms(event: Event) -> TermsBody:
    return _read(event, TermsBody)


def _upgrade(event: Event) -> UpgradeBody:
    return _read(event, UpgradeBody)


def genesis_of(event: Event) -> GenesisBody:
    """The body of a genesis event. Raises Malformed, as the other functions do."""
    return event.memoised(_genesis)


def add_of(event: Event) -> AddBody:
    return event.memoised(_add)


def remove_of(event: Event) -> RemoveBody:
    return event.memoised(_remove)


def leave_of(event: Event) -> LeaveBody:
    return event.memoised(_leave)


def vote_of(event: Event) -> VoteBody:
    return event.memoised(_vote)


def role_of(event: Event) -> RoleBody:
    return event.memoised(_role)


def label_of(event: Event) -> LabelBody:
    return event.memoised(_label)


def terms_of(event: Event) -> TermsBody:
    return event.memoised(_terms)


def upgrade_of(event: Event) -> UpgradeBody:
    return event.memoised(_upgrade)


def rules_of(event: Event) -> Rules:
    """The rules by which members are judged under these terms. Each terms event begins a transparency log of its
    own."""
    body = terms_of(event)
    return Rules(
        origin=ORIGIN_PREFIX + event.id,
        operator=body.operator,
        witnesses=body.witnesses,
        ack_ms=body.ack_ms,
        margin_ms=body.margin_ms,
        skew_ms=body.skew_ms,
        window_ms=body.window_ms,
    )


def is_history_rule(text: str) -> bool:
    """Whether this text is a valid rule for the history that joiners may read."""
    try:
        msgspec.convert(text, HistoryRule)
    except msgspec.ValidationError:
        return False
    return True


class Policy(Struct, frozen=True):
    """The rules of a group, fixed for its life by its genesis event."""

    join: JoinRule = "invited"
    """Who is admitted: holders of an invitation; those whose request a member accepts; all who ask."""
    remove: RemoveRule = "quorum"
    """Who removes members: any member; the owner and the admins; a quorum of members."""
    quorum: int = 2
    """How many votes a removal takes, 2 to MEMBERS_MAX; 0 unless `remove` is "quorum"."""
    roles: RoleRule = "flat"
    """Whether all members are equal, or the founder is the owner, who appoints admins."""
    agreement: AgreementRule = "permissive"
    """What a joiner does when attestations contradict each other: carry on with a warning, or leave."""
    history: str = "all"
    """The history that joiners may read: `none`, `all`, `last:N` posts, or posts since `since:T` (UTC ms)."""
    keepers: int = 0
    """How many members keep the history for the others: those who joined first; 0: all."""
    keep: int = 0
    """How long messages are kept, ms; then all members erase them (`group/retention.py`). 0: for ever."""

    @classmethod
    def default(cls, roles: RoleRule = "flat") -> Self:
        return cls() if roles == "flat" else cls(remove="admins", quorum=0, roles=roles)

    @property
    def error(self) -> str:
        """Why these rules do not fit together, or an empty string."""
        if self.remove == "admins" and self.roles == "flat":
            return "only admins may remove members, but a flat group has no admins"
        if self.remove == "quorum" and not QUORUM_MIN <= self.quorum <= QUORUM_MAX:
            return f"a quorum must be from {QUORUM_MIN} to {QUORUM_MAX}"
        if self.remove != "quorum" and self.quorum:
            return "a quorum is set, but removals take no votes"
        if not is_history_rule(self.history):
            return "the history rule must be none, all, last:NUMBER or since:TIME"
        if not 0 <= self.keepers <= KEEPERS_MAX:
            return f"at most {KEEPERS_MAX} members keep the history"
        if self.keep and not KEEP_MS_MIN <= self.keep <= KEEP_MS_MAX:
            return "messages are kept for an hour to ten years, or for ever"
        return ""

    def body(self) -> dict[str, Any]:
        """The JSON value in a genesis event."""
        return asdict(self)


def policy_of(body: PolicyBody) -> Policy:
    """The rules in a genesis event. Raises Malformed where they do not fit together."""
    rules = body.join, body.remove, body.quorum, body.roles, body.agreement, body.history, body.keepers, body.keep
    policy = Policy(*rules)
    if policy.error:
        raise Malformed(why=f"genesis: {policy.error}")
    return policy
