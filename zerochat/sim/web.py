"""Simulated web: POST requests and WebSockets between nodes and mediators, with their faults.

TCP neither loses nor reorders within a connection. So a POST fails before or after it was processed, a WebSocket breaks
and loses the frames in flight, or a mediator is down for a while.
"""

import random
from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import relayed_post
from zerochat.group.effects import CloseWebSocket, OpenWebSocket, WebPost, WebReply
from zerochat.group.inputs import Input, WebPostDelivered, WebPostFailed, WebReceived, WebSocketDown, WebSocketUp
from zerochat.sim.mediator import Session, SimulatedMediator

REDIAL_MS = 3_000
"""Longest time until a broken WebSocket is dialled again."""
LINGER_MS = 2_000
"""How long an unused WebSocket stays open."""

WebEffect: TypeAlias = WebPost | WebReply | OpenWebSocket | CloseWebSocket


class Environment(Protocol):
    """What the web needs of its world."""

    rng: random.Random
    now: int

    def process(self, name: str, input_: Input) -> None: ...

    def after(self, delay_ms: int, what: Callable[[], None]) -> None: ...


class Socket(Struct, eq=False):
    """One WebSocket. Once it is no longer `up`, frames in flight are lost."""

    number: int
    node: str
    mediator: SimulatedMediator
    session: Session = field(default_factory=Session)
    up: bool = True
    due: list[int] = field(default_factory=lambda: [0, 0])
    """Arrival of the last frame in each direction: the next one arrives later."""


class SimulatedWeb:
    """All mediators and the connections to them."""

    def __init__(self, world: Environment, loss: float, delay_ms_max: int) -> None:
        self._world, self._loss, self._delay = world, loss, delay_ms_max
        self.mediators: dict[str, SimulatedMediator] = {}
        self.sockets: dict[tuple[str, str], Socket] = {}
        """By node and URI."""
        self.held: set[tuple[str, str]] = set()
        self._numbers = 0
        self._handles: dict[int, Socket] = {}

    def add(self, mediator: SimulatedMediator) -> None:
        self.mediators[mediator.name] = mediator

    def perform(self, node: str, effect: WebEffect) -> None:
        match effect:
            case WebPost(uri, envelope, return_route=return_route):
                socket = self.sockets.get((node, uri))
                if socket is not None:
                    self._up(socket, envelope)
                else:
                    self._post(node, uri, envelope, return_route, effect.reference)
            case WebReply(handle, envelope, _):
                if handle in self._handles:
                    self._up(self._handles[handle], envelope)
            case OpenWebSocket(uri):
                if (node, uri) not in self.held:
                    self.held.add((node, uri))
                    self._dial(node, uri)
            case CloseWebSocket(uri):
                self.held.discard((node, uri))
                self._world.after(LINGER_MS, lambda: self._close(node, uri))

    def _close(self, node: str, uri: str) -> None:
        if (node, uri) not in self.held:
            self.cut(node, uri)

    # --- faults -----------------------------------------------------------------------------------------------------

    def stop_mediator(self, name: str) -> None:
        """Take a mediator down."""
        mediator = self.mediators[name]
        mediator.up = False
        for socket in [one for one in self.sockets.values() if one.mediator is mediator]:
            self.cut(socket.node, mediator.ws)

    def start_mediator(self, name: str) -> None:
        self.mediators[name].up = True

    def cut(self, node: str, uri: str) -> None:
        """Break a WebSocket."""
        socket = self.sockets.pop((node, uri), None)
        if socket is None:
            return
        socket.up = False
        self._handles.pop(socket.number, None)
        self._world.after(1, lambda: self._world.process(node, WebSocketDown(uri)))
        self._redial(node, uri)

    def drop_node(self, node: str) -> None:
        """A node's process has ended."""
        self.held = {(name, uri) for name, uri in self.held if name != node}
        for name, uri in [key for key in self.sockets if key[0] == node]:
            socket = self.sockets.pop((name, uri))
            socket.up = False
            self._handles.pop(socket.number, None)

    # --- WebSockets -------------------------------------------------------------------------------------------------

    def _dial(self, node: str, uri: str) -> None:
        if (node, uri) not in self.held or (node, uri) in self.sockets:
            return
        mediator = self._at(uri)
        if mediator is None or not mediator.up:
            self._redial(node, uri)
            return
        self._numbers += 1
        socket = self.sockets[node, uri] = Socket(self._numbers, node, mediator)
        self._handles[socket.number] = socket
        self._world.process(node, WebSocketUp(uri))

    def _redial(self, node: str, uri: str) -> None:
        self._world.after(self._world.rng.randint(100, REDIAL_MS), lambda: self._dial(node, uri))

    def _up(self, socket: Socket, envelope: bytes) -> None:
        """Send from the node to the mediator."""

        def arrive() -> None:
            if socket.up:
                for answer in self._deliver(socket.mediator, envelope, socket.session):
                    self._down(socket, answer)

        self._in_order(socket, 0, arrive)

    def _down(self, socket: Socket, envelope: bytes) -> None:
        """Send from the mediator to the node."""

        def arrive() -> None:
            if socket.up:
                self._world.process(socket.node, WebReceived(envelope, socket.number))

        self._in_order(socket, 1, arrive)

    def _in_order(self, socket: Socket, way: int, arrive: Callable[[], None]) -> None:
        when = max(socket.due[way] + 1, self._world.now + self._delay_ms())
        socket.due[way] = when
        self._world.after(when - self._world.now, arrive)

    # --- POST -------------------------------------------------------------------------------------------------------

    def _post(self, node: str, uri: str, envelope: bytes, return_route: bool, reference: str) -> None:
        fails = self._world.rng.random() < self._loss
        too_late = fails and self._world.rng.random() < 0.5  # processed, but the answer is lost

        def arrive() -> None:
            mediator = self._at(uri)
            is_there = mediator is not None and mediator.up
            if mediator is not None and is_there and (too_late or not fails):
                answers = self._deliver(mediator, envelope, Session())
                for answer in answers if return_route else ():
                    self._world.after(self._delay_ms(), lambda answer=answer: self._respond(node, answer))  # type: ignore[misc]
            if fails or not is_there:
                self._world.after(1, lambda: self._world.process(node, WebPostFailed(uri, reference)))
            elif reference:
                self._world.after(1, lambda: self._world.process(node, WebPostDelivered(reference)))

        self._world.after(self._delay_ms(), arrive)

    def _respond(self, node: str, envelope: bytes) -> None:
        self._world.process(node, WebReceived(envelope))

    # --- at the mediator --------------------------------------------------------------------------------------------

    def _deliver(self, mediator: SimulatedMediator, envelope: bytes, session: Session) -> list[bytes]:
        """Deliver an envelope to a mediator; it forwards at once. Returns the answers."""
        answers, further = mediator.receive(envelope, session)
        requested, mediator.requested = mediator.requested, []
        for request in requested:
            self._relay(mediator, *request)
        for target, inner in further:
            self._forward(target, inner)
        self.push(mediator)
        return answers

    def _relay(self, mediator: SimulatedMediator, session: Session, sender: str, message: Message) -> None:
        """Make a post for a recipient, and answer on its connection with the result."""
        wanted = relayed_post.read_post(message)

        def arrive() -> None:
            target = self._at(wanted.uri)
            is_there = target is not None and target.up and self._world.rng.random() >= self._loss
            answers = self._deliver(target, wanted.envelope, Session()) if target is not None and is_there else []
            result = relayed_post.PostResult("" if is_there else "unreachable", answers[0] if answers else b"")
            for socket in self.sockets.values():
                if socket.session is session:
                    self._down(socket, mediator.posted(message, sender, result))

        self._world.after(self._delay_ms(), arrive)

    def _forward(self, target: SimulatedMediator, envelope: bytes) -> None:
        """Forward between mediators, retrying until it arrives."""

        def arrive() -> None:
            if target.up:
                self._deliver(target, envelope, Session())
            else:
                self._world.after(REDIAL_MS, arrive)

        self._world.after(self._delay_ms(), arrive)

    def push(self, mediator: SimulatedMediator) -> None:
        """Push what waits to recipients in live mode."""
        live = {id(one.session): one for one in self.sockets.values() if one.mediator is mediator}
        for session, envelope in mediator.pushes([one.session for one in live.values()]):
            self._down(live[id(session)], envelope)

    def _at(self, uri: str) -> SimulatedMediator | None:
        return next((one for one in self.mediators.values() if uri in (one.http, one.ws)), None)

    def _delay_ms(self) -> int:
        return self._world.rng.randint(1, self._delay)
