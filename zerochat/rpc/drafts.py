"""Drafts: messages that the user has not sent yet.

A draft belongs to the client that writes it. `client` is a name that a client chooses at random when it starts and
uses until it ends.
"""

from msgspec import Struct

CLIENT_CHARS_MAX = 64


class Draft(Struct, frozen=True):
    """A draft, and the params of `save_draft`. In the params, `group` is an id, a name or a prefix of an id."""

    group: str
    text: str
    """As typed; empty: delete the draft."""
    client: str = ""
    """Whose it is; empty: that of the next client that starts."""


class DraftsParams(Struct, frozen=True):
    """The drafts of `client`, which takes over those of clients that have ended; empty: the drafts of all clients. Of
    several drafts in a group, as many as fit into one."""

    after: str = ""
    """The id of the last group of the previous page."""
    client: str = ""


class Drafts(Struct, frozen=True):
    """A page of drafts, ordered by group id."""

    drafts: list[Draft]
    more: bool
