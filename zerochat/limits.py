"""Limits and defaults that several packages share. Those of one package stand in that package."""

KEYS_DEFAULT = "dcgka"
"""The keys of a new group: they heal after a theft, and authors sign their messages."""

MEMBERS_MAX = 64
"""Members of a group in which each is linked to each."""

MEMBERS_MAX_BY_PATH = {"mesh": MEMBERS_MAX, "ring": 1_000}
"""Members of a group by its path. On the ring each is linked to its neighbours alone."""

RING_KEYS = "dcgka"
"""The keys of a group on the ring: one encryption serves all, and any member may bring a signed message."""

MEMBER_PAGE_MAX = 64
"""Members that one answer or notification of the control protocol names. The others are in further pages."""

INDICATOR_MEMBERS_MAX = 32
"""In larger groups neither typing indicators nor read receipts are sent: each costs an envelope for every other member,
from every member."""

RECEIPTS_MAX, RECEIPTS_GROUP_MAX = 10_000, 640_000
"""Receipts that are kept for a member and for all members of a group: members times messages would have no bound."""

LATEST_AUTHORS_MAX = 8
"""The authors of the newest events whose chains every message of a large group is about."""

POST_BYTES_MAX = 64 * 1024
"""UTF-8 bytes of one post."""

FILE_BYTES_MAX = 1 << 30
"""Bytes of one shared file."""

KEEP_MS_MIN, KEEP_MS_MAX = 3_600_000, 3_650 * 86_400_000
"""How long a retention rule keeps messages: an hour to ten years."""

HOPS_MAX = 255
"""Hops of one event: how many bots have answered each other before it."""
