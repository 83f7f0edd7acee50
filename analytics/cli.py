"""Command line of `zerochat-analytics`: tables, summary, report and notebook from telemetry exports."""

import argparse
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.errors import CannotWrite, InputUnreadable, InvalidMemory, NoExports
from analytics.file_scan import background_scan
from analytics.progress import Progress
from analytics.results import MANIFEST, check_disjoint, local_path, open_results, walk_files
from analytics.session import MEMORY_DEFAULT, SparkSettings, megabytes, on_cluster, spark_session
from zerochat.cli.shells import SHELLS, script
from zerochat.errors import ZerochatError, quoted
from zerochat.terminal_text import printable, printable_line
from zerochat.version import __version__

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

NAME = "zerochat-analytics"
SMALL_BYTES = 64 * 2**20
"""Exports below this size finish before Java's optimising compiler pays off."""
WITHIN_S_DEFAULT = 30
SAMPLE = Path(__file__).resolve().parents[1] / "assets" / "telemetry"
OK, REFUSED, INTERRUPTED = 0, 1, 130

EXAMPLES = {
    "": """\
  zerochat-analytics run --in exports --out study
  zerochat-analytics summary --in study
  zerochat-analytics thesis --in study
  zerochat-analytics report --in study --html report.html
  zerochat-analytics notebook --in exports --out study-with-notebook""",
    "run": """\
  zerochat-analytics run --in export --out study             one export
  zerochat-analytics run --in exports --out study            a folder with exports at any depth
  zerochat-analytics run --in s3a://bucket/exports --out s3a://bucket/study
  zerochat-analytics run --in exports --out study --within 10 --memory 4g
  spark-submit analytics/submit.py run --in hdfs:///exports --out hdfs:///study""",
    "summary": "  zerochat-analytics summary --in study",
    "thesis": """\
  zerochat-analytics thesis --in study
  zerochat-analytics thesis --in study --benchmark recorded/measured.json""",
    "report": "  zerochat-analytics report --in study --html report.html",
    "notebook": """\
  zerochat-analytics notebook --in exports --out study-with-notebook
  zerochat-analytics notebook --out sample                   on the sample""",
    "completion": """\
  zerochat-analytics completion bash >~/.local/share/bash-completion/completions/zerochat-analytics
  zerochat-analytics completion zsh >~/.zfunc/_zerochat-analytics
  zerochat-analytics completion fish >~/.config/fish/completions/zerochat-analytics.fish""",
}


def parser() -> argparse.ArgumentParser:
    top = _add(None, "", "Analyse delivery telemetry exported with `zerochat telemetry export`.")
    top.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = _add(verbs, "run", "Compute the tables of a study from exports, with Spark.")
    run.add_argument(
        "--in", dest="exports", required=True, metavar="PATH", help="an export, or a folder that contains exports"
    )
    run.add_argument(
        "--out", required=True, metavar="PATH", help="folder for the tables: new, empty or from an earlier run"
    )
    run.add_argument(
        "--within",
        type=_seconds,
        default=WITHIN_S_DEFAULT,
        metavar="S",
        help="deliveries within this many seconds are in time (default: 30)",
    )
    run.add_argument("--rebuild", action="store_true", help="recompute everything, even if nothing has changed")
    summary = _add(verbs, "summary", "Print the results of a study as sentences, without Spark.")
    summary.add_argument("--in", dest="study", required=True, metavar="PATH", help="folder written by `run`")
    thesis = _add(verbs, "thesis", "Print a study's tables in the form of the ZeroComm thesis, next to its figures.")
    thesis.add_argument("--in", dest="study", required=True, metavar="PATH", help="folder written by `run`")
    thesis.add_argument(
        "--benchmark", type=Path, metavar="FILE", help="figures of a recorded benchmark, to compare with"
    )
    report = _add(verbs, "report", "Write an HTML report with sentences, plots and tables, without Spark.")
    report.add_argument("--in", dest="study", required=True, metavar="PATH", help="folder written by `run`")
    report.add_argument("--html", required=True, type=Path, metavar="FILE", help="the file to write")
    notebook = _add(
        verbs, "notebook", "Run the notebook on exports; writes a study, the executed notebook and a report."
    )
    notebook.add_argument("--in", dest="exports", metavar="PATH", help="exports (default: the sample)")
    notebook.add_argument(
        "--out", required=True, type=Path, metavar="FOLDER", help="folder for study/, the notebook and report.html"
    )
    for verb in (run, notebook):
        verb.add_argument(
            "--memory",
            type=_memory,
            default=MEMORY_DEFAULT,
            metavar="SIZE",
            help=f"Java heap size (default: {MEMORY_DEFAULT})",
        )
    run.add_argument("--cores", type=_cores, default=0, metavar="N", help="CPU cores (default: all)")
    for verb in (run, notebook):
        verb.add_argument("--quiet", action="store_true", help="print no progress")
    completion = _add(verbs, "completion", "Print a shell completion script.")
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell")
    return top


def _add(verbs: "Verbs | None", name: str, about: str) -> argparse.ArgumentParser:
    settings: dict[str, Any] = {
        "description": about,
        "epilog": f"examples:\n{EXAMPLES[name]}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }
    if verbs is None:
        return argparse.ArgumentParser(prog=NAME, **settings)
    return verbs.add_parser(name, help=about, **settings)


def _seconds(text: str) -> int:
    return _parse_int(text, 30 * 86_400, "a whole number of seconds, up to 30 days")


def _memory(text: str) -> str:
    try:
        megabytes(text)
    except InvalidMemory as error:
        raise argparse.ArgumentTypeError(str(error.sentence())) from None
    return text


def _cores(text: str) -> int:
    return _parse_int(text, 1_024, "a number of cores, up to 1024")


def _parse_int(text: str, most: int, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {what}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        VERBS[options.verb](options)
    except ZerochatError as error:
        print(printable_line(error.sentence()), file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        # On a terminal, the line of the current step and ^C are on the screen.
        print("\n" if sys.stderr.isatty() else "", end="", file=sys.stderr)
        print("Interrupted. Run the same command again to continue.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return REFUSED
    return OK


def run(options: argparse.Namespace) -> None:
    begun = time.monotonic()
    check_disjoint(options.exports, options.out)
    check_folders(options.exports, options.out)
    short = is_small(options.exports)
    if not options.quiet:
        print("Starting Spark …", file=sys.stderr)
    with (
        background_scan(local_folder(options.exports)) as ahead,
        spark_session(SparkSettings(options.memory, options.cores, short)) as (spark, line),
    ):
        from analytics.pipeline.run import STEPS, Options
        from analytics.pipeline.run import run as make

        progress = Progress(STEPS, options.quiet)
        progress.line(line)
        progress.line(f"Started in {time.monotonic() - begun:.1f} s.")
        quality = make(spark, options.exports, options.out, Options(options.within, options.rebuild), progress, ahead)
    for one in quality["aside"][:20]:
        print(printable_line(f"Skipped: {one['path']} {one['why']}."), file=sys.stderr)
    if len(quality["aside"]) > 20:
        print(f"Skipped {len(quality['aside']) - 20:,} more; see quality.json.", file=sys.stderr)
    left = len(quality["aside"])
    without = f", {left:,} items skipped" if left else ""
    progress.line(f"Finished in {time.monotonic() - begun:.1f} s{without}: {options.out}")
    if local_path(options.out) is not None:
        progress.line(f"Next: zerochat-analytics summary --in {quoted(options.out)}, or report, or thesis.")


def check_folders(exports: str, out: str) -> None:
    """Check local folders before anything is started. Raises InputUnreadable, NoExports, CannotWrite."""
    there, made = local_folder(exports), local_folder(out)
    if there is not None:
        try:
            there.stat()
            if not there.is_dir():
                raise InputUnreadable(place=exports, why="it is a file, not a folder")
            lacking = all(file.name != MANIFEST for file in walk_files(there))
        except OSError as error:
            raise InputUnreadable(place=exports, why=(error.strerror or str(error)).lower()) from error
        if lacking:
            raise NoExports(place=exports, why=f"no folder in it contains a {MANIFEST}")
    if made is not None and made.exists() and not made.is_dir():
        raise CannotWrite(place=out, why="it is a file, not a folder")


def local_folder(place: str) -> Path | None:
    """The path of a folder that is certainly on this machine; otherwise None."""
    if on_cluster() or "HADOOP_CONF_DIR" in os.environ:
        return None  # on a cluster, a path without a scheme may be elsewhere
    return local_path(place)


def is_small(place: str) -> bool:
    """Whether the Parquet files below a local folder are small in total; False for a folder elsewhere."""
    folder = local_path(place)
    total = 0
    if folder is None:
        return False
    with suppress(OSError):
        for file in walk_files(folder):
            if file.suffix == ".parquet":
                with suppress(OSError):
                    total += file.stat().st_size
            if total > SMALL_BYTES:
                return False
    return True


def summary(options: argparse.Namespace) -> None:
    from analytics.summary import caveats, sentences

    results = open_results(options.study)
    for line in sentences(results):
        print(_wrap(printable(line)))
    said = caveats(results)
    if said:
        print("\nCaveats:")
    for line in said:
        print(_wrap(f"- {printable_line(line)}", "  "))


def _wrap(text: str, indent: str = "") -> str:
    """Wrap at words where the terminal would break lines anywhere."""
    if not sys.stdout.isatty():
        return text
    return textwrap.fill(
        text,
        shutil.get_terminal_size().columns,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def thesis(options: argparse.Namespace) -> None:
    from analytics.tables import NO_BENCHMARK, Benchmark, render, tables

    measured = Benchmark.read(options.benchmark) if options.benchmark is not None else NO_BENCHMARK
    made = tables(open_results(options.study), measured)
    for number, table in enumerate(made):
        print(*(["\n"] if number else []), *map(printable_line, render(table)), sep="\n")
    if not made:
        print("This study has no data for any table of the thesis.")


def report(options: argparse.Namespace) -> None:
    if options.html.is_dir():
        raise CannotWrite(place=options.html, why="it is a folder; name a file")
    from analytics.report import write

    write(open_results(options.study), options.html)
    print(options.html)


def notebook(options: argparse.Namespace) -> None:
    begun = time.monotonic()
    progress = Progress(2, options.quiet)
    exports = str(SAMPLE) if options.exports is None else str(options.exports)
    if "://" not in exports:
        exports = str(Path(exports).absolute())
    folder = options.out.absolute()
    check_disjoint(exports, str(folder / "study"))
    check_folders(exports, str(folder / "study"))
    from analytics.notebook import SOURCE, execute
    from analytics.report import write

    progress.line("Starting the notebook and Spark …")
    with progress.step("notebook"):
        execute(exports, str(folder / "study"), options.memory, folder / SOURCE.name, progress.line)
    with progress.step("report"):
        write(open_results(str(folder / "study")), folder / "report.html")
    progress.line(f"Finished in {time.monotonic() - begun:.1f} s.")
    progress.line(f"Next: zerochat-analytics summary --in {quoted(str(options.out / 'study'))}, or thesis.")
    print(folder / SOURCE.name)
    print(folder / "report.html")


def completion(options: argparse.Namespace) -> None:
    from zerochat.cli.command_tree import command_tree

    print(script(options.shell, command_tree(parser()), NAME), end="")


VERBS = {
    "run": run,
    "summary": summary,
    "thesis": thesis,
    "report": report,
    "notebook": notebook,
    "completion": completion,
}
