"""Whoever is at the other end and can be answered: a session, or a POST that waits for its response."""

import asyncio
from http import HTTPStatus
from typing import TypeAlias

from msgspec import Struct

from zerochat.agent.network.web.events import ENCRYPTED, Parcel
from zerochat.agent.network.web.websocket_session import Session


class Verdict(Struct, frozen=True):
    """What the owner says of a POST: a status, and an envelope if it has an answer at once."""

    status: HTTPStatus
    body: bytes = b""
    media_type: str = ENCRYPTED


ACCEPTED = Verdict(HTTPStatus.ACCEPTED)
REFUSED = Verdict(HTTPStatus.SERVICE_UNAVAILABLE)


class Exchange:
    """A POST that waits for its response."""

    def __init__(self) -> None:
        self.verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

    def accepted(self, count: int) -> None:
        self.decide(ACCEPTED)

    def push(self, parcel: Parcel) -> None:
        self.decide(Verdict(HTTPStatus.OK, parcel.envelope, parcel.media_type))

    def decide(self, verdict: Verdict) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)


Partner: TypeAlias = Session | Exchange
