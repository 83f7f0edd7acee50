"""The contract reaches the judge's verdicts and accepts nothing that the judge refuses.

Statements of a subscription are transactions, and posts reach the contract in the same second; so a history is played
once and judged by both.
"""

import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import get_context

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.dispute_parties import EPOCH, Story
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.evidence import messages
from zerochat.evidence.case import (
    DEFENCES_MAX,
    Accusation,
    Acknowledged,
    Closed,
    Ended,
    Fork,
    Ground,
    Posted,
    TimeReversal,
    parse_case,
    parse_defence,
)
from zerochat.evidence.handshake import parse_statement
from zerochat.evidence.judge import DISMISSED, FALSE_ACCUSATION, FORKED, REPEATED, TIME_REVERSED, UPHELD, VOID, judge

for name in ("vyper", "eth", "eth_abi"):
    if find_spec(name) is None:
        pytest.skip("vyper and py-evm come with the extra `evm`", allow_module_level=True)

from zerochat.contract.chain import Chain, Done, Reverted, address_of  # noqa: E402
from zerochat.contract.suite import ORDER, SECP256K1  # noqa: E402

pytestmark = pytest.mark.contract

EVERYDAY, SLICE = (15, 16, 86, 142), 60
"""Histories: a few in which everything happens, for their curves are computed in Python; and so many in a search."""
EVERYTHING = {UPHELD, DISMISSED, FALSE_ACCUSATION, VOID, REPEATED, FORKED, TIME_REVERSED}
VERDICTS = {2: DISMISSED, 3: FALSE_ACCUSATION, 4: UPHELD}
SEED, OTHER = bytes([1]) * 32, bytes([2]) * 32


def test_the_chain_leaves_the_recursion_limit_alone():
    """Decoders refuse deep nesting by it; py-evm raises it when it is imported."""
    show = "sys.getrecursionlimit()"
    command = f"import sys; before = {show}; import zerochat.contract.chain; print({show} - before)"
    assert subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout == "0\n"


@dataclass
class Court:
    """The contract of one history, and its transactions."""

    story: Story
    gas: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    subscriptions: dict[str, bytes] = field(default_factory=dict)
    """By the digest of the accept statement: its id in the contract."""
    cases: dict[str, bytes] = field(default_factory=dict)
    """By the digest of the accusation."""
    refused: dict[str, str] = field(default_factory=dict)
    counted: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """Counted defences by accusation. The contract would accept more, since senders pay."""

    def __post_init__(self) -> None:
        story, rules = self.story, self.story.rules
        seeds = [story.signs, *(one.signs for one in story.listeners)]
        self.chain = Chain(seeds, EPOCH // 1000)
        self.gas["deploy"].append(self.chain.deploy(story.signs, rules.ack_ms, rules.skew_ms, rules.window_ms))
        self.signs = {one.did: one.signs for one in story.listeners}
        came = [*story.stream, *(one for _, one in story.shown)]
        self.came = {b64url(sha256(one.serialize())): one.serialize() for one in came}

    def send(self, seed: bytes, function: str, *arguments) -> Done:
        done = self.chain.send(seed, function, *arguments)
        self.gas[function].append(done.gas)
        return done

    def hear(self) -> None:
        """All events in time order."""
        for one in self.story.listeners:
            for subscription in one.past:
                given = subscription.accept
                digest, place = given.digest, (subscription.alias, subscription.head, given.time)
                done = self.send(self.story.signs, "accept", address_of(one.signs), *place)
                self.subscriptions[digest] = done.as_bytes32()
                self.send(one.signs, "confirm", done.as_bytes32())
                if digest in one.closes:
                    self.send(one.signs, "close", done.as_bytes32(), one.closes[digest].time)
        for now, kind, blob in sorted(self.story.ledger.told, key=lambda told: told[0]):
            self.chain.at(now // 1000)
            getattr(self, kind)(blob)

    def message(self, blob: bytes) -> None:
        self.send(self.story.signs, "post", blob)

    def close(self, blob: bytes) -> None:
        with suppress(Reverted):  # when it has ended before
            self.send(self.story.signs, "end", self.subscriptions[parse_statement(blob).accept])

    def accusation(self, blob: bytes) -> None:
        said = msgspec.json.decode(blob, type=Accusation)
        if said.digest in self.cases:
            return  # an operator has logged it once more
        reopened = [self.subscriptions[one] for one in said.reopened]
        try:
            came = self.came[said.message]
            place = self.subscriptions[said.accept]
            done = self.send(self.signs[said.accuser], "accuse", place, came, said.time, reopened)
            self.cases[said.digest] = done.as_bytes32()
        except Reverted as refused:
            self.refused.setdefault(said.digest, str(refused))

    def defence(self, blob: bytes) -> None:
        try:
            said = parse_defence(blob)
        except Malformed:
            return  # noise
        counted = self.counted[said.accusation]
        if said.accusation in self.cases and (len(counted) < DEFENCES_MAX or blob in counted):
            counted.add(blob)
            with suppress(Reverted):  # invalid defences
                self.defend(self.cases[said.accusation], said.ground)

    def defend(self, case: bytes, ground: Ground) -> None:
        seed = self.story.signs
        match ground:
            case Acknowledged():
                self.send(seed, "defend_acknowledged", case, list(ground.chain), ground.ack)
            case Posted():
                self.send(seed, "defend_posted", case, ground.message)
            case Closed():
                self.send(seed, "defend_closed", case)
            case Ended():
                self.send(seed, "defend_ended", case, ground.message)

    def verdict(self, digest: str) -> str:
        if digest in self.cases:
            return VERDICTS[self.send(self.story.signs, "conclude", self.cases[digest]).as_number()]
        return REPEATED if self.refused[digest] == "accused before" else VOID

    def guilt(self, digest: str, counts) -> list[str]:
        """The contract's verdicts."""
        place, found = self.subscriptions[digest], []
        for count in counts:
            match count:
                case Fork():
                    self.send(self.story.signs, "show_fork", place, count.one, count.other)
                    found.append(FORKED)
                case TimeReversal():
                    self.send(self.story.signs, "show_time_reversal", place, count.one, count.next)
                    found.append(TIME_REVERSED)
        return found


def tried(seeds, gas: dict[str, list[int]]) -> dict[str, int]:
    """Both judge these histories; how often they came to each verdict."""
    counted: dict[str, int] = defaultdict(int)
    for seed in seeds:
        story = Story(seed, SECP256K1, exact=True)
        quarrels = list(story.play())
        court = Court(story, gas)
        court.hear()
        court.chain.at(story.now // 1000 + 2 * 86_400)
        for quarrel in quarrels:
            judgement = judge(parse_case(quarrel.case.serialize()), SECP256K1)
            if (missing := quarrel.case.withheld) is not None:
                assert (judgement.delivery == UPHELD) == quarrel.cheated, (seed, judgement)
                found = court.verdict(missing.accusation.digest)
                assert found == judgement.delivery, (seed, found, court.refused, judgement)
                counted[found] += 1
            digest = quarrel.case.subscription[1].digest
            assert sorted(set(court.guilt(digest, quarrel.case.equivocations))) == sorted(judgement.guilty)
            for guilt in judgement.guilty:
                counted[guilt] += 1
    return counted


def judged(seeds: range) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Both judges' verdicts of these histories, and the gas."""
    gas: dict[str, list[int]] = defaultdict(list)
    return dict(tried(seeds, gas)), dict(gas)


def searched(seeds: range) -> tuple[dict[str, int], dict[str, list[int]]]:
    """The same with all processors, where there is more to do than one does in a slice."""
    if len(seeds) <= SLICE:
        return judged(seeds)
    counted: dict[str, int] = defaultdict(int)
    gas: dict[str, list[int]] = defaultdict(list)
    pieces = [seeds[at : at + SLICE // 4] for at in range(0, len(seeds), SLICE // 4)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for found, used in pool.map(judged, pieces):
            for name, number in found.items():
                counted[name] += number
            for name, amounts in used.items():
                gas[name] += amounts
    return counted, gas


def shown(gas: dict[str, list[int]]) -> str:
    lines = (
        f"{name:<20} {min(used):>9,} {sorted(used)[len(used) // 2]:>9,} {max(used):>9,}" for name, used in gas.items()
    )
    return "\n".join((f"{'gas':<20} {'least':>9} {'median':>9} {'most':>9}", *lines))


@pytest.mark.slow
def test_the_contract_reaches_the_same_verdicts():
    """`-rP` prints the gas of each operation."""
    gas: dict[str, list[int]] = defaultdict(list)
    counted = tried(EVERYDAY, gas)
    print(shown(gas))
    assert counted.keys() == EVERYTHING


@pytest.mark.sim
def test_many_histories_are_judged_alike(budget, figures):
    """With a budget of 167 these are ten thousand."""
    seeds = range(1000, 1000 + budget(SLICE))
    counted, gas = searched(seeds)
    figures(f"{len(seeds):,} histories: {dict(counted)}, judged alike\n{shown(gas)}")
    assert len(gas["deploy"]) == len(seeds)
    assert counted.keys() == EVERYTHING


# --- signatures -----------------------------------------------------------------------------------------------------


def test_a_signature_is_verified_in_one_spelling_only():
    key, signature = SECP256K1.public(SEED), SECP256K1.sign(SEED, b"message")
    SECP256K1.verify(key, b"message", signature)
    assert SECP256K1.sign(SEED, b"message") == signature and len(key) == 32 and len(signature) == 64
    r, s = signature[:32], int.from_bytes(signature[32:], "big")
    parity, low = s >> 255, s & (1 << 255) - 1
    high = ORDER - low
    others = [
        r + high.to_bytes(32, "big"),
        r + b"\x7f" + b"\xff" * 31,
        r + (low | (1 - parity) << 255).to_bytes(32, "big"),
        bytes(32) + signature[32:],
        ORDER.to_bytes(32, "big") + signature[32:],
        r + bytes(32),
        signature[:-1],
        signature + b"\0",
    ]
    for other in others:
        with pytest.raises(Unauthentic):
            SECP256K1.verify(key, b"message", other)
    for key_, message in ((SECP256K1.public(OTHER), b"message"), (key, b"massage"), (b"\1" + key[1:], b"message")):
        with pytest.raises(Unauthentic):
            SECP256K1.verify(key_, message, signature)
    with pytest.raises(Malformed):
        SECP256K1.public(bytes(32))


def test_the_addresses_are_those_of_ethereum():
    """The first of the accounts that every development chain begins with."""
    secret = bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
    assert address_of(secret).hex() == "f39fd6e51aad88f6f4ce6ab8827279cfffb92266"


# --- refusals of the contract ---------------------------------------------------------------------------------------

ALIAS, HEAD, NOW = b"a" * 16, b"h" * 64, EPOCH
ACK_MS, SKEW_MS, WINDOW_MS = 600_000, 120_000, 1_200_000


def begun() -> tuple[Chain, bytes]:
    """A chain on which SEED publishes to OTHER."""
    chain = Chain([SEED, OTHER, bytes([3]) * 32], EPOCH // 1000)
    chain.deploy(SEED, ACK_MS, SKEW_MS, WINDOW_MS)
    place = chain.send(SEED, "accept", address_of(OTHER), ALIAS, HEAD, NOW).as_bytes32()
    chain.send(OTHER, "confirm", place)
    return chain, place


def stream(seed: bytes = SEED, alias: bytes = ALIAS) -> list[messages.Data]:
    said = [messages.data(seed, NOW + 1000, alias, b"one", HEAD, SECP256K1)]
    for number in range(2, 5):
        said.append(messages.data(seed, NOW + 1000 * number, alias, b"next", said[-1].signature, SECP256K1))
    return said


def refused(chain: Chain, seed: bytes, function: str, *arguments) -> str:
    with pytest.raises(Reverted) as error:
        chain.send(seed, function, *arguments)
    return str(error.value)


def test_contract_checks_the_transaction_author():
    chain, place = begun()
    third, came = bytes([3]) * 32, stream()[2].serialize()
    assert refused(chain, third, "confirm", place) == "not the subscriber"
    assert refused(chain, SEED, "close", place, NOW) == "not the subscriber"
    assert refused(chain, OTHER, "end", place) == "not the publisher"
    due = NOW + 10_000 + ACK_MS + 2 * SKEW_MS
    chain.at(due // 1000 + 1)
    assert refused(chain, third, "accuse", place, came, due, []) == "not the subscriber"
    case = chain.send(OTHER, "accuse", place, came, due, []).as_bytes32()
    for function, arguments in (("defend_closed", ()), ("defend_posted", (came,)), ("defend_ended", (came,))):
        assert refused(chain, third, function, case, *arguments) == "not the publisher"


def test_contract_accepts_signed_stream_messages_only():
    chain, place = begun()
    said = stream()
    due = NOW + 10_000 + ACK_MS + 2 * SKEW_MS
    chain.at(due // 1000 + 1)
    written = said[2].serialize()
    wrong = {
        "another stream": (stream(OTHER)[2].serialize(), stream(alias=b"b" * 16)[2].serialize()),
        "signature not canonical": (written[:-32] + b"\x7f" + b"\xff" * 31, written[:-32] + bytes(32)),
        "no message": (written[-184:], b""),
        "not owed": (said[0].serialize(),),
    }
    for why, them in wrong.items():
        for one in them:
            assert refused(chain, OTHER, "accuse", place, one, due, []) == why
    for at in range(0, len(written), 17):
        flipped = written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :]
        with pytest.raises(RemoteError):
            messages.parse_data(flipped, SECP256K1)
        assert refused(chain, OTHER, "accuse", place, flipped, due, [])


def test_an_accusation_has_its_time_and_so_has_a_defence():
    chain, place = begun()
    said = stream()
    chain.send(SEED, "post", said[1].serialize())
    due = said[2].time + ACK_MS + 2 * SKEW_MS
    arguments = place, said[2].serialize()
    assert refused(chain, OTHER, "accuse", *arguments, due, []) == "too early"
    chain.at(-(-due // 1000))
    assert refused(chain, OTHER, "accuse", *arguments, due - 1, []) == "too early"
    case = chain.send(OTHER, "accuse", *arguments, due, []).as_bytes32()
    assert refused(chain, OTHER, "accuse", *arguments, due + 5, []) == "accused before"
    assert chain.send(OTHER, "conclude", case).as_number() == 1
    chain.at(chain.time_s + WINDOW_MS // 1000)
    assert refused(chain, SEED, "defend_posted", case, said[1].serialize()) == "too late"
    assert chain.send(OTHER, "conclude", case).as_number() == 4


@pytest.mark.slow
def test_invalid_defences_do_not_soften_a_verdict():
    chain, place = begun()
    first, link, came, last = said = stream()
    chain.at(EPOCH // 1000 + 2)
    chain.send(SEED, "end", place)
    due = came.time + ACK_MS + 2 * SKEW_MS
    chain.at(due // 1000 + 1)
    chain.send(SEED, "post", link.serialize())
    chain.send(OTHER, "close", place, came.time + 2 * SKEW_MS + 1)
    case = chain.send(OTHER, "accuse", place, came.serialize(), due + 1, []).as_bytes32()

    twin = messages.data(SEED, link.time, ALIAS, b"twin", link.before, SECP256K1)
    beside = messages.data(SEED, came.time, ALIAS, b"beside", came.before, SECP256K1)
    older = messages.data(SEED, came.time - 1, ALIAS, b"older", came.signature, SECP256K1)

    def acknowledged(of: messages.Data, *way: messages.Data, by: bytes = OTHER, at: int = due) -> tuple:
        return case, [one.serialize() for one in way], messages.ack(by, of, at, SECP256K1).serialize()

    assert refused(chain, SEED, "defend_posted", case, link.serialize()) == "not posted in time"
    assert refused(chain, SEED, "defend_ended", case, link.serialize()) == "not ended"
    assert refused(chain, SEED, "defend_ended", case, came.serialize()) == "not the missing message"
    assert refused(chain, SEED, "defend_closed", case) == "not closed"
    nothing = {
        "no acknowledgement": [acknowledged(link)],
        "not the missing message": [acknowledged(first, first, link), acknowledged(came, came)],
        "a message that does not follow its predecessor": [
            acknowledged(last, link, last),
            acknowledged(link, link, link),
        ],
        "another message": [acknowledged(last, link, came), acknowledged(twin, link)],
        "not the received message": [acknowledged(beside, link, beside)],
        "dated before the received message": [acknowledged(older, link, came, older)],
        "another member's acknowledgement": [
            acknowledged(link, link, by=SEED),
            acknowledged(link, link, by=bytes([3]) * 32),
        ],
        "another stream": [acknowledged(replace(link, alias=b"b" * 16), link)],
    }
    for why, them in nothing.items():
        for one in them:
            assert refused(chain, SEED, "defend_acknowledged", *one) == why
    verdicts = []
    for at in (due + 2, due + 1, due + 2):
        chain.send(SEED, "defend_acknowledged", *acknowledged(last, *said[1:], at=at))
        verdicts.append(VERDICTS[chain.send(SEED, "conclude", case).as_number()])
    assert verdicts == [DISMISSED, FALSE_ACCUSATION, FALSE_ACCUSATION]


def test_acks_prove_nothing_before_the_subscription():
    """The publisher signed ahead: its last message is dated within the subscription and precedes it in the stream."""
    said = stream()
    chain = Chain([SEED, OTHER], EPOCH // 1000)
    chain.deploy(SEED, ACK_MS, SKEW_MS, WINDOW_MS)
    place = chain.send(SEED, "accept", address_of(OTHER), ALIAS, said[2].signature, NOW).as_bytes32()
    chain.send(OTHER, "confirm", place)
    due = said[1].time + ACK_MS + 2 * SKEW_MS
    chain.at(-(-due // 1000))
    case = chain.send(OTHER, "accuse", place, said[1].serialize(), due, []).as_bytes32()
    ack = messages.ack(OTHER, said[3], due - 1, SECP256K1)
    way = [one.serialize() for one in said]
    assert refused(chain, SEED, "defend_acknowledged", case, way, ack.serialize()) == "the subscription began later"


def test_acks_of_a_later_subscription_prove_nothing_earlier():
    results = []
    for named in (True, False):
        chain, place = begun()
        said = stream()
        later = chain.send(SEED, "accept", address_of(OTHER), ALIAS, said[2].signature, said[2].time).as_bytes32()
        chain.send(OTHER, "confirm", later)
        due = said[2].time + ACK_MS + 2 * SKEW_MS
        chain.at(-(-due // 1000))
        names = [later] if named else []
        case = chain.send(OTHER, "accuse", place, said[2].serialize(), due, names).as_bytes32()
        ack = messages.ack(OTHER, said[3], due - 1, SECP256K1)
        way = [one.serialize() for one in said[1:]]
        try:
            chain.send(SEED, "defend_acknowledged", case, way, ack.serialize())
        except Reverted as error:
            results.append(str(error))
        else:
            results.append(VERDICTS[chain.send(SEED, "conclude", case).as_number()])
    assert results == ["the subscription was renewed", FALSE_ACCUSATION]
