"""Link multiplexing: messages of a link over the connection of another, and its limits."""

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
from zerochat.agent.network.zmq import bans, multiplexing, transport
from zerochat.agent.network.zmq.client_session import SEND_BYTES_MAX
from zerochat.agent.network.zmq.multiplexing import (
    EARLY_BYTES_MAX,
    EARLY_MAX,
    HEADER_BYTES,
    LABEL,
    EarlyMessage,
    EarlyMessages,
    claimed_key,
    make_header,
    open_header,
)
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.crypto.nacl_boxes import box
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.effects import AllowClient, Dial, Disconnect, Reply, RevokeClient, SendEnvelope
from zerochat.group.inputs import LinkDown, LinkUp, Received

LINK, OTHER, THIRD = b"l" * 16, b"m" * 16, b"n" * 16
CARRIER, RIDER, HOST = b"c" * 32, b"r" * 32, b"h" * 32
"""Client secrets of the carrying and the riding link, and the host's server secret."""
QUEUE = b"q" * 32
NONCE = bytes(24)
MEET_S_MAX = 30.0


@contextmanager
def riders(count: int = 2, socks: str | None = None, *, multiplexing: bool = True):
    """Agents that may ride; the last has `HOST` for its secret, and the proxy is the others'."""
    with ExitStack() as stack:
        made = []
        for place in range(count):
            last = place == count - 1
            made.append(Peer(secret=HOST if last else b"", socks=None if last else socks, multiplexing=multiplexing))
            stack.callback(made[-1].transport.close)
        yield made


def carry(a: Peer, b: Peer, link: bytes = LINK, secret: bytes = CARRIER) -> None:
    """Let `a` in at `b`, and wait until its line is up."""
    b.do(AllowClient(link, public_key(secret), (QUEUE,)))
    a.dial(link, b, secret, QUEUE)
    until(lambda: a.is_up(link) and b.is_up(link), a, b)


def up_at_once(a: Peer, link: bytes) -> bool:
    """What it has been told without any wait, in which nothing can have come up."""
    a.heard += list(a.transport._inputs)
    a.transport._inputs.clear()
    return a.is_up(link)


def own_line_up(a: Peer, link: bytes) -> bool:
    return a.transport.links.by_name[link].dialed[0].up


# --- riding ---------------------------------------------------------------------------------------------------------


def test_first_messages_are_multiplexed_until_the_own_link_is_up():
    with riders() as (a, b):
        carry(a, b)
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        a.dial(OTHER, b, RIDER, QUEUE)
        assert up_at_once(a, OTHER) and not own_line_up(a, OTHER)
        a.do(
            SendEnvelope(OTHER, b"one"),
            SendEnvelope(LINK, b"of the host"),
            SendEnvelope(OTHER, bytes(ENVELOPE_BYTES_MAX)),
        )
        a.transport.flush()
        until(lambda: b.envelopes(OTHER), b)  # nobody polls `a`, so its own line cannot have come up
        assert b.envelopes(OTHER)[0] == b"one" and not b.is_up(OTHER)
        until(lambda: own_line_up(a, OTHER) and b.is_up(OTHER), a, b)
        a.do(SendEnvelope(OTHER, b"three"))
        until(lambda: b"three" in b.envelopes(OTHER), a, b)
        until(lambda: len(b.envelopes(OTHER)) == 3, a, b)
        assert b.envelopes(LINK) == [b"of the host"]
        handles = {item.envelope: item.handle for item in b.heard if isinstance(item, Received)}
        assert handles[b"one"] is None and handles[b"three"] is not None
        news = [item for item in a.heard if isinstance(item, LinkUp | LinkDown)]
        assert news == [LinkUp(LINK), LinkUp(OTHER)], "the own line is no news"
        assert not any(name.startswith(("dropped", "refused")) for name in a.counts | b.counts)


def test_a_key_with_a_former_own_connection_is_not_multiplexed(monkeypatch):
    monkeypatch.setattr(multiplexing, "MULTIPLEX_S", 3600.0)
    with riders() as (a, b):
        carry(a, b)
        carry(a, b, OTHER, RIDER)
        b.do(RevokeClient(public_key(RIDER)))
        until(lambda: not a.is_up(OTHER), a, b)
        assert own_line_up(a, LINK)
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
        a.dial(OTHER, b, RIDER, b"p" * 32)  # the line is the same
        assert not up_at_once(a, OTHER)
        a.dial(OTHER, b, b"another key of the riding link's", QUEUE)
        assert up_at_once(a, OTHER), "this is another line"


def test_multiplexing_ends_in_time(monkeypatch):
    monkeypatch.setattr(multiplexing, "MULTIPLEX_S", 0.05)
    with riders() as (a, b):
        carry(a, b)
        a.dial(OTHER, b, RIDER, QUEUE)  # it is not let in
        assert up_at_once(a, OTHER)
        until(lambda: not a.is_up(OTHER), a, b)
        assert a.is_up(LINK)
        a.do(SendEnvelope(OTHER, b"too late"))
        assert a.counts["dropped.down"] == 1


def test_multiplexing_ends_with_its_last_carrier():
    with riders() as (a, b):
        carry(a, b)
        a.dial(OTHER, b, RIDER, QUEUE)
        assert up_at_once(a, OTHER)
        carry(a, b, THIRD, b"t" * 32)
        a.do(Disconnect(LINK))
        assert not up_at_once(a, LINK) and up_at_once(a, OTHER)
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        a.do(SendEnvelope(OTHER, b"on the third"))
        a.transport.flush()
        until(lambda: b.envelopes(OTHER), b)
        b.do(RevokeClient(public_key(RIDER)))
        until(lambda: not own_line_up(a, OTHER), a, b)
        b.transport.close()
        until(lambda: not a.is_up(THIRD), a)
        assert not a.is_up(OTHER)


def test_a_waiting_link_is_multiplexed_once_a_carrier_exists():
    with riders() as (a, b):
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
        carry(a, b)
        until(lambda: a.is_up(OTHER), a, b)
        assert not own_line_up(a, OTHER)
        a.do(Disconnect(OTHER))
        assert not up_at_once(a, OTHER)


def test_a_banned_link_is_neither_multiplexed_nor_a_carrier():
    with riders() as (a, b):
        carry(a, b)
        a.dial(OTHER, b, RIDER, QUEUE)
        a.dial(THIRD, b, b"t" * 32, QUEUE)
        assert up_at_once(a, OTHER) and up_at_once(a, THIRD)
        a.transport.strike(OTHER, bans.STRIKES_MAX + 1)
        assert not up_at_once(a, OTHER) and up_at_once(a, THIRD)
        a.transport.strike(LINK, bans.STRIKES_MAX + 1)
        assert not up_at_once(a, THIRD)


def test_a_header_is_sent_together_with_its_message():
    with riders() as (a, b):
        carry(a, b)
        session = a.transport.links.by_name[LINK].dialed[0]._session
        while session.send(bytes(60_000)):
            pass
        before = bytes(session.outgoing)
        room = SEND_BYTES_MAX - len(before)
        assert not session.send(bytes(room), b"!") and session.outgoing == before
        assert session.send(bytes(room))


# --- who does not ride ----------------------------------------------------------------------------------------------


def test_without_multiplexing_a_link_waits_for_its_connection():
    with riders(multiplexing=False) as (a, b):
        carry(a, b)
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
        until(lambda: a.is_up(OTHER), a, b)
        assert own_line_up(a, OTHER)


def test_no_link_is_multiplexed_through_a_proxy():
    proxy = Relay()
    with riders(socks=f"127.0.0.1:{proxy.port}") as (a, b):
        carry(a, b)
        assert proxy.asked
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
    proxy.close()


@pytest.mark.parametrize(("carrying", "riding"), [(True, False), (False, True)])
def test_only_member_links_are_multiplexed_and_carriers(carrying, riding):
    with riders() as (a, b):
        b.do(AllowClient(LINK, public_key(CARRIER), (QUEUE,)))
        a.dial(LINK, b, CARRIER, QUEUE if carrying else None)
        until(lambda: a.is_up(LINK), a, b)
        a.dial(OTHER, b, RIDER, QUEUE if riding else None)
        assert not up_at_once(a, OTHER)


def test_a_link_is_multiplexed_once_it_is_between_members():
    with riders() as (a, b):
        b.do(AllowClient(LINK, public_key(CARRIER), (QUEUE,)))
        a.dial(LINK, b, CARRIER)
        a.dial(OTHER, b, RIDER)
        until(lambda: a.is_up(LINK), a, b)
        a.dial(OTHER, b, RIDER, QUEUE)
        assert not up_at_once(a, OTHER)
        a.dial(LINK, b, CARRIER, QUEUE)
        assert up_at_once(a, OTHER)


def test_a_link_of_another_host_is_no_carrier():
    with riders(3) as (a, c, b):
        carry(a, b)
        server_key, other_key = b.transport.server_key, c.transport.server_key
        for link, pair, key in ((OTHER, c.pair, server_key), (THIRD, b.pair, other_key)):
            a.do(Dial(link, pair, key, RIDER, b.queue, (QUEUE,)))
            assert not up_at_once(a, link)


class Person:
    """A profile with its agent thread and a client of it."""

    def __init__(self, folder: Path, name: str, *, hidden: bool = False):
        self.places = profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(self.places, name, None)
        self.thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1", hidden=hidden)
        self.thread.start()
        self.client = connect(self.places, "test")

    def meet(self, *guests: "Person", group: str) -> None:
        """Have the guests join a new group, one after the other, and wait until all are connected with all."""
        self.client.create_group(group)
        for number, guest in enumerate(guests, 2):
            guest.client.join_group(self.client.create_invitation(group).url)
            deadline = time.monotonic() + MEET_S_MAX
            while any(each.connected_in(group) != number for each in (self, *guests[: number - 1])):
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def connected_in(self, group: str) -> int:
        return next((info.connected + 1 for info in self.client.list_groups() if info.name == group), 0)

    def sleep(self) -> None:
        self.client.close()
        self.thread.stop()


@pytest.mark.slow
def test_reconnecting_agents_exchange_dids_on_existing_links(tmp_path, monkeypatch):
    heard: list[bytes] = []
    hear = Transport._receive_multiplexed

    def listen(self: Transport, early: EarlyMessage) -> None:
        hear(self, early)
        heard.append(early.envelope)

    monkeypatch.setattr(Transport, "_receive_multiplexed", listen)
    with ExitStack() as stack:
        ann, ben, cal = [Person(tmp_path, name) for name in ("ann", "ben", "cal")]
        for person in (ann, ben, cal):
            stack.callback(person.sleep)
        ben.meet(cal, ann, group="neighbours")
        assert not heard, "there was no other line"
        ben.meet(cal, ann, group="hikers")
        assert heard


def test_a_dial_only_agent_reveals_no_identity_by_multiplexing(tmp_path):
    for name, hidden in (("ann", True), ("ben", False)):
        person = Person(tmp_path, name, hidden=hidden)
        assert person.thread.loop.transport.links.multiplexer._allowed is not hidden
        person.sleep()


# --- who is believed ------------------------------------------------------------------------------------------------


@contextmanager
def caller(b: Peer, secret: bytes = CARRIER, link: bytes = LINK):
    """A peer with a bare DEALER of libzmq's, which can say anything."""
    b.do(AllowClient(link, public_key(secret), (QUEUE,)))
    with strangers() as make:
        one = make(zmq.DEALER, curve(b, secret))
        one.connect(b)
        one.socket.send(b"")
        until(lambda: b.is_up(link), b)
        yield one


def say(one: Stranger, b: Peer, *frames: bytes) -> None:
    """Say this, and wait until something has come of it."""

    def outcomes() -> int:
        dropped: int = sum(b.counts[name] for name in ("refused.multiplexed", "multiplexed.early", "dropped.shape"))
        return dropped + len(b.envelopes())

    before = outcomes()
    one.socket.send_multipart(frames)
    until(lambda: outcomes() > before, b)


def header(carrier: bytes = CARRIER, secret: bytes = RIDER, server: bytes = HOST) -> bytes:
    return make_header(secret, public_key(server), public_key(carrier), os.urandom(24))


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
def test_a_forged_header_counts_against_its_carrier(monkeypatch, forge):
    monkeypatch.setattr(bans, "STRIKES_MAX", 2)
    with riders(1) as (b,), caller(b) as one:
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        for _ in range(3):
            say(one, b, forge(), b"believe me")
        assert b.counts["refused.multiplexed"] == 3 and not b.envelopes()
        assert b.counts["banned"] == 1 and LINK in b.transport._bans and OTHER not in b.transport._bans


def test_a_repeated_honest_header_is_accepted():
    with riders(1) as (b,), caller(b) as one:
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        honest = header()
        for _ in range(3):
            say(one, b, honest, b"believe me")
        assert b.heard[-3:] == [Received(OTHER, b"believe me")] * 3


def test_a_copied_header_is_useless_on_another_connection():
    with riders(1) as (b,), caller(b) as one, caller(b, b"t" * 32, THIRD) as thief:
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        honest = header()
        say(one, b, honest, b"mine")
        say(thief, b, honest, b"stolen")
        assert b.envelopes() == [b"mine"] and b.counts["refused.multiplexed"] == 1
        assert b.transport._bans._strikes.keys() == {THIRD}


@pytest.mark.parametrize(
    "frames", [(header(), b""), (header(), b"one", b"two"), (header() + b"!", b"one"), (b"", b"one")]
)
def test_a_header_of_another_shape_is_dropped(frames):
    with riders(1) as (b,), caller(b) as one:
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        say(one, b, *frames)
        assert b.counts["dropped.shape"] == 1 and not b.envelopes() and not b.transport._bans._strikes


def test_revoked_and_banned_clients_are_not_multiplexed():
    with riders(1) as (b,), caller(b) as one:
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)), RevokeClient(public_key(RIDER)))
        say(one, b, header(), b"revoked")
        b.do(AllowClient(THIRD, public_key(b"t" * 32), (QUEUE,)))
        b.transport.strike(THIRD, bans.STRIKES_MAX + 1)
        say(one, b, header(secret=b"t" * 32), b"shut out")
        pump(b)
        assert not b.envelopes() and not b.transport._bans._strikes


def test_an_invitation_key_is_neither_multiplexed_nor_a_carrier():
    with riders(1) as (b,), caller(b) as one:
        b.do(AllowClient(OTHER, public_key(RIDER)))
        say(one, b, header(), b"from an invitation's key")
        b.do(AllowClient(LINK, public_key(CARRIER)), AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        say(one, b, header(), b"over its connection")
        b.do(RevokeClient(public_key(RIDER)))
        say(one, b, header(), b"too early")
        assert b.counts["refused.multiplexed"] == 3 and not b.envelopes() and not b.transport._bans._strikes


def test_a_multiplexed_message_is_not_answered_on_its_carrier():
    with riders() as (a, b):
        carry(a, b)
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        a.dial(OTHER, b, RIDER, QUEUE)
        a.do(SendEnvelope(OTHER, b"question"))
        a.transport.flush()
        until(lambda: b.envelopes(OTHER), b)
        question = b.heard[-1]
        assert question == Received(OTHER, b"question", None)
        b.do(SendEnvelope(OTHER, b"answer"), Reply(b"", b"answer"))
        assert b.counts["dropped.down"] == 2
        b.do(SendEnvelope(LINK, b"what belongs there"))
        until(lambda: a.envelopes(LINK), a, b)
        assert a.envelopes() == [b"what belongs there"]


# --- who comes too early --------------------------------------------------------------------------------------------


def test_a_message_just_before_admission_is_processed_after_it():
    with riders(1) as (b,), caller(b) as one:
        say(one, b, header(), b"the first try")
        say(one, b, header(), b"the second")
        b.do(AllowClient(OTHER, public_key(b"x" * 32), (QUEUE,)))
        pump(b)
        assert b.counts["multiplexed.early"] == 2 and not b.envelopes()
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        pump(b)
        assert b.envelopes() == [b"the second"] and b.heard[-1] == Received(OTHER, b"the second")
        b.do(RevokeClient(public_key(RIDER)), AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        pump(b)
        assert b.envelopes() == [b"the second"], "and only once"


def test_expired_forged_and_revoked_early_messages_are_dropped(monkeypatch):
    with riders(1) as (b,), caller(b) as one:
        say(one, b, header(), bytes(EARLY_BYTES_MAX + 1))
        assert b.counts["refused.multiplexed"] == 1
        say(one, b, header(carrier=b"x" * 32), b"forged")
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        assert b.counts["refused.multiplexed"] == 2 and b.transport._bans._strikes.keys() == {LINK}
        b.do(RevokeClient(public_key(RIDER)))
        say(one, b, header(), b"from a member that is put out")
        b.do(RevokeClient(public_key(CARRIER)), AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        assert b.counts["refused.multiplexed"] == 3
    with riders(1) as (b,), caller(b) as one:
        monkeypatch.setattr(transport, "MULTIPLEX_S", 0.0)
        say(one, b, header(), b"too late")
        b.do(AllowClient(OTHER, public_key(RIDER), (QUEUE,)))
        pump(b)
        assert not b.envelopes()


def test_early_messages_are_limited_per_carrier_and_in_total():
    waiting = EarlyMessages()
    for _ in range(2):
        for number in range(EARLY_MAX + 1):
            assert waiting.keep(EarlyMessage(str(number), header(), b"envelope", 1.0))
    assert len(waiting._early) == EARLY_MAX and "0" not in waiting._early
    assert not waiting.keep(EarlyMessage("1", header(), bytes(EARLY_BYTES_MAX + 1), 1.0))
    assert len(waiting.take(public_key(RIDER), 0.0)) == EARLY_MAX and not waiting._early


# --- the header -----------------------------------------------------------------------------------------------------


def test_a_header_yields_the_key_that_made_it():
    made = make_header(RIDER, public_key(HOST), public_key(CARRIER), NONCE)
    assert len(made) == HEADER_BYTES and claimed_key(made) == public_key(RIDER)
    assert open_header(made, HOST, public_key(CARRIER)) == public_key(RIDER)
    with pytest.raises(Unauthentic):
        open_header(made, HOST, public_key(RIDER))
    with pytest.raises(Malformed):
        open_header(made[:-1], HOST, public_key(CARRIER))


@given(st.integers(0, HEADER_BYTES * 8 - 1))
def test_no_bit_of_a_header_can_be_changed(bit):
    made = bytearray(make_header(RIDER, public_key(HOST), public_key(CARRIER), NONCE))
    made[bit // 8] ^= 1 << bit % 8
    # X25519 takes no notice of the last bit of a key (RFC 7748), but a key has one spelling here.
    with pytest.raises(Malformed if bit == 255 else Unauthentic):
        open_header(bytes(made), HOST, public_key(CARRIER))


@given(st.binary(max_size=2 * HEADER_BYTES) | st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_any_header_bytes_are_refused(anything):
    with pytest.raises(RemoteError):
        open_header(anything, HOST, public_key(CARRIER))


@pytest.mark.parametrize("key", [bytes(32), (1).to_bytes(32, "little"), (2**255 - 19).to_bytes(32, "little")])
def test_a_key_of_low_order_proves_nothing(key):
    with pytest.raises(Unauthentic):
        open_header(key + bytes(HEADER_BYTES - 32), HOST, public_key(CARRIER))
    with pytest.raises(Unauthentic):
        make_header(RIDER, key, public_key(CARRIER), NONCE)
