"""Messages as they stand now, for the faces: what is said about them is read out of the journal, for a page at once.

What it comes to is worked out in the core (`group/messages/current.py`). Here is also what has to be told anew when something
is said about a message, or turns out not to have been said.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views import core_state
from zerochat.agent.views.core_state import Context
from zerochat.errors import LocalError, Malformed
from zerochat.group.effects import Forget, Refute, Remember, Remembered
from zerochat.group.event_log.event import ANNOUNCE, CONTROL, EDIT, POST, TOPIC, VERDICT
from zerochat.group.event_log.event import Event as Record
from zerochat.group.membership.bot_announcement import Announcement
from zerochat.group.messages.bodies import Post, Topic, saying_of
from zerochat.group.messages.current import Remark, Standing, announcement_spans, named_before, standing, topic_spans
from zerochat.group.notifications import Confirmed, Recounted, Refuted
from zerochat.group.state import Group
from zerochat.rpc import Author, Event, Quote

QUOTED_CHARS_MAX = 200
AMENDED_MAX = 500
"""Messages that are told anew because of one stretch of a chain."""

Names = Mapping[str, str]
"""What the members of a group are called, by DID."""


class Announced(Struct, frozen=True):
    """What a member has announced of itself, and the row that says so."""

    what: Announcement
    row: Row


class Fed(Struct, frozen=True):
    """A row of the log for whoever follows it."""

    row: Row
    event: Event | None
    """None: it is from before our time, and no news."""
    amended: tuple[tuple[Row, Event], ...] = ()
    """Messages that were there before, as they stand now because of it."""


class _Reading:
    """Rows of one group on their way to a face, with what they need to be shown; each record is read once."""

    def __init__(self, group: Group, rows: Sequence[Row], names: Names, bots: Collection[str] = ()) -> None:
        """`bots`: the DIDs of members that say that they are bots."""
        self._group, self._rows, self._names, self._bots = group, rows, names, bots
        self._records: dict[str, Record] = {}
        self._posts = {row.id: row for row in rows if row.type == POST}
        """Those that are shown, answered or edited."""
        self._found: dict[str, Standing] = {}
        self._remarks: dict[str, list[Remark]] = {}

    def _read(self, row: Row) -> Record:
        record = self._records.get(row.id)
        if record is None:
            record = self._records[row.id] = core_state.load(row)
        return record

    def _post(self, row: Row) -> Post:
        """What a message says; nothing where its author has put nonsense there."""
        try:
            said = saying_of(self._read(row))
        except Malformed:
            said = None
        return said if isinstance(said, Post) else Post("")

    def lacking(self) -> set[str]:
        """The ids of the messages that these rows answer, or edit, and that are not among them."""
        about = {row.target for row in self._rows if row.type == EDIT}
        return ({self._post(row).reply for row in self._posts.values()} | about) - self._posts.keys() - {""}

    def add(self, others: Iterable[Row]) -> None:
        """What was lacking, as far as it is here."""
        self._posts |= {row.id: row for row in others if row.type == POST}

    def posts(self) -> Iterator[tuple[str, str]]:
        """The messages of which is to be known how they stand, with their authors."""
        return ((row.id, row.author) for row in self._posts.values())

    def hear(self, remarks: Iterable[Row]) -> dict[str, Standing]:
        """All that is said about them; how those stand about which anything is, by their ids."""
        about = self._remarks = {}
        for row in remarks:
            if row.target in self._posts:
                about.setdefault(row.target, []).append(Remark(self._read(row), row.vouched))
        view, posts = self._group.view, self._posts
        self._found = {name: standing(view, self._read(posts[name]), said) for name, said in about.items()}
        return self._found

    def events(self, replayed: bool) -> list[Event]:
        return [core_state.event(self._group, row, replayed, self._names, self._context(row)) for row in self._rows]

    def _context(self, row: Row) -> Context:
        record, bot = self._read(row), row.author in self._bots
        if row.type == EDIT:
            return Context(self._found.get(row.target, Standing()), record=record, named=self._named(row), bot=bot)
        if row.type == POST:
            return Context(self._found.get(row.id, Standing()), self._quote(self._post(row).reply), record, bot=bot)
        return Context(record=record, bot=bot)

    def _named(self, edit: Row) -> frozenset[str]:
        """Whom a message called by name before this edit of it: it tells them nothing new."""
        post = self._posts.get(edit.target)
        if post is None:
            return frozenset()
        before = named_before(self._group.view, self._read(post), self._remarks.get(post.id, ()), edit.position)
        return before | frozenset(self._post(post).mentions)

    def _quote(self, wanted: str) -> Quote | None:
        if not wanted:
            return None
        row, stands = self._posts.get(wanted), self._found.get(wanted, Standing())
        if row is None:
            return Quote(id=wanted)
        text = "" if stands.deleted else stands.text if stands.edited else self._post(row).text
        author = Author(row.author, self._names.get(row.author, ""))
        return Quote(id=wanted, author=author, text=text[:QUOTED_CHARS_MAX], deleted=stands.deleted)


def shown(group: Group, rows: Sequence[Row], remarks: Iterable[Row], names: Names) -> list[Event]:
    """Rows for a face where nobody can be asked for others: `remarks` are all that is said about any message."""
    reading = _Reading(group, rows, names)
    reading.hear(remarks)
    return reading.events(replayed=True)


class Standings:
    """Answers of one journal. Every method but `topic` and `announced` raises what the journal raises."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._topics: dict[str, tuple[str, str]] = {}
        """By group: its view's checksum, and the topic that was found with it."""
        self._announced: dict[str, tuple[str, dict[str, Announced]]] = {}
        """The same of what its members announce of themselves, by DID."""

    def events(self, group: Group, rows: Sequence[Row], names: Names, *, replayed: bool = True) -> list[Event]:
        """Rows of the log for a face, messages as they stand now."""
        bots = {did for did, one in self.announced(group).items() if one.what.bot}
        reading = _Reading(group, rows, names, bots)
        reading.add(self.journal.named(group.id, reading.lacking()))
        reading.hear(self.journal.remarks(group.id, reading.posts()))
        return reading.events(replayed)

    def event(self, group: Group, row: Row, names: Names) -> Event:
        return self.events(group, [row], names)[0]

    def of(self, group: Group, post: Row) -> Standing:
        """How a message stands."""
        reading = _Reading(group, [post], {})
        return reading.hear(self.journal.remarks(group.id, reading.posts())).get(post.id, Standing())

    # --- news -------------------------------------------------------------------------------------------------------

    def feed(self, group: Group, rows: Sequence[Row], names: Names) -> Iterator[Fed]:
        """Rows of one group, in the order of delivery, for whoever follows the log. A message about which they say
        several things is told anew once, behind the last of them."""
        news = [row for row in rows if not row.history]
        events = dict(zip((row.id for row in news), self.events(group, news, names, replayed=False), strict=True))
        last = {row.target: row.id for row in rows if row.target not in ("", TOPIC, ANNOUNCE) and row.type != VERDICT}
        after: dict[str, list[tuple[Row, Event]]] = {}
        for row, event in self._told(group, last, names):
            # Whoever has read a message that came later than this has read it as it stands now.
            if any(one.target == row.id and row.seq < one.seq for one in rows):
                after.setdefault(last[row.id], []).append((row, event))
        for row in rows:
            yield Fed(row, events.get(row.id), tuple(after.get(row.id, ())))

    def settled(self, group: Group, notice: Confirmed | Refuted | Recounted, names: Names) -> list[Event]:
        """The messages that stand otherwise now, because what was said about them is confirmed, was never said, or
        counts otherwise; as they may themselves."""
        stretch = notice.author, notice.after, notice.upto
        found = self.journal.targets(group.id, *stretch, AMENDED_MAX, refuted=isinstance(notice, Refuted))
        if isinstance(notice, Recounted):
            posts = (row.id for row in self._said(notice) if row.type == POST)
            found = [*dict.fromkeys((*posts, *found))]
        return [event for _, event in self._told(group, found, names)]

    def says(self, notice: Recounted) -> bool:
        """Whether anything is here that was said there, and no membership event."""
        return bool(self._said(notice))

    def _said(self, notice: Recounted) -> list[Row]:
        stretch = notice.author, notice.after, notice.upto
        rows = self.journal.stretch(notice.group, *stretch, 0, AMENDED_MAX)
        return [row for row in rows if row.type not in CONTROL]

    def _told(self, group: Group, ids: Iterable[str], names: Names) -> list[tuple[Row, Event]]:
        posts = [row for row in self.journal.named(group.id, ids) if row.type == POST]
        return list(zip(posts, self.events(group, posts, names), strict=True)) if posts else []

    # --- what the group is about ------------------------------------------------------------------------------------

    def topic(self, group: Group) -> str:
        """What a group is about, as somebody has last said who may; empty: nobody has, or the disk does not say."""
        known = self._topics.get(group.id)
        if known is None or known[0] != group.view.checksum:
            try:
                known = self._topics[group.id] = group.view.checksum, self._topic(group)
            except LocalError:
                return ""
        return known[1]

    def _topic(self, group: Group) -> str:
        found = self.journal.topics(group.id, topic_spans(group.view))
        said = []
        for row in found:
            try:
                what = saying_of(core_state.load(row))
            except Malformed:
                continue
            if isinstance(what, Topic):
                said.append(((row.lamport, row.author, row.id), what.text))
        return max(said)[1] if said else ""

    # --- what members say of themselves -----------------------------------------------------------------------------

    def announced(self, group: Group) -> Mapping[str, Announced]:
        """What each member has announced of itself last, by DID; nothing where the disk does not say."""
        known = self._announced.get(group.id)
        if known is None or known[0] != group.view.checksum:
            try:
                known = self._announced[group.id] = group.view.checksum, self._announcements(group)
            except LocalError:
                return {}
        return known[1]

    def _announcements(self, group: Group) -> dict[str, Announced]:
        found = self.journal.announcements(group.id, announcement_spans(group.view))
        said: dict[str, Announced] = {}
        for row in sorted(found, key=lambda row: row.position):
            try:
                what = saying_of(core_state.load(row))
            except Malformed:
                continue
            if isinstance(what, Announcement):
                said[row.author] = Announced(what, row)
        return said

    def note(self, remembered: Iterable[Remembered]) -> None:
        """The journal has taken this."""
        for one in remembered:
            anything = isinstance(one, Refute | Forget)
            if anything or (isinstance(one, Remember) and one.target == TOPIC):
                self._topics.pop(one.group, None)
            if anything or (isinstance(one, Remember) and one.target == ANNOUNCE):
                self._announced.pop(one.group, None)
