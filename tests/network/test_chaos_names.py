"""A name server that never answers, and whole agents that dial such a name."""

import socket
import threading
import time

import pytest

from tests.support.agents import Person, meet, until
from tests.support.load_gauge import p99
from tests.support.rogue import at_rest, texts

NAME = "black-hole.example"
PATIENCE_S = 60
WORDS = 30


@pytest.mark.slow
def test_a_pending_name_lookup_blocks_nothing_else(tmp_path, monkeypatch):
    """Alice is to connect with somebody over HTTP whose address is such a name; her group talks on meanwhile."""
    asked, silence, lookup = [], threading.Event(), socket.getaddrinfo

    def never(host, *more, **also):
        if host != NAME:
            return lookup(host, *more, **also)
        asked.append(threading.current_thread().name)
        silence.wait(PATIENCE_S)
        raise socket.gaierror(socket.EAI_AGAIN, "the name server does not answer")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    alice, bob, mallory = (Person(tmp_path, name) for name in ("alice", "bob", "mallory"))
    mallory.places.config.parent.mkdir(parents=True, exist_ok=True)
    mallory.places.config.write_text(f'[network]\nweb = "127.0.0.1:0"\nweb_public = "http://{NAME}"\n')
    people = [person.wake() for person in (alice, bob, mallory)]
    try:
        meet(alice, bob)
        for _ in range(10):
            offer = mallory.client.call("offer_connection", envelope="didcomm/v2", expires_s=600)
            alice.client.call("open_connection", invitation=offer.url)
        until(lambda: asked, "that the name is asked for")
        times = []
        for number in range(WORDS):
            begun = time.monotonic()
            sent = bob.client.send_message("friends", f"word {number}")
            assert bob.client.wait_for_delivery("friends", sent.id).complete
            times.append(time.monotonic() - begun)
        print(f"{len(asked)} look-ups are not answered; p99 of {WORDS} words {p99(times) * 1000:.0f} ms")
        assert texts(alice) == [f"word {number}" for number in range(WORDS)]
        assert {"zerochat-agent", "zerochat-zap"}.isdisjoint(asked)
    finally:
        silence.set()
        at_rest(*people)
