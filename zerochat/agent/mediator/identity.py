"""What a mediator is made of once and stays: its DID, which holds its address, its invitation, and its port.

The DID is a did:peer:2, because it is copied into the DID document of every recipient's every relationship, and that is
the shortest which holds an address, and the one that most other implementations read. An address in a DID cannot be
changed: recipients and whoever writes to them know no other.
"""

import ipaddress
import os
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from zerochat.agent.mediator.mixing import node_of
from zerochat.agent.mediator.pairwise_dids import service
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.upstream import live_uri
from zerochat.agent.storage.database import fault_of_disk
from zerochat.agent.storage.paths import Places
from zerochat.agent.storage.profiles import JournalKey
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import hkdf_sha256
from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.did import Identity, did_key_of, new_peer2, resolve
from zerochat.didcomm.protocols import oob_write
from zerochat.errors import LocalError

GOAL_CODE: Final = "request-mediate"
"""What mediators of several makers write into their invitations."""
GOAL: Final = "Request mediation"
_LOCAL: Final = ("localhost", ".localhost", ".local", ".internal", ".lan", ".home.arpa")
"""How names end that mean something in one house only."""
_WEBSOCKET: Final = {"http": "ws", "https": "wss"}


class MediatorMoved(LocalError):
    """This mediator's DID says that it is reached at {old}, and everybody whom it serves knows only that. Leave
    `--public-uri` away or give the old one; for a mediator at {new}, choose another profile (`--profile NAME`)."""

    exit_code: ClassVar[int] = 2


class BehindAnother(LocalError):
    """This mediator's DID says {said}, and everybody whom it serves knows only that. Leave `--behind` away, or choose
    another profile (`--profile NAME`)."""

    exit_code: ClassVar[int] = 2


class BadPublicUri(LocalError):
    """{uri} cannot be the address of a mediator. It must be what others reach it by, such as
    https://relay.example.org or http://203.0.113.7:8080."""

    exit_code: ClassVar[int] = 2


class Standing(Veiled, frozen=True):
    """What a mediator is, from its first start on."""

    VEILED = ("invitation", "oobid", "behind")

    identity: Identity
    uri: str
    """Its public http or https URI; under ws or wss, the same."""
    invitation: str
    """The id of its invitation."""
    oobid: str
    """Under which the short link finds it."""
    behind: str = ""
    """The invitation of the mediator over which others write to this one; empty: they write to it directly."""

    @property
    def uris(self) -> tuple[str, ...]:
        return (self.uri, _websocket(self.uri))

    @property
    def link(self) -> str:
        """The invitation, all of it."""
        message = oob_write.invitation(self.identity.did, os.urandom, goal_code=GOAL_CODE, goal=GOAL)
        return oob_write.link(self._page, replace(message, id=self.invitation))

    @property
    def short_link(self) -> str:
        """A link to the invitation, which the mediator itself serves: short enough for a QR code."""
        return oob_write.short_link(self._page, self.oobid)

    @property
    def _page(self) -> str:
        return self.uri if urlsplit(self.uri).path else self.uri + "/"


def store_path(places: Places) -> Path:
    return places.data / "mediator.db"


def open_store(places: Places, key: JournalKey) -> Store:
    """The profile's store, made if it is not there: whole or not at all. Raises the errors of `database.py`."""
    path, own_key = store_path(places), hkdf_sha256(key, b"zerochat/mediator-store/1")
    if not path.exists():
        building = path.with_suffix(".new")
        try:
            building.unlink(missing_ok=True)
            Store.create(building, own_key).close()
            building.rename(path)
        except OSError as error:
            raise fault_of_disk(error, path) from error
    return Store.open(path, own_key)


def usual_port(store: Store) -> int:
    """The port of the last start; 0: there was none."""
    return int(store.meta_get("port") or b"0")


def stand(
    store: Store, uri: str, asked: str | None, port: int, *, new_invitation: bool = False, behind: str | None = None
) -> Standing:
    """What the mediator is, made now if this is its first start.

    `uri`: where it is reached as far as it knows; `asked`: where it shall be, and `behind` which other mediator (an
    invitation), if somebody said so. Raises MediatorMoved, BadPublicUri, BehindAnother, BadMixLink.
    """
    wanted = None if asked is None else public_uri(asked)
    old = store.meta_get("uri")
    if old is not None and wanted is not None and wanted != old.decode():
        raise MediatorMoved(old=old.decode(), new=wanted)
    before = (store.meta_get("behind") or b"").decode()
    if old is not None and behind is not None and (not before or node_of(before).did != node_of(behind).did):
        raise BehindAnother(said="that it is behind another one" if before else "that it is behind no other one")
    with store.turn():
        store.meta_set("port", b"%d" % port)
        if old is None:
            _found(store, wanted or uri, behind)
        if old is None or new_invitation:
            store.meta_set("invitation", b64url(os.urandom(16)).encode())
            store.meta_set("oobid", b64url(os.urandom(16)).encode())
    did, seed, secret = (store.meta_get(name) for name in ("did", "signing_seed", "agreement_secret"))
    now, invitation, oobid = (store.meta_get(name) for name in ("uri", "invitation", "oobid"))
    assert did and seed and secret and now and invitation and oobid
    before = (store.meta_get("behind") or b"").decode()
    return Standing(Identity(did.decode(), seed, secret), now.decode(), invitation.decode(), oobid.decode(), before)


def _found(store: Store, uri: str, behind: str | None) -> None:
    """Behind another mediator, only those whom it serves dial this one, to its WebSocket."""
    posted = service(uri)
    if behind is not None:
        node = node_of(behind)
        live_uri(node)
        posted = service(node.uri, routing_keys=(_bare_key(node.did),))
        store.meta_set("behind", behind.encode())
    identity = new_peer2(os.urandom, [posted, service(_websocket(uri))])
    store.meta_set("uri", uri.encode())
    store.meta_set("did", identity.did.encode())
    store.meta_set("signing_seed", identity.signing_seed)
    store.meta_set("agreement_secret", identity.agreement_secret)


def _bare_key(did: str) -> str:
    """The key of a mediator as a did:key: it stands inside a DID, which would be twice as long with a DID in it."""
    return did_key_of(next(method.key for method in resolve(did).agreement))


def _websocket(uri: str) -> str:
    scheme, mark, rest = uri.partition("://")
    return _WEBSOCKET[scheme] + mark + rest


def public_uri(text: str) -> str:
    """The URI in the one spelling in which it is kept. Raises BadPublicUri."""
    uri = text.strip().rstrip("/")
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise BadPublicUri(uri=ascii(text[:256])) from None
    odd = parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme not in _WEBSOCKET or not parts.hostname or odd or port == 0 or len(uri) > 512 or not uri.isascii():
        raise BadPublicUri(uri=ascii(text[:256]))
    return uri


def is_public(uri: str) -> bool:
    """Whether a mediator that is reached there is for everybody, and not for one house or one machine.

    One for everybody sends on to public addresses only: strangers register the addresses, and next to it there may be
    services that trust whoever asks from there.
    """
    host = urlsplit(uri).hostname or ""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.rstrip(".").endswith(_LOCAL)
