"""What a thief of a profile opens of the envelopes that were recorded before and after the theft."""

from collections.abc import Callable

import pytest

from tests.support.watched_world import MINUTE_MS, Watched, words_in
from zerochat.group.inputs import Rekey
from zerochat.group.links.content_keys import LINKED

pytestmark = pytest.mark.theft

LASTING = ["pairwise-multi", "pairwise-single", "sender-key"]
"""Keys without forward secrecy: here the thief must succeed, otherwise it would show nothing elsewhere."""
ENVELOPES = ["didcomm/v2", "didcomm/v1"]


def history(keys: str, seed: int, envelope: str) -> tuple[Watched, list[str]]:
    """A group that has talked and shared a file on bad lines, and has given its history to a newcomer."""
    world = Watched(keys, seed, envelope=envelope)
    words = world.talk(3)
    words.append(world.share_file("n0"))
    world.newcomer()
    words += world.talk(2)
    return world, words


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("keys", LASTING)
def test_lasting_keys_open_what_was_recorded(keys: str, envelope: str, budget: Callable[[float], int]):
    """Before the theft and after it: all that was sent to the victim."""
    for seed in range(budget(1)):
        world, before = history(keys, seed, envelope)
        world.run(for_ms=30 * MINUTE_MS)
        at, thief = len(world.recorded), world.steal("n1")
        after = world.talk(2)
        for part, words in ((world.envelopes(0, at), before), (world.envelopes(at), after)):
            sent_to_victim = {word for word in words if "ofn1" not in word}
            assert words_in(thief.open_all(part), words) >= sent_to_victim


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_keys_that_heal_open_nothing_from_before(envelope: str, budget: Callable[[float], int]):
    """Nor from after the first update of all members."""
    for seed in range(budget(1)):
        world, before = history("dcgka", seed, envelope)
        world.run(for_ms=LINKED.kept + MINUTE_MS)
        at, thief = len(world.recorded), world.steal("n1")
        opened = thief.open_all(world.envelopes(0, at))
        assert len(opened) > 20, "the pairwise envelopes do open, with what is in them"
        assert not words_in(opened, before)
        between = world.talk(1)
        world.update_all()
        after = world.talk(2)
        after.append(world.share_file("n0"))
        world.newcomer()
        world.run(for_ms=5 * MINUTE_MS)
        opened = thief.open_all(world.envelopes())
        opened += thief.follow([one for name, one in world.recorded[at:] if name == "n1"], world.now)
        assert words_in(opened, between), "until the update the thief reads on"
        assert not words_in(opened, [*before, *after])


def test_the_victim_alone_ends_it_by_renewing_its_keys(budget: Callable[[float], int]):
    """Once the others have received the new keys, the thief opens nothing of theirs either."""
    for seed in range(budget(1)):
        world, _ = history("dcgka", seed, "didcomm/v2")
        at, thief = len(world.recorded), world.steal("n1")
        between = world.talk(1)
        world.run_command("n1", Rekey(world.id))
        world.run(for_ms=10_000)
        after = world.talk(2)
        after.append(world.share_file("n0"))
        world.run(for_ms=5 * MINUTE_MS)
        opened = thief.open_all(world.envelopes(at))
        opened += thief.follow([one for name, one in world.recorded[at:] if name == "n1"], world.now)
        assert words_in(opened, between), "until then the thief reads on"
        assert not words_in(opened, after)
