"""Fuzz targets of proofs: their lines, most of them signed again after a change, as a dishonest author could."""

from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

from fuzzing.evidence import ALIAS, NOW, ORIGIN, PUBLISHER, REQUEST, SUBSCRIBER, accepted, confirmed, did_of
from fuzzing.nodes import Part, as_text, utf8
from fuzzing.run import Form
from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, compact_json, did_key, strict_json
from zerochat.crypto.primitives import ed25519_public, ed25519_sign
from zerochat.errors import RemoteError
from zerochat.evidence.handshake import CONTEXT
from zerochat.evidence.messages import ACK_CONTEXT, KEY_BYTES, SIGNATURE_BYTES, Data, ack, data, parse_ack, parse_data
from zerochat.evidence.proof import ProofResult, ack_line, check_proof, head_line, message_line
from zerochat.group.event_log.event import POST, Event
from zerochat.group.key_modes.sender_key import associated_data, seal_content
from zerochat.group.signed_streams.messages import events_in
from zerochat.group.wire.event_runs import write_runs

_GROUP, _AUTHOR, _KEY = REQUEST.topic, did_of(PUBLISHER), bytes(range(32))
_SEEDS = {"request": SUBSCRIBER, "accept": PUBLISHER, "confirm": SUBSCRIBER}


def _said() -> tuple[Event, list[Data]]:
    """A post, and the stream that begins with the message that brings it."""
    event = Event(_GROUP, POST, _AUTHOR, 2, "A" * 43, ("B" * 43,), (), NOW, NOW, {"text": "hello"})
    body: dict[str, object] = {"view": "C" * 22, "have": [1], "runs": write_runs([event], _AUTHOR)}
    bare = Data(NOW + 1000, ed25519_public(PUBLISHER), ALIAS, b"", ORIGIN)
    chain = [data(PUBLISHER, bare.time, ALIAS, seal_content(_KEY, body, associated_data(bare)), ORIGIN)]
    for number in range(2, 5):
        chain.append(data(PUBLISHER, NOW + 1000 * number, ALIAS, bytes(30), chain[-1].signature))
    return event, chain


class Proof:
    """A proof's lines; a list of them in the text that is changed."""

    name = "proof"
    form: Form = "sealed"
    size_max = 16 * 1024

    def seeds(self) -> list[bytes]:
        """Of one message, with and without its receipts; and of a complete history."""
        event, chain = _said()
        accept = accepted()
        statements = [one.serialize() for one in (REQUEST, accept, confirmed(accept))]
        opened = message_line(chain[0].serialize(), _KEY)
        rest = [message_line(one.serialize()) for one in chain]
        signed = [ack_line(ack(SUBSCRIBER, one, NOW + 9_000).serialize(), statements) for one in (chain[0], chain[3])]
        made = (
            [head_line(_AUTHOR, _GROUP, event.id), opened],
            [head_line(_AUTHOR, _GROUP, event.id), opened, signed[0]],
            [head_line(_AUTHOR, _GROUP, event.id), opened, *rest[1:], signed[1]],
            [head_line(_AUTHOR, _GROUP), *rest, signed[1]],
        )
        return [b"[" + b",".join(line.rstrip() for line in lines) + b"]" for lines in made]

    def seal(self, tree: Part, dice: Random) -> bytes:
        text = utf8(as_text(tree))
        with suppress(RemoteError):
            lines = strict_json(text, 1 << 20)
            if isinstance(lines, list):
                return b"\n".join(self._lines(lines, dice))
        return text

    def _lines(self, lines: list[Any], dice: Random) -> list[bytes]:
        """Each message follows the one before, and an acknowledgement names one of them, most of the time."""
        written, said = list[bytes](), list[Data]()
        for line in lines:
            with suppress(RemoteError, AttributeError, KeyError, TypeError, ValueError):
                if isinstance(line, dict) and dice.random() < 0.9:
                    if "message" in line:
                        line = {**line, "message": self._message(b64url_bytes(line["message"]), said)}
                    elif "ack" in line:
                        line = self._ack(line, said, dice)
            written.append(compact_json(line))
        return written

    def _message(self, message: bytes, said: list[Data]) -> str:
        before = said[-1].signature if said else message[-2 * SIGNATURE_BYTES : -SIGNATURE_BYTES]
        body = message[: -2 * SIGNATURE_BYTES] + before
        made = body + ed25519_sign(PUBLISHER, body)
        with suppress(RemoteError):
            said.append(parse_data(made))
        return b64url(made)

    def _ack(self, line: dict[str, Any], said: list[Data], dice: Random) -> dict[str, Any]:
        """A signature again, sometimes for a message that is there; below statements that name each other."""
        body = b64url_bytes(line["ack"])[:-SIGNATURE_BYTES]
        signature = ed25519_sign(SUBSCRIBER, ACK_CONTEXT + body[KEY_BYTES:])
        made = b64url(body + signature)
        if said and dice.random() < 0.7:
            made = b64url(ack(SUBSCRIBER, dice.choice(said), NOW + 9_000).serialize())
        statements = []
        for one in line["subscription"]:
            says = strict_json(one.encode(), 1 << 16) if isinstance(one, str) else one
            if isinstance(says, dict):
                unsigned = {**says, "sig": ""}
                seed = _SEEDS.get(str(says.get("type")), PUBLISHER)
                one = canonical_json(
                    {**unsigned, "sig": b64url(ed25519_sign(seed, CONTEXT + canonical_json(unsigned)))}
                )
                one = one.decode()
            statements.append(one)
        return {**line, "ack": made, "subscription": statements}

    def parse(self, data: bytes) -> object:
        """The result matches the lines: one message after the other, and signatures for some of them."""
        lines = data.split(b"\n")
        proven = check_proof(lines)
        said = [parse_data(b64url_bytes(_field(line, "message"))) for line in lines if _field(line, "message")]
        assert len(said) == proven.messages and (said[0].time, said[-1].time) == (proven.first, proven.last)
        assert all(after.before == one.signature and after.time > one.time for one, after in pairwise(said))
        assert all(did_key(one.publisher) == proven.head.author for one in said)
        acks = [parse_ack(b64url_bytes(_field(line, "ack"))) for line in lines if _field(line, "ack")]
        assert {(did_key(one.subscriber), one.at, one.time) for one in acks} == {
            (one.member, one.at, one.upto) for one in proven.signers.values()
        }
        assert {one.of for one in acks} <= {one.signature for one in said}
        assert len(acks) == len(proven.signers), "a member who is counted twice"
        self._opened(proven)
        return proven

    def _opened(self, proven: ProofResult) -> None:
        for message, key in proven.opened:
            with suppress(RemoteError):
                for event in events_in(key, message, proven.head.group, proven.head.author):
                    assert event.author == proven.head.author and event.group_id == proven.head.group


def _field(line: bytes, name: str) -> str:
    found = strict_json(line, 1 << 20)
    return str(found.get(name, "")) if isinstance(found, dict) else ""
