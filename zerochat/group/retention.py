"""Retention: after a while the content of messages is erased here, and from answers to others.

A rule is a time in ms. Three can apply: that of the group, which its founder has signed with the genesis event and
which is as permanent as all its rules (`Policy.keep`), the user's choice for this conversation, and the user's setting
for the profile. The shortest counts for our own disk; the group's alone binds the answers to others. Under a choice of
ours alone, posts of ours that a member lacks stay, since only we can send them. A group with a transparency log has no
rule: its messages are evidence, and a dispute may need them.

Erased is the body of a post or an annotation. Its header stays with the hash of the body (`Event.erased`), so the event
keeps its id, its place and its links: acknowledgements, completeness, set reconciliation and fork detection see no gap,
and no member asks for it again. What stays tells who posted when, and no more. Under the group's rule a member that was
away for longer receives such headers in place of the messages. It accepts one only when the event has expired by its
own clock, so that no member can pass off another one's recent post as expired; posts of new members' past are not sent
at all. Groups with a rule add random bytes to each body: otherwise its hash would reveal a short text to a reader that
guesses it. Other groups do not, so under a choice of ours alone the hash of a short text can be guessed by a thief of
our disk. Membership events stay, and so do announcements of bots.

An event expires by its Lamport time, which no author can set far ahead (`lamport.check_not_ahead`). A leap of our clock
erases nothing (`_trusted_time`): one that was adopted while we were alone, the time for which the machine was off, and
what our clock was ahead when the first member reported its time. That part of our time is unconfirmed until a member
reports a later time or posts; else content expires when its time has passed by the clock that counts since the boot.

A round erases nothing itself. It emits `EraseContent`, which the journal stores with the batch, and the I/O layer
overwrites the rows, the words in the index, drafts, files and the write-ahead log in bounded slices
(`agent/storage/erasure.py`). Not erased are copies beyond our reach: backups, exports, other members' files.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.errors import LocalError, Refused
from zerochat.group.effects import EraseContent, Notify
from zerochat.group.event_log.event import LASTING, Event, load_event
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.files import catalogue
from zerochat.group.notifications import ContentExpired, ViewChanged
from zerochat.group.state import Agent, EarlyEvent, Group, ReorderBuffer
from zerochat.group.timer_kinds import START_DELAY_MS, TimerKind
from zerochat.group.transaction import Transaction

ROUND_MS_MIN, ROUND_MS_MAX = 60_000, 3_600_000
"""The interval of rounds: a sixtieth of the shortest rule, within these limits."""
ROUNDS_PER_RULE = 60
NEGLIGIBLE_MS = 60_000
"""The latest confirmed time is stored when it is so much later, and a round follows at once if it was a leap."""
SALT_BYTES = 16
EARLY_MS_MAX = 2 * AHEAD_MS_MAX
"""How long before its time, by our clock, an erased event is accepted: clocks differ."""


class KeptAsEvidence(LocalError):
    """Messages in {group} cannot disappear: the group has a transparency log, and keeps them as evidence."""


def keep_ms(agent: Agent, group: Group) -> int:
    """How long content stays on our disk, ms: the shortest of the rules. 0: for ever."""
    if group.view.has_tlog:
        return 0
    rules = (group.view.policy.keep, group.retention.choice, agent.keep_ms)
    return min((rule for rule in rules if rule), default=0)


def _trusted_time(agent: Agent, now: int) -> int:
    """Up to when our clock is believed, UTC ms: all but its unconfirmed part, or the latest time that is confirmed."""
    return min(now, max(now - agent.unconfirmed_ms, agent.trusted_time, _reported_time(agent)))


def _reported_time(agent: Agent, *, own: bool = False) -> int:
    """The time of the latest message of another member, UTC ms; 0: there is none. `own`: or of ours."""
    groups = agent.groups.values()
    chains = ((did == group.me, chain) for group in groups for did, chain in group.log.chains.items())
    return max((chain.lamport for is_own, chain in chains if own or not is_own), default=0)


def _expired_before(tx: Transaction, rule: int) -> int:
    """The Lamport time before which content has expired under a rule (ms); 0: there is none."""
    return max(0, _trusted_time(tx.agent, tx.now) - rule) if rule else 0


# --- rounds -----------------------------------------------------------------------------------------------------------


def schedule(tx: Transaction, delay_ms: int = START_DELAY_MS) -> None:
    """A rule may apply from now on: the next round is soon."""
    if any(keep_ms(tx.agent, group) for group in tx.agent.groups.values()):
        tx.set_timer(TimerKind.RETENTION, "", delay_ms)


def run_round(tx: Transaction) -> None:
    """Have the expired content of all groups erased, and schedule the next round."""
    rules = {name: rule for name, group in tx.agent.groups.items() if (rule := keep_ms(tx.agent, group))}
    if not rules:
        return
    if not tx.agent.is_time_known and (reported := _reported_time(tx.agent)):
        confirm_clock(tx, reported)
    tx.update_agent(trusted_time=_trusted_time(tx.agent, tx.now))
    for name, rule in rules.items():
        _expire(tx, name, _expired_before(tx, rule))
    schedule(tx, max(ROUND_MS_MIN, min(min(rules.values()) // ROUNDS_PER_RULE, ROUND_MS_MAX)))


def confirm_clock(tx: Transaction, at: int) -> None:
    """A member reports its time (UTC ms): ours is believed up to then. The first report also tells how far our clock
    was ahead from the start."""
    at, known = min(at, tx.now), _trusted_time(tx.agent, tx.now)
    ahead_ms = 0 if tx.now - at <= AHEAD_MS_MAX else tx.now - at  # clocks differ
    if not tx.agent.is_time_known:
        tx.update_agent(is_time_known=True, trusted_time=at, unconfirmed_ms=ahead_ms)
    elif ahead_ms < tx.agent.unconfirmed_ms:
        tx.update_agent(unconfirmed_ms=ahead_ms)
    trusted = _trusted_time(tx.agent, tx.now)
    if trusted > tx.agent.trusted_time + NEGLIGIBLE_MS:
        tx.update_agent(trusted_time=trusted)
    if trusted > known + NEGLIGIBLE_MS:
        schedule(tx)


def on_clock_adopted(tx: Transaction, by_ms: int) -> None:
    """Our clock was set forward by so many ms (negative: back), and no member has confirmed that."""
    tx.update_agent(unconfirmed_ms=tx.agent.unconfirmed_ms + by_ms)


def on_rebooted(tx: Transaction) -> None:
    """For how long the machine was off is unknown: all time since the latest known one is unconfirmed."""
    known = max(tx.agent.trusted_time, _reported_time(tx.agent, own=not tx.agent.is_time_known))
    if known:
        tx.update_agent(trusted_time=known, unconfirmed_ms=max(0, tx.now - known))


def choose(tx: Transaction, group: Group, rule: int) -> str:
    """The user's choice for this conversation, ms; 0: none. Raises KeptAsEvidence."""
    if rule and group.view.has_tlog:
        raise KeptAsEvidence(group=group.name)
    tx.update_group(group.id, retention=replace(group.retention, choice=rule))
    schedule(tx, 1)
    tx.emit(Notify(ViewChanged(group.id)))
    return group.id


def _expire(tx: Transaction, name: str, before: int) -> None:
    group = tx.group(name)
    if before <= group.retention.erased_before:
        return
    tx.update_group(name, retention=replace(group.retention, erased_before=before))
    _expire_early(tx, name, before)
    for key, one in list(tx.group(name).files.items()):
        if (one.lamport or one.at) < before:
            catalogue.forget_file(tx, name, key)
    ruled = _expired_before(tx, group.view.policy.keep)
    tx.emit(EraseContent(name, before, ruled, group.me, _acknowledged_by_all(group)), Notify(ContentExpired(name)))


def _acknowledged_by_all(group: Group) -> int:
    """The position of our chain up to which no member lacks anything."""
    peers = [(did, peer) for did, peer in group.links.peers.items() if did in group.view.members]
    return min((max(group.links.acked(did, group.me), peer.start_seq) for did, peer in peers), default=group.seq)


def _expire_early(tx: Transaction, name: str, before: int) -> None:
    """Erase what waits for its predecessor, and have members that lack erased messages of our stream subscribe again:
    they get the headers apart from it."""
    group = tx.group(name)
    buffers = {}
    for author, buffer in group.log.reorder_buffers.items():
        events = {seq: load_event(early.record) for seq, early in buffer.events.items()}
        buffers[author] = ReorderBuffer(
            {seq: EarlyEvent(_erased_before(event, before).record) for seq, event in events.items()}
        )
    if buffers != group.log.reorder_buffers:
        tx.update_log(name, reorder_buffers=buffers)
    own, subscribers = group.streams.own, group.streams.subscribers
    ruled = _expired_before(tx, group.view.policy.keep)
    if own is not None:
        current = {did: one for did, one in subscribers.items() if not one.acked < min(ruled, own.time)}
        if current != subscribers:
            tx.update_streams(name, subscribers=current)


# --- events -----------------------------------------------------------------------------------------------------------


def _erased_before(event: Event, before: int) -> Event:
    return event.erased() if event.lamport < before and event.type not in LASTING else event


def as_kept(tx: Transaction, name: str, event: Event) -> Event:
    """The event as our log stores it: without content that has expired here."""
    return _erased_before(event, tx.group(name).retention.erased_before)


def for_others(tx: Transaction, name: str, events: Iterable[Event]) -> list[Event]:
    """These events as others get them: without content that has expired under the group's rule, and without those that
    we have erased before that."""
    ruled = _expired_before(tx, tx.group(name).view.policy.keep)
    found = [_erased_before(event, ruled) for event in events]
    return [event for event in found if not event.is_erased or event.lamport < ruled]


def history_rules(tx: Transaction, name: str, member_rule: str) -> tuple[str, ...]:
    """The rules that limit what a member gets from before it joined: nothing that has expired."""
    policy = tx.group(name).view.policy
    rules = policy.history, member_rule
    if not policy.keep:
        return rules
    step = policy.keep // ROUNDS_PER_RULE  # few different rules, since the I/O layer caches by them
    return *rules, f"since:{_expired_before(tx, policy.keep) // step * step}"


def is_premature(tx: Transaction, name: str, event: Event) -> bool:
    """Whether this event comes without content that has not expired."""
    rule = tx.group(name).view.policy.keep
    return event.is_erased and (not rule or event.lamport + rule > tx.now + EARLY_MS_MAX)


def check_received(tx: Transaction, name: str, event: Event) -> None:
    """Raise Refused for an event without content that has not expired; it is sent again."""
    if is_premature(tx, name, event):
        raise Refused(why="an event without its content before its time")


def salt(tx: Transaction, group: Group) -> dict[str, str]:
    """What is added to the body of a post of ours, so that its hash reveals nothing."""
    return {"salt": b64url(tx.context.random(SALT_BYTES))} if group.view.policy.keep else {}
