"""Build an environment for other DIDComm implementations, and print its Python.

They need older versions of packages that zerochat uses, so each group has a folder of its own beside .venv.
environment.py builds it as it builds .venv: exact versions, verified by hash. For the ones in JavaScript, npm adds
node_modules: exact versions too, and only two packages, which bind C functions, run a script: they are compiled here.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "scripts" / "requirements"
KINDS = {"interop": ".venv-interop", "acapy": ".venv-acapy", "node": ".venv-node"}
"""By the name of the lock: libraries, a whole agent, and libraries and an agent in JavaScript, for tests/interop."""

SETTINGS = {
    # Fail at once on a machine without a network.
    "interop": {"PIP_RETRIES": "1", "PIP_TIMEOUT": "20"},
    # The agent's metadata asks for a newer Python than it needs; the lock lists its dependencies.
    "acapy": {"PIP_RETRIES": "1", "PIP_TIMEOUT": "60", "PIP_NO_DEPS": "1", "PIP_IGNORE_REQUIRES_PYTHON": "1"},
    # The wheel is needed for its library alone.
    "node": {"PIP_RETRIES": "1", "PIP_TIMEOUT": "60", "PIP_NO_DEPS": "1"},
}

NODE_LOCKS = ("package.json", "package-lock.json")
COMPILED = ("@2060.io/ref-napi", "@2060.io/ffi-napi")
"""The packages whose own scripts run."""
NPM_S_MAX = 120.0
"""Of each of its two steps; on an idle machine they take half a minute together."""


def interpreter(kind: str) -> Path:
    """The Python of an environment, which is built first if it is missing or out of date.

    Raises environment.Trouble if it cannot be built."""
    venv = ROOT / KINDS[kind]
    python, stamp = venv / "bin" / "python", venv / "stamp"
    headers = _node_headers() if kind == "node" else None
    locks = [REQUIREMENTS / f"{kind}.lock", *(REQUIREMENTS / "node" / name for name in NODE_LOCKS if headers)]
    wanted = b"\n".join([str(ROOT).encode(), sys.version.encode(), *(lock.read_bytes() for lock in locks)])

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
            if headers:
                _install_node_packages(venv, headers)
            stamp.write_bytes(wanted)
    return python


def _node_headers() -> Path:
    """The folder above include/node of the Node on the PATH. node-gyp would fetch these files from elsewhere."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise environment.Trouble("Node.js with npm is not installed.")
    prefix = Path(node).resolve().parent.parent
    if not (prefix / "include" / "node" / "node_api.h").is_file():
        raise environment.Trouble(f"Node.js has no C headers in {prefix}: two packages are compiled against them.")
    return prefix


def _install_node_packages(venv: Path, headers: Path) -> None:
    for name in NODE_LOCKS:
        shutil.copy(REQUIREMENTS / "node" / name, venv)
    environment.say("  packages of npm")
    # No script of a package runs, and npm tells no other service what is installed.
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    _npm(venv, "ci", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=30000", *quiet)
    environment.say("  compiling two of them")
    _npm(venv, "rebuild", f"--nodedir={headers}", *quiet, *COMPILED)


def _npm(venv: Path, *words: str) -> None:
    command = ["npm", *words]
    try:
        done = subprocess.run(
            command, cwd=venv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=NPM_S_MAX
        )
    except subprocess.TimeoutExpired:
        raise environment.Trouble(f"`npm {words[0]}` took more than {NPM_S_MAX:.0f} s.") from None
    if done.returncode:
        last = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).strip().splitlines()[-20:])
        raise environment.Trouble(f"`npm {words[0]}` failed.\n\nWhat npm said:\n{last}")


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
