"""Sending the composer's text (post, reply or edit), and editing it in an external editor."""

from zerochat.rpc import EditMessageParams, SendMessageParams, Sent
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions.targets import writable_conversation
from zerochat.tui.chat_view import ChatView
from zerochat.tui.state.agent_link import AgentError


def send(chat: ChatView, text: str, *, action: bool = False, line: str = "") -> None:
    """Send a text. `line`: the typed line, recalled by Ctrl+Up and restored when the agent rejects the text."""
    line = line or text
    if (conversation := writable_conversation(chat)) is None:
        return
    chat.composer.set_text("")
    conversation.remember_text(line)
    chat.ephemeral.message_sent(conversation.info.id)
    if conversation.unread or conversation.mentions:
        chat.mark_read(conversation)
    conversation.draft = ""
    chat.draft_saver.sending(conversation.info.id, line)
    target, conversation.compose_target = conversation.compose_target, None
    if target is not None and target.kind == "edit":
        chat.composer.set_text(target.stash)
    chat.draw_reply_bar()
    chat.leave_messages()
    if target is None or target.kind == "reply":
        chat.pane.action_end()

    async def request() -> None:
        try:
            group = conversation.info.id
            if target is not None and target.kind == "edit":
                await chat.link.request("edit_message", EditMessageParams(group, target.id, text), Sent)
            else:
                reply_to = target.id if target is not None else None
                await chat.link.request(
                    "send_message", SendMessageParams(group, text, reply_to=reply_to, action=action), Sent
                )
        except AgentError:
            if conversation.compose_target is None and not (
                chat.composer.text and conversation is chat.conversations.open
            ):
                conversation.compose_target = target
            if conversation is not chat.conversations.open:
                conversation.draft = conversation.draft or line
            elif not chat.composer.text:
                chat.composer.set_text(line)
            chat.draw_reply_bar()
            raise
        finally:
            chat.draft_saver.sent(conversation.info.id, line)
            chat.schedule_draft_save()
        await chat.draft_saver.save()

    chat.run_request(request())


async def edit_externally(chat: ChatView) -> None:
    """Edit the composer's text in the user's editor without sending it."""
    from textual.app import SuspendNotSupported

    from zerochat.errors import LocalError
    from zerochat.tui.composer.editor import edit

    await chat.draft_saver.save()
    text, fault = chat.composer.text, Printable("")
    try:
        with chat.app.suspend():
            try:  # Textual does not recover from an exception in here
                text = edit(text)
            except LocalError as error:
                fault = printable_line(error.sentence())
    except SuspendNotSupported:
        fault = Printable("This terminal cannot run an editor.")
    if fault:
        chat.report_error(fault)
    else:
        chat.composer.set_text(text)
    chat.composer.focus()
    chat.schedule_draft_save()
