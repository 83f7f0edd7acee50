"""What can be wrong on this machine, looked at for real: each check gives findings, and each finding says what to do.

Nothing here is for show: a folder is written to, a port is opened, a journal is read page by page, an address is
dialled. What cannot be looked at (a journal behind a passphrase that nobody has typed) is `skip`, and says why. No
agent is started and nothing that is found is changed; `ports` and `journal` need the profile for a moment, and leave it
alone where an agent has it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from zerochat import __version__
from zerochat.agent.doctor import journal_checks, machine_checks, network_checks
from zerochat.agent.doctor.findings import ON_THIS_MACHINE, Checkup, Finding, Findings, Patient, State
from zerochat.errors import LocalError

__all__ = ["CHECKS", "Checkup", "Finding", "Patient", "look"]


def look(patient: Patient, wanted: Sequence[str] = ()) -> Checkup:
    """Do these checks (empty: all); one that fails by itself is a finding too."""
    patient.ask()
    found: list[Finding] = []
    for name, check in CHECKS.items():
        if wanted and name not in wanted:
            continue
        try:
            found += [Finding(name, *one) for one in check(patient)]
        except LocalError as error:
            found.append(Finding(name, "fail", f"It could not be looked at: {error.code}.", error.sentence()))
        except OSError as error:
            why = error.strerror or type(error).__name__
            found.append(Finding(name, "fail", f"It could not be looked at: {why}.", ON_THIS_MACHINE))
    order: Sequence[State] = ("fail", "warn", "ok", "skip")
    worst = order[min((order.index(one.state) for one in found), default=-1)]
    return Checkup(worst, patient.places.profile, __version__, found)


CHECKS: Final[Mapping[str, Callable[[Patient], Findings]]] = {
    "versions": machine_checks.look_at_versions,
    "profile": machine_checks.look_at_profile,
    "socket": machine_checks.look_at_socket,
    "settings": machine_checks.look_at_settings,
    "disk": machine_checks.look_at_disk,
    "files": machine_checks.look_at_files,
    "journal": journal_checks.look_at_journal,
    "ports": journal_checks.look_at_ports,
    "reach": network_checks.look_at_reach,
    "clock": network_checks.look_at_clock,
}
"""All checks, in the order in which one may need another to be well."""
