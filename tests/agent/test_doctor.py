"""`zerochat doctor`: every fault that it knows is caused for real, found, and given a remedy."""

import io
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from tests.support.cli_harness import HIKERS, MEMBERS, STATUS
from tests.support.machines import Machine, machines, meet, until
from tests.support.small_disk import SmallDisk, why_not
from zerochat.agent.doctor import CHECKS, CheckContext, run_checks
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.cli import main
from zerochat.rpc import Author, Completeness, GapInfo, HeldMail


@pytest.fixture
def home(tmp_path):
    found = profile_paths("alice", {"ZEROCHAT_HOME": str(tmp_path / "h")})
    create_profile(found, "alice", None)
    return found


def checked(home, *wanted, environ=(), key=True):
    """What the checks find, by their names: (state, text, remedy)."""
    patient = CheckContext(home, dict(environ), partial(unlock, home, None) if key else None)
    found = run_checks(patient, wanted)
    if patient.client is not None:
        patient.client.close()
    for one in found.checks:
        assert one.text.endswith((".", "?")) and (one.remedy or one.state in ("ok", "skip")), one
    return {one.check: (one.state, one.text, one.remedy) for one in reversed(found.checks)}


def doctor(environment, *words):
    """The verb, in this process: its exit code, standard output and standard error."""
    with (
        patch.dict(os.environ, environment, clear=True),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        code = main(["doctor", *words])
    return code, out.getvalue(), err.getvalue()


def doctor_process(environment, *words, **options):
    done = subprocess.run(
        [sys.executable, "-m", "zerochat", "doctor", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_healthy_profile_passes_and_leaves_no_trace(home, tmp_path):
    before = sorted((path, path.stat().st_mtime_ns) for path in home.data.rglob("*") if path.name != "lock")
    found = checked(home)
    assert list(reversed(found)) == list(CHECKS)
    others = {name: state for name, (state, _, _) in found.items() if state != "ok"}
    assert others == dict.fromkeys(["memory", "reach", "mail", "clock", "quota"], "skip")
    after = sorted((path, path.stat().st_mtime_ns) for path in home.data.rglob("*") if path.name != "lock")
    assert after == before
    environment = {**os.environ, "ZEROCHAT_HOME": str(tmp_path / "h"), "ZEROCHAT_PROFILE": "alice"}
    code, out, err = doctor(environment, "--format", "json")
    said = json.loads(out)
    assert (code, err, said["state"], said["profile"]) == (0, "", "ok", "alice")
    code, out, err = doctor(environment, "disk", "journal")
    assert code == 0 and [line.split()[:2] for line in out.splitlines()] == [["ok", "disk"], ["ok", "journal"]]
    code, out, err = doctor(environment, "dsik")
    assert (code, out) == (2, "") and "Unknown check" in err and "disk" in err


def test_no_profile(tmp_path):
    home = profile_paths("nobody", {"ZEROCHAT_HOME": str(tmp_path / "h")})
    found = checked(home, key=False)
    assert found["profile"][0] == "fail" and "zerochat init" in found["profile"][2]
    assert found["journal"][0] == "skip"
    assert not home.data.exists()


def test_folders_that_are_open_to_others(home):
    home.data.chmod(0o755)
    home.key_file.chmod(0o644)
    home.socket.parent.mkdir(mode=0o755)
    home.socket.parent.chmod(0o755)
    patient = CheckContext(home, {})
    said = {(one.state, one.remedy) for one in run_checks(patient, ["profile", "socket"]).checks}
    assert said == {
        ("fail", f"Restrict it: `chmod 700 {home.data}`."),
        ("fail", f"Restrict it: `chmod 600 {home.key_file}`."),
        ("fail", f"Restrict it: `chmod 700 {home.socket.parent}`."),
    }


def test_something_else_where_the_socket_belongs(home):
    home.socket.parent.mkdir(mode=0o700)
    home.socket.write_text("no socket")
    assert checked(home, "socket")["socket"][0] == "fail"


def test_something_else_that_answers_there(home):
    home.socket.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.bind(str(home.socket))
        stranger.listen()
        import threading

        def serve():
            line, _ = stranger.accept()
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            line.close()

        server = threading.Thread(target=serve)
        server.start()
        found = checked(home, "socket")["socket"]
        server.join(10)
    assert found[0] == "fail" and "does not respond as an agent" in found[1]


def test_settings_that_cannot_be_used_and_some_that_mean_nothing(home):
    home.config.write_text("[network]\nhiden = true\n")
    state, text, _ = checked(home, "settings")["settings"]
    assert state == "warn" and "network.hiden" in text
    home.config.write_text("[network]\nlisten = 7\n")
    state, _, remedy = checked(home, "settings")["settings"]
    assert state == "fail" and "network.listen" in remedy


@pytest.mark.parametrize("family", ["pair", "queue"])
def test_a_port_in_use_is_found(home, family):
    with socket.socket() as taker:
        taker.bind(("127.0.0.1", 0))
        taker.listen()
        port = taker.getsockname()[1]
        home.config.write_text(f'[network]\nlisten = "127.0.0.1:{f"{port}:0" if family == "pair" else f"0:{port}"}"\n')
        state, text, remedy = checked(home, "ports")["ports"]
        assert state == "fail" and f"Port {port}" in text and "network.listen" in remedy
    home.config.write_text('[network]\nlisten = "198.51.100.7:4242"\n')
    state, text, _ = checked(home, "ports")["ports"]
    assert state == "fail" and "has no address 198.51.100.7" in text


def test_the_ports_that_the_journal_remembers_are_looked_at(tmp_path):
    one = Machine(tmp_path, "alice").start()
    port = int(one.client.get_status().pair.rpartition(":")[2])
    one.kill()
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.1", port))
        taker.listen()
        state, text, _ = checked(one.places, "ports")["ports"]
        assert state == "fail" and f"Port {port}" in text
    assert checked(one.places, "ports")["ports"][0] == "ok"


def test_too_few_files(home, tmp_path):
    environment = {**os.environ, "ZEROCHAT_HOME": str(tmp_path / "h"), "ZEROCHAT_PROFILE": "alice"}

    def few(limit):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    for limit, state, code in ((200, "fail", 1), (600, "warn", 0)):
        found = doctor_process(environment, "files", "--format", "json", preexec_fn=partial(few, limit))
        (one,) = json.loads(found[1])["checks"]
        assert (
            (one["state"], found[0]) == (state, code) and str(limit) in one["text"] and "LimitNOFILE" in one["remedy"]
        )


def test_another_journal_format_is_reported_and_unchanged(home):
    from zerochat.agent.storage.database import create_database
    from zerochat.agent.storage.tables import FORMAT

    key = unlock(home, None)
    home.journal.unlink()
    with closing(create_database(home.journal, key)) as database:
        database.pragma("application_id", FORMAT.mark)
        database.pragma("user_version", FORMAT.version + 1)
        database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB)")
    before = home.journal.read_bytes()
    state, text, remedy = checked(home, "journal")["journal"]
    assert state == "fail" and "cannot be used" in text
    assert "reads only format" in remedy and home.journal.read_bytes() == before


def test_a_damaged_journal(home):
    with home.journal.open("r+b") as file:
        file.seek(4096 * 3 + 100)
        file.write(b"\0" * 64)
    state, _, remedy = checked(home, "journal")["journal"]
    assert state == "fail" and remedy


def test_a_journal_with_a_passphrase_is_skipped(tmp_path):
    environment = {**os.environ, "ZEROCHAT_HOME": str(tmp_path / "h"), "ZEROCHAT_PROFILE": "alice"}
    home = profile_paths("alice", environment)
    create_profile(home, "alice", b"open sesame and more")
    (one,) = json.loads(doctor(environment, "journal", "--format", "json")[1])["checks"]
    assert one["state"] == "skip" and "ZEROCHAT_PASSPHRASE_FILE" in one["remedy"]
    secret = tmp_path / "secret"
    secret.write_bytes(b"open sesame and more")
    secret.chmod(0o600)
    environment["ZEROCHAT_PASSPHRASE_FILE"] = str(secret)
    (one,) = json.loads(doctor(environment, "journal", "--format", "json")[1])["checks"]
    assert one["state"] == "ok"


def test_a_full_disk(tmp_path):
    if why_not():
        pytest.skip(why_not())
    one = Machine(tmp_path, "alice")
    with SmallDisk(one.places, 4 << 20) as disk:
        found = disk.run("doctor", "disk", "--format", "json", environment=one.environment)
        (little,) = json.loads(found.stdout)["checks"]
        assert (little["state"], found.returncode) == ("warn", 0) and "MB are free" in little["text"]
        disk.fill()
        found = disk.run("doctor", "disk", "--format", "json", environment=one.environment)
        (full,) = json.loads(found.stdout)["checks"]
        assert (full["state"], found.returncode) == ("fail", 1)
        assert "the disk is full" in full["text"] and "Free some space" in full["remedy"]


def test_a_folder_that_cannot_be_written(home):
    if os.geteuid() == 0:
        read_only = Path("/proc/self")  # where not even the superuser makes files
        state, _, remedy = checked(replace(home, data=read_only), "disk")["disk"]
    else:
        home.data.chmod(0o500)
        state, _, remedy = checked(home, "disk")["disk"]
        home.data.chmod(0o700)
    assert state == "fail" and "writable" in remedy


# --- with an agent ----------------------------------------------------------------------------------------------------


def test_a_running_agent_is_queried(tmp_path):
    with machines(tmp_path, ["alice", "bob"]) as (alice, bob):
        assert checked(alice.places, "clock")["clock"][0] == "skip", "nobody has said what time it is"
        meet(alice, bob)
        alice.say("hello")
        until(lambda: bob.texts() == ["hello"] and alice.group().unacknowledged == 0, "the acknowledgement")
        until(lambda: alice.member(bob).ahead_ms is not None, "Bob's time")
        found = checked(alice.places)
        states = {name: state for name, (state, _, _) in found.items() if name != "memory"}  # tests may read it
        others = dict.fromkeys(CHECKS.keys() - {"memory"}, "ok")
        assert states == {**others, "reach": "warn"}, found  # it listens on the loopback only
        assert "agrees with that of the connected member" in found["clock"][1]
        assert str(alice.process.pid) in found["socket"][1]


@pytest.mark.parametrize(
    ("ahead", "state", "said"),
    [
        ([0, 900, -2_000], "ok", "agrees"),
        ([400_000, 401_000, 400_500], "fail", "400 seconds behind those of all 3 connected members"),
        ([-60_000], "warn", "60 seconds ahead of that of the connected member"),
        ([0, 0, 3_600_000], "warn", "1 of 3 connected members"),
    ],
)
def test_clocks_that_are_off(home, fake_agent, ahead, state, said):
    members = [
        MEMBERS[1].__class__(**{**as_struct(MEMBERS[1]), "did": f"did:key:z{number}", "ahead_ms": ms})
        for number, ms in enumerate(ahead)
    ]
    fake_agent(path=home.socket, get_status=lambda _: STATUS, list_members=lambda _: [MEMBERS[0], *members, MEMBERS[3]])
    found = checked(home, "clock")["clock"]
    assert found[0] == state and said in found[1]


def test_a_member_over_its_daily_quota_is_reported(home, fake_agent):
    gap = GapInfo(author="did:key:z1", nick="bob", after=1, upto=3, missing=2, state="held")
    group = replace(HIKERS, completeness=Completeness(complete=False, gaps=[gap]))
    fake_agent(path=home.socket, get_status=lambda _: replace(STATUS, groups=[group]))
    state, text, remedy = checked(home, "quota")["quota"]
    assert state == "warn" and "one member are not accepted" in text and "storage.daily_max" in remedy


def test_a_quota_of_ours_that_is_used_up_is_reported(home, fake_agent):
    group = replace(HIKERS, quota_used_up=[Author("did:key:z1", "bob\x1b")])
    fake_agent(path=home.socket, get_status=lambda _: replace(STATUS, groups=[group]))
    state, text, _ = checked(home, "quota")["quota"]
    assert state == "warn" and "hikers: your daily quota at bob" in text and "\x1b" not in text


def as_struct(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


@pytest.mark.slow
def test_hostile_peer_text_is_made_printable(home, fake_agent, tmp_path):
    """Whatever of others or of a settings file comes into a line is made printable."""
    evil = STATUS.__class__(
        **{**as_struct(STATUS), "warning": "\x1b[2Jgone", "groups": [HIKERS], "web": ["http://x\x1b]0;t\x07/"]}
    )
    fake_agent(path=home.socket, get_status=lambda _: evil, list_members=lambda _: [])
    home.config.write_text('[network]\n"\\u001b[2Jx" = 1\n')
    environment = {**os.environ, "ZEROCHAT_HOME": str(tmp_path / "h"), "ZEROCHAT_PROFILE": "alice"}
    _, out, err = doctor(environment)
    assert "\x1b" not in out + err and "\x07" not in out + err and "gone" in out


@pytest.mark.parametrize(
    ("fields", "code"),
    [({}, 0), ({"warning": "The disk has only 3 MB left."}, 1), ({"closed": True}, 1), ({"damaged": True}, 7)],
)
def test_status_as_a_health_check(home, fake_agent, tmp_path, fields, code):
    fake_agent(path=home.socket, get_status=lambda _: STATUS.__class__(**{**as_struct(STATUS), **fields}))
    environment = {**os.environ, "ZEROCHAT_HOME": str(tmp_path / "h"), "ZEROCHAT_PROFILE": "alice"}
    for words, expected in ((["--check"], code), ([], 0)):
        done = subprocess.run(
            [sys.executable, "-m", "zerochat", "status", "--format", "json", *words],
            env=environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode == expected and json.loads(done.stdout)["pid"] == 4242


@pytest.mark.parametrize(("sends", "state"), [("mediator", "ok"), ("nothing", "fail")])
def test_an_agent_that_sends_through_its_mediators_alone(home, fake_agent, sends, state):
    fake_agent(path=home.socket, get_status=lambda _: replace(STATUS, hidden=True, sends=sends))
    found, text, remedy = checked(home, "reach")["reach"]
    assert found == state and ("Nothing is sent" in text) == (sends == "nothing") == ("route add" in remedy)


@pytest.mark.slow
def test_an_unreachable_address_is_found(home, fake_agent):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"zmq+tcp://127.0.0.1:{free.getsockname()[1]}"  # bound, and nobody listens
        fake_agent(path=home.socket, get_status=lambda _: STATUS.__class__(**{**as_struct(STATUS), "pair": where}))
        state, text, remedy = checked(home, "reach")["reach"]
    assert state == "fail" and where in text and "firewall" in remedy


@pytest.mark.parametrize(
    ("why", "said"), [("near", "nearer than"), ("failed", "just failed"), ("unproved", "not answered")]
)
def test_held_mail_is_shown(home, fake_agent, tmp_path, why, said):
    held = [HeldMail("g", f"Bob\x1b{number}", "http://127.0.0.1:1/", why) for number in range(7)]
    fake_agent(path=home.socket, get_status=lambda _: STATUS.__class__(**{**as_struct(STATUS), "held_mail": held}))
    state, _, _ = checked(home, "mail")["mail"]
    assert state == "warn"
    environment = {**os.environ, "ZEROCHAT_HOME": str(tmp_path / "h"), "ZEROCHAT_PROFILE": "alice"}
    _, out, _ = doctor(environment, "mail")
    assert said in out and "2 further members" in out and "\x1b" not in out
    done = subprocess.run(
        [sys.executable, "-m", "zerochat", "status"], env=environment, capture_output=True, text=True, check=False
    )
    assert "held mail" in done.stdout and "\x1b" not in done.stdout


def test_the_versions_that_are_needed_are_those_of_the_package():
    from importlib import metadata

    from zerochat.agent.doctor.machine_checks import _needed, _numbers

    needed = dict(_needed())
    try:
        metadata.version("zerochat")
    except metadata.PackageNotFoundError:
        pytest.skip("zerochat is not installed as a package here")
    assert {"aiohttp", "apsw-sqlite3mc", "pyzmq", "textual"} <= needed.keys() and "pyspark" not in needed
    assert _numbers(needed["textual"]) >= (8, 2)
    assert _numbers("27.1.0rc1") == (27, 1) < _numbers("27.1.1") < _numbers("27.10")
    assert shutil.which("zerochat") is None or needed
