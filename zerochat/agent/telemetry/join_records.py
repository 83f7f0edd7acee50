"""Telemetry records of joins (phases at both ends), of membership state sizes and of backfill.

Joiner: `request` ends with the inviter's answer and the key exchange (a manual decision is included), `view` when the
group and its members are known, `exchanges` when all members are connected. Acceptor: `request` lasts from the joiner's
first envelope to the admission, `announce` until the other members were informed, `exchanges` until the joiner reports
connections to all members. `whole` is the sum. `subscriptions` does not occur: events use the link to a member until
its subscription is established (`Publish`).
"""

import os
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from zerochat.agent.telemetry.observation import ObservedStep
from zerochat.agent.telemetry.schema import Backfill, Join, State
from zerochat.crypto.encoding import b64url_bytes, compact_json
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.message import Message
from zerochat.group.effects import Dial
from zerochat.group.event_log.event import ADD
from zerochat.group.links.mediator_mail import reach_of_member
from zerochat.group.membership import add_of
from zerochat.group.notifications import HistoryProgress, JoinProgress, MemberConnections
from zerochat.group.state import Agent, Group
from zerochat.group.wire.event_runs import compress_runs, write_runs
from zerochat.group.wire.messages import WELCOME

Phase = Literal["request", "view", "exchanges", "subscriptions", "announce", "whole"]
Outcome = Literal["joined", "failed", "cancelled"]
Hosts: TypeAlias = frozenset[tuple[bytes, Endpoint]]
"""Agents by server key and address, which are the same in all their groups."""
ADMISSION_TIMEOUT_US: Final = 120_000_000
"""Timeout for progress reports of an admitted joiner."""
ONGOING_MAX: Final = 64
LINKS_MAX: Final = 1_024
"""Links in the process of dialling that are tracked."""
HANDSHAKE_ROUND_TRIPS: Final = 3
"""Round trips from dialling until a link is up: TCP, HELLO/WELCOME, INITIATE/READY (CURVE)."""
_PHASE_ENDS: Final[dict[str, Phase]] = {"asking": "request", "connecting": "view", "joined": "exchanges"}
"""The telemetry phase that ends when a join reports this progress."""


class _Ongoing(Struct):
    """A join in progress."""

    role: Literal["joiner", "acceptor"]
    begun_us: int
    members: int = 0
    attempt: int = field(default_factory=lambda: int.from_bytes(os.urandom(6), "big"))
    ended: dict[Phase, int] = field(default_factory=dict)
    """End of each phase, us."""
    confirmed: bool = False
    hosts: Hosts = frozenset()
    """Agents that were connected when the join began."""
    connected: bool | None = None
    """Whether all dialled agents are in `hosts`; None: none was dialled."""
    rtt_us: int | None = None


class _OngoingBackfill(Struct):
    begun_us: int
    rows: int = 0
    bytes: int = 0
    disconnects: int = 0


class Joins(Struct):
    _joining: dict[str, _Ongoing] = field(default_factory=dict)
    """Own joins by id."""
    _accepted: dict[tuple[str, str], _Ongoing] = field(default_factory=dict)
    """Admissions by group and joiner."""
    _backfills: dict[str, _OngoingBackfill] = field(default_factory=dict)
    """By group."""
    _dialled: dict[bytes, int] = field(default_factory=dict)
    """During a join: start of dialling (us) of each link that is not up yet."""

    @property
    def admitting(self) -> bool:
        """Whether an admitted joiner is not fully connected yet."""
        return bool(self._accepted)

    @property
    def backfilling(self) -> bool:
        return bool(self._backfills)

    # --- the joiner -------------------------------------------------------------------------------------------------

    def progressed(self, step: ObservedStep, news: Iterable[JoinProgress]) -> Iterator[Join]:
        for one in news:
            under = self._joining.get(one.join)
            if under is None:
                if one.phase in ("joined", "failed") or len(self._joining) >= ONGOING_MAX:
                    continue  # how it began was not recorded
                under = self._joining[one.join] = _Ongoing("joiner", step.begun_us, hosts=_connected_hosts(step.before))
            under.members = max(under.members, one.members)
            phase = _PHASE_ENDS.get(one.phase)
            if phase is not None:
                under.ended.setdefault(phase, step.ended_us)
            if one.phase in ("joined", "failed"):
                del self._joining[one.join]
                cancelled = one.error == "JoinCancelled"
                outcome: Outcome = "joined" if one.phase == "joined" else "cancelled" if cancelled else "failed"
                yield from self._records(step, one.group, under, outcome, step.ended_us)

    # --- the acceptor -----------------------------------------------------------------------------------------------

    def admitted(self, step: ObservedStep) -> Iterator[State]:
        """Note admissions by the observer and the observer's own; return records of the state that joiners receive."""
        for name, before, group in step.changed:
            if before is None:
                for join in step.before.joins.values():
                    if join.group == name:  # we are the newcomer
                        yield _state(step, group)
                        if join.id in self._joining:
                            self._joining[join.id].ended.setdefault("view", step.ended_us)
                continue
            for event in group.log.unpublished[len(before.log.unpublished) :]:
                if event.type != ADD or len(self._accepted) >= ONGOING_MAX:
                    continue
                member = add_of(event).member
                claims = (claim for open_ in step.after.invitations.values() for claim in open_.claims.values())
                asked = next((claim.claimed_at for claim in claims if claim.relationship.member == member), 0)
                hosts = _connected_hosts(step.before, besides=name)
                under = _Ongoing("acceptor", asked * 1000 or step.begun_us, len(before.view.members), hosts=hosts)
                under.ended["request"] = step.ended_us
                self._accepted[name, member] = under
                yield _state(step, group)

    def announced(self, at_us: int) -> None:
        """The events of this batch were handed to the sockets."""
        for under in self._accepted.values():
            under.ended.setdefault("announce", at_us)

    def member_connected(self, step: ObservedStep, news: Iterable[MemberConnections]) -> Iterator[Join]:
        for one in news:
            under = self._accepted.get((one.group, one.member))
            if under is not None:
                under.confirmed = True
                under.ended["exchanges"] = step.ended_us
                if one.connected >= one.members:
                    del self._accepted[one.group, one.member]
                    yield from self._records(step, one.group, under, "joined", step.ended_us)
        for (name, member), under in list(self._accepted.items()):
            last = max(under.ended.values())
            if step.ended_us - last > ADMISSION_TIMEOUT_US:
                del self._accepted[name, member]
                yield from self._records(step, name, under, "joined" if under.confirmed else "failed", last)

    # --- both -------------------------------------------------------------------------------------------------------

    def dialled(self, step: ObservedStep, dials: Iterable[Dial]) -> None:
        """Note the start of dialling during a join."""
        if not (self._joining or self._accepted):
            self._dialled.clear()
            return
        for one in dials:
            under = self._join_of_link(step, one.link)
            known = under is not None and (one.server_key, one.pair) in under.hosts
            if under is not None:
                under.connected = known and under.connected is not False
            # A multiplexed link is up at once, without a handshake to measure (`network/zmq/multiplexing.py`).
            multiplexed = known and bool(one.queues)
            if one.link not in step.after.links_up and not multiplexed and len(self._dialled) < LINKS_MAX:
                self._dialled.setdefault(one.link, step.ended_us)

    def link_up(self, step: ObservedStep) -> None:
        """A link that was dialled for a join is up: its handshake time gives the round-trip time."""
        for link in [link for link in self._dialled if link in step.after.links_up]:
            took_us = step.begun_us - self._dialled.pop(link)
            under = self._join_of_link(step, link)
            if under is not None and took_us >= 0 and step.reasons.get(link) == "dialled":
                under.rtt_us = max(under.rtt_us or 0, took_us // HANDSHAKE_ROUND_TRIPS)

    def _join_of_link(self, step: ObservedStep, link: bytes) -> _Ongoing | None:
        """The join that a link was dialled for."""
        joins = {**step.before.joins, **step.after.joins}
        found = step.member_of(link)
        if found is None:
            return self._joining.get(joins[link].id) if link in joins else None
        ours = next(
            (self._joining[one.id] for one in joins.values() if one.group == found[0] and one.id in self._joining), None
        )
        return ours or self._accepted.get(found)

    def _records(
        self, step: ObservedStep, name: str, under: _Ongoing, outcome: Outcome, ended_us: int
    ) -> Iterator[Join]:
        group = step.after.groups.get(name)
        me = step.observer_number(group) if group is not None else 0
        number = step.number(name) if group is not None else 0
        begun = under.begun_us
        ends = sorted(under.ended.items(), key=lambda item: item[1])
        for phase, end in [*ends, ("whole", ended_us)]:
            since = under.begun_us if phase == "whole" else begun
            yield Join(
                observer=me,
                group=number,
                attempt=under.attempt,
                role=under.role,
                connected=bool(under.connected),
                phase=phase,
                us=max(0, end - since),
                members=under.members,
                outcome=outcome,
                t_us=end,
                rtt_us=under.rtt_us,
            )
            begun = end

    # --- backfill ---------------------------------------------------------------------------------------------------

    def backfilled(
        self, step: ObservedStep, news: Iterable[HistoryProgress], got: Iterable[tuple[str, int]]
    ) -> Iterator[Backfill]:
        """Track backfills; return records of completed ones. `got`: group and size (bytes) of each backfilled event."""
        for name, before, group in step.changed:
            if (
                group.sync.backfill is not None
                and name not in self._backfills
                and (before is None or not before.sync.backfill)
            ):
                self._backfills[name] = _OngoingBackfill(step.begun_us)
        for name, size in got:
            if name in self._backfills:
                self._backfills[name].rows += 1
                self._backfills[name].bytes += size
        if self._backfills:
            for link in step.before.links_up - step.after.links_up:
                found = step.member_of(link)
                if found is not None and found[0] in self._backfills:
                    self._backfills[found[0]].disconnects += 1
        for one in news:
            if one.done and one.group in self._backfills:
                yield self._backfill(step, one.group, "whole" if not one.remaining else "cut")

    def _backfill(self, step: ObservedStep, name: str, outcome: Literal["whole", "cut"]) -> Backfill:
        found = self._backfills.pop(name)
        group = step.after.groups.get(name) or step.before.groups[name]
        return Backfill(
            observer=step.observer_number(group),
            group=step.number(name),
            rows=found.rows,
            bytes_b=found.bytes,
            us=max(0, step.ended_us - found.begun_us),
            disconnects=found.disconnects,
            outcome=outcome,
            t_us=step.ended_us,
        )

    def forget(self, group: str) -> None:
        self._accepted = {key: one for key, one in self._accepted.items() if key[0] != group}
        self._backfills.pop(group, None)


def _connected_hosts(agent: Agent, besides: str = "") -> Hosts:
    """Agents connected in any group except `besides`."""
    return frozenset(
        (reach.server_key, reach.pair)
        for group in agent.groups.values()
        if group.id != besides
        for member, peer in group.links.peers.items()
        if peer.link in agent.links_up and member in group.view.members
        if (reach := reach_of_member(group, member)).pair is not None
    )


def _state(step: ObservedStep, group: Group) -> State:
    """Size of the membership events that a joiner receives, raw and compressed."""
    events = sorted(group.control.values(), key=lambda event: (event.lamport, event.author, event.seq))
    message = Message(type=WELCOME, id="", body={"runs": write_runs(events)})
    raw = len(compact_json(message.body["runs"]))
    packed = compress_runs(message).body.get("packed")
    small = len(b64url_bytes(packed)) if packed is not None else raw
    return State(step.observer_number(group), step.number(group.id), len(group.view.members), raw, small, step.ended_us)
