"""Building blocks of evidence: Merkle tree, checkpoints, witnesses, signed messages."""

import base64
import random
from typing import Any

import pytest
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, sha256
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.evidence import messages
from zerochat.evidence.handshake import Accept, Confirm, Request, Subscription
from zerochat.evidence.merkle import (
    EMPTY_ROOT,
    Frontier,
    Tree,
    path_length,
    range_paths,
    range_proof,
    root_of_inclusion,
)
from zerochat.evidence.messages import parse_ack, parse_data, parse_overwrite, parse_share
from zerochat.evidence.note import (
    Checkpoint,
    check_signature,
    cosignature_time,
    parse_checkpoint,
    parse_note,
    sign_checkpoint,
)
from zerochat.evidence.witness import (
    Quorum,
    SizeMismatch,
    WitnessLog,
    checkpoint,
    entry_of,
    parse_entry,
    parse_receipt,
    receipt_for,
)

SEED, OTHER = bytes(range(32)), bytes(range(1, 33))
NOW_S = 1_700_000_000

ENTRIES = [bytes.fromhex(one) for one in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
ENTRIES.append(bytes.fromhex("606162636465666768696a6b6c6d6e6f"))
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""The test tree that the logs of Certificate Transparency share."""


# --- the tree -------------------------------------------------------------------------------------------------------


def test_the_roots_are_those_of_certificate_transparency():
    tree, frontier = Tree(), Frontier()
    assert tree.root() == frontier.root() == EMPTY_ROOT == sha256(b"")
    for entry, root in zip(ENTRIES, ROOTS, strict=True):
        tree.append(entry)
        frontier = frontier.with_entry(entry)
        assert tree.root().hex() == frontier.root().hex() == root


def test_inclusion_proofs_hold_at_their_index_only():
    tree = Tree(b"%d" % number for number in range(70))
    for size in range(1, 71):
        for index in range(size):
            path = tree.inclusion(index, size)
            assert root_of_inclusion(b"%d" % index, index, size, path) == tree.root(size)
            for wrong in ((index + 1) % size, index - 1):
                if size > 1 and 0 <= wrong != index:
                    assert not shown(b"%d" % index, wrong, size, path, tree.root(size))
            assert not shown(b"other", index, size, path, tree.root(size))
            assert not shown(b"%d" % index, index, size, [*path, bytes(32)], tree.root(size))
            assert not path or not shown(b"%d" % index, index, size, path[:-1], tree.root(size))


def shown(entry, index, size, path, root):
    try:
        return root_of_inclusion(entry, index, size, path) == root
    except Unauthentic:
        return False


def test_a_range_proof_gives_the_root_and_each_inclusion_proof():
    entries = [b"%d" % number for number in range(25)]
    tree = Tree(entries)
    for size in range(1, 26):
        paths = [tree.inclusion(index, size) for index in range(size)]
        assert [path_length(index, size) for index in range(size)] == list(map(len, paths))
        for begin in range(size):
            for end in range(begin + 1, size + 1):
                proof = range_proof(paths[begin], paths[end - 1], begin, end, size)
                found = range_paths(entries[begin:end], begin, size, proof)
                assert found == (tree.root(size), [b"".join(path) for path in paths[begin:end]])
                for wrong in ([*proof, bytes(32)], *([proof[:-1]] if proof else [])):
                    with pytest.raises(Unauthentic):
                        range_paths(entries[begin:end], begin, size, wrong)
                if proof:
                    assert range_paths(entries[begin:end], begin, size, [bytes(32), *proof[1:]])[0] != tree.root(size)


# --- notes and checkpoints ------------------------------------------------------------------------------------------


def test_a_checkpoint_is_written_and_signed_as_public_logs_do():
    note = sign_checkpoint(Checkpoint("zerochat/log", 8, bytes.fromhex(ROOTS[-1])), SEED)
    did = did_key(ed25519_public(SEED))
    text = f"zerochat/log\n8\n{base64.b64encode(bytes.fromhex(ROOTS[-1])).decode()}\n"
    key_id = sha256(did.encode() + b"\n\x01" + ed25519_public(SEED))[:4]
    line = base64.b64encode(key_id + ed25519_sign(SEED, text.encode())).decode()
    assert note.serialize() == f"{text}\n\u2014 {did} {line}\n"
    assert parse_note(note.serialize().encode()) == note
    check_signature(note, did)
    with pytest.raises(Unauthentic):
        check_signature(note, did_key(ed25519_public(OTHER)))


def test_the_example_of_the_specification_is_read():
    text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    line = "\u2014 example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"  # noqa: E501
    note = parse_note(f"{text}\n{line}".encode())
    assert parse_checkpoint(note.text).size == 20852163 and note.serialize() == f"{text}\n{line}"


@pytest.mark.parametrize(
    "written",
    [
        "",
        "text\n",
        "a\n1\nb\n\n",
        "a\n\n\u2014 name\n",
        "a\n\n\u2014 name AAAA\n",
        "a\n\n\u2014 name !!!!\n",
        "a\n\n- name AAAAAAAA\n",
        "a\n\n\u2014 na+me AAAAAAAA\n",
        "a\r\n\n\u2014 name AAAAAAAA\n",
        "a\n\n\u2014 name AAAAAAAA",
        "a\n\n" + "\u2014 name AAAAAAAA\n" * 65,
        "a" * 40_000 + "\n\n\u2014 name AAAAAAAA\n",
    ],
)
def test_invalid_notes_are_refused(written):
    with pytest.raises(Malformed):
        parse_note(written.encode())


@pytest.mark.parametrize("size", ["", "01", "-1", "1.0", "٣", "9007199254740992", "99999999999999999999"])
def test_a_size_has_one_form(size):
    with pytest.raises(Malformed):
        parse_checkpoint(f"log\n{size}\n{base64.b64encode(bytes(32)).decode()}\n")


# --- witnesses ------------------------------------------------------------------------------------------------------


WITNESSES = [bytes([number]) * 32 for number in range(1, 5)]
QUORUM = Quorum("log", did_key(ed25519_public(SEED)), tuple(did_key(ed25519_public(one)) for one in WITNESSES))


def posted(count=5):
    """A log with so many entries, and its witnesses' state before any of them."""
    records = [entry_of("message", QUORUM.operator, b"%d" % number).record() for number in range(count)]
    frontier = Frontier()
    for record in records:
        frontier = frontier.with_entry(record)
    return records, checkpoint("log", frontier, SEED), WitnessLog("log", QUORUM.operator)


def test_a_quorum_of_four_takes_three_and_of_seven_five():
    sizes = {n: (Quorum("", "", ("",) * n).max_faulty, Quorum("", "", ("",) * n).threshold) for n in (3, 4, 5, 7, 10)}
    assert sizes == {3: (0, 2), 4: (1, 3), 5: (1, 4), 7: (2, 5), 10: (3, 7)}
    for n, (liars, needed) in sizes.items():
        assert 2 * needed - n > liars and needed <= n - liars


def test_receipt_time_tolerates_a_lying_witness():
    records, note, watched = posted()
    for seed, off in zip(WITNESSES, (-86_400, 5, 9, 86_400), strict=True):
        note = note.with_line(watched.cosign(0, records, note, lambda entry: True, seed, NOW_S + off)[1])
    receipt = parse_receipt(receipt_for(Tree(records), 3, note).serialize().encode())
    assert receipt.posted_ms(parse_entry(records[3]), QUORUM) == (NOW_S + 5) * 1000
    with pytest.raises(Unauthentic):
        receipt.posted_ms(parse_entry(records[2]), QUORUM)


def test_two_witnesses_of_four_show_nothing():
    records, note, watched = posted()
    for seed in WITNESSES[:2]:
        note = note.with_line(watched.cosign(0, records, note, lambda entry: True, seed, NOW_S)[1])
    with pytest.raises(Refused):
        QUORUM.posted_by_ms(note)
    with pytest.raises(Refused):  # nor do they when they sign again
        QUORUM.posted_by_ms(
            note.with_line(watched.cosign(0, records, note, lambda entry: True, WITNESSES[0], NOW_S + 1)[1])
        )
    with pytest.raises(Refused):  # nor with a member that is not a witness
        QUORUM.posted_by_ms(note.with_line(watched.cosign(0, records, note, lambda entry: True, OTHER, NOW_S)[1]))


def test_witness_cosigns_only_stored_consistent_logs():
    records, note, watched = posted()
    with pytest.raises(Refused):
        watched.cosign(0, records, note, lambda entry: False, OTHER, NOW_S)
    with pytest.raises(Refused):
        watched.cosign(0, records[:-1], note, lambda entry: True, OTHER, NOW_S)
    with pytest.raises(Refused):
        watched.cosign(0, [*records[:-1], records[0]], note, lambda entry: True, OTHER, NOW_S)
    forged = checkpoint("log", Frontier(), OTHER)
    with pytest.raises(Unauthentic):
        watched.cosign(0, [], forged, lambda entry: True, OTHER, NOW_S)
    with pytest.raises(Refused):
        watched.cosign(0, [], checkpoint("other", Frontier(), SEED), lambda entry: True, OTHER, NOW_S)
    after, line = watched.cosign(0, records, note, lambda entry: True, OTHER, NOW_S)
    assert cosignature_time(note.with_line(line), did_key(ed25519_public(OTHER))) == NOW_S
    with pytest.raises(SizeMismatch) as behind:
        after.cosign(0, records, note, lambda entry: True, OTHER, NOW_S)
    assert behind.value.size == len(records)


def test_entry_matches_its_blob_and_defence_its_signer():
    defence = entry_of("defence", QUORUM.operator, b"defence", "a" * 43)
    assert defence.matches(b"defence") and not defence.matches(b"offence")
    assert not replace(defence, size=1).matches(b"defence")
    signed_ = parse_entry(defence.signed(SEED).record())
    signed_.check()
    forged = [defence, defence.signed(OTHER), replace(signed_, size=8), replace(signed_, about="b" * 43)]
    for one in forged:
        with pytest.raises((Malformed, Unauthentic)):
            one.check()


def test_no_witness_signs_two_logs_of_one_name():
    records, note, watched = posted()
    after, _ = watched.cosign(0, records, note, lambda entry: True, OTHER, NOW_S)
    other = Frontier()
    for record in [*records[:-1], records[0], records[1]]:
        other = other.with_entry(record)
    with pytest.raises(Refused):
        after.cosign(5, [records[1]], checkpoint("log", other, SEED), lambda entry: True, OTHER, NOW_S)


# --- signed messages ------------------------------------------------------------------------------------------------


def test_subscription_keys_have_the_message_length():
    did, other = did_key(ed25519_public(SEED)), did_key(ed25519_public(OTHER))

    def begun(theirs: str, ours: str) -> Subscription:
        nothing = b64url(bytes(32))
        request = Request(time=1, topic=nothing, subscriber=other, publisher=did, nonce="", signing_key=theirs).signed(
            OTHER
        )
        place: dict[str, Any] = {
            "alias": b64url(b"a" * 16),
            "start": b64url(b"p" * 64),
            "signing_key": ours,
            "rules": nothing,
        }
        accept = Accept(time=1, request=request.digest, publisher=did, subscriber=other, **place).signed(SEED)
        return Subscription(request, accept, Confirm(time=1, accept=accept.digest, subscriber=other).signed(OTHER))

    usual, named = begun("", ""), begun(b64url(b"s" * 32), b64url(b"k" * 32))
    assert (usual.subscriber, usual.publisher) == (ed25519_public(OTHER), ed25519_public(SEED))
    assert (named.subscriber, named.publisher) == (b"s" * 32, b"k" * 32)
    for signs in ((b"s" * 31, b"k" * 32), (b"s" * 32, b"k" * 33), (b"s" * 32, b"s" * 32)):
        with pytest.raises(Malformed):
            begun(*map(b64url, signs))


SUB, PUB, ALIAS, BEFORE = ed25519_public(OTHER), ed25519_public(SEED), b"a" * 16, b"p" * 64
TIME = (NOW_S * 1000).to_bytes(8, "big")


def test_messages_match_the_paper_byte_for_byte():
    said = messages.data(SEED, NOW_S * 1000, ALIAS, b"sealed", BEFORE)
    signed_ = TIME + PUB + ALIAS + b"sealed" + BEFORE
    assert said.serialize() == signed_ + ed25519_sign(SEED, signed_) and parse_data(said.serialize()) == said
    share = messages.share(SEED, NOW_S * 1000, SUB, ALIAS, b"k" * 80, BEFORE)
    signed_ = TIME + SUB + PUB + ALIAS + b"k" * 80 + BEFORE
    assert share.serialize() == signed_ + ed25519_sign(SEED, signed_) and parse_share(share.serialize()) == share
    over = messages.overwrite(SEED, NOW_S * 1000, SUB, ALIAS, b"o" * 64, BEFORE)
    signed_ = TIME + SUB + PUB + ALIAS + b"o" * 64 + BEFORE
    assert over.serialize() == signed_ + ed25519_sign(SEED, signed_) and parse_overwrite(over.serialize()) == over
    ack = messages.ack(OTHER, said, NOW_S * 1000 + 7)
    fields = ALIAS + TIME + said.signature + (NOW_S * 1000 + 7).to_bytes(8, "big")
    assert ack.serialize() == SUB + fields + ed25519_sign(OTHER, b"zerochat/ack/1" + fields)
    assert parse_ack(ack.serialize()) == ack


def test_no_message_is_mistaken_for_another_type():
    said = messages.data(SEED, NOW_S, ALIAS, b"s" * 96, BEFORE)
    every: list[tuple[Any, Any]] = [
        (parse_data, said),
        (parse_share, messages.share(SEED, NOW_S, SUB, ALIAS, b"k" * 80, BEFORE)),
        (parse_overwrite, messages.overwrite(SEED, NOW_S, SUB, ALIAS, b"o" * 64, BEFORE)),
        (parse_ack, messages.ack(OTHER, said, NOW_S)),
    ]
    for parse, _ in every:
        for owner, message in every:
            if parse is not owner:
                with pytest.raises((Malformed, Unauthentic)):
                    parse(message.serialize())


@pytest.mark.parametrize("kind", ["data", "share", "overwrite", "ack"])
def test_bit_flips_and_other_lengths_are_refused(kind):
    said = messages.data(SEED, NOW_S, ALIAS, b"sealed", BEFORE)
    made: dict[str, tuple[Any, Any]] = {
        "data": (parse_data, said),
        "share": (parse_share, messages.share(SEED, NOW_S, SUB, ALIAS, b"k" * 80, BEFORE)),
        "overwrite": (parse_overwrite, messages.overwrite(SEED, NOW_S, SUB, ALIAS, b"o" * 64, BEFORE)),
        "ack": (parse_ack, messages.ack(OTHER, said, NOW_S)),
    }
    parse, message = made[kind]
    written, dice = message.serialize(), random.Random(1)
    for place in range(len(written)):
        spoilt = bytearray(written)
        spoilt[place] ^= 1 << dice.randrange(8)
        with pytest.raises((Malformed, Unauthentic)):
            parse(bytes(spoilt))
    for size in (*range(0, len(written), 7), len(written) - 1):
        with pytest.raises((Malformed, Unauthentic)):
            parse(written[:size])
    with pytest.raises((Malformed, Unauthentic)):
        parse(written + b"\x00")


def test_a_signature_has_one_spelling():
    """Signatures identify messages, so malleated ones (s + L) are refused."""
    order = 2**252 + 27742317777372353535851937790883648493
    said = messages.data(SEED, NOW_S, ALIAS, b"sealed", BEFORE)
    s = int.from_bytes(said.signature[32:], "little") + order
    assert s < 2**256
    with pytest.raises(Unauthentic):
        parse_data(said.signed_bytes() + said.signature[:32] + s.to_bytes(32, "little"))
