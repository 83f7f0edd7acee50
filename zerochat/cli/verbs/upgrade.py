"""Verbs upgrade and rekey: other keys, and new keys, for a group."""

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import find_group, name_of
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument, yes_option
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import NotConfirmed, confirmed
from zerochat.cli.verbs.groups import warn_of_signing
from zerochat.presentation import upgrades


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "upgrade",
        "agree to upgrade a group's keys to keys that heal",
        "Agree to give a group of older keys the keys `dcgka`, which change with each message and heal after a theft.\n"
        "In a group with admins, one of them decides; otherwise as many members must agree as a removal takes. Then\n"
        "all members sign their messages, and the group can never go back. Asks for confirmation.",
        """
zerochat upgrade hikers
zerochat upgrade hikers --yes
""",
        run=upgrade,
    )
    group_argument(parser)
    yes_option(parser)
    parser = add_verb(
        verbs,
        "rekey",
        "renew the keys of a group whose keys heal",
        "Make new keys for a group now, for example after a theft of your profile. Keys that heal are renewed by\n"
        "themselves, too: after 100 of your messages, after seven days, and when a member has left.",
        """
zerochat rekey hikers
""",
        run=rekey,
    )
    group_argument(parser)


def upgrade(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = find_group(agent.client.list_groups(), options.group)
        name = name_of(group.name)
        if group.upgrade is not None and not (options.yes or group.upgrade.voted):
            question = upgrades.question(group, group.upgrade, name)
            if not confirmed(question, NotConfirmed(doing="Upgrading", group=name)):
                narrate("Nothing was changed.")
                return ExitCode.REFUSED
        group = agent.client.upgrade_group(group.id)
        out.data(group, [group.id])
        narrate(upgrades.result(group, name))
        if group.upgrade is None:
            warn_of_signing(group)
    return ExitCode.OK


def rekey(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = agent.client.rekey_group(find_group(agent.client.list_groups(), options.group).id)
        out.data(group, [group.id])
        narrate(upgrades.renewed(name_of(group.name)))
    return ExitCode.OK
