"""What the face knows of each group: its information, its timeline, its draft, and what has not been read.

View state only. The truth is in the agent; all of this is built from its answers and news, and can be built again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from zerochat.names import told_apart
from zerochat.presentation.history_rules import fetching, sentence
from zerochat.rpc import Event, FileNews, GroupInfo, History, MemberInfo, RequestInfo
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.messages.timeline import ROWS_MAX, ROWS_SPARE, Key, Place, Row, Timeline, row_of
from zerochat.tui.state.hints import not_who_was_verified, over
from zerochat.tui.style.text import NAME_CELLS_MAX, Names, clock_of, marked, name_of

if TYPE_CHECKING:
    from zerochat.tui.messages.reply_bar import About

TEXT_BYTES_MAX = 65_536
"""UTF-8 of one message: the protocol's own limit, POST_BYTES_MAX in zerochat/group/event_log/event.py, which no face imports."""
TEXT_CHARS_MAX = 4 * TEXT_BYTES_MAX
"""What that can become by being made printable: a tab is four spaces."""
SENT_MAX = 100
"""Texts of one's own that Ctrl+Up brings back."""
UNSEEN_MAX = 5_000
"""Posts below the reader that are counted; nobody needs the exact number of more."""


def calls_anew(event: Event, me: str) -> bool:
    """Whether it is an edit that calls me by name in a message that has not called me before."""
    return event.type == "message_edited" and bool(me) and me in event.mentions and not event.self


class Conversation(Struct):
    """One group as its window shows it."""

    info: GroupInfo
    names: Names = field(default_factory=Names)
    timeline: Timeline = field(default_factory=Timeline)
    place: Place = field(default_factory=Place)
    members: list[MemberInfo] = field(default_factory=list)
    relabelled: bool = False
    """Whether somebody is called something else since the rows were last drawn."""
    loaded: bool = False
    unreadable: Printable = Printable("")
    """Why the agent could not read its messages when it was last asked for some."""
    paging: bool = False
    window: int = 0
    """Counts how often the window has begun somewhere else: a page for where it was before is of no use then."""
    heard: int = 0
    """The number of the last line that told of an event here."""
    unread: int = 0
    mentions: int = 0
    """How many of the unread call me by name."""
    about: "About | None" = None
    """What the text in the composer is about."""
    first_unread: Key | None = None
    entered: bool = False
    """Something of it has counted as read since the chat began."""
    apart: str = ""
    """The first letters of the id, where another group here is shown under the same name."""
    muted: str = ""
    """A mark in the list, where it tells more or less than others about what comes while nobody looks."""
    holding: bool = False
    """What is seen stays unread until something is said here."""
    draft: str = ""
    sent: list[str] = field(default_factory=list)
    alarms: dict[str, Printable] = field(default_factory=dict)
    """What to be careful with until it was looked at, by whom it is about (empty: the whole group)."""
    recalled: int = 0
    """How far Ctrl+Up has gone back in `sent`; 0: at the draft."""

    @property
    def name(self) -> Printable:
        return self.labelled(NAME_CELLS_MAX)

    def labelled(self, width: int) -> Printable:
        """The name in so many cells; two groups of one name are never shown as one."""
        return marked(name_of(self.info.name), self.apart, width)

    @property
    def verified(self) -> tuple[int, int] | None:
        """How many of the others were verified, and how many there are; None: there are none."""
        others = [one for one in self.members if one.connection != "self"]
        count = sum(one.trust == "verified" for one in others)
        return (count, len(others)) if others else None

    @property
    def mailed(self) -> frozenset[str]:
        """Who is reached over a mediator: of these it is shown when they were last heard."""
        return frozenset(one.did for one in self.members if one.via == "mediator")

    @property
    def warnings(self) -> list[Printable]:
        """What to be careful with, the most important last."""
        doubts = [Printable(f"! {printable(one.text)} /dismiss hides this.") for one in self.info.disagreements]
        return [*reversed(doubts), *self.alarms.values(), *([self.unreadable] if self.unreadable else [])]

    @property
    def active(self) -> bool:
        return self.info.state == "active"

    # --- what came from the agent ----------------------------------------------------------------------------------

    def learn_members(self, members: Sequence[MemberInfo]) -> bool:
        """Take the list of members; True when somebody's label changed."""
        self.members = list(members)
        changed = [self.names.learn(member.did, member.nick) for member in members]
        guilty = frozenset(one.did for one in members if one.guilty)
        convicted, self.names.guilty = guilty != self.names.guilty, guilty
        return self._learn_trust() or convicted or any(changed)

    def _learn_trust(self) -> bool:
        """Raise the alarm for a name that somebody else bears now than who was verified; True when that is new."""
        before, nicks = self.names.changed, {one.did: one.nick for one in self.members if one.trust == "changed"}
        self.names.changed = frozenset(nicks)
        for did in before - nicks.keys():
            self.alarms.pop(did, None)
        for did in sorted(nicks.keys() - before):
            self.alarms[did] = not_who_was_verified(nicks[did])
        return before != self.names.changed

    def tell_gaps(self) -> bool:
        """Show where something is known to be missing; True when that has changed."""
        found = self.info.completeness
        if not self.loaded or self.timeline.detached or (not self.timeline.gaps and not (found and found.gaps)):
            return False
        missing = {}
        for gap in found.gaps if found else ():
            asked = f" (asked for since {clock_of(gap.since)})" if gap.state == "asked" and gap.since else ""
            lost = f" (nobody asked has {'it' if gap.missing == 1 else 'them'})" if gap.state == "lost" else ""
            text = printable_line(f"said {gap.missing} more, missing here{asked}{lost}")
            missing[gap.author] = (gap.after, name_of(gap.nick), text)
        return self.timeline.tell_gaps(missing)

    def tell_beginning(self) -> bool:
        """Show above the first line why it is the first; True when that has changed."""
        before = self.timeline.head
        if self.loaded:
            self._name_the_beginning()
        return self.timeline.head != before

    def confirm(self, author: str, after: int, upto: int) -> None:
        """What others have handed over is the author's own word."""
        self.timeline.settle(self._vouched(author, after, upto))

    def refute(self, author: str, after: int, upto: int) -> None:
        """Show no more what somebody else has said in this author's name."""
        self.timeline.forget(self._vouched(author, after, upto))

    def _vouched(self, author: str, after: int, upto: int) -> list[Key]:
        rows = (row for row in self.timeline.rows if row.author == author and row.vouched and not row.local)
        return [row.key for row in rows if after < row.position <= upto]

    def called(self, wanted: str) -> list[MemberInfo]:
        """The members who go by this name, as it is or as it is shown."""
        name = wanted.casefold()
        return [
            one
            for one in self.members
            if name in (one.nick.casefold(), name_of(one.nick).casefold(), self.names.label(one.did).casefold())
        ]

    def member(self, did: str) -> MemberInfo | None:
        return next((one for one in self.members if one.did == did), None)

    def take_page(self, page: History, line: int) -> list[Key]:
        """Put a page of history in; the keys that are new."""
        new = self.timeline.add(self._rows([(event, line) for event in page.events]))
        self._note_floor(page)
        self.loaded = True
        return new

    def _note_floor(self, page: History) -> None:
        """How far back it has been read, where the oldest of a page has no row of its own."""
        if page.events:
            first, floor = page.events[0], self.timeline.floor
            key = (first.lamport, first.author.did, first.id)
            self.timeline.floor = key if floor is None else min(floor, key)

    def take_first_page(self, page: History, line: int) -> list[Key]:
        """The newest page. Where it does not reach what is loaded, the window begins anew with it: a gap is never
        shown as if nothing was missing."""
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
        self._name_the_beginning()
        self.tell_gaps()
        return new

    def take_older_page(self, page: History, line: int) -> list[Key]:
        new = self.take_page(page, line)
        self.timeline.more = page.more
        self._name_the_beginning()
        surplus = len(self.timeline.rows) - ROWS_MAX
        if surplus > 0:
            self.timeline.drop_newest(surplus)
            self.place.following = False
        return new

    def take_newer_page(self, page: History, line: int) -> list[Key]:
        """The page behind the last row of a window that does not reach the end."""
        new = self.take_page(page, line)
        self._note_ceiling(page, line)
        if (surplus := len(self.timeline.rows) - ROWS_MAX) > 0:
            self.timeline.drop_oldest(surplus)
        self._name_the_beginning()
        self.tell_gaps()
        return new

    def take_page_around(self, page: History, line: int) -> None:
        """Begin the window anew with a page from anywhere."""
        self.timeline.clear()
        self.window += 1
        self.place.following, self.place.key, self.place.offset = False, None, 0
        self.take_page(page, line)
        self.timeline.more = page.more
        self._note_ceiling(page, line)
        self._name_the_beginning()
        self.tell_gaps()

    def _note_ceiling(self, page: History, line: int) -> None:
        """Whether the window reaches the end now. It does not where an event was told of behind the answer."""
        timeline = self.timeline
        timeline.detached = page.newer or self.heard > line
        if page.events and timeline.detached:
            last = page.events[-1]
            timeline.ceiling = max(timeline.ceiling or (0, "", ""), (last.lamport, last.author.did, last.id))

    @property
    def before_me(self) -> tuple[str, Key] | None:
        """From where on what has come from before my time is to be read anew: the id of an event, whose older ones they
        are, and the key of the last row that is to be reached. None: what is loaded is not that old."""
        timeline, found = self.timeline, self.info.beginning
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

    def take_earlier_page(self, page: History, line: int, reached: Key) -> bool:
        """A page of what has come from before my time. Once it goes back as far as `reached`, it takes the place of all
        that was above it. False: the page before it is to be read too."""
        timeline, place = self.timeline, self.place
        if not place.following and place.key is not None and place.key < reached:  # what is read stays where it is
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
        self._name_the_beginning()
        self.tell_gaps()
        return True

    def arrive(self, events: Sequence[tuple[Event, int]], *, seen: bool) -> list[Key]:
        """Put live events, with the numbers of their lines, in; the keys that are new. Counts what is not `seen`."""
        timeline = self.timeline
        rows = self._rows(events)
        self.heard = max([self.heard, *(line for _, line in events)])
        in_window: list[Row] = []
        new: list[Key] = []
        for row in rows:
            if self.loaded and timeline.detached and timeline.keys and row.key > timeline.keys[-1]:
                new.append(row.key)  # Beyond the window: counted, and read when the reader goes to the end.
            elif self.loaded and not (timeline.more and timeline.keys and row.key < timeline.keys[0]):
                in_window.append(row)
        known = self.loaded
        new += timeline.add(in_window)
        fresh = set(new)
        doubtful = {row.author for row in timeline.rows if row.vouched}
        said = {row.author: row.position for row in rows if row.author in doubtful and not row.vouched}
        new += [key for author, position in said.items() for key in timeline.confirm(author, position)]
        posts = [row for row in rows if row.kind == "post" and not row.own and (row.key in fresh or not known)]
        if not seen:
            self._count_unread(posts)
            self.mentions += sum(calls_anew(event, self.info.me) for event, _ in events)
        if known:
            unseen = self.place.unseen
            unseen += [row.key for row in posts]
            del unseen[: max(len(unseen) - UNSEEN_MAX, 0)]
            self._trim()
            self._name_the_beginning()
            self.relabelled |= self.tell_gaps()
        return new

    def amend(self, event: Event, line: int) -> list[Key]:
        """A message stands otherwise now; the keys of the rows that changed."""
        return [key for row in self._rows([(event, line)]) if self.loaded for key in self.timeline.amend(row)]

    def move_file(self, news: FileNews) -> list[Key]:
        """A file has got on; the keys of the rows that changed."""
        return self.timeline.move_file(news.file) if self.loaded else []

    def _count_unread(self, posts: Iterable[Row]) -> None:
        for row in posts:
            self.unread += 1
            self.mentions += row.mention
            if self.first_unread is None or row.key < self.first_unread:
                self.first_unread = row.key

    def _rows(self, events: Iterable[tuple[Event, int]]) -> list[Row]:
        rows = []
        for event, line in events:
            self.relabelled |= self.names.learn(event.author.did, event.author.nick)
            did, nick = event.body.get("did"), event.body.get("nick")
            told = event.type == "member_joined" and isinstance(did, str) and isinstance(nick, str)
            if told and did not in self.names.nicks:  # the name of that time is better than none
                self.relabelled |= self.names.learn(str(did), str(nick))
            if (row := row_of(event, line, self.info.name, self.info.me)) is not None:
                rows.append(row)
        return rows

    def _trim(self) -> None:
        """Keep the window within bounds, at the end that the reader is not looking at."""
        timeline, place = self.timeline, self.place
        if len(timeline.rows) <= ROWS_MAX:
            return
        surplus = len(timeline.rows) - ROWS_MAX + ROWS_SPARE
        at = None if place.following or place.key is None else timeline.index(place.key)
        if at is not None and at <= surplus:
            timeline.drop_newest(surplus)
        else:
            timeline.drop_oldest(surplus)

    def _name_the_beginning(self) -> None:
        found = self.info.beginning
        if self.timeline.more and self.unreadable:
            head = Printable("Older messages could not be read.")
        elif self.timeline.more:
            going = f" · {fetching(found)}" if found is not None and found.state == "fetching" else ""
            head = Printable(f"↑ older messages{going}")
        elif found is not None:
            head = printable_line(sentence(found, self.name))
        elif self._from_the_beginning:
            head = printable_line(f"This is the beginning of {self.name}.")
        else:
            head = Printable("What was said before you joined is not here.")
        self.timeline.set_head(head)

    # --- reading ---------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Its window opens: the unread line goes above the first post that was not read."""
        if self.first_unread is not None:
            self.timeline.set_unread(self.first_unread)
        if not self.holding:
            self.read()

    def read(self) -> None:
        """What there is has been seen; the unread line stays where it is until `leave`."""
        self.unread, self.mentions, self.first_unread, self.entered = 0, 0, None, True

    def leave(self) -> None:
        self.timeline.set_unread(None)

    @property
    def seen_upto(self) -> int:
        """The Lamport time up to which everything here has been read; 0: that cannot be said."""
        keys, unseen = self.timeline.keys, self.place.unseen
        if not (self.loaded and self.entered and keys) or self.unread or self.timeline.detached:
            return 0
        return min(unseen)[0] - 1 if unseen else keys[-1][0]

    @property
    def tail(self) -> tuple[Printable, ...]:
        """What stands below the last row."""
        if not self.loaded:
            return (Printable(""), Printable("The messages could not be read." if self.unreadable else "Loading…"))
        if self.timeline.detached:
            return (Printable(""), Printable("Newer messages are not loaded here: End goes to the newest."))
        if self.info.state == "left":
            return (Printable(""), over(self.info))
        if not self.timeline.posts and not self.timeline.more:
            said = "Nothing has been said since you came."
            if self._from_the_beginning:
                said = "Nobody has said anything yet."
            alone = " /invite brings people in." if self.info.members <= 1 else ""
            return (Printable(""), Printable(said + alone))
        return ()

    @property
    def _from_the_beginning(self) -> bool:
        """Whether the first row is the first of the group, and not only the first that a newcomer has."""
        found, rows = self.info.beginning, self.timeline.rows
        return found.state == "whole" if found is not None else bool(rows and rows[0].own and rows[0].kind == "quiet")

    # --- what I said -----------------------------------------------------------------------------------------------

    def said(self, text: str) -> None:
        """Keep what was said, or what else is to come back with Ctrl+Up."""
        if text and (not self.sent or self.sent[-1] != text):
            self.sent.append(text)
            del self.sent[:-SENT_MAX]
        self.recalled = 0

    def recall(self, step: int, present: str) -> str | None:
        """The text `step` (1: older) away in what was sent; None at the ends. The draft itself is kept at place 0."""
        to = self.recalled + step
        if not 0 <= to <= len(self.sent):
            return None
        if self.recalled == 0:
            self.draft = present
        self.recalled = to
        return self.sent[-to] if to else self.draft

    def edited(self, text: str) -> None:
        """The composer has this in it. Where it was brought back and changed it is the draft now, and what was the
        draft can be brought back in turn."""
        recalled = self.sent[-self.recalled] if self.recalled else text
        if text != printable(recalled, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX):
            self.recalled = 0
            if self.draft.strip():
                self.said(self.draft)
            self.draft = ""


class Conversations(Struct):
    """All groups of the profile in the agent's order, which does not change under the hands, and the open one."""

    by_id: dict[str, Conversation] = field(default_factory=dict)
    open_id: str = ""

    @property
    def open(self) -> Conversation | None:
        return self.by_id.get(self.open_id)

    def renew(self, groups: Sequence[GroupInfo]) -> None:
        """Take the agent's list of groups."""
        known = self.by_id
        self.by_id = {}
        for info in groups:
            conversation = known.get(info.id) or Conversation(info)
            conversation.info = info
            conversation.relabelled |= conversation.tell_gaps()
            conversation.relabelled |= conversation.tell_beginning()
            conversation.names.learn(info.me, info.nick)
            self.by_id[info.id] = conversation
        apart = told_apart({info.id: name_of(info.name) for info in groups})
        for id, conversation in self.by_id.items():
            conversation.apart = apart.get(id, "")

    def meant(self, wanted: str) -> list[str]:
        """The ids of the groups that answer to a name, or to the first letters of an id."""
        named = [id for id, each in self.by_id.items() if each.info.name == wanted]
        started = [id for id in self.by_id if id.startswith(wanted)]
        return [id for id in named if self.by_id[id].active] or named or started

    def numbered(self, number: int) -> str | None:
        ids = list(self.by_id)
        return ids[number - 1] if 1 <= number <= len(ids) else None

    def beside(self, step: int) -> str | None:
        """The group `step` further in the list, round the ends."""
        ids = list(self.by_id)
        if not ids:
            return None
        here = ids.index(self.open_id) if self.open_id in self.by_id else -1 if step > 0 else 0
        return ids[(here + step) % len(ids)]

    def next_unread(self) -> str | None:
        """The next group, going down from the open one, where somebody has called me; else one that has something
        unread, or somebody waiting."""
        ids = list(self.by_id)
        here = ids.index(self.open_id) if self.open_id in self.by_id else -1
        around = ids[here + 1 :] + ids[: here + 1]
        called = next((id for id in around if self.by_id[id].mentions and id != self.open_id), None)
        if called is not None:
            return called
        for id in around:
            if (self.by_id[id].unread or self.by_id[id].info.requests) and id != self.open_id:
                return id
        return None

    def asking_elsewhere(self) -> list[RequestInfo]:
        """Who waits to be let into the groups that are not open."""
        return [one for id, each in self.by_id.items() if id != self.open_id for one in each.info.requests]

    def mentions_elsewhere(self) -> int:
        return sum(each.mentions for id, each in self.by_id.items() if id != self.open_id)

    def unread_elsewhere(self) -> int:
        return sum(each.unread for id, each in self.by_id.items() if id != self.open_id)
