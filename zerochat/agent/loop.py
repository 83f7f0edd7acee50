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
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from zerochat import __version__, rpc
from zerochat.agent.api.request_handlers import Desk
from zerochat.agent.api.server import ControlServer
from zerochat.agent.clock import Clock
from zerochat.agent.disputes.monitor import Counsel
from zerochat.agent.files.worker import FileRoom
from zerochat.agent.network.addresses import EVERYWHERE, own_address, parse_listen, told
from zerochat.agent.network.web_adapter import Postman
from zerochat.agent.network.zmq.bans import HASTY, gravity
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.service.crash_log import LogFormat, handlers
from zerochat.agent.service.hooks import ON_MENTION, ON_MESSAGE, Hooks
from zerochat.agent.service.shutdown import is_owed, waits
from zerochat.agent.settings.reader import Settings, load_settings
from zerochat.agent.storage.history_reader import Shares
from zerochat.agent.storage.integrity_scan import Rounds
from zerochat.agent.storage.journal import Journal, fault_of_disk
from zerochat.agent.storage.paths import Places
from zerochat.agent.storage.profiles import RESTORED_AT, lock_profile
from zerochat.agent.telemetry.switch import Recording
from zerochat.agent.views import core_state
from zerochat.agent.views.attention import Attention
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.errors import InternalFault, LocalError, ZerochatError
from zerochat.group.effects import (
    Answer,
    Answered,
    Compare,
    Confirm,
    DropBlobs,
    DropFile,
    Effect,
    Fetch,
    FinishFile,
    Forget,
    Hold,
    KeepAck,
    KeepBlob,
    KeepEntries,
    KeepLog,
    KeepMessage,
    KeepNote,
    KeepRival,
    KeepStatement,
    KeepStray,
    LookUp,
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
    Repeated,
    SealAcks,
    SetTimer,
    StoreParts,
)
from zerochat.group.engine import step
from zerochat.group.event_log.lamport import AheadOfTime
from zerochat.group.files.quota import FileRules
from zerochat.group.inputs import (
    Ask,
    ClockSet,
    LinkDown,
    LinkUp,
    LookedUp,
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
from zerochat.group.key_rotation import Rotation
from zerochat.group.messages.sharing import Sharing
from zerochat.group.notifications import Forked, Notice
from zerochat.group.state import Agent
from zerochat.group.sync import stale_profile

if TYPE_CHECKING:
    from zerochat.agent.settings.reload import Reloaded

PLEAD_S = 2.0
"""However busy the agent is, cases are looked after once in this time."""
START_S_MAX = 20.0
STOP_S_MAX = 5.0
IDLE_MS = 1_000
"""The longest wait: signals and the gatekeeper's health are looked at this often."""
FILES_SECRET = "files_secret"  # noqa: S105  # its name
"""In a journal's meta: what the keys of all files are made of, 32 bytes."""
RELOADS_KEPT = 16
RETRY_MS = 5_000
"""After a turn that could not be remembered (a full disk), its timers come again this much later."""


class AgentFailed(LocalError):
    """The agent did not start: {why}. `zerochat locate log` names the file that says more."""

    exit_code = 6


def _leave_no_core() -> None:
    """Whatever this process ends with, it does not put its memory on disk, where the keys are."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _file_rules(settings: Settings) -> FileRules:
    return FileRules(settings.auto_max << 20, settings.size_max << 20, settings.total_max << 20)


def _sharing(settings: Settings) -> Sharing:
    return Sharing(settings.read_receipts, settings.typing)


def rotation_of(settings: Settings) -> Rotation:
    return Rotation(settings.key_messages, settings.key_days, settings.key_removals)


Connectivity: TypeAlias = LinkUp | LinkDown | WebUp | WebDown | Started


_START = b""


def _subject(news: Connectivity) -> bytes | str:
    match news:
        case Started():
            return _START
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
        log_format: LogFormat | None = None,
        hooks: bool = False,
    ) -> None:
        """`key`: the journal's raw key. `listen` and `advertise` win over the settings file; where that says nothing of
        either, they hold for later starts too (`address.told`). `unused_s`: end when no
        face has been attached for so long. `log_format`: write the log to standard error too, so. `hooks`: run those of
        the settings."""
        super().__init__(name="zerochat-agent", daemon=True)
        self._places, self._key = places, key
        self._listen, self._advertise, self._hidden = listen, advertise, hidden
        self._ready = threading.Event()
        self._stop_asked = threading.Event()
        self._drain_asked = threading.Event()
        self._reload_asked = threading.Event()
        self._log_format, self._with_hooks = log_format, hooks
        self._hooked = 0
        """The local seq up to which hooks have been told."""
        self.drain_s = 0.0
        """How long `drain` may take, by the settings."""
        self.reloaded: deque[Reloaded] = deque(maxlen=RELOADS_KEPT)
        """What has come of each `reload`."""
        self.beat = time.monotonic()
        """When it was last seen to go about its work, on the monotonic clock; never longer ago than `IDLE_MS` and what
        one turn takes."""
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._timers: dict[str, float] = {}
        self._timer_heap: list[tuple[float, str]] = []
        self._pending: list[Stimulus] = []
        self._plead_by = 0.0
        """When cases are looked after at the latest."""
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

    def drain(self) -> None:
        """Have the thread end by itself: it takes no new commands, tells its faces so, and ends when what it has said
        is acknowledged by all who are connected, or after `drain_s` seconds. `stop` cuts that short."""
        self._drain_asked.set()
        self._wake()

    def reload(self) -> None:
        """Have the settings read again; `reloaded` says what has come of it."""
        self._reload_asked.set()
        self._wake()

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
        for handler in handlers(self._places.log, self._log_format):
            self._log.addHandler(handler)
        self._log.propagate = False
        self._log.setLevel(logging.INFO)

    def _live(self) -> None:
        settings = load_settings(self._places)
        for warning in settings.warnings:
            self._log.warning("%s", warning)
        self._adopt(settings)
        with Journal.open(self._places.journal, self._key) as journal:
            self._journal = journal
            self._shares = Shares(journal)
            self._counsel = Counsel(journal, self._log)
            rounds = Rounds(journal, self._log)
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
            files = FileRoom(self._places.files, self._files_secret(), self._wake, self._log)
            self._hooks = Hooks(self._places.profile, self._log, os.environ)
            with transport, postman, files, self._hooks, ControlServer(self._places.socket) as server:
                self._transport, self._server, self._postman, self._files = transport, server, postman, files
                self._recording = Recording(journal, lambda: self._settings, transport, server, self._log)
                self._desk = Desk(server, journal, self.status, postman.lend, files, self._places, self._telemetry)
                self._desk.reload = self._reload_asked.set
                self._desk.heed = self._counsel.heed
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
                own = _file_rules(settings), _sharing(settings), rotation_of(settings)
                self._set_hooks(settings)
                started = Started(self._pair, self._queue, key, web, hidden, settings.cover, restored, anew, *own)
                self._turn([started, *files.found()])
                self._recording.look(self._agent, self.beat)
                self._watch_faces()
                self._log.info("ready at %s", self._pair)
                self._ready.set()
                while not (self._told_to_end() or self._desk.stopping or self._unneeded()):
                    self._turn(self._wait())
                    if self._reload_asked.is_set():
                        self._reload()
                    self._tell_hooks()
                    self._plead()
                    rounds.go_on()
                if self._drain_asked.is_set():
                    self._drain()
                self._recording.look(self._agent, self.beat, end=True)
                self._log.info("stopped")

    def _files_secret(self) -> bytes:
        """What the keys of all files are made of."""
        secret = self._journal.meta_get(FILES_SECRET) or os.urandom(32)
        self._journal.meta_set(FILES_SECRET, secret)
        return secret

    def _told_to_end(self) -> bool:
        return self._stop_asked.is_set() or self._drain_asked.is_set()

    def _drain(self) -> None:
        """The last turns: acknowledgements are not put off any more, and what others have not acknowledged yet is
        waited for."""
        begun = time.monotonic()
        self._log.info("told to end, within %d s", self.drain_s)
        self._desk.begin_to_stop(self.drain_s)
        while not self._stop_asked.is_set() and (left_s := begun + self.drain_s - time.monotonic()) > 0:
            owed = [key for key in self._timers if is_owed(key)]
            for key in owed:
                del self._timers[key]
            self._turn([TimerFired(key) for key in owed])
            if not (waits(self._agent) or self._postman.busy or self._pending):
                break
            self._turn(self._wait(int(left_s * 1000) + 1))
        else:
            self._log.info("ended with something still on its way")
        self._desk.review(self._agent)  # the last turn may have brought what somebody has waited for
        self._desk.feed(self._agent)

    # --- settings ---------------------------------------------------------------------------------------------------

    def _adopt(self, settings: Settings) -> None:
        """Go by these, as far as they have nothing to do with sockets."""
        self._settings = settings
        self._log.setLevel(settings.log_level.upper())
        self.drain_s = float(settings.drain)

    def _reload(self) -> None:
        """Read the settings again, and take over what can be."""
        from zerochat.agent.settings.reload import Reloaded, differences

        self._reload_asked.clear()
        try:
            settings = load_settings(self._places)
        except LocalError as error:
            self._log.error("the settings were not taken over, and the old ones hold: %s", error.code)
            self.reloaded.append(Reloaded(fault=error.sentence()))
            return
        found = differences(self._settings, settings)
        self._adopt(settings)
        self._set_hooks(settings)
        self._recording.look(self._agent, self.beat)
        # Not the core's own doing, but what `Started` tells it too; the next commit puts it on disk.
        files, sharing, rotation = _file_rules(settings), _sharing(settings), rotation_of(settings)
        self._agent = replace(self._agent, file_rules=files, sharing=sharing, rotation=rotation)
        self._log.info("the settings were read again: %s", ", ".join(found.taken) or "nothing to take over")
        if found.waiting:
            self._log.warning("these settings hold from the next start on: %s", ", ".join(found.waiting))
        self.reloaded.append(found)

    def _set_hooks(self, settings: Settings) -> None:
        wanted = {ON_MESSAGE: settings.on_message, ON_MENTION: settings.on_mention} if self._with_hooks else {}
        if not self._hooks.wanted:
            self._hooked = self._journal.latest()  # what was said before there was a hook is no news to it
        self._hooks.set(wanted, float(settings.timeout))

    def _tell_hooks(self) -> None:
        """Run the hooks for what has been said since the last time."""
        if not self._hooks.wanted:
            return
        with suppress(LocalError):  # the status says why
            self._hooked, events = self._desk.since(self._agent, self._hooked)
            if events:
                self._hooks.hear(events, {group.id: group.me for group in self._agent.groups.values()})

    def _plead(self) -> None:
        """Answer accusations, and tell what has come of cases, in the next turn: when nothing else is to be done, and
        once in a while whatever is, or whoever accuses could keep us busy until the time is over."""
        now = time.monotonic()
        if not self._pending or now >= self._plead_by:
            self._plead_by = now + PLEAD_S
            try:
                self._pending += self._counsel.review(self._agent, self._clock.now() - self._agent.leap)
            except Exception:  # noqa: BLE001  # a fault of ours; nobody's case may end the agent
                self._log.exception("a fault while looking after cases")

    def _unneeded(self) -> bool:
        """Whether nobody has been there for so long that the profile shall be closed."""
        now = time.monotonic()
        if self._unused_s is None or self._server.clients:
            self._used = now
            return False
        self.unneeded = now - self._used > self._unused_s
        return self.unneeded

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _wait(self, most_ms: int = IDLE_MS) -> list[Stimulus]:
        """Sleep until there is something to do, and gather all of it."""
        self.beat = time.monotonic()
        timeout = 0 if self._pending or self._desk.feed(self._agent) else min(IDLE_MS, most_ms)
        deadline = self._desk.review(self._agent)
        for moment in (deadline, self._timer_heap[0][0] if self._timer_heap else None):
            if moment is not None:
                timeout = min(timeout, max(0, int((moment - time.monotonic()) * 1000) + 1))
        self._watch_faces()
        self._recording.rest(self._agent, self.beat)
        heard, ready = self._transport.poll(timeout)
        self._recording.woke()
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
                if (ask := self._take(client, request)) is not None:
                    stimuli.append(ask)
        now = time.monotonic()
        for subject, (when, news) in list(self._deferred.items()):
            if when <= now and not isinstance(news, Started):
                del self._deferred[subject]
                stimuli.append(news)
        while self._timer_heap and self._timer_heap[0][0] <= now:
            when, key = heapq.heappop(self._timer_heap)
            if self._timers.get(key) == when:
                del self._timers[key]
                stimuli.append(TimerFired(key))
        start = self._deferred.get(_START)
        if start is not None and (stimuli or start[0] <= now):
            # Until this is remembered the core goes by another process's clock, so nothing is heard before it.
            del self._deferred[_START]
            stimuli.insert(0, start[1])
        return stimuli

    def _take(self, client: int, request: rpc.Request) -> Ask | None:
        try:
            return self._desk.take(client, request, self._agent)
        except Exception:  # noqa: BLE001
            # A fault of ours. Whoever asked is told so, and all others go on.
            self._log.exception("a fault while serving %s", request.method)
            self._server.refuse_error(client, request.id, InternalFault(what=request.method))
            return None

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
        if not (stimuli or self._desk.stream.pending):
            return
        before = self._agent
        effects: list[Effect] = []
        step = self._recorded if self._recording.on else self._step
        for stimulus in (*stimuli, TurnOver()):
            effects += step(stimulus)
        remembered = [effect for effect in effects if isinstance(effect, Remembered)]
        told = {"clock": self._clock.mark} if any(isinstance(one, Started | ClockSet) for one in stimuli) else None
        try:
            notes = self._desk.gather(effects, before, self._agent)
            self._journal.commit(self._agent, remembered, notes, told)
        except LocalError as error:
            self._undo(before, stimuli, error)
            return
        self._desk.stream.kept(notes)
        self._shares.note(remembered)
        self._desk.log.note(remembered)
        if remembered or self._agent is not before:
            self._attention.fault = ""  # the disk has just taken something
        if self._restored and any(isinstance(stimulus, Started) for stimulus in stimuli):
            self._warned()
        self._counsel.hear(effects)
        self._speak(effects)
        self._recording.said()
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
            if isinstance(stimulus, Received):
                self._mind(stimulus.link, HASTY)  # it may be honest, and is not to have us do that without end
            return [SetTimer(stimulus.key, RETRY_MS)] if isinstance(stimulus, TimerFired) else []
        if isinstance(stimulus, Received) and (weight := gravity(self._agent, stimulus, effects)):
            self._mind(stimulus.link, weight)
        return effects

    def _mind(self, link: bytes, weight: float) -> None:
        """Count so much of a strike against whoever is behind a link."""
        if self._transport.complain(link, weight):
            self._log.warning("a peer whose envelopes are refused again and again is shut out for a while")

    def _recorded(self, stimulus: Stimulus) -> list[Effect]:
        before, begun_ns = self._agent, time.time_ns()
        effects = self._step(stimulus)
        self._recording.step(stimulus, before, self._agent, effects, begun_ns, time.time_ns())
        return effects

    def _undo(self, before: Agent, stimuli: list[Stimulus], error: LocalError) -> None:
        """The turn could not be remembered, so it has not happened."""
        self._agent = before
        self._recording.undone()
        self._attention.failed(error.sentence())
        self._log.error("a turn could not be remembered: %s", error.code)
        self._postman.settle(stimuli, kept=False)
        self._desk.stream.undone(error)
        for stimulus in stimuli:
            if isinstance(stimulus, Ask):
                self._counsel.fail(stimulus)
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
                case Remember() | Repeated() | Confirm() | Refute() | Receipt():
                    pass
                case KeepMessage() | KeepStatement() | KeepAck() | SealAcks() | KeepRival() | KeepStray():
                    pass
                case KeepLog() | KeepEntries() | KeepNote() | KeepBlob() | DropBlobs():
                    pass
                case LookUp():
                    self._look_up(effect)
                case SetTimer(key, delay_ms, keep):
                    if not (keep and key in self._timers):
                        self._set_timer(key, delay_ms)
                case Recall():
                    self._recall(effect)
                case Fetch() | Compare():
                    self._fetch(effect)
                case ReadParts() | StoreParts() | FinishFile() | DropFile():
                    self._files.perform(effect)
                case Answer() | Refuse() if self._counsel.is_mine(effect.ticket):
                    self._counsel.settle(effect)
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

    def _recall(self, asked: Recall) -> None:
        group, author, limit = asked.group, asked.author, asked.limit
        with self._reading():  # the repair comes again
            records = self._journal.chain(group, author, asked.after, limit)
            messages: list[tuple[int, bytes]] = []
            if asked.alias:
                messages = self._journal.signed.lacking(group, author, asked.alias, asked.time, limit)
            self._pending.append(Recalled(group, asked.member, tuple(records), tuple(messages)))

    def _look_up(self, asked: LookUp) -> None:
        with self._reading():  # what needed it comes again
            found = self._journal.logbook.answer(asked.group, asked.origin, asked.what)
            self._pending.append(LookedUp(asked.group, asked.origin, asked.what, found))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """The core has asked the journal. Whatever stands in the way of an answer, whoever needs it asks again; and
        what a peer can have asked about never ends the agent."""
        try:
            yield
        except ZerochatError as error:
            self._log.error("the log could not be read: %s", error.code)
        except Exception:  # noqa: BLE001
            self._log.exception("a fault while reading the log")

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
        with self._reading():  # whoever asks will ask again
            found = self._shares.fetch(asked) if isinstance(asked, Fetch) else self._shares.compare(asked)
            self._pending.append(found)

    def _set_timer(self, key: str, delay_ms: int) -> None:
        when = time.monotonic() + delay_ms / 1000
        self._timers[key] = when
        heapq.heappush(self._timer_heap, (when, key))

    def _telemetry(self, method: str, params: Struct) -> Struct:
        """Answer what a face asks about it. Raises LocalError."""
        return self._recording.answer(method, params, self._agent, self.beat)

    # --- what it says of itself -------------------------------------------------------------------------------------

    def status(self, agent: Agent) -> rpc.Status:
        shut_out = bool(self._transport.shut_out)
        older = any(group.state == "active" and stale_profile.suspended(group) for group in agent.groups.values())
        attention = self._attention.sentence(older=older, shut_out=shut_out, leap_ms=agent.leap)
        return rpc.Status(
            profile=self._places.profile,
            nick=agent.label,
            version=__version__,
            pid=os.getpid(),
            uptime_s=int(time.monotonic() - self._begun),
            pair=str(self._pair),
            queue=str(self._queue),
            closed=not self._transport.gatekeeper_alive,
            warning=self._journal.damage or attention,
            damaged=bool(self._journal.damage),
            groups=[self._desk.group_info(agent, group) for group in agent.groups.values()],
            hidden=core_state.hidden(agent),
            web=list(agent.web),
            mediators=core_state.mediators(agent),
            shares=["typing"] * agent.sharing.typing + ["read"] * agent.sharing.read_receipts,
        )
