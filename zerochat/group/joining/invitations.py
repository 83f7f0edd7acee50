"""Inviting: making an invitation, being there for whoever has it, and closing it. Who comes in is for `admission.py`.

The invitation's id is its secret: whoever has it can derive the CURVE key that we admit for as long as the invitation
is open, and nobody else gets as far as a first byte.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from zerochat.crypto.primitives import (
    ed25519_public,
    ed25519_to_x25519_public,
    ed25519_to_x25519_secret,
    x25519_public,
)
from zerochat.didcomm.invitation import NONCE_BYTES, Invitation, bound_id
from zerochat.errors import LocalError, NotAMember, Refused
from zerochat.group.effects import Admit, Dial, Dispatch, Hangup, Reply, Revoke
from zerochat.group.links import mediator_mail
from zerochat.group.links.contact import call_link, knock_link, reach_of_did
from zerochat.group.membership import MEMBERS_MAX, is_history_rule
from zerochat.group.state import Claim, Group, OpenInvitation
from zerochat.group.sync import stale_profile
from zerochat.group.transaction import Turn

INVITATIONS_MAX = 64
CALLS_MAX = 16
CALL_MS = 90_000
"""How long a joiner stays dialled: longer than it tries."""
USES_MAX = MEMBERS_MAX - 1


class TooManyInvitations(LocalError):
    """{limit} invitations are open, and no more fit. They close when they have been used or expire; make one for
    several people (`zerochat invite --uses N`), or with a shorter life (`--expires 1h`)."""


class NoSuchHistory(LocalError):
    """No invitation gives {history} of what was said before. It gives `none`, `all`, `last:NUMBER` or `since:TIME`."""


class NoWayHere(LocalError):
    """Nobody could answer an invitation from here: this agent only dials out (`network.hidden`) and has no mediator.
    Ask a mediator to take in what is for you (`zerochat route add LINK`), or let somebody else in the group invite."""


def invite(
    turn: Turn, group: Group, lifetime_s: int, uses: int, role: str = "writer", history: str = "all"
) -> Invitation:
    """Make an invitation to a group and let whoever holds it knock. Where the group is open to all who are invited,
    `uses` does not matter. `history`: what it gives of what was said before (`Policy.history`); NoSuchHistory where
    that is no rule. Raises Refused where we could let nobody in (`regain.check`)."""
    if not is_history_rule(history):
        raise NoSuchHistory(history=ascii(history[:32]))
    if group.state != "active":
        raise NotAMember(group=group.name)
    stale_profile.check(group)
    if len(turn.agent.invitations) >= INVITATIONS_MAX:
        used = next((link for link, open_ in turn.agent.invitations.items() if open_.used_up), None)
        if used is None:
            raise TooManyInvitations(limit=INVITATIONS_MAX)
        close(turn, used)
    assert turn.agent.reach is not None
    seed = turn.moment.random(32)
    reach = mediator_mail.own_reach(turn, seed)
    if reach.pair is None and not reach.mail:
        raise NoWayHere()
    nonce = turn.moment.random(NONCE_BYTES)
    invitation = Invitation(
        id=bound_id(nonce, group.id),
        key=ed25519_public(seed),
        # The real one would tell who holds two invitations, of two groups, that they are from one agent.
        server_key=reach.server_key or ed25519_to_x25519_public(ed25519_public(seed)),
        endpoint=reach.pair,
        mail=reach.mail,
        expires=turn.now // 1000 + lifetime_s,
        envelope=group.profile.envelope,
    )
    link = knock_link(invitation.id)
    uses = 0 if group.view.policy.join == "open" else max(1, min(uses, USES_MAX))
    knock_key = x25519_public(invitation.knock_secret())
    open_ = OpenInvitation(invitation, seed, knock_key, group.id, uses, role, nonce, history=history)
    turn.change(invitations={**turn.agent.invitations, link: open_})
    admit_knock(turn, link)
    return invitation


def admit_knock(turn: Turn, link: bytes) -> None:
    """Let the holders of this invitation knock until it expires."""
    open_ = turn.agent.invitations[link]
    left_ms = open_.invitation.expires * 1000 - turn.now
    if left_ms > 0:
        turn.say(Admit(link, open_.knock_key, guest=True))
    turn.timer("invitation", link.hex(), left_ms)


def expire(turn: Turn, link: bytes) -> None:
    """An invitation's time is over: nobody knocks with it any more."""
    open_ = turn.agent.invitations.get(link)
    if open_ is None:
        return
    if open_.invitation.expires * 1000 > turn.now:
        admit_knock(turn, link)
        return
    close(turn, link)


def close(turn: Turn, link: bytes) -> None:
    """Nobody knocks with this invitation any more, and whoever was called because of it is hung up on."""
    for call_, invited in turn.agent.calls.items():
        if invited == link:
            hang_up(turn, call_)
    turn.say(Revoke(turn.agent.invitations[link].knock_key))
    turn.change(invitations={k: v for k, v in turn.agent.invitations.items() if k != link})


Answer: TypeAlias = Callable[[str, bytes], None]
"""How an envelope for the DID of a joiner goes back to it."""


def call(turn: Turn, link: bytes, theirs: str) -> bytes:
    """Dial a joiner who has answered by mail and can get none. Returns the link, which is not up yet: the joiner says
    everything again when it is. Raises Refused."""
    open_, reach = turn.agent.invitations[link], reach_of_did(theirs)
    name = call_link(open_.invitation.id, theirs)
    if reach.pair is None or (name not in turn.agent.calls and len(turn.agent.calls) >= CALLS_MAX):
        raise Refused(why="a joiner that cannot be reached")
    if name not in turn.agent.calls:
        turn.change(calls={**turn.agent.calls, name: link})
        turn.say(Dial(name, reach.pair, reach.server_key, ed25519_to_x25519_secret(open_.seed)))
        turn.timer("call", name.hex(), CALL_MS)
    return name


def hang_up(turn: Turn, name: bytes) -> None:
    """A joiner whom we have dialled is in, or has had time enough."""
    if name in turn.agent.calls:
        turn.change(calls={key: link for key, link in turn.agent.calls.items() if key != name})
        turn.say(Hangup(name))


def way_back(turn: Turn, link: bytes, handle: bytes | None, mailed: bool, called: bytes = b"") -> Answer:
    """How whoever has just said something under an invitation of ours is answered."""

    def answer(theirs: str, envelope: bytes) -> None:
        if handle is not None:
            turn.say(Reply(handle, envelope))
        elif not mailed:
            turn.say(Dispatch(called or link, envelope))
        elif not reach_of_did(theirs).mail:
            turn.say(Dispatch(call(turn, link, theirs), envelope))
        elif (way := mediator_mail.way_of_did(turn, theirs)) is not None:
            mediator_mail.post(turn, way, theirs, envelope)

    return answer


def put_claim(turn: Turn, link: bytes, claimant: str, claim: Claim) -> Claim:
    """Keep how far somebody has come who uses an invitation of ours."""
    open_ = turn.agent.invitations[link]
    open_ = replace(open_, claims={**open_.claims, claimant: claim})
    turn.change(invitations={**turn.agent.invitations, link: open_})
    return claim
