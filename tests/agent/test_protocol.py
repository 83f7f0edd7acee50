"""What the command line and the chat can do that is not about pixels, a program can do over the control protocol."""

import argparse
from typing import Any

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import until
from zerochat.agent.api.client import AgentError
from zerochat.cli.parser import grammar
from zerochat.rpc import METHODS
from zerochat.slash_commands import COMMANDS

people = test_agent.people

VERBS: dict[str, set[str]] = {
    "accuse": {"accuse"},
    "admit": {"answer"},
    "audit": {"ledger", "rows"},
    "backup": {"backup"},
    "case": {"case"},
    "cases": {"cases"},
    "config": {"settings", "set"},
    "connect": {"connect", "offer"},
    "connections": {"connections"},
    "delete": {"delete"},
    "delivery": {"delivery"},
    "disconnect": {"disconnect"},
    "edit": {"edit"},
    "export": {"ledger", "rows"},
    "features": {"features"},
    "files": {"files", "get", "save", "drop"},
    "forget": {"forget"},
    "history": {"history"},
    "import": {"import"},
    "info": {"groups"},
    "invite": {"invite", "invitations", "revoke"},
    "join": {"join", "cancel"},
    "leave": {"leave"},
    "letters": {"letters"},
    "log": {"log", "terms"},
    "members": {"members"},
    "new": {"new"},
    "ping": {"ping"},
    "proof": {"proof"},
    "evidence": {"evidence"},
    "react": {"react"},
    "refuse": {"answer"},
    "remove": {"remove"},
    "rename": {"rename"},
    "requests": {"requests"},
    "resume": {"resume"},
    "role": {"role"},
    "rotate": {"rotate"},
    "route": {"connect", "connections", "disconnect"},
    "rpc": set(METHODS),
    "search": {"search"},
    "send": {"send", "attach", "wait"},
    "status": {"status"},
    "tail": {"subscribe"},
    "telemetry": {"telemetry", "telemetry_set", "telemetry_rows", "telemetry_names", "telemetry_delete"},
    "tell": {"tell"},
    "topic": {"topic"},
    "verify": {"words", "verify"},
    "why": {"why"},
}
"""By verb, the methods that do the same."""
NO_AGENT = {
    *("agent", "chat", "demo", "bot"),  # they are programs of their own, or begin one
    *("init", "passphrase", "restore", "doctor"),  # about a profile that no agent has open, or its lock
    *("locate", "completion", "__complete", "man", "sim", "didcomm", "mediator"),  # nothing that belongs to a profile
    *("verify-proof", "judge"),  # all that they need stands in a file
}
CHAT: dict[str, set[str]] = {
    "me": {"send"},
    "reply": {"send"},
    "send": {"attach"},
    "goto": {"history"},
    "info": {"delivery", "why"},
    "get": {"get"},
    "save": {"save"},
    "set": {"settings", "set"},
    "mute": {"set"},
    "unmute": {"set"},
    "profile": {"hello", "status"},
    "cancel": {"cancel"},
    "invitations": {"invitations", "revoke"},
    "dismiss": {"dismiss"},
}
"""By command of the chat, the methods that do the same, where no verb of the same name has them."""
PIXELS = {"help", "copy", "tour", "quit"}


def verbs() -> set[str]:
    (found,) = (one for one in grammar()._actions if isinstance(one, argparse._SubParsersAction))
    return set(found.choices)


def test_every_verb_has_its_methods() -> None:
    assert verbs() == VERBS.keys() | NO_AGENT and not VERBS.keys() & NO_AGENT
    assert set().union(*VERBS.values()) <= METHODS.keys()


def test_every_command_of_the_chat_has_its_methods() -> None:
    reached = {name: CHAT.get(name) or VERBS.get(name) for name in COMMANDS if name not in PIXELS}
    assert [name for name, methods in reached.items() if not methods] == []
    assert set().union(*CHAT.values()) <= METHODS.keys()


def test_settings_over_the_control_protocol(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (alice,) = people("alice")
    ask = alice.client.call
    before = {one.name: one for one in ask("settings")}
    assert (before["chat.theme"].source, before["agent.drain"].source) == ("default", "default")
    changed = ask("set", name="theme", value="light")
    assert (changed.name, changed.value, changed.source, changed.note) == ("chat.theme", '"light"', "file", "")
    assert "next start" in ask("set", name="network.cover", value="on").note
    assert ask("set", name="agent.drain", value="3").note == ""
    until(lambda: alice.thread.drain_s == 3.0, "that the agent goes by it")
    assert ask("set", name="chat.groups.hikers.notify", value="none").value == '"none"'
    assert {one.name: one.value for one in ask("settings")}["chat.groups.hikers.notify"] == '"none"'
    assert ask("set", name="theme", value=None).source == "default"
    monkeypatch.setenv("ZEROCHAT_CHAT__THEME", "dark")
    held = ask("set", name="theme", value="light")
    assert (held.value, held.source, held.note) == (
        '"dark"',
        "ZEROCHAT_CHAT__THEME",
        "ZEROCHAT_CHAT__THEME says something else",
    )
    for name, value in (("chat.theme", "beautiful"), ("no.such", "1"), ("", ""), ("agent.drain", "\x00")):
        with pytest.raises(AgentError) as refused:
            ask("set", name=name, value=value)
        assert refused.value.code == "BadSetting" and refused.value.exit_code == 2
