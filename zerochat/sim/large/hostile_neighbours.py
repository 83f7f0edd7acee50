"""Hostile neighbours on the ring: they drop, delay, reorder, repeat and forge the messages to forward.

The core of such a node is real, and so are its keys; its envelopes are replaced. It cannot sign for another member. Its
reports of its events are true, so its neighbours ask it for missing ones; one that drops answers none of them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final, NamedTuple

from zerochat.crypto.encoding import b64url, b64url_bytes, did_key_bytes
from zerochat.didcomm.message import Message, new_id, parse
from zerochat.group.effects import Effect, SendEnvelope
from zerochat.group.inputs import HistoryRead, Input, Received
from zerochat.group.key_modes import forwarded
from zerochat.group.key_modes.dcgka import HEADER_BYTES
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.links.neighbours import links_of
from zerochat.group.links.relationship import pack
from zerochat.group.state import Agent, Group
from zerochat.group.wire.messages import KEY_EVENTS, ROUTED
from zerochat.sim.annotation_checks import check_annotations
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.large.large_world import LargeWorld
from zerochat.sim.node import Node, Violation, check_logs
from zerochat.sim.world import SIMULATED_PACKERS, Faults, World

DELAY_MS: Final = (5_000, 60_000)
WINDOW_MS: Final = 10_000
"""Envelopes of this time go out in reverse order."""
REPEATED: Final = 8
"""Copies of each envelope, and one more after `REPLAY_MS`."""
REPLAY_MS: Final = 60_000
FORGERIES: Final = 5
"""Forgeries in place of one message."""


class Credit(NamedTuple):
    """What a member might still cause at a time (UTC ms; 0: everything). Rate limits themselves all compare equal."""

    envelopes: int
    bytes: int
    work: int
    at: int


class Sent(NamedTuple):
    """What goes out in place of a message."""

    effect: SendEnvelope
    after_ms: int = 0


class HostileNeighbour:
    """One hostile node. `attack`: one of `ATTACKS`."""

    def __init__(self, world: "HostileWorld", name: str, attack: str) -> None:
        self.world, self.name, self.attack, self.rng = world, name, attack, world.rng

    @property
    def group(self) -> Group:
        return self.world.group(self.name)

    def ignores(self, input_: Input) -> bool:
        """Whether the core of this node never learns of this."""
        return self.attack == "drop" and isinstance(input_, HistoryRead)

    def replaced(self, effect: SendEnvelope) -> list[Sent]:
        """What goes out in place of this."""
        is_carried = is_forwarded(effect.envelope) or _message_of(effect.envelope) is not None
        if not is_carried or (is_forwarded(effect.envelope) and self._is_ours(effect.envelope)):
            return [Sent(effect)]
        self.world.tried[self.attack] += 1
        return ATTACKS[self.attack](self, effect)

    def _is_ours(self, envelope: bytes) -> bool:
        return forwarded.parse(envelope).author == self.group.me

    def forged(self, effect: SendEnvelope, forge: "Callable[[HostileNeighbour, bytes], bytes]") -> list[Sent]:
        """Forgeries in place of a message that its author has signed, and of those items in a bundle."""
        if is_forwarded(effect.envelope):
            envelopes = [forge(self, effect.envelope) for _ in range(FORGERIES)]
        else:
            envelopes = [self._with_forged_items(effect)]
        return [Sent(SendEnvelope(effect.link, one)) for one in envelopes]

    def _with_forged_items(self, effect: SendEnvelope) -> bytes:
        """A message with key events or routed items, in one of which a bit has been flipped."""
        message = _message_of(effect.envelope)
        assert message is not None
        field = "items" if message.type == ROUTED else "events"
        items = list(message.body[field])
        place = self.rng.randrange(len(items))
        text = items[place] if message.type == ROUTED else items[place][0]
        changed = b64url(self.flipped(b64url_bytes(text)))
        items[place] = changed if message.type == ROUTED else [changed, ""]
        body = {**message.body, field: items}
        links = self.group.links
        relationship = links.relationships[links.index.by_link[effect.link]]
        packer = SIMULATED_PACKERS[self.group.profile.envelope]
        forged = Message(type=message.type, id=new_id(self.rng.randbytes), body=body)
        return pack(relationship, forged, packer, self.rng.randbytes)

    def flipped(self, data: bytes, after: int = 0) -> bytes:
        """These bytes with one bit flipped, not one of the first so many bytes."""
        changed = bytearray(data)
        changed[self.rng.randrange(after, len(changed))] ^= 1 << self.rng.randrange(8)
        return bytes(changed)

    def other_author(self, envelope: bytes) -> bytes:
        """The public key of an honest member that has not made this message."""
        author = forwarded.parse(envelope).author
        hostile = {self.world.group(name).me for name in self.world.hostile}
        return did_key_bytes(self.rng.choice(sorted({*self.group.others} - hostile - {author})))


def _message_of(envelope: bytes) -> Message | None:
    """The message in an envelope for one member, if it has key events or routed items of others."""
    if is_forwarded(envelope) or envelope.count(b"\n") < 3:
        return None
    plain = envelope.split(b"\n", 3)[3]
    if KEY_EVENTS.encode() not in plain and ROUTED.encode() not in plain:
        return None
    message = parse(plain)
    return message if message.type in (KEY_EVENTS, ROUTED) else None


# --- attacks ----------------------------------------------------------------------------------------------------------


def _drop(one: HostileNeighbour, effect: SendEnvelope) -> list[Sent]:
    return []


def _delay(one: HostileNeighbour, effect: SendEnvelope) -> list[Sent]:
    return [Sent(effect, one.rng.randint(*DELAY_MS))]


def _reorder(one: HostileNeighbour, effect: SendEnvelope) -> list[Sent]:
    return [Sent(effect, 2 * (WINDOW_MS - one.world.now % WINDOW_MS))]


def _duplicate(one: HostileNeighbour, effect: SendEnvelope) -> list[Sent]:
    return [*[Sent(effect)] * REPEATED, Sent(effect, REPLAY_MS)]


def _alter(one: HostileNeighbour, effect: SendEnvelope) -> list[Sent]:
    return one.forged(effect, lambda one, envelope: one.world.junk(one.flipped(envelope, after=1)))


def _claim(one: HostileNeighbour, effect: SendEnvelope) -> list[Sent]:
    def claimed(one: HostileNeighbour, envelope: bytes) -> bytes:
        return one.world.junk(envelope[:1] + one.other_author(envelope) + envelope[33:])

    return one.forged(effect, claimed)


def _invent(one: HostileNeighbour, effect: SendEnvelope) -> list[Sent]:
    """Content that the claimed author never wrote, under a signature of ours."""

    def invented(one: HostileNeighbour, envelope: bytes) -> bytes:
        this = forwarded.parse(envelope)
        sealed = this.sealed[: HEADER_BYTES - 4] + one.rng.randbytes(len(this.sealed) - HEADER_BYTES + 4)
        signed = forwarded.sign(one.group.seed, one.group.me, one.group.id, this.end + one.rng.randrange(9), sealed)
        return one.world.junk(signed[:1] + did_key_bytes(this.author) + signed[33:])

    return one.forged(effect, invented)


def _adopt(one: HostileNeighbour, effect: SendEnvelope) -> list[Sent]:
    """The content of another author as ours: then we are the author, and pay."""

    def adopted(one: HostileNeighbour, envelope: bytes) -> bytes:
        this, group = forwarded.parse(envelope), one.group
        return one.world.junk(forwarded.sign(group.seed, group.me, group.id, this.end + 1, this.sealed), carried=True)

    return one.forged(effect, adopted)


ATTACKS: Final[dict[str, Callable[[HostileNeighbour, SendEnvelope], list[Sent]]]] = {
    "drop": _drop,
    "delay": _delay,
    "reorder": _reorder,
    "duplicate": _duplicate,
    "alter": _alter,
    "claim": _claim,
    "invent": _invent,
    "adopt": _adopt,
}
FORGING: Final = frozenset(("alter", "claim", "invent", "adopt"))


# --- the world --------------------------------------------------------------------------------------------------------


class HostileWorld(LargeWorld):
    """Nodes of one large group, of which some are hostile from some moment on."""

    hostile: dict[str, HostileNeighbour]
    tried: Counter[str]
    """By attack: the messages that it has replaced."""
    charged: Counter[str]
    """By attack: the envelopes that an honest member has charged to the attacker."""
    _junk: dict[bytes, bool]
    """Forgeries, and whether honest members carry them on."""

    @classmethod
    def fork(cls, begun: World, seed: int, faults: Faults) -> "HostileWorld":
        world = super().fork(begun, seed, faults)
        assert isinstance(world, HostileWorld)
        world.envelope = TransparentPacker.name  # the attackers read the envelopes that they replace
        world.hostile, world._junk = {}, {}
        world.tried, world.charged = Counter[str](), Counter[str]()
        return world

    @property
    def honest(self) -> Collection[str]:
        return [name for name in self.nodes if name not in self.hostile]

    def junk(self, envelope: bytes, *, carried: bool = False) -> bytes:
        """Note a forgery. `carried`: its author is the attacker, so honest members pass it on."""
        self._junk[envelope] = carried
        return envelope

    # --- steps ------------------------------------------------------------------------------------------------------

    def process(self, name: str, input_: Input) -> None:
        one = self.hostile.get(name)
        if one is not None and one.ignores(input_):
            return
        before = self.nodes[name].agent
        super().process(name, input_)
        if one is None and isinstance(input_, Received) and not self.machines[name].off:
            self._check_charges(name, before, input_)

    def _perform(self, node: Node, effect: Effect) -> None:
        one = self.hostile.get(node.name)
        if one is None or not isinstance(effect, SendEnvelope):
            super()._perform(node, effect)
            return
        send = super()._perform
        for sent in one.replaced(effect):
            if sent.after_ms:
                self.after(sent.after_ms, partial(send, node, sent.effect))
            else:
                send(node, sent.effect)

    # --- who pays ---------------------------------------------------------------------------------------------------

    def _check_charges(self, name: str, before: Agent, received: Received) -> None:
        """Raise Violation if an honest member pays for a forgery, or the neighbour that brings it does not."""
        for group in before.groups.values():
            bearer = group.links.index.by_link.get(received.link)
            after = self.nodes[name].agent.groups.get(group.id)
            if bearer is None or after is None or not {bearer} <= group.links.peers.keys() & after.links.peers.keys():
                continue
            past, present = _limits(group), _limits(after)
            attacker = self.hostile.get(self._sender(received))
            if attacker is not None and past[bearer] != present[bearer]:
                self._count_charge(attacker, received.envelope)
            if attacker is None and _is_exhausted(present[bearer]):
                raise Violation(f"seed {self.seed}: {name} throttles {self._sender(received)}, which is honest")
            if received.envelope in self._junk:
                self._check_payers(name, bearer, received, past, present)

    def _count_charge(self, attacker: HostileNeighbour, envelope: bytes) -> None:
        if envelope in self._junk or attacker.attack not in FORGING:
            self.charged[attacker.attack] += 1

    def _check_payers(
        self, name: str, bearer: str, received: Received, past: dict[str, Credit], present: dict[str, Credit]
    ) -> None:
        bad = {self.group(hostile).me for hostile in self.hostile}
        payers = {did for did in past.keys() & present.keys() if past[did] != present[did]}
        allowed = bad | {bearer} if self._junk[received.envelope] else bad
        if wronged := payers - allowed:
            raise Violation(f"seed {self.seed}: {name} charges {len(wronged)} honest members for a forgery")
        if not self._junk[received.envelope] and bearer not in payers and not _is_exhausted(past[bearer]):
            raise Violation(f"seed {self.seed}: {name} charges no member for a forgery")

    # --- invariants -------------------------------------------------------------------------------------------------

    def missing_of_honest(self) -> Iterator[str]:
        """What honest members lack of each other."""
        active = {name: group for name, group in self.active_groups().items() if name not in self.hostile}
        yield from self.missing_in(active)

    def check_honest(self) -> None:
        """Raise Violation unless the honest members have each other's posts once and in one order, are linked to their
        honest neighbours, and suspect none of each other."""
        for lack in (*self.missing_of_honest(), *self._separated()):
            raise Violation(f"seed {self.seed}: {lack}")
        nodes = [self.nodes[name] for name in self.honest]
        check_logs(self.seed, nodes, self.authored, insiders=True)
        check_annotations(self.seed, nodes)
        for name in self.honest:
            self.check_node(name)

    def _separated(self) -> Iterator[str]:
        active = {name: group for name, group in self.active_groups().items() if name not in self.hostile}
        owner = {group.me: name for name, group in active.items()}
        for name, group in active.items():
            if owner.keys() & group.trust.quarantine:
                yield f"{name} has honest members in quarantine"
            ends = set(self.nodes[name].connected.values())
            for did in links_of(group, group.me).all:
                if did not in owner:
                    continue
                relationship = group.links.relationships.get(did)
                if owner[did] not in ends or relationship is None or not relationship.established:
                    yield f"{name} is cut off from its neighbour {owner[did]}"
            for did, limit in _limits(group).items():
                if did in owner and _is_exhausted(limit):
                    yield f"{name} throttles {owner[did]}, which is honest"


def _limits(group: Group) -> dict[str, Credit]:
    """The balance of each member that has an account."""
    limits = {did: one.rate_limit for did, one in group.links.accounts.items()}
    limits |= {did: one.rate_limit for did, one in group.links.peers.items()}
    return {did: Credit(one.envelopes, one.bytes, one.work, one.at) for did, one in limits.items()}


def _is_exhausted(credit: Credit) -> bool:
    return credit.at > 0 and min(credit.envelopes, credit.bytes, credit.work) <= 0
