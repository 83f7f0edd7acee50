"""Cases: who is accused of having withheld a message, what is said to it, and what comes of it."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from zerochat.rpc.common import Author

CaseState: TypeAlias = Literal["waiting", "open", "over", "decided"]


class AccuseParams(Struct, frozen=True):
    """Accuse a member, by name or key, of what is missing in its stream the longest."""

    group: str
    member: str


class CaseParams(Struct, frozen=True):
    """The case with this digest (or its first letters) as a file that anybody can judge, in parts: from the character
    `after` on."""

    group: str
    case: str
    after: int = 0


class CasePart(Struct, frozen=True):
    text: str
    size: int
    """Characters of the whole; all are ASCII."""
    digest: str
    """base64url of SHA-256 over the whole: between two parts the log may have grown, and then it is another one."""


class ToldVerdict(Struct, frozen=True):
    """What a member has told of a case."""

    by: Author
    outcome: str
    agrees: bool | None
    """Whether I come to the same; None: I cannot tell yet."""


class CaseInfo(Struct, frozen=True, kw_only=True):
    group: str
    id: str
    """The digest of the accusation; where somebody is convicted by two of its messages, of both."""
    accuser: Author
    """Who has accused, or has shown the two messages."""
    accused: Author | None = None
    """None: nobody has shown yet what it is about, to whoever is neither of the two."""
    mine: Literal["", "accuser", "accused"] = ""
    state: CaseState
    """`waiting`: it has no place in the log yet. `open`: the time for an answer is not over. `over`: it is, and I lack
    something to judge by. `decided`: see `verdict`."""
    filed_at: str | None = None
    """When the log had it at the latest."""
    until: str | None = None
    """Until when it can be answered."""
    answers: list[str] = field(default_factory=list)
    """The grounds that I have answered with."""
    verdict: str = ""
    """What comes of it, as I have worked it out myself: `upheld`, `dismissed`, `repeated`, `false accusation`, `void`;
    of two messages that cannot both be: `forked`, `turned back`."""
    told: list[ToldVerdict] = field(default_factory=list)
