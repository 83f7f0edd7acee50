"""What must hold of what members hand each other of others' words, for those who keep the rules, and how much of
anything they may keep.

`who`, in all of these: the seed and the node, as a Violation names them.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from zerochat.evidence.operator import WAITING_MAX as POSTED_MAX
from zerochat.evidence.witness import ENTRIES_MAX
from zerochat.group.effects import Confirm, Effect, Remember
from zerochat.group.event_log.event import CONTROL, POST, Event
from zerochat.group.event_log.log import LIMBO_BYTES_MAX, LIMBO_EVENTS_MAX, WAITING_ALL_MAX, WAITING_MAX
from zerochat.group.external.questions import QUESTIONS_MAX
from zerochat.group.files.catalogue import KEPT_MAX, OFFERED_MAX
from zerochat.group.inputs import Received, Stimulus
from zerochat.group.joining.invitations import CALLS_MAX, INVITATIONS_MAX
from zerochat.group.joining.joiner import JOINS_MAX
from zerochat.group.joining.requests import REFUSED_MAX, REQUESTS_MAX
from zerochat.group.links.contact import member_link
from zerochat.group.links.mediator_mail import FAULTS_MAX
from zerochat.group.links.pairing import OFFERS_MAX
from zerochat.group.signed_streams.receiver import EARLY_BYTES_MAX, EARLY_MAX
from zerochat.group.state import Agent, Group
from zerochat.group.sync.fork_detection import DIFFERENCES_MAX
from zerochat.group.sync.reinstated_posts import IDS_MAX, is_own_word
from zerochat.group.sync.relayed_events import VOUCHED_MAX
from zerochat.group.tlog.adoption import ENDED_MAX, LOGS_MAX
from zerochat.group.tlog.follower import WANTED_MAX
from zerochat.group.tlog.pending_entries import CLOSES_MAX, MINE_MAX
from zerochat.group.wire.event_runs import RUN_BYTES_MAX, RUN_EVENTS_MAX
from zerochat.sim.node import Node, Violation

AGENT_MAX = INVITATIONS_MAX, JOINS_MAX, CALLS_MAX, QUESTIONS_MAX, FAULTS_MAX


def left_out(group: Group | None, kept: Remember) -> bool:
    """Whether this was left out as a reader's word, so that whoever has it may bring it: its hash is known."""
    known = group.unheard.get(kept.author) if group is not None else None
    return known is not None and known.ids.get(kept.seq) == kept.id


def check_word(who: str, node: Node, stimulus: Stimulus, before: Agent, effect: Effect) -> None:
    """What a node takes for somebody's own word comes from there: just now, from what has waited, or under a signature
    or a hash of that author; and what it takes on somebody else's word it has asked that one for.

    `before`: what the node's agent was before it heard this `stimulus`, which has this `effect`.
    """
    match effect:
        case Remember(type=kind) if kind not in CONTROL:
            pass
        case Confirm():
            pass
        case _:
            return
    group, author = node.agent.groups[effect.group], effect.author
    former = before.groups.get(effect.group)
    if author == group.me or former is None:
        return
    if isinstance(effect, Remember) and left_out(former, effect) and is_own_word(former, author, effect.seq):
        return  # and that it was said is looked at in the end (`check_kept`)
    if isinstance(effect, Remember) and effect.vouched:
        errand = former.errands.get(effect.vouched)
        wanted = errand.want if errand is not None else ()
        if not any(one == author and after < effect.seq <= upto for one, after, upto in wanted):
            raise Violation(f"{who} takes in what it has not asked for, of {author}")
        return
    past = former.chain(author).past
    told = isinstance(stimulus, Received) and stimulus.link == member_link(group.id, group.me, author)
    anchored = isinstance(effect, Remember) and effect.history and past is not None and past.anchored
    seq = effect.upto if isinstance(effect, Confirm) else effect.seq
    hashed = any(one.author == author and one.upto >= seq for one in node.signed)
    signed = (hashed and former.logs != {}) or any(
        event.author == author and event.seq >= seq for event in group.control.values()
    )
    if not (told or anchored or signed or author in former.limbo):
        raise Violation(f"{who} takes somebody's word for that of {author}")


def check_handed(who: str, group: Group, asker: str, events: Sequence[Event]) -> None:
    """What a member hands over is of a bounded size, and what the asker may have. `group`: as that member has it."""
    if len(events) > RUN_EVENTS_MAX or (len(events) > 1 and sum(len(one.record) for one in events) > RUN_BYTES_MAX):
        raise Violation(f"{who} says very much at once")
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
            raise Violation(f"{who} gives what may not be had")


def check_bounds(who: str, group: Group) -> None:
    """What others can have a node remember has limits."""
    for log in group.logs.values():
        waiting = len(log.operated.waiting) if log.operated is not None else 0
        if waiting > POSTED_MAX or len(log.wanted) > WANTED_MAX + ENTRIES_MAX or len(log.mine) > MINE_MAX + CLOSES_MAX:
            raise Violation(f"{who} remembers too much of a log")
        if not set(log.rules.witnesses).issuperset(log.reached):
            raise Violation(f"{who} remembers how far somebody is who is no witness")
    if len(group.logs) > LOGS_MAX or len(group.ended) > ENDED_MAX:
        raise Violation(f"{who} remembers too many logs")
    known = group.view.members.keys() | group.view.former.keys()
    found: list[Collection[str]] = [
        *(
            group.needs,
            group.errands,
            group.unheard,
            group.seconds,
            group.comparisons,
            group.words,
            group.limbo,
            group.early,
        ),
        *(group.offers, group.streams, group.subscribers, group.asking, group.chains, group.relationships),
        *(peer.acked for peer in group.peers.values()),
    ]
    if group.regain is not None:
        found += [group.regain.claims, group.regain.ignored, group.regain.asked, group.regain.mailed]
    if not all(known >= set(names) for names in found):
        raise Violation(f"{who} remembers too much")
    if any(len(one.ids) > IDS_MAX for one in group.unheard.values()):
        raise Violation(f"{who} remembers too much of what it has left out")
    if len(group.differences) > DIFFERENCES_MAX or any(len(one) > OFFERS_MAX for one in group.offers.values()):
        raise Violation(f"{who} remembers too much of what it has compared or offered")
    _check_waiting(who, group)
    _check_files(who, group)


def check_agent(who: str, agent: Agent) -> None:
    """The same of all its groups, and of what is in none."""
    for group in agent.groups.values():
        check_bounds(who, group)
    kept = len(agent.invitations), len(agent.joins), len(agent.calls), len(agent.questions), len(agent.faults)
    if any(one > most for one, most in zip(kept, AGENT_MAX, strict=True)):
        raise Violation(f"{who} remembers too much beside its groups")


def _check_waiting(who: str, group: Group) -> None:
    """What has come before its time, or waits for a person, has limits for each member and for all."""
    for limbo in group.limbo.values():
        if len(limbo.records) > LIMBO_EVENTS_MAX or sum(map(len, limbo.records.values())) > LIMBO_BYTES_MAX:
            raise Violation(f"{who} keeps too much that came too early")
    for early in group.early.values():
        if len(early.messages) > EARLY_MAX or sum(map(len, early.messages.values())) > EARLY_BYTES_MAX:
            raise Violation(f"{who} keeps too many signed messages that came too early")
    if group.waiting:
        by = Counter(one.sender for one in group.waiting.values())
        if by.total() > WAITING_ALL_MAX or max(by.values()) > WAITING_MAX:
            raise Violation(f"{who} has too many membership events wait")
    if group.requests:
        refused = sum(one.refused for one in group.requests.values())
        if refused > REFUSED_MAX or len(group.requests) - refused > REQUESTS_MAX:
            raise Violation(f"{who} has too many people wait")


def _check_files(who: str, group: Group) -> None:
    offered = sum(one.state in ("offered", "gone") and not one.have for one in group.files.values())
    if offered > OFFERED_MAX or len(group.files) - offered > KEPT_MAX:
        raise Violation(f"{who} remembers too many files")


def check_kept(who: str, node: Node, forged: Collection[str]) -> None:
    """A node believes nothing of what was forged, and keeps of nobody too much on others' word."""
    believed = {row.id for row in node.log if not row.vouched}
    vouched = [row.author for row in node.log if row.vouched]
    for group in node.agent.groups.values():
        believed |= group.control.keys()
    if not believed.isdisjoint(forged):
        raise Violation(f"{who} believes what was forged in another one's name")
    for author in set(vouched):
        if vouched.count(author) > 2 * VOUCHED_MAX:  # before and after what the author says itself
            raise Violation(f"{who} keeps too much of {author} on others' word")
