"""A bot's connection with its agent: it is made again as often as it ends, and the groups are known over it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from zerochat.agent.api.client import AgentError, News
from zerochat.bot.agent_link import ANSWER_S_MAX, Line, LineLost
from zerochat.bot.events import Group
from zerochat.bot.groups import Known
from zerochat.bot.outgoing import Voice
from zerochat.bot.plan import Plan
from zerochat.terminal_text import printable_line

STOPPING: Final = "AgentStopping"
"""What an agent says that does nothing new any more, because it is about to end."""
BACKOFF_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""How long it waits before it connects again, the first time, the second time, and so on."""
BUSY_S = 10.0
"""How long a consumer may still be taken by a process that has just ended."""
ALWAYS: Final = ("member_joined", "commands_announced", "taken", "overflow", "dropped")
"""What every bot hears of, whatever its handlers want."""


class Connection:
    """One line after another, from `listen` until it is cancelled."""

    def __init__(self, plan: Plan, line: Line, voice: Callable[["Connection"], Voice], log: logging.Logger) -> None:
        self._plan, self._line, self._log = plan, line, log
        self.voice = voice(self)
        self.known = Known()
        self.connected = asyncio.Event()

    # --- asking -----------------------------------------------------------------------------------------------------

    async def ask(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        """Ask the agent; where the connection ends before it has answered, ask again as soon as there is one. So only
        what may be asked twice is asked here: questions, and what has an idempotency key."""
        while True:
            await self.connected.wait()
            try:
                return await self._line.call(method, params, within_s)
            except LineLost:
                await asyncio.sleep(BACKOFF_S[0])  # whoever listens has noticed it too, or is about to
            except AgentError as error:
                if error.code != STOPPING:
                    raise
                await asyncio.sleep(BACKOFF_S[2])

    async def acknowledge(self, upto: int, within_s: float = ANSWER_S_MAX) -> None:
        """Raises LineLost, and what the agent refuses."""
        await self._line.call("ack", {"consumer": self._plan.consumer, "seq": upto}, within_s)

    # --- listening --------------------------------------------------------------------------------------------------

    async def listen(self, begin: Callable[[], None], began: Callable[[], None], hear: Callable[[News], None]) -> None:
        """Connect, hear, and connect again. `begin` is called before anything is told over a connection, `began` when
        the first one stands. Raises a LocalError when it can never be."""
        tries, first = 0, True
        while True:
            try:
                await self._line.open()
                await self._subscribe(begin)
                self.connected.set()
                names = ", ".join(sorted(printable_line(one.name) for one in self.known.groups.values()))
                self._log.info("%s, in %s", "listening" if first else "connected again", names or "no group yet")
                if first:
                    began()
                tries, first = 0, False
                await self.announce(*self.known.groups)
                while True:
                    hear(await self._line.news())
            except LineLost as error:
                self.connected.clear()
                if not tries:
                    self._log.warning("%s", error.sentence())
                await asyncio.sleep(BACKOFF_S[min(tries, len(BACKOFF_S) - 1)])
                tries += 1

    async def _subscribe(self, begin: Callable[[], None]) -> None:
        plan, line = self._plan, self._line
        types = sorted({*ALWAYS, *(kind for one in plan.handlers for kind in one.types)})
        self.known.learn(await line.call("groups", {}), self.voice)
        if (unclear := self.known.unclear(self._named())) is not None:
            raise unclear
        wanted: dict[str, object] = {"consumer": plan.consumer, "types": types, "credit": plan.credit}
        wanted["groups"] = None if plan.groups is None else list(plan.groups)
        wanted["since"] = "last_acked"
        if plan.from_start and all(one.consumer != plan.consumer for one in await line.call("consumers", {})):
            wanted["since"] = "start"
        deadline = asyncio.get_running_loop().time() + BUSY_S
        begin()
        while True:
            try:
                await line.call("subscribe", wanted)
                return
            except AgentError as error:
                if error.code != "ConsumerBusy" or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(BACKOFF_S[2])

    def _named(self) -> list[str]:
        """The groups that the bot's author has named."""
        return [*(self._plan.groups or ()), *(one.group for one in self._plan.handlers if one.group)]

    # --- groups -----------------------------------------------------------------------------------------------------

    async def group(self, name: str) -> Group:
        """The group with this id; one that is new is asked for."""
        if name and name not in self.known.groups:
            self.known.learn(await self.ask("groups", {}), self.voice)
            if (unclear := self.known.unclear(self._named())) is not None:
                self._log.error("%s Until then nothing is done there.", unclear.sentence())
        return self.known.groups.get(name) or Group(name, name, self.voice)

    async def in_several(self) -> bool:
        """Whether there is more than one group that could hold another one up."""
        if len(self.known.groups) < 2:
            self.known.learn(await self.ask("groups", {}), self.voice)
        return len(self.known.groups) > 1

    async def know_bots(self, group: str) -> None:
        """Who is a bot there now; from here on `commands_announced` tells."""
        if group and group not in self.known.bots:
            with suppress(AgentError):  # it is forgotten, and nothing of it comes any more
                found = await self.voice.members(group)
                self.known.bots[group] = {one.did for one in found if one.bot}

    async def announce(self, *groups: str) -> None:
        """Say that this is a bot, and what it can be asked. The same again costs nothing. Raises LineLost."""
        wanted = self._plan.groups
        for name in groups:
            here = self.known.groups[name]
            if wanted is not None and not any(here.answers_to(one) for one in wanted):
                continue
            commands = list(self._plan.announced)
            try:
                await self._line.call("announce", {"group": name, "bot": True, "commands": commands})
            except AgentError as error:  # it is no member any more, or may not say anything there
                self._log.info("%s: nothing was announced (%s)", printable_line(here.name), error.code)
