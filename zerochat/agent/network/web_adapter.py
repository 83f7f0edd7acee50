"""The agent's way into the web: the core's effects become calls of `Web`, and its news become stimuli.

The web thread (and with it aiohttp) starts when it is first needed: by a setting that has it listen, or by the first
envelope that goes to an http or ws address; nothing of it is imported before. What has come in is accepted only when it
is on disk.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from zerochat.agent.settings.reader import Settings
from zerochat.crypto.encoding import b64url
from zerochat.errors import LocalError
from zerochat.group.effects import Answered, Hold, Post, Release
from zerochat.group.inputs import Mailed, PostFailed, Stimulus, WebDown, WebUp

if TYPE_CHECKING:
    from zerochat.agent.network.web import Web

SHORT_LINK_USES = 64

WebEffect: TypeAlias = Post | Answered | Hold | Release


class Postman:
    """What an agent sends and gets over HTTP and WebSocket. It belongs to the agent thread."""

    def __init__(self, settings: Settings, wake: Callable[[], None]) -> None:
        """`wake` is called from another thread when there is something to take. Raises BadCertificate."""
        self.counts: Counter[str] = Counter()
        self._settings, self._wake = settings, wake
        self._web: Web | None = None
        self._tickets: dict[int, str] = {}
        self._ticket = 0
        self.uris: tuple[str, ...] = ()

    def start(self, hidden: bool = False) -> tuple[str, ...]:
        """Listen, if the settings say so; give the URIs that others reach us at. Raises a LocalError.

        `hidden`: this machine's own address is told to nobody, so a URI that others reach us at must have been named.
        """
        if self._settings.web is not None:
            bound = self._open()
            self.uris = (self._settings.web_public,) if self._settings.web_public else () if hidden else bound
        return self.uris

    def _open(self) -> tuple[str, ...]:
        from zerochat.agent.network.web import Web

        settings = self._settings
        keys = (settings.web_certificate, settings.web_key)
        self._web = Web(
            settings.web,
            tls=(keys[0], keys[1]) if keys[0] is not None and keys[1] is not None else None,
            socks=settings.socks,
            ca_file=settings.web_authorities,
            wake=self._wake,
        )
        return tuple(self._web.start())

    def _ready(self) -> "Web | None":
        """The web, begun if this is the first time that it is needed; None where it cannot begin."""
        if self._web is None:
            try:
                self._open()
            except LocalError as error:
                self.counts[f"web.{error.code}"] += 1
        return self._web

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._web is not None:
            self._web.stop()

    def perform(self, effect: WebEffect) -> None:
        """Do it, or drop and count it. Never blocks."""
        match effect:
            case Post(uri, envelope, media_type, return_route):
                self._post(uri, envelope, media_type, return_route or not self.uris)
            case Answered(handle, envelope, media_type):
                if self._web is None or not self._web.answer(handle, envelope, media_type):
                    self.counts["dropped.answer"] += 1
            case Hold(uri):
                web = self._ready()
                if web is None or not web.hold(uri):
                    self.counts["dropped.hold"] += 1
            case Release(uri):
                if self._web is not None:
                    self._web.release(uri)

    @property
    def busy(self) -> bool:
        """Whether something is under way of which it is not known yet whether it was taken."""
        return bool(self._tickets)

    def _post(self, uri: str, envelope: bytes, media_type: str, return_route: bool) -> None:
        web = self._ready()
        self._ticket += 1
        self._tickets[self._ticket] = uri
        if web is None or not web.send(uri, envelope, media_type, self._ticket, return_route=return_route):
            del self._tickets[self._ticket]
            self.counts["dropped.post"] += 1

    def take(self) -> list[Stimulus]:
        """What has come in and what has failed since the last time."""
        if self._web is None:
            return []
        from zerochat.agent.network.web import Arrived, Closed, Failed, Opened

        heard: list[Stimulus] = []
        for news in self._web.take():
            match news:
                case Arrived(handle, envelope):
                    heard.append(Mailed(envelope, handle or None))
                case Failed(ticket):
                    heard.append(PostFailed(self._tickets.pop(ticket, "")))
                case Opened(uri=str(uri)):
                    heard.append(WebUp(uri))
                case Closed(uri=str(uri)):
                    heard.append(WebDown(uri))
                case Opened() | Closed():
                    pass  # somebody else has dialled: what it says comes as Arrived
                case _:
                    self._tickets.pop(news.ticket, None)
        return heard

    def settle(self, stimuli: Iterable[Stimulus], *, kept: bool) -> None:
        """What these brought is on disk (`kept`), or could not be put there: say so to whoever has sent it."""
        if self._web is None:
            return
        for handle in {one.handle for one in stimuli if isinstance(one, Mailed) and one.handle is not None}:
            (self._web.accept if kept else self._web.refuse)(handle)

    def lend(self, url: str, expires: int) -> str:
        """A short link to an invitation, served until then (UTC seconds) or until the agent ends.

        Empty where nobody could ask for it. Chat programs look at a link before people do, so it is good for a few.
        """
        left_s = expires - time.time()
        if self._web is None or not self.uris or left_s <= 0:
            return ""
        oobid = b64url(os.urandom(16))
        self._web.publish_invitation(oobid, url, left_s, SHORT_LINK_USES)
        return f"{self.uris[0].rstrip('/')}/?_oobid={oobid}"
