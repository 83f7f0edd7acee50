"""Verb doctor: checks the installation and the profile, and prints remedies."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agent_access import paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import passphrase_file
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.agent.doctor import CheckContext, DoctorReport


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "doctor",
        "check the installation for problems",
        "Check everything that zerochat needs: folders and their permissions, the control socket, settings, disk\n"
        "space, open-file limits, versions, the journal, ports, whether this machine reaches its own addresses, and\n"
        "the clock compared with other members. Prints one line per check: ok, warn or fail, with a remedy; skip,\n"
        "with a reason, if it could not run. Starts no agent and changes nothing. Exits with 1 if a check fails.",
        """
zerochat doctor
zerochat doctor journal disk
zerochat doctor --format json | jq '.checks[] | select(.state != "ok")'
""",
        run=doctor,
    )
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="run only these checks (default: all)")


class NoSuchCheck(LocalError):
    """Unknown check {check}. Checks: {known}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def doctor(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.doctor import CHECKS, CheckContext, run_checks

    for name in options.checks:
        if name not in CHECKS:
            from difflib import get_close_matches

            nearest = get_close_matches(name, CHECKS, n=1)
            raise NoSuchCheck(check=ascii(name[:32]), known=f"{nearest[0]}, …" if nearest else ", ".join(CHECKS))
    paths = paths_of(options)
    context = CheckContext(paths, os.environ)
    context.key = _key(context)
    found = run_checks(context, options.checks)
    if context.client is not None:
        context.client.close()
    out.data(found, _lines(found))
    if found.state == "fail":
        narrate("Some checks failed. Follow the advice above, from top to bottom.")
    return ExitCode.REFUSED if found.state == "fail" else ExitCode.OK


def _key(context: "CheckContext") -> Callable[[], bytes] | None:
    """The source of the journal's key, if it needs no prompt."""
    from zerochat.agent.storage.profiles import key_location, unlock

    source = passphrase_file()
    try:
        if source is None and key_location(context.paths) == "passphrase":
            return None
    except LocalError:  # the profile check reports the reason
        return None
    return partial(unlock, context.paths, source)


def _lines(found: "DoctorReport") -> list[str]:
    """One line per finding, followed by its remedy."""
    lines: list[str] = []
    names = table([(one.state, one.check) for one in found.checks]) if found.checks else []
    width = max((len(name) for name in names), default=0)
    for one, name in zip(found.checks, names, strict=True):
        lines.append(f"{name:{width}}  {one.text}")
        if one.remedy and one.state != "ok":
            lines.append(f"{'':{width}}  {one.remedy}")
    return lines
