"""Case file: the parts of a case that are not in the log (accusation, received message, subscription statements)."""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from zerochat.agent.storage.disputes import StoredCase
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, strict_json
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed, RemoteError
from zerochat.evidence.case import REOPENED_MAX, Accusation
from zerochat.evidence.handshake import Accept, Confirm, Request, Statement, Subscription, parse_statement
from zerochat.evidence.messages import DATA_BYTES_MAX, parse_data
from zerochat.group.state import Group

CASE_FILE_BYTES_MAX = 2 * DATA_BYTES_MAX
Statements: TypeAlias = tuple[Request, Accept, Confirm]


class CaseFile(Struct, frozen=True, forbid_unknown_fields=True):
    """An accusation with its evidence."""

    accusation: Accusation
    message: bytes
    """The received message as sent."""
    subscription: Statements
    reopened: tuple[Statements, ...] = ()
    """Later subscriptions named by the accusation."""

    @property
    def digest(self) -> str:
        return self.accusation.digest

    @property
    def accused(self) -> str:
        return self.subscription[0].publisher

    def check(self) -> None:
        """Raise RemoteError unless the evidence matches the accusation and all signatures are valid."""
        self.accusation.check()
        opened = Subscription(*self.subscription)
        came = parse_data(self.message)
        accusation = self.accusation
        about = accusation.accuser, accusation.accept, accusation.message, accusation.missing
        named = tuple(accept.digest for _, accept, _ in self.reopened)
        shown = opened.request.subscriber, opened.accept.digest, b64url(sha256(self.message)), b64url(came.before)
        stream = (came.publisher, came.alias) == (opened.publisher, opened.alias)
        if about != shown or named != accusation.reopened or not stream:
            raise Malformed(why="a case file that does not match its accusation")
        for one in self.reopened:
            Subscription(*one)

    def serialize(self) -> bytes:
        return canonical_json(msgspec.to_builtins(self))


class Charge(Struct, frozen=True):
    """An accusation against this profile with the own messages and statements needed for a defence. The accuser may
    withhold its own statements until the defence window is over."""

    accusation: Accusation
    message: bytes
    """The received message, as this profile sent it."""
    request: Request
    accept: Accept
    reopened: tuple[Accept, ...]
    """Own accept statements of later subscriptions named by the accusation."""

    @property
    def digest(self) -> str:
        return self.accusation.digest


def parse_case_file(encoded: bytes) -> CaseFile:
    """Raises Malformed."""
    try:
        return msgspec.convert(strict_json(encoded, CASE_FILE_BYTES_MAX), CaseFile)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a case file of another form ({error})") from None


def subscriptions(journal: Journal, group: Group, publisher: str, subscriber: str) -> list[Statements]:
    """Subscriptions with all three statements stored, in this direction, ordered by the publisher's clock."""
    member = publisher if subscriber == group.me else subscriber
    statements = [parse_statement(one.statement) for one in journal.signed_messages.statements(group.id, member)]
    requests = {one.digest: one for one in statements if isinstance(one, Request)}
    confirms = {one.accept: one for one in statements if isinstance(one, Confirm)}
    found = [
        (requests[accept.request], accept, confirms[accept.digest])
        for accept in statements
        if isinstance(accept, Accept) and accept.request in requests and accept.digest in confirms
    ]
    ours = [one for one in found if (one[0].publisher, one[0].subscriber) == (publisher, subscriber)]
    return sorted(ours, key=lambda one: (one[1].time, one[1].digest))


def later_subscriptions(known: list[Statements], one: Statements) -> tuple[Statements, ...]:
    """Later subscriptions to the same stream, at most REOPENED_MAX: every chain from a later one passes the first
    ones."""
    accept = one[1]
    later = [other for other in known if other[1].alias == accept.alias and other[1].time > accept.time]
    return tuple(later[:REOPENED_MAX])


def case_file_against_us(journal: Journal, group: Group, accusation: Accusation) -> CaseFile | None:
    """The case file of an accusation against this profile; None: it accuses another member, its message is unknown, or
    its subscription was never confirmed."""
    charge = charge_of(journal, group, accusation)
    if charge is None:
        return None
    by_digest = {found[1].digest: found for found in subscriptions(journal, group, group.me, accusation.accuser)}
    one = by_digest.get(accusation.accept)
    if one is None:
        return None
    reopened = tuple(by_digest[digest] for digest in accusation.reopened if digest in by_digest)
    found = CaseFile(accusation, charge.message, one, reopened)
    try:
        found.check()
    except RemoteError:
        return None
    return found


def charge_of(journal: Journal, group: Group, accusation: Accusation) -> Charge | None:
    """The charge to answer, if the accusation is about a message of this profile; None otherwise."""
    accept = _accept(journal, group, accusation, accusation.accept)
    request = _statement(journal, group, accept.request) if accept is not None else None
    if accept is None or not isinstance(request, Request):
        return None
    try:
        missing = b64url_bytes(accusation.missing)
    except RemoteError:
        return None
    came = journal.signed_messages.successor(group.id, group.me, b64url_bytes(accept.alias), missing)
    if came is None or b64url(sha256(came.message)) != accusation.message:
        return None
    later = (_accept(journal, group, accusation, digest) for digest in accusation.reopened)
    return Charge(accusation, came.message, request, accept, tuple(one for one in later if one is not None))


def _accept(journal: Journal, group: Group, accusation: Accusation, digest: str) -> Accept | None:
    """Our accept statement with this digest to the accuser."""
    found = _statement(journal, group, digest)
    ours = isinstance(found, Accept) and (found.publisher, found.subscriber) == (group.me, accusation.accuser)
    return found if isinstance(found, Accept) and ours else None


def _statement(journal: Journal, group: Group, digest: str) -> Statement | None:
    stored = journal.signed_messages.statement(group.id, digest)
    return parse_statement(stored.statement) if stored is not None else None


def stored_case(accusation: Accusation, origin: str, case_file: CaseFile | None, now: int) -> StoredCase:
    """An accusation as stored in the journal. `case_file`: known if this profile is a party."""
    return StoredCase(
        accusation.digest,
        origin,
        accusation.accuser,
        case_file.accused if case_file is not None else "",
        accusation.accept,
        accusation.message,
        case_file.serialize() if case_file is not None else b"",
        now,
    )
