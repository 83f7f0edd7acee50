"""DIDComm over HTTP(S) and WebSocket: a thread of its own with an event loop, behind one object, `Web`.

It is off unless somebody asks for it: a profile that listens for HTTP, or has a member or a mediator whose endpoint is
an http(s) or ws(s) URI. aiohttp is imported by the thread when it starts, so that nobody else waits for that.
"""

from zerochat.agent.network.web.events import Arrived, Closed, Delivered, Failed, News, Opened
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
    "News",
    "NoInvitationThere",
    "Opened",
    "Web",
    "WebFailed",
    "fetch_invitation",
]
