"""Two cores with an external connection."""

import random

from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.protocols.oob_read import OutOfBand, read_invitation
from zerochat.group.effects import CommandDone, CommandFailed, Notify, WebPost, WebReply
from zerochat.group.engine import step
from zerochat.group.inputs import (
    AcceptConnection,
    CommandInput,
    OfferConnection,
    Started,
    StepContext,
    WebPostDelivered,
    WebPostFailed,
    WebReceived,
)
from zerochat.group.state import Agent

ALICE, BOB = "http://192.0.2.1:8080/", "http://192.0.2.2:8080/"


def invitation(link):
    read = read_invitation(link)
    assert isinstance(read, OutOfBand)
    return read


class Two:
    """Two agents and the web between them; what each is told is kept."""

    def __init__(self, alice=(ALICE,), bob=(BOB,)):
        self.rng = random.Random(7)
        self.now = 1_750_000_000_000
        self.agents = {"alice": Agent("alice"), "bob": Agent("bob")}
        self.at = {ALICE: "alice", BOB: "bob"}
        self.told = {"alice": [], "bob": []}
        self.sent = []
        self.down = set()
        self.handles = {}
        for number, (name, web) in enumerate((("alice", alice), ("bob", bob)), 1):
            host = f"10.0.0.{number}"
            key = x25519_public(self.rng.randbytes(32))
            self.process(name, Started(Endpoint(host, 7000), Endpoint(host, 7001), key, tuple(web)))

    def process(self, name, stimulus):
        self.agents[name], effects = step(self.agents[name], stimulus, StepContext(self.now, self.rng.randbytes))
        answer = None
        for effect in effects:
            match effect:
                case CommandDone() | CommandFailed():
                    answer = effect
                case Notify(notice):
                    self.told[name].append(notice)
                case WebPost():
                    self.post(name, effect)
                case WebReply():
                    self.reply(effect)
                case _:
                    self.perform(effect)
        return answer

    def post(self, name, post):
        self.sent.append(post.envelope)
        if post.uri in self.down:
            self.process(name, WebPostFailed(post.uri, post.reference))
            return
        handle = len(self.handles) + 1
        self.handles[handle] = name
        self.process(self.at[post.uri], WebReceived(post.envelope, handle))
        if post.reference:
            self.process(name, WebPostDelivered(post.reference))

    def reply(self, reply):
        self.sent.append(reply.envelope)
        self.process(self.handles[reply.handle], WebReceived(reply.envelope))

    def perform(self, effect):
        """What has no effect between the two."""

    def ask(self, name, command):
        answer = self.process(name, CommandInput(1, command))
        if isinstance(answer, CommandFailed):
            raise answer.error
        return answer.result

    def connect(self, envelope="didcomm/v2"):
        offered = self.ask("alice", OfferConnection(envelope, "Alice", 3600))
        return self.ask("bob", AcceptConnection(invitation(offered.url), "alice"))

    def one(self, name):
        (connection,) = self.agents[name].connections.values()
        return connection

    def news(self, name, kind):
        return [notice for notice in self.told[name] if isinstance(notice, kind)]
