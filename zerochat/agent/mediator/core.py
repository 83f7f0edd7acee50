"""Mediator core without I/O: forwards, storage, delivery and relaying.

The sender of a forward is anonymous and learns nothing: neither whether the recipient exists, nor whether its queue is
full, nor whether the envelope was readable. So refusals only count. Only a sender that uses a key of which the
recipient has proved possession can request a mediator receipt (`mediator_receipt.py`).

    with store.transaction():              all envelopes of a batch
        outcome = mediator.receive(…)      … are processed and written
    mediator.pushes(…)                     then answers, live deliveries and relays are sent
"""

from collections import Counter
from collections.abc import Callable

from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.outcomes import UNANSWERED, Dispatch, Outcome, Push
from zerochat.agent.mediator.pairwise_dids import PairwiseDids
from zerochat.agent.mediator.protocol_handlers import REQUESTED, SPOKEN, ProtocolHandlers
from zerochat.agent.mediator.registry import canonical, deliverable_routes, own_secrets
from zerochat.agent.mediator.room import Room
from zerochat.agent.mediator.sessions import Policy, Session
from zerochat.agent.mediator.shared_mailboxes import shared_digest
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.tables import DelayedMessage, Registration
from zerochat.agent.mediator.usage import CopyRates
from zerochat.agent.mediator.v1_recipients import V1Recipients, did_of_verkey
from zerochat.agent.network.web.events import http_status
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import PublicKey
from zerochat.didcomm.did import Document, Identity, resolve, short_form
from zerochat.didcomm.layers import MediaType, open_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import PACKERS, Profile, envelope_kind
from zerochat.didcomm.protocols import (
    mediator_receipt,
    mixing,
    pickup,
    problem,
    relayed_post,
    routing,
    shared_mailbox,
    standard_answer,
)
from zerochat.didcomm.protocols.didexchange import Party
from zerochat.didcomm.protocols.mediation import Grant
from zerochat.didcomm.protocols.routing import UNWRAP_DEPTH_MAX, Forward
from zerochat.didcomm.uri import parse_type
from zerochat.errors import Malformed, RemoteError, Unauthentic

MALFORMED, UNSUPPORTED = "e.m.msg", "e.m.msg.unsupported"
COPY_BYTES = 16 * 1024
"""Bytes of an envelope to a shared mailbox that count as one copy more."""
IN_FLIGHT_MS = 30_000
"""When to check again after a dispatch; after a crash it is repeated then."""


class Mediator:
    """The mediator. `receive`, `due`, `dispatched` and `sweep` need a transaction of the store."""

    def __init__(
        self,
        store: Store,
        identity: Identity,
        *,
        policy: Policy,
        uris: tuple[str, ...],
        random: Callable[[int], bytes],
        limits: Limits | None = None,
        noise_chance: float = 0.0,
    ) -> None:
        """`uris`: the addresses of this mediator; messages for DIDs registered with one of them are stored."""
        self.store, self.identity, self.limits = store, identity, limits or Limits()
        self._random, self._noise_chance = random, noise_chance
        self.mix_nodes: tuple[str, ...] = ()
        """DIDs of mediators that relay our detours."""
        self._pairwise = PairwiseDids(identity, uris, random)
        self._v1 = V1Recipients(identity, uris, random)
        own = frozenset({identity.short, *own_secrets(identity), *uris, *(uri.rstrip("/") for uri in uris)})
        direct = [way.uri for way in deliverable_routes(identity.did, resolve) if not way.routing_keys]
        at = [Grant((self._v1.routing_key,), uri) for uri in direct if uri.startswith("http")]
        self.handlers = ProtocolHandlers(
            store, self.limits, policy, identity.did, own, self._pairwise, self.resolve, random, next(iter(at), None)
        )
        self.copies = CopyRates(self.limits)
        self._room = Room(store, self.limits, self.counts)
        self._sent: dict[int, int] = {}
        """Recipient by number of each envelope in flight to another address."""

    @property
    def counts(self) -> Counter[str]:
        return self.handlers.counts

    def resolve(self, did: str) -> Document:
        """The document of a DID, also of a recipient in its short form. Raises Malformed."""
        known = None
        if did.startswith("did:peer:4") and ":" not in did[len("did:peer:4") :]:
            found = self.store.recipient(did)
            known = None if found is None else {did: found.long_did}
        return resolve(did, known)

    # --- receiving --------------------------------------------------------------------------------------------------

    def receive(self, envelope: bytes, session: Session, now_ms: int) -> Outcome:
        """Process an envelope."""
        try:
            outcome = self._receive(envelope, session, now_ms, UNWRAP_DEPTH_MAX)
        except RemoteError:
            outcome = Outcome("unreadable")
        self.counts[outcome.what] += 1
        return outcome

    def _receive(self, envelope: bytes, session: Session, now_ms: int, depth: int) -> Outcome:
        profile = envelope_kind(envelope)
        unpacked = PACKERS[profile].unpack(envelope, secret_of=self._pairwise.secret_of, public_of=self._public_of)
        if unpacked.kind == "anoncrypt":
            try:
                wanted = routing.forward_in(unpacked.plain)
            except Malformed:
                wanted = None  # perhaps another layer
            if wanted is not None:
                return self._forward(wanted, session, now_ms, depth)
        opened = open_layers(envelope, secret_of=self._pairwise.secret_of, resolve=self.resolve)
        if routing.is_forward(opened.message):
            return self._forward(routing.read_forward(opened.message), session, now_ms, depth)
        if opened.sender is None:
            raise Unauthentic()  # signed only: its DID may have no key for answers
        sender, ours = opened.sender, (opened.recipient_kid or "").partition("#")[0]
        if opened.profile == "didcomm/v1":
            sender, ours = did_of_verkey(opened.layers[-1].sender_kid or ""), self.identity.did
        session.profile = opened.profile
        return self._message(opened.message, sender, ours, session, now_ms // 1000)

    def _public_of(self, kid: str) -> PublicKey:
        return self.resolve(kid.partition("#")[0]).agreement_key(kid)

    def _message(self, message: Message, sender: str, ours: str, session: Session, now_s: int) -> Outcome:
        if message.expires_time is not None and message.expires_time <= now_s:
            return Outcome("expired")
        if message.return_route in ("all", "none") and session.stays:
            session.returns = message.return_route == "all"
        if session.profile == "didcomm/v2":
            self.handlers.rotated(message, sender)
            self.handlers.addressed(sender, ours)
        reply = self._reply(message, sender, ours, session, now_s)
        if reply is None:
            return Outcome("processed")
        if not session.may_answer(message):
            return Outcome("processed") if isinstance(reply, bytes) else self._posted(reply, sender, session, now_s)
        if isinstance(reply, bytes):
            return Outcome("answered", reply, PACKERS[envelope_kind(reply)].media_type)
        return Outcome(
            "answered", self._sealed_as(session.profile, reply, sender, ours), PACKERS[session.profile].media_type
        )

    def _posted(self, reply: Message, sender: str, session: Session, now_s: int) -> Outcome:
        """v1: an answer to the address of a recipient that has one and has not requested it on the same connection."""
        recipient = self.store.recipient(short_form(sender))
        if session.profile == "didcomm/v2" or recipient is None:
            return Outcome("processed")
        ways = deliverable_routes(recipient.long_did, self.resolve)
        way = next((way for way in ways if not way.routing_keys), None)
        if way is None or not self.handlers.charge_answer(recipient, now_s):
            return Outcome("processed")
        envelope = self._v1.sealed(reply, sender)
        return Outcome("answered", post=Dispatch(UNANSWERED, way.uri, envelope, PACKERS["didcomm/v1"].media_type))

    def _reply(self, message: Message, sender: str, ours: str, session: Session, now_s: int) -> Message | bytes | None:
        """The answer to an authenticated message, as an envelope (bytes) if it is one that was stored."""

        def admit(party: Party) -> bool:
            return not self.handlers.admit(message, sender, party.did, ours, session, now_s)

        is_known = self.handlers.recipient(sender, now_s) is not None
        try:
            reply = self.handlers.answer(message, sender, ours, session, now_s)
            if reply is None and session.profile == "didcomm/v1":
                reply = self._v1.exchange(message, sender, admit)
            if reply is None and not any(one.kind_of(message) for one in REQUESTED):
                reply = standard_answer(message, disclosed=SPOKEN, random=self._random, profile=session.profile)
        except Malformed:
            self.counts["malformed"] += 1
            if not is_known or not problem.may_report(message):
                raise
            return problem.report(MALFORMED, message, self._random, session.profile)
        if reply is not None or any(one.kind_of(message) for one in REQUESTED) or not is_known:
            return reply
        if not problem.may_report(message) or parse_type(message.type).protocol == "didexchange":
            return None
        return problem.report(UNSUPPORTED, message, self._random, session.profile)

    def opened(self, envelope: bytes) -> tuple[Message, str]:
        """An authenticated message and its sender. Raises RemoteError."""
        opened = open_layers(envelope, secret_of=self._pairwise.secret_of, resolve=self.resolve)
        if opened.sender is None or opened.profile != "didcomm/v2":
            raise Unauthentic()
        return opened.message, opened.sender

    def sealed(self, message: Message, to: str, ours: str | None = None) -> bytes:
        """A message from us to a DID: to a recipient from its pairwise DID; to others from `ours`. None: from our
        public DID. Raises Malformed, or Unauthentic for a DID without a matching key."""
        recipient = None if ours is None else self.store.recipient(short_form(to))
        return self._pairwise.sealed(message, to, self.resolve(to), recipient, ours or self.identity.did)

    def _sealed_as(self, profile: Profile, message: Message, to: str, ours: str | None) -> bytes:
        """A message from us in the envelope format of the recipient's last one."""
        return self._v1.sealed(message, to) if profile == "didcomm/v1" else self.sealed(message, to, ours)

    # --- forwards ---------------------------------------------------------------------------------------------------

    def _forward(self, wanted: Forward, session: Session, now_ms: int, depth: int) -> Outcome:
        now_s = now_ms // 1000
        if wanted.expires_time is not None and wanted.expires_time <= now_s:
            return Outcome("dropped.expired")
        name = canonical(wanted.next)
        if self._pairwise.is_ours(name):
            return self._unwrapped(wanted, session, now_ms, depth)
        if wanted.shared:
            return Outcome(self._fan_out(name, wanted, now_ms))
        registration = self.store.registration(name)
        if registration is None:
            return Outcome("dropped.unknown")
        outcomes = [self._take(envelope, registration, wanted, now_ms) for envelope in wanted.envelopes]
        for what in outcomes[1:]:
            self.counts[what] += 1
        # No receipt for a duplicate: only the recipient may know whether the first copy is still stored.
        if not wanted.wants_receipt or not registration.proven or outcomes != ["kept"]:
            return Outcome(outcomes[0])
        self.counts["receipts"] += 1
        until = self._expires(wanted, now_s)
        receipt = mediator_receipt.sign_receipt(wanted.envelopes[0], until, self.identity, self._random)
        return Outcome("kept", receipt, MediaType.SIGNED)

    def _fan_out(self, key: str, wanted: Forward, now_ms: int) -> str:
        """Put an envelope for a shared mailbox into the mailbox of each recipient that shares it, at once and without
        detours; what came of it, as a counter name. There is no receipt: it would tell who has fetched it."""
        registrations, now_s = self.store.shared_mailboxes.of(key), now_ms // 1000
        if not registrations or len(wanted.envelopes) > 1:
            return "dropped.unknown"
        [envelope] = wanted.envelopes
        if len(envelope) > self.limits.envelope_bytes:
            return "dropped.large"
        if self.store.is_noted(digest := shared_digest(key, envelope)):
            return "dropped.twice"
        try:
            shared_mailbox.check_post(key, wanted.shared, envelope)
        except RemoteError:
            return "dropped.unproven"
        if not self.copies.spend(key, len(registrations) * (1 + len(envelope) // COPY_BYTES), now_s):
            return "dropped.rate"
        plain = Forward(wanted.next, wanted.envelopes)  # all post the same, so no poster decides when it expires
        for registration in registrations:
            self.counts[self._take(envelope, registration, plain, now_ms)] += 1
        self.store.note(digest, now_s + self.limits.dedupe_s)
        return "shared"

    def _expires(self, wanted: Forward, now_s: int) -> int:
        """When a forwarded message expires, UTC seconds."""
        latest = now_s + self.limits.age_s
        return latest if wanted.expires_time is None else min(latest, wanted.expires_time)

    def _unwrapped(self, wanted: Forward, session: Session, now_ms: int, depth: int) -> Outcome:
        """A forward to ourselves: a detour of ours, or an envelope rewrapped by another mediator."""
        if depth == 0:
            raise Malformed(why="nested forwards beyond the limit")
        passing = Session(session.handle, stays=False)
        for envelope in wanted.envelopes:
            outcome = self._receive(envelope, passing, now_ms, depth - 1)
            self.counts[outcome.what] += 1
        return Outcome("unwrapped")

    def _take(self, envelope: bytes, registration: Registration, wanted: Forward, now_ms: int) -> str:
        now_s = now_ms // 1000
        if len(envelope) > self.limits.envelope_bytes:
            return "dropped.large"
        if not registration.relay:
            try:
                envelope = pickup.deliverable(envelope)
            except Malformed:
                return "dropped.large"
        if self.store.is_known(registration, envelope):
            return "dropped.twice"
        due = routing.ready_at(wanted, now_ms, self._random)
        stays = registration.relay or due > now_ms
        if not self._room.make(registration, len(envelope), stays=stays, is_delayed=due > now_ms):
            return "dropped.full"
        expires = self._expires(wanted, now_s)
        detour = mixing.detour(wanted.mix, self.mix_nodes, self._random, self._noise_chance)
        if detour is not None:
            around = self._around(envelope, registration, detour, expires)
            self.store.delay(registration, detour.via, around, due, expires, digest=self._random(16))
            return "detoured"
        if registration.relay:
            self.store.delay(registration, self._address_of(registration), envelope, due, expires)
            return "relayed"
        if due > now_ms:
            self.store.delay(registration, None, envelope, due, expires)
            return "delayed"
        self._keep(registration, envelope, now_s, expires)
        return "kept"

    def _address_of(self, registration: Registration) -> str:
        """The DID with the addresses to relay to: the registered one, or for a key that of its recipient."""
        if registration.long_did.startswith("did:") and not registration.long_did.startswith("did:key:"):
            return registration.long_did
        recipient = self.store.recipient_numbered(registration.recipient)
        return registration.long_did if recipient is None else recipient.long_did

    def _around(self, envelope: bytes, registration: Registration, detour: mixing.Detour, expires: int) -> bytes:
        """The envelope wrapped for a detour through another mediator back to us, which learns only that it is for
        us."""
        profile: Profile = "didcomm/v2"
        home = routing.rewrap(
            envelope,
            self.identity.did,
            inner=registration.long_did,
            resolve=self.resolve,
            random=self._random,
            profile=profile,
            expires_time=expires,
        )
        return routing.rewrap(
            home,
            detour.via,
            inner=self.identity.did,
            resolve=self.resolve,
            random=self._random,
            profile=profile,
            mix=detour.mix,
            noise=detour.noise,
            expires_time=expires,
        )

    def _keep(self, registration: Registration, envelope: bytes, now_s: int, expires: int) -> None:
        self.store.store(registration, b64url(self._random(16)), envelope, now_s, expires)
        self.handlers.changed.add(registration.recipient)

    # --- deliveries and relays --------------------------------------------------------------------------------------

    def pushes(self, now_s: int) -> list[Push]:
        """The live deliveries due now, after a transaction. What is lost is fetched later."""
        pushes: list[Push] = []
        changed, self.handlers.changed = self.handlers.changed, set()
        for recipient in changed:
            for session in tuple(self.handlers.live.get(recipient, ())):
                try:
                    pushes += self._push(session, now_s)
                except RemoteError:  # no matching key: the recipient has to fetch
                    self.counts["unpushable"] += 1
                    self.handlers.close(session)
        return pushes

    def _push(self, session: Session, now_s: int) -> list[Push]:
        pushes: list[Push] = []
        recipient = session.recipient and self.store.recipient_numbered(session.recipient.id)
        while recipient is not None:
            room = self.limits.window - len(session.in_flight)
            if room <= 0 or session.bytes_in_flight >= self.limits.window_bytes:
                break
            limit = min(room, pickup.DELIVERY_MAX)
            found = self.store.fetch(recipient.id, limit, after=session.after)
            parcels = self.handlers.parcels(found, session, now_s, limit)
            if not parcels:
                break
            session.after = found[len(parcels) - 1].seq
            profile, version = session.live
            message = pickup.delivery(parcels, self._random, version=version)
            to = recipient.did if profile == "didcomm/v1" else recipient.long_did
            pushes.append(Push(session.handle, self._sealed_as(profile, message, to, recipient.pairwise_did)))
        return pushes

    def settle_post(self, ticket: int, why: str) -> Push | None:
        """The result of a relayed post, for the recipient that has requested it; None: it is no such post."""
        settled = self.handlers.posts.settle(ticket, why)
        if settled is None:
            return None
        one, result = settled
        self.counts["unposted" if why else "posted"] += 1
        if why and why != relayed_post.BUSY:
            self.handlers.charge_failed_post(one.recipient)
        try:
            message = relayed_post.posted(one.incoming, result, self._random)
            return Push(one.handle, self.sealed(message, one.sender, one.ours))
        except RemoteError:  # an answer that does not fit a message, or a DID that is gone
            return None

    @property
    def has_room(self) -> bool:
        """Whether more envelopes may be dispatched at once."""
        return len(self._sent) < self.limits.relays_at_once

    def _busy(self) -> list[int]:
        """Recipients with the maximum of dispatches in flight: their addresses may never answer."""
        each = Counter(self._sent.values())
        return [recipient for recipient, count in each.items() if count >= self.limits.relays_each]

    def next_due(self) -> int | None:
        """When `due` has something to do, UTC ms; None: not before another event."""
        return self.store.next_due(sending=self.has_room, busy=self._busy())

    def due(self, now_ms: int) -> list[Dispatch]:
        """The dispatches due now; delayed messages are moved to their queues."""
        dispatches = []
        for row in self.store.due(now_ms, self.limits.relays_at_once, sending=self.has_room, busy=self._busy()):
            if row.target is None:
                self.store.done(row.seq, None)
                self._keep(row.registration, row.envelope, now_ms // 1000, row.expires)
            elif row.seq in self._sent:
                self.store.postpone(row.seq, now_ms + IN_FLIGHT_MS, row.tries)
            elif self.has_room and row.registration.recipient not in self._busy():
                dispatch = self._dispatch(row, row.target)
                if dispatch is None:
                    self._later(row, now_ms)
                    continue
                self.store.postpone(row.seq, now_ms + IN_FLIGHT_MS, row.tries)
                self._sent[row.seq] = row.registration.recipient
                dispatches.append(dispatch)
        return dispatches

    def _dispatch(self, row: DelayedMessage, target: str) -> Dispatch | None:
        """A dispatch to the next of the target's addresses, in turn; None: unreachable now."""
        found = deliverable_routes(target, self.resolve)
        if not found:
            return None
        way = found[row.tries % len(found)]
        envelope = row.envelope
        try:
            if way.routing_keys:
                is_v2 = way.takes("didcomm/v2")
                envelope = routing.wrap(
                    envelope,
                    way,
                    target if is_v2 else row.registration.long_did or target,
                    resolve=self.resolve,
                    random=self._random,
                    profile="didcomm/v2" if is_v2 else "didcomm/v1",
                    expires_time=row.expires,
                )
            media_type = PACKERS[envelope_kind(envelope)].media_type
        except RemoteError:
            return None
        return Dispatch(row.seq, way.uri, envelope, media_type)

    def dispatched(self, ticket: int, why: str | None, now_ms: int) -> None:
        """The result of a dispatch: delivered (None), or the reason as in `Failed`."""
        self._sent.pop(ticket, None)
        if why is None:
            self.store.done(ticket, now_ms // 1000 + self.limits.dedupe_s)
            self.counts["sent"] += 1
            return
        self.counts["unsent"] += 1
        row = self.store.delayed(ticket)
        if row is not None and 400 <= http_status(why) < 500 and row.tries >= self.limits.refusals:
            self.store.done(ticket, None)  # the address may have been registered to harass its owner
            self.counts["dropped.refused"] += 1
        elif row is not None:
            self._later(row, now_ms)

    def _later(self, row: DelayedMessage, now_ms: int) -> None:
        pause = min(self.limits.relay_retry_s << min(row.tries, 20), self.limits.relay_retry_s_max)
        self.store.postpone(row.seq, now_ms + pause * 1000, row.tries + 1)

    def in_flight(self) -> dict[int, int]:
        """Recipients by ticket of the dispatches in flight."""
        return dict(self._sent)

    def undo(self, in_flight: dict[int, int]) -> None:
        """Restore the state before a failed transaction."""
        self._sent = dict(in_flight)
        self.handlers.posts.undo()
        self.handlers.changed.clear()
        self.handlers.links_changed.clear()

    def sweep(self, now_s: int) -> bool:
        """Delete expired messages; True: there may be more."""
        self.copies.sweep(now_s)
        gone, more = self.store.sweep(now_s, self.limits.recipient_idle_s, self.limits.unused_idle_s)
        self.counts["swept"] += gone
        return more

    def closed(self, session: Session) -> None:
        """A connection has ended."""
        self.handlers.close(session)
