"""A simulated group with sender keys."""

from msgspec.structs import replace

from tests.support.ruled_world import Ruled
from zerochat.group.effects import Publish, SendEnvelope, StoreSignedAck, StoreSignedMessage, StoreStatement
from zerochat.group.inputs import SendPost, StepContext
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.links.relationship import pack
from zerochat.group.membership import Policy
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Transaction
from zerochat.sim import SIMULATED_PACKERS


class Signed(Ruled):
    """Members of a group whose keys sign, and all that they want kept."""

    def __init__(self, members=3):
        self.kept = {}
        self.wire = []
        super().__init__(members, Policy(remove="anyone", quorum=0), keys="sender-key")

    def _perform(self, node, effect):
        if isinstance(effect, StoreSignedMessage | StoreStatement | StoreSignedAck):
            self.kept.setdefault(node.name, []).append(effect)
        if isinstance(effect, Publish) and is_signed(effect.envelope):
            self.wire.append((node.name, effect.envelope))
        super()._perform(node, effect)

    def did(self, name):
        return self.group(name).me

    def post(self, name, text):
        return self.says(name, SendPost(self.id, text))

    def messages(self, at, by=None):
        """The messages of a stream (their own by default) that somebody has kept."""
        author = self.did(by or at)
        return [one for one in self.kept.get(at, ()) if isinstance(one, StoreSignedMessage) and one.author == author]

    def utter(self, name, to, **more):
        """The envelope of a `sync` between two of them, with something else in it."""
        tx, group = self.tx(name), self.group(name)
        acknowledgements.send_sync(tx, self.id, self.did(to))
        (sent,) = (effect for effect in tx.effects if isinstance(effect, SendEnvelope))
        packer = SIMULATED_PACKERS[group.profile.envelope]
        message = packer.parse(sent.envelope.split(b"\n", 3)[3])
        changed_ = replace(message, body={**message.body, **more})
        return pack(group.links.relationships[self.did(to)], changed_, packer, self.rng.randbytes)

    def tx(self, name):
        return Transaction(self.nodes[name].agent, StepContext(self.now, self.rng.randbytes), SIMULATED_PACKERS)
