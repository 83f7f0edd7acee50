"""Mixing: becomes a recipient of other mediators, so that messages can take detours through them.

A detour leads back to us, so the other mediator must relay messages for our DID. This mediator therefore requests
mediation by its invitation, like any recipient, and registers its own DID, whose document has an address: the other one
relays to it. A mediator is used for detours only after it has confirmed this, and is queried again every hour.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.mediator.registry import deliverable_routes
from zerochat.didcomm.did import resolve, same_did, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import mediation, oob_read
from zerochat.didcomm.protocols.mediation import Change
from zerochat.didcomm.rotation import prior_did, verify_from_prior
from zerochat.errors import LocalError, RemoteError

RETRY_S: Final = 30
CONFIRM_S: Final = 3_600
NODES_MAX: Final = 16


class BadMixLink(LocalError):
    """This is not the invitation of a mediator: {why}. Give the whole link that `zerochat mediator` prints there."""

    exit_code: ClassVar[int] = 2


@dataclass(slots=True)
class PeerMediator:
    """Another mediator."""

    did: str
    """Public DID, from its invitation."""
    uri: str
    """URI for POSTs."""
    pthid: str = field(repr=False)
    speaks: str
    """The DID that it uses for us, as far as known."""
    is_ready: bool = False
    requested_s: int = -CONFIRM_S

    def is_by(self, message: Message, sender: str) -> bool:
        """Whether a message is from this mediator: from its known DID, or from one to which its public DID has rotated.
        Raises RemoteError for an invalid rotation."""
        if same_did(sender, self.speaks):
            return True
        if message.from_prior is None:
            return False
        prior = next((did for did in (self.speaks, self.did) if same_did(did, prior_did(message.from_prior))), None)
        if prior is None:
            return False
        verify_from_prior(message.from_prior, resolve(prior), sender)
        self.speaks = sender
        return True


class MixRequest(Struct, frozen=True):
    """A request to a mediator, answered in the HTTP response."""

    did: str
    uri: str
    message: Message


class MixPeers:
    """The configured mediators and their state."""

    def __init__(self, links: tuple[str, ...], own_did: str, random: Callable[[int], bytes]) -> None:
        """Raises BadMixLink."""
        self._own, self._random = own_did, random
        if len(links) > NODES_MAX:
            raise BadMixLink(why=f"there are more than {NODES_MAX}")
        self._nodes = [parse_mediator_invitation(link) for link in links]

    @property
    def ready(self) -> tuple[str, ...]:
        return tuple(node.did for node in self._nodes if node.is_ready)

    def due(self, now_s: int) -> list[MixRequest]:
        """The requests due now."""
        requests = []
        for node in self._nodes:
            if now_s - node.requested_s >= (CONFIRM_S if node.is_ready else RETRY_S):
                node.requested_s = now_s
                requests.append(MixRequest(node.speaks, node.uri, mediation.request(self._random, pthid=node.pthid)))
        return requests

    def receive(self, message: Message, sender: str) -> list[MixRequest]:
        """Process an answer; the next requests. Raises RemoteError."""
        node = next((node for node in self._nodes if node.is_by(message, sender)), None)
        kind = mediation.kind_of(message)
        if node is None or kind is None:
            return []
        match kind[1]:
            case "grant":
                update = mediation.update([Change(self._own, "add")], self._random)
                return [MixRequest(node.speaks, node.uri, update)]
            case "deny":
                node.is_ready = False
            case "updated":
                rows = mediation.read_update_response(message)
                ours = [row for row in rows if short_form(row.did) == short_form(self._own)]
                node.is_ready = any(row.result in ("success", "no_change") for row in ours)
        return []


def addressed(request: MixRequest, own_did: str) -> Message:
    return replace(request.message, from_=own_did, to=(request.did,))


def parse_mediator_invitation(link: str) -> PeerMediator:
    """The mediator of an invitation. Raises BadMixLink."""
    try:
        found = oob_read.read_invitation(link)
        if not isinstance(found, oob_read.OutOfBand):
            raise BadMixLink(why="it is a short link, which is not resolved here")
        did = found.inviters[0].did
        if did is None:
            raise BadMixLink(why="it contains no DID")
        resolve(did)
    except RemoteError as error:
        raise BadMixLink(why=error.fields.get("why", "it is damaged")) from error
    http = [way.uri for way in deliverable_routes(did, resolve) if way.uri.startswith("http") and not way.routing_keys]
    if not http:
        raise BadMixLink(why="it is not directly reachable over HTTP")
    return PeerMediator(did, http[0], found.id, did)
