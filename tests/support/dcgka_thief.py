"""What a thief can do with the stolen state of a key agreement: open direct messages, derive keys, and follow."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from zerochat.crypto import hpke, two_party
from zerochat.crypto.encoding import b64url_bytes
from zerochat.errors import RemoteError
from zerochat.group.key_agreement.key_event import KeyEvent, pair_context
from zerochat.group.key_agreement.key_schedule import KEY_BYTES, adopted, advanced, next_message
from zerochat.group.key_agreement.member_secrets import children, member_key
from zerochat.group.key_agreement.wire import parse_direct, parse_key_event
from zerochat.group.key_modes.dcgka import open_, place_of
from zerochat.group.state import Group

ID_CHARS = 43
CHAIN_STEPS = 100
"""How far the thief follows each chain key."""


def byte_keys(value: Any) -> Iterator[bytes]:
    """All byte strings of the length of a key in a value of the state."""
    match value:
        case bytes() if len(value) == KEY_BYTES:
            yield value
        case dict():
            for each in value.values():
                yield from byte_keys(each)
        case list() | tuple() | frozenset():
            for each in value:
                yield from byte_keys(each)
        case Struct():
            for each in fields(type(value)):
                yield from byte_keys(getattr(value, each.name))


def ids(value: Any) -> Iterator[str]:
    """All strings of the length of an id in a value of the state."""
    match value:
        case str() if len(value) == ID_CHARS:
            yield value
        case dict():
            for each in value.values():
                yield from ids(each)
        case list() | tuple() | frozenset():
            for each in value:
                yield from ids(each)
        case Struct():
            for each in fields(type(value)):
                yield from ids(getattr(value, each.name))


class StolenKeys:
    """The keys of one group at the victim, and what follows from them and from recorded key events."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.secrets = set(byte_keys(group.dcgka))
        """Of the state, and from direct messages."""
        self.ids = set(ids(group.dcgka))
        self.ratchets = {group.dcgka.keys.ratchet, *group.dcgka.keys.ratchets.values()}
        self.events: dict[str, KeyEvent] = {}
        """Recorded key events by id."""
        self._directs: list[tuple[KeyEvent, bytes]] = []

    def hear(self, events: Iterable[tuple[str, str]]) -> None:
        """Take recorded key events with the direct messages to the victim (`messages.KeyEventsBody`)."""
        for record, direct in events:
            event = parse_key_event(b64url_bytes(record), self.group.id)
            self.events[event.id] = event
            if direct:
                self._directs.append((event, parse_direct(b64url_bytes(direct), self.group.me).message))

    def open_directs(self) -> bool:
        """Open the direct messages that open with any key; whether there is something new."""
        before = len(self.secrets)
        for event, message in self._directs:
            context = pair_context(self.group.id, event.author, self.group.me)
            size = two_party._HEADER_BYTES[message[0]]
            for secret in list(self.secrets):
                with suppress(RemoteError):
                    plain = hpke.seal_open(secret, context + message[:size], message[size:])
                    self.secrets |= {plain[:KEY_BYTES], plain[two_party._BODY_BYTES :]}
                    self.ratchets.add(plain[two_party._BODY_BYTES :])
        return len(self.secrets) > before

    def _below(self, keys: Iterable[bytes]) -> Iterator[bytes]:
        """The nodes below these, if they are nodes in the tree of an update (`key_agreement/member_secrets.py`)."""
        for _ in range((len(self.group.view.members) - 1).bit_length()):
            keys = [child for key in keys for child in children(key)]
            yield from keys

    def opener(self) -> Callable[[bytes], object]:
        """A function that opens a message with any key that can be derived now, or raises LookupError."""
        while self.open_directs():
            pass
        nodes = self.secrets | set(self._below(self.secrets))
        shares = nodes | {member_key(one, did) for one in nodes for did in self.group.view.members}
        mixed = {adopted(ratchet, share) for ratchet in self.ratchets for share in shares}
        chains = set[bytes]()
        for chain in self.secrets:
            chains.add(chain)
            for _ in range(CHAIN_STEPS):
                key, chain = next_message(chain)
                chains.add(key)
        epochs: dict[str, set[bytes]] = {}
        carried: dict[str, set[bytes]] = {}
        for event in sorted(self.events.values(), key=lambda one: one.number):
            start = self.ratchets | carried.get(event.author, set())
            carried[event.author] = {advanced(one, event.place).ratchet for one in start}
            epochs[event.id] = {advanced(one, event.place).epoch_key for one in start | shares | mixed}

        def open_message(envelope: bytes) -> object:
            place = place_of(envelope, self.ids | self.events.keys())
            if place is None:
                raise LookupError
            for author in self.group.view.members:
                for key in chains:
                    with suppress(RemoteError):
                        return open_(key, place, envelope, self.group.id, author)
            for chain in epochs.get(place.epoch, ()):
                for _ in range(place.number):
                    _, chain = next_message(chain)
                key, _ = next_message(chain)
                with suppress(RemoteError):
                    return open_(key, place, envelope, self.group.id, self.events[place.epoch].author)
            raise LookupError

        return open_message
