"""Measurements of the ZeroComm thesis, to compare with.

Its members were machines in several regions, the slowest with a round trip of 305 ms. Latencies end with the last
member's confirmation, less half the slowest round trip; averages of three.
"""

PING_MS = {"alice": 193.00, "bob": 185.67, "carol": 406.67, "david": 94.33, "eve": 58.00}
"""Table 5: the mean of three HTTP requests from the tester to each machine. The first of three includes the TCP
handshake, so three quarters of it are the round trip."""
BATCHES = (1, 10, 50, 100)
WHOLE_MS: dict[str, dict[int, tuple[float | None, ...]]] = {
    "pairwise-single": {
        1: (75.7, 77.0, 356.3, 359.7),
        2: (78.0, 232.3, 375.7, 524.7),
        4: (156.3, 467.3, 1090.7, 1407.0),
        8: (162.3, 793.0, 1435.7, 1757.3),
        16: (574.7, 1106.3, 1740.0, None),
        32: (577.3, 1518.7, None, None),
        64: (887.7, 1758.3, None, None),
    },
    "pairwise-multi": {
        1: (72.0, 73.0, 355.7, 375.0),
        2: (75.0, 76.7, 369.0, 378.0),
        4: (156.0, 159.0, 777.0, 791.0),
        8: (159.3, 463.3, 795.3, 1098.0),
        16: (266.0, 474.7, 1098.3, 1414.7),
        32: (266.3, 782.7, 1411.3, 1728.0),
        64: (374.3, 1092.3, 1726.0, None),
    },
}
"""Table 8: by key mode and members, for each of BATCHES; None if not all arrived."""
ONE_MEMBER_MS = {
    150: 497.7,
    200: 502.7,
    250: 631.7,
    300: 638.7,
    400: 650.7,
    500: 670.7,
    600: 783.7,
    700: 792.7,
    800: 813.7,
    900: 824.7,
    1000: 833.7,
}
"""Figures 27 and 28: by messages at once, to one member with a single queue; those beyond Table 8. As there, without
the way back of the last confirmation (69.3 ms)."""


def whole_ms(keys: str, members: int, batch: int) -> float | None:
    """The time until all members had a batch, by Table 8 or Figures 27 and 28; None: not published, or not all came."""
    if batch in BATCHES:
        published = WHOLE_MS.get(keys, {}).get(members)
        return published[BATCHES.index(batch)] if published else None
    return ONE_MEMBER_MS.get(batch) if (keys, members) == ("pairwise-single", 1) else None


JOINED_MS: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    1: ((1243, 1238, 1224), ()),
    2: ((1229, 1228, 1243), (2211, 2208, 2206)),
    4: ((2516, 2523, 2513), (4710, 4725, 4705)),
    8: ((2538, 2551, 2548), (4746, 4746, 4752)),
    16: ((2703, 2721, 2721), (4945, 4913, 4911)),
    32: ((2676, 2656, 2699), (4853, 4869, 4930)),
    64: ((3192, 3194, 3170), (5388, 5375, 5396)),
}
"""Table 6: by members before, three joins with existing connections and three without."""
MESSAGE_B = {1: 681, 5: 685, 27: 713, 59: 757, 135: 857, 564: 1429, 1371: 2505, 2788: 4397}
"""Figure 31: bytes of a text and of its envelope for one recipient."""
STATE_B = {
    2: (1756, 1400),
    4: (5050, 3512),
    8: (11617, 7711),
    16: (24726, 16120),
    25: (41268, 26654),
    32: (50962, 32860),
    64: (103534, 66385),
}
"""Figure 32, and its text for 25: members, and bytes of a membership state before and after Zstandard."""
