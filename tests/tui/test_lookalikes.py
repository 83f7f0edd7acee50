"""Names that look alike: told apart wherever a byline is shown, by marks in a style that no name has."""

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.support.fake_agent import ME, FakeAgent
from tests.support.pane_lines import conversation, golden
from tests.support.tui_pilot import run, scene, strips
from zerochat.presentation.lookalikes import deceptive
from zerochat.tui.style.text import CONVICTED, Names

REAL, OTHER = "did:key:z6MkAAAA", "did:key:z6MkBBBB"


@pytest.mark.parametrize(
    "imitation",
    [
        *("Alice", "alice", "Alıce", "AIice", "A1ice", "Аlice", "Ａｌｉｃｅ", "Al.ice", "Alice!"),
        *("Alice (you)", "Alice#AAAA", "Alice•AAAA", "Alice•ZZZZ", "Alice AAAA", "Alice-AAAA", "Alice⋅aaaa"),
        *("Alice\u2800", "Alice\ufffc", "\U0001d159Alice", "Ali\u3164ce", "Alice\ufe0f"),
    ],
    ids=ascii,
)
def test_an_imitation_of_a_byline_is_a_lookalike(imitation):
    names = Names()
    names.learn(REAL, "Alice")
    assert names.learn(OTHER, imitation), "the label of Alice changes, too"
    assert names.label(REAL) == "Alice·AAAA" and names.label(OTHER).endswith("·BBBB")
    assert deceptive({REAL: "Alice", OTHER: imitation}).keys() == {REAL, OTHER}


@pytest.mark.parametrize("different", ["Alicia", "Bob", "Alice Bell", "Alice 🎸", "Al", "Alice2", "李雷"])
def test_different_names_have_no_suffix(different):
    names = Names()
    names.learn(REAL, "Alice")
    assert not names.learn(OTHER, different)
    assert (names.label(REAL), names.label(OTHER)) == ("Alice", different)


def test_names_that_only_look_alike_when_cut_are_told_apart():
    names = Names()
    names.learn(REAL, "Alexander the Great")
    names.learn(OTHER, "Alexander the Small")
    assert (names.byline(REAL), names.byline(OTHER)) == ("Alexander the Great", "Alexander the Small")
    assert (names.byline(REAL, 12), names.byline(OTHER, 12)) == ("Alexan…·AAAA", "Alexan…·BBBB")
    names.learn(OTHER, "Bob")
    assert names.byline(REAL, 12) == "Alexander t…"


def test_marks_stay_when_a_name_is_cut():
    names = Names(changed=frozenset([REAL]), guilty=frozenset([REAL]))
    names.learn(REAL, "Alice")
    names.learn(OTHER, "alice")
    assert names.byline(REAL, 9) == f"A…·AAAA!{CONVICTED}"
    assert names.parts(REAL, None, 32) == ("Alice", f"·AAAA!{CONVICTED}")


def twins(agent: FakeAgent) -> None:
    """Alice, who is me, a member of the same name that Bob has admitted, and what both do."""
    group = agent.add_group("hikers", ["bob", "Alice", "Carol"])
    bob, twin = group.members[1], group.members[2]
    agent._log(group, 1, "member_joined", {"did": twin.did, "nick": "Alice"}, minute=1)
    agent.post(group, 1, "welcome", minute=1)
    agent.post(group, 2, "let Alice in", minute=2)
    agent._log(group, 2, "member_joined", {"did": "did:key:z6MkDave", "nick": "Dave"}, minute=3)
    agent._log(group, 0, "role_changed", {"did": twin.did, "nick": "Alice", "role": "admin"}, minute=4)
    agent._log(group, 2, "role_changed", {"did": bob.did, "nick": "bob", "role": "reader"}, minute=4)
    agent.post(group, 0, "hello", minute=5)


def test_notices_tell_equal_names_apart(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    twins(agent)
    group = agent.groups["g1"]
    shown = golden(conversation(agent, group), (80, 24))
    mine, others = f"·{ME[-4:]}", f"·{group.members[2].did[-4:]}"
    for line in (
        f"bob admitted Alice{others}",
        f"Alice{others} admitted Dave",
        f"alice{mine} made Alice{others} an admin",
        f"Alice{others} made bob a reader",
    ):
        assert line in shown
    assert "Alice admitted" not in shown and "Alice an admin" not in shown


def test_folded_notices_tell_equal_names_apart(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("hikers", ["bob", "Alice", "Carol"])
    for number in (1, 2, 3):
        member = group.members[number]
        agent._log(group, 0, "member_joined", {"did": member.did, "nick": member.nick}, minute=1)
    shown = golden(conversation(agent, group), (80, 24))
    assert f"▸ bob, Alice·{group.members[2].did[-4:]} and Carol joined" in shown


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_second_alice_is_never_shown_as_the_first(tmp_path, size, theme):
    async def play():
        async with scene(tmp_path, size=size, setting=twins) as it:
            it.app.theme = theme
            twin = it.agent.groups["g1"].members[2].did[-4:]
            await it.shows("let Alice in", "hello", f"Alice·{twin} admitted Dave")
            pane = it.app.chat.pane.region
            # The pane has the first posts in rows of their authors, whose names and marks differ in style.
            names, marks = set(), set()
            for strip in strips(it.app)[pane.y : pane.bottom]:
                at, last = 0, ""
                for text, style, _ in strip:
                    if pane.x <= at < pane.right and style is not None:
                        if text in ("Alice", "alice"):
                            names.add((style.bold, style.italic, style.color))
                        elif text.startswith("·") and last in ("Alice", "alice"):
                            marks.add((style.bold, style.italic, style.color))
                        assert text not in ("Alice", "alice") or "·" in strip.text, strip.text
                    last, at = text, at + cell_len(text)
            assert names and marks and all(bold for bold, *_ in names) and not any(bold for bold, *_ in marks)
            assert not {colour for *_, colour in names} & {colour for *_, colour in marks}

    run(play())


def test_a_rename_to_a_lookalike_changes_the_bylines_at_once(tmp_path):
    agent = FakeAgent(tmp_path / "s")
    group = agent.add_group("hikers", ["bob", "Carol"])
    agent.post(group, 1, "hello", minute=1)
    known = conversation(agent, group)
    assert "bob │ hello" in golden(known, (80, 24))
    assert known.learn_members([*group.members[:2], replace(group.members[2], nick="B0b\u2800")])
    assert f"bob·{group.members[1].did[-4:]} │ hello" in golden(known, (80, 24))
