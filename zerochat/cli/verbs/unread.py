"""Verb read: moves the read markers."""

from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import find_group
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.rpc import GroupInfo


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "read",
        "mark messages as read",
        "Mark all messages of a group, or with --all of all groups, as read, for all clients of the profile. No other\n"
        "command does that. `zerochat status` counts unread messages, `zerochat history GROUP --unread` prints them.",
        """
zerochat read hikers
zerochat read --all
zerochat read --all --format jsonl
""",
        run=read,
    )
    parser.add_argument("group", nargs="?", default="", metavar="GROUP", help="the name or id of a group")
    parser.add_argument("--all", action="store_true", help="all groups")


class WhichGroup(LocalError):
    """Give either a group or --all."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def read(options: Options, out: Output) -> ExitCode:
    if bool(options.group) == options.all:
        raise WhichGroup
    with attached(options) as agent:
        before = agent.client.list_groups()
        known: list[GroupInfo] = before if options.all else [find_group(before, options.group)]
        states = agent.client.mark_read("" if options.all else known[0].id)
    out.data_list(states, ())
    messages, mentions = sum(group.unread for group in known), sum(group.mentions for group in known)
    # A read message that was edited to mention this member is an unread mention alone.
    count, what = (messages, "message") if messages else (mentions, "mention")
    narrate(f"Marked {count} {what}{'s' * (count != 1)} as read." if count else "No unread messages.")
    return ExitCode.OK
