"""The bodies of messages from peers, read into shapes: one place that turns every mistake in them into one error.

Members that a shape does not know are ignored, and a member that is null where a shape allows it counts as absent,
because real libraries write that. Every text and list in a shape has a greatest length.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from zerochat.didcomm.attachment import Attachment, parse_attachment
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed

NAME_CHARS_MAX = 256
"""Labels, goal codes, media type profiles: what stands on one line."""
TEXT_CHARS_MAX = 2048
"""Sentences for people, and URIs."""

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]

_S = TypeVar("_S")


def read_body(message: Message, shape: type[_S]) -> _S:
    """The body of a message in its shape. Raises Malformed."""
    return read_tree(message.body, shape, message.type.rpartition("/")[2])


def read_tree(tree: object, shape: type[_S], what: str) -> _S:
    """JSON in its shape; `what` it is, for the error. Raises Malformed."""
    try:
        return msgspec.convert(tree, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"{what}: {error}") from None


_V1_NAMES = {"@id": "id", "mime-type": "media_type"}


def read_attachment(tree: Mapping[str, Any]) -> Attachment:
    """An attachment that stands in a body, as v1 has them (Aries RFC 0017): some members have other names.

    Times are written in another way, and are only hints: they are left out. Raises Malformed.
    """
    members = {_V1_NAMES.get(name, name): value for name, value in tree.items() if name != "lastmod_time"}
    return parse_attachment(members)
