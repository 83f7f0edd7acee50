"""Basic message 2.0 and 1.0: plain text between agents of different implementations.

Used for external connections; groups use events.

Specified in: https://didcomm.org/basicmessage/2.0; Aries RFC 0095 (1.0).
"""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.iso8601 import iso_seconds, iso_time
from zerochat.didcomm.message import Message, new_id, same_type
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols.bodies import Name, read_body

PROTOCOL: Final = "https://didcomm.org/basicmessage/2.0"
PROTOCOL_V1: Final = "https://didcomm.org/basicmessage/1.0"
BASIC, BASIC_V1 = PROTOCOL + "/message", PROTOCOL_V1 + "/message"

CONTENT_CHARS_MAX = 64 * 1024
"""Fits a message even with four bytes per character."""
ATTACHMENT_CHARS_MAX = 256


class Basic(Redacted, frozen=True):
    """A text message. `sent` (UTC seconds) and `lang` are the sender's claims."""

    REDACTED = ("content",)

    content: str
    sent: int | None = None
    lang: str | None = None
    attachments: tuple[str, ...] = ()
    """What the sender calls each attachment."""


class _BasicBody(msgspec.Struct, frozen=True):
    content: Annotated[str, msgspec.Meta(max_length=CONTENT_CHARS_MAX)]
    sent_time: Name | None = None


def basic(
    content: str,
    now_s: int,
    random: Callable[[int], bytes],
    profile: Profile = "didcomm/v2",
    lang: str | None = None,
) -> Message:
    """A text message in the version of the envelope's profile; `now_s` in UTC seconds."""
    if profile == "didcomm/v2":
        return Message(type=BASIC, id=new_id(random), body={"content": content}, created_time=now_s, lang=lang)
    return Message(type=BASIC_V1, id=new_id(random), body={"content": content, "sent_time": iso_time(now_s)}, lang=lang)


def is_basic(message: Message) -> bool:
    return same_type(message.type, BASIC) or same_type(message.type, BASIC_V1)


def read_basic(message: Message) -> Basic:
    """Decode a basic message; an invalid time counts as absent. Raises Malformed."""
    body = read_body(message, _BasicBody)
    sent = message.created_time if body.sent_time is None else iso_seconds(body.sent_time)
    return Basic(body.content, sent, message.lang, tuple(_called(each) for each in message.attachments))


def _called(attachment: Attachment) -> str:
    """The file name of an attachment, else its description, its media type or nothing."""
    return (attachment.filename or attachment.description or attachment.media_type or "")[:ATTACHMENT_CHARS_MAX]
