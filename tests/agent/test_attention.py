"""The status warning: the most urgent condition, in one sentence."""

import errno
from collections import namedtuple
from pathlib import Path

import pytest

from zerochat.agent.views.attention import (
    BANNED,
    CLOCKS_DIFFER,
    DISK_CHECK_S,
    FREE_BYTES_MIN,
    STALE_PROFILE,
    Attention,
)

Room = namedtuple("Room", "f_bavail f_frsize")


def test_the_most_urgent_comes_first(tmp_path: Path) -> None:
    one = Attention(tmp_path)
    assert one.sentence(stale=False, banned=False) == ""
    assert one.sentence(stale=False, banned=True) == BANNED
    assert one.sentence(stale=True, banned=True) == STALE_PROFILE
    one.clocks_differ()
    assert one.sentence(stale=True, banned=True) == CLOCKS_DIFFER
    assert one.sentence(stale=True, banned=True, unsent="Nothing is sent.") == "Nothing is sent."
    one.fault = "The disk is full."
    assert one.sentence(stale=True, banned=True, unsent="Nothing is sent.") == "The disk is full."
    assert one.sentence(stale=True, banned=True) == "The disk is full."


def test_a_disk_that_fills_up_is_reported_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, now = FREE_BYTES_MIN, 1000.0
    monkeypatch.setattr("zerochat.agent.views.attention.os.statvfs", lambda _: Room(free, 1))
    monkeypatch.setattr("zerochat.agent.views.attention.time.monotonic", lambda: now)
    one = Attention(tmp_path)
    assert one.sentence(stale=False, banned=False) == ""
    free = 42 << 20
    assert one.sentence(stale=False, banned=False) == "", "it is looked at now and then"
    now += DISK_CHECK_S
    assert "42 MB" in one.sentence(stale=False, banned=False)


def test_free_space_is_measured_again_after_a_write_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something small may fit where something larger did not; nobody shall then read of room that was there before."""
    free = 3 << 20
    monkeypatch.setattr("zerochat.agent.views.attention.os.statvfs", lambda _: Room(free, 1))
    one = Attention(tmp_path)
    assert "only 3 MB" in one.sentence(stale=False, banned=False)
    free = 0
    one.failed("The disk is full.")
    assert one.sentence(stale=False, banned=False) == "The disk is full."
    one.fault = ""
    assert "only 0 MB" in one.sentence(stale=False, banned=False)


def test_an_unreadable_disk_state_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> Room:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("zerochat.agent.views.attention.os.statvfs", broken)
    assert Attention(tmp_path).sentence(stale=False, banned=False) == ""
