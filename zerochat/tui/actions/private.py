"""Private conversations: opening one with a member, and notifications about invitations."""

from time import monotonic

from zerochat.presentation import private
from zerochat.rpc import (
    AnswerPrivateInvitationParams,
    ConversationMovedNotification,
    GroupInfo,
    OpenConversationParams,
    PrivateInvitationInfo,
    PrivateInvitationNotification,
    SendMessageParams,
    Sent,
)
from zerochat.slash_commands import SeveralNames, name_and_text
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions.targets import report_ambiguous, report_usage
from zerochat.tui.base_app import app_of
from zerochat.tui.chat_view import ChatView
from zerochat.tui.style.text import name_of

OPENS_S_MAX = 60.0
"""How long after the acceptance a conversation opens by itself. Later the user does something else, and what is typed
would go to it."""


def msg(chat: ChatView, argument: str) -> None:
    """Open the private conversation with a member of the open group, or with another one, and send a text there."""
    here = chat.conversations.open
    titles = [each.info.name for each in chat.conversations.by_id.values() if each.info.private is not None]
    try:
        name, text = name_and_text(argument, [*chat.member_names(), *titles])
    except SeveralNames as error:
        chat.report_error(printable(error.sentence()))
        return
    if not name:
        report_usage(chat, "msg", "bob hello")
        return
    members = here.members_named(name) if here is not None else []
    if len(members) > 1:
        report_ambiguous(chat, name, len(members))
        return
    group = here.info.id if here is not None and members else ""

    async def request() -> None:
        params = OpenConversationParams(members[0].did if members else name, group)
        info = await chat.link.request("open_conversation", params, GroupInfo)
        if text:
            await chat.link.request("send_message", SendMessageParams(info.id, text), Sent)
        await chat.feed.refresh()
        chat.open_group(info.id)
        if info.private is not None and info.private.state != "joined":
            waits = private.state_text(info, name_of)
            chat.flash(printable_line(f"{waits[:1].upper()}{waits[1:]}."))

    chat.run_request(request())


async def answer(chat: ChatView, invitation: PrivateInvitationInfo, accept: bool) -> None:
    """Raises AgentError."""
    chat.awaits_conversation = monotonic() + OPENS_S_MAX if accept else 0.0
    params = AnswerPrivateInvitationParams(invitation.group, invitation.did, accept)
    await chat.link.request("answer_private_invitation", params, GroupInfo)
    await chat.feed.refresh()


def on_notification(
    chat: ChatView, notification: PrivateInvitationNotification | ConversationMovedNotification
) -> None:
    match notification:
        case ConversationMovedNotification(group=group, former=former):
            chat.conversation_moved(former, group)
        case PrivateInvitationNotification(group=group, nick=nick, state="asked"):
            conversation = chat.conversations.by_id.get(group)
            here = conversation is not None and conversation is chat.conversations.open
            if not (here and chat.on_top):
                way = f" Press Esc, then {app_of(chat).key('group.requests')} to answer." if here else ""
                chat.report(Printable(f"{private.invited_sentence([name_of(nick)])}{way}"))
