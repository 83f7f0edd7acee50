"""DID rotation on connections of DIDComm v1 (RFC 0794): the prior DID counts until the acknowledgement has come.

Our prior DID sends and receives until the peer has acknowledged the new one. The peer's prior DID may send until its
new one has: our acknowledgement may be lost, and messages may overtake each other.
"""

from msgspec.structs import replace

from zerochat.didcomm.did import resolve, same_did
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import rotate
from zerochat.errors import RemoteError
from zerochat.group.effects import Notify
from zerochat.group.external import outbox
from zerochat.group.external.changes import notify, put
from zerochat.group.external.sending import reachable, send
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state.external import ConnectionState
from zerochat.group.transaction import Transaction


def receive_rotation(tx: Transaction, name: str, message: Message, handle: int | None) -> bool:
    """v1: the peer replaces its DID, answers to our rotation, or ends the connection. False: the message is about
    something else. Raises RemoteError."""
    one = tx.agent.connections[name]
    pending = one.relationship.rotation
    if rotate.is_rotate(message):
        _observe_rotation(tx, name, message, handle if message.return_route in ("all", "thread") else None)
    elif rotate.is_hangup(message):
        fresh = outbox.clear(tx, one.moved_to(ConnectionState.ENDED, relationship=replace(one.relationship, theirs="")))
        put(tx, fresh)
        notify(tx, fresh)
    elif rotate.is_ack(message):
        if pending is not None and pending.thread == message.thid:
            put(tx, replace(one, relationship=replace(one.relationship, acknowledged=True, rotation=None)))
    elif pending is not None and rotate.is_refusal(message, pending.thread):
        put(tx, replace(one, relationship=replace(one.relationship, mine=pending.old, rotation=None)))
        tx.emit(Notify(ConnectionChanged(name, f"{one.label} does not support the new DID; the old one stays.")))
    else:
        return False
    return True


def _observe_rotation(tx: Transaction, name: str, message: Message, handle: int | None) -> None:
    """v1: the peer announces a new DID. The answer goes to its present one, which stays valid until it is used no
    more."""
    one = tx.agent.connections[name]
    prior = one.relationship.prior or one.relationship.theirs
    theirs = rotate.read_rotate(message)
    try:
        tx.packer(one.envelope).their_key(resolve(theirs), theirs)  # it must have an encryption key
        answer = rotate.ack(message, tx.context.random)
    except RemoteError:
        answer, theirs = rotate.refuse(message, theirs, tx.context.random), one.relationship.theirs
    put(tx, replace(one, relationship=replace(one.relationship, theirs=prior)))
    if handle is not None or reachable(tx, name):
        send(tx, name, answer, handle)
    kept = tx.agent.connections[name]
    prior = "" if same_did(prior, theirs) else prior
    put(tx, replace(kept, relationship=replace(one.relationship, theirs=theirs, prior=prior)))
