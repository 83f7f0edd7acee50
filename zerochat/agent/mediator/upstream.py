"""A mediator behind another one: what is posted there for us is fetched, over a WebSocket that we hold open.

Our DID says so (`standing.py`): whoever writes to our recipients posts to the other mediator, in a further layer for
that. To it we are a recipient like any other, which has registered its own DID; so nobody need be able to dial us but
those whom we serve. What has been fetched is heard in a turn of the store, and acknowledged after it.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec.structs import replace

from zerochat.agent.mediator.mixing import BadMixLink, Node
from zerochat.agent.mediator.registry import ways
from zerochat.crypto.keys import SecretKey
from zerochat.didcomm.did import Identity, resolve
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import mediation, mediation_client, problem
from zerochat.didcomm.protocols.mediation_client import Mediated, Said
from zerochat.didcomm.protocols.pickup import Parcel

Noted: TypeAlias = tuple[Mediated, tuple[Message, ...]]
POLL_S: Final = 300
"""How often it is asked although it should have told: in case an answer was lost."""


def live_uri(node: Node) -> str:
    """Where the mediator takes WebSockets. Raises BadMixLink."""
    found = [way.uri for way in ways(node.did, resolve) if way.uri.startswith("ws") and not way.routing_keys]
    if not found:
        raise BadMixLink(why="it takes no WebSocket, over which it would be asked what there is")
    return found[0]


class Upstream:
    """The mediator before us, and what is to be said to it."""

    def __init__(self, node: Node, identity: Identity, random: Callable[[int], bytes]) -> None:
        self.node, self._random = node, random
        self._keys = {identity.did: SecretKey("Ed25519", identity.signing_seed)}
        self._state = Mediated(node.did, identity.did, node.pthid, wanted=frozenset({identity.did}))
        self._said: list[Message] = []
        self._poll_s = 0

    def opened(self, now_s: int) -> None:
        """The WebSocket is there."""
        self._poll_s = now_s + POLL_S
        self._follow(mediation_client.opened(self._state, self._random))

    def closed(self) -> None:
        """It is gone, and so is what was to be said over it."""
        self._state = mediation_client.closed(self._state)
        self._said.clear()

    def heard(self, message: Message, sender: str) -> tuple[Parcel, ...]:
        """What it has sent us. Say `acknowledge` for it. Raises RemoteError."""
        if not self.node.is_by(message, sender):
            return ()
        if problem.is_problem(message) and self._state.phase == "granted":  # it has forgotten us
            asking = replace(self._state, phase="asking", registered=frozenset())
            self._follow(mediation_client.opened(asking, self._random))
            return ()
        said = mediation_client.hear(self._state, message, self._random)
        self._follow(said)
        return said.parcels

    def acknowledge(self, parcels: tuple[Parcel, ...]) -> None:
        """They are on disk, as soon as the turn that is under way is."""
        self._follow(mediation_client.acknowledge(self._state, [parcel.id for parcel in parcels], self._random))

    def due(self, now_s: int) -> list[Message]:
        """What to say now, addressed."""
        if now_s >= self._poll_s:
            self._poll_s = now_s + POLL_S
            self._follow(mediation_client.poll(self._state, self._random))
        said, self._said = self._said, []
        addressed = (replace(message, to=(self.node.speaks,)) for message in said)
        return [mediation.with_proofs(message, self._keys) for message in addressed]

    def noted(self) -> Noted:
        """What `undo` puts back."""
        return self._state, tuple(self._said)

    def undo(self, noted: Noted | None) -> None:
        """The turn has not happened: nothing that was fetched in it is acknowledged."""
        if noted is not None:
            self._state, self._said = noted[0], list(noted[1])

    def _follow(self, said: Said) -> None:
        self._state = said.state
        self._said += said.messages
