"""What a person has begun to write, kept in the journal: a draft is as secret as a message, and as little to be lost.

It is no event and nobody else hears of it, so the core knows nothing of drafts; they lie beside its state, under names
of their own in `meta`, and go with the group that they were for.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.tables import DRAFT
from zerochat.errors import LocalError
from zerochat.rpc import Draft, Drafts

DRAFT_BYTES_MAX: Final = 128 * 1024
"""UTF-8 of one draft: twice what a message may have, so that one can be begun too long and shortened; and as JSON, with
every character escaped, still within one line of the control socket."""
PAGE_BYTES_MAX: Final = 256 * 1024
"""Of JSON; a page has at least one draft."""


class DraftTooLong(LocalError):
    """This draft has more than {limit} bytes and is not kept: shorten it, or put it into a file."""


def keep(journal: Journal, group: str, text: str) -> None:
    """Put the draft of a group, by its id, on disk in the place of the one before. Raises DraftTooLong."""
    value = text.encode(errors="replace")
    if len(value) > DRAFT_BYTES_MAX:
        raise DraftTooLong(limit=DRAFT_BYTES_MAX)
    if text.strip():
        journal.meta_set(DRAFT + group, value)
    else:
        journal.meta_drop(DRAFT + group)


def page(journal: Journal, groups: Iterable[str], after: str) -> Drafts:
    """The drafts of `groups` behind the one with the id `after`."""
    found: list[Draft] = []
    size = 0
    for group in sorted(one for one in groups if one > after):
        value = journal.meta_get(DRAFT + group)
        if value is None:
            continue
        draft = Draft(group, value.decode(errors="replace"))
        size += len(msgspec.json.encode(draft))
        if found and size > PAGE_BYTES_MAX:
            return Drafts(found, more=True)
        found.append(draft)
    return Drafts(found, more=False)
