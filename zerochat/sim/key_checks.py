"""Invariants of groups whose keys heal: every member can read the next message of every other one."""

from collections.abc import Iterator, Mapping

from zerochat.group.links.neighbours import is_ring
from zerochat.group.state import Group


def missing_keys(groups: Mapping[str, Group], owner: Mapping[str, str]) -> Iterator[str]:
    """Which of these members cannot read the next message of another one, as sentences; `owner`: node by DID, `groups`
    by node."""
    for name, author in groups.items():
        if not author.mode.heals:
            continue
        for did in sorted(author.links.peers.keys() & author.view.members.keys() & owner.keys()):
            reader = groups[owner[did]]
            if author.me in reader.links.peers and (lack := _lack(author, did, reader)):
                yield f"{owner[did]} {lack} of {name}"


def _lack(author: Group, did: str, reader: Group) -> str:
    keys = author.dcgka.keys
    channel = keys.channels.get(did)
    # On the ring a channel begins with the contact key of its member (`dcgka/ring_channels.py`).
    is_reachable = is_ring(author) or (channel is not None and bool(channel.peer))
    if not keys.epoch.event or did not in keys.synced:  # the next message brings it the ratchet
        return "" if is_reachable else "has no channel for the keys"
    epoch = next((one for one in reader.dcgka.keys.receiving.get(author.me, ()) if one.event == keys.epoch.event), None)
    if epoch is None:  # on the ring it asks for an event without a direct message once a message needs it
        return "" if is_ring(author) else "lacks the present keys"
    if epoch.next == keys.epoch.sent and epoch.chain_key != keys.epoch.chain_key:
        return "has other keys"
    return ""
