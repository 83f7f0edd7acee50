"""A mediator core with a store, and clients of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from zerochat.agent.mediator.core import Mediator
from zerochat.agent.mediator.limits import INVITATION_USES, Limits
from zerochat.agent.mediator.outcomes import Outcome
from zerochat.agent.mediator.sessions import Policy, Session
from zerochat.agent.mediator.store import Store
from zerochat.crypto.keys import SecretKey
from zerochat.didcomm.did import Identity, new_peer2, new_peer4, resolve
from zerochat.didcomm.layers import Opened, open_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import PACKERS, Profile
from zerochat.didcomm.protocols import mediation, mediation_client, routing
from zerochat.didcomm.protocols.mediation_client import MediationState, MediationStep
from zerochat.didcomm.rotation import verify_from_prior
from zerochat.didcomm.service import deliverables, routes

random = Random(10).randbytes

BOB = new_peer4(random, [])

V1, V2 = PACKERS["didcomm/v1"], PACKERS["didcomm/v2"]

KEY = bytes(range(32))

URI = "http://mediator.example:8080"

INVITATION = "the-invitation"

NOW = 1_800_000_000_000


def service(uri: str, **more: object) -> dict[str, object]:
    return {"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": uri, "accept": ["didcomm/v2"], **more}}


def opener(identity: Identity) -> Callable[[bytes], Opened]:
    def secret_of(kid: str) -> SecretKey | None:
        mine = kid in (identity.kid_long, identity.kid_short)
        return SecretKey("X25519", identity.agreement_secret) if mine else None

    known = {identity.short: identity.did}
    return lambda envelope: open_layers(envelope, secret_of=secret_of, resolve=lambda did: resolve(did, known))


class Site:
    """A mediator with its store and a clock that stands still until it is moved."""

    def __init__(self, path: Path, limits: Limits | None = None, *, is_open: bool = False, uri: str = URI) -> None:
        self.path, self.limits, self.uri, self.is_open = path, limits, uri, is_open
        self.identity = new_peer2(random, [service(uri)])
        self.now = NOW
        self.handles = 0
        self.store = Store.create(path, KEY)
        self.start()

    def start(self) -> None:
        policy = Policy({INVITATION: INVITATION_USES}, self.is_open)
        self.mediator = Mediator(
            self.store, self.identity, policy=policy, uris=(self.uri,), random=random, limits=self.limits
        )

    def restart(self) -> None:
        self.store.close()
        self.store = Store.open(self.path, KEY)
        self.start()

    def session(self, *, stays: bool = True) -> Session:
        self.handles += 1
        return Session(self.handles, stays)

    def hear(self, envelope: bytes, session: Session | None = None) -> Outcome:
        with self.store.transaction():
            return self.mediator.receive(envelope, session or self.session(stays=False), self.now)

    def due(self):
        with self.store.transaction():
            return self.mediator.due(self.now)

    def pushes(self):
        return self.mediator.pushes(self.now // 1000)


class Client:
    """A recipient that any DIDComm v2 library could be, with our own state machine beside it."""

    def __init__(self, site: Site, *, pthid: str | None = INVITATION, stays: bool = True, learns: bool = True) -> None:
        """Without `learns` it does not understand that a DID may be replaced, and takes what comes."""
        self.site, self.identity, self.learns = site, new_peer4(random, []), learns
        self.theirs = site.identity.did
        self.word: str | None = None
        """The `from_prior` of the last answer."""
        self.session = site.session(stays=stays)
        self.state = MediationState(site.identity.did, self.identity.did, pthid)
        self.got: list[bytes] = []
        self.mailbox = new_peer4(random, [service(site.identity.did)])

    def seal(self, message: Message) -> bytes:
        packer, mine, theirs = V2, self.identity, self.theirs
        whole = replace(message, from_=mine.did, to=(theirs,))
        key = packer.their_key(resolve(theirs), theirs)
        return packer.authcrypt(packer.dump(whole), sender=packer.own_key(mine, mine.did), recipient=key, random=random)

    def tell(self, message: Message) -> Message | None:
        outcome = self.site.hear(self.seal(message), self.session)
        return None if outcome.answer is None else self.read(outcome.answer)

    def ask(self, message: Message) -> Message:
        answer = self.tell(message)
        assert answer is not None
        return answer

    def read(self, envelope: bytes) -> Message:
        opened = opener(self.identity)(envelope)
        assert opened.sender is not None
        self.word = opened.message.from_prior
        if opened.sender != self.theirs:
            assert self.word is not None, "a DID that nobody has vouched for"
            verify_from_prior(self.word, resolve(self.theirs), opened.sender)
            self.theirs = opened.sender if self.learns else self.theirs
        return opened.message

    # --- with the state machine ---------------------------------------------------------------------------------

    def say(self, said: MediationStep) -> None:
        """Send what is to be said, hear the answers, and so on until there is silence."""
        self.state = said.state
        self.got += [parcel.envelope for parcel in said.parcels]
        for message in said.messages:
            answer = self.tell(message)
            if answer is not None:
                self.say(mediation_client.receive(self.state, answer, random))

    def connect(self, *wanted: str) -> "Client":
        self.site.mediator.closed(self.session)
        self.session = self.site.session()
        self.state = mediation_client.set_dids(
            mediation_client.disconnected(self.state), wanted or [self.mailbox.did], random
        ).state
        self.say(mediation_client.connected(self.state, random))
        return self

    def pushed(self) -> None:
        for push in self.site.pushes():
            assert push.handle == self.session.handle
            self.say(mediation_client.receive(self.state, self.read(push.envelope), random))

    def acknowledge(self) -> None:
        self.say(mediation_client.acknowledge(self.state, self.state.unacknowledged, random))


def kind(message: Message) -> str | None:
    found = mediation.kind_of(message)
    return found[1] if found is not None else None


def letter(recipient: Identity, text: str) -> bytes:
    plain = V2.dump(Message("https://example.org/chat/1.0/post", "m", {"text": text}))
    return V2.anoncrypt(plain, recipient=V2.their_key(resolve(recipient.did), recipient.short), random=random)


def sent_to(recipient: Identity, envelope: bytes, profile: Profile = "didcomm/v2", **wishes) -> tuple[str, bytes]:
    """As a sender does it, who knows nothing but the recipient's DID: where to, and what."""
    [way] = deliverables(routes(resolve(recipient.did))[0], resolve)
    return way.uri, routing.wrap(
        envelope, way, recipient.did, resolve=resolve, random=random, profile=profile, **wishes
    )


def forwarded(site: Site, recipient: Identity, text: str, **wishes) -> bytes:
    _, wrapped = sent_to(recipient, letter(recipient, text), **wishes)
    return wrapped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mediator.db"


@pytest.fixture
def site(path: Path) -> Iterator[Site]:
    made = Site(path)
    yield made
    made.store.close()


@pytest.fixture
def bob(site: Site) -> Client:
    return Client(site).connect()
