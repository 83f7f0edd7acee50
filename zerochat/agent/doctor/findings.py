"""Context and findings of the doctor's checks."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import NoAgent
from zerochat.agent.settings.reader import Settings, load_settings
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.errors import LocalError
from zerochat.rpc import Status

State: TypeAlias = Literal["ok", "warn", "fail", "skip"]


class Finding(Struct, frozen=True):
    """One result of a check. `remedy` is a sentence; empty: nothing to do."""

    check: str
    state: State
    text: str
    remedy: str = ""


class DoctorReport(Struct, frozen=True):
    """All findings; `state` is the worst one."""

    state: State
    profile: str
    version: str
    checks: list[Finding]


class CheckContext(Struct):
    """The input of the checks."""

    paths: ProfilePaths
    environ: Mapping[str, str]
    key: Callable[[], bytes] | None = None
    """Returns the journal's key without a prompt, or raises a LocalError; None: it needs a prompt."""
    client: Client | None = None
    status: Status | None = None
    """The running agent's status; None: no agent runs."""
    unresponsive: LocalError | None = None
    """Why a running agent does not respond."""
    settings: Settings = field(default_factory=Settings)
    refused: LocalError | None = None
    """Why the settings cannot be used."""

    def load(self) -> None:
        """Connect to a running agent, and load the settings."""
        try:
            self.client = connect(self.paths, "doctor")
            self.status = self.client.get_status()
        except NoAgent:
            pass
        except LocalError as error:
            self.unresponsive = error
        try:
            self.settings = load_settings(self.paths, self.environ)
        except LocalError as error:
            self.refused = error


Findings: TypeAlias = Iterator[tuple[State, str, str]]


ON_THIS_MACHINE: Final = "Check the permissions of this user on this machine."
