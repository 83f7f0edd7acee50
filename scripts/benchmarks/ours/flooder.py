"""A member whose keys are turned against another one: it floods it at its full allowance, from a process of its own.

Its agent joins like any other, and stops. The envelopes are sealed before the measurement, so that the flood takes
little time from the others.
"""

import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq
from zmq.utils import z85

from benchmarks import ROOT
from benchmarks.ours.agents import GROUP, STEP_S_MAX, Member, NotReady
from zerochat.agent.api.client import connect
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.didcomm import PACKERS
from zerochat.didcomm.message import Message, new_id
from zerochat.group.links import mediator_mail
from zerochat.group.links.rate_limits import ENVELOPES_MAX, ENVELOPES_PER_S
from zerochat.group.links.relationship import pack
from zerochat.sim.floods import FLOODS, Flooder, Messages, sybils

READY = b"ready\n"
SYBILS, RENAMES = 17, 255
"""4,352 membership events in 40 envelopes."""


class FloodingMember:
    """A member of the benchmark's group. Its own agent has stopped."""

    def __init__(self, folder: Path, name: str, host: Member) -> None:
        """Join through `host`'s agent, and stop. Raises NotReady."""
        places = profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(places, name, None)
        thread = AgentThread(places, unlock(places, None), listen="127.0.0.1")
        thread.start()
        try:
            with connect(places, "benchmark") as client:
                client.join_group(host.client.create_invitation(GROUP).code)
                _until_met(host, name)
                time.sleep(1)  # for the subscriptions of all
            self.group = next(iter(thread.loop.agent.groups.values()))
        finally:
            thread.stop()

    def flood(self, kind: str, victim: Member, seconds: float) -> "Flood":
        """As many envelopes of this kind as the rate limits allow for so long."""
        count = int(ENVELOPES_MAX + seconds * ENVELOPES_PER_S)
        return self._flood(victim, lambda by: itertools.islice(FLOODS[kind](by), count))

    def sybils(self, victim: Member) -> "Flood":
        """Members of our own that change their display names again and again: all at once."""
        return self._flood(victim, lambda by: sybils(by, SYBILS, RENAMES))

    def _flood(self, victim: Member, messages: Callable[[Flooder], Messages]) -> "Flood":
        label = _name_of(victim)
        did = next(did for did, member in self.group.view.members.items() if member.label == label)
        relationship = self.group.links.relationships[did]
        by = Flooder(self.group, did, relationship, int(time.time() * 1000), os.urandom)
        packer = PACKERS[self.group.profile.envelope]
        envelopes = [
            pack(relationship, Message(type=type_, id=new_id(os.urandom), body=body), packer, os.urandom)
            for type_, body in messages(by)
        ]
        reach = mediator_mail.reach_of_member(self.group, did)
        assert reach.pair is not None
        return Flood(reach.pair.tcp, reach.server_key, self.group.own_place.secret, envelopes)


class Flood:
    """Sealed envelopes for one agent, and the keys of the connection."""

    def __init__(self, endpoint: str, server_key: bytes, secret: bytes, envelopes: list[bytes]) -> None:
        self.endpoint, self.server_key, self.secret, self.envelopes = endpoint, server_key, secret, envelopes

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send them from another process: the burst at once, the rest at the sustained rate."""
        with tempfile.NamedTemporaryFile(prefix="zcf-") as file:
            pickle.dump(self, file)
            file.flush()
            environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}"}
            command = [sys.executable, "-m", "benchmarks.ours.flooder", file.name]
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
                try:
                    assert process.stdout is not None and process.stdout.readline() == READY
                    yield
                finally:
                    process.kill()

    def send(self) -> None:
        """Send, and read whatever comes back, until it is killed."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.curve_serverkey = z85.encode(self.server_key)
        socket.curve_secretkey, socket.curve_publickey = z85.encode(self.secret), z85.encode(public_key(self.secret))
        socket.sndhwm = socket.rcvhwm = 100_000
        socket.connect(self.endpoint)
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        for envelope in self.envelopes[:ENVELOPES_MAX]:
            socket.send(envelope)
        at = time.monotonic()
        for envelope in itertools.chain(self.envelopes[ENVELOPES_MAX:], itertools.repeat(b"")):
            at += 1 / ENVELOPES_PER_S
            while (left := at - time.monotonic()) > 0:
                if socket.poll(int(left * 1000) + 1):
                    socket.recv_multipart()
            if envelope:
                socket.send(envelope)


def _name_of(member: Member) -> str:
    return next(one.nick for one in member.client.list_members(GROUP) if one.connection == "self")


def _until_met(host: Member, name: str) -> None:
    """Wait until a member is connected with the host and agrees with it about the members. The members that have
    stopped never acknowledge anything."""
    deadline = time.monotonic() + STEP_S_MAX
    while not any(
        (one.nick, one.connection, one.view_matches) == (name, "connected", True)
        for one in host.client.list_members(GROUP)
    ):
        if time.monotonic() > deadline:
            raise NotReady("the flooding member has not joined")
        time.sleep(0.1)


if __name__ == "__main__":
    with Path(sys.argv[1]).open("rb") as file_:
        pickle.load(file_).send()  # noqa: S301  # our own
