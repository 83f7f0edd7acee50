"""zerochat: end-to-end encrypted group chat for the terminal, without a server.

The public names are imported lazily, so that `zerochat send` does not load the rest.
"""

from typing import TYPE_CHECKING

from zerochat.version import __version__

if TYPE_CHECKING:
    from zerochat.agent.api.attach import attach
    from zerochat.agent.api.client import Client
    from zerochat.agent.api.client_protocol import AgentError
    from zerochat.agent.storage.paths import profile_paths
    from zerochat.bot import Bot, Event, Message, SyncBot, SyncMessage
    from zerochat.errors import LocalError, RemoteError, ZerochatError

__all__ = [
    "AgentError",
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
    "profile_paths",
]

_MODULES = {
    "Bot": "zerochat.bot",
    "Event": "zerochat.bot",
    "Message": "zerochat.bot",
    "SyncBot": "zerochat.bot",
    "SyncMessage": "zerochat.bot",
    "AgentError": "zerochat.agent.api.client_protocol",
    "Client": "zerochat.agent.api.client",
    "LocalError": "zerochat.errors",
    "RemoteError": "zerochat.errors",
    "ZerochatError": "zerochat.errors",
    "attach": "zerochat.agent.api.attach",
    "profile_paths": "zerochat.agent.storage.paths",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
