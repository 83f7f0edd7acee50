"""Files between members of whom neither can be dialled: every part goes over a mediator."""

import hashlib

import pytest

from tests.agent import test_behind_a_mediator
from tests.agent.test_agent import until
from tests.agent.test_files_agents import is_here, the_file, write

mediator = test_behind_a_mediator.mediator
people = test_behind_a_mediator.people


@pytest.mark.slow
def test_a_file_goes_over_a_mediator_to_whom_no_link_leads(people, tmp_path):
    alice, bob, carol = people
    path, data = write(tmp_path, "photo.jpg", 400_000)
    alice.client.attach("friends", [str(path)])
    for person in (carol, bob):
        until(lambda person=person: is_here(person), "the file", 60)
    until(lambda: the_file(alice).holders == 2, "both have said so")
    assert bob.client.save("friends", "photo.jpg", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_it_comes_over_the_mediator_alone(people, tmp_path):
    alice, bob, carol = people
    carol.sleep()
    path, data = write(tmp_path, "photo.jpg", 300_000)
    alice.client.attach("friends", [str(path)])
    until(lambda: is_here(bob), "the file", 60)
    assert bob.client.save("friends", "photo.jpg", str(tmp_path / "copy")).sha256 == hashlib.sha256(data).hexdigest()
