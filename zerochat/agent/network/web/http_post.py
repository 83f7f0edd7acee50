"""Outgoing POSTs: in order for each URI, side by side for different ones, each with its result.

One request per URI is under way at a time, over a connection that is kept; HTTP/1.1 gives no other way to keep an order
that survives a slow server. When the server cannot be reached, or says that it is busy, everything that waits for that
URI fails at once: whoever sends it again decides when, and nothing overtakes what failed.
"""

import asyncio
from collections import deque

import aiohttp
from yarl import URL

from zerochat.agent.network.web.events import REPLY_TYPES, SIGNED, Arrived, Parcel, Settled
from zerochat.agent.network.web.http_client import TROUBLE, callable_url, reason, redirected
from zerochat.agent.network.web.inbox import Inbox
from zerochat.agent.network.web.limits import REDIRECT_BODY_BYTES_MAX, REDIRECTS_MAX, REPLY_BYTES_MAX
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX

BUSY = frozenset({429, 502, 503, 504})


class Poster:
    """A worker for each URI that has something waiting."""

    def __init__(self, client: aiohttp.ClientSession, inbox: Inbox) -> None:
        self._client, self._inbox = client, inbox
        self._queues: dict[str, deque[Parcel]] = {}
        self._workers: set[asyncio.Task[None]] = set()

    def post(self, parcel: Parcel) -> None:
        queue = self._queues.get(parcel.uri)
        if queue is not None:
            queue.append(parcel)
            return
        self._queues[parcel.uri] = deque([parcel])
        worker = asyncio.create_task(self._empty(parcel.uri))
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def close(self) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _empty(self, uri: str) -> None:
        """Send everything that waits for this URI."""
        queue = self._queues[uri]
        url = callable_url(uri, ("http", "https"))
        why: str | None = "stopped"
        try:
            while queue:
                why = "stopped"
                why, hopeless = ("uri", True) if url is None else await self._send(url, queue[0])
                self._inbox.tell(Settled(queue.popleft().serial, why))
                if hopeless:
                    break
        finally:
            del self._queues[uri]
            for parcel in queue:
                self._inbox.tell(Settled(parcel.serial, why or "stopped"))

    async def _send(self, url: URL, parcel: Parcel) -> tuple[str | None, bool]:
        """What went wrong, or None; and whether the same would happen to whatever comes next."""
        redirects, fresh = 0, False
        while True:
            try:
                headers = {"Content-Type": parcel.media_type}
                async with self._client.post(
                    url, data=parcel.envelope, headers=headers, allow_redirects=False
                ) as response:
                    if 200 <= response.status < 300:
                        await self._read(response, parcel)
                        return None, False
                    if response.status != 307:
                        return f"status {response.status}", response.status in BUSY
                    target = redirected(url, response.headers.get("Location"))
            except aiohttp.ServerDisconnectedError as error:
                # The server has closed a connection that was kept, just as we used it again. Once more, on another.
                if fresh:
                    return reason(error), True
                fresh = True
                continue
            except TROUBLE as error:
                return reason(error), True
            redirects += 1
            if target is None or redirects > REDIRECTS_MAX:
                return "redirect", True
            url = target

    async def _read(self, response: aiohttp.ClientResponse, parcel: Parcel) -> None:
        """Take an envelope out of the response if one was asked for. It was delivered, whatever is in here."""
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        wanted = parcel.return_route and media_type in REPLY_TYPES and self._inbox.has_room()
        limit = (REPLY_BYTES_MAX if media_type == SIGNED else ENVELOPE_BYTES_MAX) if wanted else REDIRECT_BODY_BYTES_MAX
        body = bytearray()
        try:
            while len(body) <= limit and (chunk := await response.content.read(limit + 1 - len(body))):
                body += chunk
        except TROUBLE:
            return
        if wanted and 0 < len(body) <= limit:
            self._inbox.tell(Arrived(0, bytes(body), media_type, "reply", parcel.uri))
