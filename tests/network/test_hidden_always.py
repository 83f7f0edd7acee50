"""`network.hidden = "always"`: in a capture at every other member, the address of this agent does not appear."""

import contextlib
import hashlib
import time

import pytest

from tests.support import captured_line
from tests.support.agents import until
from tests.support.mediated_agents import MediatorProcess
from tests.support.shared_files import files, is_here, write
from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread

line = captured_line.line

pytestmark = pytest.mark.slow


class Mediator(MediatorProcess):
    """A mediator on a host of the line."""

    def __init__(self, folder, host):
        self.host = host
        super().__init__(folder, host.name)

    def start(self, *options):
        address = self.host.address
        self.host.call(super().start, "--listen", f"{address}:{self.port}", *options)


class Person:
    """A profile with its agent on a host of the line."""

    def __init__(self, folder, host, hidden=False):
        self.places = profile_paths(host.name, {"ZEROCHAT_HOME": str(folder / host.name)})
        create_profile(self.places, host.name, None)
        self.name, self.host, self.hidden = host.name, host, hidden
        self.wake()

    def wake(self):
        key, address = unlock(self.places, None), self.host.address
        self.thread = AgentThread(self.places, key, listen=address, advertise=address, hidden=self.hidden)
        self.host.call(self.thread.start)
        self.client = connect(self.places, "test")

    def sleep(self):
        self.client.close()
        self.thread.stop()

    def mediated_by(self, mediator):
        self.client.call("open_connection", invitation=mediator.link, mediate=True)
        until(lambda: self.client.call("list_connections")[0].mediator == "granted", "mediation")

    def join(self, link):
        self.client.join_group(link)
        until(lambda: any(g.state == "active" for g in self.client.list_groups()), f"joining of {self.name}", 60)

    def texts(self, group="friends"):
        return [e.body["text"] for e in self.client.get_history(group, limit=500).events if e.type == "message"]


@pytest.fixture
def site(tmp_path, line):
    """Two mediators, and Bob and Carol, whom each other can dial, and who have the far mediator besides."""
    near, far = (Mediator(tmp_path, line.hosts[name]) for name in ("near", "far"))
    people = []

    def make(name, hidden=False, mediator=None):
        person = Person(tmp_path, line.hosts[name], hidden)
        people.append(person)
        if mediator is not None:
            person.mediated_by(mediator)
        return person

    yield make, near, far
    for person in people:
        with contextlib.suppress(Exception):
            person.sleep()
    for each in (near, far):
        each.stop()


def talk(people, round_):
    """Everyone says something, and everyone hears it."""
    said = [f"{person.name} says {round_}" for person in people]
    for person, text in zip(people, said, strict=True):
        person.client.send_message("friends", text)
    for person in people:
        until(lambda person=person: set(said) <= set(person.texts()), f"delivery to {person.name}", 90)


def meet(make, near, far, hidden):
    """Bob founds a group; Alice joins it by his invitation, and Carol by hers."""
    bob, alice, carol = make("bob", mediator=far), make("alice", hidden, near), make("carol", mediator=far)
    bob.client.create_group("friends")
    alice.join(bob.client.create_invitation("friends").url)
    carol.join(alice.client.create_invitation("friends").url)
    talk([alice, bob, carol], 1)
    return alice, bob, carol


def others_have_seen(line):
    return {at: line.seen(at, "alice") for at in ("bob", "carol", "far")}


def test_no_other_member_and_no_other_mediator_sees_the_address(site, line, tmp_path):
    make, near, far = site
    alice, bob, carol = people = meet(make, near, far, "always")
    path, data = write(tmp_path, "photo.jpg", 200_000)
    alice.client.send_files("friends", [str(path)])
    until(lambda: is_here(bob) and is_here(carol), "the file", 120)
    copy = bob.client.save_file("friends", "photo.jpg", str(tmp_path / "copy"))
    assert copy.sha256 == hashlib.sha256(data).hexdigest()
    back, _ = write(tmp_path, "answer.jpg", 100_000)
    carol.client.send_files("friends", [str(back)])
    until(lambda: [one.file.state for one in files(alice)] == ["here", "here"], "the answer", 120)
    alice.sleep()
    bob.client.send_message("friends", "while you were away")
    alice.wake()
    until(lambda: "while you were away" in alice.texts(), "what was stored", 60)
    talk(people, 2)
    assert alice.client.get_status().sends == "mediator"
    assert others_have_seen(line) == {"bob": 0, "carol": 0, "far": 0}
    assert line.seen("near", "alice") > 0, "the capture does see what is there"
    assert line.seen("bob", "carol") > 0


def test_hidden_alone_announces_no_address_and_yet_shows_it(site, line):
    make, near, far = site
    meet(make, near, far, True)
    assert all(others_have_seen(line).values())


def test_the_setting_applies_to_an_agent_that_runs(site, line):
    make, near, far = site
    alice, *_ = people = meet(make, near, far, False)
    assert all(others_have_seen(line).values())
    alice.client.call("change_setting", name="network.hidden", value="always")
    until(lambda: alice.client.get_status().sends == "mediator", "the change")
    until(lambda: not any(m.via == "link" for m in alice.client.list_members("friends")), "the end of the links")
    talk(people, 2)  # they know the old address; what they still send there gets no answer
    line.got.clear()
    talk(people, 3)
    time.sleep(1)
    assert line.sent("alice") == {"near"}, "the members know its mediator, and dial it no more"


def test_nothing_is_sent_without_a_mediator(site, line):
    make, near, far = site
    alice, bob, _carol = people = meet(make, near, far, "always")
    near.kill()
    until(lambda: alice.client.get_status().sends == "nothing", "noticing it", 60)
    assert "Nothing is sent" in alice.client.get_status().warning
    line.got.clear()
    alice.client.send_message("friends", "waits for the mediator")
    time.sleep(5)
    assert "waits for the mediator" not in bob.texts()
    assert others_have_seen(line) == {"bob": 0, "carol": 0, "far": 0}
    near.start()
    until(lambda: "waits for the mediator" in bob.texts(), "the delivery", 90)
    talk(people, 2)
    assert others_have_seen(line) == {"bob": 0, "carol": 0, "far": 0}
