"""Verb mediator: runs a mediator, a store-and-forward relay for DIDComm messages."""

import os
import signal
import sys
from typing import TYPE_CHECKING, ClassVar, Final

from zerochat.agent.storage.paths import profile_paths
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate, set_hint_profile
from zerochat.cli.prompts import passphrase_file, with_passphrase
from zerochat.cli.value_types import chance, lifetime, positive
from zerochat.errors import LocalError
from zerochat.qr import qr_ansi

if TYPE_CHECKING:
    from types import FrameType

    from zerochat.agent.mediator.loop import Service, ServiceOptions
    from zerochat.agent.storage.paths import ProfilePaths


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "mediator",
        "run a mediator that stores messages for offline recipients",
        "Run a mediator in the foreground until Ctrl+C or SIGTERM: it accepts messages over HTTP and WebSocket for "
        "its\n"
        "recipients and stores them, encrypted on its disk and unreadable to it, until they are fetched. It uses a\n"
        "profile of its own, which is created at the first start. Prints its invitation,\n"
        "which admits 100 recipients by default. Its address becomes part of its recipients' DIDs and cannot be\n"
        "changed later.",
        """
zerochat mediator --listen 0.0.0.0:8080 --public-uri http://203.0.113.7:8080
zerochat mediator --listen 127.0.0.1:8080 --public-uri https://example.org
zerochat mediator --new-invitation --uses 10
zerochat mediator --further-invitation --uses 20
zerochat mediator --format jsonl >events.jsonl
zerochat mediator --listen 192.168.1.5:8080 --behind "$(cat outer-link)"
zerochat mediator --mix-with "$(cat other-mediators-link)" --noise 0.5
""",
        run=mediator,
        profile=PROFILE,
    )
    parser.add_argument(
        "--listen",
        metavar="HOST[:PORT]",
        help="listen address, kept for later starts (default: all addresses, at any free port)",
    )
    parser.add_argument(
        "--public-uri",
        metavar="URI",
        help="public http or https address; fixed at the first start (default: the address of this machine)",
    )
    parser.add_argument(
        "--open", dest="open_to_all", action="store_true", help="accept recipients without an invitation"
    )
    created = parser.add_mutually_exclusive_group()
    created.add_argument(
        "--new-invitation", action="store_true", help="create a new invitation; all earlier ones become invalid"
    )
    created.add_argument(
        "--further-invitation",
        action="store_true",
        help="create a new invitation beside the earlier ones, of which the last 15 stay valid",
    )
    parser.add_argument(
        "--uses",
        type=positive,
        metavar="N",
        help="number of recipients that the newest invitation admits; kept for later starts (default: 100)",
    )
    parser.add_argument("--certificate", metavar="FILE", help="PEM certificate chain, for https and wss")
    parser.add_argument("--key", metavar="FILE", help="private key of the certificate")
    _add_routing(parser)
    _add_relaying(parser)
    _add_limits(parser)


def _add_routing(parser: Parser) -> None:
    parser.add_argument(
        "--behind",
        metavar="LINK",
        help="invitation of another mediator: senders reach this one through it, and only its own recipients dial it"
        " directly; fixed at the first start",
    )
    parser.add_argument(
        "--mix-with",
        metavar="LINK",
        action="append",
        default=[],
        help="invitation of another mediator through which messages are detoured if their sender asks for it"
        " (repeatable)",
    )
    parser.add_argument(
        "--noise",
        type=chance,
        default=0.0,
        metavar="P",
        help="probability, 0 to 1, that a detoured message is padded (default: as its sender asks)",
    )


def _add_relaying(parser: Parser) -> None:
    parser.add_argument(
        "--relay-near",
        choices=("private", "loopback"),
        help="also relay to recipients at private addresses, or on this machine (default: at addresses of the"
        " mediator's own kind and farther)",
    )


def _add_limits(parser: Parser) -> None:
    parser.add_argument("--recipients", type=positive, metavar="N", help="maximum number of recipients (default: 1000)")
    parser.add_argument(
        "--messages",
        type=positive,
        metavar="N",
        help="maximum number of stored messages per recipient (default: 20000)",
    )
    parser.add_argument(
        "--megabytes", type=positive, metavar="N", help="maximum storage for all recipients, in MB (default: 4096)"
    )
    parser.add_argument(
        "--keep", dest="keep_s", type=lifetime, metavar="TIME", help="maximum age of a stored message (default: 14d)"
    )


PROFILE: Final = "mediator"
"""Default profile of a mediator, separate from that of the chat."""


class KeyOrCertificateMissing(LocalError):
    """A certificate and its key belong together: give both `--certificate` and `--key`, or neither."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def mediator(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.mediator.limits import Limits
    from zerochat.agent.mediator.loop import Service, with_limits
    from zerochat.agent.storage.profiles import unlock

    paths = profile_paths(options.profile or os.environ.get("ZEROCHAT_PROFILE") or PROFILE, os.environ)
    set_hint_profile(paths.profile, os.environ.get("ZEROCHAT_PROFILE"))
    configuration = _configuration(options, paths)
    _create_profile(paths)
    key = with_passphrase(lambda source: unlock(paths, source))
    limits = with_limits(
        Limits(),
        recipients=options.recipients,
        messages=options.messages,
        total_bytes=None if options.megabytes is None else options.megabytes << 20,
        age_s=options.keep_s,
    )

    def say(event: str, text: str, facts: dict[str, object]) -> None:
        if out.jsonl:
            out.data({"event": event, **facts}, ())
        else:
            narrate(text)

    service = Service(paths, key, configuration, limits=limits, notify=say)

    def end(signum: int, frame: "FrameType | None") -> None:
        service.stop()
        signal.signal(signum, signal.SIG_DFL)  # the second signal kills the process

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    service.start()
    try:
        _print_ready(service, paths, out)
        service.serve()
        service.report()
    finally:
        service.close()
    return ExitCode.OK


def _configuration(options: Options, paths: "ProfilePaths") -> "ServiceOptions":
    from zerochat.agent.mediator.identity import public_uri
    from zerochat.agent.mediator.loop import ServiceOptions
    from zerochat.agent.mediator.mixing import parse_mediator_invitation
    from zerochat.agent.network.addresses import BadAddress, parse_listen
    from zerochat.agent.settings.reader import load_settings
    from zerochat.didcomm.address_kinds import AddressKind

    if (options.certificate is None) != (options.key is None):
        raise KeyOrCertificateMissing
    if options.listen is not None and parse_listen(options.listen)[2]:
        raise BadAddress(text=options.listen, why="HTTP uses one port, not two")
    if options.public_uri is not None:
        public_uri(options.public_uri)
    for link in (*options.mix_with, *([] if options.behind is None else [options.behind])):
        parse_mediator_invitation(link)
    settings = load_settings(paths)
    tls = None
    if options.certificate is not None and options.key is not None:
        tls = options.certificate, options.key
    elif settings.web_certificate is not None and settings.web_key is not None:
        tls = settings.web_certificate, settings.web_key
    return ServiceOptions(
        listen=options.listen,
        public_uri=options.public_uri,
        is_open=options.open_to_all,
        new_invitation=options.new_invitation,
        further_invitation=options.further_invitation,
        uses=options.uses,
        mix_with=tuple(options.mix_with),
        behind=options.behind,
        noise_chance=options.noise,
        relay_near=AddressKind[(options.relay_near or "public").upper()],
        tls=tls,
        socks=settings.socks,
        ca_file=settings.web_authorities,
    )


def _create_profile(paths: "ProfilePaths") -> None:
    """Create the mediator's profile if there is none, with the passphrase of ZEROCHAT_PASSPHRASE_FILE if set."""
    from zerochat.agent.storage.profiles import create_profile, profile_exists

    if profile_exists(paths):
        return
    passphrase = passphrase_file()
    create_profile(paths, "mediator", None if passphrase is None else passphrase())
    narrate(f"Created the profile {paths.profile} in {paths.data}.")


def _print_ready(service: "Service", paths: "ProfilePaths", out: Output) -> None:
    identity = service.identity
    facts: dict[str, object] = {
        "event": "ready",
        "profile": paths.profile,
        "pid": os.getpid(),
        "uri": identity.uri,
        "did": identity.identity.did,
        "link": identity.link,
        "short_link": identity.short_link,
        "link_v1": identity.link_v1,
        "uses": identity.invitation.uses,
    }
    rows = [("ready", f"process {os.getpid()}, address {identity.uri}"), ("short", identity.short_link)]
    old = ["", "For agents of DIDComm v1 (Aries):", identity.link_v1] if identity.link_v1 else []
    out.data(facts, [*table(rows), "", identity.link, *old])
    if not out.jsonl and sys.stdout.isatty():
        out.exactly("\n" + qr_ansi(identity.short_link))
        # Last, so that a small terminal shows it below the code.
        narrate(f"Next, on a computer behind a router: zerochat route add '{identity.short_link}'")
    narrate(f"Up to {identity.invitation.uses} recipients that have one of these links can use this mediator.")
