"""Bots on real agents: over the control socket, in processes of their own, killed and told to end."""

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
from contextlib import contextmanager, suppress

import pytest

from tests.agent.test_agent import DEADLINE_S, meet, people, until  # noqa: F401  # a fixture
from zerochat import Bot, Message, SyncBot
from zerochat.agent.api.client import AgentError, Dialogue, Reply, connect
from zerochat.bot.bot import store_path
from zerochat.bot.runner import ConsumerTaken
from zerochat.bot.store import DeadLetter, Store
from zerochat.errors import LocalError
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
def pair(people):  # noqa: F811
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    return alice, bob


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "worker.py"
    path.write_text(APP)
    return path


def environment(person, tmp_path) -> dict[str, str]:
    home = {"ZEROCHAT_HOME": str(person.places.config.parent), "ZEROCHAT_PROFILE": person.name}
    return {**os.environ, **home, "WORKED": str(tmp_path / "worked")}


def started(command, person, tmp_path) -> subprocess.Popen[bytes]:
    with (tmp_path / "bot.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *command], env=environment(person, tmp_path), stdout=log, stderr=log, cwd=tmp_path
        )


def consumer(person, name="worker"):
    return next((one for one in person.client.call("consumers") if one.consumer == name), None)


def reached(person):
    with suppress(LocalError):
        return connect(person.places, "test")
    return None


def connected(person, name="worker"):
    known = consumer(person, name)
    return known is not None and known.connected


@contextmanager
def running(bot: Bot):
    """The bot runs in a thread of its own."""
    loops: list[asyncio.AbstractEventLoop] = []
    failed: list[BaseException] = []
    ready = threading.Event()

    async def live():
        loops.append(asyncio.get_running_loop())
        serving = asyncio.create_task(bot.serve())
        waiting = asyncio.create_task(bot.ready())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        ready.set()
        waiting.cancel()
        await serving

    def run():
        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001  # for whoever started it
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    try:
        yield failed
    finally:
        loops[0].call_soon_threadsafe(bot.stop) if thread.is_alive() else None
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "commands", "kills"),
    [(0, 100, 4), *(pytest.param(seed, 1_250, 25, marks=pytest.mark.chaos) for seed in (1, 2, 3, 4))],
)
def test_a_bot_that_is_killed_at_random_moments_handles_all_and_says_nothing_twice(
    pair, app, tmp_path, seed, commands, kills
):
    """Whatever was acknowledged was handled before, or waits in the bot's own file; every command has one answer."""
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
                waiting = store.aside_ids()
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
    dialogue, found = Dialogue(), set[str]()
    asked = b"".join(dialogue.ask("send", {"group": "friends", "text": text})[1] for text in texts)
    with socket.socket(fileno=os.dup(person.client.fileno())) as connection:
        connection.settimeout(DEADLINE_S)
        connection.sendall(asked)
        while len(found) < len(texts):
            said = dialogue.hear(connection.recv(1 << 16))
            found |= {one.result.id for one in said if isinstance(one, Reply) and isinstance(one.result, Sent)}
    return found


class Heard:
    """The events of the group that an agent has, read page by page; what was read is not read again."""

    def __init__(self, person) -> None:
        self._person, self.events = person, dict[str, Event]()

    def look(self) -> list[Event]:
        before = None
        while True:
            page = self._person.client.history("friends", limit=200, before=before)
            new = [event for event in page.events if event.id not in self.events]
            self.events |= {event.id: event for event in new}
            if not page.more or not new:
                return list(self.events.values())
            before = page.events[0].id


def answers(heard) -> list[str]:
    return [event.body["text"] for event in heard.look() if event.type == "message" and not event.self]


def test_an_agent_that_starts_again_under_a_bot_is_hardly_noticed(pair, monkeypatch):
    alice, bob = pair
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    bot, heard = Bot(profile="bob", name="worker"), []

    @bot.command("work")
    async def work(m: Message, number: int):
        heard.append(number)
        await m.reply(f"done {number}")

    with running(bot) as failed:
        for number in range(5):
            alice.client.send("friends", f"!work {number}")
        until(lambda: len(heard) >= 3, "work")
        bob.sleep()
        for number in range(5, 10):
            alice.client.send("friends", f"!work {number}")
        bob.wake()
        until(lambda: consumer(bob) is not None and consumer(bob).behind == 0 and 9 in heard, "all work")
        until(lambda: sum(text.startswith("done") for text in alice.texts()) == 10, "all answers")
    assert not failed
    assert sorted(set(heard)) == list(range(10))


def test_one_bot_of_a_name_at_a_time_and_a_bot_that_is_pushed_out_ends(pair, monkeypatch):
    alice, bob = pair
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    monkeypatch.setattr("zerochat.bot.connection.BUSY_S", 0.5)
    first, second = Bot(profile="bob", name="worker"), Bot(profile="bob", name="worker")
    for bot in (first, second):
        bot.on_message(_nothing)
    with running(first) as failed:
        with pytest.raises(AgentError) as refused:
            asyncio.run(second.serve())
        assert refused.value.code == "ConsumerBusy"
        bob.client.call("subscribe", consumer="worker", take=True)
        until(lambda: failed, "its end")
        assert isinstance(failed[0], ConsumerTaken)
    assert alice.client.status()


async def _nothing(m: Message):
    return


def test_a_script_reads_messages_and_answers_without_any_await(pair, monkeypatch):
    alice, bob = pair
    monkeypatch.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
    with SyncBot(profile="bob", name="script") as bot:
        for text in ("one", "two", "three"):
            alice.client.send("friends", text)
        heard = []
        for m in bot.messages(within=20):
            heard.append(m.text)
            m.reply(f"heard {m.text}")
            if m.text == "two":
                bot.done(m)
                break
        report = bot.say("friends", "bye").delivered(timeout=20)
        assert report and [one.nick for one in report] == ["alice"]
        bot.kv["at"] = "two"
    with SyncBot(profile="bob", name="script") as bot:
        assert [next(iter(bot.messages(within=20))).text] == ["three"], "which was not handled"
        assert bot.kv["at"] == "two"
    assert heard == ["one", "two"]


def test_a_bot_takes_an_agent_along_where_none_runs_and_ends_with_nought(people, app, tmp_path):  # noqa: F811
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    bob.sleep()
    process = started(["-m", "zerochat", "bot", "run", str(app)], bob, tmp_path)
    try:
        bob.client = until(lambda: reached(bob), "the agent that the bot takes along")
        until(lambda: connected(bob), "the bot's beginning")  # a new bot begins now, and not before
        alice.client.send("friends", "!work 7")
        until(lambda: "done 7" in alice.texts(), "an answer")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (tmp_path / "bot.log").read_text()


@pytest.mark.slow
def test_what_could_not_be_handled_is_listed_tried_again_and_thrown_away(pair, app, tmp_path):
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
        alice.client.send("friends", "!fail")
        path = store_path(bob.places, "worker")

        def dead() -> list[DeadLetter]:
            with Store(path) as store:
                return store.dead()

        until(dead, "a dead letter")
        out, _ = verb("dead", "--bot", "worker")
        assert "RuntimeError: no" in out and "fail" in out
        [told] = [json.loads(line) for line in verb("dead", "--bot", "worker", "--format", "jsonl")[0].splitlines()]
        assert told["handler"] == "fail" and told["attempts"] == 1
        first = dead()[0].id
        _, said = verb("retry", str(first), "--bot", "worker")
        assert "1 will be tried again" in said
        until(lambda: [one.id for one in dead()] == [first + 1], "that it has failed again")
        verb("dead", "--bot", "worker", "--forget", "all")
        assert not dead()
        assert "has no dead letter 99" in verb("retry", "99", "--bot", "worker", code=1)[1]
        assert "No bot called nobody" in verb("dead", "--bot", "nobody", code=1)[1]
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
def test_what_finds_no_end_becomes_a_dead_letter_and_the_bot_goes_on(pair, tmp_path):
    """A pattern and a loop are interrupted; for a thread, which nothing can end, the process ends with 9, once."""
    alice, bob = pair
    path = tmp_path / "stuck.py"
    path.write_text(STUCK)

    def dead() -> dict[str, str]:
        with Store(store_path(bob.places, "worker")) as store:
            return {one.handler: one.error for one in store.dead()}

    process = started(["-m", "zerochat", "bot", "run", str(path)], bob, tmp_path)
    try:
        until(lambda: connected(bob), "the bot's beginning")
        for text in ("a" * 50 + "b", "!ping 1", "!spin", "!ping 2"):
            alice.client.send("friends", text)
        until(lambda: "pong 2" in alice.texts(), "an answer behind all that", 120)
        assert "pong 1" in alice.texts() and process.poll() is None
        assert set(dead()) == {"endless", "spin"} and all("held up the whole bot" in said for said in dead().values())
        alice.client.send("friends", "!sleep")
        alice.client.send("friends", "!ping 3")
        assert process.wait(60) == 9, (tmp_path / "bot.log").read_text()
        assert "sleep was not done after 1 seconds" in dead()["sleep"]
        process = started(["-m", "zerochat", "bot", "run", str(path)], bob, tmp_path)
        until(lambda: "pong 3" in alice.texts(), "what was said behind it")
        assert alice.texts().count("good night") == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_who_has_had_a_bot_and_retires_it_is_no_bot_any_more(pair, app, tmp_path):
    """Refused while it runs; another bot of the profile that goes on keeps the mark."""
    alice, bob = pair

    def retire(name, code):
        words = [sys.executable, "-m", "zerochat", "bot", "retire", "--bot", name, "--format", "jsonl"]
        run = subprocess.run(words, env=environment(bob, tmp_path), capture_output=True, text=True, timeout=60)
        assert run.returncode == code, run.stderr
        return run.stdout + run.stderr

    def marked() -> bool:
        return any(one.bot for one in alice.client.members("friends"))

    def said() -> list[bool]:
        return [event.body["bot"] for event in Heard(alice).look() if event.type == "commands_announced"]

    process = started([str(app)], bob, tmp_path)
    try:
        until(lambda: connected(bob) and marked(), "the mark")
        assert "is in use" in retire("worker", 1) and marked()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0 and marked(), "a bot that starts again says nothing anew"
        assert len(json.loads(retire("worker", 0))["groups"]) == 1
        until(lambda: not marked(), "that alice has heard it")
        assert consumer(bob) is None and not store_path(bob.places, "worker").exists()
        assert "No bot called worker" in retire("worker", 1)
        other = Bot(profile="bob", name="other")
        other.on_message(_nothing)
        bob.client.subscribe(consumer="gone")
        bob.client.call("subscribe")  # it reads no more by that name
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("ZEROCHAT_HOME", str(bob.places.config.parent))
            with running(other):
                until(marked, "the other one's mark")
                retire("gone", 0)
                until(
                    lambda: said() == [True, False, True, False, True] and marked(), "that the other one says it again"
                )
    finally:
        process.kill()
        process.wait()
