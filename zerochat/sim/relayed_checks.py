"""Invariants of relayed events, and limits of a node's state.

`who`, in all of these: the seed and the node, for the message of a Violation.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from zerochat.errors import RemoteError
from zerochat.evidence.operator import PENDING_MAX as POSTED_MAX
from zerochat.evidence.witness import ENTRIES_MAX
from zerochat.group.effects import ConfirmEvents, Effect, StoreEvent
from zerochat.group.event_log.delivery import BLOCKED_MAX, BLOCKED_TOTAL_MAX, BUFFER_BYTES_MAX, BUFFER_EVENTS_MAX
from zerochat.group.event_log.event import CONTROL, POST, Event
from zerochat.group.external.standard_protocols import PEER_QUERIES_MAX
from zerochat.group.files.catalogue import KEPT_MAX, OFFERED_MAX
from zerochat.group.inputs import Input, Received
from zerochat.group.joining.invitations import CALLS_MAX, INVITATIONS_MAX
from zerochat.group.joining.joiner import JOINS_MAX
from zerochat.group.joining.requests import REFUSED_MAX, REQUESTS_MAX
from zerochat.group.links.contact import member_link
from zerochat.group.links.mediator_mail import FAULTS_MAX
from zerochat.group.links.mediator_proof import PROOFS_MAX, RECORDS_MAX
from zerochat.group.links.pairing import OFFERS_MAX
from zerochat.group.signed_streams.receiver import EARLY_BYTES_MAX, EARLY_MAX
from zerochat.group.state import Agent, Group
from zerochat.group.sync.fork_detection import DIFFERENCES_MAX
from zerochat.group.sync.reinstated_posts import IDS_MAX, is_confirmed
from zerochat.group.sync.relayed_events import UNCONFIRMED_MAX
from zerochat.group.tlog.adoption import ENDED_MAX, TLOGS_MAX
from zerochat.group.tlog.follower import WANTED_MAX
from zerochat.group.tlog.pending_entries import CLOSES_MAX, PENDING_MAX
from zerochat.group.wire.event_runs import RUN_BYTES_MAX, RUN_EVENTS_MAX
from zerochat.sim.fast_crypto import event_of
from zerochat.sim.node import Node, Violation

AGENT_MAX = INVITATIONS_MAX, JOINS_MAX, CALLS_MAX, PEER_QUERIES_MAX, FAULTS_MAX, PROOFS_MAX, RECORDS_MAX


def was_reinstated(group: Group | None, kept: StoreEvent) -> bool:
    """Whether this event was excluded as a reader's post and may be relayed by anyone, since its hash is known."""
    known = group.sync.reinstated_posts.get(kept.author) if group is not None else None
    return known is not None and known.ids.get(kept.seq) == kept.id


def _check_signed(who: str, effect: StoreEvent) -> None:
    """Where authors sign their events, each stored one has its author's signature, from any bearer. Which ones an
    upgraded group has without a signature, `upgrade_checks.py` checks."""
    try:
        event_of(effect.record).check_signature()
    except RemoteError:
        raise Violation(f"{who} accepts an unsigned event of {effect.author}") from None


def check_authenticity(who: str, node: Node, input_: Input, before: Agent, effect: Effect) -> None:
    """Confirmed events come from their author: directly, from a buffer, or under its signature or hash; relayed events
    were requested.

    `before`: the node's state before the input, which has this effect.
    """
    match effect:
        case StoreEvent(type=kind) if kind not in CONTROL:
            pass
        case ConfirmEvents():
            pass
        case _:
            return
    group, author = node.agent.groups[effect.group], effect.author
    former = before.groups.get(effect.group)
    if author == group.me or former is None:
        return
    is_unsigned = isinstance(effect, StoreEvent) and not event_of(effect.record).sig
    if group.mode.signs_events and not (is_unsigned and not group.first_mode.signs_events):
        if isinstance(effect, StoreEvent):
            _check_signed(who, effect)
        return
    if isinstance(effect, StoreEvent) and was_reinstated(former, effect) and is_confirmed(former, author, effect.seq):
        return  # authenticity is checked at the end (`check_relayed`)
    if isinstance(effect, StoreEvent) and effect.relayed_by:
        pull_request = former.sync.pull_requests.get(effect.relayed_by)
        wanted = pull_request.ranges if pull_request is not None else ()
        if not any(one == author and after < effect.seq <= upto for one, after, upto in wanted):
            raise Violation(f"{who} accepts events of {author} that it did not request")
        return
    # After an upgrade, a signed event of the same response may be the one whose hash anchors the earlier ones.
    pasts = former.chain(author).backfill, group.chain(author).backfill if group.mode.signs_events else None
    told = isinstance(input_, Received) and input_.link == member_link(group.id, group.me, author)
    anchored = (
        isinstance(effect, StoreEvent) and effect.history and any(past is not None and past.anchored for past in pasts)
    )
    seq = effect.upto if isinstance(effect, ConfirmEvents) else effect.seq
    hashed = any(one.author == author and one.upto >= seq for one in node.signed)
    signed = (hashed and former.tlogs.by_name != {}) or any(
        event.author == author and event.seq >= seq for event in group.control.values()
    )
    waits = author in former.log.reorder_buffers or author in former.dcgka.early  # authenticated when it came
    if not (told or anchored or signed or waits):
        raise Violation(f"{who} accepts unauthenticated events of {author}")


def check_history_response(who: str, group: Group, asker: str, events: Sequence[Event]) -> None:
    """A history response is bounded and respects the history policy of the requester. `group`: as the responder sees
    it."""
    if len(events) > RUN_EVENTS_MAX or (len(events) > 1 and sum(len(one.record) for one in events) > RUN_BYTES_MAX):
        raise Violation(f"{who} sends too large a response")
    known = group.view.known(asker)
    if known is None:
        return
    early = [event for event in events if event.lamport < known.joined]
    for rule in (group.view.policy.history, known.history):
        kind, _, number = rule.partition(":")
        if (
            (kind == "none" and early)
            or (kind == "last" and sum(event.type == POST for event in early) > int(number))
            or (kind == "since" and any(event.lamport < int(number) for event in early))
        ):
            raise Violation(f"{who} sends history that the member may not have")


def check_bounds(who: str, group: Group) -> None:
    """What others can make a node store is bounded."""
    for log in group.tlogs.by_name.values():
        waiting = len(log.operated.pending) if log.operated is not None else 0
        if (
            waiting > POSTED_MAX
            or len(log.wanted) > WANTED_MAX + ENTRIES_MAX
            or len(log.pending) > PENDING_MAX + CLOSES_MAX
        ):
            raise Violation(f"{who} exceeds a limit of a transparency log")
        if not set(log.rules.witnesses).issuperset(log.witness_sizes):
            raise Violation(f"{who} stores the position of a non-witness")
    if len(group.tlogs.by_name) > TLOGS_MAX or len(group.tlogs.ended_subscriptions) > ENDED_MAX:
        raise Violation(f"{who} stores too many transparency logs")
    known = group.view.members.keys() | group.view.former.keys()
    found: list[Collection[str]] = [
        *(
            group.joining.private,
            group.sync.gaps,
            group.sync.pull_requests,
            group.sync.reinstated_posts,
            group.sync.corroborations,
            group.sync.comparisons,
            group.trust.attestations,
            group.log.reorder_buffers,
            group.streams.early_messages,
        ),
        *(
            group.links.offers,
            group.streams.followed,
            group.streams.subscribers,
            group.streams.requests,
            group.log.chains,
            group.links.relationships,
        ),
        group.links.numbers,
    ]
    if group.sync.recovery is not None:
        found += [
            group.sync.recovery.claims,
            group.sync.recovery.ignored,
            group.sync.recovery.requests,
            group.sync.recovery.requested_by_mail,
        ]
    if not all(known >= set(names) for names in found):
        raise Violation(f"{who} stores state about unknown members")
    if any(len(one.ids) > IDS_MAX for one in group.sync.reinstated_posts.values()):
        raise Violation(f"{who} stores too many excluded posts")
    if len(group.sync.differences) > DIFFERENCES_MAX or any(
        len(one) > OFFERS_MAX for one in group.links.offers.values()
    ):
        raise Violation(f"{who} stores too many differences or offers")
    _check_waiting(who, group)
    _check_files(who, group)


def check_agent(who: str, agent: Agent) -> None:
    """The limits of all groups, and of state outside of groups."""
    for group in agent.groups.values():
        check_bounds(who, group)
    kept = (
        len(agent.invitations),
        len(agent.joins),
        len(agent.joiner_links),
        len(agent.peer_queries),
        len(agent.endpoint_failures),
        len(agent.mediator_proofs),
        len(agent.probes),
    )
    if any(one > most for one, most in zip(kept, AGENT_MAX, strict=True)):
        raise Violation(f"{who} exceeds a limit outside of its groups")


def _check_waiting(who: str, group: Group) -> None:
    """Buffers and pending requests are bounded per member and in total."""
    for buffers in group.log.reorder_buffers.values():
        if len(buffers.events) > BUFFER_EVENTS_MAX or buffers.size > BUFFER_BYTES_MAX:
            raise Violation(f"{who} exceeds the limit of a reorder buffer")
    for early in group.streams.early_messages.values():
        if len(early.messages) > EARLY_MAX or early.size > EARLY_BYTES_MAX:
            raise Violation(f"{who} buffers too many early signed messages")
    if group.log.blocked:
        by = Counter(one.sender for one in group.log.blocked.values())
        if by.total() > BLOCKED_TOTAL_MAX or max(by.values()) > BLOCKED_MAX:
            raise Violation(f"{who} buffers too many membership events")
    if group.joining.requests:
        refused = sum(one.refused for one in group.joining.requests.values())
        if refused > REFUSED_MAX or len(group.joining.requests) - refused > REQUESTS_MAX:
            raise Violation(f"{who} stores too many join requests")


def _check_files(who: str, group: Group) -> None:
    offered = sum(one.state in ("offered", "gone") and not one.stored_parts for one in group.files.values())
    if offered > OFFERED_MAX or len(group.files) - offered > KEPT_MAX:
        raise Violation(f"{who} stores too many files")


def check_relayed(who: str, node: Node, forged: Collection[str]) -> None:
    """A node accepts no forgery, and bounds unconfirmed events per author."""
    believed = {row.id for row in node.log if not row.relayed_by}
    relayed = [row.author for row in node.log if row.relayed_by]
    for group in node.agent.groups.values():
        believed |= group.control.keys()
    if not believed.isdisjoint(forged):
        raise Violation(f"{who} accepts a forgery in another member's name")
    for author in set(relayed):
        if relayed.count(author) > 2 * UNCONFIRMED_MAX:  # before and after the author's own events
            raise Violation(f"{who} stores too many unconfirmed events of {author}")
