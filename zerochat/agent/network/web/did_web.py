"""Reads the document of a did:web over HTTPS.

The DID comes from an invitation, so its author chooses what is dialled: only HTTPS with a verified certificate, only
hosts with a public address unless the settings permit nearer ones, no IP address as a name, no redirect, and bounds of
time and size. What comes is read by the same strict parser as every document.

Specified in: did:web (w3c-ccg), "Read (Resolve)".
"""

import asyncio
import re
import ssl
import threading
from concurrent.futures import Future
from typing import Final

from zerochat.agent.network.web.event_loop import WebLoop, parse_proxy
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.tls import client_context
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.did.pinned import DOCUMENT_BYTES_MAX
from zerochat.errors import LocalError

FETCH_S_MAX: Final = 15.0
DID_CHARS_MAX: Final = 512
_DID: Final = re.compile(r"did:web:([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(?:%3[Aa]([0-9]{1,5}))?((?::[A-Za-z0-9._~-]+)*)")


class DidNotRead(LocalError):
    """The DID {did} cannot be read: {why}."""


def url_of(did: str) -> str:
    """The URL of its document. Raises DidNotRead."""
    found = _DID.fullmatch(did) if len(did) <= DID_CHARS_MAX else None
    if found is None:
        raise DidNotRead(did=did[:DID_CHARS_MAX], why="it is not a did:web")
    host, port, path = found[1], found[2], found[3].split(":")[1:]
    if re.fullmatch(r"(0x)?[0-9a-f]+", host.rpartition(".")[2].lower()) and host.rpartition(".")[2][0].isdigit():
        raise DidNotRead(did=did, why="it names an IP address instead of a host")
    if any(segment in (".", "..") for segment in path):
        raise DidNotRead(did=did, why="it is not a did:web")
    where = "/".join(path) if path else ".well-known"
    return f"https://{host}{f':{port}' if port else ''}/{where}/did.json"


def fetch_document(
    did: str, *, socks: str | None = None, ca_file: str | None = None, nearest: AddressKind = AddressKind.PUBLIC
) -> "Future[bytes]":
    """Fetch the document in a thread; it ends within FETCH_S_MAX. `nearest`: the nearest kind of address that may be
    dialled. Raises a LocalError, directly or through the Future."""
    url = url_of(did)
    proxy = parse_proxy(socks) if socks is not None else None
    context = client_context(ca_file)
    result: Future[bytes] = Future()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: WebLoop(proxy)) as runner:
                runner.get_loop().set_exception_handler(lambda loop, context: None)
                found = runner.run(_fetch(did, url, context, nearest))
        except Exception as error:  # noqa: BLE001  # the caller gets it through the Future
            result.set_exception(error)
        else:
            result.set_result(found)

    threading.Thread(target=work, name="zerochat-did-web", daemon=True).start()
    return result


async def _fetch(did: str, url: str, context: ssl.SSLContext, nearest: AddressKind) -> bytes:
    from zerochat.agent.network.web.http_client import CLIENT_FAILURES, callable_url, make_client, reason

    target = callable_url(url, ("https",))
    if target is None:
        raise DidNotRead(did=did, why="it is not a did:web")
    headers = {"Accept": "application/did+json, application/did+ld+json, application/json"}
    try:
        async with (
            asyncio.timeout(FETCH_S_MAX),
            make_client(context, Limits(), nearest) as client,
            client.get(target, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise DidNotRead(did=did, why=f"its server answered with status {response.status}")
            body = bytearray()
            while len(body) <= DOCUMENT_BYTES_MAX and (chunk := await response.content.readany()):
                body += chunk
    except CLIENT_FAILURES as error:
        raise DidNotRead(did=did, why=_sentence(reason(error), nearest)) from error
    if len(body) > DOCUMENT_BYTES_MAX:
        raise DidNotRead(did=did, why="its document is too long")
    return bytes(body)


def _sentence(reason: str, nearest: AddressKind) -> str:
    match reason:
        case "name":
            return "its host was not found"
        case "tls":
            return "the certificate of its server is not trusted"
        case "timeout":
            return "its server did not answer in time"
        case "unreachable" if nearest is not AddressKind.LOOPBACK:
            permitted = "`network.near_mediators` in the settings permits private addresses, or this machine's"
            return f"its server is unreachable, or has no public address ({permitted})"
        case "unreachable":
            return "its server is unreachable"
    return "the connection was lost"
