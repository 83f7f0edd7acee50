"""What a conversation has to say to its reader, in sentences: who asks to join, whom to be careful with, and why
nothing can be said. Plain values in, printable text out."""

from collections.abc import Sequence

from zerochat.presentation import group_rules
from zerochat.rpc import GroupInfo, JoinStatus, MemberInfo, Status
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.style.text import name_of

NAMES_MAX = 2
NO_GROUP = Printable("There is no conversation open. /new NAME creates a group, /join INVITATION joins one.")
NOTHING_HERE = Printable("There is no message here yet.")
WANTS = {"reader": "to read only", "writer": "to read and write"}


def somebody(nicks: Sequence[str]) -> str:
    """ "dora", "dora and emil", "dora, emil and 3 more"; `nicks` are not printable yet."""
    shown: list[str] = [name_of(nick) for nick in nicks]
    if len(shown) > NAMES_MAX:
        return f"{', '.join(shown[:NAMES_MAX])} and {len(shown) - NAMES_MAX} more"
    return " and ".join(shown)


def asks(info: GroupInfo) -> Printable:
    """Who waits to be let in; empty: nobody."""
    requests = info.requests
    if not requests or info.state != "active":
        return Printable("")
    wants = ", to read only" if [one.role for one in requests] == ["reader"] else ""
    verb = "asks" if len(requests) == 1 else "ask"
    return Printable(f"? F4: {somebody([one.nick for one in requests])} {verb} to join{wants}.")


def under_way(joins: Sequence[JoinStatus]) -> Printable:
    """That a join of ours goes on, and where to look at it; empty: none does."""
    if not joins:
        return Printable("")
    if len(joins) > 1:
        return Printable(f"joining {len(joins)} groups (F8)")
    (one,) = joins
    waits = ": waits for an answer" if one.words else "…"
    return Printable(f"joining{' ' + name_of(one.name) if one.name else ''}{waits} (F8)")


def attention(status: Status | None, alarms: Sequence[Printable]) -> Printable:
    """What needs attention most, of the whole agent and then of a group; empty: nothing."""
    if status is not None and status.closed:
        return Printable("Nobody new can connect: the agent's gatekeeper has died. Restart it.")
    if status is not None and status.warning:
        return printable(status.warning)
    more = f" (and {len(alarms) - 1} more)" if len(alarms) > 1 else ""
    return Printable(f"{alarms[-1]}{more}" if alarms else "")


def not_who_was_verified(nick: str) -> Printable:
    who = name_of(nick)
    return Printable(f"! {who} is not the {who} you verified. F2 shows the members.")


def placeholder(info: GroupInfo, members: Sequence[MemberInfo]) -> Printable:
    """What stands in the empty composer."""
    name = name_of(info.name)
    if info.state != "active":
        return Printable(f"You were put out of {name}" if info.removed_by else f"You have left {name}")
    if info.suspended:
        return Printable("Nothing can be said here yet; /resume goes on all the same")
    if info.role == "reader":
        way = "/role writer changes it" if _may_write(members) else "ask an admin to write"
        return Printable(f"You only read here; {way}")
    signed = ": what you say here is signed" if group_rules.signing(info) else ""
    return Printable(f"Message {name}{signed}")


def silenced(info: GroupInfo, members: Sequence[MemberInfo]) -> Printable:
    """Why nothing can be said here, and what to do; empty: it can."""
    name = name_of(info.name)
    if info.state != "active":
        return Printable(f"You are no longer in {name}: to speak again you need a new invitation.")
    if info.suspended and info.members == 1:
        return Printable("You were alone here when the backup was made. If nobody has joined since, /resume goes on.")
    if info.suspended:
        return Printable(
            "This is an older copy of your profile: all members are asked what they have of you. (/resume)"
        )
    if info.role == "reader":
        way = "/role writer lets you write." if _may_write(members) else "An admin can let you write."
        return Printable(f"You only read here. {way}")
    return Printable("")


def _may_write(members: Sequence[MemberInfo]) -> bool:
    return any("writer" in one.may for one in members if one.connection == "self")


def over(info: GroupInfo) -> Printable:
    """What stands below the last line of a group that we are no longer in."""
    if info.removed_by is not None:
        by = [name_of(nick) for nick in group_rules.removers_of(info)]
        return printable_line(group_rules.put_out(name_of(info.name), by))
    return Printable("You have left this group. Its history stays readable.")
