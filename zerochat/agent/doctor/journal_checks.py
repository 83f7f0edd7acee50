"""The journal, and the ports that it remembers."""

import errno
import socket
from contextlib import closing

from zerochat.agent.doctor.findings import ON_THIS_MACHINE, Findings, Patient, State
from zerochat.agent.network.addresses import EVERYWHERE, parse_listen
from zerochat.agent.storage.paths import Places
from zerochat.errors import LocalError


def look_at_journal(patient: Patient) -> Findings:
    home, status = patient.places, patient.status
    if status is not None:
        if status.damaged:
            remedy = "Keep a copy of the file, and put the last good backup back (`zerochat restore`)."
            yield "fail", f"The agent has found that the journal is damaged: {home.journal}.", remedy
        elif status.warning:
            yield "warn", "The agent needs attention.", status.warning
        else:
            yield "ok", "The agent has the journal open, and nothing is wrong with it.", ""
        return
    from zerochat.agent.storage.profiles import ProfileOwned, lock_profile, profile_exists

    if not profile_exists(home):
        yield "skip", "There is no profile, and so no journal.", ""
        return
    if patient.key is None:
        remedy = "Start the agent and ask again, or name a file with the passphrase in ZEROCHAT_PASSPHRASE_FILE."
        yield "skip", "The journal is locked with a passphrase, which is not asked for here.", remedy
        return
    try:
        with lock_profile(home):
            yield from _pages(home, patient.key())
    except ProfileOwned as error:
        text = f"Another process ({error.fields['pid']}) has the profile, and does not answer."
        yield "warn", text, "Wait a moment; if it stays so, end that process."


def _pages(home: Places, key: bytes) -> Findings:
    """Every page, without bringing the file along to this version. Raises what opening may raise."""
    from zerochat.agent.storage.database import (
        JournalDamaged,
        NewerJournal,
        OlderJournal,
        check_pages,
        faults,
        open_database,
    )
    from zerochat.agent.storage.tables import FORMAT

    try:
        with closing(open_database(home.journal, key, FORMAT)) as database, faults(home.journal, database):
            check_pages(database, home.journal)
            version = database.pragma("user_version")
    except (JournalDamaged, NewerJournal, OlderJournal) as error:
        yield "fail", "The journal cannot be used as it is.", error.sentence()
        return
    if version < FORMAT.version:
        text = f"The journal is of an older format ({version}, and this zerochat writes {FORMAT.version})."
        yield "warn", text, "Nothing is to be done: the next start brings it along, and keeps a copy until it was read."
    else:
        yield "ok", f"Every page of the journal is sound: {home.journal}.", ""


def look_at_ports(patient: Patient) -> Findings:
    status = patient.status
    if status is not None:
        if status.closed:
            yield "fail", "The gatekeeper has stopped, so nobody new gets in.", "Stop the agent and start it again."
        else:
            yield "ok", f"The agent listens: {status.pair} and {status.queue}.", ""
        return
    if patient.refused is not None:
        yield "skip", "The settings cannot be used, so nobody knows where an agent would listen.", ""
        return
    host, *ports = _listens(patient)
    free = True
    for port in [*ports, *([parse_listen(patient.settings.web)[1]] if patient.settings.web else [])]:
        where = host if port in ports else parse_listen(patient.settings.web or "")[0]
        if port and (why := _taken(str(where), int(port))):
            free = False
            yield why
    if free:
        said = " and ".join(str(port) for port in ports if port) or "any that are free"
        yield "ok", f"An agent can listen at {host}, ports {said}.", ""


def _listens(patient: Patient) -> tuple[str, int, int]:
    """Where the next agent would listen, by the settings, or by what the journal remembers."""
    known = _remembered(patient)
    host, pair, queue = parse_listen(patient.settings.listen or known.get("listen") or EVERYWHERE)
    return host, pair or int(known.get("pair_port") or 0), queue or int(known.get("queue_port") or 0)


def _remembered(patient: Patient) -> dict[str, str]:
    """What the journal has of where the agent listened; nothing where it cannot be read now."""
    from zerochat.agent.storage.database import open_database
    from zerochat.agent.storage.profiles import lock_profile
    from zerochat.agent.storage.tables import FORMAT

    if patient.key is None:
        return {}
    home = patient.places
    try:
        with lock_profile(home), closing(open_database(home.journal, patient.key(), FORMAT)) as database:
            names = ("listen", "pair_port", "queue_port")
            found = database.execute("SELECT key, value FROM meta WHERE key IN (?, ?, ?)", names).fetchall()
            return {str(name): value.decode() for name, value in found if isinstance(value, bytes)}
    except LocalError:  # the check of the journal says why
        return {}


def _taken(host: str, port: int) -> tuple[State, str, str] | None:
    """Why nobody could listen there; None: somebody could."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as libzmq does
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = f"End the program that has it (`ss -ltnp 'sport = :{port}'`), or set network.listen to another."
            return "fail", f"The port {port} at {host} is taken by another program.", remedy
        if error.errno == errno.EADDRNOTAVAIL:
            return "fail", f"This machine has no address {host}.", "Set network.listen to one that it has."
        if error.errno == errno.EACCES:
            return "fail", f"This user may not listen at port {port}.", "Choose one from 1024 on (network.listen)."
        return "fail", f"Nobody can listen at {host}, port {port}: {error.strerror}.", ON_THIS_MACHINE
    return None
