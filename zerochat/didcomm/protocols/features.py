"""Discover features 2.0 and 1.0: disclosure of protocols, goals and headers per relationship.

`Features` may differ per relationship: strangers learn less than peers. Answers contain the matches only, in random
order, because a constant list is a fingerprint ("Privacy Considerations"). A query without matches and a query for
undisclosed features get the same answer.

    2.0   queries -> disclose (DIDComm v2.1), queries -> disclosures (Aries RFC 0557)
    1.0   query -> disclose (the DIDComm draft, whose protocols have a `ptid`; Aries RFC 0031: `pid`)

The wildcard `*` matches any characters. Matching takes one pass per piece between wildcards, so the cost is bounded by
the length.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id, same_type
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols.bodies import Name, Text, read_body
from zerochat.didcomm.uri import DIDCOMM_ORG, parse_protocol
from zerochat.errors import Malformed

PROTOCOL: Final = "https://didcomm.org/discover-features/2.0"
PROTOCOL_V1: Final = "https://didcomm.org/discover-features/1.0"
QUERIES, DISCLOSE, DISCLOSURES = PROTOCOL + "/queries", PROTOCOL + "/disclose", PROTOCOL + "/disclosures"
"""The specification says `query` in its text and `queries` in its examples; RFC 0557 names the other one
`disclosures`."""
QUERY_V1, DISCLOSE_V1 = PROTOCOL_V1 + "/query", PROTOCOL_V1 + "/disclose"

QUERIES_MAX = 32
DISCLOSURES_MAX = 256
"""For both directions."""
ROLES_MAX = 16
WILDCARDS_MAX = 8
"""Wildcards in one query."""

_OLD_DIDCOMM_ORG = "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/"


class Features(Struct, frozen=True):
    """Features of one side in one relationship."""

    protocols: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Protocol Identifier URIs with the supported roles; no roles: not stated."""
    goal_codes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    max_receive_bytes: int | None = None
    """Maximum envelope size ("Agent Constraint Disclosure")."""

    def __or__(self, other: "Features") -> "Features":
        """Union of both."""
        return Features(
            tuple(dict((*self.protocols, *other.protocols)).items()),
            tuple(dict.fromkeys((*self.goal_codes, *other.goal_codes))),
            tuple(dict.fromkeys((*self.headers, *other.headers))),
            self.max_receive_bytes if other.max_receive_bytes is None else other.max_receive_bytes,
        )

    def without(self, *piuris: str) -> "Features":
        """All features except these protocols."""
        return replace(self, protocols=tuple(entry for entry in self.protocols if entry[0] not in piuris))


class Query(Struct, frozen=True):
    """A query for features of a type with matching identifiers."""

    feature_type: str
    match: str


ANYTHING: Final = Query("protocol", "*")
"""All disclosed protocols."""


class _QueryItem(msgspec.Struct, frozen=True):
    feature_type: Name = msgspec.field(name="feature-type")
    match: Text


class _QueriesBody(msgspec.Struct, frozen=True):
    queries: Annotated[list[_QueryItem], msgspec.Meta(max_length=QUERIES_MAX)]


class _QueryBody(msgspec.Struct, frozen=True):
    query: Text


class _Disclosure(msgspec.Struct, frozen=True):
    feature_type: Name = msgspec.field(name="feature-type")
    id: Text
    roles: Annotated[list[Name], msgspec.Meta(max_length=ROLES_MAX)] | None = None
    value: Name | int | None = None
    max_receive_bytes: Name | int | None = None
    """Instead of `value`, as in the example of DIDComm v2.1."""


class _DiscloseBody(msgspec.Struct, frozen=True):
    disclosures: Annotated[list[_Disclosure], msgspec.Meta(max_length=DISCLOSURES_MAX)]


class _ProtocolV1(msgspec.Struct, frozen=True):
    pid: Text | None = None
    ptid: Text | None = None
    roles: Annotated[list[Name], msgspec.Meta(max_length=ROLES_MAX)] | None = None


class _DiscloseBodyV1(msgspec.Struct, frozen=True):
    protocols: Annotated[list[_ProtocolV1], msgspec.Meta(max_length=DISCLOSURES_MAX)]


# --- querying -------------------------------------------------------------------------------------------------------


def queries(random: Callable[[int], bytes], *selected: Query) -> Message:
    """A query in version 2.0, which other agents accept in both envelope profiles."""
    items = [{"feature-type": query.feature_type, "match": query.match} for query in selected or (ANYTHING,)]
    return Message(type=QUERIES, id=new_id(random), body={"queries": items})


def query_v1(random: Callable[[int], bytes], match: str = "*") -> Message:
    """A protocol query in version 1.0."""
    return Message(type=QUERY_V1, id=new_id(random), body={"query": match})


def is_query(message: Message) -> bool:
    return same_type(message.type, QUERIES) or same_type(message.type, QUERY_V1)


def is_disclosure(message: Message) -> bool:
    return any(same_type(message.type, kind) for kind in (DISCLOSE, DISCLOSURES, DISCLOSE_V1))


def read_disclosure(message: Message) -> Features:
    """Decode a disclosure. Raises Malformed.

    The content may be incomplete or false; unknown feature types are dropped.
    """
    if same_type(message.type, DISCLOSE_V1):
        listed = [(entry.pid or entry.ptid, entry.roles) for entry in read_body(message, _DiscloseBodyV1).protocols]
        return Features(tuple((name, tuple(roles or ())) for name, roles in listed if name is not None))
    found = read_body(message, _DiscloseBody).disclosures
    constraints = [entry for entry in found if (entry.feature_type, entry.id) == ("constraint", "max_receive_bytes")]
    limits = [entry.max_receive_bytes if entry.value is None else entry.value for entry in constraints]
    return Features(
        tuple((entry.id, tuple(entry.roles or ())) for entry in found if entry.feature_type == "protocol"),
        tuple(entry.id for entry in found if entry.feature_type == "goal-code"),
        tuple(entry.id for entry in found if entry.feature_type == "header"),
        _whole(limits[0]) if limits else None,
    )


def _whole(value: str | int | None) -> int | None:
    """The specification's example has the number as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int) and value >= 0 else None


# --- answering ------------------------------------------------------------------------------------------------------


def read_queries(message: Message) -> tuple[Query, ...]:
    """Decode the queries of either version. Raises Malformed."""
    found: tuple[Query, ...]
    if same_type(message.type, QUERY_V1):
        found = (Query("protocol", read_body(message, _QueryBody).query),)
    else:
        items = read_body(message, _QueriesBody).queries
        found = tuple(dict.fromkeys(Query(item.feature_type, item.match) for item in items))
    if any(query.match.count("*") > WILDCARDS_MAX for query in found):
        raise Malformed(why=f"a query with more than {WILDCARDS_MAX} wildcards")
    return found


def answer(
    message: Message, disclosed: Features, random: Callable[[int], bytes], profile: Profile = "didcomm/v2"
) -> Message:
    """The answer to a query in its version: the matching disclosed features. Raises Malformed."""
    found = select(disclosed, read_queries(message))
    entries = _shuffled(_entries(found), random)[:DISCLOSURES_MAX]
    if same_type(message.type, QUERY_V1):
        protocols = [
            {"pid": entry["id"], **({"roles": entry["roles"]} if "roles" in entry else {})}
            for entry in entries
            if entry["feature-type"] == "protocol"
        ]
        return Message(type=DISCLOSE_V1, id=new_id(random), thid=message.thread, body={"protocols": protocols})
    kind = DISCLOSE if profile == "didcomm/v2" else DISCLOSURES
    return Message(type=kind, id=new_id(random), thid=message.thread, body={"disclosures": entries})


def select(disclosed: Features, queries: Sequence[Query]) -> Features:
    """The features matching any query; unknown feature types match nothing."""

    def matching(feature_type: str, name: str) -> bool:
        return any(query.feature_type == feature_type and matches(query.match, name) for query in queries)

    return Features(
        tuple(entry for entry in disclosed.protocols if matching("protocol", entry[0])),
        tuple(code for code in disclosed.goal_codes if matching("goal-code", code)),
        tuple(header for header in disclosed.headers if matching("header", header)),
        disclosed.max_receive_bytes if matching("constraint", "max_receive_bytes") else None,
    )


def _entries(features: Features) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = [
        {"feature-type": "protocol", "id": piuri, **({"roles": list(roles)} if roles else {})}
        for piuri, roles in features.protocols
    ]
    entries += [{"feature-type": "goal-code", "id": code} for code in features.goal_codes]
    entries += [{"feature-type": "header", "id": header} for header in features.headers]
    if features.max_receive_bytes is not None:
        limit = str(features.max_receive_bytes)
        named = {"value": limit, "max_receive_bytes": limit}  # the text says the one, the example has the other
        entries.append({"feature-type": "constraint", "id": "max_receive_bytes", **named})
    return entries


def _shuffled(entries: list[dict[str, Any]], random: Callable[[int], bytes]) -> list[dict[str, Any]]:
    return [entry for _, _, entry in sorted((random(8), number, entry) for number, entry in enumerate(entries))]


@lru_cache(maxsize=256)
def matches(match: str, name: str) -> bool:
    """Whether a query matches an identifier: wildcards textually, complete protocols by URI equivalence."""
    if match.startswith(_OLD_DIDCOMM_ORG):
        match = DIDCOMM_ORG + match[len(_OLD_DIDCOMM_ORG) :]
    if "*" not in match:
        return match == name or _same_version(match, name)
    first, *middle, last = match.split("*")
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    position, end = len(first), len(name) - len(last)
    for piece in middle:
        found = name.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True


def _same_version(match: str, name: str) -> bool:
    try:
        return parse_protocol(match) == parse_protocol(name)
    except Malformed:
        return False
