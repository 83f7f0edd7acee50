"""What was sent and received, from the core's effects and from what it has put aside until it can be delivered."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import DecodeError, Raw, Struct, field

from zerochat.agent.telemetry.observation import Sight
from zerochat.agent.telemetry.schema import Ack, Kind, Recv, Send
from zerochat.group.effects import Dispatch, Post, Publish, Receipt, Remember, Repeated
from zerochat.group.event_log.event import CONTROL, POST, Event
from zerochat.group.state import Group
from zerochat.group.sync.acknowledgements import RETRY_MS

Path: TypeAlias = Literal["direct", "repair", "history", "mediator"]
_KINDS: Final[dict[str, Kind]] = {**dict.fromkeys(CONTROL, "membership"), POST: "message"}
"""What an event of a type is; of any other type it is a remark."""
HELD_MAX: Final = 10_000
"""Events whose arrival is kept in mind while they wait for others."""


class _Text(Struct, gc=False):
    text: str = ""


class _Message(Struct, gc=False):
    """What a message's record says that is wanted here."""

    time: int
    body: _Text


class _Other(Struct, gc=False):
    """And that of another event."""

    time: int
    body: Raw


_MESSAGES = msgspec.json.Decoder(_Message).decode
_OTHERS = msgspec.json.Decoder(_Other).decode


def said_in(type_: str, record: bytes) -> tuple[int, int]:
    """When somebody said something (UTC ms), and how many bytes: of a message its text, of other events their body."""
    if type_ == POST:
        try:
            said = _MESSAGES(record)
            text = said.body.text
            return said.time, len(text) if text.isascii() else len(text.encode())
        except (DecodeError, UnicodeEncodeError):
            pass
    other = _OTHERS(record)
    return other.time, len(bytes(other.body))


# --- sent -------------------------------------------------------------------------------------------------------------


class _Going(Struct):
    """What goes out of one group at the end of a turn."""

    events: tuple[Event, ...]
    bytes: int = 0
    envelopes: int = 0
    posted: int = 0
    """As many of the envelopes went to a mediator."""


def sent(sight: Sight, queue_us: int) -> list[Send]:
    """The observer's events that have just gone out; how long that took (us)."""
    going = {name: _Going(group.fresh) for name, group in sight.before.groups.items() if group.fresh}
    rows: list[Send] = []
    if not going:
        return rows
    now = next(iter(going.values()))
    for effect in sight.effects:
        if isinstance(effect, Publish):
            # One envelope for all, or one for each: as often as it is encrypted, and not as often as it is carried.
            now = _of(going, sight, effect.links[0] if effect.links else b"", now)
            posted = False
        elif isinstance(effect, Dispatch):
            now, posted = _of(going, sight, effect.link, now), False
        elif isinstance(effect, Post):
            posted = True  # of the group that is just being said; each is said in one go
        else:
            continue
        now.bytes += len(effect.envelope)
        now.envelopes += 1
        now.posted += posted
    for name, one in going.items():
        group = sight.after.groups.get(name) or sight.before.groups[name]
        observer, number, profile = sight.me(group), sight.number(name), group.profile
        count, members = len(one.events), group.view.members
        path: Literal["direct", "mediator", "mixed"] = "direct"
        if one.posted:
            path = "mediator" if one.posted == one.envelopes else "mixed"
        bases = sorted([peer.base for did, peer in group.peers.items() if did in members])
        keys, accountability, envelopes = profile.keys, profile.accountability, one.envelopes
        share, more = divmod(one.bytes, count)
        for place, event in enumerate(one.events):
            type_, seq, text = event.type, event.seq, event.body.get("text")
            if type_ == POST and isinstance(text, str) and text.isascii():
                plain_b = len(text)
            else:
                plain_b = said_in(type_, event.record)[1]
            row = Send(
                observer,
                number,
                seq,
                keys,
                path,
                accountability,
                bisect_left(bases, seq),
                count,
                event.time * 1000,
                queue_us,
                plain_b,
                share + (place < more),
                envelopes,
                _KINDS.get(type_, "remark"),
            )
            rows.append(row)
    return rows


def _of(going: Mapping[str, _Going], sight: Sight, link: bytes, last: _Going) -> _Going:
    """To which group an envelope on this link belongs."""
    found = sight.whose(link) if len(going) > 1 else None
    return going.get(found[0], last) if found is not None else last


# --- received ---------------------------------------------------------------------------------------------------------


class _Arrival(Struct, frozen=True):
    """When and how something came that waits for something else."""

    at_us: int
    decrypt_us: int
    path: Path
    bytes: int


class _Whose(Struct):
    """What is the same for all events of one author in one step."""

    group: str
    author: str
    observer: int
    number: int
    """Of the group."""
    sender: int
    keys: str
    n: int
    path: Path
    """Of what is of today and the author's own word."""
    old_ms: int
    """What was said then or earlier came by a repair, by the author's clock; -1: that makes no difference."""


def _whose(sight: Sight, group: Group, author: str) -> _Whose:
    members = group.view.members
    path, old_ms = _way(sight, group, author)
    return _Whose(
        group.id,
        author,
        sight.me(group),
        sight.number(group.id),
        sight.number(group.id, author),
        group.profile.keys,
        max(0, len(members) - (author in members)),
        path,
        old_ms,
    )


def _way(sight: Sight, group: Group, author: str) -> tuple[Path, int]:
    """Which way an author's events have come, and up to which time they are repairs (`_Whose.old_ms`). Over a link a
    repair looks like anything else, so whatever was known to be missing, or is older than an author waits with its
    first repair, counts as one."""
    if sight.joining:
        return "history", -1
    sender = sight.sender
    if sender and sender != author:
        return "repair", -1
    if sight.mailed:
        return "mediator", -1
    if sight.queued:
        return "direct", -1
    before = sight.before.groups.get(group.id, group)
    if author in before.limbo or author in before.needs:
        return "repair", -1
    peer = group.peers.get(author)
    ahead = (peer.ahead_ms or 0) if peer is not None else 0
    return "direct", sight.begun_us // 1000 + ahead - RETRY_MS


class Arrivals(Struct):
    """What comes in, and what of it waits."""

    _early: dict[tuple[str, str, int], _Arrival] = field(default_factory=dict)
    """By group, author and place: events that wait for earlier ones of their author."""
    _waiting: dict[tuple[str, str], _Arrival] = field(default_factory=dict)
    """By group and id: membership events that wait for their causes."""
    _brought: dict[tuple[str, str, int], None] = field(default_factory=dict)
    """By group, author and place: what others have handed over. It may be given up when its author comes back, and then
    takes its place once more."""

    def come(self, sight: Sight, seen: Sequence[Remember | Repeated], told_us: int | None) -> list[Recv]:
        """What the step has delivered, or has found to be there already (`seen`: events of others). Notes what it has
        put aside. `told_us`: when the faces were told of it; None: there were none.

        In a burst this runs for every event that there is, so it has no calls that it can do without.
        """
        put_aside = list(self._put_aside(sight))
        waited = bool(self._early or self._waiting)
        fresh = len(seen) - (sum(self._arrival(one) is not None for one in seen) if waited else 0)
        share = sight.size // max(1, fresh + len(put_aside))
        for remember in put_aside:
            remember(share)
        rows: list[Recv] = []
        whose: _Whose | None = None
        groups, begun_us, took_us, message = sight.after.groups, sight.begun_us, sight.took_us, _MESSAGES
        display_us = max(0, told_us - begun_us) if told_us is not None else None
        for one in seen:
            if whose is None or one.author != whose.author or one.group != whose.group:
                group = groups.get(one.group)
                if group is None:
                    continue  # it was forgotten in the same step
                whose = _whose(sight, group, one.author)
            try:
                said = message(one.record) if one.type == POST else None
            except DecodeError:
                said = None  # a message of a form that is not known here
            if said is not None and (text := said.body.text).isascii():
                said_ms, size = said.time, len(text)
            else:
                said_ms, size = said_in(one.type, one.record)
            path, dup, late, known = whose.path, True, False, None
            if one.__class__ is Remember:
                late, dup = one.late, bool(one.vouched or self._brought) and self._again(one)
                if one.history:
                    path = "history"
                elif path != "history" and (one.vouched or said_ms <= whose.old_ms):
                    path = "repair"
                known = self._arrival(one) if waited else None
            elif said_ms <= whose.old_ms:
                path = "repair"
            row = Recv(  # in the order of its fields: by their names it takes three times as long
                whose.observer,
                whose.number,
                whose.sender,
                one.seq,
                whose.keys,
                _KINDS.get(one.type, "remark"),
                whose.n,
                said_ms * 1000,
                begun_us,
                took_us,
                0,
                display_us,
                path,
                dup,
                late,
                share,
                size,
            )
            if known is not None:
                row.t_recv_us, row.decrypt_us, row.path, row.env_b = (
                    known.at_us,
                    known.decrypt_us,
                    known.path,
                    known.bytes,
                )
                row.hold_us = max(0, begun_us - known.at_us)
                row.display_us = max(0, told_us - known.at_us) if told_us is not None else None
                self._early.pop((one.group, one.author, one.seq), None)
                self._waiting.pop((one.group, getattr(one, "id", "")), None)
            rows.append(row)
        return rows

    def _again(self, one: Remember) -> bool:
        """Whether an event that takes its place has done so before. What others bring is noted."""
        key = (one.group, one.author, one.seq)
        if key in self._brought:
            return True
        if one.vouched:
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


# --- acknowledged -----------------------------------------------------------------------------------------------------


def acknowledged(sight: Sight, receipts: Iterable[Receipt]) -> Iterator[Ack]:
    for one in receipts:
        group = sight.after.groups.get(one.group)
        if group is not None and one.author == group.me:
            yield Ack(
                sight.me(group),
                sight.number(one.group),
                sight.number(one.group, one.member),
                one.upto,
                sight.ended_us,
                "mediator" if one.via == "mediator" else "direct",
            )
