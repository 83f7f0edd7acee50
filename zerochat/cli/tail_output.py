"""What `tail` prints: events, and the notifications of a group, as JSON or as sentences on standard error."""

import time
from typing import Final

from msgspec import Struct

from zerochat.cli.event_text import EventText
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import name_of, near_time, quoted, removed_sentence
from zerochat.cli.output import Output, narrate
from zerochat.presentation import delivery
from zerochat.rpc import (
    BackfillNotification,
    ChainDifferenceNotification,
    CompleteNotification,
    ConfirmedNotification,
    Event,
    ForkNotification,
    GapNotification,
    GroupInfo,
    JoinRequestNotification,
    LateNotification,
    MessageChanged,
    RefutedNotification,
    RemovedNotification,
    StoppingNotification,
    ValidityNotification,
    WarningNotification,
)
from zerochat.terminal_text import printable_line

DRAIN_S: Final = 0.5
"""How long `tail` keeps reading after this profile has left the group."""


class TailOutput:
    """Prints what a subscription to one group brings."""

    def __init__(self, out: Output, group: str) -> None:
        self.text = EventText()
        self.left = False
        """This profile has left the group, or was removed from it."""
        self._out, self._group = out, group

    def begin(self, info: GroupInfo) -> None:
        self.left = self.left or info.state != "active"

    def end(self, info: GroupInfo) -> ExitCode:
        """Report why nothing more can come."""
        narrate(f"You have left {name_of(info.name)}." if info.removed_by is None else removed_sentence(info))
        return ExitCode.REMOVED

    def show_event(self, event: Event, printed: Struct | None = None) -> None:
        """Print an event; `printed`: what represents it in JSON, if not itself."""
        self._out.data(printed or event, self.text.lines(event))
        if event.type == "member_left" and event.self and not event.replayed:
            self.left = self.left or event.body.get("did") == event.author.did

    def show(self, params: Struct, *, json: bool = True) -> None:
        """Print a notification other than an event; without `json`, only as text."""
        time.tzset()  # the time zone of the system may have changed since the command began
        json = json and self._out.jsonl
        match params:
            case MessageChanged(event):
                self.text.remember(event)
                if json:
                    changed = {"type": "message_changed", "group": event.group, "id": event.id, "event": event}
                    self._out.data(changed, ())
            case StoppingNotification(within_s=seconds):
                if json:
                    self._out.data({"type": "stopping", "within_s": seconds}, ())
                narrate("The agent is stopping.")
            case RemovedNotification():
                self.left = True
            case JoinRequestNotification(member=did, nick=nick, state="asked"):
                narrate(f"{self.text.nick(did, nick)} asks to join: see `zerochat requests {quoted(self._group)}`.")
            case WarningNotification():
                narrate(f"Warning: {printable_line(params.text)}")
            case (
                GapNotification()
                | LateNotification()
                | ForkNotification()
                | CompleteNotification()
                | ConfirmedNotification()
                | RefutedNotification()
                | ValidityNotification()
                | ChainDifferenceNotification()
                | BackfillNotification() as notification
            ):
                if json:
                    self._out.data(notification, ())
                elif not self._out.jsonl and not isinstance(notification, LateNotification):  # its event line shows it
                    narrate(delivery.notification_sentence(notification, name_of, near_time))
