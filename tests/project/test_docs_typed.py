"""Runs the README's commands with real agents; every code block is tested or marked otherwise.

Placeholders are replaced: ports of this machine, the link that a program has printed, a name. The blocks on first
steps, files, bots and the control protocol are in `tests/bot/test_pages.py`.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import multicast, typed_pages
from tests.support.agents import meet, until
from tests.support.doc_pages import PAGES
from tests.support.terminals import terminal
from tests.support.typed_pages import block, typed
from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths

home, own_port = typed_pages.home, multicast.own_port
ROOT = Path(__file__).parents[2]

PARSED = "project/test_manual::test_a_command_in_the_manual_parses"
BOTS = "bot/test_pages::test_bot_from_new_to_run"
RUN_BY = {
    ("README.md", "scripts/demo"): "project/test_docs::test_the_readme_begins_with_two_commands",
    ("README.md", "pipx install"): "project/test_install::test_a_wheel_installs_alone",
    ("README.md", "zerochat init"): "project/test_docs::test_the_readme_s_commands_are_understood",
    ("getting-started", "zerochat --profile alice init"): "bot/test_pages::test_first_steps_and_files",
    ("files", "zerochat send"): "bot/test_pages::test_first_steps_and_files",
    ("groups", "zerochat new council"): "project/test_docs_typed::test_a_council",
    ("groups", "zerochat new club"): "project/test_docs_typed::test_a_large_group",
    ("groups", "zerochat rekey"): "cli/test_upgrade::test_two_members_upgrade_their_group",
    ("groups", "zerochat upgrade"): "cli/test_upgrade::test_two_members_upgrade_their_group",
    ("groups", "zerochat msg"): "project/test_docs_typed::test_a_private_conversation",
    ("invitations", "zerochat invite"): "project/test_docs_typed::test_a_council",
    ("history", "zerochat history"): PARSED,
    ("history", "zerochat backup"): "project/test_docs_typed::test_a_backup_and_its_return",
    ("nearby", "zerochat lan on"): "project/test_docs_typed::test_members_nearby",
    ("mediators", "# On a machine"): "project/test_docs_typed::test_behind_a_mediator",
    ("interop", "zerochat connect"): "project/test_docs_typed::test_a_connection",
    ("settings", "[chat]"): "agent/test_settings::test_the_settings_in_the_manual_are_right",
    ("services", "zerochat agent --print-unit"): "project/test_docs_typed::test_a_service",
    ("services", "zerochat agent --print-unit system"): "agent/test_running::test_the_system_unit_confines_the_agent",
    ("services", "zerochat send ops --key"): "project/test_docs_typed::test_scripts",
    ("services", "echo '{"): "bot/test_pages::test_control_protocol_examples",
    ("services", "zerochat completion bash"): "project/test_docs_typed::test_completions_and_the_manual",
    ("telemetry", "zerochat telemetry on"): "project/test_docs_typed::test_telemetry",
    ("accountability", "zerochat new court"): "project/test_docs_typed::test_a_court",
    ("keys", "zerochat chat --plain"): "project/test_docs_typed::test_the_plain_chat",
    ("contributing", "scripts/test"): "project/test_docs_typed::test_the_scripts_of_the_contributor",
    ("contributing", "zerochat sim"): "project/test_docs_typed::test_searches",
    ("json-rpc", '{"jsonrpc"'): "bot/test_pages::test_control_protocol_examples",
    ("bots", "from zerochat import Bot, Message"): "bot/test_docs::test_ten_lines",
    ("bots", "zerochat bot new"): BOTS,
    ("bots", "from enum import"): "bot/test_docs::test_commands",
    ("bots", "from zerochat import Bot, Event"): "bot/test_docs::test_everything_else",
    ("bots", "from zerochat import SyncBot"): "bot/test_docs::test_a_script",
    ("bots", "zerochat bot dead-letters"): BOTS,
    ("bots", "zerochat --profile greeter bot unit"): "cli/test_scripts::test_a_unit_for_a_bot",
    ("bots", "import tempfile"): "bot/test_docs::test_testing_with_groups_members_and_files",
    ("analytics/README.md", "pip install"): "analytics/test_page::test_commands_of_the_page",
    ("analytics/README.md", "spark-submit"): "analytics/test_analytics::test_spark_submit_on_a_cluster_of_processes",
}
"""By page and beginning, the longest that fits: which test runs a block."""


def blocks() -> Iterator[tuple[str, str, str]]:
    """Every block that says in which language it is, of every page: page, language, text. What says none is a drawing
    or a list, and no example."""
    for path in sorted(ROOT.rglob("*.md")):
        page = path.relative_to(ROOT)
        if not page.parts[0].startswith(".") and "site-packages" not in page.parts:
            text = path.read_text(encoding="utf-8")
            for kind, found in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
                yield page.stem if page.parent.name == "manual" else str(page), kind, found


BLOCKS = list(blocks())


@pytest.mark.parametrize(("page", "text"), [(page, text) for page, _, text in BLOCKS])
def test_every_block_is_run_by_a_test(page: str, text: str) -> None:
    runners = {begin: test for (of, begin), test in RUN_BY.items() if of == page and text.startswith(begin)}
    assert runners, f"nothing runs this block of {page}:\n{text}"
    module, _, name = runners[max(runners, key=len)].partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_test_of_a_block_names_an_existing_block() -> None:
    assert not [
        (page, begin)
        for page, begin in RUN_BY
        if not any(one == page and text.startswith(begin) for one, _, text in BLOCKS)
    ]


# --- typing ---------------------------------------------------------------------------------------------------------


def as_(person, **more: str) -> dict[str, str]:
    """The environment in which whatever is typed is this person's."""
    own = {"ZEROCHAT_HOME": str(person.places.config.parent), "ZEROCHAT_PROFILE": person.places.profile}
    return {**os.environ, **own, **more}


def type_(line: str, environment: dict[str, str], said: str = "", codes: tuple[int, ...] = (0,)) -> str:
    """Type a line, and what it is asked then; what it prints."""
    ran = subprocess.run(["bash", "-c", line], env=environment, input=said, capture_output=True, text=True, timeout=120)
    assert ran.returncode in codes, (line, ran.returncode, ran.stdout, ran.stderr)
    return ran.stdout


def answered(line: str, person, question: str, answer: str) -> str:
    """Type a line in a terminal, and what it asks there; what it shows."""
    machine = SimpleNamespace(environment=as_(person))
    with terminal(machine, "-c", line, term="dumb", program=("bash",)) as one:
        one.shows(question)
        one.type(f"{answer}\r")
        assert one.ends() == 0, one.shown
        return str(one.shown)


@contextmanager
def running(line: str, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Something that goes on until it is told to end, and then ends well."""
    with subprocess.Popen(
        shlex.split(line), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) in (0, 143), process.stdout and process.stdout.read()
        finally:
            process.kill()


def ports(count: int) -> list[int]:
    """So many that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return found


@pytest.mark.slow
def test_an_agent_at_an_address(home):
    type_("zerochat init --name Alice", dict(os.environ))
    line = "zerochat agent --listen 0.0.0.0:4242:4243 --advertise 203.0.113.7"
    assert line in PAGES["zerochat/manual/network.md"]
    pair, queue = ports(2)
    here = line.replace("0.0.0.0:4242:4243", f"127.0.0.1:{pair}:{queue}")
    assert here != line
    with running(here, dict(os.environ)) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("ready") and f"203.0.113.7:{pair}" in said and f"203.0.113.7:{queue}" in said, said


@pytest.mark.slow
def test_a_backup_and_its_return(home):
    environment = dict(os.environ)
    type_("zerochat --profile alice init --name Alice && zerochat --profile alice new hikers", environment)
    save, restore = typed(block("backup alice.zerochat"))
    environment["ZEROCHAT_PROFILE"] = "alice"
    type_(save, environment)
    type_(f"rm -r {shlex.quote(str(profile_paths('alice', environment).data))}", environment)
    type_(restore, environment)
    assert "hikers" in type_(
        "zerochat --profile alice status --format jsonl || zerochat --profile alice info hikers", environment
    )


@pytest.mark.slow
def test_behind_a_mediator(home, people):
    serve, route, listing = typed(block("zerochat mediator --listen"))
    [port] = ports(1)
    here = serve.replace("0.0.0.0:8080", f"127.0.0.1:{port}").replace("203.0.113.7:8080", f"127.0.0.1:{port}")
    [bob] = people("bob")
    with running(here, dict(os.environ)) as process:
        assert process.stdout is not None
        said = ""
        while not (link := re.search(r"http://\S+_oob\S+", said)):
            said += (line := process.stdout.readline())
            assert line, said
        type_(route.replace("http://203.0.113.7:8080/?_oobid=…", link[0]), as_(bob))
        assert "127.0.0.1" in type_(listing, as_(bob))


@pytest.mark.slow
def test_a_connection(home, people):
    alice, bob = people("alice", "bob")
    for person in (alice, bob):  # as the page says above the block: who makes an invitation needs an address
        person.sleep()
        [port] = ports(1)
        person.places.config.parent.mkdir(parents=True, exist_ok=True)
        person.places.config.write_text(f'[network]\nweb = "127.0.0.1:{port}"\n')
        person.wake()
    offer, answer, *rest = typed(block("zerochat connect --invite"))
    link = next(word for word in type_(offer, as_(alice)).split() if word.startswith("http"))
    type_(answer.replace("'https://…'", shlex.quote(link)), as_(bob))
    [known] = bob.client.call("list_connections")
    [back] = alice.client.call("list_connections")

    def texts(person, peer: str) -> list[str]:
        return [one.text for one in person.client.call("list_connection_messages", peer=peer)]

    for line in rest:
        shown = line.replace("PEER", known.id)
        printed = answered(shown, bob, "[y/N]", "y") if " disconnect " in line else type_(shown, as_(bob))
        if line == "zerochat connections":
            assert known.label in printed
        if line.startswith("zerochat message "):
            until(lambda: "Hello" in texts(alice, back.id), "the message")
        if line.startswith("zerochat messages"):
            assert "Hello" in printed


SYSTEMCTL = """#!/bin/sh
# Does with the one unit what systemd does: it starts what the unit says.
unit="$HOME/.config/systemd/user/$4.service"
[ "$1 $2 $3" = "--user enable --now" ] && [ -f "$unit" ] || exit 1
eval "$(sed -n 's/^Environment=//p' "$unit" | sed 's/^/export /')"
nohup $(sed -n 's/^ExecStart=//p' "$unit") >"$HOME/log" 2>&1 &
echo $! >"$HOME/pid"
"""


@pytest.mark.slow
def test_a_service(home, monkeypatch):
    """There is no systemd in a test; what stands for it runs the unit's own line."""
    (home / "bin" / "systemctl").write_text(SYSTEMCTL)
    (home / "bin" / "systemctl").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    (home / ".config" / "systemd" / "user").mkdir(parents=True)
    environment = dict(os.environ)
    type_("zerochat init --name Alice", environment)
    try:
        for line in typed(block("systemctl --user enable --now zerochat")):
            if line.startswith(("zerochat doctor", "zerochat status")):
                until(lambda: reached(), "the agent", 60)
                type_(line, environment, codes=(0, 1))  # the findings depend on this machine
            else:
                type_(line, environment)
    finally:
        if (pid := home / "pid").exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
            until(lambda: not reached(), "its end", 60)


def reached() -> bool:
    try:
        connect(profile_paths(None, dict(os.environ)), "test").close()
    except Exception:  # noqa: BLE001  # whatever it is, nobody answers
        return False
    return True


@pytest.mark.slow
def test_scripts(home, people):
    alice, bob = people("alice", "bob")
    meet(alice, bob, group="ops")
    Path("report.txt").write_text("all is built\n")
    send, tail = typed(block("zerochat send ops --key"))
    with running(tail, as_(bob)) as tailing:
        assert tailing.stdout is not None
        until(lambda: any(one.connected for one in bob.client.call("list_groups")), "bob")
        time.sleep(0)
        for _ in range(2):
            type_(send, as_(alice, BUILD="7"))
        deadline = time.monotonic() + 60
        type_("zerochat send ops -m first", as_(alice))
        said = ""
        while "first" not in said and "all is built" not in said and time.monotonic() < deadline:
            said += tailing.stdout.readline()
    texts = [one.body.get("text") for one in bob.client.get_history("ops").events]
    assert texts.count("all is built") == 1, "one key says it once"


@pytest.mark.slow
def test_completions_and_the_manual(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    folder = home / ".local" / "share" / "bash-completion" / "completions"
    folder.mkdir(parents=True)
    complete, manual = typed(block("zerochat completion bash"))
    # A machine without manual pages has no groff either; what stands for it shows what it is given.
    (home / "bin" / "man").write_text('#!/bin/sh\n[ "$*" = "-l -" ] && exec cat\n')
    (home / "bin" / "man").chmod(0o755)
    type_(complete, dict(os.environ))
    script = f". {shlex.quote(str(folder / 'zerochat'))} && complete -p zerochat"
    assert "zerochat" in type_(script, dict(os.environ))
    assert ".TH" in type_(manual, dict(os.environ))


def test_the_scripts_of_the_contributor():
    for line in typed(block("scripts/bench.py AREA")):
        assert os.access(ROOT / line.split()[0], os.X_OK), line


@pytest.mark.slow
def test_searches(home):
    """As they stand there, but shorter; what the scripts do is tried by continuous integration itself."""
    for line in typed(block("zerochat sim")):
        words = line.split()
        if words[0] == "zerochat":
            short = line.replace("--seeds 200", "--seeds 1").replace("--nodes 10000", "--nodes 300")
            short = short.replace("--members 40", "--members 8")
            short += "" if "--seeds" in words else f" --seeds {1 if '--large' in words else 20}"
            assert "No guarantee was violated." in type_(short, dict(os.environ))
        else:
            script = (ROOT / words[0]).read_text(encoding="utf-8")
            assert all(word in script or word == "--budget" for word in words[1:] if word.startswith("--"))


def test_telemetry(home, people):
    pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `analytics`")
    [alice] = people("alice")
    alice.client.create_group("hikers")
    alice.client.send_message("hikers", "hello")
    for line in typed(block("zerochat telemetry on")):
        said = answered(line, alice, "?", "y") if line == "zerochat telemetry on" else type_(line, as_(alice))
        if line == "zerochat telemetry on":
            assert alice.client.call("get_telemetry").on
            alice.client.send_message("hikers", "recorded")
            until(lambda: alice.client.call("get_telemetry").rows, "rows")
        if "--dry-run" in line:
            assert said and not Path("my-week").exists()
    assert Path("my-week/manifest.json").exists()
    found = alice.client.call("get_telemetry")
    assert not found.on and not found.rows


@pytest.mark.slow
def test_a_private_conversation(home, people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    begin, listing, accept = typed(block("zerochat msg bob"))
    type_(begin, as_(alice), codes=(3,))
    assert "waiting for bob" in type_(listing, as_(alice))
    until(lambda: bob.client.list_groups()[0].private_invitations, "the invitation")
    type_(accept, as_(bob))
    until(lambda: len(bob.client.list_groups()) == 2 and bob.texts("alice") == ["Are you coming?"], "the message")


@pytest.mark.slow
def test_a_council(home, people):
    alice, carol, dave = people("Alice", "Carol", "Dave")
    first, *rules = typed(block("zerochat new council"))
    lines = [first, *typed(block("zerochat invite council --list")), *rules]
    revoked, joining = False, []
    for line in lines:
        if line == "zerochat join 'https://…'":
            continue  # the same as by the picture below
        if line.startswith("zerochat join --image"):
            for person in (carol, dave):
                type_("rm -f code.png; zerochat invite council --image code.png", as_(alice))
                shutil.copy("code.png", folder := home / person.name)
                joining.append(subprocess.Popen(shlex.split(line), env=as_(person), cwd=folder))
            until(lambda: len(alice.client.call("list_join_requests", group="council")) == 2, "that they ask")
            continue
        shown = line
        if "--revoke" in line:
            [first, *_] = alice.client.call("list_invitations", group="council")
            shown, revoked = line.replace("3f9a12c4", first.id[:8]), True
        if line.startswith("zerochat forget"):
            until(lambda: alice.client.call("list_groups")[0].state == "left", "that the group is left")
            shown = f"{line} --yes"
        asks = line.startswith(("zerochat remove", "zerochat leave"))
        said = answered(shown, alice, "[y/N]", "y") if asks else type_(shown, as_(alice))
        if line.startswith("zerochat requests"):
            assert "Carol" in said and "Dave" in said
        if line.startswith("zerochat admit"):
            type_("zerochat admit council Dave", as_(alice))
            assert [each.wait(60) for each in joining] == [0, 0]
            until(lambda: len(alice.client.list_members("council")) == 3, "that both are in")
            until(
                lambda: all(one.connection != "connecting" for one in alice.client.list_members("council")), "connected"
            )
        if line.startswith("zerochat remove"):
            assert len(alice.client.call("list_groups")[0].votes) == 1, "it takes three"
        if line.startswith("zerochat role"):
            assert alice.client.call("list_groups")[0].role == "reader"
        if line.startswith("zerochat verify"):
            assert len(said.split()) >= 8
    assert revoked


@pytest.mark.slow
def test_a_large_group(home, people):
    """With three members it is a mesh of the path `ring`; an agent that is killed comes back into it."""
    alice, bob, carol = people("Alice", "Bob", "Carol")
    new, invite, overlay = typed(block("zerochat overlay club"))
    type_(new, as_(alice))
    code = type_(f"{invite} --format short", as_(alice)).strip()
    for person in (bob, carol):
        type_(f"zerochat join '{code}'", as_(person))
    shown = "Mesh: direct connections to all 2 others, 2 connected. From 25 members on it is a ring."
    for person in (alice, bob, carol):
        until(lambda one=person: shown in type_(overlay, as_(one)), "that all are linked")
    assert "path            ring: " in type_("zerochat info club", as_(carol))
    carol.sleep()
    type_("zerochat send club -m 'The hall is open'", as_(bob))
    carol.wake()
    until(lambda: carol.texts("club") == ["The hall is open"], "what was missed")
    type_("zerochat send club -m 'Seen' --wait all", as_(carol))
    type_("zerochat remove club Bob --yes", as_(alice))
    until(lambda: bob.client.list_groups()[0].state == "left", "the removal")
    type_("zerochat leave club --yes", as_(carol))
    until(lambda: type_(overlay, as_(alice)).startswith("No other members."), "that she is alone")


@pytest.mark.slow
def test_members_nearby(home, people, own_port):
    """The agents of tests listen on 127.0.0.1, so that only the loopback network has something to announce."""
    alice, bob = people("Alice", "Bob")
    meet(alice, bob, group="hikers")
    everywhere, named, status, off = typed(block("zerochat lan on "))
    assert "Nothing is announced: this agent listens on 127.0.0.1 only" in type_(everywhere, as_(alice))
    type_(off, as_(alice))
    for person in (alice, bob):
        type_(named.replace("wlan0", "lo"), as_(person))
    until(lambda: "Members of 1 group are looked for; 1 was found." in type_(status, as_(alice)), "the other")
    assert any(
        line.split()[0] == "Bob" and "127.0.0.1" in line for line in type_(status, as_(alice)).splitlines()[1:] if line
    )
    assert type_(off, as_(alice)).startswith("Members are not looked for")


@pytest.mark.slow
def test_a_court(home, people):
    """Nobody withholds anything here: whoever accuses all the same is told so, and there is no case to judge."""
    alice, carol, dave = people("Alice", "Carol", "Dave")
    first, *lines = typed(block("zerochat new court"))
    type_(first, as_(alice))
    for person in (carol, dave):
        person.client.join_group(alice.client.create_invitation("court").url)
        until(lambda person=person: [one.state for one in person.client.list_groups()] == ["active"], "that it is in")
    until(lambda: alice.client.call("get_tlog", group="court").operator, "that somebody keeps the log")
    until(lambda: len(alice.client.list_members("court")) == 3, "that all are in")
    sent = alice.client.send_message("court", "At eight.")
    until(lambda: alice.client.get_delivery("court", sent.id).delivered, "that all have it")
    until(lambda: "signed for all of yours" in type_("zerochat evidence court", as_(alice)), "their signatures")
    nothing = ("zerochat accuse", "zerochat case ", "zerochat judge")
    for line in lines:
        said = type_(line, as_(alice), codes=(1,) if line.startswith(nothing) else (0,))
        if line.startswith("zerochat verify-proof"):
            assert "At eight." in said and "received by" in said
        if line.startswith("zerochat cases"):
            assert not said
    assert Path("all.zproof").exists() and not Path("withheld.zcase").exists()


@pytest.mark.slow
def test_the_plain_chat(home, people):
    [alice] = people("alice")
    alice.client.create_group("hikers")
    alice.client.create_group("work")
    interactive, piped = typed(block("zerochat chat --plain hikers"))
    type_(interactive, as_(alice), "On my way.\n/quit\n")
    type_(piped, as_(alice))
    for group, text in (("hikers", "On my way."), ("work", "At eight, by the bridge.")):
        assert [one.body.get("text") for one in alice.client.get_history(group).events][-1] == text
