"""Verb join: joins a group by an invitation and waits for the result."""

import time
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import name_of, split_words
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, timeout_option
from zerochat.cli.invitation_input import invitation_text
from zerochat.cli.output import Output, narrate
from zerochat.cli.verbs.groups import FAREWELL_S_MAX, warn_of_signing
from zerochat.rpc import CONTRADICTION, JoinStatus, WarningNotification
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "join",
        "join a group by an invitation",
        "Join a group by the link or code of an invitation, and print the group's id. Without an argument it prompts\n"
        "for the invitation; `-` reads standard input. Prefer these: other users of this machine can see the command\n"
        "line.",
        """
zerochat join
wl-paste | zerochat join -
zerochat join - --name "Alice B." <invitation.txt
zerochat join - --read-only <invitation.txt
zerochat join --image code.png
zerochat join --cancel
zerochat join ZC:6BFOXN...
""",
        run=join,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("invitation", nargs="?", metavar="CODE-or-LINK", help="the invitation, or - for standard input")
    what.add_argument("--image", metavar="FILE", help="read the invitation from a picture of its QR code")
    what.add_argument(
        "--cancel",
        nargs="?",
        const="",
        metavar="GROUP-or-ID",
        help="cancel a pending join; if there are several, name one of those that `zerochat status` lists",
    )
    parser.add_argument("--name", metavar="NAME", help="your name in this group (default: the profile's name)")
    parser.add_argument("--read-only", action="store_true", help="join as a reader, who cannot post")
    timeout_option(
        parser,
        75.0,
        "seconds to wait (default: 75). Without an answer the agent gives up after 60 seconds; if a member must"
        " approve the request, it keeps asking for a day",
    )


POLL_S = 0.1


def join(options: Options, out: Output) -> ExitCode:
    if options.cancel is not None:
        return _cancel(options.cancel, options, out)
    invitation = invitation_text(options, "join")
    with attached(options) as agent:
        client = agent.client
        client.subscribe()
        begun = client.join_group(invitation, options.name, "reader" if options.read_only else "writer")
        status, reached = _follow(client, begun, options.timeout_s)
        if status.phase == "failed" and status.error == CONTRADICTION:
            return ExitCode.INTEGRITY
        if status.phase == "failed":
            return ExitCode.REFUSED if reached else ExitCode.UNREACHABLE
        if status.words:
            while_running = " while it runs (`zerochat agent`, or the chat)" if agent.own else ""
            narrate(
                f"Waiting for approval. Your agent keeps asking for a day{while_running}. `zerochat status` shows the"
                " state, `zerochat join --cancel` cancels the request."
            )
            return ExitCode.TIMEOUT
        if status.phase != "joined":
            if agent.own:
                narrate("Timed out. Run the same command again; the invitation is still valid.")
            else:
                narrate("Timed out. The agent keeps trying for a while: see `zerochat status`.")
            return ExitCode.TIMEOUT
        group = next((known for known in client.list_groups() if known.id == status.group), None)
        out.data(group or status, [status.group])
        if group is not None:
            warn_of_signing(group)
        if agent.own:
            narrate("You receive messages only while your agent runs: `zerochat agent`, or the chat.")
    return ExitCode.OK


def _cancel(which: str, options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        client = agent.client
        status = client.cancel_join(which)
        out.data(status, [status.join])
        narrate(f"Cancelled the join{' of ' + name_of(status.name) if status.name else ''}.")
        deadline = time.monotonic() + FAREWELL_S_MAX
        while agent.own and any(one.cancelling for one in client.get_status().joins) and time.monotonic() < deadline:
            time.sleep(POLL_S)  # the inviter should be informed
    return ExitCode.OK


def _follow(client: "Client", status: JoinStatus, timeout_s: float) -> tuple[JoinStatus, bool]:
    """Print the progress of a join until it ends or the time is up. True: the inviter was reached."""
    deadline = time.monotonic() + timeout_s
    reached, printed, words = False, "", False
    while status.phase not in ("joined", "failed"):
        news = client.next_notification(max(deadline - time.monotonic(), 0.0))
        if news is None:
            break
        if isinstance(news.params, WarningNotification):
            narrate(f"Warning: {printable_line(news.params.text)}")
        if isinstance(news.params, JoinStatus) and news.params.join == status.join:
            status = news.params
            reached |= status.phase not in ("dialling", "failed")
            if status.text != printed:
                narrate(status.text)
                printed = status.text
            if status.words and not words:
                words = True
                narrate(
                    "To prove your identity, read these words to the member who approves:\n"
                    + "\n".join(f"  {line}" for line in split_words(status.words))
                )
    return status, reached
