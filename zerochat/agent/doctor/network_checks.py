"""Whether this machine is reached where it says, and whether its clock is right."""

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

from zerochat.agent.doctor.findings import Findings, Patient, State

REACH_S: Final = 2.0
"""How long a connection to an address of our own may take."""
AHEAD_MS_FINE, AHEAD_MS_MAX = 30_000, 5 * 60 * 1000
"""Clocks that differ by less are nobody's concern; from the second on nobody takes what the other says
(`group/event_log/lamport.py`)."""


def look_at_reach(patient: Patient) -> Findings:
    """Whether this machine can be dialled where it tells others to dial it."""
    status = patient.status
    if status is None:
        yield "skip", "No agent runs, so no address can be dialled.", "Start one (`zerochat agent`), and ask again."
        return
    if status.hidden:
        there = [one for one in status.mediators if one.mediator == "granted" and one.reachable is not False]
        if there:
            yield "ok", f"Nobody is told an address; {len(there)} of its mediators can be reached.", ""
        else:
            remedy = "Ask a mediator to take in what is for you: `zerochat route add`."
            yield "warn", "Nobody is told an address, and no mediator can be reached.", remedy
        return
    fine = True
    for uri in (status.pair, status.queue, *status.web):
        if (why := _unreachable(uri)) is not None:
            fine = False
            remedy = "Check the firewall, and that network.advertise is an address that leads to this machine."
            yield "fail", f"This machine does not reach itself at {uri}: {why}.", remedy
    if not fine:
        return
    near = _nearness(urlsplit(status.pair).hostname or "")
    if near == "machine":
        yield "warn", "Others are told an address that leads to their own machine.", "Start it with another --listen."
    elif near == "network":
        yield "ok", f"It answers at {status.pair}, which is an address of this network: others beyond it need more.", ""
    else:
        yield "ok", f"It answers at {status.pair}.", ""


def _unreachable(uri: str) -> str | None:
    """Why nothing answers there; None: something does."""
    try:
        parts = urlsplit(uri)
        usual = {"http": 80, "ws": 80, "https": 443, "wss": 443}.get(parts.scheme, 0)
        socket.create_connection((parts.hostname or "", parts.port or usual), REACH_S).close()
    except TimeoutError:
        return f"no answer in {REACH_S:.0f} seconds"
    except (OSError, ValueError) as error:
        return ((error.strerror if isinstance(error, OSError) else None) or "it cannot be dialled").lower()
    return None


def _nearness(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "world"
    return "machine" if address.is_loopback else "network" if address.is_private or address.is_link_local else "world"


def look_at_clock(patient: Patient) -> Findings:
    """Against what connected members have said of theirs. One that is off alone is theirs; all of them: ours."""
    client, status = patient.client, patient.status
    if client is None or status is None:
        yield "skip", "No agent runs, so there is nobody to compare clocks with.", ""
        return
    ahead: dict[str, int] = {}
    for group in status.groups:
        if group.state == "active":
            heard = (one for one in client.members(group.id) if one.connection == "connected")
            ahead |= {f"{group.id} {one.did}": one.ahead_ms for one in heard if one.ahead_ms is not None}
    if not ahead:
        yield "skip", "Nobody is connected who has said what time it is.", "Ask again when somebody is."
        return
    off = [ms for ms in ahead.values() if abs(ms) > AHEAD_MS_FINE]
    ours = len(off) == len(ahead)
    if not off:
        yield "ok", f"The clock agrees with that of {len(ahead)} connected members.", ""
        return
    middle = sorted(off)[len(off) // 2]
    by = f"{abs(middle) / 1000:,.0f} seconds {'behind' if middle > 0 else 'ahead of'}"
    state: State = "fail" if ours and abs(middle) >= AHEAD_MS_MAX else "warn"
    if ours:
        who = "that of the only member" if len(off) == 1 else f"those of all {len(off)} members"
        yield state, f"The clock of this machine is {by} {who} connected.", "Set it: `timedatectl set-ntp true`."
    else:
        text = f"{len(off)} of {len(ahead)} connected members have clocks that are off, by {abs(middle) // 1000:,} s."
        yield state, text, "Tell them to set their clocks; this machine's agrees with the others'."
