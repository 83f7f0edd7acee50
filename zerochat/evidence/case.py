"""A case: an accusation, what was said against it, and what anybody needs to see who is right, in one file (`.zcase`).

An accusation is filed in the group's log, and so is each defence. So a case that leaves a defence out can be told from
one to which there was none: it holds every entry of the log from the accusation to the end of the time for defending,
and the witnesses' signatures below them. Of defences only those count that are short and among the first, and an entry
says how long what it speaks of is: so nobody makes a case too large to be shown by what it posts against it.
"""

from typing import Annotated, TypeAlias

import msgspec

from zerochat.crypto.encoding import b64url, canonical_json, compact_json, strict_json
from zerochat.crypto.field_types import Count, Did
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed
from zerochat.evidence.handshake import Accept, Close, Confirm, Hash, Request, SignedStatement, Subscription
from zerochat.evidence.messages import DATA_BYTES_MAX
from zerochat.evidence.suite import ED25519, Suite, SuiteName
from zerochat.evidence.witness import ENTRY_BYTES_MAX, RECEIPT_BYTES_MAX, WITNESSES_MAX, WITNESSES_MIN, Quorum

CASE_BYTES_MAX = 8 * 1024 * 1024
MESSAGES_MAX = 1024
"""In one chain from what is missing to what was acknowledged."""
ENTRIES_MAX = 4096
DEFENCES_MAX = 8
"""Of one accused against one accusation: the first that it posts count, and no others. There are five grounds."""
DEFENCE_BYTES_MAX = 256 * 1024
"""The largest message with its receipt fits. A longer one does not count, so nobody has to have it."""
REOPENED_MAX = 8

Message: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=1, max_length=DATA_BYTES_MAX)]
"""A message of `messages.py`, as it was sent."""
_Defence: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=1, max_length=DEFENCE_BYTES_MAX)]
_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=RECEIPT_BYTES_MAX)]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """By what a group's members agree to be judged. Times in milliseconds."""

    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern="^[!-~]+$")]
    """The name of the log."""
    operator: Did
    witnesses: Annotated[tuple[Did, ...], msgspec.Meta(min_length=WITNESSES_MIN, max_length=WITNESSES_MAX)]
    ack_ms: Count = 600_000
    """So long a publisher may wait for an acknowledgement before the message has to be in the log."""
    margin_ms: Count = 60_000
    """So long before that a publisher posts it; a post takes a moment."""
    skew_ms: Count = 120_000
    """So far a clock may be off without harm."""
    window_ms: Count = 1_200_000
    """So long an accused may take to answer."""
    suite: SuiteName = ED25519.name
    """Whose signatures messages, overwrites and acknowledgements have (`suite.py`)."""

    def __post_init__(self) -> None:
        if len(set(self.witnesses)) != len(self.witnesses):
            raise ValueError("a witness who stands there twice")

    @property
    def quorum(self) -> Quorum:
        return Quorum(self.origin, self.operator, self.witnesses)

    @property
    def grace_ms(self) -> int:
        """What two clocks that are both off, the one this way and the other that way, may come to."""
        return 2 * self.skew_ms

    @property
    def digest(self) -> str:
        return b64url(sha256(canonical_json(msgspec.to_builtins(self))))


class Accusation(SignedStatement, frozen=True, tag="accusation", tag_field="says", kw_only=True):
    """A subscriber says that what a message names as the one before never came."""

    signer = "by"

    by: Did
    accept: Hash
    """The digest of the accept statement of the subscription."""
    message: Hash
    """base64url of SHA-256 over the message that did come."""
    missing: Annotated[str, msgspec.Meta(max_length=86)]
    """Its `Pre`, base64url."""
    since: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
    """How many entries the log had when this was signed, or fewer. The first place from there on in which it stands is
    the one that counts: otherwise it could be logged once more when nobody answers any longer."""
    reopened: Annotated[tuple[Hash, ...], msgspec.Meta(max_length=REOPENED_MAX)] = ()
    """The digests of the accept statements of the two's later subscriptions. It stands here so that nobody can make a
    case without them, in which what was acknowledged there would speak against the accuser."""


class Acknowledged(msgspec.Struct, frozen=True, tag="acknowledged", forbid_unknown_fields=True):
    """The subscriber has acknowledged what it says is missing, or something after it."""

    chain: Annotated[tuple[Message, ...], msgspec.Meta(min_length=1, max_length=MESSAGES_MAX)]
    """From what is missing to what was acknowledged."""
    ack: Message


class Posted(msgspec.Struct, frozen=True, tag="posted", forbid_unknown_fields=True):
    """It was in the log in time, for the subscriber to fetch."""

    message: Message
    receipt: _Text


class Closed(msgspec.Struct, frozen=True, tag="closed", forbid_unknown_fields=True):
    """The subscription was over by then."""

    close: Close


class Ended(msgspec.Struct, frozen=True, tag="ended", forbid_unknown_fields=True):
    """What is missing was sent when the log already had the publisher's word that the subscription is over."""

    message: Message
    close: Close
    receipt: _Text


class Repeated(msgspec.Struct, frozen=True, tag="repeated", forbid_unknown_fields=True):
    """The same was accused of before, and is judged there."""

    accusation: Accusation
    receipt: _Text


Ground: TypeAlias = Acknowledged | Posted | Closed | Ended | Repeated


class Defence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a publisher posts against an accusation."""

    accusation: Hash
    ground: Ground

    def written(self) -> bytes:
        return compact_json(msgspec.to_builtins(self))


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All entries of the log from where the accuser knew it to the closing checkpoint."""

    before: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
    """How many entries stood before them."""
    peaks: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=64)]
    """The frontier of the log at that place (`merkle.Frontier`)."""
    entries: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=ENTRY_BYTES_MAX)], ...],
        msgspec.Meta(min_length=1, max_length=ENTRIES_MAX),
    ]
    closing: _Text
    """The checkpoint at their end, with its cosignatures."""


class Missing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That something did not come, and all that was posted about it."""

    accusation: Accusation
    message: Message
    """What did come."""
    filed: _Text
    """The receipt of the accusation."""
    span: Span
    defences: Annotated[tuple[_Defence, ...], msgspec.Meta(max_length=DEFENCES_MAX)] = ()
    """Those that count, as they were posted."""
    reopened: Annotated[tuple[tuple[Request, Accept, Confirm], ...], msgspec.Meta(max_length=REOPENED_MAX)] = ()
    """The later subscriptions that the accusation names: what was acknowledged in one of them says nothing of what
    came before it."""


class Fork(msgspec.Struct, frozen=True, tag="fork", forbid_unknown_fields=True):
    """Two messages of one publisher in one place of its stream."""

    one: Message
    other: Message


class Clock(msgspec.Struct, frozen=True, tag="clock", forbid_unknown_fields=True):
    """A message that is not later than the one before it."""

    one: Message
    next: Message


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All there is to judge."""

    zcase: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    rules: Rules | None = None
    """None: the two have agreed to none, so nothing but `counts` can be judged."""
    subscription: tuple[Request, Accept, Confirm]
    missing: Missing | None = None
    counts: Annotated[tuple[Fork | Clock, ...], msgspec.Meta(max_length=8)] = ()

    def opened(self, suite: Suite = ED25519) -> Subscription:
        """The subscription that it is about. Raises Unauthentic or Malformed."""
        return Subscription(*self.subscription, suite)

    def written(self) -> bytes:
        return canonical_json(msgspec.to_builtins(self)) + b"\n"


def parse_case(written: bytes) -> Case:
    """Raises Malformed."""
    try:
        return msgspec.convert(strict_json(written, CASE_BYTES_MAX), Case)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a case: {error}") from None


def parse_defence(written: bytes) -> Defence:
    """Raises Malformed."""
    try:
        return msgspec.convert(strict_json(written, DEFENCE_BYTES_MAX), Defence)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a defence: {error}") from None
