"""Telemetry records of sent, received and acknowledged events, from the core's effects."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import DecodeError, Raw, Struct, field

from zerochat.agent.telemetry.observation import ObservedStep
from zerochat.agent.telemetry.schema import Ack, KeyMode, Kind, Recv, RecvPath, Send
from zerochat.group.effects import DuplicateEvent, Publish, SendEnvelope, StoreEvent, StoreReceipt, WebPost
from zerochat.group.event_log.event import CONTROL, POST, Event
from zerochat.group.state import Group
from zerochat.group.sync.acknowledgements import RETRY_MS

_KINDS: Final[dict[str, Kind]] = {**dict.fromkeys(CONTROL, "membership"), POST: "message"}
"""Event classes by event type; any other type is an annotation."""
HELD_MAX: Final = 10_000
"""Deferred events author arrival is remembered."""


class _Text(Struct, gc=False):
    text: str = ""


class _Message(Struct, gc=False):
    """The fields of a stored message that telemetry needs."""

    time: int
    body: _Text


class _AnyEvent(Struct, gc=False):
    """The fields of any other stored event that telemetry needs."""

    time: int
    body: Raw


_MESSAGES = msgspec.json.Decoder(_Message).decode
_ANY_EVENTS = msgspec.json.Decoder(_AnyEvent).decode


def time_and_size(type_: str, record: bytes) -> tuple[int, int]:
    """Timestamp (UTC ms) and size (bytes) of an event: the text of a message, the body of any other."""
    if type_ == POST:
        try:
            message = _MESSAGES(record)
            text = message.body.text
            return message.time, len(text) if text.isascii() else len(text.encode())
        except (DecodeError, UnicodeEncodeError):
            pass
    other = _ANY_EVENTS(record)
    return other.time, len(bytes(other.body))


# --- sent -------------------------------------------------------------------------------------------------------------


class _Outgoing(Struct):
    """Events of one group that leave at the end of a batch."""

    events: tuple[Event, ...]
    bytes: int = 0
    envelopes: int = 0
    posted: int = 0
    """Envelopes that went to a mediator."""


def sent(step: ObservedStep, queue_us: int) -> list[Send]:
    """Records of the observer's events that were just handed to the sockets. `queue_us`: since the wake-up."""
    going = {
        name: _Outgoing(group.log.unpublished) for name, group in step.before.groups.items() if group.log.unpublished
    }
    rows: list[Send] = []
    if not going:
        return rows
    now = next(iter(going.values()))
    for effect in step.effects:
        if isinstance(effect, Publish):
            # An envelope counts once per encryption, not once per link.
            now = _outgoing_on(going, step, effect.links[0] if effect.links else b"", now)
            posted = False
        elif isinstance(effect, SendEnvelope):
            now, posted = _outgoing_on(going, step, effect.link, now), False
        elif isinstance(effect, WebPost):
            posted = True  # of the current group: the effects of a group are consecutive
        else:
            continue
        now.bytes += len(effect.envelope)
        now.envelopes += 1
        now.posted += posted
    for name, one in going.items():
        rows += _sent_of_group(step, name, one, queue_us)
    return rows


def _sent_of_group(step: ObservedStep, name: str, outgoing: _Outgoing, queue_us: int) -> Iterator[Send]:
    group = step.after.groups.get(name) or step.before.groups[name]
    observer, number, profile = step.observer_number(group), step.number(name), group.profile
    count, members = len(outgoing.events), group.view.members
    path: Literal["direct", "mediator", "mixed"] = "direct"
    if outgoing.posted:
        path = "mediator" if outgoing.posted == outgoing.envelopes else "mixed"
    bases = sorted([peer.start_seq for did, peer in group.links.peers.items() if did in members])
    keys = cast(KeyMode, profile.keys)
    share, more = divmod(outgoing.bytes, count)
    for index, event in enumerate(outgoing.events):
        type_, seq, text = event.type, event.seq, event.body.get("text")
        if type_ == POST and isinstance(text, str) and text.isascii():
            plain_b = len(text)
        else:
            plain_b = time_and_size(type_, event.record)[1]
        yield Send(  # in field order: by keyword it takes three times as long
            observer,
            number,
            seq,
            keys,
            path,
            profile.accountability,
            bisect_left(bases, seq),
            count,
            event.time * 1000,
            queue_us,
            plain_b,
            share + (index < more),
            outgoing.envelopes,
            _KINDS.get(type_, "annotation"),
        )


def _outgoing_on(going: Mapping[str, _Outgoing], step: ObservedStep, link: bytes, last: _Outgoing) -> _Outgoing:
    """The group that an envelope on this link belongs to."""
    found = step.member_of(link) if len(going) > 1 else None
    return going.get(found[0], last) if found is not None else last


# --- received ---------------------------------------------------------------------------------------------------------


class _Arrival(Struct, frozen=True):
    """Arrival of a deferred event."""

    at_us: int
    decrypt_us: int
    path: RecvPath
    bytes: int


class _Author(Struct):
    """Fields that all events of one author share in one step."""

    group: str
    author: str
    observer: int
    number: int
    """Name number of the group."""
    sender: int
    keys: KeyMode
    n: int
    path: RecvPath
    """Path of new events that the author sent itself."""
    resent_ms: int
    """Events up to this author timestamp (UTC ms) count as retransmitted; -1: no limit applies."""


def _author_of(step: ObservedStep, group: Group, author: str) -> _Author:
    members = group.view.members
    path, resent_ms = _path_from(step, group, author)
    return _Author(
        group.id,
        author,
        step.observer_number(group),
        step.number(group.id),
        step.number(group.id, author),
        cast(KeyMode, group.profile.keys),
        max(0, len(members) - (author in members)),
        path,
        resent_ms,
    )


def _path_from(step: ObservedStep, group: Group, author: str) -> tuple[RecvPath, int]:
    """The path of an author's events, and `_Author.resent_ms`. A retransmission carries no mark on the wire: an event
    that was known to be missing, or is older than the first retransmission timeout, counts as one."""
    if step.from_inviter:
        return "history", -1
    sender = step.sender
    if sender and sender != author:
        return "retransmission", -1
    if step.by_mediator:
        return "mediator", -1
    if step.from_queue:
        return "direct", -1
    before = step.before.groups.get(group.id, group)
    if author in before.log.reorder_buffers or author in before.sync.gaps:
        return "retransmission", -1
    peer = group.links.peers.get(author)
    ahead = (peer.shown.clock_ahead_ms or 0) if peer is not None else 0
    return "direct", step.begun_us // 1000 + ahead - RETRY_MS


class Arrivals(Struct):
    """Received events, and the arrivals of those that are deferred."""

    _reordered: dict[tuple[str, str, int], _Arrival] = field(default_factory=dict)
    """Events in the reorder buffer, by group, author and position."""
    _blocked: dict[tuple[str, str], _Arrival] = field(default_factory=dict)
    """Membership events that wait for their causes, by group and id."""
    _relayed: dict[tuple[str, str, int], None] = field(default_factory=dict)
    """Relayed events, by group, author and position. Such an event may be dropped when its author returns, and is then
    delivered again."""

    def received(
        self, step: ObservedStep, effects: Sequence[StoreEvent | DuplicateEvent], notified_us: int | None
    ) -> list[Recv]:
        """Records of the other members' events (`effects`) that the step delivered or found to be duplicates; deferred
        events are noted. `notified_us`: when the clients were notified; None: no client.

        Runs for every event of a burst, so it makes few calls.
        """
        waited = bool(self._reordered or self._blocked)
        share = self._note_deferred(step, effects, waited)
        rows: list[Recv] = []
        author: _Author | None = None
        groups, begun_us, took_us = step.after.groups, step.begun_us, step.took_us
        display_us = max(0, notified_us - begun_us) if notified_us is not None else None
        for one in effects:
            if author is None or one.author != author.author or one.group != author.group:
                group = groups.get(one.group)
                if group is None:
                    continue  # the group was forgotten in the same step
                author = _author_of(step, group, one.author)
            sent_ms, size = time_and_size(one.type, one.record)
            path, dup, late, known = author.path, True, False, None
            if one.__class__ is StoreEvent:
                late, dup = one.late, bool(one.relayed_by or self._relayed) and self._is_duplicate(one)
                if one.history:
                    path = "history"
                elif path != "history" and (one.relayed_by or sent_ms <= author.resent_ms):
                    path = "retransmission"
                known = self._arrival(one) if waited else None
            elif sent_ms <= author.resent_ms:
                path = "retransmission"
            row = Recv(  # in field order: by keyword it takes three times as long
                author.observer,
                author.number,
                author.sender,
                one.seq,
                author.keys,
                _KINDS.get(one.type, "annotation"),
                author.n,
                sent_ms * 1000,
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
                self._correct(row, known, one, notified_us)
            rows.append(row)
        return rows

    def _note_deferred(self, step: ObservedStep, effects: Sequence[StoreEvent | DuplicateEvent], waited: bool) -> int:
        """Note the events deferred in this step; return each event's share of the envelope, in bytes. `waited`: some of
        `effects` may have been deferred before."""
        noters = list(self._deferred(step))
        fresh = len(effects) - (sum(self._arrival(one) is not None for one in effects) if waited else 0)
        share = step.envelope_b // max(1, fresh + len(noters))
        for note in noters:
            note(share)
        return share

    def _correct(
        self, row: Recv, arrival: _Arrival, effect: StoreEvent | DuplicateEvent, notified_us: int | None
    ) -> None:
        """Give the record of a deferred event the times and the path of its arrival."""
        row.hold_us = max(0, row.t_recv_us - arrival.at_us)
        row.t_recv_us, row.decrypt_us = arrival.at_us, arrival.decrypt_us
        row.path, row.env_b = arrival.path, arrival.bytes
        row.display_us = max(0, notified_us - arrival.at_us) if notified_us is not None else None
        self._reordered.pop((effect.group, effect.author, effect.seq), None)
        self._blocked.pop((effect.group, getattr(effect, "id", "")), None)

    def _is_duplicate(self, one: StoreEvent) -> bool:
        """Whether an event was delivered before. Relayed events are noted."""
        key = (one.group, one.author, one.seq)
        if key in self._relayed:
            return True
        if one.relayed_by:
            if len(self._relayed) >= HELD_MAX:
                self._relayed.pop(next(iter(self._relayed)))
            self._relayed[key] = None
        return False

    def _arrival(self, one: StoreEvent | DuplicateEvent) -> _Arrival | None:
        found = self._reordered.get((one.group, one.author, one.seq))
        return found or (self._blocked.get((one.group, one.id)) if isinstance(one, StoreEvent) else None)

    def _deferred(self, step: ObservedStep) -> Iterator[Callable[[int], None]]:
        """For each event deferred in this step: a function that notes its arrival, given its share of the envelope."""
        for name, before, after in step.changed:
            if before is None or after.log.reorder_buffers is not before.log.reorder_buffers:
                for author, held in after.log.reorder_buffers.items():
                    old = before.log.reorder_buffers.get(author) if before is not None else None
                    if old is held:
                        continue
                    path: RecvPath = "mediator" if step.by_mediator else "direct"
                    for seq in held.events.keys() - (old.events.keys() if old is not None else ()):
                        yield self._noter(self._reordered, (name, author, seq), step, path)
            if before is not None and after.log.blocked is not before.log.blocked:
                for event in after.log.blocked.keys() - before.log.blocked.keys():
                    yield self._noter(self._blocked, (name, event), step, "mediator" if step.by_mediator else "direct")

    def _noter(
        self, into: dict[Any, _Arrival], key: object, step: ObservedStep, path: RecvPath
    ) -> Callable[[int], None]:
        def note(share: int) -> None:
            if len(into) >= HELD_MAX:
                into.pop(next(iter(into)))
            into.setdefault(key, _Arrival(step.begun_us, step.took_us, path, share))

        return note


# --- acknowledged -----------------------------------------------------------------------------------------------------


def acknowledged(step: ObservedStep, receipts: Iterable[StoreReceipt]) -> Iterator[Ack]:
    for one in receipts:
        group = step.after.groups.get(one.group)
        if group is not None and one.author == group.me:
            yield Ack(
                step.observer_number(group),
                step.number(one.group),
                step.number(one.group, one.member),
                one.upto,
                step.ended_us,
                "mediator" if one.via == "mediator" else "direct",
            )
