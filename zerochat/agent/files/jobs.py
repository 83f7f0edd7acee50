"""File requests of clients: finds the file, and starts the jobs of the file worker."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from zerochat import rpc
from zerochat.agent.files import sources
from zerochat.agent.files.saving import Saved, downloads, safe_name, save
from zerochat.agent.files.thumbnail import small_picture
from zerochat.agent.files.worker import FileWorker, Interrupted
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import path_from_wire, path_to_wire
from zerochat.agent.views import event_pages
from zerochat.agent.views.events import load_record
from zerochat.errors import LocalError, NotAMember, Unauthentic
from zerochat.group.event_log.event import POST
from zerochat.group.files import catalogue
from zerochat.group.files.descriptor import File, files_in
from zerochat.group.inputs import DeleteFile, DownloadFile
from zerochat.group.membership import may_post
from zerochat.group.state import Agent, Group
from zerochat.names import matching_ids


class SeveralFiles(LocalError):
    """Several files in this group match {file}. Give the beginning of the file's id, which `zerochat files list GROUP`
    shows."""


class FileNotDownloaded(LocalError):
    """{name} is not downloaded, or not completely. Fetch it with `zerochat files get`."""


class FileDamaged(LocalError):
    """The stored copy of {name} is damaged, so nothing was saved. Remove it (`zerochat files remove`) and fetch it
    again (`zerochat files get`)."""


class FileReference(Struct, frozen=True):
    """A file, and the post that names it."""

    file: File
    author: str
    event: str


def find_file(journal: Journal, group: Group, wanted: str) -> FileReference:
    """The file with this id, id prefix, name or post id. Raises NoSuchFile or SeveralFiles."""
    known = group.files
    found = matching_ids({key: (one.file.name, safe_name(one.file.name)) for key, one in known.items()}, wanted)
    if len(found) > 1:
        raise SeveralFiles(file=ascii(wanted[:64]))
    if found:
        one = known[found[0]]
        return FileReference(one.file, one.author, one.event)
    try:
        row = event_pages.find_row(journal, group, wanted)
    except LocalError:
        raise catalogue.NoSuchFile(file=ascii(wanted[:64])) from None
    named = files_in(load_record(row).body) if row.type == POST and not row.refuted else ()
    if len(named) > 1:
        raise SeveralFiles(file=ascii(wanted[:64]))
    if not named:
        raise catalogue.NoSuchFile(file=ascii(wanted[:64]))
    return FileReference(named[0], row.author, row.id)


def command_for(journal: Journal, group: Group, method: str, wanted: str) -> DownloadFile | DeleteFile:
    """The core's command for a request about one file."""
    reference = find_file(journal, group, wanted)
    if method == "drop_file":
        return DeleteFile(group.id, reference.file.id)
    return DownloadFile(group.id, reference.file, reference.author, reference.event)


def attach(
    worker: FileWorker, agent: Agent, group: Group, params: rpc.SendFilesParams, then: Callable[[object], None]
) -> None:
    """Import the files of a message; `then` gets the `File`s or a LocalError."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not may_post(group.view, group.me, group.seq + 1):
        raise catalogue.MayNotSend(group=group.name)
    if not params.paths:
        raise sources.NoFiles
    left = agent.file_rules.total_max - catalogue.used_bytes(agent)
    limit = agent.file_rules.size_max
    paths, name = [str(path_from_wire(path)) for path in params.paths], group.id
    worker.submit(lambda: sources.import_files(worker.blobs, name, paths, limit, left, worker.is_running), then)


def save_file(
    worker: FileWorker, journal: Journal, group: Group, params: rpc.SaveParams, then: Callable[[object], None]
) -> None:
    """Save a downloaded file; `then` gets an `rpc.Saved` or a LocalError."""
    file = _whole(journal, group, params.file)
    to = str(path_from_wire(params.to)) if params.to else ""
    if to and not Path(to).is_absolute():
        raise sources.NotAbsolute(path=ascii(to))
    worker.submit(lambda: _save(worker, group.id, file, to), then)


def show_picture(
    worker: FileWorker, journal: Journal, group: Group, params: rpc.RenderPictureParams, then: Callable[[object], None]
) -> None:
    """Decode a downloaded picture; `then` gets an `rpc.Picture` or a LocalError."""
    file = _whole(journal, group, params.file)
    worker.submit(lambda: _picture(worker, group.id, file, params), then)


def _picture(worker: FileWorker, group: str, file: File, params: rpc.RenderPictureParams) -> rpc.Picture:
    name, parts = ascii(safe_name(file.name)), worker.blobs.content(group, file.id, file.size)
    try:
        return rpc.Picture(*small_picture(name, file.size, parts, params.width, params.height))
    except Unauthentic:
        raise FileDamaged(name=name) from None


def _whole(journal: Journal, group: Group, wanted: str) -> File:
    """The complete file. Raises NoSuchFile, SeveralFiles or FileNotDownloaded."""
    reference = find_file(journal, group, wanted)
    one = group.files.get(reference.file.id)
    if one is None or one.state != "here":
        raise FileNotDownloaded(name=ascii(safe_name(reference.file.name)))
    return reference.file


def _save(worker: FileWorker, group: str, file: File, to: str) -> rpc.Saved:
    try:
        saved: Saved = save(file.name, _content(worker, group, file), to, downloads(os.environ))
    except Unauthentic:
        raise FileDamaged(name=ascii(safe_name(file.name))) from None
    return rpc.Saved(path_to_wire(saved.path), file.size, saved.sha256)


def _content(worker: FileWorker, group: str, file: File) -> Iterator[bytes]:
    for part in worker.blobs.content(group, file.id, file.size):
        if not worker.is_running():
            raise Interrupted
        yield part
