"""The verb keep: how long messages of a conversation stay here."""

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cli_harness import HIKERS, of
from zerochat.cli.exit_codes import ExitCode
from zerochat.presentation import keep_rules
from zerochat.rpc import PolicyInfo, SetRetentionParams

home, agent, run = cli_harness.home, cli_harness.agent, cli_harness.run
DAY = 86_400_000
RULED = replace(HIKERS, policy=PolicyInfo(keep=30 * DAY), keep=30 * DAY)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (HIKERS, "Messages here do not disappear."),
        (
            RULED,
            (
                "Messages here disappear after 30 days, for all members. The shortest of three times counts:"
                f" group's rule 30 days (counts), choice here none, setting storage.keep none. {keep_rules.COPIES}"
            ),
        ),
        (
            replace(RULED, keep_choice=60 * DAY, keep_setting=365 * DAY),
            (
                "The shortest of three times counts: group's rule 30 days (counts), choice here 60 days (no effect),"
                f" setting storage.keep 365 days (no effect). {keep_rules.COPIES}"
            ),
        ),
        (
            replace(RULED, keep=DAY, keep_choice=DAY),
            (
                "after 1 day. The shortest of three times counts: group's rule 30 days (no effect), choice here 1 day"
                " (counts), setting storage.keep none. Other members may keep them for 30 days."
            ),
        ),
        (
            replace(HIKERS, keep=DAY, keep_setting=DAY),
            (
                "disappear from this machine after 1 day. The shortest of three times counts: group's rule none, choice"
                " here none, setting storage.keep 1 day (counts). Other members may keep theirs."
            ),
        ),
        (
            replace(RULED, keep_choice=30 * DAY, keep_setting=30 * DAY),
            (
                "group's rule 30 days (counts), choice here 30 days (the same), setting storage.keep 30 days (the"
                f" same). {keep_rules.COPIES}"
            ),
        ),
        (
            replace(HIKERS, accountability="tlog", keep_setting=DAY),
            "Messages here do not disappear. The group has a transparency log, and keeps its messages as evidence.",
        ),
    ],
    ids=["none", "rule", "choice without effect", "choice", "setting", "equal", "tlog"],
)
def test_the_rule_that_counts_is_shown(agent, run, info, said):
    agent(list_groups=lambda _: [info])
    shown = run(["keep", "hikers"])[2]
    assert shown.startswith("hikers: ") and shown.endswith(f"{said}\n")


@pytest.mark.parametrize(("given", "keep"), [("1d", DAY), ("2w", 14 * DAY), ("forever", 0)])
def test_a_choice_is_sent_to_the_agent(agent, run, given, keep):
    crew = agent(list_groups=lambda _: [HIKERS], set_retention=lambda params: replace(HIKERS, keep=params.keep))
    assert run(["keep", "hikers", given])[0] == ExitCode.OK
    assert of(crew, "set_retention") == [SetRetentionParams(HIKERS.id, keep)]


@pytest.mark.parametrize("given", ["soon", "30m", "5s", "1.5h", "1", "0h", "3651d"])
def test_an_invalid_time_is_refused_with_the_range(agent, run, given):
    crew = agent(list_groups=lambda _: [HIKERS])
    code, _, err = run(["keep", "hikers", given])
    assert code == ExitCode.USAGE and of(crew, "set_retention") == []
    assert "hours, days or weeks such as 12h, 30d or 4w, 1 hour to 3,650 days, or forever" in " ".join(err.split())


@pytest.mark.parametrize("verb", ["keep", "new"])
def test_the_help_names_the_range_of_times(run, verb):
    assert "1 hour to 3,650 days" in " ".join(run([verb, "--help"])[1].split())


def test_info_shows_which_time_counts(agent, run):
    agent(list_groups=lambda _: [replace(RULED, keep_choice=60 * DAY)], list_members=lambda _: [])
    (line,) = (one for one in run(["info", "hikers"])[1].splitlines() if one.startswith("kept here"))
    assert line.split(maxsplit=2)[2] == (
        "30 days: group's rule 30 days (counts), choice here 60 days (no effect), setting storage.keep none"
    )


@pytest.mark.parametrize(
    "info", [replace(HIKERS, keep=DAY, keep_setting=DAY), replace(HIKERS, keep=DAY, keep_choice=DAY)]
)
def test_info_does_not_contradict_the_time_that_counts_here(agent, run, info):
    agent(list_groups=lambda _: [info], list_members=lambda _: [])
    lines = dict(line.split("  ", 1) for line in run(["info", "hikers"])[1].splitlines() if "  " in line)
    assert lines["kept here"].strip().startswith("1 day: ") and "the group has no rule" in lines["retention"]


def test_info_of_a_group_that_keeps_all_says_so(agent, run):
    agent(list_groups=lambda _: [HIKERS], list_members=lambda _: [])
    assert "messages do not disappear" in run(["info", "hikers"])[1]
