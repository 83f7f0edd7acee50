"""Verbs search and mentions: full-text search over the messages of all groups."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import ID_CHARS, local_time, name_of
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.cli.value_types import positive
from zerochat.presentation.history_rules import nothing_found
from zerochat.presentation.search_query import time_with_zone, with_zone
from zerochat.rpc import SearchParams
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client
    from zerochat.rpc import GroupInfo, Hit


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "search",
        "search messages",
        "Search messages by words, newest first, in all groups, or in the group that the first word names. A word\n"
        'also matches longer words that begin with it, ignoring case and accents; "words in quotes" match as a\n'
        "phrase. A message must match all terms. from:NAME, in:GROUP, after:DATE and before:DATE may stand among the\n"
        "words. A DATE is 2026-03-01, 2026-03-01T18:00, 18:00, today, yesterday, or 12h, 7d, 2w ago. Edited messages\n"
        "are found by their current text.",
        """
zerochat search bridge
zerochat search hikers bridge eight
zerochat search '"by the bridge"' from:alice after:2026-03-01
zerochat search --from me --after 7d --limit 200
zerochat search deploy --format jsonl | jq -r '[.group, .id, .text] | @tsv'
""",
        run=search,
    )
    parser.add_argument("terms", nargs="*", metavar="WORDS", help="[GROUP] and the words to search for")
    _filters(parser)
    parser = add_verb(
        verbs,
        "mentions",
        "list the messages that mention you",
        "Print the messages that mention you, newest first, in all groups, or in the group that the first word names.\n"
        "More words search among them, as `zerochat search` does.",
        """
zerochat mentions
zerochat mentions hikers --after 7d
zerochat mentions --format jsonl | jq -r .text
""",
        run=mentions,
    )
    parser.add_argument("terms", nargs="*", metavar="WORDS", help="[GROUP] and words that the messages must contain")
    _filters(parser)


def _filters(parser: Parser) -> None:
    parser.add_argument("--from", dest="author", metavar="NAME", help="only messages of this member; `me`: yours")
    parser.add_argument("--after", metavar="DATE", help="only messages since this day or time")
    parser.add_argument("--before", metavar="DATE", help="only messages before this day or time")
    parser.add_argument("--limit", type=positive, metavar="N", help="print at most N messages (default: 20)")
    parser.add_argument("--ids", action="store_true", help="start each line with a prefix of the message's id")


HITS = 20
PAGE_HITS = 100


def search(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        groups = agent.client.list_groups()
        group, words = _in_group(options.terms, groups)
        wanted = HITS if options.limit is None else options.limit
        hits = _hits(agent.client, " ".join(words), group, wanted, options)
    names = {one.id: name_of(one.name) for one in groups}
    out.data_list(hits, (_line(hit, names.get(hit.group, ""), ids=options.ids) for hit in hits))
    if not hits:
        narrate(nothing_found(one.history_start for one in groups if group in (None, one.id)))
    elif len(hits) == wanted and not out.jsonl:
        narrate(f"Showing the newest {wanted}; use `--limit` for more.")
    return ExitCode.OK


def mentions(options: Options, out: Output) -> ExitCode:
    options.terms = [*options.terms, "to:me"]
    return search(options, out)


def _in_group(words: Sequence[str], groups: "Sequence[GroupInfo]") -> tuple[str | None, list[str]]:
    """The group named by the first word, if others follow, and the search words."""
    first, *others = words or [""]
    named = [one.id for one in groups if first in (one.id, one.name)]
    if named and others:
        return (first if len(named) > 1 else named[0]), others
    return None, list(words)


def _hits(client: "Client", query: str, group: str | None, wanted: int, options: Options) -> "list[Hit]":
    """The newest `wanted` hits, fetched page by page."""
    hits: list[Hit] = []
    cursor: int | None = None
    now = int(time.time() * 1000)
    while len(hits) < wanted:
        params = SearchParams(
            query=with_zone(query, now),
            group=group,
            cursor=cursor,
            author=options.author,
            before=options.before and time_with_zone(options.before, now),
            after=options.after and time_with_zone(options.after, now),
            limit=min(wanted - len(hits), PAGE_HITS),
        )
        found = client.search_messages(params)
        hits += found.hits
        if (cursor := found.cursor) is None:
            break
    return hits


def _line(hit: "Hit", group: str, *, ids: bool) -> str:
    mark = f"{printable_line(hit.id[:ID_CHARS])}  " if ids else ""
    when = local_time(min(hit.sent_at, hit.received_at))
    return f"{mark}{when}  {group}  {name_of(hit.author.nick)}: {printable_line(hit.text)}"
