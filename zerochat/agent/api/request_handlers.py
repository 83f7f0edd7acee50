"""Serves the requests of clients: each becomes a command for the core or a read of the journal and the state.

A method's handler is found in `handlers.HANDLERS`. A command gets a ticket, and its result answers the request after
the commit. Waiting requests are kept here: the core knows nothing of them.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from msgspec import Struct

from zerochat import rpc
from zerochat.agent.api import short_link_waits
from zerochat.agent.api.backup_copies import BackupCopies
from zerochat.agent.api.delivery_waits import DeliveryWaits
from zerochat.agent.api.handlers import HANDLERS
from zerochat.agent.api.handlers.context import TYPING_RECEIVED_S, AgentStopping, Context, Services
from zerochat.agent.api.results import Ticket, result_of
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.api.short_link_waits import ShortLinkWaits
from zerochat.agent.api.subscriptions.hub import Subscriptions
from zerochat.agent.api.subscriptions.live import FEED_ROWS
from zerochat.agent.api.subscriptions.store import SubscriptionRecords
from zerochat.agent.files.handlers import FileHandlers
from zerochat.agent.files.worker import FileWorker
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.views.current_messages import MaterialisedMessages
from zerochat.agent.views.groups import group_info
from zerochat.agent.views.notifications import merged_receipts, notification_of
from zerochat.agent.views.unread import UnreadMessages
from zerochat.errors import AmbiguousGroup, InternalFault, LocalError, NotAMember, ResultLost
from zerochat.group import notifications
from zerochat.group.effects import CommandDone, CommandFailed, Effect, InvitationCreated, JournalEffect, Posted
from zerochat.group.inputs import Command, CommandInput
from zerochat.group.links.contact import join_link
from zerochat.group.lookup import find_group
from zerochat.group.state import Agent
from zerochat.presentation import group_rules

_RECOUNTED = notifications.ValidityChanged | notifications.IgnoredChanged | notifications.ContentExpired
"""After these, the unread messages of a group are counted anew."""


class Removed(LocalError):
    """{sentence}"""

    exit_code = 8


class RequestHandlers(Services):
    """The pending requests of clients and the notifications for them. Owned by the agent loop."""

    def __init__(
        self,
        server: ControlServer,
        journal: Journal,
        status: Callable[[Agent], rpc.Status],
        shorten: Callable[[str, int], str] = lambda url, expires: "",
        files: FileWorker | None = None,
        paths: ProfilePaths | None = None,
        *,
        next_ticket: int = 1,
    ) -> None:
        """`files` and `paths` are None only in tests and simulations."""
        messages = MaterialisedMessages(journal)
        subscriptions = Subscriptions(server, journal, messages, self.names, _now_ms)
        handlers = FileHandlers(
            server, journal, files, messages, subscriptions, self.names, self._ticketed, self._refuse
        )
        super().__init__(
            server, journal, status, shorten, paths, messages, subscriptions, handlers,
            DeliveryWaits(server, journal, self.names), UnreadMessages(messages),
            BackupCopies(server, journal, self._refuse),
        )  # fmt: skip
        self._tickets: dict[int, Ticket] = {}
        self._next_ticket = next_ticket
        self.short_links = ShortLinkWaits()

    # --- requests ---------------------------------------------------------------------------------------------------

    def handle(self, call: Call, agent: Agent) -> CommandInput | None:
        """Answer a request, or return the command that it becomes. Internal errors are raised."""
        try:
            if not call.method.startswith(rpc.READING):  # a consumer that was taken over may still read
                self.subscriptions.consumers.require_current(call.client)
            reply = HANDLERS[call.method](Context(self, call, agent, call.params))
            if self.draining and isinstance(reply, Command):
                raise AgentStopping
        except LocalError as error:
            self._refuse(call, _with_group_ids(error, agent))
            return None
        except Exception:
            self.subscriptions.keys.refused(call, InternalFault(what=call.method))
            raise
        if isinstance(reply, Command):
            return self._ticketed(call, reply)
        if reply is not None:
            self.server.respond(call, reply)
        return None

    def _ticketed(self, call: Call, command: Command) -> CommandInput:
        ticket = self._next_ticket
        self._next_ticket += 1
        self._tickets[ticket] = (call, command)
        return CommandInput(ticket, command)

    def _refuse(self, call: Call, error: LocalError) -> None:
        self.server.refuse_error(call, error)
        self.subscriptions.keys.refused(call, error)

    # --- one batch --------------------------------------------------------------------------------------------------

    def prepare_commit(self, effects: Iterable[Effect], before: Agent, after: Agent) -> SubscriptionRecords:
        """What the commit of a batch writes for subscribers. Raises what the journal raises."""
        answered = [
            (self._tickets[effect.ticket][0], partial(self._result_or_none, effect, after))
            for effect in effects
            if isinstance(effect, CommandDone) and isinstance(effect.result, Posted) and effect.ticket in self._tickets
        ]
        return self.subscriptions.prepare_commit(effects, before, after, answered)

    def _result_or_none(self, done: CommandDone, agent: Agent) -> object:
        with suppress(LocalError):
            return result_of(self, *self._tickets[done.ticket], done, agent)
        return None

    def committed(self, records: SubscriptionRecords, stored: Iterable[JournalEffect]) -> None:
        """The batch is on disk."""
        self.subscriptions.committed(records)
        self.messages.note_stored(stored)
        self.unread.note_stored(stored)

    def complete(self, effect: CommandDone | CommandFailed, agent: Agent) -> None:
        """Answer the request whose command the core has carried out or refused. An internal error is answered and
        raised."""
        call, command = self._tickets.pop(effect.ticket)
        try:
            self._complete(call, command, effect, agent)
        except Exception:
            lost = ResultLost if isinstance(effect, CommandDone) else InternalFault
            self._refuse(call, lost(what=call.method))
            raise

    def _complete(self, call: Call, command: Command, effect: CommandDone | CommandFailed, agent: Agent) -> None:
        if isinstance(effect, CommandFailed):
            self.files.discard(command, agent)
            self._refuse(call, _explained(effect.error, command, agent))
            return
        done = effect.result
        if isinstance(done, InvitationCreated) and short_link_waits.is_pending(
            agent, link := join_link(done.invitation.id)
        ):
            self.short_links.add(call, link, partial(self._answer, call, command, effect), time.monotonic())
        else:
            self._answer(call, command, effect, agent)

    def _answer(self, call: Call, command: Command, done: CommandDone, agent: Agent) -> None:
        try:
            result = result_of(self, call, command, done, agent)
        except LocalError as error:
            self._refuse(call, error)
        else:
            self.server.respond(call, result)
            self.subscriptions.keys.answered(call, result)

    def fail(self, command_input: CommandInput, error: LocalError, agent: Agent) -> None:
        """Refuse the request of a command that could not be committed."""
        if command_input.ticket in self._tickets:
            call, command = self._tickets.pop(command_input.ticket)
            self.files.discard(command, agent)
            self._refuse(call, error)

    # --- periodic work ----------------------------------------------------------------------------------------------

    def take_file_posts(self) -> list[CommandInput]:
        """The messages whose files have been read and encrypted."""
        return self.files.take_posts()

    def review(self, agent: Agent) -> float | None:
        """Answer waiting requests that are due, and send progress of files; the next deadline on the monotonic
        clock."""
        now = time.monotonic()
        waits = self.waits, self.short_links, self.files, self.backups
        deadlines = [one.review(agent, now) for one in waits]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def begin_shutdown(self, within_s: float, agent: Agent) -> None:
        """Refuse commands from now on, and notify clients that the agent stops within this time; 0: now, so what has no
        answer is refused."""
        self.draining = True
        if not within_s:
            self.refuse_pending(agent)
        self.server.notify(self.server.clients, "stopping", rpc.StoppingNotification(within_s))

    def refuse_pending(self, agent: Agent) -> None:
        """Refuse what was not carried out, so that its client may repeat it elsewhere."""
        self.short_links.answer_all(agent)
        self.backups.drop()
        self.files.end()
        self.server.refuse_pending(AgentStopping())

    # --- notifications ----------------------------------------------------------------------------------------------

    def events_since(self, agent: Agent, seq: int) -> tuple[int, list[rpc.Event]]:
        """A page of the events after a local seq, and the seq up to which it goes."""
        rows = self.journal.by_seq(seq, FEED_ROWS)
        entries = self.subscriptions.live.entries(agent, rows)
        return (rows[-1].seq if rows else seq), [entry.event for entry in entries if entry.event is not None]

    def feed(self, agent: Agent) -> bool:
        """Send each subscriber its next events, as far as its backlog allows. True: there is more."""
        if self.subscriptions.feed(agent):
            return True
        live = self.subscriptions.live
        if live.listeners("read_changed", ""):
            with suppress(LocalError):  # the status reports it
                for state in self.unread.take_changes(agent.groups):
                    self.server.notify(live.listeners("read_changed", state.group), "read_changed", state)
        return False

    def notify(self, changes: Iterable[notifications.Notification], agent: Agent) -> None:
        """Send the core's notifications to their subscribers."""
        changes = list(changes)
        self.files.note_progress(changes)
        self.forget_names(agent.groups)
        for change in changes:
            if isinstance(change, _RECOUNTED):
                self.unread.recount(change.group)
        changes = [change for change in changes if self._is_shown(change, agent)]
        merged = merged_receipts(changes, agent)
        sent = [item for change in merged if (item := notification_of(change, agent, self.names)) is not None]
        self.joins |= {item.join: item for _, _, item in sent if isinstance(item, rpc.JoinStatus)}
        known = {one.id for one in agent.joins.values()}
        self.joins = {join: status for join, status in self.joins.items() if join in known}
        for method, group, params in (*sent, *self._changed_messages(changes, agent)):
            self._send(method, group, params)

    def _send(self, method: str, group: str, params: Struct) -> None:
        self.server.notify(self.subscriptions.listeners(method, group), method, params)

    def _is_shown(self, change: notifications.Notification, agent: Agent) -> bool:
        match change:
            case notifications.JoinProgress() | notifications.ViewChanged():
                return True
            case notifications.Typing(group, member):
                now = time.monotonic()
                shown = group in agent.groups and member not in agent.groups[group].trust.ignored
                return shown and self.indicators.allows(TYPING_RECEIVED_S, now, "received", group, member)
            case notifications.ValidityChanged(group):
                with suppress(LocalError):  # the status reports it
                    return group in agent.groups and self.messages.has_posts(change)
                return False
            case _:
                group = getattr(change, "group", "")
                return not group or group in agent.groups

    def _changed_messages(
        self, changes: Iterable[notifications.Notification], agent: Agent
    ) -> Iterator[tuple[str, str, rpc.MessageChanged]]:
        """The messages that changed because events were confirmed or refuted, or count differently."""
        for change in changes if self.subscriptions.listeners("message_changed", "") else ():
            if isinstance(
                change, notifications.EventsConfirmed | notifications.EventsRefuted | notifications.ValidityChanged
            ):
                group = agent.groups[change.group]
                with suppress(LocalError):  # the status reports it
                    for event in self.messages.changed_by(group, change, self.names(group)):
                        yield "message_changed", group.id, rpc.MessageChanged(event)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _with_group_ids(error: LocalError, agent: Agent) -> LocalError:
    """An AmbiguousGroup error with the ids of the groups."""
    if not isinstance(error, AmbiguousGroup):
        return error
    name = str(error.fields["group"])
    named = [group for group in agent.groups.values() if group.name == name]
    ids = [group.id for group in named if group.state != "left"] or [group.id for group in named]
    return AmbiguousGroup(group=name, ids=ids or [id_ for id_ in agent.groups if id_.startswith(name)])


def _explained(error: LocalError, command: Command, agent: Agent) -> LocalError:
    """Where the command failed because this profile was removed from the group: who removed it."""
    error = _with_group_ids(error, agent)
    name = getattr(command, "group", "")
    if not isinstance(error, NotAMember) or not name:
        return error
    group = find_group(agent, name)
    if not group.removed_by:
        return error
    removers = group_rules.removers_of(group_info(agent, group))
    return Removed(sentence=group_rules.removed_from(group.name, removers))
