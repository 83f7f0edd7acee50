"""Short links: one of our mediators serves our open invitations, sealed, to joiners.

A link is published in the step that creates its invitation, and again after each reconnection. What the mediator may
serve and is no longer wanted (revoked, used up, expired) is dropped by a `keep` message, sent at once or after the next
reconnection. The protocol itself is in `didcomm/protocols/short_links.py`.
"""

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import problem, short_links
from zerochat.group.external import sending
from zerochat.group.state import Agent, Connection
from zerochat.group.state.joins import InvitationState, OpenInvitation, ShortLink
from zerochat.group.transaction import Transaction


def add(tx: Transaction, link: bytes) -> None:
    """Give a new invitation a short link, if we have a mediator. `update` publishes it."""
    granted = [one for one in tx.agent.connections.values() if _is_granted(one)]
    if granted:
        one = next((one for one in granted if _is_connected(one)), granted[0])
        oobid = b64url(tx.context.random(short_links.ID_BYTES))
        _put_short(tx, link, ShortLink(oobid, tx.context.random(short_links.KEY_BYTES), one.id))


def link_of(open_: OpenInvitation) -> str:
    """The short link of an invitation; empty: it is not served."""
    short = open_.short
    return "" if short is None or not short.page else short_links.link(short.page, short.oobid, short.key)


def _is_granted(one: Connection) -> bool:
    """Whether it is our mediator; one of version 1.0 serves no short links."""
    return one.mediation is not None and one.mediation.phase == "granted" and one.mediation.routing_did is not None


def _is_connected(one: Connection) -> bool:
    return _is_granted(one) and one.mediation is not None and one.mediation.connected


def update(tx: Transaction) -> None:
    """Invitations or connections may have changed: publish new links, and drop those that are not wanted."""
    if not any(open_.short for open_ in tx.agent.invitations.values()) and not any(
        one.served_links for one in tx.agent.connections.values()
    ):
        return  # the usual case
    wanted: dict[str, set[str]] = {}
    for link, open_ in tx.agent.invitations.items():
        short = open_.short
        if short is None or short.why or not is_usable(open_, tx.now):
            continue
        wanted.setdefault(short.connection, set()).add(short.oobid)
        one = tx.agent.connections.get(short.connection)
        if one is not None and not short.asked and _is_connected(one):
            _publish(tx, one, link, open_, short)
    for name, one in list(tx.agent.connections.items()):
        kept = wanted.get(name, set())
        if one.served_links - kept and _is_connected(one):
            sending.send(tx, name, short_links.keep(kept, tx.context.random))
            _put_served(tx, name, frozenset(kept))


def is_usable(open_: OpenInvitation, now: int) -> bool:
    """Whether a joiner can use it at this time (UTC ms), now or after another one cancels."""
    return open_.state_at(now) in (InvitationState.OPEN, InvitationState.CLAIMED)


def _publish(tx: Transaction, one: Connection, link: bytes, open_: OpenInvitation, short: ShortLink) -> None:
    sealed = short_links.seal(open_.invitation.url(), short.key)
    message = short_links.publish(
        short_links.Publication(short.oobid, sealed, open_.invitation.expires), tx.context.random
    )
    sending.send(tx, one.id, message)
    _put_short(tx, link, replace(short, asked=message.id))
    _put_served(tx, one.id, tx.agent.connections[one.id].served_links | {short.oobid})


def withdraw_all(tx: Transaction, name: str) -> None:
    """This connection is no mediator of ours any more: our links there end."""
    one = tx.agent.connections[name]
    if one.served_links and _is_connected(one) and sending.reachable(tx, name):
        sending.send(tx, name, short_links.keep((), tx.context.random))
    _put_served(tx, name, frozenset())
    for link, open_ in list(tx.agent.invitations.items()):
        if open_.short is not None and open_.short.connection == name:
            _put_short(tx, link, None)


def _put_short(tx: Transaction, link: bytes, short: ShortLink | None) -> None:
    open_ = tx.agent.invitations[link]
    tx.update_agent(invitations={**tx.agent.invitations, link: replace(open_, short=short)})


def _put_served(tx: Transaction, name: str, served: frozenset[str]) -> None:
    one = tx.agent.connections[name]
    tx.update_agent(connections={**tx.agent.connections, name: replace(one, served_links=served)})


def reconnected(tx: Transaction, name: str) -> None:
    """The mediator is connected again: it may have missed or lost our last messages, so repeat them."""
    for link, open_ in list(tx.agent.invitations.items()):
        if open_.short is not None and open_.short.connection == name and not open_.short.why:
            _put_short(tx, link, replace(open_.short, asked=""))
    served = tx.agent.connections[name].served_links
    if served:
        _put_served(tx, name, served | {""})  # differs from every set of ids: `update` sends `keep`


def receive(tx: Transaction, name: str, message: Message) -> bool:
    """Process the mediator's answer to a publication; False: it is another message. Raises RemoteError."""
    found = _asked(tx.agent, name, (message.thid, message.pthid))  # a report names it as its parent
    kind = short_links.kind_of(message)
    if found is None or not (kind in ("published", "refused") or problem.is_problem(message)):
        return kind in ("published", "refused")
    link, short = found
    given = short_links.Answer(why="unsupported") if kind is None else short_links.read_answer(message)
    if given.why:  # it serves nothing that it could drop, and an older mediator does not know the message
        _put_served(tx, name, tx.agent.connections[name].served_links - {short.oobid})
    _put_short(tx, link, replace(short, page=given.page, why=given.why))
    return True


def _asked(agent: Agent, name: str, ids: tuple[str | None, ...]) -> tuple[bytes, ShortLink] | None:
    """The link that was published to this connection in the message with one of these ids."""
    for link, open_ in agent.invitations.items():
        short = open_.short
        if short is not None and short.asked and short.connection == name and short.asked in ids:
            return link, short
    return None
