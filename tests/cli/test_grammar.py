"""The grammar of the command line: help, options, usage errors."""

import pytest

from tests.support import cli_harness
from zerochat import __version__
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.parser import parse

agent, alone, home, run, usual = (
    cli_harness.agent,
    cli_harness.alone,
    cli_harness.home,
    cli_harness.run,
    cli_harness.usual,
)

VERBS = [
    *("chat", "demo", "init", "agent", "status", "paths"),
    *("new", "invite", "join", "leave", "info", "send", "tail", "history"),
    *("react", "edit", "delete", "topic"),
    *("delivery", "why", "audit", "export", "import"),
    *("members", "requests", "admit", "refuse", "remove", "role", "rename", "verify"),
    *("ping", "features", "rotate", "connect", "connections", "message", "messages", "disconnect", "route", "mediator"),
    *("sim", "doctor", "completion", "help", "man"),
]


@pytest.mark.parametrize("verb", ["", *VERBS])
@pytest.mark.parametrize("columns", ["30", "80"])
def test_every_verb_has_help_with_examples(run, monkeypatch, verb: str, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, out, err = run([*verb.split(), "--help"])
    assert (code, err) == (0, "")
    assert f"usage: zerochat {verb}".strip() in " ".join(out.split())
    assert columns == "30" or all(len(line) <= 79 for line in out.splitlines())
    if verb:
        assert "examples:\n" in out and "zerochat" in out.split("examples:")[1]
    else:
        assert all(f"\n    {one}" in out for one in VERBS)
        assert all(f"{code.value:>5}  {code.sentence}\n" in out for code in ExitCode)


def test_the_default_profile_of_a_mediator_is_its_own(run, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "or 'mediator')" in run("mediator --help")[1]
    assert "or 'default')" in run("send --help")[1]


def test_version(run) -> None:
    assert run("--version") == (0, f"zerochat {__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("fly", "invalid choice"),
        ("sned", "did you mean 'send'?"),
        ("send", "GROUP"),
        ("--format xml status", "invalid choice"),
        ("status --format url", "invalid choice"),
        ("init", "--name"),
        ("invite hikers --expires 0h", "a duration such as"),
        ("invite hikers --expires 31d", "at most 30d"),
        ("invite hikers --expires soon", "a duration such as"),
        ("invite hikers --uses 0", "at least 1"),
        ("send hikers -m x --wait some", "is not any, all or a number"),
        ("send hikers -m x --wait 0", "at least 1"),
        ("send hikers -m x --wait all --timeout nan", "seconds"),
        ("tail hikers -n 1 --since 2", "not allowed with"),
        ("history hikers -n -1", "argument"),
        ("history hikers --al", "unrecognized"),
        ("send hikers hello", "Put the text in quotes after -m"),
        ("paths moon", "invalid choice"),
        ("new hikers --envelope mime", "invalid choice"),
        ("new hikers --removal everybody", "invalid choice"),
        ("new hikers --quorum 0", "at least 1"),
        ("role hikers bob owner", "invalid choice"),
        ("admit hikers", "NAME"),
        ("verify hikers bob --mark --unmark", "not allowed with"),
        ("ping", "PEER"),
        ("ping bob --count 0", "at least 1"),
        ("connect LINK --invite", "not allowed with"),
        ("connect --invite --expires 31d", "at most 30d"),
        ("route lose", "invalid choice"),
        ("agent --listen here", "not an IP address"),
        ("agent --listen 127.0.0.1:x", "a port is a number"),
        ("route remove", "NAME"),
        ("agent --advertise example.org", "peers do not look up names"),
        ("chat --advertise 203.0.113.7:4242", "an IP address without a port"),
        ("agent --advertise 0.0.0.0", "not reachable"),
    ],
)
def test_usage_errors_show_the_usage_line(run, line: str, why: str) -> None:
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert why in err
    assert err.startswith("usage: zerochat") and "--help' for more information." in err
    verb = line.split()[0]
    assert verb not in VERBS or f"Try 'zerochat {verb}" in err


@pytest.mark.parametrize(
    ("line", "profile", "format_"),
    [
        ("status", None, "text"),
        ("--profile work status", "work", "text"),
        ("status --profile work", "work", "text"),
        ("--profile home status --profile work", "work", "text"),
        ("--format jsonl --profile work status", "work", "jsonl"),
        ("--format jsonl status --format text", None, "text"),
        ("invite hikers --format url", None, "url"),
        ("--format jsonl invite hikers", None, "jsonl"),
        ("--profile work", "work", "text"),
    ],
)
def test_common_options_stand_before_or_after_the_verb(line: str, profile: str | None, format_: str) -> None:
    options = parse(line.split())
    assert (options.profile, options.format) == (profile, format_)
    assert options.verb == ("chat" if line == "--profile work" else "status" if "status" in line else "invite")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1_800), ("24h", 86_400), ("7d", 604_800)])
def test_times(text: str, seconds: int) -> None:
    assert parse(["invite", "g", "--expires", text]).expires_s == seconds
