"""How much a mediator takes on, for each of its recipients and altogether."""

from msgspec import Struct

from zerochat.didcomm.protocols.pickup import ENVELOPE_BYTES_KEPT

DAY_S = 86_400


class Limits(Struct, frozen=True):
    """What somebody with another machine may want to change, and tests do."""

    recipients: int = 1_000
    recipient_idle_s: int = 90 * DAY_S
    """A recipient that has not been heard of for so long is forgotten, with everything that waits for it."""
    dids: int = 1_024
    """Registered by one recipient: one for each of its relationships."""
    messages: int = 20_000
    """Waiting for one recipient."""
    bytes: int = 32 << 20
    """Waiting for one recipient: a few thousand messages, as UPSYCLE has it for its proxies."""
    age_s: int = 14 * DAY_S
    """How long a message waits at most."""
    total_bytes: int = 4 << 30
    """Waiting for all of them: what the disk must have room for. When less than a fourth of that is left, what may wait
    for each recipient shrinks with it, so that a crowd that fills its queues leaves room for the others."""
    delayed_part: int = 4
    """What senders want delivered later may take up one part in so many of a recipient's room: it cannot be fetched, so
    whoever knows a recipient's name could otherwise shut it out for a week."""
    envelope_bytes: int = ENVELOPE_BYTES_KEPT
    live: int = 4
    """Connections in live mode of one recipient: its devices, and some that are gone without a word."""
    window: int = 64
    """Messages pushed to one live connection and not acknowledged."""
    window_bytes: int = 4 << 20
    redeliver_s: int = 30
    """What was delivered over a connection is not delivered over it again so soon, even if it is asked for."""
    relays_at_once: int = 64
    """Envelopes under way to other addresses."""
    relays_each: int = 8
    """Of those, for one recipient: its addresses may be ones that never answer."""
    refusals: int = 12
    """After so many attempts an address that refuses (a status 4xx) is believed; that is a little more than an hour."""
    relay_retry_s: int = 2
    relay_retry_s_max: int = 1_800
    """The pause before another attempt doubles between these two."""
    dedupe_s: int = DAY_S
    """How long a message that is gone from here is still recognised when its sender repeats it."""
