"""Streams of signed messages, in a group whose keys sign: our own, and those of the others."""

from msgspec import Struct, field

from zerochat.crypto.redacted import Veiled


class OwnStream(Veiled, frozen=True):
    """What we say in a group: where its signed messages stand."""

    VEILED = ("start", "head", "chain")

    alias: bytes
    """What we call it, 16 bytes; another one after each break."""
    start: bytes
    """What the first message names as the one before it, 64 bytes."""
    head: bytes
    """The signature of the last message, or `start`."""
    chain: bytes
    """From which the keys of all that follows are made."""
    since: int
    """When that was drawn, UTC ms."""
    time: int = 0
    """`T` of the last message."""
    number: int = 0
    """Messages since it was drawn."""
    gone: bool = False
    """So many have left since then that another one is due."""
    left: int = 0
    """How many have left since then, or were put out."""


class Subscriber(Struct, frozen=True):
    """A member who hears our stream, by what we have accepted."""

    request: str
    """The digest of its request."""
    digest: str
    """The digest of our answer."""
    after: int
    """The events of ours up to this place are not in the stream for it: it gets them by themselves."""
    accept: str = ""
    """Our answer, as long as it has not confirmed that: it is said again."""
    acked: int = 0
    """`T` of the last message that it says it has acknowledged, or that was said before it could hear us. Whether it
    has really signed for that message the journal knows (`KeepAck`)."""
    at: int = 0
    """When we have answered it, UTC ms."""
    rules: str = ""
    """The digest of the rules by which we may be judged for it; empty: by none."""
    begun: int = 0
    """`T` of the last message of our stream when it began."""
    former: int = 0
    """`T` of the last message that it has acknowledged of what was said until then; `begun`: there was none, or all."""


class Stream(Veiled, frozen=True):
    """Another member's stream, as far as it has come here."""

    VEILED = ("head", "chain", "ack", "former")

    alias: bytes
    head: bytes
    """The signature of the last message that was taken in: what the next one has to name."""
    chain: bytes
    accept: str
    """The digest of the answer by which we hear it."""
    accepted_at: int
    """When that was given, by the author's clock."""
    after: int
    """What comes after this place of the author's chain is said in the stream, and nowhere else."""
    time: int = 0
    """`T` of the last message that was taken in; 0: there was none."""
    ack: str = ""
    """Our signed acknowledgement of that, base64url; empty: none was given."""
    confirm: bool = False
    """The author does not know yet that we have its answer."""
    rules: str = ""
    """The digest of the rules by which its author may be judged; empty: by none."""
    heard_at: int = 0
    """When that has come, UTC ms: our confirmation says so, the same each time."""
    former: str = ""
    """Our signed acknowledgement of the last message that came by the answer before this one; our confirmation brings
    it, since none of what comes by this one can show that we have that."""


class Asking(Struct, frozen=True):
    """Our request to hear a member's stream, which it has not answered."""

    digest: str
    statement: str
    at: int = 0
    """When we have last said it in answer to a word by which it was not heard, or first, UTC ms."""


class Early(Veiled, frozen=True):
    """Signed messages of one author that came before the one that they name: by what they name."""

    VEILED = ("messages",)

    messages: dict[bytes, bytes] = field(default_factory=dict)
