"""Runs the notebook from top to bottom on somebody's exports, and keeps the copy with its pictures."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from analytics.errors import CannotWrite, NoSpark, NotebookFailed
from zerochat.terminal import printable_line

SOURCE = Path(__file__).with_name("delivery_reliability.ipynb")
CELL_S_MAX = 24 * 3_600
NO_FORMULA = str.maketrans({"$": "\N{FULLWIDTH DOLLAR SIGN}", "\\": "\N{FULLWIDTH REVERSE SOLIDUS}"})
ENV_IN, ENV_OUT, ENV_MEMORY = "ZEROCHAT_ANALYTICS_IN", "ZEROCHAT_ANALYTICS_OUT", "ZEROCHAT_ANALYTICS_MEMORY"
"""What the notebook reads: where the exports are, where results go, and how much memory Spark gets."""


def markdown_list(lines: Iterable[str]) -> str:
    """Sentences as a list for a cell. Paths and reasons in them may be a stranger's, so that whatever could mean
    anything in Markdown or HTML is written as the number of its character, and what would begin a formula as one that
    looks like it: a browser would look for formulas in what the numbers have become."""
    return "\n".join(f"- {_harmless(line)}" for line in lines) or "Nothing."


def _harmless(text: str) -> str:
    plain = str(printable_line(text)).translate(NO_FORMULA)
    return re.sub(r"[!-/:-@\[-`{-~]", lambda found: f"&#{ord(found[0])};", plain)


def execute(exports: str, results: str, memory: str, file: Path) -> None:
    """Raises NotebookFailed, CannotWrite, NoSpark."""
    try:
        import nbformat
        from jupyter_client.manager import AsyncKernelManager
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, DeadKernelError
    except ImportError as error:
        raise NoSpark(why=f"there is no package {error.name}") from error
    notebook = nbformat.read(SOURCE, as_version=4)
    own = {ENV_IN: exports, ENV_OUT: results, ENV_MEMORY: memory}
    # The kernel finds this very package, wherever it was started from.
    paths = [str(SOURCE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | own | {"PYTHONPATH": os.pathsep.join(paths)}
    try:
        # What the kernel and we say to each other goes over sockets in a folder of our own, and no port is opened.
        with tempfile.TemporaryDirectory(prefix="zerochat-") as folder:
            manager = AsyncKernelManager(
                kernel_name="python3", transport="ipc", connection_file=f"{folder}/kernel.json"
            )
            here = {"metadata": {"path": str(Path.cwd())}}
            NotebookClient(notebook, km=manager, timeout=CELL_S_MAX, resources=here).execute(
                env=environment, stderr=subprocess.DEVNULL
            )
    except CellExecutionError as error:
        number = next((n for n, cell in enumerate(notebook.cells, 1) if _failed(cell)), 0)
        raise NotebookFailed(cell=number, why=f"{error.ename}: {error.evalue}".rstrip(".")) from error
    except DeadKernelError as error:  # nbclient ends it where somebody presses Ctrl+C, and does not say so
        number = next((n for n, cell in enumerate(notebook.cells, 1) if _lacks(cell)), 0)
        raise NotebookFailed(cell=number, why="it was interrupted, or the system has ended it (memory, say)") from error
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
