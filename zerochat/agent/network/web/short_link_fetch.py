"""Fetches the invitation behind a short link (`zerochat join http://…/?_oobid=…`).

The server is untrusted: size, time and redirects are bounded, and the text goes to the same strict parsers as a pasted
link.
"""

import asyncio
import ssl
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from zerochat.agent.network.web.event_loop import WebLoop, parse_proxy
from zerochat.agent.network.web.limits import INVITATION_BYTES_MAX, REDIRECTS_MAX, Limits
from zerochat.agent.network.web.short_links import holds_invitation
from zerochat.agent.network.web.tls import client_context
from zerochat.didcomm.protocols import short_links
from zerochat.errors import LocalError, Malformed, RemoteError

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

FETCH_S_MAX = 15.0
GONE = frozenset({404, 410})
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class NoInvitationThere(LocalError):
    """No invitation found at this short link: {why}. It may have expired or been used; ask its sender for a new one
    (`zerochat invite GROUP`)."""


class ShortLinkGone(NoInvitationThere):
    """The invitation behind this short link no longer exists: {why}. Ask its sender for a new one (`zerochat invite
    GROUP`)."""


class ShortLinkUnanswered(NoInvitationThere):
    """This short link cannot be resolved now: {why}. Try again later."""


def fetch_invitation(uri: str, *, socks: str | None = None, ca_file: str | None = None) -> "Future[str]":
    """Fetch a short link in a thread; the result is a long link, or an invitation as JSON text.

    It ends within FETCH_S_MAX. A long link is returned as it is. What a link with a key leads to must be sealed with
    that key, so a server cannot replace it. `socks` and `ca_file` as for Web. Raises a LocalError,
    directly or through the Future.
    """
    key = _key_of(uri)
    proxy = parse_proxy(socks) if socks is not None else None
    context = client_context(ca_file)
    result: Future[str] = Future()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: WebLoop(proxy)) as runner:
                runner.get_loop().set_exception_handler(lambda loop, context: None)
                found = _opened(runner.run(_fetch(uri.partition("#")[0], context)), key)
        except Exception as error:  # noqa: BLE001  # the caller gets it through the Future
            result.set_exception(error)
        else:
            result.set_result(found)

    if holds_invitation(uri):
        result.set_result(uri)
    else:
        threading.Thread(target=work, name="zerochat-web-fetch", daemon=True).start()
    return result


def _key_of(uri: str) -> bytes | None:
    if holds_invitation(uri):
        return None
    try:
        return short_links.key_of(uri)
    except Malformed:
        raise NoInvitationThere(why="the link is cut off or damaged") from None


def _opened(found: str, key: bytes | None) -> str:
    """The invitation in what was found. Raises NoInvitationThere."""
    try:
        sealed = short_links.read_document(found) if found.startswith("{") else None
        if sealed is None and key is not None:
            raise NoInvitationThere(why="the server has replaced it by another document")
        if sealed is None:
            return found
        if key is None:
            raise NoInvitationThere(why="the end of the link is missing, from # on; copy the whole link")
        return short_links.open_sealed(sealed, key)
    except RemoteError:
        raise NoInvitationThere(why="it does not belong to this link, or the link is damaged") from None


async def _fetch(uri: str, context: ssl.SSLContext) -> str:
    from zerochat.agent.network.web.http_client import CLIENT_FAILURES, callable_url, make_client, reason

    url = callable_url(uri, ("http", "https"))
    if url is None:
        raise NoInvitationThere(why="it is not an http or https address")
    try:
        async with asyncio.timeout(FETCH_S_MAX), make_client(context, Limits()) as client:
            for _ in range(REDIRECTS_MAX + 1):
                found = await _step(client, url)
                if isinstance(found, str):
                    return found
                url = found
    except CLIENT_FAILURES as error:
        raise ShortLinkUnanswered(why=SENTENCES.get(reason(error), "the connection was lost")) from error
    raise NoInvitationThere(why="too many redirects")


async def _step(client: "aiohttp.ClientSession", url: "URL") -> "str | URL":
    """One request: the invitation, or the next URL."""
    from zerochat.agent.network.web.http_client import redirected
    from zerochat.agent.network.web.http_server import JSON_TYPES

    async with client.get(url, headers={"Accept": ", ".join(JSON_TYPES)}, allow_redirects=False) as response:
        if response.status in REDIRECTS:
            location = response.headers.get("Location", "")
            if holds_invitation(location):
                return location
            target = redirected(url, location)
            if target is None:
                raise NoInvitationThere(why="it redirects to an invalid or less secure address")
            return target
        if response.status != 200:
            kind = ShortLinkGone if response.status in GONE else NoInvitationThere
            raise kind(why=f"the server answered with status {response.status}")
        body = bytearray()
        while len(body) <= INVITATION_BYTES_MAX and (chunk := await response.content.readany()):
            body += chunk
    if len(body) > INVITATION_BYTES_MAX:
        raise NoInvitationThere(why="the document is too large")
    with suppress(UnicodeDecodeError):
        text = body.decode().strip()
        if text.startswith("{"):
            return text
    raise NoInvitationThere(why="the document is not an invitation")


SENTENCES = {
    "name": "the host was not found",
    "unreachable": "the server is unreachable",
    "tls": "its certificate is not trusted",
    "timeout": "the server did not answer in time",
}
