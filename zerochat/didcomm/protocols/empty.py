"""Empty 1.0: a message with nothing in its body, for what its headers carry (DIDComm v2.1, "The Empty Message").

It acknowledges, rotates a DID, or ends a relationship where no other message is about to be sent.
"""

from collections.abc import Callable
from typing import Final

from zerochat.didcomm.message import Message, new_id, same_type

PROTOCOL: Final = "https://didcomm.org/empty/1.0"
EMPTY: Final = PROTOCOL + "/empty"


def empty(random: Callable[[int], bytes], thid: str | None = None) -> Message:
    """An empty message, in a thread or beginning its own."""
    return Message(type=EMPTY, id=new_id(random), thid=thid)


def is_empty(message: Message) -> bool:
    return same_type(message.type, EMPTY)
