"""Single peers: what the chat asks one of them, and what it shows of their answers.

Who waits for which answer is in `answers.py`.
"""

from collections.abc import Callable

from textual.content import Content

from zerochat.rpc import (
    ConnectionNews,
    FeaturesNews,
    FeaturesParams,
    NoParams,
    PeerParams,
    PongNews,
    ProblemNews,
    Question,
    RotatedNews,
    ToldNews,
)
from zerochat.terminal_text import Printable, printable, printable_key, printable_line
from zerochat.tui.chat_view import Board
from zerochat.tui.state.pending_requests import Answer, PeerNews
from zerochat.tui.style.text import name_of

ANSWER_S_MAX = 10.0
"""After this long without an answer the person is told so."""
WAYS = {"direct": "directly", "mediator": "over a mediator", "web": "over the web"}
TOLD_LINES_MAX, TOLD_CHARS_MAX = 8, 800
"""Of a text from a connection, in a toast."""
FEATURES_MAX = 8
"""Of what a peer speaks, in a toast."""


# --- showing --------------------------------------------------------------------------------------------------------


def show(chat: Board, news: PeerNews) -> None:
    """Show news of a peer, or hand it to whoever asked for it."""
    match news:
        case PongNews() | FeaturesNews():
            chat.answers.came(news)
        case RotatedNews(group=group, member=member, nick=nick, mine=mine):
            # A DID is replaced at every first contact too: that is nobody's business here.
            if mine and f"{group}/{member}" in chat.answers.rotating:
                chat.answers.rotating.discard(f"{group}/{member}")
                chat.tell(Printable(f"{name_of(nick)} knows your new DID, and the old one is gone."))
        case ToldNews(label=label, text=text):
            shown = printable(text, lines_max=TOLD_LINES_MAX, chars_max=TOLD_CHARS_MAX)
            _toast(chat, Printable(f"{name_of(label)}: {shown}\n/letters {name_of(label)} shows it again."))
        case ConnectionNews(text=text):
            chat.tell(printable_line(text))
        case ProblemNews(peer=peer, code=code, comment=comment):
            why = f"{printable_line(comment)} ({printable_line(code)})"
            chat.tell(Printable(f"{name_of(peer)} reports a problem: {why}"), trouble=True)


def _toast(chat: Board, text: Printable) -> None:
    chat.app.notify(text, markup=False, timeout=15)


def _pong_text(pong: PongNews) -> Printable:
    lines = [
        f"{name_of(pong.peer)} answered in {pong.rtt_ms} ms, {WAYS[pong.way]}.",
        printable_line(pong.envelope),
        f"theirs {printable_key(pong.their_key)}",
        f"mine {printable_key(pong.my_key)}",
    ]
    return Printable("\n".join(lines))


def _show_features(chat: Board, found: FeaturesNews) -> None:
    """On a sheet; in a toast for somebody who has gone on to something else meanwhile."""
    from zerochat.tui.dialogs.dialog import Sheet, rows

    listed = [(printable_line(each.type), printable_line(each.id)) for each in found.features]
    title = Printable(f"What {name_of(found.peer)} speaks, as far as it says")
    if chat.is_current and not chat.composer.text:
        body = rows(listed, 9) if listed else Content("nothing that matches")
        chat.app.push_screen(Sheet(title, body))
        return
    shown: list[str] = [name for _, name in listed[:FEATURES_MAX]] or ["nothing that matches"]
    more = [f"and {len(listed) - FEATURES_MAX} more"] if len(listed) > FEATURES_MAX else []
    _toast(chat, Printable("\n".join([f"{title}:", *shown, *more])))


# --- asking ---------------------------------------------------------------------------------------------------------


def ping(chat: Board, rest: str) -> None:
    def shown(answer: Answer) -> None:
        if isinstance(answer, PongNews):
            _toast(chat, _pong_text(answer))

    if (peer := _peer(chat, "ping", rest)) is not None:
        chat.attempt(_ask(chat, "ping", PeerParams(peer), rest, shown))


def features(chat: Board, rest: str) -> None:
    def shown(answer: Answer) -> None:
        if isinstance(answer, FeaturesNews):
            _show_features(chat, answer)

    if (peer := _peer(chat, "features", rest)) is not None:
        chat.attempt(_ask(chat, "features", FeaturesParams(peer), rest, shown))


async def _ask(
    chat: Board, method: str, params: PeerParams | FeaturesParams, name: str, shown: Callable[[Answer], None]
) -> None:
    question = await chat.link.ask(method, params, Question)
    chat.answers.expect(question.thread, shown)

    def late() -> None:
        if chat.answers.give_up(question.thread):
            chat.tell(Printable(f"No answer from {name_of(name)} within {ANSWER_S_MAX:g} s."))

    chat.set_timer(ANSWER_S_MAX, late)


def rotate(chat: Board, rest: str) -> None:
    async def change(peer: str) -> None:
        await chat.link.ask("rotate", PeerParams(peer), NoParams)
        chat.answers.rotating.add(peer)
        chat.tell(
            Printable(f"You have a new DID towards {name_of(rest)}, who hears of it now, or with what you say next.")
        )

    if (peer := _peer(chat, "rotate", rest)) is not None:
        chat.attempt(change(peer))


def _peer(chat: Board, command: str, name: str) -> str | None:
    """The peer as the agent is asked for it: a member of the open group by its key, anybody else by what was typed."""
    if not name:
        chat.complain(Printable(f"/{command} takes the name of a member, or of a connection: /{command} bob"))
        return None
    conversation = chat.conversations.open
    if conversation is None:
        return name
    found = [member.did for member in conversation.called(name) if member.connection != "self"]
    if len(found) > 1:
        chat.complain(Printable(f"{len(found)} here are called {name_of(name)}: Tab adds the end of the key."))
        return None
    return f"{conversation.info.id}/{found[0]}" if found else name
