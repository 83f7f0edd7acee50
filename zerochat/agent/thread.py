"""The agent thread: the only owner of sockets, disk and clock.

A turn is: wait, step, remember, speak. Whatever the sockets, the timers and the faces brought goes through the core;
then one commit puts all of it on disk; only then does anything leave this machine. So what a peer or a face was told is
never forgotten, and one `fsync` serves a whole burst. Receiving twice is harmless; a turn that could not be committed
never happened, and its peers repeat it.
"""

import heapq
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from zerochat import __version__
from zerochat.agent import report, schema
from zerochat.agent.address import EVERYWHERE, own_address, parse_listen, told
from zerochat.agent.attention import Attention
from zerochat.agent.backup import RESTORED_AT
from zerochat.agent.clock import Clock
from zerochat.agent.control import ControlServer
from zerochat.agent.desk import Desk
from zerochat.agent.diary import Discreet, LogFile
from zerochat.agent.files.room import FileRoom
from zerochat.agent.journal import Journal, fault_of_disk
from zerochat.agent.net.bans import gravity
from zerochat.agent.net.transport import Transport
from zerochat.agent.places import Places
from zerochat.agent.postman import Postman
from zerochat.agent.settings import load_settings
from zerochat.agent.shares import Shares
from zerochat.agent.vault import lock_profile
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.errors import LocalError
from zerochat.group.clock import AheadOfTime
from zerochat.group.effects import (
    Answer,
    Answered,
    Compare,
    Confirm,
    DropFile,
    Effect,
    Fetch,
    FinishFile,
    Forget,
    Hold,
    Measure,
    Notify,
    Post,
    ReadParts,
    Recall,
    Receipt,
    Refuse,
    Refute,
    Release,
    Remember,
    Remembered,
    SetTimer,
    StoreParts,
)
from zerochat.group.engine import step
from zerochat.group.files.rules import FileRules
from zerochat.group.history import regain
from zerochat.group.notices import Forked, Notice
from zerochat.group.state import Agent
from zerochat.group.stimuli import (
    Ask,
    ClockSet,
    LinkDown,
    LinkUp,
    Moment,
    Recalled,
    Received,
    Started,
    Stimulus,
    TimerFired,
    TurnOver,
    WebDown,
    WebUp,
)

START_S_MAX = 20.0
STOP_S_MAX = 5.0
IDLE_MS = 1_000
"""The longest wait: signals and the gatekeeper's health are looked at this often."""
FILES_SECRET = "files_secret"  # noqa: S105  # its name
"""In a journal's meta: what the keys of all files are made of, 32 bytes."""
RETRY_MS = 5_000
"""After a turn that could not be remembered (a full disk), its timers come again this much later."""


class AgentFailed(LocalError):
    """The agent did not start: {why}. `zerochat locate log` names the file that says more."""

    exit_code = 6


class InternalFault(LocalError):
    """zerochat itself has a fault here ({what}), and nothing was done. The agent's log has the details
    (`zerochat locate log`)."""


def _leave_no_core() -> None:
    """Whatever this process ends with, it does not put its memory on disk, where the keys are."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


Connectivity: TypeAlias = LinkUp | LinkDown | WebUp | WebDown | Started


def _subject(news: Connectivity) -> bytes | str:
    match news:
        case Started():
            return b""
        case WebUp(uri) | WebDown(uri):
            return uri
        case _:
            return news.link


class AgentThread(threading.Thread):
    """One profile's agent. Faces never touch it: they talk to its control socket."""

    def __init__(
        self,
        places: Places,
        key: bytes,
        *,
        listen: str | None = None,
        advertise: str | None = None,
        hidden: bool = False,
        unused_s: float | None = None,
    ) -> None:
        """`key`: the journal's raw key. `listen` and `advertise` win over the settings file; where that says nothing of
        either, they hold for later starts too (`address.told`). `unused_s`: end when no
        face has been attached for so long."""
        super().__init__(name="zerochat-agent", daemon=True)
        self._places, self._key = places, key
        self._listen, self._advertise, self._hidden = listen, advertise, hidden
        self._ready = threading.Event()
        self._stop_asked = threading.Event()
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._timers: dict[str, float] = {}
        self._timer_heap: list[tuple[float, str]] = []
        self._pending: list[Stimulus] = []
        self._clock = Clock()
        self._deferred: dict[bytes | str, tuple[float, Connectivity]] = {}
        """The last news of each link that could not be remembered, and when to try again."""
        self._log = logging.Logger("zerochat.agent")
        """Its own, and not one by name: several agents may live in one process."""
        self._begun = self._used = time.monotonic()
        self._unused_s = unused_s
        self.unneeded = False
        """True when it has ended because nobody was attached."""
        self._attention = Attention(places.data)
        self._restored = False
        self.failure: BaseException | None = None

    # --- from other threads -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and return when the control socket listens. Raises a LocalError when that cannot be."""
        super().start()
        self._ready.wait(START_S_MAX)
        if self.failure is not None:
            self.join(STOP_S_MAX)
            if isinstance(self.failure, LocalError):
                raise self.failure
            raise AgentFailed(why=type(self.failure).__name__) from self.failure
        if not self._ready.is_set():
            self.stop()
            raise AgentFailed(why=f"it was not ready after {START_S_MAX:.0f} seconds")

    def stop(self) -> None:
        """End the thread: what was accepted is on disk already."""
        self._stop_asked.set()
        self._wake()
        if self.is_alive():
            self.join(STOP_S_MAX)

    def _wake(self) -> None:
        with suppress(OSError):  # it has been woken before, or has ended
            self._bell.send(b"!")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- the thread itself ------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            with lock_profile(self._places):
                _leave_no_core()
                self._open_log()
                self._live()
        except LocalError as error:
            self.failure = error
        except OSError as error:
            self.failure = fault_of_disk(error, Path(error.filename or self._places.data))
            self._log.exception("the agent has ended by a fault of the system")
        except Exception as error:  # noqa: BLE001  # whatever it was: whoever started the agent is told
            self.failure = error
            self._log.exception("the agent has ended by a fault of its own")
        finally:
            self._ready.set()
            self._ear.close()
            self._bell.close()
            for handler in list(self._log.handlers):
                self._log.removeHandler(handler)
                handler.close()

    def _open_log(self) -> None:
        self._places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = LogFile(self._places.log, maxBytes=1 << 20, backupCount=2, encoding="utf-8")
        handler.setFormatter(Discreet("%(asctime)s %(levelname)s %(message)s"))
        self._log.addHandler(handler)
        self._log.propagate = False
        self._log.setLevel(logging.INFO)

    def _live(self) -> None:
        settings = load_settings(self._places)
        for warning in settings.warnings:
            self._log.warning("%s", warning)
        with Journal.open(self._places.journal, self._key) as journal:
            self._journal = journal
            self._shares = Shares(journal)
            label = (journal.meta_get("label") or b"").decode()
            self._agent = journal.load(Agent) or Agent(label)
            anew = not self._clock.recall(journal.meta_get("clock") or b"")
            self._restored = bool(journal.meta_get(RESTORED_AT))
            if self._restored:
                self._log.warning("this profile was restored from a backup")
            secret = journal.meta_get("server_secret") or b""
            listen, advertise = self._listen or settings.listen, self._advertise or settings.advertise
            if settings.listen is None and settings.advertise is None:  # else these hold, but for this time
                listen, advertise = told(journal, self._listen, self._advertise)
            listen_host, pair_port, queue_port = parse_listen(listen or EVERYWHERE)
            # A port of our own choosing stays ours: open invitations and the members' memory lead there.
            pair_port = pair_port or int(journal.meta_get("pair_port") or 0)
            queue_port = queue_port or int(journal.meta_get("queue_port") or 0)
            hidden, socks = self._hidden or settings.hidden, settings.socks
            transport = Transport(secret, listen_host, pair_port, queue_port, socks=socks, rides=not hidden)
            postman = Postman(settings, self._wake)
            files = FileRoom(self._places.files, self._files_secret(), self._wake)
            with transport, postman, files, ControlServer(self._places.socket) as server:
                self._transport, self._server, self._postman, self._files = transport, server, postman, files
                self._desk = Desk(server, journal, self.status, postman.lend, files)
                ports = transport.bind()
                for name, asked, port in zip(("pair_port", "queue_port"), (pair_port, queue_port), ports, strict=True):
                    if not asked:
                        journal.meta_set(name, str(port).encode())
                host = advertise or own_address(listen_host)
                self._pair, self._queue = Endpoint(host, ports[0]), Endpoint(host, ports[1])
                transport.watch(self._ear.fileno())
                self._watched: dict[int, bool] = {}
                web = postman.start(hidden)
                key, restored = x25519_public(secret), self._restored
                rules = FileRules(settings.auto_max << 20, settings.size_max << 20, settings.total_max << 20)
                started = Started(self._pair, self._queue, key, web, hidden, settings.cover, restored, anew, rules)
                self._turn([started, *files.found()])
                self._watch_faces()
                self._log.info("ready at %s", self._pair)
                self._ready.set()
                while not (self._stop_asked.is_set() or self._desk.stopping or self._unneeded()):
                    self._turn(self._wait())
                self._log.info("stopped")

    def _files_secret(self) -> bytes:
        """What the keys of all files are made of."""
        secret = self._journal.meta_get(FILES_SECRET) or os.urandom(32)
        self._journal.meta_set(FILES_SECRET, secret)
        return secret

    def _unneeded(self) -> bool:
        """Whether nobody has been there for so long that the profile shall be closed."""
        now = time.monotonic()
        if self._unused_s is None or self._server.clients:
            self._used = now
            return False
        self.unneeded = now - self._used > self._unused_s
        return self.unneeded

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _wait(self) -> list[Stimulus]:
        """Sleep until there is something to do, and gather all of it."""
        timeout = 0 if self._pending or self._desk.feed(self._agent) else IDLE_MS
        deadline = self._desk.review(self._agent)
        for moment in (deadline, self._timer_heap[0][0] if self._timer_heap else None):
            if moment is not None:
                timeout = min(timeout, max(0, int((moment - time.monotonic()) * 1000) + 1))
        self._watch_faces()
        heard, ready = self._transport.poll(timeout)
        stimuli: list[Stimulus] = [ClockSet(by_ms)] if (by_ms := self._clock.set_by()) else []
        stimuli += [*self._pending, *self._in_order([*heard, *self._postman.take()]), *self._files.take()]
        stimuli += self._desk.take_filed()
        self._pending = []
        for fd in ready:
            if fd == self._ear.fileno():
                with suppress(BlockingIOError):
                    self._ear.recv(64)
                continue
            for client, request in self._server.ready(fd):
                if (ask := self._desk.take(client, request, self._agent)) is not None:
                    stimuli.append(ask)
        now = time.monotonic()
        for subject, (when, news) in list(self._deferred.items()):
            if when <= now:
                del self._deferred[subject]
                stimuli.append(news)
        while self._timer_heap and self._timer_heap[0][0] <= now:
            when, key = heapq.heappop(self._timer_heap)
            if self._timers.get(key) == when:
                del self._timers[key]
                stimuli.append(TimerFired(key))
        return stimuli

    def _in_order(self, heard: Iterable[Stimulus]) -> Iterator[Stimulus]:
        """What was heard, but for news of a link whose older news still waits: the newer takes its place there."""
        for stimulus in heard:
            if isinstance(stimulus, LinkUp | LinkDown | WebUp | WebDown) and _subject(stimulus) in self._deferred:
                self._deferred[_subject(stimulus)] = (self._deferred[_subject(stimulus)][0], stimulus)
            else:
                yield stimulus

    def _watch_faces(self) -> None:
        """Send the faces what was said to them, and tell the poller which of their sockets to look at."""
        self._server.flush()
        wanted = self._server.fds()
        for fd in self._server.take_closed():
            self._transport.unwatch(fd)
            self._watched.pop(fd, None)
        for fd, writing in wanted.items():
            if self._watched.get(fd) is not writing:
                self._transport.watch(fd, write=writing)
        self._watched = wanted

    # --- a turn -----------------------------------------------------------------------------------------------------

    def _turn(self, stimuli: list[Stimulus]) -> None:
        """Step, remember, speak."""
        if not stimuli:
            return
        before = self._agent
        effects: list[Effect] = []
        for stimulus in (*stimuli, TurnOver()):
            effects += self._step(stimulus)
        remembered = [effect for effect in effects if isinstance(effect, Remembered)]
        try:
            self._journal.commit(self._agent, remembered)
        except LocalError as error:
            self._undo(before, stimuli, error)
            return
        self._shares.note(remembered)
        self._desk.log.note(remembered)
        if remembered or self._agent is not before:
            self._attention.fault = ""  # the disk has just taken something
        if any(isinstance(stimulus, Started | ClockSet) for stimulus in stimuli):
            self._settle("clock", self._clock.mark)
        if self._restored and any(isinstance(stimulus, Started) for stimulus in stimuli):
            self._warned()
        self._speak(effects)
        self._postman.settle(stimuli, kept=True)

    def _step(self, stimulus: Stimulus) -> list[Effect]:
        moment = Moment(self._clock.now(), os.urandom)
        try:
            self._agent, effects = step(self._agent, stimulus, moment)
        except Exception:  # noqa: BLE001
            # A fault of ours. The core is pure, so nothing is half done: say so in the log and go on with the rest.
            self._log.exception("a fault in the core while hearing %s", type(stimulus).__name__)
            if isinstance(stimulus, Ask):
                return [Refuse(stimulus.ticket, InternalFault(what=type(stimulus.command).__name__))]
            return [SetTimer(stimulus.key, RETRY_MS)] if isinstance(stimulus, TimerFired) else []
        if (
            isinstance(stimulus, Received)
            and (weight := gravity(self._agent, stimulus, effects))
            and self._transport.complain(stimulus.link, weight)
        ):
            self._log.warning("a peer whose envelopes are refused again and again is shut out for a while")
        return effects

    def _undo(self, before: Agent, stimuli: list[Stimulus], error: LocalError) -> None:
        """The turn could not be remembered, so it has not happened."""
        self._agent = before
        self._attention.failed(error.sentence())
        self._log.error("a turn could not be remembered: %s", error.code)
        self._postman.settle(stimuli, kept=False)
        for stimulus in stimuli:
            if isinstance(stimulus, Ask):
                self._desk.fail(stimulus, error, before)
            elif isinstance(stimulus, TimerFired):
                self._set_timer(stimulus.key, RETRY_MS)
            elif isinstance(stimulus, ClockSet):
                self._clock.unset(stimulus.by_ms)
            elif isinstance(stimulus, LinkUp | LinkDown | WebUp | WebDown | Started):
                # Peers repeat what was not acknowledged, but nobody repeats that a link came up.
                self._deferred[_subject(stimulus)] = (time.monotonic() + RETRY_MS / 1000, stimulus)

    def _speak(self, effects: Iterable[Effect]) -> None:
        """To the peers first, who have further to go, and then to the faces."""
        answers: list[Answer | Refuse] = []
        news: list[Notice] = []
        for effect in effects:
            match effect:
                case Forget(group):
                    self._files.forget(group)
                case Remember() | Confirm() | Refute() | Receipt():
                    pass
                case SetTimer(key, delay_ms, keep):
                    if not (keep and key in self._timers):
                        self._set_timer(key, delay_ms)
                case Recall(group, member, author, after, limit):
                    self._recall(group, member, author, after, limit)
                case Fetch() | Compare():
                    self._fetch(effect)
                case ReadParts() | StoreParts() | FinishFile() | DropFile():
                    self._files.perform(effect)
                case Answer() | Refuse():
                    answers.append(effect)
                case Notify(notice):
                    news.append(notice)
                    if isinstance(notice, Forked):
                        self._log.warning("two events claim place %d of one author's chain", notice.seq)
                case Measure(name, detail):
                    self._log.info("%s %s", name, detail)
                    if detail == AheadOfTime.__name__:
                        self._attention.clocks_differ()
                case Post() | Answered() | Hold() | Release():
                    self._postman.perform(effect)
                case _:
                    self._transport.perform(effect)
        self._transport.flush()
        for answer in answers:
            self._desk.settle(answer, self._agent)
        self._desk.tell(news, self._agent)

    def _recall(self, group: str, member: str, author: str, after: int, limit: int) -> None:
        try:
            records = tuple(self._journal.chain(group, author, after, limit))
        except LocalError as error:  # the repair comes again
            self._log.error("the log could not be read: %s", error.code)
        else:
            self._pending.append(Recalled(group, member, records))

    def _warned(self) -> None:
        """Every group that was restored knows that it was, and remembers it; those that are begun later were not."""
        self._restored = False
        self._settle(RESTORED_AT, b"")

    def _settle(self, name: str, value: bytes) -> None:
        """Note something outside of any turn; where that fails, the core is told once more after the next start."""
        try:
            self._journal.meta_set(name, value)
        except LocalError as error:
            self._log.error("%s could not be noted: %s", name, error.code)

    def _fetch(self, asked: Fetch | Compare) -> None:
        try:
            found = self._shares.fetch(asked) if isinstance(asked, Fetch) else self._shares.compare(asked)
            self._pending.append(found)
        except LocalError as error:  # whoever asks will ask again
            self._log.error("the log could not be read: %s", error.code)

    def _set_timer(self, key: str, delay_ms: int) -> None:
        when = time.monotonic() + delay_ms / 1000
        self._timers[key] = when
        heapq.heappush(self._timer_heap, (when, key))

    # --- what it says of itself -------------------------------------------------------------------------------------

    def status(self, agent: Agent) -> schema.Status:
        shut_out = bool(self._transport.shut_out)
        older = any(group.state == "active" and regain.suspended(group) for group in agent.groups.values())
        attention = self._attention.sentence(older=older, shut_out=shut_out, leap_ms=agent.leap)
        return schema.Status(
            profile=self._places.profile,
            nick=agent.label,
            version=__version__,
            pid=os.getpid(),
            uptime_s=int(time.monotonic() - self._begun),
            pair=str(self._pair),
            queue=str(self._queue),
            closed=not self._transport.gatekeeper_alive,
            warning=self._journal.damage or attention,
            groups=[self._desk.group_info(agent, group) for group in agent.groups.values()],
            hidden=report.hidden(agent),
            web=list(agent.web),
            mediators=report.mediators(agent),
        )
