"""Limits of the web transport: sizes, counts and timeouts."""

from msgspec import Struct

URI_BYTES_MAX = 2_048
"""Longer than any real endpoint; old proxies accept this much."""
HEADERS_MAX = 64
HEADER_BYTES_MAX = 4_096
"""Per header line. Requests have a dozen short ones; only our response to a short link is longer."""
REDIRECTS_MAX = 3
"""Of a GET for a short link; a POST follows none."""
IGNORED_BODY_BYTES_MAX = 4_096
"""Bytes read of a response without use, so that its connection can be reused."""
REPLY_BYTES_MAX = 16 * 1024
"""Of a signed response: a mediator receipt, which contains the mediator's DID twice."""
INVITATION_BYTES_MAX = 64 * 1024
"""Of the document behind a short link. An invitation with three endpoints has 4 KiB."""
SHORT_LINKS_MAX = 8_192
"""More than a mediator accepts from its recipients, so that its own invitation is never dropped."""
OOBID_CHARS_MAX = 128
LOOKUPS_MAX = 16
"""Concurrent name look-ups. Each takes a thread, because the system's resolver blocks."""
PENDING_EVENTS_MAX = 16_384
"""Events that the owner has not taken; beyond that no new envelope is accepted."""


class Limits(Struct, frozen=True):
    """Limits that a large mediator, or a test, may change. Times in seconds."""

    connections: int = 512
    """Inbound connections at once, without kept sessions; beyond that the one that has finished no request for longest
    is evicted. Each may hold one unfinished envelope of 512 KiB in memory."""
    kept_sessions: int = 512
    """Inbound sessions that the owner keeps (`Web.keep`): those of recipients that a mediator has authenticated."""
    connections_per_prefix: int = 32
    """Per IPv4 address or IPv6 /64: some agents behind one router, each with a session and a few POSTs."""
    connections_per_provider: int = 128
    """Per IPv4 /24 or IPv6 /48, which a provider assigns to one customer and has 65,536 /64 prefixes."""
    loopback_counts: bool = False
    """Whether both limits apply to loopback, where a reverse proxy forwards many clients."""
    idle_s: float = 30.0
    """From the accept, or the last response, to the end of the next request's head."""
    body_s: float = 20.0
    """From the head of a POST to the end of its body; also for one message of a session."""
    handshake_s: float = 10.0
    """For TLS handshakes in both directions, and for connecting."""
    accept_s: float = 10.0
    """For the owner to accept an envelope. Below half of `ping_s`, because our pongs wait for it."""
    inbox_messages: int = 1_024
    inbox_bytes: int = 32 * 1024 * 1024
    """Envelopes that the owner has not taken. Beyond that POSTs get 503, and sessions are not read."""
    reading_bytes: int = 128 * 1024 * 1024
    """Bytes of unfinished bodies, counted separately so that slow senders take no room from complete envelopes. Beyond
    that POSTs get 503."""
    quiet_s: float = 300.0
    """An inbound session is closed when no envelope has passed in either direction for so long."""
    unaccepted: int = 64
    """Unaccepted envelopes of one session; beyond that the session is not read."""

    request_s: float = 20.0
    """For an outgoing POST, from connecting to the end of the response."""
    queue_messages: int = 1_024
    queue_bytes: int = 16 * 1024 * 1024
    """Send queue of one URI or one session."""
    outbox_bytes: int = 128 * 1024 * 1024
    """All send queues together."""
    per_host: int = 8
    """Outgoing connections to one host; POSTs to one URI are sequential."""
    connections_out: int = 128
    """Outgoing connections in total, without sessions."""
    sessions_out: int = 128
    """Outgoing sessions that are not held. Beyond that the one idle for longest is closed."""
    holds: int = 64
    """URIs with a held session at once."""
    ping_s: float = 25.0
    """A session idle for so long is pinged, and closed after half as long again without an answer."""
    confirm_s: float = 20.0
    """For the pong that confirms sent envelopes."""
    linger_s: float = 20.0
    """How long a session dialled for one message stays open for the next one or an answer."""
    redial_s: float = 0.5
    redial_s_max: float = 60.0
    """Bounds of the exponential backoff before a held URI is dialled again."""
    stop_s: float = 1.0
    """For closing handshakes at shutdown."""
