"""`/export`: writing the log of a group to a new file, page by page, with progress in the status line."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from zerochat.agent.archive import log_file
from zerochat.agent.files.saving import downloads
from zerochat.agent.proofs.proof_file import new_file, place_of
from zerochat.errors import LocalError
from zerochat.presentation.history_rules import NOT_ENCRYPTED
from zerochat.rpc import EventPage, EventPageParams, GroupParams, LogSummary
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions.targets import open_conversation
from zerochat.tui.chat_view import ChatView
from zerochat.tui.composer.paths import path_of
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.state.conversation import Conversation

PROGRESS_S = 0.25
"""Interval of the progress report."""
SHOWN_S = 60.0
"""Maximum display time of one progress report."""


def export(chat: ChatView, argument: str) -> None:
    """`/export [PATH]`: to a new file, or into a folder; without PATH ask for it."""
    if (conversation := open_conversation(chat)) is None:
        return
    if argument:
        chat.run_request(_export(chat, conversation, argument))
        return
    from zerochat.tui.dialogs.dialog import InputDialog

    def answered(path: str | None) -> None:
        if path:
            chat.running_line = f"/export {path}"  # given back on an error
            chat.run_request(_export(chat, conversation, path))
            chat.running_line = ""

    hint = Printable(f"A new file or a folder; existing files are kept. {NOT_ENCRYPTED} Enter saves, Esc cancels.")
    name = place_of(Path(), conversation.name, log_file.SUFFIX).name
    prefill = printable_line(str(downloads(os.environ) / name))
    chat.app.push_screen(InputDialog(Printable("Save the export as"), hint, prefill=prefill), answered)


async def _export(chat: ChatView, conversation: Conversation, wanted: str) -> None:
    """Raises AgentError."""
    path = place_of(Path(path_of(wanted)), conversation.name, log_file.SUFFIX)
    summary = await chat.link.request("get_log_summary", GroupParams(conversation.info.id), LogSummary)
    if path.parent == downloads(os.environ):
        with suppress(OSError):  # writing the file reports the error
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    header = log_file.Header(exported_at=now, summary=summary)
    count, shown, reported = 0, Printable(""), monotonic()
    try:
        with new_file(path) as file:
            page = await _page(chat, summary, None)
            count = log_file.write(header, page.rows, file)
            while page.last is not None:
                if monotonic() - reported >= PROGRESS_S:
                    reported = monotonic()
                    chat.unflash(shown)
                    shown = printable_line(f"Exporting {conversation.name}: {count:,} of {summary.events:,} events…")
                    chat.flash(shown, seconds=SHOWN_S)
                page = await _page(chat, summary, page)
                count += log_file.write_rows(page.rows, file)
    except LocalError as error:
        raise AgentError(error.sentence(), error.code) from None
    finally:
        chat.unflash(shown)
    saved = f"{count:,} events of {conversation.name} saved to {printable_line(str(path), 400)}. {NOT_ENCRYPTED}"
    chat.report(printable_line(saved))


async def _page(chat: ChatView, summary: LogSummary, before: EventPage | None) -> EventPage:
    after = before.last if before is not None else None
    return await chat.link.request("get_event_page", EventPageParams(summary.group, summary.latest, after), EventPage)
