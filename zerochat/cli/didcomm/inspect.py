"""Anatomy of a DIDComm message without keys: layers, headers, recipients, algorithms and sizes.

It continues where the strict readers stop, in order to show errors, and adds their verdict.
"""

from base64 import urlsafe_b64decode
from contextlib import suppress
from typing import Any

from zerochat.cli.didcomm.key_files import FILE_BYTES_MAX, NotDidcomm, read_file, reason_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import table
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output
from zerochat.crypto.encoding import strict_json
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.layers import MediaType, media_type_of
from zerochat.didcomm.message import parse
from zerochat.didcomm.v1 import parse_v1
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.terminal_text import printable_line

Anatomy = dict[str, Any]
_NAMES = {
    MediaType.PLAIN: "plaintext",
    MediaType.SIGNED: "signed (JWS)",
    MediaType.ENCRYPTED: "encrypted (JWE)",
    MediaType.ENCRYPTED_V1: "encrypted (RFC 0019)",
}
_SHOWN_APART = ("body", "attachments", "~attach")


def anatomy(data: bytes) -> Anatomy:
    """One layer as a JSON object, with the next one under `inside` if it is readable. Raises Malformed for invalid
    JSON."""
    tree = strict_json(data, FILE_BYTES_MAX)
    if isinstance(tree, dict) and "@type" in tree:
        return _plain(data, tree, "plaintext (DIDComm v1)", parse_v1)
    kind = media_type_of(data)
    assert isinstance(tree, dict)
    if kind is MediaType.PLAIN:
        return _plain(data, tree, _NAMES[kind], parse)
    seen: Anatomy = {"layer": _NAMES[kind], "media_type": kind.value, "bytes": len(data)}
    if kind is MediaType.SIGNED:
        return seen | _signed(data, tree)
    return seen | _encrypted(data, tree, "didcomm/v1" if kind is MediaType.ENCRYPTED_V1 else "didcomm/v2")


def _plain(data: bytes, tree: Anatomy, layer: str, reader: Any) -> Anatomy:
    headers = {name: value for name, value in tree.items() if name not in _SHOWN_APART}
    seen: Anatomy = {"layer": layer, "media_type": MediaType.PLAIN.value, "bytes": len(data), "headers": headers}
    if isinstance(tree.get("body"), dict):
        seen["body"] = sorted(tree["body"])
    if isinstance(tree.get("attachments"), list):
        seen["attachments"] = len(tree["attachments"])
    return seen | _verdict(lambda: reader(data))


def _signed(data: bytes, tree: Anatomy) -> Anatomy:
    flattened = "signatures" not in tree
    entries = [tree] if flattened else tree["signatures"]
    payload = _decoded(tree.get("payload"))
    seen: Anatomy = {
        "form": "flattened" if flattened else "general",
        "signatures": [
            {"protected": _header(entry), "header": entry.get("header"), "bytes": _size(entry.get("signature"))}
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict)
        ],
        "payload_bytes": _size(tree.get("payload")),
    } | _verdict(lambda: jws.read(data))
    try:
        seen["inside"] = anatomy(payload or b"")
    except Malformed as error:
        seen["inside"] = {"layer": "unknown", "bytes": len(payload or b""), "problem": str(error)}
    return seen


def _encrypted(data: bytes, tree: Anatomy, profile: str) -> Anatomy:
    header = _header(tree)
    inner = header.pop("recipients", []) if isinstance(header, dict) and profile == "didcomm/v1" else None
    entries = inner if inner is not None else tree.get("recipients", [tree])

    def unpack() -> None:
        with suppress(Unauthentic):  # well-formed, but there are no keys to open it
            PACKERS[profile].unpack(data, secret_of=lambda kid: None, public_of=_no_key)

    return {
        "profile": profile,
        "protected": header,
        "unprotected": tree.get("unprotected"),
        "recipients": [
            {"header": entry.get("header"), "encrypted_key_bytes": _size(entry.get("encrypted_key"))}
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict)
        ],
        "iv_bytes": _size(tree.get("iv")),
        "ciphertext_bytes": _size(tree.get("ciphertext")),
        "tag_bytes": _size(tree.get("tag")),
    } | _verdict(unpack)


def _no_key(kid: str) -> Any:
    raise Unauthentic()


def _verdict(read: Any) -> Anatomy:
    """The verdict of the strict reader: the problem, or None."""
    try:
        read()
    except RemoteError as error:
        return {"problem": str(error.fields.get("why", error))}
    return {"problem": None}


def _decoded(text: object) -> bytes | None:
    """Base64url, decoded leniently."""
    if not isinstance(text, str):
        return None
    try:
        return urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
    except ValueError:
        return None


def _size(text: object) -> int | None:
    decoded = _decoded(text)
    return None if decoded is None else len(decoded)


def _header(tree: Anatomy) -> object:
    """The protected header, decoded as far as possible."""
    decoded = _decoded(tree.get("protected"))
    if decoded is None:
        return None
    try:
        return strict_json(decoded, FILE_BYTES_MAX)
    except Malformed:
        return decoded.decode(errors="replace")


# --- text output ------------------------------------------------------------------------------------------------------


def anatomy_lines(seen: Anatomy) -> list[str]:
    """The anatomy as text: one table per layer, the outermost first."""
    rows: list[tuple[str, str]] = []

    def add(name: str, value: object) -> None:
        if isinstance(value, dict):
            for key, member in value.items():
                add(f"{name} {key}" if name else key, member)
        elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            for number, entry in enumerate(value, start=1):
                add(f"{name} {number}", entry)
        elif isinstance(value, list):
            rows.append((printable_line(name), ", ".join(printable_line(str(entry)) for entry in value) or "-"))
        elif value is not None:
            rows.append((printable_line(name), printable_line(str(value))))

    for name, value in seen.items():
        if name not in ("inside", "problem"):
            plural = {"signatures": "signature", "recipients": "recipient", "headers": ""}
            add(plural.get(name, name.replace("_", " ")), value)
    rows.append(("accepted by zerochat", "no: " + printable_line(seen["problem"]) if seen["problem"] else "yes"))
    lines = table(rows)
    if "inside" in seen:
        lines += ["", *anatomy_lines(seen["inside"])]
    return lines


def inspect(options: Options, out: Output) -> ExitCode:
    try:
        seen = anatomy(read_file(options.file))
    except RemoteError as error:
        raise NotDidcomm(path=options.file, why=reason_of(error)) from None
    out.data(seen, anatomy_lines(seen))
    return ExitCode.OK
