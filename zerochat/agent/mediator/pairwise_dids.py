"""Under which DID a mediator speaks to whom, and which keys it opens envelopes with.

Its own DID stands in invitations and routes, and everybody may know it. With each of its recipients it speaks under
another, which nobody else has seen, from its first answer on; that answer and those after it carry the old DID's word
for the new one (`didcomm/rotation.py`) until the recipient has addressed the new one. One that addresses the old one
again, because it has lost what it knew, hears the word again.

The keys of such a DID come from the mediator's own secret and from a number that stands in the DID itself. So a
mediator that has forgotten a recipient, or was put back from a backup, still reads what that says, and can tell it so.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from zerochat.agent.mediator.registry import own_secrets
from zerochat.agent.mediator.tables import Recipient
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.primitives import ed25519_public, hkdf_sha256, x25519_public
from zerochat.didcomm.did import Document, Identity, resolve
from zerochat.didcomm.did.peer2 import peer2
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.rotation import Prior, from_prior
from zerochat.errors import RemoteError

_TAG_BYTES: Final = 16


class Pairwise:
    """A mediator's DIDs: the public one, and the one for each recipient."""

    def __init__(self, identity: Identity, uris: tuple[str, ...], random: Callable[[int], bytes]) -> None:
        """`uris`: where recipients reach the mediator."""
        self._public, self._uris, self._random = identity, uris, random
        self._secrets = own_secrets(identity)
        self._seed = hkdf_sha256(identity.agreement_secret, b"zerochat/mediator-pairwise/1")

    def new(self) -> str:
        """A DID for one recipient."""
        return self._did(b64url(self._random(_TAG_BYTES)))

    def _did(self, tag: str) -> str:
        """The only DID of ours with this number."""
        signing, agreement = _publics(self._seed, tag)
        services = [service(uri, "" if number else tag) for number, uri in enumerate(self._uris)]
        return peer2([signing], [agreement], services)

    def identity(self, did: str) -> Identity | None:
        """One of our DIDs with its secrets; None for anybody else's."""
        if did == self._public.did:
            return self._public
        if not did.startswith("did:peer:2."):
            return None
        try:
            document = resolve(did)
        except RemoteError:
            return None
        tag = document.services[0].id.partition("#")[2] if document.services else ""
        # Whatever else stood in it, somebody else would have written there under our keys.
        if len(tag) != len(b64url(bytes(_TAG_BYTES))) or did != self._did(tag):
            return None
        return Identity(did, *_seeds(self._seed, tag))

    def is_ours(self, name: str) -> bool:
        """Whether a forward for this name is for the mediator itself."""
        return name in self._secrets or self.identity(name) is not None

    def secret_of(self, kid: str) -> SecretKey | None:
        """Ours are the keys of our DIDs, and the public one's alone, for those who route to a key."""
        owner = kid.partition("#")[0]
        secret = self._secrets.get(owner)
        if secret is None:
            identity = self.identity(owner)
            secret = None if identity is None else SecretKey("X25519", identity.agreement_secret)
        if secret is None or owner == kid:
            return secret
        try:
            resolve(owner).agreement_key(kid)
        except RemoteError:
            return None
        return secret

    def sealed(self, message: Message, to: str, document: Document, recipient: Recipient | None, asked: str) -> bytes:
        """A message of ours for the DID `to`: for a recipient; or (None) for anybody else, under our DID that was
        `asked`. Raises Malformed, Unauthentic for somebody without a key that fits ours."""
        mine = self.identity(asked if recipient is None else recipient.own) or self._public
        word = None
        if recipient is not None and not recipient.knows:
            old = self._public
            word = from_prior(Prior(old.did, old.kid_signing, old.signing_seed), mine.did, recipient.since)
        packer = PACKERS["didcomm/v2"]
        return packer.authcrypt(
            packer.dump(replace(message, from_=mine.did, to=(to,), from_prior=word)),
            sender=packer.own_key(mine, mine.did),
            recipient=packer.their_key(document, to),
            random=self._random,
        )


def service(uri: str, tag: str = "", routing_keys: tuple[str, ...] = ()) -> dict[str, object]:
    """Where a mediator is reached. Without an id, which only makes the DID longer: did:peer:2 gives every service one;
    unless it has to hold the number that a DID's keys come from."""
    name: dict[str, object] = {"id": "#" + tag} if tag else {}
    endpoint: dict[str, object] = {"uri": uri, "accept": ["didcomm/v2"]}
    if routing_keys:
        endpoint["routingKeys"] = list(routing_keys)
    return name | {"type": "DIDCommMessaging", "serviceEndpoint": endpoint}


@lru_cache(maxsize=4096)
def _seeds(secret: bytes, tag: str) -> tuple[bytes, bytes]:
    """Of the keys to sign with (Ed25519) and to agree with (X25519), 32 bytes each."""
    both = (hkdf_sha256(secret, f"{use} {tag}".encode()) for use in ("sign", "agree"))
    return next(both), next(both)


@lru_cache(maxsize=4096)
def _publics(secret: bytes, tag: str) -> tuple[PublicKey, PublicKey]:
    signing, agreement = _seeds(secret, tag)
    return PublicKey("Ed25519", ed25519_public(signing)), PublicKey("X25519", x25519_public(agreement))
