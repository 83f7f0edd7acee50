"""Bots: events through a bot per second, the latency of its reply, and the waits of scripts and operators.

Two agents in processes of their own over loopback. The bot is a process on one of them, and so is the client beside it:
the same agent and socket, a blocking client without cursor, keys or handlers. Every message is for both, and each
answers its own word, so both are measured under the same load.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import ROOT, Figure, Report, Row, scaled, take_turns
from benchmarks.ours.agents import GROUP, READ_BYTES, STEP_S_MAX, Agents, NotReady
from benchmarks.startup import READY_GOAL_MB, READY_GOAL_MS, ZEROCHAT, environment_in, ready, run_ms
from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_protocol import ClientProtocol, Reply
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.rpc import Event, Sent
from zerochat.rpc.subscriptions import ConsumerInfo

BOT = """
from zerochat import Bot, Message
bot = Bot(name="bench")
@bot.command("ping")
async def ping(m: Message, number: str) -> None:
    await m.reply(f"bot {number}")
@bot.on_message
async def count(m: Message) -> None:
    return
bot.run()
"""
FACE = """
import os
from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.rpc import Event
client = connect(profile_paths(None, os.environ), "face")
client.subscribe()
for news in client.notifications():
    if isinstance(news.params, Event) and news.params.body.get("text", "").startswith("?ping "):
        client.send_message(news.params.group, "face " + news.params.body["text"][6:])
"""
BURST, QUICK_BURST = 2_000, 300
LOOK_S = 0.002


def measure(quick: bool) -> Report:
    rounds, burst = scaled(quick, (21, BURST), (5, QUICK_BURST), (1, 10))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zerochat-bench-")))
        agents = stack.enter_context(Agents(folder, None, lambda text: None))
        agents.grow(1)
        asker, host = agents.publisher.places, agents.listeners[0].places
        for name, program in (("bench", BOT), ("face", FACE)):
            stack.enter_context(program_on(host, folder / f"{name}.py", program))
        here, speaker = (stack.enter_context(connect(asker, "bench")) for _ in range(2))
        there = stack.enter_context(connect(host, "bench"))
        here.subscribe([GROUP])
        until(lambda: any(one.consumer == "bench" and one.connected for one in consumers(there)), "the bot")
        for word in ("!ping", "?ping"):
            answered(here, word)

        trips = take_turns({word: partial(answered, here, word) for word in ("!ping", "?ping")}, rounds * 5)
        here.subscribe([])
        rates = take_turns(
            {"bot": partial(through_bot, speaker, there, burst), "face": partial(to_face, speaker, host, burst)},
            max(3, rounds // 5),
        )

        nobody = environment_in(folder / "nobody")
        scripts = {**nobody, "ZEROCHAT_HOME": str(asker.data.parent.parent), "ZEROCHAT_PROFILE": asker.profile}
        runs: dict[str, Callable[[], float]] = {
            "python": partial(run_ms, [sys.executable, "-c", "pass"], nobody),
            "send": partial(run_ms, [*ZEROCHAT, "send", GROUP, "-m", "hello"], scripts),
        }
        times = take_turns(runs, rounds)
        operator = environment_in(folder / "operator")
        run_ms([*ZEROCHAT, "init", "--name", "Alice"], operator)
        starts = take_turns({"agent": partial(ready, operator, folder / "notify")}, rounds)["agent"]

    figures = {name: Figure.of(values) for name, values in (*trips.items(), *rates.items(), *times.items())}
    floor = "a blocking client of the same agent, without a bot"
    return Report(
        [
            Row(
                "a message on one agent, and a bot's reply from another",
                "ms",
                "lower",
                figures["!ping"],
                figures["?ping"],
                floor,
            ),
            Row(f"events through a bot, a burst of {burst}", "1/s", "higher", figures["bot"], figures["face"], floor),
            Row(
                "zerochat send, from start to exit", "ms", "lower", figures["send"], figures["python"], "python -c pass"
            ),
            Row(
                "agent ready",
                "ms",
                "lower",
                Figure.of([one.ms for one in starts]),
                figures["python"],
                "python -c pass",
                goal=READY_GOAL_MS,
            ),
            Row(
                "agent resident when it is ready",
                "MB",
                "lower",
                Figure.of([one.mb for one in starts]),
                goal=READY_GOAL_MB,
            ),
        ]
    )


def answered(client: Client, word: str) -> float:
    """From the command until its reply reaches a client of the sender, in milliseconds."""
    number = f"{time.monotonic_ns()}"
    begun = time.perf_counter()
    client.send_message(GROUP, f"{word} {number}")
    while (news := client.next_notification(STEP_S_MAX)) is not None:
        item = news.params
        if isinstance(item, Event) and not item.self and item.body.get("text", "").endswith(number):
            return (time.perf_counter() - begun) * 1000
    raise NotReady(f"nobody has answered {word}")


def through_bot(speaker: Client, there: Client, count: int) -> float:
    """Events a second, from the first message's being sent until the bot has acknowledged the last one."""
    begun = time.perf_counter()
    last = say(speaker, count)
    # An event that the bot has acknowledged is on its agent's disk; the log gives the number of the last message.
    until(lambda: any(one.id == last for one in there.get_history(GROUP, limit=1).events), "the burst")
    seq = there.get_history(GROUP, limit=1).events[-1].seq
    until(lambda: any(one.consumer == "bench" and one.acked >= seq for one in consumers(there)), "the acknowledgement")
    return count / (time.perf_counter() - begun)


def to_face(speaker: Client, host: ProfilePaths, count: int) -> float:
    """The same for a client without a bot, until it has the last message."""
    with connect(host, "bench") as face:
        face.subscribe([GROUP])
        begun = time.perf_counter()
        last = say(speaker, count)
        while (news := face.next_notification(STEP_S_MAX)) is not None:
            if isinstance(news.params, Event) and news.params.id == last:
                break
        return count / (time.perf_counter() - begun)


def say(client: Client, count: int) -> str:
    """Send this many messages at once, as a busy bot would; returns the id of the last."""
    dialogue, last, answered = ClientProtocol(), "", 0
    asked = b"".join(
        dialogue.request("send_message", {"group": GROUP, "text": f"event {one}"})[1] for one in range(count)
    )
    with socket.socket(fileno=os.dup(client.fileno())) as connection:
        connection.settimeout(STEP_S_MAX)
        connection.sendall(asked)
        while answered < count:
            for said in dialogue.receive(connection.recv(READ_BYTES)):
                if isinstance(said, Reply):
                    assert isinstance(said.result, Sent), said.result
                    answered, last = answered + 1, said.result.id
    return last


def consumers(client: Client) -> list[ConsumerInfo]:
    found: list[ConsumerInfo] = client.call("list_consumers")
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + STEP_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise NotReady(f"{what} did not come")
        time.sleep(LOOK_S)


@contextmanager
def program_on(home: ProfilePaths, path: Path, text: str) -> Iterator[None]:
    """A Python program with this profile, killed in the end."""
    path.write_text(text, encoding="utf-8")
    environment = {
        "HOME": str(home.data),
        "ZEROCHAT_HOME": str(home.data.parent.parent),
        "ZEROCHAT_PROFILE": home.profile,
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
    }
    with path.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen([sys.executable, str(path)], env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()
