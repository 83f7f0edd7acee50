"""Handlers of external connections and of questions to one peer."""

import time
from typing import Final

from zerochat import rpc
from zerochat.agent.api.handlers.context import BadRequest, Context, Handler
from zerochat.agent.api.handlers.groups import EXPIRES_S_MAX, check_envelope
from zerochat.agent.invitations.pasted_text import read_pasted, with_documents
from zerochat.agent.views.connections import connection_info, connection_messages
from zerochat.crypto.keys import AGREEMENT_KINDS
from zerochat.group import did_rotation
from zerochat.group.inputs import (
    AcceptConnection,
    EndConnection,
    OfferConnection,
    PingPeer,
    QueryFeatures,
    RotateDid,
    SendBasicMessage,
)
from zerochat.group.lookup import find_connection
from zerochat.rpc import PeerParams


def ping_peer(context: Context[PeerParams]) -> PingPeer:
    return PingPeer(context.params.peer)


def query_features(context: Context[rpc.QueryFeaturesParams]) -> QueryFeatures:
    return QueryFeatures(context.params.peer, context.params.match)


def rotate_did(context: Context[rpc.RotateParams]) -> RotateDid:
    every_s = context.params.every_s
    if every_s and not did_rotation.EVERY_MS_MIN <= every_s * 1000 <= did_rotation.EVERY_MS_MAX:
        raise BadRequest(why="a DID is rotated every hour to every 366 days")
    return RotateDid(context.params.peer, None if every_s is None else every_s * 1000)


def open_connection(context: Context[rpc.OpenConnectionParams]) -> AcceptConnection:
    params = context.params
    invitation = with_documents(read_pasted(params.invitation, int(time.time())), params.documents)
    return AcceptConnection(invitation, params.name, params.mediate)


def offer_connection(context: Context[rpc.OfferConnectionParams]) -> OfferConnection:
    if not 1 <= context.params.expires_s <= EXPIRES_S_MAX:
        raise BadRequest(why="an invitation is valid for 1 second to 30 days")
    params = context.params
    curve = next((kind for kind in AGREEMENT_KINDS if kind == params.curve), None)
    if curve is None or (curve != "X25519" and params.envelope == "didcomm/v1"):
        raise BadRequest(why=f"the curve is one of {', '.join(AGREEMENT_KINDS)}; DIDComm v1 has X25519 only")
    if params.signed and params.envelope == "didcomm/v1":
        raise BadRequest(why="DIDComm v1 has no signed invitations")
    envelope, text = check_envelope(params.envelope), params.message
    return OfferConnection(envelope, "", params.expires_s, params.name, curve, params.signed, text)


def list_connections(context: Context[rpc.NoParams]) -> list[rpc.ConnectionInfo]:
    return [connection_info(context.agent, one) for one in context.agent.connections.values()]


def list_connection_messages(context: Context[PeerParams]) -> list[rpc.ConnectionMessage]:
    return connection_messages(context.agent, find_connection(context.agent, context.params.peer))


def send_connection_message(context: Context[rpc.SendConnectionMessageParams]) -> SendBasicMessage:
    return SendBasicMessage(context.params.peer, context.params.text)


def close_connection(context: Context[PeerParams]) -> EndConnection:
    return EndConnection(context.params.peer)


HANDLERS: Final[dict[str, Handler]] = {
    "ping_peer": ping_peer,
    "query_features": query_features,
    "rotate_did": rotate_did,
    "open_connection": open_connection,
    "offer_connection": offer_connection,
    "list_connections": list_connections,
    "list_connection_messages": list_connection_messages,
    "send_connection_message": send_connection_message,
    "close_connection": close_connection,
}
