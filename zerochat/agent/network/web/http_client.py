"""The client that everything of ours goes out with: TLS checked, no cookies, no proxies from the environment, no name
of ours in the headers, and one vocabulary for what went wrong.
"""

import asyncio
import logging
import ssl
from typing import TypeAlias

import aiohttp
from yarl import URL

from zerochat.agent.network.web.event_loop import WebLoop
from zerochat.agent.network.web.limits import HEADERS_MAX, URI_BYTES_MAX, Limits

Trouble: TypeAlias = aiohttp.ClientError | OSError | ValueError
"""What aiohttp raises when something is wrong out there; TimeoutError and ssl.SSLError are among OSError."""
TROUBLE = (aiohttp.ClientError, OSError, ValueError)
BETTER = {"http": ("http", "https"), "https": ("https",), "ws": ("ws", "wss"), "wss": ("wss",)}
"""Where a scheme may be redirected to."""


class Redirected(aiohttp.ClientError):
    """A redirect where none is followed."""


async def stay(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Follow no redirect: aiohttp would, for a session, to anywhere."""
    response = await send(request)
    if 300 <= response.status < 400:
        response.close()
        raise Redirected()
    return response


def make_client(context: ssl.SSLContext, limits: Limits, *, sessions: bool = False) -> aiohttp.ClientSession:
    """A client on the running loop, which must be a WebLoop; `sessions`: for WebSockets, which nothing else limits
    here and which are never redirected."""
    # What aiohttp says of peers may quote them, and without a handler Python writes it to the terminal.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL + 1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WebLoop)
    connector = aiohttp.TCPConnector(
        ssl=context,
        limit=0 if sessions else limits.connections_out,
        limit_per_host=0 if sessions else limits.per_host,
        keepalive_timeout=15.0,
        resolver=aiohttp.ThreadedResolver(),
        socket_factory=loop.open_socket,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept-Encoding"),
        auto_decompress=False,
        max_headers=HEADERS_MAX,
        middlewares=(stay,) if sessions else (),
        timeout=aiohttp.ClientTimeout(total=limits.request_s, connect=limits.handshake_s),
    )


def callable_url(uri: str, schemes: tuple[str, ...]) -> URL | None:
    """The URI as aiohttp wants it; None for one that is not to be called."""
    if len(uri) > URI_BYTES_MAX:
        return None
    try:
        url = URL(uri)
        fine = url.scheme in schemes and bool(url.host) and url.user is None and url.password is None
        return url if fine and url.port else None
    except ValueError:
        return None


def redirected(url: URL, location: str | None) -> URL | None:
    """Where a redirect leads; None where it is not to be followed: to less security, or elsewhere altogether."""
    if location is None:
        return None
    try:
        target = url.join(URL(location))
    except ValueError:
        return None
    return callable_url(str(target), BETTER[url.scheme])


def reason(error: Trouble) -> str:
    """One word for it, as in `Failed`."""
    match error:
        case Redirected():
            return "redirect"
        case aiohttp.ClientConnectorDNSError():
            return "name"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return "tls"
        case TimeoutError():
            return "timeout"
        case aiohttp.WSServerHandshakeError(status=status):
            return f"status {status}"
        case aiohttp.ClientConnectorError():
            return "unreachable"
        case aiohttp.InvalidURL():
            return "uri"
    return "lost"
