"""Proofs of what was said, in groups whose keys sign, line by line; and what can be proven there."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.events import Event
from zerochat.rpc.tlog import LogInfo


class ProofParams(Struct, frozen=True):
    """The lines of a proof (`evidence/proof.py`): of one message, or, without `id`, that nothing was left out of an
    author's stream. `after`: go on behind the message with this time, as the answer before has said."""

    group: str
    id: str = ""
    """An event, by its id or the beginning of that; `last`, or `last:NAME`."""
    author: str = ""
    """A member, by name or key; empty: you."""
    after: int = 0


class ProofLines(Struct, frozen=True):
    lines: list[str]
    last: int | None = None
    """Where to go on; None: that was all."""
    left_out: int = 0
    """Members who have acknowledged it, too far behind it for one answer, or not since they began to hear it."""


# --- what can be proven -----------------------------------------------------------------------------------------------

Grade = Literal["signed", "unshown", "told", "none"]
WhyNot = Literal["", "keys", "itself", "unheard"]


class EvidenceParams(Struct, frozen=True):
    """What can be proven in a group, and of one event where `id` names one, as in `ProofParams`."""

    group: str
    id: str = ""


class SignedStream(Struct, frozen=True, kw_only=True):
    """What a member has signed, as far as it is kept here."""

    did: str
    nick: str
    messages: int = 0
    """Messages with words of it."""
    first: str | None = None
    """When the first one was said, by its author's clock; None: there is none."""
    last: str | None = None
    signed_at: str | None = None
    """When it has signed last that it has what I have said, by its own clock; None: it has not."""
    behind: int = 0
    """So many messages of mine it has not signed for, since the last one that it has."""
    gone: bool = False
    """It is no member any more."""


class SignedBy(Struct, frozen=True, kw_only=True):
    """How far it can be shown that a member has a message of mine."""

    did: str
    nick: str
    grade: Grade = "none"
    """`signed`: it has signed that, and `proof` shows it to anybody. `unshown`: it has signed that, and has asked to
    hear me anew since, or the statements are gone, so that what is kept does not show it. `told`: it has said so to me
    alone, which nobody else needs to believe. `none`: it is not known to have it."""
    at: str | None = None
    """When it has signed, by its own clock."""


class MessageEvidence(Struct, frozen=True, kw_only=True):
    """What can be proven of one event."""

    event: Event
    signed: bool = False
    """Its author's signature is here."""
    why: WhyNot = ""
    """`keys`: nothing that is said in this group is signed. `itself`: it is about who is in the group, and signed by
    itself, so that there is no `proof` of it (`zerochat export` writes such events). `unheard`: the signed message that
    has brought it is not here."""
    logged: int = 0
    """Its place in a log of the group, from 1; 0: it stands in none."""
    logged_at: str | None = None
    """When so many witnesses as it takes had cosigned that, by their clocks."""
    members: list[SignedBy] = field(default_factory=list)
    """Those whom it is for. Only of my own words: of others' words nobody signs to me that it has them."""


class Evidence(Struct, frozen=True, kw_only=True):
    """Answer of `evidence`."""

    group: str
    keys: str
    signs: bool
    """Whether what is said there is signed."""
    streams: list[SignedStream] = field(default_factory=list)
    """Of every member, me first; and of those who have gone, where something that they have signed is here."""
    log: LogInfo | None = None
    """None: the group is not meant to keep one."""
    message: MessageEvidence | None = None
