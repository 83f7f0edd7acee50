"""Hosts: which of the members that claim one server key answers under it.

A contact names the CURVE server key of the member's agent, which is public from every invitation: any member can claim
another's. So all claimants of a key are dialled, each at its own address. A connection to the host proves the key, and
the first authentic message over it shows whose key that is; the other claimants are not dialled from then on.
"""

from collections.abc import Container
from contextlib import suppress

from zerochat.crypto.encoding import did_key_bytes
from zerochat.didcomm.packer import addressed_to
from zerochat.errors import RemoteError
from zerochat.evidence.messages import parse_data
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.links.mediator_mail import reach_of_member
from zerochat.group.links.relationship import Relationship, own_keys
from zerochat.group.state import Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.frame import is_frame, open_frame


def claimants(group: Group, server_key: bytes) -> list[str]:
    """The other members that announce this server key."""
    return [
        did
        for did in group.links.peers
        if did in group.view.members and reach_of_member(group, did).server_key == server_key
    ]


def is_of_another(group: Group, member: str, server_key: bytes) -> bool:
    """Whether another member has answered under the server key that this member claims, and this member has not."""
    peers = group.links.peers
    proved = [did for did in claimants(group, server_key) if peers[did].answered_key == server_key]
    return bool(proved) and member not in proved


def possible_authors(tx: Transaction, name: str, member: str, host: bytes, envelope: bytes) -> list[str]:
    """The members that may have sent an envelope over this member's link; `host`: as in `Received`.

    Several only where they claim the host's key and the envelope does not show for which relationship it is, as at the
    begin of a DID exchange. Not authenticated. Raises RemoteError.
    """
    group = tx.group(name)
    others = [did for did in claimants(group, host) if did != member] if host else []
    if not others:
        return [member]
    if is_signed(envelope):
        publisher = parse_data(envelope).publisher
        return [did for did in (member, *others) if did_key_bytes(did) == publisher] or [member]
    kids = () if is_frame(envelope) else addressed_to(envelope)[1]
    for did in (member, *others):
        if any(_is_for(tx, group, one, envelope, kids) for one in _relationships(group, did)):
            return [did]
    return [member, *others]


def _relationships(group: Group, member: str) -> list[Relationship]:
    known = group.links.relationships.get(member)
    offered = [offer.relationship for offer in group.links.offers.get(member, ())]
    return [*offered, known] if known is not None else offered


def _is_for(tx: Transaction, group: Group, one: Relationship, envelope: bytes, kids: Container[str]) -> bool:
    """Whether an envelope is for us in this relationship."""
    if is_frame(envelope):
        with suppress(RemoteError):
            open_frame(envelope, group.id, group.me, one)
            return True
        return False
    packer = tx.packer_of(group.id)
    identities = (one.mine, one.rotation.old) if one.rotation else (one.mine,)
    return any(kid in kids for identity in identities for kid in own_keys(packer, identity))
