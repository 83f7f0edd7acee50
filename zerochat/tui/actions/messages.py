"""Actions on a message: the table `ACTIONS` with titles, conditions and handlers.

An action applies to the selected message; without a selection to the newest that satisfies its condition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from textual.content import Content

from zerochat.presentation import keep_rules
from zerochat.presentation.delivery import not_listed
from zerochat.presentation.history_rules import no_topic_sentence
from zerochat.rpc import (
    DeleteMessageParams,
    DeliveryReport,
    EventParams,
    GroupInfo,
    ReactParams,
    Sent,
    SetRetentionParams,
    SetTopicParams,
)
from zerochat.terminal_text import Printable, cells, printable_line
from zerochat.tui.actions import delivery, files, jumps, links, members, sending
from zerochat.tui.actions.targets import open_conversation, target_message
from zerochat.tui.chat_view import ChatView
from zerochat.tui.host import clipboard
from zerochat.tui.messages.markdown import links_in
from zerochat.tui.messages.reply_bar import ComposeTarget
from zerochat.tui.messages.row import Row, quote_of
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.hints import why_read_only
from zerochat.tui.style.text import clock_text, name_of

NAMED_MAX = 8
"""Members named in one line of the info dialog."""


@dataclass(frozen=True, slots=True)
class MessageAction:
    """`applies`: whether it is possible for a message; `refusal`: the error where it is not."""

    title: str
    run: Callable[[ChatView, Conversation, Row], None]
    applies: Callable[[Row], bool]
    refusal: str


def run(chat: ChatView, name: str) -> None:
    """Run the action on its target message."""
    if (found := target_of(chat, name)) is not None:
        ACTIONS[name].run(chat, *found)


def target_of(chat: ChatView, name: str) -> tuple[Conversation, Row] | None:
    """The message that the action applies to; None, after an error message, where there is none."""
    return target_message(chat, ACTIONS[name].applies, ACTIONS[name].refusal)


def key_hints(chat: ChatView, row: Row) -> tuple[str, ...]:
    """Key hints of a message for the status line: "r reply"; without letters where these are typed."""
    from zerochat.tui.dialogs.help import bindings_of, first_keys, key_text
    from zerochat.tui.style.keymaps import types_text

    letters, words = chat.pane.letters_act, {"menu": "more"}
    of = {str(each.id): each.key.split(",") for each in bindings_of(chat.pane)}
    hints = []
    for name in HINTED:
        keys = [each for each in of[f"message.{name}"] if letters or not types_text(each)]
        if keys and ACTIONS[name].applies(row):
            hints.append(f"{key_text(keys[0])} {words.get(name, name)}")
    here = first_keys(chat)
    select = [] if letters else [f"{here['view.messages']} letter keys"]
    return (*hints, *select, f"{here['view.composer']} back")


# --- the composer -----------------------------------------------------------------------------------------------------


def _reply(chat: ChatView, conversation: Conversation, row: Row) -> None:
    if why := why_read_only(conversation.info, conversation.members.myself):
        chat.report_error(why)
        return
    chat.set_compose_target(ComposeTarget.reply(row))


def _edit(chat: ChatView, conversation: Conversation, row: Row) -> None:
    if why := why_read_only(conversation.info, conversation.members.myself):
        chat.report_error(why)
        return
    chat.set_compose_target(ComposeTarget.edit(row, chat.composer.text))
    slashed = row.source.startswith("/")
    chat.composer.set_text("/" + row.source if slashed else row.source)


def reply(chat: ChatView, argument: str) -> None:
    """`/reply`, `/reply TEXT`."""
    if (found := target_of(chat, "reply")) is not None:
        _reply(chat, *found)
        if argument and chat.compose_target is not None:
            sending.send(chat, argument)


def edit(chat: ChatView, argument: str) -> None:
    """`/edit`, `/edit TEXT`."""
    if (found := target_of(chat, "edit")) is not None:
        _edit(chat, *found)
        if argument and chat.compose_target is not None:
            sending.send(chat, argument)


# --- the agent --------------------------------------------------------------------------------------------------------


def _delete(chat: ChatView, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    if why := why_read_only(conversation.info, conversation.members.myself):
        chat.report_error(why)
        return

    async def delete() -> None:
        await chat.link.request("delete_message", DeleteMessageParams(conversation.info.id, row.key[2]), Sent)

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(delete())

    question = (
        f"Delete “{quote_of(row).text[:60]}” for all members? Copies that others have kept or saved elsewhere"
        " cannot be taken back."
    )
    chat.app.push_screen(ConfirmDialog(printable_line(question), "Delete", "Cancel"), answered)


def _react(chat: ChatView, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.reaction_picker import ReactionPicker

    def chosen(emoji: str | None) -> None:
        if emoji:
            _toggle_reaction(chat, conversation, row, emoji)

    chat.app.push_screen(ReactionPicker(row.reactions), chosen)


def react(chat: ChatView, argument: str) -> None:
    """`/react [EMOJI|NAME]`: toggle a reaction."""
    if (found := target_of(chat, "react")) is None:
        return
    if not argument:
        _react(chat, *found)
        return
    from zerochat.tui.composer.emoji import emoji_named, find

    emoji = emoji_named(argument)
    if emoji is None:
        near = ", ".join(f"{name} {sign}" for sign, name in find(argument, 3))
        advice = f"Similar: {near}." if near else "Type /react for a list."
        chat.report_error(printable_line(f"No emoji is called {printable_line(argument, 24)}. {advice}"))
        return
    _toggle_reaction(chat, *found, emoji)


def _toggle_reaction(chat: ChatView, conversation: Conversation, row: Row, emoji: str) -> None:
    mine = any(reaction.sign == emoji and reaction.mine for reaction in row.reactions)
    params = ReactParams(conversation.info.id, row.key[2], emoji, on=not mine)
    chat.run_request(chat.link.request("react", params, Sent))


def topic(chat: ChatView, argument: str) -> None:
    """`/topic`, `/topic TEXT`, `/topic -`."""
    if (conversation := open_conversation(chat)) is None:
        return
    if not argument:
        now = printable_line(conversation.info.topic)
        none = Printable(f"{no_topic_sentence(conversation.info.history_start)} /topic TEXT sets one.")
        chat.report(Printable(f"Topic: {now}") if now else none)
        return
    if why := why_read_only(conversation.info, conversation.members.myself):
        chat.report_error(why)
        return
    text = "" if argument == "-" else " ".join(argument.split())
    chat.run_request(chat.link.request("set_topic", SetTopicParams(conversation.info.id, text), Sent))


def keep(chat: ChatView, argument: str) -> None:
    """`/keep`, `/keep TIME`."""
    if (conversation := open_conversation(chat)) is None:
        return
    if not argument:
        chat.report(printable_line(keep_rules.state_sentence(conversation.info)))
        return
    try:
        rule = keep_rules.read_keep(argument)
    except keep_rules.BadKeep as error:
        chat.report_error(printable_line(error.sentence()))
        return

    async def choose() -> None:
        info = await chat.link.request("set_retention", SetRetentionParams(conversation.info.id, rule), GroupInfo)
        await chat.feed.refresh()
        chat.report(printable_line(keep_rules.state_sentence(info)))

    chat.run_request(choose())


# --- looking ----------------------------------------------------------------------------------------------------------


def _copy(chat: ChatView, conversation: Conversation, row: Row) -> None:
    if row.source:
        chat.run_request(copy_text(chat, clipboard.clean(row.source)))
    else:
        chat.report_error(Printable("There is no text to copy."))


async def copy_text(chat: ChatView, text: str) -> None:
    """Copy the text and report the method used."""
    chat.report(await clipboard.copy(chat.app, text, f"{len(text):,} characters"))


SIGNED = "by its author: proves to anyone who wrote it; press E for details"
UNSIGNED = "not individually; press E for details"


def _info(chat: ChatView, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.dialog import open_live

    async def load() -> tuple[Printable, Content]:
        report = await chat.link.request("get_delivery", EventParams(conversation.info.id, row.key[2]), DeliveryReport)
        return Printable("Message info"), _info_content(conversation, row, report)

    chat.run_request(open_live(chat.app, load))


def _info_content(conversation: Conversation, row: Row, report: DeliveryReport) -> Content:
    from zerochat.tui.dialogs.dialog import rows

    event = report.event
    facts: list[tuple[str, str]] = [
        ("id", printable_line(row.key[2])),
        ("author", conversation.names.byline(row.author)),
        ("key", printable_line(row.author)),
    ]
    if event is not None:
        facts += [
            ("sent", clock_text(event.sent_at) + ", by its author's clock"),
            ("received", clock_text(event.received_at)),
            *([("edited", clock_text(event.edited_at))] if event.edited_at else []),
            *([("deleted", "by its author")] if event.deleted else []),
            ("position", f"number {event.position} in its author's chain"),
            ("order", _order(event.lamport)),
            ("parents", ", ".join(printable_line(parent, 20) for parent in event.parents[:8]) or "none"),
            *([("replies to", printable_line(event.reply_to))] if event.reply_to else []),
        ]
    facts.append(("envelope", printable_line(conversation.info.envelope) or "unknown"))
    facts.append(("signed", SIGNED if report.signed else UNSIGNED))
    for reaction in row.reactions[:8]:
        by = next((each.by for each in event.reactions if each.emoji == reaction.sign), []) if event else []
        facts.append((reaction.emoji, _listed(conversation, by, reaction.count)))
    if read := [member.did for member in report.members if member.read]:
        facts.append(("read by", f"{_listed(conversation, read)} (as they report)"))
    facts.append(("delivered", f"to {report.delivered} of {report.of}"))
    label = conversation.names.label
    holders = [
        (delivery.symbol_of(member), label(member.did) + delivery.state_text(member)) for member in report.members
    ]
    if more := not_listed(report):
        holders.append(("…", f"{more} /delivery shows them page by page."))
    return Content("\n").join([*delivery.excerpt(row), rows(facts, 11), Content(""), rows(holders, 2)])


def _order(lamport: int) -> str:
    """The Lamport time as a date: a hybrid clock in UTC ms, later than that of every event its author knew."""
    try:
        when = f"{datetime.fromtimestamp(lamport / 1000, UTC).astimezone():%-d %b %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        when = "an invalid time"
    return f"{when} by the group's clock (Lamport time {lamport})"


def _listed(conversation: Conversation, members: Sequence[str], count: int = 0) -> str:
    """The names of the first members. `count`: the number of all, if `members` are the first of more."""
    names = ", ".join(conversation.names.label(did) for did in members[:NAMED_MAX])
    more = max(count, len(members)) - min(len(members), NAMED_MAX)
    return names + (f" and {more:,} more" if more else "")


def _evidence(chat: ChatView, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.actions import evidence  # rarely used

    evidence.show_of_message(chat, conversation, row)


def _verify(chat: ChatView, conversation: Conversation, row: Row) -> None:
    if conversation.member(row.author) is None:
        chat.report_error(Printable(f"{conversation.names.label(row.author)} is no longer a member here."))
    else:
        members.show_member(chat, row.author)


def _open(chat: ChatView, conversation: Conversation, row: Row) -> None:
    links.open_links(chat, links_in(row.source, links.LINKS_MAX))


def _view(chat: ChatView, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.full_message import FullMessageDialog

    who = conversation.names.byline(row.author)
    title = Printable(f"{who}, {row.day} {row.time}")
    marked = chat.pane.markdown
    chat.app.push_screen(FullMessageDialog(title, row.source, lambda to: links.open_links(chat, [to]), markdown=marked))


def _original(chat: ChatView, conversation: Conversation, row: Row) -> None:
    quote = row.quote
    assert quote is not None
    if not quote.author:
        chat.report_error(Printable("The original message is not available here."))
        return
    key = next((key for key in reversed(conversation.timeline.keys) if key[2] == quote.id), None)
    if key is None:
        jumps.to_message(chat, conversation.info.id, quote.id)
        return
    chat.jump_history.push_current(conversation)
    chat.pane.focus()
    chat.pane.select(key)


def _menu(chat: ChatView, conversation: Conversation, row: Row) -> None:
    from zerochat.tui.dialogs.help import bindings_of, key_text
    from zerochat.tui.dialogs.menu import MenuDialog

    pressed = {str(entry.id).removeprefix("message."): entry.key for entry in bindings_of(chat.pane)}
    fitting = {name: act for name, act in ACTIONS.items() if name != "menu" and act.applies(row)}
    entries = []
    for name, act in fitting.items():
        shown = key_text(pressed.get(name, ""))
        entries.append((name, Content.assemble((shown + " " * max(7 - cells(shown), 1), "$text-muted"), act.title)))

    def chosen(name: str | None) -> None:
        if name is not None and (found := target_of(chat, name)) is not None:
            ACTIONS[name].run(chat, *found)

    keys = {key: name for name in fitting for key in pressed.get(name, "").split(",") if key not in ("", "enter")}
    title = Printable(f"{name_of(conversation.names.byline(row.author))}: {quote_of(row).text[:40]}")
    chat.app.push_screen(MenuDialog(title, entries, keys), chosen)


def _not_deleted(row: Row) -> bool:
    return not row.deleted


DELETED = "This message was deleted."
ACTIONS = {
    "reply": MessageAction("Reply", _reply, _not_deleted, DELETED),
    "react": MessageAction("React", _react, _not_deleted, DELETED),
    "edit": MessageAction(
        "Edit", _edit, lambda row: row.own and not row.deleted, "You can only edit your own messages."
    ),
    "delete": MessageAction(
        "Delete", _delete, lambda row: row.own and not row.deleted, "You can only delete your own messages."
    ),
    "copy": MessageAction("Copy", _copy, _not_deleted, DELETED),
    "view": MessageAction("View in full", _view, _not_deleted, DELETED),
    "original": MessageAction(
        "Go to the original message", _original, lambda row: row.quote is not None, "This message is not a reply."
    ),
    "open": MessageAction(
        "Open a link", _open, lambda row: bool(links_in(row.source, 1)), "This message has no https link."
    ),
    "save": MessageAction("Save or download its file", files.save_files_of, files.has_files, files.NO_FILES),
    "picture": MessageAction("View its picture", files.show_picture_of, files.has_picture, files.NO_PICTURE),
    "info": MessageAction("Message info", _info, lambda row: True, ""),
    "why": MessageAction(
        "Delivery details", lambda chat, at, row: delivery.show_status(chat, at, row), lambda row: True, ""
    ),
    "evidence": MessageAction("Evidence", _evidence, lambda row: True, ""),
    "verify": MessageAction("Verify its author", _verify, lambda row: not row.own, "This is your own message."),
    "menu": MessageAction("Message menu", _menu, lambda row: True, ""),
}
HINTED = ("reply", "react", "menu", "edit", "delete", "save", "open", "picture", "copy")
"""Actions hinted at in the status line; the last ones are dropped first where room is short."""
