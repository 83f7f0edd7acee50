"""`zerochat-analytics`: from exports of telemetry to tables, a summary, a report and a notebook."""

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

from analytics.errors import BadMemory, CannotWrite, NoExports, NothingToRead
from analytics.looks import looking_ahead
from analytics.progress import Progress
from analytics.results import MANIFEST, apart, files_below, local, open_results
from analytics.session import MEMORY_DEFAULT, Wanted, megabytes, on_a_cluster, started
from zerochat import __version__
from zerochat.cli.shells import SHELLS, script
from zerochat.errors import ZerochatError, quoted
from zerochat.terminal_text import printable, printable_line

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

NAME = "zerochat-analytics"
SMALL_BYTES = 64 * 2**20
"""Exports of less than this are done before Java's second compiler has paid for itself."""
WITHIN_S = 30
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
  zerochat-analytics run --in exports --out study            a folder with many, at any depth
  zerochat-analytics run --in s3a://bucket/exports --out s3a://bucket/study
  zerochat-analytics run --in exports --out study --within 10 --memory 4g
  spark-submit analytics/submit.py run --in hdfs:///exports --out hdfs:///study""",
    "summary": "  zerochat-analytics summary --in study",
    "thesis": """\
  zerochat-analytics thesis --in study
  zerochat-analytics thesis --in study --beside recorded/measured.json""",
    "report": "  zerochat-analytics report --in study --html report.html",
    "notebook": """\
  zerochat-analytics notebook --in exports --out study-with-notebook
  zerochat-analytics notebook --out sample                   on the sample that comes with the project""",
    "completion": """\
  zerochat-analytics completion bash >~/.local/share/bash-completion/completions/zerochat-analytics
  zerochat-analytics completion zsh >~/.zfunc/_zerochat-analytics
  zerochat-analytics completion fish >~/.config/fish/completions/zerochat-analytics.fish""",
}


def parser() -> argparse.ArgumentParser:
    top = _add(None, "", "What became of messages, from exports of zerochat's telemetry (`zerochat telemetry export`).")
    top.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = _add(verbs, "run", "Make the tables of a study from exports, with Spark.")
    run.add_argument("--in", dest="exports", required=True, metavar="PATH", help="an export, or a folder with exports")
    run.add_argument(
        "--out", required=True, metavar="PATH", help="the folder for the tables; one of a run before, or new"
    )
    run.add_argument("--within", type=_seconds, default=WITHIN_S, metavar="S", help="what counts as in time (30 s)")
    run.add_argument("--again", action="store_true", help="make everything anew, also where nothing has changed")
    summary = _add(verbs, "summary", "Say in sentences what a study has found. Spark is not started.")
    summary.add_argument("--in", dest="study", required=True, metavar="PATH", help="the folder that a run has written")
    thesis = _add(verbs, "thesis", "Print a study's tables as the ZeroComm thesis has them, with its figures beside.")
    thesis.add_argument("--in", dest="study", required=True, metavar="PATH", help="the folder that a run has written")
    thesis.add_argument("--beside", type=Path, metavar="FILE", help="what a recorded benchmark has measured itself")
    report = _add(verbs, "report", "Write one HTML file with sentences, pictures and tables. Spark is not started.")
    report.add_argument("--in", dest="study", required=True, metavar="PATH", help="the folder that a run has written")
    report.add_argument("--html", required=True, type=Path, metavar="FILE", help="the file to write")
    notebook = _add(verbs, "notebook", "Run the notebook on exports: a study, the executed notebook, and a report.")
    notebook.add_argument("--in", dest="exports", metavar="PATH", help="exports (without: the project's sample)")
    notebook.add_argument(
        "--out", required=True, type=Path, metavar="FOLDER", help="gets study/, the notebook, report.html"
    )
    for verb in (run, notebook):
        verb.add_argument(
            "--memory", type=_memory, default=MEMORY_DEFAULT, metavar="SIZE", help=f"Spark's heap ({MEMORY_DEFAULT})"
        )
    run.add_argument("--cores", type=_cores, default=0, metavar="N", help="processors for Spark (all)")
    for verb in (run, notebook):
        verb.add_argument("--quiet", action="store_true", help="no progress")
    completion = _add(verbs, "completion", "Print what makes a shell complete this program's words.")
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="which shell")
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
    return _whole(text, 30 * 86_400, "a whole number of seconds, up to 30 days")


def _memory(text: str) -> str:
    try:
        megabytes(text)
    except BadMemory as error:
        raise argparse.ArgumentTypeError(str(error.sentence())) from None
    return text


def _cores(text: str) -> int:
    return _whole(text, 1_024, "a number of processors, up to 1024")


def _whole(text: str, most: int, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {what}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    try:
        VERBS[asked.verb](asked)
    except ZerochatError as error:
        print(printable_line(error.sentence()), file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        # On a terminal the line of what was under way stands there, and ^C behind it.
        print("\n" if sys.stderr.isatty() else "", end="", file=sys.stderr)
        print("Interrupted. The same command again goes on with what is whole by now.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return REFUSED
    return OK


def run(asked: argparse.Namespace) -> None:
    begun = time.monotonic()
    apart(asked.exports, asked.out)
    check_places(asked.exports, asked.out)
    short = is_small(asked.exports)
    if not asked.quiet:
        print("Starting Spark, which takes some seconds.", file=sys.stderr)
    with (
        looking_ahead(folder_of(asked.exports)) as ahead,
        started(Wanted(asked.memory, asked.cores, short)) as (spark, line),
    ):
        from analytics.pipeline.run import STEPS, Options
        from analytics.pipeline.run import run as make

        progress = Progress(STEPS, asked.quiet)
        progress.say(line)
        progress.say(f"Started in {time.monotonic() - begun:.1f} s.")
        quality = make(spark, asked.exports, asked.out, Options(asked.within, asked.again), progress, ahead)
    for one in quality["aside"][:20]:
        print(printable_line(f"Set aside: {one['path']} {one['why']}."), file=sys.stderr)
    if len(quality["aside"]) > 20:
        print(f"Set aside, too: {len(quality['aside']) - 20:,} more; quality.json names all of them.", file=sys.stderr)
    left = len(quality["aside"])
    without = f", without what was set aside ({left:,})" if left else ""
    progress.say(f"Whole in {time.monotonic() - begun:.1f} s{without}: {asked.out}")
    if local(asked.out) is not None:
        progress.say(f"Next: zerochat-analytics summary --in {quoted(asked.out)}, or report, or thesis.")


def check_places(exports: str, out: str) -> None:
    """What can be seen of places on this machine before anything is started. Raises NothingToRead, NoExports,
    CannotWrite."""
    there, made = folder_of(exports), folder_of(out)
    if there is not None:
        try:
            there.stat()
            if not there.is_dir():
                raise NothingToRead(place=exports, why="it is a file, where a folder is wanted")
            lacking = all(file.name != MANIFEST for file in files_below(there))
        except OSError as error:
            raise NothingToRead(place=exports, why=(error.strerror or str(error)).lower()) from error
        if lacking:
            raise NoExports(place=exports, why=f"no folder in it has a {MANIFEST}")
    if made is not None and made.exists() and not made.is_dir():
        raise CannotWrite(place=out, why="it is a file, where a folder is wanted")


def folder_of(place: str) -> Path | None:
    """A place on this machine, where it is sure to be one."""
    if on_a_cluster() or "HADOOP_CONF_DIR" in os.environ:
        return None  # there a path without a scheme need not be one of this machine
    return local(place)


def is_small(place: str) -> bool:
    """Whether all files below a folder of this machine are few bytes; a place elsewhere is not."""
    folder = local(place)
    total = 0
    if folder is None:
        return False
    with suppress(OSError):
        for file in files_below(folder):
            if file.suffix == ".parquet":
                with suppress(OSError):
                    total += file.stat().st_size
            if total > SMALL_BYTES:
                return False
    return True


def summary(asked: argparse.Namespace) -> None:
    from analytics.summary import doubts, sentences

    results = open_results(asked.study)
    for line in sentences(results):
        print(_broken(printable(line)))
    said = doubts(results)
    if said:
        print("\nWhat to know before:")
    for line in said:
        print(_broken(f"- {printable_line(line)}", "  "))


def _broken(text: str, indent: str = "") -> str:
    """Between words, where a terminal would break it wherever its line ends."""
    if not sys.stdout.isatty():
        return text
    return textwrap.fill(
        text,
        shutil.get_terminal_size().columns,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def thesis(asked: argparse.Namespace) -> None:
    from analytics.tables import NOTHING, Measured, tables, words

    measured = Measured.read(asked.beside) if asked.beside is not None else NOTHING
    made = tables(open_results(asked.study), measured)
    for number, table in enumerate(made):
        print(*(["\n"] if number else []), *map(printable_line, words(table)), sep="\n")
    if not made:
        print("Nothing in this study is like anything in the thesis.")


def report(asked: argparse.Namespace) -> None:
    if asked.html.is_dir():
        raise CannotWrite(place=asked.html, why="it is a folder; name a file in it")
    from analytics.report import write

    write(open_results(asked.study), asked.html)
    print(asked.html)


def notebook(asked: argparse.Namespace) -> None:
    begun = time.monotonic()
    progress = Progress(2, asked.quiet)
    exports = str(SAMPLE) if asked.exports is None else str(asked.exports)
    if "://" not in exports:
        exports = str(Path(exports).absolute())
    folder = asked.out.absolute()
    apart(exports, str(folder / "study"))
    check_places(exports, str(folder / "study"))
    from analytics.notebook import SOURCE, execute
    from analytics.report import write

    progress.say("Starting the notebook, and Spark in it, which takes some seconds.")
    with progress.step("the notebook, with Spark"):
        execute(exports, str(folder / "study"), asked.memory, folder / SOURCE.name, progress.say)
    with progress.step("the report"):
        write(open_results(str(folder / "study")), folder / "report.html")
    progress.say(f"Whole in {time.monotonic() - begun:.1f} s.")
    progress.say(f"Next: zerochat-analytics summary --in {quoted(str(asked.out / 'study'))}, or thesis.")
    print(folder / SOURCE.name)
    print(folder / "report.html")


def completion(asked: argparse.Namespace) -> None:
    from zerochat.cli.outline import outline

    print(script(asked.shell, outline(parser()), NAME), end="")


VERBS = {
    "run": run,
    "summary": summary,
    "thesis": thesis,
    "report": report,
    "notebook": notebook,
    "completion": completion,
}
