"""`Group`: users and bots in one process over a simulated network."""

import asyncio
import copy
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from zerochat import rpc
from zerochat.agent.storage.paths import path_from_wire, path_to_wire
from zerochat.bot.bot import Bot
from zerochat.bot.schedule import parse_duration
from zerochat.bot.store import Store
from zerochat.group.effects import CommandDone, CommandFailed, GroupCreated, InvitationCreated
from zerochat.group.inputs import AcceptInvitation, Command, CreateGroup, CreateInvitation
from zerochat.group.membership import Policy
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.world import Faults
from zerochat.testing.agent_link import SimulatedLink
from zerochat.testing.loop import VirtualLoop
from zerochat.testing.simulated_group import SimulatedGroup, SimulatedMember

NICKS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
MEMBERS_MAX = 32
SETTLE_S_MAX = 600.0
POLL_S, FAST_POLLS, SLOW_POLL_S = 0.05, 100, 1.0
"""Interval of the convergence check: first, number of fast checks, later."""
HISTORY_MAX = 10_000
PAGE = 500
INVITED_S = 24 * 3600
FOREVER_MS = 365 * 24 * 3_600_000


class NotSettled(AssertionError):
    """Something is still pending after the time limit."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """Whether all members have the same state; `missing` lists what they lack."""

    missing: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.missing

    def __repr__(self) -> str:
        return "converged" if not self.missing else "; ".join(self.missing)


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message as a member sees it."""

    id: str
    author: str
    """The author's display name."""
    text: str
    reply_to: str | None
    reactions: Mapping[str, tuple[str, ...]]
    """Display names of the reacting members, by emoji."""
    deleted: bool
    files: tuple[str, ...] = ()
    """Names of its attachments."""

    def __str__(self) -> str:
        return f"{self.author}: {self.text}"


class Group:
    """A group in which every member has a real core, request handlers and journal, in virtual time. An async context
    manager; use it in a `VirtualLoop` (`run`, or the pytest fixture). `new_group` adds further groups, which share the
    users, the bots, the network and the time with the first one."""

    id: str
    """The group's id."""

    def __init__(
        self,
        members: int | Sequence[str] = 3,
        *,
        bots: Sequence[Bot] | Mapping[str, Bot] = (),
        loss: float = 0.0,
        duplicates: float = 0.0,
        reorder: bool = False,
        seed: int = 0,
        name: str = "friends",
        roles: Literal["flat", "admins"] = "flat",
    ) -> None:
        """`members`: number of users, or their names (default: alice, bob, carol, …); the first one created the group.
        `bots`: each is a member of its own, named like the bot or the key. `loss`, `duplicates`: fractions of frames
        that are lost or duplicated, 0 to 1. `reorder`: let frames overtake each other. `name`: name of the group.
        `roles`: with `admins`, the first member is the owner and can appoint admins (`set_role`)."""
        people = NICKS[:members] if isinstance(members, int) else tuple(members)
        if isinstance(members, int) and not 1 <= members <= len(NICKS):
            raise ValueError(f"the number of members must be 1 to {len(NICKS)}; pass names for more")
        self.bots = dict(bots) if isinstance(bots, Mapping) else {one.name: one for one in bots}
        self.members = (*people, *self.bots)
        if len(set(self.members)) < len(self.members) or not 2 <= len(self.members) <= MEMBERS_MAX:
            raise ValueError(f"a group needs 2 to {MEMBERS_MAX} members with distinct names")
        self.name, self._roles, self._seed = name, roles, seed
        self._faults = Faults(loss=loss, duplication=duplicates, delay_ms_max=400 if reorder else 1)
        self._stores: dict[str, Store] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._links: dict[str, SimulatedLink] = {}
        self._world: SimulatedGroup | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("a simulated group needs virtual time: use zerochat.testing.run or the pytest fixture")
        self._loop = loop
        self._folder = tempfile.TemporaryDirectory(prefix="zerochat-testing-")
        roles, folder = self._roles, Path(self._folder.name)
        self._world = SimulatedGroup.create(self.members, self.name, roles, self._seed, self._faults, folder)
        self._members = dict(zip(self.members, self._world.members.values(), strict=True))
        """All users and bots of the network, by name."""
        self.id = self._world.group(self._member(self.members[0]).node.name).id
        self._began_s = loop.time()
        loop.simulations.append(self)
        try:
            for name in self.bots:
                await self.start(name)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for name, task in list(self._serving.items()):
                self.bots[name].stop()
                with suppress(asyncio.CancelledError):
                    await task  # raises what has ended the bot
        finally:
            self._loop.simulations.remove(self)
            self.world.close()
            for store in self._stores.values():
                store.close()
            self._folder.cleanup()

    @property
    def world(self) -> SimulatedGroup:
        """The simulated world, for direct access."""
        if self._world is None:
            raise TypeError("use a simulated group as a context manager: `async with Group() as group`")
        return self._world

    # --- time (`loop.Simulation`) -----------------------------------------------------------------------------------

    def due_s(self) -> float | None:
        due = self.world.due_s()
        return None if due is None else self._began_s + due

    def run_to(self, moment_s: float) -> None:
        self.world.run_to(moment_s - self._began_s)

    @property
    def now(self) -> datetime:
        """The simulated time, starting on 15 June 2025."""
        return datetime.fromtimestamp(self.world.now / 1000, UTC)

    async def advance(self, span: str | float) -> None:
        """Let time pass: `1h`, `30s`."""
        await asyncio.sleep(parse_duration(span))

    # --- users ------------------------------------------------------------------------------------------------------

    async def send(
        self, who: str, text: str = "", *, reply_to: str | None = None, files: Sequence[str | Path] = ()
    ) -> str:
        """Post a message as a member, with these files. Returns its id."""
        params: dict[str, object] = {"group": self.id, "text": text, "reply_to": reply_to}
        if not files:
            return str((await self.call(who, "send_message", **params)).id)
        paths = [path_to_wire(Path(one).absolute()) for one in files]
        return str((await self.call(who, "send_files", paths=paths, **params)).id)

    async def react(self, who: str, message: str, emoji: str, *, on: bool = True) -> str:
        sent = await self.call(who, "react", group=self.id, event=message, emoji=emoji, on=on)
        return str(sent.id)

    async def edit(self, who: str, message: str, text: str) -> str:
        return str((await self.call(who, "edit_message", group=self.id, event=message, text=text)).id)

    async def delete(self, who: str, message: str) -> str:
        return str((await self.call(who, "delete_message", group=self.id, event=message)).id)

    async def set_role(self, who: str, member: str, role: str) -> None:
        """Change a member's role; for groups with `roles="admins"`."""
        await self.call(who, "set_role", group=self.id, member=member, role=role)

    async def join(self, who: str, *, by: str | None = None, role: Literal["reader", "writer"] = "writer") -> None:
        """Join with an invitation of the member `by` (None: the first one), and wait for it. A name that is not in the
        network yet is a new user. Raises NotSettled."""
        made = self._run(by or self.members[0], CreateInvitation(self.id, INVITED_S, 1, role))
        assert isinstance(made, InvitationCreated)
        self._add(who)
        self._run(who, AcceptInvitation(made.invitation, who))
        node = self._member(who).node

        async def joined() -> bool:
            there = node.agent.groups.get(self.id)
            return there is not None and there.state == "active"

        await self._until(joined, f"{who} has not joined {self.name}")
        self.members = tuple(dict.fromkeys((*self.members, who)))

    async def leave(self, who: str) -> None:
        """Leave the group as a member."""
        await self.call(who, "leave_group", group=self.id)

    async def remove(self, who: str, member: str) -> None:
        """Remove a member, or vote for it, as another member."""
        await self.call(who, "remove_member", group=self.id, member=member)

    async def new_group(
        self, name: str, members: Sequence[str], *, roles: Literal["flat", "admins"] = "flat"
    ) -> "Group":
        """A further group: the first of these members creates it, the others join. A name that is not in the network
        yet is a new user. `settle` and `converged` of each group cover all groups."""
        self._add(members[0])
        created = CreateGroup(name, members[0], TransparentPacker.name, policy=Policy.default(roles))
        made = self._run(members[0], created)
        assert isinstance(made, GroupCreated)
        other = copy.copy(self)
        other.name, other.id, other.members = name, made.group, (members[0],)
        for one in members[1:]:
            await other.join(one)
        return other

    async def call(self, who: str, method: str, **params: object) -> Any:
        """The result of any request to a member's agent."""
        link = self._link(who)
        if not link.connected:  # for the first time, or after the machine was off
            await link.open()
        return await link.call(method, params)

    def _add(self, who: str) -> None:
        """Add a user to the network, unless it is there."""
        if who not in self._members:
            self._members[who] = self.world.add(who)

    def _run(self, who: str, command: Command) -> object:
        """The result of a command to a member's core. Raises LocalError."""
        done = self.world.run_command(self._member(who).node.name, command)
        if isinstance(done, CommandFailed):
            raise done.error
        assert isinstance(done, CommandDone)
        return done.result

    def _link(self, member: str) -> SimulatedLink:
        if member not in self._links:
            self._links[member] = SimulatedLink(self.world, self._member(member))
        return self._links[member]

    def _member(self, member: str) -> SimulatedMember:
        if member not in self._members:
            raise KeyError(f"no member {member}; there are {', '.join(self._members)}")
        return self._members[member]

    # --- bots -------------------------------------------------------------------------------------------------------

    async def start(self, name: str) -> None:
        """Start a bot, for the first time or again, and wait until it is subscribed."""
        bot, store = self.bots[name], self._stores.setdefault(name, Store(None))
        task = asyncio.create_task(
            bot.serve(SimulatedLink(self.world, self._member(name)), store=store), name=f"bot {name}"
        )
        self._serving[name] = task
        ready = asyncio.create_task(bot.ready())
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            ready.cancel()
            del self._serving[name]
            task.result()

    async def stop(self, name: str) -> None:
        """Stop a bot as SIGTERM does: its handlers end and their events are acknowledged."""
        self.bots[name].stop()
        await self._serving.pop(name)

    async def kill(self, name: str) -> None:
        """Kill a bot as SIGKILL does. Its database stays."""
        task = self._serving.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    # --- the network ------------------------------------------------------------------------------------------------

    def partition(self, *sides: str | Iterable[str]) -> None:
        """Cut the network between these parts; members that are not named form one more part."""
        parts = [{one} if isinstance(one, str) else set(one) for one in sides]
        named = set[str]().union(*parts)
        parts.append(self._members.keys() - named)
        side = {self._member(member).node.name: number for number, part in enumerate(parts) for member in part}
        self.world.cut([(a, b) for a in side for b in side if side[a] != side[b]], FOREVER_MS)

    def heal(self) -> None:
        """Repair the network and start every agent."""
        self.world.heal()

    def power_off(self, member: str, span: str | float) -> None:
        """Switch a member's machine off; it restarts with its disk after this time."""
        seat = self._member(member)
        self.world.power_off(seat.node.name, int(parse_duration(span) * 1000))
        for client in seat.server.clients:
            seat.server.disconnect(client)

    # --- state ------------------------------------------------------------------------------------------------------

    async def settle(self, within: str | float = SETTLE_S_MAX) -> None:
        """Wait until every member has everything and every bot has handled it. Raises NotSettled with the missing items
        after `within`."""
        end = self._loop.time() + parse_duration(within)
        calm = looks = 0
        while calm < 2:  # a bot's last answer may still be in flight
            for name, task in list(self._serving.items()):
                if task.done():
                    del self._serving[name]
                    task.result()
            busy = self.pending()
            calm = 0 if busy else calm + 1
            if busy and self._loop.time() >= end:
                raise NotSettled("; ".join(busy))
            looks += 1
            await asyncio.sleep(POLL_S if looks < FAST_POLLS else SLOW_POLL_S)

    async def _until(self, done: Callable[[], Awaitable[bool]], sentence: str) -> None:
        """Wait until this is done. Raises NotSettled with the sentence."""
        end, looks = self._loop.time() + SETTLE_S_MAX, 0
        while not await done():
            if self._loop.time() >= end:
                raise NotSettled(sentence)
            looks += 1
            await asyncio.sleep(POLL_S if looks < FAST_POLLS else SLOW_POLL_S)

    def pending(self) -> list[str]:
        """Unfinished work, as sentences."""
        lacking = list(self.converged().missing)
        return lacking + [f"{name} has unhandled events" for name in self._serving if not self._idle(name)]

    def _idle(self, name: str) -> bool:
        seat = self._member(name)
        return self.bots[name].idle and not any(seat.server.notifications.values())

    def converged(self) -> Convergence:
        """Whether every member has every event and the same view."""
        nodes = {seat.node.name: member for member, seat in self._members.items()}
        off = [f"{member} is off" for member, seat in self._members.items() if seat.off]
        lacks = [" ".join(nodes.get(word, word) for word in lack.split()) for lack in self.world.missing()]
        return Convergence((*off, *dict.fromkeys(lacks)))

    async def messages(self, who: str | None = None) -> list[MessageView]:
        """The messages as a member sees them (None: the first member), oldest first."""
        events: list[rpc.Event] = []
        before: str | None = None
        while True:
            page = await self.call(who or self.members[0], "get_history", group=self.id, limit=PAGE, before=before)
            events = [*page.events, *events]
            if not page.more or len(events) >= HISTORY_MAX:
                break
            before = page.events[0].id
        nicks = {one.author.did: one.author.nick for one in events}
        return [_message_view(one, nicks) for one in events if one.type == "message"]

    async def texts(self, who: str | None = None, *, by: str | None = None) -> list[str]:
        """The texts of the messages as a member sees them (None: the first member); `by`: only those of this author."""
        return [one.text for one in await self.messages(who) if by is None or one.author == by]

    async def files(self, who: str, message: str) -> dict[str, bytes]:
        """The attachments of a message as a member downloads them: contents by name. Raises NotSettled."""
        page = await self.call(who, "get_history", group=self.id, around=message, limit=1)
        found: dict[str, bytes] = {}
        for one in [file for event in page.events if event.id == message for file in event.attachments]:

            async def here(file: str = one.id) -> bool:
                info = await self.call(who, "fetch_file", group=self.id, file=file)
                return bool(info.file.state == "here")

            await self._until(here, f"{who} has not downloaded {one.name}")
            with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
                saved = await self.call(who, "save_file", group=self.id, file=one.id, to=folder)
                found[one.name] = path_from_wire(saved.path).read_bytes()
        return found


def _message_view(event: rpc.Event, nicks: Mapping[str, str]) -> MessageView:
    reactions = {one.emoji: tuple(nicks.get(did, did) for did in one.by) for one in event.reactions}
    text = str(event.body.get("text", ""))
    files = tuple(one.name for one in event.attachments)
    return MessageView(event.id, event.author.nick, text, event.reply_to, reactions, event.deleted, files)
