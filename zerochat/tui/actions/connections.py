"""Connections in the chat: whom there is, what they have told, and telling them something.

They belong to no conversation, so what they say is shown on sheets, and kept by the agent.
"""

from zerochat.rpc import ConnectionInfo, LetterInfo, NoParams, PeerParams, TellParams, ToldInfo
from zerochat.terminal_text import Printable, printable, printable_key, printable_line
from zerochat.tui.chat_view import Board
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.style.text import clock_text, name_of

PREFIX_MIN = 4
"""The letters of an id that may stand for all of it, as the agent has it."""
NAME_CHARS_MAX = 100
"""How far into a line a name is looked for; the agent allows 64 characters."""
LETTERS_SHOWN = 50
"""Of the lines to and from one connection; `zerochat letters` prints all that are kept."""
MEDIATION = {"asking": "no answer yet", "granted": "takes in what is for you", "denied": "has said no"}


def called(one: ConnectionInfo) -> Printable:
    """What a connection is called; its key where it has no name but that."""
    return printable_key(one.did) if one.did and one.did.startswith(one.label) else name_of(one.label)


def mediation(one: ConnectionInfo) -> str:
    """What a mediator does for us, as far as it can be reached."""
    away = one.mediator == "granted" and one.reachable is False
    return "cannot be reached now" if away else MEDIATION[one.mediator or "asking"]


def connections(chat: Board, rest: str) -> None:
    from textual.content import Content

    from zerochat.tui.dialogs.dialog import open_live, rows

    async def ask() -> tuple[Printable, Content]:
        pairs = [
            (f"{called(one)} ", f"{mediation(one) if one.mediator else one.state} ({printable_line(one.id)})")
            for one in await _known(chat)
        ]
        none = Content("There are none. `zerochat connect` begins one.")
        return Printable("Connections"), rows(pairs, 24) if pairs else none

    chat.attempt(open_live(chat.app, ask))


def tell(chat: Board, rest: str) -> None:
    async def send() -> None:
        found = _split(await _known(chat), rest)
        if found is None:
            raise AgentError("/tell takes a connection and what to say: /tell bob hello. /connections lists them.")
        one, text = found
        await chat.link.ask("tell", TellParams(one.id, text), ToldInfo)
        chat.tell(Printable(f"Told {called(one)}. /letters {called(one)} shows what was said."))

    async def attempt() -> None:
        try:
            await send()
        except AgentError:
            if not chat.composer.text:
                chat.composer.put(f"/tell {rest}")
            raise

    chat.attempt(attempt())


def letters(chat: Board, rest: str) -> None:
    from textual.content import Content

    from zerochat.tui.dialogs.dialog import Sheet

    async def ask(wanted: str) -> None:
        one = _find(await _known(chat), wanted)
        kept = await chat.link.ask("letters", PeerParams(one.id if one else wanted), list[LetterInfo])
        who = called(one) if one else name_of(wanted)
        lines = [
            Content(printable(f"{clock_text(each.at)}  {'you' if each.mine else who}: {each.text}"))
            for each in kept[-LETTERS_SHOWN:]
        ]
        body = Content("\n").join(lines) if lines else Content("Nothing has been said yet.")
        chat.app.push_screen(Sheet(Printable(f"To and from {who}"), body))

    if rest:
        chat.attempt(ask(rest.strip('"')))
    else:
        chat.complain(Printable("/letters takes the name of a connection: /letters bob. /connections lists them."))


async def _known(chat: Board) -> list[ConnectionInfo]:
    return await chat.link.ask("connections", NoParams(), list[ConnectionInfo])


def _find(known: list[ConnectionInfo], wanted: str) -> ConnectionInfo | None:
    """The connection with this name, as it is shown or as it is, with this id, or with an id that begins so."""
    names = wanted.casefold()
    found = [one for one in known if wanted == one.id]
    found = found or [one for one in known if one.label and names in (one.label.casefold(), called(one).casefold())]
    if not found and len(wanted) >= PREFIX_MIN:
        found = [one for one in known if one.id.startswith(wanted)]
    return found[0] if len(found) == 1 else None


def _split(known: list[ConnectionInfo], rest: str) -> tuple[ConnectionInfo, str] | None:
    """Whom to tell, and what. A name may have spaces in it, so the longest one that is somebody's counts; in quotes it
    ends where they do."""
    if rest.startswith('"'):
        name, _, text = rest[1:].partition('"')
        one = _find(known, name)
        return (one, text.strip()) if one is not None and text.strip() else None
    spaces = [at for at, letter in enumerate(rest[:NAME_CHARS_MAX]) if letter.isspace()]
    for at in reversed(spaces):
        one = _find(known, rest[:at])
        if one is not None and rest[at:].strip():
            return one, rest[at:].strip()
    return None
