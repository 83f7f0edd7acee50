"""Keeps the conversations true to the agent: reads what there is, then takes the news, in bites.

First subscribe, then read, so that nothing falls between; what comes twice is put in once. Answers carry the number of
their line, so a receipt that an answer already contains is not counted again. Nothing here draws: the `Watcher` (the
chat screen) hears what has changed.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from time import monotonic
from typing import Protocol, TypeAlias

from zerochat.rpc import (
    Amended,
    CompleteNews,
    ConfirmedNews,
    ConnectionNews,
    DiffersNews,
    DisagreementNews,
    EarlierNews,
    Event,
    FeaturesNews,
    FileNews,
    ForkNews,
    GapNews,
    GroupInfo,
    GroupParams,
    Hello,
    History,
    HistoryParams,
    InvitationNews,
    JoinStatus,
    LogKeptNews,
    LogSplitNews,
    LogStalledNews,
    MemberInfo,
    NoParams,
    PeerNews,
    PongNews,
    ProblemNews,
    ReceiptNews,
    RecountedNews,
    RefutedNews,
    RemovedNews,
    RequestNews,
    RotatedNews,
    SeatingNews,
    Status,
    Subscribed,
    SubscribeParams,
    ToldNews,
    TrustNews,
    TypingNews,
    ViewNews,
)
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.messages.timeline import Key
from zerochat.tui.state.agent_link import AgentError, Link, LinkLost, News
from zerochat.tui.state.conversation import Conversation, Conversations

BITE = 256
"""News that are taken between two frames (architecture: 10,000 at once stall a screen for 2.7 s, bites for 0.1 s)."""
MOUTHFUL = 32
BITE_S = 0.015
"""After so long a bite ends, whatever is left of it: what is drawn of it takes its time too."""
PAGE = 200
"""Events in one page of history: several screens, and far below the longest line."""
PIECE = 50
"""Events of an older page that are put in between two frames."""
PAGES_MAX = 20
"""Pages that are read at once where none of their events has a line of its own."""
ROWS_FIRST = 40
"""Lines that a conversation begins with, where there are so many."""
IN_OTHER_ROWS = frozenset(["message", "message_edited", "message_deleted", "reacted"])
"""Types of events that change nothing of a group and its members."""

KeepingNews: TypeAlias = LogKeptNews | LogStalledNews | LogSplitNews
"""Who keeps the log of a group that is accountable, and what is wrong with it."""
GroupNews: TypeAlias = RequestNews | SeatingNews | RemovedNews | TrustNews | DisagreementNews
"""What happens to the members of a group, and to those who want to be."""
LogNews: TypeAlias = (
    GapNews | ForkNews | CompleteNews | ConfirmedNews | RefutedNews | RecountedNews | DiffersNews | EarlierNews
)
"""What is missing of a group's log, has come, or contradicts itself."""


class Watcher(Protocol):
    """What the feed tells the screen."""

    def rows_changed(self, conversation: Conversation, keys: Sequence[Key] | None) -> None:
        """Rows came or changed; None: everything in it may have."""

    def groups_changed(self) -> None: ...

    def members_changed(self) -> None: ...

    def join_told(self, status: JoinStatus) -> None: ...

    def invitation_told(self, news: InvitationNews) -> None: ...

    def peer_told(
        self, news: PongNews | FeaturesNews | RotatedNews | ConnectionNews | ToldNews | ProblemNews
    ) -> None: ...

    def alarms_changed(self) -> None: ...

    def group_told(self, news: GroupNews) -> None: ...

    def log_told(self, news: LogNews) -> None: ...

    def keeping_told(self, news: KeepingNews) -> None: ...

    def status_told(self, status: Status) -> None: ...

    def arrived(self, conversation: Conversation, events: Sequence[Event]) -> None:
        """These have come just now, and were not read from the history."""

    def typing_told(self, news: TypingNews) -> None: ...

    def complain(self, sentence: Printable) -> None:
        """Show what went wrong."""

    def is_seen(self) -> bool:
        """Whether the person can see the open conversation now."""


class Feed:
    """The conversations and the line they come over."""

    def __init__(self, link: Link, conversations: Conversations, watcher: Watcher) -> None:
        self.link = link
        self.conversations = conversations
        self.watcher = watcher
        self.stale = False
        """The lists of groups and members must be read again."""
        self._earlier: set[str] = set()
        """The groups of which something has come from before my time that was not read yet."""
        self._seq: int | None = None
        self._refreshing: asyncio.Future[None] | None = None
        self._joins_told = 0

    # --- reading ---------------------------------------------------------------------------------------------------

    async def up(self, hello: Hello) -> None:
        """The line is up (again): subscribe where we left off, then read what the screen shows."""
        trouble = None
        try:
            await self.link.ask("subscribe", SubscribeParams(since=self._seq), Subscribed)
        except LinkLost:
            raise
        except AgentError as error:  # What can be read all the same is shown, and this said.
            trouble = error
        await self._reload()
        self.watcher.status_told(await self.status())
        if trouble is not None:
            raise trouble

    async def status(self) -> Status:
        """What the agent says of itself; asked again where a join has moved on meanwhile, or that would seem undone."""
        while True:
            told = self._joins_told
            status = await self.link.ask("status", NoParams(), Status)
            if told == self._joins_told:
                return status

    async def _reload(self) -> None:
        await self.refresh()
        for conversation in list(self.conversations.by_id.values()):
            if conversation.loaded:
                await self.load(conversation)
                if conversation.info.beginning is not None and conversation.info.beginning.got:
                    await self.load_earlier(conversation)

    async def refresh(self) -> None:
        """Read the groups, and the members of the open one; again while news make them stale meanwhile. Whoever asks
        while that is under way has what is true then, too, when it is done."""
        if self._refreshing is not None:
            self.stale = True
            await asyncio.shield(self._refreshing)
            return
        self._refreshing = asyncio.get_running_loop().create_future()
        try:
            while True:
                self.stale = False
                self.conversations.renew(await self.link.ask("groups", NoParams(), list[GroupInfo]))
                self.watcher.groups_changed()
                self._redraw()
                if (conversation := self.conversations.open) is not None:
                    await self.read_members(conversation)
                if not self.stale:
                    return
        finally:
            self._refreshing.set_result(None)
            self._refreshing = None

    def _redraw(self) -> None:
        """Show what the lists say of the rows."""
        conversation = self.conversations.open
        if conversation is not None and conversation.relabelled:
            conversation.relabelled = False
            self.watcher.rows_changed(conversation, None)

    async def read_members(self, conversation: Conversation) -> None:
        params = GroupParams(conversation.info.id)
        before = {one.did for one in conversation.members}
        if conversation.learn_members(await self.link.ask("members", params, list[MemberInfo])):
            self.watcher.rows_changed(conversation, None)
        self.watcher.members_changed()
        if before - {one.did for one in conversation.members}:
            await self._count_anew(conversation)

    async def _count_anew(self, conversation: Conversation) -> None:
        """Somebody has gone: what we have said is for fewer, and the agent says for how many, and who of these has it.
        From the newest row up, as many pages as are read at once."""
        timeline, before = conversation.timeline, None
        for _ in range(PAGES_MAX):
            if not conversation.loaded or not timeline.keys:
                return
            found = await self._page(conversation, before)
            if found is None:
                return
            page, line = found
            changed = [key for event in page.events if event.self for key in conversation.amend(event, line)]
            self.watcher.rows_changed(conversation, changed)
            ids = [event.id for event in page.events]
            if not page.more or not ids or timeline.oldest in ids:
                return
            before = ids[0]

    async def load(self, conversation: Conversation) -> None:
        """Read the newest page of a conversation, and another one where little of it has a line of its own."""
        if (found := await self._page(conversation)) is None:
            return
        conversation.take_first_page(*found)
        if len(conversation.timeline.rows) < ROWS_FIRST:
            await self.load_older(conversation)
        if conversation is self.conversations.open:
            conversation.enter()
        self.watcher.rows_changed(conversation, None)

    async def _page(
        self, conversation: Conversation, before: str | None = None, *, after: str | None = None
    ) -> tuple[History, int] | None:
        """A page of history with the number of its line; None: the agent cannot read it, which the conversation says
        until it can. Raises LinkLost."""
        why = Printable("")
        found = None
        try:
            params = HistoryParams(conversation.info.id, PAGE, before=before, after=after)
            found = await self.link.ask_with_line("history", params, History)
        except LinkLost:
            raise
        except AgentError as error:
            why = printable_line(str(error))
        if why != conversation.unreadable:
            conversation.unreadable = why
            conversation.tell_beginning()
            self.watcher.rows_changed(conversation, None)
            self.watcher.alarms_changed()
        return found

    async def load_older(self, conversation: Conversation) -> None:
        """Read the page before the first row."""
        timeline = conversation.timeline
        if conversation.paging or not timeline.more or (oldest := timeline.oldest) is None:
            return
        conversation.paging, window = True, conversation.window
        try:
            for _ in range(PAGES_MAX):
                found = await self._page(conversation, oldest)
                if found is None or window != conversation.window:
                    return
                new = await self._put_above(conversation, *found)
                if new or not found[0].more or window != conversation.window:
                    break
                oldest = timeline.oldest or oldest  # All of it is reactions and changes, which other rows show.
        finally:
            conversation.paging = False
        if conversation.info.id in self._earlier:
            await self.load_earlier(conversation)

    async def _put_above(self, conversation: Conversation, page: History, line: int) -> bool:
        """Put an older page in, in pieces with a frame between them, from the newest up: nobody's keys wait for it.
        True: some of it has a line of its own."""
        window, some = conversation.window, False
        for end in range(len(page.events), 0, -PIECE) or (0,):
            start = max(end - PIECE, 0)
            new = conversation.take_older_page(History(page.events[start:end], page.more or start > 0), line)
            some = some or bool(new)
            below = conversation.timeline.keys[len(new) : len(new) + 1]
            self.watcher.rows_changed(conversation, [*new, *below])
            await asyncio.sleep(0)
            if window != conversation.window:
                break
        return some

    async def load_newer(self, conversation: Conversation) -> None:
        """Read the page behind the last row, where that is not the newest."""
        timeline = conversation.timeline
        if conversation.paging or (newest := timeline.newest) is None:
            return
        conversation.paging, window = True, conversation.window
        try:
            for _ in range(PAGES_MAX):
                found = await self._page(conversation, after=newest)
                if found is None or window != conversation.window:
                    return
                new = conversation.take_newer_page(*found)
                if new or (newest := timeline.newest) is None:
                    break
        finally:
            conversation.paging = False
        self.watcher.rows_changed(conversation, None)

    async def load_around(self, conversation: Conversation, *, event: str = "", at: int | None = None) -> Key | None:
        """Let the window stand where this event is, or where a time (UTC ms) begins; the key of the row there, or of
        the last one before it. None: there is nothing. Raises AgentError; then the window is where it was."""
        timeline = conversation.timeline
        if not conversation.loaded:
            await self.load(conversation)
        here = _key_at(timeline.keys, event, at)
        reaches = not timeline.more or bool(timeline.keys and (at or 0) > timeline.keys[0][0])
        if here is None or (not event and not reaches):
            params = HistoryParams(conversation.info.id, PAGE, around=event or None, at=None if event else at)
            conversation.take_page_around(*await self.link.ask_with_line("history", params, History))
            here = _key_at(timeline.keys, event, at)
        if here is None and timeline.keys and not event:
            here = timeline.keys[-1]
        if here is not None:
            conversation.place.following, conversation.place.key, conversation.place.offset = False, here, 0
        self.watcher.rows_changed(conversation, None)
        return here

    async def load_earlier(self, conversation: Conversation) -> None:
        """Read anew what is here from before my time: there is more of it, and it is not told event by event."""
        group = conversation.info.id
        self._earlier.add(group)
        if conversation.paging:
            return  # Whoever reads a page now goes on with this.
        conversation.paging = True
        try:
            while group in self._earlier:
                self._earlier.discard(group)
                await self._read_earlier(conversation)
        finally:
            conversation.paging = False
        self.watcher.rows_changed(conversation, None)

    async def _read_earlier(self, conversation: Conversation) -> None:
        if (wanted := conversation.before_me) is None:
            return
        before, reached = wanted
        window = conversation.window
        while True:
            found = await self._page(conversation, before)
            if found is None or window != conversation.window or conversation.take_earlier_page(*found, reached):
                return
            before = found[0].events[0].id

    async def load_newest(self, conversation: Conversation) -> None:
        """Leave the window where it is and begin at the end again."""
        conversation.timeline.clear()
        conversation.window += 1
        conversation.place.following, conversation.place.key = True, None
        conversation.place.unseen.clear()
        await self.load(conversation)

    # --- news ------------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """What must be asked after a bite: everything when news were dropped, the lists when they are stale."""
        try:
            if self.link.overflowed:
                self.link.overflowed = False
                await self._reload()
            elif self.stale:
                await self.refresh()
            for group in list(self._earlier):
                conversation = self.conversations.by_id.get(group)
                if conversation is not None and conversation.loaded:
                    await self.load_earlier(conversation)
                else:
                    self._earlier.discard(group)
        except LinkLost:
            return  # Everything is read again when the line comes back.
        except AgentError as error:
            self.watcher.complain(printable_line(str(error)))

    def drain(self) -> bool:
        """Take one bite of news and show it; True when more are waiting."""
        changed: dict[str, list[Key]] = {}
        came, start = False, monotonic()
        for _ in range(BITE // MOUTHFUL):
            arrived: dict[str, list[tuple[Event, int]]] = {}
            for news in self.link.bite(MOUTHFUL):
                self._take(news, arrived, changed)
            for group, events in arrived.items():
                self._arrive(group, events, changed)
            came = came or bool(arrived)
            if not self.link.waiting or monotonic() - start > BITE_S:
                break
        for group, keys in changed.items():
            conversation = self.conversations.by_id[group]
            self.watcher.rows_changed(conversation, None if conversation.relabelled else keys)
            conversation.relabelled = False
        if came:
            self.watcher.groups_changed()
        return self.link.waiting > 0

    def _take(self, news: News, arrived: dict[str, list[tuple[Event, int]]], changed: dict[str, list[Key]]) -> None:
        match news.value:
            case Event() as event:
                if self._seq is None or event.seq > self._seq:
                    self._seq = event.seq
                    arrived.setdefault(event.group, []).append((event, news.line))
            case ReceiptNews(group=group, member=member, author=author, after=after, upto=upto):
                # A receipt can be about an event of the same bite: that must have its row first.
                self._arrive(group, arrived.pop(group, []), changed)
                conversation = self.conversations.by_id.get(group)
                self.stale = self.stale or (conversation is not None and member in conversation.mailed)
                if conversation is not None and author == conversation.info.me:
                    changed.setdefault(group, []).extend(conversation.timeline.receipt(after, upto, news.line))
            case Amended(event=event):
                # It can be about an event of the same bite, as a receipt can.
                self._arrive(event.group, arrived.pop(event.group, []), changed)
                if (conversation := self.conversations.by_id.get(event.group)) is not None:
                    changed.setdefault(event.group, []).extend(conversation.amend(event, news.line))
            case FileNews(group=group) as moved:
                # It can be about an event of the same bite, as a receipt can.
                self._arrive(group, arrived.pop(group, []), changed)
                if (conversation := self.conversations.by_id.get(group)) is not None:
                    changed.setdefault(group, []).extend(conversation.move_file(moved))
            case TypingNews() as typing:
                self.watcher.typing_told(typing)
            case PeerNews() | ViewNews():
                self.stale = True
            case JoinStatus() as status:
                self.stale = self.stale or status.phase == "joined"
                self._joins_told += 1
                self.watcher.join_told(status)
            case InvitationNews() as invitation:
                self.watcher.invitation_told(invitation)
            case RequestNews() | SeatingNews() | RemovedNews() | TrustNews() | DisagreementNews() as about:
                self.stale = True
                self.watcher.group_told(about)
            case ConfirmedNews() | RefutedNews() | RecountedNews() as about:
                # It can be about an event of the same bite, as a receipt can.
                self._arrive(about.group, arrived.pop(about.group, []), changed)
                self.stale = self.stale or isinstance(about, RefutedNews)
                self.watcher.log_told(about)
            case LogKeptNews() | LogStalledNews() | LogSplitNews() as of_keeping:
                self.stale = True
                self.watcher.keeping_told(of_keeping)
            case GapNews() | ForkNews() | CompleteNews() | DiffersNews() | EarlierNews() as of_log:
                self.stale = True
                if isinstance(of_log, EarlierNews):
                    self._earlier.add(of_log.group)
                self.watcher.log_told(of_log)
            case PongNews() | FeaturesNews() | RotatedNews() | ConnectionNews() | ToldNews() | ProblemNews() as told:
                self.watcher.peer_told(told)

    def _arrive(self, group: str, events: list[tuple[Event, int]], changed: dict[str, list[Key]]) -> None:
        if not events:
            return
        conversation = self.conversations.by_id.get(group)
        if conversation is None:
            self.stale = (
                True  # A group that is new here: the list of groups brings it, its history is read when opened.
            )
            return
        mailed = conversation.mailed
        if any(event.type not in IN_OTHER_ROWS or event.author.did in mailed for event, _ in events):
            self.stale = True
        seen = conversation is self.conversations.open and self.watcher.is_seen()
        changed.setdefault(group, []).extend(conversation.arrive(events, seen=seen))
        self.watcher.arrived(conversation, [event for event, _ in events])
        missed = conversation is self.conversations.open and not seen and conversation.loaded
        if missed and conversation.timeline.unread is None:
            conversation.timeline.set_unread(conversation.first_unread)


def _key_at(keys: Sequence[Key], event: str, at: int | None) -> Key | None:
    """The key of this event; without one, the first at this time or later."""
    if event:
        return next((key for key in reversed(keys) if key[2] == event), None)
    index = bisect_left(keys, (at or 0, "", ""))
    return keys[index] if index < len(keys) else None
