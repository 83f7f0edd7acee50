"""What a checkup looks at, and what it finds."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from zerochat.agent.api.client import Client, NoAgent, connect
from zerochat.agent.settings.reader import Settings, load_settings
from zerochat.agent.storage.paths import Places
from zerochat.errors import LocalError
from zerochat.rpc import Status

State: TypeAlias = Literal["ok", "warn", "fail", "skip"]


class Finding(Struct, frozen=True):
    """What one check has found. `remedy` is a sentence, and empty only where nothing is to be done."""

    check: str
    state: State
    text: str
    remedy: str = ""


class Checkup(Struct, frozen=True):
    """All of it; `state` is the worst of them."""

    state: State
    profile: str
    version: str
    checks: list[Finding]


class Patient(Struct):
    """What the checks look at."""

    places: Places
    environ: Mapping[str, str]
    key: Callable[[], bytes] | None = None
    """Gives the journal's key without asking anybody, or raises a LocalError; None: only a person could."""
    client: Client | None = None
    status: Status | None = None
    """Of the agent that runs; None: none does."""
    silent: LocalError | None = None
    """Why an agent that should be there cannot be asked."""
    settings: Settings = field(default_factory=Settings)
    refused: LocalError | None = None
    """Why the settings cannot be used."""

    def ask(self) -> None:
        """Find out whether an agent runs, and what the settings are."""
        try:
            self.client = connect(self.places, "doctor")
            self.status = self.client.status()
        except NoAgent:
            pass
        except LocalError as error:
            self.silent = error
        try:
            self.settings = load_settings(self.places, self.environ)
        except LocalError as error:
            self.refused = error


Findings: TypeAlias = Iterator[tuple[State, str, str]]


ON_THIS_MACHINE: Final = "See whether this user may do that on this machine."
