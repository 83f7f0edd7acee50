"""Parses DIDComm v2.1 encrypted messages before any key is used.

JSON Web Encryption in the General form, or the Flattened one with a single recipient (DIDComm v2.1, "DIDComm Encrypted
Messages"). Ambiguous input is refused.

Fast path: consecutive envelopes between the same two keys differ only in the ephemeral key, the wrapped key and the
content. The layout of an opened envelope is cached as a template (`cache_template`); the next one with the same header
is sliced and compared instead of parsed. Any deviation falls back to the general parser, so the result is the same.
"""

from typing import NamedTuple

from zerochat.crypto.content_encryption import CONTENTS, Content
from zerochat.crypto.encoding import b64url_ascii, b64url_bare, b64url_bytes, strict_json
from zerochat.crypto.keys import AGREEMENT_KINDS, PublicKey, jwk_public
from zerochat.crypto.primitives import other_info, sha256
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed

RECIPIENTS_MAX = 64
"""Recipients of an envelope: devices under one DID. Each costs parsing."""
HEADER_BYTES_MAX = 32 * 1024
"""The decoded protected header; it contains the sender's key id twice."""

AUTHCRYPT, ANONCRYPT = "ECDH-1PU+A256KW", "ECDH-ES+A256KW"
TYP = "application/didcomm-encrypted+json"
_TYP_READ = (None, TYP, "didcomm-encrypted+json", "application/didcomm+encrypted")
"""The prefix is optional (RFC 7515, section 4.1.9); the last one is written by a widespread library."""


class Recipient(NamedTuple):
    kid: str
    wrapped: bytes
    """The content encryption key, wrapped by the key-encryption key."""
    ephemeral: PublicKey


class Envelope(NamedTuple):
    """A well-formed envelope, not authenticated."""

    content: Content
    sender_kid: str | None
    """The claimed sender; None for anoncrypt."""
    info: bytes
    """The OtherInfo of its key derivation."""
    recipients: tuple[Recipient, ...]
    iv: bytes
    ciphertext: bytes
    tag: bytes
    aad: bytes
    from_template: bool = False
    """Whether it was parsed with a template."""


def read(envelope: bytes) -> Envelope:
    """Raises Malformed."""
    return _read_by_template(envelope) or _read_general(envelope)


def apv_of(kids: list[str]) -> bytes:
    """Hash of the recipients' key ids (DIDComm v2.1, "ECDH-1PU key wrapping and common protected headers")."""
    return sha256(".".join(sorted(kids)).encode())


# --- in general -----------------------------------------------------------------------------------------------------


def _read_general(envelope: bytes) -> Envelope:
    tree = _object(strict_json(envelope, ENVELOPE_BYTES_MAX), "envelope")
    if "unprotected" in tree:
        raise Malformed(why="envelope: headers that nothing protects")
    protected = _text(tree, "protected")
    header = _object(strict_json(b64url_bytes(protected), HEADER_BYTES_MAX), "protected header")
    if header.get("typ") not in _TYP_READ or "crit" in header or "zip" in header:
        raise Malformed(why="envelope: a header that is not supported")
    algorithm = _text(header, "alg")
    content = CONTENTS.get(_text(header, "enc"))
    if content is None or not (algorithm == ANONCRYPT or (algorithm == AUTHCRYPT and content.commits)):
        raise Malformed(why="envelope: an encryption that is not supported")
    sender_kid, apu = _sender(header, algorithm)
    recipients = _recipients(tree, content, _ephemeral(header))
    apv = b64url_bytes(_text(header, "apv"))
    if apv != apv_of([recipient.kid for recipient in recipients]):
        raise Malformed(why="envelope: apv does not name the recipients")
    iv, tag = b64url_bytes(_text(tree, "iv")), b64url_bytes(_text(tree, "tag"))
    if len(iv) != content.iv or len(tag) != content.tag:
        raise Malformed(why="envelope: an IV or a tag of the wrong length")
    aad = protected.encode()
    if "aad" in tree:
        extra = _text(tree, "aad")
        b64url_bytes(extra)
        aad += b"." + extra.encode()
    ciphertext = b64url_bytes(_text(tree, "ciphertext"))
    return Envelope(content, sender_kid, other_info(algorithm, apu, apv), recipients, iv, ciphertext, tag, aad)


def _sender(header: dict[str, object], algorithm: str) -> tuple[str | None, bytes]:
    """The sender's key id and PartyUInfo. Without skid, apu alone names the sender."""
    if algorithm == ANONCRYPT:
        if "skid" in header:
            raise Malformed(why="envelope: an anonymous one that names its sender")
        return None, b64url_bytes(_text(header, "apu")) if "apu" in header else b""
    apu = b64url_bytes(_text(header, "apu"))
    try:
        named = apu.decode()
    except UnicodeDecodeError:
        raise Malformed(why="envelope: apu is not a key id") from None
    if "skid" in header and _text(header, "skid") != named:
        raise Malformed(why="envelope: skid and apu name two senders")
    return named, apu


def _recipients(tree: dict[str, object], content: Content, common: PublicKey | None) -> tuple[Recipient, ...]:
    """The recipients of the general or flattened form; all are keys of one DID.

    `common`: the ephemeral key of the protected header; None: every recipient needs its own.
    """
    listed = tree.get("recipients")
    if listed is None:
        listed = [{name: tree[name] for name in ("header", "encrypted_key") if name in tree}]
    elif "header" in tree or "encrypted_key" in tree:
        raise Malformed(why="envelope: general and flattened at once")
    if not isinstance(listed, list) or not 1 <= len(listed) <= RECIPIENTS_MAX:
        raise Malformed(why="envelope: no recipients, or too many")
    recipients = tuple(_recipient(_object(entry, "recipient"), content, common) for entry in listed)
    kids = {recipient.kid for recipient in recipients}
    if len(kids) != len(recipients) or len({kid.partition("#")[0] for kid in kids}) != 1:
        raise Malformed(why="envelope: a recipient twice, or recipients of several DIDs")
    return recipients


def _recipient(entry: dict[str, object], content: Content, common: PublicKey | None) -> Recipient:
    header = _object(entry.get("header"), "recipient's header")
    if not header.keys() <= {"kid", "epk"}:
        raise Malformed(why="envelope: a recipient with headers of its own")
    wrapped = b64url_bytes(_text(entry, "encrypted_key"))
    if len(wrapped) != content.key + 8:
        raise Malformed(why="envelope: a wrapped key of the wrong length")
    own = _ephemeral(header)
    ephemeral = own if common is None else common
    if ephemeral is None or (own is not None and common is not None):
        raise Malformed(why="envelope: not exactly one ephemeral key")
    return Recipient(_text(header, "kid"), wrapped, ephemeral)


def _ephemeral(header: dict[str, object]) -> PublicKey | None:
    if "epk" not in header:
        return None
    public = jwk_public(_object(header["epk"], "ephemeral key"), "enc")
    if public.kind not in AGREEMENT_KINDS:
        raise Malformed(why="envelope: an ephemeral key of a type that cannot agree")
    return public


def _object(value: object, what: str) -> dict[str, object]:
    """The non-null members of an object: common libraries write null for absent."""
    if not isinstance(value, dict):
        raise Malformed(why=f"envelope: the {what} is not an object")
    return {name: member for name, member in value.items() if member is not None}


def _text(tree: dict[str, object], name: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str):
        raise Malformed(why=f"envelope: no {name}")
    return value


# --- by likeness ----------------------------------------------------------------------------------------------------

_START, _X_CHARS, _CLOSE = b'{"protected":"', 43, b'"}}'
_TO_RECIPIENT, _TO_WRAPPED = b'","recipients":[{"header":{"kid":"', b'"},"encrypted_key":"'
_TO_IV, _TO_CIPHERTEXT, _TO_TAG, _END = b'"}],"iv":"', b'","ciphertext":"', b'","tag":"', b'"}'
_X_AND_CLOSE = _X_CHARS + len(_CLOSE)

TEMPLATES_MAX = 1024
TEMPLATE_CHARS_MAX = 6 * 1024
"""Enough for two DIDs in their long form. Entries may come from any peer; together they take at most 12 MB."""


class _Template(NamedTuple):
    """The common layout of envelopes that differ only in the X25519 ephemeral key and the content."""

    before_x: bytes
    """JSON of the protected header before the ephemeral key's text, after the last whole base64 group."""
    to_wrapped: bytes
    """The envelope between the protected header and the wrapped key."""
    kid: str
    content: Content
    sender_kid: str | None
    info: bytes
    wrapped_chars: int
    iv_chars: int
    tag_chars: int


_TEMPLATES: dict[bytes, _Template] = {}
"""By the base64 of the protected header before the ephemeral key."""


def _constant(protected: bytes) -> bytes:
    """The base64 groups before the ephemeral key's text, which is last: `"x":"…"}}`."""
    return protected[: (len(protected) * 3 // 4 - _X_AND_CLOSE) // 3 * 4]


def _read_by_template(envelope: bytes) -> Envelope | None:
    if len(envelope) > ENVELOPE_BYTES_MAX:
        return None
    end = envelope.find(b'"', len(_START))
    protected = envelope[len(_START) : end]
    constant = _constant(protected)
    like = _TEMPLATES.get(constant)
    if like is None or not envelope.startswith(_START):
        return None
    wrapped_at = end + len(like.to_wrapped)
    wrapped_end = wrapped_at + like.wrapped_chars
    iv_at = wrapped_end + len(_TO_IV)
    iv_end = iv_at + like.iv_chars
    ciphertext_at = iv_end + len(_TO_CIPHERTEXT)
    tag_end = len(envelope) - len(_END)
    tag_at = tag_end - like.tag_chars
    ciphertext_end = tag_at - len(_TO_TAG)
    if (
        ciphertext_end < ciphertext_at
        or envelope[end:wrapped_at] != like.to_wrapped
        or envelope[wrapped_end:iv_at] != _TO_IV
        or envelope[iv_end:ciphertext_at] != _TO_CIPHERTEXT
        or envelope[ciphertext_end:tag_at] != _TO_TAG
        or envelope[tag_end:] != _END
    ):
        return None
    try:
        tail = b64url_bare(protected[len(constant) :])
        ephemeral = b64url_bare(tail[-_X_AND_CLOSE : -len(_CLOSE)])
        if tail[:-_X_AND_CLOSE] != like.before_x or not tail.endswith(_CLOSE) or len(ephemeral) != 32:
            return None
        wrapped = b64url_bare(envelope[wrapped_at:wrapped_end])
        iv, tag = b64url_bare(envelope[iv_at:iv_end]), b64url_bare(envelope[tag_at:tag_end])
        ciphertext = b64url_bare(envelope[ciphertext_at:ciphertext_end])
    except Malformed:
        return None
    recipient = Recipient(like.kid, wrapped, PublicKey("X25519", ephemeral))
    return Envelope(like.content, like.sender_kid, like.info, (recipient,), iv, ciphertext, tag, protected, True)


def cache_template(envelope: bytes, opened: Envelope) -> None:
    """Cache the layout of an opened envelope, if it has the usual shape.

    Usual: one recipient with a plain key id, and a protected header that ends with the X25519 ephemeral key's x. Then
    replacing x by another of the same length is the only possible difference for a parser.
    """
    if opened.from_template or len(opened.recipients) != 1:
        return
    [recipient] = opened.recipients
    end = envelope.find(b'"', len(_START))
    protected = envelope[len(_START) : end]
    to_wrapped = _TO_RECIPIENT + recipient.kid.encode() + _TO_WRAPPED
    if (
        recipient.ephemeral.kind != "X25519"
        or protected != opened.aad
        or protected.endswith(b"=")
        or len(protected) + len(to_wrapped) > TEMPLATE_CHARS_MAX
        or not envelope.startswith(_START)
        or not envelope.startswith(to_wrapped, end)
        or not _ends_with_x(b64url_bare(protected), recipient.ephemeral)
    ):
        return
    constant, content = _constant(protected), opened.content
    if len(_TEMPLATES) >= TEMPLATES_MAX:
        _TEMPLATES.clear()
    _TEMPLATES[constant] = _Template(
        b64url_bare(protected[len(constant) :])[:-_X_AND_CLOSE],
        to_wrapped,
        recipient.kid,
        content,
        opened.sender_kid,
        opened.info,
        *(_chars(size) for size in (content.key + 8, content.iv, content.tag)),
    )


def _ends_with_x(header: bytes, ephemeral: PublicKey) -> bool:
    """Whether a parsed header ends with the ephemeral key's x, unescaped."""
    if not header.endswith(b'"' + b64url_ascii(ephemeral.data) + _CLOSE):
        return False
    tree = strict_json(header, HEADER_BYTES_MAX)
    return isinstance(tree, dict) and list(tree)[-1] == "epk" and list(tree["epk"])[-1] == "x"


def _chars(size: int) -> int:
    """Length of unpadded base64 for `size` bytes."""
    return (size * 4 + 2) // 3
