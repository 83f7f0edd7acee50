"""Verification is bound to a key, and a verified name cannot silently become another key's."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerochat.group.membership.verification import trust_of

A, B, C = (f"did:key:z6Mk{letter * 44}" for letter in "abc")
LABELS = st.sampled_from(["alice", "Alice", "bob", "BOB", "carol"])
PEOPLE = st.dictionaries(st.sampled_from([A, B, C]), LABELS)


def view(members, former=None):
    """The parts of a view that trust depends on."""
    seats = (
        {did: SimpleNamespace(did=did, label=label) for did, label in each.items()} for each in (members, former or {})
    )
    return SimpleNamespace(**dict(zip(("members", "former"), seats, strict=True)))


@pytest.mark.parametrize(
    ("members", "former", "verified", "trust"),
    [
        ({A: "alice"}, {}, {}, "unverified"),
        ({A: "alice"}, {}, {A: "alice"}, "verified"),
        ({A: "ALICE"}, {}, {A: "alice"}, "verified"),
        ({A: "ally"}, {}, {A: "alice"}, "verified"),
        ({A: "ally", B: "bob"}, {}, {A: "alice", B: "bob"}, "verified"),
        ({}, {A: "alice"}, {A: "alice"}, "verified"),
        ({}, {}, {A: "alice"}, "verified"),
        ({}, {}, {B: "bob"}, "unverified"),
        ({A: "alice"}, {}, {B: "bob"}, "unverified"),
        # somebody else under a name that was verified
        ({A: "bob"}, {B: "bob"}, {B: "bob"}, "changed"),
        ({A: "BoB"}, {B: "bob"}, {B: "bob"}, "changed"),
        ({A: "bob"}, {}, {B: "bob"}, "changed"),
        ({A: "bob", B: "robert"}, {}, {B: "bob"}, "changed"),
        ({A: "robert"}, {B: "robert"}, {B: "bob"}, "changed"),
        ({A: "zoe\u0308"}, {}, {B: "zoë"}, "changed"),
        ({A: "\uff22ob"}, {}, {B: "bob"}, "changed"),
        ({A: "\u2121"}, {}, {B: "tel"}, "changed"),
        # somebody verified who takes the name of another
        ({A: "bob"}, {B: "bob"}, {A: "alice", B: "bob"}, "changed"),
        ({A: "robert"}, {B: "robert"}, {A: "alice", B: "bob"}, "changed"),
        # and is verified anew under it: the same person with a new key
        ({A: "bob"}, {B: "bob"}, {A: "bob", B: "bob"}, "verified"),
        # a name of somebody who was never verified raises no expectation
        ({A: "carol", B: "bob"}, {C: "carol"}, {B: "bob"}, "unverified"),
    ],
)
def test_trust(members, former, verified, trust):
    assert trust_of(view(members, former), verified, A) == trust


@given(PEOPLE, PEOPLE, PEOPLE)
def test_verification_is_bound_to_key(members, former, verified):
    for did in (A, B, C):
        trust = trust_of(view(members, former), verified, did)
        if did not in verified:
            assert trust != "verified"
        else:
            assert trust != "unverified"


@given(PEOPLE, PEOPLE)
def test_verification_settles_name_change(members, verified):
    for did, label in members.items():
        assert trust_of(view(members), {**verified, did: label}, did) == "verified"


@given(PEOPLE)
def test_without_verification_all_are_unverified(members):
    assert {trust_of(view(members), {}, did) for did in (A, B, C)} == {"unverified"}
