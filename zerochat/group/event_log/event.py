"""The event record: the one form of everything that a group says, whatever its keys, path and accountability.

An event is named by what it is: its id is the SHA-256 of its canonical form, so nobody can change it and keep the name.
`pre` and `seq` hang every author's events in one chain, in which nothing can be left out unnoticed. `deps` are the
causes that block delivery; `conc` are the other heads that the author had seen, which do not block. Together they say
all that the author knew.

Membership events carry the author's signature in every kind of group: they say who is in, and as what. What is said
in it (posts, and what becomes of them: `saying.py`) carries none in pairwise groups, so that its envelope alone vouches
for it and it can be repudiated; but only until its author signs the next membership event, whose `pre` leads to it.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key_bytes, strict_json
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify, sha256
from zerochat.crypto.redacted import Veiled
from zerochat.errors import Malformed

VERSION = 1
POST_BYTES_MAX = 64 * 1024
"""A long letter, in UTF-8 bytes; what is longer is a file."""
RECORD_BYTES_MAX = 96 * 1024
"""A post of the greatest size with its header, as JSON, if it is text and not mostly line ends; it still fits one
envelope after base64."""
HEADER_BYTES_MAX = 4 * 1024
"""All of a record but its body: 32 ids of 43 characters, and some words and numbers."""
CONTROL_BYTES_MAX = 8 * 1024
"""A membership event has some 1.6 kB, most of it a DID document; everybody keeps all of them."""
DEPS_MAX = 16
CONC_MAX = 16
"""A chat of a hundred members has ten heads at the very worst (protocol simulations of causal chats), so sixteen
suffice; Matrix has twenty for the same reason."""

GENESIS, ADD, LEAVE, REMOVE, VOTE = "genesis", "add", "leave", "remove", "vote"
ROLE, LABEL, TERMS = "role", "label", "terms"
POST, EDIT, DELETE, REACT, TOPIC, ANNOUNCE = "post", "edit", "delete", "react", "topic", "announce"
VERDICT = "verdict"
"""What is said, which has bodies of its own (`saying.py`)."""
CONTROL = frozenset({GENESIS, ADD, LEAVE, REMOVE, VOTE, ROLE, LABEL, TERMS})
"""The types that say who is in the group, and as what, and who keeps its log: always signed, and given to everybody."""

SIGNATURE_CONTEXT = b"zerochat/event/1\n"

Id = Annotated[str, msgspec.Meta(min_length=43, max_length=43, pattern="^[A-Za-z0-9_-]{43}$")]
Did = Annotated[str, msgspec.Meta(max_length=64, pattern="^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]

_T = TypeVar("_T")


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shape of a record as it arrives; anything else is malformed."""

    v: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    group: Annotated[str, msgspec.Meta(max_length=43)]
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=32, pattern="^[a-z][a-z0-9-]*$")]
    author: Did
    seq: Count
    pre: Annotated[str, msgspec.Meta(max_length=43)]
    deps: Annotated[tuple[Id, ...], msgspec.Meta(max_length=DEPS_MAX)]
    conc: Annotated[tuple[Id, ...], msgspec.Meta(max_length=CONC_MAX)]
    lamport: Count
    time: Count
    body: dict[str, Any]
    sig: Annotated[str, msgspec.Meta(max_length=86)] = ""


class Event(Veiled, frozen=True, dict=True):
    """One event of a group's log. Times in UTC milliseconds; `seq` counts the author's events from 1.

    What is worked out of it, its id and its bytes, is kept with it.
    """

    VEILED = ("body", "sig")

    group: str
    """The id of the group's genesis event; empty in the genesis event itself."""
    type: str
    author: str
    seq: int
    pre: str
    """The id of the author's previous event; empty when this is its first."""
    deps: tuple[str, ...]
    conc: tuple[str, ...]
    lamport: int
    time: int
    body: Mapping[str, Any]
    sig: str = ""
    """base64url of the author's Ed25519 signature over the id, or empty."""

    @cached_property
    def _header(self) -> dict[str, Any]:
        return {
            "v": VERSION,
            "group": self.group,
            "type": self.type,
            "author": self.author,
            "seq": self.seq,
            "pre": self.pre,
            "deps": list(self.deps),
            "conc": list(self.conc),
            "lamport": self.lamport,
            "time": self.time,
            "body": self.body,
        }

    @cached_property
    def id(self) -> str:
        """base64url of SHA-256 over the canonical record without its signature (43 characters)."""
        return b64url(sha256(self.unsigned))

    @cached_property
    def unsigned(self) -> bytes:
        """The canonical bytes of the record without its signature."""
        return canonical_json(self._header)

    @cached_property
    def wire(self) -> dict[str, Any]:
        """The record as a JSON object, with its signature where it has one."""
        return {**self._header, "sig": self.sig} if self.sig else self._header

    @cached_property
    def record(self) -> bytes:
        """The canonical bytes of the record: what the log keeps."""
        return canonical_json(self.wire) if self.sig else self.unsigned

    @cached_property
    def _worked_out(self) -> dict[object, Any]:
        return {}

    def once(self, work: "Callable[[Event], _T]") -> _T:
        """What `work` makes of this event, worked out the first time only: an event never changes."""
        if work not in self._worked_out:
            self._worked_out[work] = work(self)
        found: _T = self._worked_out[work]
        return found

    @property
    def is_control(self) -> bool:
        return self.type in CONTROL

    @property
    def group_id(self) -> str:
        """The group that this event belongs to: a genesis event names its own."""
        return self.group or self.id

    def signed(self, seed: bytes) -> "Event":
        """The same event with the signature of the Ed25519 key whose seed this is."""
        signature = b64url(ed25519_sign(seed, SIGNATURE_CONTEXT + self.id.encode()))
        return replace(self, sig=signature)

    def check_signature(self) -> None:
        """Raise Unauthentic unless `sig` is the author's signature over this very event."""
        ed25519_verify(did_key_bytes(self.author), SIGNATURE_CONTEXT + self.id.encode(), b64url_bytes(self.sig))


def parse_event(obj: object) -> Event:
    """The event in a JSON object from a peer. Its signature is not checked here. Raises Malformed."""
    event = _event(obj)
    if isinstance(obj, dict) and "sig" not in obj:
        event.__dict__["unsigned"] = event.__dict__["record"] = canonical_json(obj)
    if len(event.record) > (CONTROL_BYTES_MAX if event.is_control else RECORD_BYTES_MAX):
        raise Malformed(why="event record: too long")
    match event.body:
        case {"contact": [str()]}:
            # So it is written on its way (`wire/event_runs.py`), and whoever is told of it would hear another event.
            raise Malformed(why="event record: a contact that is no DID")
    return event


def _event(obj: object) -> Event:
    try:
        shape = msgspec.convert(obj, _Shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"event record: {error}") from None
    for name in (shape.group, shape.pre):
        if name and len(name) != 43:
            raise Malformed(why="event record: an id of the wrong length")
    if (shape.group == "") != (shape.type == GENESIS) or (shape.seq == 1) != (shape.pre == ""):
        raise Malformed(why="event record: a chain that begins in the wrong place")
    return Event(*astuple(shape)[1:])  # all but the version


def load_event(record: bytes) -> Event:
    """The event in a record from our own log, which stands there in its canonical form. Raises Malformed."""
    event = _event(strict_json(record, size_max=RECORD_BYTES_MAX))
    event.__dict__["record"] = record
    if not event.sig:
        event.__dict__["unsigned"] = record
    return event


def foreign_event(record: bytes) -> Event:
    """The event in a record from elsewhere, a file say, of which nobody knows whether it is canonical. Raises
    Malformed."""
    return parse_event(strict_json(record, size_max=RECORD_BYTES_MAX))
