"""Membership permissions, and the resolution of concurrent events."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.membership_book import ADMINS, ANYONE, FLAT, Book, did, seed
from zerochat.crypto.primitives import ed25519_public, ed25519_to_x25519_public, x25519_public
from zerochat.errors import Malformed, Refused, RemoteError, Unauthentic
from zerochat.group.event_log.event import ADD, GENESIS, LABEL, LEAVE, REMOVE, ROLE, VOTE, Event
from zerochat.group.links.contact import (
    check_possession,
    sign_possession,
    transport_public,
    transport_secret,
)
from zerochat.group.membership import (
    Policy,
    ancestors,
    check_all,
    check_control,
    extend_control,
    genesis_of,
    heads_of,
    label_free,
    log_of,
    may_add,
    may_change_role,
    may_label,
    may_post,
    may_remove,
    may_vote,
    missing,
    policy_of,
    quorum_met,
    quota,
    resolve_view,
    rights,
    votes_for,
    votes_needed,
)
from zerochat.group.membership.resolve import ViewBuilder
from zerochat.limits import KEEP_MS_MAX, KEEP_MS_MIN, MEMBERS_MAX

RULED_ANYONE = Policy(remove="anyone", quorum=0, roles="admins")


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
    monkeypatch.setattr(rights, "MEMBERS_MAX", 3)
    book = Book(members="bc")
    book.refuses("a", ADD, book.addition("a", "d"))
    book.leave("c")
    book.add("a", "d")


# --- rights: roles --------------------------------------------------------------------------------------------------


def ruled(policy=ADMINS):
    """Owner a, admins b and c, writers d and e, and f, whom an admin made a reader."""
    book = Book(policy, members="bcdef")
    book.role("a", "b", "admin", after=0)
    book.role("a", "c", "admin", after=0)
    book.role("b", "f", "reader", after=4)
    return book


def test_founder_is_owner_in_admin_group():
    assert Book(ADMINS).view.members[did("a")].role == "owner"
    assert Book(FLAT).view.members[did("a")].role == "writer"


@pytest.mark.parametrize("policy", [ADMINS, RULED_ANYONE])
@pytest.mark.parametrize(
    ("actor", "target", "allowed"),
    [
        ("a", "a", ""),  # the owner's role is fixed
        ("a", "b", "reader writer admin owner"),
        ("a", "d", "reader writer admin owner"),
        ("a", "f", "reader writer admin owner"),
        ("b", "a", ""),
        ("b", "b", "reader writer"),  # anybody may step down
        ("b", "c", ""),  # the owner alone unmakes admins
        ("b", "d", "reader writer"),
        ("b", "f", "reader writer"),
        ("d", "a", ""),
        ("d", "b", ""),
        ("d", "d", "reader"),
        ("d", "e", ""),
        ("d", "f", ""),
        ("f", "f", ""),  # an admin has put it there
    ],
)
def test_role_changes_in_admin_group(policy, actor, target, allowed):
    book = ruled(policy)
    for role in ("reader", "writer", "admin", "owner"):
        expected = role in allowed.split()
        assert may_change_role(book.view, did(actor), did(target), role) == expected, role
        seq = book.seqs.get(actor, 0) + 1
        event = book.make(actor, ROLE, {"member": did(target), "role": role, "after": seq})
        if expected:
            check_control(event, book.control)
            assert resolve_view({**book.control, event.id: event}).members[did(target)].role == role
        else:
            with pytest.raises(Refused):
                check_control(event, book.control)


@pytest.mark.parametrize(("actor", "target", "allowed"), [("a", "a", 2), ("b", "b", 2), ("a", "b", 0), ("b", "a", 0)])
def test_flat_group_members_set_own_role(actor, target, allowed):
    book = Book(members="b")
    for role in ("reader", "writer", "admin", "owner"):
        body = {"member": did(target), "role": role, "after": book.seqs.get(actor, 0) + 1}
        if may_change_role(book.view, did(actor), did(target), role):
            book.say(actor, ROLE, body)
            allowed -= 1
        else:
            book.refuses(actor, ROLE, body)
    assert allowed == 0


# --- the owner ------------------------------------------------------------------------------------------------------


def owner(book):
    return "".join(
        one for one in LETTERS if did(one) in book.view.members and book.view.members[did(one)].role == "owner"
    )


def test_owner_hands_over():
    book = ruled()
    book.role("a", "d", "owner", after=0)
    assert owner(book) == "d" and book.view.members[did("a")].role == "admin"
    book.refuses("a", ROLE, {"member": did("e"), "role": "admin", "after": 0})
    book.refuses("a", ROLE, {"member": did("b"), "role": "owner", "after": 0})
    book.refuses("b", REMOVE, {"member": did("d"), "after": 0})
    book.role("d", "a", "owner", after=9)
    book.role("a", "b", "owner", after=9)
    book.remove("b", "a")
    assert owner(book) == "b" and book.names == "bcdef"


@pytest.mark.parametrize("change", ["remove", "demote", "step down"])
def test_transfer_protects_the_new_owner(change):
    book = ruled()
    heads = book.heads()
    if change == "remove":
        book.remove("b", "d", heads)
    elif change == "demote":
        book.role("b", "d", "reader", heads, after=1)
    else:
        book.role("d", "d", "reader", heads)
    book.role("a", "d", "owner", heads, after=0)
    assert owner(book) == "d" and book.view.members[did("d")].role_at(9) == "owner"


@pytest.mark.parametrize("policy", [RULED_ANYONE, Policy(roles="admins")])
def test_transfer_to_a_member_that_goes_is_void(policy):
    book = ruled(policy)
    heads = book.heads()
    if policy.remove == "quorum":
        heads = [book.vote("b", "d"), book.vote("c", "d")]
    book.role("a", "d", "owner", heads, after=0)
    book.remove("b", "d", heads)
    assert owner(book) == "a" and "d" not in book.names
    heads = book.heads()
    book.role("a", "e", "owner", heads, after=0)
    book.leave("e", heads)
    assert owner(book) == "a" and "e" not in book.names


def test_back_dated_transfer_ends_with_a_removal():
    """A former owner that equivocates keeps nothing once the new owner has removed it."""
    book = ruled()
    heads = book.heads()
    book.role("a", "d", "owner", heads, after=0)
    book.role("a", "e", "owner", heads, after=0)
    book.say(
        "e",
        REMOVE,
        {"member": did("d"), "after": 0},
        [*heads, *(h for h in book.heads() if h.body["member"] == did("e"))],
    )
    assert did("a") in book.view.forked and did("d") in book.view.members
    ours = [
        event
        for event in book.control.values()
        if event.body.get("role") == "owner" and event.body["member"] == did("d")
    ]
    book.say("d", REMOVE, {"member": did("a"), "after": 9}, ours)
    assert owner(book) == "d" and "a" not in book.names


def test_former_owner_loses_concurrent_powers_when_demoted():
    book = ruled()
    heads = book.heads()
    transfer = book.role("a", "d", "owner", heads, after=0)
    book.role("a", "e", "admin", heads, after=0)  # as if it had not handed over
    assert book.view.members[did("e")].role == "admin"
    book.role("d", "a", "writer", [transfer], after=9)
    assert book.view.members[did("e")].role == "writer" and owner(book) == "d"
    book.role("d", "a", "admin", after=9)
    book.remove("a", "f")
    assert "f" not in book.names


def test_self_demoted_member_may_return():
    book = ruled()
    book.role("d", "d", "reader")
    book.role("d", "d", "writer")
    book.role("b", "d", "reader", after=3)
    assert not may_change_role(book.view, did("d"), did("d"), "writer")
    book.role("c", "d", "writer", after=4)
    assert book.view.members[did("d")].role == "writer"


def test_invited_reader_is_promoted_by_admins():
    book = Book(ADMINS, members="b")
    book.add("b", "c", role="reader")
    assert not may_change_role(book.view, did("c"), did("c"), "writer")
    book.role("a", "c", "writer", after=0)
    assert book.view.members[did("c")].role == "writer"


def test_own_role_applies_from_its_event():
    book = Book(members="b")
    with pytest.raises(Malformed):
        check_control(book.make("b", ROLE, {"member": did("b"), "role": "reader", "after": 7}), book.control)


def test_role_applies_from_its_position():
    book = Book(members="b")
    book.role("b", "b", "reader")  # seq 1
    book.say("b", ROLE, {"member": did("b"), "role": "writer", "after": 5}, seq=5)
    member = book.view.members[did("b")]
    assert member.roles == ((0, "writer"), (1, "reader"), (5, "writer"))
    assert [member.role_at(seq) for seq in (1, 2, 5, 6, 99)] == ["writer", "reader", "reader", "writer", "writer"]
    assert [may_post(book.view, did("b"), seq) for seq in (1, 2, 5, 6)] == [True, False, False, True]


def test_earlier_effective_role_replaces_later_ones():
    book = ruled()
    book.role("b", "d", "reader", after=17)
    book.role("c", "d", "reader", after=10)
    assert book.view.members[did("d")].roles == ((0, "writer"), (10, "reader"))
    book.role("c", "d", "writer", after=0)
    assert book.view.members[did("d")].roles == ((0, "writer"),)


# --- rights: removing -----------------------------------------------------------------------------------------------


def test_anyone_rule_permits_any_removal():
    book = Book(ANYONE, members="bcd")
    assert may_remove(book.view, did("b"), did("a")) and not may_remove(book.view, did("b"), did("b"))
    book.refuses("b", REMOVE, {"member": did("b"), "after": 0})
    book.refuses("b", VOTE, {"member": did("a")})
    book.remove("b", "a", after=3)
    assert book.names == "bcd" and book.view.removed == {did("a"): 3}
    assert [may_post(book.view, did("a"), seq) for seq in (3, 4)] == [True, False]
    book.refuses("b", REMOVE, {"member": did("a"), "after": 0})
    book.refuses("a", REMOVE, {"member": did("b"), "after": 0})


@pytest.mark.parametrize(
    ("actor", "targets"), [("a", "bcdef"), ("b", "cdef"), ("c", "bdef"), ("d", ""), ("e", ""), ("f", "")]
)
def test_admins_remove_all_but_owner_and_self(actor, targets):
    book = ruled()
    for target in "abcdefz":
        assert may_remove(book.view, did(actor), did(target)) == (target in targets)
        body = {"member": did(target), "after": 0}
        if target in targets:
            check_control(book.make(actor, REMOVE, body), book.control)
        else:
            book.refuses(actor, REMOVE, body)


def test_quorum_counts_members():
    book = Book(Policy(quorum=3), members="bcde")
    target = did("e")
    for number, voter in enumerate("abb"):
        votes = votes_for(book.control, book.view, target)
        assert len(votes) == number and not quorum_met(book.view, votes)
        book.refuses("a", REMOVE, {"member": target, "after": 0})
        book.vote(voter, "e")
    assert votes_for(book.control, book.view, target) == {did("a"), did("b")}, "one vote each"
    book.leave("b")
    assert votes_for(book.control, book.view, target) == {did("a")}, "who is gone does not count"
    book.vote("c", "e")
    book.refuses("d", REMOVE, {"member": target, "after": 0})
    book.vote("d", "e")
    assert may_remove(book.view, did("c"), target, votes_for(book.control, book.view, target))
    assert not may_remove(book.view, did("z"), target, votes_for(book.control, book.view, target))
    book.remove("c", "e")
    assert book.names == "acd"


def test_small_group_quorum_is_all_others():
    book = Book(Policy(quorum=5), members="bc")
    assert votes_needed(book.view) == 2
    book.vote("a", "c")
    book.refuses("a", REMOVE, {"member": did("c"), "after": 0})
    book.vote("b", "c")
    book.remove("b", "c")
    assert votes_needed(book.view) == 1
    book.refuses("a", REMOVE, {"member": did("b"), "after": 0})
    book.vote("a", "b")
    book.remove("a", "b")
    assert book.names == "a"


def test_votes_concern_other_members():
    book = Book(members="b")
    assert may_vote(book.view, did("a"), did("b"))
    for target in ("a", "z"):
        assert not may_vote(book.view, did("a"), did(target))
        book.refuses("a", VOTE, {"member": did(target)})


# --- whose votes count, whatever past their author chooses -----------------------------------------------------------


def test_old_small_past_does_not_lower_quorum():
    book = Book(members="b")
    then = book.heads()
    book.add("a", "c")
    book.add("a", "d")
    book.remove("b", "a", [book.vote("b", "a", then)])
    assert book.names == "abcd" and book.view.removed == {}
    assert may_vote(book.view, did("c"), did("a")) and not quorum_met(book.view, {did("b")})
    book.vote("c", "a")
    book.remove("b", "a")
    assert book.names == "bcd"


def test_small_quorum_of_old_past_is_void():
    book = Book(Policy(quorum=4), members="bc")
    then = book.heads()
    for one in "defgh":
        book.add("a", one)
    votes = [book.vote("b", "a", then), book.vote("c", "a", then)]
    book.remove("c", "a", votes)
    assert book.names == "abcdefgh"
    book.vote("d", "a")
    assert not quorum_met(book.view, votes_for(book.control, book.view, did("a")))
    book.vote("e", "a")
    assert quorum_met(book.view, votes_for(book.control, book.view, did("a")))
    book.remove("e", "a")
    assert book.names == "bcdefgh"


@pytest.mark.parametrize("dated_back", [True, False])
@pytest.mark.parametrize("voters", ["dh", "hi", "hj", "dhij"])
def test_unseen_puppet_adds_no_vote(dated_back, voters):
    book = Book(members="bcd")
    then = book.heads()
    for one in "efg":
        book.add("a", one)
    last = [book.add("d", "h", then if dated_back else book.heads())]
    last = [book.add("d", "i", last)]
    last = [book.add("i", "j", last)]
    for voter in voters:
        last = [book.vote(voter, "a", last)]
    assert len(votes_for(book.control, book.view, did("a"))) == 1
    book.remove(voters[0], "a", last)
    assert did("a") in book.view.members and book.view.removed == {}
    book.label("b", "bob")
    assert did("a") in book.view.members, "to be seen afterwards changes nothing"
    book.vote("c", "a")
    book.remove("c", "a")
    assert did("a") not in book.view.members


def test_seen_member_votes_like_others():
    book = Book(members="bcd")
    book.add("b", "e")
    book.label("c", "cecil")
    book.vote("b", "d")
    book.vote("e", "d")
    assert votes_for(book.control, book.view, did("d")) == {did("b"), did("e")}
    book.remove("e", "d")
    assert book.names == "abce"


@pytest.mark.parametrize("voters", ["ab", "bc", "ca"])
def test_founder_added_members_vote_separately(voters):
    book = Book(members="bcd")
    for voter in voters:
        book.vote(voter, "d")
    book.remove(voters[1], "d")
    assert book.names == "abc"


def test_founder_can_be_removed_by_its_subtree():
    book = Book(members="b")
    for one in "cde":
        book.add("b", one)
    book.vote("c", "a")
    book.refuses("c", REMOVE, {"member": did("a"), "after": 0})
    book.vote("d", "a")
    book.remove("d", "a")
    assert book.names == "bcde"


def test_pair_can_separate():
    book = Book(members="b")
    book.vote("b", "a")
    book.remove("b", "a")
    assert book.names == "b"


@pytest.mark.parametrize("quorum", [2, 5])
def test_joiners_do_not_undo_removal(quorum):
    book = Book(Policy(quorum=quorum), members="bcdef")
    book.leave("e")
    book.vote("c", "f")
    for voter in "abd":
        book.vote(voter, "f")
    book.remove("d", "f")
    for one in "ghij":
        book.add("b", one)
    assert book.names == "abcdghij"
    book.leave("c")
    assert book.view.removed == {did("f"): 9}


def test_void_removal_does_not_shrink_electorate():
    """Two removals by b, the second with a past in which the first sufficed."""
    book = Book(members="b")
    then = book.heads()
    book.add("a", "c")
    last = book.remove("b", "a", [book.vote("b", "a", then)])
    last = book.add("b", "d", [last])
    last = book.vote("b", "d", [last])
    book.remove("b", "d", [last])
    assert book.names == "abcd"


# --- concurrency ----------------------------------------------------------------------------------------------------


def test_mutual_removals_both_hold():
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    book.remove("b", "c", seen)
    book.remove("c", "b", seen)
    assert book.names == "ad"


def test_removed_member_cannot_remove():
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    book.remove("b", "c", seen)
    book.remove("c", "d", seen)
    book.remove("c", "b", seen)  # but for whoever removes it
    assert book.names == "ad"


def test_void_removal_restores_its_target():
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    book.remove("c", "d", seen)
    assert book.names == "abc"
    book.remove("b", "c", seen)
    assert book.names == "abd" and did("d") not in book.view.removed


def test_events_seen_by_remover_stay():
    book = Book(ANYONE, members="bcd")
    book.remove("c", "d")
    book.add("c", "e")
    book.label("c", "cecil")
    book.remove("b", "c")
    assert book.names == "abe" and book.view.former[did("c")].label == "cecil"


def test_removal_cycle_removes_all():
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    for one, other in ("bc", "cd", "db"):
        book.remove(one, other, seen)
    assert book.names == "a"


def test_removal_chain_resolves_from_start():
    book = Book(ANYONE, members="bcde")
    seen = book.heads()
    for one, other in ("ab", "bc", "cd", "de"):
        book.remove(one, other, seen)
    assert book.names == "ace"  # b's word against c does not count, so c's against d does, so d's against e does not


def test_removed_adder_voids_concurrent_additions():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    last = book.add("b", "d", seen)
    last = book.add("d", "e", [last])
    last = book.label("e", "eve", [last])
    last = book.remove("e", "c", [last])
    assert book.names == "abde"
    book.remove("c", "b", seen)
    # Whoever was let in by somebody on the way out may not remove whoever put that one out, unless in a ring.
    assert did("e") not in book.view.members and did("d") not in book.view.members
    assert book.view.removed[did("d")] == book.view.removed[did("e")] == 0
    assert not may_post(book.view, did("d"), 1)
    book.refuses("a", ADD, book.addition("a", "d"))


def test_late_puppet_cannot_remove():
    book = Book(ANYONE, members="bcf")
    seen = book.heads()
    last = book.add("b", "d", seen)
    book.remove("d", "f", [last])
    book.remove("c", "b", seen)
    assert book.names == "acf"


def test_twice_added_member_stays():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    first = book.add("b", "d", seen)
    book.add("c", "d", seen)
    book.label("d", "dora", [first])
    book.remove("a", "b", seen)
    assert book.names == "acd"
    member = book.view.members[did("d")]
    assert (member.label, member.added_by) == ("dora", did("c"))


def test_second_addition_counts_though_the_first_is_void():
    book = Book(ANYONE, members="b")
    seen = book.heads()
    removal = book.remove("b", "a", seen)
    pawn = book.add("c", "d", [book.add("a", "c", seen)])
    void = book.add("d", "e", [pawn])
    assert did("e") in book.view.former, "void: a was removed before it added c"
    event = book.make("b", ADD, book.addition("b", "e"), [removal], lamport=void.lamport + 1)
    check_control(event, book.control)
    log_of(book.control).view()  # to which the event is applied
    grown, view = extend_control(book.control, event)
    assert did("e") in view.members and view == ViewBuilder.of(grown).view(heads_of(grown))


def test_what_depends_on_a_void_transfer_is_void():
    book = Book(ADMINS, members="bc")
    seen = book.heads()
    transfer = book.role("a", "b", "owner", seen, after=1)
    book.leave("b", seen)
    event = book.make("b", ROLE, {"member": did("a"), "role": "admin", "after": 1}, [transfer], lamport=9)
    check_control(event, book.control)
    log_of(book.control).view()  # to which the event is applied
    grown, view = extend_control(book.control, event)
    assert view.members[did("a")].role == "owner" and view == ViewBuilder.of(grown).view(heads_of(grown))


def test_leaver_keeps_concurrent_events():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    book.leave("b", [book.add("b", "d", seen)])
    last = book.label("c", "cecil", seen)
    assert book.names == "acd" and did("b") not in book.view.removed
    assert book.view.former[did("b")].until == 2
    book.remove("c", "b", [last])
    assert book.names == "ac", "to have left does not help against a removal"
    assert book.view.former[did("b")].until == 2


def test_vote_of_removed_member_is_void():
    book = Book(members="bcde")
    book.vote("b", "e")
    book.vote("a", "b")
    book.vote("c", "b")
    assert quorum_met(book.view, votes_for(book.control, book.view, did("b")))
    book.remove("d", "b")
    assert votes_for(book.control, book.view, did("e")) == set()
    book.vote("c", "e")
    book.refuses("c", REMOVE, {"member": did("e"), "after": 0})
    book.vote("d", "e")
    book.remove("c", "e")
    assert book.names == "acd"


def test_mutual_quorum_removals_both_hold():
    book = Book(members="bcd")
    seen = book.heads()
    one = book.vote("b", "c", [book.vote("a", "c", seen)])
    other = book.vote("c", "b", [book.vote("d", "b", seen)])
    book.remove("b", "c", [one])
    book.remove("c", "b", [other])
    assert book.names == "ad"


def test_removal_falls_with_its_vote():
    book = Book(members="bcdef")
    seen = book.heads()
    vote = book.vote("c", "e", seen)
    vote = book.vote("d", "e", [vote])
    book.remove("d", "e", [vote])
    assert did("e") not in book.view.members
    other = book.vote("a", "c", seen)
    other = book.vote("b", "c", [other])
    book.remove("b", "c", [other])
    assert book.names == "abdef", "c is out and had not been seen to vote, so d was alone"


def test_voided_vote_leaves_enough_votes():
    book = Book(members="bcdef")
    seen = book.heads()
    vote = seen[0]
    for voter in "cdf":
        vote = book.vote(voter, "e", [vote])
    book.remove("d", "e", [vote])
    other = book.vote("b", "c", [book.vote("a", "c", seen)])
    book.remove("b", "c", [other])
    assert book.names == "abdf"


def test_merged_votes_count_together():
    book = Book(Policy(quorum=2), members="bcd")
    seen = book.heads()
    one, other = book.vote("a", "d", seen), book.vote("b", "d", seen)
    body = {"member": did("d"), "after": 0}
    book.refuses("a", REMOVE, body, [one])
    book.refuses("b", REMOVE, body, [other])
    book.remove("a", "d", [one, other], after=2)
    book.remove("b", "d", [book.label("b", "bob", [one, other])], after=9)
    assert book.names == "abc" and book.view.removed == {did("d"): 2}, "the strictest counts"


def test_demoted_admin_concurrent_actions_are_void():
    book = ruled()
    seen = book.heads()
    book.remove("b", "d", seen)
    book.role("b", "e", "reader", seen)
    book.label("b", "bob", seen)
    book.add("b", "g", seen)
    book.role("a", "b", "writer", seen, after=5)
    view = book.view
    assert book.names == "abcdefg", "what anybody may do stays"
    assert view.members[did("e")].role == "writer" and view.members[did("b")].label == "bob"
    assert view.members[did("b")].role == "writer"


def test_self_promotion_loses_to_concurrent_demotion():
    book = ruled()
    book.role("d", "d", "reader")
    seen = book.heads()
    book.role("b", "d", "reader", seen, after=2)
    book.role("d", "d", "writer", [book.label("d", "dora", seen)])
    assert book.view.members[did("d")].role == "reader" and book.view.members[did("d")].label == "dora"


def test_actions_by_void_right_are_void():
    """The owner is out, and its promotion of an admin was unseen: the admin's actions are void with it."""
    book = Book(RULED_ANYONE, members="bcd")
    seen = book.heads()
    made = book.role("a", "b", "admin", seen, after=0)
    book.role("b", "c", "reader", [made], after=0)
    assert book.view.members[did("c")].role == "reader"
    book.remove("d", "a", seen)
    assert book.names == "bcd"
    assert book.view.members[did("c")].role == "writer" and book.view.members[did("b")].role == "writer"


def test_later_concurrent_role_wins():
    book = ruled()
    seen = book.heads()
    one = book.role("b", "d", "reader", seen, after=3)
    two = book.role("c", "d", "writer", seen, after=3)
    assert one.lamport == two.lamport
    last = max((one, two), key=lambda event: event.id)
    assert book.view.members[did("d")].role == last.body["role"] and book.view.members[did("d")].role_by == last.author
    book.role("a", "d", "admin", [one], after=3)
    assert book.view.members[did("d")].role == "admin", "whoever has seen the other"


def test_concurrent_equal_names_are_allowed():
    book = Book(members="bc")
    seen = book.heads()
    book.label("b", "x", seen)
    book.label("c", "X", seen)
    assert {member.label for member in book.view.members.values()} == {"a", "x", "X"}
    book.label("b", "y")


# --- a whole past at once: what comes next is judged as if all had come one by one (`refuses` asks both) --------------


def test_event_after_unseen_removal():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    book.remove("b", "c", seen)
    book.say("c", ADD, book.addition("c", "d"), seen, lamport=99)
    book.refuses("d", LABEL, {"label": "dora"})


def test_event_before_concurrent_removal():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    book.add("c", "d", seen)
    book.say("b", REMOVE, {"member": did("c"), "after": 9}, seen, lamport=99)
    book.refuses("d", LABEL, {"label": "dora"})


def test_late_older_name():
    book = Book(members="bc")
    seen = book.heads()
    book.label("b", "x", [book.label("c", "q", seen)])
    book.label("b", "y", seen)
    assert book.view.members[did("b")].label == "x"
    book.refuses("c", LABEL, {"label": "x"})
    book.label("c", "y")


# --- equivocation and limits ----------------------------------------------------------------------------------------


def test_two_events_at_one_position_prove_fork():
    book = Book(members="bcdef")
    seen = book.heads()
    for author in "bcdef":
        one = book.say(author, LABEL, {"label": author * 2}, seen, seq=4)
        assert did(author) not in book.view.forked
        two = book.say(author, LABEL, {"label": author * 3}, seen, seq=4, lamport=50)
        assert book.view.forked[did(author)] == tuple(sorted((one.id, two.id)))


def is_full(book, author):
    with pytest.raises(Refused, match="too many"):
        check_control(book.make(author, LABEL, {"label": "more"}), book.control)
    assert check_all(book.control.values()) == book.control


def test_author_quota_is_enforced(monkeypatch):
    monkeypatch.setattr(quota, "AUTHOR_CONTROL_MAX", 4)
    book = Book(ANYONE, members="bcd")  # a has made four
    book.refuses("a", LABEL, {"label": "x"})
    book.label("b", "x")
    book.remove("a", "c")
    book.remove("a", "d")
    book.leave("a")
    assert book.names == "b"


def test_group_quota_still_allows_leaving(monkeypatch):
    monkeypatch.setattr(quota, "CONTROL_MAX", 4)
    monkeypatch.setattr(quota, "RESERVE", 0)
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    is_full(book, "b")
    book.leave("b", seen)
    book.remove("a", "c", seen)
    event = book.make("a", REMOVE, {"member": did("b"), "after": 0}, seen)
    check_control(event, book.control)
    book.control[event.id] = event
    assert check_all(book.control.values()) == book.control


def test_events_without_causes_are_rejected():
    book = Book(members="b")
    event = replace(book.make("b", LEAVE, {}), deps=("q" * 43,)).signed(seed("b"))
    for loose in (event, replace(event, deps=()).signed(seed("b"))):
        with pytest.raises(Refused):
            check_control(loose, book.control)
        with pytest.raises(Refused):
            check_all([*book.control.values(), loose])
    with pytest.raises(Refused):
        resolve_view({})
    with pytest.raises(Refused):
        check_control(book.control[book.id], book.control)


def test_concurrent_own_events_prove_fork():
    book = Book(members="bcd")
    seen = book.heads()
    one, other = book.label("b", "x", seen), book.label("b", "y", seen)
    assert (one.seq, other.seq) == (1, 2) and book.view.forked == {did("b"): tuple(sorted((one.id, other.id)))}
    book.label("c", "z", seen)
    book.label("c", "q")
    assert book.view.forked.keys() == {did("b")}, "whoever goes on from what it has said is honest"
    one, other = book.add("d", "e", seen), book.add("d", "e", seen)
    assert one.seq != other.seq and book.view.forked[did("d")] == tuple(sorted((one.id, other.id)))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (LEAVE, {}),
        (VOTE, {"member": did("c")}),
        (REMOVE, {"member": did("c"), "after": 0}),
        (ROLE, {"member": did("b"), "role": "reader", "after": 1}),
        (LABEL, {"label": "x"}),
    ],
)
def test_unknown_body_fields_are_rejected(kind, body):
    book = Book(members="bc")
    if kind == REMOVE:
        book.vote("a", "c")
        book.vote("b", "c")
        book.seqs["b"] = 0
    check_control(book.make("b", kind, body, seq=1), book.control)
    with pytest.raises(Malformed):
        check_control(book.make("b", kind, {**body, "more": "x"}, seq=1), book.control)
    with pytest.raises(Malformed):
        check_control(book.make("a", ADD, {**book.addition("a", "d"), "more": "x"}), book.control)
    with pytest.raises(Malformed):
        Book(body={"more": "x"})


def test_small_records_are_limited():
    book = Book(members="b")
    event = book.make("b", LABEL, {"label": "\U0001f600" * 64})
    full = replace(event, conc=("q" * 43,) * 16).signed(seed("b"))
    check_control(full, book.control)
    long = replace(event, conc=("q" * 43,) * 60).signed(seed("b"))
    with pytest.raises(Malformed, match="too long"):
        check_control(long, book.control)


def test_first_vote_is_always_accepted(monkeypatch):
    monkeypatch.setattr(quota, "AUTHOR_CONTROL_MAX", 4)
    monkeypatch.setattr(quota, "CONTROL_MAX", 4)
    book = Book(members="bcd")
    book.vote("a", "d")
    with pytest.raises(Refused, match="too many"):
        book.vote("a", "d")
    book.vote("b", "d")
    book.remove("a", "d")
    assert book.names == "abc" and check_all(book.control.values()) == book.control


def test_removal_by_puppets_is_void_without_concurrent_events():
    book = Book(members="bd")
    book.add("b", "c")
    book.vote("b", "d")
    book.vote("c", "d")
    grown, view = extend_control(dict(book.control), book.remove("b", "d"))
    assert did("d") in view.members and view == ViewBuilder.of(grown).view(heads_of(grown))


def test_branch_quota_is_spent_by_those_that_a_member_has_added(monkeypatch):
    monkeypatch.setattr(quota, "BRANCH_MAX", 12)
    monkeypatch.setattr(quota, "RESERVE", 2)
    book = Book(ANYONE, members="bc")
    book.add("b", "d")
    book.add("d", "e")
    for number in range(10):
        book.label("de"[number % 2], f"x{number}")
    is_full(book, "d")
    is_full(book, "e")
    book.label("b", "reserve")
    is_full(book, "b")
    for name in ("y", "z", "w"):
        book.label("c", name)
    book.add("c", "f")


def test_branch_recovers_when_its_abuser_is_removed(monkeypatch):
    monkeypatch.setattr(quota, "BRANCH_MAX", 12)
    monkeypatch.setattr(quota, "RESERVE", 1)
    book = Book(ANYONE, members="b")
    book.add("b", "c")
    for number in range(11):
        book.label("c", f"x{number}")
    is_full(book, "b")
    book.remove("a", "c")
    for number in range(9):  # 11 renames and the admission count a quarter: three
        book.label("b", f"y{number}")
    is_full(book, "b")


def test_a_full_group_leaves_each_member_its_reserve(monkeypatch):
    monkeypatch.setattr(quota, "CONTROL_MAX", 6)
    monkeypatch.setattr(quota, "RESERVE", 2)
    book = Book(ANYONE, members="bc")
    for number in range(3):
        book.label("b", f"x{number}")
    is_full(book, "b")
    book.add("c", "d")
    book.label("c", "z")
    is_full(book, "c")


def test_a_relayed_event_counts_in_its_own_past(monkeypatch):
    monkeypatch.setattr(quota, "AUTHOR_CONTROL_MAX", 4)
    book = Book(ANYONE, members="bc")
    book.add("b", "d")
    seen = book.heads()
    for branch in "xy":
        past = seen
        for number in range(3 if branch == "x" else 2):
            event = book.make("b", LABEL, {"label": f"{branch}{number}"}, past)
            if branch == "y":
                for sender in ("", did("b"), did("d")):  # the author, and one of its branch
                    with pytest.raises(Refused, match="too many"):
                        check_control(event, book.control, sender)
            check_control(event, book.control, did("c"))
            book.control[event.id] = event
            past = [event]
    assert check_all(book.control.values()) == book.control
    full = [one for one in book.heads() if one.body["label"] == "x2"]
    for past in (full, book.heads()):
        with pytest.raises(Refused, match="too many"):
            check_control(book.make("b", LABEL, {"label": "more"}, past), book.control, did("c"))


# --- any history ----------------------------------------------------------------------------------------------------

POLICIES = [FLAT, Policy(quorum=3), ADMINS, ANYONE, RULED_ANYONE, Policy(roles="admins")]
LETTERS = "abcdefg"


def act(book, draw, author, other, seq):
    """One event that a member may or may not create: its type and body."""
    after = seq if author == other else draw(st.integers(0, 3))
    match draw(st.sampled_from([ADD, LEAVE, REMOVE, REMOVE, REMOVE, VOTE, VOTE, VOTE, ROLE, ROLE, LABEL])):
        case "add":
            return ADD, book.addition(author, other)
        case "leave":
            return LEAVE, {}
        case "remove":
            return REMOVE, {"member": did(other), "after": after}
        case "vote":
            return VOTE, {"member": did(other)}
        case "role":
            role = draw(st.sampled_from(["reader", "writer", "admin", "owner"]))
            return ROLE, {"member": did(other), "role": role, "after": after}
    return LABEL, {"label": draw(st.sampled_from(["x", "y", "z"]))}


@st.composite
def histories(draw):
    """Random membership events with random pasts."""
    book = Book(draw(st.sampled_from(POLICIES)), members="bcd")
    for _ in range(draw(st.integers(0, 20))):
        names = sorted(book.control, key=lambda name: (book.control[name].lamport, name))
        recent = names[-draw(st.integers(1, 8)) :]
        chosen = draw(st.lists(st.sampled_from(recent), min_size=1, max_size=3, unique=True))
        past = ancestors(book.control, chosen)
        seen = [book.control[name] for name in heads_of({name: book.control[name] for name in past})]
        author, other = draw(st.sampled_from(LETTERS)), draw(st.sampled_from(LETTERS))
        seq = max(1, book.seqs.get(author, 0) + draw(st.sampled_from([1, 1, 1, 0])))
        kind, body = act(book, draw, author, other, seq)
        with suppress(Refused):
            book.say(author, kind, body, seen, seq=seq)
    return book


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_view_is_independent_of_order(book, dice):
    """In any causal order: the same members, roles and fork proofs."""
    waiting = list(book.control.values())
    arrived: dict[str, Event] = {}
    while waiting:
        ready = [event for event in waiting if all(dep in arrived for dep in event.deps)]
        event = dice.choice(ready)
        check_control(event, arrived)
        arrived, view = extend_control(arrived, event)
        waiting.remove(event)
        assert view == ViewBuilder.of(arrived).view(heads_of(arrived)), "one at a time as all at once"
    assert resolve_view(arrived) == book.view
    assert (
        ViewBuilder.of(arrived).view(heads_of(arrived))
        == ViewBuilder.of(book.control).view(heads_of(book.control))
        == book.view
    )
    assert check_all(arrived.values()) == book.control
    assert check_all(missing(arrived, [])) == book.control
    assert missing(arrived, heads_of(arrived)) == []


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_was_accepted_one_by_one_is_within_the_quotas(data):
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in {"BRANCH_MAX": 3, "AUTHOR_CONTROL_MAX": 5, "CONTROL_MAX": 9, "RESERVE": 1}.items():
            patch.setattr(quota, name, limit)
        book = data.draw(histories())
        assert check_all(book.control.values()) == check_all(missing(book.control, [])) == book.control


def at_odds(book, one, other):
    if one.author != other.author or one is other:
        return False
    apart = one.id not in ancestors(book.control, [other.id]) and other.id not in ancestors(book.control, [one.id])
    return one.seq == other.seq or apart


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(histories())
def test_every_view_is_consistent(book):
    view, events = book.view, book.control.values()
    added = {did("a")} | {event.body["member"] for event in events if event.type == ADD}
    assert view.members.keys() | view.former.keys() == added and not view.members.keys() & view.former.keys()
    assert list(view.members) == sorted(view.members)
    assert not view.removed.keys() - view.former.keys()
    assert all(member.until is None for member in view.members.values())
    assert all(member.until is not None for member in view.former.values())
    assert all(after >= view.former[one].until for one, after in view.removed.items())
    gone = {event.author for event in events if event.type == LEAVE}
    targets = {event.body["member"] for event in events if event.type == REMOVE}
    assert not gone & view.members.keys()
    if not targets and view.policy.roles == "flat":
        assert view.former.keys() == gone
    assert view.forked.keys() == {one.author for one in events for other in events if at_odds(book, one, other)}
    for author, (one, other) in view.forked.items():
        assert one < other and book.control[one].author == book.control[other].author == author
        assert at_odds(book, book.control[one], book.control[other])
    owners = [member for member in view.members.values() if member.role == "owner"]
    assert len(owners) <= (view.policy.roles == "admins")
    if view.policy.remove == "admins":
        assert owners or gone, "an owner goes only by itself"


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(histories(), st.sampled_from(LETTERS), st.sampled_from(LETTERS), st.sampled_from(["reader", "admin", "owner"]))
def test_client_checks_match_protocol_checks(book, author, other, role):
    """The `may_*` functions and `check_control` agree."""
    view, me, whom = book.view, did(author), did(other)
    after = book.seqs.get(author, 0) + 1
    removal, change = {"member": whom, "after": 3}, {"member": whom, "role": role, "after": after}
    asked = [
        (VOTE, {"member": whom}, may_vote(view, me, whom)),
        (REMOVE, removal, may_remove(view, me, whom, votes_for(book.control, view, whom))),
        (ROLE, change, may_change_role(view, me, whom, role)),
        (LABEL, {"label": "x"}, may_label(view, me, "x")),
    ]
    for kind, body, allowed in asked:
        event = book.make(author, kind, body, seq=after)
        for check in (
            lambda event: check_control(event, book.control),
            lambda event: check_all([*book.control.values(), event]),
            lambda event: check_all([*missing(book.control, []), event]),
        ):
            try:
                check(event)
            except Refused:
                assert not allowed, kind
            else:
                # A removal with votes too few among all who are members may be in order, but has no effect.
                after_it = resolve_view({**book.control, event.id: event})
                assert allowed or (kind == REMOVE and view.policy.remove == "quorum" and whom in after_it.members), kind
                assert not allowed or kind != REMOVE or whom not in after_it.members


def test_sybils_that_replace_each_other_have_no_reserve(monkeypatch):
    """Each adds the next one and leaves: the branch is full at some time, and stays so."""
    monkeypatch.setattr(quota, "BRANCH_MAX", 16)
    book = Book(members="bc")

    def take_turns():
        last = "b"
        for number in range(200):
            book.add(last, f"s{number}")
            if last != "b":
                book.leave(last)
            last = f"s{number}"

    with pytest.raises(Refused):
        take_turns()
    assert len(book.control) < 16 * quota.DEPARTED_WEIGHT * 3
    book.add("c", "d")
    check_all(book.control.values())


def test_votes_of_sybils_count_for_their_branch(monkeypatch):
    """One generation of Sybils after the other votes about all others and leaves."""
    monkeypatch.setattr(quota, "BRANCH_MAX", 32)
    book = Book(members="bc")

    def vote_and_leave(number):
        sybils = [f"s{number}{one}" for one in "xyz"]
        for one in sybils:
            book.add("b", one)
        for one in sybils:
            for other in {*sybils, "a", "b", "c"} - {one}:
                book.vote(one, other)
        for one in sybils:
            book.leave(one)

    def go_on():
        for number in range(40):
            vote_and_leave(number)

    with pytest.raises(Refused):
        go_on()
    assert len(book.control) < 32 * quota.DEPARTED_WEIGHT * 3
    for voter in "ac":
        book.vote(voter, "b")
    check_all(book.control.values())
