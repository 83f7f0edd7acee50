"""Make an environment for other people's implementations, and say which Python it has.

They live apart from zerochat, each group in a folder of its own beside .venv, because they ask for old versions of what
zerochat wants new. The work is done as for .venv, by environment.py: exact versions, checked by their hashes.
"""

import argparse
import os
import sys
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"interop": ".venv-interop", "acapy": ".venv-acapy"}
"""By the name of the lock: libraries for tests/interop/test_interop.py, and a whole agent for tests/interop."""

SETTINGS = {
    # A machine without a network shall hear so at once.
    "interop": {"PIP_RETRIES": "1", "PIP_TIMEOUT": "20"},
    # The agent asks for a newer Python than it needs; the lock already says what it depends on.
    "acapy": {"PIP_RETRIES": "1", "PIP_TIMEOUT": "60", "PIP_NO_DEPS": "1", "PIP_IGNORE_REQUIRES_PYTHON": "1"},
}


def interpreter(kind: str) -> Path:
    """The Python of an environment, which is made first if it is not there, or not as the lock says now.

    Raises environment.Trouble when it cannot be made.
    """
    venv = ROOT / KINDS[kind]
    python, stamp = venv / "bin" / "python", venv / "stamp"
    wanted = b"\n".join([str(ROOT).encode(), sys.version.encode(), _lock(kind).read_bytes()])

    def ready() -> bool:
        return python.exists() and stamp.is_file() and stamp.read_bytes() == wanted

    if ready():
        return python
    with Path(environment.__file__).open("rb") as turn:
        environment.wait_for_turn(turn.fileno())
        if not ready():
            environment.make_empty(venv)
            before = {name: os.environ.get(name) for name in SETTINGS[kind]}
            os.environ.update(SETTINGS[kind])
            try:
                environment.install(ROOT, venv, kind, turn.fileno())
            finally:
                for name, value in before.items():
                    os.environ.pop(name)
                    if value is not None:
                        os.environ[name] = value
            stamp.write_bytes(wanted)
    return python


def _lock(kind: str) -> Path:
    return ROOT / "scripts" / "requirements" / f"{kind}.lock"


def main() -> int:
    parser = argparse.ArgumentParser(description="Make an environment with other people's implementations.")
    parser.add_argument("kind", choices=KINDS)
    try:
        print(interpreter(parser.parse_args().kind))
    except (environment.Trouble, OSError) as error:
        environment.say(f"\n{error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
