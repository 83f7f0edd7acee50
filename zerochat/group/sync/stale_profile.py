"""Stale-profile recovery: a profile that is an older copy of itself stays silent until it has its own events back.

An older copy has sent more than it knows. If it went on, it would reuse places of its chain, which looks like
equivocation. The other members report with every `sync` how far they have our chain, so a profile that is behind stops
sending and fetches its own events from them.

A profile restored from a backup asks all members and waits for the last one, which may be the only one with our last
events. It renews the DID exchange with each (`links/pairing.py`), so no old message can be replayed, and messages under
way to us become unreadable. If a member is gone for good, or we were alone at the time of the backup, only the user can
decide to go on (`resume`).

A false claim could silence us. After a restore, any member is believed until the user decides otherwise; else two
members, or the only other one, until they were asked and had nothing to show. No member can forge our events: each post
carries a mark that only we can make and check, so it proves nothing to others.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import blake2b_keyed, equal
from zerochat.errors import LocalError, NotAMember, Refused
from zerochat.group.dcgka import ring_channels
from zerochat.group.effects import Notify
from zerochat.group.event_log.event import MARK, Event
from zerochat.group.links import mediator_mail, pairing
from zerochat.group.membership import member_names
from zerochat.group.notifications import RecoveryEnded, ViewChanged
from zerochat.group.signed_streams import publisher
from zerochat.group.state import Group, Recovery
from zerochat.group.sync import acknowledgements, head_claims, pull_requests
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

RETRY_MS, BACKGROUND_MS = 2_000, 10_000
"""The interval of requests; the longer one after a restore when the members in reach have nothing."""
ROUNDS_MAX = 65
"""After so many rounds (at least two minutes) a connected member need only have been asked once, and an absent one is
not waited for: otherwise claims one after the other could silence us. Rounds count, not time: while we sleep or are
alone, there is no answer."""
EVENTS_MAX = 64
MARK_BYTES = 8
"""Guessing a mark takes one query to us per try."""


class OwnChainUncertain(Refused):
    """It is unknown how many events we have sent."""


class AnswersMissing(OwnChainUncertain):
    """This profile was restored from a backup: you can post in {group} once every member has reported how many of your
    messages it has received (missing: {missing}). If they do not return, type `zerochat resume {group}`."""


class StaleProfile(OwnChainUncertain):
    """This is an older copy of the profile: {who} reported more of your own messages in {group} than it has. They are
    fetched when possible; if no member has them any more, type `zerochat resume {group}`."""


class RestoredAlone(OwnChainUncertain):
    """This profile was restored from a backup, and you were alone in {group} when it was made. If no member has joined
    since, type `zerochat resume {group}`; otherwise create a new group."""


class NothingToResume(LocalError):
    """There is nothing to resume in {group}: you can post there."""


def with_mark(group: Group, event: Event) -> Event:
    """A post of ours with our mark in its body."""
    return event.marked(_mark(group, event))


def is_ours(group: Group, event: Event) -> bool:
    """Whether we have made this event, regardless of the relaying member: its mark is right, whether or not its content
    was erased."""
    return equal(str(event.body.get(MARK, "")).encode(), _mark(group, event.unmarked).encode())


def _mark(group: Group, event: Event) -> str:
    return b64url(blake2b_keyed(group.seed, b"zerochat/own", event.id.encode(), MARK_BYTES))


def start(tx: Transaction, name: str) -> None:
    """The profile was restored from a backup: suspend sending in this group, and accept no messages before a new DID
    exchange."""
    if tx.group(name).state == "active":
        tx.update_sync(name, recovery=Recovery(from_backup=True))
        tx.update_links(name, relationships={}, offers={})
        publisher.restart_stream(tx, name)
        _renew_keys(tx, name)


def _renew_keys(tx: Transaction, name: str) -> None:
    """Our profile is an older copy, or may be: begin the key agreement anew before we send again, once for each
    recovery. Not for a mere claim, which costs its sender nothing: if it is withdrawn, our keys stay."""
    recovery = tx.group(name).sync.recovery or Recovery()
    if not recovery.has_new_keys:
        ring_channels.begin_anew(tx, name)
        tx.update_sync(name, recovery=replace(recovery, has_new_keys=True))


def is_suspended(group: Group) -> bool:
    """Whether we may have sent more than we know."""
    return group.sync.recovery is not None and (
        group.sync.recovery.from_backup or bool(head_claims.believed_claimants(group))
    )


def claimed_seq(group: Group) -> int:
    """The end of our own chain as claimed by the believed members; 0: no claims."""
    if group.sync.recovery is None or not (ahead := head_claims.believed_claimants(group)):
        return 0
    return max(head_claims.last_signed_seq(group), *(group.sync.recovery.claims[member] for member in ahead))


def check_not_suspended(group: Group) -> None:
    """Raise AnswersMissing, StaleProfile or RestoredAlone while we must not send."""
    if not is_suspended(group):
        return
    if not group.others:
        raise RestoredAlone(group=group.name)
    assert group.sync.recovery is not None
    if ahead := head_claims.claimants(group):
        raise StaleProfile(who=member_names(group.view, ahead), group=group.name)
    raise AnswersMissing(missing=member_names(group.view, _unanswered(group)), group=group.name)


def resume(tx: Transaction, group: Group) -> str:
    """The user decides to go on without the missing events. Raises NotAMember or NothingToResume."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    if group.sync.recovery is None or not is_suspended(group):
        raise NothingToResume(group=group.name)
    _renew_keys(tx, group.id)
    ignored = group.sync.recovery.ignored | group.sync.recovery.claims.keys()
    tx.update_sync(group.id, recovery=Recovery(ignored=ignored) if ignored else None)
    tx.emit(Notify(RecoveryEnded(group.id, group.seq)))
    return group.id


def receive_claim(tx: Transaction, name: str, member: str, upto: int) -> None:
    """A member reports how far it has our chain."""
    group = tx.group(name)
    recovery = group.sync.recovery or Recovery()
    if group.state != "active" or (upto <= group.seq and not (recovery.from_backup or recovery.claims)):
        return
    could_send = not is_suspended(group)
    changed = member not in recovery.ignored and recovery.claims.get(member) != upto
    if changed:
        tx.update_sync(name, recovery=replace(recovery, claims={**recovery.claims, member: upto}))
    settle(tx, name)
    group = tx.group(name)
    if is_suspended(group):
        tx.set_timer(TimerKind.RECOVERY, name, 1, if_unset=True)
        if changed:
            publisher.restart_stream(tx, name)
        if could_send:
            tx.emit(Notify(ViewChanged(name)))
    elif not could_send and group.sync.recovery is not None and group.sync.recovery.claims:  # a claim was withdrawn
        _end_recovery(tx, name, group.sync.recovery)


def request_own_events(tx: Transaction, name: str) -> None:
    """Request our own events from claimants; ignore those that have shown none."""
    settle(tx, name)
    group = tx.group(name)
    recovery = group.sync.recovery
    if recovery is None:
        return
    if recovery.from_backup:
        _query_all(tx, name)
    pull_requests.expire(tx, name)
    recovery = _repeat_over_links(tx, name, recovery)
    group = tx.group(name)
    if not is_suspended(group):
        return
    reachable = [
        member for member in head_claims.believed_claimants(group) if pull_requests.is_reachable(tx, name, member)
    ]
    requests = {member: recovery.requests.get(member, 0) for member in reachable}  # a lost link loses its open requests
    recovery = replace(recovery, requests=requests, rounds=recovery.rounds if reachable else 0)
    free = sorted((member for member in reachable if member not in group.sync.pull_requests), key=requests.__getitem__)
    if not recovery.from_backup:  # each was asked, and had nothing to show
        is_long = recovery.rounds >= ROUNDS_MAX
        exhausted = [
            one
            for one in free
            if requests[one] >= (1 if is_long and mediator_mail.is_connected(tx, name, one) else head_claims.TRIES_MAX)
        ]
        if exhausted and (is_long or len(exhausted) == len(head_claims.believed_claimants(group))):
            _ignore_claimants(tx, name, recovery, exhausted)
            return
    # A member that has some answers at once; the longer none does, the more are asked in parallel.
    selected = [one for one in free if head_claims.may_have(recovery, one)][: max(1, sum(requests.values()))]
    for member in selected or (free[:1] if recovery.from_backup else ()):
        ranges = [(group.me, group.seq, max(recovery.claims[member], head_claims.last_signed_seq(group)))]
        pull_requests.send(tx, name, member, ranges, EVENTS_MAX)
        requests[member] += 1
        if mediator_mail.goes_by_mail(tx, name, member):
            recovery = replace(recovery, requested_by_mail=recovery.requested_by_mail | {member})
    connected = any(mediator_mail.is_connected(tx, name, member) for member in reachable)
    tx.update_sync(name, recovery=replace(recovery, requests=requests, rounds=recovery.rounds + connected))
    may_have_more = any(head_claims.may_have(recovery, member) for member in reachable)
    tx.set_timer(TimerKind.RECOVERY, name, RETRY_MS if may_have_more or not recovery.from_backup else BACKGROUND_MS)


def _repeat_over_links(tx: Transaction, name: str, recovery: Recovery) -> Recovery:
    """Members asked by mail that are connected now are asked again: the mail may not have reached them."""
    group = tx.group(name)
    reached_now = {
        member
        for member in recovery.requested_by_mail & group.links.peers.keys()
        if mediator_mail.is_connected(tx, name, member)
    }
    if reached_now:
        requests = {member: times for member, times in recovery.requests.items() if member not in reached_now}
        recovery = replace(recovery, requests=requests, requested_by_mail=recovery.requested_by_mail - reached_now)
        remaining = {member: one for member, one in group.sync.pull_requests.items() if member not in reached_now}
        tx.update_sync(name, recovery=recovery, pull_requests=remaining)
    return recovery


def _ignore_claimants(tx: Transaction, name: str, recovery: Recovery, exhausted: Sequence[str]) -> None:
    """These have nothing to show: ignore their claims from now on."""
    _renew_keys(tx, name)
    remaining = {member: upto for member, upto in recovery.claims.items() if member not in exhausted}
    requests = {member: times for member, times in recovery.requests.items() if member in remaining}
    ignored = recovery.ignored | set(exhausted)
    recovery = replace(recovery, claims=remaining, requests=requests, ignored=ignored, has_new_keys=True)
    if is_suspended(tx.update_sync(name, recovery=recovery)):
        tx.set_timer(TimerKind.RECOVERY, name, RETRY_MS)
    else:
        _end_recovery(tx, name, Recovery(claims=remaining, ignored=recovery.ignored))


def _end_recovery(tx: Transaction, name: str, recovery: Recovery) -> None:
    """We may send again."""
    recovery = replace(recovery, has_new_keys=False)  # a later one needs others
    group = tx.update_sync(
        name, recovery=recovery if recovery.claims or recovery.ignored or recovery.requests else None
    )
    tx.set_timer(TimerKind.RETRANSMIT, name, 1)  # our fetched events count as sent again, and must reach everyone
    tx.emit(Notify(RecoveryEnded(name, group.seq)))


def _query_all(tx: Transaction, name: str) -> None:
    """Renew the DID exchange with every member; ask connected ones to report how far they have our chain, and to
    acknowledge what we have fetched."""
    group = tx.group(name)
    for member in group.counterparts:
        relationship = group.links.relationships.get(member)
        if (
            relationship is not None
            and member not in _unanswered(group)
            and not acknowledgements.is_behind(group, member)
        ):
            continue  # it has reported everything
        if relationship is None:
            pairing.renew_relationship(tx, name, member)
        elif relationship.established and not mediator_mail.goes_by_mail(tx, name, member):
            tx.update_anti_entropy(name, member, view="")  # so that it is asked for its view
            acknowledgements.send_sync(tx, name, member)


def on_progress(tx: Transaction, name: str) -> None:
    """Some of our events are back: their sender may have more."""
    if tx.group(name).sync.recovery is not None:
        _renew_keys(tx, name)
    recovery = tx.group(name).sync.recovery
    if recovery is not None:
        tx.update_sync(name, recovery=replace(recovery, requests={}, rounds=0))
        settle(tx, name)
        tx.set_timer(TimerKind.RECOVERY, name, 1)


def settle(tx: Transaction, name: str) -> None:
    """End the recovery if we know all our events again."""
    group = tx.group(name)
    recovery = group.sync.recovery
    if recovery is None or not (recovery.from_backup or recovery.claims) or head_claims.believed_claimants(group):
        return
    if recovery.from_backup and (not group.counterparts or _unanswered(group)):
        return
    if head_claims.claimants(group):
        return  # a single claimant
    # A claimant that withdraws does not start anew when it claims again.
    _end_recovery(
        tx, name, Recovery(ignored=recovery.ignored) if recovery.from_backup else replace(recovery, claims={})
    )


def _unanswered(group: Group) -> list[str]:
    """The members that have not reported how far they have our chain, or whose view differs: they may know other
    members to ask."""
    assert group.sync.recovery is not None
    reported = group.sync.recovery.claims.keys() & group.links.peers.keys()
    return [
        did
        for did in group.counterparts
        if did not in reported or group.links.peers[did].anti_entropy.view != group.view.checksum
    ]
