"""Message actions in the chat over real agents."""

from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import meet, until
from tests.support.tui_pilot import Scene, run
from zerochat.tui.app import ZerochatApp

people = agents.people
pytestmark = pytest.mark.usefixtures("utc")


def messages(person: Any) -> dict[str, Any]:
    """The messages that there are, by their text."""
    found = (one for one in person.client.get_history("friends", limit=500).events if one.type == "message")
    return {"(deleted)" if one.deleted else one.body["text"]: one for one in found}


@pytest.mark.slow
def test_message_actions_reach_other_members(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    bob.client.send_message("friends", "shall we go, @alice?")
    until(lambda: "shall we go, @alice?" in messages(alice), "the question")

    async def play() -> None:
        app = ZerochatApp(alice.places.socket)
        app.animation_level = "none"
        async with app.run_test(size=(150, 30), notifications=True) as pilot:
            it = Scene(None, app, pilot)
            await it.shows("┃ shall we go, @alice?")
            await it.press("f6", "r")
            await it.shows("Replying to bob: shall we go, @alice?")
            await it.type("yes")
            await it.press("enter")
            await it.shows("│ bob: shall we go, @alice?", "│ yes")
            await it.until(lambda: "yes" in messages(bob))
            question, answer = messages(bob)["shall we go, @alice?"], messages(bob)["yes"]
            assert answer.reply_to == question.id

            await it.say("/react tada")
            await it.shows("[🎉 1]")
            await it.until(lambda: [each.emoji for each in messages(bob)["yes"].reactions] == ["🎉"])
            bob.client.react("friends", question.id, "👍")
            await it.shows("👍 1")

            await it.press("f6", "e")
            await it.shows("Editing: yes")
            await it.type(", at *nine*")
            await it.press("enter")
            await it.shows("yes, at nine (edited)")
            await it.until(lambda: "yes, at *nine*" in messages(bob))
            bob.client.edit_message("friends", question.id, "shall we walk?")
            await it.shows("shall we walk? (edited)", "│ bob: shall we walk?")

            await it.say("/me waves")
            await it.shows("*   alice waves")
            await it.until(lambda: "waves" in messages(bob) and messages(bob)["waves"].action)
            await it.say("/topic the walk")
            await it.shows("friends  the walk", "alice changed the topic: the walk")
            await it.until(lambda: bob.client.list_groups()[0].topic == "the walk")

            await it.press("f6", "i")
            await it.shows("Message info", "1 of 1")
            await it.press("escape", "d")
            await it.shows("Copies that others", "have kept or saved elsewhere cannot be taken back.")
            await it.press("y")
            await it.shows("* ▌ alice (deleted)")
            await it.until(lambda: "(deleted)" in messages(bob))
            bob.client.delete_message("friends", question.id)
            await it.shows("│ bob: (deleted)")
            await it.press("escape")
            await it.say("/edit of nobody else")  # The newest of mine that is there still.
            await it.shows("of nobody else (edited)")

    run(play())
    told = {one.id: (one.body, one.deleted, len(one.reactions)) for one in messages(alice).values()}
    until(
        lambda: told == {one.id: (one.body, one.deleted, len(one.reactions)) for one in messages(bob).values()},
        "the same",
    )
