"""A malicious member that sends arbitrary messages to a real agent over real sockets.

The rogue's keys are those of a real member whose agent sleeps, so everything up to the last message can be genuine. The
attacked agent is observed: the outcome of each envelope is known.
"""

import contextlib
import os
import time

import zmq

from tests.support.agents import Person, until
from tests.support.sockets import Stranger
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.crypto.content_encryption import xc20p_seal
from zerochat.crypto.primitives import sha256
from zerochat.didcomm import PACKERS
from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import Measure
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import Received
from zerochat.group.links.relationship import pack
from zerochat.group.membership import heads_of
from zerochat.group.state import Chain
from zerochat.group.wire import frame
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS, SYNC
from zerochat.group.wire.padding import padded_size
from zerochat.group.wire.pair_keys import key_to

ROGUE_KEYS = "pairwise-multi"
"""The keys of its groups: its messages are envelopes that its relationships make, without signatures and ratchets."""
UNHEARD_S = 0.5
"""How long something that must not happen is waited for."""


class Watched(Person):
    """A person whose agent keeps what it has heard, and with what effects."""

    def __init__(self, folder, name, config=""):
        super().__init__(folder, name)
        self.home = str(folder / name)
        self.steps = []
        if config:
            self.places.config.parent.mkdir(parents=True, exist_ok=True)
            self.places.config.write_text(config)

    def wake(self):
        super().wake()
        thread, step = self.thread, self.thread.loop._step

        def watched(stimulus):
            effects = step(stimulus)
            self.steps.append((stimulus, effects))
            return effects

        thread.loop._step = watched  # type: ignore[method-assign]
        return self

    @property
    def group(self):
        """The group that it was in first, as its core has it."""
        return next(iter(self.thread.loop.agent.groups.values()))

    @property
    def transport(self):
        return self.thread.loop.transport

    def effects_of(self, envelope):
        """What came of an envelope, once it has been heard."""

        def find():
            return [effects for stimulus, effects in list(self.steps) if getattr(stimulus, "envelope", b"") == envelope]

        return until(find, f"that {self.name} hears something")[-1]

    def verdict(self, envelope) -> str:
        """Why an envelope was refused, or nothing if it was not."""
        effects = self.effects_of(envelope)
        return effects[0].detail if len(effects) == 1 and isinstance(effects[0], Measure) else ""

    def heard_over(self, link):
        steps = list(self.steps)
        return [stimulus for stimulus, _ in steps if isinstance(stimulus, Received) and stimulus.link == link]

    def is_well(self):
        """Whether its core has met no fault of its own, and everybody is served."""
        assert self.thread.is_alive() and self.client.list_groups() and self.thread.failure is None
        assert "internal error" not in self.places.log.read_text(), self.places.log.read_text()[-4000:]
        return True


class Rogue:
    """The keys of a member who sleeps, turned against one of the others."""

    def __init__(self, member: Person, victim: Watched, make):
        """`make`: the factory of `wires.strangers`."""
        self.victim, self.make = victim, make
        self.group = next(iter(member.thread.loop.agent.groups.values()))
        self.me, self.seed = self.group.me, self.group.seed
        self.relationship = self.group.links.relationships[victim.group.me]
        self.packer = PACKERS[self.group.profile.envelope]
        chain = self.group.log.chains.get(self.me, Chain())
        self.seq, self.tip = chain.seq, chain.head_id
        self.dealer = self.socket(zmq.DEALER)

    def socket(self, kind) -> Stranger:
        """A connection to the victim under the member's own CURVE key."""
        secret = self.group.own_place.secret
        stranger: Stranger = self.make(
            kind,
            {
                zmq.CURVE_PUBLICKEY: public_key(secret),
                zmq.CURVE_SECRETKEY: secret,
                zmq.CURVE_SERVERKEY: self.victim.transport.server_key,
            },
        )
        subscribes = kind in (zmq.SUB, zmq.XSUB)
        endpoint = self.victim.thread.loop.queue if subscribes else self.victim.thread.loop.pair
        stranger.socket.connect(f"tcp://127.0.0.1:{endpoint.port}")
        return stranger

    def send(self, envelope: bytes) -> str:
        """Send bytes over the link; what the victim said to them."""
        self.dealer.socket.send(envelope)
        return self.victim.verdict(envelope)

    def packed(self, kind, body, **changes) -> bytes:
        """An authentic envelope."""
        message = Message(type=kind, id=new_id(os.urandom), body=body)
        return pack(changes.get("relationship", self.relationship), message, self.packer, os.urandom)

    def say(self, kind, body, **changes) -> str:
        return self.send(self.packed(kind, body, **changes))

    def say_event(self, event: Event) -> str:
        return self.say(EVENTS, self.events([event]))

    def events(self, events) -> dict[str, object]:
        """The body that says these."""
        view = self.victim.group.view.checksum
        return {"group": self.group.id, "runs": write_runs(events), "view": view, "have": []}

    def event(self, kind=POST, body=None, **changes) -> Event:
        """The next event of the member's chain, or something like it."""
        group = self.victim.group
        now = int(time.time() * 1000)
        fields = {
            "group": group.id,
            "type": kind,
            "author": self.me,
            "seq": self.seq + 1,
            "pre": self.tip,
            "deps": heads_of(group.control) if kind != POST else (),
            "conc": (),
            "lamport": max(now, group.log.lamport + 1),
            "time": now,
            "body": {"text": "hm"} if body is None else body,
        }
        event = Event(**{**fields, **changes})
        return event if kind == POST else event.signed(self.seed)

    def post(self, text: str) -> str:
        """Post as an honest member does."""
        event = self.event(body={"text": text})
        verdict = self.say_event(event)
        self.seq, self.tip = event.seq, event.id
        return verdict

    def sync(self, **changes) -> str:
        """Say where the member stands, as honest ones do."""
        return self.send(self.sync_envelope(**changes))

    def sync_envelope(self, **changes) -> bytes:
        reach = {"pair": "", "queue": "", "at": int(time.time() * 1000)}
        body = {
            "group": self.group.id,
            "view": self.victim.group.view.checksum,
            "have": [],
            "start_seq": 0,
            "acked": 0,
            "heads": [],
            "reach": reach,
        }
        return self.packed(SYNC, {**body, **changes})

    def frame(self, content: bytes, *, key: bytes = b"", section: bytes = b"") -> bytes:
        """A frame for the victim alone with any content, and perhaps with a body key or a section of our choice."""
        padded = len(content).to_bytes(4) + content
        padded = padded.ljust(padded_size(len(padded)), b"\0")
        nonce, key = os.urandom(24), key or os.urandom(32)
        head = frame.VERSION + nonce + b"\1"
        body = b"".join(xc20p_seal(key, nonce, padded, head))
        lock = key_to(frame.PURPOSE, self.group.id, self.me, self.relationship)
        section = section or b"".join(xc20p_seal(lock, nonce, key, head + sha256(body)))
        return head + section + body


def texts(person, group="friends"):
    return [
        event.body["text"] for event in person.client.get_history(group, limit=500).events if event.type == "message"
    ]


def at_rest(*persons):
    for person in persons:
        with contextlib.suppress(Exception):
            person.sleep()
