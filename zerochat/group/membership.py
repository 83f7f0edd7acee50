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

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json
from zerochat.crypto.primitives import sha256
from zerochat.didcomm.did import resolve
from zerochat.errors import BadName, Malformed, Refused
from zerochat.group.contact import CONTACT_CHARS_MAX, check_consent, reach_of
from zerochat.group.event import ADD, GENESIS, LEAVE, Did, Event
from zerochat.names import checked_name

MEMBERS_MAX = 64
"""Pairwise keys cost one envelope a member and message; beyond this the other kinds of keys are the right choice."""
CONTROL_MAX = 4096
"""Membership events of one group. Every one is kept for ever and given to every newcomer, so they are counted."""

_Key = Annotated[str, msgspec.Meta(min_length=43, max_length=43)]
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
    client_key: _Key
    contact: _Contact


class AddBody(msgspec.Struct, frozen=True):
    """Somebody joins: which key, under which name, reached where, and its own word that it wants to."""

    member: Did
    label: _Label
    client_key: _Key
    contact: _Contact
    consent: Annotated[str, msgspec.Meta(max_length=86)]


@dataclass(frozen=True, slots=True)
class Member:
    """One member as the membership events describe it."""

    did: str
    label: str
    client_key: bytes
    """The CURVE public key with which it dials the others of this group."""
    contact: str
    """Its contact, a did:peer:4 in the long form."""
    joined: int
    """Lamport time of the event that brought it in."""
    added_by: str | None


@dataclass(frozen=True, slots=True)
class View:
    """The members as one member believes them."""

    members: dict[str, Member]
    former: frozenset[str]
    checksum: str
    """Equal at two members exactly when they have heard the same membership events (base64url, 22 characters)."""


def genesis_of(event: Event) -> GenesisBody:
    try:
        body = msgspec.convert(event.body, GenesisBody)
        checked_name(body.name, "group")
        checked_name(body.label, "name")
    except (msgspec.ValidationError, BadName) as error:
        raise Malformed(why=f"genesis: {error}") from None
    return body


def add_of(event: Event) -> AddBody:
    try:
        body = msgspec.convert(event.body, AddBody)
        checked_name(body.label, "name")
    except (msgspec.ValidationError, BadName) as error:
        raise Malformed(why=f"add: {error}") from None
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
    """The view that follows from a causally closed set of membership events."""
    members: dict[str, Member] = {}
    former: set[str] = set()
    for event in control.values():
        if event.type == GENESIS:
            founder = genesis_of(event)
            members[event.author] = Member(
                event.author, founder.label, b64url_bytes(founder.client_key), founder.contact, event.lamport, None
            )
        elif event.type == ADD:
            body = add_of(event)
            known = members.get(body.member)
            if known is None or event.lamport < known.joined:
                members[body.member] = Member(
                    body.member, body.label, b64url_bytes(body.client_key), body.contact, event.lamport, event.author
                )
        elif event.type == LEAVE:
            former.add(event.author)
    for did in former:
        members.pop(did, None)
    members = dict(sorted(members.items()))
    digest = sha256(canonical_json(["zerochat/view/1", list(members), list(heads_of(control))]))
    return View(members, frozenset(former), b64url(digest[:16]))


def check_control(event: Event, control: Mapping[str, Event]) -> None:
    """Refuse a membership event that its author had no right to make, seen from its own causal past.

    All of its `deps` must be in `control` already. Raises Unauthentic, Malformed or Refused.
    """
    event.check_signature()
    past = {name: control[name] for name in ancestors(control, event.deps)}
    if event.type == GENESIS:
        if control or event.deps:
            raise Refused(why="a second beginning of the group")
        _check_keys(genesis_of(event).client_key, genesis_of(event).contact)
        return
    if len(control) >= CONTROL_MAX:
        raise Refused(why="too many membership events")
    view = resolve_view(past)
    if event.author not in view.members:
        raise Refused(why="a membership event by somebody who was not a member")
    if event.lamport <= max(control[name].lamport for name in event.deps):
        raise Refused(why="a membership event older than its causes")
    if event.type == ADD:
        body = add_of(event)
        if body.member in view.members or body.member in view.former:
            raise Refused(why="a key that has been a member before")
        if body.client_key in _client_keys(past):
            raise Refused(why="somebody else's transport key")
        check_consent(body.consent, event.group_id, body.member, body.label, body.client_key, body.contact)
        _check_keys(body.client_key, body.contact)


def _client_keys(control: Mapping[str, Event]) -> set[str]:
    """Every transport key that was ever in use: with a copy, one could have another's connection taken for its own."""
    return {str(event.body["client_key"]) for event in control.values() if event.type in (GENESIS, ADD)}


def _check_keys(client_key: str, contact: str) -> None:
    if len(b64url_bytes(client_key)) != 32:
        raise Malformed(why="a transport key of the wrong length")
    reach_of(resolve(contact))


def missing(control: Mapping[str, Event], their_heads: Collection[str]) -> list[Event]:
    """The membership events that a peer with these heads lacks, causes first. Heads unknown to us are passed over."""
    theirs = ancestors(control, (name for name in their_heads if name in control))
    return sorted((e for name, e in control.items() if name not in theirs), key=lambda e: (e.lamport, e.author, e.id))
