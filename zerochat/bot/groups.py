"""The groups that a bot's agent is in, who says there that it is a bot, and which group a name means."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from zerochat.bot.events import Group
from zerochat.errors import AmbiguousGroup
from zerochat.rpc import GroupInfo

if TYPE_CHECKING:
    from zerochat.bot.outgoing import Voice


class Known:
    """As the agent has last told of them."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        """By id."""
        self.bots: dict[str, set[str]] = {}
        """By group, the DIDs of members that say that they are bots."""

    def learn(self, found: Iterable[GroupInfo], voice: "Voice") -> None:
        infos = list(found)
        here = [one.name for one in infos if one.state != "left"]
        for one in infos:
            # One that was left keeps its name only as long as no other one has it, as at the agent.
            shared = here.count(one.name) > 1 or (one.state == "left" and one.name in here)
            group = Group(one.id, one.name, voice, shared=shared, me=one.me)
            self.groups[one.id] = replace(self.groups.get(one.id, group), shared=shared)

    def unclear(self, wanted: Iterable[str]) -> AmbiguousGroup | None:
        """What is wrong with these names of groups, or ids, or beginnings of ids."""
        for name in wanted:
            found = [one for one in self.groups.values() if one.name == name and one.shared]
            if found and name not in self.groups and not any(one.answers_to(name) for one in self.groups.values()):
                return AmbiguousGroup(group=name, ids=[one.id for one in found])
        return None
