"""Fuzz targets of pasted texts and texts in messages: invitations of our own and of others, and DIDs."""

from collections.abc import Callable
from functools import partial
from random import Random

from fuzzing.mutations import text_changed
from fuzzing.nodes import Bytes, Part, as_text
from fuzzing.people import ALICE, INVITER, KEYS, LONG, SERVICES, dice, known
from fuzzing.run import Form
from zerochat.crypto.encoding import BASE41, b64url, base45, base45_bytes, base58, compact_json
from zerochat.crypto.keys import multikey, public_jwk, public_of
from zerochat.crypto.primitives import sha256
from zerochat.didcomm.did import DID_CHARS_MAX, did_key_of, peer4, resolve, same_did, short_form
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import CODE_PREFIX, INVITATION_CHARS_MAX, Invitation, parse_invitation
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.message import Attachment
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.protocols import oob_read, oob_write
from zerochat.didcomm.rfc0019 import Rfc0019Packer
from zerochat.didcomm.service import Route, deliverables, routes
from zerochat.didcomm.v1 import dump_v1
from zerochat.errors import RemoteError

NOW_S = 1_790_000_000


def invitations() -> list[Invitation]:
    random = dice("invitation")
    key, server = public_of(KEYS["Ed25519"]).data, public_of(KEYS["X25519"]).data
    places = (Endpoint("192.0.2.7", 5000), Endpoint("2001:db8::7", 65535))
    mail = (Route("https://example.com/in", (did_key_of(public_of(KEYS["X25519"])),), ("didcomm/v2",), "final"),)
    return [
        *(Invitation(random(16), key, server, place, NOW_S + 10_000_000) for place in places),
        Invitation(random(16), key, server, places[0], NOW_S + 10_000_000, envelope="didcomm/v1"),
        Invitation(random(16), key, server, None, NOW_S + 10_000_000, mail=mail),
    ]


class Link:
    """Our own invitations as links."""

    name = "link"
    form: Form = "text"
    size_max = INVITATION_CHARS_MAX

    def seeds(self) -> list[bytes]:
        return [invitation.url().encode() for invitation in invitations()]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        """An accepted text is one invitation in all its forms."""
        found = parse_invitation(data.decode(errors="surrogateescape"), NOW_S)
        assert parse_invitation(found.url(), NOW_S) == found
        if code := found.code():
            assert parse_invitation(code, NOW_S) == found
        return found


class Code(Link):
    """Our own invitations as codes, which have a checksum."""

    name = "code"
    form: Form = "sealed"

    def seeds(self) -> list[bytes]:
        """The bytes of the code without the checksum, as base64url."""
        codes = [code for invitation in invitations() if (code := invitation.code())]
        return [b64url(base45_bytes(code[len(CODE_PREFIX) :], BASE41)[:-3]).encode() for code in codes]

    def seal(self, tree: Part, dice: Random) -> Part:
        if not isinstance(tree, Bytes):
            return CODE_PREFIX + as_text(tree)
        data = tree.data[:INVITATION_CHARS_MAX]
        text = CODE_PREFIX + base45(data + sha256(data)[:3], BASE41)
        return text_changed(text, dice) if dice.random() < 0.3 else text


class Did:
    """DIDs of all methods that are read, the documents in them, and the routes in those."""

    name = "did"
    form: Form = "text"
    size_max = DID_CHARS_MAX

    _PACKERS: tuple[Packer, ...] = (JwePacker(), Rfc0019Packer())

    def seeds(self) -> list[bytes]:
        keys = [did_key_of(public_of(key)) for key in KEYS.values()]
        kinds = [multikey(public_of(key)) for key in KEYS.values()]
        verkey = base58(public_of(KEYS["Ed25519"]).data)
        jwks = [public_jwk(public_of(KEYS[kind])) for kind in ("P-256", "secp256k1")]
        methods: list[dict[str, object]] = [
            {"id": "#a", "type": "JsonWebKey2020", "publicKeyJwk": jwks[0]},
            {"id": "#b", "type": "Multikey", "publicKeyMultibase": kinds[0]},
            {"id": "#c", "type": "Ed25519VerificationKey2018", "publicKeyBase58": verkey},
        ]
        old = {"id": "#v1", "type": "did-communication", "priority": 0, "recipientKeys": ["#c", verkey, keys[1]]}
        old |= {"routingKeys": [keys[1]], "serviceEndpoint": "https://example.com/", "accept": ["didcomm/aip1"]}
        document = {
            "verificationMethod": methods,
            "authentication": ["#c", {"id": "#d", "type": "JsonWebKey2020", "publicKeyJwk": jwks[1]}],
            "keyAgreement": ["#b", "#a"],
            "service": [*SERVICES, old, {"id": "#m", "type": ["DIDComm", "x"], "serviceEndpoint": keys[0]}],
        }
        services = b64url(compact_json([{"t": "dm", "s": "https://example.com/", "r": [], "a": ["didcomm/v2"]}]))
        text = f"did:peer:2.E{kinds[0]}.V{kinds[1]}.S{services}"
        dids = [ALICE.did, ALICE.short, INVITER.did, text, peer4(compact_json(document)), "did:peer:0" + kinds[1]]
        return [did.encode() for did in (*dids, *keys)]

    def seal(self, tree: Part, dice: Random) -> Part:
        """Now and then a key of every sort, most of them not on its curve."""
        if dice.random() < 0.9:
            return tree
        codec = dice.choice((b"\xed\x01", b"\xec\x01", b"\xe7\x01", b"\x80\x24", b"\x81\x24", b"\x82\x24", b"\x85\x24"))
        size = dice.choice((32, 33, 33, 49, 67, 65, 0, 31, 600))
        key = dice.choice((bytes(size), dice.randbytes(size), b"\2" + dice.randbytes(max(size - 1, 0)), b"\xff" * size))
        return dice.choice(("did:key:z", "did:peer:0z", "did:peer:2.Ez", "did:peer:2.Vz")) + base58(codec + key)

    def parse(self, data: bytes) -> object:
        did = data.decode(errors="surrogateescape")
        document = resolve(did, LONG)
        assert same_did(did, short_form(did))
        for method in document.agreement:
            document.agreement_key(method.kid)
        for method in document.authentication:
            document.authentication_key(method.kid)
        for packer in self._PACKERS:
            _tried(partial(packer.their_key, document, did))
        return [_tried(partial(deliverables, route, known)) for route in routes(document)]


class OutOfBand:
    """Other people's invitations: out-of-band 2.0, 1.x and the draft, as links and as JSON."""

    name = "oob"
    form: Form = "text"
    size_max = oob_read.LINK_CHARS_MAX

    def seeds(self) -> list[bytes]:
        random, key = dice(self.name), public_of(KEYS["Ed25519"])
        request = Attachment(id="r", media_type="application/json", json={"@type": "x", "@id": "1"})
        new = oob_write.invitation(INVITER.did, random, goal_code="issue", goal="To issue", requests=[request])
        inline = oob_write.inline_service("https://example.com/", key, [did_key_of(key)])
        old = oob_write.invitation_v1([inline, ALICE.did], "Faber", random, goal_code="issue", requests=[request])
        draft = {
            "@type": "https://didcomm.org/out-of-band/%VER/invitation",
            "@id": "1",
            "from": INVITER.did,
            "body": {"goal-code": "x", "goal": "y", "accept": ["didcomm/v2"]},
            "request~attach": [{"@id": "r", "mime-type": "application/json", "data": {"json": {"a": 1}}}],
        }
        page = "https://example.com/path?x=1"
        return [
            oob_write.link("https://example.com/", new).encode(),
            oob_write.link("https://example.com/", old).encode(),
            oob_write.link(page, new).encode(),
            oob_write.short_link(page, "5f0e3ffb-3f92-4648-9868-0d6f8889e6f3").encode(),
            dump_v1(old),
            compact_json(draft),
            b"https://example.com/?c_i=" + b64url(compact_json({"@type": "x/connections/1.0/invitation"})).encode(),
        ]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        found = oob_read.read_invitation(data.decode(errors="surrogateescape"))
        if isinstance(found, oob_read.ShortLink):
            return found
        _tried(partial(oob_read.handshake, found))
        for inviter in found.inviters:
            _tried(partial(oob_read.ways, inviter, known))
            _tried(partial(oob_read.signers, inviter, known))
        return found


def _tried(read: Callable[[], object]) -> object:
    try:
        return read()
    except RemoteError:
        return None
