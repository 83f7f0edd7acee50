"""`zerochat didcomm pack`: signs and encrypts a plaintext."""

import json
import os
from typing import Any, ClassVar

from zerochat.cli.didcomm.key_files import (
    FILE_BYTES_MAX,
    NotDidcomm,
    Resolver,
    Secrets,
    agreement_pair,
    read_file,
    read_secrets,
    reason_of,
    resolver,
    write_private,
)
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.crypto.encoding import compact_json, strict_json
from zerochat.crypto.keys import SIGNING_KINDS, public_of
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.did import Document, same_did
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.layers import media_type_of
from zerochat.didcomm.message import parse
from zerochat.didcomm.packer import OwnKey, TheirKey
from zerochat.didcomm.v1 import dump_v1, parse_v1
from zerochat.errors import LocalError, RemoteError


class NoKey(LocalError):
    """No {what} for {did}: {why}."""


class CannotPack(LocalError):
    """Cannot pack the message: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def pack(options: Options, out: Output) -> ExitCode:
    secrets = read_secrets(options.secrets)
    named = [did.partition("#")[0] for did in (options.to, options.sender) if did is not None]
    known = resolver([*options.dids, *secrets.dids, *named], options.documents)
    _check_options(options)
    try:
        packed = (
            _pack_v1(options, secrets, known) if options.envelope == "didcomm/v1" else _pack(options, secrets, known)
        )
    except RemoteError as error:
        raise CannotPack(why=reason_of(error)) from error
    if options.output is not None:
        write_private(options.output, packed)
        narrate(f"{options.output}: {media_type_of(packed)}, {len(packed)} bytes")
    elif out.jsonl:
        out.data({"media_type": media_type_of(packed).value, "message": json.loads(packed)}, [])
    else:
        out.exactly(packed.decode())
    return ExitCode.OK


def _check_options(options: Options) -> None:
    why = None
    if options.to is None and not options.sign:
        why = "use --to DID to encrypt it, or --sign to sign it"
    elif options.sign and options.sender is None:
        why = "--sign requires --from DID"
    elif options.sender is None and not options.anon:
        why = "use --from DID to name the sender, or --anon"
    elif options.to is None and (options.anon or options.enc):
        why = "--anon and --enc require --to DID"
    elif options.envelope == "didcomm/v1" and (options.sign or options.enc):
        why = "didcomm/v1 supports neither --sign nor --enc"
    elif options.envelope == "didcomm/v1" and options.anon and options.sender:
        why = "didcomm/v1 cannot combine --from and --anon"
    elif options.enc and not (options.anon or options.sign):
        why = "--enc requires --anon; authcrypt always uses A256CBC-HS512"
    if why is not None:
        raise CannotPack(why=why)


def _plaintext(options: Options) -> dict[str, Any]:
    """The plaintext, with missing `from` and `to` headers filled in."""
    try:
        tree = strict_json(read_file(options.file), FILE_BYTES_MAX)
        data = compact_json(tree)
        message = parse_v1(data) if isinstance(tree, dict) and "@type" in tree else parse(data)
    except RemoteError as error:
        raise NotDidcomm(path=options.file, why=reason_of(error)) from None
    assert isinstance(tree, dict)
    sender = options.sender.partition("#")[0] if options.sender else None
    if message.from_ is not None and sender is not None and not same_did(message.from_, sender):
        raise CannotPack(why="the message's `from` differs from --from")
    if "@type" not in tree:
        if sender is not None:
            tree.setdefault("from", sender)
        if options.to is not None:
            tree.setdefault("to", [options.to.partition("#")[0]])
    return tree


def _pack(options: Options, secrets: Secrets, known: Resolver) -> bytes:
    """sign, auth, anon, anon(sign) or anon(auth)."""
    tree, packer = _plaintext(options), JwePacker()
    if "@type" in tree:
        raise CannotPack(why="a DIDComm v1 message requires --envelope didcomm/v1")
    data, recipient = compact_json(tree), None
    if options.sign:
        kid, key = _signing_key(options.sender or "", secrets, known)
        data = jws.sign(data, [(kid, key)])
        if options.to is None:
            return data
    assert options.to is not None
    did, _, fragment = options.to.partition("#")
    document = known.document(did)
    if options.sender is not None and not options.sign:
        pair = agreement_pair(
            known, secrets, options.sender, _with_one_key(document, options.to) if fragment else document
        )
        if pair is None:
            raise NoKey(what="secret key", did=options.sender, why=f"none is compatible with a key of {did}")
        (kid, own), theirs = pair
        names = {method.key: did + "#" + method.kid.partition("#")[2] for method in document.agreement}
        recipient = TheirKey(names[theirs], theirs)
        data = packer.authcrypt(data, sender=OwnKey(kid, own), recipient=recipient, random=os.urandom)
        if not options.anon:
            return data
    if recipient is None:
        recipient = packer.their_key(_with_one_key(document, options.to) if fragment else document, did)
    return packer.anoncrypt(data, recipient=recipient, random=os.urandom, enc=options.enc or "A256CBC-HS512")


def _with_one_key(document: Document, kid: str) -> Document:
    """The document reduced to one key-agreement key."""
    key = document.agreement_key(kid)
    methods = tuple(method for method in document.agreement if method.key == key)
    return Document(document.did, methods, document.authentication, document.services)


def _signing_key(sender: str, secrets: Secrets, known: Resolver) -> Any:
    allowed = {method.key for method in known.document(sender.partition("#")[0]).authentication}
    for kid, key in secrets.of(sender.partition("#")[0]):
        if key.kind in SIGNING_KINDS and public_of(key) in allowed and ("#" not in sender or kid == sender):
            return kid, key
    raise NoKey(what="secret key to sign with", did=sender, why="--secrets contains none of its document's keys")


def _pack_v1(options: Options, secrets: Secrets, known: Resolver) -> bytes:
    tree, packer = _plaintext(options), PACKERS["didcomm/v1"]
    data = compact_json(tree)
    plain = data if "@type" in tree else dump_v1(parse(data))
    recipient = packer.their_key(known.document(options.to or ""), options.to or "")
    if options.anon:
        return packer.anoncrypt(plain, recipient=recipient, random=os.urandom)
    own = {public_of(key): key for _, key in secrets.of(options.sender or "")}
    for method in known.document(options.sender or "").authentication:
        if method.key.kind == "Ed25519" and method.key in own:
            verkey = packer.their_key(known.document(options.sender or ""), "").kid
            sender = OwnKey(verkey, own[method.key])
            return packer.authcrypt(plain, sender=sender, recipient=recipient, random=os.urandom)
    raise NoKey(what="secret Ed25519 key", did=options.sender, why="didcomm/v1 identifies senders by it")
