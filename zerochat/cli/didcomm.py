"""The verb for people who debug: `zerochat didcomm inspect|unpack|pack`, on files and without a profile."""

import json
import os
import stat
from typing import Any, ClassVar

from zerochat.cli.anatomy import anatomy, anatomy_lines
from zerochat.cli.exits import ExitCode
from zerochat.cli.keyfile import FILE_BYTES_MAX, Secrets, World, agreement_pair, read_file, read_secrets, world
from zerochat.cli.output import Output, narrate, table
from zerochat.cli.parser import Options
from zerochat.crypto.encoding import compact_json, strict_json
from zerochat.crypto.keys import SIGNING_KINDS, public_of
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.did import Document, same_did
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.layers import MediaType, Opened, media_type_of, open_layers
from zerochat.didcomm.message import parse
from zerochat.didcomm.packer import OwnKey, TheirKey
from zerochat.didcomm.v1 import dump_v1, parse_v1
from zerochat.errors import LocalError, RemoteError
from zerochat.terminal_text import printable_line

LAYERS_MAX = 3
"""anon(auth(sign)), which the specification gives as an example of what it forbids, and no more."""


class NotAMessage(LocalError):
    """{path} is no DIDComm message: {why}."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


class NotForThese(LocalError):
    """None of the secret keys belongs to a recipient of this message. It is for: {kids}."""


class NoSecrets(LocalError):
    """This message is encrypted. Name a file with the recipient's secret keys, with --secrets FILE."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class DoesNotOpen(LocalError):
    """The {layer} does not open: {why}."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


class Contradiction(LocalError):
    """The message opens, and no agent may believe it: {why}. `zerochat didcomm inspect` shows its layers."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


class NoKey(LocalError):
    """There is no {what} for {did}: {why}."""


class CannotPack(LocalError):
    """This cannot be packed: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def didcomm(options: Options, out: Output) -> ExitCode:
    return {"inspect": inspect, "unpack": unpack, "pack": pack}[options.action](options, out)


def inspect(options: Options, out: Output) -> ExitCode:
    try:
        seen = anatomy(read_file(options.file))
    except RemoteError as error:
        raise NotAMessage(path=options.file, why=_why(error)) from None
    out.data(seen, anatomy_lines(seen))
    return ExitCode.OK


def _why(error: BaseException) -> str:
    """The innermost reason; a RemoteError keeps the others as its causes, and this is where somebody wants them."""
    while isinstance(error.__cause__, RemoteError):
        error = error.__cause__
    return str(error.fields.get("why", error)).rstrip(".") if isinstance(error, RemoteError) else str(error)


# --- unpack ---------------------------------------------------------------------------------------------------------


def unpack(options: Options, out: Output) -> ExitCode:
    data, secrets = read_file(options.file), read_secrets(options.secrets)
    known = world([*options.dids, *secrets.dids], options.documents)
    try:
        kind = media_type_of(data)
    except RemoteError as error:
        raise NotAMessage(path=options.file, why=_why(error)) from None
    if kind in (MediaType.ENCRYPTED, MediaType.ENCRYPTED_V1) and options.secrets is None:
        raise NoSecrets
    plain = _peel(data, secrets, known)
    try:
        opened = open_layers(
            data, secret_of=secrets.finder(known), resolve=known.resolve, allow_plain=True, lenient=options.lenient
        )
    except RemoteError as error:
        raise Contradiction(why=_why(error)) from error
    if options.output is not None:
        _write(options.output, plain)
    found = {"message": json.loads(plain), **_protection(opened)}
    shown = _protection(opened)
    if opened.sender is None and opened.signer is None:
        shown["sender"] = "nobody"
    rows = table([(name.replace("_", " "), printable_line(_text(value))) for name, value in shown.items()])
    out.data(found, [*rows, "", *json.dumps(found["message"], ensure_ascii=False, indent=2).splitlines()])
    if opened.addressed is False:
        narrate("Warning: the message's `to` names somebody else.")
    return ExitCode.OK


def _peel(data: bytes, secrets: Secrets, known: World) -> bytes:
    """The plaintext, layer by layer, as it was written; with what is wrong said of the layer that is."""
    find = secrets.finder(known)
    for _ in range(LAYERS_MAX + 1):
        try:
            kind = media_type_of(data) if b'"@type"' not in data else MediaType.PLAIN
        except RemoteError as error:
            raise DoesNotOpen(layer="next layer", why=_why(error)) from error
        if kind is MediaType.PLAIN:
            return data
        try:
            if kind is MediaType.SIGNED:
                data = jws.read(data).payload
                continue
            packer = PACKERS["didcomm/v1" if kind is MediaType.ENCRYPTED_V1 else "didcomm/v2"]
            data = packer.unpack(
                data, secret_of=find, public_of=lambda kid: known.resolve(kid.partition("#")[0]).agreement_key(kid)
            ).plain
        except RemoteError as error:
            kids = _recipients(data)
            if kids and not any(find(kid) for kid in kids):
                raise NotForThese(kids=", ".join(map(printable_line, kids))) from error
            raise DoesNotOpen(layer=f"layer {kind}", why=_why(error)) from error
    raise DoesNotOpen(layer="message", why=f"it has more than {LAYERS_MAX} layers")


def _recipients(data: bytes) -> list[str]:
    headers = [entry["header"] for entry in anatomy(data).get("recipients", [])]
    kids = [header.get("kid") for header in headers if isinstance(header, dict)]
    return [kid for kid in kids if isinstance(kid, str)]


def _protection(opened: Opened) -> dict[str, Any]:
    """How the message was protected, and what that proves."""
    found: dict[str, Any] = {
        "layers": [
            {"kind": layer.kind, "algorithm": layer.algorithm, "by": layer.sender_kid, "for": layer.recipient_kid}
            for layer in opened.layers
        ],
        "profile": opened.profile,
        "sender": opened.sender,
        "signer": opened.signer,
        "addressed": opened.addressed,
    }
    # Of what anybody could have made, it would say too much that it cannot be forged.
    anybody = opened.sender is None and opened.signer is None and not opened.forgeable
    return found if anybody else found | {"forgeable": opened.forgeable}


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return " in ".join(f"{layer['kind']} {layer['algorithm']}" for layer in reversed(value)) or "none"
    return str(value)


# --- pack -----------------------------------------------------------------------------------------------------------


def pack(options: Options, out: Output) -> ExitCode:
    secrets = read_secrets(options.secrets)
    named = [did.partition("#")[0] for did in (options.to, options.sender) if did is not None]
    known = world([*options.dids, *secrets.dids, *named], options.documents)
    _check_wishes(options)
    try:
        packed = (
            _pack_v1(options, secrets, known) if options.envelope == "didcomm/v1" else _pack(options, secrets, known)
        )
    except RemoteError as error:
        raise CannotPack(why=_why(error)) from error
    if options.output is not None:
        _write(options.output, packed)
        narrate(f"{options.output}: {media_type_of(packed)}, {len(packed)} bytes")
    elif out.jsonl:
        out.data({"media_type": media_type_of(packed).value, "message": json.loads(packed)}, [])
    else:
        out.exactly(packed.decode())
    return ExitCode.OK


def _check_wishes(options: Options) -> None:
    why = None
    if options.to is None and not options.sign:
        why = "say for whom to encrypt it, --to DID, or that it shall be signed, --sign"
    elif options.sign and options.sender is None:
        why = "say who signs it: --from DID"
    elif options.sender is None and not options.anon:
        why = "say who it is from, --from DID, or that nobody shall know, --anon"
    elif options.to is None and (options.anon or options.enc):
        why = "only an envelope can be anonymous or have an encryption: --to DID"
    elif options.envelope == "didcomm/v1" and (options.sign or options.enc):
        why = "envelopes of version 1 have one encryption and no signatures"
    elif options.envelope == "didcomm/v1" and options.anon and options.sender:
        why = "an envelope of version 1 is from somebody or anonymous, not both"
    elif options.enc and not (options.anon or options.sign):
        why = "--enc is for anonymous envelopes; authcrypt has A256CBC-HS512 alone"
    if why is not None:
        raise CannotPack(why=why)


def _plaintext(options: Options) -> dict[str, Any]:
    """The message, completed with `from` and `to` where it has none. All else stays as it is, known here or not."""
    try:
        tree = strict_json(read_file(options.file), FILE_BYTES_MAX)
        data = compact_json(tree)
        message = parse_v1(data) if isinstance(tree, dict) and "@type" in tree else parse(data)
    except RemoteError as error:
        raise NotAMessage(path=options.file, why=_why(error)) from None
    assert isinstance(tree, dict)
    sender = options.sender.partition("#")[0] if options.sender else None
    if message.from_ is not None and sender is not None and not same_did(message.from_, sender):
        raise CannotPack(why="the message is `from` somebody else than --from says")
    if "@type" not in tree:
        if sender is not None:
            tree.setdefault("from", sender)
        if options.to is not None:
            tree.setdefault("to", [options.to.partition("#")[0]])
    return tree


def _pack(options: Options, secrets: Secrets, known: World) -> bytes:
    """sign, auth, anon, anon(sign) or anon(auth)."""
    tree, packer = _plaintext(options), JwePacker()
    if "@type" in tree:
        raise CannotPack(why="a message of version 1 goes into an envelope of version 1: --envelope didcomm/v1")
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
        pair = agreement_pair(known, secrets, options.sender, _only(document, options.to) if fragment else document)
        if pair is None:
            raise NoKey(what="secret key", did=options.sender, why=f"none can agree with a key of {did}")
        (kid, own), theirs = pair
        names = {method.key: did + "#" + method.kid.partition("#")[2] for method in document.agreement}
        recipient = TheirKey(names[theirs], theirs)
        data = packer.authcrypt(data, sender=OwnKey(kid, own), recipient=recipient, random=os.urandom)
        if not options.anon:
            return data
    if recipient is None:
        recipient = packer.their_key(_only(document, options.to) if fragment else document, did)
    return packer.anoncrypt(data, recipient=recipient, random=os.urandom, enc=options.enc or "A256CBC-HS512")


def _only(document: Document, kid: str) -> Document:
    """The document with one key to encrypt to."""
    key = document.agreement_key(kid)
    methods = tuple(method for method in document.agreement if method.key == key)
    return Document(document.did, methods, document.authentication, document.services)


def _signing_key(sender: str, secrets: Secrets, known: World) -> Any:
    allowed = {method.key for method in known.document(sender.partition("#")[0]).authentication}
    for kid, key in secrets.of(sender.partition("#")[0]):
        if key.kind in SIGNING_KINDS and public_of(key) in allowed and ("#" not in sender or kid == sender):
            return kid, key
    raise NoKey(what="secret key to sign with", did=sender, why="--secrets FILE has none that its document names")


def _pack_v1(options: Options, secrets: Secrets, known: World) -> bytes:
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
    raise NoKey(what="secret Ed25519 key", did=options.sender, why="version 1 names its senders by it")


def _write(path: str, data: bytes) -> None:
    """For the owner's eyes alone: it may be what was secret."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), 0o600)  # a file that was there has kept its own
        file.write(data)
