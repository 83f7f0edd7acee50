"""Systemd units and Containerfiles for agents and bots; they are printed, never installed."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from zerochat.agent.settings.reader import load_settings
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.cli.grammar import Options
from zerochat.terminal_text import printable_line
from zerochat.version import __version__

WATCHDOG_S: Final = 30
STOP_S: Final = 15
"""Time to stop, in addition to the drain time."""
PASSED_ON: Final = ("ZEROCHAT_HOME", "ZEROCHAT_PASSPHRASE_FILE", "DO_NOT_TRACK", "ZEROCHAT_TELEMETRY")
"""Environment variables of this process that the service inherits."""
XDG: Final = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
"""Those that a user's service manager has already."""
PORTS: Final = (4242, 4243)
_HARDENED: Final = """\
UMask=0077
LimitCORE=0
LimitNOFILE=65536
LimitMEMLOCK=infinity
NoNewPrivileges=true
LockPersonality=true
RestrictRealtime=true
RestrictSUIDSGID=true
RestrictNamespaces=true
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
"""
"""Limits that a user's service manager can set. (libzmq aborts without the scheduling calls of @resources.)"""
_NO_JIT: Final = "MemoryDenyWriteExecute=true\n"
"""For agents; a bot may load a library that generates code."""
_SYSTEM: Final = """\
CapabilityBoundingSet=
DevicePolicy=closed
PrivateDevices=true
PrivateMounts=true
ProtectClock=true
ProtectControlGroups=true
ProtectHome=read-only
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=true
InaccessiblePaths=-/run/user
ReadWritePaths={writable}
"""
"""Limits that only the system's service manager can set. Without /run/user the socket is in the profile's folder, where
every client finds it. /tmp is readable, so that clients can name files there."""
_UNIT: Final = """\
[Unit]
Description={description}
Wants=network-online.target
After={after}

[Service]
{service}
{user}ExecStart={start}
{environment}KillMode=mixed
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
TimeoutStopSec={stop_s}
{hardened}
[Install]
WantedBy={wanted}.target
"""


def agent_unit(places: ProfilePaths, options: Options) -> str:
    """A unit that runs the agent with the options of this command line, for the manager that `print_unit` names.
    Raises BadSettings."""
    more = []
    if options.listen is not None:
        more += ["--listen", options.listen]
    if options.advertise is not None:
        more += ["--advertise", options.advertise]
    words = [*program(), "--profile", places.profile, "agent", *more, "--log-format", options.log_format or "text"]
    service = f"Type=notify\nNotifyAccess=main\nWatchdogSec={WATCHDOG_S}\nExecReload=/bin/kill -HUP $MAINPID"
    system = options.print_unit == "system"
    limits = _HARDENED + _NO_JIT + (_system_limits(places) if system else "")
    title = f"zerochat agent of the profile {places.profile}"
    return _unit(places, title, "network-online.target", service, words, limits, system=system)


def _system_limits(places: ProfilePaths) -> str:
    """The limits of a system unit. Creates the folders that the agent writes to: the unit names them."""
    folders = {each.parent for each in (places.config, places.data, places.state, places.cache)}
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    writable = [*map(str, sorted(folders)), f"-{Path('~/Downloads').expanduser()}"]
    return _SYSTEM.format(writable=" ".join(map(escaped, writable)))


def bot_unit(places: ProfilePaths, name: str, app: Path) -> str:
    """A unit that runs a bot in the folder of its file. It attaches to a running agent or starts its own."""
    words = [*program(), "--profile", places.profile, "bot", "run", str(app.absolute())]
    folder = str(app.absolute().parent)
    plain = folder.isprintable() and "\\" not in folder  # systemd reads it without quotes
    service = "Type=exec" + (f"\nWorkingDirectory={folder.replace('%', '%%')}" if plain else "")
    return _unit(places, f"zerochat bot {name}", "network-online.target zerochat.service", service, words, _HARDENED)


def _unit(
    places: ProfilePaths,
    description: str,
    after: str,
    service: str,
    words: Sequence[str],
    limits: str,
    *,
    system: bool = False,
) -> str:
    names = (*PASSED_ON, *XDG) if system else PASSED_ON
    variables = [f"Environment={escaped(f'{name}={os.environ[name]}')}\n" for name in names if os.environ.get(name)]
    return _UNIT.format(
        description=description.replace("%", "%%"),
        after=after,
        service=service,
        start=" ".join(escaped(word, command=True) for word in words),
        environment="".join(variables),
        stop_s=load_settings(places).drain + STOP_S,
        user=f"User={os.geteuid()}\n" if system else "",
        wanted="multi-user" if system else "default",
        hardened=limits,
    )


def program() -> list[str]:
    """The command that starts this zerochat, with absolute paths."""
    own = Path(sys.argv[0])
    if own.name == "zerochat" and own.is_file() and os.access(own, os.X_OK):
        return [str(own.absolute())]
    # -P: a file in the working folder must not shadow a module of the standard library.
    return [sys.executable, "-P", "-m", "zerochat"]


def escaped(word: str, *, command: bool = False) -> str:
    """One word, quoted for systemd (systemd.syntax(7)); in a command also with dollar signs escaped."""
    text = word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    text = text.replace("$", "$$") if command else text
    plain = text == word and text and not set(text) & set(" \t'\";")
    return text if plain else f'"{text}"'


_CONTAINER: Final = """\
# {title}. Build it in a folder {folder}:
#   podman build --format docker -t {tag} .       # the OCI format has no health checks
#   podman run -d --name {tag} --read-only --cap-drop all --security-opt no-new-privileges --tmpfs /tmp \\
#     --pids-limit 256 -v {tag}:/state {publish}{tag}
# Create the profile once; it is stored in the volume:
#   podman run --rm -v {tag}:/state --entrypoint zerochat {tag} --profile {profile} init --name {name}
FROM docker.io/library/python:3.12-slim
# The wheel of zerochat next to this file; build it in zerochat's folder: `pip wheel --no-deps -w THIS_FOLDER .`.
# Not a package name: that name on a package index belongs to another project.
ARG ZEROCHAT=./zerochat-{version}-py3-none-any.whl
COPY . /build/
RUN cd /build && pip install --no-cache-dir "$ZEROCHAT" \\
 && useradd --uid 10001 --no-create-home --home-dir /state zerochat \\
 && install -d -o zerochat -m 0700 /state
USER zerochat
WORKDIR /state
ENV ZEROCHAT_HOME=/state PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
VOLUME /state
{exposed}STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=15s CMD {health}
ENTRYPOINT {entry}
"""


def container(name: str, app: Path | None, *, profile: str) -> str:
    """A Containerfile for the agent, or for a bot with its file `app`."""
    agent = ["zerochat", "--profile", profile, "agent", "--listen", "0.0.0.0:{}:{}".format(*PORTS)]
    bot = ["zerochat", "--profile", profile, "bot", "run", f"/build/{app.name}" if app is not None else ""]
    published = "".join(f"-p {port}:{port} " for port in PORTS)
    return _CONTAINER.format(
        title=f"A zerochat {'bot' if app is not None else 'agent'}, {name}",
        tag=name.lower(),
        name=name,
        profile=profile,
        publish="" if app is not None else published,
        version=__version__,
        folder=f"that contains only this file, {printable_line(app.name)} and the wheel"
        if app
        else "that contains only this file and the wheel",
        exposed="" if app is not None else "EXPOSE {} {}\n".format(*PORTS),
        health=json.dumps(["zerochat", "--profile", profile, "status", "--check"]),
        entry=json.dumps(bot if app is not None else [*agent, "--log-format", "json"]),
    )
