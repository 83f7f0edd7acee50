"""What /telemetry does: the verbs of `zerochat telemetry`, with its question as a question."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from zerochat.errors import LocalError
from zerochat.rpc import NoParams
from zerochat.rpc.telemetry import TelemetryRows, TelemetryRowsParams, TelemetrySetParams, TelemetryStatus
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.chat_view import Board, app_of

SHOWN = 50
USAGE = Printable(
    "/telemetry takes on, off, status, show, delete, or export and a folder to make: /telemetry export ~/study"
)


def telemetry(chat: Board, rest: str) -> None:
    """`/telemetry`, `/telemetry on`, `/telemetry export DIR`."""
    word, _, where = rest.strip().partition(" ")
    deeds: dict[str, Callable[[], Awaitable[None]]] = {
        "": lambda: _status(chat),
        "status": lambda: _status(chat),
        "on": lambda: _on(chat),
        "off": lambda: _off(chat),
        "show": lambda: _show(chat),
        "delete": lambda: _delete(chat),
        "export": lambda: _export(chat, where.strip()),
    }
    if word not in deeds or bool(where.strip()) is not (word == "export"):
        chat.complain(USAGE)
        return

    async def do() -> None:
        await deeds[word]()

    chat.attempt(do())


async def _ask(chat: Board) -> TelemetryStatus:
    """What the chat was told counts too, whatever its agent was."""
    from zerochat.agent.telemetry.consent import forbidden

    status = await chat.link.ask("telemetry", NoParams(), TelemetryStatus)
    return replace(status, forbidden=status.forbidden or forbidden(os.environ))


async def _status(chat: Board) -> None:
    from zerochat.tui.dialogs.dialog import Sheet, rows

    status = await _ask(chat)
    why = status.forbidden or status.fault
    facts = [
        ("telemetry", "on" if status.on else "off"),
        ("recording", "yes" if status.recording else f"no: {why}" if why else "no"),
        ("rows", f"{status.rows:,}, {status.bytes / (1 << 20):.1f} of {status.mebibytes_max} MiB"),
        ("from", status.first or "-"),
        ("to", status.last or "-"),
        ("sent to", "nobody"),
        ("", USAGE),
    ]
    chat.app.push_screen(
        Sheet(Printable("Telemetry"), rows([(left, printable_line(right)) for left, right in facts], 10))
    )


async def _on(chat: Board) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    status = await _ask(chat)
    if status.forbidden:
        chat.complain(printable_line(f"{status.forbidden}. Nothing is recorded, whatever else was said."))
        return
    if status.recording:
        chat.tell(Printable("It is recorded already. /telemetry off ends that."))
        return

    async def begin() -> None:
        await chat.link.ask("telemetry_set", TelemetrySetParams(True, status.consent), TelemetryStatus)
        chat.tell(Printable("It is recorded from now on, here and nowhere else. /telemetry off ends that."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(begin())
        else:
            chat.tell(Printable("Nothing is recorded from now on either." if status.rows else "Nothing is recorded."))

    if status.on:  # it has ended by itself: who asks for it anew has read what it is
        await begin()
        return
    about = printable("\n\n".join(status.question[1:]))
    chat.app.push_screen(Confirm(printable_line(status.question[0]), "Record", "Do not", about), answered)


async def _off(chat: Board) -> None:
    await chat.link.ask("telemetry_set", TelemetrySetParams(False), TelemetryStatus)
    chat.tell(Printable("Nothing is recorded any more. What there is stays until /telemetry delete."))


async def _show(chat: Board) -> None:
    from zerochat.agent.telemetry.collection import as_kept, rows_of
    from zerochat.tui.dialogs.dialog import Sheet, rows

    page = await chat.link.ask("telemetry_rows", TelemetryRowsParams(newest=SHOWN), TelemetryRows)
    found = [row for batch in page.batches for row in rows_of(batch)][-SHOWN:]
    if not found:
        chat.tell(Printable("Nothing is recorded."))
        return
    lines = [
        (
            type(row).__name__.lower(),
            printable_line(" ".join(f"{name}={value}" for name, value in as_kept(row).items())),
        )
        for row in reversed(found)
    ]
    chat.app.push_screen(Sheet(Printable("Telemetry, the newest rows as they are kept"), rows(lines, 8)))


async def _delete(chat: Board) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    status = await _ask(chat)

    async def delete() -> None:
        gone = await chat.link.ask("telemetry_delete", NoParams(), TelemetryStatus)
        chat.tell(printable_line(f"{gone.deleted:,} rows of telemetry are deleted."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(delete())

    question = printable_line(f"Delete {status.rows:,} rows of telemetry? Nothing brings them back.")
    chat.app.push_screen(Confirm(question, "Delete", "Keep"), answered)


async def _export(chat: Board, where: str) -> None:
    places = app_of(chat).choices.places
    status = await _ask(chat)
    if status.forbidden or places is None:
        chat.complain(printable_line(status.forbidden or "This chat has no profile of its own"))
        return

    def write() -> int:
        from zerochat.agent.api.client import connect
        from zerochat.agent.telemetry import collection
        from zerochat.agent.telemetry.export import Wanted, export
        from zerochat.agent.telemetry.pseudonyms import Pseudonyms

        with connect(places, "tui") as client:
            end = collection.end_of(client.call)
            names, rows = collection.names(client.call), collection.batches(client.call, end)
            told = export(Path(where).expanduser().absolute(), rows, names, Pseudonyms.alone(), Wanted())
        return sum(told.rows.values())

    try:
        count = await asyncio.to_thread(write)
    except LocalError as error:
        chat.complain(printable(error.sentence()))
    else:
        chat.tell(printable_line(f"{count:,} rows, and nobody's name, are in {where}."))
