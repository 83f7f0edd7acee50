"""Types that several subjects of the control protocol share, and its time format."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from zerochat.limits import HOPS_MAX

Role = Literal["reader", "writer", "admin", "owner"]
Trust = Literal["unverified", "verified", "changed"]
Hops: TypeAlias = Annotated[int, Meta(ge=0, le=HOPS_MAX)]
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


class Author(Struct, frozen=True):
    did: str
    nick: str
    bot: bool = False
    """The member has announced that it is a bot."""
    verified: bool = False
    """I have compared safety words with this member."""


def timestamp(ms: int) -> str:
    """UTC milliseconds in RFC 3339 format with milliseconds; values outside the calendar are clamped."""
    bounded = min(max(ms, 0), _LAST_MS)
    return datetime.fromtimestamp(bounded / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
