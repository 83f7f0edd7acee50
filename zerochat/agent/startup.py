"""Opens the journal, the sockets and the control server, and builds the agent loop from them."""

import ipaddress
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import ControlServer
from zerochat.agent.clock import Clock, Timers
from zerochat.agent.disputes.monitor import DisputeMonitor
from zerochat.agent.effects import EffectExecutor
from zerochat.agent.files.worker import FileWorker
from zerochat.agent.loop import AgentLoop
from zerochat.agent.loop_control import LoopControl
from zerochat.agent.nearby.networks import Network
from zerochat.agent.nearby.session import Ports
from zerochat.agent.nearby.switch import Nearby
from zerochat.agent.network.addresses import (
    ALL_ADDRESSES,
    own_address,
    parse_listen,
    remember_addresses,
    remembered_addresses,
)
from zerochat.agent.network.web_adapter import WebAdapter
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.service import memory_protection
from zerochat.agent.service.hook_feed import HookFeed
from zerochat.agent.service.hooks import Hooks
from zerochat.agent.settings.reader import Settings, load_settings
from zerochat.agent.settings.reload import core_rules, mail_rules
from zerochat.agent.settings.values import ALWAYS, Hidden
from zerochat.agent.status import StatusReport
from zerochat.agent.storage.erasure import Eraser
from zerochat.agent.storage.erasure_key import ErasureKeyTimer
from zerochat.agent.storage.history_reader import HistoryReader
from zerochat.agent.storage.integrity_scan import IntegrityScan
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.storage.profiles import RESTORED_AT
from zerochat.agent.telemetry.switch import Recording
from zerochat.agent.views.attention import Attention
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.inputs import Input, Started
from zerochat.group.state import Agent
from zerochat.presentation.keep_rules import read_keep
from zerochat.rpc import ReplacedPort

FILES_SECRET: Final = "files_secret"  # noqa: S105  # its name
"""In the journal's meta table: the 32 bytes from which the keys of all files are derived."""
PORTS: Final = ("pair_port", "queue_port")
"""In the journal's meta table: the ports that the system chose at the first start."""
LOOPBACK: Final = "127.0.0.1"


class Options(Struct, frozen=True):
    """How an agent was started. `AgentThread` documents them."""

    listen: str | None = None
    advertise: str | None = None
    hidden: Hidden = False
    unused_s: float | None = None
    hooks: bool = False
    owner: str = ""


class _Addresses(Struct, frozen=True):
    """Where to listen and which host to advertise."""

    listen_host: str
    ports: tuple[int, int]
    """Requested or remembered; 0: the system chooses."""
    host: str
    fallback: tuple[bool, bool]
    """Whether any free port may replace a taken one."""


@contextmanager
def open_loop(
    paths: ProfilePaths, key: bytes, options: Options, control: LoopControl, log: logging.Logger
) -> Iterator[tuple[AgentLoop, list[Input]]]:
    """The loop with its open components, and the inputs of its first batch. Raises LocalError."""
    settings = load_settings(paths)
    if settings.protect_memory:
        memory_protection.protect()
    for warning in settings.warnings:
        log.warning("%s", warning)
    with Journal.open(paths.journal, key) as journal:
        hidden = ALWAYS if ALWAYS in (options.hidden, settings.hidden) else options.hidden or settings.hidden
        secret = journal.meta_get("server_secret") or b""
        addresses = _addresses(journal, settings, options)
        if hidden == ALWAYS:  # no member may connect, not even one that knows an earlier address
            addresses = replace(addresses, listen_host=LOOPBACK)
        wake = control.wakeup.wake
        transport = Transport(
            secret, addresses.listen_host, *addresses.ports, socks=settings.socks, multiplexing=not hidden
        )
        web = WebAdapter(settings, wake, listens=hidden != ALWAYS)
        files = FileWorker(paths.files, _files_secret(journal), wake, log)
        hooks = Hooks(paths.profile, log, os.environ)
        with transport, web, files, hooks, ControlServer(paths.socket) as server, ExitStack() as later:
            pair, queue, replaced = _bind(journal, transport, addresses)
            ports = Ports(pair.port, queue.port)
            nearby = later.enter_context(
                Nearby(journal, transport, secret, ports, _obstacle(hidden, settings, addresses.listen_host), wake, log)
            )
            if settings.listen is None and settings.advertise is None:
                remember_addresses(journal, options.listen, options.advertise)
            for one in replaced:
                log.warning("port %d was in use, listening on port %d instead", one.port, one.by)
            transport.watch(control.wakeup.fileno())
            loop = _build(
                paths,
                journal,
                settings,
                options,
                control,
                log,
                transport,
                web,
                files,
                nearby,
                hooks,
                server,
                (pair, queue),
            )
            loop.attention.replaced = replaced
            anew = not loop.clock.restore(journal.meta_get("clock") or b"")
            uris = web.start(bool(hidden))
            public = x25519_public(secret)
            nearest = AddressKind[settings.near_mediators.upper()]
            rules = (*core_rules(settings), nearest, read_keep(settings.keep))
            started = Started(pair, queue, public, uris, bool(hidden), settings.cover, loop.restored, anew, *rules)
            started = replace(started, mediated_only=hidden == ALWAYS, mail_rules=mail_rules(settings))
            yield loop, [started, *files.files_on_disk()]


def _build(
    paths: ProfilePaths,
    journal: Journal,
    settings: Settings,
    options: Options,
    control: LoopControl,
    log: logging.Logger,
    transport: Transport,
    web: WebAdapter,
    files: FileWorker,
    nearby: Nearby,
    hooks: Hooks,
    server: ControlServer,
    endpoints: tuple[Endpoint, Endpoint],
) -> AgentLoop:
    attention, timers, history = Attention(paths.data), Timers(), HistoryReader(journal)
    disputes = DisputeMonitor(journal, log)
    status = StatusReport(paths.profile, journal, transport, attention, *endpoints, started_at=time.monotonic())
    handlers = RequestHandlers(server, journal, status.report, web.publish_short_link, files, paths)
    executor = EffectExecutor(journal, history, transport, web, files, handlers, disputes, timers, attention, log)
    restored = bool(journal.meta_get(RESTORED_AT))
    if restored:
        log.warning("this profile was restored from a backup")
    label = (journal.meta_get("label") or b"").decode()
    loop = AgentLoop(
        agent=journal.load(Agent) or Agent(label),
        paths=paths,
        control=control,
        settings=settings,
        journal=journal,
        history=history,
        transport=transport,
        web=web,
        files=files,
        nearby=nearby,
        hooks=HookFeed(hooks, handlers, journal, options.hooks),
        server=server,
        handlers=handlers,
        disputes=disputes,
        integrity=IntegrityScan(journal, log),
        eraser=Eraser(journal.erasures, log),
        erasure_key=ErasureKeyTimer(journal, log),
        recording=Recording(journal, lambda: loop.settings, transport, server, log),
        executor=executor,
        attention=attention,
        clock=Clock(),
        timers=timers,
        log=log,
        pair=endpoints[0],
        queue=endpoints[1],
        restored=restored,
        unused_s=options.unused_s,
    )
    handlers.telemetry = lambda method, params: loop.recording.handle(method, params, loop.agent, control.heartbeat)
    handlers.reload = control.reload.set
    handlers.nearby, handlers.owner = nearby, options.owner
    handlers.review_disputes = disputes.schedule
    loop.apply(settings)
    loop.hooks.set(settings)
    return loop


def _addresses(journal: Journal, settings: Settings, options: Options) -> _Addresses:
    """Where to listen: the options, else the settings, else as at the last start."""
    listen, advertise = options.listen or settings.listen, options.advertise or settings.advertise
    if settings.listen is None and settings.advertise is None:  # with settings, the options are for this run only
        listen, advertise = remembered_addresses(journal, options.listen, options.advertise)
    listen_host, *ports = parse_listen(listen or ALL_ADDRESSES)
    # Ports that the system chose stay the same: open invitations and the other members' state contain them.
    pair, queue = (port or int(journal.meta_get(name) or 0) for name, port in zip(PORTS, ports, strict=True))
    fallback = (settings.port_fallback or not ports[0], settings.port_fallback or not ports[1])
    return _Addresses(listen_host, (pair, queue), advertise or own_address(listen_host), fallback)


def _obstacle(hidden: Hidden, settings: Settings, listen_host: str) -> Callable[[Agent, Network | None], str]:
    """Why nothing may be announced on a network (`nearby/switch.py`)."""
    is_local = ipaddress.ip_address(listen_host).is_loopback

    def obstacle(agent: Agent, network: Network | None) -> str:
        if hidden or agent.mediated_only:
            return "this agent hides its address (`network.hidden`)"
        if settings.socks is not None:
            return "this agent connects through a proxy (`network.socks`)"
        if is_local and network is not None and not network.is_loopback:
            return f"this agent listens on {listen_host} only (`network.listen`)"
        return ""

    return obstacle


def _bind(
    journal: Journal, transport: Transport, addresses: _Addresses
) -> tuple[Endpoint, Endpoint, list[ReplacedPort]]:
    """Where the agent listens, and the taken ports. These stay remembered for the next start."""
    ports = transport.bind(addresses.fallback)
    replaced = []
    for name, requested, port in zip(PORTS, addresses.ports, ports, strict=True):
        if not requested:
            journal.meta_set(name, str(port).encode())
        elif requested != port:
            replaced.append(ReplacedPort(requested, port))
    return Endpoint(addresses.host, ports[0]), Endpoint(addresses.host, ports[1]), replaced


def _files_secret(journal: Journal) -> bytes:
    secret = journal.meta_get(FILES_SECRET) or os.urandom(32)
    journal.meta_set(FILES_SECRET, secret)
    return secret
