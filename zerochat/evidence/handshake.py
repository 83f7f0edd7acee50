"""Subscription handshake: signed request, accept and confirm statements, and a close.

    request   the subscriber requests a publisher's stream
    accept    the publisher names the stream, its current head, and the rules that both may be judged by
    confirm   the subscriber acknowledges the accept
    close     ends the subscription; a publisher's close counts from its place in the log, because it could be backdated

The judge requires all three: without them there was no subscription and no obligation.
"""

from typing import Annotated, ClassVar, TypeAlias, TypeVar

import msgspec

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key_bytes, strict_json
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify, sha256
from zerochat.crypto.structs import Count, Did
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.messages import ALIAS_BYTES, KEY_BYTES, SIGNATURE_BYTES, parse_overwrite
from zerochat.evidence.suite import ED25519, Suite

CONTEXT = b"zerochat/subscription/1\n"
STATEMENT_BYTES_MAX = 2048

Hash: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}$")]
_Bytes: TypeAlias = Annotated[str, msgspec.Meta(max_length=400, pattern="^[A-Za-z0-9_-]*$")]


class SignedStatement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A statement as a JSON object, tagged by `type`."""

    time: Count
    """Time by the author's clock, UTC ms."""
    sig: _Bytes = ""

    signer: ClassVar[str]
    """Name of the field with the signer's did:key."""

    def serialize(self) -> bytes:
        return canonical_json(msgspec.to_builtins(self))

    def signed(self: "_S", seed: bytes) -> "_S":
        unsigned = msgspec.structs.replace(self, sig="")
        return msgspec.structs.replace(self, sig=b64url(ed25519_sign(seed, CONTEXT + unsigned.serialize())))

    def check(self) -> None:
        """Verify the signature of the statement's author. Raises Unauthentic."""
        unsigned = msgspec.structs.replace(self, sig="")
        key = did_key_bytes(getattr(self, self.signer))
        ed25519_verify(key, CONTEXT + unsigned.serialize(), b64url_bytes(self.sig))

    @property
    def digest(self) -> str:
        """Identifier of the statement: base64url of SHA-256."""
        return b64url(sha256(self.serialize()))


_S = TypeVar("_S", bound=SignedStatement)


class Request(SignedStatement, frozen=True, tag="request", tag_field="type", kw_only=True):
    signer = "subscriber"

    topic: Hash
    """The group."""
    subscriber: Did
    publisher: Did
    nonce: _Bytes
    signing_key: _Bytes = ""
    """Key of the subscriber's acknowledgements, if the rules name another suite than Ed25519."""


class Accept(SignedStatement, frozen=True, tag="accept", tag_field="type", kw_only=True):
    signer = "publisher"

    request: Hash
    """Digest of the request."""
    publisher: Did
    subscriber: Did
    alias: _Bytes
    start: _Bytes
    """`S_0`: the `Pre` of the first message, or of the overwrite."""
    overwrite: _Bytes = ""
    """Overwrite from `start` to the current head of a running stream. Valid only here: a later one could skip withheld
    messages."""
    rules: Hash
    """Digest of the rules (`case.Rules`)."""
    signing_key: _Bytes = ""
    """Key of the stream's messages, if the rules name another suite than Ed25519."""
    after: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0
    """Number of the publisher's events before the stream's start for this subscriber, in a group with a log."""
    key: _Bytes = ""
    """Chain key of the stream, sealed for the subscriber; empty where the group's key mode distributes it."""


class Confirm(SignedStatement, frozen=True, tag="confirm", tag_field="type", kw_only=True):
    signer = "subscriber"

    accept: Hash
    subscriber: Did


class Close(SignedStatement, frozen=True, tag="close", tag_field="type", kw_only=True):
    signer = "author"

    accept: Hash
    author: Did


Statement: TypeAlias = Request | Accept | Confirm | Close


class Subscription(msgspec.Struct, frozen=True):
    """The three statements of a subscription, verified against each other."""

    request: Request
    accept: Accept
    confirm: Confirm
    suite: Suite = ED25519

    def __post_init__(self) -> None:
        """Raises Unauthentic for statements that do not belong together or are not signed, Malformed for bad sizes."""
        for one in (self.request, self.accept, self.confirm):
            one.check()
        request, accept, confirm = self.request, self.accept, self.confirm
        same = (request.subscriber, request.publisher) == (accept.subscriber, accept.publisher)
        named = (accept.request, confirm.accept) == (request.digest, accept.digest)
        if not same or not named or confirm.subscriber != request.subscriber or request.subscriber == request.publisher:
            raise Unauthentic()
        sizes = len(self.alias), len(self.start), len(self.subscriber), len(self.publisher)
        if sizes != (ALIAS_BYTES, SIGNATURE_BYTES, KEY_BYTES, KEY_BYTES) or self.subscriber == self.publisher:
            raise Malformed(why="a subscription without a stream")
        if accept.overwrite:
            overwrite = parse_overwrite(b64url_bytes(accept.overwrite), self.suite)
            place = overwrite.subscriber, overwrite.publisher, overwrite.alias, overwrite.before
            if place != (self.subscriber, self.publisher, self.alias, self.start):
                raise Unauthentic()

    @property
    def subscriber(self) -> bytes:
        return b64url_bytes(self.request.signing_key) or did_key_bytes(self.request.subscriber)

    @property
    def publisher(self) -> bytes:
        return b64url_bytes(self.accept.signing_key) or did_key_bytes(self.accept.publisher)

    @property
    def alias(self) -> bytes:
        return b64url_bytes(self.accept.alias)

    @property
    def start(self) -> bytes:
        return b64url_bytes(self.accept.start)

    @property
    def head(self) -> bytes:
        """Signature after which the subscriber's part of the stream begins."""
        if not self.accept.overwrite:
            return self.start
        return parse_overwrite(b64url_bytes(self.accept.overwrite), self.suite).then


def parse_statement(encoded: bytes) -> Statement:
    """Decode a statement without verifying it. Raises Malformed."""
    try:
        found: Statement = msgspec.convert(strict_json(encoded, STATEMENT_BYTES_MAX), Statement)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a subscription statement of another form ({error})") from None
    return found
