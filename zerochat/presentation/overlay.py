"""The overlay of a group as sentences: how it is linked, what each link has carried, and our own load."""

from collections.abc import Callable

from zerochat.presentation.files import format_size
from zerochat.rpc import LinkInfo, OverlayInfo

Clock = Callable[[str], str]


def structure(info: OverlayInfo) -> str:
    """How the group is linked, as a sentence."""
    others, up = max(info.members - 1, 0), sum(one.connection == "connected" for one in info.links)
    if info.forwards:
        return (
            f"Ring of {info.members:,} members: you are linked to {len(info.links)}, {up} connected, and they forward"
            " messages."
        )
    later = " From 25 members on it is a ring." if info.path == "ring" else ""
    if not others:
        return f"No other members.{later}"
    whom = f"all {others:,} others" if others > 1 else "the other member"
    return f"Mesh: direct connections to {whom}, {up} connected.{later}"


def load(info: OverlayInfo, clock: Clock) -> str:
    """What we have sent of the group's messages, as a sentence."""
    sent = info.own + info.forwarded
    own = "1 own message" if info.own == 1 else f"{info.own:,} own messages"
    forwarded = f" and {info.forwarded:,} forwarded" if info.forwards or info.forwarded else ""
    copies = "1 copy" if info.copies == 1 else f"{info.copies:,} copies"
    each = f", {info.copies / sent:.1f} a message" if sent else ""
    return f"Since {clock(info.since)}: {own}{forwarded}, {copies} sent{each}."


def state(one: LinkInfo) -> str:
    """The state of a link."""
    return "via mediator" if one.via == "mediator" else one.connection


def repaired(one: LinkInfo, clock: Clock) -> str:
    """What the member has sent on request, and when last; empty: nothing."""
    return f"{one.repaired:,}, last {clock(one.repaired_at)}" if one.repaired else ""


def traffic(one: LinkInfo, clock: Clock, *, forwards: bool) -> str:
    """What a link has carried, in words."""
    parts = [
        f"{state(one)}; sent {one.sent:,} ({format_size(one.sent_bytes)})",
        f"received {one.received:,} ({format_size(one.received_bytes)})",
        *([f"{one.brought:,} new"] if forwards else []),
        *([f"{one.duplicates:,} duplicate{'s' * (one.duplicates != 1)}"] if one.duplicates or forwards else []),
        *([f"repaired {text}"] if (text := repaired(one, clock)) else []),
    ]
    return ", ".join(parts)
