"""WebSockets that peers have opened to us: what we send unasked goes over them too, where the peer requests it.

DIDComm v2.1, extension "Return-Route": `return_route: all` accepts all messages over the connection. The request may be
a replayed one, on the WebSocket of someone else, who would get all envelopes and answer none. So the session counts
once the peer has answered a trust ping on it. `none` ends that, and so does a post that fails.
"""

from msgspec.structs import replace

from zerochat.didcomm.message import Message, same_id
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols import ping
from zerochat.group.external import outbox, sending
from zerochat.group.state.external import WebSession
from zerochat.group.transaction import Transaction


def receive(tx: Transaction, name: str, message: Message, handle: int) -> None:
    """A message of a connection has come on a WebSocket that the peer has opened. Raises RemoteError."""
    session, one = tx.agent.web_sessions.get(name, WebSession()), tx.agent.connections[name]
    if message.return_route == "none" and session.handle == handle:
        sending.end_session(tx, name)
    elif message.thid is not None and session.pending == handle and _is_answer(message, session):
        tx.update_agent(web_sessions={**tx.agent.web_sessions, name: WebSession(handle)})
        outbox.expedite(tx, name)
    elif message.return_route == "all" and handle not in (session.handle, session.pending) and one.mediation is None:
        profile: Profile = "didcomm/v1" if one.envelope == "didcomm/v1" else "didcomm/v2"
        probe = replace(ping.ping(tx.context.random, profile), return_route="all")
        fresh = WebSession(session.handle, handle, probe.id)
        tx.update_agent(web_sessions={**tx.agent.web_sessions, name: fresh})
        sending.send(tx, name, probe, handle)


def _is_answer(message: Message, session: WebSession) -> bool:
    return ping.is_response(message) and same_id(message.thid or "", session.thread)
