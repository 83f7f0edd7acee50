"""A simulated group whose members have real request handlers and journals over the real core.

Only sockets, clocks and the network are simulated (`zerochat.sim`), so requests and notifications are those of the
control socket.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from zerochat.agent.api import handlers, request_handlers
from zerochat.agent.api.client_protocol import AgentError, Notification
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import Call, ControlServer, decode_call
from zerochat.agent.files.worker import FileWorker
from zerochat.agent.storage.journal import KEY_BYTES, Journal
from zerochat.agent.views import delivery, groups, members
from zerochat.bot.agent_link import AgentLinkLost
from zerochat.errors import LocalError
from zerochat.group.effects import CommandDone, CommandFailed, Effect, InvitationCreated, JournalEffect, Notify
from zerochat.group.inputs import AcceptInvitation, CreateGroup, CreateInvitation, Input
from zerochat.group.membership import Policy
from zerochat.group.membership.bodies import RoleRule
from zerochat.group.state import Agent
from zerochat.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, METHODS, NOTIFICATIONS, REFUSED, Request, Status, WaitParams
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.fault_schedule import FaultyWorld, Machine
from zerochat.sim.file_store import FileEffect
from zerochat.sim.node import Node
from zerochat.sim.world import EPOCH_MS, Faults, Violation, World
from zerochat.version import __version__

TICKETS = 1 << 40
"""First ticket of the request handlers, far from the simulator's own."""
FILES_SECRET = bytes(32)
JOINED_MS, SETTLED_MS = 60_000, 120_000
INITIAL_WORLDS_MAX = 16
"""Cached initial groups, so that later tests start at once."""


_VISIBLE_EFFECTS = (JournalEffect, CommandDone, CommandFailed, Notify)


class _Clock:
    """Replaces the module `time` in the request handlers."""

    def __init__(self, world: World) -> None:
        self._world = world

    def time(self) -> float:
        return self._world.now / 1000

    def monotonic(self) -> float:
        return (self._world.now - EPOCH_MS) / 1000


class FakeServer:
    """Replaces the ControlServer: answers and notifications go to the members' links."""

    def __init__(self) -> None:
        self.clients: frozenset[int] = frozenset()
        self.pending: dict[int, tuple[int, asyncio.Future[object]]] = {}
        """By request: the client and its future."""
        self.notifications: dict[int, deque[Notification]] = {}
        self.available: dict[int, asyncio.Event] = {}
        """By client: set when there is a notification or the connection has ended."""
        self._next = 0

    def connect(self) -> int:
        self._next += 1
        self.clients |= {self._next}
        self.notifications[self._next], self.available[self._next] = deque(), asyncio.Event()
        return self._next

    def disconnect(self, client: int) -> None:
        self.clients -= {client}
        self.notifications.pop(client, None)
        if client in self.available:
            self.available.pop(client).set()
        for request in [request for request, (waiting, _) in self.pending.items() if waiting == client]:
            _, answer = self.pending.pop(request)
            if not answer.done():
                answer.set_exception(AgentLinkLost(why="the agent closed it"))

    def backlog(self, client: int) -> int:
        return 0

    def respond(self, call: Call, result: object) -> None:
        _, answer = self.pending.pop(cast(int, call.id), (0, None))
        if answer is not None and not answer.done():
            answer.set_result(result)

    def refuse(self, call: Call, code: int, message: str, data: Mapping[str, object]) -> None:
        told = dict(data)
        _, answer = self.pending.pop(cast(int, call.id), (0, None))
        if answer is not None and not answer.done():
            exit_code = cast(int, told.get("exit_code", 1))
            answer.set_exception(AgentError(str(told.get("code", "AgentError")), message, code, exit_code, told))

    def refuse_error(self, call: Call, error: LocalError) -> None:
        ControlServer.refuse_error(cast(ControlServer, self), call, error)

    def notify(self, clients: Iterable[int], method: str, params: Struct) -> None:
        line = msgspec.json.encode(params)
        for client in clients:
            if client in self.notifications:
                self.notifications[client].append(
                    Notification(method, msgspec.json.decode(line, type=NOTIFICATIONS[method]))
                )
                self.available[client].set()


class _AtOnce:
    """Replaces a thread pool: a job is done when it is submitted."""

    def submit(self, work: Callable[..., None], *args: object) -> None:
        work(*args)


class FilesAtOnce(FileWorker):
    """The file worker without threads."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, FILES_SECRET, lambda: None)
        self._parts = self._long = cast(ThreadPoolExecutor, _AtOnce())


class SimulatedMember:
    """One member: its node in the simulated world, with request handlers and a journal."""

    def __init__(self, world: "SimulatedGroup", node: Node, nick: str, folder: Path) -> None:
        self.node, self.nick = node, nick
        self._world = world
        self.server = FakeServer()
        Journal.create(folder / f"{node.name}.db", key := bytes(KEY_BYTES)).close()
        self.journal = Journal.open(folder / f"{node.name}.db", key)
        self.files = FilesAtOnce(folder / f"{node.name}.files")
        server = cast(ControlServer, self.server)
        self.handlers = RequestHandlers(server, self.journal, self._status, files=self.files, next_ticket=TICKETS)
        self._state = Agent(nick)
        """A placeholder for the core's state in the journal; the real one is in the simulator."""
        self._steps: list[tuple[Agent, list[Effect]]] = []
        self._requests = 0
        self._store_events([*node.log, *node.receipts])

    def close(self) -> None:
        self.journal.close()

    @property
    def off(self) -> bool:
        return self._world.machines[self.node.name].off

    def request(self, client: int, method: str, params: Mapping[str, object]) -> "asyncio.Future[object]":
        """Pass a request to the handlers, which answer it now or later."""
        if method not in METHODS:
            raise AgentError("MethodNotFound", f"There is no method {method}.", METHOD_NOT_FOUND)
        if method == "render_picture":  # decoded in another process, in real time
            raise AgentError("NotSimulated", "Pictures are not decoded in simulations.", REFUSED)
        self._requests += 1
        said = msgspec.json.decode(msgspec.json.encode(params))
        request = Request(method, self._requests, said, "2.0")
        try:
            call = decode_call(client, request)
        except msgspec.ValidationError as error:
            raise AgentError("InvalidParams", f"{method}: {error}", INVALID_PARAMS) from error
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.server.pending[self._requests] = client, answer
        with self._world.clock():
            ask = self.handlers.handle(call, self.node.agent)
        if ask is not None:
            self._world.process(self.node.name, ask)
        else:
            self.pump()
            self.take_files()
        if isinstance(call.params, WaitParams):
            self._world.after(int(call.params.timeout_s * 1000) + 1, self.pump)  # the time limit of the request
        return answer

    def take_files(self) -> None:
        """Pass on what the file worker has done: results for the core, answers, and messages with files."""
        with self._world.clock():
            for one in self.files.take():
                self._world.deliver(self.node.name, one)
        for command in self.handlers.take_file_posts():
            self._world.process(self.node.name, command)

    def record_step(self, before: Agent, effects: list[Effect]) -> None:
        """Record a step of the core, unless it affects neither the journal nor clients."""
        if any(isinstance(one, _VISIBLE_EFFECTS) for one in effects):
            self._steps.append((before, effects))

    def process_steps(self) -> None:
        """Commit and answer the recorded steps, as the agent loop does."""
        steps, self._steps = self._steps, []
        for before, effects in steps:
            with self._world.clock():
                self._process_step(before, effects)
        if steps:
            self.pump()

    def _process_step(self, before: Agent, effects: list[Effect]) -> None:
        agent = self.node.agent
        # Commands of the simulator itself have no client.
        mine = [one for one in effects if not isinstance(one, CommandDone | CommandFailed) or one.ticket >= TICKETS]
        remembered = [one for one in mine if isinstance(one, JournalEffect)]
        notes = self.handlers.prepare_commit(mine, before, agent)
        self.journal.commit(self._state, remembered, notes)
        self.handlers.committed(notes, remembered)
        for one in mine:
            if isinstance(one, CommandDone | CommandFailed):
                self.handlers.complete(one, agent)
        self.handlers.notify([one.notification for one in mine if isinstance(one, Notify)], agent)

    def pump(self) -> None:
        """Commit acknowledgements, answer waiting requests, send notifications."""
        with self._world.clock():
            agent = self.node.agent
            while self.handlers.subscriptions.pending:
                notes = self.handlers.prepare_commit((), agent, agent)
                self.journal.commit(self._state, (), notes)
                self.handlers.subscriptions.committed(notes)
            while self.handlers.feed(agent):
                pass
            self.handlers.review(agent)

    def _store_events(self, remembered: list[JournalEffect]) -> None:
        self.journal.commit(self._state, remembered)
        self.handlers.messages.note_stored(remembered)

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
            groups=[],
        )


class SimulatedGroup(FaultyWorld):
    """A world of such members. Its time starts with the event loop's."""

    members: dict[str, SimulatedMember]
    """Members by node."""
    _folder: Path

    @classmethod
    def create(
        cls, nicks: tuple[str, ...], name: str, roles: RoleRule, seed: int, faults: Faults, folder: Path
    ) -> "SimulatedGroup":
        world = cast(SimulatedGroup, cls.fork(initial_world(nicks, name, roles), seed, faults))
        world.members, world._folder = {}, folder
        world.check_deliveries = False  # a member that returns is notified of the first events again
        world.members = {
            node.name: SimulatedMember(world, node, nick, folder)
            for node, nick in zip(world.nodes.values(), nicks, strict=True)
        }
        return world

    def add(self, nick: str) -> SimulatedMember:
        """One more user, who is in no group."""
        node = self.add_node({})
        self.machines[node.name] = Machine()
        member = self.members[node.name] = SimulatedMember(self, node, nick, self._folder)
        self.start(node.name)
        return member

    def close(self) -> None:
        for seat in self.members.values():
            seat.close()

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Use the world's time in the request handlers."""
        modules: list[Any] = [
            request_handlers,
            handlers.groups,
            handlers.messages,
            handlers.delivery,
            groups,
            members,
            delivery,
        ]
        before = [module.time for module in modules]
        for module in modules:
            module.time = _Clock(self)
        try:
            yield
        finally:
            for module, time in zip(modules, before, strict=True):
                module.time = time

    # --- time (`loop.Simulation`) -----------------------------------------------------------------------------------

    def due_s(self) -> float | None:
        return (self._queue[0][0] - self.began) / 1000 if self._queue else None

    def run_to(self, moment_s: float) -> None:
        self.run(for_ms=max(0, self.began + int(moment_s * 1000 + 1e-6) - self.now))

    # --- steps ------------------------------------------------------------------------------------------------------

    def _step(self, node: Node, input_: Input) -> list[Effect]:
        before = node.agent
        effects = super()._step(node, input_)
        if node.name in self.members:
            self.members[node.name].record_step(before, effects)
        return effects

    def process(self, name: str, input_: Input) -> None:
        super().process(name, input_)
        if name in self.members:
            self.members[name].process_steps()

    def deliver(self, name: str, input_: Input) -> None:
        """Give a core this input in a moment."""
        self._later(1, name, input_)

    # --- files ------------------------------------------------------------------------------------------------------

    def _file(self, node: Node, effect: FileEffect) -> None:
        member = self.members[node.name]
        member.files.perform(effect)
        member.take_files()

    def power_on(self, name: str) -> None:
        was_off = self.machines[name].off
        super().power_on(name)
        for one in self.members[name].files.files_on_disk() if was_off else ():
            self.process(name, one)

    # --- what is missing --------------------------------------------------------------------------------------------

    def missing(self) -> Iterator[str]:
        """What members lack of each other in any group, or download, as sentences."""
        yield from self._not_joined()
        for id_ in dict.fromkeys(id_ for node in self.nodes.values() for id_ in node.agent.groups):
            groups = {name: node.agent.groups[id_] for name, node in self.nodes.items() if id_ in node.agent.groups}
            active = self._agreed({name: group for name, group in groups.items() if group.state == "active"})
            yield from self.missing_in(active)
            yield from (f"{name} is leaving" for name, group in groups.items() if group.state == "leaving")
            for name, group in active.items():
                yield from (f"{name} downloads a file" for one in group.files.values() if one.state == "getting")


@lru_cache(maxsize=INITIAL_WORLDS_MAX)
def initial_world(nicks: tuple[str, ...], name: str, roles: RoleRule) -> World:
    """A converged world with this group, created by the first member. Do not modify it: use a copy."""
    faults = Faults(loss=0, duplication=0, delay_ms_max=20)
    world = World(0, len(nicks), faults, TransparentPacker.name)
    first, *others = world.nodes
    policy = Policy.default(roles)
    world.run_command(first, CreateGroup(name, nicks[0], TransparentPacker.name, policy=policy))
    for node, nick in zip(others, nicks[1:], strict=True):
        made = world.run_command(first, CreateInvitation(world.group(first).id, 86_400, 1))
        assert isinstance(made, CommandDone) and isinstance(made.result, InvitationCreated)
        world.run_command(node, AcceptInvitation(made.result.invitation, nick))
        if not world.run(lambda node=node: bool(world.nodes[node].agent.groups), for_ms=JOINED_MS):  # type: ignore[misc]
            raise Violation(f"{nick} never joined a group without faults")
    world.run(lambda: world.fully_connected() and not any(world.missing()), for_ms=SETTLED_MS)
    world.run(for_ms=SETTLED_MS)
    return world
