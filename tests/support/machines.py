"""Agents as separate processes, frozen, killed, restarted and queried over control sockets.

The final state is read with `zerochat history`, and `check` compares it with the expected one.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.wide.line import Host
from tests.support.chaos_proxy import Chaos
from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import AgentGone
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile
from zerochat.errors import LocalError
from zerochat.rpc import Event, GroupInfo, JoinStatus, MemberInfo

GROUP = "friends"
DEADLINE_S = 60.0
GAUGED = Path(__file__).with_name("gauged_agent.py")
START_MAX = 8
"""Processes that start at a time."""
VERBS_MAX = 5
"""How many are asked for their history by the verb; of more, the rest are asked what the verb asks."""


def until(condition: Callable[[], Any], what: str, within_s: float = DEADLINE_S, every_s: float = 0.05) -> Any:
    """Wait for a condition, and give it; fail with its name when it does not come."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(every_s)
    return found


libc = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def _furnish(files_max: int) -> None:
    """In the new process: be killed when the tests are, so that none of many goes on by itself."""
    if sys.platform == "linux":
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if files_max:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))


class Machine:
    """One agent's process, and a client of it."""

    client: Client

    def __init__(self, folder: Path, name: str, chaos: Chaos | None = None, host: Host | None = None) -> None:
        """`chaos`: what it dials through. `host`: where it runs, if not here."""
        self.name, self.home, self.chaos, self.host = name, folder / name, chaos, host
        self.environment = {**os.environ, "ZEROCHAT_HOME": str(self.home), "ZEROCHAT_PROFILE": name}
        self.places = profile_paths(name, self.environment)
        create_profile(self.places, name, None)
        if chaos is not None:
            self.places.config.write_text(f'[network]\nsocks = "{chaos.socks(name)}"\n')
        self.process: subprocess.Popen[bytes] | None = None
        self.files_max = 0
        """What its next process may have open; 0: as many as this one."""
        self.gauged = False
        """Its next process reports the memory that it holds."""
        self.held_report = folder / f"{name}.held"
        self.stopped = False
        """The process is there, and does nothing."""
        self.said: list[str] = []
        """All that it has said, in this order."""
        self.unsaid: list[str] = []
        """Texts of which it was not heard whether they are in the log, because the agent was killed."""
        self.cpu_s = 0.0
        """Of the processes that have ended."""

    # --- the process ------------------------------------------------------------------------------------------------

    def spawn(self) -> "Machine":
        """Start the process; it is not ready yet."""
        program = [str(GAUGED), str(self.held_report)] if self.gauged else ["-m", "zerochat"]
        command = [sys.executable, *program, "agent", "--listen"]
        nothing = subprocess.DEVNULL
        if self.host is not None:
            command += [self.host.address, "--advertise", self.host.address]
            self.process = self.host.start(command, env=self.environment, stdin=nothing, stdout=nothing, stderr=nothing)
            return self
        self.process = subprocess.Popen(
            [*command, "127.0.0.1"],
            env=self.environment,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            preexec_fn=partial(_furnish, self.files_max),
        )
        return self

    def attend(self) -> "Machine":
        """Wait until it is ready."""
        assert self.process is not None
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.client = connect(self.places, "test")
                break
            except LocalError:
                assert self.process.poll() is None and time.monotonic() < deadline, f"{self.name} did not start"
                time.sleep(0.02)
        status = self.client.get_status()
        assert status.pid == self.process.pid
        if self.chaos is not None:
            self.chaos.owns(self.name, *(int(where.rpartition(":")[2]) for where in (status.pair, status.queue)))
        return self

    def start(self) -> "Machine":
        return self.spawn().attend()

    @property
    def awake(self) -> bool:
        return self.process is not None and not self.stopped

    def kill(self) -> None:
        """`kill -9`."""
        assert self.process is not None
        self.cpu_s += self._cpu_s()
        self.process.kill()
        self.process.wait(20)
        self.process, self.stopped = None, False
        self.client.close()

    def stop(self) -> None:
        """Stop the process; the rest of the world sees a machine that is there and says nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def rss_mb(self) -> float:
        """What it has in memory. Linux."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def held_mb(self) -> float:
        """What its objects hold, without what the allocators keep for later. Only where it is `gauged`."""
        assert self.process is not None and self.gauged
        self.held_report.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR2)
        until(self.held_report.exists, "the report")
        return int(self.held_report.read_text()) / 2**20

    def files(self) -> int:
        """How many descriptors it has open. Linux."""
        assert self.process is not None
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def cpu(self) -> float:
        """The CPU time of all its processes, in seconds. Linux; else 0."""
        return self.cpu_s + (self._cpu_s() if self.process is not None else 0.0)

    def _cpu_s(self) -> float:
        assert self.process is not None
        try:
            numbers = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")

    # --- what it is asked -------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Say it. Where the agent is killed meanwhile it may or may not be in the log: `resume` finds out."""
        self.said.append(text)
        self._send(text)

    def killed_while_saying(self, text: str, after_s: float) -> None:
        """Say it, and be killed so soon after that nobody knows how far it came."""
        saying = threading.Thread(target=self.say, args=(text,))
        saying.start()
        time.sleep(after_s)
        process, client = self.process, self.client
        assert process is not None
        self.cpu_s += self._cpu_s()
        process.kill()
        process.wait(20)
        saying.join(20)
        client.close()
        self.process = None

    def resume(self) -> None:
        """Start it again, and say what is not in the log."""
        self.start()
        unsaid, self.unsaid = self.unsaid, []
        said = set(self.texts()) if unsaid else set()
        for text in unsaid:
            if text not in said:
                self._send(text)

    def _send(self, text: str) -> None:
        try:
            self.client.send_message(GROUP, text)
        except AgentGone:
            self.unsaid.append(text)

    def group(self) -> GroupInfo:
        return next(group for group in self.client.list_groups() if group.name == GROUP)

    def member(self, other: "Machine") -> MemberInfo:
        return next(member for member in self.client.list_members(GROUP) if member.nick == other.name)

    def events(self) -> list[Event]:
        """Its whole log, page by page, in the order in which it is shown."""
        events, more = [], True
        while more:
            page = self.client.get_history(GROUP, limit=500, before=events[0].id if events else None)
            events, more = [*page.events, *events], page.more
        return events

    def texts(self) -> list[str]:
        return [event.body["text"] for event in self.events() if event.type == "message"]

    def has(self, count: int) -> bool:
        """Whether it has so many messages; asks for no more than it takes to know."""
        page = self.client.get_history(GROUP, limit=min(500, count + 300))
        here = sum(event.type == "message" for event in page.events)
        return here >= count or (page.more and len(self.texts()) >= count)

    def history(self) -> list[dict[str, Any]]:
        """What `zerochat history` says of the whole group, oldest first."""
        done = subprocess.run(
            [sys.executable, "-m", "zerochat", "history", GROUP, "--all", "--format", "jsonl"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def machines(
    folder: Path, names: Iterable[str], chaos: Chaos | None = None, *, files_max: int = 0, gauged: bool = False
) -> Iterator[list[Machine]]:
    """Running agents; all that still run in the end are killed. `files_max`: what each may have open. `gauged`: they
    report the memory that they hold."""
    made = [Machine(folder, name, chaos) for name in names]
    try:
        for machine in made:
            machine.files_max, machine.gauged = files_max, gauged
        for begin in range(0, len(made), START_MAX):
            for machine in made[begin : begin + START_MAX]:
                machine.spawn()
            for machine in made[begin : begin + START_MAX]:
                machine.attend()
        yield made
    finally:
        for machine in made:
            if machine.process is not None:
                with suppress(AttributeError):  # it was never ready, and has no client
                    machine.kill()


def names(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


def meet(host: Machine, *guests: Machine, wave: int = 4, within_s: float = DEADLINE_S, **rules: Any) -> None:
    """The host founds a group, everybody comes in, and all are connected with all and agree about it.

    `wave`: how many join at a time, each invited by another one of those who are in. `rules`: as for `Client.new`.
    """
    host.client.create_group(GROUP, **rules)
    inside = [host]
    for begin in range(0, len(guests), wave):
        joiners = guests[begin : begin + wave]
        with ExitStack() as stack:
            ears = [stack.enter_context(connect(guest.places, "test")) for guest in joiners]
            for place, (guest, ear) in enumerate(zip(joiners, ears, strict=True)):
                ear.subscribe()
                inviter = inside[(begin + place) % len(inside)]
                guest.client.join_group(inviter.client.create_invitation(GROUP).url)
            for guest, ear in zip(joiners, ears, strict=True):
                _joined(guest, ear, within_s)
        inside += joiners
        _met(inside, within_s)


def _joined(guest: Machine, ear: Client, within_s: float) -> None:
    """Wait for the end of a join."""
    for news in ear.notifications(within_s):
        if isinstance(news.params, JoinStatus):
            assert news.params.phase != "failed", f"{guest.name}: {news.params.text}"
            if news.params.phase == "joined":
                return
    raise AssertionError(f"{guest.name} is not in")


def _met(everybody: Sequence[Machine], within_s: float) -> None:
    """Wait until all of these are connected with all, and see the same members."""

    def whole(one: Machine) -> bool:
        group = one.group()
        return (group.members, group.connected) == (len(everybody), len(everybody) - 1)

    def agreed() -> bool:
        return len({one.group().view for one in everybody}) == 1

    for one in everybody:  # one after the other: to ask everybody all the time would keep them from it
        until(partial(whole, one), f"that {one.name} meets all {len(everybody)}", within_s, 0.2)
    until(agreed, f"that all {len(everybody)} agree", within_s, 0.5)


# --- what must be so in the end ---------------------------------------------------------------------------------------


def check(everybody: Sequence[Machine], *gone: Machine) -> list[dict[str, Any]]:
    """All of these have all that they and those who are gone have said, once and in one order that contradicts nobody;
    gives the history that all of them have."""
    said = {machine.name: machine.said for machine in (*everybody, *gone)}
    by_verb, others = everybody[:VERBS_MAX], everybody[VERBS_MAX:]
    histories = {machine.name: machine.history() for machine in by_verb}
    histories |= {machine.name: msgspec.to_builtins(machine.events()) for machine in others}
    for name, history in histories.items():
        check_order(name, history)
        heard = defaultdict(list)
        for event in history:
            if event["type"] == "message":
                heard[event["author"]["nick"]].append(event["body"]["text"])
        for author, texts in said.items():
            found = heard.pop(author, [])
            missing, surplus = sorted(set(texts) - set(found)), sorted(set(found) - set(texts))
            assert not missing, f"{name} lacks {len(missing)} of {len(texts)} by {author}: {missing[:5]}"
            assert not surplus, f"{name} has what {author} has not said: {surplus[:5]}"
            assert len(found) == len(set(found)), f"{name} has something by {author} twice"
            assert found == texts, f"{name} shows what {author} said in another order"
        assert not heard, f"{name} has messages by {list(heard)}"
    first, *rest = histories.values()
    shown = [_essence(event) for event in first]
    for name, history in zip(list(histories)[1:], rest, strict=True):
        assert [_essence(event) for event in history] == shown, f"{name} shows another history than {everybody[0].name}"
    return first


def check_order(name: str, history: Sequence[dict[str, Any]]) -> None:
    """One history by itself: sorted, no gap in any chain, and nothing before what it names."""
    order = [(event["lamport"], event["author"]["did"], event["id"]) for event in history]
    assert order == sorted(order), f"{name}'s history is not in its order"
    place = {event["id"]: number for number, event in enumerate(history)}
    assert len(place) == len(history), f"{name} has an event twice"
    chains: dict[str, int] = {}
    for number, event in enumerate(history):
        for parent in event["parents"]:
            # What was said before somebody joined may be named, and is not there.
            assert place.get(parent, -1) < number, f"{name} shows {event['id']} before {parent}, which it names"
        author = event["author"]["did"]
        if event["type"] == "message" and author in chains:
            assert event["position"] > chains[author], f"{name} shows {author}'s words in another order"
        chains[author] = event["position"]


def _essence(event: dict[str, Any]) -> tuple[Any, ...]:
    """What must be the same at everybody."""
    return event["id"], event["type"], event["author"]["did"], event["position"], event["lamport"], event["body"]


def everybody_has(everybody: Sequence[Machine], count: int, within_s: float) -> None:
    """Wait until all have so many messages; fail with who has how many."""
    deadline = time.monotonic() + within_s
    for machine in everybody:  # one after the other: to ask everybody all the time would keep them from it
        while not machine.has(count):
            if time.monotonic() > deadline:
                have = {one.name: len(one.texts()) for one in everybody}
                raise AssertionError(f"not everybody has {count} messages: {have}")
            time.sleep(0.2)


def acknowledged(everybody: Sequence[Machine], within_s: float = DEADLINE_S) -> None:
    """Wait until everybody knows that everybody has everything of theirs."""
    deadline = time.monotonic() + within_s

    def heard_from_all(one: Machine) -> bool:
        return one.group().unacknowledged == 0

    for one in everybody:
        until(partial(heard_from_all, one), "the last acknowledgement", deadline - time.monotonic(), 0.1)
