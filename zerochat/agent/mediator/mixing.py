"""Other mediators that messages may take a detour through: how this one becomes known to them.

A detour leads back here, so the other mediator must let through what is for our DID; and that is what mediation is for.
So this mediator becomes a recipient of the other one, by its invitation like anybody else, and registers its own DID,
whose document has an address: what comes for it is sent on. Until that has been confirmed nothing takes that way, and
it is asked again every hour, in case it was forgotten there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.mediator.registry import ways
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
class Node:
    """Another mediator."""

    did: str
    """The public one, of its invitation."""
    uri: str
    """Where it takes POSTs."""
    pthid: str = field(repr=False)
    speaks: str
    """The DID under which it speaks to us, as far as we have heard."""
    is_ready: bool = False
    asked_s: int = -CONFIRM_S

    def is_by(self, message: Message, sender: str) -> bool:
        """Whether it is this mediator that has sent a message: under the DID that we know, or under one that its public
        one has put in the place of itself. Raises RemoteError for a word that is not its own."""
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


class Asked(Struct, frozen=True):
    """A message for a mediator, which answers in its response."""

    did: str
    uri: str
    message: Message


class Mixing:
    """The mediators that were named, and which of them are ready."""

    def __init__(self, links: tuple[str, ...], own_did: str, random: Callable[[int], bytes]) -> None:
        """Raises BadMixLink."""
        self._own, self._random = own_did, random
        if len(links) > NODES_MAX:
            raise BadMixLink(why=f"there are more than {NODES_MAX}")
        self._nodes = [node_of(link) for link in links]

    @property
    def ready(self) -> tuple[str, ...]:
        return tuple(node.did for node in self._nodes if node.is_ready)

    def due(self, now_s: int) -> list[Asked]:
        """What to ask now."""
        asked = []
        for node in self._nodes:
            if now_s - node.asked_s >= (CONFIRM_S if node.is_ready else RETRY_S):
                node.asked_s = now_s
                asked.append(Asked(node.speaks, node.uri, mediation.request(self._random, pthid=node.pthid)))
        return asked

    def heard(self, message: Message, sender: str) -> list[Asked]:
        """What a mediator answered; and what to ask next. Raises RemoteError."""
        node = next((node for node in self._nodes if node.is_by(message, sender)), None)
        kind = mediation.kind_of(message)
        if node is None or kind is None:
            return []
        match kind[1]:
            case "grant":
                update = mediation.update([Change(self._own, "add")], self._random)
                return [Asked(node.speaks, node.uri, update)]
            case "deny":
                node.is_ready = False
            case "updated":
                rows = mediation.read_update_response(message)
                ours = [row for row in rows if short_form(row.did) == short_form(self._own)]
                node.is_ready = any(row.result in ("success", "no_change") for row in ours)
        return []


def addressed(asked: Asked, own_did: str) -> Message:
    return replace(asked.message, from_=own_did, to=(asked.did,))


def node_of(link: str) -> Node:
    """The mediator that an invitation is of. Raises BadMixLink."""
    try:
        found = oob_read.read_invitation(link)
        if not isinstance(found, oob_read.OutOfBand):
            raise BadMixLink(why="it is a short link, and nobody is asked what it stands for")
        did = found.inviters[0].did
        if did is None:
            raise BadMixLink(why="it names no DID")
        resolve(did)
    except RemoteError as error:
        raise BadMixLink(why=error.fields.get("why", "it is damaged")) from error
    http = [way.uri for way in ways(did, resolve) if way.uri.startswith("http") and not way.routing_keys]
    if not http:
        raise BadMixLink(why="it is not reached over HTTP, or only over another one")
    return Node(did, http[0], found.id, did)
