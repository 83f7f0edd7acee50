"""External connections as the control protocol shows them."""

from collections.abc import Mapping

from zerochat import rpc
from zerochat.didcomm.did import short_form
from zerochat.group import did_rotation
from zerochat.group.external.mediators import websocket_uri
from zerochat.group.external.relayed_posts import relay_of
from zerochat.group.state import Agent, Connection, PeerRef
from zerochat.group.state.external import ConnectionState
from zerochat.rpc import ConnectionInfo
from zerochat.rpc.common import timestamp


def connection_messages(agent: Agent, connection: str) -> list[rpc.ConnectionMessage]:
    """The last messages to and from a connection, oldest first."""
    kept = agent.connections[connection].messages
    return [
        rpc.ConnectionMessage(
            each.id, timestamp(each.at), each.mine, each.text, each.status or None, list(each.attachments)
        )
        for each in kept
    ]


_STATES: Mapping[ConnectionState, rpc.ConnectionState] = {
    ConnectionState.OFFERED: "offered",
    ConnectionState.REQUESTED: "requested",
    ConnectionState.ESTABLISHED: "established",
    ConnectionState.ENDED: "ended",
}


def connection_info(agent: Agent, one: Connection) -> ConnectionInfo:
    return ConnectionInfo(
        id=one.id,
        label=one.label,
        state=_STATES[one.state],
        envelope=one.envelope,
        did=short_form(one.relationship.theirs) if one.relationship.theirs else "",
        my_did=one.relationship.mine.short,
        mediator=one.mediation.phase if one.mediation else None,
        reachable=websocket_uri(one) in agent.websockets_up if one.mediation else None,
        begun_at=timestamp(one.begun),
        rotates_every_s=did_rotation.interval_ms(agent, PeerRef(connection=one.id)) // 1000,
    )


def mediators(agent: Agent) -> list[ConnectionInfo]:
    return [connection_info(agent, one) for one in agent.connections.values() if one.mediation]


def sends(agent: Agent) -> rpc.Sends:
    """How this agent sends now."""
    if not agent.mediated_only:
        return "direct"
    return "nothing" if relay_of(agent) is None else "mediator"


def is_hidden(agent: Agent) -> bool:
    """Whether no peer can dial this agent."""
    return agent.reach is not None and agent.reach.pair is None
