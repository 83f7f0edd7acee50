"""Whole agents over real sockets: start, stop, meet, wait for a condition."""

import contextlib
import time

import pytest

from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread

DEADLINE_S = 60.0


def until(condition, what, within_s=DEADLINE_S):
    """Wait for a condition; fail with its name when it does not come."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)
    return found


class Person:
    """A profile with its agent thread and a client of it."""

    def __init__(self, folder, name):
        self.places = profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(self.places, name, None)
        self.name = name

    def wake(self):
        self.thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1")
        self.thread.start()
        self.client = connect(self.places, "test")
        return self

    def sleep(self):
        self.client.close()
        self.thread.stop()
        assert not self.thread.is_alive()

    def texts(self, group="friends"):
        return [e.body["text"] for e in self.client.get_history(group, limit=500).events if e.type == "message"]

    def ids(self, group="friends"):
        return [e.id for e in self.client.get_history(group, limit=500).events]


@pytest.fixture
def people(tmp_path):
    awake = []

    def make(*names):
        awake.extend(Person(tmp_path, name).wake() for name in names)
        return awake[-len(names) :]

    yield make
    for person in awake:
        with contextlib.suppress(Exception):
            person.sleep()


def meet(host, *guests, group="friends", **rules):
    host.client.create_group(group, **rules)
    for guest in guests:
        guest.client.subscribe()
        guest.client.join_group(host.client.create_invitation(group).url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")
    everybody = [host, *guests]
    until(
        lambda: all(
            m.connection in ("self", "connected") and m.view_matches is not False
            for person in everybody
            for m in person.client.list_members(group)
        ),
        "meeting",
    )
