"""Runs the notebook from top to bottom on somebody's exports, and keeps the copy with its pictures."""

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
"""What the notebook reads: where the exports are, where results go, and how much memory Spark gets."""
ENV_PROGRESS = "ZEROCHAT_ANALYTICS_PROGRESS"
"""A pipe: whoever has started the notebook is told there of the steps of a run, which are no result."""


def progress(total: int) -> Progress:
    """For the notebook: of so many steps, told to whoever has started it, if anybody wants to know."""
    pipe = os.environ.get(ENV_PROGRESS)
    return Progress(total, out=Path(pipe).open("w", encoding="utf-8")) if pipe else Progress(total, quiet=True)


@contextmanager
def _told(pipe: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Somebody may write lines into this pipe meanwhile, which are said."""
    os.mkfifo(pipe)

    def listen() -> None:
        with pipe.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                say(line.rstrip("\n"))

    ear = Thread(target=listen, daemon=True)
    ear.start()
    # Until this end is closed it hears whoever comes and goes.
    mouth = os.open(pipe, os.O_RDWR)
    try:
        yield
    finally:
        os.close(mouth)
        ear.join(timeout=1.0)


def markdown_list(lines: Iterable[str]) -> str:
    """Sentences as a list for a cell. Paths and reasons in them may be a stranger's, so that whatever could mean
    anything in Markdown or HTML is written as the number of its character, and what would begin a formula as one that
    looks like it: a browser would look for formulas in what the numbers have become."""
    return "\n".join(f"- {_harmless(line)}" for line in lines) or "Nothing."


def _harmless(text: str) -> str:
    plain = str(printable_line(text)).translate(NO_FORMULA)
    return re.sub(r"[!-/:-@\[-`{-~]", lambda found: f"&#{ord(found[0])};", plain)


def execute(exports: str, results: str, memory: str, file: Path, say: Callable[[str], None]) -> None:
    """`say` is told of the steps. Raises NotebookFailed, CannotWrite, NoSpark; KeyboardInterrupt."""
    try:
        import nbformat
        from jupyter_client.manager import AsyncKernelManager
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        raise NoSpark(why=f"there is no package {error.name}") from error
    notebook = nbformat.read(SOURCE, as_version=4)
    own = {ENV_IN: exports, ENV_OUT: results, ENV_MEMORY: memory}
    # The kernel finds this very package, wherever it was started from.
    paths = [str(SOURCE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | own | {"PYTHONPATH": os.pathsep.join(paths)}
    interrupts: list[asyncio.Future[None]] = []

    class Client(NotebookClient):  # type: ignore[misc]  # which has no types here
        """Ctrl+C interrupts what the notebook does, which then ends Spark; nbclient would end the notebook alone."""

        async def async_start_new_kernel(self, **settings: Any) -> None:
            with suppress(RuntimeError, NotImplementedError):  # in a thread, or on Windows: then nbclient does
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.interrupt)
            await super().async_start_new_kernel(**settings)

        def interrupt(self) -> None:
            # Whoever insists does not wait for that.
            end = self.km.shutdown_kernel(now=True) if interrupts else self.km.interrupt_kernel()
            interrupts.append(asyncio.ensure_future(end))

    async def go_on(**_: object) -> None:
        """Between cells, and before the first one, an interrupt goes by unheard."""
        if interrupts:
            raise RuntimeError

    try:
        # What the kernel and we say to each other goes over sockets in a folder of our own, and no port is opened.
        with tempfile.TemporaryDirectory(prefix="zerochat-") as folder:
            manager = AsyncKernelManager(
                kernel_name="python3", transport="ipc", connection_file=f"{folder}/kernel.json"
            )
            here = {"metadata": {"path": str(Path.cwd())}}
            pipe = Path(folder, "progress")
            client = Client(notebook, km=manager, timeout=CELL_S_MAX, resources=here, on_cell_start=go_on)
            try:
                with _told(pipe, say):
                    client.execute(env=environment | {ENV_PROGRESS: str(pipe)}, stderr=subprocess.DEVNULL)
            finally:
                client.km = manager  # nbclient asks for it when Python ends, and has lost it where none has begun
    except CellExecutionError as error:
        if interrupts:
            raise KeyboardInterrupt from None
        number = next((n for n, cell in enumerate(notebook.cells, 1) if _failed(cell)), 0)
        raise NotebookFailed(cell=number, why=f"{error.ename}: {error.evalue}".rstrip(".")) from error
    except RuntimeError as error:  # nbclient's DeadKernelError is one
        if interrupts:
            raise KeyboardInterrupt from None
        number = next((n for n, cell in enumerate(notebook.cells, 1) if _lacks(cell)), 0)
        why = "its process has ended, as a system ends one that is short of memory"
        raise NotebookFailed(cell=number, why=why) from error
    finally:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, file)
        except OSError as error:
            raise CannotWrite(place=str(file), why=error.strerror or type(error).__name__) from error


def _lacks(cell: "dict[str, object]") -> bool:
    """Whether it was to be executed, and was not."""
    return cell.get("cell_type") == "code" and cell.get("execution_count") is None


def _failed(cell: "dict[str, object]") -> bool:
    outputs = cell.get("outputs")
    return isinstance(outputs, list) and any(output.get("output_type") == "error" for output in outputs)
