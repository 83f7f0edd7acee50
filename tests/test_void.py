"""Who may not write any more, and says something before it can have heard that: it and the others are told that that
does not count, wherever it is shown."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests import test_cli
from tests.pilot import run as play
from tests.pilot import scene, weekend
from tests.test_history import Cut
from tests.test_unheard import RULES, cut_off, feud
from zerochat.agent import report, telling
from zerochat.agent.schema import History, RecountedNews
from zerochat.group.event import load_event
from zerochat.group.membership import Member, recounted
from zerochat.group.notices import Recounted
from zerochat.group.stimuli import ChangeRole, RemoveMember

agent, run, home = test_cli.agent, test_cli.run, test_cli.home


def told(world, name) -> list[tuple[int, int, bool]]:
    """What this one was told of what n1 has said."""
    return [(one.after, one.upto, one.counts) for who, one in world.recounts() if who == name]


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
    return {event.body["text"]: report._is_void(group, event) for event in events}


def test_an_author_is_told_that_its_last_words_do_not_count():
    world = silenced()
    assert told(world, "n1") == [(1, 2, False)] and told(world, "n2") == [(1, 2, False)]
    assert not told(world, "n0"), "it was never shown them"
    assert shown(world, "n1") == shown(world, "n2") == {"a word": False, "and another": True}
    assert shown(world, "n0") == {"a word": False}


def test_what_counts_after_all_is_told_too():
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
    world = feud()
    assert world.run(lambda: world.texts("n2") == ["what counts", "and so does this"], for_ms=120_000)
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
    assert told(world, "n2") == [(0, 1, False)] and shown(world, "n2") == {"still here": True}


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
        (view(WRITES), view(WRITES, READS, until=6), 9, [(4, 6, False), (6, 9, False)]),
        (view(WRITES, until=5), view(WRITES), 9, [(5, 9, True)]),
        (view(WRITES), view(WRITES, until=0), 2, [(0, 2, False)]),
    ],
)
def test_which_places_of_a_chain_count_otherwise(before, after, upto, found):
    assert list(recounted(before, after, "did", upto)) == found
    assert list(recounted(before, after, "somebody else", upto)) == []


def test_each_is_told_in_words():
    news = RecountedNews(group="g", author="did", nick="bob", mine=False, after=1, upto=2, counts=False)

    def said(**changes: Any) -> str:
        return telling.news(replace(news, **changes), str, str)

    assert said().startswith("bob could not write here any more when it said its last words.")
    assert said(mine=True).startswith("You could not write here any more when you said your last words.")
    assert "not shown them, a ✓ or not" in said() and "not shown them, a ✓ or not" in said(mine=True)
    assert said(counts=True) == "What bob has said last counts after all: whoever has left it out gets it again."
    assert said(mine=True, counts=True).startswith("What you have said last counts after all")


def test_on_the_screen_void_stands_beside_it(tmp_path: Path) -> None:
    async def look() -> None:
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station", "✓1/2")
            group = it.agent.groups["g1"]
            me, bob = group.members[:2]
            mine = next(event for event in group.events if event.self and event.type == "message")
            news = RecountedNews(
                group="g1",
                author=me.did,
                nick="me",
                mine=True,
                after=mine.position - 1,
                upto=mine.position,
                counts=False,
            )
            it.agent.tell("recounted", news)
            await it.shows("void", "You could not write here any more")
            await it.gone("✓1/2")
            it.agent.tell("recounted", replace(news, counts=True))
            await it.shows("✓1/2", "counts after all")
            it.agent.tell("recounted", replace(news, author=bob.did, nick="bob", mine=False, after=900, upto=901))
            it.agent.say(group, 2, "and nothing of that is here", minute=8)
            await it.shows("and nothing of that is here")
            assert "bob could not write" not in it.text, "none of it is shown"

    play(look())


def test_on_the_command_line_it_stands_behind_it(run: Any, agent: Any) -> None:
    void = test_cli.event(7, test_cli.ALICE, "alice", self=True, body={"text": "hello"})
    agent(history=lambda _: History([replace(void, void=True)], False), groups=lambda _: [test_cli.HIKERS])
    assert "hello  (void: not everybody is shown it)" in run("history hikers")[1]
