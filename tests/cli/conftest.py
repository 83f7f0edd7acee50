"""The command line is declared once for each verb."""

from collections.abc import Iterator
from functools import cache

import pytest

from zerochat.cli import parser


@pytest.fixture(autouse=True, scope="module")
def _verbs_are_declared_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "grammar", cache(parser.grammar))
        yield
