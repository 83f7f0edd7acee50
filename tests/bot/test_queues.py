"""Queues of a bot: no group blocks another, nothing is lost, the order within a group is kept."""

import asyncio
import logging
import random
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerochat import Bot, Message
from zerochat.agent.api.client_protocol import AgentError
from zerochat.bot import dispatcher as work
from zerochat.bot.acknowledgement import AckTracker
from zerochat.bot.queues import Queues
from zerochat.bot.store import Store
from zerochat.group.effects import RefuteEvents, StoreEvent
from zerochat.rpc import Author
from zerochat.rpc.subscriptions import Item
from zerochat.testing import Group, run

if TYPE_CHECKING:
    from zerochat.bot.connection import Connection

AUTHOR = Author("did:key:a", "alice")


def item(seq: int, group: str, *, logged: bool) -> Item:
    author = AUTHOR if logged else None
    return Item(seq=seq, type="x", group=group, id=f"e{seq}", author=author, body={"n": seq}, received_at="2026-01-01")


@pytest.mark.slow
@given(st.randoms(use_true_random=False), st.integers(1, 4))
@settings(max_examples=60)
def test_queues_keep_group_order_over_crashes(dice: random.Random, share: int) -> None:
    """Model: an agent with a cursor, a bot killed at any moment, and a file that survives."""
    with Store(None) as store:
        told, acked = 0, 0
        everything: list[Item] = []
        handled: dict[str, list[int]] = {"a": [], "b": [], "c": []}

        def begun() -> tuple[AckTracker, Queues]:
            intake = AckTracker()
            return intake, Queues(store, intake, share)

        def handle(group: str) -> None:
            if (first := queues.head(group)) is None:
                return
            if first.item is not None:
                assert first.item.body == {"n": first.item.seq} and first.item.id == first.id
            handled[group].append(int(first.id[1:]))
            queues.pop_handled(group)

        intake, queues = begun()
        for _ in range(150):
            match dice.randrange(12):
                case 0 | 1 | 2 | 3:
                    if told == len(everything):
                        everything.append(item(told + 1, dice.choice("aaabc"), logged=dice.random() < 0.7))
                    one = everything[told]
                    told += 1
                    if intake.received(one.seq) and not queues.add(one):
                        intake.mark_handled(one.seq)
                case 4 | 5 | 6 if queues.groups:
                    handle(dice.choice(queues.groups))
                case 7:
                    queues.spill()
                case 8:
                    queues.purge_finished()
                case 9 | 10 if (upto := intake.take_ackable()) is not None:
                    safe = store.spilled_ids() | {f"e{seq}" for seqs in handled.values() for seq in seqs}
                    assert all(f"e{seq}" in safe for seq in range(1, upto + 1)), "what is acknowledged is safe"
                    if dice.random() < 0.8:
                        acked = upto
                        intake.mark_acknowledged(upto)
                    else:  # it gets lost, and the line with it
                        intake.reset()
                        told = acked
                case 11 if dice.random() < 0.4:
                    intake, queues = begun()  # killed
                    told = acked
        for one in everything[told:]:
            if intake.received(one.seq) and not queues.add(one):
                intake.mark_handled(one.seq)
        while queues.groups:
            handle(queues.groups[0])
        queues.purge_finished()
        assert queues.idle and not store.spilled_ids()
        for group, found in handled.items():
            first = list(dict.fromkeys(found))
            assert first == [one.seq for one in everything if one.group == group], "in order, and nothing is lost"


@pytest.mark.slow
def test_slow_group_does_not_block_others() -> None:
    """Ten times the credit waits in one group, and the process is killed meanwhile."""
    bot = Bot(name="robo", credit=8, include=("self",))
    done: list[str] = []

    @bot.on_message(include=("self",))
    async def work(m: Message) -> None:
        await asyncio.sleep(20 if m.group.name == "friends" else 0.1)
        done.append(m.text)

    async def scenario() -> None:
        async with Group(2, bots=[bot]) as group:
            await group.call("robo", "create_group", group="other")
            for number in range(80):
                await group.send("alice", f"slow {number}")
            await group.advance("10s")
            await group.call("robo", "send_message", group="other", text="quick")
            await group.advance("5s")
            assert done == ["quick"], "though none of the 80 is done"
            [known] = await group.call("robo", "list_consumers")
            assert known.behind == 0, "all of it is safe in the bot's own file"
            await group.advance("5m")
            await group.kill("robo")
            await group.start("robo")
            await group.advance("1s")
            await group.call("robo", "send_message", group="other", text="quick again")
            await group.advance("5s")
            assert done[-1] == "quick again"
            await group.settle(within="2h")
            slow = [text for text in done if text.startswith("slow")]
            assert list(dict.fromkeys(slow)) == [f"slow {number}" for number in range(80)]
            assert len(slow) <= 81, "but for the one at which it was killed, each was handled once"

    run(scenario())


@pytest.mark.parametrize("killed", [False, True])
def test_refuted_spilled_event_is_handled_when_reinstated(killed: bool) -> None:
    """It is acknowledged, so the agent does not redeliver it: the bot looks it up."""
    bot = Bot(name="robo", credit=8, include=("self",))
    done: list[str] = []

    @bot.on_message(include=("self",))
    async def work(m: Message) -> None:
        await asyncio.sleep(20 if m.group.name == "friends" else 0.1)
        done.append(m.text)

    async def scenario() -> None:
        async with Group(2, bots=[bot]) as group:
            await group.call("robo", "create_group", group="other")
            said = [await group.send("alice", f"slow {number}") for number in range(30)]
            await group.advance("10s")
            seat = group._member("robo")
            [known] = await group.call("robo", "list_consumers")
            assert known.behind == 0 and not done, "all of it is put aside"
            row = seat.journal.event(next(iter(seat.node.agent.groups)), said[20])
            assert row is not None
            # Another member had handed it over; its author says by now that it was never said.
            seat.journal._db.execute("UPDATE events SET relayed_by = 'did:key:m' WHERE id = ?", (row.id,))
            seat._store_events([RefuteEvents(row.group, row.author, row.position - 1, row.position)])
            await group.advance("20m")
            assert done == [f"slow {number}" for number in range(30) if number != 20]
            if killed:
                await group.kill("robo")
                await group.start("robo")
                await group.advance("5m")
            assert len(done) == 29, "what was never said is not handled"
            fields = (row.group, row.id, row.author, row.position, row.lamport, row.type, row.record, row.received)
            seat._store_events([StoreEvent(*fields, late=True)])
            seat.pump()
            await group.advance("5m")
            assert done[29:] == ["slow 20"]
            await group.kill("robo")
            await group.start("robo")
            await group.advance("5m")
            assert done[29:] == ["slow 20"], "and that is done"

    run(scenario())


def test_spilled_event_waits_for_a_busy_agent(monkeypatch) -> None:
    """It is acknowledged, so it is not redelivered."""
    answers = iter([AgentError("Overloaded", "no time", 0, data={"retry": "later"}), AgentError("NoGroup", "gone", 0)])
    asked = []

    async def looked_up(connection: object, group: str, name: str) -> None:
        asked.append((group, name))
        raise next(answers)

    monkeypatch.setattr(work, "event_in_log", looked_up)
    monkeypatch.setattr(work, "AGENT_RETRY_S", 0.0)
    bare = object.__new__(work.Dispatcher)
    bare._connection, bare._log = cast("Connection", None), logging.getLogger("bot")
    assert asyncio.run(bare._spilled_event("g", "e1")) is None and asked == [("g", "e1")] * 2
