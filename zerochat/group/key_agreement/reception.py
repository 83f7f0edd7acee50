"""Key events of others: following an author's ratchet, in the order of its events.

An event is processed once all membership events that it names are here, the author's previous event, and the updates
that it adopts (`awaited`). One whose membership events cannot be had is passed over (`skip`). The order of different
authors' events does not matter otherwise. An event whose direct message cannot be had, or which adopts an update that
cannot, is processed all the same: its author is not followed until its next update, or until it gives us its ratchet,
which our next event asks for (`Keys.wanted`).
"""

from typing import NamedTuple

from msgspec.structs import replace

from zerochat.crypto import two_party
from zerochat.crypto.primitives import check_x25519_public, equal
from zerochat.crypto.two_party import Channel, Opened
from zerochat.errors import Refused, RemoteError
from zerochat.group.key_agreement.channel_reset import after_opening, held_for, is_to_contact
from zerochat.group.key_agreement.complaint import Complaint
from zerochat.group.key_agreement.export import with_exported
from zerochat.group.key_agreement.key_event import Direct, KeyEvent, pair_context
from zerochat.group.key_agreement.key_schedule import KEY_BYTES, adopted, advanced, commitment
from zerochat.group.key_agreement.member_secrets import MemberSecrets, secrets_of
from zerochat.group.key_agreement.message_keys import begun, interrupted
from zerochat.group.key_agreement.production import recent_updates, with_operation
from zerochat.group.key_agreement.state import AUTHOR_ADOPTED_MAX, Keys, Membership, Operation


class Processed(NamedTuple):
    """The state after an event."""

    keys: Keys
    follows: bool
    """Whether we have the keys of the author's next messages."""
    complaint: Complaint | None
    """The proof that the author has sent us another seed than it has committed to."""
    broken: bool
    """Whether our keys do not open the direct message: the channel needs a reset. We do not ask for the author's
    ratchet, which would come by the same channel."""
    by_contact: bool = False
    """Whether the direct message was encrypted to our contact key: an offer is due (`channel_reset.py`)."""


def is_sent(keys: Keys, event: KeyEvent, membership: Membership) -> bool:
    """Whether the event has a direct message for us."""
    return keys.me in event.to or (event.is_update and keys.me in membership.at(event.control))


def awaited(keys: Keys, event: KeyEvent, membership: Membership) -> tuple[str, ...]:
    """The updates that must be processed first: those it adopts which we have not seen, where we follow its author, and
    it counts us in. One that was processed before a reset need not be awaited."""
    if event.author not in keys.ratchets or event.is_update or keys.me in event.to:
        return ()
    if keys.me not in membership.at(event.control):
        return ()
    return tuple(name for name in event.adopts if name not in keys.operations)


def process(
    keys: Keys, event: KeyEvent, direct: Direct | None, membership: Membership, now: int, contact: bytes = b""
) -> Processed:
    """Follow the author by one event, whose signature is checked. `direct`: our direct message; None: there is none, or
    it cannot be had. `contact`: the secret of our contact key; empty: the group's members all meet.

    The caller waits for the events between the author's last one and this one while they can still be had. Raises
    Refused for an event by a non-member or one that is here already, Unauthentic for a foreign direct message.
    """
    author, audience = event.author, membership.at(event.control)
    if event.group != keys.group or author == keys.me or author not in audience:
        raise Refused(why="a key event of another group or by a non-member")
    before = keys.numbers.get(author, event.number - 1)
    if event.number <= before:
        raise Refused(why="a key event that is here already")
    if event.prekey:
        check_x25519_public(event.prekey)
        left = keys.channels.get(author)
        channels = {**keys.channels, author: two_party.reached(event.prekey, left)}
        keys = replace(keys, channels=channels, synced=keys.synced - {author})
    if keys.me in event.wants:
        keys = replace(keys, synced=keys.synced - {author})

    # Asking again at each event would make two members with a broken channel answer each other for ever.
    was_lost = author in keys.numbers and author not in keys.ratchets
    if event.number > before + 1:
        keys = replace(keys, ratchets={one: kept for one, kept in keys.ratchets.items() if one != author})
    sent = is_sent(keys, event, membership)
    opened = _open(keys, event, direct, contact) if sent and direct is not None else None
    by_contact = False
    if opened is not None and direct is not None:
        keys = after_opening(keys, author, event.number, direct.message, opened.channel)
        by_contact = is_to_contact(direct.message, contact)
    content = opened.plain if opened is not None and len(opened.plain) == KEY_BYTES else b""
    complaint = None
    if event.is_update and opened is not None and direct is not None and not _is_seed(event, content):
        content, complaint = b"", Complaint(event, direct, opened.key)

    secrets = secrets_of(content, audience) if event.is_update and content else MemberSecrets()
    keys, ratchet = _follow(keys, event, content, secrets)
    if event.is_update:
        keys = _with_update(keys, event, secrets, now)
        if membership.exports and keys.me in audience and event.id in keys.pending:
            keys = replace(keys, exported=with_exported(keys.exported, event, content, membership, now))
    broken = sent and direct is not None and opened is None
    keys = _arrived(keys, event, ratchet, keys.me in audience and not broken and not was_lost, now)
    return Processed(keys, bool(ratchet), complaint, broken, by_contact)


def skip(keys: Keys, event: KeyEvent, now: int) -> Keys:
    """Pass over an event that names membership events which cannot be had, so nothing can be said of its audience. Its
    author is not followed until it has given us its ratchet, which our next event asks for. `now`: UTC ms."""
    was_lost = event.author in keys.numbers and event.author not in keys.ratchets
    return _arrived(keys, event, b"", not was_lost, now)


def _open(keys: Keys, event: KeyEvent, direct: Direct, contact: bytes) -> Opened | None:
    """Our direct message; None for one that our keys do not open."""
    if direct.recipient != keys.me:
        raise Refused(why="a direct message for another member")
    direct.check(event)
    channel = keys.channels.get(event.author, Channel())
    context = pair_context(keys.group, event.author, keys.me)
    try:
        return two_party.receive(channel, context, direct.message, held_for(keys, event.author, contact))
    except RemoteError:
        return None


def _is_seed(event: KeyEvent, content: bytes) -> bool:
    return bool(content) and equal(commitment(content), event.commitment)


def _follow(keys: Keys, event: KeyEvent, content: bytes, secrets: MemberSecrets) -> tuple[Keys, bytes]:
    """The author's ratchet up to the step of this event; empty: it is unknown. The secrets of its adoptions are
    erased. `secrets`: of the event, if it is an update."""
    author = event.author
    ratchet = secrets.of(author) if event.is_update else keys.ratchets.get(author, b"")
    operations = dict(keys.operations)
    for name in event.adopts:
        secret = b""
        if (operation := operations.get(name)) is not None:
            secret = operation.secrets.of(author)
            operations[name] = operation.without([author])
        ratchet = adopted(ratchet, secret) if ratchet and secret else b""
    if content and not event.is_update:
        ratchet = content
    return replace(keys, operations=operations), ratchet


def _with_update(keys: Keys, event: KeyEvent, secrets: MemberSecrets, now: int) -> Keys:
    """The state with an update, which has no secrets where its seed is unknown."""
    adopts = secrets.nodes and recent_updates(keys, event.author, now) < AUTHOR_ADOPTED_MAX
    left = secrets.without([event.author])
    keys = with_operation(keys, event.id, Operation(event.author, event.control, left, now))
    pending = (*keys.pending, event.id) if adopts else keys.pending
    return replace(keys, pending=tuple(name for name in pending if name in keys.operations))


def _arrived(keys: Keys, event: KeyEvent, ratchet: bytes, wants: bool, now: int) -> Keys:
    """The state with the author's new epoch, or without it where its ratchet is unknown. `wants`: whether we ask for it
    then."""
    author = event.author
    ratchets, epochs, wanted = dict(keys.ratchets), keys.receiving.get(author, ()), keys.wanted
    if ratchet:
        step = advanced(ratchet, event.place)
        ratchets[author], wanted = step.ratchet, wanted - {author}
        epochs = begun(epochs, event.id, step.epoch_key, event.sent, now)
    else:
        ratchets.pop(author, None)
        epochs = interrupted(epochs, event.sent, now)
        wanted = wanted | {author} if wants else wanted
    return replace(
        keys,
        ratchets=ratchets,
        numbers={**keys.numbers, author: event.number},
        receiving={**keys.receiving, author: epochs},
        wanted=wanted,
    )
