"""Pull requests: at most one open history request per member; only the response to it is accepted."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id
from zerochat.group.event_log.event import Event
from zerochat.group.links import content_keys, mediator_mail, storage_quota
from zerochat.group.links.relationship import pack
from zerochat.group.state import PullPurpose, PullRequest
from zerochat.group.sync import head_claims
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import HISTORY_REQUEST

TIMEOUT_MS, TIMEOUT_MAIL_MS = 5_000, 120_000
"""How long a member may take to answer, over a link and over a mediator."""


def is_free(tx: Transaction, name: str, member: str) -> bool:
    """Whether this member can be asked for anything but our own events now."""
    group = tx.group(name)
    return (
        member not in group.sync.pull_requests
        and member not in head_claims.queried_members(group)
        and is_reachable(tx, name, member)
    )


def is_source(tx: Transaction, name: str, member: str) -> bool:
    """Whether this member can be asked now for events that are stored here, at its expense."""
    return is_free(tx, name, member) and storage_quota.has_room_for_history(tx, name, member)


def is_reachable(tx: Transaction, name: str, member: str) -> bool:
    """Whether this member can be asked at all."""
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    return (
        member in group.view.members
        and relationship is not None
        and relationship.established
        and mediator_mail.reachable(tx, name, member)
    )


def send(
    tx: Transaction,
    name: str,
    member: str,
    ranges: Sequence[tuple[str, int, int]],
    limit: int,
    *,
    backwards: bool = False,
    purpose: PullPurpose = PullPurpose.GAPS,
    pages: int = 1,
) -> None:
    """Request ranges of chains from a member, until the timeout."""
    group = tx.group(name)
    body: dict[str, Any] = {
        "group": name,
        "ranges": [list(pending_request) for pending_request in ranges],
        "limit": limit,
    }
    body |= content_keys.announced(tx, name, member)
    if backwards:
        body["backwards"] = True
    if pages > 1:
        body["pages"] = pages
    message = Message(type=HISTORY_REQUEST, id=new_id(tx.context.random), body=body)
    until = tx.now + timeout_ms(tx, name, member)
    request = PullRequest(message.id, tuple(ranges), until, backwards, purpose=purpose, pages=pages)
    tx.update_sync(name, pull_requests={**group.sync.pull_requests, member: request})
    mediator_mail.send(
        tx, name, member, pack(group.links.relationships[member], message, tx.packer_of(name), tx.context.random)
    )


def timeout_ms(tx: Transaction, name: str, member: str) -> int:
    """How long this member may take to answer now, in ms."""
    return TIMEOUT_MAIL_MS if mediator_mail.goes_by_mail(tx, name, member) else TIMEOUT_MS


def on_response(tx: Transaction, name: str, member: str, events: Iterable[Event], *, more: bool) -> None:
    """A response with these events was received: wait for the next page, or close the request."""
    group = tx.group(name)
    request = group.sync.pull_requests[member]
    remaining_requests = {
        did: pending_request for did, pending_request in group.sync.pull_requests.items() if did != member
    }
    if more and request.page + 1 < request.pages:
        until = tx.now + timeout_ms(tx, name, member)
        remaining = replace(request, ranges=ranges_below(request.ranges, events), until=until, page=request.page + 1)
        remaining_requests[member] = remaining
    tx.update_sync(name, pull_requests=remaining_requests)


def ranges_below(ranges: Sequence[tuple[str, int, int]], events: Iterable[Event]) -> tuple[tuple[str, int, int], ...]:
    """The rest of these ranges after these events were received from their ends backwards."""
    lowest: dict[str, int] = {}
    for event in events:
        lowest[event.author] = min(event.seq, lowest.get(event.author, event.seq))
    remaining = ((author, after, min(upto, lowest.get(author, upto + 1) - 1)) for author, after, upto in ranges)
    return tuple((author, after, upto) for author, after, upto in remaining if upto > after)


def reset(tx: Transaction, name: str) -> None:
    """After a start, requests over former links are void."""
    group = tx.group(name)
    # For members without a peer record there is no response.
    pending = {
        member: pending_request
        for member, pending_request in group.sync.pull_requests.items()
        if member in group.links.peers
    }
    remaining_requests = {
        member: pending_request
        for member, pending_request in pending.items()
        if mediator_mail.goes_by_mail(tx, name, member)
    }
    if remaining_requests != group.sync.pull_requests:
        tx.update_sync(name, pull_requests=remaining_requests)


def expire(tx: Transaction, name: str) -> None:
    """Close requests whose time is over. A request by mail to a member that is connected again gets the shorter
    timeout."""
    group = tx.group(name)
    open_requests = {}
    for member, pending_request in group.sync.pull_requests.items():
        until = (
            min(pending_request.until, tx.now + TIMEOUT_MS)
            if mediator_mail.is_connected(tx, name, member)
            else pending_request.until
        )
        if until > tx.now:
            open_requests[member] = replace(pending_request, until=until)
    if open_requests != group.sync.pull_requests:
        tx.update_sync(name, pull_requests=open_requests)
