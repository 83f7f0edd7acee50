"""Memory, descriptors and latency of an agent under load.

Two figures bound the memory. While an attack goes on: resident memory, by what the limits of the code let strangers,
guests and members make the agent hold, with slack for the allocators; an attack sends many times as much. After it:
what the objects still hold (`gauged_agent.py`), which grows by nothing but what is meant to be kept.
"""

import time
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.machines import GROUP, until
from zerochat.agent.api.client import connect
from zerochat.agent.loop import QUEUE_BYTES_MAX
from zerochat.agent.network.zmq import listener, tcp_control, transport
from zerochat.didcomm.invitation import parse_invitation
from zerochat.rpc import Event

SLACK_MB = 8.0
"""What allocators keep for later, and what is at work for a moment."""

CONNECTION_BYTES, REQUEST_BYTES = 16 * 1024, 32 * 1024
"""libzmq's buffers of a connection; the envelope of a request, its decoded parts and its answer."""

STRANGERS_MB_MAX = SLACK_MB + (
    (listener.UNAUTHENTICATED_TOTAL_BYTES_MAX + listener.UNAUTHENTICATED_MAX * CONNECTION_BYTES) / 2**20
)

GUESTS_MB_MAX = SLACK_MB + (
    (listener.GUEST_BACKLOG_BYTES_MAX + transport.UNACKED_BYTES_MAX + transport.INPUTS_MAX * REQUEST_BYTES) / 2**20
)

MEMBER_MB_MAX = SLACK_MB + (
    (transport.MEMBER_CONNECTIONS_MAX * tcp_control.BACKLOG_BYTES_MAX + QUEUE_BYTES_MAX) / 2**20
)

LEFT_MB, WORD_MB = 0.75, 4 / 1024
"""What may be held after an attack, and by each word of a member: caches, and the pages of the journal in memory. A
word takes about 2 kB of them on average, until SQLite's caches are full (4 MB)."""

WORDS_MIN = 20
"""Words of a member that are delivered during an attack."""

PACE_S = 0.01

WARM = 100


class Gauge:
    """How much a process grows from now on, and its descriptors."""

    def __init__(self, machine):
        self.machine, self.files = machine, machine.files()
        self.held_mb, self.words = machine.held_mb(), 0
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

    def deliver_words(self, speaker, ear, goes_on):
        """Words of a member while an attack goes on, at least WORDS_MIN, and how long each took; seconds."""
        times = []
        while len(times) < WORDS_MIN or goes_on():
            times.append(word(speaker, ear))
            self.look()
            time.sleep(PACE_S)
        self.words += len(times)
        return times

    def nothing_is_left(self, kept_mb=0.0):
        """Wait until the attack's descriptors and memory are given back. `kept_mb`: what is meant to be kept."""
        until(lambda: self.machine.files() <= self.files + 4, "that its descriptors are given back")
        left = []

        def is_back():
            left.append(self.machine.held_mb() - self.held_mb)
            return left[-1] < LEFT_MB + kept_mb + WORD_MB * self.words

        try:
            until(is_back, "that its memory is given back")
        finally:
            print(f"{left[-1]:.1f} MB held after {self.words} words, {kept_mb:.1f} MB of it are meant to be kept")


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
