"""Our own key events: what is due before we speak, and the event that does it.

Our hardening of DCGKA is one rule: *a secret mixed into our ratchet must be known to members of our view alone.*
Otherwise an update comes before the next message. Concurrent events break it in three ways. The search finds readers
without any of them (`tests/group/test_key_agreement_search.py`):

- H1: a member left, or was removed by an update that was not for us, because its author did not know us yet.
- H2: an update that we adopt was made by a member that still counted others whom we see as removed. Each of two
  concurrent removals excludes one of the victims, but they can pool their memories.
- H3: a newcomer's ratchet begins with its own seed, never with the ratchet of the member that added it.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from zerochat.crypto import two_party
from zerochat.crypto.prekeys import with_new
from zerochat.crypto.primitives import x25519_public
from zerochat.crypto.structs import Redacted
from zerochat.group.inputs import StepContext
from zerochat.group.key_agreement.export import with_exported
from zerochat.group.key_agreement.key_event import (
    ADOPTS_MAX,
    TO_MAX,
    WANTS_MAX,
    Directs,
    KeyEvent,
    pair_context,
    place_of,
)
from zerochat.group.key_agreement.key_schedule import (
    KEY_BYTES,
    NO_RATCHET,
    adopted,
    advanced,
    commitment,
)
from zerochat.group.key_agreement.member_secrets import MemberSecrets, secrets_of
from zerochat.group.key_agreement.state import (
    AUTHOR_INTERVAL_MS,
    AUTHOR_OPERATIONS_MAX,
    OPERATIONS_BYTES_MAX,
    Keys,
    Membership,
    Operation,
    SendingEpoch,
)

UPDATE_MS: Final = 7 * 24 * 3_600_000
"""After how long a member that sends makes an update (as Megolm's rotation)."""
UPDATE_MESSAGES: Final = 100
"""After how many messages of its own a member makes an update."""

Due: TypeAlias = Literal["", "update", "other"]
"""What comes before our next message: nothing; an update; an event without a seed, which adopts updates of others or
gives our ratchet to members that lack it."""


class Produced(NamedTuple):
    """A new key event, to be signed, and the state after it."""

    keys: Keys
    event: KeyEvent
    directs: Directs


class _Plan(Redacted, frozen=True):
    """What an event would do."""

    REDACTED = ("ratchet",)

    update: bool
    adopts: tuple[str, ...]
    ratchet: bytes
    """After the adoptions."""
    synced: frozenset[str]
    """The members that follow it up to there."""
    knowers: frozenset[str]
    to: tuple[str, ...]
    """The members that are sent something."""


def due(keys: Keys, membership: Membership, now: int) -> Due:
    """What comes before our next message."""
    plan = _plan(keys, membership, now)
    if plan.update:
        return "update"
    return "other" if plan.adopts or plan.to or keys.wanted & membership.members else ""


def may_wait(keys: Keys, membership: Membership, now: int) -> bool:
    """Whether our next message may go before what is `due`: then only others have caused it, and none but members can
    know our ratchet."""
    return keys.knowers is not None and keys.knowers <= membership.members and not _is_worn(keys, now)


def witness(
    knowers: frozenset[str], audiences: Sequence[frozenset[str]], members: frozenset[str]
) -> frozenset[str] | None:
    """Those who know a secret in our ratchet that only members know; None: each is known to a non-member, who may know
    our ratchet, alone or with others.

    `knowers`: of the last secret until now; `audiences`: of the updates that we adopt.
    """
    return next((known for known in (*reversed(audiences), knowers) if known <= members), None)


def produce(
    keys: Keys, membership: Membership, context: StepContext, *, update: bool = False, reset: bool = False
) -> Produced:
    """Our next key event: an update where one is due or asked for.

    `reset`: our channels are lost, and begin anew with a new pre-key; `keys.channels` are new ones
    (`two_party.reached`).
    """
    plan = _plan(keys, membership, context.now, update or reset)
    if reset:
        keys = replace(keys, held=with_new(keys.held, context.now, context.random))
    seed = context.random(KEY_BYTES) if plan.update else b""
    place = place_of(keys.group, keys.me, keys.number + 1)
    audience = membership.at(membership.heads) | {keys.me}  # heads may not count us in: then others refuse the event
    secrets = secrets_of(seed, audience) if plan.update else MemberSecrets()
    start = secrets.of(keys.me) if plan.update else plan.ratchet
    step = advanced(start, place)
    channels, messages = dict(keys.channels), {}
    for peer in plan.to:
        pair = pair_context(keys.group, keys.me, peer)
        channels[peer], messages[peer] = two_party.send(channels[peer], pair, seed or plan.ratchet, context.random)
    directs = Directs(messages)
    event = KeyEvent(
        keys.group,
        keys.me,
        keys.number + 1,
        membership.heads,
        plan.adopts,
        keys.epoch.sent,
        commitment(seed) if plan.update else b"",
        () if plan.update else plan.to,
        tuple(sorted(keys.wanted & membership.members))[:WANTS_MAX],
        directs.root,
        x25519_public(keys.held[0].secret) if reset else b"",
    )
    after = replace(
        keys,
        number=event.number,
        ratchet=step.ratchet,
        knowers=plan.knowers,
        synced=plan.synced,
        channels=channels,
        pending=(),
        wanted=keys.wanted - set(event.wants),
        epoch=SendingEpoch(event.id, step.epoch_key),
    )
    if plan.update:
        if membership.exports:
            after = replace(after, exported=with_exported(keys.exported, event, seed, membership, context.now))
        operation = Operation(keys.me, membership.heads, secrets.without([keys.me]), context.now)
        after = replace(with_operation(after, event.id, operation), updated=context.now, sent=0)
    return Produced(_without_own(after), event, directs)


def recent_updates(keys: Keys, author: str, now: int) -> int:
    """How many updates of an author have come in the last `AUTHOR_INTERVAL_MS`."""
    return sum(one.author == author and 0 <= now - one.at < AUTHOR_INTERVAL_MS for one in keys.operations.values())


def with_operation(keys: Keys, name: str, operation: Operation) -> Keys:
    """The state with one more update; without it, if its author has made too many of late. Of too many, the oldest is
    erased."""
    operations = dict(keys.operations)
    if recent_updates(keys, operation.author, operation.at) >= AUTHOR_OPERATIONS_MAX:
        return keys
    of_author = [one for one, kept in operations.items() if kept.author == operation.author]
    for one in of_author[: max(0, len(of_author) + 1 - AUTHOR_OPERATIONS_MAX)]:
        del operations[one]
    operations[name] = operation
    size = sum(one.secrets.size for one in operations.values())
    while size > OPERATIONS_BYTES_MAX:
        size -= operations.pop(next(iter(operations))).secrets.size
    return replace(keys, operations=operations)


def _plan(keys: Keys, membership: Membership, now: int, update: bool = False) -> _Plan:
    members, others = membership.members, membership.members - {keys.me}
    usable = [
        name
        for name in keys.pending
        if (operation := keys.operations.get(name)) and operation.author in members and operation.secrets.holds(keys.me)
    ][-ADOPTS_MAX:]
    audiences = [membership.at(keys.operations[name].control) for name in usable]
    ratchet, synced = keys.ratchet, keys.synced
    for name, audience in zip(usable, audiences, strict=True):
        ratchet = adopted(ratchet, keys.operations[name].secrets.of(keys.me))
        synced &= audience
    lacking = tuple(sorted(_reachable(keys, others - synced)))
    known = None if keys.knowers is None else witness(keys.knowers, audiences, members)
    if update or known is None or _is_worn(keys, now) or len(lacking) > TO_MAX:
        reachable = _reachable(keys, others)
        return _Plan(True, (), NO_RATCHET, reachable, reachable | {keys.me}, tuple(sorted(reachable)))
    return _Plan(False, tuple(usable), ratchet, synced | set(lacking), known | set(lacking) | {keys.me}, lacking)


def _is_worn(keys: Keys, now: int) -> bool:
    """Whether an update is due by our own messages or by time, also after the clock was set back."""
    return keys.sent >= UPDATE_MESSAGES or abs(now - keys.updated) >= UPDATE_MS


def _reachable(keys: Keys, peers: frozenset[str]) -> frozenset[str]:
    """Those of these peers that we have a key of."""
    return frozenset(peer for peer in peers if (channel := keys.channels.get(peer)) and channel.peer)


def _without_own(keys: Keys) -> Keys:
    """The state without our own secrets of updates: we have adopted these, or replaced them by an update."""
    return replace(keys, operations={name: one.without([keys.me]) for name, one in keys.operations.items()})
