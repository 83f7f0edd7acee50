"""Nearby in words: whether members are looked for on this machine's networks, and what was found."""

from zerochat.rpc.nearby import NearbyMember, NearbyNetwork, NearbyStatus


def sentence(status: NearbyStatus, command: str = "zerochat lan on") -> str:
    """The state as sentences. `command`: what turns it on."""
    if not status.on:
        return f"Members are not looked for on networks of this machine. `{command}` looks for them."
    if status.why:
        return f"It is on. {status.why}"
    groups = "all groups" if status.groups is None else "1 group" if len(status.groups) == 1 else _groups(status.groups)
    count = len({one.did for one in status.members})
    found = "none was found yet" if not count else "1 was found" if count == 1 else f"{count} were found"
    others = "" if not status.heard else f" {_agents(status.heard)} here."
    return f"Members of {groups} are looked for; {found}.{others}"


def _groups(groups: list[str]) -> str:
    return f"{len(groups)} groups"


def _agents(count: int) -> str:
    return "1 agent announces itself" if count == 1 else f"{count} agents announce themselves"


def network_state(one: NearbyNetwork) -> str:
    if not one.present:
        return "on, not connected"
    return "on" if one.on else "off"


def member_state(one: NearbyMember) -> str:
    return "connected" if one.linked else "connecting"
