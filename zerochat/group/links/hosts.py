"""Hosts: which of the members that claim one server key answers under it.

A contact names the CURVE server key of the member's agent, which is public from every invitation: any member can claim
another's. So all claimants of a key are dialled, each at its own address. A connection to the host proves the key, and
the first authentic message over it shows whose key that is; the other claimants are not dialled from then on.
"""

from collections.abc import Container, Sequence
from contextlib import suppress

from zerochat.crypto.encoding import did_key_bytes
from zerochat.didcomm.packer import addressed_to
from zerochat.errors import RemoteError
from zerochat.evidence.messages import parse_data
from zerochat.group.key_agreement.message_keys import known_epochs
from zerochat.group.key_modes.dcgka import is_sealed, place_of
from zerochat.group.key_modes.deniable import is_tagged, without_tags
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.links import rate_limits
from zerochat.group.links.mediator_mail import reach_of_member
from zerochat.group.links.relationship import Relationship, own_keys
from zerochat.group.state import Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.frame import is_frame, open_frame

TRIAL_WORK_US = 1_000
"""The work of trying the keys of one relationship on all sections of a frame, us."""


def claimants(group: Group, server_key: bytes) -> Sequence[str]:
    """The other members that announce this server key."""
    index = group.links.index
    if index.view is not group.view:
        found: dict[bytes, list[str]] = {}
        for did in group.links.peers:
            if did in group.view.members:
                found.setdefault(reach_of_member(group, did).server_key, []).append(did)
        index.by_host, index.view = found, group.view
    return index.by_host.get(server_key, ())


def is_of_another(group: Group, member: str, server_key: bytes) -> bool:
    """Whether another member has answered under the server key that this member claims, and this member has not."""
    peers = group.links.peers
    proved = [did for did in claimants(group, server_key) if peers[did].answered_key == server_key]
    return bool(proved) and member not in proved


def candidates(group: Group, member: str, host: bytes) -> list[str]:
    """The members that may send over this member's link: all that claim the host's key, those that have answered under
    it first. `host`: as in `Received`."""
    others = [did for did in claimants(group, host) if did != member] if host else []
    if not others:
        return [member]
    return sorted((member, *others), key=lambda did: group.links.peers[did].answered_key != host)


def possible_authors(tx: Transaction, name: str, those: Sequence[str], envelope: bytes, payer: str) -> list[str]:
    """Those of the `candidates` that may have sent an envelope; `payer` is charged where more than one is tried.

    Several only where the envelope does not show for which relationship it is, as at the begin of a DID exchange. Not
    authenticated. Raises RemoteError.
    """
    group = tx.group(name)
    if len(those) == 1:
        return list(those)
    if is_signed(envelope):
        publisher = parse_data(envelope).publisher
        return [did for did in those if did_key_bytes(did) == publisher] or list(those)
    if is_sealed(envelope) or is_tagged(envelope):
        sealed, keys = without_tags(envelope), group.dcgka.keys
        return [did for did in those if place_of(sealed, known_epochs(keys, did)) is not None] or list(those)
    kids = () if is_frame(envelope) else addressed_to(envelope)[1]
    for number, did in enumerate(those):
        if number:
            rate_limits.charge_work(tx, name, payer, TRIAL_WORK_US)
        if any(_is_for(tx, group, one, envelope, kids) for one in _relationships(group, did)):
            return [did]
    return list(those)


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
