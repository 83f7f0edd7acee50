"""The request in an invitation (`requests~attach`, in DIDComm v2 `attachments`): handled once its author has answered.

An invitation comes over an open channel, so its request waits until the connection is established. Of several, which
are alternatives, the first counts that is supported.
"""

from typing import Final

from zerochat.crypto.encoding import strict_json
from zerochat.didcomm.attachment import Attachment, attachment_bytes
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.protocols import basic, features, ping
from zerochat.errors import RemoteError

REQUEST_BYTES_MAX: Final = 16 * 1024
TEXT_BYTES_MAX: Final = 2048
"""Of a text in an invitation of ours, whose link has it in base64."""


def chosen(requests: tuple[Attachment, ...], packer: Packer) -> bytes:
    """The plaintext of the first supported request; empty: there is none."""
    for attachment in requests:
        try:
            plain = attachment_bytes(attachment)
            if len(plain) <= REQUEST_BYTES_MAX and _is_supported(packer.parse(plain)):
                return plain
        except RemoteError:
            continue
    return b""


def attached(message: Message, packer: Packer) -> Attachment:
    """A message as a request in an invitation."""
    plain = packer.dump(message)
    return Attachment(id="request-0", media_type="application/json", json=strict_json(plain, len(plain)))


def _is_supported(message: Message) -> bool:
    return basic.is_basic(message) or ping.is_ping(message) or features.is_query(message)
