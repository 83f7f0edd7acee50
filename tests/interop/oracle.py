"""Other implementations behind one process: requests and answers are JSON lines.

Runs in an environment of its own, because the libraries need old dependencies, and is started once, because some take a
second to load. A request is {"peer": NAME, "ask": FUNCTION, "with": {…}}; the answer is {"is": …}, or {"error": …} if
the library refuses. A peer's operations are the public functions of its module in `peers`: `seal` and `open` for
DIDComm v2 envelopes, `sign` and `verify` for JWS, `seal_v1` and `open_v1` for RFC 0019.
"""

import importlib
import json
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

MODULES = {
    "didcomm": "sicpa",
    "aries-askar": "askar",
    "Authlib": "authlib_",
    "joserfc": "joserfc_",
    "jwcrypto": "jwcrypto_",
    "didcomm-messaging": "messaging",
    "did-peer-2": "did_peer_2_",
    "did-peer-4": "did_peer_4_",
}
"""By the name of the package on PyPI."""

_loaded: dict[str, ModuleType] = {}


def peers() -> dict[str, Any]:
    """Each peer's version, or why it is not there."""
    found = {}
    for package, name in MODULES.items():
        try:
            _loaded[package] = importlib.import_module(f"peers.{name}")
            found[package] = {"version": version(package)}
        except (ImportError, PackageNotFoundError) as error:
            found[package] = {"missing": str(error)}
    return found


def answer(question: dict[str, Any]) -> dict[str, Any]:
    if question["ask"] == "peers":
        return {"is": peers()}
    function = getattr(_loaded[question["peer"]], question["ask"])
    try:
        return {"is": function(**question["with"])}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is its refusal
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    warnings.simplefilter("ignore")  # warnings of other libraries
    replies = sys.stdout
    sys.stdout = sys.stderr  # a library that prints must not corrupt the answers
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
