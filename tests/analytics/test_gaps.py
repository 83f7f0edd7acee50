"""Missing messages that are no losses: hand-made exports of two hours in one study."""

import hashlib
from datetime import timedelta

import pytest

pytest.importorskip("pyspark", reason="pyspark comes with the extra `analytics`: scripts/test --analytics")
pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `analytics`: scripts/test --analytics")

import pyarrow as pa
import pyarrow.parquet as pq

from analytics import summary
from analytics.pipeline import authors, clock_fit, clock_skew, silver
from analytics.pipeline.schema import VERSION, arrow_types
from analytics.results import open_results
from benchmarks.ours.exports import MINUTE_US, START, START_US, write_manifest
from tests.support.analytics_study import make_study

pytestmark = pytest.mark.analytics

END = 120
"""Minutes that there are."""
TYPES = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string(), "bool": pa.bool_()}
AHEAD_US = {31: 5 * MINUTE_US}
"""By how much clocks are ahead; all others are right."""


def at(minute, whose=0):
    """A minute as the clock of somebody has it."""
    return START_US + int(minute * MINUTE_US) + AHEAD_US.get(whose, 0)


class Told:
    """What one observer tells of one group; times are minutes by a clock that is right."""

    def __init__(self, me, group):
        self.me, self.group = me, group
        self.rows = {}

    def add(self, kind, *rest):
        self.rows.setdefault(kind, []).append((self.me, *rest))

    def recorded(self, *parts):
        for begin, end in parts:
            # In two, that meet.
            self.add("span", at(begin, self.me), at((begin + end) / 2, self.me))
            self.add("span", at((begin + end) / 2, self.me), at(end, self.me))
        return self

    def sees(self, minute, *roster):
        self.add("view", self.group, list(roster), len(roster), at(minute, self.me))
        return self

    def says(self, seq, minute, n=1, keys="pairwise-multi"):
        when = at(minute, self.me)
        rest = (keys, "direct", "acks", n, 1, when, 1_000, 100, 500 * n, n, "message")
        self.add("send", self.group, seq, *rest)

    def gets(self, sender, seq, minute, path="direct", after_us=50_000, keys="pairwise-multi", n=1):
        times = (at(minute, sender), at(minute, self.me) + after_us)
        rest = (keys, "message", n, *times, 300, 0, None, path, False, False, 500, 100)
        self.add("recv", self.group, sender, seq, *rest)

    def write(self, folder, study, **other):
        place, files = folder / f"{study}-{self.me}", []
        for kind, rows in self.rows.items():
            types = arrow_types(kind)
            fields = [(name, TYPES.get(what, pa.list_(pa.int64()))) for name, what in types.items()]
            columns = [
                pa.array(column, kind_) for column, (_, kind_) in zip(zip(*rows, strict=True), fields, strict=True)
            ]
            table = pa.table(columns, pa.schema(fields, {"zerochat_schema_version": str(VERSION)}))
            path = f"{kind}/date={START.date()}/part-00000.parquet"
            (place / path).parent.mkdir(parents=True)
            pq.write_table(table, place / path)
            content = (place / path).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files.append({"path": path, "kind": kind, "rows": len(rows), "bytes": len(content), "sha256": digest})
        place.mkdir(exist_ok=True)
        end = START + timedelta(minutes=END)
        write_manifest(place, files, observer=self.me, end=end, study=study, **other)


def pause(folder):
    """Bob's recording pauses from 30 to 60; Alice speaks every ten minutes, and what she says at 40, 50 and 100 is not
    in his export."""
    alice, bob = Told(1, 101).recorded((0, END)), Told(2, 101).recorded((0, 30), (60, END))
    for seq in range(1, 12):
        alice.says(seq, 10 * seq)
        if seq not in (4, 5, 10):
            bob.gets(1, seq, 10 * seq)
    for one in (alice, bob):
        one.sees(0, 1, 2).write(folder, "pause")


def alone(folder):
    """Zoe (11) is in a group with Yan (12), who tells nothing. She records nothing from 30 to 60. Of his, 3 to 9 may
    have come then, and 11 has not come. He has acknowledged two of hers; the third she says right before the end."""
    zoe = Told(11, 102).recorded((0, 30), (60, END)).sees(0, 11, 12)
    for seq, minute in ((1, 10), (2, 20), (10, 70), (12, 80)):
        zoe.gets(12, seq, minute)
    for seq, when in ((1, 10), (2, 20), (3, END - 0.5)):
        zoe.says(seq, when)
    zoe.add("ack", 102, 12, 2, at(21), "direct")
    zoe.write(folder, "alone")


def spanless(folder):
    """Carl's export has no spans, and nothing of what Dora says."""
    carl, dora = Told(21, 103), Told(22, 103).recorded((0, END))
    dora.says(1, 10)
    for one in (carl, dora):
        one.sees(0, 21, 22).write(folder, "spanless")


def borders(folder):
    """The clock of 31 is five minutes ahead. At 97 it says what 32, who records until 100, does not get."""
    several = {me: Told(me, 104).recorded((0, 100 if me == 32 else END)).sees(0, 31, 32, 33) for me in (31, 32, 33)}
    for me, one in several.items():
        for seq in range(1, 5):
            one.says(seq, 10 * seq, 2)
            for other in several.keys() - {me}:
                several[other].gets(me, seq, 10 * seq, n=2)
    several[31].says(5, 97, 2)
    several[33].gets(31, 5, 97, n=2)
    for one in several.values():
        one.write(folder, "borders")


def gone(folder):
    """41 has the least pseudonym and records until 40, when it leaves; 43 comes at 50. 44 tells nothing; 43 lacks what
    it says at 60."""
    left, stays, newcomer = (Told(me, 105) for me in (41, 42, 43))
    left.recorded((0, 40)).sees(0, 41, 42, 44)
    stays.recorded((0, END)).sees(0, 41, 42, 44).sees(40, 42, 44).sees(50, 42, 43, 44)
    newcomer.recorded((50, END)).sees(50, 42, 43, 44)
    for one in (left, stays):
        one.gets(44, 1, 20, n=2)
    stays.gets(44, 2, 60, n=2)
    for one in (left, stays, newcomer):
        one.write(folder, "gone")


def history(folder):
    """52 has got what 51 said but as history, and so has 53, who was not there yet."""
    says, late, newcomer = (Told(me, 106).recorded((0, END)) for me in (51, 52, 53))
    says.says(1, 10, keys="sender-key")
    for one in (late, newcomer):
        one.gets(51, 1, 10, "history", 10 * MINUTE_US, keys="sender-key")
    says.sees(0, 51, 52).sees(30, 51, 52, 53).write(folder, "history")
    late.sees(0, 51, 52).sees(30, 51, 52, 53).write(folder, "history")
    newcomer.sees(30, 51, 52, 53).write(folder, "history")


def mediator(folder):
    """62 gets all by a mediator, at once; 63 an hour late."""
    says, served, away = (Told(me, 107).recorded((0, END)).sees(0, 61, 62, 63) for me in (61, 62, 63))
    for seq in range(1, 21):
        says.says(seq, 10 + seq, 2)
        served.gets(61, seq, 10 + seq, "mediator", n=2)
        away.gets(61, seq, 10 + seq, "mediator", 60 * MINUTE_US, n=2)
    for one in (says, served, away):
        one.write(folder, "mediator")


@pytest.fixture(scope="module")
def study(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaps")
    for planted in (pause, alone, spanless, borders, gone, history, mediator):
        planted(folder / "exports")
    make_study(spark, folder / "exports", folder / "study")
    return open_results(str(folder / "study"))


def missing(study, group):
    """(author, seq, who lacks it)"""
    rows = [row for row in study.rows("message") if row["group"] == group]
    return {(row["sender"], row["seq"], one) for row in rows for one in row["missing"]}


def test_messages_during_a_pause_are_not_lost(study):
    assert missing(study, 101) == {(1, 10, 2)}
    expected = {row["seq"]: row["expected"] for row in study.rows("message") if row["group"] == 101}
    assert [seq for seq, count in expected.items() if not count] == [4, 5]


def test_gap_during_a_pause_is_not_lost(study):
    assert missing(study, 102) == {(12, 11, 11)}
    [slo] = study.rows("slo")
    assert slo["not_recorded"] == 7
    assert any(
        line.startswith("7 messages of members without an export may have arrived") for line in summary.sentences(study)
    )


def test_export_without_spans_covers_nothing(study):
    assert missing(study, 103) == set()
    assert [row["expected"] for row in study.rows("message") if row["group"] == 103] == [0]
    said = [line for line in summary.caveats(study) if "recording times" in line]
    assert said == ["The recording times of these exports are unknown, so nothing counts as lost in them: spanless-21."]


def test_borders_use_the_common_clock(study):
    assert missing(study, 104) == {(31, 5, 32)}
    assert all(row["corrected"] for row in study.rows("edge") if row["group"] == 104 and row["evidence"] == "receipts")


def test_former_members_do_not_determine_rosters(study):
    assert missing(study, 105) == {(44, 2, 43)}


def test_history_has_no_latency(study):
    [message] = [row for row in study.rows("message") if row["group"] == 106]
    assert message["complete"] and message["newcomers"] == 1
    assert message["whole_us"] is None and message["shown_us"] is None
    [burst] = [row for row in study.rows("burst") if row["group"] == 106]
    assert burst["complete"] and burst["whole_us"] is None and burst["shown_us"] is None
    [row] = [row for row in study.rows("keys_path_size") if (row["grain"], row["keys"]) == ("message", "sender-key")]
    assert row["complete"] == 1 and row["whole_p50_us"] is None


def test_average_length_skips_unknown_sizes(study):
    assert any("a message of 100 B becomes an envelope of 500 B" in line for line in summary.sentences(study))


def test_last_messages_need_no_acknowledgement(study):
    [edge] = [row for row in study.rows("edge") if row["group"] == 102 and row["evidence"] == "acks"]
    assert (edge["sender"], edge["expected"], edge["delivered"]) == (11, 2, 2)


def test_mediated_member_is_not_offline(study):
    assert {row["observer"] for row in study.rows("outage")} & {62, 63} == {63}


# --- clocks -----------------------------------------------------------------------------------------------------------


def heard(ahead, quiet):
    """Who hears whom in one window, where each way takes 10 ms, but for pairs that hardly speak."""
    rows = [
        (9, one, other, 80_000, 5, 1 if {one, other} in quiet else 3, 10_000 + ahead[other] - ahead[one], 60)
        for one in ahead
        for other in ahead
        if one != other
    ]
    return rows, "group long, sender long, observer long, window int, rows long, times long, least_us long, at_s long"


def test_clock_fit_with_a_missing_pair(spark):
    """Member 1 is a minute ahead; 1 and 2 hardly exchange messages."""
    ahead = {1: 60_000_000, 2: 0, 3: 0, 4: 0, 5: 0}
    lines = clock_skew.clock_lines(
        clock_skew.clock_differences(spark.createDataFrame(*heard(ahead, [{1, 2}])))
    ).collect()
    found = {row["member"]: row["base_us"] for row in lines}
    assert {row["member"]: row["peers"] for row in lines} == {1: 3, 2: 3, 3: 4, 4: 4, 5: 4}
    assert found == pytest.approx({1: 48e6, 2: -12e6, 3: -12e6, 4: -12e6, 5: -12e6}, abs=0.01)


def test_components_are_not_compared(spark):
    """1 to 3 and 4 to 6 exchange messages among themselves; 7 with one of them only."""
    ahead = dict.fromkeys(range(1, 7), 0) | {4: 9_000_000, 5: 9_000_000, 6: 9_000_000, 7: 0}
    quiet = [{one, other} for one in (1, 2, 3) for other in (4, 5, 6)] + [{7, other} for other in range(2, 7)]
    pair = spark.createDataFrame(*heard(ahead, quiet))
    lines = clock_skew.clock_lines(clock_skew.clock_differences(pair))
    assert {row["member"]: row["component"] for row in lines.collect()} == {1: 1, 2: 1, 3: 1, 4: 4, 5: 4, 6: 4}
    people = silver.number_members(spark.createDataFrame([(9, member) for member in ahead], "group long, member long"))
    send = spark.createDataFrame([(9, 1)], "group long, sender long")
    viewers = spark.createDataFrame([(9, 1)], "group long, viewer long")
    edges = authors.edges(pair, authors.authors(pair, send, people, viewers, lines), people, lines).collect()
    assert len(edges) == 42
    for row in edges:
        together = {row["sender"], row["observer"]}
        assert row["corrected"] == (together <= {1, 2, 3} or together <= {4, 5, 6})
        assert row["base_us"] == pytest.approx(0, abs=0.01)


def test_impossible_drift_is_ignored():
    """Minutes per hour: extrapolated, it would overflow."""
    pairs = [(one, other, 1, 5, 0, 10, 0, 0) for one in range(1, 5) for other in range(one + 1, 5)]
    pairs += [(one, 9, 1, 5, 0, 10, 0, -(2**63)) for one in range(1, 5)]
    names = ("member", "peer", "windows", "start_us", "begin_us", "end_us", "base_us", "slope")
    assert clock_fit.fit_clocks(pa.table(dict(zip(names, zip(*pairs, strict=True), strict=True))))[
        "member"
    ].to_pylist() == [
        1,
        2,
        3,
        4,
    ]


def test_adjacent_spans_are_merged(spark):
    rows = [(1, 0, 10), (1, 10, 20), (1, 15, 17), (1, 21, 30), (1, 33, 40), (2, 0, 5)]
    spans = spark.createDataFrame(rows, "member long, from_us long, to_us long")
    told = sorted(
        tuple(row[name] for name in ("member", "from_us", "to_us"))
        for row in silver.merge_spans(spans, ["member"], 1).collect()
    )
    assert told == [(1, 0, 30), (1, 33, 40), (2, 0, 5)]
