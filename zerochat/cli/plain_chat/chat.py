"""The session of the plain chat: parses input lines, sends messages and keeps the current group and the draft.

Events of other groups are printed too, prefixed with the group's name. The agent stores drafts, each chat its own; a
chat takes over those of chats that have ended.
"""

import secrets
import signal
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import AgentGone, AgentSilent, NoAgent
from zerochat.cli.agent_access import attached, paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import completeness, find_group
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.cli.plain_chat import commands
from zerochat.cli.plain_chat.input import Lines, NotText, TooLong
from zerochat.cli.plain_chat.printer import Printer
from zerochat.cli.plain_chat.subscription import DeferredOutput, Subscription
from zerochat.errors import LocalError
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.presentation import mediation
from zerochat.presentation.delivery import queued_sentence
from zerochat.presentation.group_kinds import signing_warning
from zerochat.presentation.name_list import NameList
from zerochat.rpc import GroupInfo
from zerochat.slash_commands import Command, Post, Refusal, parse
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached

START_EVENTS = 10
OWN_AGENT_S_MAX = 5.0
"""How long a temporary agent tries to deliver messages at the end."""


class Chat(Printer):
    """A session with one agent and one source of input."""

    def __init__(
        self,
        options: Options,
        out: Output,
        agent: "Attached",
        lines: Lines,
    ) -> None:
        super().__init__(out)
        self.options, self.lines = options, lines
        self._agent = agent
        self._attaching = Lock()
        self.drafts: dict[str, str] = {}
        """Drafts that are not in the input line, by group; `/draft` shows them."""
        self._sending = ""
        self._busy = True
        self._last_sent = ""
        self._names = NameList([])
        """The names of the other members of the current group."""
        self.code: int = ExitCode.OK
        self.over = False
        self.output = DeferredOutput(lambda: self._busy or bool(lines.begun()))
        self._draft_client = secrets.token_urlsafe(9)
        self.subscription = Subscription(
            paths_of(options),
            self.output,
            self._on_notification,
            self._draft,
            lambda: self.seq,
            self._draft_client,
            self._take_read,
            self._start_agent,
        )

    @property
    def client(self) -> Client:
        return self._agent.client

    # --- session ---------------------------------------------------------------------------------------------------

    def run(self) -> int:
        self.subscription.open()
        try:
            self._start()
            while not self.over and self.subscription.failure is None and self._read_input():
                pass
            self._wait_for_delivery()
        finally:
            # A second Ctrl+C, or a closed terminal, must not lose the draft.
            before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
            try:
                self._save_draft()
                self.subscription.stop()
                self.output.flush(now=True)
            finally:
                self._agent.close()  # may be another one than at the start
                for number, handler in before.items():
                    signal.signal(number, handler)
        if self.subscription.failure is not None:
            raise self.subscription.failure
        return self.code

    def _start(self) -> None:
        self.refresh()
        drafts = self.client.list_drafts(self._draft_client)
        for group, text in drafts.items():
            self.subscription.set_saved(group, text)
        self.drafts = {group: text for group, text in drafts.items() if group in self.groups}
        if self.options.group:
            self.switch(find_group(list(self.groups.values()), self.options.group).id)
        elif first := next((one.id for one in self.groups.values() if one.state == "active"), ""):
            self.switch(first)
        else:
            narrate("No groups yet. /new NAME creates one, /join INVITATION joins one.")
        if self.lines.terminal:
            narrate("Type /help for the commands. Press Ctrl+D to quit.")
        self._busy = False
        self.output.flush()

    def _read_input(self) -> bool:
        """Handle the next input; False at the end."""
        try:
            lines = self.lines.next()
        except TooLong:
            self._report_error("The line is too long. Not sent.")
            return True
        except NotText:
            self._report_error("The line is not UTF-8 text. Not sent.")
            return True
        if lines is None:
            return False
        is_post = len(lines) > 1 or isinstance(parse(lines[0], commands.OWN_COMMANDS), Post)
        self._busy, self._sending = True, "\n".join(lines) if is_post else ""
        try:
            self._handle(lines)
        except KeyboardInterrupt:
            if not self.lines.terminal:
                raise
            narrate("Cancelled.")
        finally:
            self._busy, self._sending = False, ""
            self.output.flush()
        return True

    def _handle(self, lines: list[str]) -> None:
        """Post a line or run a command; several pasted lines become a draft, not one message per line."""
        if len(lines) > 1:
            self.add_to_draft("\n".join(lines))
            narrate(
                f"{len(lines)} pasted lines were kept as a draft: /draft send sends them as one message, /draft drop"
                " deletes them."
            )
            return
        text, client = lines[0], self.client
        try:
            if self.stale:
                self.refresh()
            match parse(text, commands.OWN_COMMANDS):
                case Post(post, action):
                    self.send(post, action=action)
                case Command(name, argument):
                    commands.run(self, name, argument)
                case Refusal(sentence):
                    self._report_error(sentence)
                case None:
                    pass
        except (AgentGone, AgentSilent) as error:
            self._report_error(error.sentence(), error.exit_code)
            self._put_back(text)
            self._reconnect(client)
        except LocalError as error:
            self._report_error(error.sentence(), error.exit_code)
            self._put_back(text)

    def _put_back(self, text: str) -> None:
        """Put a message that could not be sent back into the input line. (A command is in the line history.)"""
        if isinstance(parse(text, commands.OWN_COMMANDS), Post):
            self.lines.put(printable_line(text))

    def _report_error(self, sentence: str, code: int = ExitCode.REFUSED) -> None:
        name = self.groups[self.group].name if self.group in self.groups else ""
        narrate(commands.in_slash_words(sentence, name))
        if not self.lines.terminal:
            self.code = code

    def _reconnect(self, lost: Client) -> None:
        """Attach to another agent, or start one, after the agent of the client `lost` is gone. Start none in the place
        of one that outlives its clients: the subscription does, if it does not come back."""
        try:
            if not (self._agent.own or self._agent.owner):
                connect(paths_of(self.options), "plain").close()
            self._attach(lost)
        except LocalError as error:
            narrate(error.sentence())

    def _start_agent(self) -> None:
        """Called in the subscription thread when no agent is running. Raises LocalError."""
        client = self.client
        if self._busy:  # a request of the other thread attaches again itself
            raise NoAgent(profile=self.options.profile)
        with suppress(NoAgent):
            connect(paths_of(self.options), "plain").close()
            return  # the other thread has started it meanwhile
        self._attach(client, prompt=False)

    def _attach(self, lost: Client, *, prompt: bool = True) -> None:
        with self._attaching:
            if self.client is lost:  # the other thread has not done it yet
                self._agent.close()
                self._agent = attached(self.options, "plain", prompt=prompt)

    def _wait_for_delivery(self) -> None:
        """Keep a temporary agent running for a moment, so that the last message is delivered."""
        if not self._agent.own or not self._last_sent:
            return
        group, event = self._last_sent.split()
        report = self.client.wait_for_delivery(group, event, timeout_s=OWN_AGENT_S_MAX)
        if not report.complete:
            narrate(
                f"Delivered to {report.delivered} of {report.of} members. It is queued for the others until an agent"
                " runs: `zerochat agent`, or the chat."
            )

    # --- groups ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        self.groups = {one.id: one for one in self.client.list_groups()}
        self.stale = False

    def switch(self, group: str) -> None:
        """Make this the current group."""
        if group != self.group:
            self._save_draft()
        self.group = group
        info = self.groups[group]
        members = self.client.list_members(group)
        for one in members:
            self.text_of(group).nick(one.did, one.nick)
        text = self.text_of(group)
        self._names = NameList([text.nick(one.did, one.nick) for one in members if one.connection != "self"])
        few = len(self._names) <= MEMBER_PAGE_MAX
        others = ", ".join(self._names) if few else f"{len(self._names):,} other members"
        who = f", with {others}" if others else ""
        notes = filter(None, (_completeness(info), signing_warning(info)))
        narrate(" ".join([f"Switched to {self.group_name(group)}{who}.", *notes]))
        self.history(START_EVENTS)
        self._note_unread(info)
        draft = self.drafts.get(group, "")
        if not draft:
            return
        if "\n" not in draft and self.lines.terminal:
            self.drafts.pop(group)
            narrate("Your draft is in the input line.")
            self.lines.put(printable_line(draft))
        else:
            count = draft.count("\n") + 1
            narrate(f"There is a draft of {count} line{'s' * (count > 1)}: /draft shows it, /draft send sends it.")

    def _note_unread(self, info: GroupInfo) -> None:
        """Report how many messages are unread, and mark them as read where a user sees the output."""
        if info.unread:
            plural = "s" * (info.unread != 1)
            narrate(f"{info.unread} unread message{plural}. /history N prints the last N.")
        elif info.mentions:
            narrate(f"{info.mentions} unread mention{'s' * (info.mentions != 1)}. /mentions lists them.")
        if (info.unread or info.mentions) and self.lines.terminal:
            self.client.mark_read(info.id)

    def _take_read(self) -> str:
        """The current group, if messages of it were printed on a terminal since the last call."""
        unmarked, self.unmarked = self.unmarked, False
        return self.group if unmarked and self.lines.terminal else ""

    def history(self, count: int, *, again: bool = False) -> None:
        """Print the last events; `again`: also those that were printed before."""
        for event in self.client.get_history(self.group, limit=count).events:
            if again:
                self.unmark_shown(event.id)
            self.show(event)

    def find(self, wanted: str) -> str:
        """The id of the group with this displayed name or a prefix of it. Raises UnknownGroup or AmbiguousGroup."""
        self.refresh()
        found = [one for one in self.groups if self.group_name(one).casefold().startswith(wanted.casefold())]
        return found[0] if len(found) == 1 else find_group(list(self.groups.values()), wanted).id

    def completions(self, line: str, word: str) -> list[str]:
        """The Tab completions of `word` at the end of `line`."""
        first = line == word
        if line.startswith("/") and not line.startswith("//"):
            if first:
                return [f"/{each} " for each in commands.names() if f"/{each}".startswith(word.lower())]
            if line.startswith("/switch "):
                names = [self.group_name(one) for one in self.groups]
                return [each for each in names if each.casefold().startswith(word.casefold())]
        at, typed = ("@", word[1:]) if word.startswith("@") else ("", word)
        found = self._names.starting(typed) if typed or at else []
        return [f"{at}{each}{': ' if first and not at else ' '}" for each in found]

    # --- writing ---------------------------------------------------------------------------------------------------

    def send(self, text: str, *, reply_to: str | None = None, action: bool = False) -> None:
        if not self.group:
            self._report_error("There is no current group. /new NAME creates one, /join INVITATION joins one.")
            return
        sent = self.client.send_message(self.group, text, reply_to=reply_to, action=action)
        self._last_sent = f"{sent.group} {sent.id}"
        if self.lines.terminal:  # the typed line is already visible
            self.mark_shown(sent.id)
        if sent.of and not self._connected(sent.group):
            narrate(self._why_queued(sent.of))

    def _why_queued(self, of: int) -> str:
        """Why a message for `of` other members is not sent now."""
        with suppress(LocalError):
            if why := mediation.why_nothing_sent(self.client.get_status()):
                return f"Queued. {why}"
        return queued_sentence(of)

    def _connected(self, group: str) -> bool:
        """Whether a member of the group is connected; True if the agent does not say: the message is sent already."""
        with suppress(LocalError):
            return any(one.id == group and one.connected for one in self.client.list_groups())
        return True

    def add_to_draft(self, text: str) -> None:
        """Append to the draft of the current group and save it."""
        before = self.drafts.get(self.group, "")
        self.drafts[self.group] = f"{before}\n{text}" if before else text
        self._sending = ""
        self._save_draft()

    def _draft(self) -> tuple[str, str]:
        """The current group and its draft: the stored one, the message being sent and the unfinished line."""
        parts = (self.drafts.get(self.group, ""), self._sending, self.lines.begun())
        return self.group, "\n".join(part for part in parts if part)

    def _save_draft(self) -> None:
        group, text = self._draft()
        if group:
            try:
                self.client.save_draft(group, text, self._draft_client)
                self.subscription.set_saved(group, text)
            except LocalError as error:
                if text:
                    narrate(f"Cannot save the draft: {error.sentence()}")

    # --- notifications ---------------------------------------------------------------------------------------------

    def _on_notification(self, item: Struct) -> None:
        """Called in the subscription thread."""
        self.output.add(lambda: self.print_notification(item))


def _completeness(info: GroupInfo) -> str:
    if info.state != "active":
        return "You are no longer a member."
    state = completeness(info)
    return f"{state[0].upper()}{state[1:]}." if state else ""
