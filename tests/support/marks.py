"""Parameters that are slow tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def others_slow(values: Iterable[Any], everyday: int = 1, *, unpacked: bool = False) -> list[Any]:
    """Parameters of which the first run every day and the others with the slow tests. `unpacked`: each value is a
    tuple, for several names."""
    all_values = [*values]
    slow = (pytest.param(*(each if unpacked else (each,)), marks=pytest.mark.slow) for each in all_values[everyday:])
    return [*all_values[:everyday], *slow]
