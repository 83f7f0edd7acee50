"""The welcome: the evidence that a joiner gets for a group, and the group that follows from it.

It is the event that adds the joiner, with its causal past: signed by the authors of all membership changes, and the
same for every request. The members' attestations come with it (`attestation.py`).
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.crypto.encoding import compact_json
from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, Event
from zerochat.group.event_log.signing import upgraded_after
from zerochat.group.links import rate_limits
from zerochat.group.membership import add_of, ancestors, attestation, genesis_of, heads_of, resolve_view
from zerochat.group.state import Admissions, Chain, EventLog, Group, Join, Links, Profile, TrustState
from zerochat.group.sync import ring_starts
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import RUNS_MAX, Run, decompress_runs, read_runs
from zerochat.group.wire.messages import WELCOME_BYTES_MAX, AttestationBody, WelcomeBody

ATTESTATIONS_PER_MEMBER = 2
"""How many of the other members' attestations a joiner gets for each member, if there are as many."""
ATTESTATION_HEADS_MAX = 8
PART_WORK_US, READ_WORK_US = 500, 60
"""The work of opening a part of a welcome, and of reading one of its events, us."""


# --- sending --------------------------------------------------------------------------------------------------------


def admission_event_of(group: Group, member: str) -> str | None:
    """The id of our add event for a member."""
    known: _Additions | None = group.view.__dict__.get("additions")
    if known is None or known.control is not group.control or known.author != group.me:
        known = group.view.__dict__["additions"] = _Additions(group.control, group.me)
        for name, one in group.control.items():
            if one.type == ADD and one.author == group.me:
                known.by_member.setdefault(add_of(one).member, name)
    return known.by_member.get(member)


class _Additions(Struct):
    """Our add events among these membership events, kept with their view: a list of members asks for each."""

    control: Mapping[str, Event]
    author: str
    by_member: dict[str, str] = field(default_factory=dict)


def attestations_for(group: Group, member: str, entry: str, past: Mapping[str, Event]) -> list[dict[str, object]]:
    """Our own attestation that this is everything, and as many of the other members' attestations as it takes to
    confirm each member; members who joined first come first."""
    attestations: list[dict[str, object]] = [
        {"member": group.me, "heads": [entry], "signature": attestation.sign_heads(group.seed, group.id, (entry,))}
    ]
    adds = {add_of(event).member: event for event in past.values() if event.type == ADD}
    confirmed = dict.fromkeys(adds, 0)
    for did in sorted(group.view.members, key=lambda did: (group.view.members[did].joined, did)):
        attested = group.trust.attestations.get(did)
        if attested is None or did == member or len(attested.heads) > ATTESTATION_HEADS_MAX:
            continue
        covered = ancestors(past, (head for head in attested.heads if head in past))
        for other, event in adds.items():
            if confirmed[other] < ATTESTATIONS_PER_MEMBER and event.id in covered and did not in (other, event.author):
                if attestations[-1]["member"] != did:
                    attestations.append({"member": did, "heads": list(attested.heads), "signature": attested.sig})
                confirmed[other] += 1
    return attestations


def welcome_parts(past: Mapping[str, Event], attestations: Sequence[Mapping[str, object]]) -> list[list[Event]]:
    """These events, causes first, in parts that fit a message; the first part leaves room for these attestations."""
    size = sum(len(compact_json(one)) for one in attestations)
    found: list[list[Event]] = [[]]
    for event in sorted(past.values(), key=lambda e: (e.lamport, e.author, e.id)):
        size += len(event.record)
        if found[-1] and (size > WELCOME_BYTES_MAX or len(found[-1]) == RUNS_MAX):
            found.append([])
            size = len(event.record)
        found[-1].append(event)
    return found


# --- receiving ------------------------------------------------------------------------------------------------------


def read_welcome(body: WelcomeBody) -> tuple[list[Event], Sequence[AttestationBody]]:
    """The events and the attestations in a part of a welcome. Raises Malformed."""
    runs, attestations = body.runs, body.attestations
    if body.packed:
        runs, attestations = decompress_runs(body.packed, tuple[list[Run], list[AttestationBody]])
    return list(read_runs(body.group, runs)), attestations


def read_charged(tx: Transaction, link: bytes, body: WelcomeBody) -> tuple[list[Event], Sequence[AttestationBody]]:
    """The same, at the expense of the inviter of our join on this link. Raises TooMuchWork too."""
    rate_limits.charge_inviter_work(tx, link, PART_WORK_US)
    events, attestations = read_welcome(body)
    rate_limits.settle_inviter_work(tx, link, READ_WORK_US * len(events))
    return events, attestations


def group_from_welcome(join: Join, control: dict[str, Event], since: int) -> Group:
    """The group that we are a member of by this evidence, whose events are checked. Raises RemoteError where it is
    invalid.

    The evidence is the event that adds us, with its causal past and nothing else; so every member that accepts the
    event has all of it.
    """
    assert join.contact is not None
    inviter = join.relationship.member
    entries = [
        name
        for name, one in control.items()
        if one.type == ADD and one.author == inviter and add_of(one).member == join.me
    ]
    if join.group not in control or len(entries) != 1 or ancestors(control, entries) != control.keys():
        raise Refused(why="a welcome to another group, without us, or with additional events")
    view = resolve_view(control)
    if join.me not in view.members or inviter not in view.members:
        raise Refused(why="a welcome for or by a non-member")
    attestations = {}
    for member, attested in join.attestations.items():
        if member in view.members and member != join.me:
            attestation.check_heads(member, join.group, attested.heads, attested.sig)
            attestations[member] = attested
    if inviter not in attestations or attestations[inviter].heads != tuple(entries):
        raise Refused(why="a welcome without its author's attestation")
    is_ring, joined = view.path == "ring", control[entries[0]].lamport
    chain = ring_starts.begun(control, joined, inviter, since) if is_ring else Chain.after(since)
    genesis = control[join.group]
    founding = genesis_of(genesis)
    if founding.envelope != join.invitation.envelope:
        raise Refused(why="a group with other envelopes than its invitation")
    return Group(
        id=join.group,
        name=founding.name,
        profile=Profile(founding.keys, founding.path, founding.accountability, founding.envelope),
        state="active",
        me=join.me,
        seed=join.seed,
        contact=join.contact,
        control=control,
        view=view,
        created=genesis.time,
        joining=Admissions(event=entries[0]),
        trust=TrustState(attestations=attestations),
        links=Links(relationships={inviter: join.relationship}),
        log=EventLog(
            chains={inviter: replace(chain, upgraded=upgraded_after(control, entries[0], since))},
            lamport=max(event.lamport for event in control.values()),
            heads=heads_of(control),
        ),
    )
