"""`/lan`: where members are looked for, which were found, on and off."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.support.tui_pilot import scene


def club(agent):
    agent.add_group("club", ["bob", "carol"])


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_members_nearby_are_listed_and_switched(tmp_path, size):
    async def run():
        async with scene(tmp_path, size=size, setting=club) as it:
            await it.shows("beginning of club")
            await it.say("/lan")
            await it.shows("Members nearby", "are not looked for", "wlan0 (192.0.2.0/24)")
            await it.press("escape")
            await it.say("/lan on")
            await it.shows("Members of 1 group are looked for; 2 were found", "192.0.2.7")
            await it.press("escape")
            await it.say("/lan off")
            await it.shows("are not looked for")
            await it.press("escape")
            await it.say("/lan maybe")
            await it.shows("Usage: /lan [on|off]")

    asyncio.run(run())


def test_the_member_list_says_who_is_nearby(tmp_path):
    def setting(agent):
        club(agent)
        for group in agent.groups.values():
            group.members = [replace(one, nearby=number == 1) for number, one in enumerate(group.members)]

    async def run():
        async with scene(tmp_path, size=(120, 30), setting=setting) as it:
            await it.shows("nearby")
            assert it.text.count("nearby") == 1

    asyncio.run(run())
