"""Limits that several packages share. A limit of one package stands in that package."""

MEMBERS_MAX = 64
"""Members of a group. Pairwise keys cost one envelope a member and message."""

POST_BYTES_MAX = 64 * 1024
"""UTF-8 bytes of one post."""

FILE_BYTES_MAX = 1 << 30
"""Bytes of one shared file."""

KEEP_MS_MIN, KEEP_MS_MAX = 3_600_000, 3_650 * 86_400_000
"""How long a retention rule keeps messages: an hour to ten years."""

HOPS_MAX = 255
"""Hops of one event: how many bots have answered each other before it."""
