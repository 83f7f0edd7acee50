"""DIDComm over HTTP(S) and WebSocket: an asyncio thread behind one object, `Web`.

It runs only when needed: when the profile listens for HTTP, or a member or mediator has an http(s) or ws(s) endpoint.
The thread imports aiohttp when it starts, so that other programs do not wait for the import.
"""

from zerochat.agent.network.web.events import Arrived, Closed, Delivered, Failed, Opened, WebEvent
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.short_link_fetch import NoInvitationThere, fetch_invitation
from zerochat.agent.network.web.tls import BadCertificate
from zerochat.agent.network.web.web import CannotListenForWeb, Web, WebFailed

__all__ = [
    "Arrived",
    "BadCertificate",
    "CannotListenForWeb",
    "Closed",
    "Delivered",
    "Failed",
    "Limits",
    "NoInvitationThere",
    "Opened",
    "Web",
    "WebEvent",
    "WebFailed",
    "fetch_invitation",
]
