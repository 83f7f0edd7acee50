"""Invariants of signed streams in groups whose keys sign."""

from collections.abc import Collection, Sequence

from zerochat.crypto.encoding import did_key_bytes
from zerochat.errors import RemoteError
from zerochat.evidence.messages import parse_ack, parse_data
from zerochat.group.effects import StoreSignedMessage
from zerochat.group.key_modes.sender_key import open_content
from zerochat.group.state import Group
from zerochat.sim.node import Node, Violation


def missing_signed_acks(group: Group, owner: dict[str, str], names: Collection[str]) -> list[str]:
    """Who has not signed an acknowledgement of our last message, as sentences; `owner`: node by DID."""
    own = group.streams.own
    if own is None or not own.time:
        return []
    late = [did for did, one in group.streams.subscribers.items() if did in group.view.members and one.acked < own.time]
    return [f"{owner[did]} has not acknowledged the last messages of {owner[group.me]}" for did in late if did in names]


def check_streams(seed: int, nodes: Sequence[Node], honest: Collection[str]) -> None:
    """Raise Violation unless every honest author signed one message per position, and stored messages form a chain,
    decrypt with their stored key, and are acknowledged only by their recipients."""
    said: dict[tuple[str, bytes, bytes], tuple[str, bytes]] = {}
    looked_at: set[tuple[bytes, bytes, bytes, bytes, int]] = set()  # all nodes store the same messages
    for node in nodes:
        ends: dict[tuple[str, bytes], bytes] = {}
        for one in node.signed:
            if one.author not in honest:
                continue
            name, message = said.setdefault((one.author, one.alias, one.before), (node.name, one.message))
            if message != one.message:
                raise Violation(f"seed {seed}: {name} and {node.name} have two messages at one position of a stream")
            if ends.get((one.author, one.alias), one.before) != one.before:
                _check_break(seed, node, one)
            ends[one.author, one.alias] = one.signature
            if (kept := (one.message, one.key, one.signature, one.before, one.time)) not in looked_at:
                _check_message(seed, node, one)
                looked_at.add(kept)
        for _, author in node.conflicts:
            if author in honest:
                raise Violation(f"seed {seed}: {node.name} could convict the honest member {author}")
        for (_, member), last in node.acks.items():
            ack = parse_ack(last.ack)
            if ack.subscriber != did_key_bytes(member):
                raise Violation(f"seed {seed}: {node.name} stores the acknowledgement of another member")


def _check_break(seed: int, node: Node, one: StoreSignedMessage) -> None:
    """A subscriber may continue elsewhere in a stream after a new request, its author never."""
    (group,) = node.agent.groups.values() if len(node.agent.groups) == 1 else (None,)
    if group is not None and one.author == group.me:
        raise Violation(f"seed {seed}: {node.name} continues its stream after another message than its last")


def _check_message(seed: int, node: Node, one: StoreSignedMessage) -> None:
    try:
        message = parse_data(one.message)
        if one.key:
            open_content(one.key, message)
    except RemoteError as error:
        raise Violation(f"seed {seed}: {node.name} stores an invalid signed message: {error.code}") from None
    if (message.signature, message.before, message.time) != (one.signature, one.before, one.time):
        raise Violation(f"seed {seed}: {node.name} stores a signed message under another id")
