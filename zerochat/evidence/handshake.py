"""How a subscription begins and ends: three statements that both have signed, and a fourth when it is over.

    request   the subscriber asks for a stream of the publisher's
    accept    the publisher names the stream, where it stands, and the rules by which both may be judged
    confirm   the subscriber has read that
    close     it is over: when the subscriber says so, or when the log has it from the publisher, who could otherwise
              sign an older one afterwards

The judge goes by them: without the three there was no subscription, and nobody owed anybody anything.
"""

from typing import Annotated, ClassVar, TypeAlias, TypeVar

import msgspec

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key_bytes, strict_json
from zerochat.crypto.field_types import Count, Did
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify, sha256
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.messages import ALIAS_BYTES, KEY_BYTES, SIGNATURE_BYTES, parse_overwrite
from zerochat.evidence.suite import ED25519, Suite

CONTEXT = b"zerochat/subscription/1\n"
STATEMENT_BYTES_MAX = 2048

Hash: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}$")]
_Bytes: TypeAlias = Annotated[str, msgspec.Meta(max_length=400, pattern="^[A-Za-z0-9_-]*$")]


class SignedStatement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One statement as a JSON object; `says` tells which of them it is."""

    time: Count
    """By its author's clock, UTC milliseconds."""
    sig: _Bytes = ""

    signer: ClassVar[str]
    """The name of the field with the key that has to have signed it."""

    def written(self) -> bytes:
        return canonical_json(msgspec.to_builtins(self))

    def signed(self: "_S", seed: bytes) -> "_S":
        unsigned = msgspec.structs.replace(self, sig="")
        return msgspec.structs.replace(self, sig=b64url(ed25519_sign(seed, CONTEXT + unsigned.written())))

    def check(self) -> None:
        """Raise Unauthentic unless it is signed by whose statement it is."""
        unsigned = msgspec.structs.replace(self, sig="")
        key = did_key_bytes(getattr(self, self.signer))
        ed25519_verify(key, CONTEXT + unsigned.written(), b64url_bytes(self.sig))

    @property
    def digest(self) -> str:
        """What names this statement: base64url of SHA-256."""
        return b64url(sha256(self.written()))


_S = TypeVar("_S", bound=SignedStatement)


class Request(SignedStatement, frozen=True, tag="request", tag_field="says", kw_only=True):
    signer = "subscriber"

    topic: Hash
    """The group."""
    subscriber: Did
    publisher: Did
    nonce: _Bytes
    signs: _Bytes = ""
    """The key of the subscriber's acknowledgements, where the rules name another suite than that of DIDs."""


class Accept(SignedStatement, frozen=True, tag="accept", tag_field="says", kw_only=True):
    signer = "publisher"

    request: Hash
    """The digest of the request."""
    publisher: Did
    subscriber: Did
    alias: _Bytes
    start: _Bytes
    """`S_0`: the `Pre` of the first message, or of the overwrite."""
    overwrite: _Bytes = ""
    """The overwrite that leads from there to where the stream stands, where it stands elsewhere already. It counts here
    only: later it could jump over what was withheld."""
    rules: Hash
    """The digest of the rules (`case.Rules`)."""
    signs: _Bytes = ""
    """The key of the stream's messages, where the rules name another suite than that of DIDs."""
    after: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0
    """How many events of the publisher's own stand before the stream for this subscriber, where a group keeps a log."""
    key: _Bytes = ""
    """The key of the content, sealed for the subscriber; empty where the group's own keys hold it."""


class Confirm(SignedStatement, frozen=True, tag="confirm", tag_field="says", kw_only=True):
    signer = "subscriber"

    accept: Hash
    subscriber: Did


class Close(SignedStatement, frozen=True, tag="close", tag_field="says", kw_only=True):
    signer = "by"

    accept: Hash
    by: Did


Statement: TypeAlias = Request | Accept | Confirm | Close


class Subscription(msgspec.Struct, frozen=True):
    """The three statements with which one began, checked against each other."""

    request: Request
    accept: Accept
    confirm: Confirm
    suite: Suite = ED25519

    def __post_init__(self) -> None:
        """Raises Unauthentic where they do not belong together, or are not signed by the two."""
        for one in (self.request, self.accept, self.confirm):
            one.check()
        asked, given, read = self.request, self.accept, self.confirm
        same = (asked.subscriber, asked.publisher) == (given.subscriber, given.publisher)
        named = (given.request, read.accept) == (asked.digest, given.digest)
        if not same or not named or read.subscriber != asked.subscriber or asked.subscriber == asked.publisher:
            raise Unauthentic()
        sizes = len(self.alias), len(self.start), len(self.subscriber), len(self.publisher)
        if sizes != (ALIAS_BYTES, SIGNATURE_BYTES, KEY_BYTES, KEY_BYTES) or self.subscriber == self.publisher:
            raise Malformed(why="a subscription without a stream")
        if given.overwrite:
            told = parse_overwrite(b64url_bytes(given.overwrite), self.suite)
            place = told.subscriber, told.publisher, told.alias, told.before
            if place != (self.subscriber, self.publisher, self.alias, self.start):
                raise Unauthentic()

    @property
    def subscriber(self) -> bytes:
        return b64url_bytes(self.request.signs) or did_key_bytes(self.request.subscriber)

    @property
    def publisher(self) -> bytes:
        return b64url_bytes(self.accept.signs) or did_key_bytes(self.accept.publisher)

    @property
    def alias(self) -> bytes:
        return b64url_bytes(self.accept.alias)

    @property
    def start(self) -> bytes:
        return b64url_bytes(self.accept.start)

    @property
    def head(self) -> bytes:
        """Behind which signature the subscriber begins to listen."""
        if not self.accept.overwrite:
            return self.start
        return parse_overwrite(b64url_bytes(self.accept.overwrite), self.suite).then


def parse_statement(written: bytes) -> Statement:
    """One of them, not yet checked. Raises Malformed."""
    try:
        found: Statement = msgspec.convert(strict_json(written, STATEMENT_BYTES_MAX), Statement)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a statement about a subscription: {error}") from None
    return found
