"""Telemetry switch: starts and stops the recorder and buffers the steps of the agent thread for it.

A failure ends recording and nothing else, until the user turns it on again or the agent restarts. The other telemetry
modules are imported only when telemetry was asked for.
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
from zerochat.group.inputs import CommandInput, Input, SendContent, SendPost
from zerochat.group.state import Agent

if TYPE_CHECKING:
    from zerochat.agent.telemetry.observation import CommittedBatch, RawStep
    from zerochat.agent.telemetry.recorder import Recorder

TELEMETRY: Final = "telemetry"
"""`consent.META_KEY`, repeated because `consent` is imported lazily."""
EXPIRY_CHECK_S: Final = 3_600.0
"""Interval of expiry scans while recording is off, in seconds."""


class Recording:
    """Owned by the agent thread. `settings`: returns the current settings."""

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
        """Why recording stopped by itself, as a sentence; empty: it did not."""
        self._steps: list[RawStep] = []
        """Steps of the batch in progress."""
        self._batches: list[CommittedBatch] = []
        """Committed batches that the recorder has not seen yet."""
        self._expire_at: float | None = None
        """Monotonic time of the next expiry scan, in seconds; None: nothing was ever recorded."""
        self._woke_ns = 0
        """Time of the thread's last wake-up, ns."""

    @property
    def on(self) -> bool:
        return self._recorder is not None

    # --- while it is on ---------------------------------------------------------------------------------------------

    def observe_step(
        self, input_: Input, before: Agent, after: Agent, effects: list[Effect], begun_ns: int, ended_ns: int
    ) -> None:
        """Note a step of the core. The user's posts are noted at the end of the batch, when they are sent: there may
        be hundreds of them. Times in ns since 1970."""
        if (after is before and not effects) or (
            isinstance(input_, CommandInput) and isinstance(input_.command, SendPost | SendContent)
        ):
            return
        try:
            reason = self._transport.reason
            reasons = (
                {link: reason(link) for link in after.links_up ^ before.links_up}
                if after.links_up is not before.links_up
                else None
            )
            self._steps.append((input_, before, after, effects, begun_ns, ended_ns, reasons))
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def committed(self) -> None:
        """The batch is on disk and its effects were executed."""
        if self._steps:
            self._batches.append((self._steps, self._woke_ns, time.time_ns()))
            self._steps = []

    def rolled_back(self) -> None:
        """The batch was rolled back."""
        self._steps = []

    def before_wait(self, agent: Agent, now_s: float) -> None:
        """The thread is about to wait, so deferred work delays nothing. `now_s`: monotonic."""
        if self._recorder is not None:
            if self._batches or self._recorder.is_due(now_s):
                self._hand_over(agent, now_s)
        elif self._expire_at is not None and now_s >= self._expire_at:
            self._expire(agent, now_s)

    def woke(self) -> None:
        if self._recorder is not None:
            self._woke_ns = time.time_ns()

    # --- whether it is ----------------------------------------------------------------------------------------------

    def reload(self, agent: Agent, now_s: float, *, end: bool = False, deleted: bool = False) -> None:
        """Start or stop recording according to consent and settings. `end`: stop. `deleted`: the records were deleted,
        so recording starts anew."""
        try:
            if self._recorder is not None or (not end and self._journal.meta_get(TELEMETRY)):
                self._apply(agent, now_s, end, deleted)
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def handle(self, method: str, params: Struct, agent: Agent, now_s: float) -> Struct:
        """The response to a client's telemetry request. Raises LocalError."""
        from zerochat.agent.telemetry import handlers

        self._hand_over(agent, now_s)
        self._run(lambda recorder: recorder.flush(agent, on_request=True))
        answer = handlers.handle(method, params, self._journal, self._settings())
        if method in ("set_telemetry", "delete_telemetry"):
            self._fault = ""
            self.reload(agent, now_s, deleted=method == "delete_telemetry")
        if method == "set_telemetry":
            # Includes the records written when recording stopped.
            answer = handlers.status(self._journal, self._settings())
        return handlers.with_recording(answer, self._recorder is not None, self._fault)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _apply(self, agent: Agent, now_s: float, end: bool, deleted: bool) -> None:
        """Start, restart or stop the recorder. Passes every error on."""
        from zerochat.agent.telemetry import handlers

        bounds = None if end else handlers.retention_limits(self._journal, self._settings())
        if self._recorder is not None and not deleted:
            if bounds is not None:
                self._recorder.limits = bounds
                return
            self._hand_over(agent, now_s)
            self._run(lambda recorder: recorder.close(agent))
        self._recorder, self._batches = None, []
        if bounds is None:
            self._expire(agent, now_s)
            return
        from zerochat.agent.telemetry.recorder import QueueProbes

        counts, server = self._transport.counts, self._server
        self._expire_at = None
        outside = QueueProbes(lambda: sum(map(server.backlog, server.clients)), lambda: counts["dropped.full"])
        self._recorder = handlers.new_recorder(self._journal, agent, bounds, outside)
        self._fault = ""

    def _expire(self, agent: Agent, now_s: float) -> None:
        """Delete expired records while recording is off."""
        self._expire_at = now_s + EXPIRY_CHECK_S
        try:
            from zerochat.agent.telemetry import handlers

            handlers.expire(self._journal, self._settings(), agent)
        except Exception as error:  # noqa: BLE001  # it is tried again, and hurts nobody until then
            self._log.error("expired telemetry could not be deleted: %s", type(error).__name__)

    def _hand_over(self, agent: Agent, now_s: float) -> None:
        """Pass the committed batches to the recorder."""
        batches, self._batches = self._batches, []
        clients = bool(self._server.clients)
        self._run(lambda recorder: recorder.observe(agent, batches, now_s, clients=clients))

    def _run(self, work: "Callable[[Recorder], None]") -> None:
        """Run `work` on the recorder, if there is one."""
        if self._recorder is None:
            return
        try:
            work(self._recorder)
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Stop recording after an error: records with silent gaps would mislead."""
        self._recorder, self._steps, self._batches = None, [], []
        self._expire_at = 0.0  # stored records still expire
        if isinstance(error, LocalError):
            self._fault = error.sentence()
            self._log.error("telemetry stopped: %s", error.code)
        else:
            self._fault = "Recording stopped after an internal error. The agent's log has the details."
            self._log.error("telemetry stopped after an internal error", exc_info=error)
