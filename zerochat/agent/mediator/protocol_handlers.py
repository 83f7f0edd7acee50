"""Protocol handlers for recipients: coordinate-mediation, pickup, short links, relayed posts, shared mailboxes.

Senders are authenticated. Changes are written in the current transaction, and answers sent after it.
"""

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from zerochat.agent.mediator import v1_recipients
from zerochat.agent.mediator.batches import BYTES_PER_REQUEST, Batches, fitting
from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.pairwise_dids import PairwiseDids
from zerochat.agent.mediator.registry import canonical, is_relayed, key_names
from zerochat.agent.mediator.relayed_posts import RelayedPosts
from zerochat.agent.mediator.sessions import Policy, Session
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.tables import QueuedMessage, Recipient
from zerochat.didcomm.did import DID_CHARS_MAX, Document, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import (
    STANDARD,
    mediation,
    pickup,
    problem,
    relayed_post,
    routing,
    shared_mailbox,
    short_links,
)
from zerochat.didcomm.protocols.features import Features
from zerochat.didcomm.protocols.mediation import Change, Changed, Grant, Listed, Result
from zerochat.didcomm.protocols.pickup import DELIVERY_MAX, Parcel, Waiting
from zerochat.didcomm.protocols.routing import as_did
from zerochat.didcomm.protocols.shared_mailbox import Share
from zerochat.didcomm.rotation import prior_did, verify_from_prior
from zerochat.errors import RemoteError

SPOKEN = STANDARD | Features(
    protocols=(
        *v1_recipients.ROLES,
        (routing.PROTOCOL, ("mediator",)),
        *((mediation.PROTOCOL + version, ("mediator",)) for version in mediation.VERSIONS),
        *((vocabulary.protocol, ("mediator",)) for vocabulary in pickup.VOCABULARIES.values()),
        (short_links.PROTOCOL, ("mediator",)),
        (relayed_post.PROTOCOL, ("mediator",)),
        (shared_mailbox.PROTOCOL, ("mediator",)),
    )
)
REQUESTED = (mediation, pickup, relayed_post, shared_mailbox, short_links)
"""The protocols that only recipients use."""
HEARD_EVERY_S = 3_600
"""Resolution of `last_seen`."""
NOT_GRANTED = "e.p.req"
IN_FLIGHT_MAX = 1_024
"""Unacknowledged messages of one connection."""
IDS_PER_REQUEST = 16
"""Message ids in an acknowledgement that are charged as one request more."""
ROWS_PER_REQUEST = 256
"""Stored messages of a DID whose status is requested that are charged as one request more: they are counted."""
ANSWER_REQUESTS = 16
"""What an answer costs that is posted: its address may have been named to harass its owner."""
FAILED_POST_REQUESTS = 64
"""What a relayed post costs that fails: its address may have been named to harass its owner."""


class ProtocolHandlers:
    """Answers recipients' requests. `changed`: recipients with possible live deliveries."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        policy: Policy,
        routing_did: str,
        own: frozenset[str],
        pairwise: PairwiseDids,
        resolve: Callable[[str], Document],
        random: Callable[[int], bytes],
        at: Grant | None = None,
    ) -> None:
        """`at`: where senders post that know only keys; None: they cannot."""
        self._at = at
        self._store, self._limits, self._policy = store, limits, policy
        self._routing_did, self._own, self._pairwise = routing_did, own, pairwise
        self._resolve, self._random = resolve, random
        self.counts: Counter[str] = Counter()
        self._batches = Batches(store, limits, self._charge_more, self.counts, random)
        self.posts = RelayedPosts(limits)
        self.live: dict[int, list[Session]] = {}
        """Connections in live mode, by recipient."""
        self._seats, self._seats_at = float(limits.seats_burst), 0
        """Recipients that the rate admits now, and since when (UTC seconds)."""
        self.changed: set[int] = set()
        self.links_changed: dict[str, tuple[bytes, int] | None] = {}
        """Changed short links by id: sealed bytes and expiry (UTC seconds); None: dropped."""

    def recipient(self, sender: str, now_s: int) -> Recipient | None:
        """The recipient with this DID, in either form; None: unknown."""
        found = self._store.recipient(short_form(sender))
        if found is not None and now_s - found.last_seen >= HEARD_EVERY_S:
            self._store.touch(found.id, now_s)
        return found

    def charge(self, recipient: Recipient, now_s: int) -> bool:
        """Charge a request to its recipient; False: it exceeds its rate."""
        self._store.usage.work[recipient.id].requests += 1
        return self._charge_more(recipient, 1, now_s)

    def _charge_more(self, recipient: Recipient, cost: int, now_s: int) -> bool:
        """Charge what a request causes, as so many requests more; False: it exceeds its recipient's rate."""
        work, limits = self._store.usage.work[recipient.id], self._limits
        work.allowance = min(work.allowance + max(now_s - work.at, 0) * limits.requests_per_s, limits.requests_burst)
        work.at = now_s
        if work.allowance < cost:
            self.counts["throttled"] += 1
            return False
        work.allowance -= cost
        return True

    def rotated(self, message: Message, sender: str) -> None:
        """Record the rotation of a recipient's DID, signed by the old one.

        Raises RemoteError for an invalid signature.
        """
        if message.from_prior is None or self._store.recipient(short_form(sender)) is not None:
            return
        recipient = self._store.recipient(short_form(prior_did(message.from_prior)))
        if recipient is not None:
            verify_from_prior(message.from_prior, self._resolve(recipient.long_did), sender)
            self._store.rotate(recipient.id, short_form(sender), self._resolve(sender).did)

    def addressed(self, sender: str, ours: str) -> None:
        """Record whether the recipient has addressed its pairwise DID."""
        recipient = self._store.recipient(short_form(sender))
        if recipient is not None and recipient.rotation_confirmed != (recipient.pairwise_did == ours):
            self._store.confirm_rotation(recipient.id, confirmed=not recipient.rotation_confirmed)

    def answer(self, message: Message, sender: str, ours: str, session: Session, now_s: int) -> Message | bytes | None:
        """The answer to a mediation or pickup message that was addressed to our DID `ours`, or the next stored envelope
        for a `noop`; None: another protocol. Raises RemoteError."""
        asked, fetched, linked = mediation.kind_of(message), pickup.kind_of(message), short_links.kind_of(message)
        relayed, shared = relayed_post.kind_of(message), shared_mailbox.kind_of(message)
        if asked is None and fetched is None and linked is None and relayed is None and shared is None:
            return None
        recipient = self.recipient(sender, now_s)
        if recipient is not None:
            session.owner = session.owner or recipient.id
        if recipient is not None and not self.charge(recipient, now_s):
            return None
        if asked is not None and asked[1] == "request":
            return self._request(message, sender, ours, recipient, session, now_s)
        if recipient is None:
            self.counts["unknown_sender"] += 1
            return self._not_granted(message, session, is_mediation=asked is not None)
        if shared is not None:
            return self._keep_shares(message, sender, ours, recipient, now_s) if shared == "keep" else None
        match asked[1] if asked is not None else fetched or linked or relayed:
            case "post":
                return self._post(message, sender, ours, recipient, session, now_s)
            case "publish":
                return self._publish(message, recipient, now_s)
            case "keep":
                self._keep_links(message, recipient, now_s)
            case "update":
                return self._update(message, sender, ours, recipient, now_s)
            case "query":
                return self._query(message, recipient)
            case "status-request":
                return self._status(message, recipient, session, now_s, pickup.read_status_request(message))
            case "delivery-request":
                once = pickup.version_of(message) == "1.0"
                return (self._batches.batch if once else self._deliver)(message, recipient, session, now_s)
            case "messages-received":
                return self._received(message, recipient, session, now_s)
            case "live-delivery-change":
                return self._live(message, recipient, session, now_s)
            case "list-request":
                return self._batches.listed(message, recipient, session, now_s)
            case "noop":
                return self._batches.next_envelope(message, recipient, session, now_s)
        return None

    def _not_granted(self, message: Message, session: Session, *, is_mediation: bool) -> Message:
        text = "No mediation was granted to this DID."
        if session.profile == "didcomm/v1" and is_mediation:
            return problem.problem_v1(mediation.NOT_GRANTED_V1, message, text, self._random, mediation.PROBLEM_V1)
        return problem.report(NOT_GRANTED, message, self._random, session.profile, text)

    # --- mediation --------------------------------------------------------------------------------------------------

    def _request(
        self, message: Message, sender: str, ours: str, recipient: Recipient | None, session: Session, now_s: int
    ) -> Message:
        asked = mediation.kind_of(message)
        assert asked is not None
        if asked[0] == "1.0" and self._at is None:
            return mediation.deny(message, self._random)
        if recipient is None and self.admit(message, sender, self._resolve(sender).did, ours, session, now_s):
            return mediation.deny(message, self._random)
        return mediation.grant(message, self._routing_did, self._random, self._at)

    def admit(self, message: Message, sender: str, long_did: str, ours: str, session: Session, now_s: int) -> str:
        """Make the sender a recipient, unless it is one; why not, as a counter name; empty: it is one now.

        `long_did`: the DID that has its addresses, if any; `ours`: the DID of ours that it has addressed.
        """
        if self.recipient(sender, now_s) is not None:
            return ""
        why = self._why_denied(message, now_s)
        if why:
            self.counts[why] += 1
            return why
        invitation = self._policy.invitation_of(message)
        self._store.grant(short_form(sender), long_did, self._own_did(ours), now_s, invitation)
        self.addressed(sender, ours)
        self.counts["granted"] += 1
        granted = self._store.recipient(short_form(sender))
        session.owner = session.owner or (0 if granted is None else granted.id)
        return ""

    def _why_denied(self, message: Message, now_s: int) -> str:
        """Why a new recipient is denied, as a counter name; empty: it is granted, and takes a seat of the rate."""
        policy, limits = self._policy, self._limits
        invitation = policy.invitation_of(message)
        if not invitation and not policy.is_open:
            return "denied"
        if invitation and not policy.is_open and self._store.seats(invitation) >= policy.invitations[invitation]:
            return "denied.uses"
        if self._store.recipients() >= limits.recipients:
            return "denied.full"
        earned = max(now_s - self._seats_at, 0) / limits.seat_every_s
        self._seats, self._seats_at = min(self._seats + earned, limits.seats_burst), now_s
        if self._seats < 1:
            return "denied.rate"
        self._seats -= 1
        return ""

    def _own_did(self, ours: str) -> str:
        """Our DID for a new recipient: the addressed one, if it was its pairwise DID before a deletion, else a new
        one."""
        return self._pairwise.new() if ours == self._routing_did or self._store.is_own(ours) else ours

    def _update(self, message: Message, sender: str, ours: str, recipient: Recipient, now_s: int) -> Message | None:
        """A replayed update must not revert later changes."""
        changes = mediation.read_update(message)
        if not self._store.is_fresh(recipient.id, message.id, now_s):
            return None
        if not self._charge_more(recipient, len(changes), now_s):
            return None
        changed = [Changed(each.did, each.action, self._change(each, sender, ours, recipient)) for each in changes]
        return mediation.update_response(message, changed, self._random)

    def _change(self, change: Change, sender: str, ours: str, recipient: Recipient) -> Result:
        try:
            name = canonical(change.did)
        except RemoteError:
            return "client_error"
        registration = self._store.registration(name)
        if change.action == "remove":
            if registration is None or registration.recipient != recipient.id:
                return "no_change"
            self._store.unregister(registration)
            return "success"
        if name in self._own or self._pairwise.is_ours(name) or len(change.did) > DID_CHARS_MAX:
            return "client_error"
        proven = mediation.is_proven(change, sender, ours, self._resolve)
        if registration is not None and registration.recipient == recipient.id:
            if proven:
                self._store.prove(name)
            return "no_change"
        if registration is not None and not proven:
            return "client_error"
        if self._store.shares(recipient.id) >= self._limits.dids:
            return "client_error"
        names, relay = self._facts(change.did, recipient)
        if proven:
            for each in (name, *(names if name.startswith("did:key:") else ())):
                self._evict(each, recipient)
        self._store.register(recipient.id, name, change.did, names, relay, proven=proven)
        return "success"

    def _evict(self, name: str, recipient: Recipient) -> None:
        """A name belongs to the owner of its key; remove another recipient's unproved registration."""
        registration = self._store.registration(name)
        if registration is not None and registration.recipient != recipient.id:
            self._store.evict(name)
            self.counts["evicted"] += 1

    def _facts(self, did: str, recipient: Recipient) -> tuple[tuple[str, ...], bool]:
        """The key names of a DID, and whether it is relayed; an unresolvable DID is stored.

        The keys of a recipient of v1 are relayed if its own DID has an address: some agents cannot fetch (ACA-Py).
        """
        try:
            document = self._resolve(as_did(did).partition("#")[0])
            is_v1 = recipient.did.startswith("did:key:") and not document.services
            addressed = self._resolve(recipient.long_did) if is_v1 else document
        except RemoteError:
            return (), False
        return key_names(document), is_relayed(addressed, self._own, self._resolve)

    def _query(self, message: Message, recipient: Recipient) -> Message:
        page = mediation.read_query(message)
        dids = self._store.listing(recipient.id, page.offset, page.limit)
        remaining = max(self._store.dids(recipient.id) - page.offset - len(dids), 0)
        return mediation.listing(message, Listed(tuple(dids), page.offset, remaining), self._random)

    # --- pickup -----------------------------------------------------------------------------------------------------

    def _status(
        self, message: Message, recipient: Recipient, session: Session, now_s: int, did: str | None = None
    ) -> Message | None:
        if did is None:
            waiting = self._store.queue_status(recipient.id)
        else:
            registration = self._store.registration(canonical(did))
            mine = registration is not None and registration.recipient == recipient.id
            number = registration.did if registration is not None and mine else 0
            if not self._charge_more(recipient, self._store.usage.of_did(number).messages // ROWS_PER_REQUEST, now_s):
                return None
            waiting = self._store.queue_status(recipient.id, number)
        count, size, oldest, newest = waiting
        live = session.recipient is not None and session.recipient.id == recipient.id
        return pickup.status(message, Waiting(count, size, oldest, newest, live, did), now_s, self._random)

    def _deliver(self, message: Message, recipient: Recipient, session: Session, now_s: int) -> Message | None:
        wanted = pickup.read_delivery_request(message)
        number: int | None = None
        if wanted.did is not None:
            registration = self._store.registration(canonical(wanted.did))
            number = registration.did if registration is not None and registration.recipient == recipient.id else 0
        recent = now_s - self._limits.redeliver_s
        for name in [name for name, (_, at) in session.in_flight.items() if at <= recent]:
            del session.in_flight[name]
        found: list[QueuedMessage] = []
        if len(session.in_flight) < IN_FLIGHT_MAX:
            found = self._store.fetch(recipient.id, wanted.limit + len(session.in_flight), did=number)
        fresh = fitting([kept for kept in found if kept.id not in session.in_flight][: wanted.limit])
        version = pickup.version_of(message)
        if not fresh and version != "4.0":
            return self._status(message, recipient, session, now_s, wanted.did)
        if not self._charge_more(recipient, sum(kept.bytes for kept in fresh) // BYTES_PER_REQUEST, now_s):
            return None
        parcels = self.parcels(fresh, session, now_s)
        return pickup.delivery(parcels, self._random, thid=message.thread, did=wanted.did, version=version)

    def parcels(
        self, found: list[QueuedMessage], session: Session, now_s: int, limit: int = DELIVERY_MAX
    ) -> list[Parcel]:
        """The messages that fit one delivery; they count as in flight."""
        parcels: list[Parcel] = []
        for kept in fitting(found[:limit]):
            parcels.append(Parcel(kept.id, self._store.envelope(kept)))
            if session.stays:
                session.in_flight[kept.id] = (kept.bytes, now_s)
        self.counts["delivered"] += len(parcels)
        return parcels

    def _received(self, message: Message, recipient: Recipient, session: Session, now_s: int) -> Message | None:
        names = dict.fromkeys(pickup.read_received(message))
        if not self._charge_more(recipient, len(names) // IDS_PER_REQUEST, now_s):
            return None
        self.counts["acknowledged"] += self._store.acknowledge(recipient.id, names, now_s + self._limits.dedupe_s)
        for each in (session, *self.live.get(recipient.id, ())):
            for name in names:
                each.in_flight.pop(name, None)
        self.changed.add(recipient.id)
        return self._status(message, recipient, session, now_s)

    def _live(self, message: Message, recipient: Recipient, session: Session, now_s: int) -> Message | None:
        if not pickup.read_live_change(message):
            self.close(session)
        elif not session.stays or not session.returns:
            text = "Connection does not support Live Delivery"
            return problem.report(pickup.LIVE_MODE_NOT_SUPPORTED, message, self._random, session.profile, text)
        elif session.recipient is None or session.recipient.id != recipient.id:
            if not self._store.is_fresh(recipient.id, message.id, now_s):
                return None  # a replay
            self.close(session)
            session.recipient, session.after = replace(recipient), self._store.latest()
            session.live = session.profile, pickup.version_of(message)
            connections = self.live.setdefault(recipient.id, [])
            connections.append(session)
            if len(connections) > self._limits.live:
                self.close(connections[0])
        return self._status(message, recipient, session, now_s)

    # --- relayed posts ----------------------------------------------------------------------------------------------

    def _post(
        self, message: Message, sender: str, ours: str, recipient: Recipient, session: Session, now_s: int
    ) -> Message | None:
        if not session.stays or not session.returns:
            return None  # the result needs a connection to come back on
        wanted = relayed_post.read_post(message)
        is_paid = self._charge_more(recipient, len(wanted.envelope) // BYTES_PER_REQUEST, now_s)
        if is_paid and self.posts.request(wanted, message, sender, ours, recipient.id, session.handle):
            return None  # it is answered later
        self.counts["unposted.busy"] += 1
        return relayed_post.posted(message, relayed_post.PostResult(relayed_post.BUSY), self._random)

    def charge_answer(self, recipient: Recipient, now_s: int) -> bool:
        """Charge an answer that is posted to an address that the recipient has named; False: it exceeds its rate."""
        return self._charge_more(recipient, ANSWER_REQUESTS, now_s)

    def charge_failed_post(self, recipient: int) -> None:
        """Charge a relayed post that has failed, as far as the recipient's rate has room."""
        work = self._store.usage.work[recipient]
        work.allowance = max(0.0, work.allowance - FAILED_POST_REQUESTS)

    # --- shared mailboxes -------------------------------------------------------------------------------------------

    def _keep_shares(
        self, message: Message, sender: str, ours: str, recipient: Recipient, now_s: int
    ) -> Message | None:
        """A replayed list must not revert later ones."""
        shares = shared_mailbox.read_keep(message)
        if not self._store.is_fresh(recipient.id, message.id, now_s):
            return None
        if not self._charge_more(recipient, len(shares), now_s):
            return None
        wanted = {}
        for one in shares:
            if (number := self._shared_into(one, sender, ours, recipient)) is not None:
                wanted[one.key] = number
        kept = self._store.shared_mailboxes.keep(recipient.id, wanted, self._limits.share_users)
        self.counts["unshared"] += len(shares) - len(kept)
        return shared_mailbox.kept(message, kept, self._random)

    def _shared_into(self, claim: Share, sender: str, ours: str, recipient: Recipient) -> int | None:
        """The number of the recipient's DID that is to get what comes to a shared key; None: it is not its own, or the
        key is not proved."""
        try:
            shared_mailbox.check_share(claim, sender, ours)
            registration = self._store.registration(canonical(claim.mailbox))
        except RemoteError:
            return None
        is_own = registration is not None and registration.recipient == recipient.id and not registration.relay
        return registration.did if registration is not None and is_own else None

    # --- short links ------------------------------------------------------------------------------------------------

    def _publish(self, message: Message, recipient: Recipient, now_s: int) -> Message | None:
        wanted = short_links.read_publish(message)
        if not self._store.is_fresh(recipient.id, message.id, now_s):
            return None  # a replay, perhaps of a link that was dropped
        why = self._why_not(wanted, recipient)
        if not why:
            expires = min(wanted.until, now_s + self._limits.link_age_s)
            self._store.put_link(recipient.id, wanted.oobid, wanted.sealed, expires)
            self.links_changed[wanted.oobid] = wanted.sealed, expires
        self.counts["unlinked" if why else "linked"] += 1
        return short_links.answer(message, short_links.Answer(self._policy.page, why), self._random)

    def _why_not(self, wanted: short_links.Publication, recipient: Recipient) -> str:
        """Why this short link is not served; empty: it is."""
        if not self._policy.page:
            return "behind"
        if len(wanted.sealed) > short_links.SEALED_BYTES_MAX:
            return "large"
        owner = self._store.link_owner(wanted.oobid)
        if owner is not None:
            return "" if owner == recipient.id else "full"
        own, total = self._store.link_counts(recipient.id)
        left, limits = self._limits.links_total - total, self._limits
        return "" if own < min(limits.links, -(-limits.links * 4 * left // limits.links_total)) else "full"

    def _keep_links(self, message: Message, recipient: Recipient, now_s: int) -> None:
        kept = short_links.read_keep(message)
        if self._store.is_fresh(recipient.id, message.id, now_s):
            self.links_changed |= dict.fromkeys(self._store.keep_links(recipient.id, kept))

    def close(self, session: Session) -> None:
        """End live mode: it was turned off, or the connection has ended."""
        if session.recipient is None:
            return
        left = [each for each in self.live.get(session.recipient.id, ()) if each is not session]
        if left:
            self.live[session.recipient.id] = left
        else:
            self.live.pop(session.recipient.id, None)
        session.recipient = None
