"""Case file (`.zcase`): an accusation of withholding, its defences, and the evidence to judge it.

Accusations and defences are entries of the group's transparency log. A case contains every log entry from the
accusation to the end of the defence window, with the witnesses' cosignatures, so an omitted defence is detectable. Only
the first few short defences count, and each entry declares the size of its blob, so an accused cannot inflate a case.
"""

from typing import Annotated, TypeAlias

import msgspec

from zerochat.crypto.encoding import b64url, canonical_json, compact_json, strict_json
from zerochat.crypto.primitives import sha256
from zerochat.crypto.structs import Count, Did
from zerochat.errors import Malformed
from zerochat.evidence.handshake import Accept, Close, Confirm, Hash, Request, SignedStatement, Subscription
from zerochat.evidence.messages import DATA_BYTES_MAX
from zerochat.evidence.suite import ED25519, Suite, SuiteName
from zerochat.evidence.witness import ENTRY_BYTES_MAX, RECEIPT_BYTES_MAX, WITNESSES_MAX, WITNESSES_MIN, Quorum

CASE_BYTES_MAX = 8 * 1024 * 1024
MESSAGES_MAX = 1024
"""Messages in a chain from the missing message to the acknowledged one."""
ENTRIES_MAX = 4096
DEFENCES_MAX = 8
"""Defences that count against one accusation: the first that the accused posts. There are five grounds."""
DEFENCE_BYTES_MAX = 256 * 1024
"""Fits the largest message with its receipt. A longer defence does not count and need not be in the case."""
REOPENED_MAX = 8

Message: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=1, max_length=DATA_BYTES_MAX)]
"""An encoded message (`messages.py`)."""
_Defence: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=1, max_length=DEFENCE_BYTES_MAX)]
_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=RECEIPT_BYTES_MAX)]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules that two members agree to be judged by. Times in milliseconds."""

    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern="^[!-~]+$")]
    """Name of the transparency log."""
    operator: Did
    witnesses: Annotated[tuple[Did, ...], msgspec.Meta(min_length=WITNESSES_MIN, max_length=WITNESSES_MAX)]
    ack_ms: Count = 600_000
    """Time after which an unacknowledged message has to be in the log."""
    margin_ms: Count = 60_000
    """How long before that deadline a publisher posts the message."""
    skew_ms: Count = 120_000
    """Tolerated error of a clock."""
    window_ms: Count = 1_200_000
    """Defence window."""
    suite: SuiteName = ED25519.name
    """Signature suite of messages, overwrites and acknowledgements (`suite.py`)."""

    def __post_init__(self) -> None:
        if len(set(self.witnesses)) != len(self.witnesses):
            raise ValueError("a duplicate witness")

    @property
    def quorum(self) -> Quorum:
        return Quorum(self.origin, self.operator, self.witnesses)

    @property
    def grace_ms(self) -> int:
        """Greatest difference of two clocks within the tolerance."""
        return 2 * self.skew_ms

    @property
    def digest(self) -> str:
        return b64url(sha256(canonical_json(msgspec.to_builtins(self))))


class Accusation(SignedStatement, frozen=True, tag="accusation", tag_field="type", kw_only=True):
    """A subscriber's claim that it never received the predecessor named by a message."""

    signer = "accuser"

    accuser: Did
    accept: Hash
    """Digest of the subscription's accept statement."""
    message: Hash
    """base64url of SHA-256 of the received message."""
    missing: Annotated[str, msgspec.Meta(max_length=86)]
    """`Pre` of the received message, base64url: the signature of the missing one."""
    log_size: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
    """Size of the log when this was signed, or less. The first occurrence from there on counts; otherwise the
    accusation could be logged again after the accused stopped answering."""
    reopened: Annotated[tuple[Hash, ...], msgspec.Meta(max_length=REOPENED_MAX)] = ()
    """Digests of the accept statements of later subscriptions between the two. Signed here, so that a case cannot omit
    them; without them, acknowledgements of those subscriptions would count against the accuser."""


class Acknowledged(msgspec.Struct, frozen=True, tag="acknowledged", forbid_unknown_fields=True):
    """Ground: the subscriber acknowledged the missing message or a successor."""

    chain: Annotated[tuple[Message, ...], msgspec.Meta(min_length=1, max_length=MESSAGES_MAX)]
    """The chain from the missing message to the acknowledged one."""
    ack: Message


class Posted(msgspec.Struct, frozen=True, tag="posted", forbid_unknown_fields=True):
    """Ground: the missing message was in the log in time."""

    message: Message
    receipt: _Text


class Closed(msgspec.Struct, frozen=True, tag="closed", forbid_unknown_fields=True):
    """Ground: the subscriber had ended the subscription."""

    close: Close


class Ended(msgspec.Struct, frozen=True, tag="ended", forbid_unknown_fields=True):
    """Ground: the missing message is dated after the publisher's logged end of the subscription."""

    message: Message
    close: Close
    receipt: _Text


class Repeated(msgspec.Struct, frozen=True, tag="repeated", forbid_unknown_fields=True):
    """Ground: an earlier accusation covers the same message and is judged there."""

    accusation: Accusation
    receipt: _Text


Ground: TypeAlias = Acknowledged | Posted | Closed | Ended | Repeated


class Defence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A publisher's answer to an accusation."""

    accusation: Hash
    ground: Ground

    def serialize(self) -> bytes:
        return compact_json(msgspec.to_builtins(self))


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All log entries from the accuser's known size to the closing checkpoint."""

    before: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
    """Number of entries before them."""
    peaks: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=64)]
    """Frontier of the log at that size (`merkle.Frontier`)."""
    entries: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=ENTRY_BYTES_MAX)], ...],
        msgspec.Meta(min_length=1, max_length=ENTRIES_MAX),
    ]
    closing: _Text
    """Closing checkpoint with its cosignatures."""


class Withheld(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Evidence on a missing message: the accusation and everything that was posted about it."""

    accusation: Accusation
    message: Message
    """The received message."""
    filed: _Text
    """Log receipt of the accusation."""
    span: Span
    defences: Annotated[tuple[_Defence, ...], msgspec.Meta(max_length=DEFENCES_MAX)] = ()
    """The counted defences as posted."""
    reopened: Annotated[tuple[tuple[Request, Accept, Confirm], ...], msgspec.Meta(max_length=REOPENED_MAX)] = ()
    """The later subscriptions named by the accusation: an acknowledgement within one says nothing of earlier
    messages."""


class Fork(msgspec.Struct, frozen=True, tag="fork", forbid_unknown_fields=True):
    """Equivocation: two messages at the same position of a stream."""

    one: Message
    other: Message


class TimeReversal(msgspec.Struct, frozen=True, tag="time-reversal", forbid_unknown_fields=True):
    """Equivocation: a message that is not later than its predecessor."""

    one: Message
    next: Message


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The input of the judge."""

    zcase: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    rules: Rules | None = None
    """None: no rules were agreed on, so only `equivocations` can be judged."""
    subscription: tuple[Request, Accept, Confirm]
    withheld: Withheld | None = None
    equivocations: Annotated[tuple[Fork | TimeReversal, ...], msgspec.Meta(max_length=8)] = ()

    def verified_subscription(self, suite: Suite = ED25519) -> Subscription:
        """The verified subscription. Raises Unauthentic or Malformed."""
        return Subscription(*self.subscription, suite)

    def serialize(self) -> bytes:
        return canonical_json(msgspec.to_builtins(self)) + b"\n"


def parse_case(encoded: bytes) -> Case:
    """Raises Malformed."""
    try:
        return msgspec.convert(strict_json(encoded, CASE_BYTES_MAX), Case)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"it has another form ({error})") from None


def parse_defence(encoded: bytes) -> Defence:
    """Raises Malformed."""
    try:
        return msgspec.convert(strict_json(encoded, DEFENCE_BYTES_MAX), Defence)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a defence of another form ({error})") from None
