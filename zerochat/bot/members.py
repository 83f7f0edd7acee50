"""`Member`: a member of a group as the argument of a command, with moderation; and how a word names one."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerochat import rpc
from zerochat.bot.arguments import BadArguments, MemberWord, shortened
from zerochat.bot.events import Author, Group

if TYPE_CHECKING:
    from zerochat.bot.events import Api

DID_CHARS_MIN = 12
"""Minimum length of a prefix of a DID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Author):
    """A member of a group: `async def kick(m: Message, who: Member)`."""

    group: Group
    role: str = "writer"
    """`reader`, `writer`, `admin` or `owner`."""
    own: bool = False
    """Whether it is the bot's own profile."""
    _api: "Api" = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.nick or self.did

    async def remove(self) -> rpc.VoteInfo:
        """Remove the member from the group, or vote for it, as the rules of the group say."""
        return await self.group.remove(self)

    async def set_role(self, role: str) -> rpc.MemberInfo:
        """Give the member the role `reader`, `writer` or `admin`."""
        return await self.group.set_role(self, role)


def members_of(group: Group, found: Iterable[rpc.MemberInfo], api: "Api") -> list[Member]:
    return [
        Member(
            did=one.did,
            nick=one.nick,
            bot=one.bot,
            verified=one.verified,
            group=group,
            role=one.role,
            own=one.did == group.me,
            _api=api,
        )
        for one in found
    ]


def find_member(word: MemberWord, members: Iterable[Member]) -> Member:
    """The member that a word names: `@Bob`, `Bob`, a DID or a prefix of one. Raises BadArguments."""
    text = word.text
    found = [one for one in members if one.did == text]
    name = text.removeprefix("@").casefold()
    found = found or [one for one in members if name and one.nick.casefold() == name]
    if not found and len(text) >= DID_CHARS_MIN:
        found = [one for one in members if one.did.startswith(text)]
    if len(found) == 1:
        return found[0]
    shown = shortened(text)
    raise BadArguments(
        why=f"several members are called {shown}, so give the DID of one"
        if found
        else f"{word.name} must be a member, and no member is called {shown}"
    )
