"""Nearby: finding members on the networks of this machine."""

from msgspec import Struct, field


class NearbyNetwork(Struct, frozen=True, kw_only=True):
    """A network at one interface of this machine."""

    id: str
    """Hex digits by which it is recognised at the next visit."""
    name: str
    """The interface, and the IPv4 range if it has one."""
    on: bool
    """Whether members are looked for there."""
    present: bool = True
    """False: it was turned on, and this machine is not connected to it now; `name` is then as it was."""


class NearbyMember(Struct, frozen=True, kw_only=True):
    """A member that was found on a network of this machine."""

    group: str
    did: str
    nick: str
    addresses: list[str]
    """Where, as IP addresses."""
    linked: bool
    """Whether a link to it is up, there or elsewhere."""


class NearbyStatus(Struct, frozen=True, kw_only=True):
    """Whether members are looked for nearby, where and who was found."""

    on: bool
    why: str = ""
    """Why it is on and nothing is announced, as a sentence; empty: it works, or is off."""
    every_network: bool = False
    """Also networks that are not known yet."""
    groups: list[str] | None = None
    """The groups whose members are looked for; null: all."""
    networks: list[NearbyNetwork] = field(default_factory=list)
    heard: int = 0
    """The agents that are heard now, known or not."""
    members: list[NearbyMember] = field(default_factory=list)
    """At most 64."""


class SetNearbyParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Turn it on or off. What is not named: of `networks` all that are present, of `groups` all."""

    on: bool
    networks: list[str] = field(default_factory=list)
    """Ids, interfaces or names."""
    groups: list[str] = field(default_factory=list)
    every_network: bool = False
