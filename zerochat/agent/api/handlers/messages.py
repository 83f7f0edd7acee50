"""Handlers of messages and the event log: posting, annotations, history, search, indicators, files and import."""

import time
from typing import Final

from msgspec import json
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.handlers.context import READ_SENT_S, TYPING_SENT_S, AgentStopping, Context, Handler, Reply
from zerochat.agent.api.post_commands import PostParams, announcement, combined, post_command
from zerochat.agent.files.handlers import FileParams
from zerochat.agent.views import event_pages
from zerochat.agent.views.history_pages import page_of
from zerochat.group.inputs import ImportEvents, SendContent, SendPost, SendReadReceipt, SendTyping
from zerochat.group.state import Group

PAGE_BYTES_MAX: Final = 960 * 1024
PIN_CHARS_MAX: Final = 4_096
"""Of the text of a pinned message in the list of them; escaped, twenty of these fit a line."""
"""The size of a page of history as JSON: it must fit one line of the control socket."""


# --- posting ----------------------------------------------------------------------------------------------------------


def post(context: Context[PostParams]) -> SendPost | SendContent | None:
    """Send a message, an annotation or a topic, once per idempotency key."""
    group, services = context.group, context.services
    if not services.subscriptions.keys.claim(context.call, group.id, context.params):
        return None
    return post_command(services.messages, group, context.params)


def announce_bot(context: Context[rpc.AnnounceParams]) -> SendContent | rpc.Announced:
    """Announce a bot beside the other bots of the profile. It is stored first, as bots repeat it."""
    group, stored, params = context.group, context.services.journal.stream, context.params
    announced = {**stored.announcements(group.id), params.consumer: params}
    new = combined(announced[name] for name in sorted(announced))
    stored.announce(group.id, params)
    return announcement(context.services.messages, group, new)


# --- files ------------------------------------------------------------------------------------------------------------


def files(context: Context[FileParams]) -> Reply:
    if context.services.draining and isinstance(context.params, rpc.SendFilesParams):
        raise AgentStopping
    return context.services.files.serve(context.call, context.agent, context.group, context.params)


# --- indicators -------------------------------------------------------------------------------------------------------


def send_read_receipt(context: Context[rpc.ReadReceiptParams]) -> SendReadReceipt | rpc.EphemeralResult:
    group = context.group
    if context.agent.indicators.read_receipts and _may_indicate(context, group, "read", READ_SENT_S):
        return SendReadReceipt(group.id, context.params.upto)
    return rpc.EphemeralResult()


def send_typing(context: Context[rpc.GroupParams]) -> SendTyping | rpc.EphemeralResult:
    group = context.group
    if context.agent.indicators.typing and _may_indicate(context, group, "typing", TYPING_SENT_S):
        return SendTyping(group.id)
    return rpc.EphemeralResult()


def _may_indicate(
    context: Context[rpc.ReadReceiptParams] | Context[rpc.GroupParams], group: Group, kind: str, every_s: float
) -> bool:
    """Whether the rate limit allows another indicator. Bots send none."""
    services = context.services
    own = services.messages.announced(group).get(group.me)
    bot = own is not None and own.announcement.bot
    return not bot and not services.draining and services.indicators.allows(every_s, time.monotonic(), kind, group.id)


# --- read markers -----------------------------------------------------------------------------------------------------


def mark_read(context: Context[rpc.MarkReadParams]) -> list[rpc.ReadState]:
    params, groups = context.params, context.agent.groups
    wanted = [context.group] if params.group else groups.values()
    return [context.services.unread.mark_read(groups, group, params.upto) for group in wanted]


# --- reading ----------------------------------------------------------------------------------------------------------


def get_history(context: Context[rpc.HistoryParams]) -> rpc.History:
    group, services, params = context.group, context.services, context.params
    while True:
        page = page_of(services.journal, group.id, params)
        events = services.messages.events(group, page.rows, services.names(group))
        if len(events) <= 1 or sum(len(json.encode(event)) for event in events) <= PAGE_BYTES_MAX:
            return rpc.History(events, more=page.more, newer=page.newer)
        params = replace(params, limit=len(events) // 2)


def list_pins(context: Context[rpc.GroupParams]) -> list[rpc.Event]:
    """The pinned messages; their texts are cut, so that all of them fit one line."""
    found = context.services.messages.pinned(context.group, context.services.names(context.group))
    return [replace(one, body={**one.body, "text": str(one.body.get("text", ""))[:PIN_CHARS_MAX]}) for one in found]


def search_messages(context: Context[rpc.SearchParams]) -> rpc.Found:
    from zerochat.agent.views import search

    return search.search(context.services.journal, context.agent, context.params)


def get_log_summary(context: Context[rpc.GroupParams]) -> rpc.LogSummary:
    return event_pages.log_summary(context.services.journal, context.group)


def get_event_page(context: Context[rpc.EventPageParams]) -> rpc.EventPage:
    return event_pages.event_page(context.services.journal, context.group, context.params)


def import_events(context: Context[rpc.ImportEventsParams]) -> ImportEvents:
    return ImportEvents(context.group.id, tuple(context.params.records), context.params.back)


HANDLERS: Final[dict[str, Handler]] = {
    "send_message": post,
    "edit_message": post,
    "delete_message": post,
    "react": post,
    "set_topic": post,
    "pin_message": post,
    "list_pins": list_pins,
    "announce_bot": announce_bot,
    "send_files": files,
    "list_files": files,
    "fetch_file": files,
    "drop_file": files,
    "save_file": files,
    "render_picture": files,
    "send_read_receipt": send_read_receipt,
    "mark_read": mark_read,
    "send_typing": send_typing,
    "get_history": get_history,
    "search_messages": search_messages,
    "get_log_summary": get_log_summary,
    "get_event_page": get_event_page,
    "import_events": import_events,
}
