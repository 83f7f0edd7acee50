"""Cases, in sentences."""

from msgspec.structs import replace

from zerochat.presentation import disputes
from zerochat.rpc import Author, CaseInfo, ToldVerdict

ALICE, BOB = Author("did:a", "alice"), Author("did:b", "bob")
CASE = CaseInfo(group="g", id="c", accuser=ALICE, accused=BOB, state="waiting")


def told(case):
    return disputes.charge(case, str.title), disputes.outcome(case, str.title, lambda stamp: stamp[11:16])


def test_a_case_from_its_beginning_to_its_end():
    assert told(CASE) == ("Alice accuses Bob", "not in the log yet")
    begun = replace(CASE, state="open", until="2026-03-01T10:41:00Z")
    assert told(begun) == ("Alice accuses Bob", "open until 10:41")
    mine = replace(begun, mine="accused", answers=["posted"])
    assert told(mine) == ("Alice accuses you", "open until 10:41, answered (posted)")
    assert told(replace(begun, state="over", accused=None)) == (
        "Alice accuses somebody",
        "over, and something to judge by is missing here",
    )
    assert told(replace(begun, mine="accuser", state="decided", verdict="upheld")) == ("you accuse Bob", "upheld")


def test_what_others_make_of_it_is_said_where_it_is_not_so():
    case = replace(CASE, state="decided", verdict="dismissed")
    assert told(replace(case, told=[ToldVerdict(BOB, "dismissed", True)]))[1] == "dismissed"
    assert told(replace(case, told=[ToldVerdict(BOB, "up\x1bheld", False)]))[1].startswith("dismissed; Bob says: up")
    assert "\x1b" not in told(replace(case, told=[ToldVerdict(BOB, "up\x1bheld", False)]))[1]


def test_two_messages_for_one_place():
    assert told(replace(CASE, state="decided", verdict="forked")) == ("Alice shows two messages of Bob", "forked")
    mine = replace(CASE, mine="accuser", state="decided", verdict="turned back")
    assert told(mine)[0] == "you show two messages of Bob"
