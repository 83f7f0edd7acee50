"""Joins at either end, in phases, and what a newcomer is told and fetches.

The joiner: `request` is until whoever invited it has answered and keys are exchanged (where a person has to decide, so
long), `view` until it knows the group and all its members, `exchanges` until it is connected with them. The acceptor:
`request` is from the joiner's first word until it is let in, `announce` until the others were told, `exchanges` until
the joiner says that it is connected with everybody. `whole` is all of that. `subscriptions` never comes: nothing waits
for a subscription, since what is said goes over the link to a member until its subscription stands (`Publish`).
"""

import os
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from zerochat.agent.telemetry.observation import Sight
from zerochat.agent.telemetry.schema import Join, Snapshot, State
from zerochat.crypto.encoding import b64url_bytes, compact_json
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.message import Message
from zerochat.group.effects import Dial
from zerochat.group.event_log.event import ADD
from zerochat.group.links.mediator_mail import reach_of_member
from zerochat.group.membership import add_of
from zerochat.group.notifications import HistoryFetched, JoinProgress, Seating
from zerochat.group.state import Agent, Group
from zerochat.group.wire.event_runs import squeezed, write_runs
from zerochat.group.wire.messages import WELCOME

Phase = Literal["request", "view", "exchanges", "subscriptions", "announce", "whole"]
Outcome = Literal["joined", "failed", "cancelled"]
Hosts: TypeAlias = frozenset[tuple[bytes, Endpoint]]
"""Agents, by the server key and the address that they have in all their groups."""
ACCEPTED_US: Final = 120_000_000
"""A joiner of whose seat nothing more is heard for so long has failed, or is as connected as it will be."""
UNDER_WAY_MAX: Final = 64
LINKS_MAX: Final = 1_024
"""Links whose dialling is kept in mind."""
HANDSHAKE_TRIPS: Final = 3
"""Round trips from dialling until a link is up: TCP, then HELLO and WELCOME, then INITIATE and READY."""
_MARKS: Final[dict[str, Phase]] = {"asking": "request", "connecting": "view", "joined": "exchanges"}
"""Which phase is over when a join tells of this one."""


class _Under(Struct):
    """A join that is under way."""

    role: Literal["joiner", "acceptor"]
    begun_us: int
    members: int = 0
    attempt: int = field(default_factory=lambda: int.from_bytes(os.urandom(6), "big"))
    over: dict[Phase, int] = field(default_factory=dict)
    """When each phase has ended."""
    heard: bool = False
    hosts: Hosts = frozenset()
    """With whom we were connected when it began."""
    connected: bool | None = None
    """Whether all who were dialled are among them; None: nobody was dialled."""
    rtt_us: int | None = None


class _Fetching(Struct):
    begun_us: int
    rows: int = 0
    bytes: int = 0
    cuts: int = 0


class Joins(Struct):
    _joining: dict[str, _Under] = field(default_factory=dict)
    """By the join's id."""
    _accepted: dict[tuple[str, str], _Under] = field(default_factory=dict)
    """By group and newcomer."""
    _fetching: dict[str, _Fetching] = field(default_factory=dict)
    """By group."""
    _dialled: dict[bytes, int] = field(default_factory=dict)
    """While somebody joins: since when each link is dialled that is not up yet."""

    @property
    def waits(self) -> bool:
        """Whether somebody was let in, and is not yet seated."""
        return bool(self._accepted)

    @property
    def fetches(self) -> bool:
        return bool(self._fetching)

    # --- the joiner -------------------------------------------------------------------------------------------------

    def told(self, sight: Sight, news: Iterable[JoinProgress]) -> Iterator[Join]:
        for one in news:
            under = self._joining.get(one.join)
            if under is None:
                if one.phase in ("joined", "failed") or len(self._joining) >= UNDER_WAY_MAX:
                    continue  # how it began was not recorded
                under = self._joining[one.join] = _Under("joiner", sight.begun_us, hosts=_connected(sight.before))
            under.members = max(under.members, one.members)
            phase = _MARKS.get(one.phase)
            if phase is not None:
                under.over.setdefault(phase, sight.ended_us)
            if one.phase in ("joined", "failed"):
                del self._joining[one.join]
                cancelled = one.error == "JoinCancelled"
                outcome: Outcome = "joined" if one.phase == "joined" else "cancelled" if cancelled else "failed"
                yield from self._rows(sight, one.group, under, outcome, sight.ended_us)

    # --- the acceptor -----------------------------------------------------------------------------------------------

    def let_in(self, sight: Sight) -> Iterator[State]:
        """Notes whom the observer has let in, or that it is in itself; what the newcomer is told of the group."""
        for name, before, group in sight.changed:
            if before is None:
                for join in sight.before.joins.values():
                    if join.group == name:  # we are the newcomer
                        yield _state(sight, group)
                        if join.id in self._joining:
                            self._joining[join.id].over.setdefault("view", sight.ended_us)
                continue
            for event in group.fresh[len(before.fresh) :]:
                if event.type != ADD or len(self._accepted) >= UNDER_WAY_MAX:
                    continue
                member = add_of(event).member
                claims = (claim for open_ in sight.after.invitations.values() for claim in open_.claims.values())
                asked = next((claim.at for claim in claims if claim.relationship.member == member), 0)
                hosts = _connected(sight.before, besides=name)
                under = _Under("acceptor", asked * 1000 or sight.begun_us, len(before.view.members), hosts=hosts)
                under.over["request"] = sight.ended_us
                self._accepted[name, member] = under
                yield _state(sight, group)

    def announced(self, at_us: int) -> None:
        """What was said in this turn is on its way to the others."""
        for under in self._accepted.values():
            under.over.setdefault("announce", at_us)

    def seated(self, sight: Sight, news: Iterable[Seating]) -> Iterator[Join]:
        for one in news:
            under = self._accepted.get((one.group, one.member))
            if under is not None:
                under.heard = True
                under.over["exchanges"] = sight.ended_us
                if one.connected >= one.members:
                    del self._accepted[one.group, one.member]
                    yield from self._rows(sight, one.group, under, "joined", sight.ended_us)
        for (name, member), under in list(self._accepted.items()):
            last = max(under.over.values())
            if sight.ended_us - last > ACCEPTED_US:
                del self._accepted[name, member]
                yield from self._rows(sight, name, under, "joined" if under.heard else "failed", last)

    # --- both -------------------------------------------------------------------------------------------------------

    def dialled(self, sight: Sight, dials: Iterable[Dial]) -> None:
        """Notes since when links are dialled, as long as a join is under way."""
        if not (self._joining or self._accepted):
            self._dialled.clear()
            return
        for one in dials:
            under = self._under(sight, one.link)
            known = under is not None and (one.server_key, one.pair) in under.hosts
            if under is not None:
                under.connected = known and under.connected is not False
            rides = known and bool(
                one.queues
            )  # it is up at once, which says nothing of the line (`network/zmq/multiplexing.py`)
            if one.link not in sight.after.up and not rides and len(self._dialled) < LINKS_MAX:
                self._dialled.setdefault(one.link, sight.ended_us)

    def came_up(self, sight: Sight) -> None:
        """A link that was dialled for a join is up: how long its handshake took is what is known of the line."""
        for link in [link for link in self._dialled if link in sight.after.up]:
            took_us = sight.begun_us - self._dialled.pop(link)
            under = self._under(sight, link)
            if under is not None and took_us >= 0 and sight.reasons.get(link) == "dialled":
                under.rtt_us = max(under.rtt_us or 0, took_us // HANDSHAKE_TRIPS)

    def _under(self, sight: Sight, link: bytes) -> _Under | None:
        """The join for which a link was dialled."""
        joins = {**sight.before.joins, **sight.after.joins}
        found = sight.whose(link)
        if found is None:
            return self._joining.get(joins[link].id) if link in joins else None
        ours = next(
            (self._joining[one.id] for one in joins.values() if one.group == found[0] and one.id in self._joining), None
        )
        return ours or self._accepted.get(found)

    def _rows(self, sight: Sight, name: str, under: _Under, outcome: Outcome, ended_us: int) -> Iterator[Join]:
        group = sight.after.groups.get(name)
        me = sight.me(group) if group is not None else 0
        number = sight.number(name) if group is not None else 0
        begun = under.begun_us
        ends = sorted(under.over.items(), key=lambda item: item[1])
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

    # --- what was said before ---------------------------------------------------------------------------------------

    def fetched(
        self, sight: Sight, news: Iterable[HistoryFetched], got: Iterable[tuple[str, int]]
    ) -> Iterator[Snapshot]:
        """`got`: groups, and the sizes of records from before the observer's time."""
        for name, before, group in sight.changed:
            if group.fetching is not None and name not in self._fetching and (before is None or not before.fetching):
                self._fetching[name] = _Fetching(sight.begun_us)
        for name, size in got:
            if name in self._fetching:
                self._fetching[name].rows += 1
                self._fetching[name].bytes += size
        if self._fetching:
            for link in sight.before.up - sight.after.up:
                found = sight.whose(link)
                if found is not None and found[0] in self._fetching:
                    self._fetching[found[0]].cuts += 1
        for one in news:
            if one.done and one.group in self._fetching:
                yield self._snapshot(sight, one.group, "whole" if not one.left else "cut")

    def _snapshot(self, sight: Sight, name: str, outcome: Literal["whole", "cut"]) -> Snapshot:
        found = self._fetching.pop(name)
        group = sight.after.groups.get(name) or sight.before.groups[name]
        return Snapshot(
            observer=sight.me(group),
            group=sight.number(name),
            rows=found.rows,
            bytes_b=found.bytes,
            us=max(0, sight.ended_us - found.begun_us),
            cuts=found.cuts,
            outcome=outcome,
            t_us=sight.ended_us,
        )

    def forget(self, group: str) -> None:
        self._accepted = {key: one for key, one in self._accepted.items() if key[0] != group}
        self._fetching.pop(group, None)


def _connected(agent: Agent, besides: str = "") -> Hosts:
    """With whom an agent is connected, in whichever group but this one."""
    return frozenset(
        (reach.server_key, reach.pair)
        for group in agent.groups.values()
        if group.id != besides
        for member, peer in group.peers.items()
        if peer.link in agent.up and member in group.view.members
        if (reach := reach_of_member(group, member)).pair is not None
    )


def _state(sight: Sight, group: Group) -> State:
    """What a newcomer is told of a group: its membership events, as long as they are on the wire."""
    events = sorted(group.control.values(), key=lambda event: (event.lamport, event.author, event.seq))
    message = Message(type=WELCOME, id="", body={"runs": write_runs(events)})
    raw = len(compact_json(message.body["runs"]))
    packed = squeezed(message).body.get("packed")
    small = len(b64url_bytes(packed)) if packed is not None else raw
    return State(sight.me(group), sight.number(group.id), len(group.view.members), raw, small, sight.ended_us)
