"""A group with two dial-only agents behind a real mediator process, including kill -9."""

import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from tests.support import mediated_agents
from tests.support.agents import until
from tests.support.mediated_agents import MediatorProcess, Person
from zerochat.agent.network.web import NoInvitationThere, fetch_invitation

mediator, people = mediated_agents.mediator, mediated_agents.people


@pytest.mark.slow
def test_all_members_are_reached_by_either_path(people):
    alice, bob, carol = people
    assert alice.reaches() == {"bob": "mediator", "carol": "link"}
    assert carol.reaches() == {"alice": "link", "bob": "link"}, "they dial her"
    for person in people:
        sent = person.client.send_message("friends", f"hello from {person.name}")
        report = person.client.wait_for_delivery("friends", sent.id)
        assert (report.complete, report.delivered) == (True, 2)
    assert alice.texts() == bob.texts() == carol.texts()


@pytest.mark.slow
def test_the_mediator_signs_receipts_for_absent_members(people, mediator):
    alice, bob, _carol = people
    bob.sleep()
    sent = alice.client.send_message("friends", "for when you are back")

    def states():
        return {one.nick: one for one in alice.client.get_delivery("friends", sent.id).members}

    until(lambda: (states()["bob"].state, states()["carol"].state) == ("stored", "delivered"), "the receipt", 20)
    told = states()["bob"]
    assert not told.delivered and told.via == "mediator"
    assert datetime.fromisoformat(told.stored_until) > datetime.now(UTC) + timedelta(days=1)
    bob.wake()
    until(lambda: states()["bob"].state == "delivered", "its own word", 20)
    assert states()["bob"].stored_until is None and bob.texts() == ["for when you are back"]
    assert mediator.ended()["receipts"]
    mediator.start()


@pytest.mark.slow
@pytest.mark.parametrize("count", [90, pytest.param(1000, marks=pytest.mark.long)])
def test_a_killed_mediator_loses_and_repeats_no_message(people, mediator, count):
    said = []
    for number in range(count):
        if number == count // 2:
            mediator.kill()
        if number == count * 2 // 3:
            mediator.start()
        person = people[number % 3]
        text = f"{person.name} says {number}"
        said.append(text)
        person.client.send_message("friends", text)
    for person in people:
        until(lambda person=person: len(person.texts()) >= count, f"delivery to {person.name}", 120)
    for person in people:
        assert sorted(person.texts()) == sorted(said)
    ids = [[event.id for event in person.events()] for person in people]
    assert ids[0] == ids[1] == ids[2]
    last = people[0].client.send_message("friends", "and all is well")
    assert people[0].client.wait_for_delivery("friends", last.id).complete
    mediator.stop()
    kept = b"".join(path.read_bytes() for path in mediator.home.rglob("*") if path.is_file())
    secrets = [b"says", b"did:", b"protected", b"didcomm", b"friends", b"ciphertext"]
    readable = [word for word in secrets if word in kept.replace(mediator.link.encode(), b"")]
    assert not readable, "the mediator's disk must hold nothing that can be read"
    mediator.start()


@pytest.mark.slow
def test_the_mediator_serves_invitations_until_they_are_revoked(people, mediator):
    alice, bob, _carol = people
    made = bob.client.create_invitation("friends", name="for Dave")
    assert made.name == "for Dave" and made.short.startswith(f"http://127.0.0.1:{mediator.port}/?_oobid=")
    assert fetch_invitation(made.short).result(20) == made.url
    mediator.kill()
    mediator.start()
    assert fetch_invitation(made.short).result(20) == made.url, "it is on the mediator's disk"
    bob.client.revoke_invitation("friends", made.id)

    def is_gone():
        with contextlib.suppress(NoInvitationThere):
            return not fetch_invitation(made.short).result(20)
        return True

    until(is_gone, "the withdrawal", 20)
    assert made.short.partition("#")[2] not in repr(alice.client.list_invitations("friends"))


# --- a chain of two mediators ---------------------------------------------------------------------------------------


@pytest.fixture
def chain(tmp_path):
    """Two mediators in a row: others write to the inner one over the outer one, from which it fetches."""
    outer = MediatorProcess(tmp_path, "outer")
    inner = MediatorProcess(tmp_path, "inner", "--behind", outer.link)
    yield outer, inner
    for each in (inner, outer):
        each.stop()


@pytest.fixture
def pair(tmp_path, chain):
    """Alice, who can be dialled by nobody and has the outer mediator, and Bob, who has the inner one."""
    everybody = []
    try:
        for name, mediator in zip(("alice", "bob"), chain, strict=True):
            person = Person(tmp_path, name, hidden=True)
            everybody.append(person)
            person.client.call("open_connection", invitation=mediator.link, mediate=True)
            until(lambda person=person: person.client.call("list_connections")[0].mediator == "granted", "mediation")
        alice, bob = everybody
        alice.client.create_group("friends")
        bob.client.join_group(alice.client.create_invitation("friends").url)
        until(lambda: any(group.state == "active" for group in bob.client.list_groups()), "joining")
        until(lambda: all(len(person.client.list_members("friends")) == 2 for person in everybody), "meeting")
        yield everybody
    finally:
        for person in everybody:
            with contextlib.suppress(Exception):
                person.sleep()


@pytest.mark.slow
def test_two_mediators_in_sequence_survive_kills(pair, chain):
    (alice, bob), (outer, inner) = pair, chain
    assert alice.reaches() == {"bob": "mediator"} and bob.reaches() == {"alice": "mediator"}
    said = []
    for number in range(60):
        match number:
            case 10:
                outer.kill()
            case 20:
                until(lambda: alice.reaches()["bob"] != "mediator", "noticing that it is gone")
                assert not set(said[10::2]) & set(bob.texts()), "there is no other way"
                outer.start()
            case 35:
                inner.kill()
            case 45:
                inner.start()
        person = pair[number % 2]
        said.append(f"{person.name} says {number}")
        person.client.send_message("friends", said[-1])
    for person in pair:
        until(lambda person=person: len(person.texts()) >= len(said), f"delivery to {person.name}", 120)
        assert sorted(person.texts()) == sorted(said)
    last = alice.client.send_message("friends", "and all is well")
    assert alice.client.wait_for_delivery("friends", last.id).complete
    kept = [mediator.ended()["kept"] for mediator in (inner, outer)]
    assert all(kept), "everything for Bob went through both"
    for mediator in chain:
        mediator.start()
