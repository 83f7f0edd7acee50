"""Whether an agent records how messages fare, and what its thread hands to whoever does (`telemetry/recorder.py`).

Whatever becomes of that, the chat goes on: what fails ends recording, until somebody turns it on again or the agent
starts anew. Nothing of telemetry is imported before somebody has asked for it.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from zerochat.agent.api.server import ControlServer
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.settings.reader import Settings
from zerochat.agent.storage.journal import Journal
from zerochat.errors import LocalError
from zerochat.group.effects import Effect
from zerochat.group.inputs import Ask, Say, SendPost, Stimulus
from zerochat.group.state import Agent

if TYPE_CHECKING:
    from zerochat.agent.telemetry.observation import Step, Turn
    from zerochat.agent.telemetry.recorder import Recorder

TELEMETRY: Final = "telemetry"
"""In a journal's meta: whether somebody has asked for it (`telemetry/consent.py`); absent: nobody ever has."""
AGE_S: Final = 3_600.0
"""How often it is looked for what is too old, while nothing is recorded."""


class Recording:
    """Owned by the agent thread. `settings`: those that hold now."""

    def __init__(
        self,
        journal: Journal,
        settings: Callable[[], Settings],
        transport: Transport,
        server: ControlServer,
        log: logging.Logger,
    ) -> None:
        self._journal, self._settings = journal, settings
        self._transport, self._server, self._log = transport, server, log
        self._recorder: Recorder | None = None
        self._fault = ""
        """Why it has ended by itself, in a sentence; empty: it has not."""
        self._steps: list[Step] = []
        """What the turn that is under way has done."""
        self._turns: list[Turn] = []
        """Turns that are on disk and said, and that the recorder does not know of yet."""
        self._age_at: float | None = None
        """When it is looked again for what is too old, by the monotonic clock; None: nobody has ever recorded."""
        self._woke_ns = 0
        """When the thread has last turned to something."""

    @property
    def on(self) -> bool:
        return self._recorder is not None

    # --- while it is on ---------------------------------------------------------------------------------------------

    def step(
        self, stimulus: Stimulus, before: Agent, after: Agent, effects: list[Effect], begun_ns: int, ended_ns: int
    ) -> None:
        """The core has done something. What somebody here says is noted when it goes out, at the end of the turn: there
        may be hundreds of these. Times in ns since 1970."""
        if (after is before and not effects) or (
            isinstance(stimulus, Ask) and isinstance(stimulus.command, SendPost | Say)
        ):
            return
        try:
            reason = self._transport.reason
            reasons = {link: reason(link) for link in after.up ^ before.up} if after.up is not before.up else None
            self._steps.append((stimulus, before, after, effects, begun_ns, ended_ns, reasons))
        except Exception as error:  # noqa: BLE001
            self._no_more(error)

    def said(self) -> None:
        """The turn is on disk, and what it says is on its way."""
        if self._steps:
            self._turns.append((self._steps, self._woke_ns, time.time_ns()))
            self._steps = []

    def undone(self) -> None:
        """The turn has not happened."""
        self._steps = []

    def rest(self, agent: Agent, beat: float) -> None:
        """The thread is about to wait (`beat`: since then, as `time.monotonic` has it): so this takes no time from what
        it does."""
        if self._recorder is not None:
            if self._turns or self._recorder.is_due(beat):
                self._tell(agent, beat)
        elif self._age_at is not None and beat >= self._age_at:
            self._age(agent, beat)

    def woke(self) -> None:
        if self._recorder is not None:
            self._woke_ns = time.time_ns()

    # --- whether it is ----------------------------------------------------------------------------------------------

    def look(self, agent: Agent, beat: float, *, end: bool = False, deleted: bool = False) -> None:
        """Record, or do not, as the person and the settings have it. `end`: no more in any case. `deleted`: nothing is
        left of what was recorded, so it begins anew."""
        try:
            if self._recorder is not None or (not end and self._journal.meta_get(TELEMETRY)):
                self._begin(agent, beat, end, deleted)
        except Exception as error:  # noqa: BLE001
            self._no_more(error)

    def answer(self, method: str, params: Struct, agent: Agent, beat: float) -> Struct:
        """Answer what a face asks about it. Raises LocalError."""
        from zerochat.agent.telemetry import handlers

        self._tell(agent, beat)
        self._note(lambda recorder: recorder.flush(agent, asked=True))
        answer = handlers.answer(method, params, self._journal, self._settings())
        if method in ("telemetry_set", "telemetry_delete"):
            self._fault = ""
            self.look(agent, beat, deleted=method == "telemetry_delete")
        if method == "telemetry_set":
            # With what was written as it ended.
            answer = handlers.status(self._journal, self._settings())
        return handlers.now_recording(answer, self._recorder is not None, self._fault)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _begin(self, agent: Agent, beat: float, end: bool, deleted: bool) -> None:
        """Or end it. Raises whatever goes wrong."""
        from zerochat.agent.telemetry import handlers

        bounds = None if end else handlers.bounds(self._journal, self._settings())
        if self._recorder is not None and not deleted:
            if bounds is not None:
                self._recorder.bounds = bounds
                return
            self._tell(agent, beat)
            self._note(lambda recorder: recorder.close(agent))
        self._recorder, self._turns = None, []
        if bounds is None:
            self._age(agent, beat)
            return
        from zerochat.agent.telemetry.recorder import Outside

        counts, server = self._transport.counts, self._server
        self._age_at = None
        outside = Outside(lambda: sum(map(server.backlog, server.clients)), lambda: counts["dropped.full"])
        self._recorder = handlers.recorder(self._journal, agent, bounds, outside)
        self._fault = ""

    def _age(self, agent: Agent, beat: float) -> None:
        """Nothing is recorded; what was still goes when its time is over."""
        self._age_at = beat + AGE_S
        try:
            from zerochat.agent.telemetry import handlers

            handlers.age(self._journal, self._settings(), agent)
        except Exception as error:  # noqa: BLE001  # it is tried again, and hurts nobody until then
            self._log.error("old telemetry could not be dropped: %s", type(error).__name__)

    def _tell(self, agent: Agent, beat: float) -> None:
        """Tell the recorder of the turns since the last time."""
        turns, self._turns = self._turns, []
        faces = bool(self._server.clients)
        self._note(lambda recorder: recorder.told(agent, turns, beat, faces=faces))

    def _note(self, work: "Callable[[Recorder], None]") -> None:
        """Have the recorder do something, if there is one."""
        if self._recorder is None:
            return
        try:
            work(self._recorder)
        except Exception as error:  # noqa: BLE001
            self._no_more(error)

    def _no_more(self, error: Exception) -> None:
        """Something went wrong with it, so it ends: nobody shall take what has holes for the whole."""
        self._recorder, self._steps, self._turns = None, [], []
        self._age_at = 0.0  # what is there goes when its time is over, though nothing more comes
        if isinstance(error, LocalError):
            self._fault = error.sentence()
            self._log.error("recording telemetry has ended: %s", error.code)
        else:
            self._fault = "It has ended by a fault of its own, of which the log says more."
            self._log.error("recording telemetry has ended by a fault of its own", exc_info=error)
