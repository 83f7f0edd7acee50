"""Unusual environments: an optimising interpreter, closed streams, other encodings, a user without a home."""

import subprocess
import sys

import pytest

from zerochat import errors

EVERY_ERROR = """
import importlib, pkgutil, zerochat
from zerochat.errors import ZerochatError, docstring
for module in pkgutil.walk_packages(zerochat.__path__, "zerochat."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
kinds = [ZerochatError]
for kind in kinds:
    kinds += kind.__subclasses__()
print(len(kinds), [kind for kind in kinds if docstring(kind) in ("", kind.__name__)])
"""


def python(*arguments: str, **more: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, **more)  # type: ignore[call-overload, no-any-return]


# --- python -OO, which removes docstrings ---------------------------------------------------------------------------


def test_sentences_of_errors_without_docstrings() -> None:
    kinds: list[type] = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    assert len(kinds) > 10
    for kind in kinds:
        assert errors._docstring_in_source(kind) == kind.__doc__
    printed = "from zerochat.errors import *; print(UnknownGroup(group='hikers'))"
    assert python("-OO", "-c", printed).stdout == f"{errors.UnknownGroup(group='hikers')}\n"


@pytest.mark.slow
def test_every_error_has_a_sentence_without_docstrings() -> None:
    count, empty = python("-OO", "-c", EVERY_ERROR).stdout.split(maxsplit=1)
    assert int(count) > 200 and empty == "[]\n"
