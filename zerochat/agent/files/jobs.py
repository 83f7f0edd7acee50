"""What faces want done with files: which one they mean, and the reading and saving that takes its time."""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from zerochat import rpc
from zerochat.agent.files import sources
from zerochat.agent.files.safe_names import safe_name
from zerochat.agent.files.saving import Saved, downloads, save
from zerochat.agent.files.thumbnail import small_picture
from zerochat.agent.files.worker import FileRoom
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views import core_state, event_pages
from zerochat.errors import LocalError, NotAMember, Unauthentic
from zerochat.group.event_log.event import POST
from zerochat.group.files import catalogue
from zerochat.group.files.descriptor import File, files_in
from zerochat.group.inputs import DropFile, GetFile
from zerochat.group.lookup import PREFIX_MIN
from zerochat.group.membership import may_post
from zerochat.group.state import Agent, Group


class SeveralFiles(LocalError):
    """More than one file in this group answers to {file}. Give the first letters of its id: `zerochat files list GROUP`
    shows them."""


class NotHere(LocalError):
    """{name} is not here, or not all of it yet. `zerochat files get` fetches it."""


class Spoilt(LocalError):
    """What is kept of {name} is not what it was, so nothing was saved. Remove it (`zerochat files drop`) and fetch it
    anew (`zerochat files get`)."""


class Meant(Struct, frozen=True):
    """A file that somebody means, and the post that names it."""

    file: File
    author: str
    event: str


def find_file(journal: Journal, group: Group, wanted: str) -> Meant:
    """The file that is meant (`schema.FileParams`). Raises NoSuchFile or SeveralFiles."""
    known = group.files
    if wanted in known:
        return Meant(known[wanted].file, known[wanted].author, known[wanted].event)
    long = len(wanted) >= PREFIX_MIN
    found = [key for key, one in known.items() if wanted in (one.file.name, safe_name(one.file.name))]
    found = found or [key for key in known if long and key.startswith(wanted)]
    if len(found) > 1:
        raise SeveralFiles(file=ascii(wanted[:64]))
    if found:
        one = known[found[0]]
        return Meant(one.file, one.author, one.event)
    try:
        row = event_pages.find_row(journal, group, wanted)
    except LocalError:
        raise catalogue.NoSuchFile(file=ascii(wanted[:64])) from None
    named = files_in(core_state.load(row).body) if row.type == POST and not row.refuted else ()
    if len(named) > 1:
        raise SeveralFiles(file=ascii(wanted[:64]))
    if not named:
        raise catalogue.NoSuchFile(file=ascii(wanted[:64]))
    return Meant(named[0], row.author, row.id)


def wish(journal: Journal, group: Group, method: str, wanted: str) -> GetFile | DropFile:
    """What a face wants of one file, as a command to the core."""
    meant = find_file(journal, group, wanted)
    if method == "drop":
        return DropFile(group.id, meant.file.id)
    return GetFile(group.id, meant.file, meant.author, meant.event)


def attach(
    room: FileRoom, agent: Agent, group: Group, params: rpc.AttachParams, then: Callable[[object], None]
) -> None:
    """Take in the files that go with a message; `then` gets them, as `File`s, or the LocalError that says why not."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not may_post(group.view, group.me, group.seq + 1):
        raise catalogue.MayNotSend(group=group.name)
    if not params.paths:
        raise sources.NoFiles
    left = agent.file_rules.total_max - catalogue.used(agent)
    limit = agent.file_rules.size_max
    paths, name = list(params.paths), group.id
    room.long(lambda: sources.take_in(room.blobs, name, paths, limit, left, room.going_on), then)


def save_file(
    room: FileRoom, journal: Journal, group: Group, params: rpc.SaveParams, then: Callable[[object], None]
) -> None:
    """Save a file that is here; `then` gets a `schema.Saved`, or the LocalError that says why not."""
    file = _whole(journal, group, params.file)
    if params.to and not Path(params.to).is_absolute():
        raise sources.NotAbsolute(path=ascii(params.to))
    room.long(lambda: _save(room, group.id, file, params.to), then)


def show_picture(
    room: FileRoom, journal: Journal, group: Group, params: rpc.PictureParams, then: Callable[[object], None]
) -> None:
    """Decode a picture that is here; `then` gets a `schema.Picture`, or the LocalError that says why not."""
    file = _whole(journal, group, params.file)
    room.long(lambda: _picture(room, group.id, file, params), then)


def _picture(room: FileRoom, group: str, file: File, params: rpc.PictureParams) -> rpc.Picture:
    name, parts = ascii(safe_name(file.name)), room.blobs.content(group, file.id, file.size)
    try:
        return rpc.Picture(*small_picture(name, file.size, parts, params.width, params.height))
    except Unauthentic:
        raise Spoilt(name=name) from None


def _whole(journal: Journal, group: Group, wanted: str) -> File:
    """The file that is meant, all of which is here. Raises NoSuchFile, SeveralFiles or NotHere."""
    meant = find_file(journal, group, wanted)
    one = group.files.get(meant.file.id)
    if one is None or one.state != "here":
        raise NotHere(name=ascii(safe_name(meant.file.name)))
    return meant.file


def _save(room: FileRoom, group: str, file: File, to: str) -> rpc.Saved:
    try:
        saved: Saved = save(file.name, room.blobs.content(group, file.id, file.size), to, downloads(os.environ))
    except Unauthentic:
        raise Spoilt(name=ascii(safe_name(file.name))) from None
    return rpc.Saved(str(saved.path), file.size, saved.sha256)
