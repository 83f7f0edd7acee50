"""Typed decoding of message bodies; every defect raises Malformed.

Unknown members are ignored, and null counts as absent where the type allows it, because common libraries write that.
Texts and lists have maximum lengths.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from zerochat.didcomm.attachment import Attachment, parse_attachment
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed

NAME_CHARS_MAX = 256
"""One-line texts: labels, goal codes, media type profiles."""
TEXT_CHARS_MAX = 2048
"""Sentences and URIs."""

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]

_S = TypeVar("_S")


def read_body(message: Message, shape: type[_S]) -> _S:
    """Decode a message's body as `shape`. Raises Malformed."""
    return read_tree(message.body, shape, message.type.rpartition("/")[2])


def read_tree(tree: object, shape: type[_S], what: str) -> _S:
    """Decode JSON as `shape`; `what`: its name for the error. Raises Malformed."""
    try:
        return msgspec.convert(tree, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"{what}: {error}") from None


_V1_NAMES = {"@id": "id", "mime-type": "media_type"}


def read_attachment(tree: Mapping[str, Any]) -> Attachment:
    """An attachment within a body, with the member names of v1 (Aries RFC 0017).

    Times have another format and are only hints, so they are dropped. Raises Malformed.
    """
    members = {_V1_NAMES.get(name, name): value for name, value in tree.items() if name != "lastmod_time"}
    return parse_attachment(members)
