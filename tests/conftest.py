"""Shared fixtures: a fake agent behind a real control socket."""

import ast
import faulthandler
import gc
import os
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from msgspec import Struct

from tests.support import agents
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.storage import key_wrapping
from zerochat.errors import LocalError
from zerochat.rpc import REFUSED, Hello, NoParams

people = agents.people

# No test asserts a time: a busy machine is no fault of ours.
settings.register_profile("zerochat", deadline=None)
settings.load_profile("zerochat")
# Whoever runs the tests in the background may ignore these, and programs that they start would too.
for ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL)

_parse, _parsing = ast.parse, threading.RLock()


@wraps(_parse)
def _parse_alone(*source: Any, **options: Any) -> Any:
    """`ast.parse` without garbage collection: a finaliser that runs meanwhile, here or in a thread that gets its turn
    by that, may format a traceback, which parses a line. Python 3.11 counts the depth of both in one place, and raises
    `SystemError: AST constructor recursion depth mismatch`."""
    with _parsing:
        collects = gc.isenabled()
        gc.disable()
        try:
            return _parse(*source, **options)
        finally:
            if collects:
                gc.enable()


ast.parse = _parse_alone  # for pytest and the scripts too

Answer = Callable[[Struct], object]


class FakeAgent:
    """A thread that serves a control socket as the agent thread does, with answers that the test has put in.

    `answers[method]` is called with the typed params; what it returns is the result, a LocalError that it raises is
    the refusal, and None leaves the request open. News goes to whoever has subscribed.
    """

    def __init__(self, path: Path, answers: dict[str, Answer]) -> None:
        self.server = ControlServer(path)
        self.answers = answers
        self.asked: list[tuple[str, Struct]] = []
        self.open: list[Call] = []
        self.subscribers: set[int] = set()
        self._todo: deque[Callable[[], None]] = deque()
        self._ear, self._bell = socket.socketpair()
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None]) -> None:
        """Have `work` done by the thread that owns the server, and wait until it has been."""
        done = threading.Event()

        def both() -> None:
            work()
            done.set()

        self._todo.append(both)
        self._bell.send(b"!")
        assert done.wait(10)

    def tell(self, method: str, item: Struct) -> None:
        def all_of_them() -> None:
            for client in self.subscribers:
                self.server.notify([client], method, item)

        self.do(all_of_them)

    def stop(self) -> None:
        self._ending = True
        if self._ear.fileno() >= 0:
            self._bell.send(b"!")
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._ear.close()
        self._bell.close()

    def end(self) -> None:
        """Die in the middle of things; for answers, which the serving thread calls."""
        self._ending = True

    def _run(self) -> None:
        with self.server:
            while not self._ending:
                wanted = self.server.fds()
                reading = [fd for fd, (read, _) in wanted.items() if read]
                writing = [fd for fd, (_, write) in wanted.items() if write]
                readable, writable, _ = select.select([self._ear.fileno(), *reading], writing, [], 10)
                if self._ear.fileno() in readable:
                    self._ear.recv(64)
                while self._todo:
                    self._todo.popleft()()
                for fd in {*readable, *writable}:
                    for call in self.server.ready(fd):
                        self._serve(call)

    def _serve(self, call: Call) -> None:
        self.asked.append((call.method, call.params))
        if call.method == "subscribe":
            self.subscribers.add(call.client)
        answer = self.answers.get(call.method)
        if answer is None:
            message = f"No answer for {call.method}."
            self.server.refuse(call, REFUSED, message, {"code": "NoAnswer"})
            return
        try:
            result = answer(call.params)
        except LocalError as error:
            self.server.refuse_error(call, error)
            return
        if result is None:
            self.open.append(call)
        else:
            self.server.respond(call, result)


@pytest.fixture
def fake_agent(tmp_path: Path) -> Iterator[Callable[..., FakeAgent]]:
    """`fake_agent(method=answer, …, path=…)` starts one; it greets and takes subscriptions by itself."""
    running: list[FakeAgent] = []

    def start(path: Path | None = None, **answers: Answer) -> FakeAgent:
        known: dict[str, Answer] = {
            "hello": lambda _: Hello(protocol=1, version="0.0.test", profile="default", nick="alice"),
            "subscribe": lambda _: NoParams(),
        }
        agent = FakeAgent(path or tmp_path / "agent.sock", {**known, **answers})
        running.append(agent)
        return agent

    yield start
    for agent in running:
        agent.stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budget",
        type=float,
        default=1.0,
        metavar="TIMES",
        help="how many slices the searches (-m sim, crash, chaos, fuzz, soak, theft) go through: 30 is thirty times the"
        " usual, and nothing is then taken for hanging",
    )


@pytest.fixture
def budget(request: pytest.FixtureRequest) -> Callable[[float], int]:
    """How much of something a search goes through: what its slice has, times what is asked for, and at least one."""
    times: float = request.config.getoption("--budget")
    if times > 1:
        faulthandler.cancel_dump_traceback_later()  # whoever asks for more wants it to take longer: that is no hang
    return lambda slice_: max(1, round(slice_ * times))


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """What a search came to, in words: printed when it has ended, in whichever process that was."""
    return lambda words: record_property("figures", words)


class _Printed:
    """Prints the figures of what has ended."""

    def __init__(self, out: pytest.TerminalReporter) -> None:
        self._out = out

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, words in report.user_properties if report.when == "call" else ():
            if name == "figures":
                self._out.ensure_newline()
                self._out.write_line(str(words))


def pytest_sessionstart(session: pytest.Session) -> None:
    out = session.config.pluginmanager.get_plugin("terminalreporter")
    if out is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Printed(out))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Importing the tests creates no garbage, but so many objects that looking for it would take most of the time.
    Later collections skip these objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One Spark session for a whole run of the tests: starting one takes as long as many of them."""
    from analytics.session import SparkSettings, spark_session

    with spark_session(SparkSettings(memory="1g", short=True)) as (session, _):
        yield session


UNPROTECTED = "ZEROCHAT_AGENT__PROTECT_MEMORY"
os.environ[UNPROTECTED] = "false"  # also for agents of fixtures with a wider scope


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own settings reach a test, and no certificate authorities of this machine: reading them takes as long as
    the rest of an agent's start. Agents are not protected from tests, which read /proc as a plain user."""
    for name in [name for name in os.environ if name.startswith("ZEROCHAT_") and name != UNPROTECTED]:
        monkeypatch.delenv(name)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, os.devnull)


@pytest.fixture(autouse=True, scope="session")
def _passphrases_are_stretched_once() -> Iterator[None]:
    """Wrapping a key and opening it again derives the same key twice, in a quarter of a second on purpose."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_wrapping, "_stretch", cache(key_wrapping._stretch))
        yield


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times are shown as they are in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
