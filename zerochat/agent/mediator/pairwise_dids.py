"""Pairwise DIDs: the mediator uses a separate DID for each recipient, rotated from its public one.

The public DID is in invitations and routes. From its first answer on the mediator uses a DID known to this recipient
only; answers carry the rotation proof (`didcomm/rotation.py`) until the recipient has addressed the new DID, and again
when it addresses the old one, because it has lost its state.

The keys of a pairwise DID are derived from the mediator's secret and a tag in the DID. So a mediator that has deleted a
recipient, or was restored from a backup, can still decrypt its messages and respond.
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


class PairwiseDids:
    """The mediator's public DID, and its pairwise ones."""

    def __init__(self, identity: Identity, uris: tuple[str, ...], random: Callable[[int], bytes]) -> None:
        """`uris`: the addresses for recipients."""
        self._public, self._uris, self._random = identity, uris, random
        self._secrets = own_secrets(identity)
        self._seed = hkdf_sha256(identity.agreement_secret, b"zerochat/mediator-pairwise/1")

    def new(self) -> str:
        """A new pairwise DID."""
        return self._did(b64url(self._random(_TAG_BYTES)))

    def _did(self, tag: str) -> str:
        """Our DID with this tag."""
        signing, agreement = _publics(self._seed, tag)
        services = [service(uri, "" if number else tag) for number, uri in enumerate(self._uris)]
        return peer2([signing], [agreement], services)

    def identity(self, did: str) -> Identity | None:
        """The identity of one of our DIDs; None: not ours."""
        if did == self._public.did:
            return self._public
        if not did.startswith("did:peer:2."):
            return None
        try:
            document = resolve(did)
        except RemoteError:
            return None
        tag = document.services[0].id.partition("#")[2] if document.services else ""
        # Any other content was not written by us.
        if len(tag) != len(b64url(bytes(_TAG_BYTES))) or did != self._did(tag):
            return None
        return Identity(did, *_seeds(self._seed, tag))

    def is_ours(self, name: str) -> bool:
        """Whether this name is one of the mediator's own."""
        return name in self._secrets or self.identity(name) is not None

    def secret_of(self, kid: str) -> SecretKey | None:
        """The secret of a key id of ours; for the public DID also of bare keys, used in routes."""
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
        """An encrypted message for the DID `to`: to a recipient from its pairwise DID; to others (None) from the DID
        `asked`. Raises Malformed, or Unauthentic for a DID without a matching key."""
        mine = self.identity(asked if recipient is None else recipient.pairwise_did) or self._public
        word = None
        if recipient is not None and not recipient.rotation_confirmed:
            old = self._public
            word = from_prior(Prior(old.did, old.kid_signing, old.signing_seed), mine.did, recipient.rotated_at)
        packer = PACKERS["didcomm/v2"]
        return packer.authcrypt(
            packer.dump(replace(message, from_=mine.did, to=(to,), from_prior=word)),
            sender=packer.own_key(mine, mine.did),
            recipient=packer.their_key(document, to),
            random=self._random,
        )


def service(uri: str, tag: str = "", routing_keys: tuple[str, ...] = ()) -> dict[str, object]:
    """A service entry of a DID document. Without an id, which did:peer:2 assigns anyway, unless it holds the tag."""
    name: dict[str, object] = {"id": "#" + tag} if tag else {}
    endpoint: dict[str, object] = {"uri": uri, "accept": ["didcomm/v2"]}
    if routing_keys:
        endpoint["routingKeys"] = list(routing_keys)
    return name | {"type": "DIDCommMessaging", "serviceEndpoint": endpoint}


@lru_cache(maxsize=4096)
def _seeds(secret: bytes, tag: str) -> tuple[bytes, bytes]:
    """Seeds of the Ed25519 and X25519 keys, 32 bytes each."""
    both = (hkdf_sha256(secret, f"{use} {tag}".encode()) for use in ("sign", "agree"))
    return next(both), next(both)


@lru_cache(maxsize=4096)
def _publics(secret: bytes, tag: str) -> tuple[PublicKey, PublicKey]:
    signing, agreement = _seeds(secret, tag)
    return PublicKey("Ed25519", ed25519_public(signing)), PublicKey("X25519", x25519_public(agreement))
