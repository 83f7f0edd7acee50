"""The published figures that the wide area is measured beside, and the hosts that they were taken between.

They are those of the ZeroComm thesis: members on machines in several regions, and a tester that joined their groups and
published to them. Its pings count a TCP handshake in, so three quarters of them are the round trip. Its latencies are
until the last member's confirmation has come back, less half the slowest round trip, and averages of three.
"""

from itertools import cycle, islice

RTT_MS = {"alice": 145.0, "bob": 139.0, "carol": 305.0, "david": 71.0, "eve": 43.5}
"""From the tester to each machine, in the order in which members were placed on them, round and round."""
TESTER = "tester"
BATCHES = (1, 10, 50, 100)

PUBLISHED_MS: dict[str, dict[int, tuple[float | None, ...]]] = {
    "single": {
        1: (75.7, 77.0, 356.3, 359.7),
        2: (78.0, 232.3, 375.7, 524.7),
        4: (156.3, 467.3, 1090.7, 1407.0),
        8: (162.3, 793.0, 1435.7, 1757.3),
        16: (574.7, 1106.3, 1740.0, None),
    },
    "multi": {
        1: (72.0, 73.0, 355.7, 375.0),
        2: (75.0, 76.7, 369.0, 378.0),
        4: (156.0, 159.0, 777.0, 791.0),
        8: (159.3, 463.3, 795.3, 1098.0),
        16: (266.0, 474.7, 1098.3, 1414.7),
    },
}
"""Table 8: by queue mode and number of members, the latency of each of `BATCHES`; None where not all arrived."""
ARRIVED_PERCENT = {("single", 16, 100): 91.48}
"""Table 8: what arrived, where that was not everything."""

JOINED_MS = {
    1: ((1243, 1238, 1224), ()),
    2: ((1229, 1228, 1243), (2211, 2208, 2206)),
    4: ((2516, 2523, 2513), (4710, 4725, 4705)),
    8: ((2538, 2551, 2548), (4746, 4746, 4752)),
    16: ((2703, 2721, 2721), (4945, 4913, 4911)),
    32: ((2676, 2656, 2699), (4853, 4869, 4930)),
}
"""Table 6: by size before, three joins of somebody connected with the members, and three of somebody who was not."""
JOINED_AT_ONCE_MS = {
    (4, 4): (2608, 8381),
    (4, 16): (2725, 23022),
    (16, 4): (2966, 8573),
    (16, 16): (3134, 23596),
}
"""Table 7: by size before and number of joiners at once, likewise; one attempt each."""

BURST_MS = {1: 141.0, 10: 143.0, 30: 283.0, 100: 425.0, 200: 572.0}
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
