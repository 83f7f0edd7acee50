"""The control socket: no client disturbs the server or the other clients."""

import json
import os
import select
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.agents import until
from zerochat.agent.api import server as control
from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import AgentGone, AgentSilent, AgentUnreachable, NoAgent
from zerochat.agent.api.client_protocol import AgentError, AgentUnclear, ClientProtocol, Notification, Reply
from zerochat.agent.api.server import (
    BACKLOG_BYTES_MAX,
    CLIENTS_MAX,
    SEND_BYTES,
    Call,
    ControlServer,
    FolderOpenToOthers,
    SocketInUse,
    SocketPathTooLong,
    SocketUnusable,
    peer_uid,
)
from zerochat.errors import UnknownGroup
from zerochat.rpc import (
    BATCH_MAX,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LINE_BYTES_MAX,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Author,
    Delivery,
    Event,
    Hello,
    History,
    NoParams,
    PongNotification,
    Sent,
    Subscribed,
    ViewNotification,
)

SENT = Sent(group="g", id="e", lamport=1, position=1, of=2)


def event(text: str, seq: int = 1) -> Event:
    return Event(
        seq=seq,
        type="message",
        group="g",
        id=f"e{seq}",
        author=Author("did:key:z1", "bob"),
        position=seq,
        lamport=seq,
        parents=[],
        sent_at="2026-01-01T00:00:00.000Z",
        received_at="2026-01-01T00:00:00.000Z",
        body={"text": text},
        delivery=Delivery(0, 1),
    )


def dial(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(str(path))
    return connection


def lines(connection: socket.socket, count: int) -> list[Any]:
    """The next `count` lines that the server says."""
    data = b""
    while data.count(b"\n") < count:
        chunk = connection.recv(65536)
        assert chunk, f"cut off after {data!r}"
        data += chunk
    return [json.loads(line) for line in data.splitlines()]


def is_revocation(connection: socket.socket) -> bool:
    """Whether the server closes: reads until the end, which must come."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def greets(path: Path) -> bool:
    with dial(path) as connection:
        client = Client(connection)
        return client.hello().version == "0.0.test"


def call(method: str, params: object = None, request_id: object = 1) -> bytes:
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {} if params is None else params}
    return json.dumps(request).encode() + b"\n"


# --- what clients send ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello?", PARSE_ERROR),
        (b"\xff\xfe\x00", PARSE_ERROR),
        (b'"\\ud800"', PARSE_ERROR),
        (b"[" * 100_000, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"get_status"', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"get_status","params":{"a":' + b"[" * 50_000, PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"7", INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":[1],"method":"get_status"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"get_status"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":"get_status","params":[1]}', INVALID_REQUEST),
        (b"[" + b",".join([b"{}"] * (BATCH_MAX + 1)) + b"]", INVALID_REQUEST),
        (b'{"id":1,"method":"get_status"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 400 + b',"method":"get_status"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":"' + b"x" * 500 + b'","method":"get_status"}', INVALID_REQUEST),
        (call("nonsense").strip(), METHOD_NOT_FOUND),
        (call("send_message").strip(), INVALID_PARAMS),
        (call("send_message", {"group": 1, "text": "x"}).strip(), INVALID_PARAMS),
        (call("wait_for_delivery", {"group": "g", "id": "e", "count": "all"}).strip(), INVALID_PARAMS),
        (call("subscribe", {"groups": "g"}).strip(), INVALID_PARAMS),
    ],
)
def test_a_bad_line_is_answered_and_the_next_is_served(fake_agent, tmp_path, line: bytes, code: int) -> None:
    agent = fake_agent()
    with dial(agent.server.path) as connection:
        connection.sendall(line + b"\n\n" + call("hello", {"protocol": 1}))
        refusal, answer = lines(connection, 2)
    assert refusal["error"]["code"] == code
    assert refusal["error"]["message"]
    assert answer["result"]["version"] == "0.0.test"
    assert [method for method, _ in agent.asked] == ["hello"]


def test_ids_are_returned_unchanged(fake_agent) -> None:
    agent = fake_agent()
    ids = [0, -1, 2**53 - 1, "x", "", "ä", None]
    with dial(agent.server.path) as connection:
        connection.sendall(b"".join(call("hello", {"protocol": 1}, one) for one in ids))
        assert [answer["id"] for answer in lines(connection, len(ids))] == ids


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":7}', 7),
        (b'{"id":"a","method":"get_status"}', "a"),
        (b'{"jsonrpc":"2.0","id":7,"method":"get_status","params":[1]}', 7),
        (b'{"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","id":[7],"method":"get_status"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"get_status"}', None),
        (b'{"jsonrpc":"2.0","id":9007199254740992,"method":7}', None),
        (b'{"jsonrpc":"2.0","method":7}', None),
        (b'{"jsonrpc":"2.0","id":7,', None),
    ],
)
def test_an_invalid_request_is_answered_with_its_id(fake_agent, line: bytes, request_id: object) -> None:
    with dial(fake_agent().server.path) as connection:
        connection.sendall(line + b"\n")
        (refusal,) = lines(connection, 1)
    assert refusal["id"] == request_id and refusal["error"]["data"]["code"] in ("InvalidRequest", "ParseError")


def test_notifications_of_clients_are_carried_out_and_not_answered(fake_agent) -> None:
    agent = fake_agent(send_message=lambda _: SENT)
    silent: list[dict[str, Any]] = [
        {"method": "send_message", "params": {"group": "g", "text": "x"}},
        {"method": "nonsense"},
        {"method": "send_message", "params": {"group": 1}},
        {"method": "get_status"},
    ]
    with dial(agent.server.path) as connection:
        for each in silent:
            connection.sendall(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n")
        connection.sendall(call("hello", {"protocol": 1}, "last"))
        assert [answer["id"] for answer in lines(connection, 1)] == ["last"]
    assert [method for method, _ in agent.asked] == ["send_message", "get_status", "hello"]


def test_a_batch_is_answered_in_one_line(fake_agent) -> None:
    agent = fake_agent(send_message=lambda _: SENT, wait_for_delivery=lambda _: None, list_groups=lambda _: [])
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "wait_for_delivery", "params": {"group": "g", "id": "e"}},
        {"jsonrpc": "2.0", "method": "send_message", "params": {"group": "g", "text": "x"}},
        7,
        [],
        {"jsonrpc": "2.0", "id": 2, "method": "nonsense"},
        {"jsonrpc": "2.0", "id": 3, "method": "list_groups"},
    ]
    with dial(agent.server.path) as connection:
        connection.sendall(json.dumps(batch).encode() + b"\n" + call("hello", {"protocol": 1}, "other"))
        assert lines(connection, 1)[0]["id"] == "other"  # it need not wait for the batch
        agent.do(lambda: agent.server.respond(agent.open[0], SENT))
        (answers,) = lines(connection, 1)
        found = {each["id"]: each.get("error", {}).get("code", 0) for each in answers}
        assert found == {None: INVALID_REQUEST, 2: METHOD_NOT_FOUND, 3: 0, 1: 0} and len(answers) == 5
        connection.sendall(b'[{"jsonrpc":"2.0","method":"list_groups"}]\n' + call("hello", {"protocol": 1}, "last"))
        assert lines(connection, 1)[0]["id"] == "last"


def test_the_answers_to_a_batch_fit_one_line(fake_agent) -> None:
    agent = fake_agent(send_message=lambda _: Sent(group="x" * 30_000, id="e", lamport=1, position=1, of=1))
    params = {"group": "g", "text": "x"}
    batch = [
        {"jsonrpc": "2.0", "id": "i" * 120 + str(number), "method": "send_message", "params": params}
        for number in range(BATCH_MAX)
    ]
    with dial(agent.server.path) as connection:
        connection.sendall(json.dumps(batch).encode() + b"\n")
        (answers,) = lines(connection, 1)
    refused = [each["error"]["code"] for each in answers if "error" in each]
    assert len(answers) == BATCH_MAX and set(refused) == {INTERNAL_ERROR} and len(refused) < BATCH_MAX - 20
    assert len(json.dumps(answers, separators=(",", ":"))) < LINE_BYTES_MAX


@pytest.mark.parametrize("late", [False, True])
def test_a_half_closed_connection_gets_its_answers(fake_agent, late: bool) -> None:
    agent = fake_agent(send_message=lambda _: SENT, wait_for_delivery=lambda _: None)
    wait = call("wait_for_delivery", {"group": "g", "id": "e"}, "late") if late else b""
    with dial(agent.server.path) as connection:
        connection.sendall(wait + call("send_message", {"group": "g", "text": "x"}).rstrip())  # without a newline
        connection.shutdown(socket.SHUT_WR)
        assert lines(connection, 1)[0]["id"] == 1
        if late:
            agent.do(lambda: agent.server.respond(agent.open[0], SENT))
            assert lines(connection, 1)[0]["id"] == "late"
        assert connection.recv(1) == b""


def test_a_half_closed_client_that_goes_is_disconnected(fake_agent) -> None:
    agent = fake_agent(wait_for_delivery=lambda _: None)
    with dial(agent.server.path) as connection:
        connection.sendall(call("wait_for_delivery", {"group": "g", "id": "e"}, "late"))
        connection.shutdown(socket.SHUT_WR)
        until(lambda: agent.open and False in [read for read, _ in agent.server.fds().values()], "its end of sending")
        agent.do(agent.server.flush)
        assert agent.server.clients, "it waits for its answer"
    agent.do(agent.server.flush)
    assert not agent.server.clients


def test_what_has_no_answer_when_the_agent_stops_is_refused(fake_agent) -> None:
    agent = fake_agent(wait_for_delivery=lambda _: None)
    with dial(agent.server.path) as connection:
        connection.sendall(call("wait_for_delivery", {"group": "g", "id": "e"}, "late"))
        until(lambda: agent.open, "the call")
        agent.do(lambda: agent.server.refuse_pending(UnknownGroup(group="g")))
        (refusal,) = lines(connection, 1)
    assert refusal["id"] == "late" and refusal["error"]["data"]["code"] == "UnknownGroup"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [b"\n", b"{", b'{"jsonrpc":"2.0"', call("hello"), call("send_message", {"group": "g"}), b"\x00"]
            ),
            st.recursive(
                st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
                lambda inner: st.dictionaries(st.sampled_from(["id", "method", "params", "jsonrpc"]), inner),
                max_leaves=6,
            ).map(lambda value: json.dumps(value).encode() + b"\n"),
        ),
        max_size=12,
    )
)
def test_malformed_input_changes_nothing(fake_agent, tmp_path_factory, pieces: list[bytes]) -> None:
    agent = _one_for_all(fake_agent)
    with dial(agent.server.path) as connection:
        connection.sendall(b"".join(pieces) + b"\n" + call("hello", {"protocol": 1}, "last"))
        with connection.makefile("rb") as answers:
            assert any(json.loads(line).get("id") == "last" for line in answers)


_shared: dict[int, Any] = {}


def _one_for_all(fake_agent: Any) -> Any:
    """One agent for all examples of a property: the fixture is the same object throughout."""
    if id(fake_agent) not in _shared:
        _shared.clear()
        _shared[id(fake_agent)] = fake_agent()
    return _shared[id(fake_agent)]


def test_lines_in_pieces_and_lines_together(fake_agent) -> None:
    agent = fake_agent()
    whole = call("hello", {"protocol": 1}, 1) + call("hello", {"protocol": 1}, 2)
    with dial(agent.server.path) as connection:
        for at in range(len(whole)):
            connection.sendall(whole[at : at + 1])
        assert [answer["id"] for answer in lines(connection, 2)] == [1, 2]
    with dial(agent.server.path) as connection:
        connection.sendall(whole[:20])
    assert greets(agent.server.path)
    assert len(agent.asked) == 3


def test_an_endless_line_is_cut_off(fake_agent) -> None:
    agent = fake_agent()
    with dial(agent.server.path) as connection:
        try:
            for _ in range(2 * LINE_BYTES_MAX // 65536):
                connection.sendall(b"x" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            pass
        [refusal] = lines(connection, 1)
        assert refusal["error"]["code"] == INVALID_REQUEST
        assert is_revocation(connection)
    assert greets(agent.server.path)


def test_the_longest_line_that_is_allowed(fake_agent) -> None:
    agent = fake_agent(send_message=lambda params: SENT)
    text = "x" * (LINE_BYTES_MAX - len(call("send_message", {"group": "g", "text": ""})) + 1)
    with dial(agent.server.path) as connection:
        connection.sendall(call("send_message", {"group": "g", "text": text}))
        assert lines(connection, 1)[0]["result"]["id"] == "e"
        connection.sendall(call("send_message", {"group": "g", "text": text + "x"}))
        assert lines(connection, 1)[0]["error"]["code"] == INVALID_REQUEST
        assert is_revocation(connection)


def test_many_clients_and_no_more_than_that(fake_agent) -> None:
    agent = fake_agent()
    crowd = [dial(agent.server.path) for _ in range(CLIENTS_MAX)]
    try:
        for connection in crowd:
            connection.sendall(call("hello", {"protocol": 1}))
        assert all(lines(connection, 1)[0]["result"]["protocol"] == 1 for connection in crowd)
        with dial(agent.server.path) as late:
            assert "Too many clients" in lines(late, 1)[0]["error"]["message"]
            assert is_revocation(late)
        crowd.pop().close()
        _until(lambda: len(agent.server.clients) < CLIENTS_MAX)
        crowd.append(dial(agent.server.path))
        crowd[-1].sendall(call("hello", {"protocol": 1}))
        assert lines(crowd[-1], 1)[0]["result"]["protocol"] == 1
    finally:
        for connection in crowd:
            connection.close()


def _until(condition, deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        select.select([], [], [], 0.002)


def test_a_poller_learns_which_descriptors_are_closed(tmp_path: Path) -> None:
    with ControlServer(tmp_path / "agent.sock") as server:
        [listener] = server.fds()
        with dial(server.path):
            server.ready(listener)
            [fd] = server.fds().keys() - {listener}
            assert server.take_closed() == set()
        assert server.ready(fd) == []
        assert (server.take_closed(), server.take_closed()) == ({fd}, set())
        assert server.fds() == {listener: (True, False)}
        assert server.ready(fd) == []


def test_other_users_are_turned_away(fake_agent, monkeypatch) -> None:
    agent = fake_agent()
    with dial(agent.server.path) as connection:
        assert peer_uid(connection) == os.geteuid()
    for stranger in (os.geteuid() + 1, None):
        monkeypatch.setattr(control, "peer_uid", lambda _, uid=stranger: uid)
        with dial(agent.server.path) as connection:
            assert "Only the user" in lines(connection, 1)[0]["error"]["message"]
            assert is_revocation(connection)
    assert agent.asked == []


# --- what clients do not read ---------------------------------------------------------------------------------------


def test_only_the_client_that_does_not_read_is_disconnected(fake_agent) -> None:
    agent = fake_agent()
    with dial(agent.server.path) as sleeper, dial(agent.server.path) as reader:
        for connection in (sleeper, reader):
            connection.sendall(call("subscribe"))
            lines(connection, 1)
        item = event("x" * 60_000)
        got = bytearray()

        def read() -> None:
            while b'"seq":999' not in got:
                got.extend(reader.recv(1 << 20))

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        backlogs: list[int] = []
        for _ in range(BACKLOG_BYTES_MAX // 60_000 + 20):
            agent.tell("event", item)
            agent.do(lambda: backlogs.append(max(agent.server.backlog(client) for client in agent.subscribers)))
            _until(lambda: agent.server.backlog(2) == 0)
        agent.tell("event", event("last", seq=999))
        reading.join(10)
        assert not reading.is_alive()
        assert max(backlogs) > BACKLOG_BYTES_MAX // 2, "the sleeper's backlog should have grown first"
        assert max(backlogs) <= BACKLOG_BYTES_MAX
        assert agent.server.clients == {2}
        assert is_revocation(sleeper)
        heard = bytes(got).count(b'"method":"event"')
        assert heard == BACKLOG_BYTES_MAX // 60_000 + 21


def test_all_notifications_of_a_batch_reach_a_client_at_once(tmp_path: Path) -> None:
    with ControlServer(tmp_path / "agent.sock") as server, dial(server.path) as connection:
        (listener,) = server.fds()
        server.ready(listener)
        connection.setblocking(False)
        for seq in (1, 2, 3):
            server.notify(server.clients, "event", event("x", seq))
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        server.flush()
        assert connection.recv(1 << 16).count(b"\n") == 3
        assert not any(writing for _, writing in server.fds().values())
        server.notify(server.clients, "event", event("x" * SEND_BYTES, 4))  # so much does not wait
        assert connection.recv(1 << 16)


def test_notifications_for_a_disconnected_client_are_dropped(fake_agent) -> None:
    agent = fake_agent()
    with dial(agent.server.path) as connection:
        connection.sendall(call("subscribe"))
        lines(connection, 1)
    _until(lambda: not agent.server.clients)
    agent.do(lambda: agent.server.notify([1], "view_changed", ViewNotification("g")))
    agent.do(lambda: agent.server.respond(Call(1, 7, "get_status", NoParams()), NoParams()))
    assert greets(agent.server.path)


def test_an_answer_that_fits_no_line_is_refused(fake_agent) -> None:
    agent = fake_agent(
        get_history=lambda params: History([event("x" * LINE_BYTES_MAX)], False),
        send_message=lambda params: Sent(group="\ud800", id="e", lamport=1, position=1, of=1),
    )
    with dial(agent.server.path) as connection:
        connection.sendall(call("get_history", {"group": "g"}, 5) + call("send_message", {"group": "g", "text": ""}, 6))
        for request_id, answer in zip((5, 6), lines(connection, 2), strict=True):
            assert answer["id"] == request_id
            assert answer["error"]["code"] == INTERNAL_ERROR


# --- the socket file ------------------------------------------------------------------------------------------------


def test_only_the_owner_may_open_the_file(fake_agent, tmp_path: Path) -> None:
    agent = fake_agent(path=tmp_path / "deep" / "er" / "a.sock")
    path = agent.server.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    agent.stop()
    assert not path.exists()


def test_a_dead_agents_socket_is_replaced(fake_agent, tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    assert path.exists()
    agent = fake_agent(path=path)
    assert greets(agent.server.path)


def test_a_living_socket_is_not_replaced(fake_agent) -> None:
    agent = fake_agent()
    with pytest.raises(SocketInUse, match="another profile"):
        ControlServer(agent.server.path)
    assert greets(agent.server.path)


def test_an_ordinary_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    path.write_text("mine")
    with pytest.raises(SocketUnusable, match="not a socket"):
        ControlServer(path)
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(SocketPathTooLong, match="XDG_RUNTIME_DIR"):
        ControlServer(tmp_path / ("x" * 110))


def test_a_folder_that_others_can_enter(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(FolderOpenToOthers, match="chmod 700"):
        ControlServer(tmp_path / "open" / "agent.sock")


def test_closing_leaves_a_successors_socket_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with ControlServer(path):
        path.unlink()
        successor = ControlServer(path)
    assert path.exists()
    successor.close()
    successor.close()
    assert not path.exists()


def test_without_descriptors_the_queue_is_still_emptied(tmp_path: Path, monkeypatch) -> None:
    with ControlServer(tmp_path / "agent.sock") as server:
        [listener] = server.fds()
        real = server._listener

        class Exhausted:
            """A listener whose first accept finds no descriptor left."""

            failed = False

            def accept(self):
                if not self.failed:
                    self.failed = True
                    raise OSError(24, "Too many open files")
                return real.accept()

            def __getattr__(self, name):
                return getattr(real, name)

        monkeypatch.setattr(server, "_listener", Exhausted())
        with dial(server.path) as unlucky:
            server.ready(listener)
            assert is_revocation(unlucky)
        with dial(server.path):
            server.ready(listener)
            assert len(server.clients) == 1
        monkeypatch.setattr(server, "_listener", real)


# --- the client -----------------------------------------------------------------------------------------------------


def home(path: Path) -> Any:
    return SimpleNamespace(socket=path, profile="default")


def test_calls_and_errors(fake_agent) -> None:
    def send(params):
        raise UnknownGroup(group=params.group)

    agent = fake_agent(send_message=send, get_history=lambda params: History([event(params.group)], more=True))
    with connect(home(agent.server.path)) as client:
        assert client.hello().nick == "alice"
        with pytest.raises(AgentError, match="Unknown group 'hikers'") as refused:
            client.send_message("hikers", "x")
        assert (refused.value.code, refused.value.exit_code) == ("UnknownGroup", 1)
        assert client.get_history("g\u2028ä😀").events[0].body["text"] == "g\u2028ä😀"
        with pytest.raises(AgentError, match="do not fit"):
            client.call("send_message", group=1)


def test_notifications_between_answers_keep_their_order(fake_agent) -> None:
    agent = fake_agent()

    def answer(params):
        for seq in (1, 2, 3):
            agent.server.notify([1], "event", event("x", seq))
        return SENT

    agent.answers["send_message"] = answer
    with connect(home(agent.server.path)) as client:
        client.subscribe()
        assert client.send_message("g", "x") == SENT
        agent.tell("view_changed", ViewNotification("g"))
        news = list(client.notifications(0.05))
    assert [getattr(one.params, "seq", one.method) for one in news] == [1, 2, 3, "view_changed"]


def test_a_missing_agent_and_a_dead_socket(tmp_path: Path) -> None:
    with pytest.raises(NoAgent, match="zerochat --profile default agent"):
        connect(home(tmp_path / "none.sock"))
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with pytest.raises(NoAgent):
        connect(home(path))
    with pytest.raises(AgentUnreachable):
        connect(home(tmp_path / ("x" * 200)))


def test_an_agent_that_ends_and_one_that_is_silent(fake_agent) -> None:
    agent = fake_agent(get_status=lambda params: None)
    with connect(home(agent.server.path)) as client:
        with pytest.raises(AgentSilent, match="status"):
            client.call("get_status", within_s=0.05)
        assert client.next_notification(0.01) is None
        agent.stop()
        with pytest.raises(AgentGone):
            client.next_notification(10)
        with pytest.raises(AgentGone):
            client.get_status()
        client.stop_agent()


def test_a_late_answer_is_not_mistaken_for_another(fake_agent) -> None:
    agent = fake_agent(send_message=lambda params: None)
    with connect(home(agent.server.path)) as client:
        with pytest.raises(AgentSilent):
            client.call("send_message", within_s=0.05, group="g", text="x")
        [call] = agent.open
        agent.do(lambda: agent.server.respond(call, SENT))
        assert isinstance(client.hello(), Hello)
        assert not client._replies


def test_another_protocol(fake_agent) -> None:
    agent = fake_agent(hello=lambda params: Hello(protocol=2, version="9", profile="default", nick="x"))
    with pytest.raises(AgentUnclear, match="protocol 2"):
        connect(home(agent.server.path))


@pytest.mark.parametrize(
    "line",
    [b"junk\n", b'{"id":1,"result":7}\n', b'{"method":"event","params":{}}\n', b"x" * (LINE_BYTES_MAX + 1)],
)
def test_malformed_messages_from_an_agent_are_refused(line: bytes) -> None:
    dialogue = ClientProtocol()
    assert dialogue.request("hello", {"protocol": 1})[0] == 1
    with pytest.raises(AgentUnclear):
        dialogue.receive(line)


def test_unknown_messages_are_skipped() -> None:
    dialogue = ClientProtocol()
    dialogue.request("subscribe", {})
    said = (
        b'{"jsonrpc":"2.0","method":"weather","params":{"rain":true}}\n'
        b'{"jsonrpc":"2.0","method":"view_changed","params":{"group":"g","colour":"red"},"more":1}\n'
        b'{"jsonrpc":"2.0","id":77,"result":{}}\n{"jsonrpc":"2.0","id":1,"result":{"new":1}}\n{"half'
    )
    assert dialogue.receive(said) == [
        Notification("view_changed", ViewNotification("g")),
        Reply(1, "subscribe", Subscribed()),
    ]


@given(st.binary(max_size=200))
def test_the_client_survives_any_bytes(data: bytes) -> None:
    dialogue = ClientProtocol()
    dialogue.request("get_status", {})
    with suppress(AgentUnclear, AgentError):
        dialogue.receive(data + b"\n")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("create_group", {"group": "g", "envelope": 1}),
        ("ping_peer", {}),
        ("query_features", {"peer": "bob", "match": None}),
        ("open_connection", {"invitation": "x", "mediate": "yes"}),
        ("offer_connection", {"expires_s": "1h"}),
        ("send_connection_message", {"peer": "bob"}),
    ],
)
def test_peer_queries_have_a_schema(fake_agent, method: str, params: dict[str, Any]) -> None:
    agent = fake_agent()
    with connect(home(agent.server.path)) as client, pytest.raises(AgentError, match="do not fit"):
        client.call(method, **params)
    assert [asked for asked, _ in agent.asked] == ["hello"]


def test_answers_of_peers_arrive_unchanged(fake_agent) -> None:
    agent = fake_agent()
    pong = PongNotification(
        thread="t", peer="\x1b[2J\u202e", rtt_ms=1, envelope="x", their_key="k\n", my_key="\u2028", channel="direct"
    )
    with connect(home(agent.server.path)) as client:
        client.subscribe()
        agent.tell("pong", pong)
        assert client.next_notification(10) == Notification("pong", pong)


def test_notifications_round_trip(fake_agent) -> None:
    agent = fake_agent()
    item = event("\x1b[2J ‮ 😀 \u2028", seq=3)
    with connect(home(agent.server.path)) as client:
        client.subscribe()
        agent.tell("event", item)
        news = client.next_notification(10)
    assert news == Notification("event", item)
    assert msgspec.json.decode(msgspec.json.encode(item), type=Event) == item
