"""The verb for looking for what was said."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import ID_CHARS, Output, local_time, name_of, narrate
from zerochat.cli.parser import Options
from zerochat.rpc import SearchParams
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client
    from zerochat.rpc import GroupInfo, Hit

HITS = 20
PAGE_HITS = 100


def search(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        groups = agent.client.groups()
        group, words = _in_group(options.words_sought, groups)
        wanted = HITS if options.limit is None else options.limit
        hits = _hits(agent.client, " ".join(words), group, wanted, options)
    names = {one.id: name_of(one.name) for one in groups}
    out.data_list(hits, (_line(hit, names.get(hit.group, ""), ids=options.ids) for hit in hits))
    if not hits:
        narrate("Nothing like this was found.")
    elif len(hits) == wanted and not out.jsonl:
        narrate(f"These are the newest {wanted}; `--limit` shows more.")
    return ExitCode.OK


def _in_group(words: Sequence[str], groups: "Sequence[GroupInfo]") -> tuple[str | None, list[str]]:
    """The group that the first word names, where others follow, and what is looked for."""
    first, *others = words or [""]
    named = [one.id for one in groups if first in (one.id, one.name)]
    if named and others:
        return (first if len(named) > 1 else named[0]), others
    return None, list(words)


def _hits(client: "Client", query: str, group: str | None, wanted: int, options: Options) -> "list[Hit]":
    """The newest so many, a page at a time."""
    hits: list[Hit] = []
    cursor: int | None = None
    while len(hits) < wanted:
        params = SearchParams(
            query=query,
            group=group,
            cursor=cursor,
            author=options.author,
            before=options.before,
            after=options.after,
            limit=min(wanted - len(hits), PAGE_HITS),
        )
        found = client.search(params)
        hits += found.hits
        if (cursor := found.cursor) is None:
            break
    return hits


def _line(hit: "Hit", group: str, *, ids: bool) -> str:
    mark = f"{printable_line(hit.id[:ID_CHARS])}  " if ids else ""
    when = local_time(min(hit.sent_at, hit.received_at))
    return f"{mark}{when}  {group}  {name_of(hit.author.nick)}: {printable_line(hit.text)}"
