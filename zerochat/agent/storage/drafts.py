"""Drafts: unsent messages, one per group and client, stored in the journal's meta table.

A draft is as confidential and durable as a message, but no event, so the core does not know it. It belongs to the
client that writes it, so that two chats do not overwrite each other; a client that starts takes over the drafts of
clients that have ended. It is deleted with its group, and expires as messages do, from when it was last stored.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from zerochat.agent.storage.erasure import DRAFT_PREFIX, DRAFT_TIME_BYTES, drafted_at
from zerochat.agent.storage.journal import Journal
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
        journal.meta_set(key, _dated(time.time_ns() // 1_000_000, value))
    else:
        journal.meta_delete(key)


def take_over_drafts(journal: Journal, groups: Iterable[str], client: str, running: Collection[str]) -> None:
    """Give the drafts of all clients that are not `running` to this client, as one text per group: as many as fit into
    one draft. The others stay for the next time."""
    for group in groups:
        own = f"{DRAFT_PREFIX}{group}/{client}"
        dated = journal.meta_below(f"{DRAFT_PREFIX}{group}/")
        found = {key: value[DRAFT_TIME_BYTES:] for key, value in dated.items()}
        before = {own: found.pop(own)} if own in found else {}
        ended = {key: text for key, text in found.items() if key.rpartition("/")[2] not in running}
        taken, merged = _merged(before | ended)
        if taken - before.keys():
            journal.meta_set(own, _dated(max(drafted_at(dated[key]) for key in taken), merged))
            for key in taken - {own}:
                journal.meta_delete(key)


def drafts_page(journal: Journal, groups: Iterable[str], after: str, client: str | None = None) -> Drafts:
    """The drafts of `groups` (ids) after the group `after`, in the order of the ids. None: of all clients, as one text
    per group, as far as they fit into one draft."""
    found: list[Draft] = []
    size = 0
    for group in sorted(group for group in groups if group > after):
        below = f"{DRAFT_PREFIX}{group}/"
        kept = {key: value[DRAFT_TIME_BYTES:] for key, value in journal.meta_below(below).items()}
        taken, text = _merged(kept if client is None else {key: kept[key] for key in kept if key == below + client})
        if not taken:
            continue
        draft = Draft(group, text.decode(errors="replace"))
        size += len(msgspec.json.encode(draft))
        if found and size > PAGE_BYTES_MAX:
            return Drafts(found, more=True)
        found.append(draft)
    return Drafts(found, more=False)


def _dated(at: int, text: bytes) -> bytes:
    """The stored form of a draft with its time (UTC ms)."""
    return at.to_bytes(DRAFT_TIME_BYTES) + text


def _merged(drafts: Mapping[str, bytes]) -> tuple[set[str], bytes]:
    """Different texts one below the other, as far as they fit into one draft, and the keys of those that do."""
    taken, texts, size = set[str](), list[bytes](), -1
    for key, text in drafts.items():
        if text not in texts:
            if size + 1 + len(text) > DRAFT_BYTES_MAX:
                continue
            size += 1 + len(text)
            texts.append(text)
        taken.add(key)
    return taken, b"\n".join(texts)
