"""The change to `network.hidden = "always"` in a running agent, and what is refused while it applies."""

from typing import ClassVar

from zerochat.didcomm.invitation import Invitation
from zerochat.errors import LocalError, Retry
from zerochat.group.effects import Disconnect, RevokeClient
from zerochat.group.external import mediators, relayed_posts
from zerochat.group.joining import member_connections
from zerochat.group.links import mediator_proof, peers
from zerochat.group.links.contact import Reach
from zerochat.group.state import Agent
from zerochat.group.transaction import Transaction


class NoRelay(LocalError):
    """Nothing can be sent: this agent connects to its own mediators only (`network.hidden = "always"`), and none of
    them can be reached and sends for it. `zerochat route` lists them, `zerochat route add LINK` adds one."""

    retry: ClassVar[Retry] = "later"


class OnlyDirect(LocalError):
    """This invitation has no mediator, and this agent connects to its own mediators only (`network.hidden =
    "always"`). Ask for an invitation of a member that has a mediator."""


def check_relay(agent: Agent) -> None:
    """Raise NoRelay if nothing could be sent."""
    if agent.mediated_only and relayed_posts.relay_of(agent) is None:
        raise NoRelay


def check_invitation(agent: Agent, invitation: Invitation) -> None:
    """Raise OnlyDirect or NoRelay if its author cannot be reached."""
    if agent.mediated_only and not invitation.mail:
        raise OnlyDirect
    check_relay(agent)


def begin(tx: Transaction) -> None:
    """From now on nothing but our own mediators: end every link, admit no client, and announce the mediators alone.

    What is emitted for the peers here passes `relayed_posts.divert`, like all that follows.
    """
    links_up = tx.agent.links_up
    tx.update_agent(
        mediated_only=True,
        reach=Reach(b"", None, None),
        web_uris=(),
        links_up=frozenset(),
        websockets_up=frozenset(),
        joiner_links={},
        awaited_receipts={},
    )
    mediator_proof.reset(tx)
    for open_ in tx.agent.invitations.values():
        tx.emit(RevokeClient(open_.client_key))
    for link, join in tx.agent.joins.items():
        tx.emit(Disconnect(link), Disconnect(member_connections.link_to_inviter(join)))
    for name, group in tx.agent.groups.items():
        for member, peer in group.links.peers.items():
            tx.emit(Disconnect(peer.link))
            peers.revoke_access(tx, name, member)
            if peer.link in links_up:
                with tx.attempt():
                    peers.handle_link_down(tx, name, member)
    for name, one in list(tx.agent.connections.items()):
        if one.mediation is not None:
            with tx.attempt():
                mediators.begin_mediation(tx, name)
    mediators.announce_reach(tx)
