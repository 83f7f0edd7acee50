"""The terminal application (Textual client): `run_chat` opens it on a profile.

Everything that it shows comes over the profile's control socket, whether the agent runs in this process or in
another. README.md lists the packages and their layers.
"""

import gc
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.storage.paths import ProfilePaths
    from zerochat.tui.app import ZerochatApp


@contextmanager
def echo_off() -> Iterator[None]:
    """Turn terminal echo off until the screen is up: early input may be the passphrase."""
    import termios

    try:
        before = termios.tcgetattr(0)
    except termios.error:  # no terminal
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(0, termios.TCSANOW, before)


@contextmanager
def restored_signals() -> Iterator[None]:
    """Restore the SIGHUP and SIGTERM handlers. An asyncio loop removes its own handlers when it ends, and a second
    SIGTERM would then kill the agent during its shutdown."""
    before = {entry: signal.getsignal(entry) for entry in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        with suppress(ValueError):  # outside the main thread no handler was set
            for entry, handler in before.items():
                signal.signal(entry, handler)


class _AgentStarter:
    """Starts or finds the agent, after unlocking the profile where it was locked by inactivity."""

    def __init__(
        self,
        places: "ProfilePaths",
        passphrase: Callable[[], bytes] | None,
        listen: str | None,
        advertise: str | None,
    ) -> None:
        self._places, self._passphrase = places, passphrase
        self._listen, self._advertise = listen, advertise
        self._attached: Attached | None = None
        self._locked = False
        self.typed: bytes | None = None
        """The passphrase typed at the first run, for the first start only."""

    def lock(self) -> None:
        self._locked = True

    def start(self, app: "ZerochatApp", prompt: Callable[[], bytes]) -> None:
        """Attach to the agent; `prompt` asks for the passphrase. Blocks; raises LocalError."""
        from zerochat.agent.api.attach import attach
        from zerochat.agent.settings.reader import load_settings
        from zerochat.agent.storage.profiles import key_location, unlock

        self.close()
        if (typed_before := self.typed) is not None:
            self.typed, prompt = None, lambda: typed_before
        if self._locked:  # an agent in another process is already unlocked
            typed = prompt()
            unlock(self._places, lambda: typed)
            self._locked, prompt = False, lambda: typed
        passphrase = self._passphrase or prompt
        self._attached = attach(self._places, passphrase, listen=self._listen, advertise=self._advertise, name="tui")
        settings = load_settings(self._places)
        if settings.lock_after and self._passphrase is None and key_location(self._places) == "passphrase":
            app.call_from_thread(app.lock_after, settings.lock_after * 60.0)
        if self._attached.own:
            for warning in settings.warnings:
                app.call_from_thread(app.warn, f"{self._places.config}: {warning}")

    def close(self) -> None:
        if self._attached is not None:
            self._attached.close()
            self._attached = None


@echo_off()
def run_chat(
    places: "ProfilePaths",
    passphrase: Callable[[], bytes] | None = None,
    *,
    listen: str | None = None,
    advertise: str | None = None,
    group: str = "",
    demo: Callable[[], int] | None = None,
    overrides: Mapping[str, object] | None = None,
    tour: bool = True,
) -> int:
    """Run the terminal application on a profile until the user quits; returns the exit code.

    `passphrase` must not use the terminal; with None the screen prompts for it. `demo` starts the demo when a user
    without a profile chooses it; without it the choice is not offered. `overrides`: settings from the command line.
    `tour`: show the tour when this profile is opened for the first time.
    """
    gc.disable()  # Imports create no garbage; collecting during them takes a tenth of the startup time.
    from zerochat.tui.app import ZerochatApp
    from zerochat.tui.state.preferences import SettingsStore

    gc.freeze()
    gc.enable()
    agent = _AgentStarter(places, passphrase, listen, advertise)

    def create_profile(nick: str, secret: bytes | None) -> None:
        from zerochat.agent.storage.profiles import create_profile

        create_profile(places, nick, secret)
        agent.typed = secret

    store = SettingsStore(places, overrides)
    shown = places.state / "toured"

    def mark_tour_seen() -> None:
        with suppress(OSError):  # on a full disk the tour is shown again
            shown.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shown.touch(mode=0o600)

    made = places.data.is_dir()  # a profile is created atomically
    app = ZerochatApp(
        places.socket,
        start_agent=lambda prompt: agent.start(app, prompt),
        create_profile=None if made else create_profile,
        lock=agent.lock,
        demo=demo is not None,
        open_group=group,
        settings_store=store,
        on_tour_shown=mark_tour_seen if tour and store.current.tour and not shown.exists() else None,
    )
    try:
        with restored_signals():
            result = app.run()
    finally:
        agent.close()
    if result == "demo" and demo is not None:
        return demo()
    return app.return_code or 0
