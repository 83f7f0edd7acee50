"""The grammar of the verbs about single peers: what is asked of one, and connections outside of any group."""

from zerochat.cli.grammar import (
    ENVELOPES,
    Parser,
    Verbs,
    add_verb,
    lifetime,
    positive,
    timeout_option,
)

LINK_FORMATS = ("text", "url", "qr", "json", "jsonl")


def add_peers(verbs: "Verbs[Parser]") -> None:
    """Declare the verbs ping, features, rotate, connect, connections, tell, disconnect and route."""
    _asking(verbs)
    _connecting(verbs)
    _routing(verbs)


def add_envelope(parser: Parser, what: str) -> None:
    parser.add_argument(
        "--envelope",
        choices=ENVELOPES,
        default=ENVELOPES[0],
        help=f"the kind of envelopes {what}: DIDComm v2, or Aries RFC 0019, which older agents write (default:"
        " %(default)s)",
    )


def _peer(parser: Parser) -> None:
    parser.add_argument(
        "peer",
        metavar="PEER",
        help="a member's name or key, a connection's name or id, or GROUP/NAME where that alone is not clear",
    )
    parser.takes_id = True


def _connection(parser: Parser) -> None:
    parser.add_argument("peer", metavar="NAME", help="a connection's name or id, or the first letters of its id")
    parser.takes_id = True


def _asking(verbs: "Verbs[Parser]") -> None:
    ping = add_verb(
        verbs,
        "ping",
        "ask a peer whether it is there",
        "Ask a member or a connection for a sign of life (Trust Ping). Prints how long the answer took, how it was\n"
        "protected, the keys that this proves, and the way to the peer. Ends with 5 when an answer is missing.",
        """
zerochat ping bob
zerochat ping hikers/bob --count 5 --timeout 2
zerochat ping bob --format jsonl | jq -r .their_key
""",
    )
    _peer(ping)
    ping.add_argument("--count", type=positive, default=1, metavar="N", help="how often to ask (default: 1)")
    timeout_option(ping, 10.0, "how long to wait for each answer (default: 10)")
    features = add_verb(
        verbs,
        "features",
        "ask a peer which protocols it speaks",
        "Ask a member or a connection what it speaks (Discover Features). Prints what it discloses, which need not be\n"
        "everything. Ends with 5 when there is no answer.",
        """
zerochat features bob
zerochat features bob "https://didcomm.org/*"
zerochat features bob --format jsonl | jq -r .id
""",
    )
    _peer(features)
    features.add_argument(
        "match", nargs="?", default="*", metavar="MATCH", help="a protocol's URI; * stands for anything (default: *)"
    )
    timeout_option(features, 10.0, "how long to wait for the answer (default: 10)")
    rotate = add_verb(
        verbs,
        "rotate",
        "use a new DID towards a peer",
        "Make new keys for what you and one peer say to each other, and give up the old ones as soon as the peer has\n"
        "used them. Nothing else changes, and nobody else learns of it.",
        """
zerochat rotate bob
zerochat rotate hikers/bob
""",
    )
    _peer(rotate)


def _connecting(verbs: "Verbs[Parser]") -> None:
    connect = add_verb(
        verbs,
        "connect",
        "connect with an agent of any make",
        "Connect with an agent outside of any group, by an Out-of-Band link of whatever version; it may be somebody\n"
        "else's program. Prints the connection's id. Without an argument the link is asked for; - reads it from\n"
        "standard input. With --invite, make such a link for others instead; this needs `network.web` in the\n"
        "settings. To join a group, use join.",
        """
zerochat connect
wl-paste | zerochat connect - --name archive
zerochat connect "https://example.com/?_oobid=5f0e3ffb"
zerochat connect --invite --expires 1h
zerochat connect --invite --envelope didcomm/v1 --format qr
""",
        LINK_FORMATS,
    )
    source = connect.add_mutually_exclusive_group()
    source.add_argument("invitation", nargs="?", metavar="LINK", help="the link, or - for standard input")
    source.add_argument("--invite", action="store_true", help="make a link with which one agent can connect")
    connect.add_argument("--name", metavar="NAME", help="what to call the connection here")
    add_envelope(connect, "for --invite")
    connect.add_argument(
        "--expires",
        dest="expires_s",
        type=lifetime,
        metavar="TIME",
        help="with --invite, how long it is good: 90s, 30m, 24h or 7d (default: 24h)",
    )
    timeout_option(connect, 30.0, "how long to wait until connected (default: 30)")
    add_verb(
        verbs,
        "connections",
        "list the connections",
        "The relationships outside of any group: with mediators, and with agents of other makes.",
        """
zerochat connections
zerochat connections --format jsonl | jq -r .did
""",
    )
    tell = add_verb(
        verbs,
        "tell",
        "send a line of text to a connection",
        "Send a text to a connection (Basic Message): the argument, or standard input. Prints the message's id.\n"
        "Whether it was read, nobody says; to a group, use send.",
        """
zerochat tell archive "Keep the second one."
git log -1 --oneline | zerochat tell archive -
""",
    )
    _connection(tell)
    tell.add_argument("text", nargs="?", metavar="TEXT", help="the text, or - for standard input (the default)")
    letters = add_verb(
        verbs,
        "letters",
        "read what a connection has told",
        "Print the last lines of text to and from a connection, oldest first; some two hundred are kept.",
        """
zerochat letters archive
zerochat letters archive --format jsonl | jq -r 'select(.mine | not) | .text'
""",
    )
    _connection(letters)
    disconnect = add_verb(
        verbs,
        "disconnect",
        "end a connection",
        "End a connection, and tell the peer. To connect again you need a new invitation. Asks before it does.",
        """
zerochat connections
zerochat disconnect archive
zerochat disconnect archive --yes
""",
    )
    _connection(disconnect)
    disconnect.add_argument("--yes", action="store_true", help="do not ask")


def _routing(verbs: "Verbs[Parser]") -> None:
    route = add_verb(
        verbs,
        "route",
        "be reached over a mediator",
        "A mediator takes in what is for you, keeps it while you are away, and cannot read it; so you can be in a\n"
        "group without an address of your own. Without more, list those that do. `zerochat mediator` runs one.",
        """
zerochat route
zerochat route add "https://example.com/?_oob=eyJ0..."
zerochat route drop relay
""",
    )
    actions = route.add_subparsers(dest="route_action", metavar="[ACTION]", title="actions")
    add = add_verb(
        actions,
        "add",
        "ask a mediator to take in what is for you",
        "Connect with a mediator by its link, and ask it to take in what is for you. Prints the connection's id when\n"
        "it has agreed; the members of your groups are told.",
        """
zerochat route add
zerochat route add - --name relay <link.txt
""",
    )
    add.add_argument("invitation", nargs="?", metavar="LINK", help="the mediator's link, or - for standard input")
    add.add_argument("--name", metavar="NAME", help="what to call it here")
    timeout_option(add, 30.0, "how long to wait for its answer (default: 30)")
    drop = add_verb(
        actions,
        "drop",
        "do without a mediator from now on",
        "End the connection with a mediator, and tell the members of your groups that you are not reached over it.",
        """
zerochat route drop relay
""",
    )
    _connection(drop)
