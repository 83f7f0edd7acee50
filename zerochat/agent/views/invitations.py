"""The invitations of ours that are open, and how far those are who use them, in the words of the control protocol."""

from zerochat import rpc
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.views import members
from zerochat.group.joining import revocation
from zerochat.group.state import Agent, Claim, Group


def open_invitations(agent: Agent, group: Group) -> list[rpc.OpenInvitation]:
    """The invitations to a group that are open here, the one that ends first before the others."""
    ours = [(link, one) for link, one in agent.invitations.items() if one.group == group.id]
    return [
        rpc.OpenInvitation(
            id=revocation.name_of(link),
            group=group.id,
            expires_at=timestamp(one.invitation.expires * 1000),
            uses=one.uses,
            role=members.as_role(one.role),
            history=one.history,
            invitees=[_invitee(group, claim) for claim in sorted(one.claims.values(), key=lambda claim: claim.at)],
        )
        for link, one in sorted(ours, key=lambda pair: (pair[1].invitation.expires, pair[0]))
    ]


def _invitee(group: Group, claim: Claim) -> rpc.Invitee:
    did = claim.relationship.member
    at = timestamp(claim.at) if claim.at else ""
    if (member := group.view.known(did)) is not None:
        state: rpc.InviteeState = "joined" if did in group.view.members else "gone"
        return rpc.Invitee(state=state, nick=member.label, at=at)
    request = group.requests.get(did)
    if request is None:
        return rpc.Invitee(state="joining", at=at)
    return rpc.Invitee(state="gone" if request.refused else "waiting", nick=request.label, at=at)
