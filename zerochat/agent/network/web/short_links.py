"""Short links: `GET /?_oobid=ID` serves an invitation that is too long for a QR code in a terminal.

DIDComm v2.1, "Out Of Band Messages, Short URL": the response is the invitation, or a redirect to its long link. The id
is a bearer token for the invitation, so it is random, short-lived and use-limited; all failures look alike.
"""

import hashlib
import os
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from zerochat.agent.network.web.limits import OOBID_CHARS_MAX, SHORT_LINKS_MAX
from zerochat.crypto.encoding import b64url_bytes
from zerochat.errors import Malformed

INVITATION_PARAMETERS = ("_oob", "oob", "c_i")
"""Out-of-Band 2.0, 1.x (RFC 0434) and Connections (RFC 0160)."""


class Link(Struct):
    url: str
    """Empty: there is only the document."""
    document: bytes | None
    """The invitation as JSON, if the URL contains one; or a sealed invitation."""
    until: float
    uses: int | None


def holds_invitation(url: str) -> bool:
    """Whether the URL contains an invitation, so that it is no short link."""
    query: Mapping[str, object] = parse_qs(urlsplit(url).query)
    return any(name in query for name in INVITATION_PARAMETERS)


class ShortLinks:
    """The published links. Times of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._links: dict[bytes, Link] = {}

    def publish(self, oobid: str, url: str, until: float, uses: int | None, now: float) -> None:
        """Publish a link. Beyond SHORT_LINKS_MAX expired links are dropped, then the oldest."""
        self._put(oobid, Link(url, _document(url), until, uses), now)

    def publish_document(self, oobid: str, document: bytes, until: float, now: float) -> None:
        """Publish a sealed invitation, which has no long link here."""
        self._put(oobid, Link("", document, until, None), now)

    def _put(self, oobid: str, link: Link, now: float) -> None:
        self._links[self._name(oobid)] = link
        if len(self._links) > SHORT_LINKS_MAX:
            self._links = {name: one for name, one in self._links.items() if one.until > now}
        while len(self._links) > SHORT_LINKS_MAX:
            del self._links[next(iter(self._links))]

    def withdraw(self, oobid: str) -> None:
        self._links.pop(self._name(oobid), None)

    def find(self, oobid: str, now: float, *, counts: bool = True) -> Link | None:
        """The link with this id, and count one use unless not `counts`; None: unknown or expired."""
        name = self._name(oobid[:OOBID_CHARS_MAX])
        link = self._links.get(name)
        if link is None:
            return None
        if link.uses is not None and counts:
            link.uses -= 1
        if now >= link.until or link.uses == 0:
            del self._links[name]
        return link if now < link.until else None

    def _name(self, oobid: str) -> bytes:
        """A keyed hash, so that the time of a look-up reveals nothing about existing ids."""
        return hashlib.blake2b(oobid.encode(errors="replace"), key=self._key, digest_size=32).digest()


def _document(url: str) -> bytes | None:
    query = parse_qs(urlsplit(url).query)
    for name in INVITATION_PARAMETERS:
        if name in query:
            try:
                return b64url_bytes(query[name][0].rstrip("="))
            except Malformed:
                return None
    return None
