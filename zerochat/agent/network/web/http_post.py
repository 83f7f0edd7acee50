"""Outgoing POSTs: sequential per URI, concurrent across URIs, each with a result; redirects are not followed.

One request per URI is in flight at a time, over a kept-alive connection, because HTTP/1.1 preserves no order otherwise.
When the server is unreachable or refuses, the whole send queue of that URI fails: the owner decides when to retry, and
no later envelope overtakes a failed one.
"""

import asyncio
from collections import deque

import aiohttp
from yarl import URL

from zerochat.agent.network.web.event_queue import EventQueue
from zerochat.agent.network.web.events import (
    OF_ONE_ENVELOPE,
    REPLY_TYPES,
    SIGNED,
    Arrived,
    OutboundEnvelope,
    SendFinished,
)
from zerochat.agent.network.web.http_client import CLIENT_FAILURES, HttpClients, callable_url, reason
from zerochat.agent.network.web.limits import IGNORED_BODY_BYTES_MAX, REPLY_BYTES_MAX
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX

RETRY_AFTER_DIGITS_MAX = 9


def retry_after(text: str) -> int:
    """The seconds of a Retry-After header; 0 for a date, or anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= RETRY_AFTER_DIGITS_MAX else 0


class HttpPoster:
    """One worker per URI with a send queue."""

    def __init__(self, clients: HttpClients, events: EventQueue) -> None:
        self._clients, self._events = clients, events
        self._queues: dict[tuple[str, AddressKind], deque[OutboundEnvelope]] = {}
        self._workers: set[asyncio.Task[None]] = set()

    def post(self, outbound: OutboundEnvelope) -> None:
        to = (outbound.uri, outbound.nearest)
        queue = self._queues.get(to)
        if queue is not None:
            queue.append(outbound)
            return
        self._queues[to] = deque([outbound])
        worker = asyncio.create_task(self._empty(to))
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def close(self) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _empty(self, to: tuple[str, AddressKind]) -> None:
        """Send the queue of this URI and nearest address."""
        queue = self._queues[to]
        url = callable_url(to[0], ("http", "https"))
        why: str | None = "stopped"
        pause_s = 0
        try:
            while queue:
                why = "stopped"
                why, hopeless, pause_s = ("uri", True, 0) if url is None else await self._send(url, queue[0])
                self._events.put(SendFinished(queue.popleft().serial, why, pause_s))
                if hopeless:
                    break
        finally:
            del self._queues[to]
            for outbound in queue:
                self._events.put(SendFinished(outbound.serial, why or "stopped", pause_s))

    async def _send(self, url: URL, outbound: OutboundEnvelope) -> tuple[str | None, bool, int]:
        """The reason of the failure, or None; whether the rest of the queue would fail, too; and the seconds that the
        server asks to wait, or 0."""
        fresh = False
        while True:
            try:
                headers = {"Content-Type": outbound.media_type}
                async with self._clients[outbound.nearest].post(
                    url, data=outbound.envelope, headers=headers, allow_redirects=False
                ) as response:
                    if 200 <= response.status < 300:
                        await self._read(response, outbound)
                        return None, False, 0
                    pause_s = retry_after(response.headers.get("Retry-After", ""))
                    return f"status {response.status}", response.status not in OF_ONE_ENVELOPE, pause_s
            except aiohttp.ServerDisconnectedError as error:
                # The server has closed an idle connection just as we reused it: retry once on a new one.
                if fresh:
                    return reason(error), True, 0
                fresh = True
                continue
            except CLIENT_FAILURES as error:
                return reason(error), True, 0

    async def _read(self, response: aiohttp.ClientResponse, outbound: OutboundEnvelope) -> None:
        """Read an envelope from the response if one was requested. The POST itself was delivered."""
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        wanted = outbound.return_route and media_type in REPLY_TYPES and self._events.has_room()
        limit = (REPLY_BYTES_MAX if media_type == SIGNED else ENVELOPE_BYTES_MAX) if wanted else IGNORED_BODY_BYTES_MAX
        body = bytearray()
        try:
            while len(body) <= limit and (chunk := await response.content.read(limit + 1 - len(body))):
                body += chunk
        except CLIENT_FAILURES:
            return
        if wanted and 0 < len(body) <= limit:
            self._events.put(Arrived(0, bytes(body), media_type, "reply", outbound.uri, outbound.serial))
