"""Fuzz targets on this machine: lines at the control socket, and pasted text."""

import json
import socket
from collections.abc import Iterator
from functools import cached_property
from random import Random

import msgspec

from fuzzing.files import folder
from fuzzing.nodes import Part
from fuzzing.run import Form
from fuzzing.texts import OutOfBand, invitations
from zerochat.agent.api.server import BACKLOG_BYTES_MAX, Call, ControlServer
from zerochat.agent.invitations.pasted_text import only_invitation, read_pasted
from zerochat.errors import Malformed
from zerochat.rpc import LINE_BYTES_MAX, METHODS


class Control:
    """Lines at a real control socket: each is answered or becomes a request, and the next client is served."""

    name = "control"
    form: Form = "text"
    size_max = LINE_BYTES_MAX

    _PING = b'{"jsonrpc":"2.0","id":"ping","method":"no-such-method"}\n'

    def seeds(self) -> list[bytes]:
        """A request of every method, with params of the shape that its schema has."""
        found = []
        for number, (method, (shape, *_)) in enumerate(METHODS.items()):
            params = {field.name: _example(field.type) for field in msgspec.inspect.type_info(shape).fields}  # type: ignore[attr-defined]
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            found.append(json.dumps(request, separators=(",", ":")).encode())
        return found

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    @cached_property
    def _server(self) -> ControlServer:
        path = folder(self.name) / "agent.sock"
        return ControlServer(path)

    def parse(self, data: bytes) -> object:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self._server.path))
            client.setblocking(False)
            requests, heard = self._told(client, data + b"\n" + self._PING)
        for fd in list(self._server.fds()):
            self._server.ready(fd)
        assert not self._server.clients
        answers = [json.loads(line) for line in heard.splitlines()]
        single = [answer for answer in answers if isinstance(answer, dict)]
        assert all(answer["jsonrpc"] == "2.0" for answer in single)
        lines = [line for line in data.split(b"\n") if line.strip() and not line.lstrip().startswith(b"[")]
        if single and single[-1]["id"] == "ping":  # else it was disconnected, with an error
            assert len(requests) + len(single) > sum(not _is_notification(line) for line in lines)
        else:
            assert len(data) > LINE_BYTES_MAX and "A line can have" in answers[-1]["error"]["message"]
        if not requests:
            raise Malformed(why="no request")
        return [call.params for call in requests]

    def _told(self, client: socket.socket, data: bytes) -> tuple[list[Call], bytes]:
        """The output at both ends, after all input."""
        requests: list[Call] = []
        heard, rest = bytearray(), memoryview(data)
        while not (heard.endswith(b"\n") and b'"ping"' in heard[-200:]):
            try:
                rest = rest[client.send(rest) :] if rest else rest
            except BlockingIOError:
                pass
            except OSError:
                rest = rest[:0]
            for fd in list(self._server.fds()):
                requests += self._server.ready(fd)
            self._server.flush()
            try:
                heard += (piece := client.recv(1 << 20))
            except BlockingIOError:
                continue
            except OSError:
                break
            if not piece:
                break
        assert len(heard) <= BACKLOG_BYTES_MAX
        return requests, bytes(heard)


def _is_notification(line: bytes) -> bool:
    """Whether this line may stay without an answer. The agent skips unknown values that this decoder refuses."""
    try:
        found = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return b'"id"' not in line
    return isinstance(found, dict) and "id" not in found


def _example(kind: msgspec.inspect.Type) -> object:
    """Something that has this type."""
    match kind:
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            return 1
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.BytesType():
            return "AAAA"
        case msgspec.inspect.LiteralType():
            return kind.values[0]
        case msgspec.inspect.UnionType():
            return _example(next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)))
        case msgspec.inspect.DictType():
            return {_example(kind.key_type): _example(kind.value_type)}
        case msgspec.inspect.ListType():
            return [_example(kind.item_type)]
        case msgspec.inspect.TupleType():
            return [_example(each) for each in kind.item_types]
        case msgspec.inspect.StructType():
            return {field.name: _example(field.type) for field in kind.fields}
    return None


class Pasted(OutOfBand):
    """Pasted text: sentences, quoted mails, several links, and the invitation in it. It is parsed once, at the user's
    request."""

    name = "pasted"
    form: Form = "raw"
    slow_ns = 500_000_000
    size_max = 64 * 1024

    def seeds(self) -> list[bytes]:
        ours = [each.url().encode() for each in invitations()][:3]
        return [*super().seeds(), *ours, *self._mails(ours[0])]

    def _mails(self, link: bytes) -> Iterator[bytes]:
        yield b"> Hello, here is the link:\n> <" + link[:70] + b"\n> " + link[70:] + b">\n> Bye."
        yield b"Either " + link + b" or (https://example.com/?oob=abc), or else ZC:ABC."

    def parse(self, data: bytes) -> object:
        text = data.decode(errors="surrogateescape")
        found = only_invitation(text)
        assert only_invitation(found) == found or found == text
        return read_pasted(text, 1_800_000_000)
