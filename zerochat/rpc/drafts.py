"""What a person has begun to write and not sent."""

from msgspec import Struct


class Draft(Struct, frozen=True):
    """What is begun in a group; also the params of `draft`, which keeps it. `group`: there an id, a name, or the first
    letters of an id. `text`: as it was typed; empty: there is none any more."""

    group: str
    text: str


class DraftsParams(Struct, frozen=True):
    """`after`: the id of the last group of the page before."""

    after: str = ""


class Drafts(Struct, frozen=True):
    """A page of drafts, by the ids of their groups; `more`: there is another one."""

    drafts: list[Draft]
    more: bool
