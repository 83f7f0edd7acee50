"""Upgrading and renewing the keys of a group in the terminal application."""

import pytest
from msgspec.structs import replace

from tests.support.tui_pilot import HOSTILE, asked, assert_harmless, run, scene, weekend
from zerochat.rpc import UpgradeInfo


def upgradable(needed, allowed=True):
    def setting(agent):
        weekend(agent)
        for group in agent.groups.values():
            upgrade = UpgradeInfo(keys="dcgka", votes=0, needed=needed, allowed=allowed)
            group.info = replace(group.info, keys="pairwise-multi", upgrade=upgrade)

    return setting


def test_an_upgrade_is_confirmed(tmp_path):
    async def play():
        async with scene(tmp_path, setting=upgradable(1)) as it:
            await it.shows("seven at the station")
            await it.say("/upgrade")
            await it.shows("Upgrade the keys of weekend from pairwise-multi", "It cannot be undone.")
            await it.press("n")
            assert not asked(it.agent, "upgrade_group")
            await it.say("/upgrade")
            await it.shows("It cannot be undone.")
            await it.press("y")
            await it.until(lambda: it.open.info.keys == "dcgka")
            await it.until(lambda: "weekend: Your messages here are signed" in it.told())
            await it.until(lambda: str(it.composer.placeholder) == "Message weekend (messages are signed)")
            assert len(asked(it.agent, "upgrade_group")) == 1

    run(play())


def test_agreement_is_counted(tmp_path):
    async def play():
        async with scene(tmp_path, setting=upgradable(3)) as it:
            await it.shows("seven at the station")
            await it.say("/upgrade")
            await it.shows("It cannot be undone.")
            await it.press("y")
            await it.until(lambda: "weekend: 1 of 3 members agree, with you; two more needed." in it.told())
            assert it.open.info.keys == "pairwise-multi"

    run(play())


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"keys": "dcgka", "final": False}, "agrees to upgrade the keys to dcgka"),
        ({"keys": "dcgka", "final": True}, "upgraded the keys to dcgka, for good"),
        ({"keys": {"x": HOSTILE}, "final": HOSTILE}, "upgraded the keys to"),
        ({}, "agrees to upgrade the keys to"),
    ],
    ids=["agrees", "final", "hostile", "empty"],
)
def test_the_pane_tells_of_an_upgrade(tmp_path, body, shown):
    def setting(agent):
        weekend(agent)
        agent._log(agent.groups["g1"], 1, "keys_upgraded", body, minute=4)

    async def play():
        async with scene(tmp_path, size=(120, 24), setting=setting) as it:
            await it.shows("seven at the station", f"bob {shown}")
            assert_harmless(it.text)

    run(play())


def test_keys_are_renewed_at_once(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/rekey")
            await it.until(lambda: "New keys for weekend: your messages have them from now on" in it.told())
            assert len(asked(it.agent, "rekey_group")) == 1

    run(play())
