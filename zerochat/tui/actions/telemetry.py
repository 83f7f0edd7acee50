"""The command /telemetry: the verbs of `zerochat telemetry`, with its consent question as a dialog."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from zerochat.agent.storage.paths import user_path
from zerochat.errors import LocalError
from zerochat.rpc import NoParams
from zerochat.rpc.telemetry import TelemetryRows, TelemetryRowsParams, TelemetrySetParams, TelemetryStatus
from zerochat.slash_commands import COMMANDS, usage_of
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions.targets import report_usage
from zerochat.tui.base_app import app_of
from zerochat.tui.chat_view import ChatView

ROWS_SHOWN = 50


def telemetry(chat: ChatView, argument: str) -> None:
    """`/telemetry`, `/telemetry on`, `/telemetry export DIR`."""
    word, _, where = argument.strip().partition(" ")
    actions: dict[str, Callable[[], Awaitable[None]]] = {
        "": lambda: _status(chat),
        "status": lambda: _status(chat),
        "on": lambda: _on(chat),
        "off": lambda: _off(chat),
        "show": lambda: _show(chat),
        "delete": lambda: _delete(chat),
        "export": lambda: _export(chat, where.strip()),
    }
    if word not in actions or bool(where.strip()) is not (word == "export"):
        report_usage(chat, "telemetry", "export ~/study")
        return

    async def act() -> None:
        await actions[word]()

    chat.run_request(act())


async def _fetch_status(chat: ChatView) -> TelemetryStatus:
    """The telemetry status; the environment of the chat can forbid it as well as the agent's."""
    from zerochat.agent.telemetry.consent import forbidden

    status = await chat.link.request("get_telemetry", NoParams(), TelemetryStatus)
    return replace(status, forbidden=status.forbidden or forbidden(os.environ))


async def _status(chat: ChatView) -> None:
    from zerochat.tui.dialogs.dialog import TextDialog, rows

    status = await _fetch_status(chat)
    why = status.forbidden or status.fault
    facts = [
        ("telemetry", "on" if status.on else "off"),
        ("recording", "yes" if status.recording else f"no: {why}" if why else "no"),
        ("rows", f"{status.rows:,}, {status.bytes / (1 << 20):.1f} of {status.mebibytes_max} MiB"),
        ("from", status.first or "-"),
        ("to", status.last or "-"),
        ("sent to", "no one: it stays on this machine"),
        ("", usage_of(COMMANDS["telemetry"])),
    ]
    chat.app.push_screen(
        TextDialog(Printable("Telemetry"), rows([(left, printable_line(right)) for left, right in facts], 10))
    )


async def _on(chat: ChatView) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    status = await _fetch_status(chat)
    if status.forbidden:
        chat.report_error(printable_line(f"{status.forbidden}. Telemetry stays off."))
        return
    if status.recording:
        chat.report(Printable("Telemetry is already on. /telemetry off stops it."))
        return

    async def begin() -> None:
        await chat.link.request("set_telemetry", TelemetrySetParams(True, status.consent), TelemetryStatus)
        chat.report(Printable("Telemetry is on and stays on this machine. /telemetry off stops it."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(begin())
        else:
            chat.report(Printable("Telemetry stays off."))

    if status.on:  # recording stopped by itself; consent was already given
        await begin()
        return
    about = printable("\n\n".join(status.question[1:]))
    chat.app.push_screen(ConfirmDialog(printable_line(status.question[0]), "Turn on", "Cancel", about), answered)


async def _off(chat: ChatView) -> None:
    await chat.link.request("set_telemetry", TelemetrySetParams(False), TelemetryStatus)
    chat.report(Printable("Telemetry is off. Recorded rows stay until /telemetry delete."))


async def _show(chat: ChatView) -> None:
    from zerochat.agent.telemetry.collection import as_dict, records_in
    from zerochat.tui.dialogs.dialog import TextDialog, rows

    page = await chat.link.request("get_telemetry_rows", TelemetryRowsParams(newest=ROWS_SHOWN), TelemetryRows)
    found = [row for batch in page.batches for row in records_in(batch)][-ROWS_SHOWN:]
    if not found:
        chat.report(Printable("No telemetry is recorded."))
        return
    lines = [
        (
            type(row).__name__.lower(),
            printable_line(" ".join(f"{name}={value}" for name, value in as_dict(row).items())),
        )
        for row in reversed(found)
    ]
    chat.app.push_screen(TextDialog(Printable("Telemetry: the newest rows"), rows(lines, 8)))


async def _delete(chat: ChatView) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    status = await _fetch_status(chat)
    if not status.rows:
        chat.report(Printable("No telemetry is recorded."))
        return

    async def delete() -> None:
        gone = await chat.link.request("delete_telemetry", NoParams(), TelemetryStatus)
        chat.report(printable_line(f"{gone.deleted:,} telemetry rows deleted."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(delete())

    question = printable_line(f"Delete {status.rows:,} telemetry rows? This cannot be undone.")
    chat.app.push_screen(ConfirmDialog(question, "Delete", "Cancel"), answered)


async def _export(chat: ChatView, where: str) -> None:
    places = app_of(chat).settings_store.places
    status = await _fetch_status(chat)
    if status.forbidden or places is None:
        chat.report_error(printable_line(status.forbidden or "This chat runs without a profile"))
        return

    def write() -> int:
        from zerochat.agent.api.client import connect
        from zerochat.agent.telemetry import collection
        from zerochat.agent.telemetry.export import Selection, export
        from zerochat.agent.telemetry.pseudonyms import Pseudonyms

        with connect(places, "tui") as client:
            end = collection.last_batch(client.call)
            names, rows = collection.names(client.call), collection.batches(client.call, end)
            result = export(user_path(where).absolute(), rows, names, Pseudonyms.single(), Selection())
        return sum(result.rows.values())

    try:
        count = await asyncio.to_thread(write)
    except LocalError as error:
        chat.report_error(printable(error.sentence()))
    else:
        chat.report(printable_line(f"Exported {count:,} rows without names to {where}."))
