"""Members of one process verify each signature once."""

from collections.abc import Iterator

import pytest

from zerochat.sim.fast_crypto import cached_signatures


@pytest.fixture(autouse=True, scope="module")
def _signatures_are_verified_once() -> Iterator[None]:
    with cached_signatures():
        yield
