"""Proof that a member has signed two histories, for those who cannot see it in the membership events that they have.

Mostly everybody sees it: both events get to everybody, as all of them do. But a newcomer does not hand on what brings
in whoever is in quarantine, nor what follows, and so it may alone hold one of the two. It shows both, with what they
rest on, to the members whom it trusts. They look at them and keep that it is so, and take nothing of it for true:
nobody becomes a member by being shown. It is said once to each; whoever misses it sees it when the quarantine ends.
"""

from collections.abc import Iterable, Mapping

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group.effects import Notify
from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import ancestors, attestation, check_control, resolve_view
from zerochat.group.notifications import Disagreement
from zerochat.group.state import Group
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import read_runs, write_runs
from zerochat.group.wire.messages import PROOF, ProofBody

WEIGHT = 1 << 20
"""What it counts for among the bytes that its sender may send (`conduct.py`): to look at it is work, and what is looked
at is not kept, so nothing else limits how often."""


def show(turn: Turn, name: str) -> None:
    """Show whomever we trust, and have not shown it yet, what it cannot see."""
    group = turn.group(name)
    if not group.quarantine or not group.view.forked:
        return
    runs = write_runs(_proof(group))
    for member in sorted(group.peers):
        relationship = group.relationships.get(member)
        trusted = member in group.view.members and member not in (*group.view.forked, *group.quarantine, *group.shown)
        if not trusted or relationship is None or not relationship.established:
            continue
        if not mediator_mail.reachable(turn, name, member):
            continue
        message = Message(type=PROOF, id=new_id(turn.moment.random), body={"group": name, "runs": runs})
        mediator_mail.send(turn, name, member, pack(relationship, message, turn.packer_of(name), turn.moment.random))
        turn.edit(name, shown=(*turn.group(name).shown, member))


def _proof(group: Group) -> list[Event]:
    """The two events of each who has signed two histories, and what we withhold of their past; causes first."""
    held, names = attestation.withheld(group), set[str]()
    for both in group.view.forked.values():
        needed = {*both, *(held & ancestors(group.control, both))}
        if len(names | needed) <= attestation.RECORDS_MAX:
            names |= needed
    return sorted((group.control[name] for name in names), key=lambda event: (event.lamport, event.id))


def hear(turn: Turn, name: str, sender: str, body: ProofBody) -> None:
    """Look at what a member shows us. Raises RemoteError where it proves nothing, because it does not hold."""
    group = turn.group(name)
    if body.group != name:
        raise Malformed(why="proof about another group")
    events = list(read_runs(name, body.runs))
    if len(events) > attestation.RECORDS_MAX:
        raise Refused(why="a proof without end")
    rate_limits.charge(turn, name, sender, WEIGHT)
    control = dict(group.control)
    for event in events:
        if not event.is_control or event.group_id != name:
            raise Refused(why="a proof of something else")
        if event.id not in control:
            check_control(event, control)
            control[event.id] = event
    _accuse(turn, name, resolve_view(control).forked, events)


def _accuse(turn: Turn, name: str, forked: Mapping[str, tuple[str, str]], shown: Iterable[Event]) -> None:
    group = turn.group(name)
    records = {**{event.id: event.record for event in shown}, **{one: e.record for one, e in group.control.items()}}
    for author, both in forked.items():
        if author in group.view.forked or author in group.accused or group.view.known(author) is None:
            continue
        group = turn.edit(name, accused={**group.accused, author: tuple(records[one] for one in both)})
        turn.say(Notify(Disagreement(name, author, attestation.forked_sentence(group, author))))
