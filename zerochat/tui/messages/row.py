"""One event as the pane shows it, and how the pane's width is divided between its parts."""

import shlex
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import structs

from zerochat.rpc import Attachment, Event, Quote, Reaction
from zerochat.terminal_text import Printable, cells, printable, printable_line
from zerochat.tui.messages.events import text_of
from zerochat.tui.style.text import SUFFIX_CHARS, day_text, name_of, told_time, wrap

Key: TypeAlias = tuple[int, str, str]
"""(lamport, author's DID, id): the order that every member sees."""

STACKED_BELOW = 44
"""Narrower than this, the name gets a line of its own: beside it the text would be a column of single words."""
TEXT_CELLS_MAX = 110
"""Longer lines are hard to read, and would put the marks far from what they are about."""
WHOLE_CHARS_MAX = 1 << 18
"""More than a post of 64 KiB can become by being made printable (a tab is four spaces)."""
MARGIN = 8
"""Cells on the right of the last line of rows with a mark: "✓12/24", "late", "vouched", "void"."""
QUOTE_CHARS_MAX = 160
"""Of the text that a post answers: a line at the widest."""
EMOJI_CELLS_MAX = 8
"""Of one reaction; the longest emoji in use count as eight, each of their parts as two."""
REACTIONS_SHOWN_MAX = 12
"""Kinds of reactions below one post; of others the number is told."""


@dataclass(frozen=True, slots=True)
class Quoted:
    """What a post answers, as it is shown above it. `author`: a DID; empty: it is not here."""

    id: str
    author: str = ""
    nick: Printable = Printable("")
    text: Printable = Printable("")
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Reacted:
    """One emoji below a post, and how many have answered with it; `mine`: I am one of them."""

    emoji: Printable
    count: int
    mine: bool
    sign: str
    """The emoji as it came, to take it back with."""


ChangeKind: TypeAlias = Literal["joined", "left", "renamed"]


@dataclass(frozen=True, slots=True)
class Change:
    """That somebody came or went by itself, or has another name."""

    kind: ChangeKind
    did: str
    who: Printable


@dataclass(frozen=True, slots=True)
class Row:
    """One event as it is shown. `text` is a post's body, or what a quiet line says behind the name."""

    key: Key
    kind: Literal["post", "quiet"]
    author: str
    """The DID; never shown as it is."""
    nick: Printable
    """What the author was called; beside a post stands what it is called now."""
    text: Printable
    day: str
    time: str
    cut: Printable = Printable("")
    """What to say below a text that is not whole here."""
    own: bool = False
    late: bool = False
    vouched: bool = False
    """Somebody else has handed it over, and its author has not confirmed it yet."""
    void: bool = False
    """It does not count: its author could not write any more by then."""
    position: int = 0
    delivered: int = 0
    of: int = 0
    local: bool = False
    """No event: something that only this screen says."""
    line: int = 0
    """Number of the line from the agent that told `delivered`: receipts with a smaller one are in it already."""
    source: str = ""
    """A post's text as its author wrote it. Never shown."""
    quote: Quoted | None = None
    """What it answers."""
    action: bool = False
    """It says what its author does (`/me`)."""
    edited: bool = False
    deleted: bool = False
    mention: bool = False
    """It calls me by name."""
    reactions: tuple[Reacted, ...] = ()
    files: tuple[Attachment, ...] = ()
    """What came with it."""
    change: Change | None = None
    """What it tells, where lines of its kind may be folded into one (`folding.py`)."""
    fold: int = 0
    """It stands for so many rows."""

    @property
    def marked(self) -> bool:
        """Whether something stands in the right margin."""
        return self.kind == "post" and (self.late or self.vouched or self.void or (self.own and self.of > 0))


@lru_cache(maxsize=4_096)
def _once(text: str) -> str:
    """`text`, as one object however often it comes: thousands of rows have a few names and days between them."""
    return text


def row_of(event: Event, line: int, group: str = "", me: str = "") -> Row | None:
    """The row for an event of the group that is called so (empty: its id will do), where `me` is my DID; None for a
    type that this version does not know, or that is seen in another row."""
    text = text_of(event)
    if text is None:
        return None
    group = shlex.quote(printable_line(group or event.group))
    post = event.type == "message"
    source = str(event.body.get("text", "")) if post and not event.deleted else ""
    text, cut = _cut(text, source, group) if post else (text, Printable(""))
    moment = told_time(event.sent_at, event.received_at)
    author = _once(event.author.did)
    return Row(
        key=(event.lamport, author, event.id),
        kind="post" if post else "quiet",
        author=author,
        nick=Printable(_once(name_of(event.then or event.author.nick))),
        text=text,
        cut=cut,
        day=_once(day_text(moment)) if moment else "",
        time=_once(f"{moment:%H:%M}") if moment else "--:--",
        own=event.self,
        late=event.late,
        vouched=event.vouched is not None,
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
        reactions=tuple(_reacted(one, me) for one in event.reactions if one.by),
        files=() if event.deleted else tuple(event.attachments),
        change=_change(event),
    )


def _change(event: Event) -> Change | None:
    author = name_of(event.then or event.author.nick)
    by_itself = event.body.get("did", event.author.did) == event.author.did
    match event.type:
        case "member_joined":
            who = author if by_itself else name_of(str(event.body.get("nick", "")))
            return Change("joined", str(event.body.get("did", event.author.did)), who)
        case "member_left" if by_itself:
            return Change("left", event.author.did, author)
        case "member_renamed":
            return Change(
                "renamed", event.author.did, Printable(f"{author} → {name_of(str(event.body.get('nick', '')))}")
            )
    return None


def moved(row: Row, file: Attachment) -> Row:
    """The row with a file as it stands now, by the name that it has in this message."""
    files = (structs.replace(file, name=one.name, type=one.type) if one.id == file.id else one for one in row.files)
    return replace(row, files=tuple(files))


def quote_of(row: Row) -> Quoted:
    """How a post is quoted by those that answer it."""
    text = printable_line(row.source[:QUOTE_CHARS_MAX])
    return Quoted(row.key[2], row.author, row.nick, text, row.deleted)


def _quoted(event: Event) -> Quoted:
    quote = event.quoted or Quote(id=event.reply_to or "")
    if quote.author is None:
        return Quoted(quote.id)
    text = printable_line("" if quote.deleted else quote.text[:QUOTE_CHARS_MAX])
    return Quoted(quote.id, quote.author.did, name_of(quote.author.nick), text, quote.deleted)


def _reacted(one: Reaction, me: str) -> Reacted:
    shown = printable_line(one.emoji.strip(), EMOJI_CELLS_MAX) or Printable("?")
    return Reacted(shown, len(one.by), bool(me) and me in one.by, one.emoji)


def _cut(shown: Printable, text: str, group: str) -> tuple[Printable, Printable]:
    """What is shown of `text` without its bare ellipsis, and a sentence on how much is missing, empty if nothing is."""
    if not shown.endswith("…"):
        return shown, Printable("")  # Nearly all messages.
    whole = printable(text, lines_max=WHOLE_CHARS_MAX, chars_max=WHOLE_CHARS_MAX)
    if whole == shown:
        return shown, Printable("")
    kept = shown.removesuffix("…").removesuffix("\n")
    lines = whole.count("\n") - kept.count("\n")
    missing = f"{lines:,} more line{'s' * (lines != 1)}" if lines else f"{len(whole) - len(kept):,} more characters"
    return Printable(kept), Printable(f"… {missing}: zerochat history {group} --format jsonl has all")


@dataclass(frozen=True, slots=True)
class Columns:
    """How a pane of some width is divided: [time nick │] text [mark]; `stacked` puts time and nick above the text."""

    width: int
    stacked: bool
    nick: int
    gutter: int

    @classmethod
    def of(cls, width: int) -> "Columns":
        if width < STACKED_BELOW:
            return cls(width, True, max(width - 8, 1), 2 if width > 20 else 0)
        nick = max(6, min(14, width // 6))
        return cls(width, False, nick, 6 + nick + 3)

    @property
    def text_width(self) -> int:
        """Cells for a text; a mark, where there is one, has its place at the end of the last line of it."""
        return max(min(self.width - self.gutter, TEXT_CELLS_MAX), 4)

    def quiet_lines(self, row: Row) -> tuple[int, list[str]]:
        """The cells for the name in a quiet line, and what stands behind it, in lines. They leave room for the letters
        of a key and the sign that the name may get, so that its height does not change with them."""
        width = self.text_width
        if row.fold:
            return 0, wrap(row.text, width) or [""]
        name = min(cells(row.nick) + SUFFIX_CHARS + 2, width)
        first, *lines = wrap(f"{'x' * name} {row.text}", width)
        return name, [first[name:], *lines]
