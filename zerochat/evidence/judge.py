"""Judge: a pure function from a case file to a verdict, rule by rule.

Verdicts need no trust: every member recomputes them.

The object of a case is one missing link: a message arrived whose `Pre` the subscriber does not know. The publisher has
to show that the message with this signature was acknowledged, was in the log in time, or was not owed. This is stricter
than SUPRA (lemmas 2 and 3), which compares with the last acknowledged message: there, an acknowledgement of any message
after the accuser's last one refutes the accusation, although a later message may be missing.

Equivocation (a fork or a time reversal) needs no accusation and no waiting.
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
    Closed,
    Defence,
    Ended,
    Fork,
    Posted,
    Repeated,
    Rules,
    TimeReversal,
    Withheld,
    parse_defence,
)
from zerochat.evidence.handshake import Subscription
from zerochat.evidence.merkle import HASH_BYTES, Frontier
from zerochat.evidence.messages import Data, Share, parse_ack, parse_link
from zerochat.evidence.note import Checkpoint, parse_checkpoint, parse_note
from zerochat.evidence.suite import ED25519, Suite
from zerochat.evidence.witness import entry_of, parse_entry, parse_receipt

UPHELD: Final = "upheld"
"""The message was owed, and neither delivered nor posted."""
DISMISSED: Final = "dismissed"
REPEATED: Final = "repeated"
"""An earlier accusation covers the message; the verdict is there."""
FALSE_ACCUSATION: Final = "false accusation"
"""The accuser had acknowledged the message before the accusation."""
VOID: Final = "void"
"""The accusation is invalid by the rules."""
OPEN: Final = "open"
"""The defence window is not over, or the file does not show all of it."""
FORKED: Final = "forked"
TIME_REVERSED: Final = "time reversed"
"""A publisher's message is not later than its predecessor."""


class Finding(Struct, frozen=True):
    """Result of one rule."""

    rule: str
    holds: bool
    sentence: str


class Judgement(Struct):
    """Result of a case."""

    delivery: str = ""
    """Verdict on the accusation; empty: no accusation."""
    guilty: list[str] = field(default_factory=list)
    """Proven equivocations: FORKED, TIME_REVERSED."""
    findings: list[Finding] = field(default_factory=list)

    def add_finding(self, rule: str, holds: bool, sentence: str) -> bool:
        self.findings.append(Finding(rule, holds, sentence))
        return holds


def judge(case: Case, suite: Suite = ED25519) -> Judgement:
    """The deterministic judgement of a case; defects of the file become findings. `suite`: has to be the one that the
    rules name."""
    judgement = Judgement()
    named = ED25519.name if case.rules is None else case.rules.suite
    if not judgement.add_finding("suite", named == suite.name, f"The signatures are checked as {suite.name}."):
        judgement.delivery = VOID if case.withheld else ""
        return judgement
    try:
        subscription = case.verified_subscription(suite)
    except RemoteError:
        judgement.delivery = VOID if case.withheld else ""
        judgement.add_finding(
            "subscription", False, "The statements of the subscription are not signed by its two members."
        )
        return judgement
    for count in case.equivocations:
        guilt = (
            _fork(judgement, subscription, count) if isinstance(count, Fork) else _clock(judgement, subscription, count)
        )
        if guilt and guilt not in judgement.guilty:
            judgement.guilty.append(guilt)
    if case.withheld is not None and case.rules is None:
        judgement.add_finding("rules", False, "The two members agreed to no rules.")
        judgement.delivery = VOID
    elif case.withheld is not None and case.rules is not None:
        judgement.delivery = _Delivery(judgement, case.rules, subscription, case.withheld).verdict()
    return judgement


# --- equivocation ---------------------------------------------------------------------------------------------------


def _fork(judgement: Judgement, subscription: Subscription, count: Fork) -> str:
    one, other = _stream(subscription, count.one), _stream(subscription, count.other)
    holds = one is not None and other is not None and one.before == other.before and one != other
    judgement.add_finding(
        "E1 fork", holds, _either(holds, "The publisher signed two messages with the same predecessor.")
    )
    return FORKED if holds else ""


def _clock(judgement: Judgement, subscription: Subscription, count: TimeReversal) -> str:
    one, after = _stream(subscription, count.one), _stream(subscription, count.next)
    holds = one is not None and after is not None and after.before == one.signature and after.time <= one.time
    judgement.add_finding(
        "E2 time", holds, _either(holds, "The publisher signed a message that is not later than its predecessor.")
    )
    return TIME_REVERSED if holds else ""


def _either(holds: bool, sentence: str) -> str:
    return sentence if holds else f"Claimed without proof: {sentence[0].lower()}{sentence[1:]}"


def _stream(subscription: Subscription, encoded: bytes) -> Data | Share | None:
    """The decoded message, if it belongs to the subscribed stream."""
    try:
        found = _parsed(subscription, encoded)
    except RemoteError:
        return None
    ours = (found.publisher, found.alias) == (subscription.publisher, subscription.alias)
    return found if ours else None


def _parsed(subscription: Subscription, encoded: bytes) -> Data | Share:
    return parse_link(encoded, subscription.publisher, subscription.subscriber, subscription.suite)


# --- delivery -------------------------------------------------------------------------------------------------------


class _Delivery:
    """Evaluation of one accusation."""

    def __init__(self, judgement: Judgement, rules: Rules, subscription: Subscription, withheld: Withheld) -> None:
        self.add_finding, self.rules, self.subscription, self.withheld = (
            judgement.add_finding,
            rules,
            subscription,
            withheld,
        )
        self.accusation: Accusation = withheld.accusation
        self.suite = subscription.suite
        self.came = _stream(subscription, withheld.message)
        self.index = self.filed_ms = 0

    def verdict(self) -> str:
        if not all(rule() for rule in (self._agreed, self._accused, self._new, self._filed)):
            return VOID
        defences = self._defences()
        if defences is None:
            return OPEN
        verdicts = {self._evaluate(defence) for defence in defences}
        for verdict in (REPEATED, FALSE_ACCUSATION, DISMISSED):
            if verdict in verdicts:
                return verdict
        return UPHELD

    # Validity of the accusation

    def _agreed(self) -> bool:
        return self.add_finding(
            "rules",
            self.subscription.accept.rules == self.rules.digest,
            "Both members agreed to these rules.",
        )

    def _accused(self) -> bool:
        try:
            self.accusation.check()
        except RemoteError:
            return self.add_finding("accuser", False, "The accusation is not signed by the accuser.")
        came, accusation = self.came, self.accusation
        holds = (
            accusation.accuser == self.subscription.request.subscriber
            and accusation.accept == self.subscription.accept.digest
            and came is not None
            and accusation.message == b64url(sha256(self.withheld.message))
            and accusation.missing == b64url(came.before)
        )
        return self.add_finding("accuser", holds, "The accuser is the subscriber and shows a message of this stream.")

    def _new(self) -> bool:
        came = self._came
        if came.before == self.subscription.head:
            return self.add_finding("link", False, "The message follows the start of the subscription.")
        return self.add_finding(
            "link",
            came.time > self.subscription.accept.time,
            "The message was sent under this subscription, and its predecessor is missing.",
        )

    def _filed(self) -> bool:
        span = self.withheld.span
        entry = entry_of("accusation", self.accusation.accuser, self.accusation.serialize())
        try:
            receipt = parse_receipt(self.withheld.filed.encode())
            self.index, self.filed_ms = receipt.index, receipt.posted_ms(entry, self.rules.quorum)
        except RemoteError:
            return self.add_finding("filed", False, "The witnesses do not confirm that the accusation was filed.")
        places = [span.before + place for place, record in enumerate(span.entries) if record == entry.record()]
        if span.before != self.accusation.log_size or places[:1] != [self.index]:
            return self.add_finding(
                "filed", False, "The log excerpt does not start at the accuser's size, or the entry is older."
            )
        if self.accusation.time < self._due:  # a false accuser could date it before its acknowledgement
            return self.add_finding("filed", False, "The accusation is dated before the end of the delivery time.")
        return self.add_finding("filed", self.filed_ms >= self._due, "It was filed after the end of the delivery time.")

    @property
    def _due(self) -> int:
        return self._came.time + self.rules.ack_ms + self.rules.grace_ms

    @property
    def _came(self) -> Data | Share:
        assert self.came is not None
        return self.came

    # Defences

    def _defences(self) -> list[Defence] | None:
        """The counted defences; None: the file does not prove that they are complete."""
        named = tuple(accept.digest for _, accept, _ in self.withheld.reopened)
        if not self.add_finding(
            "reopened", named == self.accusation.reopened, "The later subscriptions are in the file."
        ):
            return None
        if not self.add_finding("window", self._covers_window(), "The log excerpt covers the defence window."):
            return None
        held = {b64url(sha256(encoded)): encoded for encoded in self.withheld.defences}
        counted = self._counted()
        if not self.add_finding("complete", counted <= held.keys(), "All counted defences are in the file."):
            return None
        once = [encoded for hash_, encoded in held.items() if hash_ in counted]
        return [defence for encoded in once if (defence := _defence(encoded, self.accusation.digest))]

    def _counted(self) -> set[str]:
        return set(
            counted_defences(self.withheld.span.entries, self.subscription.request.publisher, self.accusation.digest)
        )

    def _covers_window(self) -> bool:
        """Whether the entries lead to a checkpoint after the defence window."""
        span, quorum = self.withheld.span, self.rules.quorum
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
            return quorum.complete_until_ms(note) >= self.filed_ms + self.rules.window_ms
        except RemoteError:
            return False

    # Evaluation of a defence

    def _evaluate(self, defence: Defence) -> str:
        ground = defence.ground
        if isinstance(ground, Acknowledged):
            return self._acknowledged(ground)
        if isinstance(ground, Repeated):
            before = self._check(
                "D5 repeated", lambda: self._repeated(ground), "An earlier accusation covers the same message."
            )
            return REPEATED if before else ""
        if isinstance(ground, Posted):
            holds = self._check(
                "D2 posted", lambda: self._posted(ground), "The missing message was in the log in time."
            )
        elif isinstance(ground, Closed):
            holds = self._check("D4 closed", lambda: self._closed(ground), "The subscriber had ended the subscription.")
        else:
            holds = self._check(
                "D6 ended", lambda: self._ended(ground), "The publisher had ended the subscription in the log."
            )
        return DISMISSED if holds else ""

    def _check(self, rule: str, holds: Callable[[], bool], sentence: str) -> bool:
        try:
            found = holds()
        except RemoteError:
            found = False
        return self.add_finding(rule, found, _either(found, sentence))

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

        if not self._check("D1 acknowledged", holds, "The subscriber acknowledged the missing message."):
            return ""
        before = at <= self.accusation.time
        if before:
            self.add_finding("D1 before", True, "It did so before the accusation.")
        return FALSE_ACCUSATION if before else DISMISSED

    def _chain(self, encoded: Sequence[bytes]) -> list[Data | Share]:
        """The chain from the missing message; time order is checked elsewhere (E2). Raises Malformed or Unauthentic."""
        chain = [self._link(encoded[0]), *(_parsed(self.subscription, one) for one in encoded[1:])]
        for one, after in pairwise(chain):
            same = (one.publisher, one.alias) == (after.publisher, after.alias)
            if not same or after.before != one.signature:
                raise Malformed(why="a message that does not follow its predecessor")
        return chain

    def _link(self, encoded: bytes) -> Data | Share:
        """The missing message. Raises Malformed or Unauthentic for any other."""
        found = _parsed(self.subscription, encoded)
        ours = self.subscription.publisher, self.subscription.alias, self._came.before
        if (found.publisher, found.alias, found.signature) != ours:
            raise Malformed(why="a message that is not the missing one")
        return found

    def _is_way(self, encoded: Sequence[bytes], chain: Sequence[Data | Share]) -> bool:
        """Whether acknowledging the end of the chain implies having received its beginning.

        The received message has to follow the missing one; otherwise the publisher forked the stream and leads around
        it. The acknowledged message may not be dated before the received one; otherwise it may belong to an earlier
        subscription that began in between. Neither this subscription nor a later one may begin within the chain.
        """
        own = self.subscription.head
        return (
            encoded[1] == self.withheld.message
            and self._came.time <= chain[-1].time
            and all(one.signature != own for one in chain)
            and not self._restarted(chain)
        )

    def _restarted(self, chain: Sequence[Data | Share]) -> bool:
        """Whether a later subscription began within the chain: then its end implies nothing about its beginning."""
        starts = set()
        for statements in self.withheld.reopened:
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
        mine = (ground.close.accept, ground.close.author) == (
            subscription.accept.digest,
            subscription.request.subscriber,
        )
        return mine and ground.close.time <= self._came.time + self.rules.grace_ms

    def _ended(self, ground: Ended) -> bool:
        """Compared with the log's time, without grace: the publisher has the receipt and knows its obligations."""
        link, close = self._link(ground.message), ground.close
        close.check()
        mine = (close.accept, close.author) == (self.subscription.accept.digest, self.subscription.request.publisher)
        entry = entry_of("close", close.author, close.serialize())
        return mine and link.time > parse_receipt(ground.receipt.encode()).posted_ms(entry, self.rules.quorum)

    def _repeated(self, ground: Repeated) -> bool:
        """Whether a valid earlier accusation exists; a void one does not count."""
        earlier = ground.accusation
        earlier.check()
        receipt = parse_receipt(ground.receipt.encode())
        receipt.posted_ms(entry_of("accusation", earlier.accuser, earlier.serialize()), self.rules.quorum)
        same = (earlier.accuser, earlier.accept, earlier.message, earlier.missing) == (
            self.accusation.accuser,
            self.accusation.accept,
            self.accusation.message,
            self.accusation.missing,
        )
        return same and earlier.time >= self._due and earlier.log_size <= receipt.index < self.index


def counted_defences(entries: Iterable[bytes], publisher: str, about: str) -> list[str]:
    """Hashes of the counted defences: the first in the log that the publisher signed and that are short enough. Raises
    Malformed."""
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


def _defence(encoded: bytes, about: str) -> Defence | None:
    """The decoded defence; None: malformed, or against another accusation."""
    try:
        found = parse_defence(encoded)
    except RemoteError:
        return None
    return found if found.accusation == about else None
