"""Multi-recipient frames: one content encrypted once, with an anonymous key section for each recipient.

    version (1) | nonce (24) | one section of 48 bytes for each recipient, in random order | the body

The body is encrypted under a fresh key; a section is that key, encrypted under a secret that its recipient and the
author share, and bound to the body. A recipient tries the sections until one opens, and drops the frame if none does
(the thesis' "fail and forget": no recipient and no key id is on the wire). A try takes a microsecond or two.

The frame is authentic: only the two parties know the section's key, and the section covers this body alone, so no other
recipient can replace the content (the reason why ECDH-1PU covers the tag). It is deniable like an authcrypt envelope.
The shared keys come from the two DIDs of a relationship, and change with every rotation.
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from zerochat.crypto.content_encryption import xc20p_open, xc20p_seal
from zerochat.crypto.primitives import hkdf_sha256, sha256, x25519_static
from zerochat.didcomm.did import Identity, resolve
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed, Unauthentic
from zerochat.group.inputs import StepContext
from zerochat.group.links.relationship import Relationship
from zerochat.group.wire.padding import CONTENT_BYTES_MAX, decode_payload, encode_payload
from zerochat.limits import MEMBERS_MAX

VERSION = b"\x01"
NONCE_BYTES, KEY_BYTES, TAG_BYTES = 24, 32, 16
SECTION_BYTES = KEY_BYTES + TAG_BYTES
SECTIONS_MAX = min(2 * MEMBERS_MAX, 255)
"""Recipients of one frame; the count is one byte. Twice the members: former members may still have to acknowledge."""
_HEADER = len(VERSION) + NONCE_BYTES + 1


def is_frame(envelope: bytes) -> bool:
    """Whether these bytes are a frame, not a DIDComm envelope, which is JSON."""
    return envelope[:1] == VERSION


@lru_cache(maxsize=8192)
def _section_key(secret: bytes, public: bytes, group: str, author: str, reader: str) -> bytes:
    shared = x25519_static(secret, public)
    return hkdf_sha256(shared, f"zerochat/frame/1\n{group}\n{author}\n{reader}".encode())


@lru_cache(maxsize=8192)
def _agreement_key(did: str) -> bytes:
    return next(method.key.data for method in resolve(did).agreement if method.key.kind == "X25519")


def seal_frame(plain: bytes, group: str, me: str, to: Sequence[Relationship], context: StepContext) -> bytes:
    """The frame with this content for these recipients: at most `SECTIONS_MAX`, and `CONTENT_BYTES_MAX` bytes."""
    assert len(to) <= SECTIONS_MAX and len(plain) <= CONTENT_BYTES_MAX
    content = encode_payload(plain)
    nonce, key = context.random(NONCE_BYTES), context.random(KEY_BYTES)
    head = VERSION + nonce + bytes([len(to)])
    body = b"".join(xc20p_seal(key, nonce, content, head))
    bound = head + sha256(body)
    sections = [b"".join(xc20p_seal(_key_to(group, me, relationship), nonce, key, bound)) for relationship in to]
    # The order must not identify recipients across frames.
    sections.sort()
    return head + b"".join(sections) + body


def _key_to(group: str, me: str, relationship: Relationship) -> bytes:
    return _section_key(
        relationship.mine.agreement_secret, _agreement_key(relationship.theirs), group, me, relationship.member
    )


def open_frame(frame: bytes, group: str, me: str, sender: Relationship) -> tuple[bytes, Relationship]:
    """The content of a frame from this member if a section is for us, and the relationship after it.

    Raises Malformed or Unauthentic.
    """
    if not sender.established:
        raise Unauthentic()
    count = frame[_HEADER - 1] if len(frame) >= _HEADER else 0
    start = _HEADER + count * SECTION_BYTES
    if not is_frame(frame) or not 0 < count <= SECTIONS_MAX or not start + TAG_BYTES < len(frame) <= ENVELOPE_BYTES_MAX:
        raise Malformed(why="a malformed frame")
    head, body = frame[:_HEADER], frame[start:]
    nonce, bound = frame[len(VERSION) : _HEADER - 1], head + sha256(body)
    for own_identity in (sender.mine, sender.rotation.old) if sender.rotation else (sender.mine,):
        key = _trial(frame, start, nonce, bound, _key_from(group, me, sender, own_identity))
        if key is not None:
            content = decode_payload(xc20p_open(key, nonce, body[:-TAG_BYTES], body[-TAG_BYTES:], head))
            if own_identity is sender.mine and not (sender.acknowledged and sender.rotation is None):
                # It was addressed to our present DID, so the sender has that.
                sender = replace(sender, acknowledged=True, rotation=None)
            return content, sender
    raise Unauthentic()


def _key_from(group: str, me: str, sender: Relationship, own_identity: Identity) -> bytes:
    return _section_key(own_identity.agreement_secret, _agreement_key(sender.theirs), group, sender.member, me)


def _trial(frame: bytes, start: int, nonce: bytes, bound: bytes, key: bytes) -> bytes | None:
    """The body's key, from the first section that opens under this one."""
    for at in range(_HEADER, start, SECTION_BYTES):
        try:
            return xc20p_open(key, nonce, frame[at : at + KEY_BYTES], frame[at + KEY_BYTES : at + SECTION_BYTES], bound)
        except Unauthentic:
            continue
    return None
