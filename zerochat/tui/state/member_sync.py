"""Keeps the member lists in sync: a small group is loaded whole, of a large one the members that an event names."""

import asyncio
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Final

from msgspec import Struct

from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import (
    ChainDifferenceNotification,
    Event,
    ForkNotification,
    GapNotification,
    IgnoredNotification,
    ListMembersParams,
    MemberConnectionsNotification,
    MemberInfo,
    PeerNotification,
    ReceiptNotification,
    RotatedNotification,
    TrustNotification,
    ViewNotification,
    WarningNotification,
)
from zerochat.tui.state.agent_link import AgentLink
from zerochat.tui.state.conversation import Conversation

WHOLE_EVERY_S: Final = 30.0
"""Minimum time between two loads of all members of a large group: most events name the members that they change."""
REFRESH_EVERY_S: Final = 1.0
"""Minimum time between two loads of the lists because of events, while the open group is large."""
DUE_MAX: Final = 8 * MEMBER_PAGE_MAX
"""Members that are loaded one by one; where more have changed, all are loaded."""


class Loaded(Struct, frozen=True):
    """What a load has changed."""

    relabelled: bool = False
    """A label changed."""
    left: bool = False
    """Members have left."""


class MemberSync:
    """Knows which members may have changed."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._due: dict[str, dict[str, None]] = {}
        """By group: the DIDs of members that may have changed."""
        self._whole_due: set[str] = set()
        """The groups in which any member may have changed."""
        self._loaded_at: dict[str, float] = {}
        """By group: when all members were loaded last."""
        self._lock = asyncio.Lock()
        """Two loads at once would both load all members of a group that is opened."""

    def forget(self) -> None:
        """Notifications may be lost, so any member of any group may have changed."""
        self._whole_due |= self._loaded_at.keys()
        self._loaded_at.clear()

    def touch(self, group: str, *dids: str) -> None:
        """These members of a group may have changed."""
        due = self._due.setdefault(group, {})
        due |= dict.fromkeys(did for did in dids if did)
        if len(due) > DUE_MAX:
            self._whole_due.add(group)
            due.clear()

    def observe(self, value: Struct) -> None:
        """Note the members that a notification is about."""
        match value:
            case ViewNotification(group=group):
                self._whole_due.add(group)
            case (
                PeerNotification(group=group, member=did)
                | TrustNotification(group=group, member=did)
                | IgnoredNotification(group=group, member=did)
                | MemberConnectionsNotification(group=group, member=did)
                | WarningNotification(group=group, member=did)
                | RotatedNotification(group=group, member=did)
                | ForkNotification(group=group, author=did)
                | GapNotification(group=group, author=did)
                | ChainDifferenceNotification(group=group, author=did)
            ):
                self.touch(group, did)

    def note_receipt(self, conversation: Conversation, value: ReceiptNotification) -> bool:
        """Note the member that a receipt is from; whether its entry shows when it was last heard."""
        if value.member not in conversation.members.mailed:
            return False
        self.touch(value.group, value.member)
        return True

    def note_events(self, conversation: Conversation, events: Sequence[Event], others: frozenset[str]) -> bool:
        """Note the members that events are about; whether the lists change. `others`: the types of events that change
        nothing but rows."""
        ends, mailed, stale = conversation.gap_ends, conversation.members.mailed, False
        for event in events:
            author = event.author.did
            if event.type not in others:
                about = event.body.get("did")
                self.touch(event.group, author, about if isinstance(about, str) else "")
            elif author in mailed or event.position >= ends.get(author, event.position + 1):
                self.touch(event.group, author)
            else:
                continue
            stale = True
        return stale

    def is_overdue(self, group: str | None) -> bool:
        """Whether all members of a group may be loaded again, and should be."""
        return group in self._whole_due and monotonic() >= self._loaded_at.get(group or "", 0.0) + WHOLE_EVERY_S

    async def refresh(self, conversation: Conversation, *, whole: bool = False) -> Loaded:
        """Load what may have changed; `whole`: all members, as after a pause. Raises AgentError."""
        group = conversation.info.id
        async with self._lock:
            if whole or not conversation.is_large or not conversation.members or self.is_overdue(group):
                return await self._load_all(conversation)
            return await self._load_due(conversation, list(self._due.pop(group, ())))

    async def _load_all(self, conversation: Conversation) -> Loaded:
        group = conversation.info.id
        self._due.pop(group, None)
        self._whole_due.discard(group)
        self._loaded_at[group] = monotonic()
        found: dict[str, MemberInfo] = {}
        after = ""
        while True:
            page = await self._page(ListMembersParams(group, after=after))
            is_new = bool(page) and page[-1].did not in found
            found |= {member.did: member for member in page}
            if len(page) < MEMBER_PAGE_MAX or not is_new:
                break
            after = page[-1].did
        gone = [did for did in conversation.members.by_did if did not in found]
        return Loaded(conversation.learn_members(found.values(), gone), bool(gone))

    async def _load_due(self, conversation: Conversation, dids: Sequence[str]) -> Loaded:
        relabelled, left = False, False
        for start in range(0, len(dids), MEMBER_PAGE_MAX):
            wanted = dids[start : start + MEMBER_PAGE_MAX]
            found = await self._page(ListMembersParams(conversation.info.id, dids=list(wanted)))
            gone = _absent(wanted, found, conversation)
            relabelled = conversation.learn_members(found, gone) or relabelled
            left = left or bool(gone)
        return Loaded(relabelled, left)

    async def _page(self, params: ListMembersParams) -> list[MemberInfo]:
        return await self._link.request("list_members", params, list[MemberInfo])


def _absent(wanted: Iterable[str], found: Sequence[MemberInfo], conversation: Conversation) -> list[str]:
    """The known members that were requested and have left."""
    here = {member.did for member in found}
    return [did for did in wanted if did in conversation.members and did not in here]
