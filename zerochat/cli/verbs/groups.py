"""Verbs new, info, leave, forget and resume: create, show and leave groups."""

import time
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import completeness, earlier_history, find_group, name_of, quoted, removed_sentence, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, envelope_option, group_argument, yes_option
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import NotConfirmed, confirmed
from zerochat.cli.value_types import count, history_rule, positive
from zerochat.cli.verbs.keep import keep_rule
from zerochat.limits import MEMBERS_MAX
from zerochat.presentation import group_kinds, group_rules, keep_rules, upgrades
from zerochat.rpc import GroupInfo, MemberInfo
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client

FAREWELL_S_MAX = 10.0
"""How long a temporary agent stays to inform the other members that we left."""
FORGET_S_MAX = 30.0
"""How long `forget` waits for members to learn that we left: longer than `group.membership.leave.LEAVE_MS_MAX`."""


def add(verbs: "Verbs[Parser]") -> None:
    _add_new(verbs)
    parser = add_verb(
        verbs,
        "info",
        "list the groups, or show a group's settings, roles and limits",
        "Show the settings a group was created with: who can join, who can remove members, who can post, its keys and\n"
        "history rule; the roles of its members; and what it does not protect against. Without GROUP, list the groups.",
        """
zerochat info
zerochat info hikers
zerochat info hikers --format jsonl | jq .policy
""",
        run=info,
    )
    parser.add_argument(
        "group", nargs="?", default="", metavar="GROUP", help="the name or id of a group, or a prefix of its id"
    )
    for verb, summary, text, run in (
        (
            "leave",
            "leave a group",
            "Leave a group. Its history stays readable; to return you need a new invitation. Asks for confirmation.",
            leave,
        ),
        (
            "forget",
            "delete a group that you have left",
            (
                "Delete a group that you have left or were removed from, with its history, from this machine. This\n"
                "cannot be undone; the other members keep their copies. Asks for confirmation. Right after\n"
                "`leave`, it first waits until the members know that you left, for at most"
                f" {FORGET_S_MAX:.0f} seconds;\nCtrl+C stops waiting and deletes nothing."
            ),
            forget,
        ),
        (
            "resume",
            "allow posting in a group after a restore",
            (
                "A profile restored from a backup cannot post in a group until all members have sent it what it\n"
                "posted since the backup. If you were the only member, or a member is gone for good, that never\n"
                "completes: this command overrides the check. Members who received later posts of yours then see two\n"
                "contradicting histories and are warned; if that is possible, create a new group instead. Asks for\n"
                "confirmation."
            ),
            resume,
        ),
    ):
        parser = add_verb(verbs, verb, summary, text, f"zerochat {verb} hikers\nzerochat {verb} hikers --yes", run=run)
        group_argument(parser)
        yes_option(parser)


def _add_new(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "new",
        "create a group",
        "Create a group with you as its only member, and print its id. Its rules stay for good, and every member can\n"
        "see them: `zerochat info GROUP`. Only older keys can be upgraded later (`zerochat upgrade`), and each member\n"
        "can keep messages for a shorter time (`zerochat keep`).",
        """
zerochat new hikers
zerochat new hikers --removal quorum --quorum 3
zerochat new crew --roles admins --join ask
zerochat new news --keys pairwise-single --roles admins
zerochat new club --kind large
zerochat new board --kind signed
zerochat new council --kind accountable
zerochat new hikers --history last:50
zerochat new hikers --keep 30d
zerochat new hikers --envelope didcomm/v1
""",
        run=new,
    )
    parser.add_argument("group", metavar="NAME", help="name of the group")
    parser.add_argument(
        "--keys",
        metavar="KEYS",
        choices=group_kinds.KEYS,
        help=f"the kind by its keys: {', '.join(group_kinds.KEYS)} (default: {group_kinds.KINDS[0].keys})",
    )
    parser.add_argument(
        "--kind",
        metavar="KIND",
        choices=tuple(group_kinds.BY_NAME),
        help="keys, path and accountability in one word. "
        + " ".join(f"{kind.name}: {kind.sentences}" for kind in group_kinds.KINDS)
        + f" (default: {group_kinds.DEFAULT})",
    )
    parser.add_argument(
        "--join",
        dest="join_rule",
        choices=("invited", "ask", "open"),
        default="invited",
        help="who can join. invited: one member per invitation; ask: after the inviter's approval; open: any number of"
        " members per invitation (default: %(default)s)",
    )
    parser.add_argument(
        "--removal",
        choices=("anyone", "admins", "quorum"),
        help="who can remove members: any member, the admins, or several members by vote (default: quorum; with"
        " --roles admins: admins)",
    )
    parser.add_argument(
        "--quorum",
        type=positive,
        metavar="N",
        help=f"votes needed for a removal, 2 to {MEMBERS_MAX} (default: 2)",
    )
    parser.add_argument(
        "--roles",
        choices=("flat", "admins"),
        default="flat",
        help="flat: all members are equal; admins: you are the owner and appoint admins, who decide who can post"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--agreement",
        choices=("permissive", "strict"),
        default="permissive",
        help="if members report different member lists to a new member, warn (permissive) or reject the join (strict)"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--history",
        dest="history_rule",
        type=history_rule,
        default="all",
        metavar="RULE",
        help="earlier messages that new members receive: none, all, last:N (or N) for the last N messages, or"
        " since:DATE with a date such as 2026-07-01, or 12h, 7d or 2w ago (default: %(default)s)",
    )
    parser.add_argument(
        "--keepers",
        type=count,
        default=0,
        metavar="N",
        help="number of members, the longest-standing ones, that store the history for new members; 0: all (default:"
        " %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=keep_rule,
        default=0,
        metavar="TIME",
        help=f"how long messages are kept: {keep_rules.forms_text()}; then all members erase them, though others may"
        " keep copies (default: forever)",
    )
    envelope_option(parser, "of the group")


def new(options: Options, out: Output) -> ExitCode:
    rules = group_rules.completed_policy(
        options.join_rule,
        options.removal,
        options.quorum,
        options.roles,
        options.agreement,
        options.history_rule or "all",
        options.keepers,
        options.keep,
    )
    kind = group_kinds.kind_to_create(options.kind, options.keys)
    group_kinds.check_axes(kind.accountability, kind.keys, kind.path, rules.keep)
    with attached(options) as agent:
        group = agent.client.create_group(
            options.group,
            envelope=options.envelope,
            keys=kind.keys,
            path=kind.path,
            accountability=kind.accountability,
            join=rules.join,
            remove=rules.remove,
            quorum=rules.quorum,
            roles=rules.roles,
            agreement=rules.agreement,
            history=rules.history,
            keepers=rules.keepers,
            keep=rules.keep,
        )
        out.data(group, [group.id])
        narrate(f"Created the group {name_of(group.name)}. Invite others with `zerochat invite {quoted(group.name)}`.")
        warn_of_signing(group)
    return ExitCode.OK


def warn_of_signing(group: GroupInfo) -> None:
    """Warn that messages in this group are signed, before the first one is sent."""
    if warning := group_kinds.signing_warning(group):
        narrate(f"{name_of(group.name)}: {warning}")


# --- leaving --------------------------------------------------------------------------------------------------------


def leave(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        client = agent.client
        group = find_group(client.list_groups(), options.group)
        if group.state == "left":
            narrate(_left_sentence(group))
            return ExitCode.REMOVED if group.removed_by else ExitCode.OK
        warning = (
            group_rules.owner_leaving_warning(group, client.list_members(group.id)) if group.role == "owner" else ""
        )
        if options.yes and warning:
            narrate(f"Warning: {warning}")
        if not options.yes and not _confirmed_leave(group, warning):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        client.subscribe()
        group = client.leave_group(group.id)
        if agent.own:
            group = _wait_until_left(client, group, FAREWELL_S_MAX)
        out.data(group, [group.id])
        if group.state == "left":
            narrate(f"You have left {name_of(group.name)}. Its history stays on this machine.")
        elif agent.own:
            narrate(
                f"Leaving {name_of(group.name)}. Some members have not been informed yet; this continues when an "
                f"agent runs:"
                " `zerochat agent`, or the chat."
            )
        else:
            narrate(f"Leaving {name_of(group.name)}; the agent keeps informing the remaining members.")
    return ExitCode.OK


def _confirmed_leave(group: GroupInfo, warning: str) -> bool:
    """Whether the user confirms; `warning`: printed first, may be empty."""
    if warning:
        narrate(warning)
    question = f"Leave {name_of(group.name)}? To return you need a new invitation."
    return confirmed(question, NotConfirmed(doing="Leaving", group=name_of(group.name)))


def forget(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = find_group(agent.client.list_groups(), options.group)
        if (
            not options.yes
            and group.state in ("leaving", "left")
            and not confirmed(
                f"Forget {name_of(group.name)}? {group_rules.FORGET}",
                NotConfirmed(doing="Forgetting", group=name_of(group.name)),
            )
        ):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        if group.state == "leaving":
            agent.client.subscribe()
            _wait_until_left(agent.client, group, FORGET_S_MAX)
        agent.client.forget_group(group.id)
        out.data({"group": group.id, "name": group.name}, [group.id])
        narrate(f"Deleted {name_of(group.name)} from this machine.")
    return ExitCode.OK


def resume(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        group = find_group(agent.client.list_groups(), options.group)
        question = f"Resume {name_of(group.name)}? {group_rules.RESUME}"
        unasked = NotConfirmed(doing="Resuming", group=name_of(group.name))
        if not options.yes and group.suspended and not confirmed(question, unasked):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        group = agent.client.resume_group(group.id)
        out.data(group, [group.id])
        narrate(f"You can post in {name_of(group.name)} again.")
    return ExitCode.OK


def _wait_until_left(client: "Client", group: GroupInfo, timeout_s: float) -> GroupInfo:
    """Wait until all reachable members know that we left, or until the timeout. Call `subscribe` first."""
    deadline = time.monotonic() + timeout_s
    if group.state == "leaving":
        narrate(
            f"Waiting until the members of {name_of(group.name)} know that you left, for at most {timeout_s:.0f}"
            " seconds (Ctrl+C stops waiting)…"
        )
    while group.state == "leaving" and (left := deadline - time.monotonic()) > 0:
        client.next_notification(min(left, 0.5))
        group = next((known for known in client.list_groups() if known.id == group.id), group)
    return group


# --- info -----------------------------------------------------------------------------------------------------------


def info(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        groups = agent.client.list_groups()
        if not options.group:
            return _list_groups(groups, out)
        group = find_group(groups, options.group)
        members = agent.client.list_members(group.id)
    out.data(group, [*_info_lines(group, members), "", *group_kinds.limitations(group)])
    if group.state == "left":
        narrate(_left_sentence(group))
    return ExitCode.OK


def _list_groups(groups: list[GroupInfo], out: Output) -> ExitCode:
    from zerochat.cli.verbs.profile import group_lines

    out.data_list(groups, group_lines(groups) if groups else ())
    if not groups:
        narrate("There are no groups yet. Create one with `zerochat new`, or join one with `zerochat join`.")
    return ExitCode.OK


def _left_sentence(group: GroupInfo) -> str:
    """States that we are no longer a member, and why."""
    if group.removed_by:
        return removed_sentence(group)
    return (
        f"You have left {name_of(group.name)}. Its history stays on this machine; to return you need a new invitation."
    )


def _info_lines(group: GroupInfo, members: list[MemberInfo]) -> list[str]:
    entry, exit_, writing, disagreement, history, retention = group_rules.policy_sentences(group.policy, group.keep)
    keys, path, accountability = group_kinds.meanings(group)
    before, kind = earlier_history(group), group_kinds.kind_of(group)
    rows = [
        ("group", f"{name_of(group.name)} ({group.id})"),
        *([("topic", printable_line(group.topic))] if group.topic else []),
        ("you", _own_state(group)),
        *([] if group.state == "left" else [("members", _member_count(group))]),
        *([("log", completeness(group))] if group.completeness else []),
        *([("before you joined", before)] if before else []),
        ("joining", entry if group.private is None else "closed: only its two members"),
        ("removal", exit_),
        ("posting", writing),
        ("member lists", disagreement),
        ("history", history),
        ("retention", retention),
        *([("kept here", f"{keep_rules.span_text(group.keep)}: {keep_rules.times_text(group)}")] if group.keep else []),
        *([("kind", kind.name), ("gives", kind.gives), ("gives up", kind.gives_up)] if kind else []),
        ("keys", f"{group.keys}: {keys}"),
        *([("upgrade", upgraded)] if (upgraded := upgrades.state(group)) else []),
        ("path", f"{group.path}: {path}"),
        ("accountability", f"{group.accountability}: {accountability}"),
        ("envelope", group.envelope),
    ]
    for role in ("owner", "admin", "reader"):
        rows += _named(role, [one for one in members if one.role == role])
    rows += _named("history keeper", [one for one in members if one.keeps_history])
    rows += _named("verified", [one for one in members if one.trust == "verified"])
    rows += _named("CHANGED identity", [one for one in members if one.trust == "changed"])
    rows += [("convicted", f"{name_of(one.nick)} {group_rules.conviction(one)}") for one in members if one.verdicts]
    rows += _named("FORKED", [one for one in members if one.forked])
    rows += _named(group_rules.NEVER_CONNECTED, [one for one in members if not one.arrived])
    if group.state == "left":
        return table(rows)
    rows += [
        (
            "vote to remove",
            f"{name_of(one.nick)}: {group_rules.vote_count(one)}{', including yours' if one.voted else ''}",
        )
        for one in group.votes
    ]
    rows += [("join request", name_of(one.nick)) for one in group.requests]
    return table(rows)


def _own_state(group: GroupInfo) -> str:
    if group.state == "active":
        return f"{name_of(group.nick)}, {group.role}"
    return "removed" if group.removed_by else group.state


def _member_count(group: GroupInfo) -> str:
    return group_rules.connected(group) if group.forwards else f"{group.members}; {group_rules.connected(group)}"


def _named(what: str, members: list[MemberInfo]) -> list[tuple[str, str]]:
    return [(what, ", ".join(name_of(one.nick) for one in members))] if members else []
