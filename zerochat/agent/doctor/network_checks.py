"""Checks of reachability at the advertised addresses, of the clock, and of what members send."""

import ipaddress
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from zerochat.agent.doctor.findings import CheckContext, Findings, State
from zerochat.presentation.delivery import own_quota_text
from zerochat.rpc import HeldWhy
from zerochat.terminal_text import printable_line

REACH_S: Final = 2.0
"""Timeout of a connection to an own address."""
HELD: Final[Mapping[HeldWhy, tuple[str, str]]] = {
    "near": (
        "is nearer than this agent's own address",
        "If you trust the members of this group, set network.near_mediators.",
    ),
    "failed": ("has just failed", "It is tried again within a minute."),
    "unproved": (
        "has not answered as the mediator that it should be",
        "It is tried again; the member may have to choose another mediator.",
    ),
}
"""Why mail waits, and what to do."""
HELD_SHOWN: Final = 5
"""Members whose waiting mail is listed."""
AHEAD_MS_FINE, AHEAD_MS_MAX = 30_000, 5 * 60 * 1000
"""Tolerated clock difference, and the one from which events are rejected (`group/event_log/lamport.py`)."""


def check_reach(context: CheckContext) -> Findings:
    """Connect to the advertised addresses."""
    status = context.status
    if status is None:
        yield (
            "skip",
            "No agent runs, so reachability cannot be checked.",
            "Start one (`zerochat agent`), and run this again.",
        )
        return
    if status.sends == "nothing":
        remedy = "Add one: `zerochat route add`. An older mediator cannot send for its users."
        yield "fail", "Nothing is sent: no mediator of this agent can be reached and sends for it.", remedy
        return
    if status.sends == "mediator":
        yield "ok", "No address is advertised, and everything is sent through this agent's own mediator.", ""
        return
    if status.hidden:
        there = [one for one in status.mediators if one.mediator == "granted" and one.reachable is not False]
        if there:
            yield "ok", f"No address is advertised; {len(there)} of its mediators can be reached.", ""
        else:
            remedy = "Add a mediator that stores your messages: `zerochat route add`."
            yield "warn", "No address is advertised, and no mediator can be reached.", remedy
        return
    fine = True
    for uri in (status.pair, status.queue, *status.web):
        if (why := _unreachable(uri)) is not None:
            fine = False
            remedy = "Check the firewall, and that network.advertise is an address of this machine."
            yield "fail", f"This machine is not reachable at {uri}: {why}.", remedy
    if not fine:
        return
    near = _nearness(urlsplit(status.pair).hostname or "")
    if near == "machine":
        yield (
            "warn",
            "The advertised address is a loopback address, which others cannot reach.",
            "Start the agent with another --listen.",
        )
    elif near == "network":
        yield "ok", f"The agent is reachable at {status.pair}, in this local network only.", ""
    else:
        yield "ok", f"The agent is reachable at {status.pair}.", ""


def _unreachable(uri: str) -> str | None:
    """Why a connection failed; None: it succeeded."""
    try:
        parts = urlsplit(uri)
        usual = {"http": 80, "ws": 80, "https": 443, "wss": 443}.get(parts.scheme, 0)
        socket.create_connection((parts.hostname or "", parts.port or usual), REACH_S).close()
    except TimeoutError:
        return f"no answer in {REACH_S:.0f} seconds"
    except (OSError, ValueError) as error:
        return ((error.strerror if isinstance(error, OSError) else None) or "the connection failed").lower()
    return None


def _nearness(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "world"
    return "machine" if address.is_loopback else "network" if address.is_private or address.is_link_local else "world"


def check_mail(context: CheckContext) -> Findings:
    """Whether the mediators of other members count."""
    if context.status is None:
        yield "skip", "No agent runs, so mail to other members cannot be checked.", ""
        return
    held = context.status.held_mail
    for one in held[:HELD_SHOWN]:
        why, remedy = HELD[one.why]
        yield "warn", f"Mail for {one.member} waits: {one.uri} {why}.", remedy
    if len(held) > HELD_SHOWN:
        remedy = "`zerochat status --format json` lists up to 100 of them."
        yield "warn", f"Mail for {len(held) - HELD_SHOWN} further members waits.", remedy
    if not held:
        yield "ok", "No mail for another member waits for its mediator.", ""


def check_clock(context: CheckContext) -> Findings:
    """Compare with the clocks of connected members: if all differ, ours is wrong."""
    client, status = context.client, context.status
    if client is None or status is None:
        yield "skip", "No agent runs, so the clock cannot be compared.", ""
        return
    ahead: dict[str, int] = {}
    for group in status.groups:
        if group.state == "active":
            members = (one for one in client.list_members(group.id) if one.connection == "connected")
            ahead |= {f"{group.id} {one.did}": one.ahead_ms for one in members if one.ahead_ms is not None}
    if not ahead:
        yield "skip", "No connected member has reported its time.", "Run this again when a member is connected."
        return
    off = [ms for ms in ahead.values() if abs(ms) > AHEAD_MS_FINE]
    ours = len(off) == len(ahead)
    if not off:
        who = "the connected member" if len(ahead) == 1 else f"{len(ahead)} connected members"
        yield "ok", f"The clock agrees with that of {who}.", ""
        return
    middle = sorted(off)[len(off) // 2]
    by = f"{abs(middle) / 1000:,.0f} seconds {'behind' if middle > 0 else 'ahead of'}"
    state: State = "fail" if ours and abs(middle) >= AHEAD_MS_MAX else "warn"
    if ours:
        who = "that of the connected member" if len(off) == 1 else f"those of all {len(off)} connected members"
        yield state, f"The clock of this machine is {by} {who}.", "Set it: `timedatectl set-ntp true`."
    else:
        text = f"The clocks of {len(off)} of {len(ahead)} connected members are off by {abs(middle) // 1000:,} s."
        yield state, text, "Ask them to set their clocks; the clock of this machine agrees with the others."


def check_quota(context: CheckContext) -> Findings:
    """Daily quotas that are used up: those of members here, and our own at members."""
    if context.status is None:
        yield "skip", "No agent runs, so it is unknown whether a member has used up its daily quota.", ""
        return
    logs = [group.completeness for group in context.status.groups if group.completeness is not None]
    if held := sum(gap.state == "held" for log in logs for gap in log.gaps):
        who = "one member are" if held == 1 else f"{held} members are"
        remedy = "`zerochat status` names them. To accept more in a day, raise `storage.daily_max`."
        yield "warn", f"Messages of {who} not accepted for now: the daily quota is used up.", remedy
    full = [group for group in context.status.groups if group.quota_used_up]
    for group in full:
        remedy = "`zerochat why GROUP last` tells when. A member may raise its `storage.daily_max`."
        yield "warn", f"{printable_line(group.name)}: {own_quota_text(group.quota_used_up, printable_line)}.", remedy
    if not held and not full:
        yield "ok", "No daily quota is used up, of a member here or your own at a member.", ""
