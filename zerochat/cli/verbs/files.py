"""Verb files: lists, downloads, saves and removes the files of a group."""

import time
from typing import TYPE_CHECKING, ClassVar

from zerochat.agent.storage.paths import user_path
from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import ID_CHARS, find_group, name_of, near_time, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument, timeout_option
from zerochat.cli.output import Output, narrate
from zerochat.cli.progress import POLL_S, Progress
from zerochat.errors import LocalError
from zerochat.presentation.files import file_line, format_size, short_name, transfer_state
from zerochat.rpc import FileInfo, FileNotification

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "files",
        "list, download and save the files of a group",
        "Files attached to messages. `list` shows them and their download state. `get` downloads a file from any\n"
        "member that has it, and waits; small files are downloaded automatically (`[files] auto_max` in the\n"
        "settings). `save` copies a file to your downloads folder, or to --output, and prints its path; it downloads\n"
        "the file first if necessary, and never overwrites. `remove` deletes it from this machine; others can then\n"
        "no longer download it from you. FILE is a name, an id or a prefix of it (at least 4 characters), or the id\n"
        "of a message with one file. Backups do not contain files.",
        """
zerochat send hikers --file photo.jpg -m "The bridge"
zerochat files list hikers
zerochat files get hikers film.mkv --timeout 600
zerochat files save hikers photo.jpg
zerochat files save hikers photo.jpg --output ~/pictures
zerochat files remove hikers film.mkv
zerochat files list hikers --format jsonl | jq -r '.file | [.id, .name] | @tsv'
""",
        run=files,
    )
    parser.takes_id = True
    parser.add_argument(
        "files_action", choices=("list", "get", "save", "remove"), metavar="list|get|save|remove", help="what to do"
    )
    group_argument(parser)
    parser.add_argument("file_ref", nargs="?", default="", metavar="FILE", help="the file (not for list)")
    parser.add_argument("-o", "--output", metavar="PATH", help="file or folder for `save`")
    timeout_option(parser, 3600.0, "seconds to wait for a download (default: 3600); exits with 5 on timeout")


class FileNeeded(LocalError):
    """Name the file: `zerochat files {action} {group} FILE`. `zerochat files list {group}` lists the files."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NotAvailable(LocalError):
    """{name} is not available: {why}. Retry with `zerochat files get`."""

    exit_code: ClassVar[int] = ExitCode.UNREACHABLE


def files(options: Options, out: Output) -> ExitCode:
    if options.files_action != "list" and not options.file_ref:
        raise FileNeeded(action=options.files_action, group=options.group)
    with attached(options) as agent:
        client = agent.client
        match options.files_action:
            case "list":
                return _list(client, options.group, out)
            case "remove":
                info = client.drop_file(options.group, options.file_ref)
                out.data(info, [f"Removed {short_name(info.file)} from this machine."])
                return ExitCode.OK
        found = _get(client, options.group, options.file_ref, options.timeout_s)
        if found is None:
            narrate("Timed out. The partial download is kept and continues while an agent runs.")
            return ExitCode.TIMEOUT
        if options.files_action == "get":
            out.data(found, [file_line(found.file)])
            return ExitCode.OK
        to = str(user_path(options.output).absolute()) if options.output else ""
        saved = client.save_file(found.group, found.file.id, to)
        out.data(saved, [saved.path])
    return ExitCode.OK


def _list(client: "Client", group: str, out: Output) -> ExitCode:
    found = list(client.list_files(group))
    me = find_group(client.list_groups(), group).me
    rows = [
        (
            one.file.id[:ID_CHARS],
            short_name(one.file),
            format_size(one.file.size),
            name_of(one.author.nick),
            near_time(one.posted_at),
            transfer_state(one.file, one.author.did == me),
        )
        for one in found
    ]
    out.data_list(found, table(rows))
    if not found and not out.jsonl:
        narrate("No files yet. Send one with `zerochat send GROUP --file PATH`.")
    return ExitCode.OK


def _get(client: "Client", group: str, wanted: str, timeout_s: float) -> FileInfo | None:
    """Download a file; None on timeout. Raises NotAvailable."""
    client.subscribe([group])
    info = client.fetch_file(group, wanted)
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
                raise NotAvailable(name=short_name(file), why="no member has it")
            case "getting" if not file.fault:
                progress.show(file)
            case _:
                progress.end(file)
                why = file.fault.rstrip(".") or "it was removed during the download"
                raise NotAvailable(name=short_name(file), why=why)
        left = deadline - time.monotonic()
        if left <= 0:
            progress.end(file)
            return None
        news = client.next_notification(min(left, POLL_S))
        if news is not None and isinstance(news.params, FileNotification) and news.params.file.id == file.id:
            file = news.params.file
