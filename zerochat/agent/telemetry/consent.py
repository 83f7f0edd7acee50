"""The question that is asked before anything is recorded, the answer as it is kept, and what wins over it."""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Struct

from zerochat.errors import LocalError

CONSENT: Final = 1
"""Which question it was; a yes to another one does not count."""
KEPT: Final = "telemetry"
"""Under which name the answer is in the journal's `meta`."""
SELF_BYTES: Final = 16

WHAT: Final = (
    "What: when each message was sent, received, decrypted and acknowledged, by which way and how late; connections"
    " that come and go; joins; repairs; how many are in a group; sizes in bytes, those of your texts too. Never: what"
    " is said, names, topics, files, addresses."
)
WHERE: Final = (
    "Where: in this profile's encrypted journal, and so in backups of it, and nowhere else. Nothing is ever sent to"
    " anybody. `zerochat telemetry export` writes a folder, with numbers in the place of everybody; whether somebody"
    " gets that is up to you."
)
HOW_LONG: Final = (
    "How long: {days} days and {megabytes} MiB at the most, the oldest goes first. `zerochat telemetry off` ends it,"
    " `zerochat telemetry delete` removes all of it, `zerochat telemetry show` prints what there is."
)
OTHERS: Final = (
    "The others in your groups are in it as well: whoever knows who is who could learn from an export when each of"
    " them has written, and how much. Ask them before you give one away."
)
QUESTION: Final = ("Record on this machine how your messages fare?", WHAT, WHERE, HOW_LONG, OTHERS)


class TelemetryForbidden(LocalError):
    """{why}. Nothing is recorded and nothing exported, whatever else was said."""

    exit_code: ClassVar[int] = 3


class ConsentNeeded(LocalError):
    """Whoever turns this on must have read what it does: `zerochat telemetry on` asks, and `zerochat telemetry on
    --yes` takes the answer from a script."""

    exit_code: ClassVar[int] = 2


class Consent(Struct, frozen=True):
    """A person's answer, and what belongs to it."""

    version: int
    on: bool
    at: int
    """When it was given, UTC ms."""
    self: str
    """16 random bytes in hex, which stand for this profile where no group's member does."""


def question(days: int, megabytes: int) -> tuple[str, ...]:
    """The question, a paragraph each."""
    return tuple(one.format(days=days, megabytes=megabytes) for one in QUESTION)


def forbidden(environ: Mapping[str, str], allowed: bool = True) -> str:
    """What forbids it, whatever a person has answered, as a sentence without its full stop; empty: nothing does.

    `allowed`: the setting `telemetry.allowed`.
    """
    if environ.get("DO_NOT_TRACK", "").strip().lower() not in ("", "0", "false"):
        return "Telemetry is off because DO_NOT_TRACK is set"
    if environ.get("ZEROCHAT_TELEMETRY", "").strip().lower() in ("0", "false", "off", "no"):
        return f"Telemetry is off because ZEROCHAT_TELEMETRY is {environ['ZEROCHAT_TELEMETRY'].strip()}"
    return "" if allowed else "Telemetry is off because the setting telemetry.allowed is false"


def read_consent(kept: bytes | None) -> Consent | None:
    """The answer in a journal's `meta`; None: there is none, or one to another question."""
    if not kept:
        return None
    try:
        found = msgspec.json.decode(kept, type=Consent)
    except msgspec.DecodeError:
        return None
    return found if found.version == CONSENT and len(found.self) == 2 * SELF_BYTES else None


def consents(kept: bytes | None) -> bool:
    found = read_consent(kept)
    return found is not None and found.on
