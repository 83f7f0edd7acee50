"""Membership: policies, transport keys, and the rights to add, leave and be named."""

import pytest

from tests.support.membership_book import ADMINS, ANYONE, FLAT, RULED_ANYONE, Book, did, seed
from zerochat.crypto.primitives import ed25519_public, ed25519_to_x25519_public, x25519_public
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.event_log.event import ADD, GENESIS, LABEL, LEAVE, REMOVE, ROLE, Event
from zerochat.group.links.contact import (
    check_possession,
    sign_possession,
    transport_public,
    transport_secret,
)
from zerochat.group.membership import (
    Policy,
    check_control,
    genesis_of,
    label_free,
    may_add,
    may_label,
    may_remove,
    policy_of,
)
from zerochat.limits import KEEP_MS_MAX, KEEP_MS_MIN, MEMBERS_MAX, MEMBERS_MAX_BY_PATH

# --- the policy -----------------------------------------------------------------------------------------------------


def test_policy_is_in_genesis():
    book = Book(Policy(join="ask", remove="quorum", quorum=3, agreement="strict"))
    assert book.view.policy == Policy("ask", "quorum", 3, "flat", "strict")
    assert policy_of(genesis_of(book.control[book.id]).policy) == book.view.policy


def test_default_policies():
    assert (FLAT.remove, FLAT.quorum, FLAT.roles) == ("quorum", 2, "flat")
    assert (ADMINS.remove, ADMINS.quorum, ADMINS.roles) == ("admins", 0, "admins")
    assert not any(policy.error for policy in (FLAT, ADMINS, ANYONE, RULED_ANYONE))


@pytest.mark.parametrize(
    "change",
    [
        {"remove": "admins", "quorum": 0},
        {"quorum": 1},
        {"quorum": MEMBERS_MAX + 1},
        {"quorum": 0},
        {"remove": "anyone"},
        {"remove": "admins", "roles": "admins", "quorum": 2},
        {"join": "never"},
        {"roles": "kings"},
        {"agreement": "loose"},
        {"remove": ""},
        {"quorum": "2"},
        {"keep": KEEP_MS_MIN - 1},
        {"keep": KEEP_MS_MAX + 1},
        {"keep": -1},
        {"jury": "12"},
    ],
    ids=str,
)
def test_inconsistent_policies_are_rejected(change):
    with pytest.raises(Malformed):
        Book(FLAT, body={"policy": {**FLAT.body(), **change}})


def test_a_retention_rule_is_in_genesis():
    assert Book(Policy(keep=KEEP_MS_MIN)).view.policy.keep == KEEP_MS_MIN
    with pytest.raises(Malformed, match="evidence"):
        Book(Policy(keep=KEEP_MS_MIN), body={"accountability": "tlog"})


def test_genesis_without_policy_is_rejected():
    body = {**Book().control[Book().id].body}
    del body["policy"]
    genesis = Event("", GENESIS, did("a"), 1, "", (), (), 1, 1, body).signed(seed("a"))
    with pytest.raises(Malformed):
        check_control(genesis, {})


# --- transport keys -------------------------------------------------------------------------------------------------


def test_transport_key_differs_from_group_key():
    book = Book(members="b")
    member = book.view.members[did("b")]
    assert member.transport != ed25519_to_x25519_public(ed25519_public(seed("b")))
    assert member.transport == x25519_public(transport_secret(seed("b")))


def test_foreign_transport_key_is_rejected():
    book = Book(members="b")
    victim = transport_public(seed("a"))
    stolen = book.addition("b", "m", transport=victim, possession=sign_possession(seed("a"), "", did("a")))
    with pytest.raises(Unauthentic):
        check_control(book.make("b", ADD, stolen), book.control)
    own = book.addition("b", "m", transport=victim)
    with pytest.raises(Unauthentic):
        check_control(book.make("b", ADD, own), book.control)
    with pytest.raises(Unauthentic):
        Book(body={"transport": transport_public(seed("z"))})


def test_possession_is_bound_to_member_and_group():
    proof, transport = sign_possession(seed("a"), "g", did("a")), transport_public(seed("a"))
    check_possession(proof, transport, "g", did("a"))
    for group, member in (("h", did("a")), ("g", did("b")), ("", did("a"))):
        with pytest.raises(Unauthentic):
            check_possession(proof, transport, group, member)


@pytest.mark.parametrize("transport", ["A" * 43, "x" * 42, "!" * 43, "_" * 43])
def test_invalid_keys_are_rejected(transport):
    book = Book()
    with pytest.raises(RemoteError):
        check_control(book.make("a", ADD, book.addition("a", "b", transport=transport)), book.control)


# --- rights: adding, leaving, names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [FLAT, ADMINS, ANYONE])
def test_any_member_may_add(policy):
    book = Book(policy, members="b")
    assert may_add(book.view, did("b"), did("c"), "c", b"")
    book.add("b", "c", role="reader")
    assert book.names == "abc"
    assert book.view.members[did("c")].role == "reader" and book.view.members[did("c")].added_by == did("b")
    book.add("c", "d")
    assert book.names == "abcd"


def test_consent_covers_role_and_keys():
    book = Book(members="b")
    for change in ({"role": "reader"}, {"label": "e"}, {"member": did("e")}):
        with pytest.raises(Unauthentic):
            check_control(book.make("a", ADD, {**book.addition("a", "c"), **change}), book.control)
    with pytest.raises(Unauthentic):
        check_control(book.make("b", ADD, book.addition("a", "c")), book.control)


def test_admin_role_cannot_be_joined():
    book = Book(ADMINS)
    with pytest.raises(Malformed):
        check_control(book.make("a", ADD, book.addition("a", "b", role="admin")), book.control)


def test_former_member_is_not_added_again():
    book = Book(ANYONE, members="bcd")
    book.leave("b")
    book.remove("a", "c")
    for one in "bcd":
        assert not may_add(book.view, did("a"), did(one), "new", b"")
        book.refuses("a", ADD, book.addition("a", one, label="new"))
    book.refuses("b", LEAVE, {})


def test_taken_name_is_rejected_until_free():
    book = Book(ANYONE, members="bc")
    book.refuses("a", ADD, book.addition("a", "d", label="B"))
    assert not label_free(book.view, "B") and not may_label(book.view, did("a"), "B")
    book.refuses("a", LABEL, {"label": "B"})
    book.label("b", "B")
    assert book.view.members[did("b")].label == "B"
    book.leave("b")
    book.label("a", "b")
    assert book.view.members[did("a")].label == "b" and book.view.former[did("b")].label == "B"


@pytest.mark.parametrize("label", ["", " x", "a\u202eb", "x" * 65, 7])
def test_undisplayable_name_is_rejected(label):
    book = Book()
    with pytest.raises(Malformed):
        check_control(book.make("a", LABEL, {"label": label}), book.control)


def test_transport_keys_are_unique():
    book = Book(members="b")
    assert not may_add(book.view, did("a"), did("c"), "c", book.view.members[did("b")].transport)


def test_non_member_has_no_rights():
    book = Book(ANYONE, members="b")
    book.refuses("z", LEAVE, {})
    book.refuses("z", LABEL, {"label": "z"})
    book.refuses("z", REMOVE, {"member": did("b"), "after": 0})
    book.refuses("z", ROLE, {"member": did("z"), "role": "reader", "after": 1})
    book.refuses("z", ADD, book.addition("z", "c"))
    assert not may_remove(book.view, did("z"), did("b")) and not may_label(book.view, did("z"), "z")


def test_group_size_is_limited(monkeypatch):
    monkeypatch.setitem(MEMBERS_MAX_BY_PATH, "mesh", 3)
    book = Book(members="bc")
    book.refuses("a", ADD, book.addition("a", "d"))
    book.leave("c")
    book.add("a", "d")
