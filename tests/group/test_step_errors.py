"""A refusal within a step that no peer repeats: what it is about waits, all else goes on."""

from tests.support.small_world import Small
from zerochat.errors import Refused
from zerochat.group.effects import Dial, Measure, SetTimer
from zerochat.group.engine import step
from zerochat.group.event_log import own_events
from zerochat.group.inputs import (
    BatchEnded,
    CommandInput,
    CreateGroup,
    LinkUp,
    SendPost,
    Started,
    StepContext,
    TimerFired,
)
from zerochat.group.links import peers
from zerochat.group.sync import acknowledgements, anti_entropy
from zerochat.group.timer_kinds import TimerKind
from zerochat.sim import SIMULATED_PACKERS


def refuse(*_args, **_kwargs):
    raise Refused(why="a test")


def refuse_member(world, function, member):
    """The function, except that it refuses this member."""

    def one(tx, name, did, *args, **kwargs):
        if did == world.group(member).me:
            refuse()
        return function(tx, name, did, *args, **kwargs)

    return one


class Friends(Small):
    def __init__(self, members=3):
        super().__init__(members)
        self.id = self.found()
        for name in list(self.nodes)[1:]:
            assert self.join(name, self.invite(self.id)).phase == "joined"
        self.run(for_ms=5_000)


def stepped(world, name, input_):
    context = StepContext(world.now, world.rng.randbytes)
    return step(world.nodes[name].agent, input_, context, SIMULATED_PACKERS)


def test_a_refused_timer_is_set_again(monkeypatch):
    world = Friends()
    monkeypatch.setattr(anti_entropy, "run_round", refuse)
    timer = TimerFired(f"{TimerKind.ANTI_ENTROPY} {world.id}")
    agent, effects = stepped(world, "n0", timer)
    assert agent is world.nodes["n0"].agent, "nothing else has changed"
    assert [effect.key for effect in effects if isinstance(effect, SetTimer)] == [timer.key]
    assert [effect.detail for effect in effects if isinstance(effect, Measure)] == ["Refused"]


def test_a_refusal_about_one_member_stops_no_start(monkeypatch):
    world = Friends()
    node = world.nodes["n0"]
    monkeypatch.setattr(peers, "dial_peer", refuse_member(world, peers.dial_peer, "n1"))
    agent, effects = stepped(world, "n0", Started(node.address, node.queue_address, node.server_key))
    assert agent.reach is not None
    links = world.group("n0").links.peers
    assert [effect.link for effect in effects if isinstance(effect, Dial)] == [links[world.group("n2").me].link]
    armed = {effect.key.partition(" ")[0] for effect in effects if isinstance(effect, SetTimer)}
    assert {"anti-entropy", "retransmit", "gaps", "backfill"} <= armed


def test_a_link_is_up_whatever_follows_from_it(monkeypatch):
    world = Friends(2)
    link = world.group("n0").links.peers[world.group("n1").me].link
    node = world.nodes["n0"]
    agent, _ = stepped(world, "n0", Started(node.address, node.queue_address, node.server_key))
    monkeypatch.setattr(acknowledgements, "send_sync", refuse)
    context = StepContext(world.now, world.rng.randbytes)
    agent, effects = step(agent, LinkUp(link), context, SIMULATED_PACKERS)
    assert link in agent.links_up and [effect.detail for effect in effects if isinstance(effect, Measure)] == [
        "Refused"
    ]


def test_a_group_that_cannot_publish_stops_no_other(monkeypatch):
    world, publish = Friends(2), own_events.publish_batch
    other = world.run_command("n0", CreateGroup("others", "n0", world.envelope)).result.group
    monkeypatch.setattr(
        own_events, "publish_batch", lambda tx, name: refuse() if name == world.id else publish(tx, name)
    )
    context = StepContext(world.now, world.rng.randbytes)
    agent = world.nodes["n0"].agent
    for ticket, name in enumerate((world.id, other)):
        agent, _ = step(agent, CommandInput(ticket, SendPost(name, "hm")), context, SIMULATED_PACKERS)
    agent, _ = step(agent, BatchEnded(), context, SIMULATED_PACKERS)
    assert len(agent.groups[world.id].log.unpublished) == 1, "until the next batch"
    assert not agent.groups[other].log.unpublished
