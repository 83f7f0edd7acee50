"""Checks of installed packages, profile permissions, control socket, settings, disk and file limit."""

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

from zerochat.agent.api.server import PATH_BYTES_MAX
from zerochat.agent.doctor.findings import CheckContext, Findings
from zerochat.agent.views.attention import FREE_BYTES_MIN
from zerochat.errors import quoted
from zerochat.version import __version__

FILES_FEW, FILES_TOO_FEW = 1_100, 256
"""Open files needed by a group of 256, and by a small group with a few clients."""
PROBE_BYTES: Final = 64 * 1024
"""Bytes written to test the disk."""


def check_versions(context: CheckContext) -> Findings:
    for name, least in _needed():
        have = _version_of(name)
        if have is None:
            yield "fail", f"The package {name} is not installed.", "Reinstall zerochat (`pipx reinstall zerochat`)."
        elif _numbers(have) < _numbers(least):
            text = f"The package {name} has version {have}; at least {least} is required."
            yield "fail", text, "Reinstall zerochat (`pipx reinstall zerochat`)."
    import apsw
    import zmq

    from zerochat.agent.storage.database import SQLITE_VERSION_MIN

    if apsw.SQLITE_VERSION_NUMBER < SQLITE_VERSION_MIN:
        yield "fail", f"SQLite {apsw.sqlite_lib_version()} is too old.", "Install apsw-sqlite3mc, and uninstall apsw."
    if not zmq.has("curve"):
        yield "fail", "libzmq cannot encrypt.", "Install pyzmq from its wheels: `pip install --force-reinstall pyzmq`."
    running = context.status
    if running is not None and running.version != __version__:
        text = f"The running agent has version {running.version}, and this zerochat has {__version__}."
        yield "warn", text, "Restart the agent, so that both have the same version."
    python = ".".join(map(str, sys.version_info[:3]))
    parts = f"Python {python}, SQLite {apsw.sqlite_lib_version()}, libzmq {zmq.zmq_version()}"
    yield "ok", f"zerochat {__version__}: {parts}.", ""


def _needed() -> Iterator[tuple[str, str]]:
    """The requirements of the installed package with their minimum versions; empty: not installed as a package."""
    with suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("zerochat") or ():
            named = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(?:[^;]*?>=\s*([0-9][0-9.]*))?[^;]*", line)
            if named is not None:  # a semicolon marks an optional extra
                yield named[1], named[2] or "0"


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 27.1.0rc1 is (27, 1, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(one) for one in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def check_profile(context: CheckContext) -> Findings:
    from zerochat.agent.storage.profiles import key_location, profile_exists

    home = context.paths
    if not profile_exists(home):
        yield "fail", f"There is no profile {home.profile}.", "Create it: `zerochat init --name NAME`."
        return
    locked = key_location(home)  # raises for an incomplete profile
    fine = True
    for path, most in ((home.data, 0o700), (home.state, 0o700), (home.key_file, 0o600), (home.wrapped_key_file, 0o600)):
        for wrong in _open_to_others(path, most):
            fine = False
            yield wrong
    if fine:
        where = {"key": "in a file", "keyring": "in the system's keyring", "passphrase": "locked with a passphrase"}
        yield "ok", f"Only this user can access the profile {home.profile}; its key is {where[locked]}.", ""


def _open_to_others(path: Path, most: int) -> Findings:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return
    if facts.st_uid != os.geteuid():
        yield "fail", f"{path} belongs to another user.", f"Change its owner: `chown -R $USER {_quoted(path)}`."
    elif stat.S_IMODE(facts.st_mode) & 0o077:
        yield "fail", f"Other users can access {path}.", f"Restrict it: `chmod {most:o} {_quoted(path)}`."


def _quoted(path: Path) -> str:
    return quoted(str(path))


def check_socket(context: CheckContext) -> Findings:
    path = context.paths.socket
    if context.unresponsive is not None:
        yield "fail", "The control socket does not respond as an agent does.", context.unresponsive.sentence()
        return
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        yield "fail", f"The path of the control socket is too long: {path}.", "Set ZEROCHAT_HOME to a shorter path."
        return
    try:
        found = list(_open_to_others(path.parent, 0o700))
        if found:
            yield from found
            return
        mode = path.lstat().st_mode
    except FileNotFoundError:
        yield "ok", f"No agent runs; its control socket will be {path}.", ""
        return
    if not stat.S_ISSOCK(mode):
        yield "fail", f"{path} is not a socket.", f"Move it away: `mv {_quoted(path)} elsewhere`."
    elif context.status is None:
        yield "ok", f"No agent runs; the next one replaces the old socket at {path}.", ""
    else:
        yield "ok", f"The agent (process {context.status.pid}) responds at {path}.", ""


def check_settings(context: CheckContext) -> Findings:
    from zerochat.agent.settings.overview import complaints, said_by_variables

    path = context.paths.config
    if context.refused is not None:
        yield "fail", "The settings are invalid, so no agent can start.", context.refused.sentence()
        return
    problems = complaints(context.paths, context.environ)
    for problem in problems:
        yield "warn", problem, f"Correct it in {path}, or remove it."
    if not problems:
        variables = said_by_variables(context.environ)
        none = (
            "There is no settings file."
            if variables
            else "There is no settings file; all settings have their defaults."
        )
        yield "ok", f"{f'{path} is valid.' if path.exists() else none} {variables}".rstrip(), ""


def check_disk(context: CheckContext) -> Findings:
    """Check that the disk is writable and has free space."""
    folder = context.paths.data
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent  # where it would be created
    free = shutil.disk_usage(folder).free
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(os.urandom(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else (error.strerror or "it is refused").lower()
        remedy = "Free some space there." if full else "Make the folder writable for this user."
        yield "fail", f"Cannot write to {folder}: {why}.", remedy
        return
    if free < FREE_BYTES_MIN:
        text = f"Only {free >> 20} MB are free in {folder}."
        yield "warn", text, "Free some space: with a full disk no messages are received or sent."
    else:
        yield "ok", f"{folder} is writable and has {free >> 20:,} MB free.", ""


def check_files(context: CheckContext) -> Findings:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_FEW:
        enough = f"A group of 256 needs about {FILES_FEW:,}; raise it (`ulimit -Hn`, or LimitNOFILE= of systemd)."
        yield "fail" if hard < FILES_TOO_FEW else "warn", f"A process may open only {hard} files.", enough
    else:
        many = "any number of files" if hard == resource.RLIM_INFINITY else f"{hard:,} files"
        yield "ok", f"A process may open {many}.", ""


def check_memory(context: CheckContext) -> Findings:
    """Check how the running agent keeps its keys out of swap, core dumps and debuggers."""
    running = context.status
    if running is None:
        yield "skip", "No agent runs, so the protection of its memory cannot be checked.", ""
        return
    if running.dumpable and sys.platform == "linux":
        unprotected = "Other processes of this user can read the keys in the agent's memory, as debuggers do."
        yield "warn", unprotected, "Set agent.protect_memory to true, and restart the agent."
    read = "any process of this user can" if running.dumpable else "no other process of this user can"
    swap = "is locked" if running.memory_locked else "may be swapped to disk (its limit of locked memory is too low)"
    yield "ok", f"The agent's memory {swap}; {read} read it.", ""
