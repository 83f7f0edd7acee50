"""Group invitations: Out-of-Band 2.0 links and an equivalent short code for QR codes.

An invitation contains a key made for it alone, the inviter's endpoint and CURVE key, an expiry, and a secret: its id,
which commits to one group (`bound_id`). The DID in the link is a did:peer:2 derived from the values in the code, so
link and code are equivalent.

Input is pasted and untrusted; each refusal states the defect in a sentence.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from zerochat.crypto.encoding import (
    BASE41,
    b64url,
    b64url_bytes,
    base45,
    base45_bytes,
    compact_json,
    strict_json,
)
from zerochat.crypto.keys import PublicKey
from zerochat.crypto.primitives import check_x25519_public, ed25519_to_x25519_public, hkdf_sha256, sha256
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import peer2, resolve
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.iso8601 import iso_time
from zerochat.didcomm.message import same_type
from zerochat.didcomm.service import Route, routes
from zerochat.errors import BadInvitation, InvitationExpired, Malformed

# --- invitations ----------------------------------------------------------------------------------------------------

INVITATION_CHARS_MAX = 4096
"""Own invitations have about 650 characters."""
EXPIRES_MAX = 2**32 - 1

OOB_TYPE = "https://didcomm.org/out-of-band/2.0/invitation"
GOAL_CODE = "org.zerochat.join"
WEB_SCHEMES = ("http://", "https://", "ws://", "wss://")
ENVELOPES = ("didcomm/v2", "didcomm/v1")
NONCE_BYTES = 16
ACCEPT = {"didcomm/v1": "didcomm/aip2;env=rfc19"}
"""The media type profile that names a kind of envelope, where it is not the kind's own name."""
URL_PREFIX = "https://zerochat.org/?_oob="
CODE_PREFIX = "ZC:"

_CODE_VERSIONS = {
    0x14: (4, "didcomm/v2"),
    0x16: (16, "didcomm/v2"),
    0x24: (4, "didcomm/v1"),
    0x26: (16, "didcomm/v1"),
}
"""Meaning of the first byte: address size in bytes and envelope profile."""
_CODE_FIXED_BYTES = 1 + 16 + 32 + 32 + 4 + 2
"""Version, id, two keys, time and port; the address and the checksum follow."""
_CODE_SUM_BYTES = 3
"""Checksum against typing errors: a wrong key would only show as an inviter that never answers."""


class Invitation(Redacted, frozen=True):
    """An invitation to a group. Raises Malformed for impossible values."""

    REDACTED = ("id",)

    id: bytes
    """16 bytes, secret: authorises a join request and commits to the group."""
    key: bytes
    """The Ed25519 public key made for this invitation."""
    server_key: bytes
    """The CURVE public key of the inviter's sockets."""
    endpoint: Endpoint | None
    """None: the inviter is reachable only through its mediators."""
    expires: int
    """UTC seconds."""
    envelope: str = "didcomm/v2"
    """Envelope profile of the group: `didcomm/v2` or `didcomm/v1`."""
    mail: tuple[Route, ...] = ()
    """Routes through the inviter's mediators; only the link can contain them."""

    def __post_init__(self) -> None:
        if len(self.id) != 16 or type(self.expires) is not int or not 0 < self.expires <= EXPIRES_MAX:
            raise Malformed(why="an invitation with a bad id or time")
        if self.endpoint is None and not self.mail:
            raise Malformed(why="an invitation without an address")
        check_x25519_public(self.server_key)
        ed25519_to_x25519_public(self.key)

    @property
    def did(self) -> str:
        """The inviter's did:peer:2: Ed25519 key, the X25519 key at the same point, and its routes."""
        return _did(self.key, self.server_key, self.endpoint, self.envelope, self.mail)

    @property
    def pthid(self) -> str:
        """The id of the out-of-band message, the parent thread of answers."""
        return b64url(self.id)

    @property
    def address(self) -> str:
        """The inviter's address for display."""
        return str(self.endpoint) if self.endpoint else self.mail[0].uri

    def join_secret_key(self) -> bytes:
        """The CURVE secret key (32 bytes) of the join connection; the inviter admits its public key."""
        return hkdf_sha256(self.id, b"zerochat/knock-key/1")

    def url(self) -> str:
        """The invitation as a link (Out-of-Band 2.0, "Standard Message Encoding"). The page is never fetched."""
        message = {
            "type": OOB_TYPE,
            "id": self.pthid,
            "from": self.did,
            "expires_time": self.expires,
            "body": {"goal_code": GOAL_CODE, "accept": [ACCEPT.get(self.envelope, self.envelope)]},
        }
        return URL_PREFIX + b64url(compact_json(message))

    def code(self) -> str:
        """The invitation as a short code in QR alphanumeric characters: 144 for IPv4, 162 for IPv6.

        Empty for an invitation with mediators, which would be too long.
        """
        if self.endpoint is None or self.mail:
            return ""
        address = self.endpoint.packed
        version = next(v for v, form in _CODE_VERSIONS.items() if form == (len(address), self.envelope))
        numbers = self.expires.to_bytes(4, "big") + self.endpoint.port.to_bytes(2, "big")
        data = bytes([version]) + self.id + self.key + self.server_key + numbers + address
        return CODE_PREFIX + base45(data + sha256(data)[:_CODE_SUM_BYTES], BASE41)


@lru_cache(maxsize=256)
def _did(key: bytes, server_key: bytes, endpoint: Endpoint | None, envelope: str, mail: tuple[Route, ...]) -> str:
    accept = [ACCEPT.get(envelope, envelope)]
    direct = [{"uri": str(endpoint), "accept": accept}] if endpoint else []
    ways = [{"uri": way.uri, "accept": accept, "routingKeys": list(way.routing_keys)} for way in mail]
    services = [
        {"type": "DIDCommMessaging", "serviceEndpoint": uri, "serverKey": b64url(server_key)} for uri in direct + ways
    ]
    agreement = PublicKey("X25519", ed25519_to_x25519_public(key))
    return peer2([PublicKey("Ed25519", key)], [agreement], services)


def bound_id(nonce: bytes, group: str) -> bytes:
    """The id of an invitation: a commitment to the group id (hash of the genesis event) with a random nonce of 16
    bytes, which the inviter reveals to the joiner.

    A prefix of the group id would do the same, but a QR code of 37 modules, the largest that fits an 80x24 terminal
    beside the link, has room for only six more bytes.
    """
    assert len(nonce) == NONCE_BYTES
    return sha256(b"zerochat/invitation/1\n" + nonce + group.encode())[:16]


# --- reading --------------------------------------------------------------------------------------------------------

_INVISIBLE = re.compile("[\\s\u00ad\u200b-\u200f\u2060\ufeff]+")
"""White space and the invisible characters that chat programs insert for wrapping."""

_CUT_OFF = "it is cut off"
_CUT_OFF_OR_DAMAGED = "it is cut off or damaged"
_OTHER_LINK = "it is not a link to an invitation"
_QUERY_NAMES = {
    "_oobid": "it is a short link, which zerochat does not follow",
    "oob": "it is an invitation of an older kind, for another application",
    "c_i": "it is an invitation of an older kind, for another application",
    "d_m": "it is an invitation of an older kind, for another application",
}


def parse_invitation(text: str, now_s: int, envelopes: Iterable[str] = ENVELOPES) -> Invitation:
    """Parse a pasted invitation, link or code; `now_s` in UTC seconds. `envelopes`: the supported kinds.

    Ignores white space, line breaks, angle brackets, quotes and trailing punctuation around the invitation. Raises
    BadInvitation with the reason in `why`, or InvitationExpired.
    """
    if len(text) > INVITATION_CHARS_MAX:
        raise BadInvitation(why=f"it has more than {INVITATION_CHARS_MAX} characters")
    bare = _INVISIBLE.sub("", text).strip("<>\"'`").rstrip(".,;:!)")
    try:
        invitation = _parse(bare, envelopes)
    except Malformed as error:
        raise BadInvitation(why=f"it is damaged ({error.fields['why']})") from None
    if invitation.expires <= now_s:
        raise InvitationExpired(when=iso_time(invitation.expires)[:16].replace("T", " ") + " UTC")
    return invitation


def _parse(bare: str, envelopes: Iterable[str]) -> Invitation:
    if not bare:
        raise BadInvitation(why="there is nothing in it")
    if bare[:3].upper() == CODE_PREFIX:
        return _parse_code(bare[3:].upper())
    if CODE_PREFIX.startswith(bare.upper()) or URL_PREFIX.startswith(bare):
        raise BadInvitation(why=_CUT_OFF)
    page, _, rest = bare.partition("?")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:.*", page):
        raise BadInvitation(why="it is neither a link nor a code")
    found = [part.partition("=") for part in rest.partition("#")[0].split("&")]
    values = [value for name, _, value in found if name == "_oob"]
    if len(values) == 1:
        return _parse_oob(values[0].replace("%3D", "="), envelopes)
    reasons = [_QUERY_NAMES[name] for name, _, _ in found if name in _QUERY_NAMES]
    raise BadInvitation(why=reasons[0] if reasons else _OTHER_LINK)


def _parse_code(text: str) -> Invitation:
    if len(text) < 3:
        raise BadInvitation(why=_CUT_OFF)
    head = base45_bytes(text[:3], BASE41)
    if head[0] not in _CODE_VERSIONS:
        raise BadInvitation(why=_why_unknown(text))
    address, envelope = _CODE_VERSIONS[head[0]]
    size = _CODE_FIXED_BYTES + address
    chars = (size + _CODE_SUM_BYTES) // 2 * 3 + (size + _CODE_SUM_BYTES) % 2 * 2
    if len(text) < chars:
        raise BadInvitation(why=_CUT_OFF)
    if len(text) > chars:
        raise BadInvitation(why="there is text after its end")
    whole = base45_bytes(text, BASE41)
    data, checksum = whole[:size], whole[size:]
    if sha256(data)[:_CODE_SUM_BYTES] != checksum:
        raise BadInvitation(why="it contains a wrong character")
    endpoint = Endpoint(str(ip_address(data[87:])), int.from_bytes(data[85:87], "big"))
    return Invitation(data[1:17], data[17:49], data[49:81], endpoint, int.from_bytes(data[81:85], "big"), envelope)


def _why_unknown(text: str) -> str:
    """The reason for refusing a code of unknown version. The version is blamed only if the checksum is right: most such
    codes are damaged or not invitations.

    Later versions keep the checksum at the end and cannot be much shorter.
    """
    try:
        whole = base45_bytes(text, BASE41)
    except Malformed:
        return _CUT_OFF_OR_DAMAGED
    data, checksum = whole[:-_CODE_SUM_BYTES], whole[-_CODE_SUM_BYTES:]
    if len(data) < _CODE_FIXED_BYTES or sha256(data)[:_CODE_SUM_BYTES] != checksum:
        return _CUT_OFF_OR_DAMAGED
    return "it was made by a newer version of zerochat"


def _parse_oob(value: str, envelopes: Iterable[str]) -> Invitation:
    try:
        tree = strict_json(b64url_bytes(value), INVITATION_CHARS_MAX)
    except Malformed:
        if _is_cut_off(value):
            raise BadInvitation(why=_CUT_OFF) from None
        raise
    if not isinstance(tree, dict) or not isinstance(tree.get("type"), str):
        raise Malformed(why="the link contains no message")
    body = tree.get("body")
    if not same_type(tree["type"], OOB_TYPE) or not isinstance(body, dict) or body.get("goal_code") != GOAL_CODE:
        raise BadInvitation(why="it is an invitation for another application")
    name, did, expires = tree.get("id"), tree.get("from"), tree.get("expires_time")
    if not isinstance(name, str) or not isinstance(did, str) or type(expires) is not int:
        raise Malformed(why="the link lacks an id, a sender or a time")
    document = resolve(did)
    server_keys = [service.properties.get("serverKey") for service in document.services]
    server_key = server_keys[0] if server_keys else None
    if not isinstance(server_key, str) or any(other != server_key for other in server_keys):
        raise Malformed(why="a sender that is not a zerochat inviter")
    if len(document.authentication) != 1 or document.authentication[0].key.kind != "Ed25519":
        raise Malformed(why="a sender that is not a zerochat inviter")
    ways = routes(document)
    if len(ways) != len(document.services):
        raise Malformed(why="an unusable address")
    accepted = {way.accept for way in ways}
    envelope = next((kind for kind in envelopes if accepted == {(ACCEPT.get(kind, kind),)}), None)
    if envelope is None:
        raise BadInvitation(why="its group uses an envelope format that this version of zerochat does not support")
    mail = tuple(Route(way.uri, way.routing_keys, (), "final") for way in ways if way.uri.startswith(WEB_SCHEMES))
    direct = [Endpoint.parse(way.uri) for way in ways if not way.uri.startswith(WEB_SCHEMES)]
    if len(direct) > 1:
        raise Malformed(why="a sender that is not a zerochat inviter")
    endpoint, key = direct[0] if direct else None, document.authentication[0].key.data
    invitation = Invitation(b64url_bytes(name), key, b64url_bytes(server_key), endpoint, expires, envelope, mail)
    if invitation.did != did:
        raise Malformed(why="a sender whose DID does not match the invitation")
    return invitation


def _is_cut_off(value: str) -> bool:
    """Whether base64url contains an unterminated JSON object."""
    try:
        start = b64url_bytes(value[: len(value) // 4 * 4])
    except Malformed:
        return False
    return not start or (start.startswith(b"{") and start.count(b"{") > start.count(b"}"))
