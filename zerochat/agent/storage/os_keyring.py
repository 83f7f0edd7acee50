"""The operating system's keyring as the place of a journal's key: on macOS the Keychain, on Linux the Secret Service.

The package that speaks to it is not one of ours (`pip install keyring`), because most terminals over SSH have
no keyring at all; there a passphrase is the better lock.
"""

import importlib
from typing import Any, ClassVar

from zerochat.errors import LocalError

SERVICE = "zerochat"


class NoKeyring(LocalError):
    """The system's keyring cannot be used: {why}. Unlock it, or install the package `keyring` beside zerochat
    (`pip install keyring`); for a new profile `zerochat init --passphrase` does without one."""

    exit_code: ClassVar[int] = 6


def keep(account: str, secret: str) -> None:
    """Put a secret into the keyring under this account. Raises NoKeyring."""
    _call("set_password", SERVICE, account, secret)


def fetch(account: str) -> str:
    """The secret that was kept under this account. Raises NoKeyring, also when it is not there."""
    secret = _call("get_password", SERVICE, account)
    if not isinstance(secret, str):
        raise NoKeyring(why="the key of this profile is not in it")
    return secret


def forget(account: str) -> None:
    """Take a secret out of the keyring. Raises NoKeyring, also when it is not there."""
    _call("delete_password", SERVICE, account)


def _call(what: str, *arguments: str) -> Any:
    try:
        keyring = importlib.import_module("keyring")
        return getattr(keyring, what)(*arguments)
    except ImportError:
        raise NoKeyring(why="the package that speaks to it is not installed") from None
    except Exception as error:  # noqa: BLE001  # every keyring has errors of its own, and none may show the secret
        raise NoKeyring(why=f"it answers {type(error).__name__}") from None
