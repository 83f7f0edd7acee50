"""Riding: what goes over another link's line before one's own is up, and all that must not."""

import os
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sockets import Peer, Relay, Stranger, curve, pump, strangers, until
from zerochat.agent.api.client import connect
from zerochat.agent.loop import AgentThread
from zerochat.agent.network.zmq import bans, multiplexing, transport
from zerochat.agent.network.zmq.client_session import SEND_BYTES_MAX
from zerochat.agent.network.zmq.multiplexing import (
    EARLY_BYTES_MAX,
    EARLY_MAX,
    HEADER_BYTES,
    LABEL,
    Early,
    Waiting,
    header_of,
    read_header,
    rider_of,
)
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.storage.paths import places
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.crypto.nacl_boxes import box
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.effects import Admit, Dial, Dispatch, Hangup, Reply, Revoke
from zerochat.group.inputs import LinkDown, LinkUp, Received

LINK, OTHER, THIRD = b"l" * 16, b"m" * 16, b"n" * 16
CARRIER, RIDER, HOST = b"c" * 32, b"r" * 32, b"h" * 32
"""Client secrets of the carrying and the riding link, and the host's server secret."""
QUEUE = b"q" * 32
NONCE = bytes(24)
MEET_S_MAX = 30.0


@contextmanager
def riders(count: int = 2, socks: str | None = None, *, rides: bool = True):
    """Agents that may ride; the last has `HOST` for its secret, and the proxy is the others'."""
    with ExitStack() as stack:
        made = []
        for place in range(count):
            last = place == count - 1
            made.append(Peer(secret=HOST if last else b"", socks=None if last else socks, rides=rides))
            stack.callback(made[-1].transport.close)
        yield made


def carry(a: Peer, b: Peer, link: bytes = LINK, secret: bytes = CARRIER) -> None:
    """Let `a` in at `b`, and wait until its line is up."""
    b.do(Admit(link, public_key(secret), (QUEUE,)))
    a.dial(link, b, secret, QUEUE)
    until(lambda: a.is_up(link) and b.is_up(link), a, b)


def up_at_once(a: Peer, link: bytes) -> bool:
    """What it has been told without any wait, in which nothing can have come up."""
    a.heard += list(a.transport._news)
    a.transport._news.clear()
    return a.is_up(link)


def own_line_up(a: Peer, link: bytes) -> bool:
    return a.transport._links[link].lines[0].up


# --- riding ---------------------------------------------------------------------------------------------------------


def test_the_first_messages_go_over_the_line_that_is_up_and_the_rest_over_ones_own():
    with riders() as (a, b):
        carry(a, b)
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        a.dial(OTHER, b, RIDER, QUEUE)
        assert up_at_once(a, OTHER) and not own_line_up(a, OTHER)
        a.do(Dispatch(OTHER, b"one"), Dispatch(LINK, b"of the host"), Dispatch(OTHER, bytes(ENVELOPE_BYTES_MAX)))
        a.transport.flush()
        until(lambda: b.envelopes(OTHER), b)  # nobody polls `a`, so its own line cannot have come up
        assert b.envelopes(OTHER)[0] == b"one" and not b.is_up(OTHER)
        until(lambda: own_line_up(a, OTHER) and b.is_up(OTHER), a, b)
        a.do(Dispatch(OTHER, b"three"))
        until(lambda: b"three" in b.envelopes(OTHER), a, b)
        until(lambda: len(b.envelopes(OTHER)) == 3, a, b)
        assert b.envelopes(LINK) == [b"of the host"]
        handles = {item.envelope: item.handle for item in b.heard if isinstance(item, Received)}
        assert handles[b"one"] is None and handles[b"three"] is not None
        news = [item for item in a.heard if isinstance(item, LinkUp | LinkDown)]
        assert news == [LinkUp(LINK), LinkUp(OTHER)], "the own line is no news"
        assert not any(name.startswith(("dropped", "refused")) for name in a.counts | b.counts)


def test_who_has_had_a_line_of_its_own_does_not_ride_again(monkeypatch):
    monkeypatch.setattr(multiplexing, "RIDE_S", 3600.0)
    with riders() as (a, b):
        carry(a, b)
        carry(a, b, OTHER, RIDER)
        b.do(Revoke(public_key(RIDER)))
        until(lambda: not a.is_up(OTHER), a, b)
        assert own_line_up(a, LINK)
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
        a.dial(OTHER, b, RIDER, b"p" * 32)  # the line is the same
        assert not up_at_once(a, OTHER)
        a.dial(OTHER, b, b"another key of the riding link's", QUEUE)
        assert up_at_once(a, OTHER), "this is another line"


def test_a_ride_ends_in_time(monkeypatch):
    monkeypatch.setattr(multiplexing, "RIDE_S", 0.05)
    with riders() as (a, b):
        carry(a, b)
        a.dial(OTHER, b, RIDER, QUEUE)  # it is not let in
        assert up_at_once(a, OTHER)
        until(lambda: not a.is_up(OTHER), a, b)
        assert a.is_up(LINK)
        a.do(Dispatch(OTHER, b"too late"))
        assert a.counts["dropped.down"] == 1


def test_a_ride_ends_with_the_line_that_carries_it_unless_there_is_another():
    with riders() as (a, b):
        carry(a, b)
        a.dial(OTHER, b, RIDER, QUEUE)
        assert up_at_once(a, OTHER)
        carry(a, b, THIRD, b"t" * 32)
        a.do(Hangup(LINK))
        assert not up_at_once(a, LINK) and up_at_once(a, OTHER)
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        a.do(Dispatch(OTHER, b"on the third"))
        a.transport.flush()
        until(lambda: b.envelopes(OTHER), b)
        b.do(Revoke(public_key(RIDER)))
        until(lambda: not own_line_up(a, OTHER), a, b)
        b.transport.close()
        until(lambda: not a.is_up(THIRD), a)
        assert not a.is_up(OTHER)


def test_a_link_that_waits_rides_as_soon_as_there_is_a_line():
    with riders() as (a, b):
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
        carry(a, b)
        until(lambda: a.is_up(OTHER), a, b)
        assert not own_line_up(a, OTHER)
        a.do(Hangup(OTHER))
        assert not up_at_once(a, OTHER)


def test_a_link_that_is_shut_neither_rides_nor_carries():
    with riders() as (a, b):
        carry(a, b)
        a.dial(OTHER, b, RIDER, QUEUE)
        a.dial(THIRD, b, b"t" * 32, QUEUE)
        assert up_at_once(a, OTHER) and up_at_once(a, THIRD)
        a.transport.complain(OTHER, bans.STRIKES_MAX + 1)
        assert not up_at_once(a, OTHER) and up_at_once(a, THIRD)
        a.transport.complain(LINK, bans.STRIKES_MAX + 1)
        assert not up_at_once(a, THIRD)


def test_a_header_goes_out_with_its_message_or_not_at_all():
    with riders() as (a, b):
        carry(a, b)
        session = a.transport._links[LINK].lines[0]._session
        while session.send(bytes(60_000)):
            pass
        before = bytes(session.outgoing)
        room = SEND_BYTES_MAX - len(before)
        assert not session.send(bytes(room), b"!") and session.outgoing == before
        assert session.send(bytes(room))


# --- who does not ride ----------------------------------------------------------------------------------------------


def test_who_is_not_known_by_its_address_does_not_ride():
    with riders(rides=False) as (a, b):
        carry(a, b)
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
        until(lambda: a.is_up(OTHER), a, b)
        assert own_line_up(a, OTHER)


def test_nobody_rides_through_a_proxy():
    proxy = Relay()
    with riders(socks=f"127.0.0.1:{proxy.port}") as (a, b):
        carry(a, b)
        assert proxy.asked
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
    proxy.close()


@pytest.mark.parametrize(("carrying", "riding"), [(True, False), (False, True)])
def test_only_links_between_members_ride_and_carry(carrying, riding):
    with riders() as (a, b):
        b.do(Admit(LINK, public_key(CARRIER), (QUEUE,)))
        a.dial(LINK, b, CARRIER, QUEUE if carrying else None)
        until(lambda: a.is_up(LINK), a, b)
        a.dial(OTHER, b, RIDER, QUEUE if riding else None)
        assert not up_at_once(a, OTHER)


def test_a_link_that_becomes_one_between_members_rides_and_carries_from_then_on():
    with riders() as (a, b):
        b.do(Admit(LINK, public_key(CARRIER), (QUEUE,)))
        a.dial(LINK, b, CARRIER)
        a.dial(OTHER, b, RIDER)
        until(lambda: a.is_up(LINK), a, b)
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
        a.dial(LINK, b, CARRIER, QUEUE)
        assert up_at_once(a, OTHER)


def test_another_host_does_not_carry():
    with riders(3) as (a, c, b):
        carry(a, b)
        server_key, other_key = b.transport.server_key, c.transport.server_key
        for link, pair, key in ((OTHER, c.pair, server_key), (THIRD, b.pair, other_key)):
            a.do(Dial(link, pair, key, RIDER, b.queue, (QUEUE,)))
            assert not up_at_once(a, link)


class Person:
    """A profile with its agent thread and a client of it."""

    def __init__(self, folder: Path, name: str, *, hidden: bool = False):
        self.places = places(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(self.places, name, None)
        self.thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1", hidden=hidden)
        self.thread.start()
        self.client = connect(self.places, "test")

    def meet(self, *guests: "Person", group: str) -> None:
        """Have the guests join a new group, one after the other, and wait until all are connected with all."""
        self.client.new(group)
        for number, guest in enumerate(guests, 2):
            guest.client.join(self.client.invite(group).url)
            deadline = time.monotonic() + MEET_S_MAX
            while any(each.connected_in(group) != number for each in (self, *guests[: number - 1])):
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def connected_in(self, group: str) -> int:
        return next((info.connected + 1 for info in self.client.groups() if info.name == group), 0)

    def sleep(self) -> None:
        self.client.close()
        self.thread.stop()


@pytest.mark.slow
def test_agents_that_meet_again_exchange_their_dids_on_the_lines_that_they_have(tmp_path, monkeypatch):
    heard: list[bytes] = []
    hear = Transport._hear_rider

    def listen(self: Transport, early: Early) -> None:
        hear(self, early)
        heard.append(early.envelope)

    monkeypatch.setattr(Transport, "_hear_rider", listen)
    with ExitStack() as stack:
        ann, ben, cal = [Person(tmp_path, name) for name in ("ann", "ben", "cal")]
        for person in (ann, ben, cal):
            stack.callback(person.sleep)
        ben.meet(cal, ann, group="neighbours")
        assert not heard, "there was no other line"
        ben.meet(cal, ann, group="hikers")
        assert heard


def test_an_agent_that_only_dials_out_tells_nobody_who_it_is_by_riding(tmp_path):
    for name, hidden in (("ann", True), ("ben", False)):
        person = Person(tmp_path, name, hidden=hidden)
        assert person.thread._transport._rides._allowed is not hidden
        person.sleep()


# --- who is believed ------------------------------------------------------------------------------------------------


@contextmanager
def caller(b: Peer, secret: bytes = CARRIER, link: bytes = LINK):
    """A peer with a bare DEALER of libzmq's, which can say anything."""
    b.do(Admit(link, public_key(secret), (QUEUE,)))
    with strangers() as make:
        one = make(zmq.DEALER, curve(b, secret))
        one.connect(b)
        one.socket.send(b"")
        until(lambda: b.is_up(link), b)
        yield one


def say(one: Stranger, b: Peer, *frames: bytes) -> None:
    """Say this, and wait until something has come of it."""

    def outcomes() -> int:
        dropped: int = sum(b.counts[name] for name in ("refused.ride", "early.ride", "dropped.shape"))
        return dropped + len(b.envelopes())

    before = outcomes()
    one.socket.send_multipart(frames)
    until(lambda: outcomes() > before, b)


def header(carrier: bytes = CARRIER, secret: bytes = RIDER, server: bytes = HOST) -> bytes:
    return header_of(secret, public_key(server), public_key(carrier), os.urandom(24))


def mislabelled() -> bytes:
    boxed = box(LABEL.swapcase() + public_key(CARRIER), NONCE, public_key(HOST), RIDER)
    return public_key(RIDER) + NONCE + boxed


FORGED = {
    "made up": lambda: public_key(RIDER) + os.urandom(HEADER_BYTES - 32),
    "made with another secret": lambda: public_key(RIDER) + header(secret=b"x" * 32)[32:],
    "made for another connection": lambda: header(carrier=b"x" * 32),
    "made for another host": lambda: header(server=b"x" * 32),
    "meant for something else": mislabelled,
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_header_is_refused_and_counts_against_whoever_has_carried_it(monkeypatch, forge):
    monkeypatch.setattr(bans, "STRIKES_MAX", 2)
    with riders(1) as (b,), caller(b) as one:
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        for _ in range(3):
            say(one, b, forge(), b"believe me")
        assert b.counts["refused.ride"] == 3 and not b.envelopes()
        assert b.counts["banned"] == 1 and LINK in b.transport._bans and OTHER not in b.transport._bans


def test_an_honest_header_is_believed_as_often_as_it_comes():
    with riders(1) as (b,), caller(b) as one:
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        honest = header()
        for _ in range(3):
            say(one, b, honest, b"believe me")
        assert b.heard[-3:] == [Received(OTHER, b"believe me")] * 3


def test_a_copy_of_a_header_is_of_no_use_on_anybody_elses_connection():
    with riders(1) as (b,), caller(b) as one, caller(b, b"t" * 32, THIRD) as thief:
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        honest = header()
        say(one, b, honest, b"mine")
        say(thief, b, honest, b"stolen")
        assert b.envelopes() == [b"mine"] and b.counts["refused.ride"] == 1
        assert b.transport._bans._strikes.keys() == {THIRD}


@pytest.mark.parametrize(
    "frames", [(header(), b""), (header(), b"one", b"two"), (header() + b"!", b"one"), (b"", b"one")]
)
def test_another_shape_is_dropped(frames):
    with riders(1) as (b,), caller(b) as one:
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        say(one, b, *frames)
        assert b.counts["dropped.shape"] == 1 and not b.envelopes() and not b.transport._bans._strikes


def test_whoever_is_revoked_or_shut_out_does_not_ride_and_nobody_pays_for_it():
    with riders(1) as (b,), caller(b) as one:
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)), Revoke(public_key(RIDER)))
        say(one, b, header(), b"revoked")
        b.do(Admit(THIRD, public_key(b"t" * 32), (QUEUE,)))
        b.transport.complain(THIRD, bans.STRIKES_MAX + 1)
        say(one, b, header(secret=b"t" * 32), b"shut out")
        pump(b)
        assert not b.envelopes() and not b.transport._bans._strikes


def test_the_key_of_an_invitation_neither_rides_nor_carries():
    with riders(1) as (b,), caller(b) as one:
        b.do(Admit(OTHER, public_key(RIDER)))
        say(one, b, header(), b"from an invitation's key")
        b.do(Admit(LINK, public_key(CARRIER)), Admit(OTHER, public_key(RIDER), (QUEUE,)))
        say(one, b, header(), b"over its connection")
        b.do(Revoke(public_key(RIDER)))
        say(one, b, header(), b"too early")
        assert b.counts["refused.ride"] == 3 and not b.envelopes() and not b.transport._bans._strikes


def test_what_rides_cannot_be_answered_on_the_connection_that_has_carried_it():
    with riders() as (a, b):
        carry(a, b)
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        a.dial(OTHER, b, RIDER, QUEUE)
        a.do(Dispatch(OTHER, b"question"))
        a.transport.flush()
        until(lambda: b.envelopes(OTHER), b)
        question = b.heard[-1]
        assert question == Received(OTHER, b"question", None)
        b.do(Dispatch(OTHER, b"answer"), Reply(b"", b"answer"))
        assert b.counts["dropped.down"] == 2
        b.do(Dispatch(LINK, b"what belongs there"))
        until(lambda: a.envelopes(LINK), a, b)
        assert a.envelopes() == [b"what belongs there"]


# --- who comes too early --------------------------------------------------------------------------------------------


def test_what_comes_just_before_its_key_is_admitted_is_heard_when_it_is():
    with riders(1) as (b,), caller(b) as one:
        say(one, b, header(), b"the first try")
        say(one, b, header(), b"the second")
        b.do(Admit(OTHER, public_key(b"x" * 32), (QUEUE,)))
        pump(b)
        assert b.counts["early.ride"] == 2 and not b.envelopes()
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        pump(b)
        assert b.envelopes() == [b"the second"] and b.heard[-1] == Received(OTHER, b"the second")
        b.do(Revoke(public_key(RIDER)), Admit(OTHER, public_key(RIDER), (QUEUE,)))
        pump(b)
        assert b.envelopes() == [b"the second"], "and only once"


def test_what_has_waited_too_long_or_is_forged_or_comes_from_nobody_any_more_is_not_heard(monkeypatch):
    with riders(1) as (b,), caller(b) as one:
        say(one, b, header(), bytes(EARLY_BYTES_MAX + 1))
        assert b.counts["refused.ride"] == 1
        say(one, b, header(carrier=b"x" * 32), b"forged")
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        assert b.counts["refused.ride"] == 2 and b.transport._bans._strikes.keys() == {LINK}
        b.do(Revoke(public_key(RIDER)))
        say(one, b, header(), b"from a member that is put out")
        b.do(Revoke(public_key(CARRIER)), Admit(OTHER, public_key(RIDER), (QUEUE,)))
        assert b.counts["refused.ride"] == 3
    with riders(1) as (b,), caller(b) as one:
        monkeypatch.setattr(transport, "RIDE_S", 0.0)
        say(one, b, header(), b"too late")
        b.do(Admit(OTHER, public_key(RIDER), (QUEUE,)))
        pump(b)
        assert not b.envelopes()


def test_one_carrier_has_one_thing_waiting_and_all_together_not_many():
    waiting = Waiting()
    for _ in range(2):
        for number in range(EARLY_MAX + 1):
            assert waiting.keep(Early(str(number), header(), b"envelope", 1.0))
    assert len(waiting._early) == EARLY_MAX and "0" not in waiting._early
    assert not waiting.keep(Early("1", header(), bytes(EARLY_BYTES_MAX + 1), 1.0))
    assert len(waiting.take(public_key(RIDER), 0.0)) == EARLY_MAX and not waiting._early


# --- the header -----------------------------------------------------------------------------------------------------


def test_a_header_gives_the_key_that_has_made_it():
    made = header_of(RIDER, public_key(HOST), public_key(CARRIER), NONCE)
    assert len(made) == HEADER_BYTES and rider_of(made) == public_key(RIDER)
    assert read_header(made, HOST, public_key(CARRIER)) == public_key(RIDER)
    with pytest.raises(Unauthentic):
        read_header(made, HOST, public_key(RIDER))
    with pytest.raises(Malformed):
        read_header(made[:-1], HOST, public_key(CARRIER))


@given(st.integers(0, HEADER_BYTES * 8 - 1))
def test_no_bit_of_a_header_can_be_another(bit):
    made = bytearray(header_of(RIDER, public_key(HOST), public_key(CARRIER), NONCE))
    made[bit // 8] ^= 1 << bit % 8
    # X25519 takes no notice of the last bit of a key (RFC 7748), but a key has one spelling here.
    with pytest.raises(Malformed if bit == 255 else Unauthentic):
        read_header(bytes(made), HOST, public_key(CARRIER))


@given(st.binary(max_size=2 * HEADER_BYTES) | st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_any_bytes_are_refused_and_no_more(anything):
    with pytest.raises(RemoteError):
        read_header(anything, HOST, public_key(CARRIER))


@pytest.mark.parametrize("key", [bytes(32), (1).to_bytes(32, "little"), (2**255 - 19).to_bytes(32, "little")])
def test_a_key_of_low_order_proves_nothing(key):
    with pytest.raises(Unauthentic):
        read_header(key + bytes(HEADER_BYTES - 32), HOST, public_key(CARRIER))
    with pytest.raises(Unauthentic):
        header_of(RIDER, key, public_key(CARRIER), NONCE)
