"""A malicious member: the real core, plus messages that it would not send, made with its keys.

The cryptography is not broken: an adversary signs with its own key, writes in its own relationships and reads its own
links. It can equivocate: from some moment, two copies of its core continue as branches, each towards some of the other
members, with a consistent history each.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import RemoteError
from zerochat.evidence.messages import Data, data, parse_data
from zerochat.group.effects import (
    Disconnect,
    Effect,
    Publish,
    ReadHistory,
    ReadOwnEvents,
    Reconcile,
    RevokeClient,
    SendEnvelope,
    SetTimer,
    StoreEvent,
)
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import ADD, CONTROL, POST, Event
from zerochat.group.inputs import (
    BatchEnded,
    CommandInput,
    HistoryRead,
    Input,
    LinkDown,
    LinkUp,
    OwnEventsRead,
    Received,
    StepContext,
    TimerFired,
)
from zerochat.group.key_agreement.message_keys import known_epochs, receiving_key
from zerochat.group.key_modes import MODES
from zerochat.group.key_modes.dcgka import is_sealed, open_, place_of
from zerochat.group.key_modes.sender_key import associated_data, is_signed, ratchet, seal_content
from zerochat.group.links.contact import member_link, new_identity, sign_consent, sign_possession, transport_public
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.membership import add_of, heads_of
from zerochat.group.signed_streams.messages import body_of
from zerochat.group.state import Agent, Chain, Group, OwnStream, Stream
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import read_runs, runs_of, without_bytes, write_runs
from zerochat.group.wire.messages import (
    EVENTS,
    HISTORY_RESPONSE,
    STATUS,
    EventsBody,
    HistoryResponseBody,
    StatusBody,
    read_body,
)
from zerochat.sim.floods import Messages
from zerochat.sim.node import Node, Violation
from zerochat.sim.world import SIMULATED_PACKERS, World

SECOND_BRANCH = "other face "
"""Prefix of the second branch's timers."""
_link_of = lru_cache(4096)(member_link)
"""Called for every frame and every known member."""
ENVELOPES_KEPT_MAX = 400
"""Envelopes kept for replay: sent ones, and as many received ones."""
REQUESTS_KEPT_MAX = 100
KEYS_TRIED = 32
"""History requests kept to be answered again; keys tried on a signed message."""


class Adversary:
    """One byzantine node."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.rng = world, name, world.rng
        self.branch = 0
        self._inactive: dict[int, tuple[Agent, list[StoreEvent]]] = {}
        self._branch_of_link: dict[bytes, int] = {}
        self.known: dict[str, tuple[Group, Relationship]] = {}
        """By member: its group and relationship, kept after our removal."""
        self.streams: dict[str, Stream] = {}
        """The streams of others, as last known to our core."""
        self.withhold_from: dict[bytes, float] = {}
        """By link: fraction of our core's envelopes that are dropped."""
        self.sent: list[tuple[str, bytes, bytes]] = []
        """Envelopes sent: node, link, envelope."""
        self.received_envelopes: deque[bytes] = deque(maxlen=ENVELOPES_KEPT_MAX)
        """Envelopes received from others."""
        self.removed = False
        """Whether we were removed and ignore that."""
        self.accomplices: frozenset[str] = frozenset()
        """The byzantine nodes."""
        self.inviting_branch = 0
        """The branch that invites."""
        self.admits_into = "hidden"
        """"both": members admitted by the second branch are added in the first one too."""
        self.all_adversaries: Mapping[str, Adversary] = {}
        """All adversaries by node."""
        self.history_requests: dict[str, ReadHistory] = {}
        """History requests of others by thread."""
        self.forge_response: Callable[[ReadHistory, HistoryRead], HistoryRead] | None = None
        """Replaces the answer to a history request."""
        self.forged_ids: set[str] = set()
        """Ids of forged events of others: they may be stored as relayed by us, never as their author's."""
        self.floods: dict[str, Messages] = {}
        """What is left of each flood."""
        self.crashed = False
        """Whether our machine is off forever."""

    @property
    def node(self) -> Node:
        return self.world.nodes[self.name]

    @property
    def group(self) -> Group | None:
        """Our group in the current branch."""
        return next(iter(self.node.agent.groups.values()), None)

    @property
    def is_split(self) -> bool:
        return bool(self._inactive)

    # --- branches ---------------------------------------------------------------------------------------------------

    def split(self, to_the_other: Iterable[str]) -> None:
        """Continue as two branches; the second one serves these members (DIDs) and those that it admits."""
        group = self.group
        assert group is not None and not self.is_split
        other = set(to_the_other)
        for member in group.links.peers:
            self._branch_of_link[member_link(group.id, group.me, member)] = int(member in other)
        self._inactive[1] = (self.node.agent, list(self.node.log))
        for key in list(self.node.timers):
            self.world._later(1, self.name, SECOND_BRANCH + key)
            self.node.timers[SECOND_BRANCH + key] = self.world.now + 1

    def assign(self, member: str, client: int) -> None:
        """Serve this member with this branch from now on."""
        group = self.group
        assert group is not None
        self._branch_of_link[member_link(group.id, group.me, member)] = client

    @contextmanager
    def using_branch(self, client: int) -> Iterator[None]:
        """Switch to this branch for the block."""
        before = self.branch
        self._switch_branch(client)
        try:
            yield
        finally:
            self._switch_branch(before)

    def _switch_branch(self, client: int) -> None:
        if client != self.branch:
            self._inactive[self.branch] = (self.node.agent, self.node.log)
            self.node.agent, self.node.log = self._inactive.pop(client)
            self.branch = client

    def _branch_for(self, input_: Input) -> int:
        match input_:
            case _ if not self.is_split:
                return 0
            case Received(link) | LinkUp(link) | LinkDown(link):
                return self._branch_of_link.get(link, 0)
            case OwnEventsRead(_, member) | HistoryRead(_, member) if (group := self.group) is not None:
                return self._branch_of_link.get(member_link(group.id, group.me, member), 0)
            case TimerFired(key):
                return int(key.startswith(SECOND_BRANCH))
            case _:
                return self.branch

    def process(self, input_: Input) -> None:
        """Process an input in its branch. Errors that our own attacks cause in our core are ignored."""
        if self.crashed:
            return
        with self.using_branch(self._branch_for(input_)):
            if isinstance(input_, TimerFired):
                input_ = TimerFired(input_.key.removeprefix(SECOND_BRANCH))
            if (
                isinstance(input_, HistoryRead)
                and self.forge_response is not None
                and input_.thread in self.history_requests
            ):
                input_ = self.forge_response(self.history_requests[input_.thread], input_)
            try:
                World.process(self.world, self.name, input_)
            except Violation:
                if isinstance(input_, CommandInput) or not self.is_split:
                    raise
            self.update_known_members()

    def update_known_members(self) -> None:
        """Register new members."""
        group = self.group
        if group is None:
            return
        if self.is_split:
            new = [member for member, peer in group.links.peers.items() if peer.link not in self._branch_of_link]
            for link in (*self.node.agent.invitations, *(peer.link for peer in group.links.peers.values())):
                self._branch_of_link.setdefault(link, self.branch)
            if new and self.branch == 1 and self.admits_into == "both":
                ours = [e for e in group.control.values() if e.type == ADD and e.author == group.me]
                added = [event.body for event in ours if add_of(event).member in new and not self._is_accomplice(event)]
                relationships = {
                    member: group.links.relationships[member] for member in new if member in group.links.relationships
                }
                with self.using_branch(0):
                    if self.group is not None and added:
                        for member in new:
                            self.assign(member, self.rng.choice((0, 1)))
                        known = {**self.group.links.relationships, **relationships}
                        changed = replace(self.group, links=replace(self.group.links, relationships=known))
                        self.node.agent = replace(self.node.agent, groups={group.id: changed})
                        for body in added:
                            self.commit(ADD, body)
        self.streams |= group.streams.followed
        for member, relationship in group.links.relationships.items():
            if relationship.established:
                self.known[member] = (group, relationship)

    def _is_accomplice(self, event: Event) -> bool:
        return str(event.body["label"]).startswith("Eve")

    def branch_with_request(self, who: str) -> int:
        """The branch that received the join request of this member."""
        with self.using_branch(1 if self.is_split else 0):
            asked = self.group is not None and who in self.group.joining.requests
        return int(self.is_split and asked)

    def filter_effect(self, effect: Effect) -> list[Effect]:
        """The effects that replace this effect of our core."""
        if isinstance(effect, ReadHistory):
            self.history_requests[effect.thread] = effect
            for thread in list(self.history_requests)[:-REQUESTS_KEPT_MAX]:
                del self.history_requests[thread]
        match effect:
            case Disconnect() | RevokeClient() if self.is_split or self.removed:
                return []
            case SetTimer(key, delay_ms, keep) if self.branch:
                return [SetTimer(SECOND_BRANCH + key, delay_ms, keep)]
            case SendEnvelope(link) if self.is_split and self._branch_of_link.get(link, self.branch) != self.branch:
                return []
            case ReadOwnEvents(_, member) | ReadHistory(_, member) | Reconcile(_, member) if (
                self.is_split and (group := self.group) is not None
            ):
                link = member_link(group.id, group.me, member)
                return [effect] if self._branch_of_link.get(link, self.branch) == self.branch else []
            case SendEnvelope(link) if self.rng.random() < self.withhold_from.get(link, 0):
                return []
            case Publish(_, envelope, links) if self.is_split or self.withhold_from:
                return [one for link in links for one in self.filter_effect(SendEnvelope(link, envelope))]
        return [effect]

    def crash_forever(self) -> None:
        """Switch our machine off forever."""
        self.crashed = True
        node = self.node
        for link in list(node.connected):
            del node.connected[link]
        node.timers.clear()
        node.dialled.clear()
        node.allowed_clients.clear()
        for other in self.world.nodes.values():
            for link in [link for link, end in other.connected.items() if end == self.name]:
                self.world._disconnect(other, link)

    # --- sending ----------------------------------------------------------------------------------------------------

    def context(self) -> StepContext:
        return StepContext(self.world.now, self.rng.randbytes)

    def victims(self) -> list[str]:
        """The nodes of members that we can write to."""
        return [name for name, did in self.members().items() if did in self.known]

    def members(self) -> dict[str, str]:
        """The DIDs of the other members by node."""
        group = self.group
        found = {}
        for name, node in self.world.nodes.items():
            for other in node.agent.groups.values():
                if group is not None and other.id == group.id and name != self.name:
                    found[name] = other.me
        return found

    def deliver(self, to: str, envelope: bytes) -> None:
        """Deliver an envelope on our link to a node, even if its sockets would refuse us."""
        group, _ = self.known[self.members()[to]]
        link = member_link(group.id, group.me, self.members()[to])
        for _ in range(2):
            self.world._frame(to, self.as_received(link, envelope))

    def send_message(self, to: str, kind: str, body: Mapping[str, Any], thread: str | None = None) -> None:
        """Send an authentic message to a node."""
        group, relationship = self.known[self.members()[to]]
        message = Message(type=kind, id=new_id(self.rng.randbytes), thid=thread, body=dict(body))
        packer = SIMULATED_PACKERS[group.profile.envelope]
        self.deliver(to, pack(relationship, message, packer, self.rng.randbytes))

    def send_events(self, to: str, *events: Event) -> None:
        group, _ = self.known[self.members()[to]]
        body: dict[str, Any] = {"runs": write_runs(events), "view": group.view.checksum, "have": []}
        if events[0].is_control:
            self.send_message(to, STATUS, {**body, "group": group.id})
        elif group.streams.own is not None:
            self.deliver(to, self._signed(group, group.streams.own, body))
        else:
            self.send_message(to, EVENTS, body)

    def send_events_unsigned(self, to: str, *events: Event) -> None:
        """Send events without a signature, whatever the key mode."""
        group, _ = self.known[self.members()[to]]
        self.send_message(to, EVENTS, {"runs": write_runs(events), "view": group.view.checksum, "have": []})

    def _signed(self, group: Group, own: OwnStream, body: dict[str, Any]) -> bytes:
        """A message of our stream at the next position, unknown to our core, so that there may be several."""
        key, _ = ratchet(own.chain)
        time = max(1, self.world.now, own.time + 1)
        bare = Data(time, ed25519_public(group.seed), own.alias, b"", own.head)
        return data(group.seed, time, own.alias, seal_content(key, body, associated_data(bare)), own.head).serialize()

    def event(self, kind: str, body: Mapping[str, Any], **fields: Any) -> Event:
        """The next event of our chain, with these fields replaced; signed by us."""
        group = self.group
        assert group is not None
        chain = group.log.chains.get(group.me, Chain())
        values: dict[str, Any] = {
            "group": group.id,
            "type": kind,
            "author": group.me,
            "seq": chain.seq + 1,
            "pre": chain.head_id,
            "deps": heads_of(group.control)[:16] if kind in CONTROL else (),
            "conc": (),
            "lamport": max(group.log.lamport + 1, self.world.now),
            "time": self.world.now,
            "body": dict(body),
        }
        event = Event(**{**values, **fields})
        return event.signed(group.seed) if event.is_control or group.mode.signs_events else event

    def commit(self, kind: str, body: Mapping[str, Any]) -> Event | None:
        """Append an event through our core. None if that is impossible."""
        group = self.group
        if group is None or group.state != "active":
            return None
        turn = Transaction(self.node.agent, self.context(), SIMULATED_PACKERS)
        try:
            event = own_events.append(turn, group.id, kind, body)
        except RemoteError:
            return None
        self.node.agent = turn.agent
        for effect in turn.effects:
            self.world._perform(self.node, effect)
        with self.using_branch(self.branch):
            World.process(self.world, self.name, BatchEnded())
        self.update_known_members()
        return event

    def as_received(self, link: bytes, envelope: bytes) -> Received:
        return Received(link, envelope, self.name.encode() + b" " + link)

    def make_accomplice(self, label: str = "Eve", **changes: str) -> tuple[str, dict[str, Any]]:
        """A new identity, and the body of an event that adds it, valid except for these changes."""
        group = self.group
        assert group is not None and self.node.agent.reach is not None
        seed = self.rng.randbytes(32)
        member = did_key(ed25519_public(seed))
        contact = new_identity(self.rng.randbytes, self.node.agent.reach, group.profile.envelope).did
        body = {
            "member": member,
            "label": label,
            "contact": contact,
            "role": "writer",
            "transport": transport_public(seed),
            "possession": sign_possession(seed, group.id, member),
            **changes,
        }
        consented = (body["label"], body["contact"], body["role"], body["transport"])
        body["consent"] = sign_consent(seed, group.id, group.me, body["member"], *consented)
        return member, {**body, **{key: value for key, value in changes.items() if key == "consent"}}

    # --- reading ----------------------------------------------------------------------------------------------------

    def decrypt_posts(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, str]]:
        """Author and id of the posts in an envelope, decrypted with any key that we ever had."""
        if is_signed(envelope):
            yield from self._decrypt_signed_posts(link, envelope)
            return
        if is_sealed(envelope):
            yield from self._decrypt_sealed_posts(link, envelope)
            return
        for member, group, message in self._read(link, envelope):
            if message.type not in (EVENTS, STATUS):
                continue
            found: list[Event] = []
            with suppress(RemoteError):
                status = message.type == STATUS
                runs = read_body(message, StatusBody).runs if status else read_body(message, EventsBody).runs
                found = list(read_runs(group.id, runs))
            yield from ((member, event.id) for event in found if event.type == POST)

    def _decrypt_signed_posts(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, str]]:
        """The same for a signed message after our removal: with the last known key and those derived from it."""
        for member, (group, _) in self.known.items():
            stream = self.streams.get(member)
            if not self.removed or stream is None or _link_of(group.id, group.me, member) != link:
                continue
            chain = stream.chain
            for _ in range(KEYS_TRIED):
                key, chain = ratchet(chain)
                with suppress(RemoteError):
                    body = body_of(key, parse_data(envelope))
                    found = list(read_runs(group.id, runs_of(body.runs, body.packed), member))
                    yield from ((member, event.id) for event in found if event.type == POST)
                    return

    def _decrypt_sealed_posts(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, str]]:
        """The same for a message under keys that heal, after our removal: with the last known keys."""
        for member, (group, _) in self.known.items():
            if not self.removed or _link_of(group.id, group.me, member) != link:
                continue
            with suppress(RemoteError):
                keys, now = group.dcgka.keys, self.world.now
                if (place := place_of(envelope, known_epochs(keys, member))) is None:
                    continue
                _, key = receiving_key(keys, member, place.epoch, place.number, now)
                body = msgspec.convert(without_bytes(open_(key, place, envelope, group.id, member)), EventsBody)
                found = list(read_runs(group.id, runs_of(body.runs, body.packed), member))
                yield from ((member, event.id) for event in found if event.type == POST)

    def decrypt_history_responses(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, list[Event]]]:
        """Member and events of a history response to us."""
        for member, group, message in self._read(link, envelope):
            if message.type != HISTORY_RESPONSE:
                continue
            found: list[Event] = []
            with suppress(RemoteError):
                body = read_body(message, HistoryResponseBody)
                found = list(read_runs(group.id, runs_of(body.runs, body.packed), member))
            yield member, found

    def _read(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, Group, Message]]:
        for member, (group, relationship) in self.known.items():
            if _link_of(group.id, group.me, member) != link:
                continue
            with suppress(RemoteError):
                packer = SIMULATED_PACKERS[group.profile.envelope]
                _, message = MODES[group.profile.keys].open(group.own_place, envelope, relationship, packer)
                yield member, group, message
