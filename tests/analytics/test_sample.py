"""The sample telemetry: all planted effects, real and simulated, are found."""

import json

import pytest

pytest.importorskip("pyspark", reason="pyspark comes with the extra `analytics`: scripts/test --analytics")
pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `analytics`: scripts/test --analytics")

import pyarrow.parquet as pq

from analytics import cli, summary
from analytics.results import open_results, short_id
from tests.support.analytics_study import make_study

pytestmark = pytest.mark.analytics

TRUTHS = cli.SAMPLE.with_name(f"{cli.SAMPLE.name}.truths.json")
MINUTE_US = 60_000_000


@pytest.fixture(scope="module")
def truths():
    return json.loads(TRUTHS.read_text(encoding="ascii"))


@pytest.fixture(scope="module")
def place(spark, tmp_path_factory):
    place = tmp_path_factory.mktemp("sample") / "study"
    told = make_study(spark, cli.SAMPLE, place)
    assert told["aside"] == []
    return place


@pytest.fixture(scope="module")
def study(place):
    return open_results(str(place))


def test_every_loss_is_found_and_no_other(study, truths):
    lost = {tuple(loss) for part in ("real", "simulated") for loss in truths[part]["lost"]}
    assert lost
    assert {(row["sender"], row["seq"], one) for row in study.rows("message") for one in row["missing"]} == lost


def test_no_message_is_omitted(study, truths):
    said = [row for row in study.rows("message") if row["kind"] == "message"]
    for part, count in (("real", truths["real"]["messages"]), ("simulated", truths["simulated"]["plan"]["messages"])):
        assert sum(row["sender"] in truths[part]["members"] for row in said) == count


def test_dropped_messages_were_retransmitted(study, truths):
    """Dropped on the line for seconds and retransmitted, so none is lost."""
    real = truths["real"]
    [row] = [row for row in study.rows("edge") if (row["sender"], row["observer"]) == (real["harmed"], real["away"])]
    assert row["delivered"] == row["expected"] and row["retransmission"] > 0
    begin, end = real["cable_out_us"]
    hurt = [
        row
        for row in study.rows("message")
        if row["sender"] == real["harmed"] and begin <= row["t_send_us"] < end and row["kind"] == "message"
    ]
    assert hurt and all(row["complete"] for row in hurt)


@pytest.mark.parametrize("part", ["real", "simulated"])
def test_outage_is_found_within_bounds(study, truths, part):
    """One outage of one member, to the minute."""
    begin, end = truths[part]["away_us"]
    members = truths[part]["members"]
    [found] = [row for row in study.rows("outage") if row["observer"] in members]
    assert found["observer"] == truths[part]["away"]
    said = [
        row["t_send_us"]
        for row in study.rows("message")
        if row["sender"] in members and row["sender"] != truths[part]["away"] and begin <= row["t_send_us"] < end
    ]
    assert begin - MINUTE_US <= found["t_from_us"] <= end and begin <= found["t_to_us"] <= end + MINUTE_US
    inside = [when for when in said if found["t_from_us"] <= when < found["t_to_us"]]
    assert len(inside) > len(said) / 2


def test_slow_members_are_reported(study, truths):
    slow = {line.partition(" ")[0] for line in summary.sentences(study) if " is slow: " in line}
    assert slow == {short_id(truths[part]["slow"]) for part in ("real", "simulated")}


def test_clock_offsets_within_five_milliseconds(study, place, truths):
    """For the drifting clocks, from the first to the last message, and not for those of one machine."""
    simulated, real = truths["simulated"], truths["real"]
    table = pq.read_table(place / "silver" / "skew").to_pylist()
    lines = {row["member"]: row for row in table}
    assert lines.keys() == {*simulated["members"], *real["members"]}
    times = [row["t_send_us"] for row in study.rows("message") if row["sender"] in simulated["members"]]
    begun = min(times) - min(times) % (24 * 60 * MINUTE_US)  # the plan's clocks are off by so much at midnight
    for member in simulated["members"]:
        line = lines[member]
        for when in (min(times), max(times)):
            planted = simulated["clock_us"][str(member)] + simulated["drift_ppm"][str(member)] * 1e-6 * (when - begun)
            assert line["base_us"] + line["slope"] * (when - line["start_us"]) == pytest.approx(planted, abs=5_000)
    shown = {row["member"]: row["clock_us"] for row in study.rows("member")}
    for member in real["members"]:
        assert shown[member] == pytest.approx(0, abs=5_000)


def test_joiner_is_expected_from_its_join(study, truths):
    simulated = truths["simulated"]
    mine = [row for row in study.rows("message") if row["sender"] in simulated["members"]]
    least = {row["n"] for row in mine if row["t_send_us"] < simulated["came_us"] - 1_000_000}
    most = {row["n"] for row in mine if row["t_send_us"] > simulated["came_us"] + 1_000_000}
    assert (least, most) == ({len(simulated["members"]) - 2}, {len(simulated["members"]) - 1})
