"""Secret keys and DID documents from files, for the debugging verbs; no profile is touched, and nothing is kept.

Secrets are a JWK set (RFC 7517, section 5), each key with the id that messages know it by: `"kid": "did:…#key-2"`. The
file must be for its owner's eyes alone. Documents are needed only for DIDs that do not carry their own.
"""

import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from zerochat.cli.exits import ExitCode
from zerochat.crypto.encoding import base58, strict_json
from zerochat.crypto.keys import PublicKey, SecretKey, jwk_secret, public_of
from zerochat.didcomm.did import Document, read_document, resolve, same_did, short_form
from zerochat.errors import LocalError, Malformed, RemoteError

FILE_BYTES_MAX = 1 << 20
"""A message of the greatest size in two envelopes; keys and documents are far smaller."""


class TooLarge(LocalError):
    """{path} has more than {limit} bytes, so it is no message that any agent would take."""


class OpenSecrets(LocalError):
    """Others on this machine may read the secret keys in {path}. Make them yours alone, with `chmod 600 {path}`."""


class BadKeyFile(LocalError):
    """{path} does not hold {what}: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class UnknownDid(LocalError):
    """There is no document for {did}: {why}. Name its long form with --did, or a file with its document with
    --document."""


def read_file(path: str) -> bytes:
    """A file, or standard input for `-`, unless it is too large to be what we want."""
    if path == "-":
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise TooLarge(path=path, limit=FILE_BYTES_MAX)
    return data


@dataclass(frozen=True, slots=True)
class World:
    """The DIDs that are known here."""

    known: dict[str, str]
    """Long forms by short ones."""
    documents: dict[str, Document]

    def resolve(self, did: str) -> Document:
        """The document of a DID. Raises Malformed where there is none."""
        return self.documents[did] if did in self.documents else resolve(did, self.known)

    def document(self, did: str) -> Document:
        """The same for a DID that a person named."""
        try:
            return self.resolve(did)
        except RemoteError as error:
            raise UnknownDid(did=did, why=str(error.fields.get("why", error))) from error


def world(dids: Sequence[str], files: Sequence[str]) -> World:
    """`dids` are looked at for long forms, each of `files` holds one DID document."""
    documents = {}
    for path in files:
        try:
            tree = strict_json(read_file(path), FILE_BYTES_MAX)
            did = tree.get("id") if isinstance(tree, dict) else None
            if not isinstance(did, str):
                raise Malformed(why="it has no id")
            documents[did] = read_document(did, tree)
        except RemoteError as error:
            raise BadKeyFile(path=path, what="a DID document", why=error.fields.get("why", error)) from error
    known = {}
    for did in dids:
        try:
            known[short_form(did)] = did
        except RemoteError as error:
            raise UnknownDid(did=did, why=error.fields.get("why", error)) from error
    return World(known, documents)


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secret keys by their ids."""

    by_kid: dict[str, SecretKey] = field(repr=False)

    @property
    def dids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kid.partition("#")[0] for kid in self.by_kid))

    def of(self, did: str) -> list[tuple[str, SecretKey]]:
        """The keys of one DID, of either of its forms."""
        return [(kid, key) for kid, key in self.by_kid.items() if same_did(kid.partition("#")[0], did)]

    def finder(self, world: World) -> Callable[[str], SecretKey | None]:
        """Gives the secret of a key id, however that is spelled: a DID has several spellings, and so have its keys."""
        verkeys = {base58(public_of(key).data): key for key in self.by_kid.values() if key.kind == "Ed25519"}
        publics = {public_of(key): key for key in self.by_kid.values()}

        def find(kid: str) -> SecretKey | None:
            if kid in self.by_kid or kid in verkeys:
                return self.by_kid.get(kid) or verkeys[kid]
            did, mark, _ = kid.partition("#")
            try:
                return publics.get(world.resolve(did).agreement_key(kid)) if mark and self.of(did) else None
            except RemoteError:
                return None

        return find


def read_secrets(path: str | None) -> Secrets:
    """The keys in a file that nobody else may read; none at all for None."""
    if path is None:
        return Secrets({})
    if Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise OpenSecrets(path=path)
    try:
        tree = strict_json(read_file(path), FILE_BYTES_MAX)
        jwks = tree.get("keys") if isinstance(tree, dict) else None
        if not isinstance(jwks, list) or not all(isinstance(jwk, dict) for jwk in jwks):
            raise Malformed(why='it is not an object with a list of keys, {"keys": […]}')
        kids = [jwk.get("kid") for jwk in jwks]
        if not all(isinstance(kid, str) and "#" in kid for kid in kids) or len(set(kids)) != len(kids):
            raise Malformed(why="each key needs an id of its own, as messages spell it: DID#KEY")
        return Secrets({jwk["kid"]: jwk_secret(jwk) for jwk in jwks})
    except RemoteError as error:
        raise BadKeyFile(path=path, what="a set of secret keys", why=error.fields.get("why", error)) from None


def agreement_pair(
    world: World, secrets: Secrets, sender: str, recipient: Document
) -> tuple[tuple[str, SecretKey], PublicKey] | None:
    """A key of ours and one of theirs that can agree, the recipient's preference first; None where no two can."""
    allowed = {method.key for method in world.document(sender).agreement}
    for method in recipient.agreement:
        for kid, key in secrets.of(sender):
            if key.kind == method.key.kind and public_of(key) in allowed:
                return (kid, key), method.key
    return None
