"""Peer sampling under attack: CYCLON as the source, URPS as the sample, trust for the view.

The view alone is not a sample: peers that announce themselves to all and answer with accomplices come to own most of
it. So whatever arrives also passes through the stream sampler, and the sample repairs the view, as the history samples
of Brahms do (Bortnikov et al., "Brahms: Byzantine Resilient Random Membership Sampling", 2009):

- every other round asks the oldest of the sample instead of the view, so each of the sample is asked, and renewed or
  dropped, before it expires;
- half of an answer is drawn from the sample;
- of the requesters of a round, those with the least hashes under a secret key of that round enter, at most `PUSHED`:
  neither being early nor repeating helps.

Only this state machine is stateful; it does no I/O. A round of it:

    ask        -> whom to send our descriptor to
    answer     at the partner, for each requester
    receive    what the partner has answered; or forget the partner
"""

from collections.abc import Callable, Iterable
from typing import Final

from zerochat.crypto.primitives import blake2b_keyed
from zerochat.overlay import cyclon
from zerochat.overlay.cyclon import EXCHANGE, VIEW, Descriptor, is_valid, merged, oldest
from zerochat.overlay.forwarding import sample
from zerochat.overlay.local_trust import STRANGER, TRUST_MIN, introduced, weighted_sample
from zerochat.overlay.stream_sampler import StreamSampler

PUSHED: Final = 4
"""Requesters of one round that enter: on average one peer asks, and an answer brings `EXCHANGE`."""
PURPOSE: Final = b"zerochat/pushed1"


class PeerSampling:
    """The view and the sample of one peer. `random(n)` returns n random bytes; `trust(peer)`: our own trust in a peer,
    0 to 1 (`local_trust`). Times in ms."""

    def __init__(
        self,
        me: str,
        sampler: StreamSampler,
        random: Callable[[int], bytes],
        trust: Callable[[str], float] = lambda peer: STRANGER,
    ) -> None:
        self.me, self.view = me, dict[str, Descriptor]()
        self.sampler, self._random, self._trust = sampler, random, trust
        self._sampled = dict[str, Descriptor]()
        """The newest descriptors of the sample."""
        self._pushed = dict[bytes, Descriptor]()
        """By hash: the requesters of this round that enter."""
        self._source_trust = dict[str, float]()
        """For the entries of the view: what they have from those that brought them."""
        self._round_key, self._rounds = random(32), 0

    @property
    def sampled(self) -> tuple[Descriptor, ...]:
        """A uniform sample of the peers, dead ones included until they are forgotten."""
        return tuple(self._sampled.values())

    def ask(self, now: float) -> str | None:
        """Begin a round: the peer to ask, which leaves the view; None: we know no peer. If it does not answer,
        `forget` it."""
        if self._pushed:
            self._take_over(list(self._pushed.values()), STRANGER, now)
        self._pushed, self._round_key = {}, self._random(32)
        self._rounds += 1
        first, second = (self._sampled, self.view) if self._rounds % 2 == 0 else (self.view, self._sampled)
        partner = oldest(first) or oldest(second)
        if partner is not None:
            self.view.pop(partner, None)
        return partner

    def answer(self, requester: Descriptor, now: float) -> tuple[Descriptor, ...]:
        """What to send a peer that asks, which has proved that this is its descriptor. The layer above limits the rate
        of answers."""
        if requester.peer != self.me and is_valid(requester, now):
            lot = blake2b_keyed(self._round_key, PURPOSE, requester.peer.encode(), length=16)
            self._pushed[lot] = requester
            if len(self._pushed) > PUSHED:
                del self._pushed[max(self._pushed)]
        half = sample(
            [one for one in self._sampled.values() if one.peer != requester.peer], EXCHANGE // 2, self._random
        )
        others = {peer: one for peer, one in self.view.items() if one not in half}
        return (*half, *cyclon.answer(others, requester.peer, self._random))[:EXCHANGE]

    def receive(self, partner: Descriptor, answered: Iterable[Descriptor], now: float) -> None:
        """Take over what a partner that we have asked has answered, at most `EXCHANGE` descriptors. `partner`: its own,
        new one, which renews its place in the sample but not in the view, as in CYCLON."""
        if partner.peer in self._sampled and is_valid(partner, now):
            self._sampled[partner.peer] = partner
        self._take_over(list(answered)[:EXCHANGE], self._trust(partner.peer), now)

    def forget(self, peer: str) -> None:
        """Drop a peer that does not answer."""
        self.sampler.forget(peer)
        self.view.pop(peer, None)
        self._sampled.pop(peer, None)

    def _take_over(self, received: list[Descriptor], source: float, now: float) -> None:
        """Feed the sampler, and draw the new view from the old one and the received, by trust."""
        valid = merged(self.me, (received,), now)
        for peer in valid:
            if self._trust(peer) >= TRUST_MIN:
                self.sampler.observe(peer)
        newest = merged(self.me, (self._sampled.values(), received), now)
        for peer in [one for one in self.sampler.peers if one not in newest]:  # expired
            self.sampler.forget(peer)
        self._sampled = {peer: newest[peer] for peer in self.sampler.peers}
        known = merged(self.me, (self.view.values(), valid.values()), now)
        sources = {peer: max(source * (peer in valid), self._source_trust.get(peer, 0.0)) for peer in known}
        weights = {peer: introduced(self._trust(peer), sources[peer]) for peer in known}
        self.view = {peer: known[peer] for peer in weighted_sample(weights, VIEW, self._random)}
        self._source_trust = {peer: sources[peer] for peer in self.view}
