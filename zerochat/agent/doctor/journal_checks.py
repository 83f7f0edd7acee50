"""Checks of the journal's integrity, and of the ports that the agent used last."""

import errno
import socket
from contextlib import closing

from zerochat.agent.doctor.findings import ON_THIS_MACHINE, CheckContext, Findings, State
from zerochat.agent.network.addresses import ALL_ADDRESSES, parse_listen
from zerochat.agent.network.port_holder import port_holder
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.errors import LocalError


def check_journal(context: CheckContext) -> Findings:
    home, status = context.paths, context.status
    if status is not None:
        if status.damaged:
            remedy = "Keep a copy of the file, and restore the last good backup (`zerochat restore`)."
            yield "fail", f"The agent reports that the journal is damaged: {home.journal}.", remedy
        elif status.warning:
            yield "warn", "The agent needs attention.", status.warning
        else:
            yield "ok", "The agent has the journal open and reports no problem.", ""
        return
    from zerochat.agent.storage.profiles import ProfileOwned, lock_profile, profile_exists

    if not profile_exists(home):
        yield "skip", "There is no profile, so there is no journal.", ""
        return
    if context.key is None:
        remedy = "Start the agent and run this again, or set ZEROCHAT_PASSPHRASE_FILE to a file with the passphrase."
        yield "skip", "The journal is locked with a passphrase, so it cannot be checked.", remedy
        return
    try:
        with lock_profile(home):
            yield from _pages(home, context.key())
    except ProfileOwned as error:
        text = f"Another process ({error.fields['pid']}) uses the profile and does not respond."
        yield "warn", text, "Wait a moment. If this persists, stop that process."


def _pages(home: ProfilePaths, key: bytes) -> Findings:
    """Verify every page. Raises what opening may raise."""
    from zerochat.agent.storage.database import (
        JournalDamaged,
        UnsupportedJournal,
        check_pages,
        open_database,
        sqlite_errors,
    )
    from zerochat.agent.storage.tables import FORMAT

    try:
        with closing(open_database(home.journal, key, FORMAT)) as database, sqlite_errors(home.journal, database):
            check_pages(database, home.journal)
    except (JournalDamaged, UnsupportedJournal) as error:
        yield "fail", "The journal cannot be used.", error.sentence()
        return
    yield "ok", f"Every page of the journal is intact: {home.journal}.", ""


PORT_REMEDY = "Stop the program that uses the port, or set network.listen to another one, and restart the agent."


def check_ports(context: CheckContext) -> Findings:
    status = context.status
    if status is not None:
        if status.closed:
            yield "fail", "The agent no longer accepts new connections.", "Stop the agent and start it again."
        for one in status.replaced_ports:
            yield "warn", f"The agent listens on port {one.by}, because {one.port} was in use.", PORT_REMEDY
        if not (status.closed or status.replaced_ports):
            yield "ok", f"The agent listens: {status.pair} and {status.queue}.", ""
        return
    if context.refused is not None:
        yield "skip", "The settings are invalid, so the listening address is unknown.", ""
        return
    host, *ports = _listens(context)
    free = True
    for port in [*ports, *([parse_listen(context.settings.web)[1]] if context.settings.web else [])]:
        where = host if port in ports else parse_listen(context.settings.web or "")[0]
        if port and (why := _taken(str(where), int(port))):
            free = False
            yield why
    if free:
        named = " and ".join(str(port) for port in ports if port)
        yield "ok", f"An agent can listen on {host}, {f'ports {named}' if named else 'at any free ports'}.", ""


def _listens(context: CheckContext) -> tuple[str, int, int]:
    """Where the next agent would listen: from the settings, or else from the journal."""
    known = _remembered(context)
    host, pair, queue = parse_listen(context.settings.listen or known.get("listen") or ALL_ADDRESSES)
    return host, pair or int(known.get("pair_port") or 0), queue or int(known.get("queue_port") or 0)


def _remembered(context: CheckContext) -> dict[str, str]:
    """The address and ports stored in the journal; empty: it cannot be read now."""
    from zerochat.agent.storage.database import open_database
    from zerochat.agent.storage.profiles import lock_profile
    from zerochat.agent.storage.tables import FORMAT

    if context.key is None:
        return {}
    home = context.paths
    try:
        with lock_profile(home), closing(open_database(home.journal, context.key(), FORMAT)) as database:
            names = ("listen", "pair_port", "queue_port")
            found = database.execute("SELECT key, value FROM meta WHERE key IN (?, ?, ?)", names).fetchall()
            return {str(name): value.decode() for name, value in found if isinstance(value, bytes)}
    except LocalError:  # reported by the journal check
        return {}


def _taken(host: str, port: int) -> tuple[State, str, str] | None:
    """The finding if the port cannot be used; None: it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as libzmq does
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = (
                f"Stop the program that uses it (`ss -ltnp 'sport = :{port}'`), or set network.listen to another port."
            )
            return "fail", f"Port {port} on {host} is in use by {port_holder(port)}.", remedy
        if error.errno == errno.EADDRNOTAVAIL:
            return "fail", f"This machine has no address {host}.", "Set network.listen to an address of this machine."
        if error.errno == errno.EACCES:
            return "fail", f"This user may not listen on port {port}.", "Choose a port from 1024 on (network.listen)."
        return "fail", f"Cannot listen on {host}, port {port}: {error.strerror}.", ON_THIS_MACHINE
    return None
