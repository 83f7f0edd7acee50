"""A disk that notes every write, so that afterwards the power can be cut at any of them.

SQLite runs on the real file system, through a layer of ours (under the cipher: open with the name `vfs`) that notes
what is written, cut, removed and synced, in order. What was synced is on the disk for good. Of what was not, a power
cut leaves nothing, everything, any part, or a write of which only some sectors have arrived; `states` makes such disks.
Names of files are taken to be on disk at once.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
_numbers = count()


@dataclass
class Op:
    """One thing that was done to a file; or, with `mark`, something that was promised at this point."""

    kind: str
    name: str = ""
    offset: int = 0
    data: bytes = field(default=b"", repr=False)
    mark: Any = None


class Disk(apsw.VFS):
    """Use it in a `with`; inside, open databases in `folder` with `vfs=disk.vfs`."""

    def __init__(self, folder: Path) -> None:
        name = f"powercut{next(_numbers)}"
        super().__init__(name, "")
        self.vfs = f"multipleciphers-{name}"
        self.folder = folder
        self.before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self.ops: list[Op] = []

    def __enter__(self) -> "Disk":
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    def mark(self, what: Any) -> None:
        """From here on, this must survive."""
        self.ops.append(Op("mark", mark=what))

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.ops.append(Op("delete", Path(filename).name))

    # --- afterwards -------------------------------------------------------------------------------------------------

    def states(self, dice: random.Random, at: int) -> Iterator[dict[str, bytes]]:
        """What may be on the disk when the power goes just before operation number `at`."""
        durable = {name: bytearray(content) for name, content in self.before.items()}
        pending: dict[str, list[Op]] = {}
        for op in self.ops[:at]:
            match op.kind:
                case "write" | "truncate":
                    pending.setdefault(op.name, []).append(op)
                    durable.setdefault(op.name, bytearray())
                case "sync":
                    for each in pending.pop(op.name, []):
                        _apply(durable[op.name], each)
                case "delete":
                    pending.pop(op.name, None)
                    durable.pop(op.name, None)
        for choose in (_nothing, _everything, _some, _some, _torn):
            state = {name: bytearray(content) for name, content in durable.items()}
            for name, ops in pending.items():
                for op in choose(ops, dice):
                    _apply(state[name], op)
            yield {name: bytes(content) for name, content in state.items()}

    def promised(self, at: int) -> list[Any]:
        """What had been promised by then."""
        return [op.mark for op in self.ops[:at] if op.kind == "mark"]


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._name = Path(name if isinstance(name, str) else name.filename() if name else "temporary").name

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.ops.append(Op("write", self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._disk.ops.append(Op("truncate", self._name, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.ops.append(Op("sync", self._name))


def _apply(content: bytearray, op: Op) -> None:
    if op.kind == "truncate":
        content[op.offset :] = bytes(max(0, op.offset - len(content)))
    else:
        content.extend(bytes(max(0, op.offset - len(content))))
        content[op.offset : op.offset + len(op.data)] = op.data


def _nothing(ops: list[Op], dice: random.Random) -> list[Op]:
    return []


def _everything(ops: list[Op], dice: random.Random) -> list[Op]:
    return ops


def _some(ops: list[Op], dice: random.Random) -> list[Op]:
    return [op for op in ops if dice.random() < 0.5]


def _torn(ops: list[Op], dice: random.Random) -> list[Op]:
    """All but the last, and of that one only some sectors."""
    if not ops or ops[-1].kind != "write":
        return ops
    last = ops[-1]
    starts = range(0, len(last.data), SECTOR)
    parts = [Op("write", last.name, last.offset + s, last.data[s : s + SECTOR]) for s in starts if dice.random() < 0.5]
    return [*ops[:-1], *parts]
