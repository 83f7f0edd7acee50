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
        (RULED, f"Messages here disappear after 30 days, for all members. {keep_rules.COPIES}"),
        (replace(RULED, keep=DAY, keep_choice=DAY), "after 1 day. Other members may keep them for 30 days."),
        (replace(HIKERS, keep=DAY), "disappear from this machine after 1 day. Other members may keep theirs."),
    ],
    ids=["none", "rule", "choice", "setting"],
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


def test_an_invalid_time_is_refused(agent, run):
    crew = agent(list_groups=lambda _: [HIKERS])
    code, _, err = run(["keep", "hikers", "soon"])
    assert code == ExitCode.USAGE and "such as 12h, 30d or 4w" in err and of(crew, "set_retention") == []
