"""`zerochat-analytics`: from exports of telemetry to tables, a summary, a report and a notebook."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.progress import Progress
from analytics.results import apart, local, open_results
from analytics.session import MEMORY_DEFAULT, Wanted, started
from zerochat.errors import ZerochatError
from zerochat.terminal import printable, printable_line

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

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
  zerochat-analytics notebook --in exports --out study
  zerochat-analytics notebook --out study                    on the sample that comes with the project""",
}


def parser() -> argparse.ArgumentParser:
    top = _add(None, "", "What became of messages, from exports of zerochat's telemetry (`zerochat telemetry export`).")
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
        verb.add_argument("--memory", default=MEMORY_DEFAULT, metavar="SIZE", help=f"Spark's heap ({MEMORY_DEFAULT})")
    run.add_argument(
        "--cores", type=int, choices=range(1, 1025), default=0, metavar="N", help="processors for Spark (all)"
    )
    for verb in (run, notebook):
        verb.add_argument("--quiet", action="store_true", help="no progress")
    return top


def _add(verbs: "Verbs | None", name: str, about: str) -> argparse.ArgumentParser:
    settings: dict[str, Any] = {
        "description": about,
        "epilog": f"examples:\n{EXAMPLES[name]}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }
    if verbs is None:
        return argparse.ArgumentParser(prog="zerochat-analytics", **settings)
    return verbs.add_parser(name, help=about, **settings)


def _seconds(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 30 * 86_400:
        raise argparse.ArgumentTypeError("between 1 second and 30 days")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    try:
        {"run": run, "summary": summary, "thesis": thesis, "report": report, "notebook": notebook}[asked.verb](asked)
    except ZerochatError as error:
        print(printable_line(error.sentence()), file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("Interrupted. The same command again goes on with what is whole.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return REFUSED
    return OK


def run(asked: argparse.Namespace) -> None:
    begun = time.monotonic()
    apart(asked.exports, asked.out)
    short = is_small(asked.exports)
    with started(Wanted(asked.memory, asked.cores, short)) as (spark, line):
        from analytics.pipeline.run import STEPS, Options
        from analytics.pipeline.run import run as make

        progress = Progress(STEPS, asked.quiet)
        progress.say(line)
        progress.say(f"Started in {time.monotonic() - begun:.1f} s.")
        quality = make(spark, asked.exports, asked.out, Options(asked.within, asked.again), progress)
    for one in quality["aside"][:20]:
        print(printable_line(f"Set aside: {one['path']} {one['why']}."), file=sys.stderr)
    if len(quality["aside"]) > 20:
        print(f"Set aside, too: {len(quality['aside']) - 20:,} more; quality.json names all of them.", file=sys.stderr)
    progress.say(f"Whole in {time.monotonic() - begun:.1f} s: {asked.out}")


def is_small(place: str) -> bool:
    """Whether all files below a folder of this machine are few bytes; a place elsewhere is not."""
    folder = local(place)
    total = 0
    if folder is None:
        return False
    for file in folder.rglob("*.parquet"):
        try:
            total += file.stat().st_size
        except OSError:
            continue
        if total > SMALL_BYTES:
            return False
    return True


def summary(asked: argparse.Namespace) -> None:
    from analytics.summary import doubts, sentences

    results = open_results(asked.study)
    for line in sentences(results):
        print(printable(line))
    said = doubts(results)
    if said:
        print("\nWhat to know before:")
    for line in said:
        print(f"- {printable_line(line)}")


def thesis(asked: argparse.Namespace) -> None:
    from analytics.tables import NOTHING, Measured, tables, words

    measured = Measured.read(asked.beside) if asked.beside is not None else NOTHING
    made = tables(open_results(asked.study), measured)
    for number, table in enumerate(made):
        print(*(["\n"] if number else []), *map(printable_line, words(table)), sep="\n")
    if not made:
        print("Nothing in this study is like anything in the thesis.")


def report(asked: argparse.Namespace) -> None:
    from analytics.report import write

    write(open_results(asked.study), asked.html)
    print(asked.html)


def notebook(asked: argparse.Namespace) -> None:
    from analytics.notebook import SOURCE, execute
    from analytics.report import write

    begun = time.monotonic()
    progress = Progress(2, asked.quiet)
    exports = str(SAMPLE) if asked.exports is None else str(asked.exports)
    if "://" not in exports:
        exports = str(Path(exports).absolute())
    folder = asked.out.absolute()
    apart(exports, str(folder / "study"))
    with progress.step("the notebook, with Spark"):
        execute(exports, str(folder / "study"), asked.memory, folder / SOURCE.name)
    with progress.step("the report"):
        write(open_results(str(folder / "study")), folder / "report.html")
    progress.say(f"Whole in {time.monotonic() - begun:.1f} s.")
    print(folder / SOURCE.name)
    print(folder / "report.html")
