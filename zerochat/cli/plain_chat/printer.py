"""What is printed of what comes: one line for each thing that is said or has happened, with the name of its group where
that is not the open one."""

from datetime import datetime

from msgspec import Struct

from zerochat.cli.output import EventText, Output, name_of, narrate, near_time
from zerochat.names import told_apart
from zerochat.presentation import delivery, tlog
from zerochat.presentation.group_rules import put_out
from zerochat.rpc import (
    CompleteNews,
    ConfirmedNews,
    DiffersNews,
    DisagreementNews,
    EarlierNews,
    Event,
    ForkNews,
    GapNews,
    GroupInfo,
    InvitationNews,
    LogKeptNews,
    LogSplitNews,
    LogStalledNews,
    RecountedNews,
    RefutedNews,
    RemovedNews,
    RequestNews,
    ToldNews,
)
from zerochat.terminal_text import printable, printable_line

SHOWN_MAX = 1_000
"""Ids of events that were printed, so that none is printed twice."""


class Teller:
    """Prints, and remembers what it has printed."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.groups: dict[str, GroupInfo] = {}
        self.group = ""
        """The id of the one that lines go to; empty: there is none."""
        self.seq: int | None = None
        """The local number of the last event that has come."""
        self.stale = False
        """Something was said of a group that is not known here."""
        self._texts: dict[str, EventText] = {}
        self._shown: dict[str, None] = {}

    def seen(self, event: str) -> None:
        """It need not be printed any more."""
        self._shown[event] = None
        while len(self._shown) > SHOWN_MAX:
            del self._shown[next(iter(self._shown))]

    def unseen(self, event: str) -> None:
        self._shown.pop(event, None)

    def tell(self, item: Struct) -> None:
        match item:
            case Event():
                self.seq = max(self.seq or 0, item.seq)
                self.show(item)
            case RequestNews(group=group, nick=nick, state="asked"):
                narrate(f"{self._where(group)}{name_of(nick)} asks to be let in: /requests, /admit NAME, /refuse NAME.")
            case InvitationNews(group=group, nick=nick):
                narrate(f"{self._where(group)}{name_of(nick)} used your invitation.")
            case DisagreementNews(group=group, text=text):
                narrate(f"{self._where(group)}Careful: {printable_line(text)}")
            case RemovedNews(group=group, nick=nick, voters=voters):
                self.stale = True
                by = [name_of(one) for one in voters or [nick]]
                narrate(put_out(self.called(group) if group in self.groups else "a group", by))
            case ToldNews(label=label, text=text):
                narrate(f"{name_of(label)} tells you: {printable(text)}")
            case LogKeptNews() | LogStalledNews() | LogSplitNews() as of_log:
                if not (isinstance(of_log, LogKeptNews) and of_log.operator):  # its line is there
                    narrate(self._where(of_log.group) + tlog.news(of_log, name_of, near_time))
            case (
                GapNews()
                | ForkNews()
                | CompleteNews()
                | ConfirmedNews()
                | RefutedNews()
                | RecountedNews()
                | DiffersNews()
                | EarlierNews() as news
            ):
                narrate(self._where(news.group) + delivery.news(news, name_of, near_time))

    def called(self, group: str) -> str:
        """The name of a group that is known here, with the first letters of its id where another has the same name."""
        names = {one.id: name_of(one.name) for one in self.groups.values()}
        mark = told_apart(names).get(group, "")
        return f"{names[group]}·{mark}" if mark else names[group]

    def _where(self, group: str) -> str:
        """The name of a group that is not open, before what is said of it."""
        known = group in self.groups
        self.stale = self.stale or not known
        return "" if group == self.group else f"[{self.called(group) if known else 'a new group'}] "

    def show(self, event: Event) -> None:
        if event.id in self._shown:
            return
        self.seen(event.id)
        where, text = self._where(event.group), self._texts.setdefault(event.group, EventText())
        lines = text.lines(event)
        self.out.data(event, [where + short(lines[0]), *lines[1:]] if lines else [])


def short(line: str) -> str:
    """A line of `EventText` with the time of today alone, and one space behind it."""
    day, _, rest = line.partition(" ")
    clock, _, words = rest.partition("  ")
    return f"{clock if day == datetime.now().astimezone().strftime('%Y-%m-%d') else f'{day} {clock}'} {words}"
