"""Private conversations: groups of two that a member of a group begins with another one (`joining/private_*.py`)."""

from enum import StrEnum

from msgspec import Struct

from zerochat.didcomm.invitation import Invitation


class PrivateWith(Struct, frozen=True):
    """The other member of a private conversation, as a member of the group from which it was begun."""

    group: str
    """The id of that group."""
    member: str
    """Its DID there."""
    label: str
    """Its name there when the conversation was begun."""
    link: bytes = b""
    """The link of our invitation to it; empty: we have joined its conversation."""
    sent_at: int = 0
    """When we last sent it the invitation, UTC ms; 0: never."""
    tries: int = 0
    """How often it was sent since our user began the conversation or asked again."""
    moved_to: str = ""
    """We have joined its own conversation, and our posts are moved there; empty: no."""


class Consent(StrEnum):
    """Our user's answer to a private invitation."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    """We join, again whenever the invitation comes again."""
    DECLINED = "declined"
    """Dropped silently until this invitation would have expired."""


class PrivateInvitation(Struct, frozen=True):
    """A member's invitation to a private conversation with it."""

    conversation: str
    """The id of the group of two."""
    founder: str
    """The proof that its founder is the member."""
    invitation: Invitation
    at: int
    """When our user was last notified, UTC ms."""
    consent: Consent = Consent.PENDING

    @property
    def until(self) -> int:
        """When it expires, UTC ms."""
        return self.invitation.expires * 1000


class Voucher(Struct, frozen=True):
    """The proofs that a joiner of a private conversation is the invited member, and the founder the inviter."""

    group: str
    """The group from which the conversation was begun."""
    member: str
    """The inviter's DID there."""
    founder: str
    """By the inviter's key in the conversation (`contact.sign_founder`)."""
    signature: str
    """By our own member key there (`contact.sign_voucher`)."""
