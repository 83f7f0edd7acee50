"""Honest and dishonest publishers, subscribers and witnesses, and the resulting cases.

One seed is one history: messages are sent, lost, acknowledged, posted; subscriptions end and begin again; clocks differ
by two minutes; some witnesses lie. For each resulting case the truth is known.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public, sha256
from zerochat.evidence import messages
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
    Span,
    TimeReversal,
    Withheld,
)
from zerochat.evidence.handshake import Accept, Close, Confirm, Request, Subscription
from zerochat.evidence.merkle import Frontier, Tree
from zerochat.evidence.messages import Data
from zerochat.evidence.suite import ED25519, Suite
from zerochat.evidence.witness import Entry, WitnessLog, checkpoint, entry_of, parse_receipt, receipt_for

EPOCH = 1_700_000_000_000
TOPIC = b64url(sha256(b"a group"))


def seed_of(dice: random.Random) -> bytes:
    return dice.randbytes(32)


def did_of(seed: bytes) -> str:
    return did_key(ed25519_public(seed))


class Ledger:
    """A log with its witnesses: as many lie as may. A liar signs whatever it is shown, with any time. `exact`: nobody
    lies, and their clocks are right, as a chain's is by definition."""

    def __init__(self, dice: random.Random, skew_ms: int, exact: bool = False) -> None:
        self.dice = dice
        self.operator = seed_of(dice)
        self.witnesses = [seed_of(dice) for _ in range(dice.choice((3, 4, 5, 7)))]
        liars = (len(self.witnesses) - 1) // 3
        self.lies = [not exact and place < dice.randint(0, liars) for place in range(len(self.witnesses))]
        self.off_ms = [0 if exact else dice.randint(-skew_ms, skew_ms) for _ in self.witnesses]
        self.origin = "zerochat/" + TOPIC
        self.watched = [WitnessLog(self.origin, did_of(self.operator)) for _ in self.witnesses]
        self.tree, self.frontier, self.frontiers = Tree(), Frontier(), [Frontier()]
        self.records: list[bytes] = []
        self.told: list[tuple[int, str, bytes]] = []
        """When, what kind of thing, and its bytes: whatever somebody has posted itself."""

    def post(self, now: int, kind, author: str, blob: bytes) -> str:
        """Post something. Returns its receipt."""
        self.told.append((now, kind, blob))
        return self.post_entry(now, entry_of(kind, author, blob))

    def defend(self, now: int, seed: bytes, blob: bytes, about: str) -> str:
        """Post a defence, or what looks like one, by whoever has this seed."""
        self.told.append((now, "defence", blob))
        return self.post_entry(now, entry_of("defence", did_of(seed), blob, about).signed(seed))

    def post_entry(self, now: int, entry: Entry) -> str:
        record = entry.record()
        index = self.tree.append(record)
        self.records.append(record)
        self.frontier = self.frontier.with_entry(record)
        self.frontiers.append(self.frontier)
        return receipt_for(self.tree, index, self.cosigned(now, [record])).serialize()

    def cosigned(self, now: int, entries: list[bytes] | None = None):
        """A checkpoint over all that is there, with the cosignatures of those who give them."""
        note = checkpoint(self.origin, self.frontier, self.operator)
        old, entries = self.frontier.size - len(entries or []), entries or []
        for place, seed in enumerate(self.witnesses):
            clock = now + self.off_ms[place]
            if self.lies[place]:
                clock += self.dice.choice((-86_400_000, 86_400_000, 0))
            self.watched[place], line = self.watched[place].cosign(
                old, entries, note, lambda entry: True, seed, clock // 1000
            )
            if not self.lies[place] or self.dice.random() < 0.7:
                note = note.with_line(line)
        return note


@dataclass
class Listener:
    """A subscriber."""

    name: int
    seed: bytes
    off_ms: int
    honest: bool
    signs: bytes
    """The seed of its acknowledgements."""
    silent: bool
    """It never confirms what it asked for, and never acknowledges: until it accuses."""
    subscription: Subscription | None = None
    head: bytes = b""
    known: dict[bytes, bytes] = field(default_factory=dict)
    """What has come, by its signature."""
    waiting: list[Data] = field(default_factory=list)
    since: dict[str, list[Data]] = field(default_factory=dict)
    """By subscription: what has come that does not follow."""
    past: list[Subscription] = field(default_factory=list)
    closes: dict[str, Close] = field(default_factory=dict)
    ended: dict[str, tuple[Close, str, int]] = field(default_factory=dict)
    """What the publisher has ended: its word, the receipt, and since when the log has it."""

    @property
    def did(self) -> str:
        return did_of(self.seed)


@dataclass
class Quarrel:
    """A case, and what really was."""

    case: Case
    cheated: bool
    """The publisher owed it, and neither delivered it nor posted it in time; and the accuser never acknowledged it."""
    counts: tuple[str, ...] = ()


class Story:
    """One publisher and some subscribers, for an hour."""

    def __init__(self, seed: int, suite: Suite = ED25519, exact: bool = False) -> None:
        self.dice, self.suite = random.Random(seed), suite
        dice = self.dice
        self.rules_skew = 120_000
        self.ledger = Ledger(dice, self.rules_skew, exact)
        self.rules = Rules(
            origin=self.ledger.origin,
            operator=did_of(self.ledger.operator),
            witnesses=tuple(map(did_of, self.ledger.witnesses)),
            suite=suite.name,
        )
        self.publisher, self.off_ms = seed_of(dice), dice.randint(-self.rules_skew, self.rules_skew)
        self.signs, self.alias = seed_of(dice), dice.randbytes(16)
        self.stream: list[Data] = []
        self.last_time, self.now = 0, EPOCH
        self.origin = dice.randbytes(64)
        self.receipts: dict[bytes, str] = {}
        self.acks: list[tuple[str, messages.Ack]] = []
        self.earlier: dict[tuple[str, str, str], tuple[Accusation, str]] = {}
        self.listeners = [
            Listener(
                n,
                seed_of(dice),
                dice.randint(-self.rules_skew, self.rules_skew),
                dice.random() < 0.6,
                seed_of(dice),
                dice.random() < 0.15,
            )
            for n in range(dice.randint(1, 3))
        ]
        self.kind = dice.choice(("honest", "honest", "withholds", "late", "bluffs", "forks", "turns back"))
        if (behind := random.Random(f"behind {seed}")).random() < 0.15:
            self.kind = behind.choice(("forks behind", "dates ahead"))
        self.withheld: dict[bytes, set[int]] = {}
        """By signature: from whom."""
        self.owed: dict[bytes, set[tuple[int, str]]] = {}
        self.counts: list[Fork | TimeReversal] = []
        self.shown: list[tuple[Listener, Data]] = []
        """To whom a message was shown that names one from before its subscription."""

    # What goes on

    def play(self) -> Iterator[Quarrel]:
        for listener in self.listeners:
            self.begin(listener)
        for _ in range(self.dice.randint(4, 14)):
            self.now += self.dice.randint(1_000, 240_000)
            self.post_due()
            for listener in self.listeners:
                if listener.subscription is None and self.dice.random() < 0.3:
                    self.begin(listener)
                elif listener.subscription and self.dice.random() < 0.06:
                    self.end(listener)
                elif listener.subscription and (self.unconfirmed(listener) or self.dice.random() < 0.05):
                    self.put_out(listener)
            self.send()
            if self.kind in ("forks behind", "dates ahead"):
                self.show_behind()
        for _ in range(2):
            self.now += self.rules.ack_ms
            self.post_due()
        for listener in self.listeners:
            self.fetch(listener)
        self.now += self.rules.ack_ms + 6 * self.rules.skew_ms
        for listener in self.listeners:
            yield from self.accusations(listener)
        if self.counts:
            shown = next((s for one in self.listeners for s in one.past), None)
            if shown is not None:
                statements = shown.request, shown.accept, shown.confirm
                case = Case(rules=self.rules, subscription=statements, equivocations=tuple(self.counts))
                yield Quarrel(case, False, counts=("forked",) if self.kind == "forks" else ("time reversed",))

    def clock(self) -> int:
        return self.now + self.off_ms

    def next_time(self) -> int:
        self.last_time = max(self.clock(), self.last_time + 1)
        return self.last_time

    def begin(self, listener: Listener) -> None:
        head = self.stream[-1].signature if self.stream else self.origin
        start, overwrite = head, b""
        if self.dice.random() < 0.3:
            start = self.dice.randbytes(64)
            subscriber = self.suite.public(listener.signs)
            told = messages.overwrite(self.signs, self.next_time(), subscriber, self.alias, head, start, self.suite)
            overwrite = told.serialize()
        request = Request(
            time=self.now + listener.off_ms,
            topic=TOPIC,
            subscriber=listener.did,
            publisher=did_of(self.publisher),
            nonce=b64url(self.dice.randbytes(16)),
            signing_key=b64url(self.suite.public(listener.signs)),
        ).signed(listener.seed)
        accept = Accept(
            time=self.next_time(),
            request=request.digest,
            publisher=request.publisher,
            subscriber=request.subscriber,
            alias=b64url(self.alias),
            start=b64url(start),
            overwrite=b64url(overwrite),
            rules=self.rules.digest,
            signing_key=b64url(self.suite.public(self.signs)),
        ).signed(self.publisher)
        confirm = Confirm(time=request.time, accept=accept.digest, subscriber=listener.did).signed(listener.seed)
        listener.subscription = Subscription(request, accept, confirm, self.suite)
        listener.past.append(listener.subscription)
        listener.head, listener.waiting = listener.subscription.head, []
        listener.since[accept.digest] = []

    def end(self, listener: Listener) -> None:
        assert listener.subscription is not None
        digest = listener.subscription.accept.digest
        close = Close(time=self.now + listener.off_ms, accept=digest, author=listener.did).signed(listener.seed)
        listener.closes[digest] = close
        listener.subscription = None

    def unconfirmed(self, listener: Listener) -> bool:
        """Whether the publisher has waited long enough for what says that the subscription is wanted."""
        assert listener.subscription is not None
        return listener.silent and self.clock() > listener.subscription.accept.time + self.rules.ack_ms

    def put_out(self, listener: Listener) -> None:
        """The publisher ends a subscription: it owes what it sends until the log has that."""
        assert listener.subscription is not None
        digest = listener.subscription.accept.digest
        if digest in listener.ended:
            return
        close = Close(time=self.next_time(), accept=digest, author=did_of(self.publisher)).signed(self.publisher)
        receipt = self.ledger.post(self.now, "close", close.author, close.serialize())
        posted_ms = parse_receipt(receipt.encode()).posted_ms(
            entry_of("close", close.author, close.serialize()), self.rules.quorum
        )
        listener.ended[digest] = close, receipt, posted_ms

    def owes(self, listener: Listener, said: Data) -> bool:
        """Whether the publisher still has to deliver this; if not, nor anything later, the subscription is over for it.
        What is dated ahead is not owed any more, and what comes after that may be."""
        if listener.subscription is None:
            return False
        ended = listener.ended.get(listener.subscription.accept.digest)
        if ended is not None and said.time > ended[2]:
            if self.clock() > ended[2]:
                listener.subscription = None
            return False
        return True

    def send(self) -> None:
        head = self.stream[-1].signature if self.stream else self.origin
        sealed = self.dice.randbytes(self.dice.randint(1, 300))
        if self.kind == "turns back" and len(self.stream) == 3:
            said = self.said(self.stream[-1].time, sealed, head)
            self.counts.append(TimeReversal(self.stream[-1].serialize(), said.serialize()))
        elif self.kind == "dates ahead" and self.stream and self.dice.random() < 0.3:
            said = self.said(self.clock() + self.dice.randint(60_000, 1_200_000), sealed, head)
            self.withheld[said.signature] = {one.name for one in self.listeners}  # nobody takes what is yet to come
        else:
            said = self.said(self.next_time(), sealed, head)
        if self.kind == "forks" and len(self.stream) == 3:
            other = self.said(said.time, b"something else", head)
            self.counts.append(Fork(said.serialize(), other.serialize()))
        self.stream.append(said)
        active = [one for one in self.listeners if self.owes(one, said)]
        self.owed[said.signature] = {(one.name, one.subscription.accept.digest) for one in active if one.subscription}
        if self.kind in ("withholds", "late", "bluffs") and self.dice.random() < 0.3 and active:
            self.withheld[said.signature] = {one.name for one in active}
        for listener in active:
            if said.signature not in self.withheld and self.dice.random() < 0.75:
                self.hear(listener, said)

    def show_behind(self) -> None:
        """Show listeners what names a message from before their subscription: what stands behind that in the stream
        and is dated ahead, or another one for the same place."""
        for listener in self.listeners:
            subscription = listener.subscription
            begun = self.place_of_head(subscription.head) if subscription is not None else 0
            if subscription is None or begun < 1 or self.dice.random() < 0.5:
                continue
            at = self.dice.randrange(begun)
            came = self.stream[at + 1]
            if self.kind == "forks behind":
                came = self.said(self.next_time(), b"in its place", self.stream[at].signature)
            if came.before not in listener.known and came.time > subscription.accept.time:
                self.shown.append((listener, came))
                self.hear(listener, came)

    def place_of_head(self, head: bytes) -> int:
        return next((place for place, one in enumerate(self.stream) if one.signature == head), -1)

    def said(self, time: int, sealed: bytes, head: bytes) -> Data:
        return messages.data(self.signs, time, self.alias, sealed, head, self.suite)

    def hear(self, listener: Listener, said: Data) -> None:
        subscription = listener.subscription
        if subscription is None or said.signature in listener.known:
            return
        if said.before != listener.head:
            if said not in listener.waiting:
                listener.waiting.append(said)
                listener.since[subscription.accept.digest].append(said)
            return
        listener.known[said.signature] = said.serialize()
        listener.head = said.signature
        if not listener.silent and self.dice.random() < 0.6:
            ack = messages.ack(listener.signs, said, self.now + listener.off_ms, self.suite)
            self.acks.append((subscription.accept.digest, ack))
        for one in list(listener.waiting):
            if one.before == listener.head:
                listener.waiting.remove(one)
                self.hear(listener, one)

    # The publisher's duty

    def place_of(self, ack: messages.Ack) -> int:
        return next((place for place, one in enumerate(self.stream) if one.signature == ack.of), -1)

    def acknowledged(self, digest: str, at: int) -> bool:
        """Whether what stands at this place of the stream was acknowledged in this subscription."""
        return any(given == digest and self.place_of(ack) >= at for given, ack in self.acks)

    def post_due(self) -> None:
        for place, said in enumerate(self.stream):
            owed = self.owed[said.signature]
            late = said.signature in self.withheld
            wait = self.rules.ack_ms - self.rules.margin_ms
            if late:
                wait = self.rules.ack_ms + self.rules.grace_ms + 3 * self.rules.skew_ms
            if said.signature in self.receipts or self.clock() < said.time + wait:
                continue
            if late and self.kind != "late":
                continue
            if late or any(not self.acknowledged(digest, place) for _, digest in owed):
                self.post(said, said.time + wait - self.off_ms)

    def post(self, said: Data, at: int) -> None:
        """Post it at this time: a timer goes off when it is time, and not when somebody looks next."""
        self.receipts[said.signature] = self.ledger.post(at, "message", did_of(self.publisher), said.serialize())

    def fetch(self, listener: Listener) -> None:
        if listener.subscription is None:
            return
        for said in self.stream:
            if said.signature in self.receipts:
                self.hear(listener, said)

    # Who accuses whom

    def accusations(self, listener: Listener) -> Iterator[Quarrel]:
        for subscription in listener.past:
            digest = subscription.accept.digest
            gaps = [one for one in listener.since[digest] if one.before not in listener.known]
            if not listener.honest:
                gaps = self.dice.sample(self.stream, min(2, len(self.stream)))
                gaps = [one for who, one in self.shown if who is listener][:1] + gaps
            for came in gaps[:2]:
                for _ in range(self.dice.choice((1, 1, 1, 2))):
                    yield self.accuse(listener, subscription, came)

    def link_of(self, came: Data) -> Data | None:
        return next((one for one in self.stream if one.signature == came.before), None)

    def accuse(self, listener: Listener, subscription: Subscription, came: Data) -> Quarrel:
        digest = subscription.accept.digest
        later = [one for one in listener.past if one.accept.time > subscription.accept.time]
        since = self.dice.randint(max(0, self.ledger.frontier.size - 3), self.ledger.frontier.size)
        accusation = Accusation(
            time=self.now + listener.off_ms,
            accuser=listener.did,
            accept=digest,
            message=b64url(sha256(came.serialize())),
            missing=b64url(came.before),
            log_size=since,
            reopened=tuple(one.accept.digest for one in later),
        ).signed(listener.seed)
        filed = self.ledger.post(self.now, "accusation", accusation.accuser, accusation.serialize())
        defences = []
        if self.dice.random() < 0.3:
            self.noise(listener, accusation.digest)
        for ground in self.grounds(listener, subscription, came, accusation):
            self.now += self.dice.randint(1_000, 60_000)
            written = Defence(accusation.digest, ground).serialize()
            self.ledger.defend(self.now, self.publisher, written, accusation.digest)
            defences.append(written)
        if self.kind in ("withholds", "bluffs") and self.dice.random() < 0.5:
            defences += self.flood(accusation.digest)
        if self.dice.random() < 0.2:  # the operator logs it once more
            self.ledger.post(self.now, "accusation", accusation.accuser, accusation.serialize())
        key = (accusation.accuser, digest, accusation.message)
        repeated = key in self.earlier
        self.earlier.setdefault(key, (accusation, filed))
        self.now += self.rules.window_ms + 3 * self.rules.skew_ms + 86_400_000 * any(self.ledger.lies)
        span = Span(
            since,
            self.ledger.frontiers[since].peaks,
            tuple(self.ledger.records[since:]),
            self.ledger.cosigned(self.now).serialize(),
        )
        reopened = tuple((one.request, one.accept, one.confirm) for one in later)
        case = Case(
            rules=self.rules,
            subscription=(subscription.request, subscription.accept, subscription.confirm),
            withheld=Withheld(
                accusation, came.serialize(), filed, span, tuple(list(dict.fromkeys(defences))[:DEFENCES_MAX]), reopened
            ),
        )
        return Quarrel(case, self.cheated(listener, subscription, came) and not repeated)

    def noise(self, listener: Listener, about: str) -> None:
        """What others post as if it were the publisher's, to use up the defences that count."""
        for number in range(DEFENCES_MAX + 1):
            blob = b"noise %d" % number
            forged = entry_of("defence", did_of(self.publisher), blob, about)
            self.ledger.post_entry(self.now, forged.signed(listener.seed))
            self.ledger.defend(self.now, listener.seed, blob, about)

    def flood(self, about: str) -> list[bytes]:
        """What a publisher posts so that nobody can show a whole case. Returns what counts of it."""
        long = entry_of("defence", did_of(self.publisher), bytes(DEFENCE_BYTES_MAX + 1), about)
        self.ledger.post_entry(self.now, long.signed(self.publisher))
        many = [b"flood %d" % number for number in range(self.dice.choice((1, 3, 2 * DEFENCES_MAX)))]
        for blob in many:
            self.ledger.defend(self.now, self.publisher, blob, about)
        return many

    def cheated(self, listener: Listener, subscription: Subscription, came: Data) -> bool:
        link, digest = self.link_of(came), subscription.accept.digest
        if link is None or came.time <= subscription.accept.time or came.before == subscription.head:
            return False
        close = listener.closes.get(digest)
        if close is not None and close.time <= came.time + self.rules.grace_ms:
            return False  # it was over
        ended = listener.ended.get(digest)
        if ended is not None and link.time > ended[2]:
            return False  # the publisher had put it out
        at = self.stream.index(link)
        if came not in self.stream or at < self.place_of_head(subscription.head):
            # What came names something from before the subscription, and no publisher that is honest signs that.
            whose = self.suite.public(listener.signs)
            had = {self.place_of(ack) for _, ack in self.acks if ack.subscriber == whose}
            receipt = self.receipts.get(link.signature)
            return at not in had and receipt is None
        if self.acknowledged(digest, at):
            return False  # it came too late, and was taken all the same
        return link.signature in self.withheld and (listener.name, digest) in self.owed[link.signature]

    def grounds(self, listener: Listener, subscription: Subscription, came: Data, accusation: Accusation):
        """What the publisher can say for itself; one that bluffs says more."""
        digest = subscription.accept.digest
        link = self.link_of(came)
        close = listener.closes.get(digest)
        earlier = self.earlier.get((accusation.accuser, digest, accusation.message))
        if earlier is not None:
            yield Repeated(*earlier)
        if close is not None:
            yield Closed(close)
        if link is not None and digest in listener.ended:
            word, receipt, posted_ms = listener.ended[digest]
            if link.time > posted_ms or self.kind == "bluffs":
                yield Ended(link.serialize(), word, receipt)
        if link is not None and link.signature in self.receipts:
            yield Posted(link.serialize(), self.receipts[link.signature])
        if link is not None:
            at = self.stream.index(link)
            for given, ack in self.acks:
                place = self.place_of(ack)
                if given == digest and place >= at:
                    yield Acknowledged(tuple(one.serialize() for one in self.stream[at : place + 1]), ack.serialize())
                    break
        if self.kind == "bluffs":
            yield from self.lies(listener, subscription, came, link)
        if self.kind in ("forks behind", "dates ahead") and link is not None:
            yield from self.ways(listener, came, link)

    def ways(self, listener: Listener, came: Data, link: Data):
        """Everything that a listener has acknowledged at any time, with the way there, past what came or through it."""
        at, tried = self.stream.index(link), 0
        for _, ack in self.acks:
            place = self.place_of(ack)
            if ack.subscriber != self.suite.public(listener.signs) or place < at or tried == DEFENCES_MAX // 2:
                continue
            tried += 1
            way = tuple(one.serialize() for one in self.stream[at : place + 1])
            yield Acknowledged(way, ack.serialize())
            yield Acknowledged((way[0], came.serialize(), *way[2:]), ack.serialize())

    def lies(self, listener: Listener, subscription: Subscription, came: Data, link: Data | None):
        """Everything that a cheat may try, none of which proves anything."""
        if link is None:
            return
        chain = tuple(one.serialize() for one in self.stream[self.stream.index(link) :])
        forged = messages.ack(self.signs, link, self.now, self.suite)
        yield Acknowledged(chain[:1], forged.serialize())
        yield Acknowledged(chain[:1], self.suite.public(listener.signs) + forged.serialize()[32:])
        for given, ack in self.acks:
            if given != subscription.accept.digest or ack.of not in {one.signature for one in self.stream}:
                continue
            yield Acknowledged((link.serialize(),), ack.serialize())
            yield Acknowledged((link.serialize(), self.stream[self.place_of(ack)].serialize()), ack.serialize())
            break
        others = [(one, self.receipts[one.signature]) for one in self.stream if one.signature in self.receipts]
        if others:
            yield Posted(link.serialize(), self.dice.choice(others)[1])
            other, receipt = self.dice.choice(others)
            yield Posted(other.serialize(), receipt)
        for given, ack in self.acks:
            place = self.place_of(ack) - self.stream.index(link)
            whose = ack.subscriber == self.suite.public(listener.signs)
            if whose and given != subscription.accept.digest and place > 0:
                yield Acknowledged(chain[: place + 1], ack.serialize())
                break
        for before, filed in self.earlier.values():
            if before.accuser == listener.did and before.missing != b64url(came.before):
                yield Repeated(before, filed)
                break
        close = Close(time=1, accept=subscription.accept.digest, author=did_of(self.publisher)).signed(self.publisher)
        yield Closed(close)
        receipt = self.ledger.post(self.now, "close", close.author, close.serialize())
        yield Ended(link.serialize(), close, receipt)
        yield Ended(chain[-1], close, receipt)
