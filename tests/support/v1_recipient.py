"""A recipient of DIDComm v1, which writes its messages as the specifications of Aries have them."""

import json
from itertools import count
from typing import Any

from tests.support.mediator_site import INVITATION, Site, random
from zerochat.agent.mediator.outcomes import Outcome
from zerochat.crypto.encoding import base58
from zerochat.crypto.keys import PublicKey
from zerochat.didcomm.did import Identity, did_key_of, new_peer2, resolve
from zerochat.didcomm.packer import PACKERS, TheirKey
from zerochat.didcomm.v1 import parse_v1

V1 = PACKERS["didcomm/v1"]

MEDIATION = "https://didcomm.org/coordinate-mediation/1.0"
PICKUP_1, PICKUP_2 = "https://didcomm.org/messagepickup/1.0", "https://didcomm.org/messagepickup/2.0"
QUEUE = {"type": "did-communication", "serviceEndpoint": "didcomm:transport/queue", "recipientKeys": ["#key-1"]}

Tree = dict[str, Any]


def verkey_of(identity: Identity) -> str:
    return base58(identity.signing_public)


class V1Recipient:
    """It knows the mediator by the verkey in its invitation, and itself by its own."""

    def __init__(self, site: Site, *services: Tree, stays: bool = True) -> None:
        self.site, self.session = site, site.session(stays=stays)
        self.identity = new_peer2(random, [{"id": "#s", **service} for service in services or (QUEUE,)])
        self.key = new_peer2(random, [QUEUE | {"id": "#s"}])
        """The key of a connection, which it registers."""
        self.numbers = count(1)
        self.returns = True
        """Whether it requests answers on the same connection."""

    @property
    def mediator(self) -> TheirKey:
        did = did_key_of(PublicKey("Ed25519", self.site.identity.signing_public))
        return V1.their_key(resolve(did), did)

    def plain(self, type_: str, **members: Any) -> bytes:
        tree: Tree = {"@type": type_, "@id": f"m-{next(self.numbers)}"}
        if self.returns:
            tree["~transport"] = {"return_route": "all"}
        return json.dumps(tree | members).encode()

    def sealed(self, plain: bytes) -> bytes:
        own = V1.own_key(self.identity, self.identity.did)
        return V1.authcrypt(plain, sender=own, recipient=self.mediator, random=random)

    def hear(self, plain: bytes) -> Outcome:
        return self.site.hear(self.sealed(plain), self.session)

    def read(self, envelope: bytes) -> Tree:
        own = V1.own_key(self.identity, self.identity.did)
        unpacked = V1.unpack(envelope, secret_of=lambda kid: own.key if kid == own.kid else None, public_of=no_key)
        assert unpacked.sender_kid == base58(self.site.identity.signing_public), "from the key of the invitation"
        tree = json.loads(unpacked.plain)
        assert isinstance(tree, dict)
        return tree

    def tell(self, type_: str, **members: Any) -> Tree | None:
        answer = self.hear(self.plain(type_, **members)).answer
        return None if answer is None else self.read(answer)

    def ask(self, type_: str, **members: Any) -> Tree:
        answer = self.tell(type_, **members)
        assert answer is not None
        return answer

    def exchange(self, pthid: str = INVITATION) -> Tree:
        """Answer the mediator's invitation (RFC 0023)."""
        return self.ask(
            "https://didcomm.org/didexchange/1.1/request",
            **{"label": "Alice", "did": self.identity.did, "~thread": {"thid": "exchange", "pthid": pthid}},
        )

    def connect(self) -> "V1Recipient":
        self.exchange()
        assert self.ask(f"{MEDIATION}/mediate-request")["@type"] == f"{MEDIATION}/mediate-grant"
        self.register(verkey_of(self.key))
        return self

    def register(self, key: str, action: str = "add") -> str:
        answer = self.ask(f"{MEDIATION}/keylist-update", updates=[{"recipient_key": key, "action": action}])
        [row] = answer["updated"]
        assert (row["recipient_key"], row["action"]) == (key, action)
        result = row["result"]
        assert isinstance(result, str)
        return result

    def letter(self, text: str) -> bytes:
        """An envelope to the registered key."""
        did = did_key_of(PublicKey("Ed25519", self.key.signing_public))
        plain = json.dumps({"@type": "https://example.org/chat/1.0/post", "@id": "m", "text": text}).encode()
        return V1.anoncrypt(plain, recipient=V1.their_key(resolve(did), did), random=random)

    def forward(self, text: str, to: str | None = None) -> tuple[bytes, bytes]:
        """An envelope, and the forward of it as a sender of v1 posts it (RFC 0094: `to` is a key)."""
        letter = self.letter(text)
        tree = {"@type": "https://didcomm.org/routing/1.0/forward", "@id": "f", "to": to or verkey_of(self.key)}
        plain = json.dumps(tree | {"msg": json.loads(letter)}).encode()
        return letter, V1.anoncrypt(plain, recipient=self.mediator, random=random)

    def pushed(self) -> list[Tree]:
        found = self.site.pushes()
        assert all(push.handle == self.session.handle for push in found)
        return [self.read(push.envelope) for push in found]


def no_key(kid: str) -> PublicKey:
    raise AssertionError(kid)


def parsed(tree: Tree) -> Any:
    return parse_v1(json.dumps(tree).encode())
