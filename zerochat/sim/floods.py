"""Floods: genuine messages that are cheap to send and costly to answer, without end.

Each flood is one of the kinds that a member may always send. `attacks.py` sends them in simulations; the tests over
real sockets and the benchmark of attacks send the same to real agents.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.evidence.handshake import Request
from zerochat.group.event_log.event import ADD, LABEL, Event
from zerochat.group.links.contact import Reach, new_identity, sign_consent, sign_possession, transport_public
from zerochat.group.links.relationship import Relationship
from zerochat.group.membership import heads_of
from zerochat.group.membership.quota import AUTHOR_CONTROL_MAX
from zerochat.group.state import Chain, Group
from zerochat.group.sync.fork_detection import ROUNDS_MAX
from zerochat.group.sync.negentropy import Items, initial_message
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX, write_runs
from zerochat.group.wire.files import FILE_REQUEST, REQUEST_PARTS_MAX
from zerochat.group.wire.messages import (
    EVENTS,
    HISTORY_REQUEST,
    PAGES_MAX,
    RANGES_MAX,
    RECONCILE,
    STATUS,
    SYNC,
)

SEQ_MAX = 2**53 - 1
LABELS_EACH, EVENTS_EACH = 64, 110
"""Membership events in one message."""
ITEMS = 4_000
"""Posts that we pretend to have in a comparison."""


class Flooder(Struct, frozen=True):
    """A member that floods another one."""

    group: Group
    """The member's own state."""
    victim: str
    """The DID of the other member."""
    relationship: Relationship
    now: int
    """UTC ms."""
    random: Callable[[int], bytes]

    def sync(self, **changes: Any) -> dict[str, Any]:
        """The body of a sync that says nothing new, with these fields replaced."""
        heads = heads_of(self.group.control)
        return {
            "group": self.group.id,
            "view": self.group.view.checksum,
            "have": [],
            "start_seq": 0,
            "acked": 0,
            "heads": list(heads),
            "reach": {"pair": "", "queue": "", "at": self.now},
            **changes,
        }


Messages: TypeAlias = Iterator[tuple[str, dict[str, Any]]]
"""Types and bodies."""


def history_requests(by: Flooder) -> Messages:
    """Request the history of everyone, in both orders."""
    group = by.group
    ranges = [[did, 0, SEQ_MAX] for did in (*group.view.members, *group.view.former)][:RANGES_MAX]
    body = {"group": group.id, "ranges": ranges, "limit": RUN_EVENTS_MAX}
    while True:
        yield HISTORY_REQUEST, body
        yield HISTORY_REQUEST, {**body, "backwards": True, "pages": PAGES_MAX}


def comparisons(by: Flooder) -> Messages:
    """Compare logs that have nothing in common as often as allowed, and report chain heads that differ."""
    group, since = by.group, by.group.view.members[by.group.me].joined
    items = Items(sorted((since + number, by.random(32)) for number in range(ITEMS)))
    message = b64url(initial_message(items))
    for _ in range(ROUNDS_MAX):
        yield RECONCILE, {"group": group.id, "since": since, "message": message}
    while True:
        yield SYNC, by.sync(head_digests=b64url(by.random(2 * len(group.view.members))))


def file_requests(by: Flooder) -> Messages:
    """Request the parts of every file, and of one that does not exist."""
    group = by.group
    while True:
        for key, one in group.files.items():
            for first in range(0, one.file.parts, REQUEST_PARTS_MAX):
                count = min(REQUEST_PARTS_MAX, one.file.parts - first)
                yield FILE_REQUEST, {"group": group.id, "file": key, "first": first, "count": count}
        yield FILE_REQUEST, {"group": group.id, "file": b64url(by.random(32)), "first": 0, "count": 1}


def membership(by: Flooder) -> Messages:
    """Change our display name again and again, and repeat all of that. What others change meanwhile is concurrent with
    it, so that the view is resolved anew."""
    group, heads = by.group, heads_of(by.group.control)
    chain, lamport = group.log.chains.get(group.me, Chain()), max(group.log.lamport, by.now)
    seq, last, told = chain.seq, chain.head_id, []
    for _ in range(AUTHOR_CONTROL_MAX * 3 // 4 // LABELS_EACH):
        events = []
        for _ in range(LABELS_EACH):
            seq, lamport = seq + 1, lamport + 1
            body = {"label": f"called {seq}"}
            event = Event(group.id, LABEL, group.me, seq, last, heads, (), lamport, by.now, body).signed(group.seed)
            heads, last = (event.id,), event.id
            events.append(event)
        told.append({"group": group.id, "runs": write_runs(events), "view": "", "have": []})
    while True:
        yield from ((STATUS, body) for body in told)


def statements(by: Flooder) -> Messages:
    """Subscribe anew to the victim's signed stream: each request is signed, answered and stored for good."""
    group, time = by.group, by.now
    while True:
        time += 1
        nonce = b64url(by.random(16))
        request = Request(time=time, topic=group.id, subscriber=group.me, publisher=by.victim, nonce=nonce)
        yield SYNC, by.sync(statements=[request.signed(group.seed).serialize().decode()])


def retransmissions(by: Flooder) -> Messages:
    """Report that we lack all of the victim's chain, and a gap in it."""
    at = by.now
    while True:
        at += 1
        reach = {"pair": "", "queue": "", "at": at}
        yield SYNC, by.sync(gap=True, have=[0] * len(by.group.view.members), reach=reach)


def sybils(by: Flooder, count: int, renames: int) -> Messages:
    """Add so many members of our own, have each change its display name so many times, and stop."""
    group, lamport = by.group, max(event.lamport for event in by.group.control.values())
    heads = heads_of(group.control)
    chain = group.log.chains.get(group.me, Chain())
    ends, events = {group.me: (chain.seq, chain.head_id)}, list[Event]()
    added: list[tuple[str, bytes]] = []

    def sign(author: str, seed: bytes, kind: str, body: dict[str, Any]) -> None:
        nonlocal heads
        seq, last = ends.get(author, (0, ""))
        place = lamport + len(events) + 1, by.now
        event = Event(group.id, kind, author, seq + 1, last, heads, (), *place, body)
        event = event.signed(seed)
        ends[author], heads = (event.seq, event.id), (event.id,)
        events.append(event)

    for number in range(count):
        seed, at = by.random(32), Endpoint("127.0.0.1", 9)
        member = did_key(ed25519_public(seed))
        contact = new_identity(by.random, Reach(by.random(32), at, at), group.profile.envelope)
        said = member, f"sybil {number}", contact.did, "writer", transport_public(seed)
        body: dict[str, Any] = dict(zip(("member", "label", "contact", "role", "transport"), said, strict=True))
        body["possession"] = sign_possession(seed, group.id, member)
        body["consent"] = sign_consent(seed, group.id, group.me, *said)
        sign(group.me, group.seed, ADD, body)
        added.append((member, seed))
    for member, seed in added:
        for number in range(renames):
            sign(member, seed, LABEL, {"label": f"{member[-6:]} {number}"})
    for first in range(0, len(events), EVENTS_EACH):
        runs = write_runs(events[first : first + EVENTS_EACH])
        yield EVENTS, {"group": group.id, "runs": runs, "view": "", "have": []}


FLOODS: Mapping[str, Callable[[Flooder], Messages]] = {
    flood.__name__.replace("_", " "): flood
    for flood in (history_requests, comparisons, file_requests, membership, statements, retransmissions)
}
