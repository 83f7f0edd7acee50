"""Verb rpc: relays the JSON-RPC control protocol between standard input/output and the agent."""

import os
import select
import socket
import sys
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from zerochat.agent.api.client import connect
from zerochat.agent.api.client_connection import AgentGone, AgentUnreachable, NoAgent
from zerochat.cli.agent_access import attached, paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output
from zerochat.errors import LocalError


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "rpc",
        "use the JSON-RPC protocol over standard input and output",
        "Relay the agent's control protocol: JSON-RPC 2.0, one object per line. Requests are read from standard "
        "input;\n"
        "responses and notifications go to standard output. At the end of the input it waits for the pending\n"
        "responses and exits. `zerochat help json-rpc` documents the protocol.",
        """
echo '{"jsonrpc":"2.0","id":1,"method":"list_groups"}' | zerochat rpc --stdio
zerochat --profile ci rpc --stdio < requests.jsonl > answers.jsonl
zerochat rpc --schema
""",
        run=rpc,
    )
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument(
        "--stdio", dest="rpc_mode", action="store_const", const="stdio", help="relay requests and responses"
    )
    mode.add_argument(
        "--schema", dest="rpc_mode", action="store_const", const="schema", help="print the protocol as JSON Schema"
    )


READ_BYTES_MAX = 1 << 16
BUFFER_BYTES_MAX = 4 << 20
"""Limit of buffered input; above it, reading pauses until the agent has accepted some."""
LAST_BYTES = 256
"""Size of a line that says that the agent stops."""


class NoInput(LocalError):
    """There is no standard input to read requests from."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def rpc(options: Options, out: Output) -> ExitCode:
    if options.rpc_mode == "schema":
        from zerochat.agent.api.reference import json_schema

        text = msgspec.json.format(msgspec.json.encode(json_schema())).decode()
        out.exactly(text)
        return ExitCode.OK
    if sys.stdin is None:
        raise NoInput
    with attached(options, "rpc"):
        paths = paths_of(options)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(str(paths.socket))
            except OSError as error:
                raise AgentUnreachable(path=paths.socket, why=(error.strerror or str(error)).lower()) from error
            connection.setblocking(False)
            last = _relay(sys.stdin.fileno(), connection, sys.stdout.buffer)
        if b'"stopping"' not in last:  # it has answered everything, or was killed
            try:
                connect(paths, "rpc").close()
            except NoAgent:
                raise AgentGone from None
    return ExitCode.OK


def _relay(source: int, connection: socket.socket, sink: Any) -> bytes:
    """Relay until the source has ended and the agent has closed the connection after its last answer; the end of what
    it has sent. Raises AgentGone where it closes the connection before."""
    waiting, last = bytearray(), b""
    reading, sending = True, True
    while True:
        agent = connection.fileno()
        wanted = [agent, source] if reading and len(waiting) < BUFFER_BYTES_MAX else [agent]
        ready, writable, _ = select.select(wanted, [agent] if waiting else [], [])
        if agent in ready:
            data = connection.recv(READ_BYTES_MAX)
            if not data and sending:
                raise AgentGone
            if not data:
                return last
            sink.write(data)
            sink.flush()
            last = (last + data)[-LAST_BYTES:]
        if source in ready:
            data = os.read(source, READ_BYTES_MAX)
            reading = bool(data)
            waiting += data
        if writable:
            try:
                del waiting[: connection.send(waiting)]
            except BlockingIOError:
                continue
            except OSError:
                waiting.clear()  # the last responses may still be readable
        if sending and not (reading or waiting):
            sending = False
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)  # the agent answers what is pending, and closes
