"""Key storage in the operating system's keyring: Keychain on macOS, Secret Service on Linux.

The package `keyring` is an optional dependency, because most terminals over SSH have no keyring; there a passphrase is
the better choice.
"""

import importlib
from typing import Any, ClassVar

from zerochat.errors import LocalError

SERVICE = "zerochat"


class NoKeyring(LocalError):
    """The system's keyring cannot be used: {why}. Unlock it, install the package `keyring` in zerochat's environment
    (`pip install keyring`), or create a profile that needs no keyring (`zerochat init --name NAME --passphrase`)."""

    exit_code: ClassVar[int] = 6


def store(account: str, secret: str) -> None:
    """Store a secret under this account. Raises NoKeyring."""
    _call("set_password", SERVICE, account, secret)


def fetch(account: str) -> str:
    """The secret of this account. Raises NoKeyring, also when there is none."""
    secret = _call("get_password", SERVICE, account)
    if not isinstance(secret, str):
        raise NoKeyring(why="it does not have the key of this profile")
    return secret


def delete(account: str) -> None:
    """Delete the secret of this account. Raises NoKeyring, also when there is none."""
    _call("delete_password", SERVICE, account)


def _call(what: str, *arguments: str) -> Any:
    try:
        keyring = importlib.import_module("keyring")
        return getattr(keyring, what)(*arguments)
    except ImportError:
        raise NoKeyring(why="the package keyring is not installed") from None
    except Exception as error:  # noqa: BLE001  # backends raise their own errors, whose text may contain the secret
        raise NoKeyring(why=f"it reports {type(error).__name__}") from None
