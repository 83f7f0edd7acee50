"""The demonstration: real agents on this machine's loopback, with a small cast to talk to.

Nothing is simulated: every agent has its own journal, its own keys and its own sockets, and whatever they say to each
other goes encrypted through the kernel's TCP. Only the network is small. Without a terminal three members play a
scripted conversation and everybody's log is compared; on a terminal the cast waits for somebody to talk to.
"""

import atexit
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from zerochat.agent.api.client import AgentGone, AgentSilent, Client, connect
from zerochat.agent.loop import AgentThread
from zerochat.agent.storage.paths import Places, places
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.errors import LocalError
from zerochat.rpc import DeliveryReport, Event, JoinStatus, Sent
from zerochat.terminal_text import printable_line

GROUP = "demo"
STEP_S_MAX = 30.0
"""How long any one step of the demonstration may take before it counts as failed."""
REMOVALS_MAX = 5
"""How often the folder's removal begins again: once for every Ctrl+C of somebody who is impatient."""

SCRIPT = (
    ("alice", "Welcome to zerochat: three agents, and no server between us."),
    ("bob", "Each of my messages is sealed once for every member, and goes to it directly."),
    ("carol", "And nobody else can open it, not even somebody on the same network?"),
    ("alice", "Nobody. The sockets tell strangers nothing, and every envelope has one reader."),
    ("bob", "What if one gets lost on the way?"),
    ("alice", "Then its author sees that you have not acknowledged it, and sends it again."),
    ("carol", "So I can see who has each message…"),
    ("bob", "…and everybody sees them in the same order: Ünïcödé, 日本語 and 🎉 included."),
    ("alice", "That is the table below."),
)


class DemoFailed(LocalError):
    """The demonstration did not work: {why}. If it happens again, please report it with the output above."""


@dataclass(slots=True)
class Actor:
    """One member of the cast: an agent of its own, and a client of it."""

    name: str
    places: Places
    thread: AgentThread
    client: Client


class Stage:
    """A temporary folder with some real agents that live in it. Everything is gone when it closes."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._stack = ExitStack()
        self.actors: dict[str, Actor] = {}

    def __enter__(self) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="zerochat-demo-"))
        # Also at the end of the process, because an interrupt can end the orderly way out between any two steps of it.
        atexit.register(_remove, folder)
        self._stack.callback(_remove, folder)
        try:
            for name in self._names:
                self.actors[name] = self._actor(folder, name)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _actor(self, folder: Path, name: str) -> Actor:
        home = places(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(home, name, None)
        thread = AgentThread(home, unlock(home, None), listen="127.0.0.1")
        self._stack.callback(thread.stop)  # before it starts: an interrupt while it does must not leave it running
        thread.start()
        client = self._stack.enter_context(connect(home, "demo"))
        return Actor(name, home, thread, client)


def _remove(folder: Path) -> None:
    """Remove the folder, and let no interrupt stop that: whatever came is raised afterwards."""
    interrupt: BaseException | None = None
    for _ in range(REMOVALS_MAX):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
        except BaseException as error:  # noqa: BLE001  # raised again below
            interrupt = error
    if interrupt is not None:
        raise interrupt


def gather(host: Actor, guests: list[Actor], say: Callable[[str], None]) -> None:
    """The host founds the group, and each guest joins with an invitation of its own."""
    host.client.new(GROUP)
    for guest in guests:
        guest.client.subscribe()
        invitation = host.client.invite(GROUP)
        guest.client.join(invitation.code)
        for news in guest.client.news(STEP_S_MAX):
            if isinstance(news.item, JoinStatus):
                say(f"  {guest.name}: {printable_line(news.item.text, 100)}")
                if news.item.phase == "failed":
                    raise DemoFailed(why=news.item.text)
                if news.item.phase == "joined":
                    break
        else:
            raise DemoFailed(why=f"{guest.name} could not join in time")
    deadline = time.monotonic() + STEP_S_MAX
    while True:  # everybody has met everybody, those too who came later
        everybody = [actor.client.members(GROUP) for actor in (host, *guests)]
        if all(m.connection in ("self", "connected") and m.view_agrees is not False for ms in everybody for m in ms):
            return
        if time.monotonic() > deadline:
            raise DemoFailed(why="the members did not all connect with each other in time")
        time.sleep(0.02)


# --- without a terminal ---------------------------------------------------------------------------------------------


def run_script(write: Callable[[str], None]) -> int:
    """Play a conversation of three members and print who received what. Returns 0 when everybody has everything."""
    begun = time.monotonic()
    write("Three members on this machine, each with its own agent, keys, journal and sockets.")
    with Stage(("alice", "bob", "carol")) as stage:
        actors = list(stage.actors.values())
        gather(actors[0], actors[1:], write)
        write("")
        sent: list[tuple[str, str, Sent, DeliveryReport]] = []
        for name, text in SCRIPT:
            client = stage.actors[name].client
            post = client.send(GROUP, text)
            report = client.wait(GROUP, post.id, timeout_s=STEP_S_MAX)
            sent.append((name, text, post, report))
            write(f"{name:>6}  {text}")
        write("")
        logs = {actor.name: _posts(actor) for actor in actors}
        missing = _table(write, sent, logs)
        orders = {tuple(log) for log in logs.values()}
        same = len(orders) == 1
        write("")
        write(
            f"{len(sent)} messages, {missing} missing; the order is {'the same' if same else 'NOT the same'} at all"
            f" three members; {time.monotonic() - begun:.1f} s."
        )
        return 0 if same and not missing else 1


def _posts(actor: Actor) -> list[str]:
    """The ids of the messages in this member's own log, in its order."""
    return [event.id for event in actor.client.history(GROUP, limit=500).events if event.type == "message"]


def _table(
    write: Callable[[str], None], sent: list[tuple[str, str, Sent, DeliveryReport]], logs: dict[str, list[str]]
) -> int:
    """Print who has each message, from every member's own log; return how many copies are missing."""
    names = list(logs)
    write(f"{'message':<14}{'from':<8}" + "".join(f"{name:<8}" for name in names) + "received  acknowledged")
    missing = 0
    for name, _text, post, report in sent:
        have = [post.id in logs[other] for other in names]
        missing += have.count(False)
        cells = "".join(f"{'yes' if there else 'NO':<8}" for there in have)
        acknowledged = f"{report.delivered}/{report.of}"
        write(f"{post.id[:12]:<14}{name:<8}{cells}{sum(have)}/{len(names):<8}{acknowledged}")
    return missing


# --- on a terminal --------------------------------------------------------------------------------------------------

INTRODUCTION = (
    ("guide", "Hello! This is a real group: three agents on your machine, talking over encrypted sockets."),
    ("echo", "I am echo. Write something, and I answer."),
    ("guide", "Behind your message stands how many have it: 2/2 is both of us. F9 says who, F2 shows the members."),
    ("guide", "Type /invite to see how somebody else would get in, F1 for the keys, and Ctrl+Q to leave."),
)

ANSWERS = (
    (("invite", "join", "qr"), "Type /invite: whoever scans that code or pastes that link joins this group."),
    (("member", "who"), "F2 shows who is here, who is connected, and whether all see the same members."),
    (("deliver", "lost", "missing", "ack"), "An author repeats a message until every member has said that it has it."),
    (("quit", "leave", "exit", "bye"), "Ctrl+Q leaves the demonstration. Nothing of it stays on your disk."),
    (
        ("secret", "crypt", "secure", "private"),
        "Each message is a DIDComm envelope for one reader, inside a CURVE socket.",
    ),
    (("help", "?"), "F1 shows every key. Ask me about: invite, members, delivery, secrecy, leaving."),
)


@dataclass(slots=True)
class Cast:
    """Two agents that introduce the product and answer what is typed, and a third one that is yours.

    `open` takes a moment (three agents start and meet), so call it from a thread; then a face attaches to `you`.
    """

    _stage: Stage = field(default_factory=lambda: Stage(("you", "guide", "echo")))
    _stop: threading.Event = field(default_factory=threading.Event)
    _actors: list[threading.Thread] = field(default_factory=list)

    def open(self) -> Places:
        """Start everybody; returns the places of your own profile."""
        self._stage.__enter__()
        guide, echo, you = (self._stage.actors[name] for name in ("guide", "echo", "you"))
        gather(guide, [you, echo], lambda text: None)
        for name, play in (("guide", self._guide), ("echo", self._echo)):
            thread = threading.Thread(target=self._act, args=(play,), name=f"demo-{name}", daemon=True)
            thread.start()
            self._actors.append(thread)
        return you.places

    def close(self) -> None:
        self._stop.set()
        for thread in self._actors:
            thread.join(2.0)
        self._stage.__exit__(None, None, None)

    def _act(self, play: Callable[[], None]) -> None:
        with suppress(AgentGone, AgentSilent):  # the curtain has fallen
            play()

    def _guide(self) -> None:
        for name, text in INTRODUCTION:
            if self._stop.wait(0.8):
                return
            self._stage.actors[name].client.send(GROUP, text)

    def _echo(self) -> None:
        """Answer whatever `you` say, once."""
        with connect(self._stage.actors["echo"].places, "demo") as ear:
            ear.subscribe()
            while not self._stop.is_set():
                news = ear.next_news(0.2)
                if news is None or not isinstance(news.item, Event):
                    continue
                said = news.item
                if said.type == "message" and said.author.nick == "you":
                    ear.send(GROUP, answer_to(str(said.body.get("text", ""))))


def answer_to(text: str) -> str:
    """What echo says to a message."""
    lowered = text.lower()
    for words, answer in ANSWERS:
        if any(word in lowered for word in words):
            return answer
    return f"You said: {text[:500]}"
