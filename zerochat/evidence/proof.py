"""A proof for somebody who was not there: what was said in a stream, by whom, and who has signed that it has it.

A file of JSON lines. The first says what it is about; then the messages, one behind the other, as they were sent; then
the acknowledgements, each with the three statements of the subscription that it belongs to.

    {"zproof":1,"author":DID,"group":ID,"event":ID}        event: what is proven; absent: that nothing is left out
    {"message":BASE64URL,"key":BASE64URL}                  key: opens this message and no other one
    {"ack":BASE64URL,"subscription":[request, accept, confirm]}

What it shows: that the author has signed these messages, that none is missing between the first and the last, what
stands in those whose key is here, and that others have signed that they have a message and all before it in the
stream. What it does not show: when that was, but by the signers' own clocks; that whoever has not signed lacks it; and
whether somebody who has signed had asked to hear the stream anew in between, so that something before that is missing
after all: who makes the file chooses what stands in it.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Struct, field

from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, did_key, did_key_bytes, strict_json
from zerochat.crypto.field_types import Did
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX, Accept, Confirm, Request, Subscription, parse_statement
from zerochat.evidence.messages import ACK_BYTES, DATA_BYTES_MAX, Data, parse_ack, parse_data

LINE_BYTES_MAX: Final = DATA_BYTES_MAX * 4 // 3 + 256
MESSAGES_MAX: Final = 1_000_000
SIGNERS_MAX: Final = 256

_Id = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}$")]


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a proof is about."""

    zproof: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    author: Did
    group: _Id
    event: Annotated[str, msgspec.Meta(max_length=43)] = ""


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message of the stream."""

    message: Annotated[str, msgspec.Meta(max_length=DATA_BYTES_MAX * 4 // 3 + 2)]
    key: Annotated[str, msgspec.Meta(pattern="^([A-Za-z0-9_-]{43})?$")] = ""


class Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An acknowledgement."""

    ack: Annotated[str, msgspec.Meta(max_length=ACK_BYTES * 4 // 3)]
    subscription: tuple[
        Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)],
        Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)],
        Annotated[str, msgspec.Meta(max_length=STATEMENT_BYTES_MAX)],
    ]


class Signer(Struct, frozen=True):
    """Somebody who has signed that it has a message, and all before it in the stream from where it began to hear it."""

    member: str
    at: int
    """When it signed, by its own clock, UTC ms."""
    since: int
    """When it was let hear the stream, by the author's clock, UTC ms."""
    upto: int
    """`T` of the message that it has signed for."""


class Proven(Struct):
    """What a proof shows."""

    head: Head
    messages: int = 0
    first: int = 0
    """`T` of the first message, UTC ms by the author's clock."""
    last: int = 0
    opened: list[tuple[Data, bytes]] = field(default_factory=list)
    """The messages whose key is there, with it. Whether it opens them is for whoever knows the keys of the group."""
    signers: dict[str, Signer] = field(default_factory=dict)


# --- writing --------------------------------------------------------------------------------------------------------


def head_line(author: str, group: str, event: str = "") -> bytes:
    about = msgspec.to_builtins(Head(author=author, group=group, event=event))
    return compact_json({"zproof": 1, **about}) + b"\n"  # also while there is one form only


def message_line(message: bytes, key: bytes = b"") -> bytes:
    return _line(Said(b64url(message), b64url(key)))


def ack_line(ack: bytes, subscription: Iterable[bytes]) -> bytes:
    """`subscription`: its request, accept and confirm, as they were written."""
    asked, given, read = (statement.decode() for statement in subscription)
    return _line(Signed(b64url(ack), (asked, given, read)))


def _line(what: msgspec.Struct) -> bytes:
    return compact_json(msgspec.to_builtins(what)) + b"\n"


# --- reading --------------------------------------------------------------------------------------------------------


def check_proof(lines: Iterable[bytes]) -> Proven:
    """What these lines show. Keeps 100 bytes for each message, however long it is, and those whole that come with their
    key. Raises Malformed for what is no proof, and Unauthentic for one that proves nothing of the kind."""
    found = iter(lines)
    proven = Proven(_shape(next(found, b""), Head))
    times: dict[int, bytes] = {}
    alias, before = b"", b""
    for line in found:
        if line.startswith(b'{"ack"'):
            _check_ack(proven, _shape(line, Signed), alias, times)
            continue
        if proven.signers:
            raise Malformed(why="a proof with messages behind its signatures")
        said = _shape(line, Said)
        message = parse_data(b64url_bytes(said.message))
        first = not proven.messages
        if message.publisher != did_key_bytes(proven.head.author):
            raise Unauthentic()
        if not first and (message.alias != alias or message.before != before or message.time <= proven.last):
            raise Unauthentic()
        if proven.messages >= MESSAGES_MAX:
            raise Malformed(why="a proof with more messages than anybody reads")
        alias, before = message.alias, message.signature
        times[message.time] = message.signature
        proven.messages += 1
        proven.first, proven.last = proven.first or message.time, message.time
        if said.key:
            proven.opened.append((message, b64url_bytes(said.key)))
            if len(proven.opened) > SIGNERS_MAX:
                raise Malformed(why="a proof that opens more than anybody reads")
    if not proven.messages:
        raise Malformed(why="a proof without a message")
    return proven


def _check_ack(proven: Proven, signed: Signed, alias: bytes, times: Mapping[int, bytes]) -> None:
    ack = parse_ack(b64url_bytes(signed.ack))
    statements = [parse_statement(one.encode()) for one in signed.subscription]
    match statements:
        case [Request() as asked, Accept() as given, Confirm() as read]:
            subscription = Subscription(asked, given, read)
        case _:
            raise Malformed(why="a proof with other statements than those of a subscription")
    member = did_key(ack.subscriber)
    place = subscription.publisher, subscription.alias, subscription.subscriber, asked.topic
    if place != (did_key_bytes(proven.head.author), alias, ack.subscriber, proven.head.group):
        raise Unauthentic()
    if ack.alias != alias or times.get(ack.time) != ack.of:
        raise Unauthentic()
    if proven.head.event and given.time > proven.first:
        raise Unauthentic()  # it shows nothing of what was said before it could hear
    if member in proven.signers or len(proven.signers) >= SIGNERS_MAX:
        raise Malformed(why="a proof with two signatures of one member")
    proven.signers[member] = Signer(member, ack.at, given.time, ack.time)


_S = TypeVar("_S", bound=msgspec.Struct)


def _shape(line: bytes, shape: type[_S]) -> _S:
    try:
        return msgspec.convert(strict_json(line, LINE_BYTES_MAX), shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a proof: {error}") from None
