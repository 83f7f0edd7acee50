"""The agent as a service: readiness, termination, reloading of settings, hooks."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.machines import Machine, machines, meet, until
from tests.support.marks import others_slow
from tests.support.terminals import _own
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.service.sd_notify import ServiceNotifier
from zerochat.agent.settings.options import AT_ONCE, CHECKS
from zerochat.agent.settings.reader import Settings
from zerochat.agent.settings.reload import differences
from zerochat.cli.parser import parse


class Manager:
    """What stands for systemd: a socket that is told how a service stands."""

    def __init__(self, address):
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self._line.settimeout(60)

    def hears(self):
        """The next datagram, as lines."""
        return self._line.recv(4096).decode().split("\n")

    def hears_of(self, line):
        while line not in (said := self.hears()):
            pass
        return said

    def close(self):
        self._line.close()


@contextmanager
def service(machine, *words, address=None, variables=()):
    """`zerochat agent` of this machine, under a manager."""
    address = str(machine.home / "notify") if address is None else address
    manager = Manager(address)
    process = subprocess.Popen(
        [sys.executable, "-m", "zerochat", "agent", "--listen", "127.0.0.1", *words],
        env={**machine.environment, "NOTIFY_SOCKET": address, **dict(variables)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield SimpleNamespace(manager=manager, process=process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
        manager.close()


def asked(machine):
    with connect(machine.places, "test") as client:
        return client.get_status()


@pytest.fixture
def one(tmp_path):
    return Machine(tmp_path, "alice")


@pytest.mark.parametrize("address", others_slow([None, "@zerochat-test-"]))
def test_the_service_manager_is_notified_of_start_and_end(one, address):
    with service(one, address=address and f"{address}{os.getpid()}") as run:
        assert run.manager.hears() == ["READY=1"]
        assert asked(one).pid == run.process.pid  # it can be asked at once
        run.process.send_signal(signal.SIGTERM)
        assert run.manager.hears() == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=5000000", "STATUS=Sending queued messages"]
        assert run.process.wait(30) == 0
        assert run.process.stdout.read().startswith(b"ready ") and run.process.stderr.read() == b""


@pytest.mark.slow
def test_the_watchdog_is_notified_only_while_the_agent_works(one):
    with service(one, variables={"WATCHDOG_USEC": "600000"}) as run:
        assert run.manager.hears() == ["READY=1"]
        for _ in range(3):
            assert run.manager.hears() == ["WATCHDOG=1"]


def test_a_hung_agent_thread_is_detected():
    from zerochat.cli.verbs.agent import Signals, _serve

    said: list[str] = []
    looks: list[float] = []
    signals: Any = Signals()
    signals.wait = looks.append
    thread: Any = SimpleNamespace(reloaded=[], is_alive=lambda: len(looks) % 5 != 4)
    herald: Any = SimpleNamespace(watchdog_s=0.001, alive=lambda: said.append("alive"))
    for beat, heard in ((time.monotonic() - 10, False), (time.monotonic() + 10, True)):
        thread.heartbeat = beat
        looks.append(0.0)
        _serve(signals, thread, herald)
        assert bool(said) is heard


def test_a_signal_may_interrupt_the_wait_at_any_step():
    """A handler runs between two steps of the code that it interrupts: it must need no lock that this code holds."""
    from zerochat.cli.verbs.agent import Signals

    signals, steps = Signals(), []

    def interrupt(frame, event, argument):
        sys.settrace(None)
        signals.hang_up(signal.SIGHUP, None)
        sys.settrace(interrupt)
        steps.append(event)
        return interrupt

    def main():
        sys.settrace(interrupt)
        signals.wait(0.001)
        sys.settrace(None)

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert signals.reloads == len(steps) > 2


def test_service_notifications_stay_out_of_child_environments(tmp_path):
    given = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1", "HOME": "/h"}
    herald = ServiceNotifier(given)
    assert given == {"HOME": "/h"}
    assert herald.watchdog_s == 0.0, "meant for another process"
    herald.ready()  # nobody listens there, and that is no fault
    assert ServiceNotifier({"WATCHDOG_USEC": "2000000"}).watchdog_s == 2.0
    assert [ServiceNotifier({"WATCHDOG_USEC": odd}).watchdog_s for odd in ("", "-1", "x", "9" * 40)] == [0.0] * 4


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path):
    with machines(tmp_path, ["alice", "bob"]) as (alice, bob):
        meet(alice, bob)
        yield alice, bob


def test_a_terminating_agent_sends_its_queue_and_accepts_no_more(two):
    """Bob stands still, so that what Alice says waits for him; she is told to end, and he wakes up."""
    alice, bob = two
    bob.stop()
    alice.client.subscribe()
    sent = alice.client.send_message("friends", "before the end")
    alice.process.send_signal(signal.SIGTERM)
    stopping = next(news for news in alice.client.notifications(60) if news.method == "stopping")
    assert 0 < stopping.params.within_s <= 60
    with pytest.raises(AgentError, match="stopping and accepts no new") as refused:
        alice.client.send_message("friends", "too late")
    assert (refused.value.code, refused.value.retry, refused.value.exit_code) == ("AgentStopping", "later", 6)
    assert alice.client.list_groups()[0].name == "friends", "what is asked is still answered"
    answer = {}
    waiting = threading.Thread(target=lambda: answer.update(report=alice.client.wait_for_delivery("friends", sent.id)))
    waiting.start()
    bob.go_on()
    waiting.join(60)
    assert answer["report"].complete, "whoever waited for the acknowledgement still got it"
    assert alice.process.wait(30) == 0
    assert bob.texts() == ["before the end"]


@pytest.mark.slow
def test_a_silent_peer_does_not_delay_the_end(two):
    alice, bob = two
    alice.places.config.write_text("[agent]\ndrain = 1\n")
    alice.process.send_signal(signal.SIGHUP)
    bob.stop()
    alice.client.subscribe()
    alice.client.send_message("friends", "nobody hears this now")
    alice.process.send_signal(signal.SIGTERM)
    assert next(news for news in alice.client.notifications(60) if news.method == "stopping").params.within_s == 1.0
    assert alice.process.wait(30) == 0
    bob.go_on()


@pytest.mark.slow
def test_a_second_signal_ends_the_agent_at_once(two):
    alice, bob = two
    alice.places.config.write_text("[agent]\ndrain = 60\n")
    alice.process.send_signal(signal.SIGHUP)
    until(lambda: "agent.drain" in alice.places.log.read_text(), "taking over the settings")
    bob.stop()
    alice.client.subscribe()
    alice.client.send_message("friends", "not heard")
    alice.process.send_signal(signal.SIGTERM)
    assert next(news for news in alice.client.notifications(60) if news.method == "stopping").params.within_s == 60.0
    assert alice.process.poll() is None
    alice.process.send_signal(signal.SIGTERM)
    assert alice.process.wait(30) == 0, "long before the minute is over"
    bob.go_on()


def test_a_lost_terminal_ends_it_and_a_plain_sighup_reloads(one):
    main, line = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "zerochat", "agent", "--listen", "127.0.0.1"],
        env=one.environment,
        stdin=line,
        stdout=line,
        stderr=line,
        start_new_session=True,
        preexec_fn=lambda: _own(line),
    )
    os.close(line)

    def shows(text, shown=b""):
        while text not in shown:
            shown += os.read(main, 4096)

    with process:
        try:
            shows(b"ready profile=alice")
            process.send_signal(signal.SIGHUP)
            shows(b"No setting has changed.")
            os.close(main)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert "stopping, within" in one.places.log.read_text()


def test_an_agent_that_ignores_sighup_reloads_on_request(one):
    agent = [sys.executable, "-m", "zerochat", "agent", "--listen", "127.0.0.1"]
    with subprocess.Popen(
        ["nohup", *agent], env=one.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            until(lambda: "ready profile=alice" in process.stdout.readline(), "its start")
            process.send_signal(signal.SIGHUP)
            one.places.config.write_text("[agent]\ndrain = 3\n")
            relay = [sys.executable, "-m", "zerochat", "rpc", "--stdio"]
            request = '{"jsonrpc":"2.0","id":1,"method":"reload_settings"}\n'
            answer = subprocess.run(relay, env=one.environment, input=request, stdout=subprocess.PIPE, text=True)
            assert '"result":{}' in answer.stdout
            assert "agent.drain" in process.stdout.readline() and process.poll() is None
        finally:
            process.terminate()


# --- settings while it runs -----------------------------------------------------------------------------------------


def test_valid_settings_are_reloaded_and_broken_files_ignored(one):
    with service(one, "--log-format", "json") as run:
        assert run.manager.hears() == ["READY=1"]
        one.places.config.write_text('[agent]\nlog_level = "debug"\ndrain = 3\n[network]\nhidden = true\nodd = 1\n')
        run.process.send_signal(signal.SIGHUP)
        reloading = run.manager.hears()
        assert reloading[0] == "RELOADING=1" and reloading[1].startswith("MONOTONIC_USEC=")
        assert run.manager.hears() == ["READY=1"]
        one.places.config.write_text("[agent]\ndrain = 'soon, and hush'\n")
        run.process.send_signal(signal.SIGHUP)
        assert run.manager.hears()[0] == "RELOADING=1"
        assert run.manager.hears() == ["READY=1"]
        run.process.send_signal(signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC=3000000" in run.manager.hears_of("STOPPING=1")
        assert run.process.wait(30) == 0
        written = [json.loads(line) for line in run.process.stderr.read().decode().splitlines()]
    told = [line["message"] for line in written if line["kind"] == "standard error"]
    log = [line for line in written if line["kind"] != "standard error"]
    assert 'Unknown setting "network.odd".' in told[0]
    assert told[1:3] == [
        "Applied: agent.log_level, agent.drain.",
        "Applies at the next start of the agent: network.hidden.",
    ]
    assert told[3].startswith("The settings were not reloaded, and the old ones stay in effect: ") and len(told) == 4
    kinds = [line["kind"] for line in log]
    assert "the settings were not reloaded, and the old ones stay in effect: %s" in kinds
    assert all(set(line) == {"at", "level", "message", "kind"} for line in written)
    assert "hush" not in json.dumps(log), "what a setting says is not for the log"


def test_each_setting_is_either_taken_over_or_waits():
    assert set(CHECKS) >= AT_ONCE
    found = differences(Settings(), Settings(listen="127.0.0.1", on_message=("x",), total_max=7))
    assert (found.applied, found.at_restart) == (("hooks.on_message", "files.total_max"), ("network.listen",))
    assert differences(Settings(), Settings()).sentences() == ["No setting has changed."]
    for value in (True, False, "always"):
        found = differences(Settings(hidden=not value), Settings(hidden=value))
        names = (found.applied, found.at_restart)
        assert names == ((("network.hidden",), ()) if value == "always" else ((), ("network.hidden",)))
    assert differences(Settings(hidden="always"), Settings()).at_restart == ("network.hidden",)


@pytest.mark.slow
def test_limits_of_files_are_taken_over_by_an_agent_that_runs(two, tmp_path):
    alice, _ = two
    large = tmp_path / "large"
    large.write_bytes(os.urandom(3 << 20))
    alice.places.config.write_text("[files]\nsize_max = 2\n")
    alice.process.send_signal(signal.SIGHUP)
    until(lambda: "files.size_max" in alice.places.log.read_text(), "taking over the settings")
    with pytest.raises(AgentError, match="at most 2097152"):
        alice.client.send_files("friends", [str(large)], "too large")


# --- logs -----------------------------------------------------------------------------------------------------------


def test_a_full_log_is_rotated_and_three_files_are_kept(tmp_path, monkeypatch):
    import logging

    from zerochat.agent.service import crash_log

    monkeypatch.setattr(crash_log, "LOG_BYTES_MAX", 200)
    log = logging.Logger("test")
    (handler,) = crash_log.handlers(tmp_path / "agent.log", None)
    log.addHandler(handler)
    for number in range(20):
        log.info("line %04d of the log, which is not short", number)
    handler.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["agent.log", "agent.log.1", "agent.log.2"]
    assert all(path.stat().st_size <= 200 for path in tmp_path.iterdir())
    lines = "".join((tmp_path / name).read_text() for name in reversed(files)).splitlines()
    assert [int(line.split("line ")[1][:4]) for line in lines] == list(range(20 - len(lines), 20))


def test_a_fault_in_a_json_log_has_a_traceback_without_content(tmp_path):
    import logging

    from zerochat.agent.service import crash_log

    log = logging.Logger("test")
    (handler, aloud) = crash_log.handlers(tmp_path / "agent.log", "json")
    log.addHandler(handler)
    said = " ".join(("what", "somebody", "said"))
    try:
        raise ValueError(said)
    except ValueError:
        log.exception("a fault while hearing %s", "Received")
    handler.close()
    aloud.close()
    (line,) = (json.loads(text) for text in (tmp_path / "agent.log").read_text().splitlines())
    assert (line["level"], line["kind"]) == ("error", "a fault while hearing %s")
    assert line["fault"]["class"] == "builtins.ValueError"
    assert any("test_running.py" in frame for frame in line["fault"]["trace"])
    assert said not in json.dumps(line)


def test_the_times_of_a_log_are_utc_whatever_the_zone_was(tmp_path, monkeypatch):
    import logging

    from zerochat.agent.service import crash_log

    (handler,) = crash_log.handlers(tmp_path / "agent.log", None)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    record = logging.LogRecord("", logging.INFO, "", 0, "ready", (), None)
    record.created, record.msecs = 1_700_000_000.5, 500
    handler.handle(record)
    handler.close()
    monkeypatch.undo()
    time.tzset()
    assert (tmp_path / "agent.log").read_text() == "2023-11-14T22:13:20.500Z INFO ready\n"


# --- hooks ----------------------------------------------------------------------------------------------------------

HOOK = """\
import json, os, sys, time
event = json.loads(sys.stdin.readline())
text = event["body"]["text"]
if "hang" in text:
    if not os.fork():
        time.sleep(600)
    time.sleep(600)
if "flood" in text:
    for _ in range(3000):
        print("x" * 10000)
if "die" in text:
    os.kill(os.getpid(), 9)
with open(sys.argv[1], "a") as file:
    print(json.dumps({"event": event, "environ": sorted(os.environ), "words": sys.argv[2:]}), file=file)
"""


@pytest.mark.slow
def test_hooks_get_each_message_once_and_cannot_block_the_agent(two, tmp_path):
    alice, bob = two
    script, told, called = tmp_path / "hook.py", tmp_path / "told", tmp_path / "called"
    script.write_text(HOOK)
    words = [sys.executable, "-I", str(script)]
    alice.client.send_message("friends", "before there was a hook")
    alice.places.config.write_text(
        f"[hooks]\non_message = {json.dumps([*words, str(told), '$HOME; `id`'])}\n"
        f"on_mention = {json.dumps([*words, str(called)])}\ntimeout = 2\n"
    )
    alice.process.send_signal(signal.SIGHUP)
    until(lambda: "hooks.on_message" in alice.places.log.read_text(), "taking over the settings")
    texts = ["one", "hang", "flood", "die", "@alice, look", "last"]
    for text in texts:
        bob.client.send_message("friends", text)
    alice.client.send_message("friends", "mine is no news to me")

    def lines(path):
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    found = until(lambda: [one for one in lines(told) if one["event"]["body"]["text"] == "last"], "the last hook")
    assert [one["event"]["body"]["text"] for one in lines(told)] == ["one", "flood", "@alice, look", "last"]
    assert found[0]["words"] == ["$HOME; `id`"], "no shell has read it"
    assert not [name for name in found[0]["environ"] if "PASS" in name or "NOTIFY" in name or name == "PYTHONPATH"]
    assert {"PATH", "ZEROCHAT_PROFILE", "ZEROCHAT_HOME"} <= set(found[0]["environ"])
    event = found[0]["event"]
    (same,) = [one for one in alice.client.get_history("friends", limit=50).events if one.id == event["id"]]
    assert (event["type"], event["author"]["nick"], event["seq"]) == ("message", "bob", same.seq)
    until(lambda: lines(called), "the hook of mentions")
    assert [one["event"]["body"]["text"] for one in lines(called)] == ["@alice, look"]
    assert alice.client.get_status().warning == ""
    log = alice.places.log.read_text()
    assert "hook on_message was killed after its timeout" in log
    assert not [text for text in texts if f" {text}\n" in log]


def test_a_slow_hook_loses_events_and_the_log_records_it(tmp_path):
    import logging

    from tests.support.cli_harness import event
    from zerochat.agent.service import crash_log
    from zerochat.agent.service.hooks import ON_MESSAGE, WAITING_MAX, Hooks

    log = logging.Logger("test")
    (handler,) = crash_log.handlers(tmp_path / "agent.log", None)
    log.addHandler(handler)
    begun, go = tmp_path / "begun", tmp_path / "go"
    os.mkfifo(go)
    command = ("/bin/sh", "-c", f"cat >>{tmp_path}/heard; echo >>{begun}; read x <{go}")
    with Hooks("p", log, os.environ) as hooks:
        hooks.set({ON_MESSAGE: command}, 600.0)
        hooks.hear([event(1)], {})
        until(begun.exists, "the first run")
        hooks.hear([event(seq) for seq in range(2, WAITING_MAX + 5)], {})
        hooks.hear([event(999, self=True), event(998, type="topic_changed"), event(997, deleted=True)], {})
    assert begun.read_text().count("\n") == 1, "one at a time, and what runs is ended with the agent"
    handler.close()
    assert "hook on_message is too slow: 1 events dropped so far" in (tmp_path / "agent.log").read_text()


def test_an_edit_that_mentions_me_is_a_mention_and_no_message(tmp_path):
    import logging

    from tests.support.cli_harness import event
    from zerochat.agent.service.hooks import ON_MENTION, ON_MESSAGE, Hooks

    edits = [event(seq, type="message_edited", mentions=called) for seq, called in ((1, []), (2, ["me"]))]
    with Hooks("p", logging.Logger("test"), os.environ) as hooks:
        kinds = {ON_MESSAGE: "said", ON_MENTION: "called"}
        hooks.set({kind: ("/bin/sh", "-c", f"cat >>{tmp_path}/{name}") for kind, name in kinds.items()}, 30.0)
        hooks.hear([*edits, event(3)], {event(1).group: "me"})
        heard = {name: tmp_path / name for name in kinds.values()}
        until(lambda: all(path.exists() and path.read_text().endswith("\n") for path in heard.values()), "both hooks")
    seen = {name: [json.loads(line)["seq"] for line in path.read_text().splitlines()] for name, path in heard.items()}
    assert seen == {"said": [3], "called": [2]}


def test_a_missing_hook_is_logged(tmp_path):
    import logging

    from tests.support.cli_harness import event
    from zerochat.agent.service import crash_log
    from zerochat.agent.service.hooks import ON_MESSAGE, Hooks

    log = logging.Logger("test")
    (handler,) = crash_log.handlers(tmp_path / "agent.log", None)
    log.addHandler(handler)
    with Hooks("p", log, {}) as hooks:
        hooks.set({ON_MESSAGE: (str(tmp_path / "nothing"),)}, 5.0)
        hooks.hear([event(1)], {})
        until(lambda: "could not be started: FileNotFoundError" in (tmp_path / "agent.log").read_text(), "the line")
        hooks.set({ON_MESSAGE: ("/bin/sh", "\0")}, 5.0)
        hooks.hear([event(2)], {})
        until(lambda: "could not be started: ValueError" in (tmp_path / "agent.log").read_text(), "the line")
    handler.close()


# --- units ----------------------------------------------------------------------------------------------------------


def run_verb(machine, *words, **variables):
    return subprocess.run(
        [sys.executable, "-m", "zerochat", *words],
        env={**machine.environment, **variables},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )


def started_by(unit):
    """The words of ExecStart, as systemd reads them (without its own escapes, which the tests put none in)."""
    import shlex

    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart="))


def test_a_unit_runs_this_very_agent_and_systemd_understands_it(one, tmp_path):
    import shutil

    printed = run_verb(one, "agent", "--print-unit", "--listen", "127.0.0.1:4242:4243")
    assert printed.returncode == 0, printed.stderr
    words = started_by(printed.stdout)
    assert Path(words[0]).is_absolute()
    options = parse(words[words.index("--profile") :])
    assert (options.verb, options.profile, options.listen) == ("agent", "alice", "127.0.0.1:4242:4243")
    for line in ("Type=notify", "WatchdogSec=30", "ExecReload=/bin/kill -HUP $MAINPID", "TimeoutStopSec=20"):
        assert line in printed.stdout.splitlines()
    assert f"Environment=ZEROCHAT_HOME={one.home}" in printed.stdout
    if (verify := shutil.which("systemd-analyze")) is not None:
        unit = tmp_path / "zerochat.service"
        unit.write_text(printed.stdout)
        (tmp_path / "run").mkdir()
        checked = subprocess.run(
            [verify, "--user", "verify", str(unit)],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")},
            capture_output=True,
            text=True,
            check=False,
        )
        complaints = [line for line in checked.stderr.splitlines() if "zerochat.service" in line]
        assert not complaints, complaints


def test_the_system_unit_confines_the_agent(one, tmp_path):
    import shutil

    printed = run_verb(one, "agent", "--print-unit", "system", "--log-format", "json").stdout
    lines = printed.splitlines()
    assert f"User={os.geteuid()}" in lines and "WantedBy=multi-user.target" in lines and "WatchdogSec=30" in lines
    (writable,) = (line.partition("=")[2].split() for line in lines if line.startswith("ReadWritePaths="))
    for folder in (one.places.data, one.places.state, one.places.socket.parent, one.places.config.parent):
        assert any(folder.is_relative_to(each) for each in writable)
    assert all(Path(each).is_dir() for each in writable if not each.startswith("-"))
    if (analyse := shutil.which("systemd-analyze")) is not None:
        unit = tmp_path / "zerochat.service"
        unit.write_text(printed)
        words = [analyse, "security", "--offline=true", "--no-pager", "--threshold=30", str(unit)]
        checked = subprocess.run(words, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout[-300:] + checked.stderr


@pytest.mark.parametrize("wrong", [["--no-such-option"], ["--listen", "192.0.2.1"], ["--profile", "nobody"]])
def test_a_failed_start_is_logged_as_json(one, wrong):
    failed = run_verb(one, "agent", "--log-format", "json", *wrong)
    lines = [json.loads(line) for line in failed.stderr.splitlines()]
    assert failed.returncode and lines[-1]["level"] == "error" and all(line["at"] for line in lines)


def test_all_that_is_written_to_standard_error_becomes_json(monkeypatch, tmp_path):
    import io
    import logging
    import traceback
    import warnings

    from zerochat.agent.service.crash_log import JsonStream, handlers
    from zerochat.cli import _report_fault, _report_hidden_fault

    raw = io.StringIO()
    monkeypatch.setattr(sys, "stderr", JsonStream(raw))
    file, handler = handlers(tmp_path / "log", "json")
    file.close()
    handler.handle(logging.LogRecord("", logging.INFO, "", 0, "stopped", (), None))
    print(warnings.formatwarning("a library\nis 100% old", DeprecationWarning, "x.py", 7), end="", file=sys.stderr)
    said_by_a_peer = "\n".join(("a secret", "of a peer"))
    try:
        raise ValueError(said_by_a_peer)
    except ValueError as error:
        _report_fault(ValueError, error, None)
        _report_hidden_fault(threading.ExceptHookArgs((ValueError, error, error.__traceback__, None)))
        assert logging.lastResort is not None, "what libraries log without handlers"
        logging.lastResort.handle(logging.LogRecord("", logging.ERROR, "", 0, "failed: %s", (7,), sys.exc_info()))
        traceback.print_exc()
        sys.__excepthook__(ValueError, error, error.__traceback__)  # in small pieces
    print("one", "two", file=sys.stderr)
    logged, warned, fault, hidden, library, *printed, said = map(json.loads, raw.getvalue().splitlines())
    assert hidden == fault | {"at": hidden["at"]} and any("test_running.py" in line for line in fault["fault"]["trace"])
    assert library["message"].startswith("failed: 7\nbuiltins.ValueError\n") and len(printed) == 2
    for each in printed:
        assert each["level"] == "error" and each["message"].startswith("Traceback (most recent call last):\n  File")
        assert each["message"].endswith("\nValueError")
    assert "a secret" not in raw.getvalue() and "of a peer" not in raw.getvalue()
    assert (logged["message"], logged["kind"], logged["level"]) == ("stopped", "stopped", "info")
    assert "DeprecationWarning: a library\nis 100% old" in warned["message"] and warned["level"] == "warning"
    assert fault["level"] == "error" and fault["fault"]["class"] == "builtins.ValueError"
    assert said["message"] == "one two" and not sys.stderr.isatty()


def test_words_are_escaped_for_systemd():
    from zerochat.cli.service_files import escaped

    assert escaped("/usr/bin/zerochat") == "/usr/bin/zerochat"
    assert escaped('a "b" 100% c\\d', command=True) == '"a \\"b\\" 100%% c\\\\d"'
    assert escaped("$HOME", command=True) == '"$$HOME"'
    assert escaped("") == '""'
