"""The verb telemetry: recording how messages fare, on this machine and for nobody else."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.telemetry import collection
from zerochat.agent.telemetry.consent import ConsentNeeded, TelemetryForbidden, forbidden
from zerochat.agent.telemetry.schema import Fact, columns, time_field
from zerochat.cli.agents import NobodyToAsk, attached, places_of
from zerochat.cli.confirm import NotConfirmed, agreed
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, find_group, narrate, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.rpc.telemetry import TelemetryStatus

SHOWN = 10
STUDY_FILE = "ZEROCHAT_STUDY_FILE"
PHRASE_BYTES_MAX = 512
PROGRESS_S = 0.2
PROGRESS_ROWS = 20_000
"""Below that it is over before anybody wonders."""


class NoFolder(LocalError):
    """Say where: `zerochat telemetry export --out DIR` makes that folder, and --dry-run prints what it would write."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NoSuchTime(LocalError):
    """--since: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NobodyToAskForWords(NobodyToAsk):
    """The study's words are needed, and there is no terminal to ask for them. Put them into a file that only you can
    read, and name that file in ZEROCHAT_STUDY_FILE."""


def telemetry(options: Options, out: Output) -> ExitCode:
    match options.telemetry_action:
        case "on":
            return _on(options, out)
        case "off":
            with attached(options) as agent:
                return _say(agent.client.call("telemetry_set", on=False), out, "Nothing is recorded any more.")
        case "show":
            return _show(options, out)
        case "export":
            return _export(options, out)
        case "delete":
            return _delete(options, out)
        case "words":
            from zerochat.agent.telemetry.pseudonyms import new_phrase

            phrase = new_phrase()
            out.data({"words": phrase}, [phrase])
            return ExitCode.OK
        case _:
            with attached(options) as agent:
                status: TelemetryStatus = agent.client.call("telemetry")
            _say(status, out)
            if status.recording and (why := _forbidden(options)):
                narrate(f"{why}, and the agent began without that: `zerochat telemetry off` ends it now.")
            return ExitCode.OK


def _forbidden(options: Options) -> str:
    """What forbids it here and now, whatever the agent was told when it began (`consent.forbidden`)."""
    from zerochat.agent.settings.reader import load_settings

    return forbidden(os.environ, load_settings(places_of(options)).allowed)


def _check_allowed(options: Options) -> None:
    """Raises TelemetryForbidden."""
    if why := _forbidden(options):
        raise TelemetryForbidden(why=why)


def _on(options: Options, out: Output) -> ExitCode:
    _check_allowed(options)
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise ConsentNeeded
    with attached(options) as agent:
        status: TelemetryStatus = agent.client.call("telemetry")
        if status.forbidden:
            raise TelemetryForbidden(why=status.forbidden)
        if not status.on and not options.yes:
            for paragraph in status.question[1:]:
                narrate(paragraph)
            if not agreed(status.question[0]):
                narrate("Nothing is recorded from now on either." if status.rows else "Nothing is recorded.")
                return ExitCode.REFUSED
        status = agent.client.call("telemetry_set", on=True, consent=status.consent)
    return _say(status, out, "It is recorded from now on, here and nowhere else. `zerochat telemetry off` ends that.")


def _say(status: TelemetryStatus, out: Output, sentence: str = "") -> ExitCode:
    why = status.forbidden or status.fault
    facts = [
        ("telemetry", "on" if status.on else "off"),
        ("recording", "yes" if status.recording else f"no: {why}" if why else "no"),
        ("since", status.since or "-"),
        ("rows", f"{status.rows:,}"),
        ("size", f"{status.bytes / (1 << 20):.1f} MiB of {status.mebibytes_max}, {status.days_max} days at the most"),
        ("from", status.first or "-"),
        ("to", status.last or "-"),
        ("sent to", "nobody"),
    ]
    out.data(status, table(facts))
    if sentence:
        narrate(sentence)
    if status.on and status.forbidden:
        narrate(f"{status.forbidden}, although somebody has turned it on.")
    elif status.on and status.fault:
        narrate("It was turned on, and has ended by itself. `zerochat telemetry on` begins it again.")
    return ExitCode.OK


def _show(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        rows = collection.newest(agent.client.call, options.count or SHOWN)
    for row in rows:
        kind, kept = type(row).__name__.lower(), collection.as_kept(row)
        out.data({"row": kind, **kept}, [f"{_moment(kept[time_field(type(row))])}  {kind:<8}  {_fields(row, kept)}"])
    if not rows:
        narrate("Nothing is recorded.")
    elif not out.jsonl:
        for kind_of in dict.fromkeys(map(type, rows)):
            narrate(f"{kind_of.__name__.lower()}: {meaning(kind_of)}")
        narrate("Groups and members are numbers here, which an export replaces by pseudonyms; `_us` are microseconds.")
    return ExitCode.OK


def meaning(kind: type[Fact]) -> str:
    """What a kind of rows is, in a sentence: the first of its description."""
    return " ".join((kind.__doc__ or "").split()).partition(". ")[0].removesuffix(".") + "."


def _fields(row: Fact, kept: Mapping[str, Any]) -> str:
    """Every field but the one that stands before them."""
    first = time_field(type(row))
    times = {column.name for column in columns(type(row)) if column.is_time}
    told = {name: _moment(value) if name in times else _shown(value) for name, value in kept.items() if name != first}
    return " ".join(f"{name.removesuffix('_us') if name in times else name}={text}" for name, text in told.items())


def _moment(us: int) -> str:
    """A time as it was recorded, in UTC."""
    return f"{timestamp(us // 1000).removesuffix('Z')}{us % 1000:03}Z"


def _shown(value: object) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def _delete(options: Options, out: Output) -> ExitCode:
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise NotConfirmed(doing="Deleting", group="what is recorded")
    with attached(options) as agent:
        status: TelemetryStatus = agent.client.call("telemetry")
        if not options.yes and not agreed(f"Delete {status.rows:,} rows of telemetry? Nothing brings them back."):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        status = agent.client.call("telemetry_delete")
    after = " It goes on being recorded: `zerochat telemetry off` ends that." if status.on else ""
    return _say(
        status, out, f"{status.deleted:,} rows are deleted. Exports that you have made stay where they are.{after}"
    )


# --- export -----------------------------------------------------------------------------------------------------------


def _export(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.telemetry.export import Told, Wanted, dry_run, export
    from zerochat.agent.telemetry.pseudonyms import Pseudonyms

    _check_allowed(options)
    if not (options.dry_run or options.path):
        raise NoFolder
    since_ms = _since(options.after)
    pseudonyms = Pseudonyms.of_phrase(_phrase()) if options.study else Pseudonyms.alone()
    with attached(options) as agent:
        client = agent.client
        status: TelemetryStatus = client.call("telemetry")
        if status.forbidden:
            raise TelemetryForbidden(why=status.forbidden)
        groups = frozenset({find_group(client.groups(), options.group).id}) if options.group else None
        wanted = Wanted(since_ms * 1000, groups)
        end = collection.end_of(client.call)
        names = collection.names(client.call)
        rows = _watched(collection.batches(client.call, end), status.rows)
        told: Told
        if options.dry_run:
            import json

            def say(file: str, row: dict[str, Any]) -> None:
                print(json.dumps({"file": file, **row}, separators=(",", ":")))

            told = dry_run(say, rows, names, pseudonyms, wanted)
            print(json.dumps({"file": "manifest.json", **told.manifest}, separators=(",", ":")), flush=True)
        else:
            told = export(Path(options.path or "").expanduser().absolute(), rows, names, pseudonyms, wanted)
    count = sum(told.rows.values())
    left = f" {told.nameless:,} rows are left out: their groups are forgotten." if told.nameless else ""
    if options.dry_run:
        other = "" if options.study else " The next export has other numbers for everybody."
        narrate(f"{count:,} rows would be written, and nothing was.{other}{left}")
        return ExitCode.OK
    out.data({"path": options.path, **told.manifest}, [str(options.path)])
    narrate(f"{count:,} rows, and nobody's name. They stay where they are until you give them away.{left}")
    return ExitCode.OK


def _since(text: str | None) -> int:
    """From when on, UTC ms; 0: from the beginning. Raises NoSuchTime."""
    from zerochat.presentation.search_query import BadSearch, read_time

    try:
        return read_time(text, int(time.time() * 1000)) if text else 0
    except BadSearch as error:
        raise NoSuchTime(why=error.fields["why"]) from error


def _phrase() -> str:
    """The words of a study: from the file for it, or typed. Raises BadPhrase."""
    from zerochat.agent.telemetry.pseudonyms import BadPhrase

    if name := os.environ.get(STUDY_FILE):
        try:
            with Path(name).expanduser().open("rb") as file:
                return file.read(PHRASE_BYTES_MAX).decode("utf-8", "replace")
        except OSError as error:
            raise BadPhrase(why=f"{name} cannot be read ({(error.strerror or str(error)).lower()})") from error
    if sys.stdin is None or not sys.stdin.isatty():
        raise NobodyToAskForWords
    from getpass import getpass

    return getpass("The study's words: ")


def _watched(batches: Iterable[list[Fact]], total: int) -> Iterator[list[Fact]]:
    """The rows, while a person at a terminal sees how far it is."""
    shown = total >= PROGRESS_ROWS and sys.stderr is not None and sys.stderr.isatty()
    said, done = time.monotonic(), 0
    for rows in batches:
        if shown and time.monotonic() - said >= PROGRESS_S:
            said = time.monotonic()
            print(f"\r{done:,} of {total:,} rows", end="", file=sys.stderr, flush=True)
        yield rows
        done += len(rows)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
