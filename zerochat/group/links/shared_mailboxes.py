"""Shared mailboxes: a group's messages go once to all members behind one mediator (UPSYCLE's proxies).

On the ring a member behind a mediator is sent each message by several neighbours, and the mediator stores it as often,
for each member that it serves. So the members behind one mediator share a mailbox there, which is one neighbour for all
others: a forwarded message is posted to it once, and the mediator puts it into the mailbox of each of them.

    key         of an exported secret (`key_agreement/export.py`), for one mediator: former members do not know it
    register    each member for itself, over its connection to the mediator (`external/mailbox_shares.py`)
    publish     in its routes (`sync`): the update that the secret is of, so others need not agree with it beforehand
    post        the message encrypted to the key, the same bytes from each sender, with a signature by the key
    receive     from our own mediator; it goes on to the members that do not share this mailbox

The mediator learns that some of its mailboxes belong together, and sizes and times; no names, no group, no sender. What
it drops, or what comes while members differ about the secret, is pulled like all that is lost on the ring. A sender
that does not know a member's secret, or knows it to be known to a former member, uses that member's own mailbox.

Who pays. The author of a message pays for it, wherever it comes from. Of a duplicate, or of what no member has signed,
no bearer is known: the shared mailbox has an account of its own, under our own name. Once that is exhausted, what comes
to the shared mailbox is dropped unopened, and pulled. The mediator has limits of its own for the copies.

Only forwarded messages go this way. What is for one member alone, and key and membership events, do not.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.primitives import ed25519_to_x25519_secret
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import resolve, short_form
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols import routing, shared_mailbox
from zerochat.didcomm.service import Route
from zerochat.errors import Refused, RemoteError, Unauthentic
from zerochat.group.dcgka.membership import membership_of
from zerochat.group.effects import Measure
from zerochat.group.key_agreement import export
from zerochat.group.key_agreement.state import ExportedSecret
from zerochat.group.links import mediator_mail
from zerochat.group.links.mediator_proof import ENVELOPE
from zerochat.group.state import Agent, Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SEALED, SealedBody, read_body

MEDIATORS_MAX = 64
"""Mediators for which the keys of one secret are kept."""


class SharedBox(Struct, frozen=True):
    """A shared mailbox of a group: at which mediator (short form of its DID), with the secret of which update."""

    mediator: str
    update: str


class SharedWay(Redacted, frozen=True):
    """How a member's shared mailbox is reached."""

    REDACTED = ("seed",)

    box: SharedBox
    route: Route
    seed: bytes
    """Of the shared key."""


def mediator_of(route: Route) -> str:
    """The mediator that has the mailbox at the end of a route, by its short form; empty: there is no mailbox."""
    return short_form(route.routing_keys[-2].partition("#")[0]) if len(route.routing_keys) > 1 else ""


# --- our own --------------------------------------------------------------------------------------------------------


def announced(agent: Agent, group: Group) -> Mapping[str, str]:
    """By mediator of ours (short form): the update whose secret we share a mailbox there by."""
    found: dict[str, str] = {}
    for one in agent.connections.values():
        if one.mediation is not None and one.mediation.routing_did is not None:
            ours = (share.update for share in one.shares if share.kept and share.group == group.id)
            for update in ours:
                found.setdefault(short_form(one.mediation.routing_did), update)
    return found


def seed_of(group: Group, box: SharedBox) -> bytes:
    """The seed of a shared key whose secret we have, also if a former member knows it; empty: we do not."""
    one = group.dcgka.keys.exported.get(box.update)
    return b"" if one is None else _key_of(one, box.mediator)[0]


# --- sending --------------------------------------------------------------------------------------------------------


def way_to(tx: Transaction, name: str, member: str) -> SharedWay | None:
    """The way to the shared mailbox of a member that is reached by mail; None: there is none, or it is not secret."""
    group = tx.group(name)
    peer = group.links.peers.get(member)
    if (
        peer is None
        or peer.reach is None
        or not any(peer.reach.shared)
        or not mediator_mail.goes_by_mail(tx, name, member)
    ):
        return None
    route = mediator_mail.route_to(tx, name, member)
    pairs = zip(peer.reach.routes, peer.reach.shared, strict=False)
    update = next((update for one, update in pairs if one == route), "")
    secret = export.secret_of(group.dcgka.keys.exported, membership_of(group), update) if update else b""
    if route is None or not secret or not mediator_of(route):
        return None
    box = SharedBox(mediator_of(route), update)
    return SharedWay(box, route, seed_of(group, box))


def post(tx: Transaction, name: str, member: str, way: SharedWay, envelope: bytes) -> None:
    """Post a forwarded message to the shared mailbox of this member, which pays for its mediator as for other mail."""
    packer, key = tx.packer(ENVELOPE), shared_mailbox.key_of(way.seed)
    draws = shared_mailbox.convergent(way.seed, envelope)
    plain = packer.dump(Message(type=SEALED, id=new_id(draws), body={"message": b64url(envelope)}))
    try:
        letter = packer.anoncrypt(plain, recipient=packer.their_key(resolve(key), key), random=draws)
        wrapped = routing.wrap(
            letter,
            replace(way.route, routing_keys=way.route.routing_keys[:-1]),
            key,
            resolve=resolve,
            random=tx.context.random,
            shared=shared_mailbox.sign_post(way.seed, letter),
        )
    except RemoteError:
        tx.emit(Measure("dropped", "CannotWrap"))
        return
    nearest = mediator_mail.nearest_at(tx, tx.group(name).seed, way.route.uri)
    mediator_mail.post_wrapped(tx, way.route, wrapped, nearest, f"{name} {member}")


# --- receiving ------------------------------------------------------------------------------------------------------


def owner_of(agent: Agent, kids: tuple[str, ...]) -> tuple[str, SharedBox] | None:
    """The group and the shared mailbox that an envelope is for; None: it is for none."""
    for name, box in _boxes(agent):
        if _key_of(agent.groups[name].dcgka.keys.exported[box.update], box.mediator)[1] in kids:
            return name, box
    return None


def opened(tx: Transaction, name: str, box: SharedBox, envelope: bytes) -> bytes:
    """The forwarded message in an envelope to our shared mailbox. Raises RemoteError."""
    packer = tx.packer(ENVELOPE)
    seed, kid = _key_of(tx.group(name).dcgka.keys.exported[box.update], box.mediator)
    secret = SecretKey("X25519", ed25519_to_x25519_secret(seed))

    def unknown(kid: str) -> PublicKey:
        raise Unauthentic()

    unpacked = packer.unpack(envelope, secret_of=lambda one: secret if one == kid else None, public_of=unknown)
    message = packer.parse(unpacked.plain)
    if message.type != SEALED:
        raise Refused(why="mail to a shared mailbox that is no forwarded message")
    return b64url_bytes(read_body(message, SealedBody).message)


def _boxes(agent: Agent) -> Iterator[tuple[str, SharedBox]]:
    """All that could be ours: the mediator may still hold mail for one that we no longer share."""
    states = [one.mediation for one in agent.connections.values() if one.mediation is not None]
    mediators = [short_form(state.routing_did) for state in states if state.routing_did is not None]
    for name, group in agent.groups.items():
        for update in group.dcgka.keys.exported if group.state != "left" else ():
            for mediator in mediators:
                yield name, SharedBox(mediator, update)


def _key_of(one: ExportedSecret, mediator: str) -> tuple[bytes, str]:
    """The seed of the shared key at a mediator, and the id of its encryption key: kept with the secret, and erased with
    it."""
    keys: dict[str, tuple[bytes, str]] = one.__dict__.setdefault("shared", {})
    if mediator not in keys:
        if len(keys) >= MEDIATORS_MAX:
            keys.clear()
        seed = shared_mailbox.shared_seed(one.secret, mediator)
        keys[mediator] = seed, resolve(shared_mailbox.key_of(seed)).agreement[0].kid
    return keys[mediator]
