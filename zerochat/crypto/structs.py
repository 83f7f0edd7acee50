"""Record helpers: redaction in `repr`, and field constraints for records from peers."""

from typing import Annotated, ClassVar, TypeAlias

import msgspec
from msgspec import Struct

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
"""A number counted from 1, or UTC milliseconds; at most 53 bits, exact in every JSON parser."""
Did: TypeAlias = Annotated[str, msgspec.Meta(max_length=64, pattern="^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}$")]
"""The did:key of an Ed25519 public key."""


class Redacted(Struct, frozen=True):
    """A record whose `repr`, and so logs and exceptions, omits the fields in `REDACTED`."""

    REDACTED: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in self.REDACTED)
        return f"{type(self).__name__}({', '.join(shown)})"


class Erasable(Redacted, frozen=True):
    """A record of keys that are erased once they are used. The journal seals its fields, so that no older copy of them
    opens (`agent/storage/erasure_key.py`), and a backup does not have them: what contains it has to work without."""
