"""Fork proofs: showing equivocation to members who do not have both conflicting events.

Membership events normally reach every member, which then sees a fork itself. A joiner, however, does not pass on the
events that add quarantined members, nor their descendants, so it may be the only one with both sides. It sends both
events and the past that they need to the members it trusts. The recipients verify the proof and record the fork; they
do not apply the events, so a proof adds no member. Each recipient gets a proof once; one that misses it sees the fork
when the quarantine ends.
"""

from collections.abc import Iterable, Mapping

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Notify
from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import ancestors, attestation, check_control, extend_control, log_of, resolve_view
from zerochat.group.notifications import ViewDisagreement
from zerochat.group.state import Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import read_runs, write_runs
from zerochat.group.wire.messages import FORK_PROOF, ForkProofBody

PROOF_WORK_US, RESOLVE_WORK_US = 5_000, 10
"""The work of checking a proof, and more for each known membership event; us. The result of a proof is not stored, so
nothing else limits how often one is sent."""


def send_proofs(tx: Transaction, name: str) -> None:
    """Send the fork proof to every trusted member that has not received it yet."""
    group = tx.group(name)
    if not group.trust.quarantine or not group.view.forked:
        return
    runs = write_runs(_proof(group))
    for member in sorted(group.links.peers):
        relationship = group.links.relationships.get(member)
        trusted = member in group.view.members and member not in (
            *group.view.forked,
            *group.trust.quarantine,
            *group.trust.proof_recipients,
        )
        if not trusted or relationship is None or not relationship.established:
            continue
        if not mediator_mail.reachable(tx, name, member):
            continue
        message = Message(type=FORK_PROOF, id=new_id(tx.context.random), body={"group": name, "runs": runs})
        mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random))
        tx.update_trust(name, proof_recipients=(*tx.group(name).trust.proof_recipients, member))


def _proof(group: Group) -> list[Event]:
    """The two events of each equivocating author, and the withheld part of their past; causes first."""
    held, names = attestation.withheld_events(group), set[str]()
    for both in group.view.forked.values():
        needed = {*both, *(held & ancestors(group.control, both))}
        if len(names | needed) <= attestation.RECORDS_MAX:
            names |= needed
    return sorted((group.control[name] for name in names), key=lambda event: (event.lamport, event.id))


def receive_proof(tx: Transaction, name: str, sender: str, body: ForkProofBody) -> None:
    """Verify a fork proof. Raises RemoteError where it is invalid."""
    group = tx.group(name)
    if body.group != name:
        raise Malformed(why="fork proof for another group")
    events = list(read_runs(name, body.runs))
    if len(events) > attestation.RECORDS_MAX:
        raise Refused(why="fork proof with too many events")
    rate_limits.charge_work(tx, name, sender, PROOF_WORK_US + RESOLVE_WORK_US * len(group.control))
    control = dict(group.control)
    for event in events:
        if not event.is_control or event.group_id != name:
            raise Refused(why="fork proof with other than membership events")
        if event.id not in control:
            work_us = log_of(control).work_us(event)
            rate_limits.charge_work(tx, name, sender, work_us, rate_limits.WORK_US_MAX)  # a proof is useful whole only
            check_control(event, control, sender)
            control, _ = extend_control(control, event)
    _record_forks(tx, name, resolve_view(control).forked, events)


def _record_forks(tx: Transaction, name: str, forked: Mapping[str, tuple[str, str]], shown: Iterable[Event]) -> None:
    group = tx.group(name)
    records = {**{event.id: event.record for event in shown}, **{one: e.record for one, e in group.control.items()}}
    for author, both in forked.items():
        if author in group.view.forked or author in group.trust.fork_proofs or group.view.known(author) is None:
            continue
        group = tx.update_trust(
            name, fork_proofs={**group.trust.fork_proofs, author: tuple(records[one] for one in both)}
        )
        tx.emit(Notify(ViewDisagreement(name, author, attestation.forked_sentence(group, author))))
