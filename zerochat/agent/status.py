"""The agent's own status: addresses, warnings and the state of its components."""

import os
import time
from dataclasses import dataclass, field

from zerochat import rpc
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.service import memory_protection
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.attention import Attention
from zerochat.agent.views.connections import is_hidden, mediators, sends
from zerochat.agent.views.held_mail import held_mail
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.state import Agent
from zerochat.group.sync import stale_profile
from zerochat.presentation import mediation
from zerochat.version import __version__


@dataclass
class StatusReport:
    """Makes `rpc.Status` without its groups and joins, which the request handlers add."""

    profile: str
    journal: Journal
    transport: Transport
    attention: Attention
    pair: Endpoint
    queue: Endpoint
    started_at: float
    """Seconds on the monotonic clock."""
    memory_locked: bool = field(default_factory=memory_protection.is_locked)
    dumpable: bool = field(default_factory=memory_protection.is_dumpable)

    def report(self, agent: Agent) -> rpc.Status:
        stale = any(group.state == "active" and stale_profile.is_suspended(group) for group in agent.groups.values())
        banned = bool(self.transport.banned_links)
        way, own_mediators = sends(agent), mediators(agent)
        unsent = mediation.nothing_sent(has_mediator=bool(own_mediators)) if way == "nothing" else ""
        warning = self.attention.sentence(stale=stale, banned=banned, leap_ms=agent.clock_offset_ms, unsent=unsent)
        return rpc.Status(
            profile=self.profile,
            nick=agent.label,
            version=__version__,
            pid=os.getpid(),
            uptime_s=int(time.monotonic() - self.started_at),
            pair=str(self.pair),
            queue=str(self.queue),
            closed=not self.transport.accepts_connections,
            warning=self.journal.damage or warning,
            damaged=bool(self.journal.damage),
            groups=[],
            hidden=is_hidden(agent),
            sends=way,
            web=list(agent.web_uris),
            mediators=own_mediators,
            replaced_ports=list(self.attention.replaced),
            shares=["typing"] * agent.indicators.typing + ["read"] * agent.indicators.read_receipts,
            held_mail=held_mail(agent),
            memory_locked=self.memory_locked,
            dumpable=self.dumpable,
        )
