"""The hostile party: genuine keys of a member, and knowledge of what the machine has of it."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from fuzzing.work.machine import Machine
from fuzzing.work.scene import Scene
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import Identity
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.packer import Packer
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import Received, StepContext
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.membership import heads_of
from zerochat.group.state import Agent, Group
from zerochat.group.wire.envelope import pack_first
from zerochat.group.wire.event_runs import write_runs

PACKER: Packer = PACKERS["didcomm/v2"]


class Speaker:
    """What the rogue knows and remembers. It sees the state of the machine, as its answers tell it."""

    def __init__(self, scene: Scene, machine: Machine, dice: Random) -> None:
        self.scene, self.machine, self.agent = scene, machine, scene.rogue
        self.dice, self.random = dice, dice.randbytes
        self.sybils: list[tuple[bytes, str]] = []
        """Members that the rogue has added, with their seeds."""
        self.kept: dict[str, Any] = {}
        """What a kind of message remembers."""
        self._ends: dict[tuple[str, str], tuple[int, str]] = {}
        self._lamport = 0

    @property
    def now(self) -> int:
        return self.machine.now

    def ours(self, where: str = "plain") -> Group:
        """The group as the machine has it."""
        return self.machine.agent.groups[self.scene.groups[where]]

    def mine(self, where: str = "plain") -> Group:
        """The group as the rogue has it."""
        return self.agent.groups[self.scene.groups[where]]

    @property
    def victim(self) -> Agent:
        return self.machine.agent

    # --- messages -----------------------------------------------------------------------------------------------

    def say(self, kind: str, body: Mapping[str, Any], where: str = "plain", **headers: Any) -> Received:
        """A message over the link of the rogue."""
        mine = self.mine(where)
        return self.raw(self.packed(mine.links.relationships[self.ours(where).me], kind, body, **headers), where)

    def packed(self, relationship: Relationship, kind: str, body: Mapping[str, Any], **headers: Any) -> bytes:
        message = Message(type=kind, id=new_id(self.random), body=dict(body), **headers)
        return pack(relationship, message, PACKER, self.random)

    def first(self, mine: Identity, public_did: str, message: Message) -> bytes:
        """The envelope of a message from a new DID to a public one."""
        return pack_first(mine, public_did, message, PACKER, StepContext(self.now, self.random))

    def raw(self, envelope: bytes, where: str = "plain") -> Received:
        """Any bytes over the link of the rogue."""
        return Received(self.ours(where).links.peers[self.mine(where).me].link, envelope)

    def events(self, events: Sequence[Event], where: str = "plain", **more: Any) -> dict[str, Any]:
        """A body with these events of the rogue."""
        ours = self.ours(where)
        return {"view": ours.view.checksum, "have": [], "runs": write_runs(events, self.mine(where).me), **more}

    # --- events -------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Continue each chain where the machine has its end."""
        self._ends.clear()

    def event(
        self,
        kind: str = POST,
        body: Mapping[str, Any] | None = None,
        where: str = "plain",
        ahead: int = 0,
        by: tuple[bytes, str] | None = None,
        **fields: Any,
    ) -> Event:
        """The next event of the rogue, or of a member `by` that it has added; one `ahead` leaves a gap."""
        group = self.ours(where)
        seed, author = by or (self.mine(where).seed, self.mine(where).me)
        chain = group.chain(author)
        seq, tip = self._ends.get((where, author), (chain.seq, chain.head_id))
        self._lamport = max(self.now, group.log.lamport, self._lamport) + 1
        values = {
            "group": group.id,
            "type": kind,
            "author": author,
            "seq": seq + 1 + ahead,
            "pre": "p" * 43 if ahead else tip,
            "deps": (),
            "conc": (),
            "lamport": self._lamport,
            "time": self.now,
            "body": {"text": "hm"} if body is None else body,
        }
        event = Event(**{**values, **fields})
        if event.is_control:
            event = event.signed(seed)
        if not ahead:
            self._ends[where, author] = event.seq, event.id
        return event

    def heads(self, where: str = "plain") -> tuple[str, ...]:
        """The heads of the membership events that the machine has."""
        return heads_of(self.ours(where).control)

    def new_member(self) -> tuple[bytes, str]:
        seed = self.random(32)
        return seed, did_key(ed25519_public(seed))
