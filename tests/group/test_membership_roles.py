"""Membership: the roles of members, and the owner."""

import pytest

from tests.support.membership_book import ADMINS, FLAT, LETTERS, RULED_ANYONE, Book, did, ruled
from zerochat.errors import Malformed, Refused
from zerochat.group.event_log.event import REMOVE, ROLE
from zerochat.group.membership import (
    Policy,
    check_control,
    may_change_role,
    may_post,
    resolve_view,
)

# --- rights: roles --------------------------------------------------------------------------------------------------


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
        ("b", "b", "reader writer"),  # every member may step down
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
