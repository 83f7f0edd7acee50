"""View state of one group: info, members, timeline window, draft, unread counts. Rebuilt from the agent at any time."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.presentation.history_rules import backfill_text, start_sentence
from zerochat.presentation.name_list import NameList
from zerochat.rpc import Event, FileNotification, GroupInfo, History, MemberInfo, ReadState
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.messages.reply_bar import ComposeTarget
from zerochat.tui.messages.timeline import ROWS_MAX, ROWS_SPARE, Key, Place, Row, Timeline, row_of
from zerochat.tui.state.hints import changed_key_warning, left_notice
from zerochat.tui.state.members import Members
from zerochat.tui.style.text import NAME_CELLS_MAX, Names, clock_of, name_of, titled, with_suffix

TEXT_BYTES_MAX = 65_536
"""UTF-8 bytes of a message: POST_BYTES_MAX of zerochat/group/event_log/event.py, which clients do not import."""
TEXT_CHARS_MAX = 4 * TEXT_BYTES_MAX
"""Length of such a text when sanitised: a tab becomes four spaces."""
SENT_MAX = 100
"""Sent texts recalled by Ctrl+Up."""
UNSEEN_MAX = 5_000
"""Maximum unseen posts counted."""


class Conversation(Struct):
    """The view state of one group."""

    info: GroupInfo
    names: Names = field(default_factory=Names)
    timeline: Timeline = field(default_factory=Timeline)
    place: Place = field(default_factory=Place)
    members: Members = field(default_factory=Members)
    relabelled: bool = False
    """A label changed since the rows were last drawn."""
    loaded: bool = False
    unreadable: Printable = Printable("")
    """Error of the last history request; empty: none."""
    paging: bool = False
    window: int = 0
    """Generation of the window; pages requested for an earlier generation are dropped."""
    last_line: int = 0
    """Line number of the last live event."""
    unread: int = 0
    """Unread messages, as the agent counts them; 0 as soon as they were seen."""
    mentions: int = 0
    """Unread mentions."""
    read_line: int = 0
    """Line number of the newest read state."""
    compose_target: ComposeTarget | None = None
    """The message that the composer replies to or edits."""
    first_unread: Key | None = None
    """The first unread message, loaded or not."""
    seen_once: bool = False
    """Some of it was read since the chat started."""
    disambiguator: str = ""
    """First letters of the id, where another group is shown under the same name."""
    notify_mark: str = ""
    """Mark in the list of conversations where the notification level differs from the default."""
    read_on_send: bool = False
    """Messages stay unread until the user posts (read_trigger "sent")."""
    draft: str = ""
    sent_texts: list[str] = field(default_factory=list)
    warnings_by_member: dict[str, Printable] = field(default_factory=dict)
    """Warnings shown until looked at, by DID of the member (empty: the whole group)."""
    recalled: int = 0
    """Steps of Ctrl+Up back in `sent_texts`; 0: the draft."""
    _completion: tuple[tuple[int, int], NameList] | None = None

    @property
    def name(self) -> Printable:
        return self.labelled(NAME_CELLS_MAX)

    def labelled(self, width: int) -> Printable:
        """The name in `width` cells, with its disambiguator."""
        return with_suffix(titled(self.info), self.disambiguator, width)

    @property
    def verified(self) -> tuple[int, int] | None:
        """(verified, total) of the other members; None: there are none."""
        others = self.members.others
        return (self.members.trust["verified"], others) if others else None

    @property
    def is_large(self) -> bool:
        """Whether the group has more members than one answer names."""
        return max(self.info.members, len(self.members)) > MEMBER_PAGE_MAX

    @property
    def gap_ends(self) -> dict[str, int]:
        """By author: the last position that is reported missing. With it the gap is closed, also before the agent has
        noted the gap and would notify that it is filled."""
        whole = self.info.completeness
        return {gap.author: gap.upto for gap in whole.gaps} if whole is not None else {}

    @property
    def warnings(self) -> list[Printable]:
        """All warnings, the most important last."""
        doubts = [Printable(f"! {printable(warning.text)} /dismiss hides this.") for warning in self.info.warnings]
        return [*reversed(doubts), *self.warnings_by_member.values(), *([self.unreadable] if self.unreadable else [])]

    @property
    def active(self) -> bool:
        return self.info.state == "active"

    # --- data from the agent ---------------------------------------------------------------------------------------

    def learn_members(self, members: Iterable[MemberInfo], gone: Iterable[str] = ()) -> bool:
        """Update these members, in the order of joining, and remove those that are gone; True when a label changed. It
        takes time linear in the changes, not in the members."""
        self.members.remove(gone)
        fresh = self.members.update(members)
        changed = [self.names.learn(member.did, member.nick) for member in fresh]
        changed.append(self.names.colour((member.did for member in fresh), self.members.by_did))
        guilty = self.members.convicted
        convicted = guilty != self.names.guilty
        self.names.guilty = frozenset(guilty) if convicted else self.names.guilty
        return self._learn_trust() or convicted or any(changed)

    def _learn_trust(self) -> bool:
        """Update the warnings about names whose key differs from the verified one; True when they changed."""
        before, nicks = self.names.changed, self.members.changed
        if before == nicks.keys():
            return False
        self.names.changed = frozenset(nicks)
        for did in before - nicks.keys():
            self.warnings_by_member.pop(did, None)
        for did in sorted(nicks.keys() - before):
            self.warnings_by_member[did] = changed_key_warning(nicks[did])
        return True

    def completion_names(self) -> NameList:
        """The labels of the other members, for completion; indexed again after a change of names or members."""
        state = self.members.revision, self.names.revision
        if self._completion is None or self._completion[0] != state:
            others = [each.did for each in self.members if each.connection != "self"]
            self._completion = state, NameList([self.names.label(did) for did in others])
        return self._completion[1]

    def update_gaps(self) -> bool:
        """Update the gap rows; True when they changed."""
        found = self.info.completeness
        if not self.loaded or self.timeline.detached or (not self.timeline.gaps and not (found and found.gaps)):
            return False
        missing = {}
        for gap in found.gaps if found else ():
            asked = f" (requested since {clock_of(gap.since)})" if gap.state == "asked" and gap.since else ""
            lost = f" (no member has {'it' if gap.missing == 1 else 'them'})" if gap.state == "lost" else ""
            entries = "entry that is" if gap.missing == 1 else "entries that are"
            held = " (its daily quota here is used up)" if gap.state == "held" else ""
            text = printable_line(f"has {gap.missing} more {entries} missing here{asked}{lost}{held}")
            missing[gap.author] = (gap.after, name_of(gap.nick), text)
        return self.timeline.set_gaps(missing)

    def update_head(self) -> bool:
        """Update the sentence above the first row; True when it changed."""
        before = self.timeline.head
        if self.loaded:
            self._set_head()
        return self.timeline.head != before

    def confirm(self, author: str, after: int, upto: int) -> None:
        """Mark relayed events as confirmed by their author."""
        self.timeline.mark_confirmed(self._relayed_keys(author, after, upto))

    def refute(self, author: str, after: int, upto: int) -> None:
        """Remove refuted relayed events."""
        self.timeline.remove(self._relayed_keys(author, after, upto))

    def expire(self, before: int) -> bool:
        """Remove messages with an earlier Lamport time; whether there were any."""
        keys = [row.key for row in self.timeline.rows if row.kind == "post" and not row.local and row.key[0] < before]
        self.timeline.remove(keys)
        return bool(keys)

    def _relayed_keys(self, author: str, after: int, upto: int) -> list[Key]:
        rows = (row for row in self.timeline.rows if row.author == author and row.relayed and not row.local)
        return [row.key for row in rows if after < row.position <= upto]

    def members_named(self, wanted: str) -> list[MemberInfo]:
        """The members with this name, raw or as shown."""
        name = wanted.casefold()
        return [
            member
            for member in self.members
            if name
            in (member.nick.casefold(), name_of(member.nick).casefold(), self.names.label(member.did).casefold())
        ]

    def member(self, did: str) -> MemberInfo | None:
        return self.members.get(did)

    def add_page(self, page: History, line: int) -> list[Key]:
        """Add a page of history; returns the new keys."""
        new = self.timeline.add(self._rows([(event, line) for event in page.events]))
        self._note_floor(page)
        self.loaded = True
        return new

    def _note_floor(self, page: History) -> None:
        """Note the oldest loaded event, even without a row."""
        if page.events:
            first, floor = page.events[0], self.timeline.floor
            key = (first.lamport, first.author.did, first.id)
            self.timeline.floor = key if floor is None else min(floor, key)

    def add_first_page(self, page: History, line: int) -> list[Key]:
        """Add the newest page. If it does not reach the loaded rows, it replaces them: a gap must not look complete."""
        timeline = self.timeline
        rows = self._rows([(event, line) for event in page.events])
        if timeline.rows and (timeline.detached or (page.more and rows and rows[0].key > timeline.keys[-1])):
            timeline.clear()
            self.place.following, self.place.key = True, None
        whole = not timeline.rows
        new = timeline.add(rows)
        self._note_floor(page)
        if whole or not page.more:
            timeline.more = page.more
        self.loaded = True
        self._set_head()
        self.update_gaps()
        return new

    def add_older_page(self, page: History, line: int) -> list[Key]:
        new = self.add_page(page, line)
        self.timeline.more = page.more
        self._set_head()
        surplus = len(self.timeline.rows) - ROWS_MAX
        if surplus > 0:
            self.timeline.drop_newest(surplus)
            self.place.following = False
        return new

    def add_newer_page(self, page: History, line: int) -> list[Key]:
        """Add the page after the last row of a detached window."""
        new = self.add_page(page, line)
        self._note_ceiling(page, line)
        if (surplus := len(self.timeline.rows) - ROWS_MAX) > 0:
            self.timeline.drop_oldest(surplus)
        self._set_head()
        self.update_gaps()
        return new

    def replace_with_page(self, page: History, line: int) -> None:
        """Replace the window by a page."""
        self.timeline.clear()
        self.window += 1
        self.place.following, self.place.key, self.place.offset = False, None, 0
        self.add_page(page, line)
        self.timeline.more = page.more
        self._note_ceiling(page, line)
        self._set_head()
        self.update_gaps()

    def _note_ceiling(self, page: History, line: int) -> None:
        """Update whether the window reaches the end; it does not if a live event arrived after the response."""
        timeline = self.timeline
        timeline.detached = page.newer or self.last_line > line
        if page.events and timeline.detached:
            last = page.events[-1]
            timeline.ceiling = max(timeline.ceiling or (0, "", ""), (last.lamport, last.author.did, last.id))

    @property
    def backfill_range(self) -> tuple[str, Key] | None:
        """Where to reload backfilled events: (id of the event before which they are, key of the oldest row to reach).
        None: the window does not reach back to my join."""
        timeline, found = self.timeline, self.info.history_start
        mine = bisect_left(timeline.keys, (found.joined if found is not None else 0, "", ""))
        real = [at for at in range(len(timeline.rows)) if not timeline.rows[at].local]
        if not real or (mine <= real[0] and timeline.more):
            return None
        start = next((at for at in real if at >= mine), real[-1])
        reached = start
        if not self.place.following and self.place.key is not None:
            read = bisect_left(timeline.keys, self.place.key)
            reached = next((at for at in real if read <= at < start and timeline.rows[at].kind == "post"), start)
        return timeline.keys[start][2], timeline.keys[reached]

    def add_backfill_page(self, page: History, line: int, reached: Key) -> bool:
        """Add a page of backfilled events. When it reaches back to `reached`, it replaces all rows above it. False: the
        page before it is needed too."""
        timeline, place = self.timeline, self.place
        if not place.following and place.key is not None and place.key < reached:  # keep the reading position
            read, at = timeline.index(place.key), timeline.index(reached)
            if read is not None and at is not None:
                top = timeline.tops[read] + timeline.lead(read) + place.offset
                place.key, place.offset = reached, top - timeline.tops[at] - timeline.lead(at)
        timeline.add(self._rows([(event, line) for event in page.events]))
        first = page.events[0] if page.events else None
        key = (first.lamport, first.author.did, first.id) if first is not None else reached
        if page.more and key > reached and first is not None:
            return False
        if page.more and (above := bisect_left(timeline.keys, key)):
            timeline.drop_oldest(above)
        self._note_floor(page)
        timeline.more = page.more
        self._trim()
        self._set_head()
        self.update_gaps()
        return True

    @property
    def keeps_live(self) -> bool:
        """Whether live events get rows: the window is loaded and reaches the end."""
        return self.loaded and not self.timeline.detached

    def add_live(self, events: Sequence[tuple[Event, int]]) -> list[Key]:
        """Add live events with their line numbers; returns the new keys."""
        timeline = self.timeline
        rows = self._rows(events)
        self.last_line = max([self.last_line, *(line for _, line in events)])
        in_window: list[Row] = []
        new: list[Key] = []
        for row in rows:
            if self.loaded and timeline.detached and timeline.keys and row.key > timeline.keys[-1]:
                new.append(row.key)  # beyond a detached window: only counted
            elif self.loaded and not (timeline.more and timeline.keys and row.key < timeline.keys[0]):
                in_window.append(row)
        known = self.loaded
        new += timeline.add(in_window)
        fresh = set(new)
        doubtful = {row.author for row in timeline.rows if row.relayed}
        positions = {row.author: row.position for row in rows if row.author in doubtful and not row.relayed}
        new += [key for author, position in positions.items() for key in timeline.confirm(author, position)]
        posts = [row for row in rows if row.kind == "post" and not row.own and (row.key in fresh or not known)]
        if known:
            place = self.place
            for row in posts:
                late = place.read_upto is not None and row.key < place.read_upto
                (place.late if late else place.unseen).append(row.key)
            for keys in (place.unseen, place.late):
                del keys[: max(len(keys) - UNSEEN_MAX, 0)]
            self._trim()
            self._set_head()
            self.relabelled |= self.update_gaps()
        return new

    def update_message(self, event: Event, line: int) -> list[Key]:
        """Update a changed message; returns the changed keys."""
        return [key for row in self._rows([(event, line)]) if self.loaded for key in self.timeline.update(row)]

    def update_file(self, notification: FileNotification) -> list[Key]:
        """Update a file's state; returns the changed keys."""
        return self.timeline.update_file(notification.file) if self.loaded else []

    def _rows(self, events: Iterable[tuple[Event, int]]) -> list[Row]:
        rows = []
        for event, line in events:
            self.relabelled |= self.names.learn(event.author.did, event.author.nick)
            did, nick = event.body.get("did"), event.body.get("nick")
            names_member = event.type == "member_joined" and isinstance(did, str) and isinstance(nick, str)
            if names_member and did not in self.names.nicks:  # the name at the time is better than none
                self.relabelled |= self.names.learn(str(did), str(nick))
            if (row := row_of(event, line, self.info.name, self.info.me)) is not None:
                rows.append(row)
        return rows

    def _trim(self) -> None:
        """Trim the window at the end away from the reading position."""
        timeline, place = self.timeline, self.place
        if len(timeline.rows) <= ROWS_MAX:
            return
        surplus = len(timeline.rows) - ROWS_MAX + ROWS_SPARE
        at = None if place.following or place.key is None else timeline.index(place.key)
        if at is not None and at <= surplus:
            timeline.drop_newest(surplus)
        else:
            timeline.drop_oldest(surplus)

    def _set_head(self) -> None:
        found = self.info.history_start
        if self.timeline.more and self.unreadable:
            head = Printable("Older messages could not be read.")
        elif self.timeline.more:
            going = f" · {backfill_text(found)}" if found is not None and found.state == "fetching" else ""
            head = Printable(f"↑ older messages{going}")
        elif found is not None:
            head = printable_line(start_sentence(found, self.name))
        elif self._starts_at_genesis:
            head = printable_line(f"This is the beginning of {self.name}.")
        else:
            head = Printable("Messages from before you joined are not available.")
        self.timeline.set_head(head)

    # --- read state ------------------------------------------------------------------------------------------------

    def set_read_state(self, state: ReadState | GroupInfo, line: int) -> bool:
        """Update what is unread; False: `line` is older than the last update."""
        if line < self.read_line:
            return False
        self.read_line = line
        self.unread, self.mentions, self.first_unread = state.unread, state.mentions, state.first_unread
        self.place.read_upto = state.read_upto
        return True

    @property
    def only_late(self) -> bool:
        """Whether all unread messages arrived late, before messages that were read."""
        first, read = self.first_unread, self.place.read_upto
        return first is not None and read is not None and first < read

    def enter(self) -> None:
        """The conversation is opened: set the unread line above the first unread post."""
        if self.first_unread is not None:
            self.timeline.set_unread(self.first_unread)

    def mark_read(self) -> None:
        """Everything is read; the unread line stays until `leave`."""
        self.unread, self.mentions, self.first_unread, self.place.missed = 0, 0, None, 0

    def leave(self) -> None:
        self.timeline.set_unread(None)
        self.place.missed = 0
        self.forget_unseen()

    def forget_unseen(self) -> None:
        self.place.unseen.clear()
        self.place.late.clear()

    @property
    def seen_upto(self) -> int:
        """Lamport time up to which everything was read; 0: unknown."""
        keys, unseen = self.timeline.keys, [*self.place.unseen, *self.place.late]
        if not (self.loaded and self.seen_once and keys) or self.unread or self.timeline.detached:
            return 0
        return min(unseen)[0] - 1 if unseen else keys[-1][0]

    @property
    def tail(self) -> tuple[Printable, ...]:
        """Sentences below the last row."""
        if not self.loaded:
            return (Printable(""), Printable("The messages could not be read." if self.unreadable else "Loading…"))
        if self.timeline.detached:
            return (Printable(""), Printable("Newer messages are not loaded. Press End to go to the newest."))
        if self.info.state == "left":
            return (Printable(""), left_notice(self.info))
        if not self.timeline.posts and not self.timeline.more:
            text = "No messages since you joined."
            if self._starts_at_genesis:
                text = "No messages yet."
            alone = " Type /invite to invite people." if self.info.members <= 1 else ""
            return (Printable(""), Printable(text + alone))
        return ()

    @property
    def _starts_at_genesis(self) -> bool:
        """Whether the first row is the group's first event."""
        found, rows = self.info.history_start, self.timeline.rows
        return found.state == "whole" if found is not None else bool(rows and rows[0].own and rows[0].kind == "quiet")

    # --- composer history ------------------------------------------------------------------------------------------

    def remember_text(self, text: str) -> None:
        """Record a text for Ctrl+Up."""
        if text and (not self.sent_texts or self.sent_texts[-1] != text):
            self.sent_texts.append(text)
            del self.sent_texts[:-SENT_MAX]
        self.recalled = 0

    def recall(self, step: int, present: str) -> str | None:
        """The recorded text `step` (1: older) away; None at the ends. Index 0 is the draft."""
        to = self.recalled + step
        if not 0 <= to <= len(self.sent_texts):
            return None
        if self.recalled == 0:
            self.draft = present
        self.recalled = to
        return self.sent_texts[-to] if to else self.draft

    def composer_changed(self, text: str) -> None:
        """The composer's text changed. An edited recalled text becomes the draft, and the former draft is recorded."""
        recalled = self.sent_texts[-self.recalled] if self.recalled else text
        if text != printable(recalled, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX):
            self.recalled = 0
            if self.draft.strip():
                self.remember_text(self.draft)
            self.draft = ""
