"""Materialised messages: each message with the annotations that apply to it, read from the journal page by page."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views.delivery_counts import DeliveryCounts
from zerochat.agent.views.events import EventContext, event_view, load_record
from zerochat.errors import LocalError, Malformed
from zerochat.group.effects import DeleteLog, JournalEffect, RefuteEvents, StoreEvent
from zerochat.group.event_log.event import ANNOUNCE, CONTROL, EDIT, PINS, POST, TOPIC, VERDICT
from zerochat.group.event_log.event import Event as Record
from zerochat.group.membership.bot_announcement import Announcement
from zerochat.group.messages.bodies import Pins, Post, Topic, content_of
from zerochat.group.messages.current import (
    Annotation,
    CurrentMessage,
    announcement_spans,
    current_message,
    mentioned_before,
    topic_spans,
)
from zerochat.group.notifications import EventsConfirmed, EventsRefuted, ValidityChanged
from zerochat.group.state import Group
from zerochat.rpc import Author, Event, Quote

QUOTED_CHARS_MAX = 200
AMENDED_MAX = 500
"""Messages that are sent again because one range of a chain changed."""

Names = Mapping[str, str]
"""The display names of a group, by DID."""


class Announced(Struct, frozen=True):
    """A member's announcement as a bot, and its row."""

    announcement: Announcement
    row: Row


class FeedEntry(Struct, frozen=True):
    """A row of the log for subscribers."""

    row: Row
    event: Event | None
    """None: backfilled history, which is not sent to subscribers."""
    changed: tuple[tuple[Row, Event], ...] = ()
    """Earlier messages that the row changed, as they are now."""


class _Page:
    """Rows of one group with the messages and annotations they refer to; each record is decoded once."""

    def __init__(self, group: Group, rows: Sequence[Row], names: Names, bots: Collection[str] = ()) -> None:
        """`bots`: the DIDs of members that have announced that they are bots."""
        self._group, self._rows, self._names, self._bots = group, rows, names, bots
        self._records: dict[str, Record] = {}
        self._posts = {row.id: row for row in rows if row.type == POST}
        """The messages among the rows, and those that they reply to or edit."""
        self._counts = DeliveryCounts(group)
        self._found: dict[str, CurrentMessage] = {}
        self._annotations: dict[str, list[Annotation]] = {}

    def _read(self, row: Row) -> Record:
        record = self._records.get(row.id)
        if record is None:
            record = self._records[row.id] = load_record(row)
        return record

    def _post(self, row: Row) -> Post:
        """The content of a message; empty where it is malformed."""
        try:
            content = content_of(self._read(row))
        except Malformed:
            content = None
        return content if isinstance(content, Post) else Post("")

    def missing(self) -> set[str]:
        """The ids of messages that these rows reply to or edit and that are not among them."""
        about = {row.target for row in self._rows if row.type == EDIT}
        return ({self._post(row).reply for row in self._posts.values()} | about) - self._posts.keys() - {""}

    def add(self, others: Iterable[Row]) -> None:
        """Add the missing messages that exist here."""
        self._posts |= {row.id: row for row in others if row.type == POST}

    def posts(self) -> Iterator[tuple[str, str]]:
        """The messages whose annotations are needed, with their authors."""
        return ((row.id, row.author) for row in self._posts.values())

    def annotate(self, annotations: Iterable[Row]) -> dict[str, CurrentMessage]:
        """Apply annotations; the current messages by id."""
        about = self._annotations = {}
        for row in annotations:
            if row.target in self._posts:
                about.setdefault(row.target, []).append(Annotation(self._read(row), row.relayed_by))
        view, posts = self._group.view, self._posts
        self._found = {name: current_message(view, self._read(posts[name]), each) for name, each in about.items()}
        return self._found

    def events(self, replayed: bool) -> list[Event]:
        return [event_view(self._group, row, replayed, self._names, self._context(row)) for row in self._rows]

    def _context(self, row: Row) -> EventContext:
        context = EventContext(record=self._read(row), bot=row.author in self._bots, counts=self._counts)
        if row.type == EDIT:
            return replace(context, current=self._found.get(row.target, CurrentMessage()), named=self._named(row))
        if row.type == POST:
            quoted = self._quote(self._post(row).reply)
            return replace(context, current=self._found.get(row.id, CurrentMessage()), quoted=quoted)
        return context

    def _named(self, edit: Row) -> frozenset[str]:
        """The members that a message mentioned before this edit: the edit does not mention them anew."""
        post = self._posts.get(edit.target)
        if post is None:
            return frozenset()
        before = mentioned_before(self._group.view, self._read(post), self._annotations.get(post.id, ()), edit.position)
        return before | frozenset(self._post(post).mentions)

    def _quote(self, wanted: str) -> Quote | None:
        if not wanted:
            return None
        row, current = self._posts.get(wanted), self._found.get(wanted, CurrentMessage())
        if row is None:
            return Quote(id=wanted)
        hidden = current.deleted or row.author in self._group.trust.ignored
        text = "" if hidden else current.text if current.edited_at else self._post(row).text
        author = Author(row.author, self._names.get(row.author, ""))
        return Quote(id=wanted, author=author, text=text[:QUOTED_CHARS_MAX], deleted=current.deleted)


def materialise(group: Group, rows: Sequence[Row], annotations: Iterable[Row], names: Names) -> list[Event]:
    """Rows as events without a journal: `annotations` are all that exist for any of the messages."""
    page = _Page(group, rows, names)
    page.annotate(annotations)
    return page.events(replayed=True)


class MaterialisedMessages:
    """Messages of one journal. Every method except `topic` and `announced` raises what the journal raises."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._topics: dict[str, tuple[tuple[str, int], str]] = {}
        """By group: the checksum of its view and the time before which content has expired, and its topic."""
        self._announced: dict[str, tuple[str, dict[str, Announced]]] = {}
        """By group: the checksum of its view, and its members' announcements by DID."""

    def events(self, group: Group, rows: Sequence[Row], names: Names, *, replayed: bool = True) -> list[Event]:
        """Rows of the log as events, messages with their annotations."""
        bots = {did for did, one in self.announced(group).items() if one.announcement.bot}
        page = _Page(group, rows, names, bots)
        page.add(self.journal.events_by_id(group.id, page.missing()))
        page.annotate(self.journal.annotations(group.id, page.posts()))
        return page.events(replayed)

    def event(self, group: Group, row: Row, names: Names) -> Event:
        return self.events(group, [row], names)[0]

    def current(self, group: Group, post: Row) -> CurrentMessage:
        """A message with its annotations."""
        page = _Page(group, [post], {})
        return page.annotate(self.journal.annotations(group.id, page.posts())).get(post.id, CurrentMessage())

    # --- feed -------------------------------------------------------------------------------------------------------

    def feed(self, group: Group, rows: Sequence[Row], names: Names) -> Iterator[FeedEntry]:
        """Rows of one group in the order of delivery. A message that several rows change follows the last of them."""
        news = [row for row in rows if not row.history]
        events = dict(zip((row.id for row in news), self.events(group, news, names, replayed=False), strict=True))
        last = {
            row.target: row.id for row in rows if row.target not in ("", TOPIC, PINS, ANNOUNCE) and row.type != VERDICT
        }
        after: dict[str, list[tuple[Row, Event]]] = {}
        for row, event in self._current(group, last, names):
            # A message that is delivered later in this page is materialised already.
            if any(one.target == row.id and row.seq < one.seq for one in rows):
                after.setdefault(last[row.id], []).append((row, event))
        for row in rows:
            yield FeedEntry(row, events.get(row.id), tuple(after.get(row.id, ())))

    def changed_by(
        self, group: Group, change: EventsConfirmed | EventsRefuted | ValidityChanged, names: Names
    ) -> list[Event]:
        """The messages that changed because they or their annotations were confirmed or refuted, or became valid or
        invalid."""
        span = change.author, change.after, change.upto
        found = self.journal.annotated_posts(group.id, *span, AMENDED_MAX, refuted=isinstance(change, EventsRefuted))
        if isinstance(change, ValidityChanged):
            posts = (row.id for row in self._posts_in(change) if row.type == POST)
            found = [*dict.fromkeys((*posts, *found))]
        return [event for _, event in self._current(group, found, names)]

    def has_posts(self, change: ValidityChanged) -> bool:
        """Whether the range has events other than membership events."""
        return bool(self._posts_in(change))

    def _posts_in(self, change: ValidityChanged) -> list[Row]:
        span = change.author, change.after, change.upto
        rows = self.journal.chain_range(change.group, *span, 0, AMENDED_MAX)
        return [row for row in rows if row.type not in CONTROL]

    def _current(self, group: Group, ids: Iterable[str], names: Names) -> list[tuple[Row, Event]]:
        posts = [row for row in self.journal.events_by_id(group.id, ids) if row.type == POST]
        return list(zip(posts, self.events(group, posts, names), strict=True)) if posts else []

    # --- topic and announcements ------------------------------------------------------------------------------------

    def topic(self, group: Group) -> str:
        """The current topic of a group; empty where none is set or the journal cannot be read."""
        known, state = self._topics.get(group.id), (group.view.checksum, group.retention.erased_before)
        if known is None or known[0] != state:
            try:
                known = self._topics[group.id] = state, self._topic(group)
            except LocalError:
                return ""
        return known[1]

    def _topic(self, group: Group) -> str:
        found = self.journal.last_topics(group.id, topic_spans(group.view))
        topics = []
        for row in found:
            try:
                content = content_of(load_record(row))
            except Malformed:
                continue
            if isinstance(content, Topic) and row.lamport >= group.retention.erased_before:
                topics.append(((row.lamport, row.author, row.id), content.text))
        return max(topics)[1] if topics else ""

    def pins(self, group: Group) -> tuple[str, ...]:
        """The ids of the pinned messages of a group, the last pinned first."""
        found: list[tuple[tuple[int, str, str], tuple[str, ...]]] = []
        for row in self.journal.last_pins(group.id, topic_spans(group.view)):
            with suppress(Malformed):
                if isinstance(content := content_of(load_record(row)), Pins):
                    found.append(((row.lamport, row.author, row.id), content.targets))
        return max(found)[1] if found else ()

    def pinned(self, group: Group, names: Names) -> list[Event]:
        """The pinned messages that are here, neither deleted nor by ignored members, the last pinned first."""
        pins = self.pins(group)
        known = {row.id: event for row, event in self._current(group, pins, names)}
        return [known[id] for id in pins if id in known and not known[id].deleted and not known[id].ignored]

    def announced(self, group: Group) -> Mapping[str, Announced]:
        """The last announcement of each member, by DID; empty where the journal cannot be read."""
        known = self._announced.get(group.id)
        if known is None or known[0] != group.view.checksum:
            try:
                known = self._announced[group.id] = group.view.checksum, self._announcements(group)
            except LocalError:
                return {}
        return known[1]

    def _announcements(self, group: Group) -> dict[str, Announced]:
        found = self.journal.last_announcements(group.id, announcement_spans(group.view))
        latest: dict[str, Announced] = {}
        for row in sorted(found, key=lambda row: row.position):
            try:
                content = content_of(load_record(row))
            except Malformed:
                continue
            if isinstance(content, Announcement):
                latest[row.author] = Announced(content, row)
        return latest

    def note_stored(self, remembered: Iterable[JournalEffect]) -> None:
        """Drop cached topics and announcements that these journal effects change."""
        for one in remembered:
            anything = isinstance(one, RefuteEvents | DeleteLog)
            if anything or (isinstance(one, StoreEvent) and one.target == TOPIC):
                self._topics.pop(one.group, None)
            if anything or (isinstance(one, StoreEvent) and one.target == ANNOUNCE):
                self._announced.pop(one.group, None)
