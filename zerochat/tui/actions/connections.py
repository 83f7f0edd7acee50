"""External connections: listing them, sending messages, showing received messages in a dialog."""

from zerochat.presentation.external import author_text, text_of
from zerochat.rpc import (
    ConnectionInfo,
    ConnectionMessage,
    NoParams,
    PeerParams,
    SendConnectionMessageParams,
    SentConnectionMessage,
)
from zerochat.terminal_text import Printable, printable, printable_key, printable_line
from zerochat.tui.actions.targets import report_usage
from zerochat.tui.chat_view import ChatView
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.style.text import clock_text, name_of

PREFIX_MIN = 4
"""Characters of an id prefix that select a connection, as in the agent."""
NAME_CHARS_MAX = 100
"""Characters of a line searched for a name; the agent allows names of 64."""
MESSAGES_SHOWN = 50
"""Newest messages of one connection; `zerochat messages` prints all."""
MEDIATION = {"requested": "no answer yet", "granted": "stores your messages", "denied": "refused"}


def label_of(connection: ConnectionInfo) -> Printable:
    """The label of a connection; its key where it has no other name."""
    return (
        printable_key(connection.did)
        if connection.did and connection.did.startswith(connection.label)
        else name_of(connection.label)
    )


def mediation_text(connection: ConnectionInfo) -> str:
    """The state of a mediator: reachability first, then its grant."""
    away = connection.mediator == "granted" and connection.reachable is False
    return "unreachable" if away else MEDIATION[connection.mediator or "requested"]


def connections(chat: ChatView, argument: str) -> None:
    from textual.content import Content

    from zerochat.tui.dialogs.dialog import open_live, rows

    async def load() -> tuple[Printable, Content]:
        pairs = [
            (
                f"{label_of(entry)} ",
                f"{mediation_text(entry) if entry.mediator else entry.state} ({printable_line(entry.id)})",
            )
            for entry in await _list(chat)
        ]
        none = Content("No connections yet. Run `zerochat connect` to add one.")
        return Printable("Connections"), rows(pairs, 24) if pairs else none

    chat.run_request(open_live(chat.app, load))


def message(chat: ChatView, argument: str) -> None:
    async def send() -> None:
        found = _split(await _list(chat), argument)
        if found is None:
            name, _, text = argument.partition(" ")
            here = chat.conversations.open
            if name and here is not None and here.members_named(name):
                raise AgentError(
                    f"{name_of(name)} is a member of this group, not a connection. To write privately, create a group"
                    " of two: /new, then /invite."
                )
            if text.strip():
                raise AgentError(f"No connection is called {name_of(name)}. /connections lists the names.")
            raise AgentError("Usage: /message NAME TEXT, for example /message bob hello. /connections lists the names.")
        entry, text = found
        await chat.link.request(
            "send_connection_message", SendConnectionMessageParams(entry.id, text), SentConnectionMessage
        )
        chat.report(
            Printable(
                f"Message to {label_of(entry)} is on its way; /messages {label_of(entry)} shows what became of it."
            )
        )

    async def attempt() -> None:
        try:
            await send()
        except AgentError:
            if not chat.composer.text:
                chat.composer.set_text(f"/message {argument}")
            raise

    chat.run_request(attempt())


def messages(chat: ChatView, argument: str) -> None:
    from textual.content import Content

    from zerochat.tui.dialogs.dialog import TextDialog

    async def load(wanted: str) -> None:
        entry = _find(await _list(chat), wanted)
        kept = await chat.link.request(
            "list_connection_messages", PeerParams(entry.id if entry else wanted), list[ConnectionMessage]
        )
        who = label_of(entry) if entry else name_of(wanted)
        # indented: a line of the peer's text must not look like a message of ours
        lines = [
            Content(
                printable(f"{clock_text(each.at)}  {author_text(each, who)}: {text_of(each)}").replace("\n", "\n    ")
            )
            for each in kept[-MESSAGES_SHOWN:]
        ]
        body = Content("\n").join(lines) if lines else Content("No messages yet.")
        chat.app.push_screen(TextDialog(Printable(f"Messages with {who}"), body))

    if argument:
        chat.run_request(load(argument.strip('"')))
    else:
        report_usage(chat, "messages", "bob")


async def _list(chat: ChatView) -> list[ConnectionInfo]:
    return await chat.link.request("list_connections", NoParams(), list[ConnectionInfo])


def _find(known: list[ConnectionInfo], wanted: str) -> ConnectionInfo | None:
    """The only connection with this name (raw or as shown), id or id prefix; None: none or several."""
    names = wanted.casefold()
    found = [connection for connection in known if wanted == connection.id]
    found = found or [
        connection
        for connection in known
        if connection.label and names in (connection.label.casefold(), label_of(connection).casefold())
    ]
    if len(wanted) >= PREFIX_MIN and wanted not in (one.id for one in found):
        found += [one for one in known if one.id.startswith(wanted) and one not in found]
    return found[0] if len(found) == 1 else None


def _split(known: list[ConnectionInfo], argument: str) -> tuple[ConnectionInfo, str] | None:
    """The recipient and the text. Names may contain spaces: the longest known name wins; quotes delimit a name."""
    if argument.startswith('"'):
        name, _, text = argument[1:].partition('"')
        entry = _find(known, name)
        return (entry, text.strip()) if entry is not None and text.strip() else None
    spaces = [at for at, letter in enumerate(argument[:NAME_CHARS_MAX]) if letter.isspace()]
    for at in reversed(spaces):
        entry = _find(known, argument[:at])
        if entry is not None and argument[at:].strip():
            return entry, argument[at:].strip()
    return None
