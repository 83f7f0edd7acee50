"""A member that breaks the rules: the real core, and beside it somebody who has its keys and says what it would not.

Nothing here goes around the cryptography: an adversary signs with its own key alone, writes in its own relationships,
and hears what comes over its own links. It may be two-faced: from some moment on two copies of its core go on, each
towards some of the others only, so that what either does is never known to the other's friends through it. That is the
worst that equivocation can be, with a whole consistent history on each side.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import RemoteError
from zerochat.evidence.messages import Data, data, parse_data
from zerochat.group.effects import Compare, Dispatch, Effect, Fetch, Hangup, Publish, Recall, Remember, Revoke, SetTimer
from zerochat.group.event_log import log
from zerochat.group.event_log.event import ADD, CONTROL, POST, Event
from zerochat.group.inputs import (
    Ask,
    Fetched,
    LinkDown,
    LinkUp,
    Moment,
    Recalled,
    Received,
    Stimulus,
    TimerFired,
    TurnOver,
)
from zerochat.group.key_modes import MODES
from zerochat.group.key_modes.sender_key import bound_of, is_signed, moved_on, seal_content
from zerochat.group.links.contact import member_link, new_identity, sign_consent, sign_possession, transport_name
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.membership import add_of, heads_of
from zerochat.group.signed_streams.reader import body_of
from zerochat.group.state import Agent, Chain, Group, OwnStream, Stream
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import read_runs, runs_in, write_runs
from zerochat.group.wire.messages import EVENTS, SHARE, STATUS, EventsBody, ShareBody, StatusBody, read_body
from zerochat.sim.node import Node, Violation
from zerochat.sim.world import SIMULATED_PACKERS, World

OTHER_FACE = "other face "
"""What stands before the names of the second face's timers."""
_link_of = lru_cache(4096)(member_link)
"""What is overheard is looked up for every frame and every member that we ever knew."""
HEARD_MAX = 400
"""Envelopes that an adversary keeps to say again: its own, and as many of others."""
ASKED_MAX = 100
KEYS_TRIED = 32
"""Needs of others that it keeps, to answer them as often as it likes."""


class Adversary:
    """One byzantine node."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.dice = world, name, world.dice
        self.face = 0
        self._resting: dict[int, tuple[Agent, list[Remember]]] = {}
        self._side: dict[bytes, int] = {}
        self.known: dict[str, tuple[Group, Relationship]] = {}
        """By member: our last relationship with it, which we do not forget when we are put out."""
        self.heard: dict[str, Stream] = {}
        """The streams of the others, as far as our core has last heard them."""
        self.deaf_to: dict[bytes, float] = {}
        """By link: how much of what our core says there never goes out."""
        self.sent: list[tuple[str, bytes, bytes]] = []
        """Nodes, our links to them, and what we have said there."""
        self.seen: deque[bytes] = deque(maxlen=HEARD_MAX)
        """What others have said to us, as it came."""
        self.out = False
        """We are put out, and do not accept that."""
        self.accomplices: frozenset[str] = frozenset()
        """The other byzantine nodes, which keep to us."""
        self.opens = 0
        """Which of our faces invites."""
        self.brings_in = "hidden"
        """Whether our first face lets in too whom the second one has let in ("both")."""
        self.band: Mapping[str, Adversary] = {}
        """All adversaries, by node."""
        self.asked: dict[str, Fetch] = {}
        """By thread: what others have asked us for."""
        self.answer: Callable[[Fetch, Fetched], Fetched] | None = None
        """What they get instead of what our log has."""
        self.forged: set[str] = set()
        """The ids of what nobody has ever said: it may be shown as ours to vouch for, and as nobody's word."""
        self.gone = False
        """Our machine is off, for ever."""

    @property
    def node(self) -> Node:
        return self.world.nodes[self.name]

    @property
    def group(self) -> Group | None:
        """Our group as the present face has it."""
        return next(iter(self.node.agent.groups.values()), None)

    @property
    def two_faced(self) -> bool:
        return bool(self._resting)

    # --- faces ------------------------------------------------------------------------------------------------------

    def split(self, to_the_other: Iterable[str]) -> None:
        """Go on as two, the second of which has to do with these members (DIDs), and with whom it lets in itself."""
        group = self.group
        assert group is not None and not self.two_faced
        other = set(to_the_other)
        for member in group.peers:
            self._side[member_link(group.id, group.me, member)] = int(member in other)
        self._resting[1] = (self.node.agent, list(self.node.log))
        for key in list(self.node.timers):
            self.world._later(1, self.name, OTHER_FACE + key)
            self.node.timers[OTHER_FACE + key] = self.world.now + 1

    def turn_to(self, member: str, face: int) -> None:
        """From now on this member has to do with this one of us."""
        group = self.group
        assert group is not None
        self._side[member_link(group.id, group.me, member)] = face

    @contextmanager
    def wearing(self, face: int) -> Iterator[None]:
        """Be this one of us for a moment."""
        before = self.face
        self._wear(face)
        try:
            yield
        finally:
            self._wear(before)

    def _wear(self, face: int) -> None:
        if face != self.face:
            self._resting[self.face] = (self.node.agent, self.node.log)
            self.node.agent, self.node.log = self._resting.pop(face)
            self.face = face

    def _face_for(self, stimulus: Stimulus) -> int:
        match stimulus:
            case _ if not self.two_faced:
                return 0
            case Received(link) | LinkUp(link) | LinkDown(link):
                return self._side.get(link, 0)
            case Recalled(_, member) | Fetched(_, member) if (group := self.group) is not None:
                return self._side.get(member_link(group.id, group.me, member), 0)
            case TimerFired(key):
                return int(key.startswith(OTHER_FACE))
            case _:
                return self.face

    def hear(self, stimulus: Stimulus) -> None:
        """One turn of one of our faces. What it stumbles over because of what we did to it is our own affair."""
        if self.gone:
            return
        with self.wearing(self._face_for(stimulus)):
            if isinstance(stimulus, TimerFired):
                stimulus = TimerFired(stimulus.key.removeprefix(OTHER_FACE))
            if isinstance(stimulus, Fetched) and self.answer is not None and stimulus.thread in self.asked:
                stimulus = self.answer(self.asked[stimulus.thread], stimulus)
            try:
                World.hear(self.world, self.name, stimulus)
            except Violation:
                if isinstance(stimulus, Ask) or not self.two_faced:
                    raise
            self.look_around()

    def look_around(self) -> None:
        """See who is new."""
        group = self.group
        if group is None:
            return
        if self.two_faced:
            new = [member for member, peer in group.peers.items() if peer.link not in self._side]
            for link in (*self.node.agent.invitations, *(peer.link for peer in group.peers.values())):
                self._side.setdefault(link, self.face)
            if new and self.face == 1 and self.brings_in == "both":
                ours = [e for e in group.control.values() if e.type == ADD and e.author == group.me]
                added = [event.body for event in ours if add_of(event).member in new and not self._is_eve(event)]
                relationships = {member: group.relationships[member] for member in new if member in group.relationships}
                with self.wearing(0):
                    if self.group is not None and added:
                        for member in new:
                            self.turn_to(member, self.dice.choice((0, 1)))
                        known = {**self.group.relationships, **relationships}
                        changed = replace(self.group, relationships=known)
                        self.node.agent = replace(self.node.agent, groups={group.id: changed})
                        for body in added:
                            self.commit(ADD, body)
        self.heard |= group.streams
        for member, relationship in group.relationships.items():
            if relationship.established:
                self.known[member] = (group, relationship)

    def _is_eve(self, event: Event) -> bool:
        return str(event.body["label"]).startswith("Eve")

    def face_with(self, who: str) -> int:
        """Which of our faces somebody has asked to be let in."""
        with self.wearing(1 if self.two_faced else 0):
            asked = self.group is not None and who in self.group.requests
        return int(self.two_faced and asked)

    def filtered(self, effect: Effect) -> list[Effect]:
        """What of this our core may do."""
        if isinstance(effect, Fetch):
            self.asked[effect.thread] = effect
            for thread in list(self.asked)[:-ASKED_MAX]:
                del self.asked[thread]
        match effect:
            case Hangup() | Revoke() if self.two_faced or self.out:
                return []
            case SetTimer(key, delay_ms, keep) if self.face:
                return [SetTimer(OTHER_FACE + key, delay_ms, keep)]
            case Dispatch(link) if self.two_faced and self._side.get(link, self.face) != self.face:
                return []
            case Recall(_, member) | Fetch(_, member) | Compare(_, member) if (
                self.two_faced and (group := self.group) is not None
            ):
                link = member_link(group.id, group.me, member)
                return [effect] if self._side.get(link, self.face) == self.face else []
            case Dispatch(link) if self.dice.random() < self.deaf_to.get(link, 0):
                return []
            case Publish(_, envelope, links) if self.two_faced or self.deaf_to:
                return [one for link in links for one in self.filtered(Dispatch(link, envelope))]
        return [effect]

    def vanish(self) -> None:
        """Be silent from now on: nobody ever hears of our machine again."""
        self.gone = True
        node = self.node
        for link in list(node.connected):
            del node.connected[link]
        node.timers.clear()
        node.dialled.clear()
        node.admitted.clear()
        for other in self.world.nodes.values():
            for link in [link for link, end in other.connected.items() if end == self.name]:
                self.world._disconnect(other, link)

    # --- speaking ---------------------------------------------------------------------------------------------------

    def moment(self) -> Moment:
        return Moment(self.world.now, self.dice.randbytes)

    def victims(self) -> list[str]:
        """The nodes of those members to whom we can write."""
        return [name for name, did in self.members().items() if did in self.known]

    def members(self) -> dict[str, str]:
        """By node: the key of everybody else in our group."""
        group = self.group
        found = {}
        for name, node in self.world.nodes.items():
            for other in node.agent.groups.values():
                if group is not None and other.id == group.id and name != self.name:
                    found[name] = other.me
        return found

    def deliver(self, to: str, envelope: bytes) -> None:
        """Put an envelope before a node's core on our link to it, whether or not its sockets would still let us in."""
        group, _ = self.known[self.members()[to]]
        link = member_link(group.id, group.me, self.members()[to])
        for _ in range(2):
            self.world._frame(to, self.received(link, envelope))

    def utter(self, to: str, kind: str, body: Mapping[str, Any], thread: str | None = None) -> None:
        """Say something authentic to a node."""
        group, relationship = self.known[self.members()[to]]
        message = Message(type=kind, id=new_id(self.dice.randbytes), thid=thread, body=dict(body))
        packer = SIMULATED_PACKERS[group.profile.envelope]
        self.deliver(to, pack(relationship, message, packer, self.dice.randbytes))

    def tell(self, to: str, *events: Event) -> None:
        group, _ = self.known[self.members()[to]]
        body: dict[str, Any] = {"runs": write_runs(events), "view": group.view.checksum, "have": []}
        if events[0].is_control:
            self.utter(to, STATUS, {**body, "group": group.id})
        elif group.stream is not None:
            self.deliver(to, self._signed(group, group.stream, body))
        else:
            self.utter(to, EVENTS, body)

    def tell_unsigned(self, to: str, *events: Event) -> None:
        """The same without a signature, whatever the group's keys are."""
        group, _ = self.known[self.members()[to]]
        self.utter(to, EVENTS, {"runs": write_runs(events), "view": group.view.checksum, "have": []})

    def _signed(self, group: Group, own: OwnStream, body: dict[str, Any]) -> bytes:
        """A message of our stream in the next place, of which our core knows nothing: so there may be several there."""
        key, _ = moved_on(own.chain)
        time = max(1, self.world.now, own.time + 1)
        bare = Data(time, ed25519_public(group.seed), own.alias, b"", own.head)
        return data(group.seed, time, own.alias, seal_content(key, body, bound_of(bare)), own.head).written()

    def event(self, kind: str, body: Mapping[str, Any], **fields: Any) -> Event:
        """The next event of our chain, or whatever else these fields say; signed by us, whoever it says is its
        author."""
        group = self.group
        assert group is not None
        chain = group.chains.get(group.me, Chain())
        values: dict[str, Any] = {
            "group": group.id,
            "type": kind,
            "author": group.me,
            "seq": chain.seq + 1,
            "pre": chain.tip,
            "deps": heads_of(group.control)[:16] if kind in CONTROL else (),
            "conc": (),
            "lamport": max(group.lamport + 1, self.world.now),
            "time": self.world.now,
            "body": dict(body),
        }
        event = Event(**{**values, **fields})
        return event.signed(group.seed) if event.is_control else event

    def commit(self, kind: str, body: Mapping[str, Any]) -> Event | None:
        """Have our core itself say this, although it would not by itself. None where it cannot."""
        group = self.group
        if group is None or group.state != "active":
            return None
        turn = Turn(self.node.agent, self.moment(), SIMULATED_PACKERS)
        try:
            event = log.append(turn, group.id, kind, body)
        except RemoteError:
            return None
        self.node.agent = turn.agent
        for effect in turn.effects:
            self.world._perform(self.node, effect)
        with self.wearing(self.face):
            World.hear(self.world, self.name, TurnOver())
        self.look_around()
        return event

    def received(self, link: bytes, envelope: bytes) -> Received:
        return Received(link, envelope, self.name.encode() + b" " + link)

    def eve(self, label: str = "Eve", **changes: str) -> tuple[str, dict[str, Any]]:
        """Somebody whom nobody knows, and the body of an event that adds her, in order but for these changes."""
        group = self.group
        assert group is not None and self.node.agent.reach is not None
        seed = self.dice.randbytes(32)
        member = did_key(ed25519_public(seed))
        contact = new_identity(self.dice.randbytes, self.node.agent.reach, group.profile.envelope).did
        body = {
            "member": member,
            "label": label,
            "contact": contact,
            "role": "writer",
            "transport": transport_name(seed),
            "possession": sign_possession(seed, group.id, member),
            **changes,
        }
        consented = (body["label"], body["contact"], body["role"], body["transport"])
        body["consent"] = sign_consent(seed, group.id, group.me, body["member"], *consented)
        return member, {**body, **{key: value for key, value in changes.items() if key == "consent"}}

    # --- listening --------------------------------------------------------------------------------------------------

    def overhear(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, str]]:
        """What somebody sends us, read with every key that we ever had: its author, and the ids of the posts."""
        if is_signed(envelope):
            yield from self._overhear_signed(link, envelope)
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

    def _overhear_signed(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, str]]:
        """The same of a signed message, once we are out: with the last key that we had, and those that follow from it.
        Before that it is our core that reads."""
        for member, (group, _) in self.known.items():
            stream = self.heard.get(member)
            if not self.out or stream is None or _link_of(group.id, group.me, member) != link:
                continue
            chain = stream.chain
            for _ in range(KEYS_TRIED):
                key, chain = moved_on(chain)
                with suppress(RemoteError):
                    body = body_of(key, parse_data(envelope))
                    found = list(read_runs(group.id, runs_in(body.runs, body.packed), member))
                    yield from ((member, event.id) for event in found if event.type == POST)
                    return

    def handed(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, list[Event]]]:
        """What somebody hands us because we have asked for it: who, and the events."""
        for member, group, message in self._read(link, envelope):
            if message.type != SHARE:
                continue
            found: list[Event] = []
            with suppress(RemoteError):
                body = read_body(message, ShareBody)
                found = list(read_runs(group.id, runs_in(body.runs, body.packed), member))
            yield member, found

    def _read(self, link: bytes, envelope: bytes) -> Iterator[tuple[str, Group, Message]]:
        for member, (group, relationship) in self.known.items():
            if _link_of(group.id, group.me, member) != link:
                continue
            with suppress(RemoteError):
                packer = SIMULATED_PACKERS[group.profile.envelope]
                _, message = MODES[group.profile.keys].open(group.place, envelope, relationship, packer)
                yield member, group, message
