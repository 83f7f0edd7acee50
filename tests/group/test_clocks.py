"""A clock set wrong by a year and corrected later: events of the meantime arrive."""

import time

import pytest

from tests.support.agents import meet, people

__all__ = ["people"]

YEAR_S = 365 * 24 * 3600


@pytest.mark.slow
@pytest.mark.parametrize("jumps", [(1, 0), (-1, 0), (1, -1, 0)], ids=["forwards", "back", "both"])
def test_a_temporarily_wrong_clock_loses_no_message(jumps, people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)

    def say(one, text):
        assert one.client.wait_for_delivery("friends", one.client.send_message("friends", text).id).complete, text

    for jump in (0, *jumps):
        alice.thread.loop.clock._wall = lambda jump=jump: time.time() + jump * YEAR_S
        for n in range(2):
            say(alice, f"alice {jump} {n}")
            say(bob, f"bob {jump} {n}")
    assert alice.ids() == bob.ids() and len(alice.texts()) == 4 * (len(jumps) + 1)
    # It starts again with a clock that is right, and so does nothing wait for next year.
    alice.sleep()
    sent = bob.client.send_message("friends", "while you were away")
    alice.wake()
    assert bob.client.wait_for_delivery("friends", sent.id).complete
    say(alice, "back again")
    assert alice.ids() == bob.ids()
