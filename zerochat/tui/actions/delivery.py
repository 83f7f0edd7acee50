"""Delivery of single messages, and notifications about the event log: gaps, forks, confirmations."""

from textual.content import Content

from zerochat.presentation import delivery as delivery_texts
from zerochat.rpc import (
    BackfillNotification,
    ChainDifferenceNotification,
    Completeness,
    CompleteNotification,
    ConfirmedNotification,
    DeliveryReport,
    EventParams,
    ForkNotification,
    GapNotification,
    MemberDelivery,
    MessageStatus,
    RefutedNotification,
    ValidityNotification,
)
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions.targets import report_ambiguous
from zerochat.tui.chat_view import ChatView
from zerochat.tui.messages.timeline import Row
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.feed_listener import LogNotification
from zerochat.tui.state.hints import NO_GROUP
from zerochat.tui.style.text import clock_of, name_of

SYMBOLS = {"delivered": "✓", "sent": "→", "stored": "⇥", "held": "…", "queued": "…"}


def completeness_text(found: Completeness) -> Printable:
    """How complete a group's event log is."""
    return printable_line(delivery_texts.completeness_text(found, name_of, clock_of))


# --- news -----------------------------------------------------------------------------------------------------------


def on_notification(chat: ChatView, notification: LogNotification) -> None:
    """Report a notification about a group's event log. Gaps themselves are rows of the message pane."""
    conversation = chat.conversations.by_id.get(notification.group)
    if conversation is None:
        return
    here = conversation is chat.conversations.open
    sentence = printable_line(delivery_texts.notification_sentence(notification, name_of, clock_of))
    match notification:
        case ForkNotification(author=did):
            _warn(chat, conversation, did, sentence)
        case ConfirmedNotification(author=did, after=after, upto=upto):
            conversation.confirm(did, after, upto)
            chat.rows_changed(conversation, None)
        case RefutedNotification(by=did):
            conversation.refute(notification.author, notification.after, notification.upto)
            chat.rows_changed(conversation, None)
            if did:
                _warn(chat, conversation, did, sentence)
            elif here:
                chat.flash(sentence)
        case ValidityNotification(mine=True, valid=False):
            chat.report(sentence if here else Printable(f"{conversation.name}: {sentence}"), trouble=True)
        case ValidityNotification() if here:
            chat.flash(sentence)
        case ChainDifferenceNotification() if not here:  # in the open group the banner shows it
            chat.report(Printable(f"{conversation.name}: {sentence}"), trouble=True)
        case GapNotification(state="lost") | CompleteNotification() if here:
            chat.flash(sentence)
        case BackfillNotification(done=True, received=got) if here and got:
            chat.flash(sentence)
        case _:
            pass


def _warn(chat: ChatView, conversation: Conversation, did: str, sentence: Printable) -> None:
    conversation.warnings_by_member[did] = Printable(f"! {sentence}")
    if conversation is chat.conversations.open:
        chat.warnings_changed()
    else:
        chat.report(Printable(f"{conversation.name}: {sentence}"), trouble=True)


# --- one message ----------------------------------------------------------------------------------------------------


def delivery(chat: ChatView, argument: str) -> None:
    """`/delivery [NAME]`: who has received the last message of mine, or of that member."""
    from zerochat.tui.dialogs.delivery import DeliveryDialog
    from zerochat.tui.dialogs.dialog import rows

    conversation, row = _target(chat, argument)
    if conversation is None or row is None:
        return

    async def load(after: str, word: str) -> tuple[DeliveryReport, Content]:
        params = EventParams(conversation.info.id, row.key[2], after=after, query=word)
        report = await chat.link.request("get_delivery", params, DeliveryReport)
        people = [
            (symbol_of(member), f"{conversation.names.label(member.did)}{state_text(member)}")
            for member in report.members
        ]
        return report, Content("\n").join([*excerpt(row), rows(people, 2)])

    async def show() -> None:
        chat.app.push_screen(DeliveryDialog(load, *await load("", "")))

    chat.run_request(show())


def why(chat: ChatView, argument: str) -> None:
    """Delivery details, in sentences."""
    conversation, row = _target(chat, argument)
    if conversation is not None and row is not None:
        show_status(chat, conversation, row)


def show_status(chat: ChatView, conversation: Conversation, row: Row) -> None:
    """Show the delivery of this message in sentences."""
    from zerochat.tui.dialogs.dialog import open_live

    async def load() -> tuple[Printable, Content]:
        status = await chat.link.request(
            "get_message_status", EventParams(conversation.info.id, row.key[2]), MessageStatus
        )
        nicks = {member.did: member.nick for member in (*status.report.members, *status.former_members)}
        vias = (member.via for member in status.report.members)
        nicks |= {via: entry.nick for via in vias if (entry := conversation.member(via)) is not None}
        sentences = [
            printable_line(entry) for entry in delivery_texts.status_sentences(status, nicks, name_of, clock_of)
        ]
        body = [
            *excerpt(row),
            *(Content(sentence) for sentence in sentences),
            Content(""),
            Content(f"id {printable_line(row.key[2])}"),
        ]
        return Printable("Delivery details"), Content("\n").join(body)

    chat.run_request(open_live(chat.app, load))


def _target(chat: ChatView, name: str) -> tuple[Conversation | None, Row | None]:
    """The open conversation and the last message of mine, or of the member of that name (`last` and `last:NAME`
    work as in the CLI); None where there is none, which is reported."""
    name = "" if name == "last" else name.removeprefix("last:")
    conversation = chat.conversations.open
    if conversation is None:
        chat.report_error(NO_GROUP)
        return None, None
    posts = [row for row in conversation.timeline.rows if row.kind == "post"]
    if not name:
        mine = [row for row in posts if row.own]
        if not mine:
            chat.flash(Printable("You have not posted here yet."))
        return conversation, mine[-1] if mine else None
    found = {entry.did for entry in conversation.members_named(name)}
    theirs = [row for row in posts if row.author in found]
    if len(found) > 1:
        report_ambiguous(chat, name, len(found))
        return None, None
    if not theirs:
        who = name_of(name)
        why = f"{who} has no message among those loaded here." if found else f"No member is called {who}."
        chat.report_error(Printable(why))
    return conversation, theirs[-1] if theirs else None


def excerpt(row: Row) -> list[Content]:
    return [Content(printable(row.text, lines_max=3, chars_max=300)), Content("")]


def symbol_of(member: MemberDelivery) -> str:
    return "✓" if member.delivered else SYMBOLS.get(member.state, "·")


def state_text(member: MemberDelivery) -> str:
    """The text after the name: since when it is delivered, or what it waits for."""
    if member.delivered:
        return (f"  since {clock_of(member.at)}" if member.at else "") + delivery_texts.signature(member, clock_of)
    if note := delivery_texts.obstacle_note(member):
        return f"  {note}"
    seen = f"last seen {clock_of(member.last_seen)}" if member.last_seen else "not seen yet"
    again = f", retransmitted {'once' if member.tries == 1 else f'{member.tries} times'}" if member.tries else ""
    match member.state:
        case "sent":
            return "  sent via a mediator" + again if member.via == "mediator" else f"  sent{again}"
        case "stored":
            until = f" until {clock_of(member.stored_until)}" if member.stored_until else ""
            return f"  stored by its mediator{until}"
        case "held":
            again = f", next at {clock_of(member.next_try)}" if member.next_try else ""
            return f"  {delivery_texts.STATES['held']}{again}"
        case "queued":
            return f"  queued; {seen}"
        case "unknown" if member.connection == "indirect":
            return "  not reported yet"
        case _:
            return ""
