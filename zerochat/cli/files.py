"""The verb about files, and the files that go with `send`."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import ID_CHARS, Output, find_group, name_of, narrate, near_time, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.presentation.files import line, name_words, size_words, standing_words
from zerochat.rpc import Attachment, FileInfo, FileNews

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client
    from zerochat.rpc import Sent

LOOK_S = 1.0
"""How long to wait for news before asking how things stand."""


class WhichFile(LocalError):
    """`zerochat files {action}` needs a file too. `zerochat files list {group}` shows those that there are."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NotAvailable(LocalError):
    """{name} cannot be had: {why}. `zerochat files get` tries again."""

    exit_code: ClassVar[int] = ExitCode.UNREACHABLE


def files(options: Options, out: Output) -> ExitCode:
    if options.files_action != "list" and not options.wanted:
        raise WhichFile(action=options.files_action, group=options.group)
    with attached(options) as agent:
        client = agent.client
        match options.files_action:
            case "list":
                return _list(client, options.group, out)
            case "drop":
                info = client.drop(options.group, options.wanted)
                out.data(info, [f"{name_words(info.file)} is not kept here any more."])
                return ExitCode.OK
        found = _get(client, options.group, options.wanted, options.timeout_s)
        if found is None:
            narrate("It is not here yet. What has come is kept, and it goes on while an agent runs.")
            return ExitCode.TIMEOUT
        if options.files_action == "get":
            out.data(found, [line(found.file)])
            return ExitCode.OK
        to = str(Path(options.output).expanduser().absolute()) if options.output else ""
        saved = client.save(found.group, found.file.id, to)
        out.data(saved, [saved.path])
    return ExitCode.OK


def whole_paths(paths: list[str]) -> list[str]:
    """As the agent, which runs in another folder, would find them."""
    return [str(Path(path).expanduser().absolute()) for path in paths]


def _list(client: "Client", group: str, out: Output) -> ExitCode:
    found = list(client.files(group))
    me = find_group(client.groups(), group).me
    rows = [
        (
            one.file.id[:ID_CHARS],
            name_words(one.file),
            size_words(one.file.size),
            name_of(one.author.nick),
            near_time(one.posted_at),
            standing_words(one.file, one.author.did == me),
        )
        for one in found
    ]
    out.data_list(found, table(rows))
    if not found and not out.jsonl:
        narrate("No file was sent here yet: `zerochat send GROUP --file PATH`.")
    return ExitCode.OK


def _get(client: "Client", group: str, wanted: str, timeout_s: float) -> FileInfo | None:
    """Fetch a file and wait until it is here; None: it takes longer than that. Raises NotAvailable."""
    client.subscribe([group])
    info = client.get(group, wanted)
    progress, deadline = Progress(), time.monotonic() + timeout_s
    file = info.file
    while True:
        match file.state:
            case "here":
                progress.end(file)
                return FileInfo(
                    group=info.group, event=info.event, author=info.author, posted_at=info.posted_at, file=file
                )
            case "gone":
                progress.end(file)
                raise NotAvailable(name=name_words(file), why="no member has it any more")
            case "getting" if not file.fault:
                progress.show(file)
            case _:
                progress.end(file)
                why = file.fault.rstrip(".") or "somebody has removed it meanwhile"
                raise NotAvailable(name=name_words(file), why=why)
        left = deadline - time.monotonic()
        if left <= 0:
            progress.end(file)
            return None
        news = client.next_news(min(left, LOOK_S))
        if news is not None and isinstance(news.item, FileNews) and news.item.file.id == file.id:
            file = news.item.file


def given(client: "Client", sent: "Sent", wanted: int, deadline: float) -> bool:
    """Wait until so many (-1: all) other members have the files of a message, and show how that gets on; False: they
    do not yet. `subscribe` before it is sent."""
    (event,) = (one for one in client.history(sent.group).events if one.id == sent.id)
    known = {one.id: one for one in event.attachments}
    progress = Progress()

    def enough(one: Attachment) -> bool:
        return one.holders >= (one.of if wanted < 0 else min(wanted, one.of))

    while not all(map(enough, known.values())):
        for one in known.values():
            if not enough(one):
                progress.show(one, mine=True)
                break
        left = deadline - time.monotonic()
        if left <= 0:
            break
        news = client.next_news(min(left, LOOK_S))
        if news is not None and isinstance(news.item, FileNews) and news.item.file.id in known:
            known[news.item.file.id] = news.item.file
    for one in known.values():
        progress.end(one, mine=True)
    return all(map(enough, known.values()))


class Progress:
    """How files get on: one line of a terminal that is written again and again; elsewhere only how it ends."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._write = write or (sys.stderr.write if sys.stderr is not None else len)
        self._shown = ""

    def show(self, file: Attachment, mine: bool = False) -> None:
        text = line(file, mine)
        if self._live and text != self._shown:
            self._write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = text

    def end(self, file: Attachment, mine: bool = False) -> None:
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = ""
        narrate(line(file, mine))
