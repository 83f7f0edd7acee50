"""Drafts: unsent messages, one per group and client, stored in the journal's meta table.

A draft is as confidential and durable as a message, but no event, so the core does not know it. It belongs to the
client that writes it, so that two chats do not overwrite each other; a client that starts takes over the drafts of
clients that have ended. It is deleted with its group.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.tables import DRAFT_PREFIX
from zerochat.errors import LocalError
from zerochat.rpc import Draft, Drafts

DRAFT_BYTES_MAX: Final = 128 * 1024
"""UTF-8 bytes of one draft: twice the limit of a message, so that a long text can be shortened later; as JSON with
everything escaped it still fits one line of the control socket."""
PAGE_BYTES_MAX: Final = 512 * 1024
"""JSON bytes of a page, which has at least one draft."""


class DraftTooLong(LocalError):
    """This draft has more than {limit} bytes and was not saved. Shorten it, or save it in a file."""


def store_draft(journal: Journal, group: str, text: str, client: str = "") -> None:
    """Store a client's draft of a group (by id); an empty text deletes it. Raises DraftTooLong."""
    value = text.encode(errors="replace")
    if len(value) > DRAFT_BYTES_MAX:
        raise DraftTooLong(limit=DRAFT_BYTES_MAX)
    key = f"{DRAFT_PREFIX}{group}/{client}"
    if text.strip():
        journal.meta_set(key, value)
    else:
        journal.meta_delete(key)


def take_over_drafts(journal: Journal, groups: Iterable[str], client: str, running: Collection[str]) -> None:
    """Give the drafts of all clients that are not `running` to this client, as one text per group."""
    for group in groups:
        own = f"{DRAFT_PREFIX}{group}/{client}"
        found = journal.meta_below(f"{DRAFT_PREFIX}{group}/")
        ended = [key for key in found if key != own and key.rpartition("/")[2] not in running]
        merged = _merged([*([found[own]] if own in found else []), *(found[key] for key in ended)])
        if ended and len(merged) <= DRAFT_BYTES_MAX:
            journal.meta_set(own, merged)
            for key in ended:
                journal.meta_delete(key)


def drafts_page(journal: Journal, groups: Iterable[str], after: str, client: str | None = None) -> Drafts:
    """The drafts of `groups` (ids) after the group `after`, in the order of the ids. None: of all clients, as one text
    per group."""
    found: list[Draft] = []
    size = 0
    for group in sorted(group for group in groups if group > after):
        below = f"{DRAFT_PREFIX}{group}/"
        texts = [text for key, text in journal.meta_below(below).items() if client is None or key == below + client]
        if not texts:
            continue
        draft = Draft(group, _merged(texts).decode(errors="replace"))
        size += len(msgspec.json.encode(draft))
        if found and size > PAGE_BYTES_MAX:
            return Drafts(found, more=True)
        found.append(draft)
    return Drafts(found, more=False)


def _merged(texts: Iterable[bytes]) -> bytes:
    """Different texts one below the other."""
    return b"\n".join(dict.fromkeys(texts))
