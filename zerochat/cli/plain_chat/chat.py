"""The conversation as lines: what a line means, which group it goes to, and how all of it ends.

What is said elsewhere is printed too, with the name of its group before it; nothing else would show that it is there.
A text that was begun and not sent is kept by the agent, as in the chat with a screen, and each finds what the other
has.
"""

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from zerochat.agent.api.client import AgentGone, AgentSilent, Client
from zerochat.cli.agents import attached, places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, find_group, name_of, narrate, whole
from zerochat.cli.parser import Options
from zerochat.cli.plain_chat import commands
from zerochat.cli.plain_chat.input import Lines, NoText, TooLong
from zerochat.cli.plain_chat.printer import Teller
from zerochat.cli.plain_chat.subscription import Ear, Voice
from zerochat.errors import LocalError
from zerochat.presentation.group_rules import signing
from zerochat.rpc import GroupInfo
from zerochat.slash_commands import Command, Refusal, Say, parse
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached

START_EVENTS = 10
OWN_AGENT_S_MAX = 5.0
"""How long an agent that lives only for this tries at the end to hand over what was said."""


class Chat(Teller):
    """One conversation at a time, over one agent, with one person or one pipe."""

    def __init__(
        self,
        options: Options,
        out: Output,
        agent: "Attached",
        lines: Lines,
        run_verb: Callable[[Options, Output], int],
    ) -> None:
        super().__init__(out)
        self.run_verb = run_verb
        self.options, self.lines = options, lines
        self._agent = agent
        self.aside: dict[str, str] = {}
        """Drafts that are no single line, by group; `/draft` has them."""
        self._sending = ""
        self._doing = True
        self._last_sent = ""
        self._names: list[str] = []
        """What the others in the open group are called."""
        self.code: int = ExitCode.OK
        self.over = False
        self.voice = Voice(lambda: self._doing or bool(lines.begun()))
        self.ear = Ear(places_of(options), self.voice, self._heard, self._begun, lambda: self.seq)

    @property
    def client(self) -> Client:
        return self._agent.client

    # --- from the beginning to the end -----------------------------------------------------------------------------

    def run(self) -> int:
        self.ear.listen()
        try:
            self._begin()
            while not self.over and self._one():
                pass
            self._hand_over()
        finally:
            # A second Ctrl+C, or the end of the terminal, must not cost the draft.
            before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGHUP)}
            try:
                self._keep()
                self.ear.stop()
                self.voice.flush(now=True)
            finally:
                for one, handler in before.items():
                    signal.signal(one, handler)
        return self.code

    def _begin(self) -> None:
        self.refresh()
        drafts = self.client.drafts()
        for group, text in drafts.items():
            self.ear.kept(group, text)
        self.aside = {group: text for group, text in drafts.items() if group in self.groups}
        if self.options.group:
            self.go(find_group(list(self.groups.values()), self.options.group).id)
        elif first := next((one.id for one in self.groups.values() if one.state == "active"), ""):
            self.go(first)
        else:
            narrate("No groups yet. /new NAME creates one, /join INVITATION joins one.")
        if self.lines.terminal:
            narrate("A line that begins with / is a command: /help lists them. Ctrl+D ends this.")
        self._doing = False
        self.voice.flush()

    def _one(self) -> bool:
        """Take what comes next; False: there is no more."""
        try:
            lines = self.lines.next()
        except TooLong:
            self._refused("That line is too long, and was not sent.")
            return True
        except NoText:
            self._refused("That line is not UTF-8 text, and was not sent.")
            return True
        if lines is None:
            return False
        words = len(lines) > 1 or isinstance(parse(lines[0], commands.MORE), Say)
        self._doing, self._sending = True, "\n".join(lines) if words else ""
        try:
            self._take(lines)
        except KeyboardInterrupt:
            if not self.lines.terminal:
                raise
            narrate("Given up.")
        finally:
            self._doing, self._sending = False, ""
            self.voice.flush()
        return True

    def _take(self, lines: list[str]) -> None:
        """Several lines at once were pasted: they are no message of a line each."""
        if len(lines) > 1:
            self.put_aside("\n".join(lines))
            narrate(
                f"{len(lines)} lines came at once, and were not sent: /draft send sends them as one message,"
                " /draft drop forgets them."
            )
            return
        text = lines[0]
        try:
            if self.stale:
                self.refresh()
            match parse(text, commands.MORE):
                case Say(words):
                    self.say(words)
                case Command(name, rest):
                    commands.do(self, name, rest)
                case Refusal(sentence):
                    self._refused(sentence)
                case None:
                    pass
        except (AgentGone, AgentSilent) as error:
            self._refused(error.sentence(), error.exit_code)
            self._put_back(text)
            self._again()
        except LocalError as error:
            self._refused(error.sentence(), error.exit_code)
            self._put_back(text)

    def _put_back(self, text: str) -> None:
        """A message that was refused comes back into the line that can be edited. A command is in the history."""
        if isinstance(parse(text, commands.MORE), Say):
            self.lines.put(printable_line(text))

    def _refused(self, sentence: str, code: int = ExitCode.REFUSED) -> None:
        narrate(sentence)
        if not self.lines.terminal:
            self.code = code

    def _again(self) -> None:
        """The agent is gone: reach the next one, or start one."""
        try:
            self._agent.close()
            self._agent = attached(self.options, "plain")
        except LocalError as error:
            narrate(error.sentence())

    def _hand_over(self) -> None:
        """What was accepted is on disk; an agent of our own stays for a moment, so that it also gets to the others."""
        if not self._agent.own or not self._last_sent:
            return
        group, event = self._last_sent.split()
        report = self.client.wait(group, event, timeout_s=OWN_AGENT_S_MAX)
        if not report.complete:
            narrate(
                f"Delivered to {report.delivered} of {report.of}. The rest is queued, and goes out when an agent runs:"
                " `zerochat agent`, or the chat."
            )

    # --- groups ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        self.groups = {one.id: one for one in self.client.groups()}
        self.stale = False

    def go(self, group: str) -> None:
        """Lines go there from now on."""
        if group != self.group:
            self._keep()
        self.group = group
        info = self.groups[group]
        self._names = [name_of(one.nick) for one in self.client.members(group) if one.connection != "self"]
        who = f", with {', '.join(self._names)}" if self._names else ""
        narrate(" ".join([f"Now in {self.called(group)}{who}.", *filter(None, (_complete(info), signing(info)))]))
        self.history(START_EVENTS)
        draft = self.aside.get(group, "")
        if not draft:
            return
        if "\n" not in draft and self.lines.terminal:
            self.aside.pop(group)
            narrate("What you had begun here stands in your line.")
            self.lines.put(printable_line(draft))
        else:
            count = draft.count("\n") + 1
            narrate(f"A draft of {count} line{'s' * (count > 1)} waits here: /draft shows it, /draft send sends it.")

    def history(self, count: int, *, again: bool = False) -> None:
        """Print the last events; `again`: those too that were printed before."""
        for event in self.client.history(self.group, limit=count).events:
            if again:
                self.unseen(event.id)
            self.show(event)

    def meant(self, wanted: str) -> str:
        """The id of the group that somebody means by a name as it is shown, or by its beginning. Raises UnknownGroup or
        AmbiguousGroup."""
        self.refresh()
        found = [one for one in self.groups if self.called(one).casefold().startswith(wanted.casefold())]
        return found[0] if len(found) == 1 else find_group(list(self.groups.values()), wanted).id

    def words(self, line: str, word: str) -> list[str]:
        """What `word`, at the end of `line`, can become with Tab."""
        first = line == word
        if line.startswith("/") and not line.startswith("//"):
            if first:
                return [f"/{each} " for each in commands.known() if f"/{each}".startswith(word.lower())]
            if line.startswith("/switch "):
                names = [self.called(one) for one in self.groups]
                return [each for each in names if each.casefold().startswith(word.casefold())]
        at, typed = ("@", word[1:]) if word.startswith("@") else ("", word)
        found = [each for each in self._names if each.casefold().startswith(typed.casefold()) and (typed or at)]
        return [f"{at}{each}{': ' if first and not at else ' '}" for each in found]

    # --- writing ---------------------------------------------------------------------------------------------------

    def say(self, text: str, *, reply_to: str | None = None, action: bool = False) -> None:
        if not self.group:
            self._refused("There is no group to say it in. /new NAME creates one, /join INVITATION joins one.")
            return
        sent = self.client.send(self.group, text, reply_to=reply_to, action=action)
        self._last_sent = f"{sent.group} {sent.id}"
        if self.lines.terminal:  # it stands there already
            self.seen(sent.id)
        if sent.of and not any(one.id == sent.group and one.connected for one in self.client.groups()):
            narrate(f"Queued: none of the {sent.of} other members is connected now. It goes out when one is.")

    def put_aside(self, text: str) -> None:
        """Add to the group's draft, and have it kept at once."""
        before = self.aside.get(self.group, "")
        self.aside[self.group] = f"{before}\n{text}" if before else text
        self._sending = ""
        self._keep()

    def _begun(self) -> tuple[str, str]:
        """What is to be kept for the group that is open: what lies aside, what is on its way, what is being typed."""
        parts = (self.aside.get(self.group, ""), self._sending, self.lines.begun())
        return self.group, "\n".join(part for part in parts if part)

    def _keep(self) -> None:
        group, text = self._begun()
        if group:
            try:
                self.client.draft(group, text)
                self.ear.kept(group, text)
            except LocalError as error:
                if text:
                    narrate(f"Your draft is not kept: {error.sentence()}")

    # --- what comes ------------------------------------------------------------------------------------------------

    def _heard(self, item: Struct) -> None:
        """In the ear's thread."""
        self.voice.say(lambda: self.tell(item))


def _complete(info: GroupInfo) -> str:
    if info.state != "active":
        return "You are no longer in it."
    said = whole(info)
    return f"{said[0].upper()}{said[1:]}." if said else ""
