"""Making a proof out of what the journal keeps of a stream."""

from collections.abc import Sequence

from zerochat import rpc
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.storage.signed_messages import Kept
from zerochat.agent.views.event_pages import find_row
from zerochat.crypto.encoding import b64url
from zerochat.errors import LocalError, RemoteError
from zerochat.evidence.handshake import Accept, Confirm, Request, parse_statement
from zerochat.evidence.messages import parse_ack, parse_data
from zerochat.evidence.proof import ack_line, head_line, message_line
from zerochat.group.event_log.event import CONTROL
from zerochat.group.lookup import find_author
from zerochat.group.signed_streams.reader import events_in
from zerochat.group.state import Group
from zerochat.rpc import ProofLines

MESSAGES_MAX = 128
"""In one answer; of a proof of one message, so many behind it at most."""
BYTES_MAX = 512 * 1024
"""And so many bytes of them."""
TIME_MAX = 2**63 - 1
"""No message is later: the greatest number that the journal can compare."""


class NotSigned(LocalError):
    """In {group} nothing that is said is signed, so nobody can prove what anybody has said: that is what its keys are
    for. Groups that are made with `--kind signed` or `--kind accountable` have proofs."""


class SignedByItself(LocalError):
    """{event} is about who is in {group}, and signed by itself: `zerochat export {group}` writes all such events."""


class NotInAStream(LocalError):
    """There is no signed message here that has brought {event} to {group}: its author had said it before you could hear
    what it signs, or somebody else has handed it over."""


class NothingHeard(LocalError):
    """There is nothing here that {who} has signed in {group}."""


def proof(journal: Journal, group: Group, params: rpc.ProofParams) -> ProofLines:
    """One answer to whoever wants a proof. Raises NotSigned, SignedByItself, NotInAStream, NothingHeard, or as
    `find_row` and `find_author` do."""
    if not group.mode.signs:
        raise NotSigned(group=group.name)
    if params.id:
        return _of_message(journal, group, find_row(journal, group, params.id))
    author = find_author(group, params.author) if params.author else group.me
    return _of_stream(journal, group, author, params.after)


def _of_message(journal: Journal, group: Group, row: Row) -> ProofLines:
    if row.type in CONTROL:
        raise SignedByItself(event=row.id, group=group.name)
    kept = journal.signed.carrier(group.id, row.author, row.position)
    if kept is None or row.id not in events_of(group, kept):
        raise NotInAStream(event=row.id, group=group.name)
    acks = journal.signed.acks_of(group.id, kept.alias, kept.time) if row.author == group.me else {}
    times = {member: parse_ack(ack).time for member, ack in acks.items()}
    chain = _fitting(journal.signed.stream(group.id, kept.author, kept.alias, kept.time, MESSAGES_MAX))
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


def events_of(group: Group, kept: Kept) -> set[str]:
    """The ids of what stands in a message; none where that cannot be read."""
    try:
        return {event.id for event in events_in(kept.key, parse_data(kept.message), group.id, kept.author)}
    except RemoteError:
        return set()


def _of_stream(journal: Journal, group: Group, author: str, after: int) -> ProofLines:
    own = group.stream if author == group.me else group.streams.get(author)
    alias = own.alias if own is not None else journal.signed.last_alias(group.id, author)  # of whoever has gone
    # What is kept and not what the stream counts: it counts anew from each answer by which it is heard.
    final = alias and journal.signed.last_before(group.id, author, alias, TIME_MAX)
    if not final:
        who = "you" if author == group.me else "that member"
        raise NothingHeard(who=who, group=group.name)
    chain = _fitting(journal.signed.stream(group.id, author, alias, after + 1, MESSAGES_MAX))
    lines = [] if after else [head_line(author, group.id)]
    lines += [message_line(one.message) for one in chain]
    if chain and chain[-1].time < final.time:
        return ProofLines([line.decode() for line in lines], chain[-1].time)
    acks = journal.signed.acks(group.id, alias) if author == group.me else {}
    signed = 0
    for member, ack in acks.items():
        time = parse_ack(ack).time
        subscription = subscription_of(journal, group, member, alias, time, time)
        if subscription is not None:
            lines.append(ack_line(ack, subscription))
            signed += 1
    return ProofLines([line.decode() for line in lines], left_out=len(acks) - signed)


def _fitting(chain: Sequence[Kept]) -> Sequence[Kept]:
    """As many of them as fit one answer, and the first in any case."""
    size = 0
    for number, one in enumerate(chain):
        size += len(one.message) * 4 // 3 + 128
        if number and size > BYTES_MAX:
            return chain[:number]
    return chain


def subscription_of(
    journal: Journal, group: Group, member: str, alias: bytes, time: int, acked: int
) -> tuple[bytes, bytes, bytes] | None:
    """The statements by which a member could hear our stream when a message was said, if it had not asked anew by the
    time of the one that it has acknowledged."""
    said = {one.digest: parse_statement(one.statement) for one in journal.signed.statements(group.id, member)}
    given = [
        one
        for one in said.values()
        if isinstance(one, Accept) and (one.publisher, one.alias) == (group.me, b64url(alias)) and one.time <= acked
    ]
    given.sort(key=lambda one: one.time)
    if not given or given[-1].time > time:
        return None
    accept = given[-1]
    request = said.get(accept.request)
    confirm = next((one for one in said.values() if isinstance(one, Confirm) and one.accept == accept.digest), None)
    if not isinstance(request, Request) or confirm is None:
        return None
    return request.written(), accept.written(), confirm.written()
