"""View attestations: detecting that the inviter and the members present different histories to a joiner.

Everything in a welcome is signed by the members who caused it, so the inviter cannot forge an event. It can withhold
events from the joiner, or present different histories to different members (equivocation). Members therefore sign the
heads of the membership events that they have, which stand for the whole causal past, and send this attestation with
every `sync`. The inviter passes on the attestations of the others.

The event that adds the joiner names every head that its author knew. It bounds what the joiner was given
(`Group.entry`). A member who talks to the joiner has accepted an event that adds it, and so has that whole past too,
unless the inviter created two such events. Honest members are therefore never accused, however late an event arrives:
only a signed attestation that does not cover the entry event is a contradiction.

Two members contradict each other only if the inviter created two concurrent add events. Members who have only one of
the two receive both as a fork proof (`fork_proof.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key_bytes
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify
from zerochat.errors import Malformed
from zerochat.group.effects import Notify
from zerochat.group.event_log.event import ADD, CONTROL, Event, load_event, parse_event
from zerochat.group.membership import add_of, ancestors, heads_of, log_of, resolve_view
from zerochat.group.membership.resolve import RecentCache
from zerochat.group.notifications import ViewDisagreement
from zerochat.group.state import AttestationConflict, Difference, Group, Join, ViewAttestation
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import HEADS_MAX

RECORDS_MAX = 16
"""Membership events in one piece of evidence."""
EVIDENCE_TYPE = "https://zerochat.org/disagreement/1.0"

A = TypeVar("A")

_answers: RecentCache[tuple[int, ...], tuple[tuple[object, ...], Any]] = RecentCache()
"""Cached results by the identities of their arguments. The arguments are stored with the result, so no other object can
have the same identity."""


# --- attestations ---------------------------------------------------------------------------------------------------


def _heads_bytes(group: str, heads: Iterable[str]) -> bytes:
    return canonical_json(["zerochat/heads/1", group, list(heads)])


@lru_cache(maxsize=256)
def sign_heads(seed: bytes, group: str, heads: tuple[str, ...]) -> str:
    """The signature of the member with this seed that these are the heads of its membership events (base64url,
    Ed25519). Everyone who knows the member's group key can verify it."""
    return b64url(ed25519_sign(seed, _heads_bytes(group, heads)))


def check_heads(member: str, group: str, heads: Iterable[str], signature: str) -> None:
    """Raise Unauthentic unless the member has signed these heads; Malformed for an invalid signature."""
    ed25519_verify(did_key_bytes(member), _heads_bytes(group, heads), b64url_bytes(signature))


# --- conclusions ----------------------------------------------------------------------------------------------------


def inviter_of(group: Group) -> str:
    """The member who admitted us; empty if we founded the group."""
    return group.control[group.joining.event].author if group.joining.event else ""


def covers(control: Mapping[str, Event], heads: Iterable[str], event: str) -> bool:
    """Whether this event is in the causal past of these heads, as far as the heads are known here."""
    return event in ancestors(control, (head for head in heads if head in control))


def _cached(about: tuple[object, ...], compute: Callable[[], A]) -> A:
    """The result of `compute`, cached for these immutable arguments. During a join every envelope needs the same
    results, and computing them takes a step for each pair of a membership event and a member."""
    answer: A = _answers.get(tuple(map(id, about)), lambda: (about, compute()))[1]
    return answer


def contradicting_members(group: Group, *, certain: bool = True) -> tuple[str, ...]:
    """The members whose own attestation does not cover the events that we began with. `certain`: count only
    attestations whose heads are all known here; otherwise also those that may still turn out to descend from our
    events."""
    about = group.trust.attestations, group.control, group.joining.event, certain
    return _cached(about, lambda: tuple(_contradicting_members(group, certain)))


def _contradicting_members(group: Group, certain: bool) -> Iterator[str]:
    for member, attested in sorted(group.trust.attestations.items()):
        if attested.at == 0 or attested.confirms or len(attested.heads) >= HEADS_MAX:
            continue
        known = all(head in group.control for head in attested.heads)
        if (known or not certain) and not covers(group.control, attested.heads, group.joining.event):
            yield member


def unconfirmed_members(group: Group, *, late: bool) -> tuple[str, ...]:
    """The members who are known only from their adder and our inviter, although another member could confirm them.

    The founder needs no confirmation, because the group id is the hash of its genesis event. The author of a membership
    event has signed for its causal past. Where no confirming member is left, members are trusted one by one: first the
    one with the most confirmers, then the one who joined first; each then confirms others. `late`: do not wait for
    members who have sent no attestation yet.
    """
    about = group.control, group.trust.attestations, group.view, group.joining.event, group.me, late
    return _cached(about, lambda: _unconfirmed_members(group, late))


def _unconfirmed_members(group: Group, late: bool) -> tuple[str, ...]:
    adds: dict[str, list[Event]] = {}
    for name in ancestors(group.control, [group.joining.event]):
        if (event := group.control[name]).type == ADD:
            adds.setdefault(add_of(event).member, [])
    for event in group.control.values():  # An author who equivocates may add a member once in each history.
        if event.type == ADD and add_of(event).member in adds:
            adds[add_of(event).member].append(event)
    inviter, view = inviter_of(group), group.view.members
    attested_by = _attested_events(group)
    rest = [did for did in sorted(adds) if did in view and did not in (group.me, inviter)]
    # A member's sole adder does not confirm it, nor does the member itself, nor our inviter.
    barred = {one: {one, inviter, *_sole({event.author for event in adds[one]})} for one in rest}
    confirmers = {
        one: {
            other
            for other, past in attested_by.items()
            if other not in barred[one] and any(event.id in past and other != event.author for event in adds[one])
        }
        for one in rest
    }
    silent = {
        did for did in view if late and (did not in group.trust.attestations or group.trust.attestations[did].at == 0)
    }
    trusted = {did for did in view if did == inviter or (did not in adds and view[did].added_by is None)}
    while rest:
        found = [one for one in rest if not confirmers[one].isdisjoint(trusted)]
        if not found:
            alone = [one for one in rest if trusted - silent <= barred[one]]
            if not alone:
                break
            known = {one: len(confirmers[one]) + bool(attested_by[one]) for one in alone}
            found = [min(alone, key=lambda one: (-known[one], view[one].joined, one))]
        trusted.update(found)
        rest = [one for one in rest if one not in found]
    return tuple(sorted(rest))


def _sole(authors: set[str]) -> set[str]:
    """The set itself if it has one element, else the empty set."""
    return authors if len(authors) == 1 else set()


def _attested_events(group: Group) -> dict[str, set[str]]:
    """The membership events that each other member has signed for, by its attestation and its own events."""
    signed: dict[str, set[str]] = {member: set() for member in group.view.members if member != group.me}
    for name, event in group.control.items():
        if event.author in signed:
            signed[event.author].add(name)
    for member, attested in group.trust.attestations.items():
        if member in signed:
            signed[member].update(head for head in attested.heads if head in group.control)
    known: dict[frozenset[str], set[str]] = {}  # nearly all members attest the same heads
    for names in map(frozenset, signed.values()):
        if names not in known:
            known[names] = ancestors(group.control, names)
    return {member: known[frozenset(names)] for member, names in signed.items()}


def withheld_events(group: Group) -> frozenset[str]:
    """The membership events that we do not pass on: those that add quarantined members, and their descendants. Events
    that our own chain already names are excluded, since omitting them would create a second history of ours."""
    if not group.trust.quarantine:
        return frozenset()
    named = ancestors(group.control, [name for name, event in group.control.items() if event.author == group.me])
    held: set[str] = set()
    for name, event in sorted(group.control.items(), key=lambda item: (item[1].lamport, item[0])):
        brings = event.type == ADD and add_of(event).member in group.trust.quarantine and name not in named
        if brings or not held.isdisjoint(event.deps):
            held.add(name)
    return frozenset(held)


def endorsed_events(group: Group) -> Mapping[str, Event]:
    """The membership events that we pass on and sign for."""
    held = withheld_events(group)
    return {name: event for name, event in group.control.items() if name not in held} if held else group.control


def citable_events(group: Group, kind: str, subject: object = None) -> Mapping[str, Event]:
    """The membership events that a new event of ours may name: the endorsed ones, so that every member can obtain them.
    All of them, where the event would not be permitted by the endorsed ones alone: we are not a member by those, or its
    `subject` is in quarantine."""
    found = endorsed_events(group)
    if found is group.control or kind not in CONTROL:
        return found
    suffices = subject not in group.trust.quarantine and group.me in resolve_view(found).members
    return found if suffices else group.control


def own_attestation(group: Group) -> tuple[tuple[str, ...], str]:
    """The heads that we endorse, and our signature. The signature is empty while we know more than we endorse, because
    it would look like a contradiction."""
    heads = heads_of(endorsed_events(group)) if group.trust.quarantine else log_of(group.control).sorted_heads
    heads = heads[:HEADS_MAX]
    return heads, "" if group.trust.quarantine else sign_heads(group.seed, group.id, heads)


def announce_forks(tx: Transaction, name: str, before: Mapping[str, tuple[str, str]]) -> None:
    """Notify the client of authors whose equivocation the membership events now prove, except those known before."""
    group = tx.group(name)
    for author in group.view.forked:
        if author not in before and author not in group.trust.fork_proofs:
            tx.emit(Notify(ViewDisagreement(name, author, forked_sentence(group, author))))


# --- warnings -------------------------------------------------------------------------------------------------------


class MembershipWarning(Struct, frozen=True):
    """A reason not to trust the member list, shown to the user."""

    name: str
    subject: str
    """The member that the warning is about."""
    member: str
    """The member who contradicts the others; empty: unknown."""
    text: str


def warnings_of(group: Group) -> list[MembershipWarning]:
    """The open warnings of a group that we are in, without those that the user has dismissed."""
    if group.state != "active":
        return []
    found = [MembershipWarning(f"forked {did}", did, did, forked_sentence(group, did)) for did in forked_members(group)]
    found += [
        MembershipWarning(f"disputed {did}", did, "", disputed_sentence(group, did)) for did in group.trust.dissenting
    ]
    found += [
        MembershipWarning(f"differs {one.author} {one.member}", one.author, "", differs_sentence(group, one))
        for one in group.sync.differences
    ]
    found += [
        MembershipWarning(f"keys {did}", did, did, forged_keys_sentence(group, did)) for did in group.dcgka.forgers
    ]
    return [one for one in found if one.name not in group.trust.dismissed_warnings]


def forked_members(group: Group) -> list[str]:
    """The members with a proof of equivocation, sorted."""
    return sorted({*group.view.forked, *group.trust.fork_proofs})


def forked_sentence(group: Group, author: str) -> str:
    return f"{_label(group, author)} signed two different histories. Do not trust what it reports about others."


def forged_keys_sentence(group: Group, author: str) -> str:
    return (
        f"{_label(group, author)} sent different keys to different members, which is proved. Some may receive its"
        " messages late."
    )


def differs_sentence(group: Group, found: Difference) -> str:
    author, member = _label(group, found.author), _label(group, found.member)
    if found.author == group.me:
        return (
            f"{member} has a different version of your own messages from number {found.seq} on. Either another copy of "
            f"your profile was in use, or {member} or its source presents false events."
        )
    if found.relayed_by:
        return (
            f"{member} has a different message number {found.seq} of {author} than {_label(group, found.relayed_by)} "
            "passed on. One of these three members or their sources presents false events; there is no proof which."
        )
    return (
        f"{member} has different messages of {author} than you from number {found.seq} on. Either {author} sent two "
        f"versions, or {member} or its source presents false events; there is no proof which."
    )


def dispute_clause(group: Group, member: str) -> str:
    """The clause that a member's attestation contradicts that of our inviter, without a full stop."""
    both = f"{_label(group, member)} and {_label(group, inviter_of(group))}"
    return f"{both} disagree about who is a member of {group.name}"


def disputed_sentence(group: Group, member: str) -> str:
    consequence = "Members known to only one of them receive nothing from you until another member confirms them."
    return f"{dispute_clause(group, member)}. {consequence}"


def _label(group: Group, did: str) -> str:
    known = group.view.known(did)
    return known.label if known is not None else did


# --- evidence -------------------------------------------------------------------------------------------------------


def conflict_evidence(group: Group, accepted: ViewAttestation, member: str) -> AttestationConflict:
    """Evidence that a member's attestation contradicts that of our inviter, which is `accepted`."""
    attested, control = group.trust.attestations[member], group.control
    begun = ancestors(control, [group.joining.event])
    theirs = ancestors(control, (head for head in attested.heads if head in control))
    apart = sorted((begun ^ theirs) - {group.joining.event}, key=lambda name: (control[name].lamport, name))
    names = [group.joining.event, *apart][:RECORDS_MAX]
    attestations = ((inviter_of(group), accepted), (member, attested))
    return AttestationConflict(group.id, attestations, tuple(control[name].record for name in names))


def fork_evidence(
    control: Mapping[str, Event], group: str, forked: Mapping[str, tuple[str, str]]
) -> AttestationConflict:
    """Evidence of equivocation: two membership events of one author at one position of its chain, or two that are
    concurrent."""
    names = [name for _, both in sorted(forked.items()) for name in both][:RECORDS_MAX]
    return AttestationConflict(group, (), tuple(control[name].record for name in names))


def evidence_json(join: Join) -> dict[str, Any]:
    """The conflicting attestations that a join has found, as self-contained JSON (`check_evidence`); empty if there are
    none."""
    found = join.conflict
    if found is None:
        return {}
    attestations = [
        {"member": member, "heads": list(attested.heads), "signature": attested.sig}
        for member, attested in found.attestations
    ]
    events = [load_event(record).wire for record in found.records]
    return {"type": EVIDENCE_TYPE, "group": found.group, "attestations": attestations, "events": events}


def check_evidence(evidence: Mapping[str, Any]) -> None:
    """Raise Unauthentic unless every signature in the evidence is valid; Malformed for any other shape."""
    try:
        if evidence["type"] != EVIDENCE_TYPE:
            raise Malformed(why="evidence of another kind")
        for one in evidence["attestations"]:
            check_heads(one["member"], evidence["group"], one["heads"], one["signature"])
        events = [parse_event(one) for one in evidence["events"]]
    except (KeyError, TypeError, AttributeError):
        raise Malformed(why="evidence of another shape") from None
    for event in events:
        event.check_signature()
        if event.group_id != evidence["group"]:
            raise Malformed(why="evidence about several groups")
