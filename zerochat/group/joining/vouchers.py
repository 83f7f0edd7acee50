"""Vouchers: a private conversation admits the invited member alone, even if its invitation has leaked.

The joiner signs its new key with its member key in the group from which the conversation was begun. The founder signs
with its new key which member it is, so that no member passes off another one's group as its own.
"""

from zerochat.errors import Malformed, Unauthentic
from zerochat.group.links.contact import check_founder, check_voucher, sign_voucher
from zerochat.group.state import Group, OpenInvitation, Voucher
from zerochat.group.wire.messages import JoinRequestBody


def voucher_for(group: Group, member: str, founder: str, invitation: str, joiner: str) -> Voucher:
    """Our proof, for this member, that we are the joiner with this key under its invitation. `founder`: its proof."""
    return Voucher(group.id, member, founder, sign_voucher(group.seed, group.id, invitation, joiner))


def is_founder(voucher: Voucher, founder: str, conversation: str) -> bool:
    """Whether the founder of a conversation is the member that has invited us."""
    try:
        check_founder(voucher.founder, founder, voucher.group, voucher.member, conversation)
    except (Malformed, Unauthentic):
        return False
    return True


def is_invited(group: Group, open_: OpenInvitation, body: JoinRequestBody) -> bool:
    """Whether a joiner is the invited member, which is admitted once; true where any holder of the invitation may
    join."""
    if group.private is None:
        return True
    if group.others or group.view.former:
        return False
    try:
        check_voucher(body.voucher, group.private.member, group.private.group, open_.invitation.did, body.member)
    except (Malformed, Unauthentic):
        return False
    return True
