"""The published wide-area figures of the ZeroComm thesis, and the hosts between which they were taken.

Members ran on machines in several regions, and a tester joined their groups and published to them. Its latencies are
until the last member's acknowledgement has returned, less half the slowest round trip, averaged over three runs.
"""

from itertools import cycle, islice

from analytics import thesis

RTT_MS = {"alice": 145.0, "bob": 139.0, "carol": 305.0, "david": 71.0, "eve": 43.5}
"""From the tester to each machine, in the order in which members were placed on them, round and round."""
TESTER = "tester"

ARRIVED_PERCENT = {("single", 16, 100): 91.48}
"""Table 8: the success rate, where it is below 100 %."""

JOINED_MS = {size: joins for size, joins in thesis.JOINED_MS.items() if size <= 32}
"""Table 6, as far as it is measured here."""
JOINED_AT_ONCE_MS = {
    (4, 4): (2608, 8381),
    (4, 16): (2725, 23022),
    (16, 4): (2966, 8573),
    (16, 16): (3134, 23596),
}
"""Table 7: by size before and number of joiners at once, likewise; one attempt each."""

BURST_MS = {1: 141.0, 10: 143.0, 30: 283.0, 100: 425.0, 200: 572.0, 1000: 903.0}
"""Figures 27 and 28: messages at once to one member, until its confirmation is back."""
BURST_RTT_MS = 139.0


def member_names(size: int) -> list[str]:
    """alice, bob, carol, david, eve, alice-1, ..."""
    names = islice(cycle(RTT_MS), size)
    return [name + (f"-{place // len(RTT_MS)}" if place >= len(RTT_MS) else "") for place, name in enumerate(names)]


def one_way_ms(size: int) -> dict[str, float]:
    """The tester and so many members, with each host's share of the way: all of it is the members'."""
    return {TESTER: 0.0, **{name: RTT_MS[name.partition("-")[0]] / 2 for name in member_names(size)}}


def slowest_ms(size: int) -> float:
    """The longest round trip from the tester to any of so many members."""
    return 2 * max(one_way_ms(size).values())
