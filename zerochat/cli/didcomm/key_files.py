"""Secret keys and DID documents from files.

Secrets are a JWK set (RFC 7517, section 5) in which the kid of each key is DID#KEY; the file must be readable by its
owner only. Documents are needed only for DIDs that do not contain their own.
"""

import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from zerochat.cli.exit_codes import ExitCode
from zerochat.crypto.encoding import base58, strict_json
from zerochat.crypto.keys import PublicKey, SecretKey, jwk_secret, public_of
from zerochat.didcomm.did import Document, read_document, resolve, same_did, short_form
from zerochat.errors import LocalError, Malformed, RemoteError

FILE_BYTES_MAX = 1 << 20
"""Maximum size of a message in two envelopes; keys and documents are smaller."""


class TooLarge(LocalError):
    """{path} is larger than {limit} bytes, the maximum of a message."""


class OpenSecrets(LocalError):
    """Other users can read the secret keys in {path}. Run `chmod 600 {path}`."""


class BadKeyFile(LocalError):
    """{path} does not contain {what}: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class UnknownDid(LocalError):
    """There is no DID document for {did}: {why}. Give its long form with --did, or its document with --document."""


class NotDidcomm(LocalError):
    """{path} is not a DIDComm message: {why}."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


def reason_of(error: BaseException) -> str:
    """The reason of the innermost RemoteError in the chain of causes."""
    while isinstance(error.__cause__, RemoteError):
        error = error.__cause__
    return str(error.fields.get("why", error)).rstrip(".") if isinstance(error, RemoteError) else str(error)


def read_file(path: str) -> bytes:
    """The content of a file, or of standard input for `-`. Raises TooLarge."""
    if path == "-":
        data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise TooLarge(path=path, limit=FILE_BYTES_MAX)
    return data


def write_private(path: str, data: bytes) -> None:
    """Write a file with mode 600, as it may contain secrets."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), 0o600)  # an existing file keeps its mode otherwise
        file.write(data)


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves DIDs from the command line and from document files."""

    known: dict[str, str]
    """Long forms by short forms."""
    documents: dict[str, Document]

    def resolve(self, did: str) -> Document:
        """The document of a DID. Raises Malformed."""
        return self.documents[did] if did in self.documents else resolve(did, self.known)

    def document(self, did: str) -> Document:
        """The document of a DID from the command line. Raises UnknownDid."""
        try:
            return self.resolve(did)
        except RemoteError as error:
            raise UnknownDid(did=did, why=str(error.fields.get("why", error))) from error


def resolver(dids: Sequence[str], files: Sequence[str]) -> Resolver:
    """`dids`: may contain long forms; `files`: one DID document each."""
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
    return Resolver(known, documents)


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secret keys by key id."""

    by_kid: dict[str, SecretKey] = field(repr=False)

    @property
    def dids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kid.partition("#")[0] for kid in self.by_kid))

    def of(self, did: str) -> list[tuple[str, SecretKey]]:
        """The keys of one DID, in its short or long form."""
        return [(kid, key) for kid, key in self.by_kid.items() if same_did(kid.partition("#")[0], did)]

    def finder(self, resolver: Resolver) -> Callable[[str], SecretKey | None]:
        """A function that finds the secret key of a key id in any spelling."""
        verkeys = {base58(public_of(key).data): key for key in self.by_kid.values() if key.kind == "Ed25519"}
        publics = {public_of(key): key for key in self.by_kid.values()}

        def find(kid: str) -> SecretKey | None:
            if kid in self.by_kid or kid in verkeys:
                return self.by_kid.get(kid) or verkeys[kid]
            did, mark, _ = kid.partition("#")
            try:
                return publics.get(resolver.resolve(did).agreement_key(kid)) if mark and self.of(did) else None
            except RemoteError:
                return None

        return find


def read_secrets(path: str | None) -> Secrets:
    """The keys of a private file; none for None."""
    if path is None:
        return Secrets({})
    if Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise OpenSecrets(path=path)
    try:
        tree = strict_json(read_file(path), FILE_BYTES_MAX)
        jwks = tree.get("keys") if isinstance(tree, dict) else None
        if not isinstance(jwks, list) or not all(isinstance(jwk, dict) for jwk in jwks):
            raise Malformed(why='it is not a JWK set, {"keys": […]}')
        kids = [jwk.get("kid") for jwk in jwks]
        if not all(isinstance(kid, str) and "#" in kid for kid in kids) or len(set(kids)) != len(kids):
            raise Malformed(why="each key needs a unique kid of the form DID#KEY")
        return Secrets({jwk["kid"]: jwk_secret(jwk) for jwk in jwks})
    except RemoteError as error:
        raise BadKeyFile(path=path, what="a set of secret keys", why=error.fields.get("why", error)) from None


def agreement_pair(
    resolver: Resolver, secrets: Secrets, sender: str, recipient: Document
) -> tuple[tuple[str, SecretKey], PublicKey] | None:
    """A compatible pair of sender and recipient keys, in the recipient's order of preference; None if there is none."""
    allowed = {method.key for method in resolver.document(sender).agreement}
    for method in recipient.agreement:
        for kid, key in secrets.of(sender):
            if key.kind == method.key.kind and public_of(key) in allowed:
                return (kid, key), method.key
    return None
