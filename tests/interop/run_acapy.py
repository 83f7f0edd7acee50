"""Starts ACA-Py, with its own command line, on this Python.

ACA-Py 1.7.0 requires Python 3.13 and runs on 3.11, except for one function of its revocation registries with a
signature in 3.12 syntax. It is never called here; on older Pythons its signature is rewritten.
"""

import importlib.machinery
import sys

SIGNATURE = b"def deserialize_event_payload[T: BaseModel | NamedTuple]("
OLDER = {SIGNATURE: b"def deserialize_event_payload(", b"Type[T]": b"type", b") -> T:": b") -> object:"}


class OlderSpelling(importlib.machinery.SourceFileLoader):
    """Loads sources unchanged, except this one."""

    def get_data(self, path: str) -> bytes:
        data = super().get_data(path)
        if path.endswith("event_storage.py") and SIGNATURE in data:
            for new, old in OLDER.items():
                data = data.replace(new, old)
        return data


def main() -> None:
    sys.dont_write_bytecode = True
    if sys.version_info < (3, 12):
        extensions = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
        finder = importlib.machinery.FileFinder.path_hook(extensions, (OlderSpelling, [".py"]))
        sys.path_hooks.insert(0, finder)
        sys.path_importer_cache.clear()
    sys.path.pop(0)  # this folder has a module of the same name as a package of theirs might
    from acapy_agent.__main__ import main as aca_py

    sys.argv[0] = "aca-py"
    aca_py(sys.argv)


if __name__ == "__main__":
    main()
