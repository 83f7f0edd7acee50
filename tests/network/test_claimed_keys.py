"""A member whose contact names another member's server key, over real sockets: the other is reached all the same."""

import contextlib

import pytest

from tests.support.agents import until
from tests.support.mediated_agents import Person
from zerochat.agent import startup
from zerochat.agent.network.zmq.transport import MEMBER_CONNECTIONS_MAX
from zerochat.group.inputs import Started


@pytest.mark.parametrize(
    ("liars", "foreign_address"), [(1, False), (1, True), (MEMBER_CONNECTIONS_MAX + 1, True)], ids=str
)
def test_a_claimed_server_key_hides_no_member(tmp_path, monkeypatch, liars, foreign_address):
    """Also not where the dialer has more connections to the victim than one member may have, one for each claim."""
    awake = {}

    def wake(name, *, hidden=False):
        awake[name] = Person(tmp_path, name, hidden=hidden)
        return awake[name]

    try:
        founder, victim = wake("founder"), wake("victim")
        theirs = victim.thread.loop

        def forged(pair, queue, server_key, *rest):
            at = (theirs.pair, theirs.queue) if foreign_address else (pair, queue)
            return Started(*at, theirs.transport.server_key, *rest)

        with monkeypatch.context() as patched:
            patched.setattr(startup, "Started", forged)
            false = [wake(f"liar{number}") for number in range(liars)]
        dialer = wake("dialer", hidden=True)
        founder.client.create_group("friends")
        for guest in (*false, dialer, victim):
            guest.client.join_group(founder.client.create_invitation("friends").url)
            until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")

        def connection_of(nick):
            return {member.nick: member.connection for member in dialer.client.list_members("friends")}.get(nick)

        until(lambda: connection_of("victim") == "connected", "that the dialer reaches the victim")
        for author, reader in ((dialer, victim), (victim, dialer)):
            author.client.send_message("friends", f"from {author.name}")
            until(lambda author=author, reader=reader: f"from {author.name}" in reader.texts(), "that it arrives")
        until(lambda: all(connection_of(liar.name) != "connected" for liar in false), "that the claims are refuted")
        assert connection_of("victim") == "connected"
    finally:
        for person in awake.values():
            with contextlib.suppress(Exception):
                person.sleep()
