"""A mediator of DIDComm v1 that delivers as ACA-Py does: raw envelopes over the WebSocket, and no pickup."""

import json
from collections.abc import Callable
from typing import Any

from zerochat.crypto.encoding import base58
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm.did import did_key_of, new_peer2, resolve
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.protocols import didexchange, oob_write
from zerochat.didcomm.protocols.oob_write import inline_service
from zerochat.didcomm.service import verkey
from zerochat.didcomm.v1 import dump_v1, parse_v1

V1 = PACKERS["didcomm/v1"]
HTTP, SOCKET = "http://192.0.2.9:8080", "ws://192.0.2.9:8080"
MEDIATION = "https://didcomm.org/coordinate-mediation/1.0"
ROUTING = "https://didcomm.org/routing/1.0/forward"

Tree = dict[str, Any]


class KeyMediator:
    """It remembers its client by the key of its envelopes. `grants`: what it answers to a request."""

    def __init__(self, random: Callable[[int], bytes], *, in_base58: bool = False) -> None:
        self.random = random
        services = [didexchange.service_v1(uri) for uri in (HTTP, SOCKET)]
        self.identity = new_peer2(random, services)
        self.key = PublicKey("Ed25519", self.identity.signing_public)
        self.client = ""
        self.keys: list[str] = []
        self.got: list[Tree] = []
        name = base58(self.key.data) if in_base58 else did_key_of(self.key)
        self.grant: Tree = {"@type": f"{MEDIATION}/mediate-grant", "endpoint": HTTP, "routing_keys": [name]}
        self.admits = True

    def link(self) -> str:
        services = [{**inline_service(uri, self.key), "id": f"#{uri}"} for uri in (HTTP, SOCKET)]
        return oob_write.link("https://mediator.example", oob_write.invitation_v1(services, "relay", self.random))

    def receive(self, envelope: bytes) -> tuple[list[bytes], list[bytes]]:
        """The answers for the sender, and the envelopes for the client's WebSocket."""
        own = V1.own_key(self.identity, self.identity.did)
        unpacked = V1.unpack(envelope, secret_of=lambda kid: own.key if kid == own.kid else None, public_of=_no_key)
        tree = json.loads(unpacked.plain)
        if unpacked.sender_kid is None:
            assert tree["@type"] == ROUTING
            known = tree["to"] in self.keys
            return [], [json.dumps(tree["msg"]).encode()] if known else []
        self.got.append(tree)
        answer = self._answer(tree, unpacked.sender_kid)
        return [] if answer is None else [self.sealed(answer, unpacked.sender_kid)], []

    def _answer(self, tree: Tree, sender: str) -> Tree | None:
        thread = {"~thread": {"thid": tree["~thread"]["thid"] if "~thread" in tree else tree["@id"]}}
        kind = tree["@type"].removeprefix(MEDIATION)
        if tree["@type"] == didexchange.REQUEST:
            message = parse_v1(json.dumps(tree).encode())
            self.client = sender
            if not self.admits:
                refusal = didexchange.decline(message, "request_not_accepted", "No.", self.random)
                found: Tree = json.loads(dump_v1(refusal))
                return found
            responder = didexchange.receive_request(message, message.pthid or "", verkey(sender))
            signer = SecretKey("Ed25519", self.identity.signing_seed)
            _, response = didexchange.respond(responder, self.identity.did, signer, self.random)
            found = json.loads(dump_v1(response))
            return found
        if kind == "/mediate-request":
            return {"@id": "grant", **thread, **self.grant}
        if kind == "/keylist-update":
            rows = []
            for update in tree["updates"]:
                raw = base58(verkey(update["recipient_key"]).data)
                (self.keys.append if update["action"] == "add" else self.keys.remove)(raw)
                rows.append({"recipient_key": raw, "action": update["action"], "result": "success"})
            return {"@type": f"{MEDIATION}/keylist-update-response", "@id": "updated", **thread, "updated": rows}
        if "messagepickup" in tree["@type"]:
            description = {"code": "message-parse-failure", "en": "Unrecognized message type"}
            kind = "https://didcomm.org/notification/1.0/problem-report"
            return {"@type": kind, "@id": "problem", **thread, "description": description}
        return None

    def sealed(self, tree: Tree, to: str) -> bytes:
        own = V1.own_key(self.identity, self.identity.did)
        did = did_key_of(verkey(to))
        key = V1.their_key(resolve(did), did)
        return V1.authcrypt(json.dumps(tree).encode(), sender=own, recipient=key, random=self.random)


def _no_key(kid: str) -> PublicKey:
    raise AssertionError(kid)
