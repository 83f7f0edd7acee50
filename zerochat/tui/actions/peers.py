"""Queries to single peers (ping, features, DID rotation) and notifications about them."""

from collections.abc import Callable

from textual.content import Content

from zerochat.presentation.external import text_of
from zerochat.rpc import (
    ConnectionMessageNotification,
    ConnectionNotification,
    FeaturesNotification,
    MessageSettledNotification,
    NoParams,
    PeerParams,
    PendingReply,
    PongNotification,
    ProblemNotification,
    QueryFeaturesParams,
    RotatedNotification,
    RotateParams,
)
from zerochat.terminal_text import Printable, printable, printable_key, printable_line
from zerochat.tui.actions.targets import report_ambiguous, report_usage
from zerochat.tui.chat_view import ChatView
from zerochat.tui.state.feed_listener import PeerRelatedNotification
from zerochat.tui.state.pending_requests import Response
from zerochat.tui.style.text import name_of

ANSWER_S_MAX = 10.0
"""Seconds after which a missing response is reported."""
ROUTES = {"direct": "directly", "mediator": "via a mediator", "web": "via the web"}
TOAST_LINES_MAX, TOAST_CHARS_MAX = 8, 800
"""Size of an external message in a toast."""
FEATURES_MAX = 8
"""Protocols listed in a toast."""


# --- showing --------------------------------------------------------------------------------------------------------


def on_notification(chat: ChatView, notification: PeerRelatedNotification) -> None:
    """Report a notification about a peer, or resolve the pending request that it answers."""
    match notification:
        case PongNotification() | FeaturesNotification():
            chat.pending_requests.resolve(notification)
        case RotatedNotification(group=group, member=member, nick=nick, mine=mine):
            # A DID is also replaced at every first contact, which is not reported.
            if mine and f"{group}/{member}" in chat.pending_requests.rotating:
                chat.pending_requests.rotating.discard(f"{group}/{member}")
                chat.report(Printable(f"{name_of(nick)} confirmed your new DID; the old one is retired."))
        case ConnectionMessageNotification(label=label):
            shown = printable(text_of(notification), lines_max=TOAST_LINES_MAX, chars_max=TOAST_CHARS_MAX)
            _toast(chat, Printable(f"{name_of(label)}: {shown}\n/messages {name_of(label)} shows it again."))
        case MessageSettledNotification(label=label, status=status):
            if status == "failed":
                to = name_of(label)
                chat.report(
                    Printable(f"A message to {to} could not be delivered. /messages {to} shows it."), trouble=True
                )
        case ConnectionNotification(text=text):
            chat.report(printable_line(text))
        case ProblemNotification(peer=peer, code=code, comment=comment):
            why = f"{printable_line(comment)} ({printable_line(code)})"
            chat.report(Printable(f"{name_of(peer)} reports a problem: {why}"), trouble=True)


def _toast(chat: ChatView, text: Printable) -> None:
    chat.app.notify(text, markup=False, timeout=15)


def _pong_text(pong: PongNotification) -> Printable:
    lines = [
        f"{name_of(pong.peer)} answered in {pong.rtt_ms} ms, {ROUTES[pong.channel]}.",
        printable_line(pong.envelope),
        f"their key {printable_key(pong.their_key)}",
        f"your key {printable_key(pong.my_key)}",
    ]
    return Printable("\n".join(lines))


def _show_features(chat: ChatView, found: FeaturesNotification) -> None:
    """Show the protocols in a dialog; in a toast where the user is typing or in another dialog."""
    from zerochat.tui.dialogs.dialog import TextDialog, rows

    listed = [(printable_line(each.type), printable_line(each.id)) for each in found.features]
    title = Printable(f"Protocols of {name_of(found.peer)}'s agent")
    if chat.is_current and not chat.composer.text:
        body = rows(listed, 9) if listed else Content("none disclosed")
        chat.app.push_screen(TextDialog(title, body))
        return
    shown: list[str] = [name for _, name in listed[:FEATURES_MAX]] or ["none disclosed"]
    more = [f"and {len(listed) - FEATURES_MAX} more"] if len(listed) > FEATURES_MAX else []
    _toast(chat, Printable("\n".join([f"{title}:", *shown, *more])))


# --- asking ---------------------------------------------------------------------------------------------------------


def ping(chat: ChatView, argument: str) -> None:
    def shown(answer: Response) -> None:
        if isinstance(answer, PongNotification):
            _toast(chat, _pong_text(answer))

    if (peer := _peer(chat, "ping", argument)) is not None:
        chat.run_request(_query(chat, "ping_peer", PeerParams(peer), argument, shown))


def features(chat: ChatView, argument: str) -> None:
    def shown(answer: Response) -> None:
        if isinstance(answer, FeaturesNotification):
            _show_features(chat, answer)

    if (peer := _peer(chat, "features", argument)) is not None:
        chat.run_request(_query(chat, "query_features", QueryFeaturesParams(peer), argument, shown))


async def _query(
    chat: ChatView, method: str, params: PeerParams | QueryFeaturesParams, name: str, shown: Callable[[Response], None]
) -> None:
    question = await chat.link.request(method, params, PendingReply)
    chat.pending_requests.expect(question.thread, shown)

    def late() -> None:
        if chat.pending_requests.cancel(question.thread):
            chat.report(Printable(f"No answer from {name_of(name)} within {ANSWER_S_MAX:g} s."))

    chat.set_timer(ANSWER_S_MAX, late)


def rotate(chat: ChatView, argument: str) -> None:
    async def change(peer: str) -> None:
        await chat.link.request("rotate_did", RotateParams(peer), NoParams)
        chat.pending_requests.rotating.add(peer)
        chat.report(
            Printable(f"You now use a new DID with {name_of(argument)}, who learns it now or with your next message.")
        )

    if (peer := _peer(chat, "rotate", argument)) is not None:
        chat.run_request(change(peer))


def _peer(chat: ChatView, command: str, name: str) -> str | None:
    """The peer in the agent's notation: GROUP/DID for a member of the open group, else the typed name."""
    if not name:
        report_usage(chat, command, "bob")
        return None
    conversation = chat.conversations.open
    if conversation is None:
        return name
    found = [member.did for member in conversation.members_named(name) if member.connection != "self"]
    if len(found) > 1:
        report_ambiguous(chat, name, len(found))
        return None
    return f"{conversation.info.id}/{found[0]}" if found else name
