"""Dispute cases: accusations of withholding a message, defences and verdicts."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from zerochat.rpc.common import Author

CaseState: TypeAlias = Literal["waiting", "open", "over", "decided"]


class AccuseParams(Struct, frozen=True):
    """Accuse a member, by name or DID, of withholding the oldest missing message of its stream."""

    group: str
    member: str
    check: bool = False
    """Only check that it is possible: nothing is stored."""


class CaseParams(Struct, frozen=True):
    """A case, by its digest or a prefix, in its file format, in parts: from the character `after`."""

    group: str
    case: str
    after: int = 0


class CasePart(Struct, frozen=True):
    text: str
    size: int
    """The size of the whole file in characters, all ASCII."""
    digest: str
    """base64url of SHA-256 of the whole file. It changes where the transparency log grows between two parts."""


class AnnouncedVerdict(Struct, frozen=True):
    """A member's verdict on a case."""

    by: Author
    outcome: str
    agrees: bool | None
    """Whether my own verdict is the same; null: I have none yet."""


class CaseInfo(Struct, frozen=True, kw_only=True):
    group: str
    id: str
    """The digest of the accusation, or of the two conflicting messages of an equivocation."""
    accuser: Author
    """The member that accused, or that presented the two messages."""
    accused: Author | None = None
    """Null: the content of the case is not known here yet."""
    mine: Literal["", "accuser", "accused"] = ""
    state: CaseState
    """`waiting`: not in the transparency log yet. `open`: the time for a defence is not over. `over`: it is, and
    evidence is missing for a verdict. `decided`: see `verdict`."""
    filed_at: str | None = None
    """The latest time at which the transparency log included it."""
    until: str | None = None
    """The deadline of a defence."""
    answers: list[str] = field(default_factory=list)
    """The kinds of my defences."""
    verdict: str = ""
    """My own verdict: `upheld`, `dismissed`, `repeated`, `false accusation`, `void`; for an equivocation `forked` or
    `time reversed`."""
    announced: list[AnnouncedVerdict] = field(default_factory=list)
