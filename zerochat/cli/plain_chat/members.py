"""Members and delivery in the plain chat: sentences for a screen reader, as many as one answer names."""

from zerochat.cli.formatting import find_member, name_of, near_time, removal_votes
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.presentation import delivery, group_rules, mediation, nearby, overlay
from zerochat.presentation.delivery import not_listed
from zerochat.rpc import DeliveryReport, GroupInfo, MemberDelivery, MemberInfo, NearbyStatus, OverlayInfo


class NoMemberFound(LocalError):
    """No name of a member contains {word}."""


def show_members(out: Output, found: list[MemberInfo], info: GroupInfo, word: str, group: str) -> None:
    """List the members, or those that `word` finds: the one of this name, else all whose names contain it. `found`: the
    members that the agent finds. Raises NoMemberFound."""
    if word:
        try:
            found = [find_member(found, word, group)]
        except LocalError:
            if not found:
                raise NoMemberFound(word=word) from None
    page = found[:MEMBER_PAGE_MAX]
    lines = [_member(one) for one in page]
    if more := len(found) - len(page):
        lines.insert(
            0, f"{len(found):,} members, {info.connected:,} connected." if not word else f"{len(found):,} found."
        )
        lines.append(f"{more:,} more are not listed. /members WORD finds members by a part of the name.")
    out.data_list(page, lines)
    for line in removal_votes(info):
        narrate(f"{line}.")


def _member(one: MemberInfo) -> str:
    """A member in one sentence, suitable for a screen reader."""
    parts = ["you" if one.connection == "self" else one.connection if one.arrived else "never connected", one.role]
    parts[0] += f" ({mediation.NO_MEDIATOR})" * one.no_mediator
    parts += ["nearby"] * one.nearby
    parts += ["a bot"] * one.bot + ["history keeper"] * one.keeps_history
    parts += ["verified"] * (one.trust == "verified") + ["CHANGED identity"] * (one.trust == "changed")
    parts += [group_rules.conviction(one)] * bool(one.verdicts)
    parts += ["FORKED"] * one.forked
    if one.connection != "self":
        parts.append(f"last seen {near_time(one.last_seen)}" if one.last_seen else "never seen")
    return f"{name_of(one.nick)}: {', '.join(parts)}."


def show_overlay(out: Output, info: OverlayInfo) -> None:
    """How the group is linked, and what each link has carried."""
    lines = [overlay.structure(info), overlay.load(info, near_time)]
    for one in info.links:
        place = f"{one.place}, " if info.forwards else ""
        lines.append(f"{name_of(one.nick)}: {place}{overlay.traffic(one, near_time, forwards=info.forwards)}.")
    out.data(info, lines)


def show_nearby(out: Output, status: NearbyStatus) -> None:
    """Whether members are looked for on the networks of this machine, and which were found."""
    lines = [nearby.sentence(status, "/lan on")]
    lines += [f"{one.name}: {nearby.network_state(one)}." for one in status.networks]
    lines += [f"{name_of(one.nick)}: {nearby.member_state(one)}, {', '.join(one.addresses)}." for one in status.members]
    out.data(status, lines)


def show_delivery(out: Output, report: DeliveryReport) -> None:
    """How many members have a message, then the members, first those that lack it."""
    lines = [f"Delivered to {report.delivered:,} of {report.of:,} members."]
    lines += [_has(one) for one in report.members if one.connection != "self"]
    if more := not_listed(report):
        lines.append(f"{more} `zerochat delivery GROUP last --all` lists all.")
    out.data(report, lines)


def _has(one: MemberDelivery) -> str:
    if one.delivered:
        return f"{name_of(one.nick)}: delivered{f' at {near_time(one.at)}' if one.at else ''}."
    stored = f"stored by the mediator until {near_time(one.stored_until)}" if one.stored_until else ""
    return f"{name_of(one.nick)}: not delivered, {stored or delivery.STATES[one.state]}."
