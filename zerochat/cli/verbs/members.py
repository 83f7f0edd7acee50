"""Verbs members, remove, role, transfer, rename and ignore: list and change the members of a group."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.event_text import COMMAND_CELLS_MAX
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import (
    TRUST,
    completeness,
    find_group,
    find_member,
    name_of,
    near_time,
    quoted,
    removal_votes,
    table,
)
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument, member_argument, yes_option
from zerochat.cli.output import Output, narrate
from zerochat.cli.paging import page_limit, page_options
from zerochat.cli.prompts import NotConfirmed, confirmed
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.presentation import group_rules, mediation
from zerochat.presentation.delivery import name_list
from zerochat.rpc import MemberInfo
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.api.client import Client


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "members",
        "list a group's members",
        "List the members of a group in the order of joining: role, connection, when each was last seen, whether they\n"
        "have the same member list as you, and whether you have verified them. WORD: only those whose name contains\n"
        "it, or whose key starts with it.",
        """
zerochat members hikers
zerochat members hikers ann
zerochat members hikers --limit 20 --after did:key:z6Mk...
zerochat members hikers --format jsonl | jq -r .nick
zerochat members hikers --dismiss
""",
        run=members,
    )
    group_argument(parser)
    parser.add_argument("text", metavar="WORD", nargs="?", help="a part of the name, or the start of the key")
    page_options(parser, "members")
    parser.add_argument("--after", metavar="KEY", help="list the members after the one with this key")
    parser.add_argument("--dismiss", action="store_true", help="dismiss the warnings about conflicting member lists")
    parser = add_verb(
        verbs,
        "remove",
        "remove a member from a group, or vote for it",
        "Remove a member; in groups that decide by vote, vote for the removal. A removed member needs a new\n"
        "invitation and a new key to return. Asks for confirmation.",
        """
zerochat remove hikers bob
zerochat remove hikers bob --yes
zerochat remove hikers bob --yes --format jsonl | jq .removed
""",
        run=remove,
    )
    group_argument(parser)
    member_argument(parser)
    yes_option(parser)
    parser = add_verb(
        verbs,
        "role",
        "change the role of a member",
        "Make a member, or yourself, a reader (cannot post), a writer or an admin. In groups without admins you can\n"
        "change only your own role; otherwise the owner and the admins change roles.",
        """
zerochat role hikers reader
zerochat role crew bob admin
""",
        run=role,
    )
    group_argument(parser)
    member_argument(parser, default="you")
    parser.add_argument(
        "role", choices=("reader", "writer", "admin"), metavar="reader|writer|admin", help="the new role"
    )
    parser = add_verb(
        verbs,
        "transfer",
        "make another member the owner of a group",
        "Make another member the owner in your place, in a group with an owner and admins. You become an admin. Asks\n"
        "for confirmation.",
        """
zerochat transfer crew bob
zerochat transfer crew bob --yes
""",
        run=transfer,
    )
    group_argument(parser)
    member_argument(parser)
    yes_option(parser)
    parser = add_verb(
        verbs,
        "rename",
        "change your display name in a group",
        "Change your display name in one group. All members see the old and the new name.",
        """
zerochat rename hikers "Alice B."
""",
        run=rename,
    )
    group_argument(parser)
    parser.add_argument("name", metavar="NAME", help="the new name")
    parser = add_verb(
        verbs,
        "ignore",
        "hide the messages of a member from you",
        "Do not show the messages of a member in this profile, nor count them or notify you of them. Only you know.\n"
        "Without MEMBER: list the members that you ignore.",
        """
zerochat ignore hikers bob
zerochat ignore hikers
zerochat ignore hikers bob --undo
""",
        run=ignore,
    )
    group_argument(parser)
    member_argument(parser, default="list the ignored members")
    parser.add_argument("--undo", action="store_true", help="show the messages of the member again")


CONNECT_S_MAX = 2.0
"""How long a temporary agent waits for connections to the other members."""
POLL_S = 0.1
SPREAD_S_MAX = 5.0
"""How long a temporary agent stays to send a change to the other members."""


def members(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        if options.dismiss:
            agent.client.dismiss_warnings(options.group)
        if agent.own:
            _wait_for_members(agent.client, options.group)
        limit = page_limit(options)
        more = agent.client.list_members(
            options.group,
            query=options.text or "",
            after=options.after or "",
            limit=None if limit is None else limit + 1,
        )
        here = find_group(agent.client.list_groups(), options.group)
    found = more[:limit]
    notes = [*([completeness(here)] if here.completeness else []), *removal_votes(here)]
    out.data_list(found, [*member_lines(found), *command_lines(found), *(["", *notes] if notes else [])])
    if len(more) > len(found):
        narrate(
            f"Only {len(found)} are listed, of {here.members:,} members in total. For the others: --after"
            f" {found[-1].did}, --all, or a WORD."
        )
    elif not found:
        narrate("No member is found.")
    for one in found:
        if one.trust == "changed":
            narrate(changed_sentence(one.nick, options.group))
        if not one.arrived:
            way = f"`zerochat remove {quoted(options.group, one.nick)}`" if "remove" in one.allowed_actions else ""
            narrate(group_rules.never_connected(name_of(one.nick), way))
        if one.disputed and not options.dismiss:
            narrate(
                f"{name_of(one.nick)} reports a different member list than your inviter. Compare with the other "
                f"members."
            )
        if one.forked and not options.dismiss:
            narrate(
                f"{name_of(one.nick)} has signed two contradicting histories of this group (equivocation). Compare "
                f"with the"
                " other members."
            )
    if cut_off := name_list(name_of(one.nick) for one in found if one.no_mediator):
        narrate(f"Unreachable: {cut_off}; {mediation.NO_MEDIATOR} (network.hidden = always).")
    if agent.own and _absent(found):
        narrate(
            "The agent was started only for this command, so some members may not be connected yet; `zerochat agent`"
            " runs one permanently."
        )
    return ExitCode.OK


def changed_sentence(nick: str, group: str) -> str:
    who = name_of(nick)
    return (
        f"Warning: {who} has a different key than the one you verified. Compare the words again before you trust this"
        f" member: `zerochat verify {quoted(group, nick)}`."
    )


def _wait_for_members(client: "Client", group: str) -> None:
    """Wait until the first members are connected, or the time is up."""
    client.subscribe()
    deadline = time.monotonic() + CONNECT_S_MAX
    while _absent(client.list_members(group, limit=MEMBER_PAGE_MAX)) and (left := deadline - time.monotonic()) > 0:
        client.next_notification(min(left, POLL_S))


def _absent(members: list[MemberInfo]) -> bool:
    return any(member.connection not in ("self", "connected", "indirect") for member in members)


def command_lines(members: Sequence[MemberInfo]) -> list[str]:
    """The commands of the bots, as they announce them."""
    rows = [
        (
            name_of(member.nick),
            f"!{printable_line(one.name, COMMAND_CELLS_MAX)} {printable_line(one.usage)}".rstrip(),
            printable_line(one.role) or "-",
            printable_line(one.help) or "-",
        )
        for member in members
        for one in member.commands
    ]
    return ["", *table([("BOT", "COMMAND", "ROLE", "DESCRIPTION"), *rows])] if rows else []


def member_lines(members: Sequence[MemberInfo]) -> list[str]:
    rows = [("NAME", "ROLE", "CONNECTION", "LAST SEEN", "VIEW", "TRUST", "KEY")]
    for member in members:
        view = {True: "same", False: "differs", None: "-"}[member.view_matches]
        mine = member.connection == "self"
        connection: str = member.connection
        if member.via == "mediator":  # which accepts messages also while the member is offline
            connection = "via mediator" if connection == "connected" else f"{connection} (mediator)"
        connection += ", nearby" * member.nearby
        bot = " [bot]" * member.bot + " [ignored]" * member.ignored
        rows.append(
            (
                name_of(member.nick) + bot,
                member.role + ", history keeper" * member.keeps_history,
                "you" if mine else connection if member.arrived else group_rules.NEVER_CONNECTED,
                "-" if mine else _last_heard(member),
                "-" if mine else view,
                "-" if mine else _trust(member),
                member.did,
            )
        )
    return table(rows)


def _last_heard(member: MemberInfo) -> str:
    """The time of the last message from a member, and the number of its missing events."""
    never = "-" if member.connection == "indirect" else "never"
    when = near_time(member.last_seen) if member.last_seen else never
    return f"{when}, {member.missing} missing" if member.missing else when


def _trust(member: MemberInfo) -> str:
    """The trust in a member; the worst state wins."""
    if member.forked:
        return "FORKED"
    if member.disputed:
        return "DISPUTED"
    if member.trust == "unverified" and member.unconfirmed:
        return "unconfirmed"
    return TRUST[member.trust]


# --- changing -------------------------------------------------------------------------------------------------------


def remove(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        client = agent.client
        group = find_group(client.list_groups(), options.group)
        member = find_member(client.list_members(group.id, query=options.peer), options.peer, group.name)
        before = next((one for one in group.votes if one.did == member.did and one.voted), None)
        if before is not None:
            out.data(before, [group_rules.removal_state(before, name_of(member.nick))])
            narrate("You have already voted.")
            return ExitCode.OK
        asked = not options.yes and "remove" in member.allowed_actions  # else the agent refuses
        if asked and not _confirmed_removal(group.policy.remove, name_of(member.nick), name_of(group.name)):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        vote = client.remove_member(group.id, member.did)
        out.data(vote, [group_rules.removal_state(vote, name_of(vote.nick))])
        wait_until_spread(agent, group.id)
    return ExitCode.OK


def _confirmed_removal(rule: str, who: str, group: str) -> bool:
    question = f"Vote to remove {who} from {group}?" if rule == "quorum" else f"Remove {who} from {group}?"
    unasked = NotConfirmed(doing="Removing", group=who)
    return confirmed(f"{question} To return, {who} needs a new invitation.", unasked)


def role(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = find_group(agent.client.list_groups(), options.group)
        before = {one.did: one.role for one in agent.client.list_members(group.id)}
        changed = agent.client.set_role(group.id, options.role, options.peer or "")
        out.data(changed, ())
        who = "You are" if changed.connection == "self" else f"{name_of(changed.nick)} is"
        article = "an" if changed.role in ("admin", "owner") else "a"
        since = "already" if before.get(changed.did) == changed.role else "now"
        narrate(f"{who} {since} {article} {changed.role} in {name_of(group.name)}.")
        wait_until_spread(agent, group.id)
    return ExitCode.OK


def transfer(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = find_group(agent.client.list_groups(), options.group)
        member = find_member(agent.client.list_members(group.id, query=options.peer), options.peer, group.name)
        if "owner" in member.allowed_actions and not options.yes:  # else the agent refuses
            question = group_rules.transfer_question(name_of(member.nick), name_of(group.name))
            if not confirmed(question, NotConfirmed(doing="Handing over", group=name_of(group.name))):
                narrate("Nothing was changed.")
                return ExitCode.REFUSED
        changed = agent.client.set_role(group.id, "owner", member.did)
        out.data(changed, ())
        narrate(f"{name_of(changed.nick)} is now the owner of {name_of(group.name)}, and you are an admin.")
        wait_until_spread(agent, group.id)
    return ExitCode.OK


def ignore(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = find_group(agent.client.list_groups(), options.group)
        if not options.peer:
            ignored = agent.client.list_ignored(group.id)
            out.data_list(ignored, [name_of(one.nick) + " (has left)" * one.former for one in ignored])
            if not ignored:
                narrate(f"You ignore no member of {name_of(group.name)}.")
            return ExitCode.OK
        changed = agent.client.ignore_member(group.id, options.peer, not options.undo)
        out.data(changed, ())
        narrate(group_rules.ignored_state(name_of(changed.nick), changed.ignored))
    return ExitCode.OK


def rename(options: Options, out: Output) -> ExitCode:
    assert options.name is not None
    with attached(options) as agent:
        before = find_group(agent.client.list_groups(), options.group).nick
        group = agent.client.set_display_name(options.group, options.name)
        out.data(group, ())
        since = "already" if before == group.nick else "now"
        narrate(f"You are {since} called {name_of(group.nick)} in {name_of(group.name)}.")
        wait_until_spread(agent, group.id)
    return ExitCode.OK


def wait_until_spread(agent: "Attached", group: str) -> None:
    """Keep a temporary agent running until the change has reached the other members, or until the timeout."""
    if not agent.own:
        return
    client, deadline = agent.client, time.monotonic() + SPREAD_S_MAX
    client.subscribe()
    while pending := any(one.unacknowledged for one in client.list_groups() if one.id == group):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        client.next_notification(min(left, POLL_S))
    if pending:
        narrate(
            "Some members have not received the change yet; they do when your agent runs: `zerochat agent`, or the "
            "chat."
        )
