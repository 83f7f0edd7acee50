"""Event runs: consecutive events of one author in one compact encoding, without what can be derived.

The group, the author and the predecessor's id repeat in every record. A run contains them once or not at all, since
each event's id follows from its content. A hundred short posts take about fifty bytes each, so a burst fits the initial
congestion window of a wide-area line. Decoding restores the same bytes: ids are computed anew.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from zerochat.crypto.compression import compress, decompress
from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, strict_json
from zerochat.didcomm.did import DID_CHARS_MAX, peer4, peer4_document
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.errors import Malformed
from zerochat.group.event_log.event import POST, VERSION, Did, Event, parse_event

_T = TypeVar("_T")

RUN_EVENTS_MAX = 256
"""Events in one message."""
RUNS_MAX = 64
RUN_BYTES_MAX = 48 * 1024
"""The bytes of the records in one message, as stored; a larger record travels alone."""

COMPRESS_BYTES_MIN = 400
"""Below this, compression would not reach a smaller padding size."""

_Link = Annotated[str, msgspec.Meta(max_length=43)]
Item: TypeAlias = list[Any]
"""The Lamport time minus the previous event's; the author's time minus that; the body; then, unless they have their
usual values, the type (`post`), `deps` and `conc` (none) and the signature (none)."""


class Run(msgspec.Struct, frozen=True):
    """Consecutive events of one author, in the group of the message."""

    seq: Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
    """Of the first event."""
    pre: _Link
    """Of the first event."""
    items: Annotated[list[Item], msgspec.Meta(min_length=1, max_length=RUN_EVENTS_MAX)]
    author: Did | None = None
    """None: the sender of the message."""


def write_runs(events: Iterable[Event], sender: str = "") -> list[dict[str, Any]]:
    """The runs that encode these events in order, for a message of this member."""
    runs: list[dict[str, Any]] = []
    before: Event | None = None
    for event in events:
        follows = before is not None and (event.author, event.pre) == (before.author, before.id)
        # An author's places may be inconsistent.
        follows = follows and before is not None and event.seq == before.seq + 1
        if not follows or before is None or len(runs[-1]["items"]) == RUN_EVENTS_MAX:
            author = {} if event.author == sender else {"author": event.author}
            runs.append({"seq": event.seq, "pre": event.pre, "items": [], **author})
            before = None
        runs[-1]["items"].append(_item(event, before))
        before = event
    return runs


def _item(event: Event, before: Event | None) -> Item:
    lamport = before.lamport if before else 0
    optional: list[Any] = [event.type, list(event.deps), list(event.conc), event.sig]
    defaults: list[Any] = [POST, [], [], ""]
    while optional and optional[-1] == defaults[len(optional) - 1]:
        optional.pop()
    return [event.lamport - lamport, event.time - event.lamport, event.body, *optional]


def read_runs(group: str, runs: Sequence[Run], sender: str = "") -> Iterator[Event]:
    """The events of a member's runs in this group, checked as `parse_event` does. Raises Malformed, and at once for
    more events than a message may hold."""
    if sum(len(run.items) for run in runs) > RUN_EVENTS_MAX:
        raise Malformed(why="more events than a message may hold")
    for run in runs:
        pre, lamport = run.pre, 0
        for place, item in enumerate(run.items):
            if not 3 <= len(item) <= 7 or not all(type(number) is int for number in item[:2]):
                raise Malformed(why="an event run with a malformed item")
            optional: list[Any] = [POST, [], [], ""]
            optional[: len(item) - 3] = item[3:]
            kind, deps, conc, sig = optional
            lamport += item[0]
            record = {
                "v": VERSION,
                "group": group if kind != "genesis" else "",
                "type": kind,
                "author": run.author or sender,
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
            yield event


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
    """The events in batches that each fit a message, with at most so many bytes of records."""
    portion: list[Event] = []
    size = 0
    for event in events:
        size += len(event.record)
        if portion and (size > bytes_max or len(portion) == RUN_EVENTS_MAX):
            yield portion
            portion, size = [], len(event.record)
        portion.append(event)
    if portion:
        yield portion
