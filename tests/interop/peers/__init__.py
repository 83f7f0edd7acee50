"""One module per implementation; bytes are base64url without padding."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def apv_of(kids: list[str]) -> bytes:
    """The `apv` of DIDComm v2: the hash of the recipients' key ids."""
    return sha256(".".join(sorted(kids)).encode()).digest()
