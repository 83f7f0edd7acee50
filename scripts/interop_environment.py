"""Build an environment for other DIDComm implementations, and print its Python.

They need older versions of packages that zerochat uses, so each group has a folder of its own beside .venv.
environment.py builds it as it builds .venv: exact versions, verified by hash.
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
    # Fail at once on a machine without a network.
    "interop": {"PIP_RETRIES": "1", "PIP_TIMEOUT": "20"},
    # The agent's metadata asks for a newer Python than it needs; the lock lists its dependencies.
    "acapy": {"PIP_RETRIES": "1", "PIP_TIMEOUT": "60", "PIP_NO_DEPS": "1", "PIP_IGNORE_REQUIRES_PYTHON": "1"},
}


def interpreter(kind: str) -> Path:
    """The Python of an environment, which is built first if it is missing or out of date.

    Raises environment.Trouble if it cannot be built."""
    venv = ROOT / KINDS[kind]
    python, stamp = venv / "bin" / "python", venv / "stamp"
    wanted = b"\n".join([str(ROOT).encode(), sys.version.encode(), _lock(kind).read_bytes()])

    def ready() -> bool:
        return python.exists() and stamp.is_file() and stamp.read_bytes() == wanted

    if ready():
        return python
    with Path(environment.__file__).open("rb") as lock:
        environment.wait_for_turn(lock.fileno())
        if not ready():
            environment.make_empty(venv)
            before = {name: os.environ.get(name) for name in SETTINGS[kind]}
            os.environ.update(SETTINGS[kind])
            try:
                environment.install(ROOT, venv, kind, lock.fileno())
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
