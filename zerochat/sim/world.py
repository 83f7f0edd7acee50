"""The simulated world: nodes with the real core, their network, their clock, and what is checked in the end."""

import hashlib
import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.packer import Packer
from zerochat.group.effects import (
    Admit,
    Answer,
    Answered,
    Compare,
    Confirm,
    Dial,
    Dispatch,
    DropBlobs,
    DropFile,
    Effect,
    Fetch,
    FinishFile,
    Forget,
    Hangup,
    Hold,
    KeepAck,
    KeepBlob,
    KeepEntries,
    KeepLog,
    KeepMessage,
    KeepNote,
    KeepRival,
    KeepStatement,
    KeepStray,
    LookUp,
    Measure,
    Notify,
    Post,
    Posted,
    Publish,
    ReadParts,
    Recall,
    Receipt,
    Refuse,
    Refute,
    Release,
    Remember,
    Reply,
    Revoke,
    SealAcks,
    SetTimer,
    StoreParts,
)
from zerochat.group.engine import step
from zerochat.group.inputs import (
    Ask,
    Command,
    Connect,
    LinkDown,
    LinkUp,
    Moment,
    Received,
    Started,
    Stimulus,
    TimerFired,
    TurnOver,
)
from zerochat.group.key_rotation import Rotation
from zerochat.group.notifications import Delivered, Differs, Disagreement, Forked, LogSplit, Notice
from zerochat.group.state import Agent
from zerochat.sim.file_store import FileEffect
from zerochat.sim.invariants import Checks
from zerochat.sim.mediator import SimulatedMediator
from zerochat.sim.node import Node, Violation, stored
from zerochat.sim.node_checks import check_onward
from zerochat.sim.null_packer import TransparentPacker
from zerochat.sim.relayed_checks import left_out
from zerochat.sim.trace import told, who_is
from zerochat.sim.web import SimulatedWeb

__all__ = ["EPOCH_MS", "SIMULATED_PACKERS", "Faults", "Node", "Violation", "World"]

EPOCH_MS = 1_750_000_000_000
"""When every simulated world begins, UTC milliseconds."""


_public_of = lru_cache(4096)(x25519_public)
"""Who is at the other end is asked for every frame, and never changes."""

_TURN_OVER = TurnOver()
_ACCUSATIONS = frozenset((Forked, Disagreement, Differs, LogSplit))
SIMULATED_PACKERS: Mapping[str, Packer] = {**PACKERS, TransparentPacker.name: TransparentPacker()}


class Faults(Struct, frozen=True):
    """What the network does to a frame; probabilities, and a greatest delay in milliseconds.

    Every frame's delay is drawn by itself, so frames overtake each other on every link.
    """

    loss: float = 0.2
    duplication: float = 0.1
    delay_ms_max: int = 400


class World(Checks):
    """Some agents, their network and their clock, all from one seed."""

    rotation = Rotation()
    """When each of them draws a new key for what it says where keys sign."""

    def __init__(
        self,
        seed: int,
        members: int = 4,
        faults: Faults | None = None,
        envelope: str | None = None,
        say: Callable[[str], None] | None = None,
        mediators: int = 0,
        behind: Mapping[str, Sequence[str]] | None = None,
        chained: bool = False,
    ) -> None:
        """`mediators`: how many simulated ones there are, named m0 and so on; `behind`: which nodes nobody can dial,
        and who their mediators are; `chained`: each mediator but the first is itself reached over the one before."""
        self.seed = seed
        self.dice = random.Random(seed)
        self.faults = faults or Faults()
        self.say = say
        self.heed: Callable[[str, Notice], None] | None = None
        """Told what each node tells its faces."""
        self.made = set()
        self.now = self.began = EPOCH_MS
        self.digest = hashlib.sha256()
        self.steps = 0
        self._queue: list[tuple[int, int, str, Stimulus | str | Callable[[], None]]] = []
        self._order = 0
        self._ticket = 0
        real = {0: "didcomm/v2", 5: "didcomm/v1"}
        self.envelope = envelope or real.get(seed % 10, TransparentPacker.name)
        if behind and envelope is None:
            self.envelope = "didcomm/v1" if seed % 8 == 3 else "didcomm/v2"  # forwards hold nothing but real envelopes
        self.web = SimulatedWeb(self, self.faults.loss / 4, self.faults.delay_ms_max)
        via = None
        for number in range(mediators):
            mediator = SimulatedMediator(f"m{number}", self.dice.randbytes, via if chained else None)
            self.web.add(mediator)
            via = mediator
        self.nodes: dict[str, Node] = {}
        self._at: dict[bytes, Node] = {}
        """By the key of its sockets."""
        for number in range(members):
            name = f"n{number}"
            host = f"10.0.0.{number + 1}"
            server_key = x25519_public(self.dice.randbytes(32))
            node = Node(name, Endpoint(host, 7000), Endpoint(host, 7001), server_key, Agent(name))
            self.nodes[name] = self._at[server_key] = node
            node.hidden = name in (behind or {})
            self.start(name)
            for mediator_name in (behind or {}).get(name, ()):
                self.behind(name, mediator_name)

    def start(self, name: str, *, restored: bool = False, anew: bool = False) -> None:
        """The node's sockets are bound, for the first time or again."""
        node = self.nodes[name]
        reach = node.address, node.queue_address, node.server_key
        self.hear(name, Started(*reach, hidden=node.hidden, restored=restored, anew=anew, rotation=self.rotation))

    def set_rotation(self, rotation: Rotation) -> None:
        """They draw their keys by these limits from now on."""
        self.rotation = rotation
        for node in self.nodes.values():
            node.agent = replace(node.agent, rotation=rotation)

    def restart(self, name: str, *, restored: bool = False) -> None:
        """The node's process ends without a word and starts again with what its disk has, or a backup of that."""
        self.stop(name)
        self.start(name, restored=restored)

    def stop(self, name: str) -> None:
        """The node's process ends without a word."""
        node = self.nodes[name]
        for link in list(node.connected):
            del node.connected[link]
        for other in self.nodes.values():
            for link in [link for link, end in other.connected.items() if end == name]:
                self._disconnect(other, link)
        node.timers.clear()
        node.dialled.clear()
        node.admitted.clear()
        self.web.forget(name)
        read = stored(node.agent)
        if read != node.agent:
            raise Violation(f"seed {self.seed}: {name} does not find on its disk what it has written there")
        node.agent = read

    def behind(self, name: str, mediator: str) -> None:
        """Have a simulated mediator take in what is for a node, and wait until it does."""
        invitation = self.web.mediators[mediator].invitation()
        self.ask(name, Connect(invitation, mediator, mediate=True))

        def granted() -> bool:
            found = [one.mediation for one in self.nodes[name].agent.connections.values() if one.label == mediator]
            return any(one is not None and one.phase == "granted" for one in found)

        if not self.run(granted, for_ms=60_000):
            raise Violation(f"seed {self.seed}: {mediator} did not take {name} in")

    def over(self) -> None:
        """Nobody looks at this world any more. It is full of circles, which nothing but the collector would find."""
        vars(self).clear()

    # --- running ------------------------------------------------------------------------------------------------

    def ask(self, name: str, command: Command) -> Effect:
        """Give a command and return its answer (or refusal) at once."""
        self._ticket += 1
        self.hear(name, Ask(self._ticket, command))
        return self.nodes[name].answers.pop(self._ticket)

    def hear(self, name: str, stimulus: Stimulus) -> None:
        """One turn of one core, of one stimulus, and everything that it says."""
        node = self.nodes[name]
        for effect in self._step(node, stimulus):
            self._perform(node, effect)

    def _step(self, node: Node, stimulus: Stimulus) -> list[Effect]:
        """What comes of a turn; from here on the node's agent is what it is after that."""
        moment, former, effects = Moment(self._clock(node), self.dice.randbytes), node.agent, []
        for heard in (stimulus, _TURN_OVER):
            try:
                node.agent, said = step(node.agent, heard, moment, SIMULATED_PACKERS)
            except Exception as error:
                kind = type(heard).__name__
                raise Violation(f"seed {self.seed}: {node.name} stumbles over {kind}: {error!r}") from error
            effects += said
        before = former.groups
        if before is not node.agent.groups:
            check_onward(f"seed {self.seed}: {node.name}", former, node.agent)
        for effect in effects:
            if type(effect) is Remember and not effect.vouched:  # else somebody says that we have said it
                group = node.agent.groups[effect.group]
                seq = before[effect.group].seq if effect.group in before else 0
                if group.me == effect.author and seq < effect.seq <= group.seq:
                    self.made.add(effect.id)
                if left_out(before.get(effect.group), effect):
                    if any(row.id == effect.id for row in node.log):
                        raise Violation(f"seed {self.seed}: {node.name} takes in twice what it had left out")
                    node.handed.add(effect.id)
        self.steps += 1
        self.digest.update(f"{self.now} {node.name} {type(stimulus).__name__} {len(effects)}\n".encode())
        return effects

    def _clock(self, node: Node) -> int:
        """What the node takes for the time, UTC milliseconds."""
        return self.now

    def told_time(self) -> str:
        """How long ago the story began, in seconds."""
        return f"{(self.now - self.began) / 1000:9.3f}"

    def run(self, until: Callable[[], bool] | None = None, for_ms: int = 600_000, every_ms: int = 0) -> bool:
        """Let time pass until the condition holds (True) or so many virtual milliseconds are over (False). `every_ms`:
        how often the condition is looked at; 0: before each turn."""
        end, look = self.now + for_ms, self.now
        while self._queue and self._queue[0][0] <= end:
            if until is not None and self._queue[0][0] >= look:
                if until():
                    return True
                look = self._queue[0][0] + every_ms
            when, _, name, what = heapq.heappop(self._queue)
            self.now = max(self.now, when)
            if callable(what):
                what()
                continue
            node = self.nodes[name]
            if isinstance(what, str):
                if node.timers.get(what) != when:
                    continue  # set anew since
                del node.timers[what]
                what = TimerFired(what)
            self.hear(name, what)
        self.now = end
        return until is None or until()

    def after(self, delay_ms: int, what: Callable[[], None]) -> None:
        """Do something a little later."""
        self._later(delay_ms, "", what)

    def _later(self, delay_ms: int, name: str, what: Stimulus | str | Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now + delay_ms, self._order, name, what))

    # --- the simulated machine room -------------------------------------------------------------------------------

    def _perform(self, node: Node, effect: Effect) -> None:
        match effect:  # the usual ones first
            case SetTimer(key, delay_ms, keep):
                if not (keep and key in node.timers):
                    node.timers[key] = self.now + delay_ms
                    self._later(delay_ms, node.name, key)
            case Notify(notice):
                kind = type(notice)
                if kind is Delivered:
                    self._delivered(node, notice)  # type: ignore[arg-type]
                elif kind in _ACCUSATIONS:
                    self._accused(node, notice)  # type: ignore[arg-type]
                if self.heed is not None:
                    self.heed(node.name, notice)
                if self.say:
                    self.say(f"{self.told_time()} {told(node, notice, who_is(self.nodes))}")
            case Dispatch(link, envelope):
                self._dispatch(node, link, envelope)
            case Remember() | Confirm() | Refute() | Forget():
                node.remember(effect)
            case Receipt():
                node.remember(effect)
                self._received(node, effect)
            case KeepMessage() | KeepStatement() | KeepAck() | KeepRival() | KeepStray():
                node.remember(effect)
            case KeepLog() | KeepEntries() | KeepNote() | KeepBlob() | DropBlobs():
                node.remember(effect)
            case SealAcks():
                pass  # all acknowledgements are kept here (`logbook.py`)
            case LookUp():
                self._later(0, node.name, node.look_up(effect))
            case Admit():
                node.admitted[effect.client_key] = effect
                self._connect_all()
            case Revoke(client_key):
                node.admitted.pop(client_key, None)
                for other in self.nodes.values():
                    for link, dial in list(other.dialled.items()):
                        if _public_of(dial.client_secret) == client_key and dial.pair == node.address:
                            self._disconnect(other, link)
            case Dial():
                node.dialled[effect.link] = effect
                self._connect_all()
            case Hangup(link):
                self._disconnect(node, link)
                node.dialled.pop(link, None)
            case Reply(handle, envelope):
                to, _, back = handle.partition(b" ")
                self._frame(to.decode(), Received(back, envelope))
            case Publish():
                self._publish(node, effect)
            case Post() | Answered() | Hold() | Release():
                self.web.perform(node.name, effect)
            case Recall():
                self._later(0, node.name, node.recall(effect))
            case Fetch():
                self._later(0, node.name, node.fetch(effect))
            case Compare():
                self._later(0, node.name, node.compare(effect))
            case Answer(ticket, result):
                node.answers[ticket] = effect
                if isinstance(result, Posted):
                    said_in = node.agent.groups[result.group]
                    meant = (m for m, peer in said_in.peers.items() if peer.base < result.seq)
                    node.audiences[result.id] = frozenset(m for m in meant if m in said_in.view.members)
                    node.places[result.id] = result.seq
            case Refuse(ticket, _):
                node.answers[ticket] = effect
            case ReadParts() | StoreParts() | FinishFile() | DropFile():
                self._file(node, effect)
            case Measure(name, detail):
                node.dropped[f"{name} {detail}"] = node.dropped.get(f"{name} {detail}", 0) + 1

    def _file(self, node: Node, effect: FileEffect) -> None:
        """Something is to be done with a file's contents, which most worlds have not got."""

    def _frame(self, name: str, stimulus: Received) -> None:
        """One frame on the network."""
        self._arrive(name, stimulus)

    def _arrive(self, name: str, stimulus: Received, late_ms: int = 0) -> None:
        """It is lost, doubled or late, as the dice have it, and later by so much in any case."""
        copies = 0 if self.dice.random() < self.faults.loss else 1
        copies += self.dice.random() < self.faults.duplication
        if not copies:
            self._tell_lost(name, stimulus, "is lost")
        for _ in range(copies):
            self._later(late_ms + self.dice.randint(1, self.faults.delay_ms_max), name, stimulus)

    def _tell_lost(self, name: str, stimulus: Received, how: str) -> None:
        if self.say:
            sender = self.nodes[name].connected.get(stimulus.link, "somebody")
            self.say(f"{self.told_time()} something that {sender} sends to {name} {how}")

    def _ends(self, node: Node, link: bytes) -> tuple[Node, Admit] | None:
        """The node that our dialled link leads to, if it lets us in."""
        dial = node.dialled.get(link)
        other = self._at.get(dial.server_key) if dial is not None else None
        if dial is None or other is None or other.address != dial.pair:
            return None
        admit = other.admitted.get(_public_of(dial.client_secret))
        return (other, admit) if admit else None

    def _connect_all(self) -> None:
        for node in self.nodes.values():
            for link in node.dialled:
                ends = self._ends(node, link)
                if ends is None:
                    continue
                other, admit = ends
                if link not in node.connected:
                    node.connected[link] = other.name
                    self._later(self.dice.randint(2, 50), node.name, LinkUp(link))
                if admit.link not in other.connected:
                    other.connected[admit.link] = node.name
                    self._later(self.dice.randint(2, 50), other.name, LinkUp(admit.link))

    def _disconnect(self, node: Node, link: bytes) -> None:
        other = node.connected.pop(link, None)
        if other is not None:
            self._later(1, node.name, LinkDown(link))

    def _dispatch(self, node: Node, link: bytes, envelope: bytes) -> None:
        self.digest.update(link)  # also to whom something is said first
        ends = self._ends(node, link)
        if ends is not None:
            other, admit = ends
            self._frame(other.name, Received(admit.link, envelope, node.name.encode() + b" " + link))
            return
        for other in self.nodes.values():  # the connection that the peer dialled
            for theirs in other.dialled:
                back = self._ends(other, theirs)
                if back is not None and back[0] is node and back[1].link == link:
                    self._frame(other.name, Received(theirs, envelope))
                    return

    def _publish(self, node: Node, published: Publish) -> None:
        queue, heard = published.queue, set()
        for other in self.nodes.values():
            for link, dial in other.dialled.items():
                ends = self._ends(other, link)
                wanted = queue in dial.queues and dial.queue_at == node.queue_address
                if wanted and ends is not None and ends[0] is node and queue in ends[1].queues:
                    heard.add(ends[1].link)
                    self._frame(other.name, Received(link, published.envelope))
        for link in published.links:
            if link not in heard:
                self._dispatch(node, link, published.envelope)
