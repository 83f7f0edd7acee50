"""The verbs for the profile and its agent: init, agent, status, locate."""

import signal
import threading
import time
from typing import TYPE_CHECKING

from zerochat.cli.agents import new_passphrase, passphrase_file, places_of, warn_of_settings, with_passphrase
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, name_of, narrate, quoted, status_lines, table
from zerochat.cli.parser import Options
from zerochat.terminal import printable_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from zerochat.agent.schema import Status
    from zerochat.agent.thread import AgentThread


OWNED_S_MAX, OWNED_QUIET_S, OWNED_AGAIN_S = 10.0, 1.0, 0.1
"""How long `agent` waits for a profile that somebody else has, from when on it says so, and how often it looks."""


def init(options: Options, out: Output) -> ExitCode:
    import os

    from zerochat.agent.vault import create_profile

    assert options.name is not None
    home = places_of(options)
    locked = not options.keyring and (options.passphrase or bool(os.environ.get("ZEROCHAT_PASSPHRASE_FILE")))
    create_profile(home, options.name, new_passphrase() if locked else None, keyring=options.keyring)
    out.data(
        {"profile": home.profile, "name": options.name, "data": str(home.data), "passphrase": locked}, [str(home.data)]
    )
    narrate(f"Made the profile {home.profile}. Next: `zerochat new GROUP`, or `zerochat join` with an invitation.")
    return ExitCode.OK


def status(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.client import NoAgent, connect

    home = places_of(options)
    try:
        client = connect(home, "cli")
    except NoAgent:
        from zerochat.agent.vault import NoProfile, profile_exists

        if not profile_exists(home):
            raise NoProfile(profile=home.profile) from None
        raise
    with client:
        found = client.status()
    out.data(found, status_lines(found))
    for group in found.groups:
        for doubt in group.disagreements:
            narrate(f"Careful, in {name_of(group.name)}: {printable_line(doubt.text)}")
        if group.disagreements:
            narrate(f"`zerochat members --dismiss {quoted(group.name)}` has you warned no more.")
        if group.requests:
            who = ", ".join(name_of(one.nick) for one in group.requests)
            narrate(f"Waiting to be let into {name_of(group.name)}: {who}. `zerochat requests {quoted(group.name)}`.")
    return ExitCode.OK


# --- the agent in the foreground ------------------------------------------------------------------------------------


def agent(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.client import connect
    from zerochat.agent.settings import load_settings
    from zerochat.agent.thread import AgentThread
    from zerochat.agent.vault import how_locked, unlock

    home = places_of(options)
    key = with_passphrase(lambda source: unlock(home, source))
    unused_s = load_settings(home).lock_after * 60.0
    if unused_s and (passphrase_file() is not None or how_locked(home) != "passphrase"):
        unused_s = 0.0  # nobody has typed anything, so closing it would keep nobody out
    told = threading.Event()

    def end(signum: int, frame: "FrameType | None") -> None:
        told.set()
        signal.signal(signum, signal.SIG_DFL)  # whoever asks twice does not want to wait

    for wanted in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(wanted) is not signal.SIG_IGN:
            signal.signal(wanted, end)
    warn_of_settings(home)

    def make() -> "AgentThread":
        return AgentThread(home, key, listen=options.listen, advertise=options.advertise, unused_s=unused_s or None)

    thread = _started(make, told)
    if thread is None:
        return ExitCode.OK
    try:
        with connect(home, "cli") as client:
            ready = client.status()
        out.data(ready, [_ready_line(ready)])
        _until(told, thread)
    finally:
        thread.stop()
    if thread.failure is not None:
        raise thread.failure
    if unused_s and thread.unneeded:
        narrate(f"Closed, because nobody has been attached for {unused_s / 60:.0f} minutes (agent.lock_after).")
    return ExitCode.OK


def _started(make: "Callable[[], AgentThread]", told: threading.Event) -> "AgentThread | None":
    """An agent that runs, as soon as whoever has the profile lets go of it: most verbs hold it for a moment only. None
    when we are told to end meanwhile. Raises ProfileOwned when that takes too long."""
    from zerochat.agent.vault import ProfileOwned

    begun, said = time.monotonic(), False
    while True:
        thread = make()
        try:
            thread.start()
        except ProfileOwned as error:
            waited = time.monotonic() - begun
            if told.is_set():
                return None
            if waited >= OWNED_S_MAX:
                raise
            if waited >= OWNED_QUIET_S and not said:
                said = True
                narrate(f"Another zerochat (process {error.fields['pid']}) has this profile; waiting until it is free…")
            told.wait(OWNED_AGAIN_S)
        except BaseException:
            thread.stop()
            raise
        else:
            return thread


def _ready_line(ready: "Status") -> str:
    return f"ready profile={ready.profile} pid={ready.pid} pair={ready.pair} queue={ready.queue}"


def _until(told: threading.Event, thread: "AgentThread") -> None:
    """Wait until somebody tells us to end, or the agent has ended by itself (`stop`, or a failure)."""
    while not told.wait(0.25):
        if not thread.is_alive():
            return


# --- where things are -----------------------------------------------------------------------------------------------


def locate(options: Options, out: Output) -> ExitCode:
    home = places_of(options)
    kept = {
        "config": home.config,
        "data": home.data,
        "state": home.state,
        "cache": home.cache,
        "log": home.log,
        "socket": home.socket,
        "lock": home.lock,
        "key": home.key_file,
    }
    if options.place is not None:
        path = str(kept[options.place])
        if out.jsonl:
            out.data({"place": options.place, "path": path}, ())
        else:
            out.exactly(path)
    elif out.jsonl:
        out.data({place: str(path) for place, path in kept.items()}, ())
    else:
        out.data({}, table([(place, str(path)) for place, path in kept.items()]))
    return ExitCode.OK
