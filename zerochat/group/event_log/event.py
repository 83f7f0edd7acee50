"""The event record: the canonical, hash-chained form of every membership event, post and annotation.

An event's id is the SHA-256 of its canonical form with the hash of its body in place of the body, and its mark. So an
event whose content was erased keeps its id, and its chain stays verifiable. `pre` and `seq` link each author's events
into one chain, so no omission goes unnoticed. `deps` are the causal dependencies that block delivery; `conc` are the
other heads that the author had seen, which do not block.

Membership events carry the author's signature over the id in every kind of group. Posts and annotations
(`messages/bodies.py`) carry none in pairwise groups, where the envelope authenticates them and they stay deniable,
until the author signs its next membership event, whose `pre` leads to them. Where the keys sign posts, those of one
message share a signature (`tree_signature.py`).
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from zerochat.crypto.encoding import (
    b64url,
    b64url_bytes,
    canonical_checked,
    canonical_json,
    did_key_bytes,
    strict_json,
)
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify, sha256
from zerochat.crypto.structs import Redacted
from zerochat.errors import Malformed
from zerochat.group.event_log import tree_signature
from zerochat.group.event_log.tree_signature import Leaf

VERSION = 1
RECORD_BYTES_MAX = 96 * 1024
"""The largest text post with its header as JSON, unless it consists mostly of line ends; it still fits one envelope
after base64."""
SIGNATURE_FIELD_BYTES = 95
"""What a signature of its own adds to a record."""
HEADER_BYTES_MAX = 4 * 1024
"""A record without its body: 32 ids of 43 characters, and some words and numbers."""
CONTROL_BYTES_MAX = 8 * 1024
"""A membership event has about 1.6 kB, most of it a DID document; every member stores all of them."""
DEPS_MAX = 16
CONC_MAX = 16
"""Simulated causal chats of a hundred members have at most ten heads; Matrix has a limit of twenty for the same reason.
"""

GENESIS, ADD, LEAVE, REMOVE, VOTE = "genesis", "add", "leave", "remove", "vote"
ROLE, LABEL, TERMS, UPGRADE = "role", "label", "terms", "upgrade"
POST, EDIT, DELETE, REACT, TOPIC, ANNOUNCE = "post", "edit", "delete", "react", "topic", "announce"
VERDICT = "verdict"
PINS = "pins"
"""The types of content (`messages/bodies.py`)."""
CONTROL = frozenset({GENESIS, ADD, LEAVE, REMOVE, VOTE, ROLE, LABEL, TERMS, UPGRADE})
"""The types of membership events, with terms and upgrades: always signed, and sent to every member."""

LASTING = CONTROL | {ANNOUNCE, VERDICT}
"""The types of events whose content is never erased: membership, and what bots can do and judges have found."""

SIGNATURE_CONTEXT = b"zerochat/event/1\n"

ERASED = "erased"
"""The field with which an erased body keeps its hash."""
MARK = "mark"
"""The field of a body that only its author can check (`sync/stale_profile.py`). It stays when the content is erased, so
the id covers it apart from the rest."""
EXPIRED = "expired"
"""In a log, the type of an event whose content was erased; its record has the one that its author gave it."""

Id = Annotated[str, msgspec.Meta(min_length=43, max_length=43, pattern="^[A-Za-z0-9_-]{43}$")]
Did = Annotated[str, msgspec.Meta(max_length=64, pattern="^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]

_HASH = re.compile("[A-Za-z0-9_-]{43}")
_MARK = re.compile("[A-Za-z0-9_-]{0,16}")

_T = TypeVar("_T")


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schema of a received record."""

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
    sig: Annotated[str, msgspec.Meta(max_length=tree_signature.CHARS_MAX)] = ""


class Event(Redacted, frozen=True, dict=True):
    """One event of a group's log. Times in UTC milliseconds; `seq` counts the author's events from 1.

    Derived values, such as its id and its bytes, are cached with it.
    """

    REDACTED = ("body", "sig")

    group: str
    """The id of the group's genesis event; empty in the genesis event itself."""
    type: str
    author: str
    seq: int
    pre: str
    """The id of the author's previous event; empty for the first one."""
    deps: tuple[str, ...]
    conc: tuple[str, ...]
    lamport: int
    time: int
    body: Mapping[str, Any]
    sig: str = ""
    """base64url of the author's Ed25519 signature over the id, or over a tree that has it; or empty."""

    def _header(self, body: object) -> dict[str, Any]:
        return {
            "v": VERSION,
            "group": self.group,
            "type": self.type,
            "author": self.author,
            "seq": self.seq,
            "pre": self.pre,
            "deps": self.deps,
            "conc": self.conc,
            "lamport": self.lamport,
            "time": self.time,
            "body": body,
        }

    @cached_property
    def id(self) -> str:
        """base64url of SHA-256 over the canonical header, with the hash of the body in its place and the mark (43
        characters)."""
        header = self._header(self.body_hash)
        if MARK in self.body:
            header[MARK] = self.body[MARK]
        return b64url(sha256(canonical_checked(header)))

    @property
    def _marked(self) -> dict[str, Any]:
        return {MARK: self.body[MARK]} if MARK in self.body else {}

    @property
    def unmarked(self) -> "Event":
        """The same event without its mark."""
        return replace(self, body={name: value for name, value in self.body.items() if name != MARK})

    @cached_property
    def body_hash(self) -> str:
        """base64url of SHA-256 over the canonical body without its mark (43 characters); the same after erasure."""
        body, encoded = self.body, self._body_json
        if ERASED in body:
            return str(body[ERASED])
        if MARK in body:
            encoded = canonical_checked({name: value for name, value in body.items() if name != MARK})
        return b64url(sha256(encoded))

    @cached_property
    def _body_json(self) -> bytes:
        """The canonical bytes of the body."""
        return canonical_json(self.body)

    @property
    def is_erased(self) -> bool:
        """Whether only the hash of its content is left."""
        return ERASED in self.body

    @property
    def stored_type(self) -> str:
        """Its type in a log."""
        return EXPIRED if self.is_erased else self.type

    def marked(self, mark: str) -> "Event":
        """The same event with our mark in its body."""
        return self._kept(replace(self, body={**self.body, MARK: mark}), "body_hash")

    def _kept(self, changed: "Event", *names: str) -> "Event":
        """A changed copy of this event, with what is cached under these names, on which the change has no effect."""
        changed.__dict__.update({name: self.__dict__[name] for name in names if name in self.__dict__})
        return changed

    def erased(self) -> "Event":
        """The same event without its content."""
        return replace(self, body={ERASED: self.body_hash, **self._marked})

    @property
    def wire(self) -> dict[str, Any]:
        """The record as a JSON object, with its signature where it has one."""
        record = self._header(self.body)
        return {**record, "sig": self.sig} if self.sig else record

    @cached_property
    def record(self) -> bytes:
        """The canonical bytes of the record, as the log stores them."""
        record = self._header(msgspec.Raw(self._body_json))
        return canonical_checked({**record, "sig": self.sig} if self.sig else record)  # the schema checks other fields

    @cached_property
    def _worked_out(self) -> dict[object, Any]:
        return {}

    def memoised(self, work: "Callable[[Event], _T]") -> _T:
        """The result of `work` on this event, computed once: an event never changes."""
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
        """The same event, signed with this Ed25519 seed."""
        return self.with_signature(b64url(ed25519_sign(seed, SIGNATURE_CONTEXT + self.id.encode())))

    def with_signature(self, sig: str, leaf: Leaf | None = None) -> "Event":
        """The same event with this signature; `leaf`: its place, if it shares the signature with others."""
        signed = self._kept(replace(self, sig=sig), "body_hash", "id")
        if leaf is not None:
            signed.__dict__["leaf"] = leaf
        if not self.sig and "record" in self.__dict__:
            before, time, after = self.record.rpartition(b',"time":')  # members are sorted
            signed.__dict__["record"] = b'%b,"sig":"%b"%b%b' % (before, sig.encode(), time, after)
        return signed

    @property
    def is_leaf(self) -> bool:
        """Whether one signature is of this event and of others."""
        return len(self.sig) > tree_signature.PLAIN_CHARS

    def shares_signature(self, other: "Event") -> bool:
        """Whether one signature is of both. Raises Malformed or Unauthentic."""
        return self.is_leaf and other.is_leaf and self.leaf.root == other.leaf.root

    @cached_property
    def leaf(self) -> Leaf:
        """Its place among those with the same signature. Raises Malformed or Unauthentic."""
        return tree_signature.leaf_of(self.sig, self.id)

    def accepted(self) -> "Event":
        """This event of our own as others parse it. Raises Malformed where they would reject it."""
        return self._kept(parse_event(self.wire), "body_hash", "id")

    def check_signature(self) -> None:
        """Raise Unauthentic unless `sig` is the author's signature over this event."""
        public = did_key_bytes(self.author)
        if self.is_leaf:
            tree_signature.verify(public, self.leaf.root)
        else:
            ed25519_verify(public, SIGNATURE_CONTEXT + self.id.encode(), b64url_bytes(self.sig))


def parse_event(obj: object) -> Event:
    """The event in a JSON object from a peer. Its signature is not checked here. Raises Malformed."""
    event = _event(obj)
    if len(event.record) > (CONTROL_BYTES_MAX if event.is_control else RECORD_BYTES_MAX):
        raise Malformed(why="event record: too long")
    if event.type == EXPIRED:  # in our log it would count as erased, with its content
        raise Malformed(why="event record: a type that logs use")
    if len(event.sig) not in (0, tree_signature.PLAIN_CHARS):
        if event.is_control:
            raise Malformed(why="event record: a membership event without a signature of its own")
        tree_signature.check_form(event.sig)
    match event.body:
        case {"contact": [str()]}:
            # The wire form of a contact document (`wire/event_runs.py`): relaying it would change the event's id.
            raise Malformed(why="event record: a contact that is not a DID")
    return event


def _event(obj: object) -> Event:
    try:
        shape = msgspec.convert(obj, _Shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"event record: {error}") from None
    for name in (shape.group, shape.pre):
        if name and len(name) != 43:
            raise Malformed(why="event record: an id of the wrong length")
    if not (_is_erased_body(shape) if ERASED in shape.body else _is_mark(shape)):
        raise Malformed(why="event record: an invalid mark or erased body")
    if (shape.group == "") != (shape.type == GENESIS) or (shape.seq == 1) != (shape.pre == ""):
        raise Malformed(why="event record: an inconsistent chain start")
    return Event(*astuple(shape)[1:])  # all but the version


def _is_mark(shape: _Shape) -> bool:
    """Whether the mark is one, if there is any: an erased record keeps it."""
    mark = shape.body.get(MARK, "")
    return isinstance(mark, str) and _MARK.fullmatch(mark) is not None and (mark == "" or shape.type not in CONTROL)


def _is_erased_body(shape: _Shape) -> bool:
    """Whether this is what is left of a body: its hash, and the author's mark."""
    erased = shape.body[ERASED]
    is_hash = isinstance(erased, str) and _HASH.fullmatch(erased) is not None
    return shape.type not in LASTING and shape.body.keys() <= {ERASED, MARK} and is_hash and _is_mark(shape)


_DECODED_MAX: Final = 256
_decoded: dict[bytes, Event] = {}
"""By record: events that were delivered just now. Clients and the search index read them next."""


def keep_decoded(event: Event) -> None:
    """Spare the next `load_event` of this event's record the decoding."""
    if len(_decoded) >= _DECODED_MAX:
        _decoded.clear()
    _decoded[event.record] = event


def load_event(record: bytes) -> Event:
    """The event in a record of our own log, which is canonical. Raises Malformed."""
    event = _decoded.get(record)
    if event is None:
        event = _event(strict_json(record, size_max=RECORD_BYTES_MAX))
        event.__dict__["record"] = record
    return event


def foreign_event(record: bytes) -> Event:
    """The event in a record of unknown origin, such as a file, which need not be canonical. Raises Malformed."""
    return parse_event(strict_json(record, size_max=RECORD_BYTES_MAX))
