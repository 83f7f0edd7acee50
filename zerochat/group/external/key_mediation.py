"""Mediation by key (Aries RFC 0211): the routes and keys of our DIDComm v1 connections behind a mediator of v1.

Such a mediator knows keys, no DIDs, and does not answer a ping under its routing key. So it serves connections with
agents of v1 only; members of groups could not prove it.
"""

from functools import lru_cache

from zerochat.crypto.encoding import did_key
from zerochat.didcomm.did import DOCUMENTS_CACHED, resolve
from zerochat.didcomm.protocols.didexchange import service_v1
from zerochat.didcomm.protocols.mediation_client import MediationState
from zerochat.didcomm.protocols.oob_write import ACCEPT_V1
from zerochat.didcomm.service import Route, routes, verkey
from zerochat.errors import Malformed
from zerochat.group.links.contact import check_route
from zerochat.group.state import Agent, Connection
from zerochat.group.state.external import ConnectionState

QUEUE = "didcomm:transport/queue"
"""The endpoint of an agent without one."""


def route_over(state: MediationState) -> Route | None:
    """The route over a mediator that has granted mediation by key; None: others cannot use it."""
    if state.phase != "granted" or not state.endpoint:
        return None
    try:
        for key in state.routing_keys:
            verkey(key)
        return check_route(Route(state.endpoint, state.routing_keys, (), "final"))
    except Malformed:
        return None


def own_routes(agent: Agent) -> list[Route]:
    """The routes over our mediators of v1."""
    states = [one.mediation for one in agent.connections.values() if one.mediation is not None]
    return [route for state in states if (route := route_over(state)) is not None]


def services(uris: tuple[str, ...], own: list[Route]) -> list[dict[str, object]]:
    """The services of a DID of ours for v1: these addresses first, then the routes over our mediators."""
    ways = [*((uri, ()) for uri in uris), *((route.uri, route.routing_keys) for route in own)]
    return [
        {**service_v1(uri, list(map(_reference, keys)), priority=number), "accept": list(ACCEPT_V1)}
        for number, (uri, keys) in enumerate(ways or [(QUEUE, ())])
    ]


def _reference(key: str) -> str:
    """A did:key with its only key named, without which credo-ts does not find it."""
    return f"{key}#{key.removeprefix('did:key:')}"


def keys(agent: Agent, state: MediationState) -> frozenset[str]:
    """The keys (did:key) that a mediator of v1 should serve: those of our DIDs with a route over it."""
    found = set()
    for one in agent.connections.values():
        if one.envelope != "didcomm/v1" or one.state is ConnectionState.ENDED:
            continue
        rotation = one.relationship.rotation
        for identity in (one.relationship.mine, *([] if rotation is None else [rotation.old])):
            if state.endpoint in mediated_uris(identity.did):
                found.add(did_key(identity.signing_public))
    return frozenset(found)


def is_pending(agent: Agent, one: Connection) -> bool:
    """Whether a mediator of v1 that we reach has still to register the key of our DID for this connection."""
    if not is_mediated(one):
        return False
    uris, key = mediated_uris(one.relationship.mine.did), did_key(one.relationship.mine.signing_public)
    states = [each.mediation for each in agent.connections.values() if each.mediation is not None]
    known = [state for state in states if state.connected and state.phase == "granted" and state.endpoint in uris]
    return any(key not in state.registered | state.refused for state in known)


def is_mediated(one: Connection) -> bool:
    """Whether messages of the peer may come over a mediator of v1."""
    return one.envelope == "didcomm/v1" and bool(mediated_uris(one.relationship.mine.did))


@lru_cache(maxsize=DOCUMENTS_CACHED)
def mediated_uris(did: str) -> frozenset[str]:
    """The addresses in a DID of ours that lead over a mediator."""
    return frozenset(route.uri for route in routes(resolve(did)) if route.routing_keys)
