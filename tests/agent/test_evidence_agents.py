"""Evidence and proofs of whole agents over real sockets, and their shell output."""

import json
from typing import Any

import msgspec
import pytest

from tests.support import agents
from tests.support.agents import Person, until
from tests.support.proof_files import lines_of, three
from zerochat.agent.api.client_protocol import AgentError
from zerochat.cli import main
from zerochat.evidence.proof import check_proof
from zerochat.group.tlog import submission, timers
from zerochat.presentation import proofs
from zerochat.rpc import Event, MessageEvidence, SignedBy

people = agents.people
__all__ = ["three"]


def typed(capsys: Any, person: Person, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setenv("ZEROCHAT_HOME", str(person.places.data.parents[1]))
    code = main(["--profile", person.name, *words])
    captured = capsys.readouterr()
    return code, " ".join(captured.out.split()), " ".join(captured.err.split())


@pytest.mark.slow
def test_evidence_lists_signers_of_a_message(
    three: list[Person],  # a fixture
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice, bob, _ = three

    def grades() -> list[str]:
        about = alice.client.get_evidence("friends", "last").message
        return [one.grade for one in about.members] if about is not None else []

    until(lambda: grades() == ["signed", "signed"], "both signatures")
    about = alice.client.get_evidence("friends", "last").message
    assert about is not None and about.signed and all(one.at for one in about.members)
    code, out, _ = typed(capsys, alice, monkeypatch, "evidence", "friends", "last")
    assert code == 0 and "number 2" in out and "bob has signed for it, at" in out
    assert "You can prove that bob and carol have it, by their signatures." in out
    event = about.event.id
    code, out, _ = typed(capsys, bob, monkeypatch, "evidence", "friends", event)
    assert code == 0 and "can prove that alice wrote it" in out and "members sign that to alice only" in out
    code, out, _ = typed(capsys, alice, monkeypatch, "evidence", "friends")
    assert (
        code == 0 and "alice (you) 3 signed messages, the last of " in out and "has signed for all of yours, at" in out
    )
    assert "you can never deny it" in out
    code, out, _ = typed(capsys, bob, monkeypatch, "evidence", "friends", "--format", "json")
    streams = json.loads(out)["streams"]
    assert [one["nick"] for one in streams] == ["bob", "alice", "carol"] and streams[1]["messages"] >= 2
    founding = next(one for one in alice.client.get_history("friends").events if one.type == "group_created")
    itself = alice.client.get_evidence("friends", founding.id).message
    assert itself is not None and itself.why == "itself" and itself.signed
    assert typed(capsys, alice, monkeypatch, "delivery", "friends", "last")[1].count("delivered, signed") == 2
    assert ", and signed for it at " in typed(capsys, alice, monkeypatch, "why", "friends", "last")[1]


def test_unprovable_signatures_are_reported_as_such() -> None:
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
    assert "You cannot prove that any member has it." in told
    assert "bob has signed for it, but the stored data no longer proves it." in told
    new = SignedBy(did="did:key:c", nick="carol", grade="signed")
    told = proofs.of_message(MessageEvidence(event=event, signed=True, members=[old, new]), str, str)
    assert "bob has signed for it too, but the stored data no longer proves it." in told


@pytest.mark.slow
def test_removed_member_sees_its_own_signatures(
    three: list[Person],  # a fixture
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice, bob, carol = three
    carol.client.send_message("friends", "hello")
    until(lambda: all(one.texts()[-1:] == ["hello"] for one in three), "it")
    for one in (alice, bob):
        one.client.remove_member("friends", "carol")
    until(lambda: carol.client.list_groups()[0].state != "active", "being put out")
    code, out, _ = typed(capsys, carol, monkeypatch, "evidence", "friends")
    assert code == 0 and "carol (you) 1 signed message, the last of " in out and out.count("(you)") == 1
    mine, *others = carol.client.get_evidence("friends").streams
    assert (mine.nick, mine.messages, mine.gone) == ("carol", 1, True)
    assert {one.nick for one in others} == {"alice", "bob"}
    code, _, said = typed(capsys, carol, monkeypatch, "accuse", "friends", "alice")
    assert code == 8 and "You are no longer a member of friends" in said
    # Former members are also found by name.
    listed = {one.nick: one.messages for one in alice.client.get_evidence("friends").streams if one.gone}
    assert listed == {"carol": 1}
    whole = check_proof(lines_of(alice, author="carol"))
    assert whole.head.author == mine.did and whole.messages >= 1
    assert check_proof(lines_of(alice, "last:carol")).head.author == mine.did
    assert lines_of(alice, author=mine.did) == lines_of(alice, author="carol")
    with pytest.raises(AgentError, match="No member of friends is called zoe"):
        alice.client.get_proof("friends", "", "zoe")


@pytest.mark.slow
def test_proof_file_is_named_and_self_contained(
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
    assert code != 0 and "exists already, and was not overwritten" in said
    (tmp_path / "kept").mkdir()
    code, out, said = typed(capsys, alice, monkeypatch, "proof", "friends", "last:alice", "--output", "kept")
    assert (code, out) == (0, "kept/friends-last-alice.zproof"), said
    code, out, said = typed(
        capsys, alice, monkeypatch, "proof", "friends", "zzzz-nothing", "--output", "kept/no.zproof"
    )
    assert code != 0 and not (tmp_path / "kept" / "no.zproof").exists()
    code, out, said = typed(capsys, alice, monkeypatch, "proof", "friends", "last", "--output", "not/there.zproof")
    assert code == 1 and "The folder not does not exist." in said and "Traceback" not in said
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "nobody"))
    assert main(["verify-proof", "friends-last.zproof"]) == 0
    shown = capsys.readouterr()
    cut, empty = tmp_path / "cut.zproof", tmp_path / "empty.zproof"
    cut.write_bytes((tmp_path / "friends-last.zproof").read_bytes()[:300])
    empty.write_bytes(b"")
    for bad in (cut, empty):
        assert main(["verify-proof", str(bad)]) == 7
        assert "it was not written by `zerochat proof`, or it is truncated" in capsys.readouterr().err
    assert main(["verify-proof", str(tmp_path)]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert "number 2" in shown.out and "The proof names keys; verify elsewhere whose they are." in " ".join(
        shown.err.split()
    )


def test_unsigned_groups_report_no_evidence(people: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (alice,) = people("alice")
    alice.client.create_group("plain", keys="deniable")
    alice.client.send_message("plain", "hello")
    for words in (("plain",), ("plain", "last")):
        code, out, _ = typed(capsys, alice, monkeypatch, "evidence", *words)
        assert code == 0 and "Messages in this group are not signed" in out
    code, out, _ = typed(capsys, alice, monkeypatch, "tlog", "plain")
    assert code == 0 and "This group has no transparency log." in out
    code, _, said = typed(capsys, alice, monkeypatch, "new", "court", "--kind", "signed")
    assert code == 0 and "court: Your messages here are signed" in said


@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key", "dcgka"])
def test_evidence_and_proofs_follow_the_keys_of_the_group(
    keys: str, people: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a group with keys that heal, or that was upgraded to them, messages are signed: they cannot be denied."""
    (alice,) = people("alice")
    alice.client.create_group("friends", keys=keys, remove="anyone", quorum=0)
    older = alice.client.send_message("friends", "older").id
    if keys != "dcgka":
        alice.client.upgrade_group("friends")
        told = typed(capsys, alice, monkeypatch, "evidence", "friends", older)[1]
        assert ("older than the upgrade of the keys, and not signed" in told) == (keys == "pairwise-multi")
        assert ("You have signed it" in told) == (keys == "sender-key")
        code, out, _ = typed(capsys, alice, monkeypatch, "proof", "friends", older, "--output", "-")
        assert (code == 0 and bool(out)) == (keys == "sender-key")
    newer = alice.client.send_message("friends", "newer").id
    assert "You have signed it" in typed(capsys, alice, monkeypatch, "evidence", "friends", newer)[1]
    told = typed(capsys, alice, monkeypatch, "evidence", "friends")[1]
    assert proofs.SIGNED_EVENTS in told and "not signed: recipients" not in told
    for words in (("last",), ("--history",)):
        code, _, told = typed(capsys, alice, monkeypatch, "proof", "friends", *words, "--output", "-")
        assert code == 1 and "carries its author's signature" in told and " export friends`" in told


@pytest.mark.slow
def test_tlog_status_of_an_accountable_group(people: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "ROUND_MS", 400)
    monkeypatch.setattr(submission, "SUBMIT_EARLY_MS", 540_000 - 5_000)
    everybody = alice, bob, carol = people("alice", "bob", "carol")
    alice.client.create_group("court", keys="sender-key", accountability="tlog")
    code, out, _ = typed(capsys, alice, monkeypatch, "tlog", "court")
    assert code == 0 and "its log needs two more members as witnesses" in out
    assert alice.client.list_groups()[0].tlog == "unkept"
    for guest in everybody[1:]:
        guest.client.subscribe()
        guest.client.join_group(alice.client.create_invitation("court").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")
    until(lambda: all(one.client.get_tlog("court").state == "kept" for one in everybody), "terms")
    found = bob.client.get_tlog("court")
    assert found.operator is not None and found.operator.nick == "alice" and found.needed == 2
    assert {one.nick for one in found.witnesses} == {"alice", "bob", "carol"} and found.witnessing
    said = [one for one in carol.client.get_history("court").events if one.type == "terms_set"]
    assert said[-1].body["operator"]["nick"] == "alice" and len(said[-1].body["witnesses"]) == 3
    code, out, _ = typed(capsys, carol, monkeypatch, "history", "court")
    assert code == 0 and "changed the transparency log: operator alice, witnesses " in out
    code, out, _ = typed(capsys, bob, monkeypatch, "tlog", "court")
    assert code == 0 and "operator alice" in out and "2 of 3 must cosign" in out and "you witness" in out
    # By hand: half of it, too few of them, and as it should be.
    code, _, err = typed(capsys, bob, monkeypatch, "tlog", "court", "--operator", "bob")
    assert code == 2 and "--operator and --witness belong together" in err
    code, _, err = typed(capsys, bob, monkeypatch, "tlog", "court", "--operator", "bob", "--witness", "bob")
    assert code != 0 and "at least 3 witnesses are needed" in err
    with pytest.raises(AgentError, match="zoe"):
        bob.client.set_tlog_terms("court", "zoe", ["alice", "bob", "carol"])
    bob.client.set_tlog_terms("court", "bob", ["alice", "bob", "carol"])
    until(lambda: alice.client.get_tlog("court").operator.nick == "bob", "other terms")
    # Unacknowledged messages of an offline member are in the log.
    digest = {one.client.get_tlog("court").by.nick for one in everybody}
    assert digest == {"bob"}
    carol.sleep()
    alice.client.send_message("court", "are you there?")

    def logged() -> int:
        about = alice.client.get_evidence("court", "last").message
        return about.logged if about is not None else 0

    until(lambda: logged() > 0, "its place")
    code, out, _ = typed(capsys, alice, monkeypatch, "evidence", "court", "last")
    assert code == 0 and f"It is entry {logged():,} of the transparency log" in out
    assert "It is unknown whether carol received it; a missing signature does not prove the opposite." in out
    found = alice.client.get_tlog("court")
    assert found.size > 0 == found.accusations == found.defences == found.closes
    code, out, _ = typed(capsys, alice, monkeypatch, "tlog", "court")
    many = f"{found.size} message{'s' * (found.size != 1)}"
    assert f"{found.size} cosigned ({many}); complete up to " in out
    assert "earlier logs 1, with other operators or witnesses" in out
    alice.client.leave_group("court")
    code, out, _ = typed(capsys, alice, monkeypatch, "tlog", "court")
    assert code == 0 and "You are no longer a member; this was the last known state of the log." in out
    assert "you witness" not in out and "waiting" not in out
