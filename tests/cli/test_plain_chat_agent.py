"""The plain chat whose agent or output goes away."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from zerochat.agent.api.attach import RESTART_S_MAX
from zerochat.agent.api.client_connection import AgentGone, NoAgent
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, OutputFailed
from zerochat.cli.plain_chat import chat as chat_module
from zerochat.cli.plain_chat import commands, subscription
from zerochat.cli.plain_chat.chat import Chat
from zerochat.cli.prompts import NoPassphrase
from zerochat.rpc import Sent
from zerochat.slash_commands import Refusal, parse


class Waits:
    """An event that records how long it was waited for, and is set after `most` waits."""

    def __init__(self, most):
        self.delays, self._most = [], most

    def is_set(self):
        return len(self.delays) >= self._most

    def wait(self, seconds):
        self.delays.append(seconds)


def subscribed(monkeypatch, answers, most=9, start_agent=lambda: None):
    """A subscription that has run; `answers` are what each attempt to connect meets."""
    attempts = iter(answers)

    def connect(paths, name):
        answer = next(attempts)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(subscription, "connect", connect)
    output = subscription.DeferredOutput(lambda: False)
    anything: Any = None
    waits: Any = Waits(most)
    found = subscription.Subscription(
        anything, output, print, lambda: ("", ""), lambda: None, "client", lambda: "", start_agent
    )
    found._stopping = waits
    found.run()
    return found


def delays(found):
    return found._stopping.delays


def client(serve, owner):
    return nullcontext(SimpleNamespace(subscribe=lambda since: None, next_notification=serve, owner=owner))


def failing(error, owner="tui"):
    def serve(within_s):
        raise error

    return client(serve, owner)


def test_a_lost_agent_is_attached_again(monkeypatch, capsys):
    """Another program has a moment to start it, then the chat does; each fault is reported once."""
    started = []
    none = NoAgent(profile="alice")
    answers = [failing(AgentGone()), none, none, failing(AgentGone())]
    found = subscribed(monkeypatch, answers, most=3, start_agent=lambda: started.append(1))
    assert delays(found) == [0.1, 0.5, 1.0] and started == [1]
    err = capsys.readouterr().err
    assert err.count("has closed the connection") == 2 and err.count("Connected to the agent again.") == 1
    assert "No agent is running" not in err


def test_the_restart_of_a_service_is_awaited(monkeypatch):
    def started():
        raise AssertionError("too early")

    answers = [failing(AgentGone(), owner=""), *[NoAgent(profile="alice")] * 6]
    assert sum(delays(subscribed(monkeypatch, answers, most=6, start_agent=started))) > RESTART_S_MAX
    with pytest.raises(AssertionError):
        subscribed(monkeypatch, answers, most=7, start_agent=started)


def test_without_the_passphrase_the_attempts_go_on(monkeypatch, capsys):
    """There is no prompt beside the one for input; the next line prompts."""

    def locked():
        raise NoPassphrase

    found = subscribed(monkeypatch, [NoAgent(profile="alice")] * 9, most=6, start_agent=locked)
    assert delays(found) == [0.1, 0.5, 1.0, 2.0, 5.0, 5.0]
    assert capsys.readouterr().err.count("A passphrase is required") == 1


def test_a_broken_output_is_no_lost_agent(monkeypatch):
    found = subscribed(monkeypatch, [failing(OutputFailed(why="no space left on device"))])
    assert delays(found) == [] and found.failure is not None


# --- the session ----------------------------------------------------------------------------------------------------


class Lines:
    terminal = True

    def __init__(self):
        self.given_back = []

    def begun(self):
        return ""

    def put(self, text):
        self.given_back.append(text)


@pytest.fixture
def session(monkeypatch):
    chats = []

    def made(**methods):
        agent: Any = SimpleNamespace(client=SimpleNamespace(**methods), own=False, close=lambda: None)
        options = Options(profile="alice", group="", listen=None, advertise=None, format="text")
        lines: Any = Lines()
        chat = Chat(options, Output("text"), agent, lines)
        chat.group = "g1"
        monkeypatch.setattr(chat, "_reconnect", lambda lost: None)
        chats.append(chat)
        return chat

    return made


def gone(*arguments, **more):
    raise AgentGone


def test_a_message_that_was_sent_is_not_put_back(session):
    """The agent may end between the message and a question that follows."""
    sent = Sent(group="g1", id="e1", of=2, lamport=1, position=1)
    chat = session(send_message=lambda *a, **more: sent, list_groups=gone)
    chat._handle(["hello"])
    assert chat.lines.given_back == []
    chat = session(send_message=gone)
    chat._handle(["hello"])
    assert chat.lines.given_back == ["hello"]


def test_the_two_threads_do_not_attach_at_once(session, monkeypatch):
    """An agent that the thread for input has started or is about to start is not closed."""

    def attach(lost, prompt=True):
        raise AssertionError("attached again")

    def none(paths, name):
        raise NoAgent(profile="alice")

    chat = session()
    monkeypatch.setattr(chat, "_attach", attach)
    monkeypatch.setattr(chat_module, "connect", lambda paths, name: SimpleNamespace(close=lambda: None))
    chat._busy = False
    chat._start_agent()
    monkeypatch.setattr(chat_module, "connect", none)
    chat._busy = True
    with pytest.raises(NoAgent):
        chat._start_agent()
    chat._busy = False
    with pytest.raises(AssertionError):
        chat._start_agent()


def test_no_agent_is_started_in_the_place_of_a_service(session, monkeypatch, capsys):
    def none(paths, name):
        raise NoAgent(profile="alice")

    chat = session()
    monkeypatch.undo()
    monkeypatch.setattr(chat_module, "connect", none)
    monkeypatch.setattr(chat_module, "attached", lambda *a, **more: pytest.fail("started"))
    chat._agent.owner = ""
    chat._reconnect(chat.client)
    assert "No agent is running" in capsys.readouterr().err


def test_an_argument_that_a_command_does_not_take_is_refused(session, capsys):
    for line in ("/leave work", "/part bye", "/forget work", "/resume all", "/delete that"):
        assert isinstance(parse(line, commands.OWN_COMMANDS), Refusal), line
    chat = session()
    chat._handle(["/read foo"])
    assert "Usage: /read [all] (mark this group as read, or all groups)" in capsys.readouterr().err
