"""Prints notifications in the plain chat, one line each, with the name of the group if it is not the current one."""

import time
from datetime import datetime

from msgspec import Struct

from zerochat.cli.event_text import EventText
from zerochat.cli.formatting import name_of, near_time
from zerochat.cli.output import Output, narrate
from zerochat.names import ambiguous_prefixes
from zerochat.presentation import delivery, private, tlog
from zerochat.presentation.external import text_of
from zerochat.presentation.group_rules import removed_from, your_invitation
from zerochat.presentation.lookalikes import skeleton
from zerochat.rpc import (
    BackfillNotification,
    ChainDifferenceNotification,
    CompleteNotification,
    ConfirmedNotification,
    ConnectionMessageNotification,
    ConversationMovedNotification,
    Event,
    ForkNotification,
    GapNotification,
    GroupInfo,
    InvitationNotification,
    JoinRequestNotification,
    MessageSettledNotification,
    PrivateInvitationNotification,
    RefutedNotification,
    RemovedNotification,
    TlogSplitNotification,
    TlogStalledNotification,
    TlogTermsNotification,
    ValidityNotification,
    WarningNotification,
)
from zerochat.terminal_text import printable, printable_line

SHOWN_MAX = 1_000
"""Maximum number of remembered event ids, which prevent printing an event twice."""


class Printer:
    """Prints notifications and remembers which events were printed."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.groups: dict[str, GroupInfo] = {}
        self.group = ""
        """The id of the current group; empty if there is none."""
        self.seq: int | None = None
        """The local number of the last event received."""
        self.unmarked = False
        """Whether messages of the current group were printed and are not marked as read."""
        self.stale = False
        """Whether `groups` is outdated."""
        self._texts: dict[str, EventText] = {}
        self._shown: dict[str, None] = {}

    def mark_shown(self, event: str) -> None:
        self._shown[event] = None
        while len(self._shown) > SHOWN_MAX:
            del self._shown[next(iter(self._shown))]

    def unmark_shown(self, event: str) -> None:
        self._shown.pop(event, None)

    def print_notification(self, item: Struct) -> None:
        match item:
            case Event():
                self.seq = max(self.seq or 0, item.seq)
                self.show(item)
                self.unmarked = self.unmarked or (item.group == self.group and not item.self)
            case JoinRequestNotification(group=group, member=did, nick=nick, state="asked"):
                who = self.text_of(group).nick(did, nick)
                narrate(f"{self._prefix(group)}{who} asks to join: /requests, /admit NAME, /refuse NAME.")
            case PrivateInvitationNotification(group=group, nick=nick, state="asked"):
                sentence = private.invited_sentence([name_of(nick)])
                narrate(f"{self._prefix(group)}{sentence} /accept NAME or /decline NAME.")
            case ConversationMovedNotification(group=group, former=former):
                self.stale = True
                if former == self.group:
                    narrate("The other member has begun a conversation too; yours is part of it now. /switch opens it.")
            case InvitationNotification(group=group, nick=nick, name=name):
                narrate(f"{self._prefix(group)}{name_of(nick)} used {your_invitation(name)}.")
            case WarningNotification(group=group, text=text):
                narrate(f"{self._prefix(group)}Warning: {printable_line(text)}")
            case RemovedNotification(group=group, nick=nick, voters=voters):
                self.stale = True
                by = [name_of(one) for one in voters or [nick]]
                narrate(removed_from(self.group_name(group) if group in self.groups else "a group", by))
            case ConnectionMessageNotification(label=label) as message:
                narrate(f"Message from {name_of(label)}: " + printable(text_of(message)).replace("\n", "\n    "))
            case MessageSettledNotification(label=label, status="failed"):
                narrate(f"A message to {name_of(label)} could not be delivered.")
            case TlogTermsNotification() | TlogStalledNotification() | TlogSplitNotification() as tlog_news:
                if not (isinstance(tlog_news, TlogTermsNotification) and tlog_news.operator):  # printed as an event
                    narrate(self._prefix(tlog_news.group) + tlog.notification_sentence(tlog_news, name_of, near_time))
            case (
                GapNotification()
                | ForkNotification()
                | CompleteNotification()
                | ConfirmedNotification()
                | RefutedNotification()
                | ValidityNotification()
                | ChainDifferenceNotification()
                | BackfillNotification() as news
            ):
                narrate(self._prefix(news.group) + delivery.notification_sentence(news, name_of, near_time))

    def group_name(self, group: str) -> str:
        """The name of a known group, with a prefix of its id if the name is ambiguous."""
        names = {one.id: name_of(one.name) for one in self.groups.values()}
        mark = ambiguous_prefixes(names, skeleton).get(group, "")
        return f"{names[group]}·{mark}" if mark else names[group]

    def text_of(self, group: str) -> EventText:
        return self._texts.setdefault(group, EventText())

    def _prefix(self, group: str) -> str:
        """The name of the group as a prefix; empty for the current group."""
        known = group in self.groups
        self.stale = self.stale or not known
        return "" if group == self.group else f"[{self.group_name(group) if known else 'a new group'}] "

    def show(self, event: Event) -> None:
        if event.id in self._shown:
            return
        self.mark_shown(event.id)
        time.tzset()  # the time zone of the system may have changed since the chat began
        prefix, lines = self._prefix(event.group), self.text_of(event.group).lines(event)
        self.out.data(event, [prefix + short(lines[0]), *lines[1:]] if lines else [])


def short(line: str) -> str:
    """A line of `EventText` with its time shortened if it is today."""
    day, _, rest = line.partition(" ")
    clock, _, words = rest.partition("  ")
    return f"{clock if day == datetime.now().astimezone().strftime('%Y-%m-%d') else f'{day} {clock}'} {words}"
