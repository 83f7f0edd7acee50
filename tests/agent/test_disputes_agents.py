"""Disputes between whole agents over real sockets, with deadlines in seconds."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, until
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.disputes import accusations, monitor
from zerochat.agent.disputes.case_files import subscriptions
from zerochat.cli import main
from zerochat.crypto.encoding import b64url
from zerochat.evidence.judge import FALSE_ACCUSATION, UPHELD
from zerochat.evidence.messages import parse_data
from zerochat.group.inputs import Received
from zerochat.group.membership import TermsBody
from zerochat.group.tlog import adoption, follower, operator, submission, terms, timers
from zerochat.rpc import CaseInfo

people = agents.people
WITHIN_S = 120.0
TIMES = 6_000, 2_000, 2_000, 6_000
"""Milliseconds: to acknowledge, so much before that it is posted, clocks may be off, and to answer."""
JUDGE = "import sys; from zerochat.cli import main; sys.exit(main(['judge', sys.argv[1], '--format', 'jsonl']))"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules whose times are seconds, and rounds that are as short."""

    def body(operator: str, witnesses: tuple[str, ...], *times: int) -> TermsBody:
        return TermsBody(operator, witnesses, *(times or TIMES))

    monkeypatch.setattr(terms, "TermsBody", body)
    for module, name, value in (
        (timers, "ROUND_MS", 400),
        (operator, "BATCH_MS", 100),
        (adoption, "FIRST_ROUND_MS", 50),
        (follower, "REQUEST_INTERVAL_MS", 300),
        (follower, "SLACK_MS", 500),
        (submission, "SUBMIT_EARLY_MS", 0),
        (terms, "RANK_MS", 2_000),
        (monitor, "REVIEW_MS", 500),
    ):
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, value)


def meet(host: Person, *guests: Person) -> None:
    """A group with a transparency log and its owner's deadlines, in which all members subscribe to each other."""
    host.client.create_group("friends", keys="sender-key", accountability="tlog", roles="admins")
    for guest in guests:
        guest.client.subscribe()
        guest.client.join_group(host.client.create_invitation("friends").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")
    until(lambda: all(agreed(one) for one in (host, *guests)), "the terms", WITHIN_S)


def agreed(person: Person) -> bool:
    (group,) = person.thread.loop.agent.groups.values()
    rules = adoption.current_rules(group)
    heard = [one.rules for one in group.streams.followed.values()] + [
        one.rules for one in group.streams.subscribers.values()
    ]
    confirmed = not any(one.accept for one in group.streams.subscribers.values())
    return bool(rules) and len(heard) == 4 and set(heard) == {rules} and confirmed


def deaf_to(person: Person, signatures: set[bytes]) -> None:
    """Drop the messages with these signatures on their way to this agent, every time."""
    transport: Any = person.thread.loop.transport
    poll = transport.poll

    def heard(timeout: int, *limits: int) -> Any:
        found, ready = poll(timeout, *limits)
        return [one for one in found if not isinstance(one, Received) or one.envelope[-64:] not in signatures], ready

    transport.poll = heard


def last_message(person: Person) -> Any:
    (group,) = person.thread.loop.agent.groups.values()
    assert group.streams.own is not None
    return group.streams.own


def told(capsys: Any, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    code = main([*arguments, "--format", "jsonl"])
    captured = capsys.readouterr()
    return code, [json.loads(line) for line in captured.out.splitlines()], captured.err


def accused(by: Person) -> CaseInfo | None:
    """The accusation of alice, as soon as it can be made."""
    try:
        return by.client.accuse_member("friends", "alice")
    except AgentError as error:
        if error.code not in ("TooEarly", "NothingMissing"):
            raise
        return None


def known(person: Person) -> list[tuple[str, str]]:
    return [(one.accused.nick if one.accused else "", one.verdict) for one in person.client.list_cases("friends")]


def judged_elsewhere(file: Any) -> tuple[int, str]:
    found = subprocess.run(
        [sys.executable, "-P", "-c", JUDGE, str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    return found.returncode, json.loads(found.stdout)["delivery"]


@pytest.mark.slow
def test_withholding_is_detected_by_all_agents(
    people: Any, quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any
) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    (me,) = {group.me for group in alice.client.list_groups()}
    lost: set[bytes] = set()
    deaf_to(bob, lost)
    look = submission.query_overdue

    def posts_nothing(tx: Any, name: str, origin: str) -> None:
        """Alice's agent cheats: it does not post unacknowledged messages."""
        if tx.group(name).me != me:
            look(tx, name, origin)

    monkeypatch.setattr(submission, "query_overdue", posts_nothing)
    heard = alice.client.send_message("friends", "everybody hears this")
    until(lambda: "everybody hears this" in bob.texts(), "the first words")
    assert alice.client.wait_for_delivery("friends", heard.id).complete
    with pytest.raises(AgentError) as refused:
        bob.client.accuse_member("friends", "alice")
    assert refused.value.code == "NothingMissing"
    transport: Any = alice.thread.loop.transport
    perform = transport.perform

    def note(effect: Any) -> None:
        envelope = getattr(effect, "envelope", b"")
        if not lost and len(envelope) > 200 and envelope[40:56] == last_message(alice).alias:
            lost.add(envelope[-64:])
        perform(effect)

    transport.perform = note
    alice.client.send_message("friends", "not for bob")
    until(lambda: lost, "what is withheld")
    alice.client.send_message("friends", "for bob too")
    until(lambda: "for bob too" in carol.texts(), "the last words")
    until(
        lambda: me in next(iter(bob.thread.loop.agent.groups.values())).streams.early_messages,
        "what names the missing one",
    )

    case = until(lambda: accused(bob), "the accusation", WITHIN_S)
    assert (case.state, case.mine, case.accused.nick) == ("waiting", "accuser", "alice")
    with pytest.raises(AgentError) as again:
        bob.client.accuse_member("friends", "alice")
    assert again.value.code == "AlreadyAccused"
    until(lambda: all(known(one) == [("alice", UPHELD)] for one in (alice, bob, carol)), "the verdict", WITHIN_S)
    assert [(one.nick, one.verdicts) for one in carol.client.list_members("friends") if one.verdicts] == [
        ("alice", [UPHELD])
    ]
    for person in (alice, bob, carol):
        monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / person.name))
        verb = ("--profile", person.name)
        code, (shown_here,), _ = told(capsys, "cases", "friends", *verb)
        assert (code, shown_here["id"], shown_here["verdict"]) == (0, case.id, UPHELD)
        assert main(["cases", "friends", *verb]) == 0
        listed = capsys.readouterr().out
        assert case.id[:8] in listed and UPHELD in listed
        assert ("bob accuses alice" if person is carol else "you") in listed
        file = tmp_path / f"{person.name}.zcase"
        code, (said,), _ = told(capsys, "case", "friends", case.id[:8], "--output", str(file), *verb)
        assert (code, said) == (0, {"path": str(file), "bytes": file.stat().st_size})
        assert judged_elsewhere(file) == (7, UPHELD)
    for wrong, why in (
        ("case friends zzzzzz --output -", "No case zzzzzz"),
        ("case friends abc --output -", "No case abc"),
    ):
        code, _, said_ = told(capsys, *wrong.split(), "--profile", "carol")
        assert code != 0 and why in said_
    code, _, said_ = told(capsys, "accuse", "friends", "carol", "--profile", "carol")
    assert code != 0 and "cannot accuse yourself" in said_
    code, _, said_ = told(capsys, "accuse", "friends", "bob", "--profile", "carol")
    assert code != 0 and "No message from bob is missing" in said_
    (shown,) = carol.client.list_cases("friends")
    assert [(one.by.nick, one.outcome, one.agrees) for one in shown.announced] == [("bob", UPHELD, True)]
    assert (shown.state, shown.mine, shown.answers) == ("decided", "", [])


@pytest.mark.slow
def test_false_accusation_is_answered_after_a_restart(
    people: Any, quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    for text in ("one", "two", "three"):
        sent = alice.client.send_message("friends", text)
        assert alice.client.wait_for_delivery("friends", sent.id).complete
    until(lambda: "three" in bob.texts(), "the words")
    (group,) = bob.thread.loop.agent.groups.values()
    (me,) = {one.me for one in alice.client.list_groups()}
    alias = group.streams.followed[me].alias
    alice.sleep()

    def lying(journal: Any, book: Any, group: Any, member: str) -> Any:
        came = parse_data(journal.signed_messages.stream(group.id, member, alias)[-1].message)
        known = subscriptions(journal, group, member, group.me)
        one = [found for found in known if found[1].alias == b64url(alias)][-1]
        rules = next(rules for rules in book.all_rules(group.id) if rules.digest == one[1].rules)
        yield accusations.MissingLink(came.serialize(), came, one, rules)

    monkeypatch.setattr(accusations, "missing_links", lying)

    case = until(lambda: accused(bob), "the accusation", WITHIN_S)
    alice.wake()
    until(lambda: alice.client.list_cases("friends"), "that alice hears of it", WITHIN_S)
    until(lambda: all(known(one)[:1] == [("alice", FALSE_ACCUSATION)] for one in (alice, bob, carol)), "it", WITHIN_S)
    (mine,) = alice.client.list_cases("friends")
    assert (mine.id, mine.mine, mine.answers) == (case.id, "accused", ["acknowledged"])
    assert not any(one.verdicts for one in carol.client.list_members("friends"))
    file = tmp_path / "false.zcase"
    file.write_bytes(carol.client.get_case("friends", case.id))
    assert judged_elsewhere(file) == (0, FALSE_ACCUSATION)
