"""The relay of `rpc --stdio` over the ends of agents: nothing is lost, nothing is sent twice."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import cli_harness
from tests.support.agents import until
from tests.support.cli_harness import SENT, of
from zerochat.agent.api.attach import attach
from zerochat.agent.api.client_connection import AgentGone
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile
from zerochat.cli.rpc_relay import Relay
from zerochat.rpc import LINE_BYTES_MAX, Event, Subscribed

agent, home = cli_harness.agent, cli_harness.home


class Program:
    """A program that talks to `rpc --stdio`."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.process, self.sent = process, 0
        self._in, self._out = process.stdin, process.stdout

    def ask(self, method: str, **params: object) -> int:
        self.sent += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params}))
        return self.sent

    def write(self, line: str) -> None:
        self._in.write(line.encode() + b"\n")
        self._in.flush()

    def read(self, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        while True:
            line = self._out.readline()
            assert line, self.process.stderr and self.process.stderr.read()
            found: dict[str, Any] = json.loads(line)
            if wanted(found):
                return found

    def answer(self, number: int) -> dict[str, Any]:
        return self.read(lambda found: found.get("id") == number)

    def call(self, method: str, **params: object) -> Any:
        return self.answer(self.ask(method, **params))["result"]

    def end(self) -> tuple[int, list[dict[str, Any]], str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


@pytest.fixture
def program() -> Iterator[Callable[[], Program]]:
    with ExitStack() as stack:

        def start(*words: str) -> Program:
            command = [sys.executable, "-m", "zerochat", "rpc", "--stdio", *words]
            pipe = subprocess.PIPE
            process = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe))
            stack.callback(process.kill)
            return Program(process)

        yield start


def texts(client: Any) -> list[str]:
    return [each.body["text"] for each in client.get_history("g").events if each.type == "message"]


# --- a temporary agent, which is another command ----------------------------------------------------------------------


@pytest.mark.slow
def test_it_outlives_the_owner_of_its_agent(home: Path, program: Any) -> None:
    places = profile_paths(None, {"ZEROCHAT_HOME": str(home)})
    create_profile(places, "Alice", None)
    with attach(places, listen="127.0.0.1", name="cli") as owner:
        owner.client.create_group("g")
        one = program()
        one.call("subscribe", groups=["g"])
        assert not one.call("send_message", group="g", text="one")["duplicate"]
    second = one.call("send_message", group="g", text="two")
    assert not second["duplicate"] and one.call("get_status")["groups"][0]["name"] == "g"
    with attach(places, name="cli") as guest:
        assert guest.owner == "rpc" and texts(guest.client) == ["one", "two"]
        third = guest.client.send_message("g", "three")
        one.read(lambda found: found.get("method") == "event" and found["params"]["id"] == third.id)
    code, _, err = one.end()
    assert (code, err) == (0, "")


# --- an agent that lasts, and its restart -----------------------------------------------------------------------------


def test_a_restart_of_the_agent_is_no_end(agent: Any, program: Any) -> None:
    first = agent(create_group=lambda _: None, get_status=lambda _: None, send_message=lambda _: None)
    first.answers["subscribe"] = lambda _: Subscribed(latest=7)
    one = program()
    one.call("hello", protocol=1, client="ci")
    one.call("subscribe", types=["message"])
    first.tell("event", msgspec.convert({**EVENT, "seq": 9}, Event))
    asked = [
        one.ask("create_group", group="g"),
        one.ask("send_message", group="g", text="x"),
        one.ask("send_message", group="g", text="x", key="k"),
        one.ask("get_status"),
    ]
    until(lambda: len(first.open) == 4, "the requests")
    first.stop()
    second = agent(send_message=lambda _: SENT, get_status=lambda _: cli_harness.STATUS)
    lost = one.answer(asked[0])["error"]["data"]
    assert (lost["code"], lost["retry"], lost["exit_code"]) == ("AnswerLost", "never", 6), (
        "it may have been carried out"
    )
    assert one.answer(asked[1])["result"]["id"] == SENT.id
    assert one.answer(asked[2])["result"]["id"] == SENT.id and one.answer(asked[3])["result"]["pid"]
    (again,) = of(second, "subscribe")
    assert (again.since, again.types) == (9, ["message"])
    assert "ci" in [each.client for each in of(second, "hello")]
    keys = [[params.key for method, params in each.asked if method == "send_message"] for each in (first, second)]
    assert keys[0] == keys[1] and keys[0][0].startswith("once:") and not of(second, "create_group")
    assert one.end()[0] == 0


def test_the_end_of_an_agent_that_was_asked_to_stop(agent: Any, program: Any) -> None:
    served: Any = agent(get_status=lambda _: None)
    served.answers["stop_agent"] = lambda _: served.end()
    one = program("--format", "json")
    waiting, stop = one.ask("get_status"), one.ask("stop_agent")
    code, said, err = one.end()
    found = {each["id"]: each for each in said}
    assert found[waiting]["error"]["data"]["code"] == "AgentGone" and found[stop]["result"] == {}
    assert (code, err) == (0, "")


def test_no_agent_returns(agent: Any, program: Any, monkeypatch: Any) -> None:
    from zerochat.cli.verbs import rpc

    monkeypatch.setattr(rpc, "RESTART_S_MAX", 0.0)
    served = agent()
    path = profile_paths(None, {"ZEROCHAT_HOME": str(served.server.path.parent)})
    served.stop()
    with pytest.raises(AgentGone):
        rpc._wait_for_restart(path)


def test_a_line_that_is_too_long_is_refused_alone(agent: Any, program: Any) -> None:
    agent(get_status=lambda _: cli_harness.STATUS)
    one = program()
    one.write("x" * (LINE_BYTES_MAX + 70_000))
    number = one.ask("get_status")
    refused = one.read()
    assert refused["id"] is None and refused["error"]["data"]["code"] == "InvalidRequest"
    assert one.answer(number)["result"]["pid"]
    assert one.end()[:2] == (0, [])


# --- the relay by itself ----------------------------------------------------------------------------------------------


EVENT = msgspec.to_builtins(cli_harness.event(1))


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def request(number: int | None, method: str, **params: object) -> dict[str, object]:
    given: dict[str, object] = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return given if number is not None else {name: value for name, value in given.items() if name != "id"}


def take(relay: Relay, message: object, *, adds_keys: bool = False, sent: bool = True) -> bytes:
    found = relay.take(line(message), adds_keys=adds_keys)
    assert found is not None
    found.sent = sent
    return found.line


def test_a_request_that_takes_a_key_gets_one() -> None:
    relay = Relay()
    sent = json.loads(take(relay, request(1, "send_message", group="g", text="x"), adds_keys=True))
    assert sent["params"]["key"].startswith("once:")
    assert relay.lose() == [] and json.loads(relay.pending[0].line) == sent
    answered = {"jsonrpc": "2.0", "id": 1, "result": {"id": "E", "duplicate": True}}
    compact = json.dumps(answered, separators=(",", ":")).encode() + b"\n"
    assert json.loads(relay.answer(compact))["result"] == {"id": "E", "duplicate": False}
    for own in (request(2, "send_message", group="g", key="k"), request(3, "create_group", group="g")):
        assert json.loads(take(relay, own, adds_keys=True)) == own


def test_what_a_stopping_agent_has_not_done_is_repeated() -> None:
    relay = Relay()
    take(relay, request(1, "create_group", group="g"))
    refusal = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "", "data": {"code": "AgentStopping"}}}
    assert relay.answer(line(refusal)) == b"" and relay.lose() == [] and len(relay.pending) == 1
    take(relay, request(2, "create_group", group="h"))
    stopping = {"jsonrpc": "2.0", "method": "stopping", "params": {"within_s": 0}}
    assert relay.answer(line(stopping)) == b"" and relay.lose() == []
    assert [json.loads(each.line)["id"] for each in relay.pending] == [1, 2]


def test_batches_are_repeated_or_lost_as_a_whole() -> None:
    relay = Relay()
    take(relay, [request(1, "get_status"), request(None, "list_groups"), request(2, "list_groups")])
    take(relay, [request(3, "get_status"), request(4, "create_group", group="g")])
    (lost,) = relay.lose()
    assert [(each["id"], each["error"]["data"]["code"]) for each in json.loads(lost)] == [
        (3, "AnswerLost"),
        (4, "AnswerLost"),
    ]
    answers = line([{"jsonrpc": "2.0", "id": number, "result": {}} for number in (2, 1)])
    assert relay.answer(answers) == answers and not relay.pending


def test_a_consumer_continues_where_it_has_acknowledged() -> None:
    relay = Relay()
    take(relay, request(1, "subscribe", consumer="ci", since="start"))
    relay.answer(line({"jsonrpc": "2.0", "id": 1, "result": {"latest": 5}}))
    _, again = map(json.loads, relay.begin())
    assert again["params"] == {"consumer": "ci", "since": None}
    relay.answer(line({"jsonrpc": "2.0", "method": "consumer_taken", "params": {"consumer": "ci"}}))
    assert len(relay.begin()) == 1, "another program has it"


@pytest.mark.parametrize("odd", [b"no json\n", b"[]\n", b"[1]\n", b'{"id":1.5}\n', b'{"id":null,"method":"x"}\n'])
def test_what_is_no_request_is_passed_on(odd: bytes) -> None:
    relay = Relay()
    found = relay.take(odd)
    assert found is not None and found.line == odd and not relay.pending
    assert relay.answer(odd) == odd or odd.startswith(b'{"id":null')


@pytest.mark.parametrize("params", [b'{"group":"g","text":"\xff"}', b'{"group":1e999}', b"[1]"])
def test_params_that_no_agent_can_read_are_passed_on(params: bytes) -> None:
    relay = Relay()
    wrong = b'{"jsonrpc":"2.0","id":1,"method":"send_message","params":%s}\n' % params
    found = relay.take(wrong, adds_keys=True)
    assert found is not None and found.line == wrong
    found.sent = True
    assert len(relay.lose()) == 1, "it is not repeated"
