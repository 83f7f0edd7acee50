"""zerochat: end-to-end encrypted group chat for the terminal, without a server.

Importing this costs nothing: the public names below are looked up when they are first used, because `zerochat send`
should not pay for what only the chat needs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerochat.agent.api.attach import attach
    from zerochat.agent.api.client import Client
    from zerochat.agent.storage.paths import places
    from zerochat.bot import Bot, Event, Message, SyncBot, SyncMessage
    from zerochat.errors import LocalError, RemoteError, ZerochatError

__version__ = "0.1.0.dev0"
"""The same as in pyproject.toml; kept here so that nobody has to search the installed packages for it."""

__all__ = [
    "Bot",
    "Client",
    "Event",
    "LocalError",
    "Message",
    "RemoteError",
    "SyncBot",
    "SyncMessage",
    "ZerochatError",
    "__version__",
    "attach",
    "places",
]

_HOMES = {
    "Bot": "zerochat.bot",
    "Event": "zerochat.bot",
    "Message": "zerochat.bot",
    "SyncBot": "zerochat.bot",
    "SyncMessage": "zerochat.bot",
    "Client": "zerochat.agent.api.client",
    "LocalError": "zerochat.errors",
    "RemoteError": "zerochat.errors",
    "ZerochatError": "zerochat.errors",
    "attach": "zerochat.agent.api.attach",
    "places": "zerochat.agent.storage.paths",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
