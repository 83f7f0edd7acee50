"""What the shapes of several subjects have in them."""

from typing import Literal

from msgspec import Struct

Role = Literal["reader", "writer", "admin", "owner"]
Trust = Literal["unverified", "verified", "changed"]


class Author(Struct, frozen=True):
    did: str
    nick: str
    bot: bool = False
    """It says of itself that it is one."""
    verified: bool = False
    """I have compared words with it."""
