"""Complaints: the proof that a member has sent another one a different seed, shown to all members.

The victim cannot follow the author's ratchet until its next update, and gets what it posts by retransmission. Others
learn of it, so that they do not adopt that update, which the victim could not follow either.

On the ring a complaint is flooded: each member that has checked it passes it on to its peers, once for each author. So
an author causes one flood, with all complaints about it together; after that no update of it is adopted. A member that
was away then does not learn of it.
"""

from collections.abc import Container

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.dcgka import channels, ring_channels
from zerochat.group.effects import Measure, Notify
from zerochat.group.key_agreement.complaint import Complaint
from zerochat.group.key_agreement.key_event import KeyEvent
from zerochat.group.key_agreement.wire import direct_bytes, event_bytes, parse_direct, parse_key_event
from zerochat.group.links import mediator_mail, neighbours, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import attestation
from zerochat.group.notifications import ViewDisagreement
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import KEY_COMPLAINT, KeyComplaintBody

COMPLAINT_WORK_US = 500
"""The work of checking a complaint: a signature, a direct message."""


def publish(tx: Transaction, name: str, complaint: Complaint) -> None:
    """A member has sent us another seed than it has committed to: show all others that can be reached now.

    It could cause a message to every member with each update, so it has only as many as its rate limit allows, on the
    ring one. What we show contains the secret for its next message to us, so the channel begins anew.
    """
    author, group = complaint.event.author, tx.group(name)
    is_ring, is_known = neighbours.is_ring(group), author in group.dcgka.forgers
    _record(tx, name, complaint)
    if is_ring and not is_known:
        ring_channels.reset(tx, name, author, complaint.event.number, once=True)
        _show(tx, name, complaint, {author})
    elif not is_ring and rate_limits.spend_statement(tx, name, author) and channels.renew(tx, name, author):
        _show(tx, name, complaint, {author})


def _show(tx: Transaction, name: str, complaint: Complaint, but: Container[str]) -> None:
    """Send a complaint to our peers, except these."""
    group = tx.group(name)
    body = {
        "group": name,
        "event": b64url(event_bytes(complaint.event)),
        "direct": b64url(direct_bytes(complaint.direct)),
        "key": b64url(complaint.key),
    }
    if neighbours.is_ring(group):
        body["victim"] = complaint.direct.recipient
    message = Message(type=KEY_COMPLAINT, id=new_id(tx.context.random), body=body)
    for member, relationship in group.links.relationships.items():
        known = member in group.view.members and member not in but and relationship.established
        if known and mediator_mail.reachable(tx, name, member):
            mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random))


def receive(tx: Transaction, name: str, sender: str, body: KeyComplaintBody) -> None:
    """A member shows a proof that another one has sent it, or on the ring any member, a different seed. Raises
    RemoteError."""
    group = tx.group(name)
    if body.group != name or not group.mode.heals or sender not in group.view.members:
        raise Refused(why="a complaint of another group, or by a non-member")
    event, is_ring = parse_key_event(b64url_bytes(body.event), name), neighbours.is_ring(group)
    known = group.dcgka.forgers.get(event.author)
    if is_ring and known is not None:
        tx.emit(Measure("duplicate", "complaint"))
        return
    if known == event.id or group.view.known(event.author) is None:
        return
    rate_limits.charge_work(tx, name, sender, COMPLAINT_WORK_US)
    victim = body.victim if is_ring and body.victim else sender
    complaint = Complaint(event, parse_direct(b64url_bytes(body.direct), victim), b64url_bytes(body.key))
    complaint.check()
    _record(tx, name, complaint)
    if is_ring:
        _show(tx, name, complaint, {sender, victim, event.author})


def reject(tx: Transaction, name: str, event: KeyEvent) -> None:
    """Do not adopt this update if its author has provably sent different seeds with it, on the ring with any. The proof
    may come first."""
    group = tx.group(name)
    keys, forged = group.dcgka.keys, group.dcgka.forgers.get(event.author)
    if forged is None:
        return
    if neighbours.is_ring(group):
        of_author = {one for one, update in keys.operations.items() if update.author == event.author}
    else:
        of_author = {forged} & {event.id}
    if not of_author.isdisjoint(keys.pending):
        pending = tuple(one for one in keys.pending if one not in of_author)
        tx.update_dcgka(name, keys=replace(keys, pending=pending))


def _record(tx: Transaction, name: str, complaint: Complaint) -> None:
    """Do not adopt the update; warn the user, once for each author."""
    author, update = complaint.event.author, complaint.event.id
    dcgka = tx.group(name).dcgka
    group = tx.update_dcgka(name, forgers={**dcgka.forgers, author: update})
    reject(tx, name, complaint.event)
    if author not in dcgka.forgers:
        tx.emit(Notify(ViewDisagreement(name, author, attestation.forged_keys_sentence(group, author))))
