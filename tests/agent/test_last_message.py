"""`last` and `last:NAME`: what is said where there is no such message."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.member_offices import Offices
from zerochat.agent.views.event_pages import NothingSaid, StillFetching, find_row
from zerochat.group.membership import Policy
from zerochat.group.state import BackfillProgress


@pytest.mark.parametrize(("done", "error"), [(True, NothingSaid), (False, StillFetching)])
def test_a_missing_message_may_still_be_on_its_way(done: bool, error: type[Exception]) -> None:
    world = Offices(3, Policy(history="all"))
    first, second, *_ = world.nodes
    (group,) = world.nodes[second].agent.groups.values()
    group = replace(group, sync=replace(group.sync, backfill=BackfillProgress(done=done)))
    journal: Any = SimpleNamespace(last_of_type=lambda *_: None)
    with pytest.raises(error) as caught:
        find_row(journal, group, f"last:{first}")
    assert ("still being fetched" in caught.value.sentence()) is not done  # type: ignore[attr-defined]
