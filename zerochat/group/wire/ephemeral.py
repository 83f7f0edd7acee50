"""What members tell each other in passing. It is no event: nobody keeps it for others, repeats it or waits for it.

A version that knows neither kind passes both over, as it does whatever is of this protocol and new to it.
"""

from typing import Annotated

import msgspec

from zerochat.group.event_log.event import Id
from zerochat.group.wire.messages import PROTOCOL

TYPING = PROTOCOL + "typing"
READ = PROTOCOL + "read"


class TypingBody(msgspec.Struct, frozen=True):
    """The sender is writing something in this group."""

    group: Id


class ReadBody(msgspec.Struct, frozen=True):
    """The sender has read whatever it has with this Lamport time or a lower one."""

    group: Id
    upto: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
