"""Upstream mediator: fetches what is posted there for us, over a WebSocket that we hold open.

Our DID says so (`identity.py`): senders to our recipients post to the upstream mediator, with a further layer for it.
To it we are an ordinary recipient that has registered its DID, so only our recipients need to reach us. Fetched
messages are processed in a transaction of the store, and acknowledged after it.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec.structs import replace

from zerochat.agent.mediator.mixing import BadMixLink, PeerMediator
from zerochat.agent.mediator.registry import deliverable_routes
from zerochat.crypto.keys import SecretKey
from zerochat.didcomm.did import Identity, resolve
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import mediation, mediation_client, problem
from zerochat.didcomm.protocols.mediation_client import MediationState, MediationStep
from zerochat.didcomm.protocols.pickup import Parcel

UpstreamSnapshot: TypeAlias = tuple[MediationState, tuple[Message, ...]]
POLL_S: Final = 300
"""Polling interval, in case a live delivery was lost."""


def live_uri(node: PeerMediator) -> str:
    """The mediator's WebSocket URI. Raises BadMixLink."""
    found = [
        way.uri for way in deliverable_routes(node.did, resolve) if way.uri.startswith("ws") and not way.routing_keys
    ]
    if not found:
        raise BadMixLink(why="it has no WebSocket, which is needed to fetch messages")
    return found[0]


class Upstream:
    """The upstream mediator, and the messages to send to it."""

    def __init__(self, node: PeerMediator, identity: Identity, random: Callable[[int], bytes]) -> None:
        self.node, self._random = node, random
        self._keys = {identity.did: SecretKey("Ed25519", identity.signing_seed)}
        self._state = MediationState(node.did, identity.did, node.pthid, desired=frozenset({identity.did}))
        self._outgoing: list[Message] = []
        self._poll_s = 0

    def opened(self, now_s: int) -> None:
        """The WebSocket is open."""
        self._poll_s = now_s + POLL_S
        self._apply(mediation_client.connected(self._state, self._random))

    def closed(self) -> None:
        """The WebSocket has closed; unsent messages are dropped."""
        self._state = mediation_client.disconnected(self._state)
        self._outgoing.clear()

    def receive(self, message: Message, sender: str) -> tuple[Parcel, ...]:
        """The messages in a delivery, to be passed to `acknowledge`. Raises RemoteError."""
        if not self.node.is_by(message, sender):
            return ()
        if problem.is_problem(message) and self._state.phase == "granted":  # it has deleted us
            self._apply(mediation_client.restart(self._state, self._random))
            return ()
        result = mediation_client.receive(self._state, message, self._random)
        self._apply(result)
        return result.parcels

    def acknowledge(self, parcels: tuple[Parcel, ...]) -> None:
        """Acknowledge messages that the current transaction stores."""
        self._apply(mediation_client.acknowledge(self._state, [parcel.id for parcel in parcels], self._random))

    def due(self, now_s: int) -> list[Message]:
        """The messages to send now."""
        if now_s >= self._poll_s:
            self._poll_s = now_s + POLL_S
            self._apply(mediation_client.poll(self._state, self._random))
        messages, self._outgoing = self._outgoing, []
        addressed = (replace(message, to=(self.node.speaks,)) for message in messages)
        return [mediation.with_proofs(message, self._keys) for message in addressed]

    def snapshot(self) -> UpstreamSnapshot:
        """The state for `undo`."""
        return self._state, tuple(self._outgoing)

    def undo(self, snapshot: UpstreamSnapshot | None) -> None:
        """Restore the state before a failed transaction, so that nothing of it is acknowledged."""
        if snapshot is not None:
            self._state, self._outgoing = snapshot[0], list(snapshot[1])

    def _apply(self, result: MediationStep) -> None:
        self._state = result.state
        self._outgoing += result.messages
