"""What can be proven, as whole agents say it over real sockets, and as a shell prints it."""

import json
from typing import Any

import msgspec
import pytest

from tests.agent import test_agent
from tests.agent.test_agent import Person, until
from tests.evidence.test_proofs import lines_of, three
from zerochat.agent.api.client import AgentError
from zerochat.cli import main
from zerochat.evidence.proof import check_proof
from zerochat.group.tlog import submission, timers
from zerochat.presentation import proofs
from zerochat.rpc import Event, MessageEvidence, SignedBy

people = test_agent.people
__all__ = ["three"]


def typed(capsys: Any, person: Person, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setenv("ZEROCHAT_HOME", str(person.places.data.parents[1]))
    code = main(["--profile", person.name, *words])
    captured = capsys.readouterr()
    return code, " ".join(captured.out.split()), " ".join(captured.err.split())


@pytest.mark.slow
def test_who_has_signed_for_a_message_and_what_that_shows_to_whom(
    three: list[Person],  # a fixture
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice, bob, _ = three

    def grades() -> list[str]:
        about = alice.client.evidence("friends", "last").message
        return [one.grade for one in about.members] if about is not None else []

    until(lambda: grades() == ["signed", "signed"], "both signatures")
    about = alice.client.evidence("friends", "last").message
    assert about is not None and about.signed and all(one.at for one in about.members)
    code, out, _ = typed(capsys, alice, monkeypatch, "evidence", "friends", "last")
    assert code == 0 and "number 2" in out and "bob has signed for it, at" in out
    assert "You can show anybody that bob and carol have it: by their signatures." in out
    event = about.event.id
    code, out, _ = typed(capsys, bob, monkeypatch, "evidence", "friends", event)
    assert code == 0 and "You can show anybody that alice wrote it" in out and "they sign that to alice alone" in out
    code, out, _ = typed(capsys, alice, monkeypatch, "evidence", "friends")
    assert code == 0 and "alice (you) 3 signed messages here" in out and "has signed for all of yours, at" in out
    assert "you cannot deny it" in out
    code, out, _ = typed(capsys, bob, monkeypatch, "evidence", "friends", "--format", "json")
    streams = json.loads(out)["streams"]
    assert [one["nick"] for one in streams] == ["bob", "alice", "carol"] and streams[1]["messages"] >= 2
    founding = next(one for one in alice.client.history("friends").events if one.type == "group_created")
    itself = alice.client.evidence("friends", founding.id).message
    assert itself is not None and itself.why == "itself" and itself.signed
    assert typed(capsys, alice, monkeypatch, "delivery", "friends", "last")[1].count("delivered, signed") == 2
    assert ", and has signed that at " in typed(capsys, alice, monkeypatch, "why", "friends", "last")[1]


def test_a_signature_that_shows_nothing_any_more_is_not_said_to_be_here_and_not_to_be() -> None:
    author, at = {"did": "did:key:a", "nick": "alice"}, "2026-07-01T08:00:00Z"
    fields = {"id": "e", "group": "g", "author": author, "sent_at": at, "received_at": at, "body": {"text": "hello"}}
    counts = {
        "seq": 1,
        "position": 1,
        "lamport": 1,
        "type": "message",
        "parents": [],
        "self": True,
        "delivery": {"delivered": 1, "of": 1},
    }
    event = msgspec.convert({**fields, **counts}, Event)
    old = SignedBy(did="did:key:b", nick="bob", grade="unshown")
    told = proofs.of_message(MessageEvidence(event=event, signed=True, members=[old]), str, str)
    assert "You cannot show that anybody has it." in told
    assert "bob has signed for it, and what is kept here does not show it any more." in told
    new = SignedBy(did="did:key:c", nick="carol", grade="signed")
    told = proofs.of_message(MessageEvidence(event=event, signed=True, members=[old, new]), str, str)
    assert "bob has signed for it too, and what is kept here does not show it any more." in told


@pytest.mark.slow
def test_who_was_put_out_still_sees_what_it_has_signed_as_its_own(
    three: list[Person],  # a fixture
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice, bob, carol = three
    carol.client.send("friends", "hello")
    until(lambda: all(one.texts()[-1:] == ["hello"] for one in three), "it")
    for one in (alice, bob):
        one.client.remove("friends", "carol")
    until(lambda: carol.client.groups()[0].state != "active", "being put out")
    code, out, _ = typed(capsys, carol, monkeypatch, "evidence", "friends")
    assert code == 0 and "carol (you) 1 signed message here" in out and out.count("(you)") == 1
    mine, *others = carol.client.evidence("friends").streams
    assert (mine.nick, mine.messages, mine.gone) == ("carol", 1, True)
    assert {one.nick for one in others} == {"alice", "bob"}
    code, _, said = typed(capsys, carol, monkeypatch, "accuse", "friends", "alice")
    assert code == 1 and "You are no longer in friends" in said
    # What is listed of whoever has gone is found by its name, too.
    listed = {one.nick: one.messages for one in alice.client.evidence("friends").streams if one.gone}
    assert listed == {"carol": 1}
    whole = check_proof(lines_of(alice, author="carol"))
    assert whole.head.author == mine.did and whole.messages >= 1
    assert check_proof(lines_of(alice, "last:carol")).head.author == mine.did
    assert lines_of(alice, author=mine.did) == lines_of(alice, author="carol")
    with pytest.raises(AgentError, match="Nobody in friends is called zoe"):
        alice.client.proof("friends", "", "zoe")


@pytest.mark.slow
def test_a_proof_gets_a_name_of_its_own_and_is_checked_from_the_file_alone(
    three: list[Person],  # a fixture
    tmp_path: Any,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice = three[0]
    monkeypatch.chdir(tmp_path)
    code, out, said = typed(capsys, alice, monkeypatch, "proof", "friends", "last")
    assert (code, out) == (0, "friends-last.zproof"), said
    code, out, said = typed(capsys, alice, monkeypatch, "proof", "friends", "last")
    assert code != 0 and "is there already" in said
    (tmp_path / "kept").mkdir()
    code, out, said = typed(capsys, alice, monkeypatch, "proof", "friends", "last:alice", "--out", "kept")
    assert (code, out) == (0, "kept/friends-last-alice.zproof"), said
    code, out, said = typed(capsys, alice, monkeypatch, "proof", "friends", "zzzz-nothing", "--out", "kept/no.zproof")
    assert code != 0 and not (tmp_path / "kept" / "no.zproof").exists()
    code, out, said = typed(capsys, alice, monkeypatch, "proof", "friends", "last", "--out", "not/there.zproof")
    assert code == 1 and "There is no folder not to put a file into." in said and "Traceback" not in said
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "nobody"))
    assert main(["verify-proof", "friends-last.zproof"]) == 0
    shown = capsys.readouterr()
    cut, empty = tmp_path / "cut.zproof", tmp_path / "empty.zproof"
    cut.write_bytes((tmp_path / "friends-last.zproof").read_bytes()[:300])
    empty.write_bytes(b"")
    for bad in (cut, empty):
        assert main(["verify-proof", str(bad)]) == 7
        assert "it was not written by `zerochat proof`, or it is not whole" in capsys.readouterr().err
    assert main(["verify-proof", str(tmp_path)]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert "number 2" in shown.out and "It names keys: whose they are, you have to know" in shown.err


def test_where_nothing_is_signed_that_is_said(people: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (alice,) = people("alice")
    alice.client.new("plain")
    alice.client.send("plain", "hello")
    for words in (("plain",), ("plain", "last")):
        code, out, _ = typed(capsys, alice, monkeypatch, "evidence", *words)
        assert code == 0 and "No message here is signed by itself" in out and "you can deny it until" in out
    code, out, _ = typed(capsys, alice, monkeypatch, "log", "plain")
    assert code == 0 and "This group keeps no log." in out
    code, _, said = typed(capsys, alice, monkeypatch, "new", "court", "--kind", "signed")
    assert code == 0 and "court: What you say here is signed" in said


@pytest.mark.slow
def test_how_the_log_of_an_accountable_group_stands(people: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "ROUND_MS", 400)
    monkeypatch.setattr(submission, "AHEAD_MS", 540_000 - 5_000)
    everybody = alice, bob, carol = people("alice", "bob", "carol")
    alice.client.new("court", keys="sender-key", accountability="ledger")
    code, out, _ = typed(capsys, alice, monkeypatch, "log", "court")
    assert code == 0 and "it takes three members to witness its log; two more have to join" in out
    assert alice.client.groups()[0].log == "unkept"
    for guest in everybody[1:]:
        guest.client.subscribe()
        guest.client.join(alice.client.invite("court").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.groups()), "joining")
    until(lambda: all(one.client.group_log("court").state == "kept" for one in everybody), "terms")
    found = bob.client.group_log("court")
    assert found.operator is not None and found.operator.nick == "alice" and found.needed == 2
    assert {one.nick for one in found.witnesses} == {"alice", "bob", "carol"} and found.witnessing
    said = [one for one in carol.client.history("court").events if one.type == "terms_set"]
    assert said[-1].body["operator"]["nick"] == "alice" and len(said[-1].body["witnesses"]) == 3
    code, out, _ = typed(capsys, carol, monkeypatch, "history", "court")
    assert code == 0 and "says: the log is kept by alice, witnessed by" in out
    code, out, _ = typed(capsys, bob, monkeypatch, "log", "court")
    assert code == 0 and "kept by alice" in out and "2 of 3 have to cosign" in out and "you witness it" in out
    # By hand: half of it, too few of them, and as it should be.
    code, _, err = typed(capsys, bob, monkeypatch, "log", "court", "--operator", "bob")
    assert code == 2 and "--witness NAME" in err
    code, _, err = typed(capsys, bob, monkeypatch, "log", "court", "--operator", "bob", "--witness", "bob")
    assert code != 0 and "it takes 3 witnesses" in err
    with pytest.raises(AgentError, match="zoe"):
        bob.client.terms("court", "zoe", ["alice", "bob", "carol"])
    bob.client.terms("court", "bob", ["alice", "bob", "carol"])
    until(lambda: alice.client.group_log("court").operator.nick == "bob", "other terms")
    # What somebody who is away does not acknowledge is in the log.
    digest = {one.client.group_log("court").by.nick for one in everybody}
    assert digest == {"bob"}
    carol.sleep()
    alice.client.send("court", "are you there?")

    def logged() -> int:
        about = alice.client.evidence("court", "last").message
        return about.logged if about is not None else 0

    until(lambda: logged() > 0, "its place")
    code, out, _ = typed(capsys, alice, monkeypatch, "evidence", "court", "last")
    assert code == 0 and "It stands in the group's log, in place" in out
    assert "Of carol it is not known, and a missing signature does not prove that they lack it." in out
    found = alice.client.group_log("court")
    assert found.size > 0 == found.accusations == found.defences == found.closes
    code, out, _ = typed(capsys, alice, monkeypatch, "log", "court")
    many = f"{found.size} message{'s' * (found.size != 1)}"
    assert f"{found.size} cosigned ({many}); all that was posted before" in out
    assert "before it 1 more log that was kept before, by other members" in out
    alice.client.leave("court")
    code, out, _ = typed(capsys, alice, monkeypatch, "log", "court")
    assert code == 0 and "You are no longer in this group: so its log stood when you were." in out
    assert "you witness it" not in out and "waiting" not in out
