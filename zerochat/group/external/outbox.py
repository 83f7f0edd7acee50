"""The durable outbox of an external connection: retransmission with exponential backoff, and an end that is reported.

It holds plaintexts, so that each try is encrypted for the DIDs of that time. One message at a time is posted, so their
order is kept. It arrives at least once: the result of a post may be lost, and recipients recognise the same message id.
"""

from typing import Final, Literal

from msgspec.structs import replace

from zerochat.didcomm.message import Message
from zerochat.errors import Overloaded, RemoteError
from zerochat.group.backoff import Backoff
from zerochat.group.effects import Notify
from zerochat.group.external import key_mediation, sending
from zerochat.group.external.changes import put
from zerochat.group.notifications import ConnectionChanged, MessageSettled
from zerochat.group.state import BasicMessage, Connection
from zerochat.group.state.external import ConnectionState, OutgoingMessage
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

RETRY: Final = Backoff(5_000, 3_600_000)
GIVE_UP_MS: Final = 5 * 24 * 3_600_000
"""As long as mail servers try (RFC 5321, section 4.5.4.1)."""
ANSWER_MS_MAX: Final = 3_600_000
ANSWER_ENDPOINTS_MAX: Final = 2
"""Of an answer to a peer that has named its endpoints itself and may not own them: a third party gets few copies."""
RESULT_MS: Final = 120_000
"""How long the result of a post is awaited: longer than the web transport's own timeouts."""
REGISTRATION_MS: Final = 1_000
"""How often to check whether a mediator of v1 has registered our key, without which the answer would be lost."""
MESSAGES_MAX, MESSAGES_BYTES_MAX = 128, 4 * 1024 * 1024


def submit(tx: Transaction, name: str, message: Message) -> None:
    """Send a message to a connection, and again until its endpoint accepts it. Raises Overloaded."""
    one = tx.agent.connections[name]
    plain = tx.packer(one.envelope).dump(message)
    size = sum(len(each.plain) for each in one.outbox.values()) + len(plain)
    if len(one.outbox) >= MESSAGES_MAX or size > MESSAGES_BYTES_MAX:
        raise Overloaded(what=f"What waits to be sent to {one.label}", limit=f"{MESSAGES_MAX} messages")
    fresh = OutgoingMessage(message.id, plain, tx.now, due=tx.now)
    put(tx, replace(one, outbox={**one.outbox, message.id: fresh}))
    if not one.outbox:
        _post_head(tx, name)


def clear(tx: Transaction, one: Connection) -> Connection:
    """The connection without what waits to be sent: the peer's answer has shown that it came, or the end of the
    connection that it will not come. The latter alone concerns messages of the user, who is told."""
    waiting = one.outbox.keys()
    for each in one.messages:
        if each.mine and each.id in waiting:
            tx.emit(Notify(MessageSettled(one.id, each.id, "failed")))
    kept = tuple(_marked(each, each.id, "failed") if each.id in waiting else each for each in one.messages)
    return replace(one, outbox={}, messages=kept)


def resume(tx: Transaction, name: str) -> None:
    """After a start, which has lost the results of posts."""
    if (head := _head(tx, name)) is not None:
        _put_head(tx, name, replace(head, posted=False, due=min(head.due, tx.now)))
        tx.set_timer(TimerKind.EXTERNAL_OUTBOX, name, 1)


def handle_timer(tx: Transaction, name: str) -> None:
    """The first message is due, or the result of its post is overdue."""
    head = _head(tx, name)
    if head is None:
        return
    if tx.now < head.due:
        tx.set_timer(TimerKind.EXTERNAL_OUTBOX, name, head.due - tx.now)
    elif head.posted:
        _try_later(tx, name, head, 0)
    else:
        _post_head(tx, name)


# --- results --------------------------------------------------------------------------------------------------------


def post_delivered(tx: Transaction, reference: str) -> None:
    """The endpoint has accepted the post with this reference."""
    name, head = _posted(tx, reference)
    if head is not None:
        _finish(tx, name, head, "delivered")


def post_failed(tx: Transaction, reference: str, *, rejected: bool = False, retry_after_s: int = 0) -> None:
    """The post with this reference failed; `rejected`: the endpoint will not accept this message. Another one may."""
    name, head = _posted(tx, reference)
    sending.end_session(tx, name)
    if head is None:
        return
    if rejected and (head.tries + 1) % sending.endpoints(tx, name) == 0:
        _finish(tx, name, head, "failed")
    else:
        _try_later(tx, name, head, retry_after_s)


def expedite(tx: Transaction, name: str) -> None:
    """The peer can be reached anew: do not wait for the time of the next try."""
    head = _head(tx, name)
    if head is not None and not head.posted:
        _post_head(tx, name)


def acknowledged(tx: Transaction, name: str, ids: tuple[str, ...]) -> None:
    """The peer's agent has received these messages, even if the result of a post was lost."""
    unreceived = [each.id for each in tx.agent.connections[name].messages if each.mine and each.status != "received"]
    for each in (each for each in unreceived if each in ids):
        one = tx.agent.connections[name]
        put(tx, replace(one, messages=tuple(_marked(known, each, "received") for known in one.messages)))
        tx.emit(Notify(MessageSettled(name, each, "received")))
        head = one.head
        if head is not None and head.id == each:
            _finish(tx, name, head, "delivered")


def _posted(tx: Transaction, reference: str) -> tuple[str, OutgoingMessage | None]:
    """The connection of a post, and the message; None if another one, or another try, is on its way."""
    name = reference.partition(" ")[0]
    head = _head(tx, name)
    return name, head if head is not None and head.posted and _reference(name, head) == reference else None


def _reference(name: str, head: OutgoingMessage) -> str:
    return f"{name} {head.id} {head.tries}"


def _head(tx: Transaction, name: str) -> OutgoingMessage | None:
    one = tx.agent.connections.get(name)
    return None if one is None else one.head


def _post_head(tx: Transaction, name: str) -> None:
    head = _head(tx, name)
    if head is None:
        return
    if key_mediation.is_pending(tx.agent, tx.agent.connections[name]):
        tx.set_timer(TimerKind.EXTERNAL_OUTBOX, name, REGISTRATION_MS)
        return
    head = _put_head(tx, name, replace(head, posted=True, due=tx.now + RESULT_MS))
    tx.set_timer(TimerKind.EXTERNAL_OUTBOX, name, RESULT_MS)
    message = tx.packer(tx.agent.connections[name].envelope).parse(head.plain)
    try:
        with tx.savepoint():
            sending.send(tx, name, message, by_user=True, reference=_reference(name, head))
    except RemoteError:
        _try_later(tx, name, head, 0)


def _try_later(tx: Transaction, name: str, head: OutgoingMessage, retry_after_s: int) -> None:
    """Try the peer's next endpoint at once, and after the last one all of them again, after a pause."""
    tries, ways, limit_ms = head.tries + 1, sending.endpoints(tx, name), GIVE_UP_MS
    if _is_unproved_answer(tx.agent.connections[name], head):
        ways, limit_ms = min(ways, ANSWER_ENDPOINTS_MAX), ANSWER_MS_MAX
    if tx.now - head.since >= limit_ms:
        _finish(tx, name, head, "failed")
        return
    pause = 0
    if tries % ways == 0:
        pause = max(RETRY.delay_ms(tries // ways - 1), min(retry_after_s * 1000, RETRY.ceiling_ms))
    _put_head(tx, name, replace(head, tries=tries, posted=False, due=tx.now + pause))
    if pause:
        tx.set_timer(TimerKind.EXTERNAL_OUTBOX, name, pause)
    else:
        _post_head(tx, name)


def _is_unproved_answer(one: Connection, head: OutgoingMessage) -> bool:
    """Whether this is our answer to the request of a peer that has not shown yet that it gets what goes to its DID."""
    us, by_user = one.relationship, any(each.mine and each.id == head.id for each in one.messages)
    return not by_user and one.route is None and not us.acknowledged and us.rotation is None


def _put_head(tx: Transaction, name: str, head: OutgoingMessage) -> OutgoingMessage:
    one = tx.agent.connections[name]
    put(tx, replace(one, outbox={**one.outbox, head.id: head}))
    return head


def _finish(tx: Transaction, name: str, head: OutgoingMessage, status: Literal["delivered", "failed"]) -> None:
    """The first message has been accepted, or is given up."""
    one = tx.agent.connections[name]
    is_news = any(each.mine and each.id == head.id and each.status == "waiting" for each in one.messages)
    kept = tuple(_marked(each, head.id, status) for each in one.messages) if is_news else one.messages
    rest = {key: each for key, each in one.outbox.items() if key != head.id}
    one = replace(one, outbox=rest, messages=kept)
    if status == "failed" and one.state is ConnectionState.REQUESTED:
        put(tx, clear(tx, one.moved_to(ConnectionState.ENDED, exchange=None)))
        tx.emit(Notify(ConnectionChanged(name, f"{one.label} could not be reached; the connection was given up.")))
        return
    rotation = one.relationship.rotation
    if status == "failed" and one.envelope == "didcomm/v1" and rotation is not None and rotation.thread == head.id:
        # The peer never learns of our new DID (RFC 0794), and no other rotation could begin.
        one = replace(one, relationship=replace(one.relationship, mine=rotation.old, rotation=None))
        tx.emit(Notify(ConnectionChanged(name, f"{one.label} could not be told of the new DID; the old one stays.")))
    put(tx, one)
    if is_news:
        tx.emit(Notify(MessageSettled(name, head.id, status)))
    _post_head(tx, name)


def _marked(message: BasicMessage, wanted: str, status: Literal["delivered", "received", "failed"]) -> BasicMessage:
    return replace(message, status=status) if message.mine and message.id == wanted else message
