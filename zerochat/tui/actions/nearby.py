"""`/lan`: finds the members of the open group on the networks of this machine; a dialog that refreshes."""

from textual.content import Content

from zerochat.presentation import nearby
from zerochat.rpc import NearbyStatus, NoParams, SetNearbyParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions.targets import open_conversation
from zerochat.tui.chat_view import ChatView
from zerochat.tui.state.agent_link import AgentError


def show_nearby(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.dialog import open_live, rows

    conversation = open_conversation(chat)
    if conversation is None:
        return
    group, todo = conversation.info.id, [argument] if argument else []

    async def load() -> tuple[Printable, Content]:
        if argument not in ("", "on", "off"):
            raise AgentError("Usage: /lan [on|off]")
        if todo:
            params = SetNearbyParams(todo.pop() == "on", groups=[group])
            status = await chat.link.request("set_nearby", params, NearbyStatus)
        else:
            status = await chat.link.request("get_nearby", NoParams(), NearbyStatus)
        pairs: list[tuple[str, str]] = [
            (printable_line(one.name), nearby.network_state(one)) for one in status.networks
        ]
        pairs += [("members here", "")] if status.members else []
        pairs += [
            (conversation.names.label(one.did), f"{nearby.member_state(one)}, {', '.join(one.addresses)}")
            for one in status.members
            if one.group == group
        ]
        head = Content(printable_line(nearby.sentence(status, "/lan on")))
        return Printable("Members nearby"), Content("\n").join([head, Content(""), rows(pairs, 24)])

    chat.run_request(open_live(chat.app, load))
