"""zerochat's core for the benchmarks: the bytes of its messages, and its keys and envelopes alone.

The bytes are those of the real core's effects, for commands in a world without faults, and follow every change of the
product.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer4
from zerochat.didcomm.message import Message
from zerochat.evidence.messages import SIGNATURE_BYTES, data_header, parse_data, sign_data
from zerochat.group.effects import CommandDone, Dial, Effect, InvitationCreated, Publish, StoreEvent
from zerochat.group.engine import step
from zerochat.group.event_log.event import ADD
from zerochat.group.inputs import (
    AcceptInvitation,
    BatchEnded,
    Command,
    CommandInput,
    CreateGroup,
    CreateInvitation,
    Input,
    LeaveGroup,
    SendPost,
    StepContext,
)
from zerochat.group.key_modes import MODES
from zerochat.group.key_modes.sender_key import open_content, ratchet, seal_content
from zerochat.group.links.relationship import Relationship, pack, unpack
from zerochat.group.wire import frame
from zerochat.sim.world import Faults, Node, World

MULTI, SINGLE, SIGNED, HEALING = "pairwise-multi", "pairwise-single", "sender-key", "dcgka"
HUB = "n0"
GROUP = "bench"
JOIN_MS_MAX = 120_000
"""Virtual time."""


def has_keys(keys: str) -> bool:
    """Whether a group can be founded with these keys."""
    return keys in MODES


class Star(World):
    """A group whose members are connected with its founder alone. The founder's messages are the same as in a full
    mesh, which would take quadratic time to build."""

    def __init__(self, members: int, keys: str = MULTI) -> None:
        self.news: list[Effect] = []
        """The founder's messages at the last join."""
        self.members = 1
        self._hub: Node | None = None
        super().__init__(seed=1, members=members, faults=Faults(0, 0, 1), envelope="didcomm/v2")
        self._hub = self.nodes[HUB]
        self.run_command(HUB, CreateGroup(GROUP, HUB, "didcomm/v2", keys))

    def grow(self, members: int) -> None:
        """Have so many members in all."""
        for number in range(self.members, members):
            name = f"n{number}"
            answer = self.run_command(HUB, CreateInvitation(GROUP, 86_400, 1))
            assert isinstance(answer, CommandDone) and isinstance(answer.result, InvitationCreated), answer
            self.run_command(name, AcceptInvitation(answer.result.invitation, name))
            if not self.run(lambda wanted=number + 1: self._knows(wanted), JOIN_MS_MAX):  # type: ignore[misc]
                raise AssertionError(f"member {number} did not join")
            self.run(for_ms=50)
        self.members = members

    def state_bytes(self) -> int:
        """Bytes that the founder sent to the others at the last join."""
        return published(self.news)

    def leave_bytes(self) -> int:
        """Bytes that the founder would send to the others on leaving."""
        return published(self.would(LeaveGroup(GROUP)))

    def post_bytes(self, text: str) -> int:
        """Bytes of one message, for all its readers."""
        return published(self.would(SendPost(GROUP, text)))

    def would(self, command: Command) -> list[Effect]:
        """The founder's output for a command. The core is pure, so the state is unchanged."""
        moment = StepContext(self.now, self.rng.randbytes)
        agent, said = step(self.nodes[HUB].agent, CommandInput(0, command), moment)
        return [*said, *step(agent, BatchEnded(), moment)[1]]

    def _knows(self, wanted: int) -> bool:
        group = self.group(HUB)
        ready = sum(one.established and one.acknowledged for one in group.links.relationships.values())
        return len(group.view.members) == wanted and ready == wanted - 1

    # --- of the simulated machine room --------------------------------------------------------------------------------

    def process(self, name: str, stimulus: Input) -> None:
        self._said: list[Effect] = []
        super().process(name, stimulus)
        if any(isinstance(effect, StoreEvent) and effect.type == ADD and name == HUB for effect in self._said):
            self.news = self._said

    def _perform(self, node: Node, effect: Effect) -> None:
        self._said.append(effect)
        hub = self._hub
        if hub is not None and isinstance(effect, Dial) and node is not hub and effect.pair != hub.address:
            return
        super()._perform(node, effect)


def published(effects: list[Effect]) -> int:
    return sum(len(effect.envelope) for effect in effects if isinstance(effect, Publish))


# --- the lean form ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lean:
    """Sealing for all, opening for one: without journal, order or acknowledgements."""

    seal: Callable[[str], list[bytes]]
    """The envelopes of a text: one for each member, or one for all."""
    open: Callable[[int, bytes], object]


def lean_multi(members: int) -> Lean:
    """One envelope for each member."""
    packer, pairs = PACKERS["didcomm/v2"], relationships(members)

    def seal(text: str) -> list[bytes]:
        return [pack(mine, message(text), packer, os.urandom) for mine, _ in pairs]

    return Lean(seal, lambda member, envelope: unpack(pairs[member][1], envelope, packer))


def lean_single(members: int) -> Lean:
    """One frame, with a section for each member."""
    packer, pairs = PACKERS["didcomm/v2"], relationships(members)

    def seal(text: str) -> list[bytes]:
        moment = StepContext(int(time.time() * 1000), os.urandom)
        return [frame.seal_frame(packer.dump(message(text)), GROUP, HUB, [mine for mine, _ in pairs], moment)]

    def open_(member: int, sealed: bytes) -> object:
        plain, _ = frame.open_frame(sealed, GROUP, f"n{member + 1}", pairs[member][1])
        return packer.parse(plain)

    return Lean(seal, open_)


def lean_signed(members: int) -> Lean:
    """One signed message; `members` has no effect. It names a previous message that no recipient checks."""
    seed, alias, chain = os.urandom(32), os.urandom(16), os.urandom(32)
    head = os.urandom(64)

    def seal(text: str) -> list[bytes]:
        nonlocal head
        key, _ = ratchet(chain)
        begun = data_header(int(time.time() * 1000), ed25519_public(seed), alias)
        said = sign_data(seed, begun, seal_content(key, message(text).body, begun), head)
        head = said[-SIGNATURE_BYTES:]
        return [said]

    return Lean(seal, lambda member, sealed: open_content(ratchet(chain)[0], parse_data(sealed)))


def relationships(members: int) -> list[tuple[Relationship, Relationship]]:
    """The publisher's relationship with each member, and that member's with the publisher."""

    def relationship(member: str, mine: Any, theirs: Any) -> Relationship:
        return Relationship(member, mine, theirs.did, thid="", invited_by="", requester=True, acknowledged=True)

    pairs = []
    for number in range(1, members + 1):
        one, other = new_peer4(os.urandom, []), new_peer4(os.urandom, [])
        pairs.append((relationship(f"n{number}", one, other), relationship(HUB, other, one)))
    return pairs


def message(text: str) -> Message:
    """A text with the fields of any event: author, position, causes and times."""
    header = {
        "author": "a" * 56,
        "seq": 1000,
        "pre": "p" * 43,
        "deps": [],
        "conc": [],
        "lamport": 10**12,
        "time": 10**12,
    }
    body = {"record": {"v": 1, "group": "g" * 43, "type": "post", **header, "body": {"text": text}}}
    return Message("https://zerochat.org/group/1.0/event", "m" * 22, body)


def sample_text(size: int) -> str:
    """So many bytes of something like chat: words, in an order that no compression knows."""
    dice = random.Random(size)
    text, words = "", WORDS.split()
    while len(text) < size:
        text += dice.choice(words) + dice.choice((" ", " ", " ", " ", ", ", ". ", "? "))
    return text[:size]


WORDS = (
    "about after again all and are because been before boat both bread but bridge call can car climb coffee cold could"
    " day did dinner down early eight evening every far first five for friday from get good half have here hill home"
    " how idea in is it just know lake last late left like long look lunch make many map maybe meet more morning much"
    " need next night nine no north not now of off old on one or our out over path plan rain ready really right river"
    " road rope saturday see seven she should snow some soon south station sunday sure take tea ten tent that the them"
    " then there they think this three time to today together tomorrow too train tree trip two under until up us very"
    " wait walk want was water way we weather week well were west what when where which who why will wind with work yes"
)
