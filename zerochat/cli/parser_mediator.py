"""The grammar of the verb that runs a mediator."""

from zerochat.cli.grammar import Parser, Verbs, add_verb, chance, lifetime, positive


def add_mediator(verbs: "Verbs[Parser]") -> None:
    """Declare the verb mediator."""
    mediator = add_verb(
        verbs,
        "mediator",
        "keep messages for people who are away or cannot be dialled",
        "Run a mediator in the foreground until Ctrl+C or SIGTERM: it takes messages in over HTTP and WebSocket for\n"
        "everybody whom it has taken in, and keeps them until they are fetched, encrypted on its disk and unreadable\n"
        "to it. It has a profile of its own ('mediator', unless told otherwise), which is made at the first start.\n"
        "Prints its invitation; whoever has that may use it. Its address becomes part of everybody's DIDs, so it\n"
        "cannot be changed later.",
        """
zerochat mediator --listen 0.0.0.0:8080 --public-uri http://203.0.113.7:8080
zerochat mediator --listen 127.0.0.1:8080 --public-uri https://example.org
zerochat mediator --format jsonl >events.jsonl
zerochat mediator --listen 192.168.1.5:8080 --behind "$(cat outer-link)"
zerochat mediator --mix-with "$(cat other-mediators-link)" --noise 0.5
""",
    )
    mediator.add_argument(
        "--listen",
        metavar="HOST[:PORT]",
        help="where to take messages in (default: all addresses of this machine, at the port of the last start)",
    )
    mediator.add_argument(
        "--public-uri",
        metavar="URI",
        help="how others reach it, http or https; fixed at the first start (default: as this machine sees itself)",
    )
    mediator.add_argument(
        "--open", dest="is_open", action="store_true", help="take anybody in, not only who has the invitation"
    )
    mediator.add_argument(
        "--new-invitation", action="store_true", help="make a new invitation; the old one admits nobody any more"
    )
    mediator.add_argument("--certificate", metavar="FILE", help="a PEM certificate chain, for https and wss")
    mediator.add_argument("--key", metavar="FILE", help="the certificate's key")
    mediator.add_argument(
        "--behind",
        metavar="LINK",
        help="another mediator, by its invitation: others write to this one over that, and only those whom this one"
        " serves dial it; fixed at the first start",
    )
    mediator.add_argument(
        "--mix-with",
        metavar="LINK",
        action="append",
        default=[],
        help="another mediator, by its invitation, that messages may take a detour through if their senders ask for it"
        " (may be given several times)",
    )
    mediator.add_argument(
        "--noise",
        type=chance,
        default=0.0,
        metavar="P",
        help="how likely the size of what takes a detour is distorted, from 0 to 1 (default: as its sender asks)",
    )
    mediator.add_argument("--recipients", type=positive, metavar="N", help="take in at most N (default: 1000)")
    mediator.add_argument(
        "--messages", type=positive, metavar="N", help="keep at most N messages for one recipient (default: 20000)"
    )
    mediator.add_argument(
        "--megabytes", type=positive, metavar="N", help="keep at most N megabytes for all of them (default: 4096)"
    )
    mediator.add_argument(
        "--keep", dest="keep_s", type=lifetime, metavar="TIME", help="keep a message at most so long (default: 14d)"
    )
