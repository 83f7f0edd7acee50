"""Proofs of signed messages, and what can be proven in a group."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.events import Event
from zerochat.rpc.tlog import TlogInfo


class ProofParams(Struct, frozen=True):
    """A page of the lines of a proof (`evidence/proof.py`): of one message, or, without `id`, of the completeness of an
    author's stream. `after`: `last` of the previous page."""

    group: str
    id: str = ""
    """An event id or a prefix of it; `last`, or `last:NAME`."""
    author: str = ""
    """A member, by name or DID; empty: myself."""
    after: int = 0


class ProofLines(Struct, frozen=True):
    lines: list[str]
    last: int | None = None
    """`after` of the next page; null: there is none."""
    left_out: int = 0
    """The number of members whose signed acknowledgements are missing: too far behind for one page, or from before
    their current subscription."""


# --- what can be proven -----------------------------------------------------------------------------------------------

Grade = Literal["signed", "unshown", "told", "none"]
WhyNot = Literal["", "keys", "upgraded", "itself", "unheard"]


class EvidenceParams(Struct, frozen=True):
    """What can be proven in a group, and about one event (`id` as in `ProofParams`)."""

    group: str
    id: str = ""


class SignedStream(Struct, frozen=True, kw_only=True):
    """The signed messages of a member that are stored here."""

    did: str
    nick: str
    messages: int = 0
    """The number of its messages."""
    first: str | None = None
    """The time of the first message, by its author's clock; null: there is none."""
    last: str | None = None
    signed_at: str | None = None
    """When it last signed an acknowledgement of my messages, by its clock; null: never."""
    behind: int = 0
    """The number of my messages since the last one that it has acknowledged with a signature."""
    gone: bool = False
    """It is no longer a member."""


class SignedBy(Struct, frozen=True, kw_only=True):
    """How far it can be proven that a member has a message of mine."""

    did: str
    nick: str
    grade: Grade = "none"
    """`signed`: it has signed an acknowledgement, and a proof can show it. `unshown`: it has signed one, but the stored
    statements do not show it: it has subscribed again since, or they are gone. `told`: it has acknowledged without a
    signature, which proves nothing to others. `none`: it is not known to have it."""
    at: str | None = None
    """The time of the signature, by the member's clock."""


class MessageEvidence(Struct, frozen=True, kw_only=True):
    """What can be proven about one event."""

    event: Event
    signed: bool = False
    """The author's signature is stored here."""
    why: WhyNot = ""
    """Why there is no proof. `keys`: messages in this group are not signed. `upgraded`: they are, but it is older than
    the upgrade of the keys. `itself`: it carries its author's signature and needs no proof (`zerochat export` contains
    it). `unheard`: the signed message is not stored here."""
    logged: int = 0
    """Its index in a transparency log of the group, from 1; 0: it is not in one."""
    logged_at: str | None = None
    """When enough witnesses had cosigned it, by their clocks."""
    members: list[SignedBy] = field(default_factory=list)
    """The recipients; only for my own messages, because members sign acknowledgements to the author only."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What can be proven in a group."""

    group: str
    keys: str
    signs: bool
    """Whether messages and acknowledgements are signed, in streams. (With the keys `dcgka` every message carries a
    signature of its own.)"""
    streams: list[SignedStream] = field(default_factory=list)
    """Of every member, me first, and of former members with stored signatures."""
    log: TlogInfo | None = None
    """Null: the group has no transparency log."""
    message: MessageEvidence | None = None
