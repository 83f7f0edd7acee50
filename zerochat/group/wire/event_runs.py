"""Event runs: consecutive events of one author in one compact encoding, without what can be derived.

The group, the author and the predecessor's id repeat in every record. A run contains them once or not at all, since
each event's id follows from its content. A hundred short posts take about fifty bytes each, so a burst fits the initial
congestion window of a wide-area line. Decoding restores the same bytes: ids are computed anew, and so are the paths of
events that share a signature (`event_log/tree_signature.py`): a run contains that once, with the subtrees of the events
outside of the run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from zerochat.crypto.compression import compress, decompress
from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, strict_json
from zerochat.didcomm.did import DID_CHARS_MAX, peer4, peer4_document
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.errors import Malformed
from zerochat.group.event_log import tree_signature
from zerochat.group.event_log.event import POST, RECORD_BYTES_MAX, VERSION, Did, Event, parse_event

_T = TypeVar("_T")

RUN_EVENTS_MAX = tree_signature.LEAVES_MAX
"""Events in one message."""
RUNS_MAX = 64
RUN_BYTES_MAX = 48 * 1024
"""The bytes of the records in one message, as stored; a larger record travels alone."""

COMPRESS_BYTES_MIN = 400
"""Below this, compression would not reach a smaller padding size."""

SIGNATURE_CHARS_MAX = 686
"""A signature with the subtrees beside consecutive leaves: at most seven on each side."""

_Link = Annotated[str, msgspec.Meta(max_length=43)]
Item: TypeAlias = list[Any]
"""The Lamport time minus the previous event's; the author's time minus that; the body; then, unless they have their
usual values, the type (`post`), `deps` and `conc` (none) and the signature (none)."""
_USUAL: Final[list[Any]] = [POST, [], []]


class SignedItems(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Items of a run that share a signature: consecutive leaves of its tree."""

    first: Annotated[int, msgspec.Meta(ge=0, lt=RUN_EVENTS_MAX)]
    """The first of them."""
    count: Annotated[int, msgspec.Meta(ge=1, le=RUN_EVENTS_MAX)]
    signature: Annotated[str, msgspec.Meta(max_length=SIGNATURE_CHARS_MAX)]
    """Of consecutive leaves (`TreeSignature`)."""


class Run(msgspec.Struct, frozen=True):
    """Consecutive events of one author, in the group of the message."""

    seq: Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
    """Of the first event."""
    pre: _Link
    """Of the first event."""
    items: Annotated[list[Item], msgspec.Meta(min_length=1, max_length=RUN_EVENTS_MAX)]
    author: Did | None = None
    """None: the sender of the message."""
    signed: Annotated[list[SignedItems], msgspec.Meta(max_length=RUN_EVENTS_MAX)] = []
    """In order. These items have no signature of their own."""


def write_runs(events: Iterable[Event], sender: str = "") -> list[dict[str, Any]]:
    """The runs that encode these events in order, for a message of this member."""
    return [_run(consecutive, sender) for consecutive in _consecutive(events)]


def _consecutive(events: Iterable[Event]) -> Iterator[list[Event]]:
    found: list[Event] = []
    for event in events:
        if found:
            before = found[-1]
            # An author's places may be inconsistent.
            follows = (event.author, event.pre, event.seq) == (before.author, before.id, before.seq + 1)
            if not follows or len(found) == RUN_EVENTS_MAX:
                yield found
                found = []
        found.append(event)
    if found:
        yield found


def _run(events: Sequence[Event], sender: str) -> dict[str, Any]:
    first = events[0]
    run: dict[str, Any] = {"seq": first.seq, "pre": first.pre}
    run["items"] = [_item(event, before) for event, before in zip(events, [None, *events], strict=False)]
    if first.author != sender:
        run["author"] = first.author
    if signed := list(_signed_items(events)):
        run["signed"] = signed
    return run


def _signed_items(events: Sequence[Event]) -> Iterator[list[Any]]:
    """The signatures that several events share (`SignedItems`)."""
    place = 0
    while place < len(events):
        end = place + 1
        while end < len(events) and _continues(events[end - 1], events[end]):
            end += 1
        if events[place].is_leaf:
            yield [place, end - place, tree_signature.joined(events[place].sig, events[end - 1].sig)]
        place = end


def _continues(event: Event, following: Event) -> bool:
    """Whether these are consecutive leaves under one signature."""
    return event.shares_signature(following) and event.leaf.index + 1 == following.leaf.index


def _item(event: Event, before: Event | None) -> Item:
    lamport = before.lamport if before else 0
    signature = "" if event.is_leaf else event.sig
    optional: list[Any] = [event.type, list(event.deps), list(event.conc), signature]
    defaults = [*_USUAL, ""]
    while optional and optional[-1] == defaults[len(optional) - 1]:
        optional.pop()
    return [event.lamport - lamport, event.time - event.lamport, event.body, *optional]


def read_runs(group: str, runs: Sequence[Run], sender: str = "") -> Iterator[Event]:
    """The events of a member's runs in this group, checked as `parse_event` does. Raises Malformed, and at once for
    more events than a message may hold."""
    if sum(len(run.items) for run in runs) > RUN_EVENTS_MAX:
        raise Malformed(why="more events than a message may hold")
    for run in runs:
        yield from _read_run(group, run, run.author or sender)


def _read_run(group: str, run: Run, author: str) -> Iterator[Event]:
    pre, lamport, held, signatures = run.pre, 0, list[Event](), iter(run.signed)
    shared = next(signatures, None)
    for place, item in enumerate(run.items):
        if not 3 <= len(item) <= 7 or not all(type(number) is int for number in item[:2]):
            raise Malformed(why="an event run with a malformed item")
        optional = [*_USUAL, ""]
        optional[: len(item) - 3] = item[3:]
        kind, deps, conc, sig = optional
        lamport += item[0]
        record = {
            "v": VERSION,
            "group": group if kind != "genesis" else "",
            "type": kind,
            "author": author,
            "seq": run.seq + place,
            "pre": pre,
            "deps": deps,
            "conc": conc,
            "lamport": lamport,
            "time": lamport + item[1],
            "body": _contact_as_did(item[2]),
        }
        event = parse_event({**record, "sig": sig} if sig else record)
        pre = event.id
        if event.is_leaf:
            raise Malformed(why="an event run with a shared signature in an item")
        if shared is None or place < shared.first:
            yield event
            continue
        if event.sig or event.is_control or place != shared.first + len(held):
            raise Malformed(why="an event run with two signatures of an item")
        held.append(event)
        if len(held) == shared.count:
            yield from _with_signatures(held, shared.signature)
            held, shared = [], next(signatures, None)
    if shared is not None:
        raise Malformed(why="an event run with a signature of more items than it has")


def _with_signatures(events: Sequence[Event], shared: str) -> Iterator[Event]:
    """These events with the signature that they share. Raises Malformed."""
    leaves = tree_signature.split(shared, [event.id for event in events])
    for event, (signature, leaf) in zip(events, leaves, strict=True):
        signed = event.with_signature(signature, leaf)
        if len(signed.record) > RECORD_BYTES_MAX:
            raise Malformed(why="event record: too long")
        yield signed


def compress_runs(message: Message, words: str = "") -> Message:
    """The same message with its runs compressed if that is shorter, for envelopes that do not compress; together with
    the field `words`, if the message has it."""
    runs = message.body.get("runs")
    encoded = compact_json(runs)
    if runs is None or len(encoded) <= COMPRESS_BYTES_MIN:
        return message
    compact = [{**run, "items": [_contact_as_document(item) for item in run["items"]]} for run in runs]
    extra = message.body.get(words)
    packed = b64url(compress(compact_json(compact if extra is None else [compact, extra])))
    if len(packed) >= len(encoded):
        return message
    rest = {name: value for name, value in message.body.items() if name not in ("runs", words)}
    return replace(message, body={**rest, "packed": packed})


# --- ids and signatures as bytes --------------------------------------------------------------------------------------

# An item that has its signature alone beside the first three, as most posts do, has it in the fourth place.


def with_bytes(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an `events` message with its ids and signatures as bytes, for MessagePack."""
    return {**body, "view": b64url_bytes(body["view"]), "runs": list(map(_run_with_bytes, body["runs"]))}


def _run_with_bytes(run: Mapping[str, Any]) -> dict[str, Any]:
    made = {**run, "pre": b64url_bytes(run["pre"]), "items": list(map(_item_with_bytes, run["items"]))}
    if "signed" in run:
        made["signed"] = [[first, count, b64url_bytes(signature)] for first, count, signature in run["signed"]]
    return made


def _item_with_bytes(item: Item) -> Item:
    optional: list[Any] = [*item[3:]]
    optional[1:3] = [[b64url_bytes(one) for one in ids] for ids in optional[1:3]]
    optional[3:] = map(b64url_bytes, optional[3:])
    if optional[:3] == _USUAL:
        del optional[:3]
    return [*item[:3], *optional]


def without_bytes(value: object) -> object:
    """The same body with its ids and signatures as text; of any other value, whatever it has of one."""
    match value:
        case {"runs": list(runs), **rest}:
            texts = {name: b64url(one) if isinstance(one, bytes) else one for name, one in rest.items()}
            return {**texts, "runs": list(map(_run_with_text, runs))}
    return value


def _run_with_text(run: object) -> object:
    match run:
        case {"items": list(items), **rest}:
            made = [_item_with_text(item) if isinstance(item, list) else item for item in items]
            return {**{name: _as_text(one) for name, one in rest.items()}, "items": made}
    return run


def _item_with_text(item: Item) -> Item:
    optional = item[3:]
    if len(optional) == 1 and isinstance(optional[0], bytes):
        optional = [*_USUAL, *optional]
    return [*item[:3], *map(_as_text, optional)]


def _as_text(value: object) -> object:
    """Bytes as base64url, in a list too."""
    if isinstance(value, list):
        return list(map(_as_text, value))
    return b64url(value) if isinstance(value, bytes) else value


def runs_of(runs: Sequence[Run], packed: str) -> Sequence[Run]:
    """The runs of a message, compressed or not. Raises Malformed."""
    return decompress_runs(packed, list[Run]) if packed else runs


def decompress_runs(packed: str, shape: type[_T]) -> _T:
    """The decompressed content of `compress_runs`, in this shape. Raises Malformed."""
    encoded = decompress(b64url_bytes(packed), MESSAGE_BYTES_MAX)
    try:
        return msgspec.convert(strict_json(encoded, MESSAGE_BYTES_MAX), shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"runs of events: {error}") from None


def _contact_as_document(item: Item) -> Item:
    """An item with its contact DID replaced by the document: the DID is a hash and the same document in base58, which
    does not compress."""
    body = item[2]
    if not (isinstance(body, dict) and isinstance(contact := body.get("contact"), str)):
        return item
    try:
        document = peer4_document(contact).decode()
    except (Malformed, UnicodeDecodeError):
        return item
    return [*item[:2], {**body, "contact": [document]}, *item[3:]]


def _contact_as_did(body: Any) -> Any:
    """The body of such an item with its contact DID again. Raises Malformed."""
    match body:
        case {"contact": [str(document)]} if len(document) <= DID_CHARS_MAX:
            return {**body, "contact": peer4(document.encode())}
    return body


def message_batches(events: Sequence[Event], bytes_max: int = RUN_BYTES_MAX) -> Iterator[list[Event]]:
    """The events in batches that each fit a message, with at most so many bytes of records; a signature that several
    share counts once."""
    portion: list[Event] = []
    size = 0
    for event in events:
        added = len(event.record)
        if portion and _continues(portion[-1], event):
            added -= len(event.sig)
        size += added
        if portion and (size > bytes_max or len(portion) == RUN_EVENTS_MAX):
            yield portion
            portion, size = [], len(event.record)
        portion.append(event)
    if portion:
        yield portion


def signed_together(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Signed posts in the batches of their signatures, which each fit a message."""
    for _, portion in groupby(events, lambda event: event.leaf.root if event.is_leaf else event.sig):
        yield list(portion)
