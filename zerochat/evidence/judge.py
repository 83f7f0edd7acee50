"""What follows from a case: the rules in their order, each with what it came to, in sentences.

A pure function of the file. So a verdict needs no trust in whoever gives it: anybody computes it again.

What is judged is one missing link. A message came whose `Pre` the subscriber does not know; the publisher shows that
what has this signature was acknowledged, or was in the log in time, or was not owed. This is stricter than comparing
with the last message that was acknowledged (SUPRA, lemmas 2 and 3): there, an acknowledgement of something after the
accuser's last message refuted the accusation, although a later one may be missing.

Two kinds of guilt need no waiting: two messages in one place, and a time that does not grow.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

from msgspec import Struct, field

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed, RemoteError
from zerochat.evidence.case import (
    DEFENCE_BYTES_MAX,
    DEFENCES_MAX,
    Accusation,
    Acknowledged,
    Case,
    Clock,
    Closed,
    Defence,
    Ended,
    Fork,
    Missing,
    Posted,
    Repeated,
    Rules,
    parse_defence,
)
from zerochat.evidence.handshake import Subscription
from zerochat.evidence.merkle import HASH_BYTES, Frontier
from zerochat.evidence.messages import Data, parse_ack, parse_data
from zerochat.evidence.note import Checkpoint, parse_checkpoint, parse_note
from zerochat.evidence.suite import ED25519, Suite
from zerochat.evidence.witness import entry_of, parse_entry, parse_receipt

UPHELD: Final = "upheld"
"""It was owed, and neither delivered nor posted."""
DISMISSED: Final = "dismissed"
REPEATED: Final = "repeated"
"""It was accused of before, and has its verdict there."""
FALSE_ACCUSATION: Final = "false accusation"
"""The accuser had acknowledged it before it accused."""
VOID: Final = "void"
"""What was filed is no accusation by the rules."""
OPEN: Final = "open"
"""The time for defending is not over, or the file does not show what was posted in it."""
FORKED: Final = "forked"
TURNED_BACK: Final = "turned back"
"""A publisher's time did not grow."""


class Finding(Struct, frozen=True):
    """What one rule came to."""

    rule: str
    holds: bool
    sentence: str


class Judgement(Struct):
    """What follows from a case."""

    delivery: str = ""
    """The verdict on the accusation; empty where there is none."""
    guilty: list[str] = field(default_factory=list)
    """What needs no accusation: FORKED, TURNED_BACK."""
    findings: list[Finding] = field(default_factory=list)

    def say(self, rule: str, holds: bool, sentence: str) -> bool:
        self.findings.append(Finding(rule, holds, sentence))
        return holds


def judge(case: Case, suite: Suite = ED25519) -> Judgement:
    """The judgement of a case, the same for everybody. Whatever is wrong with the file is a finding. `suite`: the one
    that the rules name; whoever has none but the usual one cannot judge by another."""
    made = Judgement()
    named = ED25519.name if case.rules is None else case.rules.suite
    if not made.say("suite", named == suite.name, f"The signatures are checked as {suite.name}."):
        made.delivery = VOID if case.missing else ""
        return made
    try:
        subscription = case.opened(suite)
    except RemoteError:
        made.delivery = VOID if case.missing else ""
        made.say("subscription", False, "The three statements of a subscription are not signed by the two it is about.")
        return made
    for count in case.counts:
        guilt = _fork(made, subscription, count) if isinstance(count, Fork) else _clock(made, subscription, count)
        if guilt and guilt not in made.guilty:
            made.guilty.append(guilt)
    if case.missing is not None and case.rules is None:
        made.say("rules", False, "The two have agreed to no rules.")
        made.delivery = VOID
    elif case.missing is not None and case.rules is not None:
        made.delivery = _Delivery(made, case.rules, subscription, case.missing).verdict()
    return made


# --- guilt that needs no accusation ---------------------------------------------------------------------------------


def _fork(made: Judgement, subscription: Subscription, count: Fork) -> str:
    one, other = _stream(subscription, count.one), _stream(subscription, count.other)
    holds = one is not None and other is not None and one.before == other.before and one != other
    made.say("E1 fork", holds, _either(holds, "The publisher signed two different messages for one place."))
    return FORKED if holds else ""


def _clock(made: Judgement, subscription: Subscription, count: Clock) -> str:
    one, after = _stream(subscription, count.one), _stream(subscription, count.next)
    holds = one is not None and after is not None and after.before == one.signature and after.time <= one.time
    made.say("E2 time", holds, _either(holds, "The publisher signed a message that is not later than the one before."))
    return TURNED_BACK if holds else ""


def _either(holds: bool, sentence: str) -> str:
    return sentence if holds else "This was claimed, and is not shown: " + sentence[0].lower() + sentence[1:]


def _stream(subscription: Subscription, written: bytes) -> Data | None:
    """The message, if it is one of the stream that was subscribed to."""
    try:
        found = parse_data(written, subscription.suite)
    except RemoteError:
        return None
    ours = (found.publisher, found.alias) == (subscription.publisher, subscription.alias)
    return found if ours else None


# --- delivery -------------------------------------------------------------------------------------------------------


class _Delivery:
    """One accusation, on its way through the rules."""

    def __init__(self, made: Judgement, rules: Rules, subscription: Subscription, missing: Missing) -> None:
        self.say, self.rules, self.subscription, self.missing = made.say, rules, subscription, missing
        self.accusation: Accusation = missing.accusation
        self.suite = subscription.suite
        self.came: Data | None = _stream(subscription, missing.message)
        self.index = self.filed_ms = 0

    def verdict(self) -> str:
        if not all(rule() for rule in (self._agreed, self._accused, self._new, self._filed)):
            return VOID
        defences = self._defences()
        if defences is None:
            return OPEN
        verdicts = {self._weighed(defence) for defence in defences}
        for verdict in (REPEATED, FALSE_ACCUSATION, DISMISSED):
            if verdict in verdicts:
                return verdict
        return UPHELD

    # Whether it is an accusation at all

    def _agreed(self) -> bool:
        return self.say(
            "rules",
            self.subscription.accept.rules == self.rules.digest,
            "Both have agreed to be judged by these rules.",
        )

    def _accused(self) -> bool:
        try:
            self.accusation.check()
        except RemoteError:
            return self.say("accuser", False, "The accusation is not signed by who accuses.")
        came, said = self.came, self.accusation
        holds = (
            said.by == self.subscription.request.subscriber
            and said.accept == self.subscription.accept.digest
            and came is not None
            and said.message == b64url(sha256(self.missing.message))
            and said.missing == b64url(came.before)
        )
        return self.say("accuser", holds, "The subscriber accuses, and shows a message of this stream that came.")

    def _new(self) -> bool:
        came = self._came
        if came.before == self.subscription.head:
            return self.say("link", False, "The message follows what the subscriber was told to begin with.")
        return self.say(
            "link",
            came.time > self.subscription.accept.time,
            "The message was sent under this subscription, and the one before it is missing.",
        )

    def _filed(self) -> bool:
        span = self.missing.span
        entry = entry_of("accusation", self.accusation.by, self.accusation.written())
        try:
            receipt = parse_receipt(self.missing.filed.encode())
            self.index, self.filed_ms = receipt.index, receipt.posted_ms(entry, self.rules.quorum)
        except RemoteError:
            return self.say("filed", False, "The witnesses do not show that the accusation was filed.")
        places = [span.before + place for place, record in enumerate(span.entries) if record == entry.record()]
        if span.before != self.accusation.since or places[:1] != [self.index]:
            return self.say(
                "filed", False, "The log is not shown from where the accuser knew it, or it was there before."
            )
        if (
            self.accusation.time < self._due
        ):  # else a false accuser would sign one that is older than its acknowledgement
            return self.say("filed", False, "The accusation says of itself that it was made too early.")
        return self.say("filed", self.filed_ms >= self._due, "It was filed when the time for delivering was over.")

    @property
    def _due(self) -> int:
        return self._came.time + self.rules.ack_ms + self.rules.grace_ms

    @property
    def _came(self) -> Data:
        assert self.came is not None
        return self.came

    # What was posted against it

    def _defences(self) -> list[Defence] | None:
        """All that count; None where the file does not show that these are all."""
        named = tuple(accept.digest for _, accept, _ in self.missing.reopened)
        if not self.say("reopened", named == self.accusation.reopened, "The later subscriptions are in the file."):
            return None
        if not self.say("window", self._shown(), "The log is shown until the time for defending was over."):
            return None
        held = {b64url(sha256(written)): written for written in self.missing.defences}
        counted = self._counted()
        if not self.say("complete", counted <= held.keys(), "Every defence that counts is in the file."):
            return None
        once = [written for hash_, written in held.items() if hash_ in counted]
        return [defence for written in once if (defence := _defence(written, self.accusation.digest))]

    def _counted(self) -> set[str]:
        return set(counting(self.missing.span.entries, self.subscription.request.publisher, self.accusation.digest))

    def _shown(self) -> bool:
        """Whether these are the entries of the log up to a checkpoint after the time for defending."""
        span, quorum = self.missing.span, self.rules.quorum
        if len(span.peaks) != span.before.bit_count() or any(len(peak) != HASH_BYTES for peak in span.peaks):
            return False
        frontier = Frontier(span.before, span.peaks)
        try:
            for record in span.entries:
                parse_entry(record)
                frontier = frontier.with_entry(record)
            note = parse_note(span.closing.encode())
            closing = Checkpoint(quorum.origin, frontier.size, frontier.root())
            if parse_checkpoint(note.text) != closing:
                return False
            return quorum.whole_ms(note) >= self.filed_ms + self.rules.window_ms
        except RemoteError:
            return False

    # What a defence is worth

    def _weighed(self, defence: Defence) -> str:
        ground = defence.ground
        if isinstance(ground, Acknowledged):
            return self._acknowledged(ground)
        if isinstance(ground, Repeated):
            before = self._tried("D5 repeated", lambda: self._repeated(ground), "The same was accused of before.")
            return REPEATED if before else ""
        if isinstance(ground, Posted):
            holds = self._tried("D2 posted", lambda: self._posted(ground), "What is missing was in the log in time.")
        elif isinstance(ground, Closed):
            holds = self._tried("D4 closed", lambda: self._closed(ground), "The subscription was over by then.")
        else:
            holds = self._tried(
                "D6 ended", lambda: self._ended(ground), "The publisher had ended it before, in the log."
            )
        return DISMISSED if holds else ""

    def _tried(self, rule: str, holds: Callable[[], bool], sentence: str) -> bool:
        try:
            found = holds()
        except RemoteError:
            found = False
        return self.say(
            rule, found, sentence if found else f"Claimed, and not shown: {sentence[0].lower()}{sentence[1:]}"
        )

    def _acknowledged(self, ground: Acknowledged) -> str:
        at = 0

        def holds() -> bool:
            nonlocal at
            ack = parse_ack(ground.ack, self.suite)
            at = ack.at
            chain = self._chain(ground.chain)
            last = chain[-1]
            whose = (ack.subscriber, ack.alias) == (self.subscription.subscriber, self.subscription.alias)
            return (
                whose
                and (ack.time, ack.of) == (last.time, last.signature)
                and (len(chain) == 1 or self._is_way(ground.chain, chain))
            )

        if not self._tried("D1 acknowledged", holds, "The subscriber has acknowledged what it says is missing."):
            return ""
        before = at <= self.accusation.time
        if before:
            self.say("D1 before", True, "It had done so before it accused.")
        return FALSE_ACCUSATION if before else DISMISSED

    def _chain(self, written: Sequence[bytes]) -> list[Data]:
        """The messages from what is missing on, each behind the one before. Whether their times grow is another
        question (E2). Raises Malformed or Unauthentic."""
        chain = [self._link(written[0]), *(parse_data(one, self.suite) for one in written[1:])]
        for one, after in pairwise(chain):
            same = (one.publisher, one.alias) == (after.publisher, after.alias)
            if not same or after.before != one.signature:
                raise Malformed(why="a message that does not follow")
        return chain

    def _link(self, written: bytes) -> Data:
        """What is missing. Raises Malformed or Unauthentic where this is something else."""
        found = parse_data(written, self.suite)
        ours = self.subscription.publisher, self.subscription.alias, self._came.before
        if (found.publisher, found.alias, found.signature) != ours:
            raise Malformed(why="another message than the one that is missing")
        return found

    def _is_way(self, written: Sequence[bytes], chain: Sequence[Data]) -> bool:
        """Whether the subscriber could not acknowledge its end without having had its beginning.

        What came stands behind what is missing: else the publisher has signed another one for that place, and leads
        around it. What was acknowledged is not dated before what came: else it may be of an earlier subscription, that
        began somewhere in between. And neither this subscription began in between, whatever the dates say, nor a later
        one.
        """
        own = self.subscription.head
        return (
            written[1] == self.missing.message
            and self._came.time <= chain[-1].time
            and all(one.signature != own for one in chain)
            and not self._restarted(chain)
        )

    def _restarted(self, chain: Sequence[Data]) -> bool:
        """Whether the two began anew somewhere in this chain: then its end says nothing of its beginning."""
        starts = set()
        for statements in self.missing.reopened:
            try:
                later = Subscription(*statements, self.suite)
            except RemoteError:
                continue
            ours = self.subscription
            same = (later.subscriber, later.publisher, later.alias) == (ours.subscriber, ours.publisher, ours.alias)
            if same and later.accept.time > ours.accept.time:
                starts.add(later.head)
        return any(one.signature in starts for one in chain[:-1])

    def _posted(self, ground: Posted) -> bool:
        link = self._link(ground.message)
        entry = entry_of("message", self.subscription.request.publisher, ground.message)
        posted_ms = parse_receipt(ground.receipt.encode()).posted_ms(entry, self.rules.quorum)
        return posted_ms <= link.time + self.rules.ack_ms + self.rules.grace_ms

    def _closed(self, ground: Closed) -> bool:
        ground.close.check()
        subscription = self.subscription
        mine = (ground.close.accept, ground.close.by) == (subscription.accept.digest, subscription.request.subscriber)
        return mine and ground.close.time <= self._came.time + self.rules.grace_ms

    def _ended(self, ground: Ended) -> bool:
        """By the log's time and without any grace: the publisher has the receipt, and knows what it still owes."""
        link, close = self._link(ground.message), ground.close
        close.check()
        mine = (close.accept, close.by) == (self.subscription.accept.digest, self.subscription.request.publisher)
        entry = entry_of("close", close.by, close.written())
        return mine and link.time > parse_receipt(ground.receipt.encode()).posted_ms(entry, self.rules.quorum)

    def _repeated(self, ground: Repeated) -> bool:
        """Whether there is an earlier accusation that can be judged: one that was void itself takes nothing away."""
        earlier = ground.accusation
        earlier.check()
        receipt = parse_receipt(ground.receipt.encode())
        receipt.posted_ms(entry_of("accusation", earlier.by, earlier.written()), self.rules.quorum)
        same = (earlier.by, earlier.accept, earlier.message, earlier.missing) == (
            self.accusation.by,
            self.accusation.accept,
            self.accusation.message,
            self.accusation.missing,
        )
        return same and earlier.time >= self._due and earlier.since <= receipt.index < self.index


def counting(entries: Iterable[bytes], publisher: str, about: str) -> list[str]:
    """The hashes of the defences among these entries of a log that count against one accusation: of those that the
    publisher has signed, and that are not too long, the first. Raises Malformed."""
    counted: dict[str, None] = {}
    for entry in map(parse_entry, entries):
        if (entry.kind, entry.about) != ("defence", about) or entry.size > DEFENCE_BYTES_MAX:
            continue
        if entry.author == publisher and entry.hash not in counted:
            with suppress(RemoteError):
                entry.check()
                counted[entry.hash] = None
        if len(counted) == DEFENCES_MAX:
            break
    return list(counted)


def _defence(written: bytes, about: str) -> Defence | None:
    """What was posted, where it can be read; what cannot is none."""
    try:
        found = parse_defence(written)
    except RemoteError:
        return None
    return found if found.accusation == about else None
