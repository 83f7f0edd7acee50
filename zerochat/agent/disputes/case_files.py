"""What a case is about, before anything was said against it: the accusation, the message that came, and the statements
by which the two have agreed to be judged. The rest of a case stands in the log."""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from zerochat.agent.storage.disputes import KeptCase
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, strict_json
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed, RemoteError
from zerochat.evidence.case import REOPENED_MAX, Accusation
from zerochat.evidence.handshake import Accept, Confirm, Request, Statement, Subscription, parse_statement
from zerochat.evidence.messages import DATA_BYTES_MAX, parse_data
from zerochat.group.state import Group

DOCKET_BYTES_MAX = 2 * DATA_BYTES_MAX
Statements: TypeAlias = tuple[Request, Accept, Confirm]


class Docket(Struct, frozen=True, forbid_unknown_fields=True):
    """An accusation, and what it speaks of."""

    accusation: Accusation
    message: bytes
    """What did come, as it was sent."""
    subscription: Statements
    reopened: tuple[Statements, ...] = ()
    """The later subscriptions that the accusation names."""

    @property
    def digest(self) -> str:
        return self.accusation.digest

    @property
    def accused(self) -> str:
        return self.subscription[0].publisher

    def check(self) -> None:
        """Raise RemoteError unless this is about what the accusation says that it is about, and signed by whom it
        should be."""
        self.accusation.check()
        opened = Subscription(*self.subscription)
        came = parse_data(self.message)
        said = self.accusation
        about = said.by, said.accept, said.message, said.missing
        named = tuple(accept.digest for _, accept, _ in self.reopened)
        shown = opened.request.subscriber, opened.accept.digest, b64url(sha256(self.message)), b64url(came.before)
        if about != shown or named != said.reopened or (came.publisher, came.alias) != (opened.publisher, opened.alias):
            raise Malformed(why="an accusation of something else")
        for one in self.reopened:
            Subscription(*one)

    def written(self) -> bytes:
        return canonical_json(msgspec.to_builtins(self))


class Charge(Struct, frozen=True):
    """What we need of an accusation of us to answer it: our own words. The statements of the accuser's that a case
    shows besides it may keep to itself until nobody can answer any more."""

    accusation: Accusation
    message: bytes
    """What did come, as we have said it."""
    request: Request
    accept: Accept
    reopened: tuple[Accept, ...]
    """Of the later ones that the accusation names, those that we have given."""

    @property
    def digest(self) -> str:
        return self.accusation.digest


def parse_docket(written: bytes) -> Docket:
    """Raises Malformed."""
    try:
        return msgspec.convert(strict_json(written, DOCKET_BYTES_MAX), Docket)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"an accusation: {error}") from None


def subscriptions(journal: Journal, group: Group, publisher: str, subscriber: str) -> list[Statements]:
    """All subscriptions between us and a member in this direction of which the three statements are here, in the order
    of the publisher's clock."""
    member = publisher if subscriber == group.me else subscriber
    said = [parse_statement(one.statement) for one in journal.signed.statements(group.id, member)]
    asked = {one.digest: one for one in said if isinstance(one, Request)}
    read = {one.accept: one for one in said if isinstance(one, Confirm)}
    given = [one for one in said if isinstance(one, Accept)]
    whole = [
        (asked[one.request], one, read[one.digest]) for one in given if one.request in asked and one.digest in read
    ]
    ours = [one for one in whole if (one[0].publisher, one[0].subscriber) == (publisher, subscriber)]
    return sorted(ours, key=lambda one: (one[1].time, one[1].digest))


def later_than(known: list[Statements], one: Statements) -> tuple[Statements, ...]:
    """The later ones of these to the same stream. Whatever leads from one of them on passes the first ones, so more
    than fit an accusation need not be named."""
    accept = one[1]
    later = [other for other in known if other[1].alias == accept.alias and other[1].time > accept.time]
    return tuple(later[:REOPENED_MAX])


def against_us(journal: Journal, group: Group, accusation: Accusation) -> Docket | None:
    """What an accusation is about, where it accuses us of something that we have said; None: it does not, or speaks of
    a message that we have not, or of a subscription that was never confirmed here."""
    charge = charge_of(journal, group, accusation)
    if charge is None:
        return None
    by_digest = {found[1].digest: found for found in subscriptions(journal, group, group.me, accusation.by)}
    one = by_digest.get(accusation.accept)
    if one is None:
        return None
    reopened = tuple(by_digest[digest] for digest in accusation.reopened if digest in by_digest)
    found = Docket(accusation, charge.message, one, reopened)
    try:
        found.check()
    except RemoteError:
        return None
    return found


def charge_of(journal: Journal, group: Group, accusation: Accusation) -> Charge | None:
    """What we have to answer, where an accusation accuses us of something that we have said."""
    accept = _accept(journal, group, accusation, accusation.accept)
    request = _statement(journal, group, accept.request) if accept is not None else None
    if accept is None or not isinstance(request, Request):
        return None
    try:
        missing = b64url_bytes(accusation.missing)
    except RemoteError:
        return None
    came = journal.signed.behind(group.id, group.me, b64url_bytes(accept.alias), missing)
    if came is None or b64url(sha256(came.message)) != accusation.message:
        return None
    later = (_accept(journal, group, accusation, digest) for digest in accusation.reopened)
    return Charge(accusation, came.message, request, accept, tuple(one for one in later if one is not None))


def _accept(journal: Journal, group: Group, accusation: Accusation, digest: str) -> Accept | None:
    """Our answer with this digest to whoever accuses."""
    found = _statement(journal, group, digest)
    ours = isinstance(found, Accept) and (found.publisher, found.subscriber) == (group.me, accusation.by)
    return found if isinstance(found, Accept) and ours else None


def _statement(journal: Journal, group: Group, digest: str) -> Statement | None:
    kept = journal.signed.statement(group.id, digest)
    return parse_statement(kept.statement) if kept is not None else None


def kept(accusation: Accusation, origin: str, docket: Docket | None, now: int) -> KeptCase:
    """An accusation as the journal keeps it. `docket`: where we are one of the two."""
    return KeptCase(
        accusation.digest,
        origin,
        accusation.by,
        docket.accused if docket is not None else "",
        accusation.accept,
        accusation.message,
        docket.written() if docket is not None else b"",
        now,
    )
