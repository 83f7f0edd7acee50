"""What has become of single messages, and what is known to be missing: asked of the agent, and shown."""

from textual.content import Content

from zerochat.presentation import delivery as telling
from zerochat.rpc import (
    Completeness,
    CompleteNews,
    ConfirmedNews,
    DeliveryReport,
    DiffersNews,
    EarlierNews,
    EventParams,
    Fate,
    ForkNews,
    GapNews,
    MemberDelivery,
    RecountedNews,
    RefutedNews,
)
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.chat_view import Board
from zerochat.tui.messages.timeline import Row
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.feed import LogNews
from zerochat.tui.state.hints import NO_GROUP
from zerochat.tui.style.text import clock_of, name_of

SIGNS = {"delivered": "✓", "sent": "→", "held": "⇥", "queued": "…"}


def whole(found: Completeness) -> Printable:
    """How much of a group's log is here."""
    return printable_line(telling.wholeness(found, name_of, clock_of))


# --- news -----------------------------------------------------------------------------------------------------------


def show(chat: Board, news: LogNews) -> None:
    """Say what has become known of a group's log. What is missing stands in the pane as long as it is."""
    conversation = chat.conversations.by_id.get(news.group)
    if conversation is None:
        return
    here = conversation is chat.conversations.open
    sentence = printable_line(telling.news(news, name_of, clock_of))
    match news:
        case ForkNews(author=did):
            _alarm(chat, conversation, did, sentence)
        case ConfirmedNews(author=did, after=after, upto=upto):
            conversation.confirm(did, after, upto)
            chat.rows_changed(conversation, None)
        case RefutedNews(by=did):
            conversation.refute(news.author, news.after, news.upto)
            chat.rows_changed(conversation, None)
            if did:
                _alarm(chat, conversation, did, sentence)
            elif here:
                chat.flash(sentence)
        case RecountedNews(mine=True, counts=False):
            chat.tell(sentence if here else Printable(f"{conversation.name}: {sentence}"), trouble=True)
        case RecountedNews() if here:
            chat.flash(sentence)
        case DiffersNews() if not here:  # there the banner says it, until it is dismissed
            chat.tell(Printable(f"{conversation.name}: {sentence}"), trouble=True)
        case GapNews(state="lost") | CompleteNews() if here:
            chat.flash(sentence)
        case EarlierNews(done=True, got=got) if here and got:
            chat.flash(sentence)
        case _:
            pass


def _alarm(chat: Board, conversation: Conversation, did: str, sentence: Printable) -> None:
    conversation.alarms[did] = Printable(f"! {sentence}")
    if conversation is chat.conversations.open:
        chat.alarms_changed()
    else:
        chat.tell(Printable(f"{conversation.name}: {sentence}"), trouble=True)


# --- one message ----------------------------------------------------------------------------------------------------


def delivery(chat: Board, rest: str) -> None:
    """Who has one's own last message, or somebody's."""
    from zerochat.tui.dialogs.dialog import open_live, rows

    conversation, row = _meant(chat, rest)
    if conversation is None or row is None:
        return

    async def ask() -> tuple[Printable, Content]:
        report = await chat.link.ask("delivery", EventParams(conversation.info.id, row.key[2]), DeliveryReport)
        people = [(sign_of(one), f"{conversation.names.label(one.did)}{state_of(one)}") for one in report.members]
        title = Printable(f"Delivered to {report.delivered} of {report.of}")
        return title, Content("\n").join([*said(row), rows(people, 2)])

    chat.attempt(open_live(chat.app, ask))


def why(chat: Board, rest: str) -> None:
    """What has become of it, in sentences."""
    conversation, row = _meant(chat, rest)
    if conversation is not None and row is not None:
        tell(chat, conversation, row)


def tell(chat: Board, conversation: Conversation, row: Row) -> None:
    """What has become of this message."""
    from zerochat.tui.dialogs.dialog import open_live

    async def ask() -> tuple[Printable, Content]:
        fate = await chat.link.ask("why", EventParams(conversation.info.id, row.key[2]), Fate)
        nicks = {one.did: one.nick for one in conversation.members}
        nicks |= {one.did: one.nick for one in (*fate.report.members, *fate.gone)}
        told = [printable_line(one) for one in telling.sentences(fate, nicks, name_of, clock_of)]
        body = [*said(row), *(Content(one) for one in told), Content(""), Content(f"id {printable_line(row.key[2])}")]
        return Printable("What has become of it"), Content("\n").join(body)

    chat.attempt(open_live(chat.app, ask))


def _meant(chat: Board, name: str) -> tuple[Conversation | None, Row | None]:
    """The open conversation, and in it one's own last message, or that of whoever is called so (`last` and `last:NAME`
    mean the same, as for verbs); None where there is none, which is said."""
    name = "" if name == "last" else name.removeprefix("last:")
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return None, None
    posts = [row for row in conversation.timeline.rows if row.kind == "post"]
    if not name:
        mine = [row for row in posts if row.own]
        if not mine:
            chat.flash(Printable("You have not said anything here yet."))
        return conversation, mine[-1] if mine else None
    found = {one.did for one in conversation.called(name)}
    theirs = [row for row in posts if row.author in found]
    if len(found) > 1:
        chat.complain(Printable(f"{len(found)} here are called {name_of(name)}: Tab adds the end of the key."))
        return None, None
    if not theirs:
        said = "has not said anything that is loaded here" if found else "is not here"
        chat.complain(Printable(f"{name_of(name)} {said}."))
    return conversation, theirs[-1] if theirs else None


def said(row: Row) -> list[Content]:
    return [Content(printable(row.text, lines_max=3, chars_max=300)), Content("")]


def sign_of(one: MemberDelivery) -> str:
    return "✓" if one.delivered else SIGNS.get(one.state, "·")


def state_of(one: MemberDelivery) -> str:
    """Behind the name: since when, or what it waits for."""
    if one.delivered:
        return (f"  since {clock_of(one.at)}" if one.at else "") + telling.signature(one, clock_of)
    heard = f"not heard from since {clock_of(one.last_heard)}" if one.last_heard else "not heard from yet"
    again = f", repeated {one.tries}x" if one.tries else ""
    match one.state:
        case "sent":
            return "  on its way over a mediator" + again if one.via == "mediator" else f"  on its way{again}"
        case "held":
            until = f" until {clock_of(one.held_until)}" if one.held_until else ""
            return f"  held by its mediator{until}"
        case "queued":
            return f"  queued; {heard}"
        case _:
            return ""
