"""The members' attestations of their membership events, equivocation proofs, and members that the user has verified."""

from msgspec import Struct, field

from zerochat.crypto.structs import Redacted
from zerochat.group.composite import Composite


class ViewAttestation(Redacted, frozen=True):
    """A member's signed attestation of the membership events that it has (`membership/attestation.py`)."""

    REDACTED = ("sig",)

    heads: tuple[str, ...]
    """The heads of those events."""
    sig: str
    """base64url of its Ed25519 signature."""
    at: int = 0
    """When the member sent it to us itself, UTC ms; 0: relayed by our inviter."""
    confirms: bool = False
    """True: it covers all that we began with; else that has to be looked up."""


class AttestationConflict(Struct, frozen=True):
    """Proof that members attest different membership histories: their signatures."""

    group: str
    attestations: tuple[tuple[str, ViewAttestation], ...]
    """Members with the attestation of each."""
    records: tuple[bytes, ...]
    """Membership events that only one of them has, or that exclude each other."""


class TrustState(Composite, frozen=True):
    """Whether the membership can be believed: attestations, proofs, and the user's own verifications."""

    verified: dict[str, str] = field(default_factory=dict)
    """The members whose safety words were verified: their DIDs, and their display names then."""
    attestations: dict[str, ViewAttestation] = field(default_factory=dict)
    """By member: its latest view attestation."""
    attestation_deadline: int = 0
    """Until then (UTC ms) a new member waits for attestations of its inviter's account; 0: settled."""
    quarantine: tuple[str, ...] = ()
    """Members known only from our inviter, or from the member that admitted them: no contact until another member
    attests them."""
    dissenting: tuple[str, ...] = ()
    """Members whose attestation contradicts what we began with."""
    fork_proofs: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """By author: two of its membership events that prove an equivocation, as relayed to us
    (`membership/fork_proof.py`)."""
    proof_recipients: tuple[str, ...] = ()
    """The members to which we have sent such a proof."""
    ignored: tuple[str, ...] = ()
    """The members whose messages the user does not want to see, at most MEMBERS_MAX, the last ignored last."""
    dismissed_warnings: tuple[str, ...] = ()
    """The warnings that the user has dismissed (`membership/attestation.py`)."""
