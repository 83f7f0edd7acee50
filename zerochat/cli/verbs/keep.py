"""Verb keep: how long messages of a conversation stay on this machine."""

import argparse
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import find_group, name_of
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument
from zerochat.cli.output import Output, narrate
from zerochat.presentation.keep_rules import BadKeep, forms_text, read_keep, state_sentence

if TYPE_CHECKING:
    from zerochat.rpc import GroupInfo


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "keep",
        "show or set how long messages of a conversation are kept here",
        "Show how long messages of a group stay on this machine, or choose a time for this group. The shortest of the\n"
        "group's rule (`zerochat new NAME --keep 30d`), this choice and the setting storage.keep counts: the answer\n"
        "names all three, and a longer choice has no effect. Older messages are erased from this machine, with their\n"
        "files; other members keep theirs as long as the group's rule says.",
        """
zerochat keep hikers
zerochat keep hikers 30d
zerochat keep hikers forever
""",
        run=keep,
    )
    group_argument(parser)
    parser.add_argument(
        "time",
        nargs="?",
        type=keep_rule,
        metavar="TIME",
        help=f"{forms_text()}; forever: as long as the group's rule and the setting say",
    )


def keep_rule(text: str) -> int:
    """A retention such as `30d`, in ms; 0: `forever`."""
    try:
        return read_keep(text)
    except BadKeep as error:
        raise argparse.ArgumentTypeError(error.sentence()) from None


def keep(options: Options, out: Output) -> ExitCode:
    rule: int | None = options.time
    with attached(options) as agent:
        group: GroupInfo = find_group(agent.client.list_groups(), options.group)
        if rule is not None:
            group = agent.client.set_retention(group.id, rule)
    out.data(group, ())
    narrate(f"{name_of(group.name)}: {state_sentence(group)}")
    return ExitCode.OK
