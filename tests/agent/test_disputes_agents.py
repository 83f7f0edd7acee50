"""Cases between whole agents over real sockets, by rules whose times are seconds: whoever withholds a message is upheld
to have done so at every member, whoever is falsely accused answers by itself, and the file alone shows the same."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import Person, until
from zerochat.agent.api.client import AgentError
from zerochat.agent.disputes import accusations, monitor
from zerochat.agent.disputes.case_files import subscriptions
from zerochat.cli import main
from zerochat.crypto.encoding import b64url
from zerochat.evidence.judge import FALSE_ACCUSATION, UPHELD
from zerochat.evidence.messages import parse_data
from zerochat.group.inputs import Received
from zerochat.group.membership import TermsBody
from zerochat.group.tlog import adoption, follower, submission, terms, timers
from zerochat.group.tlog import operator as operating
from zerochat.rpc import CaseInfo

people = test_agent.people
WITHIN_S = 120.0
TIMES = 3_000, 1_000, 1_000, 3_000
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
        (operating, "PLACE_MS", 100),
        (adoption, "SOON_MS", 50),
        (follower, "ASK_MS", 300),
        (follower, "SLACK_MS", 500),
        (submission, "AHEAD_MS", 0),
        (terms, "RANK_MS", 2_000),
        (monitor, "EVERY_MS", 500),
    ):
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, value)


def meet(host: Person, *guests: Person) -> None:
    """A group that keeps a log, by times that its owner has said, in which everybody hears everybody by its rules."""
    host.client.new("friends", keys="sender-key", accountability="ledger", roles="admins")
    for guest in guests:
        guest.client.subscribe()
        guest.client.join(host.client.invite("friends").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.groups()), "joining")
    until(lambda: all(agreed(one) for one in (host, *guests)), "the terms", WITHIN_S)


def agreed(person: Person) -> bool:
    (group,) = person.thread._agent.groups.values()
    rules = adoption.rules_now(group)
    heard = [one.rules for one in group.streams.values()] + [one.rules for one in group.subscribers.values()]
    confirmed = not any(one.accept for one in group.subscribers.values())
    return bool(rules) and len(heard) == 4 and set(heard) == {rules} and confirmed


def deaf_to(person: Person, signatures: set[bytes]) -> None:
    """Of what comes to this agent, the messages with these signatures get lost, each time."""
    transport: Any = person.thread._transport
    poll = transport.poll

    def heard(timeout: int) -> Any:
        found, ready = poll(timeout)
        return [one for one in found if not isinstance(one, Received) or one.envelope[-64:] not in signatures], ready

    transport.poll = heard


def last_message(person: Person) -> Any:
    (group,) = person.thread._agent.groups.values()
    assert group.stream is not None
    return group.stream


def told(capsys: Any, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    code = main([*arguments, "--format", "jsonl"])
    captured = capsys.readouterr()
    return code, [json.loads(line) for line in captured.out.splitlines()], captured.err


def accused(by: Person) -> CaseInfo | None:
    """The accusation of alice, as soon as it can be made."""
    try:
        return by.client.accuse("friends", "alice")
    except AgentError as error:
        if error.code not in ("TooEarly", "NothingMissing"):
            raise
        return None


def known(person: Person) -> list[tuple[str, str]]:
    return [(one.accused.nick if one.accused else "", one.verdict) for one in person.client.cases("friends")]


def judged_elsewhere(file: Any) -> tuple[int, str]:
    found = subprocess.run(
        [sys.executable, "-P", "-c", JUDGE, str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    return found.returncode, json.loads(found.stdout)["delivery"]


@pytest.mark.slow
def test_whoever_withholds_a_message_is_found_out_by_everybody(
    people: Any, quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any
) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    (me,) = {group.me for group in alice.client.groups()}
    lost: set[bytes] = set()
    deaf_to(bob, lost)
    look = submission.look

    def posts_nothing(turn: Any, name: str, origin: str) -> None:
        """Alice's agent cheats: what bob has not acknowledged, it does not post."""
        if turn.group(name).me != me:
            look(turn, name, origin)

    monkeypatch.setattr(submission, "look", posts_nothing)
    heard = alice.client.send("friends", "everybody hears this")
    until(lambda: "everybody hears this" in bob.texts(), "the first words")
    assert alice.client.wait("friends", heard.id).complete
    with pytest.raises(AgentError) as refused:
        bob.client.accuse("friends", "alice")
    assert refused.value.code == "NothingMissing"
    transport: Any = alice.thread._transport
    perform = transport.perform

    def note(effect: Any) -> None:
        envelope = getattr(effect, "envelope", b"")
        if not lost and len(envelope) > 200 and envelope[40:56] == last_message(alice).alias:
            lost.add(envelope[-64:])
        perform(effect)

    transport.perform = note
    alice.client.send("friends", "not for bob")
    until(lambda: lost, "what is withheld")
    alice.client.send("friends", "for bob too")
    until(lambda: "for bob too" in carol.texts(), "the last words")
    until(lambda: me in next(iter(bob.thread._agent.groups.values())).early, "what names the missing one")

    case = until(lambda: accused(bob), "the accusation", WITHIN_S)
    assert (case.state, case.mine, case.accused.nick) == ("waiting", "accuser", "alice")
    with pytest.raises(AgentError) as again:
        bob.client.accuse("friends", "alice")
    assert again.value.code == "AccusedAlready"
    until(lambda: all(known(one) == [("alice", UPHELD)] for one in (alice, bob, carol)), "the verdict", WITHIN_S)
    assert [(one.nick, one.guilty) for one in carol.client.members("friends") if one.guilty] == [("alice", [UPHELD])]
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
        code, (said,), _ = told(capsys, "case", "friends", case.id[:8], "--out", str(file), *verb)
        assert (code, said) == (0, {"path": str(file), "bytes": file.stat().st_size})
        assert judged_elsewhere(file) == (7, UPHELD)
    for wrong, why in (("case friends zzzzzz --out -", "There is no case"), ("case friends abc --out -", "no case")):
        code, _, said_ = told(capsys, *wrong.split(), "--profile", "carol")
        assert code != 0 and why in said_
    code, _, said_ = told(capsys, "accuse", "friends", "carol", "--profile", "carol")
    assert code != 0 and "cannot accuse yourself" in said_
    code, _, said_ = told(capsys, "accuse", "friends", "bob", "--profile", "carol")
    assert code != 0 and "Nothing is missing" in said_
    (shown,) = carol.client.cases("friends")
    assert [(one.by.nick, one.outcome, one.agrees) for one in shown.told] == [("bob", UPHELD, True)]
    assert (shown.state, shown.mine, shown.answers) == ("decided", "", [])


@pytest.mark.slow
def test_whoever_is_accused_falsely_answers_by_itself_also_after_a_restart(
    people: Any, quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    for text in ("one", "two", "three"):
        sent = alice.client.send("friends", text)
        assert alice.client.wait("friends", sent.id).complete
    until(lambda: "three" in bob.texts(), "the words")
    (group,) = bob.thread._agent.groups.values()
    (me,) = {one.me for one in alice.client.groups()}
    alias = group.streams[me].alias
    alice.sleep()

    def lying(journal: Any, book: Any, group: Any, member: str) -> Any:
        came = parse_data(journal.signed.stream(group.id, member, alias)[-1].message)
        known = subscriptions(journal, group, member, group.me)
        one = [found for found in known if found[1].alias == b64url(alias)][-1]
        rules = next(rules for rules in book.origins(group.id) if rules.digest == one[1].rules)
        yield accusations.Link(came.written(), came, one, rules)

    monkeypatch.setattr(accusations, "missing_links", lying)

    case = until(lambda: accused(bob), "the accusation", WITHIN_S)
    alice.wake()
    until(lambda: alice.client.cases("friends"), "that alice hears of it", WITHIN_S)
    until(lambda: all(known(one)[:1] == [("alice", FALSE_ACCUSATION)] for one in (alice, bob, carol)), "it", WITHIN_S)
    (mine,) = alice.client.cases("friends")
    assert (mine.id, mine.mine, mine.answers) == (case.id, "accused", ["acknowledged"])
    assert not any(one.guilty for one in carol.client.members("friends"))
    file = tmp_path / "false.zcase"
    file.write_bytes(carol.client.case("friends", case.id))
    assert judged_elsewhere(file) == (0, FALSE_ACCUSATION)
