"""Sentences about dispute cases."""

from msgspec.structs import replace

from zerochat.presentation import disputes
from zerochat.rpc import AnnouncedVerdict, Author, CaseInfo

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
        "Alice accuses a member",
        "closed, but evidence is missing here",
    )
    assert told(replace(begun, mine="accuser", state="decided", verdict="upheld")) == ("you accuse Bob", "upheld")


def test_differing_verdicts_of_others_are_shown():
    case = replace(CASE, state="decided", verdict="dismissed")
    assert told(replace(case, announced=[AnnouncedVerdict(BOB, "dismissed", True)]))[1] == "dismissed"
    assert told(replace(case, announced=[AnnouncedVerdict(BOB, "up\x1bheld", False)]))[1].startswith(
        "dismissed; Bob reports: up"
    )
    assert "\x1b" not in told(replace(case, announced=[AnnouncedVerdict(BOB, "up\x1bheld", False)]))[1]


def test_two_messages_for_one_place():
    assert told(replace(CASE, state="decided", verdict="forked")) == (
        "Alice presents two conflicting messages of Bob",
        "forked",
    )
    mine = replace(CASE, mine="accuser", state="decided", verdict="time reversed")
    assert told(mine)[0] == "you present two conflicting messages of Bob"
