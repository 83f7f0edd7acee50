"""The verb that runs a mediator: mediator."""

import os
import signal
import sys
from typing import TYPE_CHECKING, ClassVar, Final

from zerochat.agent.storage.paths import places
from zerochat.cli.agents import passphrase_file, with_passphrase
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, hints_for, narrate, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.terminal_text import qr_ansi

if TYPE_CHECKING:
    from types import FrameType

    from zerochat.agent.mediator.loop import Service, Wishes
    from zerochat.agent.storage.paths import Places

PROFILE: Final = "mediator"
"""A mediator is not somebody's chat, so it does not begin with the profile that is."""


class HalfACertificate(LocalError):
    """A certificate needs its key, and a key its certificate: give both `--certificate` and `--key`, or neither."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def mediator(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.mediator.limits import Limits
    from zerochat.agent.mediator.loop import Service, with_limits
    from zerochat.agent.storage.profiles import unlock

    home = places(options.profile or os.environ.get("ZEROCHAT_PROFILE") or PROFILE, os.environ)
    hints_for(home.profile, os.environ.get("ZEROCHAT_PROFILE"))
    wishes = _wishes(options, home)
    _make(home)
    key = with_passphrase(lambda source: unlock(home, source))
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

    service = Service(home, key, wishes, limits=limits, say=say)

    def end(signum: int, frame: "FrameType | None") -> None:
        service.stop()
        signal.signal(signum, signal.SIG_DFL)  # whoever asks twice does not want to wait

    for wanted in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(wanted) is not signal.SIG_IGN:
            signal.signal(wanted, end)
    service.start()
    try:
        _introduce(service, home, out)
        service.serve()
        service.report()
    finally:
        service.close()
    return ExitCode.OK


def _wishes(options: Options, home: "Places") -> "Wishes":
    from zerochat.agent.mediator.loop import Wishes
    from zerochat.agent.settings.reader import load_settings

    if (options.certificate is None) != (options.key is None):
        raise HalfACertificate
    settings = load_settings(home)
    tls = None
    if options.certificate is not None and options.key is not None:
        tls = options.certificate, options.key
    elif settings.web_certificate is not None and settings.web_key is not None:
        tls = settings.web_certificate, settings.web_key
    return Wishes(
        listen=options.listen,
        public_uri=options.public_uri,
        is_open=options.is_open,
        new_invitation=options.new_invitation,
        mix_with=tuple(options.mix_with),
        behind=options.behind,
        noise_chance=options.noise,
        tls=tls,
        socks=settings.socks,
        ca_file=settings.web_authorities,
    )


def _make(home: "Places") -> None:
    """A profile for it, if there is none: locked with the passphrase in the file that the environment names, if any."""
    from zerochat.agent.storage.profiles import create_profile, profile_exists

    if profile_exists(home):
        return
    passphrase = passphrase_file()
    create_profile(home, "mediator", None if passphrase is None else passphrase())
    narrate(f"Made the profile {home.profile} for it, in {home.data}.")


def _introduce(service: "Service", home: "Places", out: Output) -> None:
    standing = service.standing
    facts: dict[str, object] = {
        "event": "ready",
        "profile": home.profile,
        "pid": os.getpid(),
        "uri": standing.uri,
        "did": standing.identity.did,
        "link": standing.link,
        "short_link": standing.short_link,
    }
    rows = [("ready", f"process {os.getpid()}, reached at {standing.uri}"), ("short", standing.short_link)]
    out.data(facts, [*table(rows), "", standing.link])
    if not out.jsonl and sys.stdout.isatty():
        out.exactly("\n" + qr_ansi(standing.short_link))
    narrate("Whoever has one of these links may use this mediator.")
