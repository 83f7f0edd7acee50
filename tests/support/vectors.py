"""The published test vectors, kept beside the project; tests skip with a reason without them."""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "vectors"

Json = Any
"""Vectors are trees of every shape, and the tests say at once when one is not as expected."""


def load(name: str) -> Json:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the published vectors are not beside the project (no {name})")
    return json.loads(path.read_bytes())


def cases(name: str, *path: str) -> list[Json]:
    """The cases of a file as parameters, or one parameter that makes its test skip when the file is not there."""
    if not (FOLDER / name).exists():
        reason = f"the published vectors are not beside the project (no {name})"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id=name)]
    tree = load(name)
    for step in path:
        tree = tree[step]
    return [pytest.param(case, id=case["id"]) for case in tree]
