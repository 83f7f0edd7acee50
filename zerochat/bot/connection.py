"""A bot's connection to its agent: reconnection with backoff, subscription, known groups."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from zerochat.agent.api.client_protocol import AgentError, Notification
from zerochat.bot.agent_link import ANSWER_S_MAX, AgentLink, AgentLinkLost
from zerochat.bot.api import BotApi
from zerochat.bot.events import Group
from zerochat.bot.handlers import LOCAL_TYPES, BotSpec
from zerochat.errors import AmbiguousGroup, LocalError
from zerochat.names import matching_ids
from zerochat.rpc import GroupInfo
from zerochat.terminal_text import printable_line

AGENT_STOPPING: Final = "AgentStopping"
"""Error code of an agent that is shutting down and takes no new requests."""
CONSUMER_TAKEN: Final = "ConsumerTaken"
"""Error code of a request after another process has taken over the consumer."""
BACKOFF_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Delays before the first, second, … reconnection attempt."""
CONSUMER_BUSY_S_MAX = 10.0
"""Time limit for the agent to release a consumer whose process has ended, seconds."""
INTERNAL_TYPES: Final = (
    *("member_joined", "member_left", "removed", "commands_announced", "consumer_taken", "overflow", "dropped"),
)
"""Item types that every bot subscribes to, whatever its handlers need."""


class ConsumerReplaced(LocalError):
    """Another process has taken over the consumer {consumer}. Only one bot of a name can run at a time: stop the other
    one, or give this one another name (`Bot(name=…)`)."""

    exit_code = 6


class KnownGroups:
    """The groups of the agent and the bots in them, as last reported."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        """Groups by id."""
        self.present: set[str] = set()
        """The ids of those that the profile has not left."""
        self.bots: dict[str, set[str]] = {}
        """By group id, the DIDs of members that announced themselves as bots."""

    def update(self, found: Iterable[GroupInfo], api: BotApi) -> None:
        infos = list(found)
        here = [one.name for one in infos if one.state != "left"]
        self.present = {one.id for one in infos if one.state != "left"}
        for one in infos:
            # As in the agent, a group that was left gives up its name to another one.
            shared = here.count(one.name) > 1 or (one.state == "left" and one.name in here)
            shared = shared or matching_ids({other.id: () for other in infos}, one.name) not in ([], [one.id])
            group = Group(one.id, one.name, api, shared=shared, me=one.me)
            self.groups[one.id] = replace(self.groups.get(one.id, group), shared=shared, me=one.me)

    def ambiguity(self, wanted: Iterable[str]) -> AmbiguousGroup | None:
        """The error for the first of these names that matches several groups; None if each is unambiguous."""
        for name in wanted:
            found = [one for one in self.groups.values() if one.name == name and one.shared]
            if found and name not in self.groups and not any(one.matches(name) for one in self.groups.values()):
                return AmbiguousGroup(group=name, ids=[one.id for one in found])
        return None


class Connection:
    """A connection that `run` opens and reopens until it is cancelled."""

    def __init__(
        self, spec: BotSpec, link: AgentLink, make_api: Callable[["Connection"], BotApi], log: logging.Logger
    ) -> None:
        self._spec, self._link, self._log = spec, link, log
        self.api = make_api(self)
        self.known = KnownGroups()
        self.connected = asyncio.Event()
        self._ended = False

    @property
    def profile(self) -> str:
        return self._link.profile

    @property
    def consumer(self) -> str:
        return self._spec.consumer

    def end(self) -> None:
        """Fail every request from now on. A thread of a handler can outlive the run, and must not wait for it."""
        self._ended = True
        self.connected.set()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def request(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        """The result of a request, repeated over the next connection if one ends before the answer. Only for idempotent
        requests: queries, and commands with an idempotency key."""
        while True:
            await self.connected.wait()
            if self._ended:
                raise AgentLinkLost(why="the bot has stopped")
            try:
                return await self._link.call(method, params, within_s)
            except AgentLinkLost:
                await asyncio.sleep(BACKOFF_S[0])  # `run` reconnects
            except AgentError as error:
                if error.code == CONSUMER_TAKEN:
                    raise ConsumerReplaced(consumer=self._spec.consumer) from error
                if error.code != AGENT_STOPPING:
                    raise
                await asyncio.sleep(BACKOFF_S[2])

    async def acknowledge(self, upto: int, within_s: float = ANSWER_S_MAX) -> None:
        """Acknowledge every item up to `upto`. Raises AgentLinkLost, ConsumerReplaced and AgentError."""
        try:
            await self._link.call("acknowledge", {"consumer": self._spec.consumer, "seq": upto}, within_s)
        except AgentError as error:
            if error.code == CONSUMER_TAKEN:
                raise ConsumerReplaced(consumer=self._spec.consumer) from error
            raise

    # --- notifications ----------------------------------------------------------------------------------------------

    async def run(
        self,
        on_subscribing: Callable[[], None],
        on_connected: Callable[[], None],
        on_notification: Callable[[Notification], None],
    ) -> None:
        """Connect, subscribe, pass notifications on, and reconnect. `on_subscribing` is called before each
        subscription, `on_connected` once, after the first. Raises LocalError if reconnecting cannot help."""
        tries, first = 0, True
        while True:
            try:
                await self._link.open()
                await self._subscribe(on_subscribing)
                self.connected.set()
                names = ", ".join(sorted(printable_line(one.name) for one in self.known.groups.values()))
                none = f"none yet; join one with `zerochat --profile {self._link.profile} join`"
                self._log.info("%s, groups: %s", "connected" if first else "reconnected", names or none)
                if first:
                    on_connected()
                tries, first = 0, False
                await self.announce(*self.known.groups)
                while True:
                    on_notification(await self._link.next_notification())
            except AgentLinkLost as error:
                self.connected.clear()
                if not tries:
                    self._log.warning("%s", error.sentence())
                await asyncio.sleep(BACKOFF_S[min(tries, len(BACKOFF_S) - 1)])
                tries += 1

    async def _subscribe(self, begin: Callable[[], None]) -> None:
        plan, line = self._spec, self._link
        types = sorted({*INTERNAL_TYPES, *(kind for one in plan.handlers for kind in one.types)} - LOCAL_TYPES)
        self.known.update(await line.call("list_groups", {}), self.api)
        if (unclear := self.known.ambiguity(self._configured_groups())) is not None:
            raise unclear
        wanted: dict[str, object] = {"consumer": plan.consumer, "types": types, "credit": plan.credit}
        wanted["take_over"] = plan.take_over
        missing = {
            name
            for name in self._configured_groups()
            if not any(one.matches(name) for one in self.known.groups.values())
        }
        if missing:
            names = ", ".join(map(printable_line, sorted(missing)))
            self._log.warning("this profile is not in %s yet; the bot takes it up once it has joined", names)
        known = plan.groups is not None and missing.isdisjoint(plan.groups)  # otherwise the dispatcher chooses
        wanted["groups"] = list(plan.groups or ()) if known else None
        wanted["since"] = "last_acked"
        if plan.from_beginning and all(one.consumer != plan.consumer for one in await line.call("list_consumers", {})):
            wanted["since"] = "start"
        deadline = asyncio.get_running_loop().time() + CONSUMER_BUSY_S_MAX
        begin()
        while True:
            try:
                await line.call("subscribe", wanted)
                return
            except AgentError as error:
                if error.code != "ConsumerBusy" or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(BACKOFF_S[2])

    def _configured_groups(self) -> list[str]:
        """The groups named by the bot's configuration and its handlers."""
        return [*(self._spec.groups or ()), *(one.group for one in self._spec.handlers if one.group)]

    # --- groups -----------------------------------------------------------------------------------------------------

    def serves(self, group: Group) -> bool:
        """Whether the bot's configuration includes this group."""
        return self._spec.groups is None or any(map(group.matches, self._spec.groups))

    def served_groups(self) -> list[Group]:
        """The groups that the profile is in and that the bot serves."""
        return [one for name, one in self.known.groups.items() if name in self.known.present and self.serves(one)]

    async def group(self, name: str) -> Group:
        """The group with this id, queried if it is unknown or was left: a member that returns has a new DID."""
        if name and name not in self.known.present:
            self.known.update(await self.request("list_groups", {}), self.api)
            if (unclear := self.known.ambiguity(self._configured_groups())) is not None:
                self._log.error("%s No handler runs in these groups until then.", unclear.sentence())
        return self.known.groups.get(name) or Group(name, name, self.api)

    async def has_several_groups(self) -> bool:
        """Whether there is more than one group, so that a slow one could block the others."""
        if len(self.known.groups) < 2:
            self.known.update(await self.request("list_groups", {}), self.api)
        return len(self.known.groups) > 1

    async def load_bots(self, group: str) -> None:
        """Query which members of a group are bots; `commands_announced` keeps this up to date."""
        if group and group not in self.known.bots:
            with suppress(AgentError):  # the group no longer exists
                found = await self.api.members(group)
                self.known.bots[group] = {one.did for one in found if one.bot}

    async def announce(self, *groups: str) -> None:
        """Announce the bot and its commands in these groups. Idempotent. Raises AgentLinkLost."""
        plan = self._spec
        for name in groups:
            here = self.known.groups[name]
            if not self.serves(here):
                continue
            wanted: dict[str, object] = {
                "group": name,
                "commands": list(plan.announced_commands),
                "consumer": plan.consumer,
            }
            try:
                await self._link.call("announce_bot", wanted)
            except AgentError as error:  # removed from the group, or read-only there
                level = logging.WARNING if error.code == "BadAnnouncement" else logging.INFO
                self._log.log(level, "%s: the bot is not announced: %s", printable_line(here.name), error.sentence())
