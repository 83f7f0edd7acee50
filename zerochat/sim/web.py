"""The simulated web: who posts where, which WebSockets are open, and what goes wrong between nodes and mediators.

TCP loses nothing and changes no order as long as a connection lasts, so what can happen is: a POST fails, before or
after it has been taken in; a WebSocket breaks, with all that is on its way; a mediator is away for a while.
"""

import random
from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from zerochat.group.effects import Answered, Hold, Post, Release
from zerochat.group.inputs import Mailed, PostFailed, Stimulus, WebDown, WebUp
from zerochat.sim.mediator import Session, SimulatedMediator

REDIAL_MS = 3_000
"""How long, at most, until a broken WebSocket is tried again."""
LINGER_MS = 2_000
"""How long a WebSocket that nobody holds any more stays open."""

WebEffect: TypeAlias = Post | Answered | Hold | Release


class Surroundings(Protocol):
    """What the web needs of its world."""

    dice: random.Random
    now: int

    def hear(self, name: str, stimulus: Stimulus) -> None: ...

    def after(self, delay_ms: int, what: Callable[[], None]) -> None: ...


class Socket(Struct, eq=False):
    """One WebSocket. `up` until it breaks; then what is on its way is lost."""

    number: int
    node: str
    mediator: SimulatedMediator
    session: Session = field(default_factory=Session)
    up: bool = True
    due: list[int] = field(default_factory=lambda: [0, 0])
    """When the last frame arrives in each direction: the next one does not come earlier."""


class SimulatedWeb:
    """All mediators, and every connection to them."""

    def __init__(self, world: Surroundings, loss: float, delay_ms_max: int) -> None:
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
            case Post(uri, envelope, return_route=return_route):
                socket = self.sockets.get((node, uri))
                if socket is not None:
                    self._up(socket, envelope)
                else:
                    self._post(node, uri, envelope, return_route)
            case Answered(handle, envelope, _):
                if handle in self._handles:
                    self._up(self._handles[handle], envelope)
            case Hold(uri):
                if (node, uri) not in self.held:
                    self.held.add((node, uri))
                    self._dial(node, uri)
            case Release(uri):
                self.held.discard((node, uri))
                self._world.after(LINGER_MS, lambda: self._close(node, uri))

    def _close(self, node: str, uri: str) -> None:
        if (node, uri) not in self.held:
            self.cut(node, uri)

    # --- faults -----------------------------------------------------------------------------------------------------

    def take_down(self, name: str) -> None:
        """A mediator is away from now on."""
        mediator = self.mediators[name]
        mediator.up = False
        for socket in [one for one in self.sockets.values() if one.mediator is mediator]:
            self.cut(socket.node, mediator.ws)

    def bring_back(self, name: str) -> None:
        self.mediators[name].up = True

    def cut(self, node: str, uri: str) -> None:
        """A WebSocket breaks."""
        socket = self.sockets.pop((node, uri), None)
        if socket is None:
            return
        socket.up = False
        self._handles.pop(socket.number, None)
        self._world.after(1, lambda: self._world.hear(node, WebDown(uri)))
        self._redial(node, uri)

    def forget(self, node: str) -> None:
        """A node has ended without a word."""
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
        self._world.hear(node, WebUp(uri))

    def _redial(self, node: str, uri: str) -> None:
        self._world.after(self._world.dice.randint(100, REDIAL_MS), lambda: self._dial(node, uri))

    def _up(self, socket: Socket, envelope: bytes) -> None:
        """From the node to the mediator."""

        def arrive() -> None:
            if socket.up:
                for answer in self._taken(socket.mediator, envelope, socket.session):
                    self._down(socket, answer)

        self._in_order(socket, 0, arrive)

    def _down(self, socket: Socket, envelope: bytes) -> None:
        """From the mediator to the node."""

        def arrive() -> None:
            if socket.up:
                self._world.hear(socket.node, Mailed(envelope, socket.number))

        self._in_order(socket, 1, arrive)

    def _in_order(self, socket: Socket, way: int, arrive: Callable[[], None]) -> None:
        when = max(socket.due[way] + 1, self._world.now + self._some_time())
        socket.due[way] = when
        self._world.after(when - self._world.now, arrive)

    # --- POST -------------------------------------------------------------------------------------------------------

    def _post(self, node: str, uri: str, envelope: bytes, return_route: bool) -> None:
        fails = self._world.dice.random() < self._loss
        too_late = fails and self._world.dice.random() < 0.5  # it was taken, but nobody hears that

        def arrive() -> None:
            mediator = self._at(uri)
            is_there = mediator is not None and mediator.up
            if mediator is not None and is_there and (too_late or not fails):
                answers = self._taken(mediator, envelope, Session())
                for answer in answers if return_route else ():
                    self._world.after(self._some_time(), lambda answer=answer: self._answered(node, answer))  # type: ignore[misc]
            if fails or not is_there:
                self._world.after(1, lambda: self._world.hear(node, PostFailed(uri)))

        self._world.after(self._some_time(), arrive)

    def _answered(self, node: str, envelope: bytes) -> None:
        self._world.hear(node, Mailed(envelope))

    # --- at the mediator --------------------------------------------------------------------------------------------

    def _taken(self, mediator: SimulatedMediator, envelope: bytes, session: Session) -> list[bytes]:
        """A mediator hears something; what is for others goes to them at once. Returns what goes back."""
        answers, further = mediator.hear(envelope, session)
        for target, inner in further:
            self._pass_on(target, inner)
        self.push(mediator)
        return answers

    def _pass_on(self, target: SimulatedMediator, envelope: bytes) -> None:
        """From one mediator to another, again and again until it is there."""

        def arrive() -> None:
            if target.up:
                self._taken(target, envelope, Session())
            else:
                self._world.after(REDIAL_MS, arrive)

        self._world.after(self._some_time(), arrive)

    def push(self, mediator: SimulatedMediator) -> None:
        """Deliver what waits to whoever is connected in live mode."""
        live = {id(one.session): one for one in self.sockets.values() if one.mediator is mediator}
        for session, envelope in mediator.pushes([one.session for one in live.values()]):
            self._down(live[id(session)], envelope)

    def _at(self, uri: str) -> SimulatedMediator | None:
        return next((one for one in self.mediators.values() if uri in (one.http, one.ws)), None)

    def _some_time(self) -> int:
        return self._world.dice.randint(1, self._delay)
