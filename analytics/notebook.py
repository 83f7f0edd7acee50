"""Executes the notebook on exports and stores the result."""

import asyncio
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from analytics.errors import CannotWrite, NoSpark, NotebookFailed
from analytics.progress import Progress
from zerochat.terminal_text import printable_line

SOURCE = Path(__file__).with_name("delivery_reliability.ipynb")
CELL_S_MAX = 24 * 3_600
NO_FORMULA = str.maketrans({"$": "\N{FULLWIDTH DOLLAR SIGN}", "\\": "\N{FULLWIDTH REVERSE SOLIDUS}"})
ENV_IN, ENV_OUT, ENV_MEMORY = "ZEROCHAT_ANALYTICS_IN", "ZEROCHAT_ANALYTICS_OUT", "ZEROCHAT_ANALYTICS_MEMORY"
"""Environment of the notebook: exports, results folder, Spark's memory."""
ENV_PROGRESS = "ZEROCHAT_ANALYTICS_PROGRESS"
"""A named pipe to which the notebook writes its progress."""


def progress(total: int) -> Progress:
    """Progress of a notebook with `total` steps, written to the pipe of the parent process if there is one."""
    pipe = os.environ.get(ENV_PROGRESS)
    return Progress(total, out=Path(pipe).open("w", encoding="utf-8")) if pipe else Progress(total, quiet=True)


@contextmanager
def _forward_lines(pipe: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Pass lines written to this pipe on to `say` within the block."""
    os.mkfifo(pipe)

    def listen() -> None:
        with pipe.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                say(line.rstrip("\n"))

    ear = Thread(target=listen, daemon=True)
    ear.start()
    # While this end is open, the reader survives writers that come and go.
    mouth = os.open(pipe, os.O_RDWR)
    try:
        yield
    finally:
        os.close(mouth)
        ear.join(timeout=1.0)


def markdown_list(lines: Iterable[str]) -> str:
    """Sentences as a Markdown list. Paths and reasons in them may be hostile: characters with a meaning in Markdown or
    HTML become character references, and those that start a formula are replaced, because browsers look for formulas
    after resolving references."""
    return "\n".join(f"- {_escape(line)}" for line in lines) or "None."


def _escape(text: str) -> str:
    plain = str(printable_line(text)).translate(NO_FORMULA)
    return re.sub(r"[!-/:-@\[-`{-~]", lambda found: f"&#{ord(found[0])};", plain)


def execute(exports: str, results: str, memory: str, file: Path, report: Callable[[str], None]) -> None:
    """Execute the notebook; `report` receives the steps. Raises NotebookFailed, CannotWrite, NoSpark and
    KeyboardInterrupt."""
    try:
        import nbformat
        from jupyter_client.manager import AsyncKernelManager
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        raise NoSpark(why=f"the package {error.name} is missing") from error
    notebook = nbformat.read(SOURCE, as_version=4)
    own = {ENV_IN: exports, ENV_OUT: results, ENV_MEMORY: memory}
    # The kernel must import this very package.
    paths = [str(SOURCE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | own | {"PYTHONPATH": os.pathsep.join(paths)}
    interrupts: list[asyncio.Future[None]] = []
    try:
        # Kernel messages use sockets in a private folder; no port is opened.
        with tempfile.TemporaryDirectory(prefix="zerochat-") as folder:
            manager = AsyncKernelManager(
                kernel_name="python3", transport="ipc", connection_file=f"{folder}/kernel.json"
            )
            here = {"metadata": {"path": str(Path.cwd())}}
            pipe = Path(folder, "progress")
            client = _client(interrupts)(notebook, km=manager, timeout=CELL_S_MAX, resources=here)
            client.on_cell_start = client.check_interrupted
            try:
                with _forward_lines(pipe, report):
                    client.execute(env=environment | {ENV_PROGRESS: str(pipe)}, stderr=subprocess.DEVNULL)
            finally:
                client.km = manager  # nbclient reads it at exit, and has lost it if no kernel started
    except CellExecutionError as error:
        if interrupts:
            raise KeyboardInterrupt from None
        number = next((n for n, cell in enumerate(notebook.cells, 1) if _failed(cell)), 0)
        raise NotebookFailed(cell=number, why=f"{error.ename}: {error.evalue}".rstrip(".")) from error
    except RuntimeError as error:  # nbclient's DeadKernelError is one
        if interrupts:
            raise KeyboardInterrupt from None
        number = next((n for n, cell in enumerate(notebook.cells, 1) if _not_executed(cell)), 0)
        why = "its process ended, as happens when memory runs out"
        raise NotebookFailed(cell=number, why=why) from error
    finally:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, file)
        except OSError as error:
            raise CannotWrite(place=str(file), why=error.strerror or type(error).__name__) from error


def _client(interrupts: list[asyncio.Future[None]]) -> type[Any]:
    """The class of a client that Ctrl+C interrupts; each interrupt is added to `interrupts`."""
    from nbclient import NotebookClient

    class Client(NotebookClient):  # type: ignore[misc]  # which has no types here
        """Ctrl+C interrupts what the notebook does, which then ends Spark; nbclient would end the notebook alone."""

        async def async_start_new_kernel(self, **settings: Any) -> None:
            with suppress(
                RuntimeError, NotImplementedError
            ):  # not in a thread or on Windows, where nbclient handles it
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.interrupt)
            await super().async_start_new_kernel(**settings)

        def interrupt(self) -> None:
            # The second interrupt does not wait.
            end = self.km.shutdown_kernel(now=True) if interrupts else self.km.interrupt_kernel()
            interrupts.append(asyncio.ensure_future(end))

        async def check_interrupted(self, **_: object) -> None:
            """Between cells, and before the first one, the kernel ignores an interrupt."""
            if interrupts:
                raise RuntimeError

    return Client


def _not_executed(cell: "dict[str, object]") -> bool:
    """Whether it is a code cell without a result."""
    return cell.get("cell_type") == "code" and cell.get("execution_count") is None


def _failed(cell: "dict[str, object]") -> bool:
    outputs = cell.get("outputs")
    return isinstance(outputs, list) and any(output.get("output_type") == "error" for output in outputs)
