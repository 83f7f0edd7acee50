"""Fuzz targets of a mediator: real envelopes of its recipients and of senders, and its responses."""

from functools import cached_property
from random import Random

from msgspec.structs import replace

from fuzzing.files import folder
from fuzzing.messages import Forward, Protocols, envelope
from fuzzing.nodes import Bytes, Object, Part, as_text, utf8
from fuzzing.people import MEDIATOR, Dice, dice
from fuzzing.run import Form
from zerochat.agent.mediator.core import Mediator
from zerochat.agent.mediator.limits import INVITATION_USES
from zerochat.agent.mediator.sessions import Policy, Session
from zerochat.agent.mediator.store import Store
from zerochat.crypto.keys import SecretKey, sign
from zerochat.didcomm.did import new_peer2, new_peer4, resolve
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.layers import open_layers
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message, dump, parse
from zerochat.didcomm.packer import TheirKey
from zerochat.didcomm.protocols import mediation, mediator_receipt, pickup, routing, shared_mailbox
from zerochat.errors import Malformed, Refused

NOW_MS = 1_800_000_000_000
_V2 = JwePacker()
_SEED = bytes(range(32))
"""Of the key of a shared mailbox."""


class _Undone(Exception):
    """The turn is over, and has not happened."""


class Post:
    """A mediator with a recipient, a mailbox and stored envelopes receives anything; every change is rolled back."""

    name = "mediator"
    form: Form = "sealed"
    size_max = MESSAGE_BYTES_MAX

    _URI = "http://mediator.example:8080"

    def __init__(self) -> None:
        random = dice(self.name)
        at = {"uri": self._URI, "accept": ["didcomm/v2"]}
        self._identity = new_peer2(random, [{"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": at}])
        self._recipient, self._mailbox = new_peer4(random, []), new_peer4(random, [])
        self._theirs = self._identity.did
        """The mediator's DID, as the recipient knows it."""

    @cached_property
    def _mediator(self) -> Mediator:
        store = Store.create(folder(self.name) / "mediator.db", bytes(32))
        policy = Policy({"the-invitation": INVITATION_USES})
        made = Mediator(store, self._identity, policy=policy, uris=(self._URI,), random=dice("mediator's"))
        random = dice("recipient's")
        asked = replace(mediation.request(random, pthid="the-invitation"), return_route="all")
        for message in (asked, mediation.update([mediation.Change(self._mailbox.short, "add")], random), None):
            said = message or shared_mailbox.keep([self._share()], random)  # by the DID that the mediator has now
            with store.transaction():
                answer = made.receive(self._sealed(dump(self._named(said)), random), Session(1, True), NOW_MS).answer
            assert answer is not None or message is not asked
            self._theirs = self._sender(answer) if answer is not None else self._theirs
        for _ in range(3):
            letter = _V2.anoncrypt(b"{}", recipient=_key(self._mailbox.did), random=random)
            wrapped = routing.forward(letter, self._mailbox.short, to=self._identity.did, random=random)
            with store.transaction():
                made.receive(_V2.anoncrypt(wrapped, recipient=_key(self._identity.did), random=random), _away(), NOW_MS)
        return made

    def _share(self) -> shared_mailbox.Share:
        return shared_mailbox.share(_SEED, self._mailbox.short, self._recipient.did, self._theirs)

    def _named(self, message: Message) -> Message:
        return replace(message, from_=self._recipient.did, to=(self._theirs,))

    def _sealed(self, plain: bytes, random: Dice) -> bytes:
        mine = self._recipient
        key = _V2.own_key(mine, mine.did)
        return _V2.authcrypt(plain, sender=key, recipient=_key(self._theirs), random=random)

    def _sender(self, answer: bytes) -> str:
        mine = self._recipient

        def secret_of(kid: str) -> SecretKey | None:
            return SecretKey("X25519", mine.agreement_secret) if kid in (mine.kid_long, mine.kid_short) else None

        opened = open_layers(answer, secret_of=secret_of, resolve=lambda did: resolve(did, {mine.short: mine.did}))
        assert opened.sender is not None
        return opened.sender

    def seeds(self) -> list[bytes]:
        """All messages of a recipient, and forwards to its mailbox."""
        random, mediator = dice(self.name), self._mediator
        said = [
            mediation.request(random, pthid="the-invitation"),
            mediation.update([mediation.Change(self._mailbox.short, action) for action in ("add", "remove")], random),
            mediation.query(random, mediation.Page()),
            pickup.status_request(random, self._mailbox.short),
            pickup.delivery_request(random, 10, self._mailbox.short),
            pickup.messages_received(["1", "2"], random),
            pickup.live_delivery_change(True, random),
            shared_mailbox.keep([self._share()], random),
        ]
        assert mediator.counts["answered"]
        letter = _V2.anoncrypt(b"{}", recipient=_key(self._mailbox.did), random=random)
        forward = routing.forward(letter, self._mailbox.short, to=self._identity.did, random=random, delay_milli=-500)
        proof, key = shared_mailbox.sign_post(_SEED, letter), shared_mailbox.key_of(_SEED)
        shared = routing.forward(letter, key, to=self._identity.did, random=random, shared=proof)
        said += [parse(seed) for seed in Protocols().seeds() if b'"@type"' not in seed]
        named = [dump(replace(self._named(message), return_route="all")) for message in said]
        return [*named, forward, shared, *Forward().seeds()]

    def seal(self, tree: Part, dice: Random) -> bytes:
        plain = utf8(as_text(tree))[:MESSAGE_BYTES_MAX]
        if dice.random() < 0.9 and b"/routing/" not in plain:
            return self._sealed(plain, dice.randbytes)
        return _V2.anoncrypt(plain, recipient=_key(self._identity.did), random=dice.randbytes)

    def parse(self, data: bytes) -> object:
        """It never raises, and its responses and forwards are in proportion."""
        mediator = self._mediator
        before, in_flight = dict(mediator.counts), mediator.in_flight()
        found = None
        try:
            with mediator.store.transaction():
                session = Session(2, True)
                found = mediator.receive(data, session, NOW_MS)
                sent = mediator.due(NOW_MS)
                pushed = mediator.pushes(NOW_MS // 1000)
                said = [*(each.envelope for each in sent), *(each.envelope for each in pushed)]
                assert sum(map(len, said)) <= 64 * 1024 + 4 * len(data)
                mediator.closed(session)
                raise _Undone
        except _Undone:
            mediator.undo(in_flight)
        mediator.counts.clear()
        mediator.counts.update(before)
        assert found is not None and len(found.answer or b"") <= 64 * 1024 + 4 * len(data)
        if found.what in ("unreadable", "dropped"):
            raise Malformed(why="nothing for a mediator")
        return found


class Held:
    """A mediator's receipt for an envelope that it was handed."""

    name = "held"
    form: Form = "text"
    size_max = mediator_receipt.BYTES_MAX

    _DIGEST = mediator_receipt.envelope_digest(envelope())

    def seeds(self) -> list[bytes]:
        random = dice(self.name)
        return [
            mediator_receipt.sign_receipt(envelope(), until, MEDIATOR, random)
            for until in (0, 1_800_000_000, mediator_receipt.TIME_S_MAX)
        ]

    def seal(self, tree: Part, dice: Random) -> Part:
        if dice.random() < 0.2 or not isinstance(tree, Object):
            return tree
        signed = utf8(f"{as_text(tree.get('protected'))}.{as_text(tree.get('payload'))}")
        return tree.put("signature", Bytes(sign(SecretKey("Ed25519", MEDIATOR.signing_seed), signed)))

    def parse(self, data: bytes) -> object:
        claim = mediator_receipt.read(data)
        if claim.receipt.digest != self._DIGEST:
            raise Refused(why="not posted")
        found = mediator_receipt.check(claim, resolve(MEDIATOR.did))
        assert 0 <= found.until <= mediator_receipt.TIME_S_MAX
        return found


def _key(did: str) -> TheirKey:
    return _V2.their_key(resolve(did), did)


def _away() -> Session:
    return Session(3, False)
