"""First use of the verbs: names like options, pasted mails, backfill in progress."""

import shlex
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.agents import Person, until
from tests.support.cli_harness import ALICE, BOB, CAROL, ENOUGH, HIKERS, INVITATION, SENT, STATUS, event, joining, of
from tests.support.cli_members import CREW, PEOPLE, WORDS
from zerochat.agent.api.client import connect
from zerochat.agent.invitations import pasted_text
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.cli import main
from zerochat.crypto.primitives import ed25519_public, x25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import Invitation
from zerochat.errors import GroupExists, LocalError, UnknownGroup, quoted
from zerochat.presentation import history_rules
from zerochat.rpc import (
    Completeness,
    CreateGroupParams,
    DeliveryReport,
    History,
    HistoryStart,
    JoinGroupParams,
    MemberDelivery,
    MemberReport,
    SafetyWords,
    SendMessageParams,
)

home, agent, run, alone = cli_harness.home, cli_harness.agent, cli_harness.run, cli_harness.alone

STAMP = "2026-07-01T12:04:00.000Z"


# --- where an agent listens -----------------------------------------------------------------------------------------


def started(home: ProfilePaths, **where: Any) -> tuple[str, str]:
    """Start the profile's agent, stop it, and say where peers reached it."""
    with AgentThread(home, unlock(home, None), **where), connect(home, "test") as client:
        found = client.get_status()
    return found.pair, found.queue


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_agent_keeps_its_last_listen_address(tmp_path: Path) -> None:
    """Whoever starts the next one may be a verb, which cannot say so."""
    home = profile_paths("one", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(home, "one", None)
    here = started(home, listen="127.0.0.1")
    assert "127.0.0.1" in here[0] and started(home) == here
    told = started(home, advertise="192.0.2.7")
    assert "192.0.2.7" in told[0] and started(home) == told
    with Journal.open(home.journal, unlock(home, None)) as journal:
        assert journal.meta_get("listen") == b"127.0.0.1", "another address to tell is no other one to listen at"
    assert started(home, listen="127.0.0.2")[0] == started(home)[0] == here[0].replace("127.0.0.1", "127.0.0.2")


def test_an_agent_keeps_its_last_ports(tmp_path: Path) -> None:
    home = profile_paths("one", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(home, "one", None)
    ours = started(home, listen="127.0.0.1")
    wanted = free_port()
    assert started(home, listen=f"127.0.0.1:{wanted}")[0] == started(home)[0] == f"zmq+tcp://127.0.0.1:{wanted}"
    assert started(home, listen="127.0.0.1") == ours


def test_settings_override_the_remembered_address(tmp_path: Path) -> None:
    home = profile_paths("one", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(home, "one", None)
    home.config.write_text('[network]\nlisten = "127.0.0.1"\n')
    assert "127.0.0.2" in started(home, listen="127.0.0.2")[0]
    assert "127.0.0.1" in started(home)[0]
    home.config.unlink()
    with Journal.open(home.journal, unlock(home, None)) as journal:
        assert journal.meta_get("listen") is None, "that was for one run"


def test_status_reports_a_damaged_journal(tmp_path: Path) -> None:
    zoe = Person(tmp_path, "zoe").wake()
    zoe.client.create_group("friends")
    for _ in range(16):
        zoe.client.send_message("friends", "x" * 30_000)
    zoe.sleep()
    path = zoe.places.journal
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2] + bytes(8192) + good[len(good) // 2 + 8192 :])
    zoe.wake()
    try:
        with pytest.raises(LocalError, match="is damaged"):
            zoe.client.get_history("friends")
        warning = zoe.client.get_status().warning
        assert str(path) in warning and "is damaged" in warning
        zoe.client.subscribe(since=0)
        assert zoe.client.get_status().warning == warning, "whoever reads back ends nobody's agent"
    finally:
        zoe.sleep()


def test_status_reports_an_unused_damaged_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    zoe = Person(tmp_path, "zoe").wake()
    zoe.client.create_group("friends")
    for _ in range(4):
        zoe.client.send_message("friends", "x" * 30_000)
    zoe.sleep()
    path = zoe.places.journal
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 4  # in an old message
    path.write_bytes(damaged)
    zoe.wake()
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "zoe"))
    try:
        until(lambda: zoe.client.get_status().damaged, "the damage")
        assert str(path) in zoe.client.get_status().warning
        assert main(["--profile", "zoe", "status", "--check"]) == 7
        zoe.client.create_group("others")
        assert main(["--profile", "zoe", "audit", "others"]) == 7
        out, err = capsys.readouterr()
        assert "valid" in out and "not checked" in out and "is damaged" in err, "all of that group is there"
    finally:
        zoe.sleep()


# --- names that look like options -----------------------------------------------------------------------------------


def test_a_name_with_a_leading_dash_is_no_option() -> None:
    assert quoted("hikers", "a b") == "hikers 'a b'"
    assert quoted("-dash") == "-- -dash" and quoted("hikers", "-b") == "hikers -- -b"
    assert quoted("-dash", "-b c", "d") == "-- -dash '-b c' d"
    assert "`zerochat leave -- -dash`" in GroupExists(group="-dash").sentence()
    assert "Unknown group '-dash'." in UnknownGroup(group="-dash").sentence()


def commands(text: str) -> list[str]:
    return [piece for piece in text.split("`")[1::2] if piece.startswith("zerochat ")]


def test_the_advised_commands_work_for_names_like_options(run, agent) -> None:
    dashed = replace(HIKERS, name="-dash", warnings=[], votes=[])
    words = SafetyWords(group="GROUPID", did=BOB, nick="-bob", words=WORDS, trust="unverified")
    people = [PEOPLE[0], replace(PEOPLE[1], nick="-bob", trust="changed")]
    served = agent(
        create_group=lambda _: dashed, create_invitation=lambda _: INVITATION, list_groups=lambda _: [dashed]
    )
    served.answers |= {
        "list_members": lambda _: people,
        "get_safety_words": lambda _: words,
        "dismiss_warnings": lambda _: dashed,
    }
    code, _, err = run(["new", "--", "-dash"])
    (invite,) = commands(err)
    assert (code, invite) == (0, "zerochat invite -- -dash")
    assert of(served, "create_group")[0].group == "-dash"
    assert run(shlex.split(invite)[1:])[0] == 0 and of(served, "create_invitation")[0].group == "-dash"
    _, _, err = run(["members", "--", "-dash"])
    (verify,) = commands(err)
    assert verify == "zerochat verify -- -dash -bob"
    code, _, err = run(shlex.split(verify)[1:])
    (mark,) = commands(err)
    assert (code, mark) == (0, "zerochat verify --mark -- -dash -bob")
    served.answers["verify_member"] = lambda _: people[1]
    assert run(shlex.split(mark)[1:])[0] == 0 and of(served, "verify_member")[0].verified


# --- a history on its way ---------------------------------------------------------------------------------------------

WHOLE = Completeness(
    complete=True,
    upto=9,
    upto_at=STAMP,
    at=STAMP,
    members=[MemberReport(did=BOB, nick="bob", at=STAMP, present=True)],
    gaps=[],
    waiting=0,
)
ON_ITS_WAY = replace(
    HIKERS, completeness=WHOLE, history_start=HistoryStart(state="fetching", rules=["all", "all"], remaining=65)
)
HELD_BACK = replace(
    HIKERS, completeness=WHOLE, history_start=HistoryStart(state="withheld", rules=["last:2", "all"], received=2)
)


def test_incomplete_history_is_not_called_complete(run, agent) -> None:
    served = agent(get_status=lambda _: replace(STATUS, groups=[ON_ITS_WAY]), list_members=lambda _: PEOPLE)
    served.answers["list_groups"] = lambda _: [ON_ITS_WAY]
    for line in ("status", "members hikers", "info hikers"):
        assert "complete since you joined, with bob as of" in run(line)[1], line
    served.answers["list_groups"] = lambda _: [HELD_BACK]
    assert "complete with bob as of" in run("info hikers")[1]


def test_history_explains_where_it_begins(run, agent) -> None:
    served = agent(get_history=lambda _: History([event(5), event(6)], more=False))
    for group, said in (
        (HIKERS, ""),
        (ON_ITS_WAY, "Fetching earlier messages: 0 received, 65 to go.\n"),
        (HELD_BACK, "You have the last 2 messages before you joined.\n"),
    ):
        served.answers["list_groups"] = lambda _, group=group: [group]
        assert run("history hikers")[2] == run("history hikers --all")[2] == said
        assert run("history hikers -n 2")[2] == "", "what was said before these is not asked for"
        assert run("history hikers --format jsonl")[2] == ""


def test_messages_withheld_by_rules_are_not_promised() -> None:
    assert history_rules.backfill_progress(
        HistoryStart(state="fetching", rules=["last:2", "all"], received=3, remaining=3)
    ) == ("3 received, up to 3 to go")
    assert (
        history_rules.backfill_progress(HistoryStart(state="fetching", rules=["all", "all"], received=3, remaining=3))
        == "3 received, 3 to go"
    )


@pytest.mark.parametrize("line", ["new future", "invite hikers"])
def test_a_history_rule_in_the_future_is_refused(run, agent, line) -> None:
    served = agent(create_group=lambda _: HIKERS, create_invitation=lambda _: INVITATION)
    later = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 3 * 86_400))
    for rule in (later, str(int(time.time() + 3600) * 1000)):
        code, _, err = run(f"{line} --history since:{rule}")
        assert code == 2 and "in the future" in err
    assert of(served, "create_group") == of(served, "create_invitation") == []
    assert run(f"{line} --history since:2026-01-01")[0] == 0
    assert all(
        not isinstance(one, CreateGroupParams) or one.history.startswith("since:1")
        for one in of(served, "create_group")
    )


# --- who has a message, and who is to go ------------------------------------------------------------------------------


def test_an_author_has_read_its_own_message(run, agent) -> None:
    members = [
        MemberDelivery(ALICE, "alice", True, "delivered", STAMP, "", "self"),
        MemberDelivery(CAROL, "carol", True, "delivered", None, "", "connected", STAMP),
    ]
    report = DeliveryReport("GROUPID", "EVENTID", 2, 2, True, members, event(5))
    agent(get_delivery=lambda _: report, list_members=lambda _: PEOPLE)
    lines = [line.split() for line in run("delivery hikers EVENTID")[1].splitlines()]
    assert ["alice", "(you)", "here", "2026-07-01", "12:04", "-", "-"] in lines
    assert ["carol", "delivered", "-", "-", "2026-07-01", "12:04"] in lines


def test_votes_to_remove_a_member_are_shown(run, agent) -> None:
    served = agent(get_status=lambda _: replace(STATUS, groups=[CREW]), list_members=lambda _: PEOPLE)
    served.answers["list_groups"] = lambda _: [CREW]
    for line in ("status", "members hikers"):
        assert "vote to remove carol␛: 1 of 2 votes, including yours" in run(line)[1], line
    served.answers["list_groups"] = lambda _: [replace(CREW, votes=[])]
    assert "vote to remove" not in run("members hikers")[1]


@pytest.mark.parametrize(("others", "said"), [(1, "the other member"), (2, "all 2 other members")])
def test_the_others_are_counted(run, alone, others, said) -> None:
    alone["send_message"] = lambda _: replace(SENT, of=others)
    alone["wait_for_delivery"] = lambda _: replace(ENOUGH, delivered=others, of=others)
    assert run("send hikers -m hello")[2] == f"Delivered to {said}.\n"


# --- what is read from elsewhere --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["send hikers -m -", "send hikers --message=-", "send hikers"])
@pytest.mark.parametrize("tty", [False, True])
def test_a_dash_is_standard_input(run, agent, line, tty) -> None:
    served = agent(send_message=lambda _: SENT)
    code = run(line, stdin=b"from a pipe\n", tty=tty)[0]
    assert of(served, "send_message") == (
        [] if tty and line == "send hikers" else [SendMessageParams("hikers", "from a pipe")]
    )
    assert (code == 2) is (not of(served, "send_message"))


def made(number: int) -> Invitation:
    seed = bytes([number]) * 32
    return Invitation(seed[:16], ed25519_public(seed), x25519_public(seed), Endpoint("127.0.0.1", 4242), 2**31)


LINK, CODE, SHORT = made(1).url(), made(1).code(), "http://127.0.0.1:8080/?_oobid=abcd"
SEALED = "http://127.0.0.1:8080/?_oobid=FYUwF922a3GzH8lu#n6EJjxP9wAjbqaD_e8kekQ"
LINES = [LINK[at : at + 70] for at in range(0, len(LINK), 70)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LINK, LINK),
        (f"here it is: {LINK} see you", LINK),
        (f"Here (<{LINK}>), as you said.", LINK),
        ("> " + LINK, LINK),
        ("Alice wrote:\n" + "\n".join(f"> > {line}" for line in LINES) + "\n> > see you\n", LINK),
        ("\n".join(LINES) + "\nsee https://example.org/ too", LINK),
        (f'Take "{CODE}".', CODE),
        (f"link   {LINK}\ncode   {CODE}\nshort  {SHORT}\ngood   once\n", LINK),
        (f"{LINK}\n\n{LINK}", LINK),
        (f"it is behind {SHORT}.", SHORT),
        (f"Join us: {SEALED}, it is nice", SEALED),
        (f"> {SEALED[:40]}\n> {SEALED[40:66]}\n> {SEALED[66:]}\nsee you", SEALED),
        (f"short  {SEALED}\nlink   {LINK}", LINK),
        ("nothing at all", "nothing at all"),
        (f"cut off: {LINK[:200]} sorry", LINK[:200]),
    ],
)
def test_an_invitation_is_found_in_pasted_text(text, found) -> None:
    assert pasted_text.only_invitation(text) == found


@pytest.mark.parametrize(
    ("endpoint", "code", "local"),
    [
        ("zmq+tcp://192.168.1.5:4242", CODE, True),
        ("zmq+tcp://[fd00::1]:4242", CODE, True),
        ("zmq+tcp://192.168.1.5:4242", "", False),
        ("zmq+tcp://203.0.113.7:4242", CODE, False),
        ("https://relay.example/", CODE, False),
    ],
)
def test_an_address_of_the_home_network_is_named(run, agent, endpoint, code, local) -> None:
    """The inviter learns before the invitation is handed out that people elsewhere cannot use it."""
    agent(create_invitation=lambda _: replace(INVITATION, endpoint=endpoint, code=code))
    assert ("of your local network" in run("invite hikers")[2]) is local


def test_two_invitations_at_once_are_refused(run, agent) -> None:
    served = agent(join_group=lambda _: joining("joined", "You are in."))
    other = made(2).url()
    code, _, err = run("join -", stdin=f"{LINK} or {other}".encode())
    one, two = err.split("…")[1:4:2]
    assert code == 1 and one in LINK and two in other and one not in other and two not in LINK
    assert of(served, "join_group") == []
    run("join -", stdin=f"> here it is: {LINK} see you\n".encode())
    assert of(served, "join_group") == [JoinGroupParams(LINK, None, "writer")]


# --- before there is a profile --------------------------------------------------------------------------------------


def test_an_invalid_link_is_reported_before_a_missing_profile(home: Path, run: Any) -> None:
    for verb, why in (("join", "it is neither a link nor a code"), ("connect", "it is not a link")):
        code, out, err = run([verb, "nonsense"])
        assert (code, out) == (1, "") and why in err and "profile" not in err
    code, out, err = run(["join", LINK])
    assert (code, out) == (6, "") and "zerochat init" in err
    assert not home.exists()
