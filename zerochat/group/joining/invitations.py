"""Invitations: creating them, accepting connections from their holders, and closing them.

The invitation's id is its secret. Its holders derive the CURVE client key from it that we allow while the invitation is
open; no other client completes a handshake.
"""

from collections.abc import Callable
from typing import TypeAlias

from zerochat.crypto.primitives import (
    ed25519_public,
    ed25519_to_x25519_public,
    ed25519_to_x25519_secret,
    x25519_public,
)
from zerochat.didcomm.invitation import NONCE_BYTES, Invitation, bound_id
from zerochat.errors import LocalError, NotAMember, Refused
from zerochat.group.effects import AllowClient, Dial, Disconnect, Reply, RevokeClient, SendEnvelope
from zerochat.group.links import mediator_mail
from zerochat.group.links.contact import join_link, joiner_link, reach_of_did
from zerochat.group.membership import is_history_rule
from zerochat.group.state import Group, OpenInvitation
from zerochat.group.state.external import HeldEnvelope
from zerochat.group.state.joins import InvitationState
from zerochat.group.sync import stale_profile
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.limits import MEMBERS_MAX

INVITATIONS_MAX = 64
CALLS_MAX = 16
CALL_MS_MAX = 90_000
"""How long a joiner stays dialled: longer than it retries."""
USES_MAX = MEMBERS_MAX - 1


class TooManyInvitations(LocalError):
    """You have {limit} open invitations, the maximum. Wait until one is used up or expires, or revoke one; one
    invitation can also admit several people (`zerochat invite GROUP --uses N`)."""


class NoSuchHistory(LocalError):
    """Unknown history rule {history}. Use `none`, `all`, `last:NUMBER` or `since:TIME`."""


class PrivateGroup(LocalError):
    """A private conversation has two members. `zerochat new GROUP` makes a group for more."""


class Unreachable(LocalError):
    """An invitation from here could not be answered: this agent only dials out (`network.hidden`) and has no mediator.
    Add a mediator (`zerochat route add LINK`), or ask another member to invite."""


def invite(
    tx: Transaction,
    group: Group,
    lifetime_s: int,
    uses: int | None,
    role: str = "writer",
    history: str = "all",
    name: str = "",
) -> Invitation:
    """Create an invitation to a group and allow connections from its holders. `uses`: None is the group's rule: one
    use, or no limit in a group that is open to every invitee. `history`: the history that its users may read
    (`Policy.history`). Raises NoSuchHistory for an invalid rule, and Refused while we may not admit members
    (`stale_profile.check`)."""
    if not is_history_rule(history):
        raise NoSuchHistory(history=ascii(history[:32]))
    if group.state != "active":
        raise NotAMember(group=group.name)
    stale_profile.check_not_suspended(group)
    if len(tx.agent.invitations) >= INVITATIONS_MAX:
        states = {link: open_.state_at(tx.now) for link, open_ in tx.agent.invitations.items()}
        used = next(
            (link for link, state in states.items() if state in (InvitationState.USED_UP, InvitationState.EXPIRED)),
            None,
        )
        if used is None:
            raise TooManyInvitations(limit=INVITATIONS_MAX)
        close_invitation(tx, used)
    assert tx.agent.reach is not None
    seed = tx.context.random(32)
    reach = mediator_mail.own_reach_as(tx, seed)
    if reach.pair is None and not reach.routes:
        raise Unreachable()
    nonce = tx.context.random(NONCE_BYTES)
    invitation = Invitation(
        id=bound_id(nonce, group.id),
        key=ed25519_public(seed),
        # The real key would show the holder of two invitations to two groups that they come from one agent.
        server_key=reach.server_key or ed25519_to_x25519_public(ed25519_public(seed)),
        endpoint=reach.pair,
        mail=reach.routes,
        expires=tx.now // 1000 + lifetime_s,
        envelope=group.profile.envelope,
    )
    link = join_link(invitation.id)
    if uses is None:
        uses = 0 if group.view.policy.join == "open" else 1
    else:
        uses = max(1, min(uses, USES_MAX))
    client_key = x25519_public(invitation.join_secret_key())
    open_ = OpenInvitation(invitation, seed, client_key, group.id, uses, role, nonce, history=history, name=name)
    tx.update_agent(invitations={**tx.agent.invitations, link: open_})
    allow_joiners(tx, link)
    return invitation


def allow_joiners(tx: Transaction, link: bytes) -> None:
    """Allow connections from the holders of this invitation until it expires."""
    open_ = tx.agent.invitations[link]
    left_ms = open_.invitation.expires * 1000 - tx.now
    if left_ms > 0:
        tx.emit(AllowClient(link, open_.client_key, guest=True))
    tx.set_timer(TimerKind.INVITATION, link.hex(), left_ms)


def expire_invitation(tx: Transaction, link: bytes) -> None:
    """Close an invitation whose time is over."""
    open_ = tx.agent.invitations.get(link)
    if open_ is None:
        return
    if open_.state_at(tx.now) is not InvitationState.EXPIRED:
        allow_joiners(tx, link)
        return
    close_invitation(tx, link)


def close_invitation(tx: Transaction, link: bytes) -> None:
    """Refuse further connections with this invitation, and disconnect the joiners that we dialled because of it."""
    for call_, invited in tx.agent.joiner_links.items():
        if invited == link:
            disconnect_joiner(tx, call_)
    tx.emit(RevokeClient(tx.agent.invitations[link].client_key))
    tx.update_agent(invitations={k: v for k, v in tx.agent.invitations.items() if k != link})


ReplyPath: TypeAlias = Callable[[str, bytes], None]
"""Sends an envelope back to the DID of a joiner."""


def dial_joiner(tx: Transaction, link: bytes, theirs: str) -> bytes:
    """Dial a joiner that wrote by mail but cannot receive mail. Returns the link, which is not up yet: the joiner
    resends everything when it is. Raises Refused."""
    open_, reach = tx.agent.invitations[link], reach_of_did(theirs)
    name = joiner_link(open_.invitation.id, theirs)
    if reach.pair is None or (name not in tx.agent.joiner_links and len(tx.agent.joiner_links) >= CALLS_MAX):
        raise Refused(why="a joiner that cannot be reached")
    if not mediator_mail.is_near_enough(tx, open_.seed, str(reach.pair)):
        raise Refused(why="a joiner at an address nearer than ours")
    if name not in tx.agent.joiner_links:
        tx.update_agent(joiner_links={**tx.agent.joiner_links, name: link})
        tx.emit(Dial(name, reach.pair, reach.server_key, ed25519_to_x25519_secret(open_.seed)))
        tx.set_timer(TimerKind.JOINER_LINK, name.hex(), CALL_MS_MAX)
    return name


def disconnect_joiner(tx: Transaction, name: bytes) -> None:
    """Disconnect a joiner that we dialled: it was admitted, or its time is over."""
    if name in tx.agent.joiner_links:
        tx.update_agent(joiner_links={key: link for key, link in tx.agent.joiner_links.items() if key != name})
        tx.emit(Disconnect(name))


def reply_path(tx: Transaction, link: bytes, handle: bytes | None, mailed: bool, called: bytes = b"") -> ReplyPath:
    """How to answer an envelope that just came in under an invitation of ours."""

    def answer(theirs: str, envelope: bytes) -> None:
        if handle is not None:
            tx.emit(Reply(handle, envelope))
        elif not mailed:
            tx.emit(SendEnvelope(called or link, envelope))
        elif not reach_of_did(theirs).routes:
            tx.emit(SendEnvelope(dial_joiner(tx, link, theirs), envelope))
        else:
            seed, held = tx.agent.invitations[link].seed, HeldEnvelope(theirs, envelope)
            ways = mediator_mail.routes_of_did(tx, seed, theirs)
            mediator_mail.post_or_hold(tx, link.hex(), seed, ways, held)

    return answer
