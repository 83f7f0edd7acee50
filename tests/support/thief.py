"""A thief with a copy of a profile, who tries to open recorded envelopes with everything that is in it.

It knows the protocol, and has all keys of the copy: those of the core's state, and those that the journal keeps apart.
It derives from them what can be derived, and uses what it finds in the envelopes that it opens: until nothing new
opens. The content that is stored in the copy does not count, since it is no secret of an envelope.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import permutations
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from tests.support.dcgka_thief import StolenKeys, byte_keys, ids
from zerochat.crypto import hpke
from zerochat.crypto.compression import decompress
from zerochat.crypto.content_encryption import xc20p_open
from zerochat.crypto.encoding import b64url_bytes, compact_json, strict_json
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.primitives import sha256, x25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import Identity, resolve, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import envelope_kind
from zerochat.errors import RemoteError
from zerochat.evidence.messages import parse_data
from zerochat.group.effects import StoreEvent
from zerochat.group.engine import step
from zerochat.group.inputs import Input, Received, StepContext, TimerFired
from zerochat.group.key_modes.dcgka import is_sealed
from zerochat.group.key_modes.sender_key import is_signed, open_content, ratchet
from zerochat.group.links import content_keys
from zerochat.group.links.relationship import Relationship, own_keys
from zerochat.group.state import Agent
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.wire import frame as frames
from zerochat.group.wire import pair_keys
from zerochat.group.wire.messages import CONTENT, KEY_EVENTS, SEALED, SIGNED
from zerochat.group.wire.padding import decode_payload
from zerochat.sim import SIMULATED_PACKERS

KEY_BYTES = 32
CHAIN_STEPS = 200
"""How far the thief follows each chain."""


class Thief:
    """A copy of a profile, and what it opens."""

    def __init__(self, agent: Agent, journal: Iterable[bytes] = ()) -> None:
        """`journal`: keys that the journal keeps apart from the state."""
        self.agent = agent
        self.keys: set[bytes] = set()
        self.identities: dict[str, Identity] = {}
        self.relationships: set[tuple[str, str, Relationship]] = set()
        """With the group and our key in it."""
        self.documents: dict[str, str] = {}
        """Long forms of DIDs by their short forms."""
        self._harvest(agent)
        self.keys |= {key for key in journal if len(key) == KEY_BYTES}
        self.agreements = [StolenKeys(group) for group in agent.groups.values() if group.mode.heals]
        for group in agent.groups.values():
            offers = (offer.relationship for offers in group.links.offers.values() for offer in offers)
            for one in (*group.links.relationships.values(), *offers):
                self.relationships.add((group.id, group.me, one))

    def take(self, value: Any) -> None:
        """Use the keys in an older version of a part of the state."""
        self._harvest(value)
        for one in self.agreements:
            one.secrets |= set(byte_keys(value))
            one.ids |= set(ids(value))

    def _harvest(self, value: Any) -> None:
        """Take what may be a key, and every identity, from a value of the state or of a message."""
        match value:
            case bytes() if len(value) == KEY_BYTES:
                self.keys.add(value)
            case str() if value.startswith("did:peer:4"):
                with suppress(RemoteError):
                    if (short := short_form(value)) != value:
                        self.documents[short] = value
            case str() if len(value) == 43:
                with suppress(RemoteError):
                    self.keys.add(b64url_bytes(value))
            case dict():
                for key, each in value.items():
                    self._harvest(key)
                    self._harvest(each)
            case list() | tuple() | set() | frozenset():
                for each in value:
                    self._harvest(each)
            case Struct():
                if isinstance(value, Identity):
                    self.identities[value.did] = value
                for each in fields(type(value)):
                    self._harvest(getattr(value, each.name))

    def follow(self, inputs: Iterable[Received], now: int) -> list[str]:
        """Go on as the victim would, without sending anything: the texts of the events that the copy delivers."""
        agent, found = self.agent, list[str]()
        kinds = TimerKind.KEY_ERASURE, TimerKind.KEY_EVENTS
        timers: list[Input] = [TimerFired(f"{kind} {name}") for kind in kinds for name in agent.groups]
        for each in [*inputs, *timers]:
            agent, effects = step(agent, each, StepContext(now, os.urandom), SIMULATED_PACKERS)
            found += [one.record.decode() for one in effects if isinstance(one, StoreEvent)]
        return found

    # --- opening ----------------------------------------------------------------------------------------------------

    def open_all(self, envelopes: Iterable[bytes]) -> list[str]:
        """The contents of all envelopes that open, as text, whatever they contain."""
        left, found = list(dict.fromkeys(envelopes)), list[str]()
        while True:
            before = self._known()
            closed, opened = list[bytes](), list[str]()
            message_keys = self._message_keys()
            self._openers = [one.opener() for one in self.agreements]
            for one in left:
                texts = [*self._open(one, message_keys)]
                opened += texts
                if not texts:
                    closed.append(one)
            found, left = found + opened, closed
            if before == self._known():
                return found

    def _known(self) -> tuple[int, ...]:
        return len(self.keys), len(self.documents), *(len(one.events) for one in self.agreements)

    def _message_keys(self) -> set[bytes]:
        """All keys, and those of the chains that begin with them."""
        found = set(self.keys)
        for chain in self.keys:
            for _ in range(CHAIN_STEPS):
                key, chain = ratchet(chain)
                found.add(key)
        return found

    def _open(self, envelope: bytes, message_keys: set[bytes]) -> Iterator[str]:
        if is_signed(envelope):
            yield from self._open_signed(envelope, message_keys)
        elif is_sealed(envelope):
            yield from self._open_sealed(envelope)
        elif frames.is_frame(envelope):
            for plain in self._open_frame(envelope):
                form = "didcomm/v1" if b'"@type"' in plain else "didcomm/v2"
                yield from self._contents(PACKERS[form].parse(plain), message_keys)
        else:
            with suppress(RemoteError):
                yield from self._contents(self._unpack(envelope), message_keys)

    def _open_signed(self, envelope: bytes, message_keys: set[bytes]) -> Iterator[str]:
        message = parse_data(envelope)
        for key in message_keys:
            with suppress(RemoteError):
                yield self._text(open_content(key, message))
                return

    def _open_sealed(self, envelope: bytes) -> Iterator[str]:
        """A message under the author's key ratchet."""
        for opener in self._openers:
            with suppress(LookupError):
                yield self._text(opener(envelope))

    def _open_frame(self, frame: bytes) -> Iterator[bytes]:
        """The content of a frame to the victim or from it: both know the key of a section."""
        start = frames._HEADER + frame[frames._HEADER - 1] * frames.SECTION_BYTES
        head, body = frame[: frames._HEADER], frame[start:]
        nonce, bound = frame[1 : frames._HEADER - 1], head + sha256(body)
        for group, me, one in self.relationships:
            if not one.established:
                continue
            for mine in (one.mine, *([one.rotation.old] if one.rotation else [])):
                for ends in ((one.member, me), (me, one.member)):
                    public = pair_keys._agreement_key(one.theirs)
                    section = pair_keys._pair_key(frames.PURPOSE, mine.agreement_secret, public, group, *ends)
                    key = frames._trial(frame, start, nonce, bound, section)
                    if key is not None:
                        yield decode_payload(xc20p_open(key, nonce, body[:-16], body[-16:], head))
                        return

    def _unpack(self, envelope: bytes) -> Message:
        """The message in a DIDComm envelope to any identity of the profile. Raises RemoteError."""
        packer = PACKERS[envelope_kind(envelope)]
        secrets: dict[str, SecretKey] = {}
        for one in self.identities.values():
            secrets |= own_keys(packer, one)

        def public_of(kid: str) -> PublicKey:
            did = kid.partition("#")[0]
            return resolve(self.documents.get(did, did)).agreement_key(kid)

        return packer.parse(packer.unpack(envelope, secret_of=secrets.get, public_of=public_of).plain)

    def _contents(self, message: Message, message_keys: set[bytes]) -> Iterator[str]:
        """The texts in a message, with what is compressed or encrypted within it."""
        yield self._text({"from": message.from_, "body": message.body})
        body = message.body
        if message.type == CONTENT:
            yield from self._open_sealed_content(body)
        if message.type == KEY_EVENTS:
            for one in self.agreements:
                one.hear(body["events"])
        if message.type in (SIGNED, SEALED):
            yield from self._open(b64url_bytes(body["message"]), message_keys)

    def _open_sealed_content(self, body: dict[str, Any]) -> Iterator[str]:
        """A content sealed to a content key (`links/content_keys.py`), from or to any member."""
        sealed, named = b64url_bytes(body["sealed"]), b64url_bytes(body["key"])
        for secret in [one for one in self.keys if content_keys._key_id(x25519_public(one)) == named]:
            for group in self.agent.groups.values():
                for sender, recipient in permutations(group.view.members, 2):
                    with suppress(RemoteError):
                        plain = hpke.seal_open(secret, content_keys._info(group, sender, recipient), sealed)
                        yield self._text(strict_json(decode_payload(plain), len(plain) * 100))

    def _text(self, content: Any) -> str:
        """A content as text, with its compressed parts; keys in it are taken."""
        self._harvest(content)
        parts = [compact_json(content).decode()]
        match content:
            case {"packed": str(packed)} | {"body": {"packed": str(packed)}} if packed:
                parts.append(decompress(b64url_bytes(packed), 1 << 24).decode())
            case {"body": {"data": str(data)}}:
                parts.append(b64url_bytes(data).decode("latin1"))
        return "\n".join(parts)
