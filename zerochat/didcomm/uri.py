"""Protocol and message types as URIs: taking them apart, and whether two of them mean the same.

A type is `doc-uri protocol/version/name` (DIDComm v2.1, "Protocol Identifier URI" and "Message Type URI"). Equality of
text is not enough: names are compared without regard to case and punctuation, versions by their major number, and the
DID under which the first protocols were published means https://didcomm.org/. So whoever asks what a message is asks
here. What the specification's two regular expressions match is what is read, by cutting instead of by matching: the
expressions go back over their own steps, and the text comes from a peer.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from zerochat.errors import Malformed

TYPE_CHARS_MAX = 512

DIDCOMM_ORG = "https://didcomm.org/"
_DIDCOMM_ORG_AS_DID = "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/"
"""The prefix of version 1 types; Aries RFC 0348 has it mean `DIDCOMM_ORG`."""

_IDENTIFIER = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_VERSION = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:[.+-].*)?")
_WEB = re.compile(r"(https?)://([^/?#]*)", re.IGNORECASE)
_NO_PUNCTUATION = str.maketrans("", "", "._-")


class Protocol(NamedTuple):
    """A Protocol Identifier URI in its parts."""

    doc_uri: str
    """Everything before the protocol's name, its delimiter included; scheme and host of the web in lower case."""
    protocol: str
    """The name as it is compared: lower case, no punctuation."""
    major: int
    minor: int


class MessageType(NamedTuple):
    """A Message Type URI in its parts."""

    doc_uri: str
    protocol: str
    major: int
    minor: int
    name: str
    """The name as it is compared: lower case, no punctuation."""


@lru_cache(maxsize=1024)
def parse_type(uri: str) -> MessageType:
    """The parts of a Message Type URI. Raises Malformed."""
    head, _, name = uri.rpartition("/")
    if len(uri) > TYPE_CHARS_MAX or not _NAME.fullmatch(name):
        raise Malformed(why="a message type that is no Message Type URI")
    return MessageType(*_protocol(head), plain_name(name))


@lru_cache(maxsize=1024)
def parse_protocol(uri: str) -> Protocol:
    """The parts of a Protocol Identifier URI, with or without a slash at its end. Raises Malformed."""
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
    """A protocol's or message's name as it is compared: without case and punctuation ("Message Type URI")."""
    return name.translate(_NO_PUNCTUATION).lower()


def same_type(one: str, other: str) -> bool:
    """Whether two Message Type URIs mean the same message, whatever their minor versions ("Semver Rules")."""
    if one == other:
        return True
    try:
        mine, theirs = parse_type(one), parse_type(other)
    except Malformed:
        return False
    return mine[:3] == theirs[:3] and mine.name == theirs.name


def same_protocol(one: str, other: str) -> bool:
    """Whether two Protocol Identifier URIs mean the same protocol, whatever their minor versions."""
    return one == other or agreed_version(one, other) is not None


def agreed_version(one: str, other: str) -> tuple[int, int] | None:
    """The version in which two sides with these Protocol Identifier URIs speak, or None if they cannot.

    Of one major version, that is the lower minor one; a patch number means nothing ("Semver Rules").
    """
    try:
        mine, theirs = parse_protocol(one), parse_protocol(other)
    except Malformed:
        return None
    return (mine.major, min(mine.minor, theirs.minor)) if mine[:3] == theirs[:3] else None


def protocol_of(uri: str) -> str:
    """The Protocol Identifier URI in a Message Type URI, as it came. Raises Malformed."""
    parse_type(uri)
    return uri.rpartition("/")[0]
