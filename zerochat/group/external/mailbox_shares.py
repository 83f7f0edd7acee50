"""Our shared mailboxes: which ones we have at our mediators (`didcomm/protocols/shared_mailbox.py`).

We share a mailbox by the exported secret that the members prefer, and keep the one before until the next change, for
members that know only that. The list goes to each mediator when it changes, after each reconnection, and again while it
is unanswered; what the mediator has confirmed is announced to the members. `links/shared_mailboxes.py` says what they
are for.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import problem, shared_mailbox
from zerochat.didcomm.protocols.mediation_client import MediationState
from zerochat.didcomm.protocols.shared_mailbox import SHARES_MAX
from zerochat.group.dcgka.membership import membership_of
from zerochat.group.external import sending
from zerochat.group.key_agreement import export
from zerochat.group.links import mediator_mail, neighbours
from zerochat.group.links.shared_mailboxes import SharedBox, announced, seed_of
from zerochat.group.membership.resolve import RecentCache
from zerochat.group.state import Agent, Connection, Group
from zerochat.group.state.external import Share
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Transaction

BEFORE_MAX = 1
"""Mailboxes of a group that are shared by an earlier secret."""
PREFERRED_CACHED = 64
_OUTDATED = Share("", "", 0)
"""Makes a list differ from every one that is wanted."""

_preferred: RecentCache[tuple[tuple[str, ...], int], tuple[object, tuple[str, ...]]] = RecentCache(PREFERRED_CACHED)
"""By the updates, and the identity of the membership, which is stored with it, so that no other one can have that. The
secrets are not, so that they are erased in time."""


def update(tx: Transaction) -> None:
    """Secrets, mailboxes or mediators may have changed: tell the mediators which mailboxes we share."""
    if not any(group.dcgka.keys.exported for group in tx.agent.groups.values()) and not any(
        one.shares for one in tx.agent.connections.values()
    ):
        return  # the usual case
    for name, one in list(tx.agent.connections.items()):
        if one.mediation is None or not _is_settled(one.mediation) or one.shares_asked:
            continue
        wanted = tuple(_wanted(tx.agent, one))[:SHARES_MAX]
        if [_key(share) for share in wanted] != [_key(share) for share in one.shares]:
            _ask(tx, name, wanted)


def _is_settled(state: MediationState) -> bool:
    """Whether a mediator is connected, and has answered for all of our mailboxes."""
    return state.phase == "granted" and state.connected and state.desired <= state.registered | state.refused


def _wanted(agent: Agent, one: Connection) -> Iterable[Share]:
    """What this mediator should share for us. Of each group the preferred secret comes first."""
    assert one.mediation is not None
    for name, group in agent.groups.items():
        number = group.links.mailbox.number
        box = mediator_mail.mailbox(group.seed, number)
        if group.state != "active" or not neighbours.is_forwarding(group) or box not in one.mediation.registered:
            continue
        valid = _valid(group)
        before = [share.update for share in one.shares if share.group == name and share.update in valid[1:]]
        known = {_key(share): share for share in one.shares}
        for update_ in dict.fromkeys((*valid[:1], *before[:BEFORE_MAX])):
            fresh = Share(name, update_, number)
            yield known.get(_key(fresh), fresh)


def _valid(group: Group) -> tuple[str, ...]:
    known, membership = group.dcgka.keys.exported, membership_of(group)
    return _preferred.get((tuple(known), id(membership)), lambda: (membership, export.preferred(known, membership)))[1]


def _key(share: Share) -> tuple[str, str, int]:
    return share.group, share.update, share.mailbox


def _ask(tx: Transaction, name: str, wanted: tuple[Share, ...]) -> None:
    one = tx.agent.connections[name]
    state, us = one.mediation, one.relationship
    assert state is not None and state.routing_did is not None
    claims = [
        shared_mailbox.share(
            seed_of(tx.group(share.group), SharedBox(state.routing_did, share.update)),
            mediator_mail.mailbox(tx.group(share.group).seed, share.mailbox),
            us.mine.did,
            us.theirs,
        )
        for share in wanted
    ]
    message = shared_mailbox.keep(claims, tx.context.random)
    _put(tx, name, shares=wanted, shares_asked=message.id)
    sending.send(tx, name, message)


def reconnected(tx: Transaction, name: str) -> None:
    """The mediator is connected again: it may have missed or lost our last list, so repeat it."""
    one = tx.agent.connections[name]
    if one.shares or one.shares_asked:
        known = (share for share in one.shares if share != _OUTDATED)
        _put(tx, name, shares=(*known, _OUTDATED), shares_asked="")


def polled(tx: Transaction, name: str) -> None:
    """Our last list is repeated where it is unanswered: it or its answer may be lost, and later lists wait for it."""
    if tx.agent.connections[name].shares_asked:
        reconnected(tx, name)


def receive(tx: Transaction, name: str, message: Message) -> bool:
    """Process the mediator's answer; False: it is another message. Raises RemoteError."""
    one = tx.agent.connections[name]
    is_answer = bool(one.shares_asked) and one.shares_asked in (message.thid, message.pthid)
    kind = shared_mailbox.kind_of(message)
    if not is_answer or not (kind == "kept" or problem.is_problem(message)):
        return kind == "kept"
    keys = shared_mailbox.read_kept(message) if kind == "kept" else frozenset()
    before = {group.id: announced(tx.agent, group) for group in tx.agent.groups.values()}
    assert one.mediation is not None and one.mediation.routing_did is not None
    mediator, groups = one.mediation.routing_did, tx.agent.groups
    shares = []
    for share in one.shares:
        seed = seed_of(groups[share.group], SharedBox(mediator, share.update)) if share.group in groups else b""
        shares.append(replace(share, kept=bool(seed) and shared_mailbox.key_of(seed) in keys))
    _put(tx, name, shares=tuple(shares), shares_asked="")
    for group in list(tx.agent.groups.values()):
        if group.state != "left" and announced(tx.agent, group) != before[group.id]:
            acknowledgements.announce_reach(tx, group.id)
    return True


def _put(tx: Transaction, name: str, *, shares: tuple[Share, ...], shares_asked: str) -> None:
    one = replace(tx.agent.connections[name], shares=shares, shares_asked=shares_asked)
    tx.update_agent(connections={**tx.agent.connections, name: one})
