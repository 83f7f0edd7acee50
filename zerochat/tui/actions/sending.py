"""Saying what was typed or pasted: a post, the answer to one, or one that is changed."""

from zerochat.rpc import EditParams, SendParams, Sent
from zerochat.tui.chat_view import Board
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.state.hints import NO_GROUP, silenced


def say(chat: Board, text: str, *, action: bool = False) -> None:
    """Send what stands in the composer; it comes back into it when the agent refuses."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return
    if why := silenced(conversation.info, conversation.members):
        chat.complain(why)
        return
    chat.composer.put("")
    conversation.said(text)
    chat.passing.sent(conversation.info.id)
    conversation.read()
    conversation.draft = ""
    chat.keeper.sending(conversation.info.id, text)
    about, conversation.about = conversation.about, None
    if about is not None and about.kind == "edit":
        chat.composer.put(about.stash)
    chat.draw_about()
    chat.leave_messages()
    if about is None or about.kind == "reply":
        chat.pane.action_end()

    async def send() -> None:
        try:
            group = conversation.info.id
            if about is not None and about.kind == "edit":
                await chat.link.ask("edit", EditParams(group, about.id, text), Sent)
            else:
                reply_to = about.id if about is not None else None
                await chat.link.ask("send", SendParams(group, text, reply_to=reply_to, action=action), Sent)
        except AgentError:
            if conversation.about is None and not (chat.composer.text and conversation is chat.conversations.open):
                conversation.about = about
            if conversation is not chat.conversations.open:
                conversation.draft = conversation.draft or text
            elif not chat.composer.text:
                chat.composer.put(text)
            chat.draw_about()
            raise
        finally:
            chat.keeper.sent(conversation.info.id, text)
            chat.keep_drafts()
        await chat.keeper.keep()

    chat.attempt(send())
