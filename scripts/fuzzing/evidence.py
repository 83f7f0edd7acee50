"""Fuzz targets of evidence: signed messages, statements, notes, receipts, log entries, and whole cases before the
judge.

Cases are rebuilt from mutated parts: statements are signed again, and entries are placed in a log with its witnesses'
signatures, so that hostile bytes reach the code for a dishonest publisher or subscriber.
"""

import base64
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import msgspec

from fuzzing.mutations import bytes_changed
from fuzzing.nodes import Bytes, Object, Part, as_text, utf8
from fuzzing.people import dice
from fuzzing.run import Form
from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, compact_json, did_key, strict_json
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, sha256
from zerochat.errors import Malformed, RemoteError
from zerochat.evidence import handshake, messages, succession
from zerochat.evidence.case import (
    Accusation,
    Acknowledged,
    Closed,
    Ended,
    Fork,
    Posted,
    Repeated,
    Rules,
    TimeReversal,
    parse_case,
    parse_defence,
)
from zerochat.evidence.handshake import Accept, Close, Confirm, Request, SignedStatement, Subscription, parse_statement
from zerochat.evidence.judge import (
    DISMISSED,
    FALSE_ACCUSATION,
    FORKED,
    OPEN,
    REPEATED,
    TIME_REVERSED,
    UPHELD,
    VOID,
    judge,
)
from zerochat.evidence.merkle import Frontier, Tree
from zerochat.evidence.note import LOG, check_signature, cosignature, cosignature_time, parse_checkpoint, parse_note
from zerochat.evidence.witness import (
    ENTRY_BYTES_MAX,
    RECEIPT_BYTES_MAX,
    Quorum,
    SizeMismatch,
    WitnessLog,
    checkpoint,
    entry_of,
    parse_entry,
    parse_receipt,
    receipt_for,
)

NOW = 1_750_000_000_000
_random = dice("evidence")
PUBLISHER, SUBSCRIBER, OPERATOR = (_random(32) for _ in range(3))
WITNESSES = tuple(_random(32) for _ in range(3))
ALIAS, ORIGIN = _random(16), _random(64)


def did_of(seed: bytes) -> str:
    return did_key(ed25519_public(seed))


QUORUM = Quorum("zerochat/log", did_of(OPERATOR), tuple(map(did_of, WITNESSES)))
RULES = b64url(sha256(b"rules"))
REQUEST = Request(
    time=NOW,
    topic=b64url(sha256(b"a group")),
    subscriber=did_of(SUBSCRIBER),
    publisher=did_of(PUBLISHER),
    nonce=b64url(_random(16)),
).signed(SUBSCRIBER)
STREAM = [messages.data(PUBLISHER, NOW + 1000, ALIAS, _random(40), ORIGIN)]
for _number in range(2, 5):
    STREAM.append(messages.data(PUBLISHER, NOW + 1000 * _number, ALIAS, _random(20), STREAM[-1].signature))
LATE = messages.overwrite(PUBLISHER, NOW, ed25519_public(SUBSCRIBER), ALIAS, STREAM[0].signature, ORIGIN)


def accepted(rules: str = RULES, **changes: Any) -> Accept:
    fields = {
        "time": NOW + 1,
        "request": REQUEST.digest,
        "publisher": did_of(PUBLISHER),
        "subscriber": did_of(SUBSCRIBER),
        "alias": b64url(ALIAS),
        "start": b64url(ORIGIN),
        "rules": rules,
        **changes,
    }
    return Accept(**fields).signed(PUBLISHER)


def confirmed(accept: Accept) -> Confirm:
    return Confirm(time=NOW + 2, accept=accept.digest, subscriber=did_of(SUBSCRIBER)).signed(SUBSCRIBER)


ACCEPT = accepted()


def _resealed(tree: Part, context: bytes, seeds: dict[str, bytes]) -> Part:
    """A statement signed again by its author."""
    if not isinstance(tree, Object):
        return tree
    unsigned = tree.put("sig", "")
    with suppress(RemoteError):
        says = strict_json(utf8(as_text(unsigned)), 1 << 20)
        assert isinstance(says, dict)
        seed = seeds.get(str(says.get("type")), PUBLISHER)
        return tree.put("sig", Bytes(ed25519_sign(seed, context + canonical_json(says))))
    return tree


# --- signed streams -------------------------------------------------------------------------------------


class Signed:
    """Data, shares, overwrites and acknowledgements, most of them signed again after the change."""

    name = "signed"
    form: Form = "text"
    size_max = 16 * 1024

    _KINDS: tuple[tuple[str, Callable[[bytes], Any], bytes], ...] = (
        ("data", messages.parse_data, PUBLISHER),
        ("share", messages.parse_share, PUBLISHER),
        ("overwrite", messages.parse_overwrite, PUBLISHER),
        ("ack", messages.parse_ack, SUBSCRIBER),
    )

    def seeds(self) -> list[bytes]:
        """The bytes, in base64url, under the name of their kind."""
        share = messages.share(PUBLISHER, NOW, ed25519_public(SUBSCRIBER), ALIAS, bytes(80), ORIGIN)
        made: tuple[Any, ...] = STREAM[0], share, LATE, messages.ack(SUBSCRIBER, STREAM[0], NOW + 7)
        named = zip(self._KINDS, made, strict=True)
        return [b'{"' + kind[0].encode() + b'":"' + b64url(said.serialize()).encode() + b'"}' for kind, said in named]

    def seal(self, tree: Part, dice: Random) -> Part:
        """Signed again; the acknowledgement's words do not begin with the key."""
        if not isinstance(tree, Object):
            return tree
        for name, _, seed in self._KINDS:
            part = tree.get(name)
            if isinstance(part, Bytes) and len(part.data) > messages.SIGNATURE_BYTES and dice.random() < 0.8:
                body = part.data[: -messages.SIGNATURE_BYTES]
                if dice.random() < 0.5:
                    body = bytes_changed(body, dice)
                signed = messages.ACK_CONTEXT + body[messages.KEY_BYTES :] if name == "ack" else body
                tree = tree.put(name, Bytes(body + ed25519_sign(seed, signed)))
        return tree

    def parse(self, data: bytes) -> object:
        """A value that is read is written as the same bytes, and is of one kind only."""
        found = strict_json(data, 4 * self.size_max)
        if not isinstance(found, dict):
            raise Malformed(why="no messages")
        read: list[Any] = []
        for name, parse, _ in self._KINDS:
            if isinstance(text := found.get(name), str):
                written = b64url_bytes(text)
                read.append(parse(written))
                assert read[-1].serialize() == written
                assert messages.ack_time(written) >= 0
                assert sum(self._takes(other, written) for _, other, _ in self._KINDS) == 1
        if not read:
            raise Malformed(why="no messages")
        return read

    def _takes(self, parse: Callable[[bytes], Any], written: bytes) -> bool:
        try:
            parse(written)
        except RemoteError:
            return False
        return True


# --- statements about a subscription, and successions ----------------------------------------------------------------


class Statements:
    """Requests, acceptances, confirmations and ends, each as the others' companion; and successions."""

    name = "statement"
    form: Form = "text"
    size_max = handshake.STATEMENT_BYTES_MAX

    _SEEDS = {"request": SUBSCRIBER, "accept": PUBLISHER, "confirm": SUBSCRIBER, "close": SUBSCRIBER}  # noqa: RUF012

    def seeds(self) -> list[bytes]:
        late = accepted(overwrite=b64url(LATE.serialize()), key=b64url(bytes(48)))
        close = Close(time=NOW + 3, accept=ACCEPT.digest, author=did_of(SUBSCRIBER)).signed(SUBSCRIBER)
        made = (REQUEST, ACCEPT, late, confirmed(ACCEPT), close, self._succession())
        return [one.serialize() for one in made]

    def _succession(self) -> SignedStatement:
        return succession.succeed(PUBLISHER, SUBSCRIBER, REQUEST.topic, STREAM[1].signature, NOW + 4)

    def seal(self, tree: Part, dice: Random) -> Part:
        if dice.random() >= 0.7:
            return tree
        return _resealed(self._consented(tree), handshake.CONTEXT, self._SEEDS)

    def _consented(self, tree: Part) -> Part:
        """A succession with the consent of the new key."""
        if not isinstance(tree, Object) or tree.get("consent") is None:
            return tree
        with suppress(RemoteError):
            says = strict_json(utf8(as_text(tree.put("sig", "").put("consent", ""))), 1 << 20)
            return tree.put("consent", Bytes(ed25519_sign(SUBSCRIBER, succession.CONSENT + canonical_json(says))))
        return tree

    def parse(self, data: bytes) -> object:
        try:
            found = parse_statement(data)
        except Malformed:
            handed = succession.parse_succession(data)
            assert succession.parse_succession(handed.serialize()) == handed
            assert succession.current_key(handed.author, handed.topic, [handed]) == handed.successor
            return handed
        assert parse_statement(found.serialize()) == found
        found.check()
        self._begun(found)
        return found

    def _begun(self, found: SignedStatement) -> None:
        """A statement that begins a subscription has a position in a stream."""
        accept = found if isinstance(found, Accept) else ACCEPT
        request = found if isinstance(found, Request) else REQUEST
        confirm = found if isinstance(found, Confirm) else confirmed(accept)
        with suppress(RemoteError):
            begun = Subscription(request, accept, confirm)
            assert len(begun.head) == len(begun.start) == 64 and len(begun.alias) == 16
            assert len(begun.publisher) == len(begun.subscriber) == 32 and begun.publisher != begun.subscriber


# --- the log --------------------------------------------------------------------------------------------------------


class Log:
    """A log of a few entries, and all that its witnesses have signed."""

    def __init__(self, blobs: list[tuple[str, bytes]], now: int = NOW) -> None:
        self.tree, self.frontier, self.frontiers = Tree(), Frontier(), [Frontier()]
        self.records: list[bytes] = []
        for kind, blob in blobs:
            self.post(entry_of(kind, did_of(PUBLISHER), blob).record())  # type: ignore[arg-type]
        self.now = now

    def post(self, record: bytes) -> int:
        self.records.append(record)
        self.frontier = self.frontier.with_entry(record)
        self.frontiers.append(self.frontier)
        return self.tree.append(record)

    def note(self, now: int) -> Any:
        note = checkpoint(QUORUM.origin, self.frontier, OPERATOR)
        for seed in WITNESSES:
            watched = WitnessLog(QUORUM.origin, QUORUM.operator)
            note = note.with_line(watched.cosign(0, self.records, note, lambda entry: True, seed, now // 1000)[1])
        return note


_LOG = Log([("message", b"%d" % number) for number in range(7)])
_NOTE = _LOG.note(NOW)


class Note:
    """A checkpoint of a log with its signatures, and the notes of others."""

    name = "note"
    form: Form = "raw"
    size_max = 8 * 1024

    def seeds(self) -> list[bytes]:
        bare = checkpoint(QUORUM.origin, _LOG.frontier, OPERATOR)
        example = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
        example += "\u2014 example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"  # noqa: E501
        return [_NOTE.serialize().encode(), bare.serialize().encode(), example.encode()]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        """A value that is read is written as the same; its signer is its author."""
        found = parse_note(data)
        assert found.serialize().encode() == data
        said = parse_checkpoint(found.text)
        assert said.text() == found.text
        if not any(found.by(QUORUM.operator, LOG)):
            return said  # another project's, as in the example of the specification
        check_signature(found, QUORUM.operator)
        assert found.text == _NOTE.text, "an unsigned checkpoint"
        times = [cosignature_time(found, did) for did in QUORUM.witnesses]
        assert set(times) <= {NOW // 1000, None}, "a time that no witness has said"
        return said


class Entries:
    """Receipts, log entries, and the operator's messages to witnesses; each by its first line."""

    name = "receipt"
    form: Form = "raw"
    size_max = 8 * 1024

    def seeds(self) -> list[bytes]:
        receipts = [receipt_for(_LOG.tree, index, _NOTE).serialize().encode() for index in (0, 3, 6)]
        return [*receipts, *_LOG.records[:1], b"\n".join([_NOTE.serialize().encode(), *_LOG.records])]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        assert RECEIPT_BYTES_MAX > self.size_max > ENTRY_BYTES_MAX
        if data.startswith(b"c2sp"):
            receipt = parse_receipt(data)
            assert receipt.serialize().encode() == data
            entry = parse_entry(_LOG.records[receipt.index % len(_LOG.records)])
            assert receipt.posted_ms(entry, QUORUM) == NOW
            return receipt
        if data.startswith(b"{"):
            entry = parse_entry(data)
            assert entry.record() == data
            return entry
        head, _, entries = data.partition(b"\n\n")
        signatures, *records = entries.split(b"\n{")
        note = parse_note(head + b"\n\n" + signatures)
        try:
            watched, line = WitnessLog(QUORUM.origin, QUORUM.operator).cosign(
                0, [b"{" + record for record in records], note, lambda entry: True, WITNESSES[0], NOW // 1000
            )
        except SizeMismatch as behind:
            raise AssertionError("a witness without entries is not behind") from behind
        assert watched.frontier.root() == parse_checkpoint(note.text).root
        return line


# --- cases before the judge -----------------------------------------------------------------------------------------


class Case:
    """A case built from its parties' statements: each signed by its author, and all entries in a log with its
    witnesses' signatures."""

    name = "case"
    form: Form = "sealed"
    size_max = 32 * 1024

    _LINK, _CAME = STREAM[1], STREAM[2]

    def seeds(self) -> list[bytes]:
        """An accusation with each of the grounds against it, and with none; two guilts that need no accusation."""
        rules, accept, accusation = _ingredients()
        ack = messages.ack(SUBSCRIBER, STREAM[3], NOW + 9_000).serialize()
        close = Close(time=NOW + 3_000, accept=accept.digest, author=did_of(SUBSCRIBER)).signed(SUBSCRIBER)
        ended = Close(time=NOW + 2, accept=accept.digest, author=did_of(PUBLISHER)).signed(PUBLISHER)
        earlier = msgspec.structs.replace(accusation, log_size=0).signed(SUBSCRIBER)
        log = Log([("message", self._LINK.serialize())])
        log.post(entry_of("accusation", earlier.accuser, earlier.serialize()).record())
        log.post(entry_of("close", ended.author, ended.serialize()).record())
        receipts = [receipt_for(log.tree, index, log.note(NOW + 1_000)).serialize() for index in range(3)]
        grounds = [
            Acknowledged(tuple(one.serialize() for one in STREAM[1:]), ack),
            Posted(self._LINK.serialize(), receipts[0]),
            Closed(close),
            Ended(self._LINK.serialize(), ended, receipts[2]),
            Repeated(earlier, receipts[1]),
        ]
        other = messages.data(PUBLISHER, STREAM[1].time, ALIAS, b"other", STREAM[0].signature)
        turned = messages.data(PUBLISHER, STREAM[0].time, ALIAS, b"back", STREAM[0].signature)
        equivocations = (
            Fork(STREAM[1].serialize(), other.serialize()),
            TimeReversal(STREAM[0].serialize(), turned.serialize()),
        )
        common = {
            "rules": rules,
            "accept": accept,
            "accusation": accusation,
            "came": self._CAME.serialize(),
            "reopened": [],
        }
        kinds = [[ground] for ground in grounds] + [grounds, []]
        made = [
            {**common, "grounds": kind, "equivocations": [] if kind else equivocations, "entries": []} for kind in kinds
        ]
        return [compact_json(msgspec.to_builtins(one)) for one in made]

    def seal(self, tree: Part, dice: Random) -> bytes:
        with suppress(RemoteError, TypeError, ValueError, KeyError):
            said = strict_json(utf8(as_text(tree)), 1 << 20)
            return canonical_json(self._case(dict(said), dice))  # type: ignore[call-overload]
        return utf8(as_text(tree))

    def _case(self, said: dict[str, Any], dice: Random) -> dict[str, Any]:
        rules = said["rules"]
        accept = self._signed(said["accept"], PUBLISHER, rules=b64url(sha256(canonical_json(rules))))
        confirm = self._signed(
            msgspec.to_builtins(confirmed(ACCEPT)), SUBSCRIBER, accept=b64url(sha256(canonical_json(accept)))
        )
        came = base64.b64decode(said["came"])  # as msgspec has it
        reopened = [[REQUEST, one, confirmed(ACCEPT)] for one in said["reopened"]]
        log = Log([("message", b"%d" % number) for number in range(2)])
        accusation = self._signed(
            said["accusation"],
            SUBSCRIBER,
            accept=confirm["accept"],
            message=b64url(sha256(came)),
            log_size=2,
            reopened=[b64url(sha256(canonical_json(one))) for one in said["reopened"]],
        )
        written = canonical_json(accusation)
        log.post(entry_of("accusation", did_of(SUBSCRIBER), written).record())
        filed = log.note(NOW + 3_600_000)
        filed_as = receipt_for(log.tree, 2, filed).serialize()
        defences = [
            compact_json({"accusation": b64url(sha256(written)), "ground": ground}) for ground in said["grounds"][:20]
        ]
        for blob in defences:
            log.post(entry_of("defence", did_of(PUBLISHER), blob, b64url(sha256(written))).signed(PUBLISHER).record())
        for entry in said["entries"][:20]:
            log.post(canonical_json(entry))
        closing = checkpoint(QUORUM.origin, log.frontier, OPERATOR)
        for seed in WITNESSES[: dice.choice((1, 2, 3, 3, 3, 3))]:
            closing = closing.with_line(cosignature(closing.text, seed, NOW // 1000 + 7_200))
        span = {
            "before": 2,
            "peaks": log.frontiers[2].peaks,
            "entries": log.records[2:],
            "closing": closing.serialize(),
        }
        withheld = {
            "accusation": accusation,
            "message": came,
            "filed": filed_as,
            "span": span,
            "defences": defences[: dice.choice((1, 8, 8, 8, 8, 20))],
            "reopened": reopened,
        }
        subscription = [REQUEST, accept, confirm]
        case = {"zcase": 1, "rules": rules, "subscription": subscription, "equivocations": said["equivocations"]}
        built: dict[str, Any] = msgspec.to_builtins({**case, "withheld": withheld} if dice.random() < 0.95 else case)
        return built

    def _signed(self, statement: dict[str, Any], seed: bytes, **changes: Any) -> dict[str, Any]:
        """A statement in JSON with these fields and its author's signature."""
        unsigned = {**statement, **changes, "sig": ""}
        return {**unsigned, "sig": b64url(ed25519_sign(seed, handshake.CONTEXT + canonical_json(unsigned)))}

    def parse(self, data: bytes) -> object:
        """Whatever can be read is judged, and twice in the same way."""
        case = parse_case(data)
        assert parse_case(case.serialize()) == case
        found = judge(case)
        assert found == judge(case)
        verdicts = (UPHELD, DISMISSED, REPEATED, FALSE_ACCUSATION, VOID, OPEN)
        assert found.delivery in verdicts if case.withheld else found.delivery == ""
        assert set(found.guilty) <= {FORKED, TIME_REVERSED}
        assert all(finding.sentence.isprintable() and len(finding.sentence) < 200 for finding in found.findings)
        for written in case.withheld.defences if case.withheld else ():
            with suppress(RemoteError):
                parse_defence(written)
        return found.delivery


@cache
def _ingredients() -> tuple[Rules, Accept, Accusation]:
    rules = Rules(origin=QUORUM.origin, operator=QUORUM.operator, witnesses=QUORUM.witnesses)
    accept = accepted(rules.digest)
    accusation = Accusation(
        time=NOW + 3_600_000,
        accuser=did_of(SUBSCRIBER),
        accept=accept.digest,
        message=b64url(sha256(STREAM[2].serialize())),
        missing=b64url(STREAM[2].before),
        log_size=2,
    ).signed(SUBSCRIBER)
    return rules, accept, accusation
