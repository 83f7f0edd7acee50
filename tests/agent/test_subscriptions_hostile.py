"""Malformed input from a client to a real agent: it is refused, and the agent is unaffected."""

import json
import os
import random
import socket
import sys
from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person
from zerochat import rpc
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_protocol import AgentError
from zerochat.rpc import LINE_BYTES_MAX, METHODS

people = agents.people
NOT_FOR_FUN = {"stop_agent", "create_backup", "leave_group", "forget_group"}
"""What does just what it is asked to, and then there is nothing left to ask."""
STRANGE: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, -0.0, 1 << 53, 1 << 63, (1 << 64) - 1, -(1 << 63), 1 << 70, -(1 << 90)),
    *("", "friends", "\x00", "\x1b[2J", "a" * 5_000, "\ud7ff\U0010ffff", "now", "start", "last_acked", "ci"),
    *([], [[]], ["friends"], [1], {}, {"group": "friends"}, ["message", "", "x" * 300]),
]


def raw(person: Person) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(agents.DEADLINE_S)
    connection.connect(str(person.places.socket))
    return connection


def answers(connection: socket.socket, count: int) -> list[dict[str, Any]]:
    """The next answers; what is news is left out."""
    found: list[dict[str, Any]] = []
    with connection.makefile("rb") as lines:
        for line in lines:
            if "method" not in (said := json.loads(line)):
                found.append(said)
            if len(found) == count:
                break
    return found


def line(number: int, method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def is_well(person: Person, before: list[str]) -> None:
    """It serves others as ever, and has in its log what it had."""
    assert person.thread.is_alive() and person.thread.failure is None
    with connect(person.places, "another") as client:
        assert client.get_status().pid == os.getpid() and not client.get_status().warning
    texts = [text for text in person.texts() if text in before]
    assert texts == before
    log = person.places.log.read_text(encoding="utf-8")
    assert "Traceback" not in log and "fault" not in log


def test_wrong_params_of_every_method(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    alice.client.send_message("friends", "one")
    dice = random.Random(8)
    with raw(alice) as connection:
        for method, (shape, _) in METHODS.items():
            if method in NOT_FOR_FUN:
                continue
            asked = []
            for number in range(60):
                names = [name for name in shape.__struct_fields__ if dice.random() < 0.8]
                params = {name: dice.choice(STRANGE) for name in names}
                if "group" in params and dice.random() < 0.7:
                    params["group"] = "friends"
                if method == "wait_for_delivery":
                    params["timeout_s"] = dice.choice([0, -1, "x", None])
                asked.append(line(number, method, params))
            for number, strange in enumerate(STRANGE, 100):
                asked.append(line(number, method, strange))
            connection.sendall(b"".join(asked))
            told = answers(connection, len(asked))
            assert {one["id"] for one in told} <= {*range(200), None}
            errors = [one["error"] for one in told if "error" in one]
            assert errors and all(one["message"] and "Traceback" not in one["message"] for one in errors)
            refused = [one["data"] for one in errors if one["code"] == rpc.REFUSED]
            assert all(one["retry"] in ("never", "later", "now") and one["code"] != "InternalFault" for one in refused)
            assert not [one for one in errors if one["code"] == rpc.INTERNAL_ERROR], (method, errors)
    is_well(alice, ["one"])


def test_numbers_out_of_range_are_refused(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    alice.client.send_message("friends", "one")
    numbers = (-1, 0, 1 << 53, (1 << 63) - 1, 1 << 63, 1 << 70)
    with raw(alice) as connection:
        count = 0
        for since in numbers:
            for extra in ({"consumer": "ci"}, {}):
                for method, params in (
                    ("subscribe", {"since": since, **extra}),
                    ("acknowledge", {"consumer": "ci", "seq": since}),
                    ("subscribe", {"consumer": "ci", "credit": since}),
                ):
                    count += 1
                    connection.sendall(line(count, method, params))
        assert len(answers(connection, count)) == count
    is_well(alice, ["one"])
    assert [one.consumer for one in alice.client.list_consumers()] == ["ci"]


def test_an_internal_error_releases_the_idempotency_key(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError

    (alice,) = people("alice")
    alice.client.create_group("friends")
    with monkeypatch.context() as patched:
        patched.setattr("zerochat.agent.api.handlers.messages.post_command", fault)
        with pytest.raises(AgentError, match="Internal error"):
            alice.client.send_message("friends", "one", key="k")
    assert not alice.client.send_message("friends", "one", key="k").duplicate, "nobody waits for what was never said"


def test_half_lines_and_lines_without_end(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    alice.client.send_message("friends", "one")
    with raw(alice) as connection:
        ask = line(1, "acknowledge", {"consumer": "ci", "seq": 1})
        for byte in ask[:-1]:
            connection.sendall(bytes([byte]))
        connection.sendall(b"\r\n" + b"\n" * 1000 + b"\xff\xfe{\n" + b"[" * 5_000 + b"\n" + b'{"jsonrpc":"2.0"}\n')
        found = answers(connection, 4)
        told = {one["id"]: one["error"] for one in found}
        codes = [rpc.PARSE_ERROR, rpc.REFUSED, rpc.PARSE_ERROR, rpc.INVALID_REQUEST]
        assert sorted(one["error"]["code"] for one in found) == sorted(codes)
        assert told[1]["data"]["code"] == "NoSuchConsumer"
    for half in (b"", b"{", ask[:-9]):
        with raw(alice) as connection:
            connection.sendall(half)
    with raw(alice) as connection, pytest.raises(OSError):  # noqa: PT012, PT011  # it is cut off, one way or another
        while True:
            connection.sendall(b"x" * LINE_BYTES_MAX)
    with raw(alice) as connection:
        connection.sendall(
            line(1, "send_message", {"group": "friends", "text": "x", "key": "k" * (LINE_BYTES_MAX - 200)})
        )
        (told_,) = answers(connection, 1)
        assert told_["error"]["data"]["code"] == "BadKey"
    is_well(alice, ["one"])


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_turned_away(people: Any) -> None:
    """Even where the folder was opened to everybody by mistake."""
    (alice,) = people("alice")
    path = alice.places.socket
    opened = [path, *path.parents]
    for one in opened:
        if one != one.parent and str(one).startswith(("/tmp/", str(alice.places.data.parents[2]))):
            one.chmod(one.stat().st_mode | 0o077)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(20)
                connection.connect(str(path))
                while piece := connection.recv(65536):
                    os.write(writing, piece)
        except OSError as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as said:
        heard = said.read()
    assert json.loads(heard)["error"]["message"] == "Only the user of this profile can connect."
    alice.client.create_group("friends")
    is_well(alice, [])
