"""Fuzz targets: messages that members of a group on the ring forward."""

from random import Random

from fuzzing.nodes import Part
from fuzzing.run import Form
from zerochat.crypto.encoding import b64url, did_key, did_key_bytes
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.group.key_modes import forwarded
from zerochat.group.key_modes.dcgka import Place, place_of, seal

_GROUP, _SEED, _EPOCH = "A" * 43, bytes(range(32)), b64url(bytes(range(32)))
_AUTHOR = did_key(ed25519_public(_SEED))


class Forwarded:
    """A forwarded message shows its author, its end and its place, and its bytes follow from what it shows; whether its
    author has signed it is checked before anything else is done with it."""

    name = "forwarded"
    form: Form = "raw"
    size_max = ENVELOPE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        found = []
        for end in (1, 2**40):
            sealed = seal(bytes(32), Place(_EPOCH, end % 7), _GROUP, _AUTHOR, {"runs": []})
            found.append(forwarded.sign(_SEED, _AUTHOR, _GROUP, end, sealed))
        return found

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        one = forwarded.parse(data)
        head = b"\x04" + did_key_bytes(one.author) + one.end.to_bytes(8, "big")
        assert head + one.signature + one.sealed == data and one.sealed.startswith(one.header)
        place = place_of(one.sealed, [_EPOCH])
        assert place is None or place.header == one.header
        one.check(_GROUP)
        return one
