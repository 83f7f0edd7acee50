"""Deniable authentication of one envelope for many: a MAC tag for each recipient in place of a signature.

    3 | number of tags (1) | a tag of 16 bytes for each recipient, sorted | a sealed message (`dcgka.py`)

    digest   =  BLAKE2b("zerochat/tagged", sealed message)
    tag      =  BLAKE2b(key of the pair, "zerochat/tag", digest)

The content is encrypted once, under the key of this message in its author's key ratchet, which all members know: any of
them could encrypt another content under it. So each tag covers the whole sealed message, with the epoch and the number
that its header names; the key of the pair is bound to group, author and recipient (`wire/pair_keys.py`). A member that
replaces the content has no key of any other pair, and a tag convinces its recipient alone.

It is repudiable: the recipient knows the key of the pair and could have made tag and message for itself, so they prove
nothing to a third party, until the author signs a membership event, which references all its earlier messages. Tags are
in order of their values, so they name no recipient; a recipient computes its own and looks for it. The number of tags
shows the number of recipients.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from zerochat.crypto.primitives import blake2b_keyed, equal
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed, Unauthentic
from zerochat.group.key_modes.dcgka import Dcgka
from zerochat.group.links.relationship import Relationship
from zerochat.group.wire.frame import SECTIONS_MAX
from zerochat.group.wire.pair_keys import confirmed, key_to, keys_from

TAG_BYTES: Final = 16
_VERSION: Final = b"\x03"
_HEADER: Final = len(_VERSION) + 1
_PURPOSE: Final = "tag/1"
_DIGEST_KEY: Final = bytes(32)


class Deniable(Dcgka, frozen=True):
    """Events are not signed. Messages are sealed as in DCGKA, and a tag convinces each recipient of their author."""

    name: ClassVar[str] = "deniable"
    signs_events: ClassVar[bool] = False


def is_tagged(envelope: bytes) -> bool:
    """Whether these bytes are a message with tags, not one of another form."""
    return envelope[:1] == _VERSION


def add_tags(sealed: bytes, group: str, me: str, to: Sequence[Relationship]) -> bytes:
    """The sealed message with a tag for each of these recipients, 1 to `SECTIONS_MAX`."""
    assert 0 < len(to) <= SECTIONS_MAX
    digest = _digest(sealed)
    tags = sorted(_tag(key_to(_PURPOSE, group, me, one), digest) for one in to)
    return b"".join((_VERSION, bytes([len(tags)]), *tags, sealed))


def check_tag(envelope: bytes, group: str, me: str, author: Relationship) -> tuple[bytes, Relationship]:
    """The sealed message, which this member made for us and others, and the relationship after it.

    Raises Malformed, or Unauthentic where no tag is ours.
    """
    sealed = without_tags(envelope)
    if not is_tagged(envelope):
        raise Malformed(why="a message without tags")
    if not author.established:
        raise Unauthentic()
    start, digest = len(envelope) - len(sealed), _digest(sealed)
    for mine, key in keys_from(_PURPOSE, group, me, author):
        tag = _tag(key, digest)
        if any(equal(tag, envelope[at : at + TAG_BYTES]) for at in range(_HEADER, start, TAG_BYTES)):
            return sealed, confirmed(author, mine)
    raise Unauthentic()


def without_tags(envelope: bytes) -> bytes:
    """The sealed message in an envelope, with tags or without, unchecked. Raises Malformed."""
    if not is_tagged(envelope):
        return envelope
    count = envelope[_HEADER - 1] if len(envelope) >= _HEADER else 0
    start = _HEADER + count * TAG_BYTES
    if not 0 < count <= SECTIONS_MAX or not start < len(envelope) <= ENVELOPE_BYTES_MAX:
        raise Malformed(why="a malformed message with tags")
    return envelope[start:]


def _digest(sealed: bytes) -> bytes:
    return blake2b_keyed(_DIGEST_KEY, b"zerochat/tagged", sealed)


def _tag(key: bytes, digest: bytes) -> bytes:
    return blake2b_keyed(key, b"zerochat/tag", digest, TAG_BYTES)
