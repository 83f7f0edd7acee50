"""Resource limits of a mediator, per recipient and in total."""

from msgspec import Struct

from zerochat.didcomm.protocols.pickup import ENVELOPE_BYTES_KEPT

DAY_S = 86_400
INVITATION_USES = 100
"""Recipients that an invitation admits by default: a tenth of all, so that a single holder cannot take every seat."""

INVITATIONS_MAX = 16
"""Invitations that are valid at one time; with more, the oldest is no longer."""


class Limits(Struct, frozen=True):
    """Limits that an operator, or a test, may change."""

    recipients: int = 1_000
    recipient_idle_s: int = 90 * DAY_S
    """A recipient inactive for so long is deleted with its messages."""
    unused_idle_s: int = 2 * DAY_S
    """The same for a recipient that never had a message."""
    seats_burst: int = 20
    """New recipients at once; then one per `seat_every_s`."""
    seat_every_s: int = 180
    requests_burst: int = 4_096
    """Requests of one recipient at once, each change of a registration counted, and what it acknowledges and fetches
    (`protocol_handlers.py`); then `requests_per_s`."""
    requests_per_s: int = 50
    dids: int = 1_024
    """DIDs registered by one recipient: one per relationship."""
    messages: int = 20_000
    """Stored messages of one recipient, in equal shares for its DIDs."""
    bytes: int = 64 << 20
    """Stored bytes of one recipient, in equal shares for its DIDs. A DID may always store one envelope."""
    shares_min: int = 4
    """Shares that each recipient's limits are divided into at least. With more DIDs, their number is rounded up to a
    power of two, so that the size of a share does not reveal it."""
    age_s: int = 14 * DAY_S
    """Longest storage of a message."""
    total_bytes: int = 4 << 30
    """Stored bytes in total: the required disk space. When less than a quarter is left, every share shrinks
    proportionally, so that many full queues leave room for other recipients."""
    delayed_part: int = 4
    """Delayed messages may use one part in so many of a DID's share: they cannot be fetched, so an attacker who knows
    the DID could otherwise block it for a week."""
    envelope_bytes: int = ENVELOPE_BYTES_KEPT
    links: int = 64
    """Short links of one recipient: as many as it has open invitations."""
    links_total: int = 4_096
    """Short links in total, some 24 MB of memory. The limit per recipient shrinks like the one of bytes."""
    link_age_s: int = 31 * DAY_S
    """Longest time for which a short link is served: invitations are valid for up to 30 days."""
    share_users: int = 256
    """Recipients that share a mailbox: the copies of one post."""
    copies_burst: int = 20_000
    """Copies of envelopes to one shared mailbox at once, each counted again for every 16 KiB; then `copies_per_s`. Its
    members have all of that together: one of them can use it up, and then the others' envelopes go to each mailbox."""
    copies_per_s: int = 1_000
    total_copies_burst: int = 60_000
    """The same of all shared mailboxes together; then `total_copies_per_s`."""
    total_copies_per_s: int = 3_000
    live: int = 4
    """Connections in live mode of one recipient: its devices, and stale ones."""
    window: int = 64
    """Unacknowledged messages of one live connection."""
    window_bytes: int = 4 << 20
    redeliver_s: int = 30
    """Time before a message is delivered again on the same connection."""
    relays_at_once: int = 64
    """Dispatches in flight."""
    relays_each: int = 8
    """Dispatches in flight for one recipient: its addresses may never answer."""
    posts_at_once: int = 256
    """Posts in flight that recipients have requested (`relayed_posts.py`)."""
    posts_each: int = 32
    """The same of one recipient."""
    refusals: int = 12
    """Attempts after which a refusal (status 4xx) is final: a little more than an hour."""
    relay_retry_s: int = 2
    relay_retry_s_max: int = 1_800
    """Bounds of the exponential backoff between attempts."""
    dedupe_s: int = DAY_S
    """How long a delivered message is recognised as a duplicate."""
