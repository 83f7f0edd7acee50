"""Drafts: unsent messages, one per group, stored in the journal's meta table.

A draft is as confidential and durable as a message, but no event, so the core does not know it. It is deleted with its
group.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.tables import DRAFT_PREFIX
from zerochat.errors import LocalError
from zerochat.rpc import Draft, Drafts

DRAFT_BYTES_MAX: Final = 128 * 1024
"""UTF-8 bytes of one draft: twice the limit of a message, so that a long text can be shortened later; as JSON with
every character escaped it still fits one line of the control socket."""
PAGE_BYTES_MAX: Final = 256 * 1024
"""JSON bytes of a page, which has at least one draft."""


class DraftTooLong(LocalError):
    """This draft has more than {limit} bytes and was not saved. Shorten it, or save it in a file."""


def store_draft(journal: Journal, group: str, text: str) -> None:
    """Store the draft of a group (by id); an empty text deletes it. Raises DraftTooLong."""
    value = text.encode(errors="replace")
    if len(value) > DRAFT_BYTES_MAX:
        raise DraftTooLong(limit=DRAFT_BYTES_MAX)
    if text.strip():
        journal.meta_set(DRAFT_PREFIX + group, value)
    else:
        journal.meta_delete(DRAFT_PREFIX + group)


def drafts_page(journal: Journal, groups: Iterable[str], after: str) -> Drafts:
    """The drafts of `groups` (ids) after the group `after`, in the order of the ids."""
    found: list[Draft] = []
    size = 0
    for group in sorted(group for group in groups if group > after):
        value = journal.meta_get(DRAFT_PREFIX + group)
        if value is None:
            continue
        draft = Draft(group, value.decode(errors="replace"))
        size += len(msgspec.json.encode(draft))
        if found and size > PAGE_BYTES_MAX:
            return Drafts(found, more=True)
        found.append(draft)
    return Drafts(found, more=False)
