"""The terminal application with a group of a thousand members: search, pages, and work that does not grow with them."""

import asyncio
import random
from itertools import count

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.fake_agent import STAMP
from tests.support.large_group import calls_of
from tests.support.tui_pilot import scene
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.presentation.name_list import OFFERED_MAX, NameList
from zerochat.presentation.search_text import fold
from zerochat.rpc import MemberInfo
from zerochat.tui.composer.arguments import names_for
from zerochat.tui.composer.completion import completions
from zerochat.tui.state import member_sync
from zerochat.tui.state.members import Members, rank_of

MANY = 1_000
SMALL = 100
"""More than one page."""


def crowd(count):
    def setting(agent):
        group = agent.add_group("club", [f"member {at:03}" for at in range(count - 1)])
        for at in range(3):
            agent.post(group, 0, f"mine {at}", minute=at, delivered=at)

    return setting


def requests_of(agent, method):
    return [params for asked, params in agent.asked if asked == method]


async def at_rest(it):
    """All members are loaded and nothing is under way."""
    await it.until(lambda: it.open is not None and it.open.loaded and len(it.open.members) == it.open.info.members)
    await it.until(lambda: it.app.chat.feed._refreshing is None and not it.app.chat.feed.stale)
    await it.pilot.pause()


def test_the_member_list_shows_a_page_and_more_on_request(tmp_path):
    async def run():
        async with scene(tmp_path, size=(140, 40), setting=crowd(MANY)) as it:
            await at_rest(it)
            found = it.app.chat.member_list
            assert found.option_count == MEMBER_PAGE_MAX + 1
            assert len(requests_of(it.agent, "list_members")) == MANY // MEMBER_PAGE_MAX + 1
            await it.say("/members")
            await it.until(lambda: found.has_focus)
            await it.press("end")
            await it.shows(f"↓ {MANY - MEMBER_PAGE_MAX} more")
            await it.press("enter")
            assert found.option_count == 2 * MEMBER_PAGE_MAX + 1
            assert found.highlighted == MEMBER_PAGE_MAX

    asyncio.run(run())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/new club", []),
        ("/new club --", ["club --kind "]),
        ("/new club --kind la", ["club --kind large"]),
        ("/new the club --kind c", ["the club --kind classic-multi", "the club --kind classic-single"]),
        ("/new club --keep", []),
    ],
)
def test_the_kind_of_a_new_group_is_completed(typed, offered):
    assert names_for(typed, ["ann"]) == offered


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
@pytest.mark.parametrize("path", ["ring", "mesh"])
def test_the_overlay_shows_every_link(tmp_path, size, path):
    def setting(agent):
        crowd(SMALL if path == "ring" else 30)(agent)
        for group in agent.groups.values():
            group.info = replace(group.info, path=path)

    async def run():
        async with scene(tmp_path, size=size, setting=setting) as it:
            await at_rest(it)
            await it.say("/overlay")
            if path == "ring":
                await it.shows(
                    "Overlay of club", "Ring of 100 members: you are linked to 13", "successors", "member 000"
                )
                last = "member 012"
            else:
                await it.shows("Overlay of club", "Mesh: direct connections to all 29 others", "member 000")
                last = "member 028"
            if last not in it.text:
                await it.press("end")
            await it.shows(last, "received 2")
            await it.press("escape")
            await it.gone("Overlay of club")

    asyncio.run(run())


@pytest.mark.parametrize("size", [(120, 30), (200, 50)])
def test_members_that_are_no_neighbours_are_not_shown_as_absent(tmp_path, size):
    def setting(agent):
        crowd(SMALL)(agent)
        for group in agent.groups.values():
            group.info = replace(group.info, path="ring", forwards=True, connected=12)
            group.members[1:] = [
                replace(one, connection="connected" if at < 12 else "indirect", via="link" if at < 12 else "")
                for at, one in enumerate(group.members[1:])
            ]

    async def run():
        async with scene(tmp_path, size=size, setting=setting) as it:
            await at_rest(it)
            await it.shows("100 members over 12 links", "● member 011", "◦ member 012")
            assert "unreachable" not in it.text
            await it.say("/members member 012")
            await it.shows("none; its messages come over other members")
            await it.press("escape")

    asyncio.run(run())


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_members_are_found_by_a_part_of_the_name(tmp_path, size):
    async def run():
        async with scene(tmp_path, size=size, setting=crowd(MANY)) as it:
            await at_rest(it)
            await it.say("/members ber 99")
            await it.shows("9 of 1,000", "member 990", "member 995")
            await it.press("8")
            await it.shows("1 of 1,000")
            await it.press("enter")
            await it.shows("Read all eight words")
            assert it.app.screen._now().nick == "member 998"
            await it.press("escape")
            await it.say("/members 123")  # the only one
            await it.shows("Read all eight words")
            await it.press("escape")
            await it.say("/members nobody")
            await it.until(lambda: "No member is called nobody" in it.told())
            await it.say("/members")
            await it.until(lambda: it.app.chat.member_list.has_focus)
            await it.press("slash")
            await it.shows("Members of club: 1,000")
            await it.press("pagedown", "down", "escape")
            await it.gone("Members of club")

    asyncio.run(run())


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_the_recipients_come_in_pages(tmp_path, size):
    async def run():
        async with scene(tmp_path, size=size, setting=crowd(300)) as it:
            await at_rest(it)
            group = it.agent.groups["g1"]
            it.agent.change(group, group.events[-1].id, delivery=replace(group.events[-1].delivery, delivered=214))
            await it.say("/delivery")
            await it.shows("Delivered to 214 of 299", "1 to 64", "member 214")
            await it.press("n")
            await it.shows("65 to 128", "member 278")
            await it.press("n", "n", "n")
            await it.shows("257 to 299", "member 171")
            assert "n next" not in it.text
            await it.press("n", "p")
            await it.shows("193 to 256")
            await it.press("slash")
            await it.shows("Find a recipient")
            await it.type("ber 29")
            await it.press("enter")
            await it.shows("“ber 29”", "1 to 9", "Delivered to 214 of 299")
            await it.press("escape")
            await it.gone("Delivered to 214")

    asyncio.run(run())


def test_a_large_group_is_not_loaded_again_for_each_event(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.state.feed.REFRESH_EVERY_S", 0.05)

    async def run():
        async with scene(tmp_path, size=(140, 40), setting=crowd(MANY)) as it:
            await at_rest(it)
            group, agent = it.agent.groups["g1"], it.agent
            group.members[1:] = [replace(one, via="mediator") for one in group.members[1:]]
            await it.app.chat.feed.read_members(it.open, whole=True)
            agent.asked.clear()
            agent.peer(group, 5, False)
            await it.until(lambda: it.open.member(group.members[5].did).connection == "unreachable")
            for at in range(300):
                agent.receipt(group, at + 1, 3, 2)
            await it.until(lambda: not it.app.chat.link.waiting)
            await at_rest(it)
            asked = requests_of(agent, "list_members")
            assert all(params["dids"] for params in asked)
            assert sum(len(params["dids"]) for params in asked) <= 1 + 2 * 300
            agent.asked.clear()
            gone = group.members.pop(7)
            group.info = replace(group.info, members=MANY - 1)
            agent.arrive(group, agent._log(group, 0, "member_removed", {"did": gone.did, "nick": gone.nick}))
            agent.view(group)
            await it.until(lambda: it.open.member(gone.did) is None)
            assert all(params["dids"] for params in requests_of(agent, "list_members"))
            monkeypatch.setattr(member_sync, "WHOLE_EVERY_S", 0.0)
            agent.view(group)
            await it.until(lambda: any(not params["dids"] for params in requests_of(agent, "list_members")))

    asyncio.run(run())


def work_of_events(tmp_path, members):
    """How many functions are called for some live events, by their kinds, and for drawing the lists."""
    found = {}

    async def run():
        async with scene(tmp_path, size=(140, 40), setting=crowd(members)) as it:
            await at_rest(it)
            chat, group, agent = it.app.chat, it.agent.groups["g1"], it.agent
            chat._draining = True  # this test handles the notifications itself

            lines = count(chat.link.line + 1)
            agent.tell = lambda method, value: chat.link._inbox.append(
                (next(lines), method, msgspec.Raw(msgspec.json.encode(value)))
            )
            causes = {
                "receipt": lambda: agent.receipt(group, 4, 3, 2),
                "message": lambda: agent.say(group, 9, "hello"),
                "typing": lambda: agent.typing(group, 8),
                "peer": lambda: agent.peer(group, 6, False),
            }
            for name, cause in [*causes.items()] * 2:  # the first time, caches are filled
                cause()
                found[name] = calls_of(chat.feed.drain)
                assert not chat.link.waiting
            one = replace(group.members[9], nick="another name", connection="unreachable")
            found["rename"] = calls_of(lambda: it.open.learn_members([one]))
            found["members"] = calls_of(chat.members_changed)
            found["lists"] = calls_of(chat.draw_lists)
            found["edited"] = calls_of(chat._edited)
            it.open.completion_names().starting("x")
            found["complete"] = calls_of(lambda: completions("hi @member 05", it.open.completion_names()))

    asyncio.run(run())
    return found


def test_no_event_takes_time_linear_in_the_members(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir(), large.mkdir()
    few, many = work_of_events(small, SMALL), work_of_events(large, MANY)
    assert {name for name in few if many[name] > 1.2 * few[name] + 40} == set(), (few, many)


# --- the indexes ----------------------------------------------------------------------------------------------------


def member(at, **fields):
    usual = {
        "did": f"did:key:z6Mk{at:04}",
        "nick": f"m{at}",
        "connection": "connected",
        "joined_at": STAMP.format(minute=1),
    }
    return MemberInfo(**{**usual, **fields})


@pytest.mark.parametrize("seed", range(20))
def test_the_index_is_that_of_the_members(seed):

    rng, known, plain = random.Random(seed), Members(), {}
    for _ in range(200):
        at = rng.randrange(12)
        if rng.random() < 0.2:
            known.remove([f"did:key:z6Mk{at:04}"])
            plain.pop(f"did:key:z6Mk{at:04}", None)
            continue
        one = member(
            at,
            nick=rng.choice(["anna", "ANNA", "bob", "аnna", f"m{at}"]),
            connection=rng.choice(["connected", "unreachable", *(["self"] * (at == 0))]),
            via=rng.choice(["", "mediator"]),
            trust=rng.choice(["unverified", "verified", "changed"]),
            verdicts=rng.choice([[], ["upheld"]]),
        )
        known.update([one])
        plain[one.did] = one
        others = [each for each in plain.values() if each.connection != "self"]
        assert [rank[-1] for rank in known.ranked] == [each.did for each in sorted(plain.values(), key=rank_of)]
        assert known.others == len(others) and known.trust["verified"] == sum(o.trust == "verified" for o in others)
        assert known.mailed == {each.did for each in plain.values() if each.via == "mediator"}
        assert known.changed.keys() == {each.did for each in plain.values() if each.trust == "changed"}
        assert known.convicted == {each.did for each in plain.values() if each.verdicts}
        fresh = Members()
        fresh.update(plain.values())
        assert +fresh.bearers == +known.bearers
        assert [fresh.name_warning(each) for each in plain.values()] == [known.name_warning(o) for o in plain.values()]
        page, more = known.page("an", 2)
        matching = [each for each in sorted(plain.values(), key=rank_of) if "an" in each.nick.casefold()]
        assert page == matching[:2] and more == max(len(matching) - 2, 0)


@pytest.mark.parametrize("seed", range(20))
def test_completion_by_bisection_finds_what_a_scan_finds(seed):

    rng = random.Random(seed)
    names = ["".join(rng.choice("aAbé ") for _ in range(rng.randint(1, 6))) for _ in range(rng.choice([3, 40, 400]))]
    known = NameList(names)
    for _ in range(60):
        typed = "".join(rng.choice("aAbé ") for _ in range(rng.randint(0, 3)))
        scanned = [name for name in names if fold(name).startswith(fold(typed))]
        found = known.starting(typed)
        assert set(found) <= {*scanned} and (found == scanned or len(scanned) > OFFERED_MAX == len(found))
        if scanned:
            assert common_prefix_of(found) == common_prefix_of(scanned)
        assert sorted(known.heading(typed)) == sorted(n for n in names if fold(typed).startswith(f"{fold(n)} "))


def common_prefix_of(names):
    start = fold(names[0])
    while not all(fold(name).startswith(start) for name in names):
        start = start[:-1]
    return start
