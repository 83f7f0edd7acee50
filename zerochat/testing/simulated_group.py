"""A simulated group in which every member has a real desk and a real journal, over the real core.

Only what is around these is simulated: sockets, clocks and the network (`zerochat.sim`). So what a member's desk is
asked, and what it tells, is as at the control socket.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from zerochat import __version__
from zerochat.agent.api import request_handlers
from zerochat.agent.api.client import AgentError, News
from zerochat.agent.api.request_handlers import Desk
from zerochat.agent.api.server import ControlServer, read_params
from zerochat.agent.storage.journal import KEY_BYTES, Journal
from zerochat.agent.views import core_state, delivery
from zerochat.bot.agent_link import LineLost
from zerochat.errors import LocalError
from zerochat.group.effects import Answer, Effect, InvitationCreated, Notify, Refuse, Remembered
from zerochat.group.inputs import AcceptInvitation, CreateGroup, CreateInvitation, Stimulus
from zerochat.group.membership import Policy
from zerochat.group.membership.bodies import RoleRule
from zerochat.group.state import Agent
from zerochat.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, METHODS, NEWS, REFUSED, Request, Status, WaitParams
from zerochat.sim.fault_schedule import Ordeal
from zerochat.sim.node import Node
from zerochat.sim.null_packer import TransparentPacker
from zerochat.sim.world import EPOCH_MS, Faults, Violation, World

TICKETS = 1 << 40
"""Where the tickets of desks begin: far from those of the simulator's own."""
FILES = frozenset({"attach", "get", "save", "picture"})
JOINED_MS, SETTLED_MS = 60_000, 120_000
FOUNDED_MAX = 16
"""Groups that stand already and are kept, so that the next test begins with one at once."""


_TOLD = (Remembered, Answer, Refuse, Notify)


class _Clock:
    """Stands where the desk has the module `time`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def time(self) -> float:
        return self._world.now / 1000

    def monotonic(self) -> float:
        return (self._world.now - EPOCH_MS) / 1000


class _Ear:
    """Stands where the desk has its ControlServer: what is said to a client comes to its line."""

    def __init__(self) -> None:
        self.clients: frozenset[int] = frozenset()
        self.open: dict[int, tuple[int, asyncio.Future[object]]] = {}
        """By request: which client waits for what."""
        self.news: dict[int, deque[News]] = {}
        self.rings: dict[int, asyncio.Event] = {}
        """By client: rung when there is news, or no connection any more."""
        self._next = 0

    def connect(self) -> int:
        self._next += 1
        self.clients |= {self._next}
        self.news[self._next], self.rings[self._next] = deque(), asyncio.Event()
        return self._next

    def hang_up(self, client: int) -> None:
        self.clients -= {client}
        self.news.pop(client, None)
        if client in self.rings:
            self.rings.pop(client).set()
        for request in [request for request, (waiting, _) in self.open.items() if waiting == client]:
            _, answer = self.open.pop(request)
            if not answer.done():
                answer.set_exception(LineLost(why="it has hung up"))

    def backlog(self, client: int) -> int:
        return 0

    def respond(self, client: int, request_id: Any, result: object) -> None:
        _, answer = self.open.pop(request_id, (0, None))
        if answer is not None and not answer.done():
            answer.set_result(result)

    def refuse(
        self, client: int, request_id: Any, code: int, message: str, data: Mapping[str, object] | None = None
    ) -> None:
        told = dict(data or {})
        _, answer = self.open.pop(request_id, (0, None))
        if answer is not None and not answer.done():
            exit_code = cast(int, told.get("exit_code", 1))
            answer.set_exception(AgentError(str(told.get("code", "AgentError")), message, code, exit_code, told))

    def refuse_error(self, client: int, request_id: Any, error: LocalError) -> None:
        ControlServer.refuse_error(cast(ControlServer, self), client, request_id, error)

    def notify(self, clients: Iterable[int], method: str, params: Struct) -> None:
        line = msgspec.json.encode(params)
        for client in clients:
            if client in self.news:
                self.news[client].append(News(method, msgspec.json.decode(line, type=NEWS[method])))
                self.rings[client].set()


class Seat:
    """One member: its node in the simulated world, with a desk and a journal."""

    def __init__(self, stage: "Stage", node: Node, nick: str, folder: Path) -> None:
        self.node, self.nick = node, nick
        self._stage = stage
        self.ear = _Ear()
        Journal.create(folder / f"{node.name}.db", key := bytes(KEY_BYTES)).close()
        self.journal = Journal.open(folder / f"{node.name}.db", key)
        self.desk = Desk(cast(ControlServer, self.ear), self.journal, self._status, _next_ticket=TICKETS)
        self._state = Agent(nick)
        """What the journal has as the core's state: that which counts is the simulator's."""
        self._turns: list[tuple[Agent, list[Effect]]] = []
        self._requests = 0
        self._keep([*node.log, *node.receipts])

    def close(self) -> None:
        self.journal.close()

    @property
    def off(self) -> bool:
        return self._stage.machines[self.node.name].off

    def ask(self, client: int, method: str, params: Mapping[str, object]) -> "asyncio.Future[object]":
        """Put a question to the desk, which answers it now or later."""
        if method not in METHODS:
            raise AgentError("MethodNotFound", f"There is no method {method}.", METHOD_NOT_FOUND)
        if method in FILES:
            raise AgentError("NotSimulated", "Files are not simulated.", REFUSED)
        self._requests += 1
        said = msgspec.json.decode(msgspec.json.encode(params))
        request = Request(method, self._requests, said, "2.0")
        try:
            wanted = read_params(request)
        except msgspec.ValidationError as error:
            raise AgentError("InvalidParams", f"{method}: {error}", INVALID_PARAMS) from error
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.ear.open[self._requests] = client, answer
        with self._stage.clock():
            ask = self.desk.take(client, request, self.node.agent)
        if ask is not None:
            self._stage.hear(self.node.name, ask)
        else:
            self.pump()
        if isinstance(wanted, WaitParams):
            self._stage.after(int(wanted.timeout_s * 1000) + 1, self.pump)  # then it is answered at the latest
        return answer

    def note(self, before: Agent, effects: list[Effect]) -> None:
        """The core has made a turn. Most of them say nothing to the journal, nor to any face."""
        if any(isinstance(one, _TOLD) for one in effects):
            self._turns.append((before, effects))

    def turn(self) -> None:
        """What the agent thread does with the turns of the core."""
        turns, self._turns = self._turns, []
        for before, effects in turns:
            with self._stage.clock():
                self._turn(before, effects)
        if turns:
            self.pump()

    def _turn(self, before: Agent, effects: list[Effect]) -> None:
        agent = self.node.agent
        # Whoever asked the simulator itself is no face.
        mine = [one for one in effects if not isinstance(one, Answer | Refuse) or one.ticket >= TICKETS]
        remembered = [one for one in mine if isinstance(one, Remembered)]
        notes = self.desk.gather(mine, before, agent)
        self.journal.commit(self._state, remembered, notes)
        self.desk.stream.kept(notes)
        self.desk.log.note(remembered)
        for one in mine:
            if isinstance(one, Answer | Refuse):
                self.desk.settle(one, agent)
        self.desk.tell([one.notice for one in mine if isinstance(one, Notify)], agent)

    def pump(self) -> None:
        """Acknowledgements go on disk, those who wait are answered, and news goes out."""
        with self._stage.clock():
            agent = self.node.agent
            while self.desk.stream.pending:
                notes = self.desk.gather((), agent, agent)
                self.journal.commit(self._state, (), notes)
                self.desk.stream.kept(notes)
            while self.desk.feed(agent):
                pass
            self.desk.review(agent)

    def _keep(self, remembered: list[Remembered]) -> None:
        self.journal.commit(self._state, remembered)
        self.desk.log.note(remembered)

    def _status(self, agent: Agent) -> Status:
        return Status(
            profile=self.nick,
            nick=self.nick,
            version=__version__,
            pid=0,
            uptime_s=0,
            pair="",
            queue="",
            closed=False,
            groups=[self.desk.group_info(agent, group) for group in agent.groups.values()],
        )


class Stage(Ordeal):
    """A world of such members. Its time begins with the event loop's."""

    seats: dict[str, Seat]
    """By node."""

    @classmethod
    def of(cls, nicks: tuple[str, ...], name: str, roles: RoleRule, seed: int, faults: Faults, folder: Path) -> "Stage":
        stage = cast(Stage, cls.fork(founded(nicks, name, roles), seed, faults))
        stage.seats = {}
        stage.seats = {
            node.name: Seat(stage, node, nick, folder) for node, nick in zip(stage.nodes.values(), nicks, strict=True)
        }
        return stage

    def close(self) -> None:
        for seat in self.seats.values():
            seat.close()

    @contextmanager
    def clock(self) -> Iterator[None]:
        """The desks go by the time of this world."""
        modules: list[Any] = [request_handlers, core_state, delivery]
        before = [module.time for module in modules]
        for module in modules:
            module.time = _Clock(self)
        try:
            yield
        finally:
            for module, time in zip(modules, before, strict=True):
                module.time = time

    # --- its time (`loop.World`) ------------------------------------------------------------------------------------

    def due_s(self) -> float | None:
        return (self._queue[0][0] - self.began) / 1000 if self._queue else None

    def run_to(self, moment_s: float) -> None:
        self.run(for_ms=max(0, self.began + int(moment_s * 1000 + 1e-6) - self.now))

    # --- its turns --------------------------------------------------------------------------------------------------

    def _step(self, node: Node, stimulus: Stimulus) -> list[Effect]:
        before = node.agent
        effects = super()._step(node, stimulus)
        if node.name in self.seats:
            self.seats[node.name].note(before, effects)
        return effects

    def hear(self, name: str, stimulus: Stimulus) -> None:
        super().hear(name, stimulus)
        if name in self.seats:
            self.seats[name].turn()


@lru_cache(maxsize=FOUNDED_MAX)
def founded(nicks: tuple[str, ...], name: str, roles: RoleRule) -> World:
    """A world in which such a group stands, the first of them its founder. Nobody may go on with it: take a copy."""
    faults = Faults(loss=0, duplication=0, delay_ms_max=20)
    world = World(0, len(nicks), faults, TransparentPacker.name)
    first, *others = world.nodes
    policy = Policy.default(roles)
    world.ask(first, CreateGroup(name, nicks[0], TransparentPacker.name, "pairwise-multi", policy))
    for node, nick in zip(others, nicks[1:], strict=True):
        made = world.ask(first, CreateInvitation(world.group(first).id, 86_400, 1))
        assert isinstance(made, Answer) and isinstance(made.result, InvitationCreated)
        world.ask(node, AcceptInvitation(made.result.invitation, nick))
        if not world.run(lambda node=node: bool(world.nodes[node].agent.groups), for_ms=JOINED_MS):  # type: ignore[misc]
            raise Violation(f"{nick} never got into a group in which nothing is wrong")
    world.run(lambda: world.seated() and not any(world.missing()), for_ms=SETTLED_MS)
    world.run(for_ms=SETTLED_MS)
    return world
