"""What is installed here, and what this user has: folders, room, files, settings, the control socket."""

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

from zerochat import __version__
from zerochat.agent.api.server import PATH_BYTES_MAX
from zerochat.agent.doctor.findings import Findings, Patient
from zerochat.agent.views.attention import ROOM_MIN
from zerochat.errors import quoted

FILES_FEW, FILES_TOO_FEW = 1_100, 256
"""Open files: what a group of 256 needs, and what a small group with a few faces does."""
WRITTEN: Final = 64 * 1024
"""Bytes that are put on the disk to see whether it takes any."""


def look_at_versions(patient: Patient) -> Findings:
    for name, least in _needed():
        have = _version_of(name)
        if have is None:
            yield "fail", f"The package {name} is not installed.", "Install zerochat again (`pipx reinstall zerochat`)."
        elif _numbers(have) < _numbers(least):
            text = f"The package {name} has version {have}, and at least {least} is needed."
            yield "fail", text, "Install zerochat again (`pipx reinstall zerochat`)."
    import apsw
    import zmq

    from zerochat.agent.storage.database import SQLITE_VERSION_MIN

    if apsw.SQLITE_VERSION_NUMBER < SQLITE_VERSION_MIN:
        yield "fail", f"SQLite {apsw.sqlite_lib_version()} is too old.", "Install apsw-sqlite3mc, and not apsw."
    if not zmq.has("curve"):
        yield "fail", "libzmq cannot encrypt.", "Install pyzmq from its wheels: `pip install --force-reinstall pyzmq`."
    running = patient.status
    if running is not None and running.version != __version__:
        text = f"The agent that runs is zerochat {running.version}, and this is {__version__}."
        yield "warn", text, "Stop the agent and start it again, so that both are the same."
    python = ".".join(map(str, sys.version_info[:3]))
    parts = f"Python {python}, SQLite {apsw.sqlite_lib_version()}, libzmq {zmq.zmq_version()}"
    yield "ok", f"zerochat {__version__}: {parts}.", ""


def _needed() -> Iterator[tuple[str, str]]:
    """What the installed package says it needs, with lower bounds; nothing where it was not installed as one."""
    with suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("zerochat") or ():
            named = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(?:[^;]*?>=\s*([0-9][0-9.]*))?[^;]*", line)
            if named is not None:  # what stands behind a semicolon is an extra's
                yield named[1], named[2] or "0"


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: 27.1.0rc1 is (27, 1, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(one) for one in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def look_at_profile(patient: Patient) -> Findings:
    from zerochat.agent.storage.profiles import how_locked, profile_exists

    home = patient.places
    if not profile_exists(home):
        yield "fail", f"There is no profile {home.profile}.", "Make it: `zerochat init --name YOU`."
        return
    locked = how_locked(home)  # raises where half of it is gone
    fine = True
    for path, most in ((home.data, 0o700), (home.state, 0o700), (home.key_file, 0o600), (home.vault, 0o600)):
        for wrong in _open_to_others(path, most):
            fine = False
            yield wrong
    if fine:
        where = {"key": "in a file", "keyring": "in the system's keyring", "passphrase": "locked with a passphrase"}
        yield "ok", f"The profile {home.profile} is this user's alone; its key is {where[locked]}.", ""


def _open_to_others(path: Path, most: int) -> Findings:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return
    if facts.st_uid != os.geteuid():
        yield "fail", f"{path} belongs to another user.", f"Give it to this one: `chown -R $USER {_quoted(path)}`."
    elif stat.S_IMODE(facts.st_mode) & 0o077:
        yield "fail", f"{path} is open to other users.", f"Close it: `chmod {most:o} {_quoted(path)}`."


def _quoted(path: Path) -> str:
    return quoted(str(path))


def look_at_socket(patient: Patient) -> Findings:
    path = patient.places.socket
    if patient.silent is not None:
        yield "fail", "Something answers at the control socket, but not as an agent does.", patient.silent.sentence()
        return
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        yield "fail", f"The path of the control socket is too long: {path}.", "Set ZEROCHAT_HOME to a shorter folder."
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
        yield "fail", f"Something that is not a socket is at {path}.", f"Move it away: `mv {_quoted(path)} elsewhere`."
    elif patient.status is None:
        yield "ok", f"No agent runs; the socket that one has left behind at {path} is replaced by the next.", ""
    else:
        yield "ok", f"The agent (process {patient.status.pid}) answers at {path}.", ""


def look_at_settings(patient: Patient) -> Findings:
    from zerochat.agent.settings.options import complaints, said_by_variables

    path = patient.places.config
    if patient.refused is not None:
        yield "fail", "The settings cannot be used, so no agent starts.", patient.refused.sentence()
        return
    said = complaints(patient.places, patient.environ)
    for one in said:
        yield "warn", one, f"Mend it in {path}, or leave it out."
    if not said:
        variables = said_by_variables(patient.environ)
        none = "There is no settings file." if variables else "There is no settings file: all defaults."
        yield "ok", f"{f'{path}: nothing is wrong.' if path.exists() else none} {variables}".rstrip(), ""


def look_at_disk(patient: Patient) -> Findings:
    """Whether what is written gets there, and whether there is room for more."""
    folder = patient.places.data
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent  # it would be made there
    free = shutil.disk_usage(folder).free
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(os.urandom(WRITTEN))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else (error.strerror or "it is refused").lower()
        remedy = "Free some space there." if full else "Make the folder writable for this user."
        yield "fail", f"Nothing can be written in {folder}: {why}.", remedy
        return
    if free < ROOM_MIN:
        text = f"There are only {free >> 20} MB left in {folder}."
        yield "warn", text, "Free some space there: when it is full, nothing more is taken in or sent."
    else:
        yield "ok", f"{folder} takes what is written, and has {free >> 20:,} MB left.", ""


def look_at_files(patient: Patient) -> Findings:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_FEW:
        enough = f"A group of 256 needs about {FILES_FEW:,}; raise it (`ulimit -Hn`, or LimitNOFILE= of systemd)."
        yield "fail" if hard < FILES_TOO_FEW else "warn", f"A process may have only {hard} files open.", enough
    else:
        many = "as many files open as it likes" if hard == resource.RLIM_INFINITY else f"{hard:,} files open"
        yield "ok", f"A process may have {many}.", ""
