"""Build the scripts' environment: a virtual environment in .venv with exactly the packages of a lock.

environment.sh calls this if .venv is missing or out of date. Standard library only. An environment without a stamp is
incomplete and is rebuilt, so the next run repairs an interrupted one. Packages come from the index of the user's pip
settings; the lock's hashes verify them.
"""

import argparse
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path

KINDS = ("run", "dev", "analytics")
"""The kinds of environment. Each includes the ones before it."""

MARK = "made-by-zerochat"
"""A file in .venv that marks it as made by these scripts, which may then remove it."""


CAUSES = {
    r"DO NOT MATCH THE HASHES": """\
A package is not the one that {lock} names, so nothing was installed. Either the package index (or what stands between)
hands out something else, or the lock is damaged.""",
    r"No space left on device|Disk quota exceeded": """\
The disk is full. Make room, then run this again.""",
    r"Permission denied|Read-only file system": """\
A file cannot be written. Give yourself the right to, or copy the project to a folder of your own.""",
    r"CERTIFICATE_VERIFY_FAILED|SSLError": """\
The package index shows a certificate that this machine does not trust. Behind a company's proxy, name the proxy's
certificate: pip config set global.cert FILE""",
    r"Retrying \(|NewConnectionError|NameResolution|ProxyError|ConnectTimeout|ReadTimeout|Max retries": """\
The package index cannot be reached. The first run needs the network once; later runs need none. pip's own settings,
such as PIP_INDEX_URL and PIP_PROXY, are honoured.""",
    r"No matching distribution|Could not find a version": """\
The package index has no ready-made package for this system and this Python. The index that pip uses by default has
all of them for Python 3.11 to 3.14 on Linux (x86-64 and ARM64) and on Macs with Apple silicon. To take another Python,
set PYTHON=FILE.""",
}
"""Patterns in the output of a failed pip, most likely cause first, and their explanation."""


class Trouble(Exception):
    """A problem that the user must solve; the text says how."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def prepare(root: Path, kind: str, machine: str) -> None:
    venv = root / ".venv"

    def stamp(which: str) -> bytes:
        lock = root / "scripts" / "requirements" / f"{which}.lock"
        return f"{root}\n{machine}\n".encode(errors="surrogateescape") + lock.read_bytes()

    def ready(which: str) -> bool:
        path = venv / f"{which}.stamp"
        return (venv / "bin" / "python").exists() and path.is_file() and path.read_bytes() == stamp(which)

    with Path(__file__).open("rb") as lock:
        wait_for_turn(lock.fileno())
        if ready(kind):
            return  # another run made it while this one waited
        if not ready("run"):
            make_empty(venv)
        for which in KINDS:
            (venv / f"{which}.stamp").unlink(missing_ok=True)
        install(root, venv, kind, lock.fileno())
        link_project(root, venv)
        for which in KINDS[: KINDS.index(kind) + 1]:
            (venv / f"{which}.stamp").write_bytes(stamp(which))
    say("The environment is ready.")


def wait_for_turn(descriptor: int) -> None:
    """Let one run at a time touch .venv. The lock ends with the process, and with the pip that it started."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another run is making the environment. Waiting for it.")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        say(f"(No lock on this file system: {error.strerror}. Do not start two of these scripts at once.)")


def make_empty(venv: Path) -> None:
    """Make a new virtual environment, in the place of one that these scripts made before."""
    if venv.is_symlink() or venv.is_file() or (venv.is_dir() and any(venv.iterdir()) and not (venv / MARK).is_file()):
        raise Trouble(
            f"{venv} is here already, and it was not made by these scripts.\n"
            "Move it away or remove it, then run this again."
        )
    if venv.exists():
        say("Making the environment anew: it was made for something else, or was not finished.")
        shutil.rmtree(venv)
    version = ".".join(str(n) for n in sys.version_info[:3])
    say(f"Making an environment for zerochat in {venv} with Python {version}. This happens once.")
    venv.mkdir()
    (venv / MARK).touch()
    made = subprocess.run([sys.executable, "-I", "-m", "venv", venv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode:
        raise Trouble(
            f"Python's own venv module failed:\n{made.stdout.decode(errors='replace').strip()}\n"
            "On Debian and Ubuntu, `sudo apt install python3-venv` is what usually helps."
        )


def install(root: Path, venv: Path, kind: str, lock_fd: int) -> None:
    """Install the packages of the lock, and print one line for each."""
    lock = root / "scripts" / "requirements" / f"{kind}.lock"
    lines = enumerate(lock.read_text().splitlines(), start=1)
    packages = {number: line.split()[0].replace("==", " ") for number, line in lines if re.match("[A-Za-z0-9]", line)}
    command = [
        str(venv / "bin" / "python"),
        "-I",
        "-u",
        "-m",
        "pip",
        "install",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--requirement", str(lock)]
    # Settings that redirect packages or silence pip do not apply to this environment.
    settings = {**os.environ, "PIP_USER": "0", "PIP_QUIET": "0", "PIP_VERBOSE": "0"}
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN"):
        settings.pop(name, None)
    words: deque[str] = deque(maxlen=400)
    total, count = len(packages), 0
    pip = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=settings,
        pass_fds=[lock_fd],
        encoding="utf-8",
        errors="replace",
    )
    assert pip.stdout is not None
    try:
        for line in pip.stdout:
            words.append(line.rstrip())
            if line.startswith("Ignoring "):
                total -= 1  # for another system or another Python
            elif (at := re.search(r"\(line (\d+)\)", line)) and (package := packages.pop(int(at[1]), None)):
                count += 1  # pip names the line of the lock for each package
                say(f"  {count:2}/{total}  {package}")
            elif line.startswith("Installing collected packages: "):
                say("  unpacking")
            elif "Retrying (" in line:
                say("  no answer from the package index; trying again")
        if pip.wait():
            raise Trouble(explain("\n".join(words), lock.name))
    finally:
        if pip.poll() is None:
            pip.terminate()
            pip.wait()


def explain(output: str, lock: str) -> str:
    cause = next((text for pattern, text in CAUSES.items() if re.search(pattern, output)), "pip failed.")
    last_words = [line for line in output.splitlines() if line.strip() and not line.startswith("WARNING: Location")]
    first = next((n for n, line in enumerate(last_words) if line.startswith("ERROR")), -6)
    return "\n".join([cause.format(lock=lock), "", "What pip said:", *(f"  {line}" for line in last_words[first:][:8])])


def link_project(root: Path, venv: Path) -> None:
    """Make `import zerochat` and its two commands mean this checkout, without building anything."""
    query = [str(venv / "bin" / "python"), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip("\n"))
    (packages / "zerochat.pth").write_text(f"{root}\n", encoding="utf-8", errors="surrogateescape")
    interpreter = shlex.quote(str(venv / "bin" / "python"))
    for name, module in {"zerochat": "zerochat", "zerochat-analytics": "analytics"}.items():
        command = venv / "bin" / name
        command.write_text(
            f'#!/bin/sh\nexec {interpreter} -P -m {module} "$@"\n', encoding="utf-8", errors="surrogateescape"
        )
        command.chmod(0o755)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the environment of scripts/demo, test and analytics.")
    parser.add_argument("root", type=Path)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("machine")
    arguments = parser.parse_args()
    try:
        prepare(arguments.root, arguments.kind, arguments.machine)
    except KeyboardInterrupt:
        say(
            "\nInterrupted. The next run begins again where nothing is lost: what pip has fetched is kept in its cache."
        )
        return 130
    except Trouble as trouble:
        say(f"\n{trouble}")
        return 1
    except OSError as error:
        place = error.filename or arguments.root
        say(f"\nThe environment cannot be made: {place}: {error.strerror}.")
        say("The scripts need to write into the project's folder: copy it to a folder of your own, then run it there.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
