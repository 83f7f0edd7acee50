"""A file system below SQLite that counts the bytes written, and can be full."""

from itertools import count

import apsw

_numbers = count(1)


class CountingDisk(apsw.VFS):
    """Use it in a `with`; inside, open databases with `vfs=disk.vfs`."""

    def __init__(self):
        name = f"counting{next(_numbers)}"
        super().__init__(name, "")
        self.vfs = f"multipleciphers-{name}"
        self.written = 0
        self.is_full = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unregister()

    def xOpen(self, name, flags):
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk, name, flags):
        super().__init__("", name, flags)
        self._disk = disk

    def xWrite(self, data, offset):
        if self._disk.is_full:
            raise apsw.FullError
        super().xWrite(data, offset)
        self._disk.written += len(data)
