"""Everything that a peer could let grow, or draw out, with its limit."""

from msgspec import Struct

URI_BYTES_MAX = 2_048
"""Longer than any endpoint that people use, and what old proxies take."""
HEADERS_MAX = 64
HEADER_BYTES_MAX = 4_096
"""Per line. A request to us carries a dozen short ones; only a short link's answer is longer, and that we send."""
REDIRECTS_MAX = 3
REDIRECT_BODY_BYTES_MAX = 4_096
"""What is read of a response that nobody asked for, so that its connection can be used again."""
REPLY_BYTES_MAX = 16 * 1024
"""Of a signed response: a held receipt, which has the mediator's DID in it twice."""
INVITATION_BYTES_MAX = 64 * 1024
"""What a short link may lead to. An invitation with three endpoints has 4 KiB."""
SHORT_LINKS_MAX = 256
OOBID_CHARS_MAX = 128
LOOKUPS_MAX = 16
"""Names looked up at once. Each is a thread, because the system's resolver blocks."""
UNSEEN_MAX = 16_384
"""News that the owner has not taken; beyond that nobody new is let in."""


class Limits(Struct, frozen=True):
    """The limits that somebody with a great mediator may want to change, and tests do. Times in seconds."""

    connections: int = 512
    """Connections to us at once. Each may hold one unfinished envelope of 512 KiB in memory."""
    connections_per_house: int = 32
    """From one IPv4 address or one IPv6 /64: some agents behind one router, each with a session and a few POSTs."""
    connections_per_street: int = 128
    """From one IPv4 /24 or one IPv6 /48, which is what a customer gets: it has 65,536 houses."""
    loopback_counts: bool = False
    """Whether these two limits are for this machine too. A reverse proxy on it speaks for many."""
    idle_s: float = 30.0
    """From a connection's beginning, or its last response, to the end of the next request's head."""
    body_s: float = 20.0
    """From the head of a POST to the end of its body; also for one message of a session."""
    handshake_s: float = 10.0
    """For TLS, both ways, and for connecting."""
    accept_s: float = 10.0
    """For the owner to accept what has arrived. Below half of `ping_s`, because our pongs wait for it."""
    inbox_messages: int = 1_024
    inbox_bytes: int = 32 * 1024 * 1024
    """What has arrived and the owner has not taken. Beyond that POSTs get 503, and sessions are not read."""
    reading_bytes: int = 128 * 1024 * 1024
    """Of bodies that have not ended, so that what comes in slowly takes no room from what is there. Beyond that POSTs
    get 503."""
    quiet_s: float = 300.0
    """A session that somebody has dialled ends when no envelope has gone either way for so long."""
    unaccepted: int = 64
    """Envelopes of one session that the owner has not accepted; beyond that the session is not read."""

    request_s: float = 20.0
    """For one POST of ours, from dialling to the end of the response."""
    queue_messages: int = 1_024
    queue_bytes: int = 16 * 1024 * 1024
    """What waits for one URI, or in one session."""
    outbox_bytes: int = 128 * 1024 * 1024
    """What waits for all of them."""
    per_host: int = 8
    """Our connections to one host; POSTs to one URI use one after another."""
    connections_out: int = 128
    """Our connections altogether, sessions not counted."""
    sessions_out: int = 128
    """Sessions that we have dialled and that are not held. The quietest one goes when there is one too many."""
    holds: int = 64
    """URIs that are held at once."""
    ping_s: float = 25.0
    """A session that has said nothing for so long is pinged, and is lost without a word for half as long again."""
    confirm_s: float = 20.0
    """For the pong that confirms what was pushed."""
    linger_s: float = 20.0
    """How long a session that was dialled for one message stays, for the next one or for an answer."""
    redial_s: float = 0.5
    redial_s_max: float = 60.0
    """The delay before a held URI is dialled again doubles between these two."""
    stop_s: float = 1.0
    """For polite ends, before everything is cut."""
