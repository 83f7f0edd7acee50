"""Demo: real agents on the loopback interface, as a scripted conversation or as a chat with two demo members.

Every agent has its own journal, keys and sockets; nothing is simulated. Without a terminal, three members play a script
and their logs are compared; in a terminal, the demo members talk to the user.
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

from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import AgentGone, AgentSilent
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.errors import LocalError
from zerochat.rpc import DeliveryReport, Event, JoinStatus, Sent
from zerochat.terminal_text import printable_line

GROUP = "demo"
STEP_S_MAX = 30.0
"""Time limit of each step."""
REMOVALS_MAX = 5
"""Attempts to remove the folder: each Ctrl+C interrupts one."""

SCRIPT = (
    ("alice", "Welcome to zerochat: three agents, and no server between us."),
    ("bob", "Each of my messages is encrypted for every member and sent directly."),
    ("carol", "And no one else can open it, not even on the same network?"),
    ("alice", "Right: the sockets are authenticated, and every envelope is encrypted for one reader."),
    ("bob", "What if a message gets lost?"),
    ("alice", "Its author gets no acknowledgement and sends it again."),
    ("carol", "So I can see who has received each message…"),
    ("bob", "…and all members see them in the same order: Ünïcödé, 日本語 and 🎉 included."),
    ("alice", "That is the table below."),
)


class DemoFailed(LocalError):
    """The demo failed: {why}. If it happens again, please report it with the output above."""


@dataclass(slots=True)
class Actor:
    """A demo member: its agent and a client."""

    name: str
    places: ProfilePaths
    thread: AgentThread
    client: Client


class Stage:
    """A temporary folder with running agents; removed on exit."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._stack = ExitStack()
        self.actors: dict[str, Actor] = {}

    def __enter__(self) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="zerochat-demo-"))
        # Also at process exit, as an interrupt can hit the cleanup itself.
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
        home = profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(home, name, None)
        thread = AgentThread(home, unlock(home, None), listen="127.0.0.1")
        self._stack.callback(thread.stop)  # before start(): an interrupt must not leave it running
        thread.start()
        client = self._stack.enter_context(connect(home, "demo"))
        return Actor(name, home, thread, client)


def _remove(folder: Path) -> None:
    """Remove the folder; an interrupt is raised afterwards."""
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


def gather(host: Actor, guests: list[Actor], write: Callable[[str], None]) -> None:
    """Let the host create the group and each guest join with its own invitation."""
    host.client.create_group(GROUP)
    for guest in guests:
        guest.client.subscribe()
        invitation = host.client.create_invitation(GROUP)
        guest.client.join_group(invitation.code)
        for news in guest.client.notifications(STEP_S_MAX):
            if isinstance(news.params, JoinStatus):
                write(f"  {guest.name}: {printable_line(news.params.text, 100)}")
                if news.params.phase == "failed":
                    raise DemoFailed(why=news.params.text)
                if news.params.phase == "joined":
                    break
        else:
            raise DemoFailed(why=f"{guest.name} could not join in time")
    deadline = time.monotonic() + STEP_S_MAX
    while True:  # until all members are connected with each other
        lists = [actor.client.list_members(GROUP) for actor in (host, *guests)]
        if all(m.connection in ("self", "connected") and m.view_matches is not False for ms in lists for m in ms):
            return
        if time.monotonic() > deadline:
            raise DemoFailed(why="the members did not all connect with each other in time")
        time.sleep(0.02)


# --- without a terminal ---------------------------------------------------------------------------------------------


def run_script(write: Callable[[str], None]) -> int:
    """Play a conversation of three members and print who received what; 0 if no message is missing."""
    begun = time.monotonic()
    write("Three members on this machine, each with its own agent, keys, journal and sockets.")
    with Stage(("alice", "bob", "carol")) as stage:
        actors = list(stage.actors.values())
        gather(actors[0], actors[1:], write)
        write("")
        sent: list[tuple[str, str, Sent, DeliveryReport]] = []
        for name, text in SCRIPT:
            client = stage.actors[name].client
            post = client.send_message(GROUP, text)
            report = client.wait_for_delivery(GROUP, post.id, timeout_s=STEP_S_MAX)
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
    """The ids of the messages in this member's log, in order."""
    return [event.id for event in actor.client.get_history(GROUP, limit=500).events if event.type == "message"]


def _table(
    write: Callable[[str], None], sent: list[tuple[str, str, Sent, DeliveryReport]], logs: dict[str, list[str]]
) -> int:
    """Print who has each message, from every member's log; return the number of missing copies."""
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
    ("guide", "Hello! This is a real group: three agents on your machine, connected by encrypted sockets."),
    ("echo", "I am echo. Write something and I reply."),
    ("guide", "The number behind your message is how many have received it: 2/2. F9 shows who, F2 the members."),
    ("guide", "Type /invite to see an invitation; press F1 for the keys and Ctrl+Q to quit."),
)

ANSWERS = (
    (("invite", "join", "qr"), "Type /invite: anyone who scans the code or pastes the link can join this group."),
    (("member", "who"), "F2 shows the members, their connections, and whether their member lists agree."),
    (("deliver", "lost", "missing", "ack"), "A message is retransmitted until every member has acknowledged it."),
    (("quit", "leave", "exit", "bye"), "Ctrl+Q quits the demo. Nothing stays on your disk."),
    (
        ("secret", "crypt", "secure", "private"),
        "Each message is a DIDComm envelope for one recipient, inside a CURVE socket.",
    ),
    (("help", "?"), "F1 shows all keys. Ask me about: invite, members, delivery, security, quitting."),
)


@dataclass(slots=True)
class Cast:
    """Two agents that introduce the product and reply to messages, and a third one for the user.

    `open` blocks until the three agents are connected; afterwards a client attaches to `you`.
    """

    _stage: Stage = field(default_factory=lambda: Stage(("you", "guide", "echo")))
    _stop: threading.Event = field(default_factory=threading.Event)
    _actors: list[threading.Thread] = field(default_factory=list)

    def open(self) -> ProfilePaths:
        """Start the agents; returns the paths of the user's profile."""
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
        with suppress(AgentGone, AgentSilent):  # the demo is closing
            play()

    def _guide(self) -> None:
        for name, text in INTRODUCTION:
            if self._stop.wait(0.8):
                return
            self._stage.actors[name].client.send_message(GROUP, text)

    def _echo(self) -> None:
        """Reply once to every message of `you`."""
        with connect(self._stage.actors["echo"].places, "demo") as client:
            client.subscribe()
            while not self._stop.is_set():
                news = client.next_notification(0.2)
                if news is None or not isinstance(news.params, Event):
                    continue
                said = news.params
                if said.type == "message" and said.author.nick == "you":
                    client.send_message(GROUP, answer_to(str(said.body.get("text", ""))))


def answer_to(text: str) -> str:
    """The reply of echo to a message."""
    lowered = text.lower()
    for words, answer in ANSWERS:
        if any(word in lowered for word in words):
            return answer
    return f"You wrote: {text[:500]}"
