"""Memory, descriptors and latency of an agent under load."""

import time
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.machines import GROUP
from zerochat.agent.api.client import connect
from zerochat.didcomm.invitation import parse_invitation
from zerochat.rpc import Event

GROWTH_MB_MAX = 8.0

P99_S, SLACK = 0.25, 3
"""What a member's word may take while strangers are at it; and how much longer on a machine that is busy."""

PACE_S = 0.01

WARM = 100


class Gauge:
    """How much a process grows from now on, and its descriptors."""

    def __init__(self, machine):
        self.machine, self.files = machine, machine.files()
        self.before_mb = self.highest_mb = machine.rss_mb()
        self._peak = Path(f"/proc/{machine.process.pid}/status")
        with suppress(OSError):
            Path(f"/proc/{machine.process.pid}/clear_refs").write_text("5")

    def look(self):
        self.highest_mb = max(self.highest_mb, self.machine.rss_mb())
        peak_mb = next(int(line.split()[1]) for line in self._peak.read_text().splitlines() if "VmHWM" in line) / 1024
        if peak_mb < self.before_mb + 2000:  # else it could not be reset
            self.highest_mb = max(self.highest_mb, peak_mb)
        return self.highest_mb - self.before_mb

    def files_are_back(self):
        return self.machine.files() <= self.files + 4


def server_key_of(machine):
    invitation = parse_invitation(machine.client.create_invitation(GROUP).url, int(time.time()))
    return invitation.server_key


def ports_of(machine):
    status = machine.client.get_status()
    return tuple(int(where.rpartition(":")[2]) for where in (status.pair, status.queue))


@contextmanager
def ears(machine):
    with connect(machine.places, "test") as ear:
        ear.subscribe()
        yield ear


def word(speaker, ear):
    """One word, and how long it took until the other one's face was told of it; seconds."""
    text = f"word {len(speaker.said)}"
    begun = time.monotonic()
    speaker.say(text)
    for notification in ear.notifications(30):
        if isinstance(notification.params, Event) and notification.params.body.get("text") == text:
            return time.monotonic() - begun
    raise AssertionError(f"nobody heard {text!r}")


def p99(times):
    return sorted(times)[int(0.99 * (len(times) - 1))]
