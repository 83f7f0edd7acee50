"""Sentences about a conversation: join requests, warnings, why posting is not possible. Pure functions."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from zerochat.presentation import group_kinds, group_rules, private
from zerochat.rpc import GroupInfo, JoinStatus, MemberInfo, Status
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.style.text import name_of

KeyOf: TypeAlias = Callable[[str], str]
"""The key of an action by its id, as `BaseApp.key` has it: users may have changed it."""
NAMES_MAX = 2
NO_GROUP = Printable("No conversation is open. /new NAME creates a group, /join INVITATION joins one.")
NO_MESSAGES = Printable("No messages here yet.")
ROLE_TEXTS = {"reader": "read only", "writer": "read and write"}


def names_text(nicks: Sequence[str], count: int = 0) -> str:
    """ "dora", "dora and emil", "dora, emil and 3 more"; `nicks` are raw. `count`: their number, if they are the first
    of more."""
    count = max(count, len(nicks))
    shown: list[str] = [name_of(nick) for nick in nicks[:NAMES_MAX]]
    if not shown:
        return f"{count:,} members" if count else ""
    if count > len(shown):
        return f"{', '.join(shown)} and {count - len(shown):,} more"
    return " and ".join(shown)


def join_request_notice(info: GroupInfo, key: KeyOf) -> Printable:
    """The notice about join requests, else about private invitations; empty: none."""
    requests = info.requests
    if info.state != "active" or not (requests or info.private_invitations):
        return Printable("")
    if not requests:
        invited = private.invited_sentence([name_of(one.nick) for one in info.private_invitations[:NAMES_MAX]])
        return Printable(f"? {invited} Press {key('group.requests')} to answer.")
    wants = " (read only)" if [request.role for request in requests] == ["reader"] else ""
    verb = "asks" if len(requests) == 1 else "ask"
    who = names_text([request.nick for request in requests])
    return Printable(f"? {who} {verb} to join{wants}. Press {key('group.requests')} to answer.")


def join_progress(joins: Sequence[JoinStatus], key: KeyOf) -> Printable:
    """The running joins in a few words; empty: none."""
    if not joins:
        return Printable("")
    if len(joins) > 1:
        return Printable(f"joining {len(joins)} groups ({key('group.join')})")
    (entry,) = joins
    waits = ": waiting for approval" if entry.words else "…"
    return Printable(f"joining{' ' + name_of(entry.name) if entry.name else ''}{waits} ({key('group.join')})")


def banner_text(status: Status | None, alarms: Sequence[Printable]) -> Printable:
    """The most important warning, the agent's before the group's; empty: none."""
    if status is not None and status.closed:
        return Printable("New members cannot connect: the agent's listener stopped. Restart the agent.")
    if status is not None and status.warning:
        return printable(status.warning)
    more = f" (and {len(alarms) - 1} more)" if len(alarms) > 1 else ""
    return Printable(f"{alarms[-1]}{more}" if alarms else "")


def changed_key_warning(nick: str) -> Printable:
    who = name_of(nick)
    return Printable(f"! {who} has another key than the {who} you verified. /members shows them.")


def placeholder(info: GroupInfo, members: Sequence[MemberInfo]) -> Printable:
    """The placeholder of the empty composer."""
    name = name_of(info.name)
    if info.state != "active":
        return Printable(f"You were removed from {name}" if info.removed_by else f"You left {name}")
    if info.suspended:
        return Printable("You cannot post here yet. Type /resume to continue anyway.")
    if info.role == "reader":
        way = "Type /role writer to post." if _may_write(members) else "Ask an admin to let you post."
        return Printable(f"You are read-only here. {way}")
    signed = " (messages are signed)" if group_kinds.signing_warning(info) else ""
    if info.private is not None and info.private.state != "joined":
        return Printable(f"Message {name} ({private.state_text(info, name_of)})")
    return Printable(f"Message {name}{signed}")


def why_read_only(info: GroupInfo, members: Sequence[MemberInfo]) -> Printable:
    """Why posting is not possible, and what to do; empty: it is."""
    name = name_of(info.name)
    if info.state != "active":
        return Printable(f"You are no longer in {name}. You need a new invitation to post.")
    if info.suspended and info.members == 1:
        return Printable(
            "You were the only member when this backup was made. If no one has joined since, type /resume."
        )
    if info.suspended:
        return Printable(
            "This profile is an older copy and is being updated by the members. Type /resume to continue anyway."
        )
    if info.role == "reader":
        way = "Type /role writer to post." if _may_write(members) else "Ask an admin to let you post."
        return Printable(f"You are read-only here. {way}")
    return Printable("")


def _may_write(members: Sequence[MemberInfo]) -> bool:
    return any("writer" in member.allowed_actions for member in members if member.connection == "self")


def left_notice(info: GroupInfo) -> Printable:
    """The sentence below the last row of a group that we left or were removed from."""
    if info.removed_by is not None:
        by = [name_of(nick) for nick in group_rules.removers_of(info)]
        return printable_line(group_rules.removed_from(name_of(info.name), by))
    return Printable("You left this group. Its history stays readable.")
