"""A small group of real agents on this machine's loopback, with enough activity to fill a screen.

Each agent has its own profile in a temporary folder, its own journal and its own sockets. Keys and times differ between
runs; the texts do not.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from zerochat.agent.api.client import Client, connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.rpc import Event, JoinStatus

GROUP = "hikers"
STEP_S_MAX = 60.0
NAMES = ("alice", "bob", "carol", "dave")
TABLE = "the list:\n- ropes, **two** of them\n- the _small_ stove\n> and who carries the tent?"
CODE = 'The track, if somebody wants it:\n```gpx\n<trkpt lat="46.5" lon="8.1">\n  <ele>2104</ele>\n```'
LONG = (
    "If it rains we take the other way, over https://weather.example/forecast/ridge?from=saturday&until=sunday&detail=all"
    " as it says, along the river, past the mill and up behind the chapel: longer by an hour, with a hut half way."
)
MAP_BYTES = 3_400_000
"""Above the automatic size, so that it is offered."""


class Person:
    """One member: an agent, which can be away, and a client of it."""

    client: Client

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.home = name, folder / name
        self.places = profile_paths(name, {"ZEROCHAT_HOME": str(self.home)})
        create_profile(self.places, name, None)
        self._thread: AgentThread | None = None

    def come(self) -> None:
        self._thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1")
        self._thread.start()
        self.client = connect(self.places, "tour")

    def go(self) -> None:
        if self._thread is not None:
            self.client.close()
            self._thread.stop()
            self._thread = None

    def texts(self, group: str = GROUP) -> dict[str, Event]:
        """The messages that it has, by their text."""
        found = self.client.get_history(group, limit=500).events
        return {str(each.body.get("text", "")): each for each in found if each.type == "message"}


class People:
    """The four members in their groups. Closing deletes everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self.alice, self.bob, self.carol, self.dave = self.all = [self._person(name) for name in NAMES]
            self._meet()
            self._talk()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _person(self, name: str) -> Person:
        person = Person(self._folder, name)
        self._stack.callback(person.go)
        person.come()
        return person

    def _join(self, host: Person, guest: Person, group: str) -> None:
        guest.client.subscribe()
        guest.client.join_group(host.client.create_invitation(group).code)
        for news in guest.client.notifications(STEP_S_MAX):
            if isinstance(news.params, JoinStatus) and news.params.phase in ("joined", "failed"):
                assert news.params.phase == "joined", news.params.text
                return
        raise TimeoutError(f"{guest.name} could not join {group}")

    def _meet(self) -> None:
        alice, bob, carol, dave = self.all
        alice.client.create_group("family")
        self._join(alice, carol, "family")
        alice.client.create_group(GROUP)
        for guest in (bob, carol, dave):
            self._join(alice, guest, GROUP)
        alice.client.create_group("the book club of the old town")
        alice.client.create_group("work")
        self._join(alice, bob, "work")
        until(lambda: all(self._sees_all(each) for each in self.all), "all see each other")

    def _sees_all(self, person: Person) -> bool:
        found = person.client.list_members(GROUP)
        met = all(one.connection in ("self", "connected") and one.view_matches is not False for one in found)
        return met and len(found) == len(self.all)

    def say(self, person: Person, text: str, *, reply_to: str | None = None, action: bool = False) -> str:
        """Wait until every connected member has it, so that the order is always the same."""
        sent = person.client.send_message(GROUP, text, reply_to=reply_to, action=action)
        here = [each for each in self.all if each._thread is not None]
        until(lambda: all(text in each.texts() for each in here), text)
        return sent.id

    def _talk(self) -> None:
        alice, bob, carol, dave = self.all
        carol.client.send_message("family", "Dinner on Sunday?")
        bob.client.send_message("work", "The build is green again.")
        alice.client.set_topic(GROUP, "Saturday: the ridge, if it stays dry")
        self.say(bob, "Morning! Is anybody up for the **ridge** on Saturday?")
        asked = self.say(alice, "Yes, if it stays dry. Who drives?")
        self.say(carol, "I do. May I pick you up at half past seven, @alice?", reply_to=asked)
        self.say(dave, "looks at the sky", action=True)
        self.say(bob, TABLE)
        self.say(carol, "日本語の地図もあります、山小屋は午後五時まで開いています。 Ünïcödé, 👩‍👩‍👧‍👦 and 🏔️ too.")
        self.say(dave, CODE)
        self.say(alice, "Then at ten, by the bridge.")
        self._late_word()
        alice, bob, carol, dave = self.all
        ten = alice.texts()["Then at ten, by the bridge."].id
        alice.client.edit_message(GROUP, ten, "Then at eight, by the bridge.")
        for person, emoji in ((bob, "👍"), (carol, "👍"), (dave, "☕")):
            person.client.react(GROUP, ten, emoji)
        alice.client.react(GROUP, bob.texts()[TABLE].id, "🎉")
        self.say(alice, LONG)
        self._send_files(bob)
        dave.go()
        self.say(alice, "Packed already.")
        until(lambda: alice.client.get_delivery(GROUP, "last").delivered == 2, "the last message is with two")

    def _late_word(self) -> None:
        """Carol posts while she is partitioned, and the others continue without her."""
        alice, bob, carol, dave = self.all
        for person in (alice, bob, dave):
            person.go()
        carol.client.send_message(GROUP, "On a train now, no network: I bring coffee for all of you!")
        carol.go()
        for person in (alice, bob, dave):
            person.come()
        self.say(bob, "I bring the map then.")
        self.say(dave, "And I the ropes.")
        carol.come()
        until(lambda: all("On a train" in "".join(each.texts()) for each in self.all), "the late word is everywhere")

    def _send_files(self, person: Person) -> None:
        paths = [self._folder / "the ridge from above.pdf", self._folder / "notes.txt"]
        paths[0].write_bytes(os.urandom(MAP_BYTES))
        paths[1].write_text("Water, bread, cheese.\n")
        person.client.send_files(GROUP, [str(each) for each in paths], "Here is the map")
        alice = self.alice
        until(
            lambda: any(f.file.state == "here" for f in alice.client.list_files(GROUP)), "the small file came by itself"
        )


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + STEP_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"this did not happen: {what}")
        time.sleep(0.05)
