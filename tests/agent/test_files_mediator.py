"""Files between two dial-only members: every part goes over a mediator."""

import hashlib

import pytest

from tests.support import mediated_agents
from tests.support.agents import until
from tests.support.shared_files import is_here, the_file, write

mediator = mediated_agents.mediator
people = mediated_agents.people


@pytest.mark.slow
def test_a_file_reaches_dial_only_members_over_a_mediator(people, tmp_path):
    alice, bob, carol = people
    path, data = write(tmp_path, "photo.jpg", 400_000)
    alice.client.send_files("friends", [str(path)])
    for person in (carol, bob):
        until(lambda person=person: is_here(person), "the file", 60)
    until(lambda: the_file(alice).holders == 2, "both have said so")
    assert (
        bob.client.save_file("friends", "photo.jpg", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()
    )


@pytest.mark.slow
def test_a_file_arrives_over_the_mediator_alone(people, tmp_path):
    alice, bob, carol = people
    carol.sleep()
    path, data = write(tmp_path, "photo.jpg", 300_000)
    alice.client.send_files("friends", [str(path)])
    until(lambda: is_here(bob), "the file", 60)
    assert (
        bob.client.save_file("friends", "photo.jpg", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()
    )
