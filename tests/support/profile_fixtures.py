"""Profiles on disk, and a stand-in for the system keyring."""

from pathlib import Path
from types import ModuleType

import pytest

from zerochat.agent.storage.paths import ProfilePaths, profile_paths

PASSPHRASE = b"correct horse battery staple"


@pytest.fixture
def home(tmp_path: Path) -> ProfilePaths:
    return profile_paths("p", {"ZEROCHAT_HOME": str(tmp_path / "home")})


def content(profile_paths: ProfilePaths) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in profile_paths.data.iterdir()}


class StandInKeyring(ModuleType):
    """What the package `keyring` is to us: two functions. This one keeps its secrets in a dict."""

    def __init__(self, broken=False):
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.broken = broken

    def set_password(self, service, account, secret):
        if self.broken:
            raise RuntimeError(f"no backend for {secret}")
        self.kept[service, account] = secret

    def delete_password(self, service, account):
        del self.kept[service, account]

    def get_password(self, service, account):
        return self.kept.get((service, account))
