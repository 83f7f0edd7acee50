"""Recipients of DIDComm v1: the mediator's invitation and DID for them, and DID Exchange with it (RFC 0023).

A recipient of v1 is known by its key, since v1 envelopes name no DIDs: its DID here is the did:key. It shows the
mediator's invitation in the exchange, not in its mediation request, so it takes its seat in the exchange, of which
nothing else is kept.

All recipients of v1 know the mediator under one DID with the key that is in every route.
"""

from collections.abc import Callable, Sequence
from typing import Final

from zerochat.crypto.encoding import base58_bytes, did_key_bytes
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm.did import Identity, did_key_of, peer2, resolve
from zerochat.didcomm.message import Message, same_type
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.protocols import didexchange, oob_write
from zerochat.didcomm.protocols.didexchange import Party

ROLES: Final = tuple((uri, ("responder",)) for uri in didexchange.PROTOCOLS.values())
"""The protocols of this module, as features disclose them."""


def did_of_verkey(kid: str) -> str:
    """The did:key of a v1 key id. Raises Malformed."""
    return did_key_of(PublicKey("Ed25519", base58_bytes(kid, 32)))


def inline_services(identity: Identity, uris: Sequence[str]) -> list[dict[str, object]]:
    """The services of an invitation of v1."""
    key = PublicKey("Ed25519", identity.signing_public)
    return [{**oob_write.inline_service(uri, key), "id": f"#inline-{number}"} for number, uri in enumerate(uris)]


class V1Recipients:
    """The mediator as recipients of v1 know it."""

    def __init__(self, identity: Identity, uris: Sequence[str], random: Callable[[int], bytes]) -> None:
        self._signer, self._random = SecretKey("Ed25519", identity.signing_seed), random
        self._own = PACKERS["didcomm/v1"].own_key(identity, identity.did)
        signing = PublicKey("Ed25519", identity.signing_public)
        agreement = PublicKey("X25519", identity.agreement_public)
        services = [didexchange.service_v1(uri, priority=number) for number, uri in enumerate(uris)]
        self.did = peer2([signing], [agreement], services)
        self.routing_key = did_key_of(signing)
        """The key to wrap forwards for, in either envelope format."""

    def sealed(self, message: Message, recipient: str) -> bytes:
        """An encrypted message for a recipient (did:key). Raises Malformed for another DID."""
        packer = PACKERS["didcomm/v1"]
        key = packer.their_key(resolve(recipient), recipient)
        return packer.authcrypt(packer.dump(message), sender=self._own, recipient=key, random=self._random)

    def exchange(self, message: Message, recipient: str, admit: Callable[[Party], bool]) -> Message | None:
        """The response to an exchange request from this recipient (did:key); None: nothing is to be answered.

        `admit`: whether the party with the DID in the request is admitted. Raises RemoteError.
        """
        if not same_type(message.type, didexchange.REQUEST) or message.pthid is None:
            return None
        sender = PublicKey("Ed25519", did_key_bytes(recipient))
        responder = didexchange.receive_request(message, message.pthid, sender)
        if not admit(responder.peer):
            return didexchange.decline(message, "request_not_accepted", "No mediation was granted.", self._random)
        return didexchange.respond(responder, self.did, self._signer, self._random)[1]
