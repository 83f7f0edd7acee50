"""What membership events say: the shape of each body, read once, and the policy that a group begins with."""

from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from zerochat.errors import Malformed
from zerochat.evidence.case import Rules
from zerochat.evidence.witness import WITNESSES_MAX, WITNESSES_MIN
from zerochat.group.event_log.event import ADD, GENESIS, TERMS, Did, Event
from zerochat.group.links.contact import CONTACT_CHARS_MAX
from zerochat.names import fault_of

QUORUM_MIN, QUORUM_MAX = 2, 64
DEED_BYTES_MAX = 2304
"""The record of an event that brings nobody in. With 32 ids of others, the longest name and the greatest numbers it has
2131 bytes; everybody keeps all of them."""
TERMS_BYTES_MAX = 5120
"""The same of terms, which name up to 32 witnesses."""

_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Contact = Annotated[str, msgspec.Meta(max_length=CONTACT_CHARS_MAX)]
_Word = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
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
KEEPERS_MAX = 64
LEDGER = "ledger"
"""The accountability of a group that keeps a log with witnesses."""
ORIGIN = "zerochat/log/"
"""Before the id of the terms with which a log began: its name."""
TERMS_MS_MAX = 30 * 24 * 3_600_000
"""The longest time that terms may give anybody."""
_NOBODY = "did:key:z6Mk" + "1" * 44
TIMES = Rules(origin="none", operator=_NOBODY, witnesses=(_NOBODY, _NOBODY[:-1] + "2", _NOBODY[:-1] + "3"))
"""The usual times, and nobody who is judged by them."""


class PolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of a group. One that is not known cannot be kept, so nothing else may stand here."""

    join: JoinRule
    remove: RemoveRule
    quorum: Annotated[int, msgspec.Meta(ge=0, le=QUORUM_MAX)]
    roles: RoleRule
    agreement: AgreementRule
    history: HistoryRule = "none"
    keepers: Annotated[int, msgspec.Meta(ge=0, le=KEEPERS_MAX)] = 0


class GenesisBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group begins: its name, what it chose, its rules, and its first member."""

    name: _Label
    keys: _Word
    path: _Word
    accountability: _Word
    nonce: str
    label: _Label
    contact: _Contact
    envelope: _Word
    policy: PolicyBody
    transport: _Key
    """Ed25519; its X25519 map is the key with which the member dials the others."""
    possession: _Signature


class AddBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody joins: with which keys, under which name, as what, reached where, and its own word that it wants to."""

    member: Did
    label: _Label
    contact: _Contact
    role: Literal["reader", "writer"]
    transport: _Key
    possession: _Signature
    consent: _Signature
    history: HistoryRule = "all"
    """What it may have of what was said before: this, as far as the group's own rule allows it."""


class RemoveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member is put out."""

    member: Did
    after: _Place
    """Its events up to this one count; later ones are refused by everybody."""


class VoteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The author wants this member out."""

    member: Did


class LeaveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The author goes."""


class RoleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a member may do from now on."""

    member: Did
    role: Literal["reader", "writer", "admin"]
    after: _Place
    """The role counts for the events of the member's chain after this one."""


class LabelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The author goes by another name from now on."""

    label: _Label


_Ms = Annotated[int, msgspec.Meta(ge=1_000, le=TERMS_MS_MAX)]


class TermsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who operates and who witnesses the group's log from now on, and by what times its members are judged: those of
    `case.Rules`, where nothing else is said."""

    operator: Did
    witnesses: Annotated[tuple[Did, ...], msgspec.Meta(min_length=WITNESSES_MIN, max_length=WITNESSES_MAX)]
    ack_ms: _Ms = TIMES.ack_ms
    margin_ms: _Ms = TIMES.margin_ms
    skew_ms: _Ms = TIMES.skew_ms
    window_ms: _Ms = TIMES.window_ms

    def __post_init__(self) -> None:
        if len(set(self.witnesses)) != len(self.witnesses):
            raise ValueError("a witness who stands there twice")
        if self.margin_ms >= self.ack_ms:
            raise ValueError("no time to wait for an acknowledgement")

    @property
    def usual(self) -> bool:
        """Whether the times are the usual ones."""
        times = self.ack_ms, self.margin_ms, self.skew_ms, self.window_ms
        return times == (TIMES.ack_ms, TIMES.margin_ms, TIMES.skew_ms, TIMES.window_ms)


_S = TypeVar("_S", bound=msgspec.Struct)


def _read(event: Event, shape: type[_S]) -> _S:
    longest = TERMS_BYTES_MAX if event.type == TERMS else DEED_BYTES_MAX
    if event.type not in (GENESIS, ADD) and len(event.record) > longest:
        raise Malformed(why=f"{event.type}: too long")
    try:
        body = msgspec.convert(event.body, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"{event.type}: {error}") from None
    if any(fault_of(getattr(body, name, "x")) for name in ("name", "label")):
        raise Malformed(why=f"{event.type}: a name that cannot be shown")
    return body


def _genesis(event: Event) -> GenesisBody:
    body = _read(event, GenesisBody)
    policy_of(body.policy)
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


def genesis_of(event: Event) -> GenesisBody:
    """The body of a genesis event. Raises Malformed; so do the others."""
    return event.once(_genesis)


def add_of(event: Event) -> AddBody:
    return event.once(_add)


def remove_of(event: Event) -> RemoveBody:
    return event.once(_remove)


def leave_of(event: Event) -> LeaveBody:
    return event.once(_leave)


def vote_of(event: Event) -> VoteBody:
    return event.once(_vote)


def role_of(event: Event) -> RoleBody:
    return event.once(_role)


def label_of(event: Event) -> LabelBody:
    return event.once(_label)


def terms_of(event: Event) -> TermsBody:
    return event.once(_terms)


def rules_of(event: Event) -> Rules:
    """By what the members are judged from these terms on: each begins a log of its own."""
    body = terms_of(event)
    return Rules(
        origin=ORIGIN + event.id,
        operator=body.operator,
        witnesses=body.witnesses,
        ack_ms=body.ack_ms,
        margin_ms=body.margin_ms,
        skew_ms=body.skew_ms,
        window_ms=body.window_ms,
    )


def is_history_rule(text: str) -> bool:
    """Whether this says what newcomers may have of the history."""
    try:
        msgspec.convert(text, HistoryRule)
    except msgspec.ValidationError:
        return False
    return True


class Policy(Struct, frozen=True):
    """The rules of a group, fixed for its life by its genesis event."""

    join: JoinRule = "invited"
    """Who comes in: whoever was invited; whoever asks and is accepted; whoever asks."""
    remove: RemoveRule = "quorum"
    """Who puts somebody out: any member; the owner and the admins; as many members as the quorum says."""
    quorum: int = 2
    """How many members have to want somebody out, 2 to 64; 0 unless `remove` is "quorum"."""
    roles: RoleRule = "flat"
    """Whether everybody is equal, or the founder is the owner, who makes admins."""
    agreement: AgreementRule = "permissive"
    """What a newcomer does whose evidence differs from what the members believe."""
    history: str = "all"
    """What newcomers may have of what was said before they came: `none`, `all`, `last:N` posts, or what was said
    `since:T` (UTC ms)."""
    keepers: int = 0
    """How many members keep the history for the others: those who have been in it longest; 0: everybody."""

    @classmethod
    def default(cls, roles: RoleRule = "flat") -> Self:
        return cls() if roles == "flat" else cls(remove="admins", quorum=0, roles=roles)

    @property
    def fault(self) -> str:
        """Why these rules do not fit together, or nothing."""
        if self.remove == "admins" and self.roles == "flat":
            return "only admins may remove somebody, and there are none"
        if self.remove == "quorum" and not QUORUM_MIN <= self.quorum <= QUORUM_MAX:
            return f"a quorum is from {QUORUM_MIN} to {QUORUM_MAX}"
        if self.remove != "quorum" and self.quorum:
            return "a quorum where nobody votes"
        if not is_history_rule(self.history):
            return "what newcomers may have of the history is none, all, last:NUMBER or since:TIME"
        if not 0 <= self.keepers <= KEEPERS_MAX:
            return f"who keep the history are at most {KEEPERS_MAX}"
        return ""

    def body(self) -> dict[str, Any]:
        """As it stands in a genesis event."""
        return asdict(self)


def policy_of(body: PolicyBody) -> Policy:
    """The rules in a genesis event. Raises Malformed where they do not fit together."""
    policy = Policy(body.join, body.remove, body.quorum, body.roles, body.agreement, body.history, body.keepers)
    if policy.fault:
        raise Malformed(why=f"genesis: {policy.fault}")
    return policy
