"""`/mediator` in the terminal application."""

from msgspec.structs import replace

from tests.support.fake_agent import URL, Refusal
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.rpc import ConnectionNotification
from zerochat.tui.actions import mediators

LINK = "https://relay.example/?_oob=eyJ0eXBlIjoib29iIn0"


def test_a_mediator_is_added_listed_and_removed(tmp_path):
    granted = "relay now stores messages for you while you are offline; the members of your groups are informed."

    async def play():
        async with scene(tmp_path, size=(120, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/mediator")
            await it.shows(
                "You have no mediator: nothing is stored while you are offline. Add one with /mediator LINK."
            )
            await it.say(f"/mediator {LINK}")
            await it.until(lambda: asked(it.agent, "open_connection"))
            assert asked(it.agent, "open_connection") == [
                {"invitation": LINK, "name": "", "mediate": True, "documents": {}}
            ]
            await it.shows("Asking the mediator…")
            it.agent.connections[0] = replace(
                it.agent.connections[0], label="relay", state="established", mediator="granted", reachable=True
            )
            it.agent.tell("connection_changed", ConnectionNotification(connection="c1", text=granted))
            await it.shows("relay now stores messages for you")
            await it.say("/route")
            await it.shows("Mediators", "stores your messages (c1)")
            await it.press("escape")
            await it.say("/mediator remove archive")
            await it.shows("No mediator is called archive. /mediator lists them with their ids.")
            assert it.composer.text == "/mediator remove archive"
            await it.say("/mediator remove relay")
            await it.shows("Remove the mediator relay?")
            await it.press("y")
            await it.shows("Removed the mediator relay; the members of your groups are notified.")
            assert it.agent.connections == []

    run(play())


def test_removing_the_last_route_of_a_hidden_profile_is_warned_of(tmp_path):
    async def play():
        async with scene(tmp_path, size=(120, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say(f"/mediator {LINK}")
            await it.until(lambda: asked(it.agent, "open_connection"))
            it.agent.connections[0] = replace(it.agent.connections[0], label="relay", mediator="granted")
            it.agent.cut_off = True
            await it.say("/mediator remove relay")
            await it.shows("Without it nothing can be")
            await it.press("y")
            await it.shows("Removed the mediator relay. Nothing can leave until there is a route")

    run(play())


def test_a_mediator_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(mediators, "ANSWER_S_MAX", 0.05)

    async def play():
        async with scene(tmp_path, size=(120, 24), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say(f"/mediator {LINK}")
            await it.shows("No answer from somebody yet. The agent keeps asking; check /mediator later.")
            it.agent.refuse["open_connection"] = Refusal("This is not an invitation of a mediator.")
            await it.say(f"/mediator {URL}")
            await it.shows("This is not an invitation of a mediator.")
            assert it.composer.text == f"/mediator {URL}", "to be corrected"

    run(play())
