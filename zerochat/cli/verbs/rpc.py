"""Verb rpc: relays the JSON-RPC control protocol between standard input/output and the agent."""

import os
import select
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Final

import msgspec

from zerochat.agent.api.client import connect
from zerochat.agent.api.client_connection import AgentGone, AgentUnreachable, NoAgent
from zerochat.cli.agent_access import attached, paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output
from zerochat.cli.rpc_relay import Pending, Relay, too_long
from zerochat.errors import LocalError
from zerochat.rpc import LINE_BYTES_MAX

if TYPE_CHECKING:
    from zerochat.agent.storage.paths import ProfilePaths


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "rpc",
        "use the JSON-RPC protocol over standard input and output",
        "Relay the agent's control protocol: JSON-RPC 2.0, one object per line. Requests are read from standard "
        "input;\n"
        "responses and notifications go to standard output. At the end of the input it waits for the pending\n"
        "responses and exits. If the agent ends, it goes on with the next one. `zerochat help json-rpc` documents the\n"
        "protocol.",
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


READ_BYTES_MAX: Final = 1 << 16
PENDING_MAX: Final = 1_024
"""Requests without an answer; with more, reading pauses."""
RESTART_S_MAX: Final = 30.0
"""How long an agent that another service runs may take to restart."""
RESTART_POLL_S: Final = 0.1
FAILURES_MAX: Final = 3


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
    session = _Session(sys.stdin.fileno(), sys.stdout.buffer)
    try:
        _relay(options, session)
    except LocalError as error:
        session.write(session.relay.fail(error))
        raise
    return ExitCode.OK


def _relay(options: Options, session: "_Session") -> None:
    """Relay to one agent after the other. Raises AgentGone where there is no next one."""
    paths, done = paths_of(options), False
    while not done:
        with attached(options, "rpc") as agent:
            temporary = bool(agent.owner) and not agent.own
            while not done:
                try:
                    done = session.serve(paths, adds_keys=not agent.own)
                except AgentUnreachable:
                    if not temporary:
                        raise
                thread = agent.client.thread
                if thread is None:
                    break
                if not (done or thread.is_alive()):
                    raise AgentGone
        if not (done or temporary):
            _wait_for_restart(paths)


def _wait_for_restart(paths: "ProfilePaths") -> None:
    """Wait for an agent that does not end with a command, and start none in its place. Raises AgentGone."""
    deadline = time.monotonic() + RESTART_S_MAX
    while True:
        try:
            connect(paths, "rpc").close()
            return
        except NoAgent:
            if time.monotonic() > deadline:
                raise AgentGone from None
        time.sleep(RESTART_POLL_S)


class _Session:
    """Standard input and output of the program, over all agents."""

    def __init__(self, source: int, sink: BinaryIO) -> None:
        self.relay = Relay()
        self._source, self._sink = source, sink
        self._reading = True
        self._input = bytearray()
        self._unread = False
        """The rest of a line that is too long is skipped."""
        self._failures = 0
        """Connections in a row on which the agent has answered nothing."""
        self._unsent: list[Pending] = []
        """Notifications of the program, which have no answers, for the next agent."""

    def write(self, lines: Iterable[bytes]) -> None:
        if found := b"".join(lines):
            self._sink.write(found)
            self._sink.flush()

    def serve(self, paths: "ProfilePaths", *, adds_keys: bool) -> bool:
        """Relay to the agent until the input and all answers have ended (True), or the agent has (False). Raises
        AgentUnreachable, and AgentGone where agents answer nothing."""
        relay = self.relay
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(str(paths.socket))
            except OSError as error:
                raise AgentUnreachable(path=paths.socket, why=(error.strerror or str(error)).lower()) from error
            connection.setblocking(False)
            own = [Pending(line, {}) for line in relay.begin()]
            queue = [*own, *relay.pending, *self._unsent]
            self._exchange(connection, queue, adds_keys)
            self._unsent = [one for one in queue if one not in own and not one.members and not one.sent]
        if relay.stops:
            self.write(relay.fail(AgentGone()))
            return True
        self.write(relay.lose())
        self._failures = 0 if relay.confirmed else self._failures + 1
        if self._failures >= FAILURES_MAX:
            raise AgentGone
        return not (self._reading or relay.pending or self._unsent)

    def _exchange(self, connection: socket.socket, queue: list[Pending], adds_keys: bool) -> None:
        """Relay until the agent has closed the connection."""
        agent, received, sending, offset = connection.fileno(), b"", True, 0
        broken = False
        while True:
            wanted = [agent]
            if self._reading and max(len(self.relay.pending), len(queue)) < PENDING_MAX:
                wanted.append(self._source)
            ready, writable, _ = select.select(wanted, [agent] if queue and not broken else [], [])
            if agent in ready:
                try:
                    data = connection.recv(READ_BYTES_MAX)
                except OSError:
                    data = b""
                if not data:
                    return
                *lines, received = (received + data).split(b"\n")
                self.write(map(self.relay.answer, (line + b"\n" for line in lines if line)))
            if self._source in ready:
                queue += self._read(adds_keys)
            if writable:
                try:
                    offset += connection.send(queue[0].line[offset:])
                except BlockingIOError:
                    continue
                except OSError:
                    broken = True  # the last answers may still be readable
                if offset >= len(queue[0].line):
                    queue.pop(0).sent = True
                    offset = 0
            if sending and not (self._reading or queue):
                sending = False
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)  # the agent answers what is pending, and closes

    def _read(self, adds_keys: bool) -> list[Pending]:
        """The lines that the program has completed."""
        data = os.read(self._source, READ_BYTES_MAX)
        self._reading = bool(data)
        self._input += data
        *lines, rest = bytes(self._input).split(b"\n")
        if not data and rest:
            lines, rest = [rest], b""
        found = []
        for line in lines:
            skipped, self._unread = self._unread, False
            if skipped or not line.strip():
                continue
            if (taken := self.relay.take(line + b"\n", adds_keys=adds_keys)) is not None:
                found.append(taken)
            else:
                self.write([too_long()])
        if len(rest) > LINE_BYTES_MAX:
            if not self._unread:
                self.write([too_long()])
            self._unread, rest = True, b""
        self._input = bytearray(rest)
        return found
