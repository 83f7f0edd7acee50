#pragma version ~=0.4.3
# @license Apache-2.0
"""
@title The judge of zerochat's accountable groups, with the ledger that it goes by
@notice The rules of `zerochat/evidence/judge.py`, in a group's own contract. What is said about a subscription is a
        transaction of who says it; messages and acknowledgements are bytes that were signed elsewhere, and are
        checked here. The time is the block's. All times are milliseconds.
"""

# T 8 | Pub 32 | A 16 | sealed | Pre 64 | S 64
MESSAGE_BYTES: constant(uint256) = 2048
CHAIN_MAX: constant(uint256) = 16
REOPENED_MAX: constant(uint256) = 8
# Sub 32 | A 16 | T 8 | S 64 | t_ack 8 | S_ack 64
ACK_BYTES: constant(uint256) = 192
ACK_CONTEXT: constant(Bytes[14]) = b"zerochat/ack/1"
TIME_MAX: constant(uint256) = 2**53 - 1
HALF_ORDER: constant(uint256) = 57896044618658097711785492504343953926418782139537452191302581570759080747168

FILED: constant(uint8) = 1
DISMISSED: constant(uint8) = 2
FALSE_ACCUSATION: constant(uint8) = 3
UPHELD: constant(uint8) = 4
FORKED: constant(uint8) = 1
TIME_REVERSED: constant(uint8) = 2


struct Subscription:
    publisher: address
    subscriber: address
    alias: bytes16
    head: bytes32
    accepted: uint256
    confirmed: bool
    closed: uint256
    ended: uint256


struct Message:
    name: bytes32
    before: bytes32
    time: uint256
    publisher: address
    alias: bytes16


struct Case:
    subscription: bytes32
    missing: bytes32
    came: uint256
    accused: uint256
    filed: uint256
    verdict: uint8


event Posted:
    hash: indexed(bytes32)
    message: Bytes[MESSAGE_BYTES]


event Accused:
    case: indexed(bytes32)


event Judged:
    case: indexed(bytes32)
    verdict: uint8


event Guilty:
    subscription: indexed(bytes32)
    of: uint8


ACK_MS: immutable(uint256)
GRACE_MS: immutable(uint256)
WINDOW_MS: immutable(uint256)

subscriptions: public(HashMap[bytes32, Subscription])
# Time of the first post of a message, by its SHA-256.
posted: public(HashMap[bytes32, uint256])
cases: public(HashMap[bytes32, Case])
guilty: public(HashMap[bytes32, uint8])
# Starts of later subscriptions, by case.
starts: HashMap[bytes32, DynArray[bytes32, REOPENED_MAX]]


@deploy
def __init__(ack_ms: uint256, skew_ms: uint256, window_ms: uint256):
    ACK_MS = ack_ms
    GRACE_MS = 2 * skew_ms
    WINDOW_MS = window_ms


# Off-chain signatures. A message is identified by the hash of its signature.


@internal
@pure
def _signer(digest: bytes32, signature: Bytes[64]) -> address:
    """
    @dev EIP-2098: the lower half of the values of s leaves a bit free, which says which of two points was meant. With
         it, and only with it, nobody finds one signature for two messages.
    """
    with_parity: uint256 = convert(slice(signature, 32, 32), uint256)
    s: uint256 = with_parity & (max_value(uint256) >> 1)
    assert s != 0 and s <= HALF_ORDER, "signature not canonical"
    signer: address = ecrecover(digest, (with_parity >> 255) + 27, convert(slice(signature, 0, 32), uint256), s)
    assert signer != empty(address), "no signature"
    return signer


@internal
@pure
def _read(message: Bytes[MESSAGE_BYTES]) -> Message:
    size: uint256 = len(message)
    assert size > 184, "no message"
    signature: Bytes[64] = slice(message, size - 64, 64)
    publisher: address = self._signer(sha256(slice(message, 0, size - 64)), signature)
    assert convert(slice(message, 8, 32), bytes32) == convert(publisher, bytes32), "wrong signature"
    time: uint256 = convert(slice(message, 0, 8), uint256)
    assert time != 0 and time <= TIME_MAX, "no time"
    return Message(
        name=keccak256(signature),
        before=keccak256(slice(message, size - 128, 64)),
        time=time,
        publisher=publisher,
        alias=convert(slice(message, 40, 16), bytes16),
    )


@internal
@view
def _of_stream(message: Bytes[MESSAGE_BYTES], subscription: Subscription) -> Message:
    found: Message = self._read(message)
    assert found.publisher == subscription.publisher and found.alias == subscription.alias, "another stream"
    return found


@internal
@view
def _now() -> uint256:
    return block.timestamp * 1000


# Subscriptions.


@external
def accept(subscriber: address, alias: bytes16, head: Bytes[64], time: uint256) -> bytes32:
    """
    @param head The signature behind which the subscriber begins to listen.
    @param time When the publisher accepts, by its clock: what it dates later is said under this subscription.
    """
    assert subscriber != msg.sender and subscriber != empty(address) and len(head) == 64
    assert time != 0 and time <= TIME_MAX
    id: bytes32 = keccak256(abi_encode(msg.sender, subscriber, alias, head, time))
    assert self.subscriptions[id].publisher == empty(address), "accepted before"
    self.subscriptions[id] = Subscription(
        publisher=msg.sender,
        subscriber=subscriber,
        alias=alias,
        head=keccak256(head),
        accepted=time,
        confirmed=False,
        closed=0,
        ended=0,
    )
    return id


@external
def confirm(id: bytes32):
    assert msg.sender == self.subscriptions[id].subscriber, "not the subscriber"
    self.subscriptions[id].confirmed = True


@external
def close(id: bytes32, time: uint256):
    """
    @notice The subscriber wants no more of what is sent later than this.
    """
    assert msg.sender == self.subscriptions[id].subscriber, "not the subscriber"
    assert self.subscriptions[id].closed == 0 and time != 0, "closed before"
    self.subscriptions[id].closed = time


@external
def end(id: bytes32):
    """
    @notice The publisher owes nothing that it dates later than this block.
    """
    assert msg.sender == self.subscriptions[id].publisher, "not the publisher"
    assert self.subscriptions[id].ended == 0, "ended before"
    self.subscriptions[id].ended = self._now()


@external
def post(message: Bytes[MESSAGE_BYTES]):
    """
    @notice What is posted here can be fetched by everybody. Who posts it does not matter: it is signed.
    """
    hash: bytes32 = sha256(message)
    if self.posted[hash] == 0:
        self.posted[hash] = self._now()
        log Posted(hash=hash, message=message)


# Accusations and defences.


@external
def accuse(id: bytes32, message: Bytes[MESSAGE_BYTES], time: uint256, reopened: DynArray[bytes32, REOPENED_MAX]) -> bytes32:
    """
    @param message What came; the one that it names as the one before is missing.
    @param time When the subscriber accuses, by the clock by which it has acknowledged.
    @param reopened The two's later subscriptions: what was acknowledged there says nothing of what came before them.
    """
    subscription: Subscription = self.subscriptions[id]
    assert subscription.confirmed and msg.sender == subscription.subscriber, "not the subscriber"
    came: Message = self._of_stream(message, subscription)
    assert came.before != subscription.head and came.time > subscription.accepted, "not owed"
    due: uint256 = came.time + ACK_MS + GRACE_MS
    assert time >= due and time <= TIME_MAX and self._now() >= due, "too early"
    case: bytes32 = keccak256(abi_encode(id, sha256(message)))
    assert self.cases[case].filed == 0, "accused before"
    self.cases[case] = Case(
        subscription=id, missing=came.before, came=came.time, accused=time, filed=self._now(), verdict=FILED
    )
    for other: bytes32 in reopened:
        later: Subscription = self.subscriptions[other]
        same: bool = later.subscriber == subscription.subscriber and later.publisher == subscription.publisher
        if same and later.confirmed and later.alias == subscription.alias and later.accepted > subscription.accepted:
            self.starts[case].append(later.head)
    log Accused(case=case)
    return case


@internal
@view
def _accused(case: bytes32) -> Case:
    found: Case = self.cases[case]
    assert msg.sender == self.subscriptions[found.subscription].publisher, "not the publisher"
    assert self._now() < found.filed + WINDOW_MS, "too late"
    return found


@internal
def _judge(case: bytes32, verdict: uint8):
    if verdict > self.cases[case].verdict:
        self.cases[case].verdict = verdict
        log Judged(case=case, verdict=verdict)


@internal
@view
def _link(found: Case, message: Bytes[MESSAGE_BYTES]) -> Message:
    link: Message = self._of_stream(message, self.subscriptions[found.subscription])
    assert link.name == found.missing, "not the missing message"
    return link


@external
def defend_acknowledged(case: bytes32, messages: DynArray[Bytes[MESSAGE_BYTES], CHAIN_MAX], ack: Bytes[ACK_BYTES]):
    """
    @notice D1: the messages from the link on, up to one that the subscriber has acknowledged. What came stands behind
            the link, nothing leads through the beginning of a subscription, and the end is not dated before the received message:
            else it might have been acknowledged by whoever never had the link.
    """
    found: Case = self._accused(case)
    subscription: Subscription = self.subscriptions[found.subscription]
    assert len(messages) > 0 and len(ack) == ACK_BYTES, "no acknowledgement"
    last: Message = self._link(found, messages[0])
    for place: uint256 in range(1, len(messages), bound=CHAIN_MAX):
        assert last.name not in self.starts[case], "the subscription was renewed"
        one: Message = self._of_stream(messages[place], subscription)
        assert one.before == last.name, "a message that does not follow its predecessor"
        if place == 1:
            came: bytes32 = keccak256(abi_encode(found.subscription, sha256(messages[1])))
            assert came == case, "not the received message"
        assert one.name != subscription.head, "the subscription began later"
        last = one
    assert len(messages) == 1 or last.time >= found.came, "dated before the received message"
    said: Bytes[110] = concat(ACK_CONTEXT, slice(ack, 32, 96))
    subscriber: address = self._signer(sha256(said), slice(ack, 128, 64))
    assert subscriber == subscription.subscriber, "another member's acknowledgement"
    assert convert(slice(ack, 0, 32), bytes32) == convert(subscriber, bytes32), "another member's acknowledgement"
    assert convert(slice(ack, 32, 16), bytes16) == subscription.alias, "another stream"
    assert convert(slice(ack, 48, 8), uint256) == last.time, "another message"
    assert keccak256(slice(ack, 56, 64)) == last.name, "another message"
    at: uint256 = convert(slice(ack, 120, 8), uint256)
    assert at != 0 and at <= TIME_MAX, "no time"
    self._judge(case, FALSE_ACCUSATION if at <= found.accused else DISMISSED)


@external
def defend_posted(case: bytes32, message: Bytes[MESSAGE_BYTES]):
    """
    @notice D2: the link was here in time.
    """
    link: Message = self._link(self._accused(case), message)
    posted: uint256 = self.posted[sha256(message)]
    assert posted != 0 and posted <= link.time + ACK_MS + GRACE_MS, "not posted in time"
    self._judge(case, DISMISSED)


@external
def defend_closed(case: bytes32):
    """
    @notice D4: the subscriber had ended the subscription.
    """
    found: Case = self._accused(case)
    closed: uint256 = self.subscriptions[found.subscription].closed
    assert closed != 0 and closed <= found.came + GRACE_MS, "not closed"
    self._judge(case, DISMISSED)


@external
def defend_ended(case: bytes32, message: Bytes[MESSAGE_BYTES]):
    """
    @notice D6: the link is dated after the publisher ended the subscription. (D5 is that nobody accuses twice.)
    """
    found: Case = self._accused(case)
    ended: uint256 = self.subscriptions[found.subscription].ended
    assert ended != 0 and self._link(found, message).time > ended, "not ended"
    self._judge(case, DISMISSED)


@external
def conclude(case: bytes32) -> uint8:
    """
    @return The verdict; FILED while the time for defending is not over.
    """
    found: Case = self.cases[case]
    assert found.filed != 0, "no case"
    if found.verdict == FILED and self._now() >= found.filed + WINDOW_MS:
        self._judge(case, UPHELD)
    return self.cases[case].verdict


# Equivocation.


@external
def show_fork(id: bytes32, one: Bytes[MESSAGE_BYTES], other: Bytes[MESSAGE_BYTES]):
    """
    @notice E1: two messages in one place.
    """
    first: Message = self._of_stream(one, self.subscriptions[id])
    second: Message = self._of_stream(other, self.subscriptions[id])
    assert first.before == second.before and keccak256(one) != keccak256(other), "no fork"
    self._found(id, FORKED)


@external
def show_time_reversal(id: bytes32, one: Bytes[MESSAGE_BYTES], after: Bytes[MESSAGE_BYTES]):
    """
    @notice E2: a time that does not grow.
    """
    first: Message = self._of_stream(one, self.subscriptions[id])
    second: Message = self._of_stream(after, self.subscriptions[id])
    assert second.before == first.name and second.time <= first.time, "no time reversal"
    self._found(id, TIME_REVERSED)


@internal
def _found(id: bytes32, guilt: uint8):
    self.guilty[id] = self.guilty[id] | guilt
    log Guilty(subscription=id, of=guilt)
