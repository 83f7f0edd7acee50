"""Doctor: diagnostic checks of this machine and profile, with findings and remedies.

The checks are real: they write to a folder, open a port, read every page of the journal, and connect to addresses. What
cannot be checked (a journal whose passphrase is not available) is `skip`, with the reason. No agent is started and
nothing is changed; `ports` and `journal` lock the profile briefly, and skip a profile that an agent owns.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from zerochat.agent.doctor import journal_checks, machine_checks, network_checks
from zerochat.agent.doctor.findings import ON_THIS_MACHINE, CheckContext, DoctorReport, Finding, Findings, State
from zerochat.errors import LocalError
from zerochat.version import __version__

__all__ = ["CHECKS", "CheckContext", "DoctorReport", "Finding", "run_checks"]


def run_checks(context: CheckContext, wanted: Sequence[str] = ()) -> DoctorReport:
    """Run these checks (empty: all); a check that raises is reported as a failure."""
    context.load()
    found: list[Finding] = []
    for name, check in CHECKS.items():
        if wanted and name not in wanted:
            continue
        try:
            found += [Finding(name, *one) for one in check(context)]
        except LocalError as error:
            found.append(Finding(name, "fail", error.sentence(), ""))
        except OSError as error:
            why = error.strerror or type(error).__name__
            found.append(Finding(name, "fail", f"This check failed: {why}.", ON_THIS_MACHINE))
    order: Sequence[State] = ("fail", "warn", "ok", "skip")
    worst = order[min((order.index(one.state) for one in found), default=-1)]
    return DoctorReport(worst, context.paths.profile, __version__, found)


CHECKS: Final[Mapping[str, Callable[[CheckContext], Findings]]] = {
    "versions": machine_checks.check_versions,
    "profile": machine_checks.check_profile,
    "socket": machine_checks.check_socket,
    "settings": machine_checks.check_settings,
    "disk": machine_checks.check_disk,
    "files": machine_checks.check_files,
    "memory": machine_checks.check_memory,
    "journal": journal_checks.check_journal,
    "ports": journal_checks.check_ports,
    "reach": network_checks.check_reach,
    "mail": network_checks.check_mail,
    "clock": network_checks.check_clock,
    "quota": network_checks.check_quota,
}
"""All checks, in the order of their dependencies."""
