"""Messages over the WebSockets that peers have opened to us (`return_route: all`)."""

import pytest
from msgspec.structs import replace

from tests.support.external_pair import Two
from zerochat.didcomm import PACKERS
from zerochat.didcomm.protocols import ping
from zerochat.group.effects import WebPost, WebReply
from zerochat.group.engine import step
from zerochat.group.inputs import (
    CommandInput,
    SendBasicMessage,
    StepContext,
    WebPostDelivered,
    WebPostFailed,
    WebReceived,
)
from zerochat.group.links.relationship import pack, unpack

ENVELOPES = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
SOCKET, OTHER = 77, 78


class Sockets(Two):
    """Bob only dials out; Alice's effects are looked at one step at a time."""

    def __init__(self, envelope="didcomm/v2"):
        super().__init__(bob=())
        self.connect(envelope)
        self.packer, self.named = PACKERS[envelope], envelope == "didcomm/v2"

    def sealed(self, **headers):
        message = ping.ping(self.rng.randbytes, "didcomm/v2" if self.named else "didcomm/v1", False)
        message = replace(message, **headers)
        return pack(self.one("bob").relationship, message, self.packer, self.rng.randbytes, named=self.named)

    def alice(self, input_):
        """What Alice sends because of this input: the handle or URI, and the effect."""
        self.agents["alice"], effects = step(self.agents["alice"], input_, StepContext(self.now, self.rng.randbytes))
        return [(one.handle if isinstance(one, WebReply) else one.uri, one) for one in effects if self._is_sent(one)]

    def _is_sent(self, effect):
        return isinstance(effect, WebReply | WebPost)

    def opened(self, effect):
        return unpack(self.one("bob").relationship, effect.envelope, self.packer)[1]

    def open(self, handle=SOCKET, envelope=None, *, proves=True):
        """Bob asks for everything over this WebSocket, and answers the ping there."""
        came = self.alice(WebReceived(envelope or self.sealed(return_route="all"), handle, True))
        ((where, effect),) = came
        assert where == handle
        if proves:
            answer = ping.answer(self.opened(effect), self.rng.randbytes)
            assert answer is not None
            sealed = pack(self.one("bob").relationship, answer, self.packer, self.rng.randbytes, named=self.named)
            self.alice(WebReceived(sealed, handle, True))

    def say(self, text="hello"):
        return self.alice(CommandInput(1, SendBasicMessage(self.one("alice").id, text)))


@ENVELOPES
def test_messages_go_over_the_websocket_of_the_peer(envelope):
    two = Sockets(envelope)
    assert two.say() == []
    two.open()
    ((where, effect),) = two.say()
    assert where == SOCKET and two.opened(effect).body["content"] == "hello"
    two.alice(WebPostDelivered(effect.reference))
    assert [each.status for each in two.one("alice").messages] == ["delivered"]


def test_a_request_without_the_answer_to_a_ping_counts_for_nothing():
    """It may be a copy of an old one, sent by someone else."""
    two = Sockets()
    replayed = two.sealed(return_route="all")
    two.open(envelope=replayed)
    two.open(OTHER, replayed, proves=False)
    assert [where for where, _ in two.say()] == [SOCKET]
    lone = Sockets()
    lone.open(proves=False)
    assert lone.say() == []


def test_a_post_needs_no_ping_and_opens_nothing():
    two = Sockets()
    assert two.alice(WebReceived(two.sealed(return_route="all"), SOCKET)) == []
    assert not two.agents["alice"].web_sessions and two.say() == []


def test_none_or_a_failed_post_ends_it():
    two = Sockets()
    two.open()
    ((_, effect),) = two.say()
    two.alice(WebPostFailed("", effect.reference))
    assert not two.agents["alice"].web_sessions
    assert [each.status for each in two.one("alice").messages] == ["waiting"]
    came = two.alice(WebReceived(two.sealed(return_route="all"), OTHER, True))
    answer = ping.answer(two.opened(came[0][1]), two.rng.randbytes)
    assert answer is not None
    sealed = pack(two.one("bob").relationship, answer, two.packer, two.rng.randbytes)
    ((where, again),) = two.alice(WebReceived(sealed, OTHER, True))
    assert where == OTHER and two.opened(again).body["content"] == "hello", "at once, although its pause is not over"
    two.alice(WebReceived(two.sealed(return_route="none"), OTHER, True))
    assert not two.agents["alice"].web_sessions
