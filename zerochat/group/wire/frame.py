"""Frames: one message for many members, encrypted once, with nothing on it that says for whom it is.

    version (1) | nonce (24) | one section of 48 bytes for each member, in an order drawn by lot | the body

The body is encrypted under a key made for this frame; a section is that key, encrypted under what its member and the
author share, and bound to the body. A member tries the sections until one opens, and forgets the frame if none does
(the thesis' "fail and forget": no recipient, no key id is on the wire). It takes a microsecond or two for each.

Whoever opens a frame knows that the author made it: only the two of them share the section's key, and the section holds
for this body alone, so no other recipient could have put other words under it (the reason why ECDH-1PU covers the tag).
Nobody else can be shown it: it stays as deniable as an authcrypt envelope. The shared keys come from the two DIDs of a
relationship, and change whenever one of these is rotated.
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from zerochat.crypto.content_encryption import xc20p_open, xc20p_seal
from zerochat.crypto.primitives import hkdf_sha256, sha256, x25519_static
from zerochat.didcomm.did import Identity, resolve
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed, Unauthentic
from zerochat.group.inputs import Moment
from zerochat.group.links.relationship import Relationship
from zerochat.group.wire.payload import CONTENT_BYTES_MAX, emptied, filled

VERSION = b"\x01"
NONCE_BYTES, KEY_BYTES, TAG_BYTES = 24, 32, 16
SECTION_BYTES = KEY_BYTES + TAG_BYTES
SECTIONS_MAX = 128
_HEADER = len(VERSION) + NONCE_BYTES + 1


def is_frame(envelope: bytes) -> bool:
    """Whether these bytes are a frame and no DIDComm envelope, which is JSON."""
    return envelope[:1] == VERSION


@lru_cache(maxsize=8192)
def _section_key(secret: bytes, public: bytes, group: str, author: str, reader: str) -> bytes:
    shared = x25519_static(secret, public)
    return hkdf_sha256(shared, f"zerochat/frame/1\n{group}\n{author}\n{reader}".encode())


@lru_cache(maxsize=8192)
def _agreement_key(did: str) -> bytes:
    return next(method.key.data for method in resolve(did).agreement if method.key.kind == "X25519")


def seal_frame(plain: bytes, group: str, me: str, to: Sequence[Relationship], moment: Moment) -> bytes:
    """The frame with this content for these members. At most `SECTIONS_MAX` of them, and
    `CONTENT_BYTES_MAX`."""
    assert len(to) <= SECTIONS_MAX and len(plain) <= CONTENT_BYTES_MAX
    content = filled(plain)
    nonce, key = moment.random(NONCE_BYTES), moment.random(KEY_BYTES)
    head = VERSION + nonce + bytes([len(to)])
    body = b"".join(xc20p_seal(key, nonce, content, head))
    bound = head + sha256(body)
    sections = [b"".join(xc20p_seal(_key_to(group, me, one), nonce, key, bound)) for one in to]
    # Their order must not tell who is who from one frame to the next.
    sections.sort()
    return head + b"".join(sections) + body


def _key_to(group: str, me: str, one: Relationship) -> bytes:
    return _section_key(one.mine.agreement_secret, _agreement_key(one.theirs), group, me, one.member)


def open_frame(frame: bytes, group: str, me: str, sender: Relationship) -> tuple[bytes, Relationship]:
    """What a frame from this member says, if one of its sections is for us, and the relationship after it.

    Raises Malformed or Unauthentic.
    """
    if not sender.established:
        raise Unauthentic()
    count = frame[_HEADER - 1] if len(frame) >= _HEADER else 0
    start = _HEADER + count * SECTION_BYTES
    if not is_frame(frame) or not 0 < count <= SECTIONS_MAX or not start + TAG_BYTES < len(frame) <= ENVELOPE_BYTES_MAX:
        raise Malformed(why="a frame of an impossible shape")
    head, body = frame[:_HEADER], frame[start:]
    nonce, bound = frame[len(VERSION) : _HEADER - 1], head + sha256(body)
    for mine in (sender.mine, sender.handover.old) if sender.handover else (sender.mine,):
        key = _trial(frame, start, nonce, bound, _key_from(group, me, sender, mine))
        if key is not None:
            content = emptied(xc20p_open(key, nonce, body[:-TAG_BYTES], body[-TAG_BYTES:], head))
            if mine is sender.mine and not (sender.greeted and sender.handover is None):
                sender = replace(sender, greeted=True, handover=None)  # it has addressed our present DID, so it has it
            return content, sender
    raise Unauthentic()


def _key_from(group: str, me: str, sender: Relationship, mine: Identity) -> bytes:
    return _section_key(mine.agreement_secret, _agreement_key(sender.theirs), group, sender.member, me)


def _trial(frame: bytes, start: int, nonce: bytes, bound: bytes, key: bytes) -> bytes | None:
    """The body's key, from the first section that opens under this one."""
    for at in range(_HEADER, start, SECTION_BYTES):
        try:
            return xc20p_open(key, nonce, frame[at : at + KEY_BYTES], frame[at + KEY_BYTES : at + SECTION_BYTES], bound)
        except Unauthentic:
            continue
    return None
