"""What can be done with a message: each act asks the agent, opens a sheet, or begins something in the composer.

An act is about the message that is selected; where none is, about the newest that it fits. The screens are imported
where they are opened: the first frame has none of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from textual.content import Content

from zerochat.presentation.history_rules import no_topic
from zerochat.rpc import DeleteParams, DeliveryReport, EventParams, ReactParams, Sent, TopicParams
from zerochat.terminal_text import Printable, cells, printable_line
from zerochat.tui.actions import delivery, files, jumps, links, members, sending
from zerochat.tui.actions.target import message_meant
from zerochat.tui.chat_view import Board
from zerochat.tui.host import clipboard
from zerochat.tui.messages.markdown import links_in
from zerochat.tui.messages.reply_bar import About
from zerochat.tui.messages.row import Row, quote_of
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.hints import NO_GROUP, silenced
from zerochat.tui.style.text import clock_text, name_of

NAMED_MAX = 8
"""Members that are named in one line of the sheet on a message."""


@dataclass(frozen=True, slots=True)
class Act:
    """`fits` says whether it can be done with a message; `why_not` what to say where it cannot."""

    title: str
    do: Callable[[Board, Conversation, Row], None]
    fits: Callable[[Row], bool]
    why_not: str


def run(chat: Board, name: str) -> None:
    """Do the act with the message that is meant."""
    if (found := meant(chat, name)) is not None:
        ACTS[name].do(chat, *found)


def meant(chat: Board, name: str) -> tuple[Conversation, Row] | None:
    """The message that an act is about; None where there is none, which is said."""
    return message_meant(chat, ACTS[name].fits, ACTS[name].why_not)


def keys_of(chat: Board, row: Row) -> tuple[str, ...]:
    """The keys of a message, as the status line hints at them: "r reply"."""
    from zerochat.tui.dialogs.help import keys_of_all

    keys = keys_of_all(chat, chat.pane)
    words = {"menu": "more"}
    hints = [f"{keys[f'message.{name}']} {words.get(name, name)}" for name in HINTED if ACTS[name].fits(row)]
    return (*hints, f"{keys['view.composer']} back")


# --- the composer -----------------------------------------------------------------------------------------------------


def _reply(chat: Board, conversation: Conversation, row: Row) -> None:
    if why := silenced(conversation.info, conversation.members):
        chat.complain(why)
        return
    chat.set_about(About.reply(row))


def _edit(chat: Board, conversation: Conversation, row: Row) -> None:
    if why := silenced(conversation.info, conversation.members):
        chat.complain(why)
        return
    chat.set_about(About.edit(row, chat.composer.text))
    slashed = row.source.startswith("/")
    chat.composer.put("/" + row.source if slashed else row.source)


def reply(chat: Board, rest: str) -> None:
    """`/reply`, `/reply TEXT`."""
    if (found := meant(chat, "reply")) is not None:
        _reply(chat, *found)
        if rest and chat.about is not None:
            sending.say(chat, rest)


def edit(chat: Board, rest: str) -> None:
    """`/edit`, `/edit TEXT`."""
    if (found := meant(chat, "edit")) is not None:
        _edit(chat, *found)
        if rest and chat.about is not None:
            sending.say(chat, rest)


# --- the agent --------------------------------------------------------------------------------------------------------


def _delete(chat: Board, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    async def delete() -> None:
        await chat.link.ask("delete", DeleteParams(conversation.info.id, row.key[2]), Sent)

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(delete())

    question = (
        f"Delete “{quote_of(row).text[:60]}”? It goes from every screen that is told so. Whoever has received it may"
        " have kept it all the same: nobody can take back what others have."
    )
    chat.app.push_screen(Confirm(printable_line(question), "Delete", "Keep"), answered)


def _react(chat: Board, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.reaction_picker import ReactionPicker

    def chosen(emoji: str | None) -> None:
        if emoji:
            _answer_with(chat, conversation, row, emoji)

    chat.app.push_screen(ReactionPicker(row.reactions), chosen)


def react(chat: Board, rest: str) -> None:
    """`/react`, `/react EMOJI`, `/react NAME`; mine is taken back."""
    if (found := meant(chat, "react")) is None:
        return
    if not rest:
        _react(chat, *found)
        return
    from zerochat.tui.composer.emoji import find, named

    emoji = named(rest)
    if emoji is None:
        near = ", ".join(f"{name} {sign}" for sign, name in find(rest, 3))
        advice = f"Near it: {near}." if near else "+ in the messages has a list."
        chat.complain(printable_line(f"No emoji is called {printable_line(rest, 24)}. {advice}"))
        return
    _answer_with(chat, *found, emoji)


def _answer_with(chat: Board, conversation: Conversation, row: Row, emoji: str) -> None:
    mine = any(one.sign == emoji and one.mine for one in row.reactions)
    params = ReactParams(conversation.info.id, row.key[2], emoji, on=not mine)
    chat.attempt(chat.link.ask("react", params, Sent))


def topic(chat: Board, rest: str) -> None:
    """`/topic`, `/topic TEXT`, `/topic -`."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return
    if not rest:
        now = printable_line(conversation.info.topic)
        none = Printable(f"{no_topic(conversation.info.beginning)} /topic TEXT says it.")
        chat.tell(Printable(f"Topic: {now}") if now else none)
        return
    if why := silenced(conversation.info, conversation.members):
        chat.complain(why)
        return
    text = "" if rest == "-" else " ".join(rest.split())
    chat.attempt(chat.link.ask("topic", TopicParams(conversation.info.id, text), Sent))


# --- looking ----------------------------------------------------------------------------------------------------------


def _copy(chat: Board, conversation: Conversation, row: Row) -> None:
    chat.attempt(copy_text(chat, clipboard.clean(row.source)))


async def copy_text(chat: Board, text: str) -> None:
    """Copy it, and say which way it went."""
    chat.tell(await clipboard.copy(chat.app, text, f"{len(text):,} characters"))


SIGNED = "by its author, so anybody can be shown whose it is; E says to whom what can be proven"
UNSIGNED = "not by itself; E says more"


def _info(chat: Board, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.dialog import open_live

    async def ask() -> tuple[Printable, Content]:
        report = await chat.link.ask("delivery", EventParams(conversation.info.id, row.key[2]), DeliveryReport)
        return Printable("About this message"), _about(conversation, row, report)

    chat.attempt(open_live(chat.app, ask))


def _about(conversation: Conversation, row: Row, report: DeliveryReport) -> Content:
    from zerochat.tui.dialogs.dialog import rows

    event = report.event
    facts: list[tuple[str, str]] = [
        ("id", printable_line(row.key[2])),
        ("author", conversation.names.byline(row.author)),
        ("key", printable_line(row.author)),
    ]
    if event is not None:
        facts += [
            ("said", clock_text(event.sent_at) + ", by its author's clock"),
            ("here since", clock_text(event.received_at)),
            *([("edited", clock_text(event.edited_at))] if event.edited_at else []),
            *([("deleted", "by its author")] if event.deleted else []),
            ("place", f"number {event.position} of what its author has said here"),
            ("order", _order(event.lamport)),
            ("knew of", ", ".join(printable_line(one, 20) for one in event.parents[:8]) or "nothing before it"),
            *([("answers", printable_line(event.reply_to))] if event.reply_to else []),
        ]
    facts.append(("envelope", printable_line(conversation.info.envelope) or "unknown"))
    facts.append(("signed", SIGNED if report.signed else UNSIGNED))
    for one in row.reactions[:8]:
        by = next((each.by for each in event.reactions if each.emoji == one.sign), []) if event else []
        facts.append((one.emoji, _listed(conversation, by)))
    if read := [one.did for one in report.members if one.read]:
        facts.append(("read by", f"{_listed(conversation, read)}, by their own word"))
    facts.append(("has it", f"{report.delivered} of {report.of}"))
    label = conversation.names.label
    holders = [(delivery.sign_of(one), label(one.did) + delivery.state_of(one)) for one in report.members]
    return Content("\n").join([*delivery.said(row), rows(facts, 11), Content(""), rows(holders, 2)])


def _order(lamport: int) -> str:
    """When it was said by the clock that orders all messages alike for everybody: UTC milliseconds, and always later
    than what its author knew of."""
    try:
        when = f"{datetime.fromtimestamp(lamport / 1000, UTC).astimezone():%-d %b %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        when = "a time that no calendar has"
    return f"{when} by the group's clock (Lamport time {lamport})"


def _listed(conversation: Conversation, members: Sequence[str]) -> str:
    names = ", ".join(conversation.names.label(did) for did in members[:NAMED_MAX])
    return names + (f" and {len(members) - NAMED_MAX} more" if len(members) > NAMED_MAX else "")


def _evidence(chat: Board, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.actions import evidence  # hardly anybody asks for it

    evidence.of_message(chat, conversation, row)


def _verify(chat: Board, conversation: Conversation, row: Row) -> None:
    if conversation.member(row.author) is None:
        chat.complain(Printable(f"{conversation.names.label(row.author)} is no longer a member here."))
    else:
        members.show_member(chat, row.author)


def _open(chat: Board, conversation: Conversation, row: Row) -> None:
    links.offer(chat, links_in(row.source, links.LINKS_MAX))


def _view(chat: Board, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.full_message import WholeMessage

    who = conversation.names.byline(row.author)
    title = Printable(f"{who}, {row.day} {row.time}")
    marked = chat.pane.markdown
    chat.app.push_screen(WholeMessage(title, row.source, lambda to: links.offer(chat, [to]), markdown=marked))


def _original(chat: Board, conversation: Conversation, row: Row) -> None:
    quote = row.quote
    assert quote is not None
    if not quote.author:
        chat.complain(Printable("What it answers is not here."))
        return
    key = next((key for key in reversed(conversation.timeline.keys) if key[2] == quote.id), None)
    if key is None:
        jumps.to_message(chat, conversation.info.id, quote.id)
        return
    chat.trail.leave(conversation)
    chat.pane.focus()
    chat.pane.select(key)


def _menu(chat: Board, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.help import key_text, own_bindings
    from zerochat.tui.dialogs.menu import Pick

    pressed = {str(one.id).removeprefix("message."): one.key for one in own_bindings(chat.pane)}
    fitting = {name: act for name, act in ACTS.items() if name != "menu" and act.fits(row)}
    entries = []
    for name, act in fitting.items():
        shown = key_text(pressed.get(name, ""))
        entries.append((name, Content.assemble((shown + " " * max(7 - cells(shown), 1), "$text-muted"), act.title)))

    def chosen(name: str | None) -> None:
        if name is not None and (found := meant(chat, name)) is not None:
            ACTS[name].do(chat, *found)

    keys = {key: name for name in fitting for key in pressed.get(name, "").split(",") if key not in ("", "enter")}
    title = Printable(f"{name_of(conversation.names.byline(row.author))}: {quote_of(row).text[:40]}")
    chat.app.push_screen(Pick(title, entries, keys), chosen)


def _there(row: Row) -> bool:
    return not row.deleted


DELETED = "This message is deleted."
ACTS = {
    "reply": Act("Answer it", _reply, _there, DELETED),
    "react": Act("React to it", _react, _there, DELETED),
    "edit": Act("Edit it", _edit, lambda row: row.own and not row.deleted, "You can edit your own messages only."),
    "delete": Act(
        "Delete it", _delete, lambda row: row.own and not row.deleted, "You can delete your own messages only."
    ),
    "copy": Act("Copy it", _copy, _there, DELETED),
    "view": Act("The whole message", _view, _there, DELETED),
    "original": Act(
        "Go to what it answers", _original, lambda row: row.quote is not None, "It answers no other message."
    ),
    "open": Act(
        "Open a link", _open, lambda row: bool(links_in(row.source, 1)), "There is no https link in this message."
    ),
    "save": Act("Save what came with it, or fetch it", files.save_of, files.has_files, files.NO_FILES),
    "picture": Act("See its picture here", files.picture_of, files.has_picture, files.NO_PICTURE),
    "info": Act("About it, and who has it", _info, lambda row: True, ""),
    "why": Act("What became of it", lambda chat, at, row: delivery.tell(chat, at, row), lambda row: True, ""),
    "evidence": Act("What can be proven of it", _evidence, lambda row: True, ""),
    "verify": Act("Its author", _verify, lambda row: not row.own, "It is your own message."),
    "menu": Act("All of this", _menu, lambda row: True, ""),
}
HINTED = ("reply", "react", "menu", "edit", "delete", "save", "open", "picture", "copy")
"""The acts that the status line hints at; where there is no room, the last ones go first."""
