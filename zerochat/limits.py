"""Limits that several packages share. A limit of one package stands in that package."""

MEMBERS_MAX = 64
"""Members of a group. Pairwise keys cost one envelope a member and message."""

POST_BYTES_MAX = 64 * 1024
"""UTF-8 bytes of one post."""

FILE_BYTES_MAX = 1 << 30
"""Bytes of one shared file."""

HOPS_MAX = 255
"""Hops of one event: how many bots have answered each other before it."""
