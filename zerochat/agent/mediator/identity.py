"""Mediator identity: its DID, which contains its address, its invitations and its port; created once.

The DID is a did:peer:2: it is copied into the DID documents of all relationships of every recipient, and did:peer:2 is
the shortest method with an address and the most widely supported. An address in a DID cannot be changed: recipients and
senders know no other.
"""

import os
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from zerochat.agent.mediator.limits import INVITATION_USES, INVITATIONS_MAX
from zerochat.agent.mediator.mixing import parse_mediator_invitation
from zerochat.agent.mediator.pairwise_dids import service
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.upstream import live_uri
from zerochat.agent.mediator.v1_recipients import inline_services
from zerochat.agent.network.addresses import remember_addresses
from zerochat.agent.storage.database import disk_error
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.storage.profiles import JournalKey
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import hkdf_sha256
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.address_kinds import AddressKind, kind_of_host
from zerochat.didcomm.did import Identity, did_key_of, new_peer2, resolve
from zerochat.didcomm.protocols import oob_write
from zerochat.errors import LocalError

GOAL_CODE: Final = "request-mediate"
"""The goal code of mediator invitations, used by several implementations."""
GOAL: Final = "Request mediation"
LABEL: Final = "mediator"
"""What the mediator is called in its invitation of v1, which demands a label."""
_LOCAL: Final = (".local", ".internal", ".lan", ".home.arpa")
"""Suffixes of names that are only valid locally."""
_WEBSOCKET: Final = {"http": "ws", "https": "wss"}


class MediatorMoved(LocalError):
    """This mediator's DID contains the address {old}, and its recipients know no other. Omit `--public-uri` or give the
    old address; for a mediator at {new}, choose another profile (`--profile NAME`)."""

    exit_code: ClassVar[int] = 2


class BehindAnother(LocalError):
    """This mediator's DID says {said}, and its recipients know nothing else. Omit `--behind`, or choose another profile
    (`--profile NAME`)."""

    exit_code: ClassVar[int] = 2


class BadPublicUri(LocalError):
    """{uri} is not a valid mediator address. Give the public address, such as https://relay.example.org or
    http://203.0.113.7:8080."""

    exit_code: ClassVar[int] = 2


class Invitation(Redacted, frozen=True):
    """An invitation of a mediator."""

    REDACTED = ("id", "oobid")

    id: str
    oobid: str
    """The id of the short link."""
    uses: int
    """Recipients that it admits."""


class MediatorIdentity(Redacted, frozen=True):
    """The identity of a mediator, from its first start on."""

    REDACTED = ("behind",)

    identity: Identity
    uri: str
    """The public http or https URI; the same address is used with ws or wss."""
    invitations: tuple[Invitation, ...]
    """Those that are valid, newest first."""
    behind: str = ""
    """The invitation of the upstream mediator; empty: none."""

    @property
    def uris(self) -> tuple[str, ...]:
        return (self.uri, _websocket(self.uri))

    @property
    def invitation(self) -> Invitation:
        """The newest."""
        return self.invitations[0]

    @property
    def link(self) -> str:
        """The complete link of the newest invitation."""
        return self.link_of(self.invitation)

    def link_of(self, invitation: Invitation) -> str:
        """The complete link of an invitation."""
        message = oob_write.invitation(self.identity.did, os.urandom, goal_code=GOAL_CODE, goal=GOAL)
        return oob_write.link(self.page, replace(message, id=invitation.id))

    @property
    def link_v1(self) -> str:
        """The same for agents of DIDComm v1; empty behind another mediator, where these cannot post."""
        if self.behind:
            return ""
        services = inline_services(self.identity, self.uris)
        message = oob_write.invitation_v1(services, LABEL, os.urandom, goal_code=GOAL_CODE, goal=GOAL)
        return oob_write.link(self.page, replace(message, id=self.invitation.id))

    @property
    def short_link(self) -> str:
        """A link to the newest invitation, served by the mediator itself, short enough for a QR code."""
        return oob_write.short_link(self.page, self.invitation.oobid)

    @property
    def page(self) -> str:
        """The address of short links, without the query."""
        return self.uri if urlsplit(self.uri).path else self.uri + "/"


def store_path(paths: ProfilePaths) -> Path:
    return paths.data / "mediator.db"


def open_store(paths: ProfilePaths, key: JournalKey) -> Store:
    """The profile's store, created atomically if it does not exist. Raises the errors of `database.py`."""
    path, own_key = store_path(paths), hkdf_sha256(key, b"zerochat/mediator-store/1")
    if not path.exists():
        building = path.with_suffix(".new")
        try:
            building.unlink(missing_ok=True)
            Store.create(building, own_key).close()
            building.rename(path)
        except OSError as error:
            raise disk_error(error, path) from error
    return Store.open(path, own_key)


def last_port(store: Store) -> int:
    """The port of the last start; 0: none."""
    return int(store.meta_get("port") or b"0")


def load_identity(
    store: Store,
    uri: str,
    public: str | None,
    port: int,
    *,
    new_invitation: bool = False,
    further_invitation: bool = False,
    uses: int | None = None,
    listen: str | None = None,
    behind: str | None = None,
) -> MediatorIdentity:
    """The identity, created at the first start.

    `uri`: the detected address; `public`: the configured one; `new_invitation` replaces all, `further_invitation` none;
    `uses`: how many recipients the newest invitation admits; `listen`: the given address; both are kept for later
    starts. `behind`: the invitation of the
    upstream mediator. Raises MediatorMoved, BadPublicUri, BehindAnother or BadMixLink.
    """
    wanted = None if public is None else public_uri(public)
    old = store.meta_get("uri")
    if old is not None and wanted is not None and wanted != old.decode():
        raise MediatorMoved(old=old.decode(), new=wanted)
    before = (store.meta_get("behind") or b"").decode()
    if (
        old is not None
        and behind is not None
        and (not before or parse_mediator_invitation(before).did != parse_mediator_invitation(behind).did)
    ):
        raise BehindAnother(
            said="that it is behind another mediator" if before else "that it is not behind another mediator"
        )
    with store.transaction():
        store.meta_set("port", b"%d" % port)
        remember_addresses(store, listen, None)
        if old is None:
            _create(store, wanted or uri, behind)
        known = () if old is None or new_invitation else _invitations(store)
        if not known or further_invitation:
            fresh = Invitation(b64url(os.urandom(16)), b64url(os.urandom(16)), INVITATION_USES)
            known = (fresh, *known)[:INVITATIONS_MAX]
        if uses is not None:
            known = (replace(known[0], uses=uses), *known[1:])
        newest, *earlier = known
        store.meta_set("invitation", newest.id.encode())
        store.meta_set("oobid", newest.oobid.encode())
        store.meta_set("uses", b"%d" % newest.uses)
        store.meta_set("earlier_invitations", msgspec.json.encode(earlier))
    did, seed, secret, now = (store.meta_get(name) for name in ("did", "signing_seed", "agreement_secret", "uri"))
    assert did and seed and secret and now
    before = (store.meta_get("behind") or b"").decode()
    return MediatorIdentity(Identity(did.decode(), seed, secret), now.decode(), known, before)


def _invitations(store: Store) -> tuple[Invitation, ...]:
    name, oobid, uses = (store.meta_get(field) for field in ("invitation", "oobid", "uses"))
    assert name and oobid
    earlier = store.meta_get("earlier_invitations") or b"[]"
    newest = Invitation(name.decode(), oobid.decode(), int(uses or INVITATION_USES))
    return (newest, *msgspec.json.decode(earlier, type=tuple[Invitation, ...]))


def _create(store: Store, uri: str, behind: str | None) -> None:
    """Create the identity. Behind an upstream mediator, only recipients dial this one, by WebSocket."""
    posted = service(uri)
    if behind is not None:
        node = parse_mediator_invitation(behind)
        live_uri(node)
        posted = service(node.uri, routing_keys=(_bare_key(node.did),))
        store.meta_set("behind", behind.encode())
    identity = new_peer2(os.urandom, [posted, service(_websocket(uri))])
    store.meta_set("uri", uri.encode())
    store.meta_set("did", identity.did.encode())
    store.meta_set("signing_seed", identity.signing_seed)
    store.meta_set("agreement_secret", identity.agreement_secret)


def _bare_key(did: str) -> str:
    """The mediator's key as did:key, which is half as long as its DID inside another DID."""
    return did_key_of(next(method.key for method in resolve(did).agreement))


def _websocket(uri: str) -> str:
    scheme, mark, rest = uri.partition("://")
    return _WEBSOCKET[scheme] + mark + rest


def public_uri(text: str) -> str:
    """The URI in canonical form. Raises BadPublicUri."""
    uri = text.strip().rstrip("/")
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise BadPublicUri(uri=ascii(text[:256])) from None
    odd = parts.query or parts.fragment or parts.username or parts.password or " " in uri or not uri.isprintable()
    if parts.scheme not in _WEBSOCKET or not parts.hostname or odd or port == 0 or len(uri) > 512 or not uri.isascii():
        raise BadPublicUri(uri=ascii(text[:256]))
    return uri


def nearest_relay(uri: str) -> AddressKind:
    """The nearest kind of address that the mediator with this URI relays to: the kind of its own.

    Strangers register the relay addresses, and services nearby may trust requests from this machine. So a public
    mediator relays to public addresses only, and a mediator for a local network not to this machine.
    """
    host = (urlsplit(uri).hostname or "").rstrip(".")
    kind = kind_of_host(host)
    if kind is not None:
        return kind
    return AddressKind.PUBLIC if "." in host and not host.endswith(_LOCAL) else AddressKind.PRIVATE
