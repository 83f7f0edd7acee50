"""`/mediator`: listing, adding and removing the mediators of this profile."""

from textual.content import Content

from zerochat.presentation import mediation
from zerochat.rpc import ConnectionInfo, NoParams, OpenConnectionParams, PeerParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions.connections import label_of, mediation_text
from zerochat.tui.actions.short_links import long_link
from zerochat.tui.actions.targets import report_usage
from zerochat.tui.chat_view import ChatView
from zerochat.tui.state.agent_link import AgentError

ANSWER_S_MAX = 30.0
"""Seconds after which a missing answer is reported."""
ADD, LIST = "/mediator LINK", "/mediator"


def mediator(chat: ChatView, argument: str) -> None:
    """`/mediator`, `/mediator LINK`, `/mediator remove NAME`."""
    word, _, name = argument.partition(" ")
    if word == "remove":
        if name.strip():
            chat.run_request(_ask_to_remove(chat, name.strip()))
        else:
            report_usage(chat, "mediator", "remove relay")
    elif argument:
        chat.run_request(_add(chat, argument))
    else:
        chat.run_request(_show(chat))


async def _mediators(chat: ChatView) -> list[ConnectionInfo]:
    found = await chat.link.request("list_connections", NoParams(), list[ConnectionInfo])
    return [each for each in found if each.mediator]


async def _show(chat: ChatView) -> None:
    from zerochat.tui.dialogs.dialog import open_live, rows

    if not await _mediators(chat):
        chat.report(Printable(f"{mediation.none_yet(ADD)} /help mediators says how to run one."))
        return

    async def load() -> tuple[Printable, Content]:
        pairs = [
            (f"{label_of(each)} ", f"{mediation_text(each)} ({printable_line(each.id)})")
            for each in await _mediators(chat)
        ]
        return Printable("Mediators"), rows(pairs, 24)

    await open_live(chat.app, load)


async def _add(chat: ChatView, link: str) -> None:
    """Ask for mediation; a notification reports its result. Raises AgentError."""
    asking = Printable("Asking the mediator…")
    chat.flash(asking, seconds=ANSWER_S_MAX)
    try:
        params = OpenConnectionParams(await long_link(chat, link, mediates=True), mediate=True)
        opened = await chat.link.request("open_connection", params, ConnectionInfo)
    except AgentError:
        chat.unflash(asking)
        raise

    async def check() -> None:
        found = [each for each in await _mediators(chat) if each.id == opened.id and each.mediator == "requested"]
        if found:
            chat.report(mediation.no_answer(label_of(found[0]), LIST))

    chat.set_timer(ANSWER_S_MAX, lambda: chat.run_request(check()))


async def _ask_to_remove(chat: ChatView, name: str) -> None:
    """Confirm and remove a mediator. Raises AgentError."""
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    known = await _mediators(chat)
    found = [each for each in known if name in (each.label, each.id)]
    if len(found) != 1:
        few = "Several mediators are" if found else "No mediator is"
        raise AgentError(f"{few} called {printable_line(name, 24)}. {LIST} lists them with their ids.")
    who, in_groups = label_of(found[0]), any(each.info.state == "active" for each in chat.conversations.by_id.values())

    async def remove() -> None:
        await chat.link.request("close_connection", PeerParams(found[0].id), NoParams)
        status = await chat.feed.status()
        chat.on_status(status)
        chat.report(mediation.removed(who, in_groups, status))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(remove())

    effect = f"It stores nothing for you any more{mediation.notified(in_groups)}."
    if len(known) == 1 and (await chat.feed.status()).sends != "direct":
        effect = "Without it nothing can be sent: this agent connects to its own mediators only."
    question = f"Remove the mediator {who}? {effect}"
    chat.app.push_screen(ConfirmDialog(Printable(question), "Remove", "Cancel"), answered)
