"""Claims: the joiners remembered under our invitations, bounded in number and in bytes."""

from msgspec.structs import replace

from zerochat.errors import Malformed
from zerochat.group.links.contact import CONTACT_CHARS_MAX
from zerochat.group.state import Claim, OpenInvitation
from zerochat.group.transaction import Transaction
from zerochat.limits import MEMBERS_MAX

CLAIMS_MAX = 2 * MEMBERS_MAX
"""Joiners remembered per invitation, where its uses are unlimited."""
CLAIMS_BYTES_MAX = 4 << 20
"""Bytes of the claims of all invitations, except those of admitted joiners under an invitation of limited uses."""
CLAIM_BYTES = 1024
"""Bytes of a claim without its DIDs: keys, identifiers and times."""


def put_claim(tx: Transaction, link: bytes, claimant: str, claim: Claim) -> Claim:
    """Store the progress of a joiner that uses an invitation of ours; others may be dropped for it. Raises Malformed
    for a DID of more than `CONTACT_CHARS_MAX` characters."""
    if len(claim.relationship.theirs) > CONTACT_CHARS_MAX:
        raise Malformed(why="a joiner's DID that is too long")
    open_ = tx.agent.invitations[link]
    grown = claimant not in open_.claims or _size(claim) > _size(open_.claims[claimant])
    _put_claims(tx, link, {**open_.claims, claimant: claim})
    if grown:
        _drop_excess(tx, link, claimant)
    return claim


def drop_claim(tx: Transaction, link: bytes, claimant: str) -> OpenInvitation:
    """Forget a joiner. If it goes on, it repeats its exchange request (`joiner.UNANSWERED_MAX`)."""
    claims = tx.agent.invitations[link].claims
    return _put_claims(tx, link, {name: claim for name, claim in claims.items() if name != claimant})


def _put_claims(tx: Transaction, link: bytes, claims: dict[str, Claim]) -> OpenInvitation:
    open_ = replace(tx.agent.invitations[link], claims=claims)
    tx.update_agent(invitations={**tx.agent.invitations, link: open_})
    return open_


def _size(claim: Claim) -> int:
    mine, rotation = claim.relationship.mine, claim.relationship.rotation
    older = len(rotation.old.did) + len(rotation.jwt) if rotation is not None else 0
    return CLAIM_BYTES + len(mine.did) + len(claim.relationship.theirs) + older


def _drop_excess(tx: Transaction, link: bytes, kept: str) -> None:
    """Drop the oldest claims until all are within limits, but not the `kept` one: at the limit of an invitation its
    own, at the total limit those of the invitation that takes the most bytes, so each invitation has a share."""
    if len(tx.agent.invitations[link].claims) > CLAIMS_MAX and (oldest := _oldest(tx, link, kept)):
        drop_claim(tx, link, oldest)
    sizes = {name: _droppable_bytes(open_) for name, open_ in tx.agent.invitations.items()}
    while sum(sizes.values()) > CLAIMS_BYTES_MAX:
        largest = max(sizes, key=sizes.__getitem__)
        oldest = _oldest(tx, largest, kept)
        if not oldest:
            return
        sizes[largest] = _droppable_bytes(drop_claim(tx, largest, oldest))


def _may_drop(open_: OpenInvitation, claim: Claim) -> bool:
    """Whether the invitation can be used no more often without this claim."""
    return not (open_.uses and claim.admitted)


def _droppable_bytes(open_: OpenInvitation) -> int:
    return sum(_size(claim) for claim in open_.claims.values() if _may_drop(open_, claim))


def _oldest(tx: Transaction, link: bytes, kept: str) -> str:
    """The claim to drop first: of admitted or removed joiners, else the oldest of all; empty: none may be dropped."""
    open_ = tx.agent.invitations[link]
    peers = tx.group(open_.group).links.peers

    def rank(name: str) -> tuple[bool, int, str]:
        claim = open_.claims[name]
        peer = peers.get(claim.relationship.member)
        return not (claim.admitted and (peer is None or peer.last_received_at)), claim.claimed_at, name

    candidates = (name for name, claim in open_.claims.items() if name != kept and _may_drop(open_, claim))
    return min(candidates, key=rank, default="")
