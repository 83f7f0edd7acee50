"""Agents on machines of a LAN of network namespaces: no internet, new addresses, and every frame captured."""

import json
import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from contextlib import ExitStack

import pytest

from tests.support.agents import until
from tests.support.namespaces import lan, why_not
from zerochat.agent.api.client import connect
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.crypto.primitives import x25519_public
from zerochat.errors import LocalError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why := why_not()), reason=why or "-")]


class Member:
    def __init__(self, folder, name, net, machine):
        self.home, self.name, self.net, self.machine = folder / name, name, net, machine
        self.places = profile_paths(name, {"ZEROCHAT_HOME": str(self.home)})
        create_profile(self.places, name, None)
        with Journal.open(self.places.journal, unlock(self.places, None)) as journal:
            self.server_key = x25519_public(journal.meta_get("server_secret") or b"")

    def wake(self, listen):
        environ = {**os.environ, "ZEROCHAT_HOME": str(self.home), "ZEROCHAT_PROFILE": self.name}
        words = [sys.executable, "-m", "zerochat", "agent", "--listen", listen]
        self.process = self.net.run(self.machine, *words, env=environ, stdout=subprocess.DEVNULL)
        self.client = until(self._reached, f"{self.name}'s agent")

    def _reached(self):
        try:
            return connect(self.places, "test")
        except LocalError:
            return None

    def sleep(self):
        self.client.close()
        self.process.terminate()
        assert self.process.wait(30) == 0

    def look(self):
        return self.client.call("set_nearby", on=True)

    def texts(self):
        return [one.body["text"] for one in self.client.get_history("friends").events if one.type == "message"]

    def nearby(self):
        return {one.nick for one in self.client.list_members("friends") if one.nearby and one.connection == "connected"}


@pytest.fixture
def net():
    with lan() as made:
        yield made


def meet(members):
    first, *others = members
    first.client.create_group("friends")
    for one in others:
        one.client.join_group(first.client.create_invitation("friends").url)
        until(lambda one=one: any(group.state == "active" for group in one.client.list_groups()), "joining")
    wanted = len(members) - 1
    for member in members:
        until(
            lambda member=member: sum(
                one.connection == "connected" for one in member.client.list_members("friends")
            ) == wanted,
            f"that {member.name} knows all",
        )  # fmt: skip


@pytest.mark.parametrize("count", [2, 4])
def test_all_addresses_change_and_there_is_no_internet(tmp_path, net, count):
    names = ["alice", "bob", "carol", "dave"][:count]
    members = [Member(tmp_path, name, net, net.machine(f"10.9.0.{number}/24")) for number, name in enumerate(names, 1)]
    started: list[Member] = []
    stack = ExitStack()
    try:
        for number, one in enumerate(members, 1):
            one.wake(f"10.9.0.{number}")
            started.append(one)
        meet(members)
        for one in members:
            one.sleep()
        path = tmp_path / "frames"
        capture = stack.enter_context(net.capture(str(path)))
        stack.callback(capture.kill)
        until(lambda: path.exists() and path.stat().st_size, "the capture")
        for number, one in enumerate(members, 5):
            net.move(one.machine, f"10.77.3.{number}/24")
            one.wake("0.0.0.0")
        for one in members:
            assert one.look().on
        for one in members:
            one.client.send_message("friends", f"{one.name} is here")
        wanted = {f"{name} is here" for name in names}
        for one in members:
            until(lambda one=one: set(one.texts()) == wanted, f"all messages at {one.name}")
            until(lambda one=one: one.nearby() == set(names) - {one.name}, f"all members at {one.name}")
        capture.kill()
        capture.wait()
        frames = path.read_bytes()
        assert len(frames) > 10_000 and b"zcn\1" in frames, "the capture has the announcements"
        for secret in secrets_of(members):
            assert secret not in frames, "who is there is only said inside the sessions"
    finally:
        stack.close()
        for one in started:
            one.client.close()
            one.process.kill()
            one.process.wait()


def secrets_of(members):
    """What no observer may see: group ids, DIDs and server keys, in each of their spellings."""
    for one in members:
        yield from (one.server_key, one.server_key.hex().encode(), urlsafe_b64encode(one.server_key).rstrip(b"="))
        for group in one.client.list_groups():
            yield group.id.encode()
        for member in one.client.list_members("friends"):
            yield member.did.encode()
            yield member.did.removeprefix("did:key:").encode()
        yield json.dumps(one.name).encode()
