"""Sample members and join requests for the command line."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cli_harness import ALICE, BOB, CAROL, HIKERS, INVITATION
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.rpc import JoinRequestInfo, MemberInfo, PolicyInfo, SafetyWords, SafetyWordsParams, VoteInfo

home, agent, run, alone = cli_harness.home, cli_harness.agent, cli_harness.run, cli_harness.alone

WORDS = ["apple", "river", "stone", "lamp", "cloud", "tiger", "window", "bread"]

PEOPLE = [
    MemberInfo(did=ALICE, nick="alice", connection="self", joined_at="x", role="owner"),
    MemberInfo(
        did=BOB,
        nick="Bob",
        connection="connected",
        joined_at="x",
        role="admin",
        trust="verified",
        allowed_actions=["remove"],
    ),
    MemberInfo(
        did=CAROL,
        nick="carol\x1b",
        connection="connected",
        joined_at="x",
        role="reader",
        trust="changed",
        allowed_actions=["remove"],
    ),
]

DAVE = JoinRequestInfo(
    group="GROUPID", did="did:key:z6MkDave1", nick="dave\n", role="reader", words=WORDS, asked_at="2026-07-01T12:09:00Z"
)

CREW = replace(
    HIKERS,
    role="owner",
    envelope="didcomm/v2",
    policy=PolicyInfo(join="ask", remove="quorum", quorum=3, roles="admins"),
    votes=[VoteInfo(group="GROUPID", did=CAROL, nick="carol\x1b", votes=1, needed=2, voted=True)],
    requests=[DAVE],
)


@pytest.fixture
def crew(agent: Callable[..., Any]) -> Any:
    """An agent in the group hikers, whose answers are as a desk's would be."""

    def words(params: SafetyWordsParams) -> SafetyWords:
        whom = next((one for one in PEOPLE if one.did == params.member), None)
        return SafetyWords(
            group="GROUPID",
            did=params.member,
            nick=whom.nick if whom else "",
            words=WORDS,
            trust=whom.trust if whom else None,
            match=params.entered.split() == WORDS if params.entered else None,
        )

    return agent(
        list_groups=lambda _: [CREW],
        list_members=lambda _: PEOPLE,
        list_join_requests=lambda _: [DAVE],
        answer_join_request=lambda _: replace(CREW, requests=[]),
        set_role=lambda params: replace(PEOPLE[1 if params.member else 0], role=params.role),
        set_display_name=lambda params: replace(CREW, nick=params.name),
        get_safety_words=words,
        verify_member=lambda _: PEOPLE[1],
        create_group=lambda _: CREW,
        create_invitation=lambda params: replace(INVITATION, role=params.role, history=params.history or "all"),
    )


@pytest.fixture
def two(run) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """`two("bob", "send hikers -m hello")`: Alice and Bob, each with an agent that runs."""
    threads = []
    for name in ("alice", "bob"):
        profile = profile_paths(name, os.environ)
        create_profile(profile, name, None)
        threads.append(AgentThread(profile, unlock(profile, None), listen="127.0.0.1"))
        threads[-1].start()
    yield lambda who, line, **more: run(f"--profile {who} {line}", **more)
    for thread in threads:
        thread.stop()


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)
    return found
