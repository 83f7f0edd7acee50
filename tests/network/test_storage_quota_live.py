"""The daily quota of a member, between real agents: the rest is refused, visibly at both ends, and comes later."""

import contextlib

import pytest

from tests.support.agents import Person, meet, until
from zerochat.group.event_log.delivery import BUFFER_BYTES_MAX
from zerochat.group.links.storage_quota import disk_bytes
from zerochat.presentation import delivery

pytestmark = pytest.mark.slow

POSTS, TEXT = 40, "x" * 60_000


def gaps(person):
    (group,) = person.client.list_groups()
    return group.completeness.gaps


def test_a_member_fills_no_more_than_its_daily_quota(tmp_path):
    """Alice sends 2.3 MiB, and Bob accepts 1 MiB a day: half of it at once."""
    alice, bob = (Person(tmp_path, name) for name in ("alice", "bob"))
    bob.places.config.parent.mkdir(parents=True, exist_ok=True)
    bob.places.config.write_text("[storage]\ndaily_max = 1\n")
    try:
        for person in (alice, bob):
            person.wake()
        meet(alice, bob)
        for number in range(POSTS):
            alice.client.send_message("friends", f"{number} {TEXT}")

        def held(person=alice):
            report = person.client.get_delivery("friends", "last")
            return next((one for one in report.members if one.state == "held"), None)

        assert until(held, "holding back").next_try is not None
        assert [one.nick for one in alice.client.list_groups()[0].quota_used_up] == ["bob"]
        assert not bob.client.list_groups()[0].quota_used_up
        (gap,) = gaps(bob)
        newest = next(event for event in reversed(bob.client.get_history("friends").events) if not event.self)
        found = bob.client.get_message_status("friends", newest.id)
        assert found.held
        assert "alice has used up its daily quota here" in " ".join(delivery.status_sentences(found, {}, str, str))
        assert not alice.client.get_message_status("friends", "last").held
        accepted = POSTS - gap.missing
        assert (
            gap.state == "held"
            and 512 << 10 <= accepted * disk_bytes(len(TEXT) + 400) <= (512 << 10) + 2 * BUFFER_BYTES_MAX
        )
        bob.client.send_message("friends", "hello")
        until(lambda: "hello" in alice.texts(), "the way back")
        bob.sleep()
        bob.wake()  # the quota is still used up
        alice.client.send_message("friends", "one more")
        until(held, "holding back after a restart")
        assert until(lambda: gaps(bob), "noticing")[0].missing >= POSTS - accepted
        bob.sleep()
        bob.places.config.write_text("[storage]\ndaily_max = 0\n")
        bob.wake()
        until(lambda: "one more" in bob.texts() and not gaps(bob), "delivery without a quota")
    finally:
        for person in (alice, bob):
            with contextlib.suppress(Exception):
                person.sleep()
