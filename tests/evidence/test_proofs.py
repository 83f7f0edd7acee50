"""Proof files: what they prove to third parties, and that changes prove nothing else."""

import io
import json
import random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import agents, proof_files
from tests.support.agents import until
from tests.support.proof_files import lines_of
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.proofs import builder
from zerochat.agent.proofs.proof_file import counted
from zerochat.cli import main
from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.errors import RemoteError
from zerochat.evidence.handshake import Accept, Confirm, Request
from zerochat.evidence.messages import Data, data, sign_ack
from zerochat.evidence.proof import ack_line, check_proof, head_line, message_line

people = agents.people

three = proof_files.three

AUTHOR, READER, OTHER = (bytes([n]) * 32 for n in (1, 2, 3))
GROUP, EVENT, ALIAS, START = "G" * 43, "E" * 43, b"a" * 16, b"s" * 64


def did(seed: bytes) -> str:
    return did_key(ed25519_public(seed))


def chain(count: int = 4) -> list[Data]:
    found, before = [], START
    for number in range(count):
        found.append(data(AUTHOR, 1000 + 10 * number, ALIAS, b"\x01" + bytes(60), before))
        before = found[-1].signature
    return found


def subscription(reader: bytes = READER, at: int = 500) -> list[bytes]:
    asked = Request(time=at - 1, topic=GROUP, subscriber=did(reader), publisher=did(AUTHOR), nonce="n").signed(reader)
    given = Accept(
        time=at,
        request=asked.digest,
        publisher=did(AUTHOR),
        subscriber=did(reader),
        alias=b64url(ALIAS),
        start=b64url(START),
        rules="R" * 43,
    ).signed(AUTHOR)
    read = Confirm(time=at + 1, accept=given.digest, subscriber=did(reader)).signed(reader)
    return [one.serialize() for one in (asked, given, read)]


def signed_for(message: Data, reader: bytes = READER) -> bytes:
    return sign_ack(reader, ALIAS, message.time, message.signature, 9000).serialize()


def whole(event: str = EVENT) -> list[bytes]:
    said = chain()
    lines = [head_line(did(AUTHOR), GROUP, event), message_line(said[0].serialize(), b"k" * 32)]
    lines += [message_line(one.serialize()) for one in said[1:]]
    return [
        *lines,
        ack_line(signed_for(said[3]), subscription()),
        ack_line(signed_for(said[0], OTHER), subscription(OTHER)),
    ]


def test_proof_names_signers_and_their_extent():
    proven = check_proof(whole())
    assert (proven.messages, proven.first, proven.last) == (4, 1000, 1030)
    assert {one.member: one.upto for one in proven.signers.values()} == {did(READER): 1030, did(OTHER): 1000}
    assert [key for _, key in proven.opened] == [b"k" * 32]


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_a_message_that_is_left_out_is_found_out(gone):
    lines = whole()
    if gone == 3:  # the last one has a signed acknowledgement
        lines = [*lines[:4], *lines[5:]]
    else:
        del lines[gone]
    with pytest.raises(RemoteError):
        check_proof(lines)


def test_reordered_duplicate_or_foreign_messages_are_refused():
    lines = whole()
    foreign = message_line(data(OTHER, 1040, ALIAS, b"\x01" * 60, chain()[-1].signature).serialize())
    for wrong in (
        [lines[0], lines[2], lines[1], *lines[3:]],
        [*lines[:2], lines[1], *lines[2:]],
        [*lines[:5], foreign, *lines[5:]],
        [*lines, lines[1]],
        [*lines, lines[-1]],
        lines[:1],
        [],
        [b"\xff"],
        [lines[0], message_line(chain()[0].serialize(), b"short")],
        [head_line(did(OTHER), GROUP), *lines[1:]],
    ):
        with pytest.raises(RemoteError):
            check_proof(wrong)


def test_a_signature_for_something_else_proves_nothing():
    said, lines = chain(), whole()[:5]
    late = subscription(at=1001)
    other_group = [one.replace(GROUP.encode(), b"H" * 43) for one in subscription()]
    never = sign_ack(READER, ALIAS, 1030, b"x" * 64, 9000).serialize()
    for wrong in (
        ack_line(signed_for(said[3]), late),
        ack_line(signed_for(said[3]), subscription(OTHER)),
        ack_line(signed_for(said[3]), other_group),
        ack_line(never, subscription()),
        ack_line(sign_ack(READER, b"b" * 16, 1030, said[3].signature, 9).serialize(), subscription()),
        ack_line(signed_for(said[3]), [*subscription()[:2], subscription(OTHER)[2]]),
        ack_line(signed_for(said[3]), [subscription()[1], subscription()[0], subscription()[2]]),
    ):
        with pytest.raises(RemoteError):
            check_proof([*lines, wrong])
    assert check_proof([head_line(did(AUTHOR), GROUP), *lines[1:], ack_line(signed_for(said[3]), late)]).signers, (
        "that nothing was left out since it could hear"
    )


def test_no_flipped_bit_makes_a_proof_of_something_else():
    good, dice = b"".join(whole()), random.Random(4)
    truth = check_proof(good.splitlines())
    for _ in range(400):
        bad = bytearray(good)
        bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        try:
            shown = check_proof(bytes(bad).splitlines())
        except RemoteError:
            continue
        # Changes without signatures: the event's name, or the key, which the reader checks by decrypting.
        assert shown.signers == truth.signers and (shown.first, shown.last) == (truth.first, truth.last)


# --- from an agent to a third party ---------------------------------------------------------------------------------


def told(capsys: Any, *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main([*arguments, "--format", "jsonl"])
    captured = capsys.readouterr()
    error = json.loads(captured.err.splitlines()[-1])["error"]["message"] if code else captured.err
    return code, json.loads(captured.out) if captured.out else {}, error


@pytest.mark.slow
def test_message_is_proven_by_the_file_alone(three, tmp_path, capsys, monkeypatch):
    alice = three[0]
    file = tmp_path / "message.zproof"

    def complete() -> bool:
        lines = lines_of(alice, "last")
        file.write_bytes(b"".join(lines))
        return len(check_proof(lines).signers) == 2

    until(complete, "both signatures")
    assert json.loads(file.read_text().splitlines()[0])["zproof"] == 1, "so that a later form can be told from it"
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "nobody"))
    code, shown, said = told(capsys, "verify-proof", str(file))
    keys = {person.name: person.client.list_groups()[0].me for person in three}
    assert code == 0 and shown["author"] == keys["alice"]
    assert [one["body"]["text"] for one in shown["events"]] == ["number 2"]
    assert {one["member"] for one in shown["signers"]} == {keys["bob"], keys["carol"]}
    assert "own clocks" in said
    assert not (tmp_path / "nobody").exists(), "no profile was needed"
    file.write_bytes(file.read_bytes().replace(b'"key":"', b'"key":"A', 1))
    code, shown, said = told(capsys, "verify-proof", str(file))
    assert code == 7 and not shown and "is not a valid proof" in said


@pytest.mark.slow
def test_any_recipient_can_prove_authorship(three, tmp_path):
    alice, bob, _ = three
    event = next(e.id for e in bob.client.get_history("friends").events if e.body.get("text") == "number 2")
    proven = check_proof(lines_of(bob, event))
    assert proven.head.author == alice.client.list_groups()[0].me and not proven.signers


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", "\u2028"])
def test_multiline_messages_are_escaped_in_output(three, tmp_path, capsys, end):
    alice = three[0]
    forged = "signed for by  did:key:z6MkNobody, 2026-01-01 00:00:00 UTC"
    sent = alice.client.send_message("friends", f"a first line{end}{forged}")
    assert alice.client.wait_for_delivery("friends", sent.id).complete
    file = tmp_path / "lines.zproof"
    file.write_bytes(b"".join(lines_of(alice, sent.id)))
    assert main(["verify-proof", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines].count(forged) == 1
    assert forged not in lines


@pytest.mark.slow
def test_completeness_is_proven_without_content(three):
    alice, bob, _ = three
    own = check_proof(lines_of(alice))
    assert own.messages >= 3 and not own.opened
    assert check_proof(lines_of(bob, author="alice")).last == own.last


@pytest.mark.slow
def test_proof_file_is_private_and_never_overwrites(three, tmp_path, capsys, monkeypatch):
    alice, file = three[0], tmp_path / "message.zproof"
    as_one = ("--profile", alice.name)
    monkeypatch.setenv("ZEROCHAT_HOME", str(alice.places.data.parents[1]))
    code, shown, said = told(capsys, *as_one, "proof", "friends", "last", "--output", str(file))
    assert code == 0 and shown["path"] == str(file) and "1 signed message" in said
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    code, shown, said = told(capsys, *as_one, "proof", "friends", "last", "--output", str(file))
    assert code != 0 and not shown and file.read_bytes() == before, said
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "nobody"))
    code, shown, _ = told(capsys, "verify-proof", str(file))
    assert code == 0 and [one["body"]["text"] for one in shown["events"]] == ["number 2"]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["alice", "bob"])
def test_a_long_history_is_proven_in_pages_as_in_one(three, who, tmp_path, capsys, monkeypatch):
    person = next(one for one in three if one.name == who)
    monkeypatch.setenv("ZEROCHAT_HOME", str(person.places.data.parents[1]))
    verb = ("--profile", who, "proof", "friends", "--history", *(() if who == "alice" else ("--by", "alice")))
    found = []
    for number, many in enumerate((builder.MESSAGES_MAX, 1)):
        monkeypatch.setattr(builder, "MESSAGES_MAX", many)
        file = tmp_path / f"{number}.zproof"
        code, shown, said = told(capsys, *verb, "--output", str(file))
        assert code == 0, said
        proven = check_proof(file.read_bytes().splitlines())
        assert proven.messages == shown["messages"] >= 2  # the first message may precede the subscription
        found.append((proven.messages, proven.first, proven.last))
    assert found[0] == found[1]


def test_proof_content_is_summarised():
    assert counted(1, 1) == "1 signed message, with signed acknowledgements by 1 member."
    assert counted(1_200, 0) == "1,200 signed messages, with signed acknowledgements by 0 members."


def test_a_group_without_signatures_has_no_proofs(people):
    (alice,) = people("alice")
    alice.client.create_group("plain", keys="deniable")
    sent = alice.client.send_message("plain", "hello")
    with pytest.raises(AgentError, match="cannot be proven"):
        alice.client.get_proof("plain", sent.id)


def test_standard_input_is_named_in_errors(capsys, monkeypatch):
    for verb, code in (("verify-proof", 7), ("judge", 1)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"abc")))
        assert main([verb, "-"]) == code
        assert capsys.readouterr().err.startswith("zerochat: Standard input ")


@pytest.mark.parametrize(
    ("verb", "content", "why"),
    [
        ("verify-proof", b"abc", "it was not written by `zerochat proof`, or it is truncated."),
        ("verify-proof", b"[]", "a line of another form (Expected `object`, got `array`)."),
        ("judge", b"abc", "it was not written by `zerochat case`, or it is truncated."),
        ("judge", b"[]", "it has another form (Expected `object`, got `array`)."),
    ],
)
def test_invalid_evidence_is_refused_in_one_sentence(tmp_path, capsys, verb, content, why):
    file = tmp_path / "x"
    file.write_bytes(content)
    what = "proof" if verb == "verify-proof" else "case file"
    assert told(capsys, verb, str(file))[2] == f"{file} is not a valid {what}: {why}"


def test_invalid_case_files_are_refused(tmp_path, capsys):
    file = tmp_path / "x.zcase"
    file.write_bytes(b"{}")
    assert told(capsys, "judge", str(file))[0] == 1
    assert told(capsys, "judge", str(tmp_path / "none"))[0] == 1


def test_judging_a_proof_suggests_verify_proof(tmp_path, capsys):
    file = tmp_path / "a file.zproof"
    file.write_bytes(b"".join(whole()))
    code, _, said = told(capsys, "judge", str(file))
    assert code == 1 and "is a proof, not a case file" in said


@pytest.mark.slow
@pytest.mark.parametrize("pages", [builder.MESSAGES_MAX, 1])
def test_messages_before_a_renewal_stay_in_the_stream(three, pages, monkeypatch):
    """In an accountable group this happens at every change of the terms."""
    bob, plain = three[1], builder._of_stream

    def anew(journal, group, author, after):
        streams = {did: replace(one, time=0) for did, one in group.streams.followed.items()}
        return plain(journal, replace(group, streams=replace(group.streams, followed=streams)), author, after)

    whole = check_proof(lines_of(bob, author="alice"))
    monkeypatch.setattr(builder, "_of_stream", anew)
    monkeypatch.setattr(builder, "MESSAGES_MAX", pages)
    page = bob.client.get_proof("friends", author="alice")
    lines = [*page.lines]
    while page.last is not None:
        page = bob.client.get_proof("friends", author="alice", after=page.last)
        lines += page.lines
    proven = check_proof([line.encode() for line in lines])
    assert (proven.messages, proven.first, proven.last) == (whole.messages, whole.first, whole.last)
