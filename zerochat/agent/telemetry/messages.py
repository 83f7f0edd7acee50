"""What was sent and received, from the core's effects and from what it has put aside until it can be delivered."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from zerochat.agent.telemetry.rows import Ack, Recv, Send
from zerochat.agent.telemetry.sight import Sight
from zerochat.group.effects import Dispatch, Post, Publish, Receipt, Remember, Repeated
from zerochat.group.event import CONTROL, POST, Event
from zerochat.group.sync import RETRY_MS

Path: TypeAlias = Literal["direct", "repair", "history", "mediator"]
_PATHS: Final[tuple[Path, ...]] = ("direct", "repair", "history", "mediator")
HELD_MAX: Final = 10_000
"""Events whose arrival is kept in mind while they wait for others."""


class _Text(Struct):
    text: str = ""


class _Message(Struct):
    """What a message's record says that is wanted here."""

    time: int
    body: _Text


class _Other(Struct):
    """And that of another event."""

    time: int
    body: Raw


_MESSAGES = msgspec.json.Decoder(_Message)
_OTHERS = msgspec.json.Decoder(_Other)


def said_in(type_: str, record: bytes) -> tuple[int, int]:
    """When somebody said something (UTC ms), and how many bytes: of a message its text, of other events their body."""
    if type_ == POST:
        try:
            said = _MESSAGES.decode(record)
            text = said.body.text
            return said.time, len(text) if text.isascii() else len(text.encode())
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass
    other = _OTHERS.decode(record)
    return other.time, len(bytes(other.body))


def kind_of(type_: str) -> Literal["message", "membership", "remark"]:
    return "membership" if type_ in CONTROL else "message" if type_ == POST else "remark"


# --- sent -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Going:
    """What goes out of one group at the end of a turn."""

    events: tuple[Event, ...]
    bytes: int = 0
    envelopes: int = 0
    posted: int = 0
    """As many of the envelopes went to a mediator."""


def sent(sight: Sight) -> Iterator[Send]:
    """The observer's events that have just gone out; how long that took is not in it yet."""
    going = {name: _Going(group.fresh) for name, group in sight.before.groups.items() if group.fresh}
    if not going:
        return
    now = next(iter(going.values()))
    for effect in sight.effects:
        match effect:
            case Publish(_, envelope, links):
                # One envelope for all, or one for each: as often as it is encrypted, and not as often as it is carried.
                now, posted = _of(going, sight, links[0] if links else b"", now), False
            case Dispatch(link, envelope):
                now, posted = _of(going, sight, link, now), False
            case Post(_, envelope):
                posted = True  # of the group that is just being said; each is said in one go
            case _:
                continue
        now.bytes += len(envelope)
        now.envelopes += 1
        now.posted += posted
    for name, one in going.items():
        group = sight.after.groups[name]
        observer, number, profile = sight.me(group), sight.number(name), group.profile
        count = len(one.events)
        path = "direct" if not one.posted else "mediator" if one.posted == one.envelopes else "mixed"
        bases = sorted(peer.base for did, peer in group.peers.items() if did in group.view.members)
        for place, event in enumerate(one.events):
            yield Send(
                observer,
                number,
                event.seq,
                profile.keys,
                path,  # type: ignore[arg-type]  # one of the three
                profile.accountability,
                bisect_left(bases, event.seq),
                count,
                event.time * 1000,
                0,  # how long it takes is known when the turn is over
                said_in(event.type, event.record)[1],
                one.bytes // count + (place < one.bytes % count),
                one.envelopes,
            )


def _of(going: Mapping[str, _Going], sight: Sight, link: bytes, last: _Going) -> _Going:
    """To which group an envelope on this link belongs."""
    found = sight.whose(link) if len(going) > 1 else None
    return going.get(found[0], last) if found is not None else last


# --- received ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Arrival:
    """When and how something came that waits for something else."""

    at_us: int
    decrypt_us: int
    path: Path
    bytes: int


@dataclass(frozen=True, slots=True)
class _Whose:
    """What is the same for all events of one author."""

    group: str = ""
    author: str = ""
    numbers: tuple[int, int, int] = (0, 0, 0)
    """Of the observer, the group and the author."""
    keys: str = ""
    n: int = 0


def _whose(sight: Sight, one: Remember | Repeated) -> _Whose:
    group = sight.after.groups[one.group]
    members = group.view.members
    numbers = sight.me(group), sight.number(one.group), sight.number(one.group, one.author)
    n = max(0, len(members) - (one.author in members))
    return _Whose(one.group, one.author, numbers, group.profile.keys, n)


@dataclass(slots=True)
class Arrivals:
    """What comes in, and what of it waits."""

    _early: dict[tuple[str, str, int], _Arrival] = field(default_factory=dict)
    """By group, author and place: events that wait for earlier ones of their author."""
    _waiting: dict[tuple[str, str], _Arrival] = field(default_factory=dict)
    """By group and id: membership events that wait for their causes."""
    _brought: dict[tuple[str, str, int], None] = field(default_factory=dict)
    """By group, author and place: what others have handed over. It may be given up when its author comes back, and then
    takes its place once more."""

    def come(self, sight: Sight, seen: Sequence[Remember | Repeated]) -> Iterator[Recv]:
        """What the step has delivered, or has found to be there already (`seen`: events of others). Notes what it has
        put aside."""
        put_aside = list(self._put_aside(sight))
        waited = bool(self._early or self._waiting)
        fresh = len(seen) - (sum(self._arrival(one) is not None for one in seen) if waited else 0)
        share = sight.size // max(1, fresh + len(put_aside))
        for remember in put_aside:
            remember(share)
        whose, usual = _Whose(), {path: _Arrival(sight.begun_us, sight.took_us, path, share) for path in _PATHS}
        for one in seen:
            if (one.group, one.author) != (whose.group, whose.author):
                whose = _whose(sight, one)
            is_new = isinstance(one, Remember)
            said_ms, size = said_in(one.type, one.record)
            known = self._arrival(one) if waited and is_new else None
            arrival = known or usual[self._path(sight, one, said_ms)]
            # In the order of its fields: by their names it takes three times as long.
            yield Recv(
                *whose.numbers,
                one.seq,
                whose.keys,
                kind_of(one.type),
                whose.n,
                said_ms * 1000,
                arrival.at_us,
                arrival.decrypt_us,
                max(0, sight.begun_us - arrival.at_us),
                None,
                arrival.path,
                not is_new or self._again(one),
                isinstance(one, Remember) and one.late,
                arrival.bytes,
                size,
            )
            if known is not None and isinstance(one, Remember):
                self._early.pop((one.group, one.author, one.seq), None)
                self._waiting.pop((one.group, one.id), None)

    def _again(self, one: Remember | Repeated) -> bool:
        """Whether an event that takes its place has done so before. What others bring is noted."""
        key = (one.group, one.author, one.seq)
        if key in self._brought:
            return True
        if isinstance(one, Remember) and one.vouched:
            if len(self._brought) >= HELD_MAX:
                self._brought.pop(next(iter(self._brought)))
            self._brought[key] = None
        return False

    def _arrival(self, one: Remember | Repeated) -> _Arrival | None:
        found = self._early.get((one.group, one.author, one.seq))
        return found or (self._waiting.get((one.group, one.id)) if isinstance(one, Remember) else None)

    def _put_aside(self, sight: Sight) -> Iterator[Callable[[int], None]]:
        """For each event that waits since this step, what notes its arrival, given its share of the envelope."""
        for name, before, after in sight.changed:
            if before is None or after.limbo is not before.limbo:
                for author, held in after.limbo.items():
                    old = before.limbo.get(author) if before is not None else None
                    if old is held:
                        continue
                    path: Path = "mediator" if sight.mailed else "direct"
                    for seq in held.records.keys() - (old.records.keys() if old is not None else ()):
                        yield self._note(self._early, (name, author, seq), sight, path)
            if before is not None and after.waiting is not before.waiting:
                for event in after.waiting.keys() - before.waiting.keys():
                    yield self._note(self._waiting, (name, event), sight, "mediator" if sight.mailed else "direct")

    def _note(self, into: dict[Any, _Arrival], key: object, sight: Sight, path: Path) -> Callable[[int], None]:
        def note(share: int) -> None:
            if len(into) >= HELD_MAX:
                into.pop(next(iter(into)))
            into.setdefault(key, _Arrival(sight.begun_us, sight.took_us, path, share))

        return note

    def _path(self, sight: Sight, one: Remember | Repeated, said_ms: int) -> Path:
        """Which way an event has come. Over a link a repair looks like anything else, so whatever was known to be
        missing, or is older than an author waits with its first repair, counts as one."""
        if sight.joining or (isinstance(one, Remember) and one.history):
            return "history"
        if (isinstance(one, Remember) and one.vouched) or sight.sender not in ("", one.author):
            return "repair"
        if sight.mailed:
            return "mediator"
        if sight.queued:
            return "direct"
        group = sight.after.groups[one.group]
        before = sight.before.groups.get(one.group, group)
        if one.author in before.limbo or one.author in before.needs:
            return "repair"
        peer = group.peers.get(one.author)
        ahead = (peer.ahead_ms or 0) if peer is not None else 0
        return "repair" if sight.begun_us // 1000 - (said_ms - ahead) >= RETRY_MS else "direct"


# --- acknowledged -----------------------------------------------------------------------------------------------------


def acknowledged(sight: Sight, receipts: Iterable[Receipt]) -> Iterator[Ack]:
    for one in receipts:
        group = sight.after.groups[one.group]
        if one.author == group.me:
            yield Ack(
                observer=sight.me(group),
                group=sight.number(one.group),
                member=sight.number(one.group, one.member),
                upto=one.upto,
                t_ack_us=sight.ended_us,
                path="mediator" if one.via == "mediator" else "direct",
            )
