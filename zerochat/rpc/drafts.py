"""Drafts: messages that the user has not sent yet."""

from msgspec import Struct


class Draft(Struct, frozen=True):
    """A draft, and the params of `save_draft`. In the params, `group` is an id, a name or a prefix of an id."""

    group: str
    text: str
    """As typed; empty: delete the draft."""


class DraftsParams(Struct, frozen=True):
    after: str = ""
    """The id of the last group of the previous page."""


class Drafts(Struct, frozen=True):
    """A page of drafts, ordered by group id."""

    drafts: list[Draft]
    more: bool
