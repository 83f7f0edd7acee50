"""did-peer-4: did:peer:4 by the authors of the method."""

import json
from typing import Any

from did_peer_4 import encode, long_to_short, resolve, resolve_short


def make(document: dict[str, Any]) -> dict[str, str]:
    did = encode(document)
    return {"long": did, "short": long_to_short(did)}


def document(did: str) -> Any:
    return json.loads(json.dumps({"long": resolve(did), "short": resolve_short(did)}))
