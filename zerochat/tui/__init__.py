"""The Textual face: what a person sees and presses.

It knows nothing of keys, sockets to peers or the disk: it asks the agent over the profile's control socket, like every
other face, and shows what the agent tells. So it runs the same whether the agent lives in this process or in another.

Rooms import downwards only: app, chat, actions, board, sheets, writing and panels, state, messages and host, looks.
README.md beside this says what is in each.
"""

import gc
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.storage.paths import Places


@contextmanager
def unechoed() -> Iterator[None]:
    """The terminal shows nothing by itself of what is typed before the screen is up: it may be the passphrase."""
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
        termios.tcsetattr(0, termios.TCSANOW, before)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Signals mean afterwards what they meant before. An event loop that ends leaves those it has heeded without a
    handler, and whoever asks a second time would cut off the agent that is just being stopped."""
    before = {one: signal.getsignal(one) for one in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        with suppress(ValueError):  # not in the main thread, where nothing was heeded
            for one, handler in before.items():
                signal.signal(one, handler)


@unechoed()
def run_chat(
    places: "Places",
    passphrase: Callable[[], bytes] | None = None,
    *,
    listen: str | None = None,
    advertise: str | None = None,
    group: str = "",
    demo: Callable[[], int] | None = None,
    said: Mapping[str, object] | None = None,
    tour: bool = True,
) -> int:
    """Open the terminal application on a profile, until the person leaves it; the exit code.

    `passphrase` must not use the terminal, which belongs to the screen by then; None: the screen asks. `demo` is what
    to run when a person without a profile chooses to try the demo; without it that is not offered. `said`: settings
    from the command line. `tour`: whether somebody who opens this profile for the first time is shown what is where.
    """
    gc.disable()  # Nothing of what is imported is ever garbage: looking for it takes a tenth of the time until here.
    from zerochat.tui.app import ZerochatApp
    from zerochat.tui.state.preferences import Choices

    gc.freeze()
    gc.enable()
    attached: list[Attached] = []
    locked = False

    def lock() -> None:
        nonlocal locked
        locked = True

    def start_agent(ask: Callable[[], bytes]) -> None:
        from zerochat.agent.api.attach import attach
        from zerochat.agent.settings.reader import load_settings
        from zerochat.agent.storage.profiles import how_locked, unlock

        nonlocal locked
        while attached:
            attached.pop().close()
        if locked:  # an agent that belongs to another process would let anybody in
            typed = ask()
            unlock(places, lambda: typed)
            locked, ask = False, lambda: typed
        attached.append(attach(places, passphrase or ask, listen=listen, advertise=advertise, name="tui"))
        settings = load_settings(places)
        if settings.lock_after and passphrase is None and how_locked(places) == "passphrase":
            app.call_from_thread(app.lock_after, settings.lock_after * 60.0)
        if attached[-1].own:
            for warning in settings.warnings:
                app.call_from_thread(app.warn, f"{places.config}: {warning}")

    def create_profile(nick: str) -> None:
        from zerochat.agent.storage.profiles import create_profile

        create_profile(places, nick, None)

    choices = Choices(places, said)
    shown = places.state / "toured"

    def toured() -> None:
        with suppress(OSError):  # Whoever has a full disk sees it again.
            shown.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shown.touch(mode=0o600)

    made = places.data.is_dir()  # A profile appears whole or not at all.
    app = ZerochatApp(
        places.socket,
        start_agent=start_agent,
        create_profile=None if made else create_profile,
        lock=lock,
        demo=demo is not None,
        open_group=group,
        choices=choices,
        toured=toured if tour and choices.now.tour and not shown.exists() else None,
    )
    try:
        with signals_kept():
            result = app.run()
    finally:
        for each in attached:
            each.close()
    if result == "demo" and demo is not None:
        return demo()
    return app.return_code or 0
