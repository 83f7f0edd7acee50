"""A mediator without sockets: what it hears, what it keeps, and what it says.

Whoever posts a forward is anonymous, and learns nothing: whether the recipient exists, whether its queue is full,
whether the envelope could be read, the answer is always the same. So every refusal here is a count and no more. Only
whoever knows a key that its recipient has proven to be its own can ask for a receipt for what is kept for it (`held.py`
has what that tells).

    with store.turn():                     everything that came in together
        outcome = mediator.hear(…)         … is heard, and written
    mediator.pushes(…)                     then it may be told: answers, live deliveries, what is sent on
"""

from collections import Counter
from collections.abc import Callable

from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.pairwise_dids import Pairwise
from zerochat.agent.mediator.protocol_handlers import Clerk, Policy
from zerochat.agent.mediator.registry import canonical, own_secrets, ways
from zerochat.agent.mediator.session import Session
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.tables import Due, Place
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import PublicKey
from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.did import Document, Identity, resolve, short_form
from zerochat.didcomm.layers import MediaType, open_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import PACKERS, Profile, envelope_kind
from zerochat.didcomm.protocols import (
    STANDARD,
    mediation,
    mediator_receipt,
    mixing,
    pickup,
    problem,
    routing,
    standard_answer,
)
from zerochat.didcomm.protocols.features import Features
from zerochat.didcomm.protocols.routing import UNWRAP_DEPTH_MAX, Forward
from zerochat.errors import Malformed, RemoteError, Unauthentic

SPOKEN = STANDARD | Features(
    protocols=(
        (routing.PROTOCOL, ("mediator",)),
        (mediation.PROTOCOL + "2.0", ("mediator",)),
        (mediation.PROTOCOL + "3.0", ("mediator",)),
        (pickup.PROTOCOL, ("mediator",)),
    )
)
UNSUPPORTED = "e.m.msg.unsupported"
UNDER_WAY_MS = 30_000
"""When to look again after what is under way to another address; after a crash it is sent again then."""


class Outcome(Veiled, frozen=True):
    """What became of an envelope: a word for the statistics, and the answer over the same connection, if any."""

    VEILED = ("answer",)

    what: str
    answer: bytes | None = None
    media_type: str = MediaType.ENCRYPTED
    """Of the answer."""


class Push(Veiled, frozen=True):
    """An envelope for a live connection."""

    VEILED = ("envelope",)

    handle: int
    envelope: bytes


class Dispatch(Veiled, frozen=True):
    """An envelope for another address; `ticket` comes back in `dispatched`."""

    VEILED = ("envelope",)

    ticket: int
    uri: str
    envelope: bytes
    media_type: str


class Mediator:
    """Everything but sockets and the clock. `hear`, `due`, `dispatched` and `sweep` want a turn of the store."""

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
        """`uris`: under which others reach this mediator; what is registered with one of them waits here."""
        self.store, self.identity, self.limits = store, identity, limits or Limits()
        self._random, self._noise_chance = random, noise_chance
        self.mix_nodes: tuple[str, ...] = ()
        """The DIDs of mediators that let our detours through."""
        self._pairwise = Pairwise(identity, uris, random)
        own = frozenset({identity.short, *own_secrets(identity), *uris, *(uri.rstrip("/") for uri in uris)})
        self.clerk = Clerk(store, self.limits, policy, identity.did, own, self._pairwise, self.resolve, random)
        self._sent: dict[int, int] = {}
        """What is under way to other addresses: its number in the store, and for which recipient."""

    @property
    def counts(self) -> Counter[str]:
        return self.clerk.counts

    def resolve(self, did: str) -> Document:
        """The document of a DID; of a recipient's in its short form too. Raises Malformed."""
        known = None
        if did.startswith("did:peer:4") and ":" not in did[len("did:peer:4") :]:
            found = self.store.recipient(did)
            known = None if found is None else {did: found.long}
        return resolve(did, known)

    # --- hearing ----------------------------------------------------------------------------------------------------

    def hear(self, envelope: bytes, session: Session, now_ms: int) -> Outcome:
        """An envelope from somebody."""
        try:
            outcome = self._hear(envelope, session, now_ms, UNWRAP_DEPTH_MAX)
        except RemoteError:
            outcome = Outcome("unreadable")
        self.counts[outcome.what] += 1
        return outcome

    def _hear(self, envelope: bytes, session: Session, now_ms: int, depth: int) -> Outcome:
        profile = envelope_kind(envelope)
        unpacked = PACKERS[profile].unpack(envelope, secret_of=self._pairwise.secret_of, public_of=self._public_of)
        if unpacked.kind == "anoncrypt":
            try:
                wanted = routing.forward_in(unpacked.plain)
            except Malformed:
                wanted = None  # another layer, perhaps
            if wanted is not None:
                return self._forward(wanted, session, now_ms, depth)
        opened = open_layers(envelope, secret_of=self._pairwise.secret_of, resolve=self.resolve)
        if routing.is_forward(opened.message):
            return self._forward(routing.read_forward(opened.message), session, now_ms, depth)
        if opened.sender is None or opened.profile != "didcomm/v2":
            raise Unauthentic()  # a signature does not do: its DID may have no key to seal an answer or a delivery for
        ours = (opened.recipient_kid or "").partition("#")[0]
        return self._message(opened.message, opened.sender, ours, session, now_ms // 1000)

    def _public_of(self, kid: str) -> PublicKey:
        return self.resolve(kid.partition("#")[0]).agreement_key(kid)

    def _message(self, message: Message, sender: str, ours: str, session: Session, now_s: int) -> Outcome:
        if message.expires_time is not None and message.expires_time <= now_s:
            return Outcome("expired")
        if message.return_route in ("all", "none") and session.stays:
            session.returns = message.return_route == "all"
        self.clerk.rotated(message, sender)
        self.clerk.addressed(sender, ours)
        reply = self.clerk.answer(message, sender, ours, session, now_s)
        if reply is None and mediation.kind_of(message) is None and pickup.kind_of(message) is None:
            reply = standard_answer(message, disclosed=SPOKEN, random=self._random)
            if reply is None and problem.may_report(message) and self.clerk.recipient(sender, now_s) is not None:
                reply = problem.problem(UNSUPPORTED, message, self._random)
        if reply is None or not (session.returns or message.return_route in ("all", "thread")):
            return Outcome("heard")
        return Outcome("answered", self.sealed(reply, sender, ours))

    def opened(self, envelope: bytes) -> tuple[Message, str]:
        """A message whose sender is proven, and who that is. Raises RemoteError."""
        opened = open_layers(envelope, secret_of=self._pairwise.secret_of, resolve=self.resolve)
        if opened.sender is None or opened.profile != "didcomm/v2":
            raise Unauthentic()
        return opened.message, opened.sender

    def sealed(self, message: Message, to: str, ours: str | None = None) -> bytes:
        """What we say to a DID as its mediator: to a recipient under the DID that is for it; to anybody else under
        `ours`. None: as one agent to another, under the public one. Raises Malformed, Unauthentic for a DID without a
        key that fits ours."""
        recipient = None if ours is None else self.store.recipient(short_form(to))
        return self._pairwise.sealed(message, to, self.resolve(to), recipient, ours or self.identity.did)

    # --- forwards ---------------------------------------------------------------------------------------------------

    def _forward(self, wanted: Forward, session: Session, now_ms: int, depth: int) -> Outcome:
        now_s = now_ms // 1000
        if wanted.expires_time is not None and wanted.expires_time <= now_s:
            return Outcome("dropped.expired")
        name = canonical(wanted.next)
        if self._pairwise.is_ours(name):
            return self._unwrapped(wanted, session, now_ms, depth)
        place = self.store.place(name)
        if place is None:
            return Outcome("dropped.unknown")
        outcomes = [self._take(envelope, place, wanted, now_ms) for envelope in wanted.envelopes]
        for what in outcomes[1:]:
            self.counts[what] += 1
        # Of what was here before we say nothing: whether it is there still, its recipient alone need know.
        if not wanted.wants_receipt or not place.proven or outcomes != ["kept"]:
            return Outcome(outcomes[0])
        self.counts["receipts"] += 1
        until = self._expires(wanted, now_s)
        receipt = mediator_receipt.receipt(wanted.envelopes[0], until, self.identity, self._random)
        return Outcome("kept", receipt, MediaType.SIGNED)

    def _expires(self, wanted: Forward, now_s: int) -> int:
        """When what came in a forward is thrown away, UTC seconds."""
        latest = now_s + self.limits.age_s
        return latest if wanted.expires_time is None else min(latest, wanted.expires_time)

    def _unwrapped(self, wanted: Forward, session: Session, now_ms: int, depth: int) -> Outcome:
        """A forward for ourselves holds what we had sent on a detour, or what another mediator has wrapped again."""
        if depth == 0:
            raise Malformed(why="forwards inside forwards")
        passing = Session(session.handle, stays=False)
        for envelope in wanted.envelopes:
            outcome = self._hear(envelope, passing, now_ms, depth - 1)
            self.counts[outcome.what] += 1
        return Outcome("unwrapped")

    def _take(self, envelope: bytes, place: Place, wanted: Forward, now_ms: int) -> str:
        now_s = now_ms // 1000
        if len(envelope) > self.limits.envelope_bytes:
            return "dropped.large"
        if not place.relay:
            try:
                envelope = pickup.deliverable(envelope)
            except Malformed:
                return "dropped.large"
        if self.store.is_known(place, envelope):
            return "dropped.twice"
        due = routing.ready_at(wanted, now_ms, self._random)
        if not self._has_room(place.recipient, len(envelope), is_delayed=due > now_ms):
            return "dropped.full"
        expires = self._expires(wanted, now_s)
        detour = mixing.detour(wanted.mix, self.mix_nodes, self._random, self._noise_chance)
        if detour is not None:
            around = self._around(envelope, place, detour, expires)
            self.store.wait(place, detour.via, around, due, expires, digest=self._random(16))
            return "detoured"
        if place.relay:
            self.store.wait(place, place.long, envelope, due, expires)
            return "relayed"
        if due > now_ms:
            self.store.wait(place, None, envelope, due, expires)
            return "delayed"
        self._keep(place, envelope, now_s, expires)
        return "kept"

    def _has_room(self, recipient: int, size: int, *, is_delayed: bool) -> bool:
        """Whether a message of so many bytes may wait for a recipient."""
        limits, usage, aside = self.limits, self.store.usage[recipient], self.store.aside[recipient]
        left = limits.total_bytes - self.store.total.bytes
        share = min(limits.bytes, limits.bytes * 4 * left // limits.total_bytes)
        if size > left or usage.bytes + size > share or usage.messages >= limits.messages:
            return False
        part = limits.delayed_part
        return not is_delayed or (aside.messages < limits.messages // part and aside.bytes + size <= share // part)

    def _around(self, envelope: bytes, place: Place, detour: mixing.Detour, expires: int) -> bytes:
        """The envelope on its way through another mediator and back to us: that one learns only that it is for us."""
        profile: Profile = "didcomm/v2"
        home = routing.rewrap(
            envelope,
            self.identity.did,
            inner=place.long,
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

    def _keep(self, place: Place, envelope: bytes, now_s: int, expires: int) -> None:
        self.store.keep(place, b64url(self._random(16)), envelope, now_s, expires)
        self.clerk.stirred.add(place.recipient)

    # --- what goes out by itself ------------------------------------------------------------------------------------

    def pushes(self, now_s: int) -> list[Push]:
        """What live connections are to get now. Call it after a turn; what does not reach them is asked for again."""
        pushes: list[Push] = []
        stirred, self.clerk.stirred = self.clerk.stirred, set()
        for recipient in stirred:
            for session in tuple(self.clerk.live.get(recipient, ())):
                try:
                    pushes += self._push(session, now_s)
                except RemoteError:  # nothing can be sealed for it, so it must come and ask
                    self.counts["unpushable"] += 1
                    self.clerk.close(session)
        return pushes

    def _push(self, session: Session, now_s: int) -> list[Push]:
        pushes: list[Push] = []
        recipient = session.recipient and self.store.recipient_numbered(session.recipient.id)
        while recipient is not None:
            room = self.limits.window - len(session.under_way)
            if room <= 0 or session.bytes_under_way >= self.limits.window_bytes:
                break
            limit = min(room, pickup.DELIVERY_MAX)
            found = self.store.fetch(recipient.id, limit, after=session.after)
            parcels = self.clerk.parcels(found, session, now_s, limit)
            if not parcels:
                break
            session.after = found[len(parcels) - 1].seq
            message = pickup.delivery(parcels, self._random)
            pushes.append(Push(session.handle, self.sealed(message, recipient.long, recipient.own)))
        return pushes

    @property
    def has_room(self) -> bool:
        """Whether more may be sent to other addresses at once."""
        return len(self._sent) < self.limits.relays_at_once

    def _busy(self) -> list[int]:
        """The recipients for whom no more may be sent on at once: their addresses may be ones that never answer."""
        each = Counter(self._sent.values())
        return [recipient for recipient, count in each.items() if count >= self.limits.relays_each]

    def next_due(self) -> int | None:
        """When `due` has something to do, in UTC milliseconds; None: not before something else happens."""
        return self.store.next_due(sending=self.has_room, busy=self._busy())

    def due(self, now_ms: int) -> list[Dispatch]:
        """What is to be sent on now; what was delayed is put into its queue."""
        dispatches = []
        for row in self.store.due(now_ms, self.limits.relays_at_once, sending=self.has_room, busy=self._busy()):
            if row.target is None:
                self.store.done(row.seq, None)
                self._keep(row.place, row.envelope, now_ms // 1000, row.expires)
            elif row.seq in self._sent:
                self.store.postpone(row.seq, now_ms + UNDER_WAY_MS, row.tries)
            elif self.has_room and row.place.recipient not in self._busy():
                dispatch = self._dispatch(row, row.target)
                if dispatch is None:
                    self._later(row, now_ms)
                    continue
                self.store.postpone(row.seq, now_ms + UNDER_WAY_MS, row.tries)
                self._sent[row.seq] = row.place.recipient
                dispatches.append(dispatch)
        return dispatches

    def _dispatch(self, row: Due, target: str) -> Dispatch | None:
        """The next of the target's addresses, in turn; None: it cannot be reached now."""
        found = ways(target, self.resolve)
        if not found:
            return None
        way = found[row.tries % len(found)]
        envelope = row.envelope
        try:
            if way.routing_keys:
                envelope = routing.wrap(
                    envelope, way, target, resolve=self.resolve, random=self._random, expires_time=row.expires
                )
            media_type = PACKERS[envelope_kind(envelope)].media_type
        except RemoteError:
            return None
        return Dispatch(row.seq, way.uri, envelope, media_type)

    def dispatched(self, ticket: int, why: str | None, now_ms: int) -> None:
        """What became of a dispatch: delivered (None), or why not, as `Failed` says it."""
        self._sent.pop(ticket, None)
        if why is None:
            self.store.done(ticket, now_ms // 1000 + self.limits.dedupe_s)
            self.counts["sent"] += 1
            return
        self.counts["unsent"] += 1
        row = self.store.waiting(ticket)
        if row is not None and why.startswith("status 4") and row.tries >= self.limits.refusals:
            self.store.done(ticket, None)  # whoever registered that address may have meant to bother its owner
            self.counts["dropped.refused"] += 1
        elif row is not None:
            self._later(row, now_ms)

    def _later(self, row: Due, now_ms: int) -> None:
        pause = min(self.limits.relay_retry_s << min(row.tries, 20), self.limits.relay_retry_s_max)
        self.store.postpone(row.seq, now_ms + pause * 1000, row.tries + 1)

    def under_way(self) -> dict[int, int]:
        """The tickets of dispatches that have not come back, and their recipients."""
        return dict(self._sent)

    def undo(self, under_way: dict[int, int]) -> None:
        """The turn has not happened: under way is what was so before it."""
        self._sent = dict(under_way)
        self.clerk.stirred.clear()

    def sweep(self, now_s: int) -> bool:
        """Take away what has expired; True when there may be more of it."""
        gone, more = self.store.sweep(now_s, self.limits.recipient_idle_s)
        self.counts["swept"] += gone
        return more

    def closed(self, session: Session) -> None:
        """A connection is gone."""
        self.clerk.close(session)
