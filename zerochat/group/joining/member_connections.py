"""Member connections of a joiner: from the welcome to connected links with the confirmed members.

A joiner connects to all confirmed members at once, and to the others when another member confirms them
(`attestation.py`) or when no member is left who could. In a group with strict agreement the join is complete when all
reachable members have signed for the joiner's events, and the joiner leaves again if one of them contradicts. Members
that are offline are not waited for.
"""

from typing import Any

from msgspec.structs import replace

from zerochat.crypto.primitives import ed25519_to_x25519_public
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import LocalError, Refused
from zerochat.group.effects import Disconnect, Notify, RevokeClient, SendEnvelope
from zerochat.group.joining import welcome
from zerochat.group.links import mediator_mail, neighbours, peers, ring_links
from zerochat.group.links.contact import member_link
from zerochat.group.links.relationship import pack
from zerochat.group.membership import attestation, fork_proof, leave, member_names
from zerochat.group.notifications import JoinPhase, JoinProgress, MemberConnections, ViewChanged, ViewDisagreement
from zerochat.group.state import AttestationConflict, Group, Join, JoinState, ViewAttestation
from zerochat.group.state.external import HeldEnvelope
from zerochat.group.state.joins import ADMITTED
from zerochat.group.sync import acknowledgements, backfill
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import MEMBER_CONNECTIONS, MemberConnectionsBody, SyncBody

CONNECT_MS = 8_000
"""How long a joiner waits for one more member before its join is complete with those it has."""
ATTESTATION_MS = 4_000
"""How long it waits for members who could confirm others."""
COMPARISON_MS = 26_000
"""How much longer it compares attestations; with strict agreement it waits as long for all reachable members."""
NEVER_CONNECTED_MS = 600_000
"""A member admitted this long ago that never sent a message has probably failed to join."""


class JoinFailed(LocalError):
    """You have not joined: {why}. {remedy}"""


# --- the join's state -----------------------------------------------------------------------------------------------


def notify_progress(
    tx: Transaction, join: Join, phase: JoinPhase, text: str, connected: int = 0, members: int = 0, error: str = ""
) -> None:
    tx.emit(Notify(JoinProgress(join.id, phase, text, join.group, connected, members, error)))


def inviter_key(tx: Transaction, join: Join) -> bytes | None:
    """The CURVE client key with which an inviter that only dials out can call us back: that of the invitation.

    None where it must not be allowed: the maker of the invitation need not own the key, which could be a member's.
    """
    key = ed25519_to_x25519_public(join.invitation.key)
    members = (group.view.known(member) for group in tx.agent.groups.values() for member in group.links.peers)
    if peers.is_invitation_key(tx, key) or any(one is not None and key == one.transport for one in members):
        return None
    return key


def update_join(tx: Transaction, link: bytes, state: JoinState | None = None, **fields: Any) -> Join:
    """Change fields of a join, and its state."""
    known = tx.agent.joins[link]
    join = known.moved_to(state or known.state, **fields)
    tx.update_agent(joins={**tx.agent.joins, link: join})
    return join


def end_exchange(tx: Transaction, link: bytes, state: JoinState) -> Join:
    """End the exchange over the invitation's link, except for a withdrawal."""
    cancelling = tx.agent.joins[link].state is JoinState.CANCELLING
    join = update_join(tx, link, JoinState.CANCELLING if cancelling else state, welcome_parts={}, checking=False)
    if not cancelling:
        disconnect(tx, link)
    return join


def disconnect(tx: Transaction, link: bytes) -> None:
    """Close the invitation's link of a finished join."""
    join = tx.agent.joins[link]
    if join.invitation.endpoint is None and (key := inviter_key(tx, join)) is not None:
        tx.emit(RevokeClient(key))
    tx.emit(Disconnect(link))
    group = tx.agent.groups.get(join.group)
    member = group is not None and group.me == join.me  # it may be leaving, and must inform the members
    if join.state is JoinState.FAILED and join.group and not member:
        tx.emit(Disconnect(link_to_inviter(join)))


def send_to_inviter(tx: Transaction, link: bytes, envelope: bytes) -> None:
    """Send an envelope to the inviter, over its mediator if there is no link."""
    join = tx.agent.joins[link]
    candidates = join.invitation.mail
    if link in tx.agent.links_up or not candidates:
        tx.emit(SendEnvelope(link, envelope))
    else:
        # A user is waiting, so a route that failed is tried all the same.
        working = [route for route in candidates if mediator_mail.is_working(tx, route.uri)]
        held = HeldEnvelope(join.relationship.theirs or join.invitation.did, envelope)
        ways, by_user = working or candidates[:1], join.voucher is None
        mediator_mail.post_or_hold(tx, link.hex(), join.seed, ways, held, nearest_inviter(tx, join), by_user=by_user)


def nearest_inviter(tx: Transaction, join: Join) -> AddressKind:
    """The nearest kind of address at which we may reach the inviter: any, where the user has been given the invitation;
    an invitation to a private conversation has come from a member."""
    return AddressKind.LOOPBACK if join.voucher is None else mediator_mail.nearest_kind(tx, join.seed)


def link_to_inviter(join: Join) -> bytes:
    """The member link between us and the inviter."""
    return member_link(join.group, join.me, join.relationship.member)


def fail_join(tx: Transaction, link: bytes, why: str, remedy: str, conflict: AttestationConflict | None = None) -> None:
    error = JoinFailed(why=why, remedy=remedy)
    end_exchange(tx, link, JoinState.FAILED)
    join = update_join(tx, link, conflict=conflict)
    notify_progress(tx, join, "failed", error.sentence(), error=error.code)


# --- connecting -----------------------------------------------------------------------------------------------------


def connect_members(tx: Transaction, link: bytes) -> None:
    """We are a member: connect to all members that more than one member confirms. The group is in the state."""
    name = tx.agent.joins[link].group
    tx.update_trust(name, attestation_deadline=tx.now + ATTESTATION_MS)
    tx.update_trust(name, quarantine=attestation.unconfirmed_members(tx.group(name), late=False))
    group = tx.group(name)
    for member in sorted(group.others):
        if member not in group.trust.quarantine:
            peers.add_peer(tx, name, member)
    ring_links.view_changed(tx, name)
    tx.set_timer(TimerKind.ANTI_ENTROPY, name, 1)
    tx.set_timer(TimerKind.JOIN_PROGRESS, link.hex(), CONNECT_MS)
    tx.set_timer(TimerKind.ATTESTATION, name, ATTESTATION_MS)
    tx.emit(Notify(ViewChanged(name)))
    compare_attestations(tx, name)
    update_join_progress(tx, link)


def receive_attestation(tx: Transaction, name: str, member: str, body: SyncBody) -> None:
    """A member's signed attestation in its `sync`. Raises Unauthentic or Malformed."""
    group = tx.group(name)
    if body.group != name or not body.attestation or member not in group.view.members:
        return
    known = group.trust.attestations.get(member)
    if known is not None and known.at and (known.heads, known.sig) == (tuple(body.heads), body.attestation):
        return
    attestation.check_heads(member, name, body.heads, body.attestation)
    attestations = {did: attested for did, attested in group.trust.attestations.items() if did in group.view.members}
    confirms = group.trust.attestation_deadline > 0 and attestation.covers(
        group.control, body.heads, group.joining.event
    )
    attested = ViewAttestation(tuple(body.heads), body.attestation, max(1, tx.now), confirms)
    tx.update_trust(name, attestations={**attestations, member: attested})


def compare_attestations(tx: Transaction, name: str) -> None:
    """Compare the members' attestations with the events that we began with, and connect to newly confirmed members."""
    group = tx.group(name)
    if not group.trust.attestation_deadline or group.state != "active":
        return
    for member in attestation.contradicting_members(group):
        if member not in group.trust.dissenting:
            _handle_conflict(tx, name, member)
    group = tx.group(name)
    if group.state != "active":
        return
    late = tx.now >= group.trust.attestation_deadline
    watched = group.trust.quarantine or group.trust.dissenting
    found = attestation.unconfirmed_members(group, late=late) if watched else ()
    if not group.trust.dissenting:  # without a contradiction no peer is lost
        found = tuple(did for did in found if did in group.trust.quarantine)
    if found != group.trust.quarantine:
        tx.update_trust(name, quarantine=found)
        for did in found:
            if did in group.links.peers:
                peers.close_peer(tx, name, did)
        for did in group.trust.quarantine:
            if did not in found and did in group.view.members:
                peers.add_peer(tx, name, did)
        ring_links.view_changed(tx, name)
        tx.emit(Notify(ViewChanged(name)))
        if not found:
            for did in tx.group(name).links.peers:
                acknowledgements.schedule_ack(tx, name, did)  # now we endorse all events that we have
    if late:
        fork_proof.send_proofs(tx, name)
    _finish_comparison(tx, name)


def _is_strict(group: Group) -> bool:
    return group.view.policy.agreement == "strict"


def _finish_comparison(tx: Transaction, name: str) -> None:
    """End the comparison once every member is confirmed and has attested."""
    group = tx.group(name)
    late, last = tx.now >= group.trust.attestation_deadline, tx.now >= group.trust.attestation_deadline + COMPARISON_MS
    missing = [
        m
        for m in group.links.peers
        if m in group.view.members and not (m in group.trust.attestations and group.trust.attestations[m].at)
    ]
    if late and _is_strict(group):
        missing = [member for member in missing if mediator_mail.reachable(tx, name, member)]
    # A member that left at once, and whose last attestation refers to unknown events, has contradicted no other.
    if not group.trust.quarantine and (
        last or not (missing or attestation.contradicting_members(group, certain=False))
    ):
        tx.update_trust(name, attestation_deadline=0)
        tx.set_timer(
            TimerKind.GAPS, name, 1, if_unset=True
        )  # members that have not talked to us by now may not be able to
    elif late and not last:
        tx.set_timer(TimerKind.ATTESTATION, name, group.trust.attestation_deadline + COMPARISON_MS - tx.now)


def _connecting_link(tx: Transaction, name: str) -> bytes | None:
    """The link of the join that brought us into this group, while it is still connecting."""
    joins = tx.agent.joins.items()
    return next((k for k, one in joins if one.group == name and one.state is JoinState.CONNECTING), None)


def _handle_conflict(tx: Transaction, name: str, member: str) -> None:
    """A member's attestation contradicts our inviter's."""
    group = tx.group(name)
    tx.update_trust(name, dissenting=(*group.trust.dissenting, member))
    inviter = attestation.inviter_of(group)
    joins = tx.agent.joins.items()
    link = next((k for k, one in joins if one.group == name and one.state in ADMITTED), None)
    accepted = tx.agent.joins[link].attestations.get(inviter) if link is not None else None
    found = attestation.conflict_evidence(group, accepted, member) if accepted is not None else None
    if _is_strict(group) and (joining := _connecting_link(tx, name)) is not None:
        leave.leave(tx, group)
        why = attestation.dispute_clause(group, member)
        fail_join(tx, joining, why, "Ask the members by other means which of them is right.", found)
        return
    if link is not None:
        tx.update_agent(joins={**tx.agent.joins, link: replace(tx.agent.joins[link], conflict=found)})
    tx.emit(Notify(ViewDisagreement(name, "", attestation.disputed_sentence(group, member))))


def never_connected(group: Group, member: str, now: int) -> bool:
    """Whether we admitted this member and it has not sent anything within the time (`now` in UTC ms) that a join takes.
    Only the inviter can judge that, since others may have received messages that we have not. It stays a member until
    it is removed."""
    known, peer = group.view.members.get(member), group.links.peers.get(member)
    if group.state != "active" or known is None or known.added_by != group.me or peer is None or peer.last_received_at:
        return False
    entry = welcome.admission_event_of(group, member)
    return entry is not None and now >= group.control[entry].time + NEVER_CONNECTED_MS


# --- progress -------------------------------------------------------------------------------------------------------


def update_progress(tx: Transaction, name: str) -> None:
    """After a change in this group: connect to newly confirmed members, and report the progress of joins."""
    compare_attestations(tx, name)
    for link, one in tx.agent.joins.items():
        if one.group == name and one.state is JoinState.CONNECTING:
            update_join_progress(tx, link)


def update_join_progress(tx: Transaction, link: bytes, final: bool = False) -> None:
    """Report with how many members the joiner is connected, and complete the join when that is enough."""
    join = tx.agent.joins.get(link)
    if join is None or join.state is not JoinState.CONNECTING:
        return
    name = join.group
    group = tx.group(name)
    ready = [
        member
        for member in group.links.peers
        if member in group.links.relationships
        and group.links.relationships[member].established
        and mediator_mail.reachable(tx, name, member)
    ]
    awaited = [member for member in neighbours.awaited(group) if member not in ready]
    count, total = len(ready), len(ready) + len(awaited)
    undecided = _is_strict(group) and group.trust.attestation_deadline > 0
    if (final or not awaited) and not undecided:
        update_join(tx, link, JoinState.JOINED)
        backfill.start(tx, name)
        text = f"You are in {group.name}."
        if awaited:
            text += f" {count} of {total} members are connected; the others follow when they come online."
        notify_progress(tx, join, "joined", text, connected=count, members=total)
        _report_connections(tx, name, count, total)
        return
    if final:
        tx.set_timer(TimerKind.JOIN_PROGRESS, link.hex(), max(CONNECT_MS, group.trust.attestation_deadline - tx.now))
    if count > join.most_connected:  # where many join at once, connecting to all takes a while
        tx.set_timer(TimerKind.JOIN_PROGRESS, link.hex(), CONNECT_MS)
    if count != join.connected:
        most = max(count, join.most_connected)
        update_join(tx, link, connected=count, most_connected=most)
        text = f"You are in {group.name}; {count}/{total} members connected"
        text += (
            f", waiting for {member_names(group.view, awaited)}…"
            if awaited
            else "; comparing their views of the group…"
        )
        notify_progress(tx, join, "connecting", text, connected=count, members=total)
        step = max(1, total // 4)
        if count // step != join.connected // step and count < total:
            _report_connections(tx, name, count, total)


def _report_connections(tx: Transaction, name: str, connected: int, members: int) -> None:
    """Report our progress to the inviter."""
    group = tx.group(name)
    inviter = attestation.inviter_of(group)
    relationship = group.links.relationships.get(inviter)
    if inviter not in group.links.peers or relationship is None or not relationship.established:
        return
    if group.links.peers[inviter].link not in tx.agent.links_up:
        return  # not urgent, and by mail it would be late anyway
    body = {"group": name, "connected": connected, "members": members}
    message = Message(type=MEMBER_CONNECTIONS, id=new_id(tx.context.random), body=body)
    mediator_mail.send(tx, name, inviter, pack(relationship, message, tx.packer_of(name), tx.context.random))


def receive_connections_report(tx: Transaction, name: str, member: str, body: MemberConnectionsBody) -> None:
    """A joiner that we admitted reports its progress. Raises Refused."""
    group = tx.group(name)
    joiner = group.view.members.get(member)
    if body.group != name or joiner is None or joiner.added_by != group.me or body.connected > body.members:
        raise Refused(why="member connections of a member whom we did not admit")
    tx.emit(Notify(MemberConnections(name, member, body.connected, body.members)))
