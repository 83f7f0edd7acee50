"""Webhooks: a small HTTP listener on this machine that stores each authenticated request as an event of the bot.

`POST /NAME` with `Authorization: Bearer SECRET`, or signed as GitHub does (`X-Hub-Signature-256`). The answer 202 means
that the event is on disk, 200 that the same delivery was stored before: senders repeat a request whose answer was
lost. Secrets are compared in constant time.
"""

import asyncio
import hashlib
import hmac
import os
import shlex
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from zerochat.bot.local_events import BODY_BYTES_MAX, LocalEvents, TooManyLocalEvents
from zerochat.bot.webhook_address import BadWebhook

SECRET_BYTES_MIN: Final = 16
SECRET_BYTES_MAX: Final = 4096
DELIVERY_HEADERS: Final = ("idempotency-key", "webhook-id", "x-github-delivery")
"""The headers that name a delivery: of GitLab and the IETF draft, of Standard Webhooks, of GitHub and Gitea."""
HEADERS: Final = ("content-type", "user-agent", "x-github-event", "x-gitlab-event", *DELIVERY_HEADERS)
"""The headers that a handler receives."""
HEADER_CHARS_MAX: Final = 256
READING_MAX: Final = 64
BODY_S_MAX: Final = 10.0
END_S_MAX: Final = 1.0
"""How long requests may take at the end of the bot, seconds. Their senders see a lost connection."""


def read_secret(path: Path) -> bytes:
    """The secret in a file. Raises BadWebhook."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise BadWebhook(
            why=f"{path}: {(error.strerror or str(error)).lower()}. To make a secret: "
            f"`(umask 077; openssl rand -hex 32 >{shlex.quote(str(path))})`"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise BadWebhook(why=f"{path} is readable by other users. Run `chmod 600 {path}`")
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise BadWebhook(why=f"{path} must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
    return secret


def is_authentic(secret: bytes, authorization: str, signature: str, body: bytes) -> bool:
    """Whether a request has the secret, or is signed with it."""
    bearer = hmac.compare_digest(authorization.encode("utf-8", "replace"), b"Bearer " + secret)
    signed = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    return bearer | hmac.compare_digest(signature.encode("utf-8", "replace"), signed.encode())


def _delivery(name: str, headers: Mapping[str, str]) -> str:
    """The name of a delivery in the database; empty: the request has no header that names it."""
    found = next(((one, headers[one]) for one in DELIVERY_HEADERS if headers.get(one)), None)
    if found is None:
        return ""
    return hashlib.sha256("\0".join((name, *found)).encode("utf-8", "replace")).hexdigest()


class WebhookServer:
    """The listener of one run."""

    def __init__(
        self,
        secret: bytes,
        names: Collection[str],
        stored: LocalEvents,
        now: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """`names`: the paths with a handler. `now`: UTC, seconds. `wake`: called when an event is stored."""
        self._secret, self._names, self._stored, self._now, self._wake = secret, names, stored, now, wake
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post("/{name}", self._receive)
        self._app = web.AppRunner(app, access_log=None, keepalive_timeout=5.0, shutdown_timeout=END_S_MAX)
        self._reading = 0
        """Requests whose bodies are being received."""

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address. Raises BadWebhook."""
        await self._app.setup()
        try:
            await web.TCPSite(self._app, host, port).start()
        except OSError as error:
            await self.close()
            raise BadWebhook(why=f"{host}:{port}: {(error.strerror or str(error)).lower()}") from error
        address: tuple[str, int] = self._app.addresses[0][:2]
        return address

    async def close(self) -> None:
        await self._app.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        if self._reading >= READING_MAX:
            return web.Response(status=503, text="Too many requests at once. Try again later.\n")
        self._reading += 1
        try:
            async with asyncio.timeout(BODY_S_MAX):
                body = await request.read()  # 413 above the limit
        except TimeoutError:
            return web.Response(status=408, text=f"The body must arrive within {BODY_S_MAX:.0f} seconds.\n")
        finally:
            self._reading -= 1
        headers = request.headers
        signature = headers.get("X-Hub-Signature-256", "")
        if not is_authentic(self._secret, headers.get("Authorization", ""), signature, body):
            return web.Response(status=401, text="The secret is missing or wrong.\n")
        name = request.match_info["name"]
        if name not in self._names:
            return web.Response(status=404, text="No handler has this name.\n")
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return web.Response(status=400, text="The body is not UTF-8.\n")
        known = {key: headers[key][:HEADER_CHARS_MAX] for key in HEADERS if key in headers}
        id, now = f"webhook:{name}:{os.urandom(12).hex()}", self._now()
        event, delivery = {"name": name, "text": text, "headers": known}, _delivery(name, headers)
        try:
            if not self._stored.put(id, "webhook", now, 0.0, 0.0, event, delivery=delivery):
                return web.Response(text="stored before\n")
        except TooManyLocalEvents:
            return web.Response(status=503, text="Too many events are waiting. Try again later.\n")
        self._wake()
        return web.Response(status=202, text="stored\n")
