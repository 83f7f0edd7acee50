"""The verb rpc: the control protocol on standard input and output, for programs that want all of it.

Lines go to the agent and come from it exactly as they are; only whether an answer is still due is read from them.
"""

import os
import select
import socket
import sys
from typing import Any, ClassVar

import msgspec

from zerochat.agent.api.client import AgentGone, AgentUnreachable
from zerochat.cli.agents import attached, places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output
from zerochat.cli.parser import Options
from zerochat.errors import LocalError

READ_BYTES_MAX = 1 << 16
WAITING_BYTES_MAX = 4 << 20
"""So much may wait to be sent to the agent; then no more is read until it has taken some."""


class NoInput(LocalError):
    """There is nothing to read requests from. Give this verb a standard input."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class _Line(msgspec.Struct):
    method: str = ""


class _Asked:
    """How many requests there are among the bytes that went past: each line that is not blank is one."""

    def __init__(self) -> None:
        self.count = 0
        self._begun = False

    def hear(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            self.count += self._begun or bool(line.strip())
            self._begun = False
        self._begun = self._begun or bool(rest.strip())

    def end(self) -> bytes:
        """What makes a line of the last one."""
        if not self._begun:
            return b""
        self.hear(b"\n")
        return b"\n"


class _Answers:
    """How many answers there are among the bytes that went past."""

    def __init__(self) -> None:
        self.count = 0
        self._rest = bytearray()
        self._decoder = msgspec.json.Decoder(_Line)

    def hear(self, data: bytes) -> None:
        self._rest += data
        *whole, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        self.count += sum(not self._decoder.decode(line).method for line in whole if line)


def rpc(options: Options, out: Output) -> ExitCode:
    if options.rpc_way == "schema":
        from zerochat.agent.api.reference import json_schema

        text = msgspec.json.format(msgspec.json.encode(json_schema())).decode()
        out.exactly(text)
        return ExitCode.OK
    if sys.stdin is None:
        raise NoInput
    with attached(options, "rpc"):
        path = places_of(options).socket
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(str(path))
            except OSError as error:
                raise AgentUnreachable(path=path, why=(error.strerror or str(error)).lower()) from error
            connection.setblocking(False)
            _relay(sys.stdin.fileno(), connection, sys.stdout.buffer)
    return ExitCode.OK


def _relay(source: int, connection: socket.socket, sink: Any) -> None:
    """Until the source has ended and everything that was asked is answered. Raises AgentGone."""
    asked, answers = _Asked(), _Answers()
    waiting = bytearray()
    reading = True
    while reading or waiting or answers.count < asked.count:
        agent = connection.fileno()
        wanted = [agent, source] if reading and len(waiting) < WAITING_BYTES_MAX else [agent]
        ready, writable, _ = select.select(wanted, [agent] if waiting else [], [])
        if agent in ready:
            data = connection.recv(READ_BYTES_MAX)
            if not data:
                raise AgentGone
            sink.write(data)
            sink.flush()
            answers.hear(data)
        if source in ready:
            data = os.read(source, READ_BYTES_MAX)
            reading = bool(data)
            asked.hear(data)
            waiting += data or asked.end()
        if writable:
            try:
                sent = connection.send(waiting)
            except BlockingIOError:
                continue
            except OSError:
                waiting.clear()  # its last words may still be there to read
                continue
            del waiting[:sent]
