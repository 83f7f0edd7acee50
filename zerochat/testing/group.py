"""`Group`: a group of people and bots in one process, over a network that one can make as bad as one likes."""

import asyncio
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from zerochat import rpc
from zerochat.bot.bot import Bot
from zerochat.bot.schedule import seconds_of
from zerochat.bot.store import Store
from zerochat.sim.world import Faults
from zerochat.testing.agent_link import SeatLine
from zerochat.testing.loop import VirtualLoop
from zerochat.testing.simulated_group import Seat, Stage

NICKS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
MEMBERS_MAX = 32
SETTLE_S_MAX = 600.0
LOOK_S, LOOKS, LOOK_SELDOM_S = 0.05, 100, 1.0
"""How often it is looked whether all is calm, at first and, after so many times, later."""
HISTORY_MAX = 10_000
PAGE = 500
FOREVER_MS = 365 * 24 * 3_600_000


class NotSettled(AssertionError):
    """After so much virtual time something is still under way."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all members have the same; `lacks` says who lacks what."""

    lacks: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.lacks

    def __repr__(self) -> str:
        return "converged" if not self.lacks else "; ".join(self.lacks)


@dataclass(frozen=True, slots=True)
class Said:
    """A message, as one member sees it."""

    id: str
    author: str
    """The author's nick."""
    text: str
    reply_to: str | None
    reactions: Mapping[str, tuple[str, ...]]
    """By emoji, the nicks of all who have put it."""
    deleted: bool

    def __str__(self) -> str:
        return f"{self.author}: {self.text}"


class Group:
    """A group in which everybody has a real core, desk and journal, in virtual time. A context; everything in it is
    awaited in a `VirtualLoop` (`run`, `simulated`, or the pytest fixture)."""

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
        """`members`: how many people there are, or what they are called (alice, bob, carol and so on; the first one has
        founded the group). `bots`: each is a member of its own, called as the bot is, or as the key says. `loss`,
        `duplicates`: how many of the frames on the network get lost, or come twice, 0 to 1. `reorder`: frames overtake
        each other. `name`: the group's. `roles`: `admins` has the founder for its owner, who makes admins (`role`)."""
        people = NICKS[:members] if isinstance(members, int) else tuple(members)
        if isinstance(members, int) and not 1 <= members <= len(NICKS):
            raise ValueError(f"1 to {len(NICKS)} members have names of their own; name them to have more")
        self.bots = dict(bots) if isinstance(bots, Mapping) else {one.name: one for one in bots}
        self.members = (*people, *self.bots)
        if len(set(self.members)) < len(self.members) or not 2 <= len(self.members) <= MEMBERS_MAX:
            raise ValueError(f"a group has 2 to {MEMBERS_MAX} members, each with another name")
        self.name, self._roles, self._seed = name, roles, seed
        self._faults = Faults(loss=loss, duplication=duplicates, delay_ms_max=400 if reorder else 1)
        self._stores: dict[str, Store] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._lines: dict[str, SeatLine] = {}
        self._stage: Stage | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("a simulated group needs virtual time: call this with zerochat.testing.run, or as a test")
        self._loop = loop
        self._folder = tempfile.TemporaryDirectory(prefix="zerochat-testing-")
        roles, folder = self._roles, Path(self._folder.name)
        self._stage = Stage.of(self.members, self.name, roles, self._seed, self._faults, folder)
        self._seats = dict(zip(self.members, self._stage.seats.values(), strict=True))
        self._began_s = loop.time()
        loop.worlds.append(self)
        try:
            for member in self.members:
                await self._line(member).open()
            for name in self.bots:
                await self.start(name)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, task in list(self._serving.items()):
            self.bots[name].stop()
            with suppress(asyncio.CancelledError):
                await task
        self._loop.worlds.remove(self)
        self.stage.close()
        for store in self._stores.values():
            store.close()
        self._folder.cleanup()

    @property
    def stage(self) -> Stage:
        """The simulated world, for whoever wants more of it than is here."""
        if self._stage is None:
            raise TypeError("a simulated group is a context: `async with Group() as group`")
        return self._stage

    # --- time (`loop.World`) ----------------------------------------------------------------------------------------

    def due_s(self) -> float | None:
        due = self.stage.due_s()
        return None if due is None else self._began_s + due

    def run_to(self, moment_s: float) -> None:
        self.stage.run_to(moment_s - self._began_s)

    @property
    def now(self) -> datetime:
        """The time of this world, which begins on 15 June 2025."""
        return datetime.fromtimestamp(self.stage.now / 1000, UTC)

    async def pass_time(self, span: str | float) -> None:
        """Let so much time pass: `1h`, `30s`."""
        await asyncio.sleep(seconds_of(span))

    # --- people -----------------------------------------------------------------------------------------------------

    async def say(self, who: str, text: str, *, reply_to: str | None = None) -> str:
        """Have a member say something; the id of the message."""
        sent = await self.call(who, "send", group=self.name, text=text, reply_to=reply_to)
        return str(sent.id)

    async def react(self, who: str, message: str, emoji: str, *, on: bool = True) -> str:
        sent = await self.call(who, "react", group=self.name, event=message, emoji=emoji, on=on)
        return str(sent.id)

    async def edit(self, who: str, message: str, text: str) -> str:
        return str((await self.call(who, "edit", group=self.name, event=message, text=text)).id)

    async def delete(self, who: str, message: str) -> str:
        return str((await self.call(who, "delete", group=self.name, event=message)).id)

    async def role(self, who: str, member: str, role: str) -> None:
        """Have a member give another one a role; for groups with `roles="admins"`."""
        await self.call(who, "role", group=self.name, member=member, role=role)

    async def call(self, who: str, method: str, **params: object) -> Any:
        """Ask a member's agent for anything that it can do."""
        return await self._line(who).call(method, params)

    def _line(self, member: str) -> SeatLine:
        if member not in self._seats:
            raise KeyError(f"nobody is called {member}; there are {', '.join(self.members)}")
        if member not in self._lines:
            self._lines[member] = SeatLine(self.stage, self._seat(member))
        return self._lines[member]

    def _seat(self, member: str) -> Seat:
        return self._seats[member]

    # --- bots -------------------------------------------------------------------------------------------------------

    async def start(self, name: str) -> None:
        """Have a bot run, for the first time or again, and wait until it hears the group."""
        bot, store = self.bots[name], self._stores.setdefault(name, Store(None))
        task = asyncio.create_task(bot.serve(SeatLine(self.stage, self._seat(name)), store=store), name=f"bot {name}")
        self._serving[name] = task
        ready = asyncio.create_task(bot.ready())
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            ready.cancel()
            del self._serving[name]
            task.result()

    async def stop(self, name: str) -> None:
        """Have a bot end as it does on SIGTERM: its handlers end, and what they have handled is acknowledged."""
        self.bots[name].stop()
        await self._serving.pop(name)

    async def kill(self, name: str) -> None:
        """Have a bot end as it does on SIGKILL, at whatever it is at. What it has kept stays."""
        task = self._serving.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    # --- the network ------------------------------------------------------------------------------------------------

    def partition(self, *sides: str | Iterable[str]) -> None:
        """Cut the network into parts, of which none hears another one; who is not named is one part together."""
        parts = [{one} if isinstance(one, str) else set(one) for one in sides]
        named = set[str]().union(*parts)
        for one in named:
            self._line(one)  # raises where nobody is called so
        parts.append(set(self.members) - named)
        side = {self._seat(member).node.name: number for number, part in enumerate(parts) for member in part}
        self.stage.cut([(a, b) for a in side for b in side if side[a] != side[b]], FOREVER_MS)

    def heal(self) -> None:
        """The network is whole again, and every agent runs."""
        self.stage.heal()

    def switch_off(self, member: str, span: str | float) -> None:
        """A member's machine goes off, and comes back after so long with what is on its disk."""
        seat = self._seat(member)
        self.stage.switch_off(seat.node.name, int(seconds_of(span) * 1000))
        for client in seat.ear.clients:
            seat.ear.hang_up(client)

    # --- how it stands ----------------------------------------------------------------------------------------------

    async def settle(self, within: str | float = SETTLE_S_MAX) -> None:
        """Let time pass until everybody has everything, and every bot has handled all of it. Raises NotSettled, which
        says what is missing, when that takes longer than `within`."""
        end = self._loop.time() + seconds_of(within)
        calm = looks = 0
        while calm < 2:  # what a bot has just answered is under way again
            for name, task in list(self._serving.items()):
                if task.done():
                    del self._serving[name]
                    task.result()
            busy = self.busy()
            calm = 0 if busy else calm + 1
            if busy and self._loop.time() >= end:
                raise NotSettled("; ".join(busy))
            looks += 1
            await asyncio.sleep(LOOK_S if looks < LOOKS else LOOK_SELDOM_S)

    def busy(self) -> list[str]:
        """What is still under way, in words."""
        lacking = list(self.converged().lacks)
        return lacking + [
            f"{name} is not through with what it was told" for name in self._serving if not self._idle(name)
        ]

    def _idle(self, name: str) -> bool:
        seat = self._seat(name)
        return self.bots[name].idle and not any(seat.ear.news.values())

    def converged(self) -> Verdict:
        """Whether every member has everything that was said, and knows the same members."""
        nodes = {seat.node.name: member for member, seat in self._seats.items()}
        off = [f"{member} is off" for member, seat in self._seats.items() if seat.off]
        lacks = [" ".join(nodes.get(word, word) for word in lack.split()) for lack in self.stage.missing()]
        return Verdict((*off, *dict.fromkeys(lacks)))

    async def messages(self, who: str | None = None) -> list[Said]:
        """What was said, oldest first, as a member sees it (None: the first one)."""
        events: list[rpc.Event] = []
        before: str | None = None
        while True:
            page = await self.call(who or self.members[0], "history", group=self.name, limit=PAGE, before=before)
            events = [*page.events, *events]
            if not page.more or len(events) >= HISTORY_MAX:
                break
            before = page.events[0].id
        nicks = {one.author.did: one.author.nick for one in events}
        return [_said(one, nicks) for one in events if one.type == "message"]

    async def texts(self, who: str | None = None, *, by: str | None = None) -> list[str]:
        """The texts of what was said, as a member sees it (None: the first one); `by`: what this one has said."""
        return [one.text for one in await self.messages(who) if by is None or one.author == by]


def _said(event: rpc.Event, nicks: Mapping[str, str]) -> Said:
    reactions = {one.emoji: tuple(nicks.get(did, did) for did in one.by) for one in event.reactions}
    text = str(event.body.get("text", ""))
    return Said(event.id, event.author.nick, text, event.reply_to, reactions, event.deleted)
