"""Runs: consecutive events of one author, written once where one follows from the other.

A record says the same things over and over: its group, its author, the id of the event before. In a run these stand
once, or not at all, since the id of each event follows from what it is. So a hundred short posts take some fifty bytes
each on the way, and in a wide-area network, where a burst may send some fifteen packets before it must wait for an
answer, they arrive with the first of them.

What is heard is the same record that was written, to the byte: its id is computed anew from it.
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
"""Records in one message, as they stand in the log; one that is larger travels alone."""

SQUEEZED_BYTES_MIN = 400
"""Below this a compressed run would land in the same size of padding."""

_Link = Annotated[str, msgspec.Meta(max_length=43)]
Item: TypeAlias = list[Any]
"""Lamport time, less that of the event before; the author's own time, less that; the body; and, as far as they are not
the usual ones, the type (`post`), `deps` and `conc` (none) and the signature (none)."""


class Run(msgspec.Struct, frozen=True):
    """Consecutive events of one author, of the group that the message is about."""

    seq: Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
    """Of the first."""
    pre: _Link
    """Of the first."""
    items: Annotated[list[Item], msgspec.Meta(min_length=1, max_length=RUN_EVENTS_MAX)]
    author: Did | None = None
    """None: whoever sends the message."""


def write_runs(events: Iterable[Event], sender: str = "") -> list[dict[str, Any]]:
    """The runs in which these events travel from this member, in their order."""
    runs: list[dict[str, Any]] = []
    before: Event | None = None
    for event in events:
        follows = before is not None and (event.author, event.pre) == (before.author, before.id)
        follows = follows and before is not None and event.seq == before.seq + 1  # an author may have lied about that
        if not follows or before is None or len(runs[-1]["items"]) == RUN_EVENTS_MAX:
            author = {} if event.author == sender else {"author": event.author}
            runs.append({"seq": event.seq, "pre": event.pre, "items": [], **author})
            before = None
        runs[-1]["items"].append(_item(event, before))
        before = event
    return runs


def _item(event: Event, before: Event | None) -> Item:
    lamport = before.lamport if before else 0
    rare: list[Any] = [event.type, list(event.deps), list(event.conc), event.sig]
    usual: list[Any] = [POST, [], [], ""]
    while rare and rare[-1] == usual[len(rare) - 1]:
        rare.pop()
    return [event.lamport - lamport, event.time - event.lamport, event.body, *rare]


def read_runs(group: str, runs: Sequence[Run], sender: str = "") -> Iterator[Event]:
    """The events in runs from this member about the group with this id, checked as `parse_event` does. Raises
    Malformed, and before anything else for more than a message of ours ever holds."""
    if sum(len(run.items) for run in runs) > RUN_EVENTS_MAX:
        raise Malformed(why="more events than a message may hold")
    for run in runs:
        pre, lamport = run.pre, 0
        for place, item in enumerate(run.items):
            if not 3 <= len(item) <= 7 or not all(type(number) is int for number in item[:2]):
                raise Malformed(why="a run of events with an item of another shape")
            rare: list[Any] = [POST, [], [], ""]
            rare[: len(item) - 3] = item[3:]
            kind, deps, conc, sig = rare
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
                "body": _clad(item[2]),
            }
            event = parse_event({**record, "sig": sig} if sig else record)
            pre = event.id
            yield event


def squeezed(message: Message, words: str = "") -> Message:
    """The same message, with its runs compressed where that is shorter; for an envelope that does not compress. With
    them go the words about them, where the message has such a field."""
    runs = message.body.get("runs")
    plain = compact_json(runs)
    if runs is None or len(plain) <= SQUEEZED_BYTES_MIN:
        return message
    bare = [{**run, "items": [_bare(item) for item in run["items"]]} for run in runs]
    said = message.body.get(words)
    packed = b64url(compress(compact_json(bare if said is None else [bare, said])))
    if len(packed) >= len(plain):
        return message
    rest = {name: value for name, value in message.body.items() if name not in ("runs", words)}
    return replace(message, body={**rest, "packed": packed})


def runs_in(runs: Sequence[Run], packed: str) -> Sequence[Run]:
    """The runs of a message, compressed or not. Raises Malformed."""
    return unpacked(packed, list[Run]) if packed else runs


def unpacked(packed: str, shape: type[_T]) -> _T:
    """What `squeezed` has compressed, which must have this shape. Raises Malformed."""
    plain = decompress(b64url_bytes(packed), MESSAGE_BYTES_MAX)
    try:
        return msgspec.convert(strict_json(plain, MESSAGE_BYTES_MAX), shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"runs of events: {error}") from None


def _bare(item: Item) -> Item:
    """An item whose contact, if it has one, is the document itself: the DID is the same in letters that nothing can
    compress, behind its hash."""
    body = item[2]
    if not (isinstance(body, dict) and isinstance(contact := body.get("contact"), str)):
        return item
    try:
        document = peer4_document(contact).decode()
    except (Malformed, UnicodeDecodeError):
        return item
    return [*item[:2], {**body, "contact": [document]}, *item[3:]]


def _clad(body: Any) -> Any:
    """The body of a bare item, as it stands in the log. Raises Malformed."""
    match body:
        case {"contact": [str(document)]} if len(document) <= DID_CHARS_MAX:
            return {**body, "contact": peer4(document.encode())}
    return body


def portions(events: Sequence[Event], bytes_max: int = RUN_BYTES_MAX) -> Iterator[list[Event]]:
    """The same events, in as many pieces as it takes for each to fit a message, with records of so many bytes."""
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
