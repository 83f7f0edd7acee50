"""Short links of invitations, which a mediator serves."""

from zerochat.errors import LocalError
from zerochat.tui.base_app import app_of
from zerochat.tui.chat_view import ChatView
from zerochat.tui.state.agent_link import AgentError, in_thread


async def long_link(chat: ChatView, invitation: str, *, mediates: bool = False) -> str:
    """The invitation, or the one behind a short link; `mediates`: of a mediator. Raises AgentError."""
    from zerochat.agent.invitations import resolving
    from zerochat.agent.invitations.pasted_text import only_invitation

    places, found = app_of(chat).settings_store.places, [invitation]

    def resolve() -> None:
        link = only_invitation(invitation)
        if places is not None and resolving.is_short(link):
            found.append(resolving.resolve(places, link, mediates=mediates))

    try:
        await in_thread(resolve)
    except LocalError as error:
        raise AgentError(error.sentence(), error.code) from None
    return found[-1]
