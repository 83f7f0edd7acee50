"""Shapes of single values in records that peers send, for msgspec to check."""

from typing import Annotated, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
"""Counted from 1, or UTC milliseconds: what every JSON reader keeps exact."""
Did: TypeAlias = Annotated[str, msgspec.Meta(max_length=64, pattern="^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}$")]
"""The did:key of an Ed25519 public key."""
