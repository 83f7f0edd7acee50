"""pytest plugin: the fixture `zerochat_group`, and virtual time for coroutine tests that use it."""

import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from zerochat.testing.group import Group

FIXTURE = "zerochat_group"


@pytest.fixture
def zerochat_group() -> "type[Group]":
    """`zerochat.testing.Group`: `async with zerochat_group(members=2, bots=[bot]) as group`."""
    from zerochat.testing.group import Group

    return Group


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test that uses the fixture in virtual time."""
    if FIXTURE not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from zerochat.testing.loop import run

    names: Any = pyfuncitem._fixtureinfo.argnames
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
