"""A model of the channels between members that never meet: losses of messages and of state, crossing and replayed
resets, and a thief with one member's state."""

import random
from collections import defaultdict
from itertools import permutations

from msgspec.structs import replace

from zerochat.crypto import two_party
from zerochat.crypto.encoding import INTEGER_MAX
from zerochat.crypto.primitives import x25519_public
from zerochat.crypto.two_party import Channel
from zerochat.errors import RemoteError
from zerochat.group.key_agreement.channel_reset import (
    ChannelReset,
    after_opening,
    confirm,
    go_beyond,
    held_for,
    is_beyond,
    is_to_contact,
    offer,
    parse_reset,
    pending_reset,
    receive_reset,
    reset,
    taken,
    with_channels,
)
from zerochat.group.key_agreement.state import Keys

CONTEXT = b"model "
NOW = 1_800_000_000_000
CONTENT = b"%s to %s, %d"


class Side:
    """One member: its keys, and what it remembers of each other member."""

    def __init__(self, name, draw):
        self.name, self.contact = name, draw(32)
        self.keys = Keys("model", name)
        self.numbers = defaultdict(int)
        """By author: the number of the last message that was opened or given up."""


class ChannelModel:
    """A random history of messages, each with a number that its author counts."""

    def __init__(self, seed, members=3, offers=True):
        self.random, self.now, self.offers = random.Random(seed), NOW, offers
        self.sides = {f"m{at}": Side(f"m{at}", self.random.randbytes) for at in range(members)}
        self.contacts = {name: x25519_public(side.contact) for name, side in self.sides.items()}
        self.pairs = list(permutations(self.sides, 2))
        self.on_way = {pair: [] for pair in self.pairs}
        """Numbered messages from the first to the second, oldest first."""
        self.resets = {pair: [] for pair in self.pairs}
        """Every reset that there was: each may come again."""
        self.sent = {pair: [] for pair in self.pairs}
        self.opened = {pair: set() for pair in self.pairs}
        self.broken = self.replays = self.losses = 0

    def context(self, author, recipient):
        return CONTEXT + f"{author} {recipient}".encode()

    def send(self, author, recipient):
        side = self.sides[author]
        side.keys = with_channels(side.keys, {recipient: self.contacts[recipient]})
        number = side.keys.number + 1
        channel, message = two_party.send(
            side.keys.channels[recipient],
            self.context(author, recipient),
            CONTENT % (author.encode(), recipient.encode(), number),
            self.random.randbytes,
        )
        channels = {**side.keys.channels, recipient: channel}
        side.keys = replace(side.keys, number=number, channels=channels)
        self.sent[author, recipient].append((number, message))
        self.on_way[author, recipient].append((number, message))

    def deliver(self, author, recipient):
        """The oldest message comes. Returns whether it opens."""
        number, message = self.on_way[author, recipient].pop(0)
        side = self.sides[recipient]
        if number <= side.numbers[author]:
            return False
        side.numbers[author] = number
        channel, context = side.keys.channels.get(author, Channel()), self.context(author, recipient)
        try:
            opened = two_party.receive(channel, context, message, held_for(side.keys, author, side.contact))
        except RemoteError:
            self.broken += 1
            self.reset(recipient, author, number)
            return False
        assert opened.plain == CONTENT % (author.encode(), recipient.encode(), number)
        self.opened[author, recipient].add(number)
        side.keys = after_opening(side.keys, author, number, message, opened.channel)
        if self.offers and is_to_contact(message, side.contact):
            self.offer(recipient, author)
        return True

    def offer(self, author, recipient):
        side = self.sides[author]
        self.now += 1
        side.keys, made = offer(side.keys, recipient, self.now, self.random.randbytes)
        self.keep(author, recipient, made)

    def reset(self, author, recipient, number=INTEGER_MAX):
        side = self.sides[author]
        self.now += 1
        side.keys, made = reset(side.keys, recipient, self.now, self.random.randbytes, number)
        if made is not None:
            self.keep(author, recipient, made)

    def keep(self, author, recipient, reset):
        if reset.wire not in self.resets[author, recipient]:
            self.resets[author, recipient].append(reset.wire)

    def bring_reset(self, author, recipient, wire):
        """A reset comes, perhaps again. Its recipient confirms the last one that it has."""
        side, other = self.sides[recipient], self.sides[author]
        reset = parse_reset(wire)
        assert isinstance(reset, ChannelReset)
        after = receive_reset(side.keys, author, reset)
        if after is None:
            self.replays += 1
        else:
            side.keys = after
            if reset.lost:
                self.on_way[recipient, author].clear()
                self.offer(recipient, author)
        counter, number = taken(side.keys, author)
        if is_beyond(other.keys, recipient, counter):
            other.keys = go_beyond(other.keys, recipient, counter)
            self.reset(author, recipient)
        else:
            other.keys = confirm(other.keys, recipient, counter, number)

    def lose_state(self, name):
        """A member begins anew, and says so to each other one."""
        side = self.sides[name]
        side.keys = Keys("model", name, number=side.keys.number)
        self.losses += 1
        for recipient in self.sides.keys() - {name}:
            self.reset(name, recipient)

    def act(self):
        author, recipient = pair = self.random.choice(self.pairs)
        roll = self.random.random()
        if roll < 0.35:
            self.send(author, recipient)
        elif roll < 0.65 and self.on_way[pair]:
            self.deliver(author, recipient)
        elif roll < 0.70 and self.on_way[pair]:
            self.on_way[pair].pop(self.random.randrange(len(self.on_way[pair])))
        elif roll < 0.93 and self.resets[pair]:
            self.bring_reset(author, recipient, self.random.choice(self.resets[pair]))
        elif roll < 0.96:
            self.lose_state(author)
        elif roll < 0.98:
            self.offer(author, recipient)

    def settle(self, rounds=4):
        """Resets are sent again until they are confirmed, and everything arrives."""
        for _ in range(rounds):
            for author, recipient in self.pairs:
                if (reset := pending_reset(self.sides[author].keys, recipient)) is not None:
                    self.bring_reset(author, recipient, reset.wire)
            for author, recipient in self.pairs:
                self.send(author, recipient)
                while self.on_way[author, recipient]:
                    self.deliver(author, recipient)

    def readable(self, stolen, contact, author, recipient):
        """The messages from the first to the second that a thief with the second one's keys opens."""
        keys, found = stolen, set()
        for number, message in self.sent[author, recipient]:
            channel, context = keys.channels.get(author, Channel()), self.context(author, recipient)
            try:
                opened = two_party.receive(channel, context, message, held_for(keys, author, contact))
            except RemoteError:
                continue
            found.add(number)
            keys = after_opening(keys, author, number, message, opened.channel)
        return found
