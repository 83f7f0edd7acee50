"""The one sentence that says what a person should know."""

import errno
from collections import namedtuple
from pathlib import Path

import pytest

from zerochat.agent.views.attention import CLOCKS_DIFFER, OLDER_COPY, ROOM_LOOK_S, ROOM_MIN, SHUT_OUT, Attention

Room = namedtuple("Room", "f_bavail f_frsize")


def test_the_most_urgent_comes_first(tmp_path: Path) -> None:
    one = Attention(tmp_path)
    assert one.sentence(older=False, shut_out=False) == ""
    assert one.sentence(older=False, shut_out=True) == SHUT_OUT
    assert one.sentence(older=True, shut_out=True) == OLDER_COPY
    one.clocks_differ()
    assert one.sentence(older=True, shut_out=True) == CLOCKS_DIFFER
    one.fault = "The disk is full."
    assert one.sentence(older=True, shut_out=True) == "The disk is full."


def test_a_disk_that_fills_up_is_told_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, now = ROOM_MIN, 1000.0
    monkeypatch.setattr("zerochat.agent.views.attention.os.statvfs", lambda _: Room(free, 1))
    monkeypatch.setattr("zerochat.agent.views.attention.time.monotonic", lambda: now)
    one = Attention(tmp_path)
    assert one.sentence(older=False, shut_out=False) == ""
    free = 42 << 20
    assert one.sentence(older=False, shut_out=False) == "", "it is looked at now and then"
    now += ROOM_LOOK_S
    assert "42 MB" in one.sentence(older=False, shut_out=False)


def test_after_a_fault_it_is_looked_anew_how_much_room_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something small may fit where something larger did not; nobody shall then read of room that was there before."""
    free = 3 << 20
    monkeypatch.setattr("zerochat.agent.views.attention.os.statvfs", lambda _: Room(free, 1))
    one = Attention(tmp_path)
    assert "only 3 MB" in one.sentence(older=False, shut_out=False)
    free = 0
    one.failed("The disk is full.")
    assert one.sentence(older=False, shut_out=False) == "The disk is full."
    one.fault = ""
    assert "only 0 MB" in one.sentence(older=False, shut_out=False)


def test_a_disk_that_cannot_be_asked_is_not_accused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> Room:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("zerochat.agent.views.attention.os.statvfs", broken)
    assert Attention(tmp_path).sentence(older=False, shut_out=False) == ""
