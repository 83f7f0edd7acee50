"""What the shapes of several subjects have in them."""

from typing import Literal

from msgspec import Struct

Role = Literal["reader", "writer", "admin", "owner"]
Trust = Literal["unverified", "verified", "changed"]


class Author(Struct, frozen=True):
    did: str
    nick: str
    bot: bool = False
    verified: bool = False
