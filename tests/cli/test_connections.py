"""Verbs for single peers and for connections outside of groups."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cli_harness import (
    ARCHIVE,
    KEY,
    RELAY,
    STATUS,
    of,
)
from zerochat.rpc import (
    ConnectionInfo,
    ConnectionMessage,
    ConnectionNotification,
    ConnectionOffer,
    FeatureInfo,
    FeaturesNotification,
    NoParams,
    OfferConnectionParams,
    OpenConnectionParams,
    PeerParams,
    PendingReply,
    PongNotification,
    ProblemNotification,
    QueryFeaturesParams,
    RotateParams,
    SendConnectionMessageParams,
    SentConnectionMessage,
    SettingInfo,
)

agent, alone, home, run, usual = (
    cli_harness.agent,
    cli_harness.alone,
    cli_harness.home,
    cli_harness.run,
    cli_harness.usual,
)


# --- single peers -----------------------------------------------------------------------------------------------------

PONG = PongNotification(
    thread="T",
    peer="bob\x1b[2J",
    rtt_ms=12,
    envelope="didcomm/v2 authcrypt",
    their_key=KEY,
    my_key="Dk4CexRfc0019VerkeyWithoutAnyDid",
    channel="mediator",
)


def with_news(served: Callable[[], Any], answer: Any, *news: tuple[str, Any]) -> Callable[[Any], Any]:
    """An answer that is followed by these news."""

    def both(params: Any) -> Any:
        for client in served().subscribers:
            for method, item in news:
                served().server.notify([client], method, item)
        return answer

    return both


@pytest.fixture
def curious(agent, monkeypatch) -> Any:
    """An agent whose peers answer at once, and twice: what answers another question is not taken for an answer."""
    monkeypatch.setattr("zerochat.cli.verbs.ping.PAUSE_S", 0.0)
    served = agent(rotate_did=lambda _: NoParams(), list_connections=lambda _: [ARCHIVE])
    strange = [("pong", replace(PONG, thread="U", rtt_ms=9_999)), ("features", FeaturesNotification("U", "bob", []))]
    found = FeaturesNotification(
        "T", "bob", [FeatureInfo("protocol", "https://x/\x1b]0;1\x07\n/1.0"), FeatureInfo("header", "h")]
    )
    served.answers["ping_peer"] = with_news(lambda: served, PendingReply("T"), *strange, ("pong", PONG))
    served.answers["query_features"] = with_news(lambda: served, PendingReply("T"), *strange, ("features", found))
    return served


def test_ping_explains_the_strength_of_its_answer(run, curious) -> None:
    code, out, err = run("ping hikers/bob --count 3")
    assert code == 0
    assert (
        out
        == """\
bob␛[2J: seq=1 time=12 ms, via mediator
  envelope   didcomm/v2 authcrypt
  their key  did:peer:4zQmV…ng7xQp#key-2
  my key     Dk4CexRfc0019V…AnyDid
bob␛[2J: seq=2 time=12 ms, via mediator
bob␛[2J: seq=3 time=12 ms, via mediator
"""
    )
    assert err == "3 sent, 3 answered, 12 to 12 ms.\n"
    told = json.loads(run("ping bob --format jsonl")[1])
    assert (told["their_key"], told["channel"], told["rtt_ms"]) == (KEY, "mediator", 12)
    assert of(curious, "ping_peer") == [PeerParams("hikers/bob")] * 3 + [PeerParams("bob")]


def test_a_peer_that_does_not_answer(run, curious) -> None:
    problem = ProblemNotification("bob", "e.p.me.res\x1b", "too\nbusy")
    curious.answers["ping_peer"] = with_news(lambda: curious, PendingReply("T"), ("problem_report", problem))
    curious.answers["query_features"] = lambda _: PendingReply("T")
    code, out, err = run("ping bob --count 2 --timeout 0.05")
    assert (code, out) == (5, "")
    assert err.splitlines()[:2] == [
        "bob reports a problem: too⏎busy (e.p.me.res␛)",
        "No answer from bob within 0.05 s.",
    ]
    assert err.endswith("2 sent, 0 answered.\n")
    code, out, err = run("features bob --timeout 0.05")
    assert (code, out, err) == (5, "", "No answer from bob within 0.05 s.\n")


def test_features_are_listed(run, curious) -> None:
    code, out, err = run(["features", "bob", "https://x/*"])
    assert (code, err) == (0, "")
    assert out == "protocol  https://x/␛]0;1␇⏎/1.0\nheader    h\n"
    assert json.loads(run("features bob --format jsonl")[1].splitlines()[1]) == {"type": "header", "id": "h"}
    assert of(curious, "query_features") == [QueryFeaturesParams("bob", "https://x/*"), QueryFeaturesParams("bob", "*")]
    curious.answers["query_features"] = with_news(
        lambda: curious, PendingReply("T"), ("features", FeaturesNotification("T", "bob", []))
    )
    assert run("features bob") == (0, "", "bob discloses no matching protocol.\n")


def test_rotate_explains_its_effect(run, curious) -> None:
    code, out, err = run("rotate bob")
    assert (code, out) == (0, "")
    assert "new DID" in err and "The old one is dropped" in err
    assert json.loads(run("rotate bob --format jsonl")[1]) == {"peer": "bob"}
    assert of(curious, "rotate_did") == [RotateParams("bob"), RotateParams("bob")]
    assert "again at that interval" in run("rotate bob --every 7d")[2]
    assert "on request only" in run("rotate bob --every never")[2]
    assert of(curious, "rotate_did")[2:] == [RotateParams("bob", 604_800), RotateParams("bob", 0)]
    for wrong in ("59m", "367d", "7", "x"):
        assert run(f"rotate bob --every {wrong}")[0] == 2
    assert "towards archive⏎2." in run("rotate CONN")[2]


def test_an_agent_that_has_just_started_waits_for_the_peer(run, alone) -> None:
    from zerochat.group.external.standard_protocols import NotConnected

    tries = iter([True, False])

    def ping(params: Any) -> Any:
        if next(tries, True):
            raise NotConnected(peer="bob")
        return with_news(lambda: alone["agent"], PendingReply("T"), ("pong", PONG))(params)

    alone["ping_peer"] = ping
    code, out, _ = run("ping bob --timeout 5")
    assert (code, out.splitlines()[0]) == (0, "bob␛[2J: seq=1 time=12 ms, via mediator")
    code, out, err = run("ping bob --timeout 0.1")
    assert (code, out) == (1, "") and "bob cannot be reached" in err


# --- connections ------------------------------------------------------------------------------------------------------


def connecting(served: Any, *states: Any) -> None:
    """Each look at the connections finds the next of these states of one; the last for ever; None: it is gone."""
    begun, *later = states
    looks, now = iter(later), [begun]

    def look(_: Any) -> list[ConnectionInfo]:
        now[0] = next(looks, now[0])
        return [one for one in (RELAY, now[0]) if one is not None]

    served.answers["open_connection"] = with_news(
        lambda: served, begun, ("connection_changed", ConnectionNotification(connection=begun.id, text="…"))
    )
    served.answers["list_connections"] = look


@pytest.mark.parametrize(
    ("verb", "states", "code", "said"),
    [
        ("connect", [{"state": "requested"}, {"state": "requested"}, {}], 0, "Connected with archive⏎2"),
        ("connect", [{"state": "requested"}], 5, "No answer from archive⏎2 yet"),
        ("connect", [{"state": "requested"}, {"state": "ended"}], 1, "The peer has ended"),
        ("connect", [{"state": "requested"}, None], 1, "The peer has ended"),
        ("route add", [{"mediator": "requested"}, {"mediator": "granted"}], 0, "now stores messages for you"),
        ("route add", [{"mediator": "requested"}, {"mediator": "denied"}], 1, "has denied mediation"),
        ("route add", [{"mediator": "requested"}], 5, "The agent keeps asking"),
    ],
)
def test_connecting_waits_until_it_is_settled(run, agent, monkeypatch, verb, states, code, said) -> None:
    monkeypatch.setattr("zerochat.cli.verbs.connections.POLL_S", 0.01)
    served = agent()
    connecting(served, *(state and replace(ARCHIVE, **state) if state != {} else ARCHIVE for state in states))
    ended, out, err = run([*verb.split(), "-", "--name", "A", "--timeout", "0.2"], stdin=b" https://x/?_oob=e30 \n")
    assert ended == code
    assert out == ("" if code == 1 and "denied" not in str(states) else "CONNECTION\n")
    assert said in err
    assert of(served, "open_connection") == [OpenConnectionParams("https://x/?_oob=e30", "A", verb == "route add")]


def test_connections_are_listed(run, agent) -> None:
    from msgspec.structs import replace

    served = agent(list_connections=lambda _: [ARCHIVE, RELAY])
    assert run("connections") == (
        0,
        """\
NAME       STATE        ENVELOPE    MEDIATOR   DID                    ID
archive⏎2  established  didcomm/v1  -          did:peer:4zQmV…ng7xQp  CONNECTION
relay      requested    didcomm/v2  requested  -                      RELAYID
""",
        "",
    )
    assert run("route") == (0, "NAME   STATE          ID\nrelay  no answer yet  RELAYID\n", "")
    granted = replace(
        RELAY, mediator="granted", reachable=False, label="did:peer:4zQmVabc", did="did:peer:4zQmVabc" + "d" * 40
    )
    served.answers["list_connections"] = lambda _: [granted]
    assert "did:peer:4zQmV…dddddd  unreachable" in run("route")[1]
    served.answers["list_connections"] = lambda _: [replace(granted, reachable=True)]
    assert " active " in run("route")[1]
    served.answers["list_connections"] = lambda _: [ARCHIVE, RELAY]
    assert [json.loads(line)["id"] for line in run("connections --format jsonl")[1].splitlines()] == [
        "CONNECTION",
        "RELAYID",
    ]
    assert json.loads(run("route --format jsonl")[1])["mediator"] == "requested"
    served.answers["list_connections"] = lambda _: []
    assert run("connections")[1] == run("route")[1] == ""


def test_only_an_own_invitation_takes_an_expiry(run, agent) -> None:
    served = agent()
    code, _, err = run("connect - --expires 1h", stdin=b"https://x/?_oob=e30")
    assert code == 2 and "--invite" in err and of(served, "open_connection") == []


def test_an_offer_is_a_link_and_a_qr_code(run, agent, monkeypatch) -> None:
    offer = ConnectionOffer(url="https://zerochat.org/?_oob=e30", expires_at="2026-07-02T12:04:00.000Z", connection="C")
    served = agent(offer_connection=lambda _: offer)
    assert run("connect --invite --envelope didcomm/v1 --expires 1h")[1] == (
        "link   https://zerochat.org/?_oob=e30\nvalid  one use, until 2026-07-02 12:04\n"
    )
    assert run("connect --invite --format url") == (0, offer.url + "\n", "")
    code, out, _ = run("connect --invite --format qr")
    assert code == 0 and out.startswith(offer.url + "\n\n\x1b[30;107m")
    assert json.loads(run("connect --invite --name archive --format json")[1])["connection"] == "C"
    assert of(served, "offer_connection")[0] == OfferConnectionParams("didcomm/v1", 3_600)
    assert of(served, "offer_connection")[1] == OfferConnectionParams("didcomm/v2", 86_400)
    assert of(served, "offer_connection")[-1] == OfferConnectionParams("didcomm/v2", 86_400, "archive")
    assert run("connect --invite --curve P-384 --format url")[0] == 0
    assert of(served, "offer_connection")[-1] == OfferConnectionParams("didcomm/v2", 86_400, "", "P-384")
    assert run("connect --invite --curve P-384 --envelope didcomm/v1")[0] == 2
    assert run("connect --curve P-384 https://example.com/?_oobid=x")[0] == 2
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    code, out, err = run("connect --invite --format qr")
    assert (code, out) == (0, offer.url + "\n\n") and "needs a terminal of" in err


def test_sending_a_message_and_disconnecting(run, agent) -> None:
    served = agent(
        send_connection_message=lambda _: SentConnectionMessage("M"),
        list_connection_messages=lambda _: [],
        close_connection=lambda _: NoParams(),
        list_connections=lambda _: [ARCHIVE, RELAY],
    )
    assert run(["message", "archive 2", "keep it"]) == (0, "M\n", "")
    assert run("message archive -", stdin=b"piped\n")[0] == run("message archive", stdin=b"piped\n")[0] == 0
    code, _, err = run("message archive", stdin=b" ")
    assert code == 2 and "`zerochat message --help`" in err
    assert run(["message", "-bcdefghijkl", "-abc"])[0] == run("message -- --cdefghijkl x")[0] == 0
    assert of(served, "send_connection_message") == [
        SendConnectionMessageParams("archive 2", "keep it"),
        *[SendConnectionMessageParams("archive", "piped")] * 2,
        SendConnectionMessageParams("-bcdefghijkl", "-abc"),
        SendConnectionMessageParams("--cdefghijkl", "x"),
    ]
    assert run("disconnect CONNECTION")[0] == 2
    code, out, err = run("disconnect CONNECTION", stdin=b"\n", tty=True)
    assert (code, out) == (1, "") and "[y/N]" in err
    assert of(served, "close_connection") == []
    assert run("disconnect CONNECTION", stdin=b"y\n", tty=True)[0] == 0
    assert "Ended the connection with archive⏎2." in run("disconnect CONNECTION --yes")[2]
    code, _, err = run(["route", "remove", "archive 2"])
    assert code == 1 and "You have no mediator archive 2" in err
    code, _, err = run("route remove RELA")
    assert code == 0 and err == "Removed the mediator relay; the members of your groups are notified.\n"
    served.answers["list_groups"] = lambda _: []
    assert run("route remove relay") == (0, "", "Removed the mediator relay.\n")
    whom = [params.peer for params in of(served, "close_connection")]
    assert whom == ["CONNECTION", "CONNECTION", "RELAYID", "RELAYID"]


def test_mediators_are_asked_for_delays(run, agent) -> None:
    served = agent(
        change_setting=lambda params: SettingInfo(params.name, params.value, "profile"),
        reload_settings=lambda _: NoParams(),
    )
    code, out, _ = run("route delay 300 --exact --mix 50")
    assert code == 0 and "network.mail_delay = 300" in out
    assert run("route delay 0")[0] == 0
    changed = [(params.name, params.value) for params in of(served, "change_setting")]
    names = ["network.mail_mix", "network.mail_delay_random", "network.mail_delay"]
    assert changed == [*zip(names, ("50", "false", "300"), strict=True), *zip(names, ("0", "true", "0"), strict=True)]
    assert len(of(served, "reload_settings")) == 2


def test_removing_the_last_mediator_of_a_hidden_agent_is_warned_of(run, agent) -> None:
    hidden = replace(STATUS, hidden=True, sends="nothing")
    served = agent(
        close_connection=lambda _: NoParams(), list_connections=lambda _: [RELAY], get_status=lambda _: hidden
    )
    code, _, err = run("route remove relay")
    assert code == 0
    assert err.startswith("Removed the mediator relay. Nothing can leave until there is a route")
    assert "`zerochat route add LINK`" in err and "notified" not in err
    served.answers["get_status"] = lambda _: replace(hidden, mediators=[RELAY])
    assert run("route remove relay")[2] == "Removed the mediator relay; the members of your groups are notified.\n"


def test_messages_of_a_connection_are_listed(run, agent) -> None:
    kept = [
        ConnectionMessage("1", "2026-07-01T12:04:00.000Z", False, "two\nlines\x1b"),
        ConnectionMessage("2", "x", True, "keep it"),
        ConnectionMessage("3", "x", True, "later", "waiting"),
        ConnectionMessage("4", "x", True, "lost", "failed"),
        ConnectionMessage("5", "x", False, "see", attachments=["plan\x1b.pdf", ""]),
        ConnectionMessage("6", "x", False, "", attachments=["only this"]),
    ]
    served = agent(list_connection_messages=lambda _: kept, list_connections=lambda _: [ARCHIVE])
    assert run("messages CONN")[1] == (
        "2026-07-01 12:04  archive⏎2: two\n                  lines␛\n????-??-?? ??:??  you: keep it\n"
        "????-??-?? ??:??  you (waiting): later\n????-??-?? ??:??  you (not delivered): lost\n"
        "????-??-?? ??:??  archive⏎2: see\n"
        "                  [attachment: plan␛.pdf; not kept]\n"
        "                  [attachment: without a name; not kept]\n"
        "????-??-?? ??:??  archive⏎2: [attachment: only this; not kept]\n"
    )
    assert of(served, "list_connection_messages") == [PeerParams("CONN")]


def test_a_stored_message_counts_as_queued_when_its_state_is_unknown(run, agent) -> None:
    from zerochat.group.external.standard_protocols import NotConnected

    def gone(_: object) -> list[ConnectionMessage]:
        raise NotConnected(peer="archive")

    agent(send_connection_message=lambda _: SentConnectionMessage("M"), list_connection_messages=gone)
    code, out, err = run("message archive x")
    assert (code, out) == (3, "M\n") and "do not send it again" in err


@pytest.mark.parametrize("own", [True, False], ids=["temporary agent", "running agent"])
@pytest.mark.parametrize(
    ("status", "code", "said"),
    [("delivered", 0, ""), ("waiting", 3, "is queued and goes out"), ("failed", 1, "refused the message")],
)
def test_message_waits_until_the_peer_has_accepted_it(run, agent, alone, monkeypatch, own, status, code, said) -> None:
    monkeypatch.setattr("zerochat.cli.verbs.connections.DELIVERY_S_MAX", 0.05 if status == "waiting" else 5.0)
    lists = iter(["waiting", status, status])

    def kept(_: object) -> list[ConnectionMessage]:
        return [ConnectionMessage("M", "x", True, "x", next(lists, status))]

    answers = {"send_connection_message": lambda _: SentConnectionMessage("M"), "list_connection_messages": kept}
    if own:
        alone.update(answers)
    else:
        agent(**answers)
    ended, out, err = run("message archive x")
    assert (ended, out) == (code, "M\n") and said in err
    assert ("zerochat agent" in err) == (own and status == "waiting")
