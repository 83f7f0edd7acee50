"""Who may not write any more, and says something before it can have heard that: it and the others are told that that
does not count, wherever it is shown."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli import test_cli
from tests.group.test_delivery import Served
from tests.group.test_history import Cut
from tests.group.test_reinstated_posts import RULES, cut_off, feud
from tests.support.tui_pilot import run as play
from tests.support.tui_pilot import scene, weekend
from zerochat.agent.views import core_state
from zerochat.cli.output import EventText
from zerochat.group.event_log.event import load_event
from zerochat.group.inputs import ChangeLabel, ChangeRole, RemoveMember
from zerochat.group.membership import Member, recounted
from zerochat.group.notifications import Recounted
from zerochat.presentation import delivery
from zerochat.rpc import Amended, History, RecountedNews

agent, run, home = test_cli.agent, test_cli.run, test_cli.home


def told(world, name) -> list[tuple[int, int, bool]]:
    """What this one was told of n1's chain, and of nobody else's."""
    mine = [one for who, one in world.recounts() if who == name]
    assert all(one.author == world.did("n1") for one in mine)
    return [(one.after, one.upto, one.counts) for one in mine]


class Heard(Cut):
    """It remembers what its members are told of what counts."""

    def recounts(self) -> list[tuple[str, Recounted]]:
        told: list[tuple[str, Recounted]] = self.__dict__.setdefault("_recounts", [])
        return told

    def _perform(self, node: Any, effect: Any) -> None:
        if isinstance(notice := getattr(effect, "notice", None), Recounted):
            self.recounts().append((node.name, notice))
        super()._perform(node, effect)


def silenced(members=3):
    """n0 has n1 only read, of which n1 has not heard when it says something that n2 hears."""
    world = Heard(members, RULES)
    world.bring_in(*list(world.nodes)[1:])
    world.run(for_ms=5_000)
    world.post("n1", "a word")
    world.run(for_ms=60_000)  # until n0 knows that n2 has it, too
    world.deaf |= cut_off(world, "n0")
    world.ask("n0", ChangeRole(world.id, world.did("n1"), "reader"))
    world.post("n1", "and another")
    world.run(for_ms=5_000)
    assert world.texts("n2") == ["a word", "and another"]
    world.deaf = set()
    world.run(for_ms=60_000)
    return world


def shown(world, name):
    """What this one's faces are shown: by text, whether it does not count."""
    group = world.nodes[name].agent.groups[world.id]
    events = [load_event(row.record) for row in world.nodes[name].log if row.type == "post"]
    return {event.body["text"]: core_state._is_void(group, event) for event in events}


def test_an_author_is_told_that_its_last_words_do_not_count():
    world = silenced()
    assert told(world, "n1") == [(1, 2, False)] and told(world, "n2") == [(1, 2, False)]
    assert not told(world, "n0"), "it was never shown them"
    assert shown(world, "n1") == shown(world, "n2") == {"a word": False, "and another": True}
    assert shown(world, "n0") == {"a word": False}


def test_what_was_said_meanwhile_does_not_count_when_its_author_may_write_again():
    world = silenced(4)
    world.recounts().clear()
    world.ask("n0", ChangeRole(world.id, world.did("n1"), "writer"))
    world.run(for_ms=20_000)
    assert not told(world, "n1"), "from now on it may, and what it said in between does not count"
    assert shown(world, "n1")["and another"]
    world.post("n1", "again")
    world.run(for_ms=20_000)
    assert not shown(world, "n2")["again"]


def test_a_role_that_never_counted_takes_it_back():
    """Who had heard of the role before it was void has marked what it heard; so it is told."""
    world = feud(kind=Heard)
    assert world.run(lambda: world.texts("n2") == ["what counts", "and so does this"], for_ms=120_000)
    assert (0, 2, True) in [(one.after, one.upto, one.counts) for who, one in world.recounts() if who == "n2"]
    assert shown(world, "n2") == {"what counts": False, "and so does this": False} == shown(world, "n1")


def test_the_last_words_of_whoever_is_put_out_do_not_count():
    world = Heard(4, RULES)
    world.bring_in("n1", "n2", "n3")
    world.run(for_ms=5_000)
    world.deaf |= cut_off(world, "n0")
    world.ask("n0", RemoveMember(world.id, world.did("n1")))
    world.post("n1", "still here")
    world.run(for_ms=5_000)
    assert world.texts("n2") == ["still here"]
    world.deaf = set()
    assert world.run(lambda: bool(told(world, "n2")), for_ms=60_000)
    world.run(for_ms=20_000)
    for name in ("n1", "n2", "n3"):
        assert told(world, name) == [(0, 1, False)] and shown(world, name) == {"still here": True}, name


def test_a_membership_event_is_never_void():
    world = Heard(3, RULES)
    world.bring_in("n1", "n2")
    world.run(for_ms=5_000)
    (row, *_) = [row for row in world.nodes["n1"].log if row.author == world.did("n0")]
    group = world.nodes["n1"].agent.groups[world.id]
    member = replace(group.view.members[world.did("n0")], until=0)
    out = replace(group, view=replace(group.view, members={}, former={world.did("n0"): member}))
    event = load_event(row.record)
    assert event.is_control and not core_state._is_void(out, event)
    assert core_state._is_void(out, replace(event, type="post"))
    nobody = replace(out, view=replace(out.view, former={}))
    assert not core_state._is_void(nobody, replace(event, type="post")), "of somebody who is not known here"


def test_nothing_is_told_where_only_membership_events_stand(tmp_path, monkeypatch):
    """Whoever only took another name has said nothing that could count or not."""
    world = Heard(3, RULES)
    world.bring_in("n1", "n2")
    world.run(for_ms=5_000)
    world.deaf |= cut_off(world, "n0")
    world.ask("n0", ChangeRole(world.id, world.did("n1"), "reader"))
    world.ask("n1", ChangeLabel(world.id, "another"))
    world.run(for_ms=5_000)
    world.deaf = set()
    world.run(for_ms=60_000)
    [(after, upto, counts)] = told(world, "n2")
    assert not counts
    served = Served(tmp_path, world, "n2", monkeypatch)
    news = Recounted(world.id, world.did("n1"), after, upto, counts)
    served.call("subscribe")
    served.desk.tell([news], world.nodes["n2"].agent)
    assert not [method for _, method, _ in served.server.news if method in ("recounted", "amended")]


def test_what_does_not_count_is_told_anew(tmp_path, monkeypatch):
    world = silenced()
    served = Served(tmp_path, world, "n2", monkeypatch)
    served.call("subscribe")
    served.desk.tell([Recounted(world.id, world.did("n1"), 1, 2, False)], world.nodes["n2"].agent)
    told_ = [(method, params) for _, method, params in served.server.news if method in ("recounted", "amended")]
    assert [method for method, _ in told_] == ["recounted", "amended"]
    assert told_[0][1].nick == "n1" and not told_[0][1].out and not told_[0][1].mine
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
def test_which_places_of_a_chain_count_otherwise(before, after, upto, found):
    assert list(recounted(before, after, "did", upto)) == found
    assert list(recounted(before, after, "somebody else", upto)) == []


def test_each_is_told_in_words():
    news = RecountedNews(group="g", author="did", nick="bob", mine=False, out=False, after=1, upto=2, counts=False)

    def said(**changes: Any) -> str:
        return delivery.news(replace(news, **changes), str, str)

    rest = "Not everybody is shown them, and newcomers do not get them."
    assert said() == f"What bob said last here does not count: it was made a reader as of before that. {rest}"
    assert said(out=True) == f"What bob said last here does not count: it was put out as of before that. {rest}"
    assert said(mine=True) == f"Your last words here do not count: you were made a reader as of before that. {rest}"
    assert said(counts=True) == "What bob said last here counts after all."
    assert said(counts=True, mine=True) == "What you said last here counts after all."


def test_on_the_screen_void_stands_beside_it(tmp_path: Path) -> None:
    async def look() -> None:
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station", "✓1/2")
            group = it.agent.groups["g1"]
            me = group.members[0]
            mine = next(event for event in group.events if event.self and event.type == "message")
            news = RecountedNews(
                group="g1", author=me.did, nick="me", mine=True, out=False, after=0, upto=mine.position, counts=False
            )
            it.agent.tell("recounted", news)
            it.agent.tell("amended", Amended(replace(mine, void=True)))
            await it.shows("void")
            await it.gone("✓1/2")
            await it.until(lambda: "Your last words here do not count" in f"{it.text} {it.told()}")
            it.agent.tell("recounted", replace(news, counts=True))
            it.agent.tell("amended", Amended(mine))
            await it.shows("✓1/2", "counts after all")

    play(look())


def test_on_the_command_line_it_stands_behind_it(run: Any, agent: Any) -> None:
    void = test_cli.event(7, test_cli.ALICE, "alice", self=True, body={"text": "hello"})
    agent(history=lambda _: History([replace(void, void=True)], False), groups=lambda _: [test_cli.HIKERS])
    assert "hello  (void: not everybody is shown it)" in run("history hikers")[1]
    liked = test_cli.event(8, test_cli.ALICE, "alice", type="reacted", body={"of": void.id, "emoji": "👍", "on": True})
    lines = EventText(remarks=True).lines(replace(liked, void=True))
    assert lines[0].endswith("(void: not everybody is shown it)")
