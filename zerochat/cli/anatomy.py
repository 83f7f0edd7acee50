"""What can be seen of a message without any key: its layers, headers, recipients, algorithms and sizes.

It is made to show what is wrong, so it reads on where the strict readers stop, and then says what they would say.
"""

from base64 import urlsafe_b64decode
from contextlib import suppress
from typing import Any

from zerochat.cli.keyfile import FILE_BYTES_MAX
from zerochat.cli.output import table
from zerochat.crypto.encoding import strict_json
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.layers import MediaType, media_type_of
from zerochat.didcomm.message import parse
from zerochat.didcomm.v1 import parse_v1
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.terminal_text import printable_line

Seen = dict[str, Any]

_NAMES = {
    MediaType.PLAIN: "plaintext",
    MediaType.SIGNED: "signed (JWS)",
    MediaType.ENCRYPTED: "encrypted (JWE)",
    MediaType.ENCRYPTED_V1: "encrypted (RFC 0019)",
}
_SHOWN_APART = ("body", "attachments", "~attach")


def anatomy(data: bytes) -> Seen:
    """One layer as a JSON object; under `inside` the next one, where that can be read. Raises Malformed for what is
    not even the JSON of one."""
    tree = strict_json(data, FILE_BYTES_MAX)
    if isinstance(tree, dict) and "@type" in tree:
        return _plain(data, tree, "plaintext (DIDComm v1)", parse_v1)
    kind = media_type_of(data)
    assert isinstance(tree, dict)
    if kind is MediaType.PLAIN:
        return _plain(data, tree, _NAMES[kind], parse)
    seen: Seen = {"layer": _NAMES[kind], "media_type": kind.value, "bytes": len(data)}
    if kind is MediaType.SIGNED:
        return seen | _signed(data, tree)
    return seen | _encrypted(data, tree, "didcomm/v1" if kind is MediaType.ENCRYPTED_V1 else "didcomm/v2")


def _plain(data: bytes, tree: Seen, layer: str, reader: Any) -> Seen:
    headers = {name: value for name, value in tree.items() if name not in _SHOWN_APART}
    seen: Seen = {"layer": layer, "media_type": MediaType.PLAIN.value, "bytes": len(data), "headers": headers}
    if isinstance(tree.get("body"), dict):
        seen["body"] = sorted(tree["body"])
    if isinstance(tree.get("attachments"), list):
        seen["attachments"] = len(tree["attachments"])
    return seen | _verdict(lambda: reader(data))


def _signed(data: bytes, tree: Seen) -> Seen:
    flattened = "signatures" not in tree
    entries = [tree] if flattened else tree["signatures"]
    payload = _decoded(tree.get("payload"))
    seen: Seen = {
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


def _encrypted(data: bytes, tree: Seen, profile: str) -> Seen:
    header = _header(tree)
    inner = header.pop("recipients", []) if isinstance(header, dict) and profile == "didcomm/v1" else None
    entries = inner if inner is not None else tree.get("recipients", [tree])

    def unpack() -> None:
        with suppress(Unauthentic):  # it is well-formed, and none of its keys is ours, because we have none here
            PACKERS[profile].unpack(data, secret_of=lambda kid: None, public_of=_nobody)

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


def _nobody(kid: str) -> Any:
    raise Unauthentic()


def _verdict(read: Any) -> Seen:
    """Whether the strict reader takes it, and if not, why."""
    try:
        read()
    except RemoteError as error:
        return {"problem": str(error.fields.get("why", error))}
    return {"problem": None}


def _decoded(text: object) -> bytes | None:
    """Base64url as leniently as anybody reads it."""
    if not isinstance(text, str):
        return None
    try:
        return urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
    except ValueError:
        return None


def _size(text: object) -> int | None:
    decoded = _decoded(text)
    return None if decoded is None else len(decoded)


def _header(tree: Seen) -> object:
    """The protected header, decoded as far as that goes."""
    decoded = _decoded(tree.get("protected"))
    if decoded is None:
        return None
    try:
        return strict_json(decoded, FILE_BYTES_MAX)
    except Malformed:
        return decoded.decode(errors="replace")


# --- for people -----------------------------------------------------------------------------------------------------


def anatomy_lines(seen: Seen) -> list[str]:
    """The same as text: one table for each layer, the outermost first."""
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
    rows.append(("read by zerochat", "no: " + printable_line(seen["problem"]) if seen["problem"] else "yes"))
    lines = table(rows)
    if "inside" in seen:
        lines += ["", *anatomy_lines(seen["inside"])]
    return lines
