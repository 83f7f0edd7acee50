"""Verb rpc: relays the JSON-RPC control protocol between standard input/output and the agent."""

import os
import select
import socket
import sys
from typing import Any, ClassVar

import msgspec

from zerochat.agent.api.client_connection import AgentGone, AgentUnreachable
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


class NoInput(LocalError):
    """There is no standard input to read requests from."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class _Line(msgspec.Struct):
    method: str = ""


class _RequestCounter:
    """Counts the requests in a byte stream: every non-blank line is one."""

    def __init__(self) -> None:
        self.count = 0
        self._begun = False

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            self.count += self._begun or bool(line.strip())
            self._begun = False
        self._begun = self._begun or bool(rest.strip())

    def end(self) -> bytes:
        """The newline that completes the last request, if it is missing."""
        if not self._begun:
            return b""
        self.feed(b"\n")
        return b"\n"


class _ResponseCounter:
    """Counts the responses in a byte stream."""

    def __init__(self) -> None:
        self.count = 0
        self._rest = bytearray()
        self._decoder = msgspec.json.Decoder(_Line)

    def feed(self, data: bytes) -> None:
        self._rest += data
        *whole, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        self.count += sum(not self._decoder.decode(line).method for line in whole if line)


def rpc(options: Options, out: Output) -> ExitCode:
    if options.rpc_mode == "schema":
        from zerochat.agent.api.reference import json_schema

        text = msgspec.json.format(msgspec.json.encode(json_schema())).decode()
        out.exactly(text)
        return ExitCode.OK
    if sys.stdin is None:
        raise NoInput
    with attached(options, "rpc"):
        path = paths_of(options).socket
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(str(path))
            except OSError as error:
                raise AgentUnreachable(path=path, why=(error.strerror or str(error)).lower()) from error
            connection.setblocking(False)
            _relay(sys.stdin.fileno(), connection, sys.stdout.buffer)
    return ExitCode.OK


def _relay(source: int, connection: socket.socket, sink: Any) -> None:
    """Relay until the source has ended and all requests are answered. Raises AgentGone."""
    requests, responses = _RequestCounter(), _ResponseCounter()
    waiting = bytearray()
    reading = True
    while reading or waiting or responses.count < requests.count:
        agent = connection.fileno()
        wanted = [agent, source] if reading and len(waiting) < BUFFER_BYTES_MAX else [agent]
        ready, writable, _ = select.select(wanted, [agent] if waiting else [], [])
        if agent in ready:
            data = connection.recv(READ_BYTES_MAX)
            if not data:
                raise AgentGone
            sink.write(data)
            sink.flush()
            responses.feed(data)
        if source in ready:
            data = os.read(source, READ_BYTES_MAX)
            reading = bool(data)
            requests.feed(data)
            waiting += data or requests.end()
        if writable:
            try:
                sent = connection.send(waiting)
            except BlockingIOError:
                continue
            except OSError:
                waiting.clear()  # the last responses may still be readable
                continue
            del waiting[:sent]
