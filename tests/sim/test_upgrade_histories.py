"""Upgrades of the keys in histories: all members follow, none goes back, and each post keeps one form."""

import pytest
from msgspec.structs import replace

from zerochat.group.effects import StoreEvent
from zerochat.group.event_log import delivery, own_events
from zerochat.group.event_log.event import REMOVE, UPGRADE, load_event
from zerochat.group.membership import ancestors, resolve
from zerochat.group.state import Group
from zerochat.sim import Violation, actions, episode, play_episode, play_history
from zerochat.sim.byzantine import play_byzantine
from zerochat.sim.node import Node

PLAYS = (play_history, play_byzantine, play_episode)
KINDS = ("histories", "byzantine", "episodes")


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Most groups of older keys are upgraded."""
    monkeypatch.setattr(actions, "UPGRADE_RATE", 0.15)
    monkeypatch.setattr(episode, "UPGRADE_RATE", 1.0)


def upgrades(world):
    """The membership events of all nodes, and the upgrades among them."""
    groups = [group for node in world.nodes.values() for group in node.agent.groups.values() if group.private is None]
    control = {name: event for group in groups for name, event in group.control.items()}
    return control, {name: event for name, event in control.items() if event.type == UPGRADE}


@pytest.mark.sim
@pytest.mark.parametrize("play", PLAYS, ids=KINDS)
def test_upgrades_violate_nothing(play, budget):
    upgraded = 0
    for seed in range(budget(20 if play is play_byzantine else 60)):
        upgraded += bool(upgrades(play(seed))[1])
    assert upgraded


@pytest.mark.slow
@pytest.mark.parametrize("play", [play_history, play_episode], ids=("histories", "episodes"))
def test_upgrades_happen_at_once_and_beside_removals(play):
    """By several members, none of whom knows of the other; and beside the removal of their author."""
    at_once, beside = False, False
    for seed in range(200):
        control, found = upgrades(play(seed))
        pasts = {name: ancestors(control, event.deps) for name, event in found.items()}
        at_once |= any(one != two and one not in pasts[two] and two not in pasts[one] for one in found for two in found)
        authors = {event.author for event in found.values()}
        removals = [event for event in control.values() if event.type == REMOVE and event.body["member"] in authors]
        beside |= any(found.keys() - ancestors(control, event.deps) for event in removals)
        if at_once and beside:
            return
    raise AssertionError(f"at once: {at_once}, beside a removal: {beside}")


# --- the simulator would notice -------------------------------------------------------------------------------------


def is_noticed(sentence, seeds=100):
    """Whether one of these histories is violated by this."""
    for seed in range(seeds):
        try:
            play_history(seed)
        except Violation as violation:
            if sentence in str(violation):
                return True
    return False


def test_detects_unsigned_posts(monkeypatch):
    def as_founded(group, event):
        return event.is_control or group.first_mode.signs_events

    for module in (own_events, delivery):
        monkeypatch.setattr(module, "must_be_signed", as_founded)
    assert is_noticed("does not sign a post")


def change_records(monkeypatch, change):
    """Each member stores the posts of others in another form; the event stays the same."""
    real = Node.store

    def store(node, effect):
        if isinstance(effect, StoreEvent) and effect.author != node.agent.groups[effect.group].me:
            event = load_event(effect.record)
            if not event.is_control:
                effect = replace(effect, record=replace(event, sig=change(event.sig)).record)
        real(node, effect)

    monkeypatch.setattr(Node, "store", store)


def test_detects_lost_signatures(monkeypatch):
    change_records(monkeypatch, lambda sig: "")
    assert is_noticed("has an unsigned post from after an upgrade")


def test_detects_posts_in_another_form(monkeypatch):
    change_records(monkeypatch, lambda sig: sig or "A" * 86)
    assert is_noticed("has a post in another form than its author")


@pytest.mark.slow
def test_detects_a_way_back(monkeypatch):
    """A removal makes the upgrades void that its target has made concurrently."""
    monkeypatch.setattr(resolve, "UPGRADE", "none")
    assert is_noticed("goes back from dcgka to")


def test_detects_a_member_that_keeps_the_older_keys(monkeypatch):
    real = vars(Group)["keys"].fget

    def keys(group):
        return group.profile.keys if group.me[-1] < "V" else real(group)

    monkeypatch.setattr(Group, "keys", property(keys))
    assert is_noticed("members have different keys")
