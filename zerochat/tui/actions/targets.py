"""Targets of a command: the open conversation, a message, a member. Each reports an error where there is none."""

from collections.abc import Callable

from zerochat.rpc import MemberInfo
from zerochat.slash_commands import COMMANDS, usage_of
from zerochat.terminal_text import Printable
from zerochat.tui.chat_view import ChatView
from zerochat.tui.messages.row import Row
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.hints import NO_GROUP, NO_MESSAGES, why_read_only
from zerochat.tui.style.text import name_of


def open_conversation(chat: ChatView) -> Conversation | None:
    """The open conversation."""
    if chat.conversations.open is None:
        chat.report_error(NO_GROUP)
    return chat.conversations.open


def writable_conversation(chat: ChatView) -> Conversation | None:
    """The open conversation, where posting is possible."""
    conversation = open_conversation(chat)
    if conversation is not None and (why := why_read_only(conversation.info, conversation.members.myself)):
        chat.report_error(why)
        return None
    return conversation


def target_message(chat: ChatView, applies: Callable[[Row], bool], refusal: str) -> tuple[Conversation, Row] | None:
    """The selected message, else the newest to which the action applies, with its conversation."""
    if (conversation := open_conversation(chat)) is None:
        return None
    row = chat.pane.selected_row
    if row is None:
        posts = [each for each in reversed(conversation.timeline.rows) if each.kind == "post"]
        row = next((each for each in posts if applies(each)), posts[0] if posts else None)
    if row is None:
        chat.report_error(NO_MESSAGES)
        return None
    if not applies(row):
        chat.report_error(Printable(refusal))
        return None
    return conversation, row


def find_member(chat: ChatView, conversation: Conversation, command: str, name: str) -> MemberInfo | None:
    """The only member with this name."""
    found = conversation.members_named(name)
    if len(found) == 1:
        return found[0]
    if not name:
        report_usage(chat, command)
    elif found:
        report_ambiguous(chat, name, len(found))
    else:
        chat.report_error(Printable(f"No member is called {name_of(name)}. /members shows the members."))
    return None


def report_ambiguous(chat: ChatView, name: str, count: int) -> None:
    chat.report_error(Printable(f"{count} members are called {name_of(name)}. Press Tab to add the end of the key."))


def report_usage(chat: ChatView, command: str, example: str = "") -> None:
    """Report the usage line of a command, with an example of its argument."""
    more = f" Example: /{command} {example}" if example else ""
    chat.report_error(Printable(f"{usage_of(COMMANDS[command])}.{more}"))
