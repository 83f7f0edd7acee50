"""A disk that records every write, for simulated power cuts at any of them.

SQLite runs on the real file system through a layer (under the cipher: open with the name `vfs`) that records writes,
truncations, deletions and syncs in order; with `files=True` also those of Python itself. Synced data is durable. Of
unsynced data a power cut leaves nothing, everything, any part, or writes of which only some sectors arrived. Names in a
folder are durable once the folder is synced; of newer ones a power cut leaves the first few, for file systems keep
their order.

`cuts` yields every moment at which something can be lost; `states` yields some disks for one of them.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final, TypeAlias
from unittest.mock import patch

import apsw

SECTOR: Final = 512
_numbers = count()
_JOURNALS: Final = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
"""The files of whose first sync SQLite makes sure that their names are on the disk, too."""

Key: TypeAlias = tuple[Any, ...]
"""Says which disk it is: the same key, the same content."""


@dataclass
class Op:
    """One thing that was done: `make`, `write`, `truncate` or `sync` a file, `delete` or `rename` it; `folder` makes a
    folder and `names` syncs what is in it. With `mark`: something that was promised at this point."""

    kind: str
    name: str = ""
    """Below the disk's folder; for `names` of that folder itself: empty."""
    offset: int = 0
    data: bytes = field(default=b"", repr=False)
    mark: Any = None
    to: str = ""
    """The new name, of `rename`."""
    full: bool = False
    """A `sync` that does not stop at the drive's own cache (macOS: F_FULLFSYNC)."""


class Disk(apsw.VFS):
    """Use it in a `with`; inside, open databases in `folder` with `vfs=disk.vfs`."""

    def __init__(self, folder: Path, *, files: bool = False) -> None:
        """`files`: note what goes past SQLite, too."""
        name = f"powercut{next(_numbers)}"
        super().__init__(name, "")
        self.vfs = f"multipleciphers-{name}"
        self.folder = folder.resolve()
        self.before = read_folder(folder)
        self.ops: list[Op] = []
        self._files = Files(self) if files else None

    def __enter__(self) -> "Disk":
        if self._files is not None:
            self._files.begin()
        return self

    def __exit__(self, *_: object) -> None:
        if self._files is not None:
            self._files.end()
        self.unregister()

    def mark(self, what: Any) -> None:
        """From here on, this must survive."""
        self.ops.append(Op("mark", mark=what))

    def name_of(self, path: Path | str) -> str | None:
        """What it is called here; None: it is not on this disk."""
        whole = Path(path).absolute()
        whole = whole.parent.resolve() / whole.name
        return _plain(whole.relative_to(self.folder)) if whole.is_relative_to(self.folder) else None

    def open_by_sqlite(self, name: str) -> None:
        """From here on SQLite notes what is written there."""
        if self._files is not None:
            self._files.forget(name)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        name = self.name_of(filename) or ""
        self.ops.append(Op("delete", name))
        if syncdir:
            self.ops.append(Op("names", _parent(name)))

    # --- afterwards -------------------------------------------------------------------------------------------------

    def states(self, dice: random.Random, at: int) -> Iterator[dict[str, bytes]]:
        """What may be on the disk when the power goes just before operation number `at`."""
        image = Image(self.before)
        for number, op in enumerate(self.ops[:at]):
            image.apply(number, op)
        for how in (nothing, everything, some, some, torn_last):
            yield image.after(how(image, dice))[1]

    def cuts(self) -> "Iterator[tuple[int, Image]]":
        """Every moment at which the power may go: how many operations came before, and the disk then. Where something
        was promised between two operations, it is the moment after that."""
        image = Image(self.before)
        for number, op in enumerate(self.ops):
            if op.kind != "mark":
                yield number, image
            image.apply(number, op)
        yield len(self.ops), image

    def promised(self, at: int) -> list[Any]:
        """What had been promised by then."""
        return [op.mark for op in self.ops[:at] if op.kind == "mark"]


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        path = Path(name if isinstance(name, str) else name.filename() if name else "temporary")
        there = path.exists()
        super().__init__("", name, flags)
        self._disk = disk
        self._name = disk.name_of(path) or ""
        disk.open_by_sqlite(self._name)
        self._unsure = not there and bool(flags[0] & _JOURNALS)
        if not there:
            disk.ops.append(Op("make", self._name))

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.ops.append(Op("write", self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._disk.ops.append(Op("truncate", self._name, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        full = flags & 0x0F == apsw.SQLITE_SYNC_FULL
        self._disk.ops.append(Op("sync", self._name, full=full))
        if self._unsure:
            self._unsure = False
            self._disk.ops.append(Op("names", _parent(self._name)))


class Files:
    """Notes what Python does with the files of a disk, past SQLite: by standing in for a few functions of `os`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._known: dict[str, bytes] = {}
        """What the files that were opened here had in them when it was looked at last."""
        self._patches = ExitStack()

    def begin(self) -> None:
        for name in ("open", "fsync", "rename", "replace", "unlink", "mkdir"):
            self._patches.enter_context(patch.object(os, name, self._watched(name, getattr(os, name))))

        self._patches.enter_context(patch.object(apsw, "Connection", self._connection(apsw.Connection)))

    def end(self) -> None:
        self._look()
        self._patches.close()

    def forget(self, name: str) -> None:
        self._look()
        self._known.pop(name, None)

    def _connection(self, real: type[apsw.Connection]) -> Callable[..., apsw.Connection]:
        return lambda *given, vfs=None, **named: real(*given, vfs=vfs or self._disk.vfs, **named)

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*given: Any, **named: Any) -> Any:
            self._look()
            where = self._disk.name_of(_path_of(given[0])) if name == "fsync" or "dir_fd" not in named else None
            there = where is not None and name == "open" and Path(given[0]).exists()
            result = real(*given, **named)
            if where is not None:
                self._note(name, where, there, given)
            return result

        return stand_in

    def _note(self, name: str, where: str, there: bool, given: tuple[Any, ...]) -> None:
        ops = self._disk.ops
        match name:
            case "open" if given[1] & os.O_CREAT:
                self._known[where] = Path(given[0]).read_bytes() if there else b""
                if not there:
                    ops.append(Op("make", where))
            case "fsync":
                ops.append(Op("names" if _path_of(given[0]).is_dir() else "sync", where))
            case "rename" | "replace":
                to = self._disk.name_of(given[1])
                assert to is not None, "it stays on this disk"
                ops.append(Op("rename", where, to=to))
                moved = {old: to + old.removeprefix(where) for old in self._known if _is_below(old, where)}
                for old, new in moved.items():
                    self._known[new] = self._known.pop(old)
            case "unlink":
                self._known.pop(where, None)
                ops.append(Op("delete", where))
            case "mkdir":
                ops.append(Op("folder", where))

    def _look(self) -> None:
        """Whether something was written since."""
        for name, was in self._known.items():
            path = self._disk.folder / name
            if not path.is_file():
                continue
            now = path.read_bytes()
            if not now.startswith(was):
                self._disk.ops.append(Op("truncate", name, 0))
                was = b""
            if len(now) > len(was):
                self._disk.ops.append(Op("write", name, len(was), now[len(was) :]))
            self._known[name] = now


# --- what is on the disk ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Content:
    """A file, whatever it is called."""

    durable: bytearray
    pending: list[tuple[int, Op]] = field(default_factory=list)
    """What was done to it since it was synced, by the number of the operation."""


@dataclass(eq=False)
class _Names:
    """A folder, whatever it is called."""

    durable: "dict[str, _Content | _Names]" = field(default_factory=dict)
    pending: "list[dict[str, _Content | _Names | None]]" = field(default_factory=list)
    """What has got a name since it was synced, and (None) what has lost it."""


@dataclass(frozen=True)
class Choice:
    """What of the pending is on the disk: by the number of an operation, None for all of it, or the sectors."""

    writes: dict[int, tuple[int, ...] | None]
    names: float
    """How much of each folder's pending names, from 0 to 1; the rest never was."""


class Image:
    """What is on a disk for certain, and what may be, after some operations."""

    def __init__(self, before: dict[str, bytes]) -> None:
        self._root = _Names()
        self._live: dict[str, _Content | _Names] = {"": self._root}
        for name, content in before.items():
            self._put(name, _Content(bytearray(content)))
        self._version = 0
        """How often something has come to be on the disk for certain."""

    def apply(self, number: int, op: Op) -> None:
        match op.kind:
            case "make" if op.name not in self._live:
                self._name(op.name, _Content(bytearray()))
            case "folder" if op.name not in self._live:
                self._name(op.name, _Names())
            case "write" | "truncate":
                if op.name not in self._live:  # made past us: its name is taken to be on the disk
                    self._put(op.name, _Content(bytearray()))
                self._content(op.name).pending.append((number, op))
            case "sync":
                if op.name in self._live:
                    file = self._content(op.name)
                    for _, each in file.pending:
                        _apply(file.durable, each)
                    self._version += bool(file.pending)
                    file.pending.clear()
            case "names":
                folder = self._folder(op.name)
                self._version += bool(folder.pending)
                for change in folder.pending:
                    _rename(folder.durable, change)
                folder.pending.clear()
            case "delete" if op.name in self._live:
                self._name(op.name, None)
                del self._live[op.name]
            case "rename":
                moved = {name: node for name, node in self._live.items() if _is_below(name, op.name)}
                node = self._live[op.name]
                change = {_last(op.name): None, _last(op.to): node}
                assert _parent(op.name) == _parent(op.to), "one folder"
                self._folder(_parent(op.name)).pending.append(change)
                for name in moved:
                    del self._live[name]
                self._live |= {op.to + name.removeprefix(op.name): node for name, node in moved.items()}

    def pending(self) -> list[tuple[int, Op]]:
        """What was done to files since they were synced, in order; to those, too, that have lost their name since."""
        files: dict[int, _Content] = {}
        self._reach(self._root, files)
        return sorted(((number, op) for file in files.values() for number, op in file.pending), key=lambda one: one[0])

    def unsettled(self) -> bool:
        """Whether there is any name of which it is not certain that it is there, or gone."""
        return any(isinstance(node, _Names) and node.pending for node in self._live.values())

    def after(self, choice: Choice) -> tuple[Key, dict[str, bytes]]:
        """The disk that a power cut leaves, by file."""
        found: dict[str, bytes] = {}
        self._collect(self._root, "", choice, found)
        names = choice.names if self.unsettled() else 0.0
        return (self._version, names, *sorted(choice.writes.items())), found

    def key(self, choice: Choice) -> Key:
        """The same key, the same disk."""
        names = choice.names if self.unsettled() else 0.0
        return (self._version, names, *sorted(choice.writes.items()))

    def _collect(self, folder: _Names, prefix: str, choice: Choice, found: dict[str, bytes]) -> None:
        names = dict(folder.durable)
        for change in folder.pending[: round(choice.names * len(folder.pending))]:
            _rename(names, change)
        for name, node in names.items():
            if isinstance(node, _Names):
                self._collect(node, f"{prefix}{name}/", choice, found)
                continue
            content = node.durable
            chosen = [(op, choice.writes[number]) for number, op in node.pending if number in choice.writes]
            if chosen:
                content = bytearray(content)
                for op, sectors in chosen:
                    _apply(content, op, sectors)
            found[prefix + name] = bytes(content)

    def _reach(self, folder: _Names, files: dict[int, _Content]) -> None:
        for node in (*folder.durable.values(), *(node for change in folder.pending for node in change.values())):
            if isinstance(node, _Names):
                self._reach(node, files)
            elif node is not None:
                files[id(node)] = node

    def _name(self, name: str, node: _Content | _Names | None) -> None:
        """Give it a name, of which it is not certain yet that it stays; with None, take the name away."""
        self._folder(_parent(name)).pending.append({_last(name): node})
        if node is not None:
            self._live[name] = node

    def _put(self, name: str, node: _Content | _Names) -> None:
        """A name that is there for certain."""
        folder = _parent(name)
        if folder not in self._live:
            self._put(folder, _Names())
        self._folder(folder).durable[_last(name)] = self._live[name] = node

    def _content(self, name: str) -> _Content:
        node = self._live[name]
        assert isinstance(node, _Content)
        return node

    def _folder(self, name: str) -> _Names:
        if name not in self._live:  # it was there, with nothing in it
            self._put(name, _Names())
        node = self._live[name]
        assert isinstance(node, _Names)
        return node


def _rename(names: "dict[str, _Content | _Names]", change: "dict[str, _Content | _Names | None]") -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _apply(content: bytearray, op: Op, sectors: tuple[int, ...] | None = None) -> None:
    """`sectors`: only these arrive; None: all of it does."""
    if op.kind == "truncate":
        content[op.offset :] = bytes(max(0, op.offset - len(content)))
        return
    pieces = [(op.offset, op.data)]
    if sectors is not None:
        pieces = [(op.offset + start, op.data[start : start + SECTOR]) for start in (n * SECTOR for n in sectors)]
    for offset, data in pieces:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data


# --- what a power cut does --------------------------------------------------------------------------------------------


def nothing(image: Image, dice: random.Random) -> Choice:
    return Choice({}, 0.0)


def everything(image: Image, dice: random.Random) -> Choice:
    return Choice({number: None for number, _ in image.pending()}, 1.0)


def some(image: Image, dice: random.Random) -> Choice:
    """Any of the writes, many or few."""
    likely = dice.choice((0.1, 0.5, 0.9))
    return Choice({number: None for number, _ in image.pending() if dice.random() < likely}, dice.random())


def torn_last(image: Image, dice: random.Random) -> Choice:
    """All but the last, and of that one only some sectors."""
    writes: dict[int, tuple[int, ...] | None] = {number: None for number, _ in image.pending()}
    return Choice(writes | _some_sectors(image.pending()[-1:], dice), 1.0)


def torn(image: Image, dice: random.Random) -> Choice:
    """All but one, and of that one only some sectors."""
    pending = image.pending()
    writes: dict[int, tuple[int, ...] | None] = {number: None for number, _ in pending}
    if pending:
        writes |= _some_sectors([dice.choice(pending)], dice)
    return Choice(writes, dice.choice((0.0, 1.0)))


def early(image: Image, dice: random.Random) -> Choice:
    """The first few in order, and of the next only some sectors."""
    pending = image.pending()
    upto = dice.randrange(len(pending) + 1)
    writes: dict[int, tuple[int, ...] | None] = {number: None for number, _ in pending[:upto]}
    return Choice(writes | _some_sectors(pending[upto : upto + 1], dice), dice.random())


def sectors(image: Image, dice: random.Random) -> Choice:
    """Any of the sectors of all writes."""
    return Choice(_some_sectors(image.pending(), dice), dice.choice((0.0, 1.0)))


KINDS: Final = (nothing, everything, some, torn, torn_last, early, sectors)


def _some_sectors(ops: list[tuple[int, Op]], dice: random.Random) -> dict[int, tuple[int, ...] | None]:
    found: dict[int, tuple[int, ...] | None] = {}
    for number, op in ops:
        if op.kind == "write":
            found[number] = tuple(n for n in range(-(-len(op.data) // SECTOR)) if dice.random() < 0.5)
        elif dice.random() < 0.5:
            found[number] = None
    return found


# --- files and names --------------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> dict[str, bytes]:
    """By name, what is in the files of a folder and of those below it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder be just that."""
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name in there.keys() - files.keys():
        there[name].unlink()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)


def _path_of(what: Any) -> Path:
    """Of a path, or of an open file by its number."""
    return Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else Path(what)


def _parent(name: str) -> str:
    return _plain(PurePosixPath(name).parent)


def _plain(path: PurePath) -> str:
    name = path.as_posix()
    return "" if name == "." else name


def _last(name: str) -> str:
    return PurePosixPath(name).name


def _is_below(name: str, folder: str) -> bool:
    return name == folder or name.startswith(folder + "/")
