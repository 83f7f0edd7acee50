"""Events: content-addressed, and refused in every non-canonical form."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public, sha256
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.event_log.event import CONC_MAX, POST, RECORD_BYTES_MAX, Event, load_event, parse_event
from zerochat.group.event_log.lamport import AHEAD_MS_MAX, AheadOfTime, check_not_ahead, tick
from zerochat.limits import POST_BYTES_MAX

SEED = bytes(range(32))
GROUP = b64url(sha256(b"group"))
AN_ID = b64url(sha256(b"event"))


def post(**fields):
    values = {
        "group": GROUP,
        "type": POST,
        "author": did_key(ed25519_public(SEED)),
        "seq": 2,
        "pre": AN_ID,
        "deps": (AN_ID,),
        "conc": (),
        "lamport": 5,
        "time": 5,
        "body": {"text": "hello"},
    }
    return Event(**{**values, **fields})


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    seq=st.integers(2, 2**53 - 1),
    lamport=st.integers(1, 2**53 - 1),
    conc=st.lists(st.binary(min_size=32, max_size=32).map(b64url), max_size=CONC_MAX),
)
def test_a_record_survives_its_bytes(text, seq, lamport, conc):
    event = post(body={"text": text}, seq=seq, lamport=lamport, conc=tuple(conc))
    assert load_event(event.record) == event
    assert load_event(event.record).id == event.id


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_the_id_is_the_hash_of_the_canonical_header_with_the_hash_of_the_body():
    event = post()
    assert event.record == canonical(event.wire)
    body_hash = b64url(sha256(canonical(event.body)))
    assert event.id == b64url(sha256(canonical({**event.wire, "body": body_hash})))


def test_an_erased_event_keeps_its_id_and_signature_and_no_content():
    event = post(body={"text": "hello", "mark": "AAAAAAAAAAA"}).signed(SEED)
    erased = event.erased()
    erased.check_signature()
    assert erased.id == event.id and b"hello" not in erased.record
    assert erased.body == {"erased": event.body_hash, "mark": "AAAAAAAAAAA"}
    assert load_event(erased.record) == erased == erased.erased()


@pytest.mark.parametrize(
    "body",
    [
        {"erased": "short"},
        {"erased": "!" * 43},
        {"erased": 5},
        {"erased": AN_ID, "text": "hello"},
        {"erased": AN_ID, "mark": "A" * 17},
        {"erased": AN_ID, "mark": 5},
    ],
    ids=str,
)
def test_an_erased_body_has_a_hash_and_a_mark_alone(body):
    with pytest.raises(Malformed):
        parse_event(post(body=body).wire)
    with pytest.raises(Malformed):
        load_event(post(body=body).record)


@pytest.mark.parametrize("kind", ["label", "announce", "verdict"])
def test_what_lasts_is_never_erased(kind):
    with pytest.raises(Malformed):
        parse_event(post(type=kind, body={"erased": AN_ID}).wire)


@pytest.mark.parametrize(
    "change",
    [
        {"lamport": 6},
        {"seq": 3},
        {"body": {"text": "hello!"}},
        {"deps": ()},
        {"conc": (AN_ID,)},
        {"group": b64url(sha256(b"other"))},
        {"type": "other"},
        {"time": 6},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_is_in_the_id_and_so_in_the_signature(change):
    event = post().signed(SEED)
    event.check_signature()
    changed = replace(event, **change)
    assert changed.id != event.id
    with pytest.raises(Unauthentic):
        changed.check_signature()


def test_the_signature_is_not_in_the_id():
    assert post().signed(SEED).id == post().id


def test_what_is_cached_with_an_event_is_right_after_each_change():
    """A copy takes over its id only where that stays the same."""
    event = post()
    for made in (event, event.marked("m" * 11), event.signed(SEED), event.marked("m" * 11).signed(SEED).accepted()):
        assert made.id and made.record
        for changed in (made, made.marked("n" * 11), made.signed(SEED), made.accepted()):
            fresh = replace(changed)
            assert (changed.id, changed.body_hash, changed.record) == (fresh.id, fresh.body_hash, fresh.record)
    assert event.marked("m" * 11).id != event.marked("n" * 11).id != event.id
    with pytest.raises(Malformed):
        post(body={"text": "x" * RECORD_BYTES_MAX}).accepted()


def test_another_authors_signature_is_rejected():
    with pytest.raises(Unauthentic):
        post().signed(bytes(32)).check_signature()


def test_an_empty_signature_is_refused():
    with pytest.raises(RemoteError):
        post().check_signature()


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": True},
        {"seq": 0},
        {"seq": 2**53},
        {"seq": 1.0},
        {"seq": "2"},
        {"seq": 1},
        {"pre": ""},
        {"pre": "short"},
        {"group": ""},
        {"group": "x" * 42},
        {"type": "Post"},
        {"type": "x" * 33},
        {"type": "genesis"},
        {"type": "expired"},
        {"author": "alice"},
        {"author": "did:key:z6MkO"},
        {"deps": [AN_ID] * 17},
        {"conc": ["x"]},
        {"deps": None},
        {"lamport": 0},
        {"lamport": 2**63 - 1},
        {"time": -1},
        {"body": []},
        {"body": {"text": "x" * RECORD_BYTES_MAX}},
        {"sig": 1},
        {"sig": "x" * 87},
        {"extra": 1},
    ],
    ids=str,
)
def test_anything_else_is_malformed(change):
    with pytest.raises(Malformed):
        parse_event({**post().wire, **change})


@pytest.mark.parametrize("what", [None, [], "event", 7, {}])
def test_an_invalid_record_is_malformed(what):
    with pytest.raises(Malformed):
        parse_event(what)


def test_the_longest_post_fits_a_record():
    assert parse_event(post(body={"text": "x" * POST_BYTES_MAX}).wire)


def test_time_follows_the_wall_clock_and_everything_read():
    assert tick(latest=10, now=50) == 50
    assert tick(latest=50, now=50) == 51
    assert tick(latest=90, now=50) == 91


def test_a_timestamp_is_rejected_only_beyond_the_bound():
    check_not_ahead(50 + AHEAD_MS_MAX, now=50)
    check_not_ahead(1, now=50)
    for lamport in (51 + AHEAD_MS_MAX, 2**53 - 1):
        with pytest.raises(AheadOfTime):
            check_not_ahead(lamport, now=50)
