"""Proof file (`.zproof`): signed messages of a stream and their acknowledgements, verifiable by third parties.

JSON lines: a head, the messages in stream order, then acknowledgements with the statements of their subscriptions. A
succession stands where the author's key changes.

    {"zproof":1,"author":DID,"group":ID,"event":ID}        event: the proven event; absent: the whole stream
    {"message":BASE64URL,"key":BASE64URL}                  key: decrypts this message only
    {"succession":STATEMENT}                               the messages after it are signed with the successor's key
    {"ack":BASE64URL,"subscription":[request, accept, confirm]}

Proves: authorship of the messages, completeness between the first and the last, the content of messages with a key, and
that the signers acknowledged a message and its predecessors. Does not prove: times other than by the signers' clocks;
that a member without a signature lacks the message; that a
key was not stolen when it handed over; or that a signer did not renew its subscription in between and so
missed earlier messages (the maker of the file chooses its content).
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Struct, field

from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, did_key, did_key_bytes, strict_json
from zerochat.crypto.structs import Did
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX, Accept, Confirm, Request, Subscription, parse_statement
from zerochat.evidence.messages import ACK_BYTES, DATA_BYTES_MAX, Data, parse_ack, parse_data
from zerochat.evidence.succession import Succession, current_key, parse_succession

LINE_BYTES_MAX: Final = DATA_BYTES_MAX * 4 // 3 + 256
MESSAGES_MAX: Final = 1_000_000
SIGNERS_MAX: Final = 256

_Id = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}$")]


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The subject of a proof."""

    zproof: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    author: Did
    group: _Id
    event: Annotated[str, msgspec.Meta(max_length=43)] = ""


class MessageLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line with a message of the stream."""

    message: Annotated[str, msgspec.Meta(max_length=DATA_BYTES_MAX * 4 // 3 + 2)]
    key: Annotated[str, msgspec.Meta(pattern="^([A-Za-z0-9_-]{43})?$")] = ""


class SuccessionLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line with a change of the author's key."""

    succession: Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)]


class AckLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line with an acknowledgement."""

    ack: Annotated[str, msgspec.Meta(max_length=ACK_BYTES * 4 // 3)]
    subscription: tuple[
        Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)],
        Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)],
        Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)],
    ]


class Signer(Struct, frozen=True):
    """A member that acknowledged a message and its predecessors since the start of its subscription."""

    member: str
    at: int
    """Time of the acknowledgement by the signer's clock, UTC ms."""
    subscribed_at: int
    """Start of its subscription by the author's clock, UTC ms."""
    upto: int
    """`T` of the acknowledged message."""


class ProofResult(Struct):
    """Verified content of a proof."""

    head: Head
    messages: int = 0
    first: int = 0
    """`T` of the first message, UTC ms by the author's clock."""
    last: int = 0
    opened: list[tuple[Data, bytes]] = field(default_factory=list)
    """Messages with their keys; decryption is left to the caller, who knows the group's key mode."""
    signers: dict[str, Signer] = field(default_factory=dict)
    successions: list[Succession] = field(default_factory=list)

    @property
    def author(self) -> str:
        """The did:key of the author at the end of the stream."""
        return self.successions[-1].successor if self.successions else self.head.author

    @property
    def keys(self) -> list[bytes]:
        """The author's keys, in order."""
        return [did_key_bytes(did) for did in (self.head.author, *(one.successor for one in self.successions))]


# --- writing --------------------------------------------------------------------------------------------------------


def head_line(author: str, group: str, event: str = "") -> bytes:
    about = msgspec.to_builtins(Head(author=author, group=group, event=event))
    return compact_json({"zproof": 1, **about}) + b"\n"  # `omit_defaults` drops the version


def message_line(message: bytes, key: bytes = b"") -> bytes:
    return _line(MessageLine(b64url(message), b64url(key)))


def succession_line(statement: Succession) -> bytes:
    return _line(SuccessionLine(statement.serialize().decode()))


def ack_line(ack: bytes, subscription: Iterable[bytes]) -> bytes:
    """`subscription`: its encoded request, accept and confirm."""
    request, accept, confirm = (statement.decode() for statement in subscription)
    return _line(AckLine(b64url(ack), (request, accept, confirm)))


def _line(what: msgspec.Struct) -> bytes:
    return compact_json(msgspec.to_builtins(what)) + b"\n"


# --- reading --------------------------------------------------------------------------------------------------------


def check_proof(lines: Iterable[bytes]) -> ProofResult:
    """Verify a proof. Memory: 100 bytes per message, plus messages with a key. Raises Malformed for an invalid file,
    Unauthentic for an invalid signature or chain."""
    found = iter(lines)
    proven = ProofResult(_shape(next(found, b""), Head))
    times: dict[int, bytes] = {}
    alias, before = b"", b""
    for line in found:
        if line.startswith(b'{"ack"'):
            _check_ack(proven, _shape(line, AckLine), alias, times)
            continue
        if proven.signers:
            raise Malformed(why="messages after its acknowledgements")
        if line.startswith(b'{"succession"'):
            _check_succession(proven, _shape(line, SuccessionLine), before)
            continue
        entry = _shape(line, MessageLine)
        message = parse_data(b64url_bytes(entry.message))
        first = not proven.messages
        if message.publisher != did_key_bytes(proven.author):
            raise Unauthentic()
        if not first and (message.alias != alias or message.before != before or message.time <= proven.last):
            raise Unauthentic()
        if proven.messages >= MESSAGES_MAX:
            raise Malformed(why="too many messages")
        alias, before = message.alias, message.signature
        times[message.time] = message.signature
        proven.messages += 1
        proven.first, proven.last = proven.first or message.time, message.time
        if entry.key:
            proven.opened.append((message, b64url_bytes(entry.key)))
            if len(proven.opened) > SIGNERS_MAX:
                raise Malformed(why="too many message keys")
    if not proven.messages:
        raise Malformed(why="no message")
    return proven


def _check_succession(proven: ProofResult, line: SuccessionLine, before: bytes) -> None:
    """The author's key changes after the message with the signature `before`."""
    statement = parse_succession(line.succession.encode())
    if not before:
        raise Malformed(why="a succession before the first message")
    if statement.head != b64url(before):
        raise Unauthentic()
    current_key(proven.head.author, proven.head.group, [*proven.successions, statement])
    proven.successions.append(statement)


def _check_ack(proven: ProofResult, signed: AckLine, alias: bytes, times: Mapping[int, bytes]) -> None:
    ack = parse_ack(b64url_bytes(signed.ack))
    statements = [parse_statement(one.encode()) for one in signed.subscription]
    match statements:
        case [Request() as request, Accept() as accept, Confirm() as confirm]:
            subscription = Subscription(request, accept, confirm)
        case _:
            raise Malformed(why="an incomplete subscription")
    member = did_key(ack.subscriber)
    place = subscription.alias, subscription.subscriber, request.topic
    if subscription.publisher not in proven.keys or place != (alias, ack.subscriber, proven.head.group):
        raise Unauthentic()
    if ack.alias != alias or times.get(ack.time) != ack.of:
        raise Unauthentic()
    if proven.head.event and accept.time > proven.first:
        raise Unauthentic()  # the subscription began after the message
    if member in proven.signers or len(proven.signers) >= SIGNERS_MAX:
        raise Malformed(why="two signatures of one member")
    proven.signers[member] = Signer(member, ack.at, accept.time, ack.time)


_S = TypeVar("_S", bound=msgspec.Struct)


def _shape(line: bytes, shape: type[_S]) -> _S:
    try:
        return msgspec.convert(strict_json(line, LINE_BYTES_MAX), shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a line of another form ({error})") from None
