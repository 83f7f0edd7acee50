"""Protocols shared by all agents: ping, acknowledgements, features, problem reports, messages."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.didcomm.message import Message, dump, parse
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols import STANDARD, ack, basic, bodies, features, ping, problem, standard_answer
from zerochat.didcomm.protocols.features import ANYTHING, Features, Query, matches
from zerochat.didcomm.protocols.problem import (
    ERRORS_MAX,
    ERRORS_WINDOW_S,
    TOO_MANY_ERRORS,
    Breaker,
    begins_with,
    interpolate,
    parse_code,
    problem_v1,
    read_problem,
)
from zerochat.didcomm.v1 import dump_v1, parse_v1
from zerochat.errors import Malformed, RemoteError

ORG = "https://didcomm.org/"
OLD = "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/"


def dice(seed: int = 1) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


def message(kind: str, body: dict[str, Any] | None = None, **headers: Any) -> Message:
    return Message(type=kind, id=headers.pop("id", "m1"), body=body or {}, **headers)


def answer(asked: Message, disclosed: Features = STANDARD, **named: Any) -> Any:
    return standard_answer(asked, disclosed=disclosed, random=dice(), **named)


# --- trust ping -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (ORG + "trust-ping/2.0/ping", ORG + "trust-ping/2.0/ping-response"),
        (ORG + "trust-ping/2.7/ping", ORG + "trust-ping/2.0/ping-response"),
        (ORG + "Trust_Ping/2.0/PING", ORG + "trust-ping/2.0/ping-response"),
        (ORG + "trust_ping/1.0/ping", ORG + "trust_ping/1.0/ping_response"),
        (OLD + "trust_ping/1.0/ping", ORG + "trust_ping/1.0/ping_response"),
    ],
)
def test_a_ping_is_answered_in_its_version(asked, answered):
    reply = answer(message(asked, id="p1"))
    assert (reply.type, reply.thid, reply.body) == (answered, "p1", {})
    assert ping.is_response(reply, to="P1") and not ping.is_response(reply, to="p2")


@pytest.mark.parametrize(
    ("wanted", "answers"), [({}, True), ({"response_requested": None}, True), ({"response_requested": False}, False)]
)
def test_ping_requests_an_answer_by_default(wanted, answers):
    assert (answer(message(ping.PING, wanted)) is not None) == answers


def test_a_ping_with_an_invalid_response_flag_is_refused():
    with pytest.raises(Malformed):
        answer(message(ping.PING, {"response_requested": "false"}))


def test_responses_and_unknown_messages_are_not_answered():
    for kind in (ping.PING_RESPONSE, ping.PING_RESPONSE_V1, features.DISCLOSE, problem.PROBLEM, ORG + "chess/1.0/move"):
        assert answer(message(kind)) is None
    assert answer(message("no type at all")) is None
    assert answer(message(ORG + "trust-ping/3.0/ping")) is None


def test_a_ping_of_ours_survives_the_wire_in_either_format():
    wires: list[tuple[Profile, Any, Any]] = [("didcomm/v2", dump, parse), ("didcomm/v1", dump_v1, parse_v1)]
    for profile, write, read in wires:
        sent = ping.ping(dice(), profile)
        reply = answer(read(write(sent)), profile=profile)
        assert ping.is_response(read(write(reply)), to=sent.id)


# --- empty, and acknowledgements ------------------------------------------------------------------------------------


def test_an_empty_message_is_answered_only_on_request():
    assert answer(ack.empty(dice())) is None
    asking = replace(ack.empty(dice()), please_ack=("",))
    reply = answer(asking)
    assert ack.is_empty(reply) and reply.ack == (asking.id,) and reply.thid == asking.id and not reply.please_ack
    old = answer(asking, profile="didcomm/v1")
    assert old.type == ack.ACK_V1 and old.body == {"status": "OK"} and ack.acknowledged(old) == (asking.id,)
    assert ack.acknowledged(parse_v1(dump_v1(replace(old, ack=())))) == (asking.id,)


def test_an_answer_carries_an_acknowledgement():
    reply = answer(replace(ping.ping(dice()), please_ack=("",), id="p1"))
    assert ping.is_response(reply) and reply.ack == ("p1",)


def test_two_sides_do_not_acknowledge_each_other_endlessly():
    asking = replace(ack.empty(dice()), please_ack=("",))
    first = answer(asking)
    for forced in (first, replace(first, please_ack=("",)), message(ack.ACK_V1, please_ack=("",), thid="m0")):
        assert answer(forced) is None and ack.acks_to_send(forced) == ()
    assert ack.with_ack(replace(asking, id="m2"), ("m1",)).please_ack == ()


def test_acks_are_ordered_and_unique():
    asking = message(ORG + "chess/1.0/move", id="d", please_ack=("c", "a", "x", ""))
    assert ack.acks_to_send(asking, received=["a", "b", "c"]) == ("a", "c", "d")
    assert ack.acks_to_send(asking, received=["a", "b", "c"], done={"a"}) == ("c", "d")
    assert ack.acks_to_send(asking, received=["a"], done={"a", "d"}) == ()
    assert ack.acks_to_send(replace(asking, please_ack=())) == ()


@pytest.mark.parametrize("kind", ["routing/2.0/forward", "routing/1.0/forward"])
def test_a_forward_cannot_request_an_acknowledgement(kind):
    assert ack.acks_to_send(message(ORG + kind, please_ack=("",))) == ()


def test_acknowledgements_are_bounded():
    asking = message(ORG + "chess/1.0/move", id="last", please_ack=tuple(f"m{n}" for n in range(500)))
    owed = ack.acks_to_send(asking, received=[f"m{n}" for n in range(500)])
    assert len(owed) == 64 and owed[-2:] == ("m499", "last")


# --- discover features ----------------------------------------------------------------------------------------------

CHESS = Features(
    protocols=(
        (ORG + "tictactoe/1.0", ("player",)),
        (ORG + "tictactoe/1.1", ()),
        (ORG + "trust-ping/2.0", ("sender", "receiver")),
    ),
    goal_codes=("org.didcomm.sell.goods", "org.example"),
    headers=("accept-lang",),
    max_receive_bytes=524288,
)


@pytest.mark.parametrize(
    ("match", "name", "does"),
    [
        ("*", "anything", True),
        ("*", "", True),
        (ORG + "tictactoe/1.*", ORG + "tictactoe/1.1", True),
        (ORG + "tictactoe/1.*", ORG + "tictactoe/2.1", False),
        (ORG + "tictactoe/1.0", ORG + "tic-tac-toe/1.0", True),
        (ORG + "tictactoe/1.0", ORG + "tictactoe/1.1", False),
        (OLD + "tictactoe/*", ORG + "tictactoe/1.1", True),
        ("org.*.goods", "org.didcomm.sell.goods", True),
        ("org.*.goods", "org.goods", False),
        ("a*a", "a", False),
        ("a*b*a", "aba", True),
        ("ab*ba", "aba", False),
        ("*b*b*", "abc", False),
        ("a.c", "abc", False),
        ("[a-z]*", "abc", False),
        ("org.didcomm", "ORG.DIDCOMM", False),
    ],
)
def test_wildcards(match, name, does):
    assert matches(match, name) is does


def test_query_discloses_matches_only():
    asked = features.queries(dice(), Query("protocol", ORG + "tictactoe/*"), Query("goal-code", "org.didcomm.*"))
    reply = answer(parse(dump(asked)), CHESS)
    assert reply.type == features.DISCLOSE and reply.thid == asked.id
    told = features.read_disclosure(parse(dump(reply)))
    assert sorted(told.protocols) == [(ORG + "tictactoe/1.0", ("player",)), (ORG + "tictactoe/1.1", ())]
    assert told.goal_codes == ("org.didcomm.sell.goods",) and told.headers == () and told.max_receive_bytes is None


def test_feature_types_are_queried_and_unknown_ignored():
    kinds = ("header", "constraint", "gov-fw", "org.example.taste")
    told = features.read_disclosure(answer(features.queries(dice(), *(Query(kind, "*") for kind in kinds)), CHESS))
    assert told == Features(headers=("accept-lang",), max_receive_bytes=524288)


def test_undisclosed_and_absent_features_look_alike():
    asked = features.queries(dice(), Query("protocol", "*tictactoe*"))
    hidden = answer(asked, CHESS.without(ORG + "tictactoe/1.0", ORG + "tictactoe/1.1"))
    assert hidden == answer(asked, Features()) and hidden.body == {"disclosures": []}


def test_the_order_of_an_answer_varies():
    asked = features.queries(dice(), ANYTHING)
    orders = [standard_answer(asked, disclosed=CHESS, random=dice(seed)).body["disclosures"] for seed in range(20)]
    assert len({str(order) for order in orders}) > 3 and len({str(sorted(map(str, order))) for order in orders}) == 1


def test_v1_answers_both_feature_versions():
    reply = answer(parse_v1(dump_v1(features.query_v1(dice(), ORG + "tictactoe/1.0"))), CHESS, profile="didcomm/v1")
    assert reply.type == features.DISCLOSE_V1
    assert reply.body == {"protocols": [{"pid": ORG + "tictactoe/1.0", "roles": ["player"]}]}
    newer = answer(features.queries(dice(), Query("protocol", "*ping*")), CHESS, profile="didcomm/v1")
    assert newer.type == features.DISCLOSURES and len(features.read_disclosure(newer).protocols) == 1


def test_the_drafts_and_other_makers_disclosures_are_read():
    draft = {"protocols": [{"ptid": ORG + "chess/1.0", "roles": None}, {"pid": ORG + "go/1.0"}, {"roles": ["x"]}]}
    assert features.read_disclosure(message(features.DISCLOSE_V1, draft)).protocols == (
        (ORG + "chess/1.0", ()),
        (ORG + "go/1.0", ()),
    )
    limit = [{"feature-type": "constraint", "id": "max_receive_bytes", "value": "65536"}]
    assert features.read_disclosure(message(features.DISCLOSE, {"disclosures": limit})).max_receive_bytes == 65536
    limit = [{"feature-type": "constraint", "id": "max_receive_bytes", "max_receive_bytes": "65536"}]
    assert features.read_disclosure(message(features.DISCLOSE, {"disclosures": limit})).max_receive_bytes == 65536


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (features.QUERIES, {}),
        (features.QUERIES, {"queries": "*"}),
        (features.QUERIES, {"queries": [{"feature-type": "protocol"}]}),
        (features.QUERIES, {"queries": [{"feature-type": "protocol", "match": str(n)} for n in range(33)]}),
        (features.QUERIES, {"queries": [{"feature-type": "protocol", "match": "*" * 9}]}),
        (features.QUERY_V1, {"query": ["*"]}),
        (features.QUERY_V1, {"query": "*" * 4096}),
    ],
)
def test_an_invalid_or_oversized_query_is_refused(kind, body):
    with pytest.raises(Malformed):
        answer(message(kind, body), CHESS)


def test_features_can_be_united():
    both = Features(((ORG + "a/1.0", ()),), ("x",)) | CHESS
    assert len(both.protocols) == 4 and both.goal_codes[0] == "x" and both.max_receive_bytes == 524288
    assert (both | both) == both


# --- problem reports ------------------------------------------------------------------------------------------------


def test_codes():
    code = parse_code("e.p.xfer.cant-use-endpoint")
    assert (code.is_error, code.scope, code.descriptors) == (True, "p", ("xfer", "cant-use-endpoint"))
    assert str(code) == "e.p.xfer.cant-use-endpoint"
    assert parse_code("w.get-pay-details.payment-failed").scope == "get-pay-details"
    assert parse_code("e.p").descriptors == ()
    for known in problem.COMMENTS:
        assert str(parse_code(known)) == known


@pytest.mark.parametrize(
    "text", ["", "e", "e.", "x.p.msg", "e.P.msg", "e.p.a_b", "e.p.-a", "e.p.a-", "e.p..a", "e.p." + "a." * 9 + "a"]
)
def test_invalid_problem_codes(text):
    with pytest.raises(Malformed):
        parse_code(text)
    with pytest.raises(Malformed):
        parse_code("e.p." + "a" * 200)


def test_codes_are_known_by_their_beginning():
    assert begins_with("e.p.xfer.cant-use-endpoint", "e.p.xfer")
    assert not begins_with("e.p.xfers", "e.p.xfer")
    assert begins_with("e.m.me.res.storage.message_too_big", "e.m.me.res.storage.message-too-big")


@pytest.mark.parametrize(
    ("comment", "args", "text"),
    [
        ("Unable to use the {1} endpoint for {2}.", ["A", "B"], "Unable to use the A endpoint for B."),
        ("{2} and {1}, {2}", ["a", "b"], "b and a, b"),
        ("{1} or {2}", ["a"], "a or ?"),
        ("{1}", [None], "?"),
        ("{0} {999} {1", ["a"], "? ? {1, a"),
        ("It failed.", ["a", 7, {"b": 1}], "It failed., a, 7, ?"),
        ("{1}", ["{2}", "x"], "{2}, x"),
        ("", ["a", "b"], "a, b"),
        ("{1.__class__} {}", [], "{1.__class__} {}"),
    ],
)
def test_arguments_go_into_the_sentence(comment, args, text):
    assert interpolate(comment, args) == text


def test_a_sentence_cannot_be_made_to_grow():
    assert len(interpolate("{1}" * 600, ["x" * 100_000] * 16)) == bodies.TEXT_CHARS_MAX


def test_a_report_is_read_as_it_was_written():
    about = message(ORG + "chess/1.0/move", id="m7", thid="t1")
    report = read_problem(
        parse(dump(problem.problem("w.m.xfer.cant-use-endpoint", about, dice(), ["https://x.example"])))
    )
    assert (report.code, report.thread, report.ack) == ("w.m.xfer.cant-use-endpoint", "t1", ("m7",))
    assert report.text == "The endpoint https://x.example cannot be used." and not report.is_error
    assert not report.ends_protocol


V1_REPORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "RFC 0035": ("notification/1.0/problem-report", {"description": {"en": "Too late.", "code": "late"}}),
    "RFC 0035, old": ("report-problem/1.0/problem-report", {"explain-ltxt": "Too late.", "problem-code": "late"}),
    "RFC 0023": ("didexchange/1.0/problem_report", {"problem-code": "late", "explain": "Too late."}),
    "RFC 0434": ("out-of-band/1.1/problem_report", {"description": {"code": "late", "de": "Too late."}}),
}


@pytest.mark.parametrize("name", V1_REPORTS)
def test_reports_of_v1_are_read(name):
    kind, body = V1_REPORTS[name]
    received = message(ORG + kind, body, thid="t1")
    assert problem.is_problem(received)
    report = read_problem(received)
    assert (report.code, report.text, report.thread, report.version) == ("late", "Too late.", "t1", 1)
    assert report.is_error and report.ends_protocol and report.parsed is None


def test_a_report_of_v1_of_ours_is_read_again():
    about = message(ORG + "chess/1.0/move", id="m7", pthid="i1")
    report = read_problem(parse_v1(dump_v1(problem_v1("late", about, "Too late.", dice()))))
    assert (report.code, report.text, report.thread) == ("late", "Too late.", "m7")


def test_reports_are_not_answered_with_reports():
    assert problem.may_report(message(ORG + "chess/1.0/move"))
    for kind in (problem.PROBLEM, problem.PROBLEM_V1, ack.ACK_V1, ORG + "routing/2.0/forward"):
        assert not problem.may_report(message(kind))
    assert not problem.may_report(message(ack.EMPTY, ack=("m0",)))


@pytest.mark.parametrize(
    "body", [{}, {"code": 7}, {"code": "e.p.msg", "args": "x"}, {"code": "e" * 200}, {"code": "e.p", "args": [1] * 17}]
)
def test_an_invalid_report_is_refused(body):
    with pytest.raises(Malformed):
        read_problem(message(problem.PROBLEM, body))


# --- the circuit breaker --------------------------------------------------------------------------------------------


def test_two_sides_that_report_to_each_other_fall_silent():
    sides, sender = [Breaker(), Breaker()], 0
    said: list[str | None] = ["e.m.msg"]
    while said[-1] is not None:
        sides[sender], code = sides[sender].receiving(100)
        if code is None and not sides[sender].is_broken:
            sides[sender], code = sides[sender].sending("e.m.msg", 100)
        said.append(code)
        sender = 1 - sender
    assert said.count(TOO_MANY_ERRORS) in (1, 2) and len(said) < 2 * ERRORS_MAX + 3


def test_breaker_sends_one_final_report():
    breaker, said = Breaker(), []
    for _ in range(ERRORS_MAX + 3):
        breaker, code = breaker.sending("e.m.msg", 100)
        said.append(code)
    assert said == ["e.m.msg"] * ERRORS_MAX + [TOO_MANY_ERRORS, None, None]
    assert breaker.receiving(100) == (breaker, None)
    assert breaker.after(100 + 2 * ERRORS_WINDOW_S).is_broken


def test_errors_far_apart_break_nothing():
    breaker = Breaker()
    for hour in range(3 * ERRORS_MAX):
        breaker, code = breaker.sending("w.m.msg", hour * ERRORS_WINDOW_S)
        assert code == "w.m.msg"


# --- basic messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "write", "read"), [("didcomm/v2", dump, parse), ("didcomm/v1", dump_v1, parse_v1)])
def test_a_basic_message_is_read_as_it_was_written(profile, write, read):
    received = read(write(basic.basic("Grüße – 日本語", 1769850300, dice(), profile, lang="de")))
    assert basic.is_basic(received)
    assert basic.read_basic(received) == basic.Basic("Grüße – 日本語", 1769850300, "de")


def test_basic_message_needs_text_but_no_time():
    with pytest.raises(Malformed):
        basic.read_basic(message(basic.BASIC, {"content": None}))
    assert basic.read_basic(message(basic.BASIC_V1, {"content": "x", "sent_time": "soon"})).sent is None


# --- hostile bodies -------------------------------------------------------------------------------------------------

NAMES = ["queries", "query", "disclosures", "protocols", "code", "args", "comment", "description", "content"]
NAMES += ["response_requested", "match", "id", "roles", "value", "pid", "explain", "problem-code", "feature-type"]
BODIES = st.dictionaries(
    st.sampled_from(NAMES),
    st.recursive(
        st.sampled_from([None, True, 7, 1e300, "", "protocol", "*", "e.p.msg", "{1}"]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
KINDS = [ping.PING, ping.PING_V1, features.QUERIES, features.QUERY_V1, features.DISCLOSE, features.DISCLOSE_V1]
KINDS += [problem.PROBLEM, problem.PROBLEM_V1, ORG + "didexchange/1.0/problem_report", basic.BASIC, basic.BASIC_V1]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KINDS), BODIES)
def test_any_body_is_read_or_refused(kind, body):
    received = message(kind, body)
    for read in (answer, features.read_disclosure, read_problem, basic.read_basic, problem.may_report):
        with contextlib.suppress(RemoteError):
            read(received)
