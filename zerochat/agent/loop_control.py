"""What other threads set and read while the agent's loop runs."""

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from zerochat.agent.network.descriptors import WakeupPipe
from zerochat.agent.settings.reload import Reloaded

IDLE_MS: Final = 1_000
"""The longest wait: signals and the health of the ZAP authenticator are checked this often."""
RELOADS_KEPT: Final = 16


@dataclass
class LoopControl:
    """What other threads set and read while the loop runs."""

    stop: threading.Event = field(default_factory=threading.Event)
    drain: threading.Event = field(default_factory=threading.Event)
    reload: threading.Event = field(default_factory=threading.Event)
    ready: threading.Event = field(default_factory=threading.Event)
    wakeup: WakeupPipe = field(default_factory=WakeupPipe)
    heartbeat: float = field(default_factory=time.monotonic)
    """When the loop last started to wait, on the monotonic clock: at most `IDLE_MS` and one batch ago."""
    drain_s: float = 0.0
    """The time limit of a drain, from the settings."""
    reloaded: deque[Reloaded] = field(default_factory=lambda: deque(maxlen=RELOADS_KEPT))
    """The result of each reload."""
    unneeded: bool = False
    """The loop has ended because no client was connected for long."""
