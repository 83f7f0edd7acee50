"""Unread messages: derived from a durable read marker per group and the current messages.

The marker is a local number of the log (`Row.seq`): what arrived after it is unread. Unread messages are kept per group
and brought up to date with each new row of the log, so a request costs nothing that grows with the log.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.storage.read_markers import ReadMarker, load_marker, store_marker
from zerochat.agent.views.current_messages import MaterialisedMessages
from zerochat.agent.views.events import load_record
from zerochat.errors import LocalError, Malformed
from zerochat.group.effects import DeleteLog, JournalEffect, RefuteEvents
from zerochat.group.event_log.event import DELETE, EDIT, POST
from zerochat.group.membership import may_post
from zerochat.group.messages.bodies import Edit, Post, content_of
from zerochat.group.state import Group
from zerochat.rpc import ReadState
from zerochat.rpc.unread import UNREAD_MAX, Place

PAGE_ROWS: Final = 500
LAG_MAX: Final = 2_000
"""With more new rows than this, the groups are loaded anew, which reads only the unread rows."""


class _Unread(Struct):
    """The unread messages of one group."""

    marker: ReadMarker
    posts: dict[str, tuple[int, Place]] = field(default_factory=dict)
    """Unread messages by id, in order of arrival: local number and place."""
    mentions: dict[str, int] = field(default_factory=dict)
    """By id of the message that mentions me: the local number of the post or edit that did so."""
    reported: ReadState | None = None

    def state(self, group: str) -> ReadState:
        places = [place for _, place in self.posts.values()]
        read = self.marker.place
        fresh = [place for place in places if read is None or place > read]
        return ReadState(
            group=group,
            unread=len(places),
            mentions=len(self.mentions),
            first_unread=min(fresh or places, default=None),
            read_upto=read,
        )


class UnreadMessages:
    """The unread messages of one journal."""

    def __init__(self, messages: MaterialisedMessages) -> None:
        self._messages = messages
        self._groups: dict[str, _Unread] = {}
        self._changed: set[str] = set()
        """Groups whose state may differ from the reported one."""
        self._cursor = 0
        """The local number up to which the log has been read."""
        self._revision = -1

    @property
    def _journal(self) -> Journal:
        return self._messages.journal

    def state(self, groups: Mapping[str, Group], group: Group) -> ReadState:
        """What is unread in one of all `groups`; nothing where the journal cannot be read."""
        try:
            return self._of(groups, group).state(group.id)
        except LocalError:
            return ReadState(group=group.id)

    def mark_read(self, groups: Mapping[str, Group], group: Group, upto: int | None) -> ReadState:
        """Move the marker forward to a local number; None: to the end. Raises what the journal raises."""
        unread, latest = self._of(groups, group), self._journal.last_seq()
        upto = latest if upto is None else min(upto, latest)
        lags = upto - unread.marker.seq > LAG_MAX  # rows that do not count, such as those of ignored members
        if upto > unread.marker.seq and (unread.posts or unread.mentions or lags):
            moved = ReadMarker(upto, self._journal.last_place(group.id, upto) or unread.marker.place)
            store_marker(self._journal, group.id, moved)
            full = len(unread.posts) >= UNREAD_MAX
            unread.marker = moved
            unread.posts = {id: post for id, post in unread.posts.items() if post[0] > upto}
            unread.mentions = {id: seq for id, seq in unread.mentions.items() if seq > upto}
            if full:  # there may be more
                del self._groups[group.id]
            self._changed.add(group.id)
        return self.state(groups, group)

    def take_changes(self, groups: Mapping[str, Group]) -> list[ReadState]:
        """The states that differ from those of the last call. Raises what the journal raises."""
        self._read_new(groups)
        changed, self._changed = self._changed, set()
        found = []
        for name in changed & groups.keys():
            unread = self._of(groups, groups[name])
            if (state := unread.state(name)) != unread.reported:
                unread.reported = state
                found.append(state)
        return found

    def note_stored(self, stored: Iterable[JournalEffect]) -> None:
        """Drop what these journal effects make invalid."""
        for one in stored:
            if isinstance(one, RefuteEvents | DeleteLog):
                self.recount(one.group)

    def recount(self, group: str) -> None:
        """Events of this group became valid or invalid, or their content expired."""
        self._groups.pop(group, None)
        self._changed.add(group)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _of(self, groups: Mapping[str, Group], group: Group) -> _Unread:
        self._read_new(groups)
        unread = self._groups.get(group.id)
        if unread is None:
            unread = _Unread(load_marker(self._journal, group.id))
            cursor, page = unread.marker.seq, UNREAD_MAX
            while len(unread.posts) < UNREAD_MAX and page == UNREAD_MAX:
                rows = self._journal.unread_rows(group.id, cursor, group.me, UNREAD_MAX)
                self._apply(unread, group, rows)
                page, cursor = len(rows), rows[-1].seq if rows else cursor
            self._groups[group.id] = unread
        return unread

    def _read_new(self, groups: Mapping[str, Group]) -> None:
        """Read the rows of the log since the last call, for all groups: there is one cursor."""
        journal = self._journal
        if journal.revision == self._revision:
            return
        rows = journal.by_seq(self._cursor, PAGE_ROWS) if self._groups else []
        if not self._groups or len(rows) == PAGE_ROWS:
            latest = journal.last_seq()
            if not self._groups or latest - self._cursor > LAG_MAX:
                self._changed |= self._groups.keys()
                self._groups.clear()
                self._cursor, rows = latest, []
        while rows:
            by_group: dict[str, list[Row]] = {}
            for row in rows:
                by_group.setdefault(row.group, []).append(row)
            for name, found in by_group.items():
                self._changed.add(name)
                if name in groups and name in self._groups:
                    self._apply(self._groups[name], groups[name], found)
                else:
                    self._groups.pop(name, None)
            self._cursor = rows[-1].seq
            rows = journal.by_seq(self._cursor, PAGE_ROWS) if len(rows) == PAGE_ROWS else []
        self._revision = journal.revision

    def _apply(self, unread: _Unread, group: Group, rows: Iterable[Row]) -> None:
        """Count rows that arrived after the marker, unless their content has expired: the journal erases it in slices
        and may still have it."""
        annotated: dict[str, int] = {}
        for row in rows:
            if row.seq <= unread.marker.seq or row.history or row.lamport < group.retention.erased_before:
                continue
            if row.author == group.me:
                if row.type == POST and not (unread.posts or unread.mentions):
                    place = (row.lamport, row.author, row.id)
                    unread.marker = ReadMarker(row.seq, max(unread.marker.place or place, place))
            elif row.author in group.trust.ignored:
                continue
            elif row.type == POST and len(unread.posts) < UNREAD_MAX:
                if may_post(group.view, row.author, row.position) or group.view.known(row.author) is None:
                    unread.posts[row.id] = row.seq, (row.lamport, row.author, row.id)
                    if _mentions(row, group.me):
                        unread.mentions[row.id] = row.seq
            elif row.type in (EDIT, DELETE):
                annotated[row.target] = row.seq
        for target, seq in annotated.items():
            self._review(unread, group, target, seq)

    def _review(self, unread: _Unread, group: Group, target: str, seq: int) -> None:
        """A message was edited or deleted, last by the event with this local number."""
        post = self._journal.event(group.id, target)
        if post is None or post.type != POST or post.refuted or post.author == group.me:
            return
        if post.lamport < group.retention.erased_before:
            return
        current = self._messages.current(group, post)
        called = group.me in current.mentions if current.edited_at else _mentions(post, group.me)
        called = called and not current.deleted
        if current.deleted:
            unread.posts.pop(target, None)
        if not called:
            unread.mentions.pop(target, None)
        elif target not in unread.mentions and (target in unread.posts or not self._mentioned(unread, group, post)):
            unread.mentions[target] = seq

    def _mentioned(self, unread: _Unread, group: Group, post: Row) -> bool:
        """Whether the message mentioned me when it was read."""
        edits = self._journal.annotations(group.id, [(post.id, post.author)])
        read = [post, *(row for row in edits if row.type == EDIT and row.seq <= unread.marker.seq)]
        return any(_mentions(row, group.me) for row in read)


def _mentions(row: Row, did: str) -> bool:
    """Whether a message or an edit mentions this member. Records are canonical, so most need not be decoded."""
    if did.encode() not in row.record:
        return False
    try:
        content = content_of(load_record(row))
    except Malformed:
        return False
    return isinstance(content, Post | Edit) and did in content.mentions
