"""HTTP client: verified TLS, no cookies, no proxy from the environment, no User-Agent, one vocabulary of failures."""

import asyncio
import logging
import ssl
from functools import partial
from typing import TypeAlias

import aiohttp
from yarl import URL

from zerochat.agent.network.web.event_loop import WebLoop
from zerochat.agent.network.web.limits import HEADERS_MAX, URI_BYTES_MAX, Limits
from zerochat.didcomm.address_kinds import AddressKind

ClientFailure: TypeAlias = aiohttp.ClientError | OSError | ValueError
"""What aiohttp raises for network and server failures; OSError includes TimeoutError and ssl.SSLError."""
CLIENT_FAILURES = (aiohttp.ClientError, OSError, ValueError)
REDIRECT_SCHEMES = {"http": ("http", "https"), "https": ("https",), "ws": ("ws", "wss"), "wss": ("wss",)}
"""The schemes that each scheme may be redirected to."""


class Redirected(aiohttp.ClientError):
    """A redirect that is not followed."""


async def refuse_redirects(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Refuse redirects, which aiohttp would follow anywhere for a WebSocket."""
    response = await send(request)
    if 300 <= response.status < 400:
        response.close()
        raise Redirected()
    return response


def make_client(
    context: ssl.SSLContext, limits: Limits, nearest: AddressKind = AddressKind.LOOPBACK, *, sessions: bool = False
) -> aiohttp.ClientSession:
    """A client on the running loop, which must be a WebLoop; it dials no address nearer than `nearest`. `sessions`: for
    WebSockets, whose number is limited elsewhere and which are never redirected."""
    # aiohttp's messages may quote a peer, and without a handler Python prints them to the terminal.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL + 1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WebLoop)
    connector = aiohttp.TCPConnector(
        ssl=context,
        limit=0 if sessions else limits.connections_out,
        limit_per_host=0 if sessions else limits.per_host,
        keepalive_timeout=15.0,
        resolver=aiohttp.ThreadedResolver(),
        socket_factory=partial(loop.open_socket, nearest),
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept-Encoding"),
        auto_decompress=False,
        max_headers=HEADERS_MAX,
        middlewares=(refuse_redirects,) if sessions else (),
        timeout=aiohttp.ClientTimeout(total=limits.request_s, connect=limits.handshake_s),
    )


class HttpClients:
    """One client for each nearest kind of address, made on first use, so that no kept-alive connection to a nearer
    address is reused for an envelope that may not go there."""

    def __init__(self, context: ssl.SSLContext, limits: Limits, *, sessions: bool = False) -> None:
        self._make = partial(make_client, context, limits, sessions=sessions)
        self._clients: dict[AddressKind, aiohttp.ClientSession] = {}

    def __getitem__(self, nearest: AddressKind) -> aiohttp.ClientSession:
        if nearest not in self._clients:
            self._clients[nearest] = self._make(nearest)
        return self._clients[nearest]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def callable_url(uri: str, schemes: tuple[str, ...]) -> URL | None:
    """The URI for aiohttp; None: invalid or forbidden."""
    if len(uri) > URI_BYTES_MAX:
        return None
    try:
        url = URL(uri)
        fine = url.scheme in schemes and bool(url.host) and url.user is None and url.password is None
        return url if fine and url.port else None
    except ValueError:
        return None


def redirected(url: URL, location: str | None) -> URL | None:
    """The target of a redirect; None: invalid, or less secure."""
    if location is None:
        return None
    try:
        target = url.join(URL(location))
    except ValueError:
        return None
    return callable_url(str(target), REDIRECT_SCHEMES[url.scheme])


def reason(error: ClientFailure) -> str:
    """The failure in one word, as in `Failed.why`."""
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
