"""Event loop of the web thread: SOCKS5 and address checks for all outgoing connections and look-ups.

asyncio and aiohttp both connect with the loop's `sock_connect` and resolve names with its `getaddrinfo`. Overriding
these two ensures that with a SOCKS proxy no traffic bypasses it, not even DNS: the proxy resolves the name (RFC 1928,
address type 3).

Look-ups run in daemon threads instead of the default executor, whose threads Python joins at exit: an unresponsive DNS
server would delay it by half a minute.
"""

import asyncio
import errno
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from zerochat.agent.network.addresses import split_host_port
from zerochat.agent.network.web.limits import LOOKUPS_MAX
from zerochat.didcomm.address_kinds import AddressKind, effective_address, is_never_dialed, kind_of
from zerochat.errors import LocalError

SOCKS_VERSION = 5
NO_AUTHENTICATION = 0
CONNECT = 1
TYPE_IPV4, TYPE_NAME, TYPE_IPV6 = 1, 3, 4

AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]


class BadProxy(LocalError):
    """ "{text}" is not a SOCKS proxy. Set `network.socks` in config.toml to an IP address and a port, such as
    127.0.0.1:9050."""

    exit_code = 2


def parse_proxy(text: str) -> tuple[str, int]:
    """Address and port of a proxy from "ADDRESS:PORT". Raises BadProxy."""
    try:
        return split_host_port(text)
    except ValueError:
        raise BadProxy(text=text) from None


def check_address(host: str, nearest: AddressKind) -> None:
    """Raise OSError for an address that must not be dialled. Names are left to the proxy."""
    try:
        ip = effective_address(host)
    except ValueError:
        return
    if is_never_dialed(ip) or kind_of(ip) > nearest:
        raise OSError(errno.EADDRNOTAVAIL, "a forbidden address")


class WebLoop(asyncio.SelectorEventLoop):
    """`proxy`: address and port of a SOCKS5 proxy for all outgoing connections, or None."""

    def __init__(self, proxy: tuple[str, int] | None = None) -> None:
        super().__init__()
        self._proxy = proxy
        self._lookups = 0

    def open_socket(self, nearest: AddressKind, info: AddressInfo) -> socket.socket:
        """A socket for dialling `info`, of the proxy's address family if there is one.

        The rest of aiohttp's `socket_factory`, which is called with the numeric address that is dialled next. So a name
        cannot have one address when it is checked and another when it is dialled (DNS rebinding). Raises OSError for an
        address that is nearer than `nearest`; with a proxy, which resolves names itself, the proxy has to enforce this
        for names.
        """
        check_address(str(info[4][0]), nearest)
        family = info[0]
        if self._proxy is not None:
            family = socket.AF_INET6 if ":" in self._proxy[0] else socket.AF_INET
        return socket.socket(family, socket.SOCK_STREAM)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        check_address(str(address[0]), AddressKind.LOOPBACK)
        if self._proxy is not None:
            await super().sock_connect(sock, self._proxy)
            await self._through_proxy(sock, str(address[0]), int(address[1]))
            return
        await super().sock_connect(sock, address)

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        if self._proxy is not None:
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
        if self._lookups >= LOOKUPS_MAX:
            raise socket.gaierror(socket.EAI_AGAIN, "too many look-ups")
        found: asyncio.Future[list[Any]] = self.create_future()

        def look_up() -> None:
            try:
                infos = socket.getaddrinfo(host, port, family, type, proto, flags)
            except (OSError, UnicodeError) as error:
                settle(found.set_exception, error if isinstance(error, OSError) else socket.gaierror(str(error)))
            else:
                settle(found.set_result, infos)

        def settle(how: Callable[[Any], None], what: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed
                self.call_soon_threadsafe(done, how, what)

        def done(how: Callable[[Any], None], what: Any) -> None:
            self._lookups -= 1  # the thread existed until now, even if the caller was cancelled
            if not found.done():
                how(what)

        self._lookups += 1
        threading.Thread(target=look_up, name="zerochat-web-name", daemon=True).start()
        return await found

    async def _through_proxy(self, sock: socket.socket, host: str, port: int) -> None:
        """Request a connection from the proxy (RFC 1928). Raises OSError."""
        await self.sock_sendall(sock, bytes([SOCKS_VERSION, 1, NO_AUTHENTICATION]))
        if await self._exactly(sock, 2) != bytes([SOCKS_VERSION, NO_AUTHENTICATION]):
            raise OSError(errno.ECONNREFUSED, "the proxy requires authentication, or is not a SOCKS5 proxy")
        request = bytes([SOCKS_VERSION, CONNECT, 0]) + _destination(host) + port.to_bytes(2, "big")
        await self.sock_sendall(sock, request)
        version, reply, _, kind = await self._exactly(sock, 4)
        if version != SOCKS_VERSION or reply != 0:
            raise OSError(errno.EHOSTUNREACH, f"the proxy answered with code {reply}")
        sizes = {TYPE_IPV4: 4, TYPE_IPV6: 16}
        size = sizes[kind] if kind in sizes else (await self._exactly(sock, 1))[0]
        await self._exactly(sock, size + 2)

    async def _exactly(self, sock: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await self.sock_recv(sock, size - len(data))
            if not more:
                raise OSError(errno.ECONNRESET, "the proxy has closed the connection")
            data += more
        return data


def _destination(host: str) -> bytes:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("ascii") if host.isascii() else host.encode("idna")
        if not 0 < len(name) < 256:
            raise OSError(errno.EINVAL, "not a host name") from None
        return bytes([TYPE_NAME, len(name)]) + name
    return bytes([TYPE_IPV4 if ip.version == 4 else TYPE_IPV6]) + ip.packed
