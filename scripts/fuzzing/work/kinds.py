"""The table of message kinds: what a hostile party can send, each made of genuine keys and current state."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from zerochat.didcomm.protocols import mediation, pickup, shared_mailbox, short_links
from zerochat.group.inputs import Received
from zerochat.group.wire import files, messages, tlog
from zerochat.group.wire.messages import PROTOCOL

Party: TypeAlias = Literal["member", "inviter", "holder", "user", "sender"]
"""A member, the inviter of a join of ours, the holder of our invitation; the user of a mediator, a sender to it."""
Make: TypeAlias = Callable[[Any, Random], Received]
"""Makes a message of a speaker. Dice with the same seed make messages of the same shape; the speaker has its own dice
for what differs."""


class Kind(Struct, frozen=True):
    """One way to use a message type."""

    name: str
    type: str
    """The message type; empty: bytes that are no message."""
    party: Party
    make: Make


KINDS: dict[str, Kind] = {}
"""By name; the modules of kinds fill it."""


def kind(type_: str, party: Party = "member", name: str = "") -> Callable[[Make], Make]:
    """Enter a function into the table, under its name or `name`."""

    def entered(make: Make) -> Make:
        called = name or make.__name__.replace("_", " ")
        assert called not in KINDS, called
        KINDS[called] = Kind(called, type_, party, make)
        return make

    return entered


def group_types() -> Mapping[str, str]:
    """Every message type of the group protocol, with the name of its constant."""
    named = [entry for module in (messages, files, tlog) for entry in vars(module).items()]
    types = {value: name for name, value in named if isinstance(value, str) and value.startswith(PROTOCOL)}
    return {value: name for value, name in types.items() if value != PROTOCOL}


def mediator_types() -> set[str]:
    """The message types that a mediator's users send; of coordinate-mediation and pickup in one version, since one
    generator makes all, and what only pickup 1.0 has."""
    first = [(name, uri) for (version, name), uri in mediation._TYPES.items() if version == mediation.VERSIONS[0]]
    asked = {uri for name, uri in first if name in ("request", "update", "query")}
    third = [(name, uri) for (version, name), uri in pickup._TYPES.items() if version == "3.0"]
    fetched = {uri for name, uri in third if name not in ("status", "delivery")}
    fetched |= {pickup.list_request([], bytes).type, pickup.noop(bytes).type}
    linked = {uri for name, uri in short_links._TYPES.items() if name in ("publish", "keep")}
    return asked | fetched | linked | {shared_mailbox._TYPES["keep"]}
