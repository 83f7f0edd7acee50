"""A group of many members: the state of a simulated group, enlarged by members that never sent anything."""

import random
import sys
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from zerochat.group.state import Agent, Group

MEMBERS = 1_000


def member_did(number: int) -> str:
    return f"did:key:z6Mklarge{number:038}"


def enlarged(agent: Agent, name: str, count: int = MEMBERS, seed: int = 1) -> Agent:
    """The agent with `count` members in a group. Each has acknowledged a random part of our chain, and most of them
    were heard at some time."""
    group, rng = agent.groups[name], random.Random(seed)
    number, pattern = (
        group.links.numbers.get(group.me, len(group.links.numbers)),
        next(iter(group.links.peers.values())),
    )
    joined = max(member.joined for member in group.view.members.values())
    members, peers = dict(group.view.members), dict(group.links.peers)
    example = members[group.me]
    for at in range(count - len(members)):
        did = member_did(at)
        members[did] = replace(
            example, did=did, label=f"member {at}", joined=joined - rng.randrange(1_000), added_by=group.me
        )
        peers[did] = replace(
            pattern,
            link=at.to_bytes(16, "big"),
            start_seq=0,
            acks=replace(pattern.acks, upto={number: rng.randrange(group.seq + 1)}),
            last_received_at=rng.choice((0, joined - at)),
        )
    links = replace(group.links, peers=peers)
    view = replace(group.view, members=dict(sorted(members.items())))
    return replace(agent, groups={**agent.groups, name: replace(group, view=view, links=links)})


def with_acks(group: Group, acked: dict[str, int]) -> Group:
    """The group where these members have acknowledged our chain up to these positions."""
    links = group.links
    for did, upto in acked.items():
        links = links.with_acks(did, {group.me: upto})
    return replace(group, links=links)


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions are called while this runs: work that is the same in every run."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
