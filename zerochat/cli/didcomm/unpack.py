"""`zerochat didcomm unpack`: opens a message layer by layer and reports its protection."""

import json
from typing import Any, ClassVar

from zerochat.cli.didcomm.inspect import anatomy
from zerochat.cli.didcomm.key_files import (
    NotDidcomm,
    Resolver,
    Secrets,
    read_file,
    read_secrets,
    reason_of,
    resolver,
    write_private,
)
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import table
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.layers import MediaType, Opened, media_type_of, open_layers
from zerochat.errors import LocalError, RemoteError
from zerochat.terminal_text import printable_line

LAYERS_MAX = 3
"""anon(auth(sign)), the deepest nesting in the specification."""


class NoMatchingKey(LocalError):
    """None of the secret keys matches a recipient of this message. Recipients: {kids}."""


class NoSecrets(LocalError):
    """The message is encrypted: give the recipient's secret keys with --secrets FILE."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class DoesNotOpen(LocalError):
    """Cannot open the {layer}: {why}."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


class Contradiction(LocalError):
    """The message is inconsistent and agents must reject it: {why}. `zerochat didcomm inspect` shows its layers."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


def unpack(options: Options, out: Output) -> ExitCode:
    data, secrets = read_file(options.file), read_secrets(options.secrets)
    known = resolver([*options.dids, *secrets.dids], options.documents)
    try:
        kind = media_type_of(data)
    except RemoteError as error:
        raise NotDidcomm(path=options.file, why=reason_of(error)) from None
    if kind in (MediaType.ENCRYPTED, MediaType.ENCRYPTED_V1) and options.secrets is None:
        raise NoSecrets
    plain = _peel(data, secrets, known)
    try:
        opened = open_layers(
            data, secret_of=secrets.finder(known), resolve=known.resolve, allow_plain=True, lenient=options.lenient
        )
    except RemoteError as error:
        raise Contradiction(why=reason_of(error)) from error
    if options.output is not None:
        write_private(options.output, plain)
    found = {"message": json.loads(plain), **_protection(opened)}
    shown = _protection(opened)
    if opened.sender is None and opened.signer is None:
        shown["sender"] = "anonymous"
    rows = table([(name.replace("_", " "), printable_line(_text(value))) for name, value in shown.items()])
    out.data(found, [*rows, "", *json.dumps(found["message"], ensure_ascii=False, indent=2).splitlines()])
    if opened.addressed is False:
        narrate("Warning: the message's `to` names another recipient.")
    return ExitCode.OK


def _peel(data: bytes, secrets: Secrets, known: Resolver) -> bytes:
    """The plaintext, byte for byte. Errors name the layer that cannot be opened."""
    find = secrets.finder(known)
    for _ in range(LAYERS_MAX + 1):
        try:
            kind = media_type_of(data) if b'"@type"' not in data else MediaType.PLAIN
        except RemoteError as error:
            raise DoesNotOpen(layer="next layer", why=reason_of(error)) from error
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
                raise NoMatchingKey(kids=", ".join(map(printable_line, kids))) from error
            raise DoesNotOpen(layer=f"layer {kind}", why=reason_of(error)) from error
    raise DoesNotOpen(layer="message", why=f"it has more than {LAYERS_MAX} layers")


def _recipients(data: bytes) -> list[str]:
    headers = [entry["header"] for entry in anatomy(data).get("recipients", [])]
    kids = [header.get("kid") for header in headers if isinstance(header, dict)]
    return [kid for kid in kids if isinstance(kid, str)]


def _protection(opened: Opened) -> dict[str, Any]:
    """The protection of the message, and what it proves."""
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
    # For an unauthenticated message, "not forgeable" would be misleading.
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
