"""Following a short link to the invitation behind it, for whoever was given one (`zerochat join http://…/?_oobid=…`).

What it leads to comes from a stranger, so it is bounded in every way and nothing of it is believed here: the text goes
to the same strict readers as a link that was pasted.
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
from zerochat.errors import LocalError

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

FETCH_S_MAX = 15.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class NoInvitationThere(LocalError):
    """There is no invitation behind this short link: {why}. It may have expired or been used; ask the person who sent
    it for a fresh one (`zerochat invite GROUP`)."""


def fetch_invitation(uri: str, *, socks: str | None = None, ca_file: str | None = None) -> "Future[str]":
    """Start to follow a short link, in a thread of its own; the result is a long link, or an invitation as JSON text.

    It ends within FETCH_S_MAX. A link that is long already is the result itself. `socks` and `ca_file` as for Web.
    Raises, and the Future raises, a LocalError.
    """
    proxy = parse_proxy(socks) if socks is not None else None
    context = client_context(ca_file)
    result: Future[str] = Future()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: WebLoop(proxy)) as runner:
                runner.get_loop().set_exception_handler(lambda loop, context: None)
                found = runner.run(_fetch(uri, context))
        except Exception as error:  # noqa: BLE001  # whatever it was: whoever waits is told
            result.set_exception(error)
        else:
            result.set_result(found)

    if holds_invitation(uri):
        result.set_result(uri)
    else:
        threading.Thread(target=work, name="zerochat-web-fetch", daemon=True).start()
    return result


async def _fetch(uri: str, context: ssl.SSLContext) -> str:
    from zerochat.agent.network.web.http_client import TROUBLE, callable_url, make_client, reason

    url = callable_url(uri, ("http", "https"))
    if url is None:
        raise NoInvitationThere(why="it is no http or https address")
    try:
        async with asyncio.timeout(FETCH_S_MAX), make_client(context, Limits()) as client:
            for _ in range(REDIRECTS_MAX + 1):
                found = await _step(client, url)
                if isinstance(found, str):
                    return found
                url = found
    except TROUBLE as error:
        raise NoInvitationThere(why=SENTENCES.get(reason(error), "the connection was lost")) from error
    raise NoInvitationThere(why="it leads from one place to the next")


async def _step(client: "aiohttp.ClientSession", url: "URL") -> "str | URL":
    """One request: the invitation, or where to ask next."""
    from zerochat.agent.network.web.http_client import redirected
    from zerochat.agent.network.web.http_server import JSON_TYPES

    async with client.get(url, headers={"Accept": ", ".join(JSON_TYPES)}, allow_redirects=False) as response:
        if response.status in REDIRECTS:
            location = response.headers.get("Location", "")
            if holds_invitation(location):
                return location
            target = redirected(url, location)
            if target is None:
                raise NoInvitationThere(why="it leads to something that is no http or https address, or less secure")
            return target
        if response.status != 200:
            raise NoInvitationThere(why=f"the answer is {response.status}")
        body = bytearray()
        while len(body) <= INVITATION_BYTES_MAX and (chunk := await response.content.readany()):
            body += chunk
    if len(body) > INVITATION_BYTES_MAX:
        raise NoInvitationThere(why="what is there is too long")
    with suppress(UnicodeDecodeError):
        text = body.decode().strip()
        if text.startswith("{"):
            return text
    raise NoInvitationThere(why="what is there is no invitation")


SENTENCES = {
    "name": "there is no host of that name",
    "unreachable": "nobody answers at that address",
    "tls": "its certificate is not trusted here",
    "timeout": "nobody answered in time",
}
