"""Posts that recipients have requested (`relayed_post.py`): in flight only, within limits for each recipient.

    request ── charged, room left ──> taken ── the web thread has posted it ──> settled: the answer to the recipient
       └── else: refused as busy, which the recipient repeats later

Nothing is stored. A post whose recipient has disconnected is still made, and its result dropped.
"""

from msgspec.structs import replace

from zerochat.agent.mediator.limits import Limits
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import envelope_kind
from zerochat.didcomm.protocols.relayed_post import PostRequest, PostResult

FIRST_TICKET = -2
"""Tickets of relayed posts count down from here; those of relayed messages are positive, and -1 awaits no result."""


class PendingPost(Redacted, frozen=True):
    """A post in flight: the request, and the session and DIDs that its result goes to."""

    REDACTED = ("incoming", "answer")

    handle: int
    recipient: int
    incoming: Message
    sender: str
    """The recipient's DID."""
    ours: str
    """The DID that it has addressed."""
    answer: bytes = b""


class RelayedPosts:
    """The posts in flight, by ticket."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pending: dict[int, PendingPost] = {}
        self._untaken: list[tuple[int, PostRequest]] = []
        self._next = FIRST_TICKET

    def request(
        self, wanted: PostRequest, message: Message, sender: str, ours: str, recipient: int, handle: int
    ) -> bool:
        """Accept a post; False: there are too many. A repeated request is ignored. Raises Malformed."""
        envelope_kind(wanted.envelope)
        theirs = [one for one in self._pending.values() if one.recipient == recipient]
        if any(one.incoming.id == message.id for one in theirs):
            return True  # a replay; later ones cost the recipient a request each, and the receiver knows the envelope
        if len(theirs) >= self._limits.posts_each or len(self._pending) >= self._limits.posts_at_once:
            return False
        bare = Message(type=message.type, id=message.id, thid=message.thid)
        self._pending[self._next] = PendingPost(handle, recipient, bare, sender, ours)
        self._untaken.append((self._next, wanted))
        self._next -= 1
        return True

    def take(self) -> list[tuple[int, PostRequest]]:
        """The accepted posts since the last call, by ticket; each is settled later."""
        taken, self._untaken = self._untaken, []
        return taken

    def undo(self) -> None:
        """The transaction has failed, and with it the requests since the last `take`."""
        for ticket, _ in self.take():
            del self._pending[ticket]

    def answered(self, ticket: int, envelope: bytes) -> bool:
        """An answer has come to a post; False: it is none of these."""
        if (one := self._pending.get(ticket)) is None:
            return False
        self._pending[ticket] = replace(one, answer=envelope)
        return True

    def settle(self, ticket: int, why: str) -> tuple[PendingPost, PostResult] | None:
        """A post has been delivered (`why` empty) or has failed; None: it is none of these."""
        one = self._pending.pop(ticket, None)
        return None if one is None else (one, PostResult(why, one.answer))
