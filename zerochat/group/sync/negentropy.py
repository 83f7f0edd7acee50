"""Range-based set reconciliation (Negentropy protocol, version 1): which events only one of two members has.

Both sides sort their events by (timestamp, id). The initiator sends one fingerprint of them all; where fingerprints of
a range differ, its parts are compared, until a range is small enough to list its ids. The messages follow
hoytech/negentropy, docs/negentropy-protocol-v1.md, and contain all state:

    message = initial_message(mine)                 # the initiator
    reply = respond(theirs, message, frame_max)     # the other side
    learned = process_response(mine, reply, frame_max)   # repeat with learned.next_message until it is None

One optimisation goes beyond the protocol: a side that sees a differing fingerprint first tries whether its own events
without one of them, or without the last few, have that fingerprint. Then the difference is found without another
message. The messages stay plain version 1, so other implementations interoperate.

A fingerprint is a hash of a sum, and an attacker that creates events can search for sets with equal sums to hide its
own events. So reconciliation repairs; it proves nothing.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from operator import lt
from typing import NamedTuple, TypeAlias

from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed

VERSION = 0x61
OTHER_VERSIONS = frozenset(range(0x60, 0x70)) - {VERSION}
SKIP, FINGERPRINT, ID_LIST = range(3)

MESSAGE_BYTES_MAX = 192 * 1024
"""The size limit of a message, ours or a peer's; in base64 it fits a DIDComm message."""
RANGES_MAX = 10_000
"""Ranges per message. A range takes at least 19 bytes, and may follow a skipped one."""
FRAME_BYTES_MIN = 4096
"""A smaller limit on messages would allow hardly any progress."""

PARTS_FIRST, PARTS = 32, 12
"""The parts of the whole set, and of every differing range: with fewer, a million events would take more than three
round trips; with more, scattered differences would take more bytes."""
PART_ITEMS_MIN = 4
LIST_IDS_MAX = 32
"""A range with at most so many events is listed, not split."""

GUESS_ITEMS_MAX = 4096
"""In a range of at most so many events, each is tried as the one that the other side lacks; at the end of the set, each
of so many suffixes."""
GUESSES_MAX = 48 * 1024
"""Tries per message: about a tenth of a second."""
CUT_BYTES_MIN = 2048
"""Other implementations end a message that is too long with a fingerprint of a part of the rest, which is no basis for
tries. None of their messages shorter than this is cut."""

_ID = 32
_CHUNK = 16
_DIGITS_MAX = 10
"""The digits of a 64-bit number, seven bits each."""
_MASK = 2**256 - 1
_REST_BYTES = 64
"""The size of the last fingerprint with a skipped range before it: 43 + 1 + 2 + 1 + 16."""
_LIST_HEAD_BYTES = 98
"""The size of a list without its ids, with a skipped range before it: 43 + 1 + 43 + 1 + 10."""

Bound: TypeAlias = tuple[int, bytes]
"""A timestamp, and a prefix of an id without trailing zeros: bounds compare as tuples."""
START: Bound = (0, b"")
END: Bound = (2**64 - 1, b"")
"""Beyond every event."""

RangeClaim: TypeAlias = bytes | frozenset[bytes] | None
"""One side's claim about a range: its fingerprint, all its ids, or nothing (skip)."""


class Outcome(NamedTuple):
    next_message: bytes | None
    """The next message; None: reconciliation is complete."""
    only_ours: list[bytes]
    """Ids that the other side lacks."""
    only_theirs: list[bytes]
    """Ids that we lack, as the other side claims."""


class Items:
    """An immutable set of events, by timestamp (0 to 2^64 - 2) and id (32 bytes).

    About 45 bytes per event. The sum of any range's ids is the difference of two prefix sums, of which every sixteenth
    is stored.
    """

    def __init__(self, items: Iterable[tuple[int, bytes]]) -> None:
        """Raises ValueError unless the items are sorted by (timestamp, id) and unique."""
        self._stamps = array("Q")
        self._sums = [0]
        ids = bytearray()
        source, last = iter(items), (-1, b"")
        while block := list(islice(source, 256 * _CHUNK)):
            if not (last < block[0] and all(map(lt, block, islice(block, 1, None)))):
                raise ValueError("items must be sorted, and all different")
            last = block[-1]
            stamps, names = zip(*block, strict=True)
            if last[0] >= END[0] or set(map(len, names)) != {_ID}:
                raise ValueError("timestamps are below 2^64 - 1, ids have 32 bytes")
            self._stamps.extend(stamps)
            ids += b"".join(names)
            numbers = [int.from_bytes(name, "little") for name in names]
            for start in range(0, len(numbers), _CHUNK):
                self._sums.append(self._sums[-1] + sum(numbers[start : start + _CHUNK]))
        self._ids = bytes(ids)

    def __len__(self) -> int:
        return len(self._stamps)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return ((stamp, self.id(index)) for index, stamp in enumerate(self._stamps))

    def id(self, index: int) -> bytes:
        return self._ids[index * _ID : (index + 1) * _ID]

    def ids(self, lower: int, upper: int) -> list[bytes]:
        return [self.id(index) for index in range(lower, upper)]

    def joined(self, lower: int, upper: int) -> bytes:
        return self._ids[lower * _ID : upper * _ID]

    def find(self, bound: Bound, lower: int = 0) -> int:
        """The number of items below the bound; at least `lower`."""
        stamp, prefix = bound
        first = bisect_left(self._stamps, stamp, lower)
        if not prefix:
            return first
        return bisect_left(range(len(self)), prefix, first, bisect_right(self._stamps, stamp, first), key=self.id)

    def cut(self, index: int) -> Bound:
        """The shortest bound between the item at `index` and its predecessor."""
        if self._stamps[index - 1] != self._stamps[index]:
            return self._stamps[index], b""
        before, after = self.id(index - 1), self.id(index)
        length = next(place for place in range(_ID) if before[place] != after[place]) + 1
        return self._stamps[index], after[:length]

    def fingerprint(self, lower: int, upper: int) -> bytes:
        """The 16-byte fingerprint of the items from `lower` to before `upper`."""
        return _fingerprint(self.sum(lower, upper), _varint(upper - lower))

    def sum(self, lower: int, upper: int) -> int:
        if upper - lower < _CHUNK:
            return sum(self.numbers(lower, upper))
        return self._sum_before(upper) - self._sum_before(lower)

    def _sum_before(self, index: int) -> int:
        chunk, rest = divmod(index, _CHUNK)
        return self._sums[chunk] + sum(self.numbers(index - rest, index))

    def numbers(self, lower: int, upper: int) -> Iterator[int]:
        """The ids as little-endian numbers."""
        ids = self._ids
        return (int.from_bytes(ids[at : at + _ID], "little") for at in range(lower * _ID, upper * _ID, _ID))


def _fingerprint(total: int, count: bytes) -> bytes:
    return sha256((total & _MASK).to_bytes(32, "little") + count)[:16]


# --- the two sides ----------------------------------------------------------------------------------------------------


def initial_message(items: Items) -> bytes:
    """The first message: one fingerprint of all items."""
    message = _Writer(items, FRAME_BYTES_MIN)
    message.compare(0, len(items), END)
    return message.done()


def respond(items: Items, message: bytes, frame_max: int) -> bytes:
    """The answer to a peer's message, of at most `frame_max` bytes; one fingerprint stands for what does not fit.

    Raises Malformed. A message of another protocol version is answered with our version byte.
    """
    if message and message[0] in OTHER_VERSIONS:
        return bytes([VERSION])
    reply, guesses = _Writer(items, frame_max), _Guesses(items, message)
    lower = 0
    for bound, claim in _read(message):
        if reply.full:
            break
        upper = items.find(bound, lower)
        if _matches(items, lower, upper, claim):
            reply.skip(bound)
        elif isinstance(claim, bytes) and (run := guesses.lacking(lower, upper, bound, claim)):
            first, end = run
            if first > lower:
                reply.skip(items.cut(first))
            reply.add_ids(first, end, bound if end == upper else items.cut(end))
            reply.skip(bound)
        elif isinstance(claim, bytes) and upper - lower > LIST_IDS_MAX:
            reply.split(lower, upper, bound)
        else:
            reply.add_ids(lower, upper, bound)
        lower = upper
    return reply.done()


def process_response(items: Items, message: bytes, frame_max: int) -> Outcome:
    """The differences in the answer to our last message, and the next message, of at most `frame_max` bytes.

    An id may be reported twice where messages were full, since the rest is compared anew. A lying peer can go on for
    ever: the caller limits the rounds. Raises Malformed.
    """
    only_ours: list[bytes] = []
    only_theirs: list[bytes] = []
    query, guesses = _Writer(items, frame_max), _Guesses(items, message)
    lower = 0
    for bound, claim in _read(message):
        if query.full:
            break
        upper = items.find(bound, lower)
        if isinstance(claim, frozenset):
            our_ids = items.ids(lower, upper)
            only_ours += [name for name in our_ids if name not in claim]
            only_theirs += claim.difference(our_ids)
            query.skip(bound)
        elif _matches(items, lower, upper, claim):
            query.skip(bound)
        elif claim is not None and (run := guesses.lacking(lower, upper, bound, claim)):
            only_ours += items.ids(*run)
            query.skip(bound)
        elif upper - lower > LIST_IDS_MAX:
            query.split(lower, upper, bound)
        else:  # a list would be answered with a list: requesting theirs alone is half as much
            query.compare(lower, upper, bound)
        lower = upper
    return Outcome(query.done() if query.asks else None, only_ours, sorted(only_theirs))


def _matches(items: Items, lower: int, upper: int, claim: RangeClaim) -> bool:
    """Whether this claim matches our items from `lower` to before `upper`."""
    if claim is None:
        return True
    if isinstance(claim, bytes):
        return claim == items.fingerprint(lower, upper)
    return len(claim) == upper - lower and claim.issuperset(items.ids(lower, upper))


class _Guesses:
    """Searches for the items that the other side lacks, within a budget of tries."""

    def __init__(self, items: Items, message: bytes) -> None:
        self._items = items
        self._left = GUESSES_MAX
        self._whole = len(message) < CUT_BYTES_MIN

    def lacking(self, lower: int, upper: int, bound: Bound, theirs: bytes) -> tuple[int, int] | None:
        """The one item, or the suffix of all our items, without which the range would have the fingerprint `theirs`:
        from, before."""
        if bound == END and not self._whole:
            return None
        items = self._items
        total = items.sum(lower, upper)
        if upper == len(items):
            first, left = max(lower, upper - GUESS_ITEMS_MAX, upper - self._left), total
            self._left -= upper - first
            last = [*items.numbers(first, upper)]
            for index in range(upper - 1, first - 1, -1):
                left -= last[index - first]
                if _fingerprint(left, _varint(index - lower)) == theirs:
                    return index, upper
        if 0 < upper - lower <= min(GUESS_ITEMS_MAX, self._left):
            self._left -= upper - lower
            count = _varint(upper - lower - 1)
            for index, number in enumerate(items.numbers(lower, upper), lower):
                if _fingerprint(total - number, count) == theirs:
                    return index, index + 1
        return None


# --- encoding ---------------------------------------------------------------------------------------------------------


class _Writer:
    """A message in the making, range by range. When it is `full`, `done` covers the rest."""

    def __init__(self, items: Items, frame_max: int) -> None:
        if not FRAME_BYTES_MIN <= frame_max <= MESSAGE_BYTES_MAX:
            raise ValueError(f"a message may have {FRAME_BYTES_MIN} to {MESSAGE_BYTES_MAX} bytes")
        self.full = False
        self._items = items
        self._room = frame_max - _REST_BYTES
        self._out = bytearray([VERSION])
        self._stamp = 0
        self._written = self._passed = START
        """The end of the ranges written, and of those processed: the ranges between are skipped."""

    @property
    def asks(self) -> bool:
        return len(self._out) > 1 or self.full

    def skip(self, bound: Bound) -> None:
        if not self.full:
            self._passed = bound

    def compare(self, lower: int, upper: int, bound: Bound) -> None:
        """Add our fingerprint of a range, or an empty list if we have nothing there."""
        if lower == upper:
            self._add(bound, bytes([ID_LIST, 0]))
        else:
            self._add(bound, bytes([FINGERPRINT]) + self._items.fingerprint(lower, upper))

    def split(self, lower: int, upper: int, bound: Bound) -> None:
        """Add the fingerprints of a range's parts."""
        parts = PARTS_FIRST if upper - lower == len(self._items) else PARTS
        parts = min(parts, (upper - lower) // PART_ITEMS_MIN)
        cuts = [lower + (upper - lower) * part // parts for part in range(parts + 1)]
        for first, end in pairwise(cuts):
            self.compare(first, end, bound if end == upper else self._items.cut(end))

    def add_ids(self, lower: int, upper: int, bound: Bound) -> None:
        """Add our ids in a range, as many as fit."""
        fits = max(0, self._room - len(self._out) - _LIST_HEAD_BYTES) // _ID
        if upper - lower <= fits or lower == upper:
            self._add(bound, self._list_of(lower, upper))
            return
        if fits:
            self._add(self._items.cut(lower + fits), self._list_of(lower, lower + fits))
        self.full = True

    def _list_of(self, lower: int, upper: int) -> bytes:
        return bytes([ID_LIST]) + _varint(upper - lower) + self._items.joined(lower, upper)

    def done(self) -> bytes:
        if self.full:
            self.full, self._room = False, self._room + _REST_BYTES
            self.compare(self._items.find(self._passed), len(self._items), END)
            assert not self.full
        return bytes(self._out)

    def _add(self, bound: Bound, content: bytes) -> None:
        """Add a range from `_passed` to this bound."""
        if self.full:
            return
        piece, stamp = bytearray(), self._stamp
        if self._passed != self._written:
            piece += _bound(self._passed, stamp)
            piece.append(SKIP)
            stamp = self._passed[0]
        piece += _bound(bound, stamp)
        piece += content
        if len(self._out) + len(piece) > self._room:
            self.full = True
            return
        self._out += piece
        self._stamp, self._written, self._passed = bound[0], bound, bound


def _bound(bound: Bound, last: int) -> bytes:
    """The encoding of a bound after one with the timestamp `last`."""
    stamp, prefix = bound
    return (_varint(0) if bound == END else _varint(1 + stamp - last)) + bytes([len(prefix)]) + prefix


def _varint(value: int) -> bytes:
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F | 0x80)
    return bytes(reversed(digits))


# --- decoding ---------------------------------------------------------------------------------------------------------


def _read(message: bytes) -> list[tuple[Bound, RangeClaim]]:
    """The ranges of a peer's message by their upper bounds, in order. Raises Malformed."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise Malformed(why=f"a reconciliation message of more than {MESSAGE_BYTES_MAX} bytes")
    source = _Reader(message)
    if source.take(1)[0] != VERSION:
        raise Malformed(why="an unknown reconciliation version")
    ranges: list[tuple[Bound, RangeClaim]] = []
    last = START
    while source.left():
        if last == END or len(ranges) == RANGES_MAX:
            raise Malformed(why="a range after the last one")
        bound = source.bound(last[0])
        if bound <= last:
            raise Malformed(why="ranges out of order")
        ranges.append((bound, source.claim()))
        last = bound
    return ranges


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left():
            raise Malformed(why="a truncated reconciliation message")
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        value = 0
        digits = self._data[self._at : self._at + _DIGITS_MAX]
        for place, digit in enumerate(digits, 1):
            if digit == 0x80 and place == 1:
                raise Malformed(why="a number with a leading zero")
            value = value << 7 | digit & 0x7F
            if digit < 0x80:
                self._at += place
                return value
        if len(digits) < _DIGITS_MAX:
            raise Malformed(why="a truncated reconciliation message")
        raise Malformed(why=f"a number of more than {_DIGITS_MAX} digits")

    def bound(self, last: int) -> Bound:
        offset, length = self.varint(), self.varint()
        if length > _ID:
            raise Malformed(why="an id of more than 32 bytes")
        prefix = self.take(length).rstrip(b"\0")
        stamp = END[0] if offset == 0 else last + offset - 1
        if stamp > END[0] or (stamp == END[0] and (offset or length)):
            raise Malformed(why="a bound beyond the last one")
        return stamp, prefix

    def claim(self) -> RangeClaim:
        match self.varint():
            case 0:
                return None
            case 1:
                return self.take(16)
            case 2:
                count = self.varint()
                joined = self.take(count * _ID)
                ids = frozenset(joined[at : at + _ID] for at in range(0, len(joined), _ID))
                if len(ids) != count:
                    raise Malformed(why="an id twice in one list")
                return ids
        raise Malformed(why="a range of an unknown kind")
