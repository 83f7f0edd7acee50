"""Void posts: posts by a member without permission are marked wherever they are shown."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cut_world import Cut
from tests.support.role_feud import RULES, cut_off, remove_each_other
from tests.support.served_world import Served
from tests.support.tui_pilot import run as play
from tests.support.tui_pilot import scene, weekend
from zerochat.agent.views.events import is_void
from zerochat.cli.event_text import EventText
from zerochat.group.event_log.event import load_event
from zerochat.group.inputs import ChangeLabel, ChangeRole, CreateGroup, RemoveMember
from zerochat.group.membership import Member, Policy, validity_changes
from zerochat.group.notifications import ValidityChanged
from zerochat.presentation import delivery
from zerochat.rpc import History, MessageChanged, ValidityNotification

agent, run, home = cli_harness.agent, cli_harness.run, cli_harness.home


def told(world, name) -> list[tuple[int, int, bool]]:
    """The validity notifications about n1's chain at this member."""
    mine = [one for who, one in world.recounts() if who == name]
    assert all(one.author == world.did("n1") for one in mine)
    return [(one.after, one.upto, one.counts) for one in mine]


class Heard(Cut):
    """It records the validity notifications of its members."""

    def recounts(self) -> list[tuple[str, ValidityChanged]]:
        told: list[tuple[str, ValidityChanged]] = self.__dict__.setdefault("_recounts", [])
        return told

    def _perform(self, node: Any, effect: Any) -> None:
        if isinstance(notice := getattr(effect, "notification", None), ValidityChanged):
            self.recounts().append((node.name, notice))
        super()._perform(node, effect)


def silenced(members=3):
    """n0 makes n1 a reader, which n1 has not received when it posts something that n2 receives."""
    world = Heard(members, RULES)
    world.bring_in(*list(world.nodes)[1:])
    world.run(for_ms=5_000)
    world.post("n1", "a word")
    world.run(for_ms=60_000)  # until n0 knows that n2 has it, too
    world.deaf |= cut_off(world, "n0")
    world.run_command("n0", ChangeRole(world.id, world.did("n1"), "reader"))
    world.post("n1", "and another")
    world.run(for_ms=5_000)
    assert world.texts("n2") == ["a word", "and another"]
    world.deaf = set()
    world.run(for_ms=60_000)
    return world


def shown(world, name):
    """What this member's clients are shown: by text, whether it is invalid."""
    group = world.nodes[name].agent.groups[world.id]
    events = [load_event(row.record) for row in world.nodes[name].log if row.type == "post"]
    return {event.body["text"]: is_void(group, event) for event in events}


def test_an_author_is_notified_of_invalidated_posts():
    world = silenced()
    assert told(world, "n1") == [(1, 2, False)] and told(world, "n2") == [(1, 2, False)]
    assert not told(world, "n0"), "it was never shown them"
    assert shown(world, "n1") == shown(world, "n2") == {"a word": False, "and another": True}
    assert shown(world, "n0") == {"a word": False}


def test_posts_as_a_reader_stay_invalid_after_promotion():
    world = silenced(4)
    world.recounts().clear()
    world.run_command("n0", ChangeRole(world.id, world.did("n1"), "writer"))
    world.run(for_ms=20_000)
    assert not told(world, "n1"), "from now on it may, and what it said in between does not count"
    assert shown(world, "n1")["and another"]
    world.post("n1", "again")
    world.run(for_ms=20_000)
    assert not shown(world, "n2")["again"]


def test_a_void_demotion_restores_validity():
    """A member that received the role before it became void has marked the posts; so it is notified."""
    world = remove_each_other(kind=Heard)
    assert world.run(lambda: world.texts("n2") == ["what counts", "and so does this"], for_ms=120_000)
    assert (0, 2, True) in [(one.after, one.upto, one.counts) for who, one in world.recounts() if who == "n2"]
    assert shown(world, "n2") == {"what counts": False, "and so does this": False} == shown(world, "n1")


def test_a_removed_members_last_posts_are_invalid():
    world = Heard(4, RULES)
    world.bring_in("n1", "n2", "n3")
    world.run(for_ms=5_000)
    world.deaf |= cut_off(world, "n0")
    world.run_command("n0", RemoveMember(world.id, world.did("n1")))
    world.post("n1", "still here")
    world.run(for_ms=5_000)
    assert world.texts("n2") == ["still here"]
    world.deaf = set()
    assert world.run(lambda: bool(told(world, "n2")), for_ms=60_000)
    world.run(for_ms=20_000)
    for name in ("n1", "n2", "n3"):
        assert told(world, name) == [(0, 1, False)] and shown(world, name) == {"still here": True}, name


@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key"])
@pytest.mark.parametrize("voters", [("n0", "n1"), ("n1", "n0")])
def test_posts_that_the_voters_have_count_after_a_removal(voters, keys):
    world = Heard(3)
    world.id = world.run_command("n0", CreateGroup("walkers", "n0", world.envelope, keys, Policy())).result.group
    world.bring_in("n1", "n2")
    world.run(for_ms=20_000)
    world.post("n2", "known to all")
    world.run(for_ms=1_000)
    for name in voters:
        world.run_command(name, RemoveMember(world.id, world.did("n2")))
        world.run(for_ms=1_000)
    for name in voters:
        assert world.did("n2") not in world.nodes[name].agent.groups[world.id].view.members
        assert shown(world, name) == {"known to all": False}


def test_a_membership_event_is_never_void():
    world = Heard(3, RULES)
    world.bring_in("n1", "n2")
    world.run(for_ms=5_000)
    (row, *_) = [row for row in world.nodes["n1"].log if row.author == world.did("n0")]
    group = world.nodes["n1"].agent.groups[world.id]
    member = replace(group.view.members[world.did("n0")], until=0)
    out = replace(group, view=replace(group.view, members={}, former={world.did("n0"): member}))
    event = load_event(row.record)
    assert event.is_control and not is_void(out, event)
    assert is_void(out, replace(event, type="post"))
    nobody = replace(out, view=replace(out.view, former={}))
    assert not is_void(nobody, replace(event, type="post")), "of somebody who is not known here"


def test_membership_events_alone_cause_no_notification(tmp_path, monkeypatch):
    """A change of the display name alone has no validity."""
    world = Heard(3, RULES)
    world.bring_in("n1", "n2")
    world.run(for_ms=5_000)
    world.deaf |= cut_off(world, "n0")
    world.run_command("n0", ChangeRole(world.id, world.did("n1"), "reader"))
    world.run_command("n1", ChangeLabel(world.id, "another"))
    world.run(for_ms=5_000)
    world.deaf = set()
    world.run(for_ms=60_000)
    [(after, upto, counts)] = told(world, "n2")
    assert not counts
    served = Served(tmp_path, world, "n2", monkeypatch)
    news = ValidityChanged(world.id, world.did("n1"), after, upto, counts)
    served.call("subscribe")
    served.handlers.notify([news], world.nodes["n2"].agent)
    assert not [method for _, method, _ in served.server.news if method in ("validity_changed", "message_changed")]


def test_invalidated_posts_are_updated(tmp_path, monkeypatch):
    world = silenced()
    served = Served(tmp_path, world, "n2", monkeypatch)
    served.call("subscribe")
    served.handlers.notify([ValidityChanged(world.id, world.did("n1"), 1, 2, False)], world.nodes["n2"].agent)
    told_ = [
        (method, params)
        for _, method, params in served.server.news
        if method in ("validity_changed", "message_changed")
    ]
    assert [method for method, _ in told_] == ["validity_changed", "message_changed"]
    assert told_[0][1].nick == "n1" and not told_[0][1].author_removed and not told_[0][1].mine
    event = told_[1][1].event
    assert (event.body["text"], event.void) == ("and another", True)


def view(*roles, until=None):
    class Known:
        def __init__(self):
            self.member = Member("did", "n", "contact", 1, None, bytes(32), roles, "by", until)

        def known(self, did):
            return self.member if did == "did" else None

    return Known()


WRITES, READS = (0, "writer"), (4, "reader")


@pytest.mark.parametrize(
    ("before", "after", "upto", "found"),
    [
        (view(WRITES), view(WRITES), 9, []),
        (view(WRITES), view(WRITES, READS), 9, [(4, 9, False)]),
        (view(WRITES, READS), view(WRITES), 9, [(4, 9, True)]),
        (view(WRITES), view(WRITES, READS), 4, []),
        (view(WRITES), view(WRITES, READS), 0, []),
        (view(WRITES), view(WRITES, READS, (6, "writer")), 9, [(4, 6, False)]),
        (view(WRITES, READS), view(WRITES, READS, (6, "writer")), 9, [(6, 9, True)]),
        (view(WRITES), view(WRITES, READS, until=6), 9, [(4, 9, False)]),
        (view(WRITES, until=5), view(WRITES), 9, [(5, 9, True)]),
        (view(WRITES), view(WRITES, until=0), 2, [(0, 2, False)]),
    ],
)
def test_positions_of_a_chain_whose_validity_changes(before, after, upto, found):
    assert list(validity_changes(before, after, "did", upto)) == found
    assert list(validity_changes(before, after, "somebody else", upto)) == []


def test_the_validity_sentences():
    news = ValidityNotification(
        group="g", author="did", nick="bob", mine=False, author_removed=False, after=1, upto=2, valid=False
    )

    def said(**changes: Any) -> str:
        return delivery.notification_sentence(replace(news, **changes), str, str)

    note, known = delivery.VOID_NOTE, "they were known to have reached others"
    assert said() == f"The last events of bob here do not count: the author was made a reader before {known}. {note}"
    assert (
        said(author_removed=True)
        == f"The last events of bob here do not count: the author was removed before {known}. {note}"
    )
    assert said(mine=True) == f"Your last events here do not count: you were made a reader before {known}. {note}"
    assert said(valid=True) == "The last events of bob here count after all."
    assert said(valid=True, mine=True) == "Your last events here count after all."


def test_void_posts_are_marked_on_the_screen(tmp_path: Path) -> None:
    async def look() -> None:
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station", "✓1/2")
            group = it.agent.groups["g1"]
            me = group.members[0]
            mine = next(event for event in group.events if event.self and event.type == "message")
            news = ValidityNotification(
                group="g1",
                author=me.did,
                nick="me",
                mine=True,
                author_removed=False,
                after=0,
                upto=mine.position,
                valid=False,
            )
            it.agent.tell("validity_changed", news)
            it.agent.tell("message_changed", MessageChanged(replace(mine, void=True)))
            await it.shows("void")
            await it.gone("✓1/2")
            await it.until(lambda: "Your last events here do not count" in f"{it.text} {it.told()}")
            it.agent.tell("validity_changed", replace(news, valid=True))
            it.agent.tell("message_changed", MessageChanged(mine))
            await it.shows("✓1/2", "count after all")

    play(look())


def test_void_posts_are_marked_on_the_command_line(run: Any, agent: Any) -> None:
    void = cli_harness.event(7, cli_harness.ALICE, "alice", self=True, body={"text": "hello"})
    agent(get_history=lambda _: History([replace(void, void=True)], False), list_groups=lambda _: [cli_harness.HIKERS])
    assert "hello  (void: not shown to all members)" in run("history hikers")[1]
    liked = cli_harness.event(
        8, cli_harness.ALICE, "alice", type="reacted", body={"target": void.id, "emoji": "👍", "on": True}
    )
    lines = EventText(annotations=True).lines(replace(liked, void=True))
    assert lines[0].endswith("(void: not shown to all members)")
