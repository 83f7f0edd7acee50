"""didcomm by SICPA, the only Python library with all of DIDComm v2; it packs messages, not bytes."""

import asyncio
import json
from typing import Any

from didcomm.common.algorithms import AnonCryptAlg
from didcomm.common.resolvers import ResolversConfig
from didcomm.common.types import VerificationMaterial, VerificationMaterialFormat, VerificationMethodType
from didcomm.did_doc.did_doc import DIDCommService, DIDDoc, VerificationMethod
from didcomm.did_doc.did_resolver import DIDResolver
from didcomm.message import FromPrior, Message
from didcomm.pack_encrypted import PackEncryptedConfig, pack_encrypted
from didcomm.pack_signed import pack_signed
from didcomm.protocols.routing.forward import unpack_forward
from didcomm.secrets.secrets_resolver import Secret, SecretsResolver
from didcomm.unpack import UnpackConfig, unpack

from . import b64, unb64

_ENCRYPTIONS = {algorithm.value.enc: algorithm for algorithm in AnonCryptAlg}


def _material(jwk: dict[str, str]) -> VerificationMaterial:
    return VerificationMaterial(VerificationMaterialFormat.JWK, json.dumps(jwk))


class _World(DIDResolver, SecretsResolver):
    """The documents and the secrets that a question brings along."""

    def __init__(self, documents: list[dict[str, Any]], secrets: list[dict[str, str]]) -> None:
        self.documents = {tree["did"]: tree for tree in documents}
        self.secrets = {jwk["kid"]: jwk for jwk in secrets}

    async def resolve(self, did: str) -> DIDDoc | None:
        tree = self.documents.get(did)
        if tree is None:
            return None
        agreement, authentication = tree.get("agreement", []), tree.get("authentication", [])
        kind = VerificationMethodType.JSON_WEB_KEY_2020
        return DIDDoc(
            did=did,
            key_agreement_kids=[jwk["kid"] for jwk in agreement],
            authentication_kids=[jwk["kid"] for jwk in authentication],
            verification_methods=[
                VerificationMethod(jwk["kid"], kind, did, _material(jwk)) for jwk in agreement + authentication
            ],
            didcomm_services=[DIDCommService(**service) for service in tree.get("services", [])],
        )

    async def get_key(self, kid: str) -> Secret | None:
        jwk = self.secrets.get(kid)
        return jwk and Secret(kid, VerificationMethodType.JSON_WEB_KEY_2020, _material(jwk))

    async def get_keys(self, kids: list[str]) -> list[str]:
        return [kid for kid in kids if kid in self.secrets]

    @property
    def config(self) -> ResolversConfig:
        return ResolversConfig(secrets_resolver=self, did_resolver=self)


# --- whole messages ---------------------------------------------------------------------------------------------------


def pack(
    message: dict[str, Any],
    documents: list[dict[str, Any]],
    secrets: list[dict[str, str]],
    to: str | None = None,
    sender: str | None = None,
    signer: str | None = None,
    protect_sender: bool = False,
    enc: str = "A256CBC-HS512",
    forward: bool = False,
) -> str:
    """`to`, `sender` and `signer` are DIDs or key ids; without `to` the message is signed and no more."""
    world = _World(documents, secrets)
    tree = {"from_prior": None} | message
    if tree["from_prior"] is not None:
        tree["from_prior"] = FromPrior.from_dict(tree["from_prior"])
    tree["frm"] = tree.pop("from", None)
    if to is None:
        return str(asyncio.run(pack_signed(world.config, Message(**tree), signer)).packed_msg)
    config = PackEncryptedConfig(enc_alg_anon=_ENCRYPTIONS[enc], protect_sender_id=protect_sender, forward=forward)
    packed = pack_encrypted(world.config, Message(**tree), to, sender, signer, config)
    return str(asyncio.run(packed).packed_msg)


def read(envelope: str, documents: list[dict[str, Any]], secrets: list[dict[str, str]]) -> dict[str, Any]:
    """The message and its protection."""
    world = _World(documents, secrets)
    opened = asyncio.run(unpack(world.config, envelope, UnpackConfig(unwrap_re_wrapping_forward=False)))
    said = opened.metadata
    return {
        "message": opened.message.as_dict(),
        "from": said.encrypted_from,
        "to": said.encrypted_to,
        "signed_by": said.sign_from,
        "anonymous": said.anonymous_sender,
        "prior": said.from_prior_issuer_kid,
    }


def forwarded(envelope: str, secrets: list[dict[str, str]]) -> dict[str, Any]:
    """A mediator's view of an envelope addressed to it."""
    world = _World(_known(secrets, "agreement"), secrets)
    opened = asyncio.run(unpack_forward(world.config, envelope, decrypt_by_all_keys=False))
    return {"next": opened.forward_msg.body.next, "message": opened.forwarded_msg}


# --- one layer --------------------------------------------------------------------------------------------------------


def _known(jwks: list[dict[str, str]], section: str) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for jwk in jwks:
        did = jwk["kid"].partition("#")[0]
        public = {name: member for name, member in jwk.items() if name != "d"}
        found.setdefault(did, {"did": did, section: []})[section].append(public)
    return list(found.values())


def _message(plain: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(unb64(plain))
    tree.pop("typ", None)
    return tree


def seal(plain: str, recipients: list[dict[str, str]], sender: dict[str, str] | None, enc: str) -> str:
    documents = _known([*recipients, *([sender] if sender else [])], "agreement")
    to, frm = recipients[0]["kid"].partition("#")[0], sender["kid"] if sender else None
    return pack(_message(plain), documents, [sender] if sender else [], to, frm, enc=enc)


def open(envelope: str, secret: dict[str, str], sender: dict[str, str] | None) -> str:
    documents = _known([secret, *([sender] if sender else [])], "agreement")
    said = read(envelope, documents, [secret])
    assert said["from"] == (sender and sender["kid"]), "it names another sender"
    return b64(json.dumps(said["message"]).encode())


def sign(plain: str, signer: dict[str, str], alg: str) -> str:
    return pack(_message(plain), _known([signer], "authentication"), [signer], signer=signer["kid"])


def verify(envelope: str, signer: dict[str, str], alg: str) -> str:
    said = read(envelope, _known([signer], "authentication"), [])
    assert said["signed_by"] == signer["kid"], "it names another signer"
    return b64(json.dumps(said["message"]).encode())
