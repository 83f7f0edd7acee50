"""Every function of the command line and the chat is available in the control protocol."""

import argparse
import inspect
from collections import Counter
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import zerochat
from tests.support import agents
from tests.support.agents import until
from zerochat.agent.api.client_protocol import AgentError
from zerochat.cli.parser import grammar
from zerochat.errors import LocalError
from zerochat.rpc import METHODS
from zerochat.slash_commands import COMMANDS

people = agents.people

VERBS: dict[str, set[str]] = {
    "accuse": {"accuse_member"},
    "admit": {"answer_join_request"},
    "audit": {"get_log_summary", "get_event_page"},
    "backup": {"create_backup"},
    "case": {"get_case"},
    "cases": {"list_cases"},
    "config": {"list_settings", "change_setting"},
    "connect": {"open_connection", "offer_connection"},
    "connections": {"list_connections"},
    "delete": {"delete_message"},
    "delivery": {"get_delivery"},
    "disconnect": {"close_connection"},
    "edit": {"edit_message"},
    "export": {"get_log_summary", "get_event_page"},
    "features": {"query_features"},
    "files": {"list_files", "fetch_file", "save_file", "drop_file"},
    "forget": {"forget_group"},
    "history": {"get_history"},
    "import": {"import_events"},
    "info": {"list_groups"},
    "invite": {"create_invitation", "list_invitations", "revoke_invitation"},
    "join": {"join_group", "cancel_join"},
    "keep": {"set_retention"},
    "leave": {"leave_group"},
    "messages": {"list_connection_messages"},
    "tlog": {"get_tlog", "set_tlog_terms"},
    "members": {"list_members"},
    "overlay": {"get_overlay"},
    "lan": {"get_nearby", "set_nearby"},
    "new": {"create_group"},
    "ping": {"ping_peer"},
    "proof": {"get_proof"},
    "evidence": {"get_evidence"},
    "react": {"react"},
    "refuse": {"answer_join_request"},
    "remove": {"remove_member"},
    "rename": {"set_display_name"},
    "msg": {"open_conversation", "answer_private_invitation", "send_message"},
    "requests": {"list_join_requests"},
    "resume": {"resume_group"},
    "role": {"set_role"},
    "upgrade": {"upgrade_group"},
    "rekey": {"rekey_group"},
    "transfer": {"set_role"},
    "mentions": {"search_messages"},
    "read": {"mark_read"},
    "pin": {"pin_message", "get_delivery"},
    "pins": {"list_pins"},
    "ignore": {"ignore_member", "list_ignored"},
    "rotate": {"rotate_did"},
    "route": {"open_connection", "list_connections", "close_connection"},
    "rpc": set(METHODS),
    "search": {"search_messages"},
    "send": {"send_message", "send_files", "wait_for_delivery"},
    "status": {"get_status"},
    "tail": {"subscribe"},
    "telemetry": {"get_telemetry", "set_telemetry", "get_telemetry_rows", "get_telemetry_names", "delete_telemetry"},
    "message": {"send_connection_message"},
    "topic": {"set_topic"},
    "verify": {"get_safety_words", "verify_member"},
    "why": {"get_message_status"},
}
"""By verb, the methods that do the same."""
NO_AGENT = {
    *("agent", "chat", "demo", "bot"),  # they are programs of their own, or begin one
    *("init", "passphrase", "restore", "doctor"),  # about a profile that no agent has open, or its lock
    *(
        "paths",
        "completion",
        "__complete",
        "help",
        "man",
        "sim",
        "didcomm",
        "mediator",
    ),  # nothing that belongs to a profile
    *("verify-proof", "judge"),  # all that they need stands in a file
}
CHAT: dict[str, set[str]] = {
    "mediator": {"open_connection", "list_connections", "close_connection"},
    "reply": {"send_message"},
    "send": {"send_files"},
    "goto": {"get_history"},
    "info": {"get_delivery", "get_message_status"},
    "get": {"fetch_file"},
    "save": {"save_file"},
    "set": {"list_settings", "change_setting"},
    "mute": {"change_setting"},
    "unmute": {"change_setting"},
    "profile": {"hello", "get_status"},
    "cancel": {"cancel_join"},
    "invitations": {"list_invitations", "revoke_invitation"},
    "dismiss": {"dismiss_warnings"},
    "unignore": {"ignore_member"},
    "unpin": {"pin_message"},
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
    posts = {name: {"send_message"} for name, info in COMMANDS.items() if info.post is not None}
    reached = {name: (posts | CHAT).get(name) or VERBS.get(name) for name in COMMANDS if name not in PIXELS}
    assert [name for name, methods in reached.items() if not methods] == []
    assert set().union(*CHAT.values()) <= METHODS.keys()


def test_error_codes_of_the_agent_are_unique() -> None:
    """The code of an error is its class's name; programs tell errors apart by it."""
    names = [module.name for module in walk_packages(zerochat.__path__, "zerochat.")]
    layers = ("zerochat.agent.", "zerochat.group.", "zerochat.didcomm.", "zerochat.presentation.", "zerochat.errors")
    modules = [import_module(name) for name in names if name.startswith(layers) and "decoder" not in name]
    kinds = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    codes = Counter(kind.__name__ for kind in kinds if issubclass(kind, LocalError))
    assert len(codes) > 100 and [code for code, times in codes.items() if times > 1] == []


def test_settings_over_the_control_protocol(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (alice,) = people("alice")
    ask = alice.client.call
    before = {one.name: one for one in ask("list_settings")}
    assert (before["chat.theme"].source, before["agent.drain"].source) == ("default", "default")
    changed = ask("change_setting", name="theme", value="light")
    assert (changed.name, changed.value, changed.source, changed.note) == ("chat.theme", '"light"', "file", "")
    assert "next start" in ask("change_setting", name="network.cover", value="on").note
    assert ask("change_setting", name="agent.drain", value="3").note == ""
    until(lambda: alice.thread.drain_s == 3.0, "that the agent goes by it")
    assert ask("change_setting", name="chat.groups.hikers.notify", value="none").value == '"none"'
    assert {one.name: one.value for one in ask("list_settings")}["chat.groups.hikers.notify"] == '"none"'
    assert ask("change_setting", name="theme", value=None).source == "default"
    monkeypatch.setenv("ZEROCHAT_CHAT__THEME", "dark")
    held = ask("change_setting", name="theme", value="light")
    assert (held.value, held.source, held.note) == (
        '"dark"',
        "ZEROCHAT_CHAT__THEME",
        "the environment variable ZEROCHAT_CHAT__THEME overrides it",
    )
    for name, value in (("chat.theme", "beautiful"), ("no.such", "1"), ("", ""), ("agent.drain", "\x00")):
        with pytest.raises(AgentError) as refused:
            ask("change_setting", name=name, value=value)
        assert refused.value.code == "BadSetting" and refused.value.exit_code == 2
