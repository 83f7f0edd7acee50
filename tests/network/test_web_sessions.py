"""Posts over WebSockets that peers have opened to the agent: their results come back as those of other posts."""

import time

from tests.support import web_peers
from tests.support.web_peers import PATIENCE_S, wait
from zerochat.agent.network.web.events import ENCRYPTED
from zerochat.agent.network.web_adapter import WebAdapter
from zerochat.agent.settings.reader import Settings
from zerochat.group.effects import WebReply
from zerochat.group.inputs import Input, WebPostDelivered, WebPostFailed, WebReceived

nodes = web_peers.nodes


def test_a_post_on_a_websocket_of_the_peer_has_a_result(nodes):
    peer = nodes(None)
    found: list[Input] = []

    def taken(kind, adapter):
        deadline = time.monotonic() + PATIENCE_S
        while not any(isinstance(one, kind) for one in found):
            peer.tx()
            found.extend(adapter.take())
            adapter.acknowledge(found, kept=True)
            assert time.monotonic() < deadline
            wait()
        return next(one for one in found if isinstance(one, kind))

    with WebAdapter(Settings(web="127.0.0.1:0"), wake=web_peers.RUNG.set) as adapter:
        (uri,) = adapter.start()
        assert peer.web.send(uri.replace("http", "ws", 1), b"x", ENCRYPTED, 1)
        received = taken(WebReceived, adapter)
        assert received.envelope == b"x" and received.is_session and received.handle
        adapter.perform(WebReply(received.handle, b"unasked", ENCRYPTED, "one"))
        assert taken(WebPostDelivered, adapter) == WebPostDelivered("one")
        assert peer.envelopes() == [b"unasked"]
        peer.web.stop()
        adapter.perform(WebReply(received.handle, b"late", ENCRYPTED, "two"))
        assert taken(WebPostFailed, adapter) == WebPostFailed("", "two")
        adapter.perform(WebReply(10**6, b"nowhere", ENCRYPTED, "three"))
        found.clear()
        assert taken(WebPostFailed, adapter) == WebPostFailed("", "three")
