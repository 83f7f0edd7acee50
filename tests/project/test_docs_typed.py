"""What the project's first page tells people to type is typed, with real agents; and every block of every page is
either run by a test or no example.

What stands for something of the reader's own is put in: ports of this machine, the link that a program has printed, a
name. The blocks on first steps, files, bots and the control protocol are in `test_bot_pages.py`.
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

from tests.agent.test_agent import meet, people, until  # noqa: F401  # a fixture
from tests.bot.test_pages import block, home, typed  # noqa: F401  # a fixture
from tests.support.terminals import terminal
from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import places

ROOT = Path(__file__).parents[2]

RUN_BY = {
    ("README.md", "scripts/demo"): "test_docs::test_the_readme_begins_with_two_commands",
    ("README.md", 'export PATH="$PWD/.venv/bin:$PATH"'): "test_bot_pages::test_first_steps_and_files",
    ("README.md", "zerochat agent --listen"): "test_docs_typed::test_an_agent_at_an_address",
    ("README.md", "zerochat --profile alice send hikers --file"): "test_bot_pages::test_first_steps_and_files",
    ("README.md", "zerochat --profile alice backup"): "test_docs_typed::test_a_backup_and_its_return",
    ("README.md", "# On a machine that others reach"): "test_docs_typed::test_behind_a_mediator",
    ("README.md", "zerochat connect --invite"): "test_docs_typed::test_a_connection",
    ("README.md", "[chat]"): "test_settings::test_the_readme_s_settings_are_right",
    ("README.md", "from zerochat import Bot"): "test_bot_docs::test_ten_lines",
    ("README.md", "zerochat bot new"): "test_bot_pages::test_a_bot_is_written_tried_given_a_profile_and_run",
    ("README.md", "zerochat agent --print-unit"): "test_docs_typed::test_a_service",
    ("README.md", "zerochat send ops --key"): "test_docs_typed::test_scripts",
    ("README.md", "echo '{"): "test_bot_pages::test_the_lines_of_the_control_protocol",
    ("README.md", "zerochat completion bash"): "test_docs_typed::test_completions_and_the_manual",
    ("README.md", "zerochat sim"): "test_docs_typed::test_searches",
    ("README.md", "zerochat telemetry on"): "test_docs_typed::test_telemetry",
    ("README.md", "zerochat new council"): "test_docs_typed::test_a_council",
    ("README.md", "zerochat new court"): "test_docs_typed::test_a_court",
    ("README.md", "zerochat chat --plain"): "test_docs_typed::test_the_chat_of_lines",
    ("zerochat/bot/README.md", "from zerochat import Bot, Message"): "test_bot_docs::test_ten_lines",
    (
        "zerochat/bot/README.md",
        "zerochat bot run",
    ): "test_bot_pages::test_a_bot_is_written_tried_given_a_profile_and_run",
    ("zerochat/bot/README.md", "from typing import"): "test_bot_docs::test_commands",
    ("zerochat/bot/README.md", "from zerochat import Bot, Event"): "test_bot_docs::test_everything_else",
    ("zerochat/bot/README.md", "from zerochat import SyncBot"): "test_bot_docs::test_a_script",
    (
        "zerochat/bot/README.md",
        "zerochat bot dead",
    ): "test_bot_pages::test_a_bot_is_written_tried_given_a_profile_and_run",
    ("analytics/README.md", "pip install"): "test_analytics_page::test_the_lines_of_the_page",
    ("analytics/README.md", "spark-submit"): "test_analytics::test_spark_submit_on_a_cluster_of_processes",
    ("zerochat/agent/api/PROTOCOL.md", '{"jsonrpc"'): "test_bot_pages::test_the_lines_of_the_control_protocol",
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
                yield str(page), kind, found


BLOCKS = list(blocks())


@pytest.mark.parametrize(("page", "text"), [(page, text) for page, _, text in BLOCKS])
def test_every_block_is_run_by_a_test(page: str, text: str) -> None:
    runners = {begin: test for (of, begin), test in RUN_BY.items() if of == page and text.startswith(begin)}
    assert runners, f"nothing runs this block of {page}:\n{text}"
    module, _, name = runners[max(runners, key=len)].partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8"), re.MULTILINE)


def test_no_test_is_named_for_a_block_that_is_gone() -> None:
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


def test_an_agent_at_an_address(home):  # noqa: F811
    type_("zerochat init --name Alice", dict(os.environ))
    [line] = typed(block("zerochat agent --listen"))
    pair, queue = ports(2)
    here = line.replace("0.0.0.0:4242:4243", f"127.0.0.1:{pair}:{queue}")
    assert here != line
    with running(here, dict(os.environ)) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("ready") and f"203.0.113.7:{pair}" in said and f"203.0.113.7:{queue}" in said, said


@pytest.mark.slow
def test_a_backup_and_its_return(home):  # noqa: F811
    environment = dict(os.environ)
    type_("zerochat --profile alice init --name Alice && zerochat --profile alice new hikers", environment)
    save, restore = typed(block("backup alice.zerochat"))
    type_(save, environment)
    type_(f"rm -r {shlex.quote(str(places('alice', environment).data))}", environment)
    type_(restore, environment)
    assert "hikers" in type_(
        "zerochat --profile alice status --format jsonl || zerochat --profile alice info hikers", environment
    )


@pytest.mark.slow
def test_behind_a_mediator(home, people):  # noqa: F811
    serve, route = typed(block("zerochat mediator --listen"))[1::2]
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
        assert "127.0.0.1" in type_("zerochat route", as_(bob))


@pytest.mark.slow
def test_a_connection(home, people):  # noqa: F811
    alice, bob = people("alice", "bob")
    for person in (alice, bob):  # as the page says above the block: who makes an invitation needs an address
        person.sleep()
        [port] = ports(1)
        person.places.config.parent.mkdir(parents=True, exist_ok=True)
        person.places.config.write_text(f'[network]\nweb = "127.0.0.1:{port}"\n')
        person.wake()
    offer, *rest = typed(block("zerochat connect --invite"))
    link = next(word for word in type_(offer, as_(alice)).split() if word.startswith("http"))
    type_(f"zerochat connect {shlex.quote(link)}", as_(bob))
    [known] = bob.client.call("connections")
    for line in rest:
        said = type_(line.replace("PEER", known.id), as_(bob))
        if line == "zerochat connections":
            assert known.label in said
    until(lambda: any(one.text == "Hello" for one in bob.client.call("letters", peer=known.id)), "the letter")
    [back] = alice.client.call("connections")
    until(lambda: any(one.text == "Hello" for one in alice.client.call("letters", peer=back.id)), "the letter")


SYSTEMCTL = """#!/bin/sh
# Does with the one unit what systemd does: it starts what the unit says.
unit="$HOME/.config/systemd/user/$4.service"
[ "$1 $2 $3" = "--user enable --now" ] && [ -f "$unit" ] || exit 1
eval "$(sed -n 's/^Environment=//p' "$unit" | sed 's/^/export /')"
nohup $(sed -n 's/^ExecStart=//p' "$unit") >"$HOME/log" 2>&1 &
echo $! >"$HOME/pid"
"""


def test_a_service(home, monkeypatch):  # noqa: F811
    """There is no systemd in a test; what stands for it runs the unit's own line."""
    (home / "bin" / "systemctl").write_text(SYSTEMCTL)
    (home / "bin" / "systemctl").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    (home / ".config" / "systemd" / "user").mkdir(parents=True)
    environment = dict(os.environ)
    type_("zerochat init --name Alice", environment)
    try:
        for line in typed(block("systemctl --user enable")):
            if line.startswith("zerochat doctor"):
                until(lambda: reached(), "the agent", 60)
                type_(line, environment, codes=(0, 1))  # what it finds on this machine is this machine's
            else:
                type_(line, environment)
    finally:
        if (pid := home / "pid").exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
            until(lambda: not reached(), "its end", 60)


def reached() -> bool:
    try:
        connect(places(None, dict(os.environ)), "test").close()
    except Exception:  # noqa: BLE001  # whatever it is, nobody answers
        return False
    return True


def test_scripts(home, people):  # noqa: F811
    alice, bob = people("alice", "bob")
    meet(alice, bob, group="ops")
    Path("report.txt").write_text("all is built\n")
    send, tail = typed(block("zerochat send ops --key"))
    with running(tail, as_(bob)) as tailing:
        assert tailing.stdout is not None
        until(lambda: any(one.connected for one in bob.client.call("groups")), "bob")
        time.sleep(0)
        for _ in range(2):
            type_(send, as_(alice, BUILD="7"))
        deadline = time.monotonic() + 60
        type_("zerochat send ops -m first", as_(alice))
        said = ""
        while "first" not in said and "all is built" not in said and time.monotonic() < deadline:
            said += tailing.stdout.readline()
    texts = [one.body.get("text") for one in bob.client.history("ops").events]
    assert texts.count("all is built") == 1, "one key says it once"


def test_completions_and_the_manual(home, monkeypatch):  # noqa: F811
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


@pytest.mark.slow
def test_searches(home):  # noqa: F811
    """As they stand there, but shorter; what the scripts do is tried by continuous integration itself."""
    for line in typed(block("zerochat sim")):
        words = line.split()
        if words[0] == "zerochat":
            short = line.replace("--seeds 200", "--seeds 1") if "--seeds" in words else f"{line} --seeds 20"
            assert "No promise was broken." in type_(short, dict(os.environ))
        else:
            script = (ROOT / words[0]).read_text(encoding="utf-8")
            assert all(word in script or word == "--budget" for word in words[1:] if word.startswith("--"))


def test_telemetry(home, people):  # noqa: F811
    pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `analytics`")
    [alice] = people("alice")
    alice.client.new("hikers")
    alice.client.send("hikers", "hello")
    for line in typed(block("zerochat telemetry on")):
        said = answered(line, alice, "?", "y") if line == "zerochat telemetry on" else type_(line, as_(alice))
        if line == "zerochat telemetry on":
            assert alice.client.call("telemetry").on
            alice.client.send("hikers", "recorded")
            until(lambda: alice.client.call("telemetry").rows, "rows")
        if "--dry-run" in line:
            assert said and not Path("my-week").exists()
    assert Path("my-week/manifest.json").exists()
    found = alice.client.call("telemetry")
    assert not found.on and not found.rows


@pytest.mark.slow
def test_a_council(home, people):  # noqa: F811
    alice, carol, dave = people("Alice", "Carol", "Dave")
    lines = typed(block("zerochat new council"))
    picture = "zerochat invite council --image code.png"
    revoked, joining = False, []
    for line in lines:
        if line.startswith("zerochat join --image"):
            for person in (carol, dave):
                type_(f"rm -f code.png; {picture}", as_(alice))
                shutil.copy("code.png", folder := home / person.name)
                joining.append(subprocess.Popen(shlex.split(line), env=as_(person), cwd=folder))
            until(lambda: len(alice.client.call("requests", group="council")) == 2, "that they ask")
            continue
        shown = line
        if "--revoke" in line:
            [first, *_] = alice.client.call("invitations", group="council")
            shown, revoked = line.replace("3f9a12c4", first.id[:8]), True
        asks = line.startswith("zerochat remove")
        said = answered(shown, alice, "[y/N]", "y") if asks else type_(shown, as_(alice))
        if line.startswith("zerochat requests"):
            assert "Carol" in said and "Dave" in said
        if line.startswith("zerochat admit"):
            type_("zerochat admit council Dave", as_(alice))
            assert [each.wait(60) for each in joining] == [0, 0]
            until(lambda: len(alice.client.members("council")) == 3, "that both are in")
            until(lambda: all(one.connection != "connecting" for one in alice.client.members("council")), "connected")
        if line.startswith("zerochat remove"):
            assert len(alice.client.call("groups")[0].votes) == 1, "it takes three"
        if line.startswith("zerochat role"):
            assert alice.client.call("groups")[0].role == "reader"
        if line.startswith("zerochat verify"):
            assert len(said.split()) >= 8
    assert revoked


@pytest.mark.slow
def test_a_court(home, people):  # noqa: F811
    """Nobody withholds anything here: whoever accuses all the same is told so, and there is no case to judge."""
    alice, carol, dave = people("Alice", "Carol", "Dave")
    first, *lines = typed(block("zerochat new court"))
    type_(first, as_(alice))
    for person in (carol, dave):
        person.client.join(alice.client.invite("court").url)
        until(lambda person=person: [one.state for one in person.client.groups()] == ["active"], "that it is in")
    until(lambda: alice.client.call("log", group="court").operator, "that somebody keeps the log")
    until(lambda: len(alice.client.members("court")) == 3, "that all are in")
    sent = alice.client.send("court", "At eight.")
    until(lambda: alice.client.delivery("court", sent.id).delivered, "that all have it")
    until(lambda: "signed for all of yours" in type_("zerochat evidence court", as_(alice)), "their signatures")
    nothing = ("zerochat accuse", "zerochat case ", "zerochat judge")
    for line in lines:
        said = type_(line, as_(alice), codes=(1,) if line.startswith(nothing) else (0,))
        if line.startswith("zerochat verify-proof"):
            assert "At eight." in said and "signed for by" in said
        if line.startswith("zerochat cases"):
            assert not said
    assert Path("all.zproof").exists() and not Path("withheld.zcase").exists()


def test_the_chat_of_lines(home, people):  # noqa: F811
    [alice] = people("alice")
    alice.client.new("hikers")
    alice.client.new("work")
    interactive, piped = typed(block("zerochat chat --plain hikers"))
    type_(interactive, as_(alice), "On my way.\n/quit\n")
    type_(piped, as_(alice))
    for group, text in (("hikers", "On my way."), ("work", "At eight, by the bridge.")):
        assert [one.body.get("text") for one in alice.client.history(group).events][-1] == text
