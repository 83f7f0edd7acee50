"""Verb telemetry: records delivery statistics locally, shows, exports and deletes them."""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zerochat.agent.storage.paths import user_path
from zerochat.cli.agent_access import attached, paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import find_group, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, yes_option
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import NoPassphrase, NotConfirmed, confirmed
from zerochat.cli.value_types import positive
from zerochat.errors import LocalError, docstring
from zerochat.rpc.telemetry import TelemetryStatus

if TYPE_CHECKING:
    from zerochat.agent.telemetry.schema import Record

ROWS_MAX = 10_000
"""Rows that `show` prints at most."""


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "telemetry",
        "record, show and export delivery statistics of this machine",
        "Record when messages are sent, received and acknowledged, by which route and with which delay. Telemetry is\n"
        "off by default, stored in the profile's encrypted journal and never sent anywhere; it contains no message\n"
        "texts, names or addresses. DO_NOT_TRACK=1 and ZEROCHAT_TELEMETRY=0 disable it regardless of all settings.\n"
        "zerochat/agent/telemetry/README.md documents every field.",
        """
zerochat telemetry on
zerochat telemetry status
zerochat telemetry show -n 5
zerochat telemetry export --dry-run --since 7d | less
zerochat telemetry export --output my-week --since 7d --group hikers
zerochat telemetry passphrase
zerochat telemetry export --output together --study
zerochat telemetry off
zerochat telemetry delete --yes
""",
    )
    actions = parser.add_subparsers(dest="telemetry_action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "on",
        "turn recording on, after a confirmation",
        "Explain the recorded data, its location and its retention, and start after your confirmation.",
        "zerochat telemetry on\nzerochat telemetry on --yes",
        run=_on,
    )
    parser.add_argument("-y", "--yes", action="store_true", help="consent without being asked")
    add_verb(
        actions,
        "off",
        "turn recording off",
        "Turn recording off. Recorded rows are kept until you delete them.",
        "zerochat telemetry off",
        run=_off,
    )
    add_verb(
        actions,
        "status",
        "show whether telemetry is on, and its size",
        "Show whether telemetry is recorded, what disables it, and the number, size and time span of the rows.",
        """
zerochat telemetry status
zerochat telemetry status --format jsonl | jq .rows
""",
        run=_status,
    )
    _add_rows(actions)


def _add_rows(actions: "Verbs[Parser]") -> None:
    parser = add_verb(
        actions,
        "show",
        "print the newest rows",
        "Print every field of the newest rows as they are stored. Groups and members are numbers of this journal;\n"
        "their names are never printed.",
        """
zerochat telemetry show
zerochat telemetry show -n 100 --format jsonl | jq 'select(.row == "recv")'
""",
        run=_show,
    )
    parser.add_argument(
        "-n", dest="count", type=_rows, metavar="N", help=f"number of rows (default: 10, at most {ROWS_MAX})"
    )
    _add_export(actions)
    parser = add_verb(
        actions,
        "delete",
        "delete all recorded rows",
        "Delete all recorded rows. Whether recording is on does not change.",
        "zerochat telemetry delete\nzerochat telemetry delete --yes",
        run=_delete,
    )
    yes_option(parser)
    add_verb(
        actions,
        "passphrase",
        "generate a study passphrase",
        "Print a random passphrase of eight words. Exports made with it (--study) use the same pseudonyms for the "
        "same\n"
        "members. Share it only with the participants: with it, anyone who knows the members can identify them.",
        """
zerochat telemetry passphrase
(umask 077; zerochat telemetry passphrase >~/.study)
""",
        run=_new_study_passphrase,
    )


def _add_export(actions: "Verbs[Parser]") -> None:
    parser = add_verb(
        actions,
        "export",
        "export the rows as Parquet files",
        "Write a new folder of Parquet files, by kind and day, with a manifest. Members are pseudonyms that differ in\n"
        "each export and whose key is discarded; but the times and amounts of messages may identify members to a\n"
        "reader who knows the group, and link two exports. With --study the pseudonyms come from a shared passphrase,\n"
        "so that the exports of several members can be joined; times are then exact, otherwise rounded to seconds.\n"
        "The export is written completely or not at all, and never leaves your machine by itself. Needs pyarrow:\n"
        "pip install pyarrow.",
        """
zerochat telemetry export --output my-week --since 7d
zerochat telemetry export --dry-run --group hikers
ZEROCHAT_STUDY_FILE=~/.study zerochat telemetry export --output together --study
""",
        run=_export,
    )
    parser.add_argument("-o", "--output", dest="path", metavar="DIR", help="the folder to create")
    parser.add_argument("--since", dest="after", metavar="DATE", help="only rows since: 2026-03-01, today, 12h, 7d, 2w")
    parser.add_argument("--group", dest="group", default="", metavar="GROUP", help="only rows of this group")
    parser.add_argument(
        "--study",
        action="store_true",
        help="use the study passphrase of ZEROCHAT_STUDY_FILE, or prompt for it; times are exact",
    )
    parser.add_argument("--dry-run", action="store_true", help="print every row that would be written, and write none")


def _rows(text: str) -> int:
    if (number := positive(text)) > ROWS_MAX:
        raise argparse.ArgumentTypeError(f"it must be at most {ROWS_MAX}")
    return number


SHOWN = 10
STUDY_FILE = "ZEROCHAT_STUDY_FILE"
PASSPHRASE_BYTES_MAX = 512
PROGRESS_S = 0.2
PROGRESS_ROWS = 20_000
"""Minimum number of rows for a progress display."""


class FolderNeeded(LocalError):
    """No folder given: use `zerochat telemetry export --output DIR`, or --dry-run to print the rows."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NoSuchTime(LocalError):
    """--since: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NoStudyPassphrase(NoPassphrase):
    """The study passphrase is required, and there is no terminal to prompt for it. Store it in a file that only you can
    read, and set ZEROCHAT_STUDY_FILE to its path."""


def _off(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        return _print_status(agent.client.call("set_telemetry", on=False), out, "Telemetry is off.")


def _status(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        status: TelemetryStatus = agent.client.call("get_telemetry")
    _print_status(status, out)
    if status.recording and (why := _forbidden(options)):
        narrate(f"{why}, but the agent was started without it. Use `zerochat telemetry off` to stop recording now.")
    return ExitCode.OK


def _new_study_passphrase(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.telemetry.pseudonyms import new_passphrase

    passphrase = new_passphrase()
    out.data({"passphrase": passphrase}, [passphrase])
    return ExitCode.OK


def _forbidden(options: Options) -> str:
    """What disables telemetry in this environment, which may differ from the agent's (`consent.forbidden`)."""
    from zerochat.agent.settings.reader import load_settings
    from zerochat.agent.telemetry.consent import forbidden

    return forbidden(os.environ, load_settings(paths_of(options)).allowed)


def _check_allowed(options: Options) -> None:
    """Raises TelemetryForbidden."""

    from zerochat.agent.telemetry.consent import TelemetryForbidden

    if why := _forbidden(options):
        raise TelemetryForbidden(why=why)


def _on(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.telemetry.consent import ConsentNeeded, TelemetryForbidden

    _check_allowed(options)
    with attached(options) as agent:
        status: TelemetryStatus = agent.client.call("get_telemetry")
        if status.forbidden:
            raise TelemetryForbidden(why=status.forbidden)
        if not status.on and not options.yes:
            for paragraph in status.question[1:]:
                narrate(paragraph)
            if not confirmed(status.question[0], ConsentNeeded()):
                narrate("Telemetry stays off.")
                return ExitCode.REFUSED
        status = agent.client.call("set_telemetry", on=True, consent=status.consent)
    return _print_status(
        status, out, "Telemetry is on; it stays on this machine. Turn it off with `zerochat telemetry off`."
    )


def _print_status(status: TelemetryStatus, out: Output, sentence: str = "") -> ExitCode:
    why = status.forbidden or status.fault
    facts = [
        ("telemetry", "on" if status.on else "off"),
        ("recording", "yes" if status.recording else f"no: {why}" if why else "no"),
        ("since", status.since or "-"),
        ("rows", f"{status.rows:,}"),
        ("size", f"{status.bytes / (1 << 20):.1f} MiB of {status.mebibytes_max} MiB, at most {status.days_max} days"),
        ("from", status.first or "-"),
        ("to", status.last or "-"),
    ]
    out.data(status, table(facts))
    if sentence:
        narrate(sentence)
    if status.on and status.forbidden:
        narrate(f"Telemetry is turned on, but disabled: {status.forbidden}.")
    elif status.on and status.fault:
        narrate(
            "Telemetry was turned on but has stopped because of an error. Use `zerochat telemetry on` to start it "
            "again."
        )
    return ExitCode.OK


def _show(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.telemetry import collection
    from zerochat.agent.telemetry.schema import time_field

    with attached(options) as agent:
        rows = collection.newest(agent.client.call, options.count or SHOWN)
    for row in rows:
        kind, kept = type(row).__name__.lower(), collection.as_dict(row)
        out.data({"row": kind, **kept}, [f"{_moment(kept[time_field(type(row))])}  {kind:<8}  {_fields(row, kept)}"])
    if not rows:
        narrate("There are no rows.")
    elif not out.jsonl:
        for kind_of in dict.fromkeys(map(type, rows)):
            narrate(f"{kind_of.__name__.lower()}: {meaning(kind_of)}")
        narrate("Groups and members are shown as numbers; exports replace them by pseudonyms. `_us`: microseconds.")
    return ExitCode.OK


def meaning(kind: "type[Record]") -> str:
    """The meaning of a kind of rows: the first sentence of its docstring."""
    return " ".join(docstring(kind).split()).partition(". ")[0].removesuffix(".") + "."


def _fields(row: "Record", kept: Mapping[str, Any]) -> str:
    """All fields of a row except its time, as NAME=VALUE."""
    from zerochat.agent.telemetry.schema import columns, time_field

    first = time_field(type(row))
    times = {column.name for column in columns(type(row)) if column.is_time}
    texts = {name: _moment(value) if name in times else _shown(value) for name, value in kept.items() if name != first}
    return " ".join(f"{name.removesuffix('_us') if name in times else name}={text}" for name, text in texts.items())


def _moment(us: int) -> str:
    """A recorded time in UTC, to the microsecond."""
    from zerochat.rpc.common import timestamp

    return f"{timestamp(us // 1000).removesuffix('Z')}{us % 1000:03}Z"


def _shown(value: object) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def _delete(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        status: TelemetryStatus = agent.client.call("get_telemetry")
        question = f"Delete {status.rows:,} rows of telemetry? This cannot be undone."
        if (
            not options.yes
            and status.rows
            and not confirmed(question, NotConfirmed(doing="Deleting", group="telemetry"))
        ):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        status = agent.client.call("delete_telemetry")
    after = " Recording is still on: turn it off with `zerochat telemetry off`." if status.on else ""
    return _print_status(status, out, f"{status.deleted:,} rows deleted. Existing exports are not affected.{after}")


# --- export -----------------------------------------------------------------------------------------------------------


def _export(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.telemetry import collection
    from zerochat.agent.telemetry.consent import TelemetryForbidden
    from zerochat.agent.telemetry.export import ExportSummary, Selection, dry_run, export
    from zerochat.agent.telemetry.pseudonyms import Pseudonyms

    _check_allowed(options)
    if not (options.dry_run or options.path):
        raise FolderNeeded
    since_ms = _since(options.after)
    pseudonyms = Pseudonyms.from_passphrase(_study_passphrase()) if options.study else Pseudonyms.single()
    with attached(options) as agent:
        client = agent.client
        status: TelemetryStatus = client.call("get_telemetry")
        if status.forbidden:
            raise TelemetryForbidden(why=status.forbidden)
        groups = frozenset({find_group(client.list_groups(), options.group).id}) if options.group else None
        wanted = Selection(since_ms * 1000, groups)
        end = collection.last_batch(client.call)
        names = collection.names(client.call)
        rows = _with_progress(collection.batches(client.call, end), status.rows)
        summary: ExportSummary
        if options.dry_run:
            import json

            def say(file: str, row: dict[str, Any]) -> None:
                print(json.dumps({"file": file, **row}, separators=(",", ":")))

            summary = dry_run(say, rows, names, pseudonyms, wanted)
            print(json.dumps({"file": "manifest.json", **summary.manifest}, separators=(",", ":")), flush=True)
        else:
            summary = export(user_path(options.path or "").absolute(), rows, names, pseudonyms, wanted)
    count = sum(summary.rows.values())
    left = f" {summary.skipped:,} rows of deleted groups are left out." if summary.skipped else ""
    if options.dry_run:
        other = "" if options.study else " The next export has other pseudonyms."
        narrate(f"{count:,} rows would be written (dry run).{other}{left}")
        return ExitCode.OK
    out.data({"path": options.path, **summary.manifest}, [str(options.path)])
    narrate(f"Exported {count:,} rows without names. They stay on this machine unless you share them.{left}")
    return ExitCode.OK


def _since(text: str | None) -> int:
    """The start of the export in UTC ms; 0 for all rows. Raises NoSuchTime."""
    from zerochat.presentation.search_query import BadSearch, read_time

    try:
        return read_time(text, int(time.time() * 1000)) if text else 0
    except BadSearch as error:
        raise NoSuchTime(why=error.fields["why"]) from error


def _study_passphrase() -> str:
    """The study passphrase: from ZEROCHAT_STUDY_FILE, or typed. Raises BadStudyPassphrase."""
    from zerochat.agent.telemetry.pseudonyms import BadStudyPassphrase

    if name := os.environ.get(STUDY_FILE):
        try:
            with user_path(name).open("rb") as file:
                return file.read(PASSPHRASE_BYTES_MAX).decode("utf-8", "replace")
        except OSError as error:
            raise BadStudyPassphrase(why=f"{name} cannot be read ({(error.strerror or str(error)).lower()})") from error
    if sys.stdin is None or not sys.stdin.isatty():
        raise NoStudyPassphrase
    from getpass import getpass

    return getpass("Study passphrase: ")


def _with_progress(batches: "Iterable[list[Record]]", total: int) -> "Iterator[list[Record]]":
    """The rows, with a progress display in a terminal."""
    shown = total >= PROGRESS_ROWS and sys.stderr.isatty()
    drawn, done = time.monotonic(), 0
    for rows in batches:
        if shown and time.monotonic() - drawn >= PROGRESS_S:
            drawn = time.monotonic()
            print(f"\r{done:,} of {total:,} rows", end="", file=sys.stderr, flush=True)
        yield rows
        done += len(rows)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
