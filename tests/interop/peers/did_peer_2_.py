"""did-peer-2: did:peer:2 by the authors of the method's newest text."""

import json
from typing import Any

from did_peer_2 import KeySpec, generate, resolve


def make(signing: str, agreement: str, services: list[dict[str, Any]]) -> str:
    return str(generate([KeySpec.verification(signing), KeySpec.key_agreement(agreement)], services))


def document(did: str) -> Any:
    return json.loads(json.dumps(resolve(did)))
