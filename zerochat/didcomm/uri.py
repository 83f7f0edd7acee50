"""Protocol Identifier URIs and Message Type URIs: parsing and equivalence.

A type is `doc-uri protocol/version/name` (DIDComm v2.1, "Protocol Identifier URI" and "Message Type URI"). Types are
equivalent, not textually equal: names ignore case and punctuation, versions compare by major number, and the DID of the
first published protocols means https://didcomm.org/. Parsing follows the specification's regular expressions by
slicing, because these backtrack on peers' input.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from zerochat.errors import Malformed

TYPE_CHARS_MAX = 512

DIDCOMM_ORG = "https://didcomm.org/"
_DIDCOMM_ORG_AS_DID = "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/"
"""Prefix of version 1 types; Aries RFC 0348 maps it to `DIDCOMM_ORG`."""

_IDENTIFIER = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_VERSION = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:[.+-].*)?")
_WEB = re.compile(r"(https?)://([^/?#]*)", re.IGNORECASE)
_NO_PUNCTUATION = str.maketrans("", "", "._-")


class Protocol(NamedTuple):
    """A parsed Protocol Identifier URI."""

    doc_uri: str
    """Text before the protocol's name, with its delimiter; scheme and host of web URLs in lower case."""
    protocol: str
    """The name as it is compared: lower case, no punctuation."""
    major: int
    minor: int


class MessageType(NamedTuple):
    """A parsed Message Type URI."""

    doc_uri: str
    protocol: str
    major: int
    minor: int
    name: str
    """The name as it is compared: lower case, no punctuation."""


@lru_cache(maxsize=1024)
def parse_type(uri: str) -> MessageType:
    """Parse a Message Type URI. Raises Malformed."""
    head, _, name = uri.rpartition("/")
    if len(uri) > TYPE_CHARS_MAX or not _NAME.fullmatch(name):
        raise Malformed(why="a message type that is no Message Type URI")
    return MessageType(*_protocol(head), plain_name(name))


@lru_cache(maxsize=1024)
def parse_protocol(uri: str) -> Protocol:
    """Parse a Protocol Identifier URI, with or without a trailing slash. Raises Malformed."""
    if len(uri) > TYPE_CHARS_MAX:
        raise Malformed(why="a protocol that is no Protocol Identifier URI")
    return _protocol(uri.removesuffix("/"))


def _protocol(uri: str) -> Protocol:
    head, _, semver = uri.rpartition("/")
    doc_uri = head.rstrip(_IDENTIFIER)
    protocol, version = head[len(doc_uri) :], _VERSION.fullmatch(semver)
    if not protocol or version is None:
        raise Malformed(why="a protocol without name or version")
    return Protocol(_same_document(doc_uri), plain_name(protocol), int(version[1]), int(version[2] or 0))


def _same_document(doc_uri: str) -> str:
    if doc_uri == _DIDCOMM_ORG_AS_DID:
        return DIDCOMM_ORG
    if web := _WEB.match(doc_uri):
        return web[0].lower() + doc_uri[web.end() :]
    return doc_uri


def plain_name(name: str) -> str:
    """Normalise a protocol or message name: no case, no punctuation ("Message Type URI")."""
    return name.translate(_NO_PUNCTUATION).lower()


def same_type(one: str, other: str) -> bool:
    """Whether two Message Type URIs are equivalent, ignoring minor versions ("Semver Rules")."""
    if one == other:
        return True
    try:
        mine, theirs = parse_type(one), parse_type(other)
    except Malformed:
        return False
    return mine[:3] == theirs[:3] and mine.name == theirs.name


def same_protocol(one: str, other: str) -> bool:
    """Whether two Protocol Identifier URIs are equivalent, ignoring minor versions."""
    return one == other or agreed_version(one, other) is not None


def agreed_version(one: str, other: str) -> tuple[int, int] | None:
    """The common version of two Protocol Identifier URIs; None: incompatible.

    The lower minor version of the same major version; patch numbers are ignored ("Semver Rules").
    """
    try:
        mine, theirs = parse_protocol(one), parse_protocol(other)
    except Malformed:
        return None
    return (mine.major, min(mine.minor, theirs.minor)) if mine[:3] == theirs[:3] else None


def protocol_of(uri: str) -> str:
    """The Protocol Identifier URI of a Message Type URI, as received. Raises Malformed."""
    parse_type(uri)
    return uri.rpartition("/")[0]
