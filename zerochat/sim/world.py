"""The simulated world: nodes with the real core, their network and their clock."""

import hashlib
import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from traceback import extract_tb

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.packer import Packer
from zerochat.group.effects import (
    AllowClient,
    CloseWebSocket,
    CommandDone,
    CommandFailed,
    DeleteFileData,
    Dial,
    Disconnect,
    DuplicateEvent,
    Effect,
    Measure,
    Notify,
    OpenWebSocket,
    Posted,
    Publish,
    QueryTlog,
    ReadHistory,
    ReadOwnEvents,
    ReadParts,
    Reconcile,
    Reply,
    RevokeClient,
    SendEnvelope,
    SetTimer,
    StoreEvent,
    StoreParts,
    StoreReceipt,
    VerifyFile,
    WebPost,
    WebReply,
)
from zerochat.group.engine import step
from zerochat.group.inputs import (
    AcceptConnection,
    BatchEnded,
    Command,
    CommandInput,
    Input,
    LinkDown,
    LinkUp,
    Received,
    Started,
    StepContext,
    TimerFired,
)
from zerochat.group.notifications import (
    Delivered,
    DifferenceFound,
    ForkDetected,
    Notification,
    TlogSplit,
    ViewDisagreement,
)
from zerochat.group.settings import KeyRotation
from zerochat.group.state import Agent
from zerochat.group.transaction import Transaction
from zerochat.sim.dial_index import DialIndex, public_of
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.file_store import FileEffect
from zerochat.sim.invariants import Checks
from zerochat.sim.mediator import SimulatedMediator
from zerochat.sim.node import Node, Violation, round_trip
from zerochat.sim.node_checks import check_monotonic
from zerochat.sim.relayed_checks import was_reinstated
from zerochat.sim.trace import describe, node_names
from zerochat.sim.upgrade_checks import check_own_form
from zerochat.sim.web import SimulatedWeb

__all__ = ["EPOCH_MS", "SIMULATED_PACKERS", "Faults", "Node", "Violation", "World"]

EPOCH_MS = 1_750_000_000_000
"""Start time of every simulated world, UTC, milliseconds."""


_BATCH_ENDED = BatchEnded()
_ACCUSATION_TYPES = frozenset((ForkDetected, ViewDisagreement, DifferenceFound, TlogSplit))
SIMULATED_PACKERS: Mapping[str, Packer] = {**PACKERS, TransparentPacker.name: TransparentPacker()}


class Faults(Struct, frozen=True):
    """Packet faults: probabilities, and the longest delay in milliseconds. Each delay is random, so frames overtake
    each other."""

    loss: float = 0.2
    duplication: float = 0.1
    delay_ms_max: int = 400


def _raised_at(error: Exception) -> str:
    """The file and the line that raised an error: a run of minutes need not be repeated to find it."""
    *_, last = extract_tb(error.__traceback__)
    return f"{PurePath(last.filename).name}:{last.lineno}"


class World(Checks):
    """Agents, their network and their clock, determined by a seed."""

    rotation = KeyRotation()
    """When nodes rotate their sending keys."""

    def __init__(
        self,
        seed: int,
        members: int = 4,
        faults: Faults | None = None,
        envelope: str | None = None,
        trace: Callable[[str], None] | None = None,
        mediators: int = 0,
        behind: Mapping[str, Sequence[str]] | None = None,
        chained: bool = False,
    ) -> None:
        """`mediators`: number of simulated mediators, named m0 and so on. `behind`: nodes that cannot be dialled, with
        their mediators. `chained`: each mediator but the first is only reachable through the one before."""
        self.seed = seed
        self.rng = random.Random(seed)
        self.faults = faults or Faults()
        self.trace = trace
        self.on_notification: Callable[[str, Notification], None] | None = None
        """Receives every notification to a node's clients."""
        self.authored = set()
        self._before_next: dict[str, tuple[Input, ...]] = {}
        """Inputs that share a batch with the node's next one."""
        self.now = self.began = EPOCH_MS
        self.digest = hashlib.sha256()
        self.steps = 0
        self._queue: list[tuple[int, int, str, Input | str | Callable[[], None]]] = []
        self._order = 0
        self._ticket = 0
        real = {0: "didcomm/v2", 5: "didcomm/v1"}
        self.envelope = envelope or real.get(seed % 10, TransparentPacker.name)
        if behind and envelope is None:
            self.envelope = (
                "didcomm/v1" if seed % 8 == 3 else "didcomm/v2"
            )  # forward messages contain real envelopes only
        self.web = SimulatedWeb(self, self.faults.loss / 4, self.faults.delay_ms_max)
        via = None
        for number in range(mediators):
            mediator = SimulatedMediator(f"m{number}", self.rng.randbytes, via if chained else None)
            self.web.add(mediator)
            via = mediator
        self.nodes: dict[str, Node] = {}
        self._at: dict[bytes, Node] = {}
        """Nodes by the key of their sockets."""
        self._dials = DialIndex()
        for _ in range(members):
            name = self.add_node(behind or {}).name
            self.start(name)
            for mediator_name in (behind or {}).get(name, ()):
                self.add_mediator(name, mediator_name)

    def add_node(self, behind: Mapping[str, Sequence[str]]) -> Node:
        """One more machine, whose process does not run yet."""
        number = len(self.nodes) + 1
        name, host = f"n{number - 1}", f"10.0.{number >> 8}.{number & 0xFF}"
        server_key = x25519_public(self.rng.randbytes(32))
        node = Node(name, Endpoint(host, 7000), Endpoint(host, 7001), server_key, Agent(name))
        self.nodes[name] = self._at[server_key] = node
        self._dials.add_node(node)
        node.hidden = name in behind
        return node

    def start(self, name: str, *, restored: bool = False, anew: bool = False) -> None:
        """Start a node's process, for the first time or again."""
        node = self.nodes[name]
        reach = node.address, node.queue_address, node.server_key
        self.process(
            name,
            Started(
                *reach,
                outbound_only=node.hidden,
                restored=restored,
                rebooted=anew,
                key_rotation=self.rotation,
                mediated_only=node.mediated_only,
            ),
        )

    def set_rotation(self, rotation: KeyRotation) -> None:
        """Change the key rotation of all nodes."""
        self.rotation = rotation
        for node in self.nodes.values():
            node.agent = replace(node.agent, key_rotation=rotation)

    def restart(self, name: str, *, restored: bool = False) -> None:
        """Kill a node's process and start it with its disk, or a backup of it."""
        self.stop(name)
        self.start(name, restored=restored)

    def stop(self, name: str) -> None:
        """Kill a node's process."""
        node = self.nodes[name]
        for link in list(node.connected):
            del node.connected[link]
            self._dials.disconnected(node, link)
        for other in self.nodes.values():
            for link in [link for link, end in other.connected.items() if end == name]:
                self._disconnect(other, link)
        node.timers.clear()
        node.dialled.clear()
        node.allowed_clients.clear()
        self.web.drop_node(name)
        read = round_trip(node.agent)
        if read != node.agent:
            raise Violation(f"seed {self.seed}: {name} reads another state from disk than it wrote")
        node.agent = read

    def add_mediator(self, name: str, mediator: str) -> None:
        """Register a node with a mediator, and wait until it is granted."""
        invitation = self.web.mediators[mediator].invitation()
        self.run_command(name, AcceptConnection(invitation, mediator, mediate=True))

        def granted() -> bool:
            found = [one.mediation for one in self.nodes[name].agent.connections.values() if one.label == mediator]
            return any(one is not None and one.phase == "granted" for one in found)

        if not self.run(granted, for_ms=60_000):
            raise Violation(f"seed {self.seed}: {mediator} did not accept {name}")

    def dispose(self) -> None:
        """Drop all references: a world is full of cycles."""
        vars(self).clear()

    # --- running ------------------------------------------------------------------------------------------------

    def run_command(self, name: str, command: Command) -> Effect:
        """Run a command. Returns its result or failure."""
        self._ticket += 1
        self.process(name, CommandInput(self._ticket, command))
        return self.nodes[name].answers.pop(self._ticket)

    def run_batch(self, name: str, commands: Sequence[Command]) -> Effect:
        """Run commands in one batch. Returns the last one's result or failure."""
        self._before_next[name] = tuple(CommandInput(0, command) for command in commands[:-1])
        try:
            return self.run_command(name, commands[-1])
        finally:
            self._before_next.pop(name, None)

    def process(self, name: str, input_: Input) -> None:
        """One step of one core with this input, and its effects."""
        node = self.nodes[name]
        for effect in self._step(node, input_):
            self._perform(node, effect)

    def apply(self, name: str, tx: Transaction) -> None:
        """Take over the state and the effects of a transaction that was made outside a step of this node."""
        node = self.nodes[name]
        node.agent = tx.agent
        for effect in tx.effects:
            self._perform(node, effect)

    def _step(self, node: Node, input_: Input) -> list[Effect]:
        """The effects of a step; updates the node's state."""
        context, former, effects = StepContext(self._clock(node), self.rng.randbytes), node.agent, []
        for heard in (*self._before_next.pop(node.name, ()), input_, _BATCH_ENDED):
            try:
                node.agent, said = step(node.agent, heard, context, SIMULATED_PACKERS)
            except Exception as error:
                kind, at = type(heard).__name__, _raised_at(error)
                raise Violation(f"seed {self.seed}: {node.name} fails on {kind}: {error!r} ({at})") from error
            effects += said
        before = former.groups
        if before is not node.agent.groups:
            check_monotonic(f"seed {self.seed}: {node.name}", former, node.agent)
        for effect in effects:
            if type(effect) is StoreEvent and not effect.relayed_by:  # relayed events may be forged
                group = node.agent.groups[effect.group]
                seq = before[effect.group].seq if effect.group in before else 0
                if group.me == effect.author and seq < effect.seq <= group.seq:
                    self.authored.add(effect.id)
                    if type(input_) is CommandInput:  # else recovered: it may come from before the upgrade
                        check_own_form(f"seed {self.seed}: {node.name}", before.get(effect.group), effect)
                if was_reinstated(before.get(effect.group), effect):
                    if any(row.id == effect.id for row in node.log):
                        raise Violation(f"seed {self.seed}: {node.name} stores a reinstated post twice")
                    node.relayed.add(effect.id)
        self.steps += 1
        self.digest.update(f"{self.now} {node.name} {type(input_).__name__} {len(effects)}\n".encode())
        return effects

    def _clock(self, node: Node) -> int:
        """The node's clock, UTC, milliseconds."""
        return self.now

    def timestamp(self) -> str:
        """Seconds since the start, for the trace."""
        return f"{(self.now - self.began) / 1000:9.3f}"

    def run(self, until: Callable[[], bool] | None = None, for_ms: int = 600_000, every_ms: int = 0) -> bool:
        """Advance time until the condition holds (True) or `for_ms` virtual milliseconds are over (False). `every_ms`:
        interval of the check; 0: before each step."""
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
                    continue  # rescheduled since
                del node.timers[what]
                what = TimerFired(what)
            elif isinstance(what, LinkUp) and what.link not in node.connected:
                continue  # closed since
            self.process(name, what)
        self.now = end
        return until is None or until()

    def after(self, delay_ms: int, what: Callable[[], None]) -> None:
        """Call a function after a delay."""
        self._later(delay_ms, "", what)

    def _later(self, delay_ms: int, name: str, what: Input | str | Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now + delay_ms, self._order, name, what))

    # --- the simulated I/O layer ------------------------------------------------------------------------------------

    def _perform(self, node: Node, effect: Effect) -> None:
        match effect:  # most frequent cases first
            case SetTimer(key, delay_ms, keep):
                if not (keep and key in node.timers):
                    node.timers[key] = self.now + delay_ms
                    self._later(delay_ms, node.name, key)
            case Notify(notification):
                kind = type(notification)
                if kind is Delivered:
                    self._on_delivered(node, notification)  # type: ignore[arg-type]
                elif kind in _ACCUSATION_TYPES:
                    self._on_accusation(node, notification)  # type: ignore[arg-type]
                if self.on_notification is not None:
                    self.on_notification(node.name, notification)
                if self.trace:
                    self.trace(f"{self.timestamp()} {describe(node, notification, node_names(self.nodes))}")
            case SendEnvelope(link, envelope):
                self._dispatch(node, link, envelope)
            case CommandDone() | CommandFailed():
                self._answer(node, effect)
            case Reply(handle, envelope):
                to, _, back = handle.partition(b" ")
                self._frame(to.decode(), Received(back, envelope, host=node.server_key))
            case Publish():
                self._publish(node, effect)
            case WebPost() | WebReply() | OpenWebSocket() | CloseWebSocket():
                self.web.perform(node.name, effect)
            case ReadParts() | StoreParts() | VerifyFile() | DeleteFileData():
                self._file(node, effect)
            case Measure(name, detail):
                node.dropped[f"{name} {detail}"] = node.dropped.get(f"{name} {detail}", 0) + 1
            case AllowClient() | RevokeClient() | Dial() | Disconnect():
                self._perform_link(node, effect)
            case QueryTlog() | ReadOwnEvents() | ReadHistory() | Reconcile():
                self._perform_read(node, effect)
            case DuplicateEvent():
                pass
            case _:
                node.store(effect)
                if isinstance(effect, StoreReceipt):
                    self._on_receipt(node, effect)

    def _perform_link(self, node: Node, effect: AllowClient | RevokeClient | Dial | Disconnect) -> None:
        match effect:
            case AllowClient():
                node.allowed_clients[effect.client_key] = effect
                self._dials.allow(node, effect)
                self._connect_unsettled()
            case RevokeClient(client_key):
                node.allowed_clients.pop(client_key, None)
                for other, link in self._dials.of_client(client_key, node.address):
                    self._disconnect(other, link)
            case Dial():
                self._dials.add(node, effect)
                node.dialled[effect.link] = effect
                self._connect_unsettled()
            case Disconnect(link):
                self._disconnect(node, link)
                node.dialled.pop(link, None)

    def _perform_read(self, node: Node, effect: QueryTlog | ReadOwnEvents | ReadHistory | Reconcile) -> None:
        match effect:
            case QueryTlog():
                self._later(0, node.name, node.query_tlog(effect))
            case ReadOwnEvents():
                self._later(0, node.name, node.read_own_events(effect))
            case ReadHistory():
                self._later(0, node.name, node.read_history(effect))
            case Reconcile():
                self._later(0, node.name, node.reconcile(effect))

    def _answer(self, node: Node, effect: CommandDone | CommandFailed) -> None:
        node.answers[effect.ticket] = effect
        if isinstance(effect, CommandDone) and isinstance(effect.result, Posted):
            post = effect.result
            group = node.agent.groups[post.group]
            recipients = (member for member, peer in group.links.peers.items() if peer.start_seq < post.seq)
            node.recipients[post.id] = frozenset(member for member in recipients if member in group.view.members)
            node.positions[post.id] = post.seq

    def _file(self, node: Node, effect: FileEffect) -> None:
        """A file effect; most worlds have no files."""

    def _frame(self, name: str, input_: Received) -> None:
        """A frame on the network."""
        self._arrive(name, input_)

    def _arrive(self, name: str, input_: Received, late_ms: int = 0) -> None:
        """Deliver a frame: lost, duplicated or delayed at random, plus `late_ms`."""
        copies = 0 if self.rng.random() < self.faults.loss else 1
        copies += self.rng.random() < self.faults.duplication
        if not copies:
            self._trace_lost(name, input_, "is lost")
        for _ in range(copies):
            self._later(late_ms + self.rng.randint(1, self.faults.delay_ms_max), name, input_)

    def _trace_lost(self, name: str, input_: Received, how: str) -> None:
        if self.trace:
            sender = self.nodes[name].connected.get(input_.link, "an unknown node")
            self.trace(f"{self.timestamp()} a frame from {sender} to {name} {how}")

    def _ends(self, node: Node, link: bytes) -> tuple[Node, AllowClient] | None:
        """The node that a dialled link leads to, if it accepts us."""
        dial = node.dialled.get(link)
        other = self._at.get(dial.server_key) if dial is not None else None
        if dial is None or other is None or other.address != dial.pair:
            return None
        admit = other.allowed_clients.get(public_of(dial.client_secret))
        return (other, admit) if admit else None

    def _connect_all(self) -> None:
        """Connect all dials that may succeed now, whatever has changed."""
        self._dials.retry()
        self._connect_unsettled()

    def _connect_unsettled(self) -> None:
        for node, link in self._dials.unsettled():
            ends = self._ends(node, link)
            if ends is None:
                self._dials.refuse(node, link)
                continue
            other, admit = ends
            if link not in node.connected:
                node.connected[link] = other.name
                self._later(self.rng.randint(2, 50), node.name, LinkUp(link))
            if admit.link not in other.connected:
                other.connected[admit.link] = node.name
                self._later(self.rng.randint(2, 50), other.name, LinkUp(admit.link))
            self._dials.settle(node, link)

    def _disconnect(self, node: Node, link: bytes) -> None:
        other = node.connected.pop(link, None)
        if other is not None:
            self._dials.disconnected(node, link)
            self._later(1, node.name, LinkDown(link))

    def _dispatch(self, node: Node, link: bytes, envelope: bytes) -> None:
        self.digest.update(link)  # the order of recipients counts too
        ends = self._ends(node, link)
        if ends is not None:
            other, admit = ends
            self._frame(other.name, Received(admit.link, envelope, node.name.encode() + b" " + link))
            return
        for other, theirs in self._dials.over(node, link):  # the connection that the peer dialled
            back = self._ends(other, theirs)
            if back is not None and back[0] is node and back[1].link == link:
                self._frame(other.name, Received(theirs, envelope, host=node.server_key))
                return

    def _publish(self, node: Node, published: Publish) -> None:
        queue, heard = published.queue, set()
        for other, link in self._dials.subscribers(queue, node.queue_address):
            ends = self._ends(other, link)
            if ends is not None and ends[0] is node and queue in ends[1].queues:
                heard.add(ends[1].link)
                self._frame(other.name, Received(link, published.envelope, host=node.server_key))
        for link in published.links:
            if link not in heard:
                self._dispatch(node, link, published.envelope)
