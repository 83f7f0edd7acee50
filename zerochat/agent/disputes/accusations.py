"""What is missing in a member's stream, and accusing it of that.

A message came that names one before it which never did. From its time on the publisher had ten minutes to deliver that
or to post it in the log, and two clocks may be off: before that is over, nobody can accuse it (`evidence/judge.py`).
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import Struct

from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.disputes.case_files import Docket, Statements, later_than, subscriptions
from zerochat.agent.disputes.tlog_reader import Book, ended, rules_of
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, RemoteError, Retry
from zerochat.evidence.case import Accusation, Rules
from zerochat.evidence.equivocation import SIGNATURE
from zerochat.evidence.handshake import Subscription
from zerochat.evidence.messages import Data, parse_data
from zerochat.group.membership.view import names
from zerochat.group.state import Early, Group


class NothingMissing(LocalError):
    """Nothing is missing that {member} has said to you in {group}: every message here follows the one that it names."""


class NotAccountable(LocalError):
    """In {group} nobody has agreed to be judged by a log, so nobody can be accused. Groups that are made with
    `--kind accountable` have one, as soon as they have three members."""


class TooEarly(LocalError):
    """Something that {member} has said is missing, and {member} still has time to deliver it or to put it into the log:
    until {until}. After that you can accuse it."""

    retry: ClassVar[Retry] = "later"


class SubscriptionEnded(LocalError):
    """{member} has put into the log that it does not write to you any more, before it sent what came last: so it did
    not owe you what is missing."""


class AccusedAlready(LocalError):
    """You have accused {member} of this already: `zerochat cases {group}` shows what has come of it."""


class Link(Struct, frozen=True):
    """Something that is missing: what names it, and under which subscription it was owed."""

    message: bytes
    came: Data
    subscription: Statements
    rules: Rules | None
    """None: the two have agreed to none."""

    @property
    def due_ms(self) -> int:
        """From when on the publisher can be accused, by the subscriber's clock (UTC ms)."""
        assert self.rules is not None
        return self.came.time + self.rules.ack_ms + self.rules.grace_ms


def missing_links(journal: Journal, book: Book, group: Group, member: str) -> Iterator[Link]:
    """What is missing of a member's stream, the oldest first."""
    known = subscriptions(journal, group, member, group.me)
    for came, written in sorted(_waiting(journal, group, member), key=lambda one: one[0].time):
        # By the publisher's own clock: it was owed under the last subscription that had begun by then.
        same = [one for one in known if one[1].alias == b64url(came.alias)]
        begun = [one for one in same if one[1].time < came.time]
        if begun and not _is_here(journal, group, member, came) and not _began_behind(same, came):
            yield Link(written, came, begun[-1], rules_of(book, group.id, begun[-1][1].rules))


def _waiting(journal: Journal, group: Group, member: str) -> Iterator[tuple[Data, bytes]]:
    """What waits for an earlier message, or waits for it no longer, where nothing else that has come is that."""
    early = group.early.get(member, Early()).messages.values()
    strays = journal.signed.strays(group.id, member)
    arrived = {*strays, *(written[SIGNATURE] for written in early)}
    for written in dict.fromkeys((*early, *strays.values())):
        try:
            came = parse_data(written)
        except RemoteError:
            continue
        if came.before not in arrived:
            yield came, written


def _is_here(journal: Journal, group: Group, member: str, came: Data) -> bool:
    """Whether what this message names has been taken in by now, however long ago: then another message has come behind
    it, and whoever names it once more has signed two in one place, which is another matter."""
    return journal.signed.has(group.id, member, came.alias, came.time, came.before)


def _began_behind(known: Sequence[Statements], came: Data) -> bool:
    """Whether a subscription to the stream began behind what this message names: it was not owed."""
    return any(came.before == Subscription(*one).head for one in known)


def accuse(journal: Journal, book: Book, group: Group, member: str, now: int) -> Docket:
    """An accusation of a member of what is missing the longest, signed, with what it speaks of; nothing is said or kept
    yet. `now`: UTC ms. Raises NothingMissing, NotAccountable, TooEarly, SubscriptionEnded, AccusedAlready."""
    name = names(group.view, [member])
    refusal: LocalError | None = None
    for link in missing_links(journal, book, group, member):
        accept = link.subscription[1]
        if link.rules is None:
            refusal = refusal or NotAccountable(group=group.name)
        elif now < link.due_ms:
            refusal = refusal or TooEarly(member=name, until=timestamp(link.due_ms))
        elif (over := ended(book, group.id, link.rules, accept)) is not None and over.at < link.came.time:
            refusal = refusal or SubscriptionEnded(member=name)
        elif journal.cases.about(group.id, accept.digest, b64url(sha256(link.message))):
            refusal = refusal or AccusedAlready(member=name, group=group.name)
        else:
            later = later_than(subscriptions(journal, group, member, group.me), link.subscription)
            said = Accusation(
                time=now,
                by=group.me,
                accept=accept.digest,
                message=b64url(sha256(link.message)),
                missing=b64url(link.came.before),
                since=book.size(group.id, link.rules.origin),
                reopened=tuple(one[1].digest for one in later),
            ).signed(group.seed)
            return Docket(said, link.message, link.subscription, later)
    raise refusal or NothingMissing(member=name, group=group.name)
