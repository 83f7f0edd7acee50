"""Asking the person at the terminal before something is done that nothing brings back."""

import sys
from typing import ClassVar

from zerochat.cli.exits import ExitCode
from zerochat.errors import LocalError


class NotConfirmed(LocalError):
    """{doing} {group} must be confirmed, and there is no terminal to ask: add --yes."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def agreed(question: str) -> bool:
    """Whether the person says yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
