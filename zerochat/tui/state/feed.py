"""Keeps the conversations in sync with the agent: initial load, then notifications in batches.

It subscribes before it loads, so that nothing is missed; duplicates are dropped. Line numbers prevent counting a
receipt twice that a response already contains. The `FeedListener` (the chat screen) draws the changes."""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from time import monotonic
from typing import TypeAlias

from msgspec import Struct

from zerochat.rpc import (
    BackfillNotification,
    ChainDifferenceNotification,
    CompleteNotification,
    ConfirmedNotification,
    Event,
    ExpiredNotification,
    FileNotification,
    ForkNotification,
    GapNotification,
    GroupInfo,
    Hello,
    History,
    HistoryParams,
    InvitationNotification,
    JoinStatus,
    MessageChanged,
    NoParams,
    PeerNotification,
    ReadState,
    ReceiptNotification,
    RefutedNotification,
    Status,
    Subscribed,
    SubscribeParams,
    TypingNotification,
    ValidityNotification,
    ViewNotification,
)
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.messages.timeline import Key
from zerochat.tui.state.agent_link import AgentError, AgentLink, LinkLost, Received
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.conversations import Conversations
from zerochat.tui.state.feed_listener import (
    FeedListener,
    GroupNotification,
    LogNotification,
    PeerRelatedNotification,
    TlogNotification,
)
from zerochat.tui.state.member_sync import REFRESH_EVERY_S, MemberSync

BATCH = 256
"""Notifications handled between two frames (10,000 at once stall the screen for 2.7 s, batches for 0.1 s)."""
SLICE = 32
BATCH_S = 0.015
"""Time limit of a batch, since drawing takes time too."""
PAGE = 200
"""Events of one page of history: several screens, far below the line limit."""
PAGE_SLICE = 50
"""Events of an older page inserted between two frames."""
PAGES_MAX = 20
"""Maximum pages loaded in a row while their events have no rows."""
ROWS_FIRST = 40
"""Minimum rows of a newly loaded conversation, if there are so many."""
IN_OTHER_ROWS = frozenset(["message", "message_edited", "message_deleted", "reacted"])
"""Types of events that do not change group or members."""

ABOUT_EVENTS: TypeAlias = (
    ReceiptNotification
    | MessageChanged
    | FileNotification
    | ConfirmedNotification
    | RefutedNotification
    | ValidityNotification
    | ExpiredNotification
)
"""They may refer to an event of the same batch, which must have its row first."""
CHANGES_LISTS: TypeAlias = (
    PeerNotification
    | ViewNotification
    | GroupNotification
    | TlogNotification
    | RefutedNotification
    | GapNotification
    | ForkNotification
    | CompleteNotification
    | ChainDifferenceNotification
    | BackfillNotification
)
"""They make the lists of groups and members stale."""


class Feed:
    """Synchronises the conversations over the link."""

    def __init__(self, link: AgentLink, conversations: Conversations, watcher: FeedListener) -> None:
        self.link = link
        self.conversations = conversations
        self.members = MemberSync(link)
        self.listener = watcher
        self.stale = False
        """The lists of groups and members must be loaded again."""
        self._backfill_due: set[str] = set()
        """Ids of groups with backfilled events that are not loaded yet."""
        self.seq: int | None = None
        """Local number of the last live event."""
        self._refreshing: asyncio.Future[None] | None = None
        self._refreshed_at = -REFRESH_EVERY_S
        """When the lists were loaded last, on the monotonic clock."""
        self._join_statuses = 0

    # --- reading ---------------------------------------------------------------------------------------------------

    async def on_connected(self, hello: Hello) -> None:
        """Connected: subscribe from the last event, then load the visible state."""
        trouble = None
        try:
            subscribed = await self.link.request("subscribe", SubscribeParams(since=self.seq), Subscribed)
            self.seq = subscribed.latest if self.seq is None else self.seq
        except LinkLost:
            raise
        except AgentError as error:  # load what is readable, then report this
            trouble = error
        await self._reload()
        self.listener.on_status(await self.status())
        if trouble is not None:
            raise trouble

    async def status(self) -> Status:
        """The agent's status; requested again if a join status arrived meanwhile, which would look reverted."""
        while True:
            before = self._join_statuses
            status = await self.link.request("get_status", NoParams(), Status)
            if before == self._join_statuses:
                return status

    async def _reload(self) -> None:
        self.members.forget()
        await self.refresh()
        for conversation in list(self.conversations.by_id.values()):
            if conversation.loaded:
                await self.load(conversation)
                if conversation.info.history_start is not None and conversation.info.history_start.received:
                    await self.load_backfill(conversation)

    async def refresh(self, *, patient: bool = False) -> None:
        """Load the groups and the members of the open one, again while notifications make them stale. Concurrent calls
        wait for the running one, which then repeats. `patient`: events have caused it, so in a large group it waits
        until some time after the last load."""
        if self._refreshing is not None:
            self.stale = True
            await asyncio.shield(self._refreshing)
            return
        self._refreshing = asyncio.get_running_loop().create_future()
        try:
            while True:
                if patient:
                    await self._pause()
                self.stale, patient, self._refreshed_at = False, True, monotonic()
                found = await self.link.request_with_line("list_groups", NoParams(), list[GroupInfo])
                self.conversations.update(*found)
                self.listener.groups_changed()
                self._redraw()
                if (conversation := self.conversations.open) is not None:
                    await self.read_members(conversation)
                if not self.stale:
                    return
        finally:
            self._refreshing.set_result(None)
            self._refreshing = None

    async def _pause(self) -> None:
        """In a large group, wait until `REFRESH_EVERY_S` after the last load of the lists."""
        conversation = self.conversations.open
        left = self._refreshed_at + REFRESH_EVERY_S - monotonic()
        if conversation is not None and conversation.is_large and left > 0:
            await asyncio.sleep(left)

    def _redraw(self) -> None:
        """Redraw the rows after a label changed."""
        conversation = self.conversations.open
        if conversation is not None and conversation.relabelled:
            conversation.relabelled = False
            self.listener.rows_changed(conversation, None)

    async def read_members(self, conversation: Conversation, *, whole: bool = False) -> None:
        """Load the members that may have changed; `whole`: all."""
        loaded = await self.members.refresh(conversation, whole=whole)
        if loaded.relabelled:
            self.listener.rows_changed(conversation, None)
        self.listener.members_changed()
        if loaded.left:
            await self._recount_deliveries(conversation)

    async def _recount_deliveries(self, conversation: Conversation) -> None:
        """A member left, so my posts have fewer recipients: reload their delivery counts, newest page first, at most
        PAGES_MAX pages."""
        timeline, before = conversation.timeline, None
        for _ in range(PAGES_MAX):
            if not conversation.loaded or not timeline.keys:
                return
            found = await self._page(conversation, before)
            if found is None:
                return
            page, line = found
            changed = [key for event in page.events if event.self for key in conversation.update_message(event, line)]
            self.listener.rows_changed(conversation, changed)
            ids = [event.id for event in page.events]
            if not page.more or not ids or timeline.oldest in ids:
                return
            before = ids[0]

    async def load(self, conversation: Conversation) -> None:
        """Load the newest page of a conversation, and another where it has few rows."""
        found = await self._page(conversation)
        for _ in range(PAGES_MAX):
            if found is None or conversation.last_line < found[1] or conversation.keeps_live:
                break
            found = await self._page(conversation)  # a live event after that page was not kept
        if found is None:
            return
        conversation.add_first_page(*found)
        if len(conversation.timeline.rows) < ROWS_FIRST:
            await self.load_older(conversation)
        if conversation is self.conversations.open:
            conversation.enter()
        self.listener.rows_changed(conversation, None)

    async def _page(
        self, conversation: Conversation, before: str | None = None, *, after: str | None = None
    ) -> tuple[History, int] | None:
        """A page of history with its line number; None: the agent cannot read it, which the conversation shows. Raises
        LinkLost."""
        why = Printable("")
        found = None
        try:
            params = HistoryParams(conversation.info.id, PAGE, before=before, after=after)
            found = await self.link.request_with_line("get_history", params, History)
        except LinkLost:
            raise
        except AgentError as error:
            why = printable_line(str(error))
        if why != conversation.unreadable:
            conversation.unreadable = why
            conversation.update_head()
            self.listener.rows_changed(conversation, None)
            self.listener.warnings_changed()
        return found

    async def load_older(self, conversation: Conversation) -> None:
        """Load the page before the first row."""
        timeline = conversation.timeline
        if conversation.paging or not timeline.more or (oldest := timeline.oldest) is None:
            return
        conversation.paging, window = True, conversation.window
        try:
            for _ in range(PAGES_MAX):
                found = await self._page(conversation, oldest)
                if found is None or window != conversation.window:
                    return
                new = await self._insert_older(conversation, *found)
                if new or not found[0].more or window != conversation.window:
                    break
                oldest = timeline.oldest or oldest  # only reactions and edits, shown in other rows
        finally:
            conversation.paging = False
        if conversation.info.id in self._backfill_due:
            await self.load_backfill(conversation)

    async def _insert_older(self, conversation: Conversation, page: History, line: int) -> bool:
        """Insert an older page in slices with a frame between them, so that keys are not delayed. True: rows were
        added."""
        window, some = conversation.window, False
        for end in range(len(page.events), 0, -PAGE_SLICE) or (0,):
            start = max(end - PAGE_SLICE, 0)
            new = conversation.add_older_page(History(page.events[start:end], page.more or start > 0), line)
            some = some or bool(new)
            below = conversation.timeline.keys[len(new) : len(new) + 1]
            self.listener.rows_changed(conversation, [*new, *below])
            await asyncio.sleep(0)
            if window != conversation.window:
                break
        return some

    async def load_newer(self, conversation: Conversation) -> None:
        """Load the page after the last row of a detached window."""
        timeline = conversation.timeline
        if conversation.paging or (newest := timeline.newest) is None:
            return
        conversation.paging, window = True, conversation.window
        try:
            for _ in range(PAGES_MAX):
                found = await self._page(conversation, after=newest)
                if found is None or window != conversation.window:
                    return
                new = conversation.add_newer_page(*found)
                if new or (newest := timeline.newest) is None:
                    break
        finally:
            conversation.paging = False
        self.listener.rows_changed(conversation, None)

    async def load_around(self, conversation: Conversation, *, event: str = "", at: int | None = None) -> Key | None:
        """Move the window to this event or time (UTC ms); returns the key of the row there, or the last before it;
        None: none. Raises AgentError and leaves the window unchanged."""
        timeline = conversation.timeline
        if not conversation.loaded:
            await self.load(conversation)
        here = _key_at(timeline.keys, event, at)
        reaches = not timeline.more or bool(timeline.keys and (at or 0) > timeline.keys[0][0])
        if here is None or (not event and not reaches):
            params = HistoryParams(conversation.info.id, PAGE, around=event or None, at=None if event else at)
            conversation.replace_with_page(*await self.link.request_with_line("get_history", params, History))
            here = _key_at(timeline.keys, event, at)
        if here is None and timeline.keys and not event:
            here = timeline.keys[-1]
        if here is not None:
            conversation.place.following, conversation.place.key, conversation.place.offset = False, here, 0
        self.listener.rows_changed(conversation, None)
        return here

    async def load_backfill(self, conversation: Conversation) -> None:
        """Reload backfilled events, which are not notified one by one."""
        group = conversation.info.id
        self._backfill_due.add(group)
        if conversation.paging:
            return  # the running page load continues with it
        conversation.paging = True
        try:
            while group in self._backfill_due:
                self._backfill_due.discard(group)
                await self._read_backfill(conversation)
        finally:
            conversation.paging = False
        self.listener.rows_changed(conversation, None)

    async def _read_backfill(self, conversation: Conversation) -> None:
        if (wanted := conversation.backfill_range) is None:
            return
        before, reached = wanted
        window = conversation.window
        while True:
            found = await self._page(conversation, before)
            if found is None or window != conversation.window or conversation.add_backfill_page(*found, reached):
                return
            before = found[0].events[0].id

    async def load_newest(self, conversation: Conversation) -> None:
        """Replace the window by the newest page."""
        conversation.timeline.clear()
        conversation.window += 1
        conversation.place.following, conversation.place.key = True, None
        conversation.forget_unseen()
        await self.load(conversation)

    # --- notifications ---------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Load what a batch made stale: everything after an overflow, else the lists and backfilled events."""
        try:
            if self.link.overflowed:
                self.link.overflowed = False
                await self._reload()
            elif self.stale and self._refreshing is None:
                await self.refresh(patient=True)
            for group in list(self._backfill_due):
                conversation = self.conversations.by_id.get(group)
                if conversation is not None and conversation.loaded:
                    await self.load_backfill(conversation)
                else:
                    self._backfill_due.discard(group)
        except LinkLost:
            return  # reloaded after reconnecting
        except AgentError as error:
            self.listener.report_error(printable_line(str(error)))

    def drain(self) -> bool:
        """Handle one batch of notifications; True when more are waiting."""
        changed: dict[str, list[Key]] = {}
        read: dict[str, None] = {}
        came, start = False, monotonic()
        for _ in range(BATCH // SLICE):
            arrived: dict[str, list[tuple[Event, int]]] = {}
            for notification in self.link.take(SLICE):
                if isinstance(state := notification.value, ReadState):
                    known = self.conversations.by_id.get(state.group)
                    if known is not None and known.set_read_state(state, notification.line):
                        read[state.group] = None
                else:
                    self._dispatch(notification, arrived, changed)
            for group, events in arrived.items():
                self._add_live(group, events, changed)
            came = came or bool(arrived)
            if not self.link.waiting or monotonic() - start > BATCH_S:
                break
        for group, keys in changed.items():
            conversation = self.conversations.by_id[group]
            self.listener.rows_changed(conversation, None if conversation.relabelled else keys)
            conversation.relabelled = False
        for group in read:
            self.listener.read_changed(self.conversations.by_id[group])
        if came or read:
            self.listener.groups_changed()
        return self.link.waiting > 0

    def _dispatch(
        self, received: Received, arrived: dict[str, list[tuple[Event, int]]], changed: dict[str, list[Key]]
    ) -> None:
        value = received.value
        if isinstance(value, Event):
            if self.seq is None or value.seq > self.seq:
                self.seq = value.seq
                arrived.setdefault(value.group, []).append((value, received.line))
            return
        if isinstance(value, ABOUT_EVENTS):
            group = value.event.group if isinstance(value, MessageChanged) else value.group
            self._add_live(group, arrived.pop(group, []), changed)
            if (conversation := self.conversations.by_id.get(group)) is not None:
                changed.setdefault(group, []).extend(self._update_rows(conversation, value, received.line))
        if isinstance(value, CHANGES_LISTS):
            self.stale = True
        self.members.observe(value)
        self._forward(value)

    def _update_rows(self, conversation: Conversation, value: Struct, line: int) -> list[Key]:
        """Apply a notification to existing rows; returns the changed keys."""
        match value:
            case ReceiptNotification(author=author, after=after, upto=upto, members=count):
                self.stale = self.members.note_receipt(conversation, value) or self.stale
                mine = author == conversation.info.me
                return conversation.timeline.receipt(after, upto, line, count) if mine else []
            case MessageChanged(event=event):
                return conversation.update_message(event, line)
            case FileNotification():
                return conversation.update_file(value)
            case ExpiredNotification(before=before) if conversation.expire(before):
                self.listener.rows_changed(conversation, None)
        return []

    def _forward(self, value: Struct) -> None:
        """Pass a notification to the listener."""
        match value:
            case TypingNotification():
                self.listener.on_typing(value)
            case JoinStatus():
                self.stale = self.stale or value.phase == "joined"
                self._join_statuses += 1
                self.listener.on_join_status(value)
            case InvitationNotification():
                self.listener.on_invitation_used(value)
            case BackfillNotification(group=group):
                self._backfill_due.add(group)
                self.listener.on_log_notification(value)
            case _ if isinstance(value, GroupNotification):
                self.listener.on_group_notification(value)
            case _ if isinstance(value, LogNotification):
                self.listener.on_log_notification(value)
            case _ if isinstance(value, TlogNotification):
                self.listener.on_tlog_notification(value)
            case _ if isinstance(value, PeerRelatedNotification):
                self.listener.on_peer_notification(value)

    def _add_live(self, group: str, events: list[tuple[Event, int]], changed: dict[str, list[Key]]) -> None:
        if not events:
            return
        conversation = self.conversations.by_id.get(group)
        if conversation is None:
            self.stale = True  # an unknown group: load the list
            return
        self.stale = self.members.note_events(conversation, [event for event, _ in events], IN_OTHER_ROWS) or self.stale
        changed.setdefault(group, []).extend(conversation.add_live(events))
        self.listener.on_events(conversation, [event for event, _ in events])


def _key_at(keys: Sequence[Key], event: str, at: int | None) -> Key | None:
    """The key of this event; without an event, the first at this time or later."""
    if event:
        return next((key for key in reversed(keys) if key[2] == event), None)
    index = bisect_left(keys, (at or 0, "", ""))
    return keys[index] if index < len(keys) else None
