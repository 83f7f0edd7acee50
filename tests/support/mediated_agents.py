"""Whole agents behind a real mediator process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.support.agents import until
from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread


class MediatorProcess:
    """`zerochat mediator` on loopback; it can be killed and comes back with what it had."""

    def __init__(self, folder, name="mediator", *options):
        self.home = folder / name
        self.port = "0"
        self.start(*options)

    def start(self, *options):
        command = [sys.executable, "-m", "zerochat", "mediator", "--format", "jsonl"]
        self.process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self.port}", *options],
            env={**os.environ, "ZEROCHAT_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        ready = json.loads(self.process.stdout.readline())
        assert ready["event"] == "ready"
        self.link, self.link_v1 = ready["link"], ready["link_v1"]
        self.port = ready["uri"].rpartition(":")[2].strip("/")
        self.rest = []  # of what it says: a full pipe must not stop it
        self.reader = threading.Thread(target=self.rest.extend, args=(self.process.stdout,), daemon=True)
        self.reader.start()

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(10)
        self.reader.join(10)
        self.process.stdout.close()

    def stop(self):
        self.kill(signal.SIGTERM)

    def ended(self):
        """Stop it: what it has counted since it was started."""
        self.stop()
        return [event["counts"] for event in map(json.loads, self.rest) if event["event"] == "counts"][-1]


class Person:
    """A profile with its agent thread and a client of it."""

    def __init__(self, folder, name, *, hidden):
        self.places = profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(self.places, name, None)
        self.name, self.hidden = name, hidden
        self.wake()

    def wake(self):
        self.thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1", hidden=self.hidden)
        self.thread.start()
        self.client = connect(self.places, "test")

    def sleep(self):
        self.client.close()
        self.thread.stop()

    def events(self):
        """All of them, page by page."""
        events, more = [], True
        while more:
            page = self.client.get_history("friends", limit=500, before=events[0].id if events else None)
            events, more = [*page.events, *events], page.more
        return events

    def texts(self):
        return [event.body["text"] for event in self.events() if event.type == "message"]

    def reaches(self):
        return {member.nick: member.via for member in self.client.list_members("friends") if member.nick != self.name}


@pytest.fixture
def mediator(tmp_path):
    process = MediatorProcess(tmp_path)
    yield process
    process.stop()


@pytest.fixture
def people(tmp_path, mediator):
    """Alice and Bob, behind the mediator, and Carol, before it; all of them in one group of Alice's."""
    everybody = []
    try:
        for name, hidden in (("alice", True), ("bob", True), ("carol", False)):
            everybody.append(Person(tmp_path, name, hidden=hidden))
        alice, bob, carol = everybody
        for person in (alice, bob):
            person.client.call("open_connection", invitation=mediator.link, mediate=True)
            until(lambda person=person: person.client.call("list_connections")[0].mediator == "granted", "mediation")
        alice.client.create_group("friends")
        for guest in (bob, carol):
            guest.client.join_group(alice.client.create_invitation("friends").url)
            until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")
        until(
            lambda: (
                all(
                    member.connection in ("self", "connected") and member.view_matches is not False
                    for person in everybody
                    for member in person.client.list_members("friends")
                )
                and all(len(person.client.list_members("friends")) == 3 for person in everybody)
            ),
            "meeting",
        )
        yield everybody
    finally:
        for person in everybody:
            with contextlib.suppress(Exception):
                person.sleep()
