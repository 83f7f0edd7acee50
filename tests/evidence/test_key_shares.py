"""Key shares in the chain, as in SUPRA's Fig. 4: judged like data of a stream with one subscriber."""

import random

import pytest

from tests.support.dispute_parties import Story
from zerochat.crypto.primitives import ed25519_public, x25519_public
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence import messages
from zerochat.evidence.case import parse_case
from zerochat.evidence.judge import DISMISSED, FALSE_ACCUSATION, UPHELD, judge
from zerochat.evidence.messages import SEALED_KEY_BYTES, Data, Share, parse_link, parse_share
from zerochat.group.signed_streams.statements import seal_key
from zerochat.group.signed_streams.subscriptions import open_key

HISTORIES = 60


class Shares(Story):
    """A history in which a third of the messages give the first subscriber a new key."""

    def __init__(self, seed, subscribers=1):
        super().__init__(seed)
        self.keys = random.Random(f"keys {seed}")
        self.listeners = self.listeners[:subscribers]

    def said(self, time, sealed, head):
        if self.keys.random() < 0.67:
            return super().said(time, sealed, head)
        subscriber = self.suite.public(self.listeners[0].signs)
        key = self.keys.randbytes(SEALED_KEY_BYTES)
        return messages.share(self.signs, time, subscriber, self.alias, key, head, self.suite)

    def is_share(self, signature):
        return any(one.signature == signature and isinstance(one, Share) for one in self.stream)


@pytest.mark.slow
def test_shares_are_judged_like_data():
    """Withheld ones convict, delivered and posted ones do not; nor does a message behind a share."""
    found: dict[str, int] = {}
    for seed in range(HISTORIES):
        story = Shares(seed)
        for quarrel in story.play():
            verdict = judge(parse_case(quarrel.case.serialize()))
            assert (verdict.delivery == UPHELD) == quarrel.cheated, seed
            assert tuple(verdict.guilty) == quarrel.counts, seed
            withheld = quarrel.case.withheld
            if withheld is None:
                continue
            subscription = quarrel.case.verified_subscription()
            came = parse_link(withheld.message, subscription.publisher, subscription.subscriber)
            if isinstance(came, Share) or story.is_share(came.before):
                found[verdict.delivery] = found.get(verdict.delivery, 0) + 1
    assert min(found.get(verdict, 0) for verdict in (UPHELD, DISMISSED, FALSE_ACCUSATION)) >= 3, found


@pytest.mark.slow
def test_a_share_for_another_subscriber_is_no_link():
    """The reason why groups publish keys as data: the others lack the share, and its publisher cannot defend itself."""
    convicted = 0
    for seed in range(HISTORIES):
        story = Shares(seed, subscribers=2)
        if story.kind != "honest" or len(story.listeners) < 2:
            continue
        for quarrel in story.play():
            withheld = quarrel.case.withheld
            if withheld is not None and withheld.accusation.accuser == story.listeners[1].did:
                convicted += judge(quarrel.case).delivery == UPHELD
    assert convicted


# --- the form -------------------------------------------------------------------------------------------------------

DICE = random.Random(1)
SEED, OTHER, ALIAS, BEFORE = (DICE.randbytes(size) for size in (32, 32, 16, 64))
PUBLISHER, SUBSCRIBER, STRANGER = (ed25519_public(seed) for seed in (SEED, OTHER, DICE.randbytes(32)))


def test_a_chain_hands_over_its_key_in_the_middle():
    """Data under one key, the share of the next one, and data under that."""
    old, new, transport = (DICE.randbytes(32) for _ in range(3))
    sealed = seal_key(new, x25519_public(transport), DICE.randbytes(32))
    first = messages.data(SEED, 1, ALIAS, b"under " + old[:4], BEFORE)
    share = messages.share(SEED, 2, SUBSCRIBER, ALIAS, sealed, first.signature)
    last = messages.data(SEED, 3, ALIAS, b"under " + new[:4], share.signature)
    before, key = BEFORE, old
    for encoded in (first.serialize(), share.serialize(), last.serialize()):
        link = parse_link(encoded, PUBLISHER, SUBSCRIBER)
        assert link.before == before
        if isinstance(link, Share):
            key = open_key(link.sealed, transport)
        else:
            assert link.sealed == b"under " + key[:4]
        before = link.signature
    assert key == new and before == last.signature


def test_a_link_is_of_one_form():
    share = messages.share(SEED, 2, SUBSCRIBER, ALIAS, bytes(SEALED_KEY_BYTES), BEFORE)
    as_long = messages.data(SEED, 2, ALIAS, bytes(len(share.serialize()) - 184), BEFORE)
    assert len(as_long.serialize()) == len(share.serialize())
    assert isinstance(parse_link(share.serialize(), PUBLISHER, SUBSCRIBER), Share)
    assert isinstance(parse_link(as_long.serialize(), PUBLISHER, SUBSCRIBER), Data)
    for wrong in (
        share.serialize()[:-1],
        share.serialize()[:-1] + bytes([share.serialize()[-1] ^ 1]),
        messages.share(SEED, 2, STRANGER, ALIAS, bytes(SEALED_KEY_BYTES), BEFORE).serialize(),
        messages.share(OTHER, 2, STRANGER, ALIAS, bytes(SEALED_KEY_BYTES), BEFORE).serialize(),
    ):
        with pytest.raises((Malformed, Unauthentic)):
            parse_link(wrong, PUBLISHER, SUBSCRIBER)
    assert parse_share(share.serialize()) == share
