"""Bots on real agents: over the control socket, in processes of their own, killed and terminated."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.support.agents import DEADLINE_S, meet, until
from tests.support.bot_processes import connected, consumer, environment, reached, running
from zerochat import Bot, Message, SyncBot, SyncMessage, rpc
from zerochat.agent.api.client_protocol import AgentError, ClientProtocol, Reply
from zerochat.bot.bot import store_path
from zerochat.bot.connection import ConsumerReplaced
from zerochat.bot.store import DeadLetter, Store
from zerochat.rpc import Event, Sent

APP = """
import os
from zerochat import Bot, Message

bot = Bot(name="worker", retries=())
log = os.open(os.environ["WORKED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@bot.command("work")
async def work(m: Message, number: int) -> None:
    await m.reply(f"done {number}")
    os.write(log, f"{m.seq}\\n".encode())


@bot.command("fail")
async def fail(m: Message) -> None:
    raise RuntimeError("no")


if __name__ == "__main__":
    bot.run()
"""


@pytest.fixture
def pair(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    return alice, bob


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "worker.py"
    path.write_text(APP)
    return path


def started(command, person, tmp_path) -> subprocess.Popen[bytes]:
    with (tmp_path / "bot.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *command], env=environment(person, tmp_path), stdout=log, stderr=log, cwd=tmp_path
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "commands", "kills"),
    [(0, 100, 4), *(pytest.param(seed, 1_250, 25, marks=pytest.mark.chaos) for seed in (1, 2, 3, 4))],
)
def test_killed_bot_handles_everything_and_sends_once(pair, app, tmp_path, seed, commands, kills):
    """An acknowledged event was handled or is spilled to disk; every command has one answer."""
    alice, bob = pair
    dice, worked = random.Random(seed), tmp_path / "worked"
    mine: set[str] = set()
    """The ids of the commands."""
    heard = Heard(bob)
    process = started([str(app)], bob, tmp_path)
    try:
        until(lambda: connected(bob), "the bot's beginning")
        share = commands // kills
        for life in range(kills):
            numbers = range(life * share, (life + 1) * share)
            mine |= say_all(alice, [f"!work {number}" for number in numbers])
            time.sleep(dice.random() * 0.6)
            process.send_signal(signal.SIGKILL)
            process.wait(20)
            acked = consumer(bob).acked
            handled = {int(line) for line in worked.read_text().split()} if worked.exists() else set()
            with Store(store_path(bob.places, "worker")) as store:
                waiting = store.spilled_ids()
            for event in heard.look():
                if event.id in mine and event.seq <= acked and event.id not in waiting:
                    assert event.seq in handled, f"{event.seq} was acknowledged and not handled"
            process = started([str(app)], bob, tmp_path)
            until(lambda: connected(bob), "the bot's next beginning")
        until(lambda: consumer(bob).behind == 0, "the end of the work", 120)
        last = Heard(alice)
        until(lambda: len(answers(last)) >= commands, "the last answer", 120)
        assert sorted(answers(last)) == sorted(f"done {number}" for number in range(commands))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, "it ends in good order when it is told to"
    finally:
        process.kill()
        process.wait()
    assert len(set(worked.read_text().split())) == commands


def say_all(person, texts) -> set[str]:
    """Say all of this at once; the ids."""
    dialogue, found = ClientProtocol(), set[str]()
    asked = b"".join(dialogue.request("send_message", {"group": "friends", "text": text})[1] for text in texts)
    with socket.socket(fileno=os.dup(person.client.fileno())) as connection:
        connection.settimeout(DEADLINE_S)
        connection.sendall(asked)
        while len(found) < len(texts):
            said = dialogue.receive(connection.recv(1 << 16))
            found |= {one.result.id for one in said if isinstance(one, Reply) and isinstance(one.result, Sent)}
    return found


class Heard:
    """The events of the group that an agent has, read page by page; what was read is not read again."""

    def __init__(self, person) -> None:
        self._person, self.events = person, dict[str, Event]()

    def look(self) -> list[Event]:
        before = None
        while True:
            page = self._person.client.get_history("friends", limit=200, before=before)
            new = [event for event in page.events if event.id not in self.events]
            self.events |= {event.id: event for event in new}
            if not page.more or not new:
                return list(self.events.values())
            before = page.events[0].id


def answers(heard) -> list[str]:
    return [event.body["text"] for event in heard.look() if event.type == "message" and not event.self]


def test_bot_survives_agent_restart(pair, monkeypatch):
    alice, bob = pair
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    bot, heard = Bot(profile="bob", name="worker"), []

    @bot.command("work")
    async def work(m: Message, number: int):
        heard.append(number)
        await m.reply(f"done {number}")

    with running(bot) as failed:
        for number in range(5):
            alice.client.send_message("friends", f"!work {number}")
        until(lambda: len(heard) >= 3, "work")
        bob.sleep()
        for number in range(5, 10):
            alice.client.send_message("friends", f"!work {number}")
        bob.wake()
        until(lambda: consumer(bob) is not None and consumer(bob).behind == 0 and 9 in heard, "all work")
        until(lambda: sum(text.startswith("done") for text in alice.texts()) == 10, "all answers")
    assert not failed
    assert sorted(set(heard)) == list(range(10))


def test_second_bot_of_a_name_replaces_the_first(pair, monkeypatch):
    alice, bob = pair
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    monkeypatch.setattr("zerochat.bot.connection.CONSUMER_BUSY_S_MAX", 0.5)
    first, second = Bot(profile="bob", name="worker"), Bot(profile="bob", name="worker")
    for bot in (first, second):
        bot.on_message(_nothing)
    with running(first) as failed:
        with pytest.raises(AgentError) as refused:
            asyncio.run(second.serve())
        assert refused.value.code == "ConsumerBusy"
        bob.client.call("subscribe", consumer="worker", take_over=True)
        until(lambda: failed, "its end")
        assert isinstance(failed[0], ConsumerReplaced)
    assert alice.client.get_status()


def test_bots_of_one_profile_announce_side_by_side(pair, monkeypatch):
    """Neither replaces the other's commands, however they start, and each withdraws its own."""
    alice, bob = pair
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    ops, fun = Bot("ops", profile="bob"), Bot("fun", profile="bob")
    ops.command("deploy", help="by ops")(_nothing)
    ops.command("status")(_nothing)
    fun.command("joke")(_nothing)
    fun.command("status", help="by fun")(_nothing)

    def commands() -> list[str]:
        return [one.name for each in alice.client.list_members("friends") if each.bot for one in each.commands]

    def lines() -> int:
        return sum(one.type == "commands_announced" for one in alice.client.get_history("friends").events)

    with running(ops):
        until(lambda: commands() == ["deploy", "status", "help"], "the first one's commands")
        with running(fun):
            until(lambda: commands() == ["joke", "status", "help", "deploy"], "both")
    before = lines()
    for bot in (fun, ops):
        with running(bot):
            bob.client.list_groups()
    assert (commands(), lines()) == (["joke", "status", "help", "deploy"], before), "nothing is said anew"
    bob.client.announce_bot("friends", bot=False, consumer="fun")
    until(lambda: commands() == ["deploy", "status", "help"], "what is left")
    bob.client.delete_consumer("ops")
    assert not bob.client.announce_bot("friends", bot=False).unchanged
    until(lambda: not any(one.bot for one in alice.client.list_members("friends")), "that there is no bot")
    with pytest.raises(AgentError, match="a-z"):
        bob.client.announce_bot("friends", [rpc.AnnouncedCommand("Two words")], consumer="fun")
    many = [rpc.AnnouncedCommand(f"c{number}") for number in range(32)]
    bob.client.announce_bot("friends", many, consumer="ops")
    with pytest.raises(AgentError, match="with the other bots of this profile, a bot has at most 32"):
        bob.client.announce_bot("friends", [rpc.AnnouncedCommand("one-more")], consumer="fun")
    assert bob.client.announce_bot("friends", many, consumer="ops").unchanged, "the refused one is not stored"


def test_a_replaced_bot_neither_sends_nor_acknowledges(pair, monkeypatch):
    """A bot that was stopped while another one took over wakes up in the middle of a handler."""
    alice, bob = pair
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    old, new = Bot("worker", profile="bob", retries=()), Bot("worker", profile="bob", take_over=True)
    begun, woken = threading.Event(), threading.Event()

    @old.command
    def work(m: SyncMessage):
        begun.set()
        assert woken.wait(DEADLINE_S)
        m.reply("by the old one")

    @new.command("work")
    async def again(m: Message):
        await m.reply(f"by the new one, attempt {m.attempt}")

    with running(old) as failed:
        alice.client.send_message("friends", "!work")
        assert begun.wait(DEADLINE_S)
        with running(new):
            until(lambda: any("by the new" in text for text in alice.texts()), "the new one's answer")
            woken.set()
            until(lambda: failed, "the end of the old one")
        assert isinstance(failed[0], ConsumerReplaced)
    assert not any("by the old" in text for text in bob.texts()) and not new.dead_letters()


def test_a_bot_starts_before_it_has_joined_its_group(people, monkeypatch):
    """It takes the group up when it appears, and no other."""
    alice, bob = people("alice", "bob")
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    bob.client.create_group("private")
    bot, heard = Bot("worker", profile="bob", groups=["friends"], include=("self",)), []

    @bot.on_message
    async def hear(m: Message):
        heard.append(m.text)

    @bot.command
    async def work(m: Message):
        await m.reply("done")

    with running(bot) as failed:
        bob.client.send_message("private", "not for it")
        alice.client.create_group("friends")
        bob.client.join_group(alice.client.create_invitation("friends").url)
        until(lambda: any(one.commands for one in alice.client.list_members("friends")), "its commands")
        alice.client.send_message("friends", "for it")
        alice.client.send_message("friends", "!work")
        until(lambda: "done" in alice.texts(), "the answer")
    assert heard == ["for it", "done"] and not failed
    assert not any(one.bot for one in bob.client.list_members("private"))


CRASHES = """
import os
from zerochat import Bot, Message

bot = Bot("worker", profile="bob")


@bot.command("work")
async def work(m: Message) -> None:
    if m.attempt < 4:
        os.kill(os.getpid(), 9)
    await m.reply(f"attempt {m.attempt}, {'again' if m.redelivered else 'for the first time'}")


bot.run()
"""


@pytest.mark.slow
def test_attempts_count_after_a_kill_of_bot_and_agent(people, tmp_path):
    """The bot runs the agent in its own process, so nothing but the disk remembers."""
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    bob.client.subscribe(consumer="worker", types=["message"])
    bob.sleep()
    alice.client.send_message("friends", "!work")
    path = tmp_path / "crashes.py"
    path.write_text(CRASHES)
    for _ in range(3):
        process = started([str(path)], bob, tmp_path)
        assert process.wait(60) == -signal.SIGKILL
    process = started([str(path)], bob, tmp_path)
    try:
        until(lambda: "attempt 4, again" in alice.texts(), "the answer", 60)
    finally:
        process.terminate()
        assert process.wait(30) == 0


async def _nothing(m: Message):
    return


def test_sync_bot_reads_and_answers(pair, monkeypatch):
    alice, bob = pair
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    with SyncBot(profile="bob", name="script") as bot:
        for text in ("one", "two", "three"):
            alice.client.send_message("friends", text)
        heard = []
        for m in bot.messages(within=20):
            heard.append(m.text)
            m.reply(f"heard {m.text}")
            if m.text == "two":
                bot.send("friends", "that is enough")
                bot.done(m)
                break
        report = bot.send("friends", "bye").delivered(timeout=20)
        assert report and [one.nick for one in report] == ["alice"]
        hops = {one.body.get("text"): one.hops for one in bob.client.get_history("friends").events}
        assert (hops["heard one"], hops["that is enough"], hops["bye"], hops["one"]) == (1, 1, 0, 0)
        bot.kv["at"] = "two"
    with SyncBot(profile="bob", name="script") as bot:
        assert [next(iter(bot.messages(within=20))).text] == ["three"], "which was not handled"
        assert bot.kv["at"] == "two"
    assert heard == ["one", "two"]


def test_bot_runs_an_agent_if_none_is_running(people, app, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    bob.sleep()
    process = started(["-m", "zerochat", "bot", "run", str(app)], bob, tmp_path)
    try:
        bob.client = until(lambda: reached(bob), "the agent that the bot takes along")
        until(lambda: connected(bob), "the bot's beginning")  # a new bot begins now, and not before
        alice.client.send_message("friends", "!work 7")
        until(lambda: "done 7" in alice.texts(), "an answer")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (tmp_path / "bot.log").read_text()


@pytest.mark.slow
def test_dead_letters_are_listed_retried_and_deleted(pair, app, tmp_path):
    alice, bob = pair
    process = started([str(app)], bob, tmp_path)

    def verb(*words, code=0):
        run = subprocess.run(
            [sys.executable, "-m", "zerochat", "bot", *words],
            env=environment(bob, tmp_path), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert run.returncode == code, run.stderr
        return run.stdout, run.stderr

    try:
        until(lambda: connected(bob), "the bot's beginning")
        alice.client.send_message("friends", "!fail")
        path = store_path(bob.places, "worker")

        def dead() -> list[DeadLetter]:
            with Store(path) as store:
                return store.dead_letters()

        until(dead, "a dead letter")
        out, _ = verb("dead-letters", "--bot", "worker")
        assert "RuntimeError: no" in out and "fail" in out
        [told] = [
            json.loads(line) for line in verb("dead-letters", "--bot", "worker", "--format", "jsonl")[0].splitlines()
        ]
        assert told["handler"] == "fail" and told["attempts"] == 1
        first = dead()[0].id
        _, said = verb("retry", str(first), "--bot", "worker")
        assert "1 queued for retry" in said
        until(lambda: [one.id for one in dead()] == [first + 1], "that it has failed again")
        verb("dead-letters", "--bot", "worker", "--delete", "all")
        assert not dead()
        assert "has no dead letter 99" in verb("retry", "99", "--bot", "worker", code=1)[1]
        assert "No bot nobody has run in this profile." in verb("dead-letters", "--bot", "nobody", code=1)[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


STUCK = """
import time
from zerochat import Bot, Message, SyncMessage

bot = Bot(name="worker")


@bot.command("sleep", timeout=1)
def sleep(m: SyncMessage) -> None:
    m.reply("good night")
    time.sleep(1000)


@bot.command("spin")
async def spin(m: Message) -> None:
    while True:
        pass


@bot.on_message(text="^(a+)+$")
async def endless(m: Message) -> None: ...


@bot.command("ping")
async def ping(m: Message, number: int) -> None:
    await m.reply(f"pong {number}")
"""


@pytest.mark.slow
def test_endless_handlers_become_dead_letters(pair, tmp_path):
    """A pattern and a loop are interrupted; a stuck thread ends the process with exit code 9, once."""
    alice, bob = pair
    path = tmp_path / "stuck.py"
    path.write_text(STUCK)

    def dead() -> dict[str, str]:
        with Store(store_path(bob.places, "worker")) as store:
            return {one.handler: one.error for one in store.dead_letters()}

    process = started(["-m", "zerochat", "bot", "run", str(path)], bob, tmp_path)
    try:
        until(lambda: connected(bob), "the bot's beginning")
        for text in ("a" * 50 + "b", "!ping 1", "!spin", "!ping 2"):
            alice.client.send_message("friends", text)
        until(lambda: "pong 2" in alice.texts(), "an answer behind all that", 120)
        assert "pong 1" in alice.texts() and process.poll() is None
        assert set(dead()) == {"endless", "spin"} and all("blocked the bot" in said for said in dead().values())
        alice.client.send_message("friends", "!sleep")
        alice.client.send_message("friends", "!ping 3")
        assert process.wait(60) == 9, (tmp_path / "bot.log").read_text()
        assert "sleep did not finish within 1 seconds" in dead()["sleep"]
        process = started(["-m", "zerochat", "bot", "run", str(path)], bob, tmp_path)
        until(lambda: "pong 3" in alice.texts(), "what was said behind it")
        assert alice.texts().count("good night") == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_retired_bot_withdraws_its_announcement(pair, app, tmp_path):
    """Refused while it runs; another bot of the profile keeps its announcement."""
    alice, bob = pair

    def retire(name, code):
        words = [sys.executable, "-m", "zerochat", "bot", "retire", "--bot", name, "--format", "jsonl"]
        run = subprocess.run(words, env=environment(bob, tmp_path), capture_output=True, text=True, timeout=60)
        assert run.returncode == code, run.stderr
        return run.stdout + run.stderr

    def marked() -> bool:
        return any(one.bot for one in alice.client.list_members("friends"))

    def said() -> list[bool]:
        return [event.body["bot"] for event in Heard(alice).look() if event.type == "commands_announced"]

    process = started([str(app)], bob, tmp_path)
    try:
        until(lambda: connected(bob) and marked(), "the mark")
        assert "Another program uses the consumer worker." in retire("worker", 1) and marked()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0 and marked(), "a bot that starts again says nothing anew"
        assert len(json.loads(retire("worker", 0))["groups"]) == 1
        until(lambda: not marked(), "that alice has heard it")
        assert consumer(bob) is None and not store_path(bob.places, "worker").exists()
        assert "No bot worker has run in this profile." in retire("worker", 1)
        other = Bot(profile="bob", name="other")
        other.on_message(_nothing)
        bob.client.subscribe(consumer="gone")
        bob.client.call("subscribe")  # it reads no more by that name
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
            with running(other):
                until(marked, "the other one's mark")
                assert json.loads(retire("gone", 0))["groups"] == []
                assert marked() and said() == [True, False, True], "the other one is not concerned"
    finally:
        process.kill()
        process.wait()
