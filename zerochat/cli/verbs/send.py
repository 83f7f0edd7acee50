"""Verb send: posts a message with optional files, and waits for acknowledgements."""

import argparse
import sys
import time
from typing import TYPE_CHECKING, ClassVar

from zerochat.agent.storage.paths import user_path
from zerochat.cli.agent_access import COMMAND, attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import ID_CHARS, name_of, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument, timeout_option
from zerochat.cli.output import Output, narrate
from zerochat.cli.progress import POLL_S, Progress
from zerochat.cli.value_types import positive
from zerochat.errors import LocalError, quoted
from zerochat.ink import has_ink
from zerochat.presentation import mediation
from zerochat.presentation.delivery import STATES, name_list, own_quota_text, queued_sentence
from zerochat.rpc import Attachment, DeliveryReport, FileNotification

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.api.client import Client
    from zerochat.rpc import MemberDelivery, Sent


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "send",
        "send a message to a group",
        "Send the text of -m, or standard input. Prints the message's id, or with --wait who has received it. The\n"
        "message is on disk before the command returns; members who are offline receive it later.",
        """
zerochat send hikers -m "At eight, by the bridge."
git log -1 --oneline | zerochat send ops
zerochat send hikers --file photo.jpg --file map.pdf -m "Our way"
zerochat send hikers --reply last:bob -m "I'll be there."
zerochat send ops -m "deployed" --wait all --timeout 60
zerochat send ops -m "deployed" --wait 2 --format jsonl | jq .members
zerochat send ops --key "build-$BUILD" --wait any <report.txt
""",
        run=send,
    )
    parser.stray_hint = ". Put the text in quotes after -m."
    group_argument(parser)
    parser.add_argument("-m", "--message", metavar="TEXT", help="the text (default, or with -: read standard input)")
    parser.add_argument(
        "--reply",
        metavar="MSG",
        help="reply to this message: an id or a prefix of it (at least 4 characters), or last:NAME; write --reply=-ID"
        " if the id begins with a hyphen",
    )
    parser.add_argument(
        "--file",
        dest="files",
        action="append",
        metavar="PATH",
        help="attach a file (up to 8 times); -m is then optional, and --wait also waits for the files",
    )
    parser.add_argument("--me", action="store_true", help="send an action: `--me -m waves` shows as `* alice waves`")
    parser.add_argument(
        "--wait",
        type=_wait_count,
        metavar="any|all|N",
        help="wait until any, all or N other members have acknowledged it, and print who has",
    )
    parser.add_argument(
        "--key",
        dest="message_key",
        type=_idempotency_key,
        metavar="KEY",
        help="idempotency key: a second send with the same key within 30 days sends nothing and prints the first id",
    )
    timeout_option(parser, 30.0, "seconds that --wait waits (default: 30); exits with 5 on timeout")


def _idempotency_key(text: str) -> str:
    if not (0 < len(text) <= 128 and text.isascii() and text.isprintable()):
        raise argparse.ArgumentTypeError("must be 1 to 128 printable ASCII characters")
    return text


def _wait_count(text: str) -> int:
    """The number of acknowledgements to wait for: 1 for `any`, -1 for `all`."""
    if text in ("any", "all"):
        return {"any": 1, "all": -1}[text]
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not any, all or a number")
    return positive(text)


TEXT_BYTES_MAX = 256 * 1024
"""Limit of standard input; the agent has a lower limit with a better error message."""
OWN_AGENT_S_MAX = 5.0
"""How long a temporary agent tries to deliver a message."""
ALONE = "You are the only member so far. Invite others with `zerochat invite {group}`."


class NothingToSend(LocalError):
    """The message is empty. Give the text on the command line (see `zerochat {verb} --help`) or on standard input."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NotText(LocalError):
    """The input from {source} is not UTF-8 text. Nothing was sent."""


class TooMuchText(LocalError):
    """The input is longer than {limit} bytes; nothing was sent. Split it into several messages."""


def send(options: Options, out: Output) -> ExitCode:
    if options.files:
        return _send_files(options, out, options.files)
    text = text_to_send(options.message, options.verb)
    with attached(options) as agent:
        sent = agent.client.send_message(
            options.group, text, reply_to=options.reply, action=options.me, key=options.message_key
        )
        _report_duplicate(sent)
        if options.wait is not None:
            return _wait(agent.client, sent, options.wait, options.timeout_s, out)
        out.report(sent, [sent.id])
        return report_delivery(agent, sent)


def _send_files(options: Options, out: Output, paths: list[str]) -> ExitCode:
    """Send a message with files; members download them while an agent runs."""
    text = "" if options.message is None else text_to_send(options.message, options.verb)
    with attached(options) as agent:
        client = agent.client
        client.subscribe([options.group])
        sent = client.send_files(
            options.group,
            _absolute_paths(paths),
            text,
            reply_to=options.reply,
            action=options.me,
            key=options.message_key,
        )
        _report_duplicate(sent)
        if options.wait is not None:
            deadline = time.monotonic() + options.timeout_s
            code = _wait(client, sent, options.wait, options.timeout_s, out)
            return code if _files_delivered(client, sent, options.wait, deadline) else ExitCode.TIMEOUT
        out.report(sent, [sent.id])
        code = report_delivery(agent, sent)
        if agent.own and sent.of and not _files_delivered(client, sent, -1, time.monotonic() + OWN_AGENT_S_MAX):
            narrate("The other members can download the files while your agent runs: `zerochat agent`.")
    return code


def report_stored(error: LocalError) -> ExitCode:
    """The agent has gone after it has stored a message: a failure would make scripts send it again."""
    narrate(f"{error.sentence()} The message is stored: do not send it again. It is sent when an agent runs.")
    return ExitCode.UNREACHABLE


def _report_duplicate(sent: "Sent") -> None:
    if sent.duplicate:
        narrate("A message with this key was already sent; nothing was sent.")


def text_to_send(message: str | None, verb: str) -> str:
    """The text of the command line; for None or "-" that of standard input. Raises NothingToSend, NotText,
    TooMuchText."""
    if message not in (None, "-"):
        text, source = message, "the command line"
    elif sys.stdin is None or (message is None and sys.stdin.isatty()):
        raise NothingToSend(verb=verb)
    else:
        raw = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
        if len(raw) > TEXT_BYTES_MAX:
            raise TooMuchText(limit=TEXT_BYTES_MAX)
        text, source = raw.decode(errors="surrogateescape"), "standard input"
        text = text.replace("\r\n", "\n").removesuffix("\n")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotText(source=source) from None
    if not has_ink(text):
        raise NothingToSend(verb=verb)
    return text


def _wait(client: "Client", sent: "Sent", wanted: int, timeout_s: float, out: Output) -> ExitCode:
    """Wait for `wanted` acknowledgements (-1: all) and print the delivery state."""
    beyond = wanted > sent.of
    if sent.of == 0:
        narrate(ALONE.format(group=quoted(sent.group[:ID_CHARS])))
    elif beyond:
        narrate(f"There are only {sent.of} other members; waiting for all of them.")
    try:
        report = client.wait_for_delivery(sent.group, sent.id, count=-1 if beyond else wanted, timeout_s=timeout_s)
    except LocalError as error:
        out.report(sent, [sent.id])
        return report_stored(error)
    out.data(report, delivery_lines(report))
    if report.complete and not beyond:
        return ExitCode.OK
    if report.delivered < report.of:
        _explain_waiting(client, [one for one in report.members if not one.delivered])
    return ExitCode.TIMEOUT


def _explain_waiting(client: "Client", members: list["MemberDelivery"]) -> None:
    """Why these members have not acknowledged a message."""
    if why := mediation.why_nothing_sent(client.get_status()):
        narrate(why)
        return
    refusing = [one for one in members if one.state == "held"]
    if refusing:
        at = name_list(name_of(one.nick) for one in refusing)
        narrate(f"Your daily quota at {at} is used up. It is tried again at least hourly, as room comes back.")
    rest = [one for one in members if one.state != "held"]
    if any(one.connection not in ("connected", "indirect") for one in rest):
        narrate("It is sent again when the other members can be reached; `zerochat why` says what is missing.")
    elif rest:
        narrate("It is sent again until the other members have acknowledged it.")


def delivery_lines(report: DeliveryReport) -> list[str]:
    rows = [
        (
            name_of(member.nick),
            "delivered" if member.delivered else STATES["held"] if member.state == "held" else "queued",
            member.did,
        )
        for member in report.members
    ]
    return [*(table(rows) if rows else []), f"delivered to {report.delivered} of {report.of}"]


def report_delivery(agent: "Attached", sent: "Sent") -> ExitCode:
    """Print whether the message is delivered or queued; the agent of a command first tries to deliver it."""
    try:
        return _report_delivery(agent, sent)
    except LocalError as error:
        return report_stored(error)


def _report_delivery(agent: "Attached", sent: "Sent") -> ExitCode:
    if sent.of == 0:
        narrate(ALONE.format(group=quoted(sent.group[:ID_CHARS])))
        return ExitCode.OK
    if agent.own or agent.owner == COMMAND:
        report = agent.client.wait_for_delivery(sent.group, sent.id, timeout_s=OWN_AGENT_S_MAX)
        if report.complete:
            narrate(f"Delivered to {f'all {report.of} other members' if report.of > 1 else 'the other member'}.")
            return ExitCode.OK
        if not report.delivered:
            status = agent.client.get_status()
            if not status.mediators and (why := mediation.why_nothing_sent(status)):
                narrate(f"Queued. {why}")
                return ExitCode.UNREACHABLE
        narrate(
            f"Delivered to {report.delivered} of {report.of} members. It is queued for the others until an agent runs:"
            " `zerochat agent`, or the chat."
        )
        return ExitCode.OK if report.delivered else ExitCode.UNREACHABLE
    group = next((one for one in agent.client.list_groups() if one.id == sent.group), None)
    if group is not None and group.quota_used_up:
        narrate(f"{name_of(group.name)}: {own_quota_text(group.quota_used_up, name_of)}.")
    if group is not None and group.connected:
        return ExitCode.OK
    why = mediation.why_nothing_sent(agent.client.get_status())
    narrate(f"Queued. {why}" if why else queued_sentence(sent.of))
    return ExitCode.UNREACHABLE


def _absolute_paths(paths: list[str]) -> list[str]:
    """Absolute paths, as the agent runs in another folder."""
    return [str(user_path(path).absolute()) for path in paths]


def _files_delivered(client: "Client", sent: "Sent", wanted: int, deadline: float) -> bool:
    """Wait until `wanted` (-1: all) other members have the files of a message, and show the progress. False: timeout.
    The client must have subscribed before the message was sent."""
    try:
        return _watch_files(client, sent, wanted, deadline)
    except LocalError as error:
        report_stored(error)
        return False


def _watch_files(client: "Client", sent: "Sent", wanted: int, deadline: float) -> bool:
    (event,) = (one for one in client.get_history(sent.group).events if one.id == sent.id)
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
        news = client.next_notification(min(left, POLL_S))
        if news is not None and isinstance(news.params, FileNotification) and news.params.file.id in known:
            known[news.params.file.id] = news.params.file
    for one in known.values():
        progress.end(one, mine=True)
    return all(map(enough, known.values()))
