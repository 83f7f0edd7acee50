"""Builds proofs from the stored messages and acknowledgements of a stream."""

from collections.abc import Sequence

from zerochat import rpc
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.storage.signed_messages import StoredMessage
from zerochat.agent.views import delivery
from zerochat.agent.views.event_pages import find_row
from zerochat.crypto.encoding import b64url
from zerochat.errors import LocalError, RemoteError
from zerochat.evidence.handshake import Accept, Confirm, Request, parse_statement
from zerochat.evidence.messages import parse_ack, parse_data
from zerochat.evidence.proof import ack_line, head_line, message_line
from zerochat.group.lookup import find_author
from zerochat.group.signed_streams.messages import events_in
from zerochat.group.state import Group
from zerochat.rpc import ProofLines

MESSAGES_MAX = 128
"""Messages in one response."""
BYTES_MAX = 512 * 1024
"""Size of the messages in one response."""
TIME_MAX = 2**63 - 1
"""Later than any message."""


class NotSigned(LocalError):
    """Messages in {group} are not signed, so they cannot be proven to third parties. Groups created with `--kind
    signed` or `--kind accountable` support proofs."""


class SignedByItself(LocalError):
    """{event} of {group} carries its author's signature itself and needs no proof file. `zerochat export {group}`
    exports it."""


class SignedEvents(LocalError):
    """Every message in {group} carries its author's signature itself and needs no proof file. `zerochat export
    {group}` exports all of them."""


class NotInAStream(LocalError):
    """No signed message with {event} is stored: it was posted before your subscription to its author in {group}, or
    another member relayed it."""


class NothingSigned(LocalError):
    """No signed messages from {who} in {group}."""


def proof(journal: Journal, group: Group, params: rpc.ProofParams) -> ProofLines:
    """One page of a proof. Raises NotSigned, SignedEvents, SignedByItself, NotInAStream, NothingSigned, or like
    `find_row` and `find_author`.

    After an upgrade, a single message from before it can be proven if it is in a stream; a whole stream would leave out
    what came later.
    """
    if not group.mode.signs and not (params.id and group.first_mode.signs):
        raise SignedEvents(group=group.name) if group.mode.signs_events else NotSigned(group=group.name)
    if params.id:
        return _of_message(journal, group, find_row(journal, group, params.id))
    author = find_author(group, params.author) if params.author else group.me
    return _of_stream(journal, group, author, params.after)


def _of_message(journal: Journal, group: Group, row: Row) -> ProofLines:
    if delivery.is_signed(row):
        raise SignedByItself(event=row.id, group=group.name)
    kept = journal.signed_messages.carrier(group.id, row.author, row.position)
    if kept is None or row.id not in events_of(group, kept):
        raise NotInAStream(event=row.id, group=group.name)
    acks = journal.signed_messages.acks_of(group.id, kept.alias, kept.time) if row.author == group.me else {}
    times = {member: parse_ack(ack).time for member, ack in acks.items()}
    chain = _fitting(journal.signed_messages.stream(group.id, kept.author, kept.alias, kept.time, MESSAGES_MAX))
    reached = chain[-1].time
    lines = [head_line(row.author, group.id, row.id), message_line(kept.message, kept.key)]
    last = max((time for time in times.values() if time <= reached), default=kept.time)
    lines += [message_line(one.message) for one in chain[1:] if one.time <= last]
    signed = 0
    for member, ack in acks.items():
        subscription = subscription_of(journal, group, member, kept.alias, kept.time, times[member])
        if times[member] <= reached and subscription is not None:
            lines.append(ack_line(ack, subscription))
            signed += 1
    return ProofLines([line.decode() for line in lines], left_out=len(acks) - signed)


def events_of(group: Group, kept: StoredMessage) -> set[str]:
    """Ids of the events in a stored message; empty if it cannot be decrypted."""
    try:
        return {event.id for event in events_in(kept.key, parse_data(kept.message), group.id, kept.author)}
    except RemoteError:
        return set()


def _of_stream(journal: Journal, group: Group, author: str, after: int) -> ProofLines:
    own = group.streams.own if author == group.me else group.streams.followed.get(author)
    alias = own.alias if own is not None else journal.signed_messages.last_alias(group.id, author)  # former members
    # The stored messages, not the stream's counter, which restarts with each subscription.
    final = alias and journal.signed_messages.last_before(group.id, author, alias, TIME_MAX)
    if not final:
        who = "you" if author == group.me else "that member"
        raise NothingSigned(who=who, group=group.name)
    chain = _fitting(journal.signed_messages.stream(group.id, author, alias, after + 1, MESSAGES_MAX))
    lines = [] if after else [head_line(author, group.id)]
    lines += [message_line(one.message) for one in chain]
    if chain and chain[-1].time < final.time:
        return ProofLines([line.decode() for line in lines], chain[-1].time)
    acks = journal.signed_messages.acks(group.id, alias) if author == group.me else {}
    signed = 0
    for member, ack in acks.items():
        time = parse_ack(ack).time
        subscription = subscription_of(journal, group, member, alias, time, time)
        if subscription is not None:
            lines.append(ack_line(ack, subscription))
            signed += 1
    return ProofLines([line.decode() for line in lines], left_out=len(acks) - signed)


def _fitting(chain: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """The messages that fit one response, at least one."""
    size = 0
    for number, one in enumerate(chain):
        size += len(one.message) * 4 // 3 + 128
        if number and size > BYTES_MAX:
            return chain[:number]
    return chain


def subscription_of(
    journal: Journal, group: Group, member: str, alias: bytes, time: int, acked: int
) -> tuple[bytes, bytes, bytes] | None:
    """The encoded statements of a member's subscription at the time of a message; None: it was not subscribed, or
    renewed its subscription before the acknowledged message."""
    statements = {
        one.digest: parse_statement(one.statement) for one in journal.signed_messages.statements(group.id, member)
    }
    given = [
        one
        for one in statements.values()
        if isinstance(one, Accept) and (one.publisher, one.alias) == (group.me, b64url(alias)) and one.time <= acked
    ]
    given.sort(key=lambda one: one.time)
    if not given or given[-1].time > time:
        return None
    accept = given[-1]
    request = statements.get(accept.request)
    confirm = next(
        (one for one in statements.values() if isinstance(one, Confirm) and one.accept == accept.digest), None
    )
    if not isinstance(request, Request) or confirm is None:
        return None
    return request.serialize(), accept.serialize(), confirm.serialize()
