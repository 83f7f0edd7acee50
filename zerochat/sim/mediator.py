"""Simulated mediator: coordinate-mediation, pickup with live mode and forwarding, with the real message code.

It has no disk and no quotas and serves everyone; its state survives outages. `web.py` has the connections and
losses.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import Document, new_peer2, resolve, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import (
    mediation,
    mediator_receipt,
    oob_write,
    pickup,
    ping,
    problem,
    relayed_post,
    routing,
    shared_mailbox,
    short_links,
)
from zerochat.didcomm.protocols.mediation import Changed
from zerochat.didcomm.protocols.oob_read import OutOfBand, ShortLink, read_invitation
from zerochat.didcomm.protocols.pickup import DELIVERY_BYTES_MAX, DELIVERY_MAX, Parcel, Waiting
from zerochat.errors import RemoteError

PACKER = PACKERS["didcomm/v2"]


class Session(Struct, eq=False):
    """A connection to a mediator."""

    recipient: str = ""
    """Short form of the DID that live delivery is enabled for; empty: none."""
    under_way: set[str] = field(default_factory=set)
    """Ids of the parcels sent over it."""


class SimulatedMediator:
    """One mediator. Behind another one (`via`) it accepts posts only through the other."""

    def __init__(self, name: str, random: Callable[[int], bytes], via: "SimulatedMediator | None" = None) -> None:
        self.name, self._random, self.via = name, random, via
        self.http, self.ws = f"http://{name}.example/", f"ws://{name}.example/"
        direct = {"uri": self.http, "accept": ["didcomm/v2"]}
        live = {"uri": self.ws, "accept": ["didcomm/v2"]}
        chained = via and {"uri": via.http, "accept": ["didcomm/v2"], "routingKeys": [via.did]}
        services = [{"type": "DIDCommMessaging", "serviceEndpoint": one} for one in (chained or direct, live)]
        self._identity = new_peer2(random, services)
        self.up = True
        self.behind: dict[str, SimulatedMediator] = {}
        """Mediators behind this one, by DID."""
        if via is not None:
            via.behind[self.did] = self
        self.mailboxes: dict[str, str] = {}
        """Short form of the recipient's DID, by registered DID."""
        self.proven: set[str] = set()
        """Registered DIDs whose ownership is proven."""
        self.waiting: dict[str, dict[str, bytes]] = {}
        """Stored envelopes by recipient and parcel id."""
        self.shares: dict[str, dict[str, str]] = {}
        """By shared key: the registered DID of each recipient that shares it."""
        self.shared: set[tuple[str, bytes]] = set()
        """Envelopes that have come to shared keys."""
        self.posts_shared = 0
        """Posts to shared keys, also of envelopes that were here."""
        self.links: dict[str, dict[str, bytes]] = {}
        """Sealed invitations by recipient and id."""
        self.serves_links = self.posts = True
        self.requested: list[tuple[Session, str, Message]] = []
        """Posts that recipients have requested: on which connection, and by which DID."""
        self._long: dict[str, str] = {}
        self._parcels = 0
        self.dropped = 0

    @property
    def did(self) -> str:
        return self._identity.did

    def invitation(self) -> OutOfBand:
        message = oob_write.invitation(self.did, self._random, goal_code="request-mediate")
        found = read_invitation(oob_write.link(self.http, message))
        assert not isinstance(found, ShortLink)
        return found

    # --- receiving ----------------------------------------------------------------------------------------------

    def receive(self, envelope: bytes, session: Session) -> tuple[list[bytes], list[tuple["SimulatedMediator", bytes]]]:
        """Process an envelope. Returns the answers over the same connection, and envelopes for other mediators."""
        try:
            return self._receive(envelope, session)
        except RemoteError:
            self.dropped += 1
            return [], []

    def _receive(
        self, envelope: bytes, session: Session
    ) -> tuple[list[bytes], list[tuple["SimulatedMediator", bytes]]]:
        unpacked = PACKER.unpack(envelope, secret_of=self._secret_for, public_of=self._public_of)
        if unpacked.kind == "anoncrypt":
            wanted = routing.forward_in(unpacked.plain)
            return self._forward(wanted) if wanted is not None else ([], [])
        message = PACKER.parse(unpacked.plain)
        sender = PACKER.check_sender(message, unpacked, self._resolve)
        reply = self._answer(message, sender, session)
        return [self.encrypt(reply, sender)] if reply is not None else [], []

    def _secret_for(self, kid: str) -> SecretKey | None:
        identity = self._identity
        return SecretKey("X25519", identity.agreement_secret) if kid == identity.kid_long else None

    def _public_of(self, kid: str) -> PublicKey:
        return self._resolve(kid.partition("#")[0]).agreement_key(kid)

    def _resolve(self, did: str) -> Document:
        return resolve(self._long.get(short_form(did), did))

    def encrypt(self, message: Message, recipient: str) -> bytes:
        """A message of ours to a recipient."""
        return PACKER.authcrypt(
            PACKER.dump(replace(message, from_=self.did, to=(recipient,))),
            sender=PACKER.own_key(self._identity, self.did),
            recipient=PACKER.their_key(self._resolve(recipient), recipient),
            random=self._random,
        )

    def _forward(self, wanted: routing.Forward) -> tuple[list[bytes], list[tuple["SimulatedMediator", bytes]]]:
        further = self.behind.get(wanted.next)
        if further is not None:
            return [], [(further, envelope) for envelope in wanted.envelopes]
        if wanted.shared:
            self._fan_out(wanted)
            return [], []
        recipient = self.mailboxes.get(wanted.next)
        for envelope in wanted.envelopes:
            if recipient is None:
                self.dropped += 1
            else:
                self.store(recipient, envelope)
        if wanted.next not in self.proven or not wanted.wants_receipt or len(wanted.envelopes) > 1:
            return [], []
        return [
            mediator_receipt.sign_receipt(
                wanted.envelopes[0], mediator_receipt.TIME_S_MAX, self._identity, self._random
            )
        ], []

    def _fan_out(self, wanted: routing.Forward) -> None:
        """Store an envelope for a shared key for each recipient that shares it, once."""
        [envelope] = wanted.envelopes
        shared_mailbox.check_post(wanted.next, wanted.shared, envelope)
        self.posts_shared += 1
        if (wanted.next, envelope) not in self.shared:
            self.shared.add((wanted.next, envelope))
            for recipient, box in self.shares.get(wanted.next, {}).items():
                if self.mailboxes.get(box) == recipient:
                    self.store(recipient, envelope)

    def reset(self) -> None:
        """Forget all registrations."""
        self.shares.clear()
        self.mailboxes.clear()
        self.proven.clear()
        self.waiting.clear()
        self.links.clear()
        self._long.clear()

    def store(self, recipient: str, envelope: bytes) -> None:
        """Store an envelope for a recipient."""
        self._parcels += 1
        self.waiting[recipient][f"{self.name}-{self._parcels}"] = envelope

    # --- answering ----------------------------------------------------------------------------------------------

    def _answer(self, message: Message, sender: str, session: Session) -> Message | None:
        me = short_form(sender)
        if ping.is_ping(message):
            return ping.answer(message, self._random)
        asked, fetched = mediation.kind_of(message), pickup.kind_of(message)
        if asked is not None and asked[1] == "request":
            self._long[me] = self._resolve(sender).did
            self.waiting.setdefault(me, {})
            return mediation.grant(message, self.did, self._random)
        if me not in self.waiting:
            return problem.problem("e.p.req", message, self._random)
        if relayed_post.kind_of(message) == "post" and self.posts:
            self.requested.append((session, sender, message))
            return None
        if relayed_post.kind_of(message) is not None:
            return problem.problem("e.m.msg.unsupported", message, self._random)
        if shared_mailbox.kind_of(message) == "keep":
            return self._share(message, sender)
        if (linked := short_links.kind_of(message)) is not None:
            return self._link(message, me, linked)
        match asked[1] if asked is not None else fetched:
            case "update":
                return self._update(message, me)
            case "delivery-request":
                parcels = self._next(me, session, pickup.read_delivery_request(message).limit)
                if parcels:
                    return pickup.delivery(parcels, self._random, thid=message.thread)
            case "messages-received":
                for name in pickup.read_received(message):
                    self.waiting[me].pop(name, None)
            case "live-delivery-change":
                session.recipient = me if pickup.read_live_change(message) else ""
            case "status-request":
                pass
            case _:
                return None
        return pickup.status(message, Waiting(len(self.waiting[me])), 0, self._random)

    def posted(self, message: Message, sender: str, result: relayed_post.PostResult) -> bytes:
        """The answer to a post that this recipient has requested."""
        return self.encrypt(relayed_post.posted(message, result, self._random), sender)

    def _share(self, message: Message, sender: str) -> Message:
        claims, me = shared_mailbox.read_keep(message), short_form(sender)
        for recipients in self.shares.values():
            recipients.pop(me, None)
        for one in claims:
            shared_mailbox.check_share(one, sender, self.did)
            self.shares.setdefault(one.key, {})[me] = one.mailbox
        return shared_mailbox.kept(message, [one.key for one in claims], self._random)

    def _link(self, message: Message, me: str, kind: short_links.Kind) -> Message | None:
        if not self.serves_links:
            return problem.problem("e.m.msg.unsupported", message, self._random)
        links = self.links.setdefault(me, {})
        if kind == "keep":
            self.links[me] = {oobid: links[oobid] for oobid in short_links.read_keep(message) & links.keys()}
            return None
        wanted = short_links.read_publish(message)
        links[wanted.oobid] = wanted.sealed
        return short_links.answer(message, short_links.Answer(self.http), self._random)

    def _update(self, message: Message, me: str) -> Message:
        changed = []
        for change in mediation.read_update(message):
            if change.action == "add":
                self.mailboxes.setdefault(change.did, me)
                if mediation.is_proven(change, me, self.did, self._resolve):
                    self.proven.add(change.did)
            elif self.mailboxes.get(change.did) == me:
                del self.mailboxes[change.did]
                self.proven.discard(change.did)
            changed.append(Changed(change.did, change.action, "success"))
        return mediation.update_response(message, changed, self._random)

    def _next(self, me: str, session: Session, limit: int) -> list[Parcel]:
        """Parcels not yet sent over this connection, as many as fit one delivery."""
        parcels: list[Parcel] = []
        room = DELIVERY_BYTES_MAX
        for name, envelope in self.waiting[me].items():
            if name in session.under_way:
                continue
            room -= pickup.delivery_size(len(envelope))
            if len(parcels) >= limit or (parcels and room < 0):
                break
            parcels.append(Parcel(name, envelope))
        session.under_way.update(parcel.id for parcel in parcels)
        return parcels

    def pushes(self, sessions: Sequence[Session]) -> list[tuple[Session, bytes]]:
        """What connections in live mode receive now."""
        found = []
        for session in sessions:
            while session.recipient and (parcels := self._next(session.recipient, session, DELIVERY_MAX)):
                delivery = pickup.delivery(parcels, self._random)
                found.append((session, self.encrypt(delivery, self._long[session.recipient])))
        return found
