"""The verb doctor: what is wrong here, and what to do about it."""

import difflib
import os
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from zerochat.agent.doctor import CHECKS, Checkup, Patient, look
from zerochat.cli.agents import passphrase_file, places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, narrate, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError


class NoSuchCheck(LocalError):
    """There is no check called {check}. There are {known}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def doctor(options: Options, out: Output) -> ExitCode:
    for name in options.checks:
        if name not in CHECKS:
            nearest = difflib.get_close_matches(name, CHECKS, n=1)
            raise NoSuchCheck(
                check=ascii(name[:32]), known=f"{nearest[0]} and others" if nearest else ", ".join(CHECKS)
            )
    home = places_of(options)
    patient = Patient(home, os.environ)
    patient.key = _key(patient)
    found = look(patient, options.checks)
    if patient.client is not None:
        patient.client.close()
    out.data(found, _lines(found))
    if found.state == "fail":
        narrate("Something has failed. What the lines above advise can be done in their order.")
    return ExitCode.REFUSED if found.state == "fail" else ExitCode.OK


def _key(patient: Patient) -> Callable[[], bytes] | None:
    """How to come by the journal's key without asking anybody."""
    from zerochat.agent.storage.profiles import how_locked, unlock

    source = passphrase_file()
    try:
        if source is None and how_locked(patient.places) == "passphrase":
            return None
    except LocalError:  # the check of the profile says why
        return None
    return partial(unlock, patient.places, source)


def _lines(found: Checkup) -> list[str]:
    """One line for each finding, and its remedy below it."""
    lines: list[str] = []
    names = table([(one.state, one.check) for one in found.checks]) if found.checks else []
    width = max((len(name) for name in names), default=0)
    for one, name in zip(found.checks, names, strict=True):
        lines.append(f"{name:{width}}  {one.text}")
        if one.remedy and one.state != "ok":
            lines.append(f"{'':{width}}  {one.remedy}")
    return lines
