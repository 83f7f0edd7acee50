"""Rows of the message pane, built from events, and the columns of the pane."""

import shlex
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import structs
from rich.cells import cell_len as cells

from zerochat.presentation.lookalikes import SUFFIX_CHARS
from zerochat.rpc import Attachment, Event, Quote, Reaction
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.messages.events import Subject, subject_of, text_of
from zerochat.tui.style.text import clip, day_text, display_time, name_of, time_cells, wrap

Key: TypeAlias = tuple[int, str, str]
"""(Lamport time, author DID, event id): the total order of the log."""

STACKED_BELOW = 44
"""Below this width the name gets its own line."""
TEXT_CELLS_MAX = 110
"""Maximum text width."""
WHOLE_CHARS_MAX = 1 << 18
"""Above the length of a sanitised 64 KiB post (a tab becomes four spaces)."""
MARGIN = 8
"""Width reserved for the mark behind the text: "✓12/24", "late", "relayed", "void"."""
QUOTE_CHARS_MAX = 160
"""Characters of a quoted text: one line."""
EMOJI_CELLS_MAX = 8
"""Width of one reaction; joined emoji count two cells per part."""
REACTIONS_SHOWN_MAX = 12
"""Distinct reactions shown below a post; the rest is counted."""
TIME_FORMAT = "%H:%M"
SUBJECT_CELLS = 12
"""Cells reserved for a name and its key suffix inside a notice, beside which a longer name is cut; less for a shorter
name."""
NAME_PLACES = tuple(map(chr, range(0xE000, 0xE020)))
"""Stand for names while a notice is laid out; no sanitised text has them."""


@dataclass(frozen=True, slots=True)
class QuotedMessage:
    """The quoted message of a reply. `author`: a DID; empty: not available."""

    id: str
    author: str = ""
    nick: Printable = Printable("")
    text: Printable = Printable("")
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class ReactionCount:
    """One emoji with the number of members who reacted with it; `mine`: including me."""

    emoji: Printable
    count: int
    mine: bool
    sign: str
    """The raw emoji, for removing the reaction."""


ChangeKind: TypeAlias = Literal["joined", "left", "renamed"]


@dataclass(frozen=True, slots=True)
class Change:
    """A foldable membership change."""

    kind: ChangeKind
    did: str
    names: tuple[Printable, ...]
    """One, or the old and the new one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One displayed event. `text`: a post's text, or the sentence after the name."""

    key: Key
    kind: Literal["post", "quiet"]
    author: str
    """DID of the author; never shown raw."""
    nick: Printable
    """The author's name at the time; a post shows the current name."""
    text: Printable
    day: str
    time: str
    truncation: Printable = Printable("")
    """Note below a truncated text."""
    own: bool = False
    late: bool = False
    relayed: bool = False
    """Relayed by another member and not confirmed by its author yet."""
    void: bool = False
    """Invalid: its author had lost the right to post."""
    position: int = 0
    delivered: int = 0
    of: int = 0
    local: bool = False
    """Not an event: a note of this screen."""
    line: int = 0
    """Line number of the response or notification with `delivered`; receipts with smaller numbers are included."""
    source: str = ""
    """A post's raw text; never shown."""
    quote: QuotedMessage | None = None
    """The quoted message of a reply."""
    action: bool = False
    """An action message (`/me`)."""
    edited: bool = False
    deleted: bool = False
    mention: bool = False
    """The message mentions me."""
    reactions: tuple[ReactionCount, ...] = ()
    files: tuple[Attachment, ...] = ()
    """Attached files."""
    change: Change | None = None
    """The membership change, where the row can be folded."""
    fold: int = 0
    """Number of rows folded into this one."""
    subjects: tuple[Subject, ...] = ()
    """The names inside a quiet row's text, in order."""
    at: datetime | None = None
    """The moment of `time`."""

    @property
    def has_mark(self) -> bool:
        """Whether the row has a mark behind its text."""
        return self.kind == "post" and (self.late or self.relayed or self.void or (self.own and self.of > 0))


@lru_cache(maxsize=4_096)
def _interned(text: str) -> str:
    """`text` as a shared object: thousands of rows have few distinct names and days."""
    return text


def _day(moment: datetime | None) -> str:
    return _interned(day_text(moment)) if moment else ""


def _time(moment: datetime | None) -> str:
    return _interned(f"{moment:%H:%M}") if moment else "--:--"


def in_time_zone(row: Row) -> Row:
    """The row with its time in the present local time zone."""
    moment = row.at.astimezone() if row.at is not None else None
    return replace(row, day=_day(moment), time=_time(moment), at=moment) if moment else row


def row_of(event: Event, line: int, group: str = "", me: str = "") -> Row | None:
    """The row of an event; None: unknown type, shown in another row, or of an ignored member. `group`: name for hints
    (empty: the id); `me`: my DID."""
    text = text_of(event)
    if text is None or event.ignored:
        return None
    group = shlex.quote(printable_line(group or event.group))
    post = event.type == "message"
    source = str(event.body.get("text", "")) if post and not event.deleted else ""
    text, cut = _truncated(text, source, group) if post else (text, Printable(""))
    moment = display_time(event.sent_at, event.received_at)
    author = _interned(event.author.did)
    return Row(
        key=(event.lamport, author, event.id),
        kind="post" if post else "quiet",
        author=author,
        nick=Printable(_interned(name_of(event.author_nick_then or event.author.nick))),
        text=text,
        truncation=cut,
        day=_day(moment),
        time=_time(moment),
        own=event.self,
        late=event.late,
        relayed=event.relayed_by is not None,
        void=event.void,
        position=event.position,
        delivered=event.delivery.delivered,
        of=event.delivery.of,
        line=line,
        source=source,
        quote=_quoted(event) if post and event.reply_to and not event.deleted else None,
        action=post and event.action,
        edited=bool(event.edited_at),
        deleted=event.deleted,
        mention=bool(me) and me in event.mentions and not event.self and not event.deleted,
        reactions=tuple(_reacted(reaction, me) for reaction in event.reactions if reaction.by),
        files=() if event.deleted else tuple(event.attachments),
        change=_change(event),
        subjects=() if post or (subject := subject_of(event)) is None else (subject,),
        at=moment,
    )


def _change(event: Event) -> Change | None:
    author = name_of(event.author_nick_then or event.author.nick)
    by_itself = event.body.get("did", event.author.did) == event.author.did
    match event.type:
        case "member_joined":
            who = author if by_itself else name_of(str(event.body.get("nick", "")))
            return Change("joined", str(event.body.get("did", event.author.did)), (who,))
        case "member_left" if by_itself:
            return Change("left", event.author.did, (author,))
        case "member_renamed":
            return Change("renamed", event.author.did, (author, name_of(str(event.body.get("nick", "")))))
    return None


def with_file(row: Row, file: Attachment) -> Row:
    """The row with the new state of a file, keeping the file's name in this message."""
    files = (
        structs.replace(file, name=entry.name, type=entry.type) if entry.id == file.id else entry for entry in row.files
    )
    return replace(row, files=tuple(files))


def quote_of(row: Row) -> QuotedMessage:
    """The quote of this post in its replies."""
    text = printable_line(row.source[:QUOTE_CHARS_MAX])
    return QuotedMessage(row.key[2], row.author, row.nick, text, row.deleted)


def _quoted(event: Event) -> QuotedMessage:
    quote = event.quoted or Quote(id=event.reply_to or "")
    if quote.author is None:
        return QuotedMessage(quote.id)
    text = printable_line("" if quote.deleted else quote.text[:QUOTE_CHARS_MAX])
    return QuotedMessage(quote.id, quote.author.did, name_of(quote.author.nick), text, quote.deleted)


def _reacted(reaction: Reaction, me: str) -> ReactionCount:
    shown = printable_line(reaction.emoji.strip(), EMOJI_CELLS_MAX) or Printable("?")
    return ReactionCount(shown, max(reaction.count, len(reaction.by)), bool(me) and me in reaction.by, reaction.emoji)


def _truncated(shown: Printable, text: str, group: str) -> tuple[Printable, Printable]:
    """The shown text without its ellipsis, and a sentence about the missing rest, empty if complete."""
    if not shown.endswith("…"):
        return shown, Printable("")
    whole = printable(text, lines_max=WHOLE_CHARS_MAX, chars_max=WHOLE_CHARS_MAX)
    if whole == shown:
        return shown, Printable("")
    kept = shown.removesuffix("…").removesuffix("\n")
    lines = whole.count("\n") - kept.count("\n")
    missing = f"{lines:,} more line{'s' * (lines != 1)}" if lines else f"{len(whole) - len(kept):,} more characters"
    return Printable(kept), Printable(f"… {missing}: zerochat history {group} --format jsonl shows all")


@dataclass(frozen=True, slots=True)
class Look:
    """The user's choices for the columns."""

    time_format: str = TIME_FORMAT
    nick_width: int = 0
    """The width of the names; 0: by the width of the pane."""


DEFAULT_LOOK = Look()


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns at a pane width: [time nick │] text [mark]; `stacked`: time and nick above the text."""

    width: int
    stacked: bool
    nick: int
    gutter: int
    time_format: str = TIME_FORMAT
    time_cells: int = 6
    """Cells of the time and the space after it."""

    @classmethod
    def of(cls, width: int, look: Look = DEFAULT_LOOK) -> "Columns":
        time = min(time_cells(look.time_format), width // 3)
        time += time > 0
        if width < STACKED_BELOW:
            return cls(width, True, max(width - 2 - time, 1), 2 if width > 20 else 0, look.time_format, time)
        nick = min(look.nick_width, width // 3) or max(6, min(14, width // 6))
        return cls(width, False, nick, time + nick + 3, look.time_format, time)

    def clock(self, row: Row) -> str:
        """The time of a row in its column."""
        if row.at is None or self.time_format == TIME_FORMAT:
            text = row.time
        else:
            text = row.at.strftime(self.time_format)
        shown = clip(text, self.time_cells - 1) if self.time_cells else ""
        return shown + " " * (self.time_cells - cells(shown))

    @property
    def text_width(self) -> int:
        """Width of a text, including the mark at the end of its last line."""
        return max(min(self.width - self.gutter, TEXT_CELLS_MAX), 4)

    def quiet_lines(self, row: Row) -> list[str]:
        """The lines of a notice row. A run of one of NAME_PLACES stands for each name, the author's first. Key suffix
        and warning sign have reserved cells, so that the height does not change with them."""
        width = self.text_width
        text, places = row.text, iter(NAME_PLACES)
        start, pieces = 0, []
        if not row.fold:
            pieces = [next(places) * min(cells(row.nick) + SUFFIX_CHARS + 2, width), " "]
        for subject in row.subjects:
            used = cells(subject.nick)
            room = min(max(used, min(used + SUFFIX_CHARS + 1, SUBJECT_CELLS)), width - 1)
            pieces += [text[start : subject.at], next(places) * room]
            start = subject.at + len(subject.nick)
        return wrap("".join([*pieces, text[start:]]), width) or [""]
