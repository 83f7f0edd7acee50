"""Who is in: a pure function from the group's membership events to its view, the same at every member.

The events form a graph of their own, of which everybody gets all of it: a membership event's `deps` name every head
that its author knew. So the view at any event is exactly the event's causal past, whatever else was lost (`protocols`
of decentralised membership: p2panda, the DCGKA paper). Nobody is ever added twice: whoever comes back does so with a
new key.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from zerochat.crypto.encoding import b64url, canonical_json
from zerochat.crypto.primitives import sha256
from zerochat.didcomm.did import resolve
from zerochat.errors import Malformed, Refused
from zerochat.group.contact import CONTACT_CHARS_MAX, check_consent, reach_of
from zerochat.group.event import ADD, GENESIS, LEAVE, Did, Event
from zerochat.names import fault_of

MEMBERS_MAX = 64
"""Pairwise keys cost one envelope a member and message; beyond this the other kinds of keys are the right choice."""
CONTROL_MAX = 4096
"""Membership events of one group. Every one is kept for ever and given to every newcomer, so they are counted."""

_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Contact = Annotated[str, msgspec.Meta(max_length=CONTACT_CHARS_MAX)]
_Word = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]


class GenesisBody(msgspec.Struct, frozen=True):
    """A group begins: its name, what it chose, and its first member."""

    name: _Label
    keys: _Word
    path: _Word
    accountability: _Word
    nonce: str
    label: _Label
    contact: _Contact
    envelope: _Word


class AddBody(msgspec.Struct, frozen=True):
    """Somebody joins: with which key, under which name, reached where, and its own word that it wants to."""

    member: Did
    label: _Label
    contact: _Contact
    consent: Annotated[str, msgspec.Meta(max_length=86)]


@dataclass(frozen=True, slots=True)
class Member:
    """One member as the membership events describe it."""

    did: str
    label: str
    contact: str
    """Its contact, a did:peer:4 in the long form."""
    joined: int
    """Lamport time of the event that brought it in."""
    added_by: str | None


@dataclass(frozen=True, slots=True)
class View:
    """The members as one member believes them."""

    members: dict[str, Member]
    former: dict[str, Member]
    """Who has left."""
    checksum: str
    """Equal at two members exactly when they have heard the same membership events (base64url, 22 characters)."""


def genesis_of(event: Event) -> GenesisBody:
    try:
        body = msgspec.convert(event.body, GenesisBody)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"genesis: {error}") from None
    if fault_of(body.name) or fault_of(body.label):
        raise Malformed(why="genesis: a name that cannot be shown")
    return body


def add_of(event: Event) -> AddBody:
    try:
        body = msgspec.convert(event.body, AddBody)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"add: {error}") from None
    if fault_of(body.label):
        raise Malformed(why="add: a name that cannot be shown")
    return body


def ancestors(control: Mapping[str, Event], heads: Iterable[str]) -> set[str]:
    """The ids of these membership events and of everything before them."""
    seen: set[str] = set()
    todo = list(heads)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += control[name].deps
    return seen


def heads_of(control: Mapping[str, Event]) -> tuple[str, ...]:
    """The membership events that no other one names, sorted."""
    return tuple(sorted(set(control).difference(*(event.deps for event in control.values()))))


def resolve_view(control: Mapping[str, Event]) -> View:
    """The view that follows from a causally closed set of membership events, whatever the order of their arrival."""
    seated: dict[str, Member] = {}
    gone: set[str] = set()
    for event in sorted(control.values(), key=lambda e: (e.lamport, e.id)):
        if event.type == GENESIS:
            founder = genesis_of(event)
            seated[event.author] = Member(event.author, founder.label, founder.contact, event.lamport, None)
        elif event.type == ADD:
            body = add_of(event)
            # Whoever was added twice at once came in with the first of the two.
            seated.setdefault(body.member, Member(body.member, body.label, body.contact, event.lamport, event.author))
        elif event.type == LEAVE:
            gone.add(event.author)
    members = {did: member for did, member in sorted(seated.items()) if did not in gone}
    former = {did: member for did, member in sorted(seated.items()) if did in gone}
    digest = sha256(canonical_json(["zerochat/view/1", list(members), list(heads_of(control))]))
    return View(members, former, b64url(digest[:16]))


def check_control(event: Event, control: Mapping[str, Event]) -> None:
    """Refuse a membership event that its author had no right to make, seen from its own causal past.

    All of its `deps` must be in `control` already. Raises Unauthentic, Malformed or Refused.
    """
    event.check_signature()
    view = resolve_view({name: control[name] for name in ancestors(control, event.deps)})
    _check_right(event, control, view.members, view.former)


def check_all(events: Iterable[Event]) -> dict[str, Event]:
    """The same for a whole past at once, causes first; returns it by id.

    Where an event names every head so far, as nearly all do, its past is all that was before, and need not be worked
    out.
    """
    control: dict[str, Event] = {}
    heads: set[str] = set()
    members: set[str] = set()
    former: set[str] = set()
    for event in events:
        if any(dep not in control for dep in event.deps):
            raise Refused(why="evidence that does not hang together")
        event.check_signature()
        if heads == set(event.deps):
            _check_right(event, control, members, former)
        else:
            view = resolve_view({name: control[name] for name in ancestors(control, event.deps)})
            _check_right(event, control, view.members, view.former)
        control[event.id] = event
        heads = (heads - set(event.deps)) | {event.id}
        if event.type == LEAVE:
            members.discard(event.author)
            former.add(event.author)
        else:
            joined = event.author if event.type == GENESIS else add_of(event).member
            members |= {joined} - former
    return control


def _check_right(event: Event, control: Mapping[str, Event], members: Collection[str], former: Collection[str]) -> None:
    """Refuse what these members, as the event's past has them, could not have done."""
    if event.type == GENESIS:
        if control or event.deps:
            raise Refused(why="a second beginning of the group")
        reach_of(resolve(genesis_of(event).contact))
        return
    if event.author not in members:
        raise Refused(why="a membership event by somebody who was not a member")
    if event.lamport <= max(control[name].lamport for name in event.deps):
        raise Refused(why="a membership event older than its causes")
    if len(control) >= CONTROL_MAX and not _first_leave(event, control):
        raise Refused(why="too many membership events")
    if event.type == ADD:
        body = add_of(event)
        if len(members) >= MEMBERS_MAX:
            raise Refused(why="a member too many")
        if body.member in members or body.member in former:
            raise Refused(why="a key that has been a member before")
        check_consent(body.consent, event.group_id, event.author, body.member, body.label, body.contact)
        reach_of(resolve(body.contact))


def _first_leave(event: Event, control: Mapping[str, Event]) -> bool:
    """Whether somebody leaves who has not yet: that must be possible however full the log is."""
    return event.type == LEAVE and not any(e.type == LEAVE and e.author == event.author for e in control.values())


def missing(control: Mapping[str, Event], their_heads: Collection[str]) -> list[Event]:
    """The membership events that a peer with these heads lacks, causes first. Heads unknown to us are passed over."""
    theirs = ancestors(control, (name for name in their_heads if name in control))
    return sorted((e for name, e in control.items() if name not in theirs), key=lambda e: (e.lamport, e.author, e.id))
