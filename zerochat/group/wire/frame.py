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

from zerochat.crypto.content_encryption import xc20p_open, xc20p_seal
from zerochat.crypto.primitives import sha256
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed, Unauthentic
from zerochat.group.inputs import StepContext
from zerochat.group.links.relationship import Relationship
from zerochat.group.wire.padding import CONTENT_BYTES_MAX, decode_payload, encode_payload
from zerochat.group.wire.pair_keys import confirmed, key_to, keys_from
from zerochat.limits import MEMBERS_MAX

VERSION = b"\x01"
NONCE_BYTES, KEY_BYTES, TAG_BYTES = 24, 32, 16
SECTION_BYTES = KEY_BYTES + TAG_BYTES
SECTIONS_MAX = min(2 * MEMBERS_MAX, 255)
"""Recipients of one frame; the count is one byte. Twice the members: former members may still have to acknowledge."""
PURPOSE = "frame/1"
_HEADER = len(VERSION) + NONCE_BYTES + 1


def is_frame(envelope: bytes) -> bool:
    """Whether these bytes are a frame, not a DIDComm envelope, which is JSON."""
    return envelope[:1] == VERSION


def seal_frame(plain: bytes, group: str, me: str, to: Sequence[Relationship], context: StepContext) -> bytes:
    """The frame with this content for these recipients: at most `SECTIONS_MAX`, and `CONTENT_BYTES_MAX` bytes."""
    assert len(to) <= SECTIONS_MAX and len(plain) <= CONTENT_BYTES_MAX
    content = encode_payload(plain)
    nonce, key = context.random(NONCE_BYTES), context.random(KEY_BYTES)
    head = VERSION + nonce + bytes([len(to)])
    body = b"".join(xc20p_seal(key, nonce, content, head))
    bound = head + sha256(body)
    sections = [
        b"".join(xc20p_seal(key_to(PURPOSE, group, me, relationship), nonce, key, bound)) for relationship in to
    ]
    # The order must not identify recipients across frames.
    sections.sort()
    return head + b"".join(sections) + body


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
    for mine, pair_key in keys_from(PURPOSE, group, me, sender):
        key = _trial(frame, start, nonce, bound, pair_key)
        if key is not None:
            content = decode_payload(xc20p_open(key, nonce, body[:-TAG_BYTES], body[-TAG_BYTES:], head))
            return content, confirmed(sender, mine)
    raise Unauthentic()


def _trial(frame: bytes, start: int, nonce: bytes, bound: bytes, key: bytes) -> bytes | None:
    """The body's key, from the first section that opens under this one."""
    for at in range(_HEADER, start, SECTION_BYTES):
        try:
            return xc20p_open(key, nonce, frame[at : at + KEY_BYTES], frame[at + KEY_BYTES : at + SECTION_BYTES], bound)
        except Unauthentic:
            continue
    return None
