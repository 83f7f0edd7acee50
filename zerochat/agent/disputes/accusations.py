"""Detects missing links in a member's stream and accuses the publisher of withholding.

A message arrived whose predecessor never did. The publisher had ten minutes, plus the clock tolerance, to deliver the
predecessor or post it in the transparency log; no accusation is possible before (`evidence/judge.py`).
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import Struct

from zerochat.agent.disputes.case_files import CaseFile, Statements, later_subscriptions, subscriptions
from zerochat.agent.disputes.tlog_reader import TlogReader, ended_subscription, rules_of
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, RemoteError, Retry
from zerochat.evidence.case import Accusation, Rules
from zerochat.evidence.handshake import Subscription
from zerochat.evidence.messages import SIGNATURE, Data, parse_data
from zerochat.group.membership.view import member_names
from zerochat.group.state import EarlyMessages, Group
from zerochat.rpc.common import timestamp


class NothingMissing(LocalError):
    """No message from {member} is missing in {group}, so there is nothing to accuse {member} of."""


class NotAccountable(LocalError):
    """{group} has no transparency log, so members cannot be accused. Groups created with `--kind accountable` have one
    from three members on."""


class TooEarly(LocalError):
    """A message from {member} is missing, but {member} may still deliver it until {until}. Try again after that."""

    retry: ClassVar[Retry] = "later"


class SubscriptionEnded(LocalError):
    """{member} ended your subscription in the transparency log before sending the last message, so the missing message
    was not owed to you."""


class AlreadyAccused(LocalError):
    """You have already accused {member} of this. `zerochat cases {group}` shows the case."""


class MissingLink(Struct, frozen=True):
    """A missing message: its received successor, and the subscription under which it was owed."""

    message: bytes
    came: Data
    subscription: Statements
    rules: Rules | None
    """None: no rules were agreed on."""

    @property
    def due_ms(self) -> int:
        """Earliest time of an accusation by the subscriber's clock, UTC ms."""
        assert self.rules is not None
        return self.came.time + self.rules.ack_ms + self.rules.grace_ms


def missing_links(journal: Journal, tlog: TlogReader, group: Group, member: str) -> Iterator[MissingLink]:
    """Missing links of a member's stream, oldest first."""
    known = subscriptions(journal, group, member, group.me)
    for came, encoded in sorted(_unresolved(journal, group, member), key=lambda one: one[0].time):
        # Owed under the last subscription that had begun by then, by the publisher's clock.
        same = [one for one in known if one[1].alias == b64url(came.alias)]
        begun = [one for one in same if one[1].time < came.time]
        if begun and not _has_arrived(journal, group, member, came) and not _predates_subscription(same, came):
            yield MissingLink(encoded, came, begun[-1], rules_of(tlog, group.id, begun[-1][1].rules))


def _unresolved(journal: Journal, group: Group, member: str) -> Iterator[tuple[Data, bytes]]:
    """Early and orphaned messages whose predecessor is not among them."""
    early = group.streams.early_messages.get(member, EarlyMessages()).written
    strays = journal.signed_messages.rejected(group.id, member)
    arrived = {*strays, *(encoded[SIGNATURE] for encoded in early)}
    for encoded in dict.fromkeys((*early, *strays.values())):
        try:
            came = parse_data(encoded)
        except RemoteError:
            continue
        if came.before not in arrived:
            yield came, encoded


def _has_arrived(journal: Journal, group: Group, member: str, came: Data) -> bool:
    """Whether the named predecessor has been received. Then this message forks the stream (E1), which is another
    offence."""
    return journal.signed_messages.has(group.id, member, came.alias, came.time, came.before)


def _predates_subscription(known: Sequence[Statements], came: Data) -> bool:
    """Whether a subscription began right after the named predecessor, which was therefore not owed."""
    return any(came.before == Subscription(*one).head for one in known)


def accuse(journal: Journal, tlog: TlogReader, group: Group, member: str, now: int) -> CaseFile:
    """A signed case file about the oldest missing link; nothing is stored or posted yet. `now`: UTC ms. Raises
    NothingMissing, NotAccountable, TooEarly, SubscriptionEnded or AlreadyAccused."""
    name = member_names(group.view, [member])
    refusal: LocalError | None = None
    for link in missing_links(journal, tlog, group, member):
        accept = link.subscription[1]
        if link.rules is None:
            refusal = refusal or NotAccountable(group=group.name)
        elif now < link.due_ms:
            refusal = refusal or TooEarly(member=name, until=timestamp(link.due_ms))
        elif (over := ended_subscription(tlog, group.id, link.rules, accept)) is not None and over.at < link.came.time:
            refusal = refusal or SubscriptionEnded(member=name)
        elif journal.cases.cases_about(group.id, accept.digest, b64url(sha256(link.message))):
            refusal = refusal or AlreadyAccused(member=name, group=group.name)
        else:
            later = later_subscriptions(subscriptions(journal, group, member, group.me), link.subscription)
            accusation = Accusation(
                time=now,
                accuser=group.me,
                accept=accept.digest,
                message=b64url(sha256(link.message)),
                missing=b64url(link.came.before),
                log_size=tlog.size(group.id, link.rules.origin),
                reopened=tuple(one[1].digest for one in later),
            ).signed(group.seed)
            return CaseFile(accusation, link.message, link.subscription, later)
    raise refusal or NothingMissing(member=name, group=group.name)
