"""Verbs init, status and paths: create a profile, show its state, print its paths."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import paths_of
from zerochat.cli.bot_state import at_risk, consumer_rows
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import (
    completeness,
    connection_name,
    local_time,
    mediation_state,
    name_of,
    quoted,
    removal_votes,
    table,
)
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import new_passphrase
from zerochat.cli.status_bars import counts
from zerochat.cli.value_types import count
from zerochat.presentation.delivery import own_quota_text
from zerochat.presentation.history_rules import backfill_text
from zerochat.presentation.mediation import hidden_text
from zerochat.rpc import GroupInfo, JoinStatus, Status
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.storage.paths import ProfilePaths

PATHS = ("config", "data", "state", "cache", "log", "socket", "lock", "key")


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "init",
        "create a profile",
        "Create a profile: its keys, its encrypted journal, and the name that others see. Prints its folder.",
        """
zerochat init --name alice
zerochat --profile work init --name "Alice B." --passphrase
ZEROCHAT_PASSPHRASE_FILE=~/.secret zerochat init --name ci
""",
        run=init,
    )
    parser.add_argument(
        "--name", required=True, metavar="NAME", help="the name that others see, in every group by default"
    )
    lock = parser.add_mutually_exclusive_group()
    lock.add_argument(
        "--passphrase", action="store_true", help="prompt for a passphrase (it is never taken from the command line)"
    )
    lock.add_argument("--keyring", action="store_true", help="store the profile's key in the system keyring")
    parser = add_verb(
        verbs,
        "status",
        "show the agent, its addresses and the groups",
        "Show the profile's agent, the addresses where peers reach it, and the groups. Exits with 6 if no agent is\n"
        "running.",
        """
zerochat status
zerochat status --format json | jq .groups[].name
zerochat status --check >/dev/null || echo "needs attention"
zerochat status --bar waybar
tmux set -g status-right '#(zerochat status --bar tmux)'
zerochat status --check --max-behind 100 >/dev/null
""",
        run=status,
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="for health checks: exit with 1 if the agent needs attention (it accepts no new connections, reports a"
        " warning, or a bot loses events), and with 7 if its journal is damaged",
    )
    parser.add_argument(
        "--max-behind",
        type=count,
        metavar="N",
        help="with --check: exit with 1 if a bot or script has more than N unacknowledged events",
    )
    parser.add_argument(
        "--bar",
        choices=("waybar", "tmux"),
        help="print only the unread messages and mentions of groups that are not muted, for a status bar: for waybar as"
        " JSON (text, tooltip, and the class mention, unread, read or offline), for tmux as text",
    )
    parser = add_verb(
        verbs,
        "paths",
        "print where files are stored",
        "Print the paths of a profile's files. Starts no agent and creates nothing.",
        """
zerochat paths
tail -f "$(zerochat paths log)"
""",
        run=paths,
    )
    parser.add_argument("path_name", nargs="?", choices=PATHS, metavar="|".join(PATHS), help="only this path")


def init(options: Options, out: Output) -> ExitCode:
    import os

    from zerochat.agent.storage.profiles import create_profile

    assert options.name is not None
    locations = paths_of(options)
    locked = not options.keyring and (options.passphrase or bool(os.environ.get("ZEROCHAT_PASSPHRASE_FILE")))
    create_profile(locations, options.name, new_passphrase() if locked else None, keyring=options.keyring)
    out.data(
        {"profile": locations.profile, "name": options.name, "data": str(locations.data), "passphrase": locked},
        [str(locations.data)],
    )
    narrate(
        f"Created the profile {locations.profile}. Next: `zerochat new GROUP`, or `zerochat join` with an invitation."
    )
    return ExitCode.OK


def status(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.api.client import connect
    from zerochat.agent.api.client_connection import NoAgent

    locations = paths_of(options)
    try:
        client = connect(locations, "cli")
    except NoAgent:
        from zerochat.agent.storage.profiles import NoProfile, profile_exists

        if not profile_exists(locations):
            raise NoProfile(profile=locations.profile) from None
        if options.bar:
            return _bar(options.bar, None, locations, out)
        raise
    with client:
        found = client.get_status()
    if options.bar:
        return _bar(options.bar, found, locations, out)
    out.data(found, status_lines(found))
    for group in found.groups:
        for warning in group.warnings:
            narrate(f"Warning, {name_of(group.name)}: {printable_line(warning.text)}")
        if group.warnings:
            narrate(f"To dismiss: `zerochat members --dismiss {quoted(group.name)}`.")
        if group.requests:
            names = ", ".join(name_of(one.nick) for one in group.requests)
            narrate(f"Join requests for {name_of(group.name)}: {names}. See `zerochat requests {quoted(group.name)}`.")
    return _health(found, options.max_behind) if options.check else ExitCode.OK


def _bar(kind: str, found: Status | None, locations: "ProfilePaths", out: Output) -> ExitCode:
    from zerochat.agent.settings.client_preferences import load_preferences
    from zerochat.cli.status_bars import BARS, unread_groups

    out.exactly(BARS[kind](unread_groups(found, load_preferences(locations)) if found is not None else None))
    return ExitCode.OK


def _health(found: Status, max_behind: int | None = None) -> ExitCode:
    """The exit code of `--check`, a stable interface for monitoring."""
    if found.damaged:
        return ExitCode.INTEGRITY
    lagging = any(at_risk(one) or (max_behind is not None and one.behind > max_behind) for one in found.consumers)
    return ExitCode.REFUSED if found.closed or found.warning or lagging else ExitCode.OK


def paths(options: Options, out: Output) -> ExitCode:
    locations = paths_of(options)
    kept = {
        "config": locations.config,
        "data": locations.data,
        "state": locations.state,
        "cache": locations.cache,
        "log": locations.log,
        "socket": locations.socket,
        "lock": locations.lock,
        "key": locations.key_file,
    }
    if options.path_name is not None:
        path = str(kept[options.path_name])
        if out.jsonl:
            out.data({"place": options.path_name, "path": path}, ())
        else:
            out.exactly(path)
    elif out.jsonl:
        out.data({place: str(path) for place, path in kept.items()}, ())
    else:
        out.data({}, table([(place, str(path)) for place, path in kept.items()]))
    return ExitCode.OK


def group_lines(groups: Sequence[GroupInfo]) -> list[str]:
    rows = [("GROUP", "STATE", "MEMBERS", "CONNECTED", "UNACKNOWLEDGED", "VIEW", "ID")]
    rows += [
        (
            name_of(group.name),
            "removed" if group.removed_by else group.state,
            *(_figures(group) if group.state != "left" else ("-", "-", "-", "-")),
            group.id,
        )
        for group in groups
    ]
    return table(rows)


def _figures(group: GroupInfo) -> tuple[str, str, str, str]:
    """The table cells of a group that we are a member of."""
    mediated = f", {group.via_mediator} via mediator" if group.via_mediator else ""
    connected = f"{group.connected - group.via_mediator}/{max(group.members - 1, 0)}{mediated}"
    if group.forwards:
        connected = f"{group.connected} links{mediated}"
    return str(group.members), connected, str(group.unacknowledged), group.view[:8]


def join_lines(joins: Sequence[JoinStatus]) -> list[str]:
    """Own pending and failed joins: group, state, deadline and message."""
    rows = [
        (
            f"joining {name_of(one.name)}" if one.name else "joining",
            _waiting(one),
            printable_line(one.text),
        )
        for one in joins
    ]
    return table(rows) if rows else []


def _waiting(one: JoinStatus) -> str:
    """The state of a join, and its start."""
    since = f" since {local_time(one.started_at)}" if one.started_at and one.phase != "failed" else ""
    return f"waiting for approval{since} until {local_time(one.expires_at)}" if one.words else one.phase + since


def status_lines(status: Status) -> list[str]:
    rows = [
        ("profile", f"{status.profile} ({name_of(status.nick)})"),
        ("agent", f"zerochat {status.version}, process {status.pid}, up {duration(status.uptime_s)}"),
    ]
    if status.hidden:
        rows.append(("hidden", hidden_text(status)))
    else:
        rows += [("pair address", status.pair), ("queue address", status.queue)]
    rows += [("web", uri) for uri in status.web]
    rows += [("mediator", f"{connection_name(one)}: {mediation_state(one)}") for one in status.mediators]
    if status.held_mail:
        names = {name_of(one.member) for one in status.held_mail}
        rows.append(("held mail", f"for {', '.join(sorted(names))}: see `zerochat doctor mail`"))
    if status.closed:
        rows.append(("closed", "the authenticator has stopped and no new peer can connect: restart the agent"))
    if status.warning:
        rows.append(("warning", status.warning))
    unread = [(name_of(one.name), counts(one.unread, one.mentions)) for one in status.groups]
    if shown := [f"{name} {count}" for name, count in unread if count]:
        rows.append(("unread", ", ".join(shown)))
    lines = table(rows)
    if status.joins:
        lines += ["", *join_lines(status.joins)]
    if status.consumers:
        lines += ["", *table(consumer_rows(status.consumers))]
    if not status.groups:
        return [*lines, "", "no groups yet"]
    notes = [(f"{name_of(one.name)}:", completeness(one)) for one in status.groups if one.completeness]
    notes += [
        (f"{name_of(one.name)}:", backfill_text(one.history_start))
        for one in status.groups
        if one.history_start and one.history_start.state == "fetching"
    ]
    notes += [
        (f"{name_of(one.name)}:", "cannot post yet (restored from a backup)") for one in status.groups if one.suspended
    ]
    notes += [
        (f"{name_of(one.name)}:", quota)
        for one in status.groups
        if (quota := own_quota_text(one.quota_used_up, name_of))
    ]
    notes += [(f"{name_of(one.name)}:", line) for one in status.groups for line in removal_votes(one)]
    return [*lines, "", *group_lines(status.groups), *(["", *table(notes)] if notes else [])]


def duration(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
