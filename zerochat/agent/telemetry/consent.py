"""Telemetry consent: the question, the stored answer and the vetoes that override it."""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Struct

from zerochat.errors import LocalError

CONSENT_VERSION: Final = 1
"""Version of the question; consent to another version is void."""
META_KEY: Final = "telemetry"
"""Key of the answer in the journal's `meta` table; absent: never asked."""
OBSERVER_BYTES: Final = 16

WHAT: Final = (
    "What: when each message was sent, received, decrypted and acknowledged, on which path and how late; connections;"
    " joins; retransmissions; the number of members; sizes in bytes, including your texts. Never: message texts, names,"
    " topics, files, addresses."
)
WHERE: Final = (
    "Where: in this profile's encrypted journal and its backups. Nothing is ever sent. `zerochat telemetry export`"
    " writes a folder with pseudonyms instead of names; you decide whether to share it."
)
HOW_LONG: Final = (
    "How long: at most {days} days and {megabytes} MiB; the oldest records are deleted first. `zerochat telemetry off`"
    " stops recording, `zerochat telemetry delete` removes everything, `zerochat telemetry show` prints records."
)
OTHERS: Final = (
    "Other members: an export shows when each member of your groups wrote and how much, to anyone who can match"
    " pseudonyms to people. Ask them before you share an export."
)
QUESTION: Final = ("Record delivery telemetry on this machine?", WHAT, WHERE, HOW_LONG, OTHERS)


class TelemetryForbidden(LocalError):
    """{why}. Nothing is recorded or exported."""

    exit_code: ClassVar[int] = 3


class ConsentNeeded(LocalError):
    """Telemetry needs your consent. Run `zerochat telemetry on` in a terminal and confirm, or `zerochat telemetry on
    --yes` in a script."""

    exit_code: ClassVar[int] = 2


class Consent(Struct, frozen=True):
    """The user's stored answer."""

    version: int
    on: bool
    at: int
    """Time of the answer, UTC ms."""
    observer: str
    """16 random bytes in hex: the profile's name in records that belong to no group."""


def question(days: int, megabytes: int) -> tuple[str, ...]:
    """The question, one paragraph per item. `megabytes`: in MiB."""
    return tuple(one.format(days=days, megabytes=megabytes) for one in QUESTION)


def forbidden(environ: Mapping[str, str], allowed: bool = True) -> str:
    """The veto that overrides consent, as a sentence without its full stop; empty: none.

    `allowed`: the setting `telemetry.allowed`.
    """
    if environ.get("DO_NOT_TRACK", "").strip().lower() not in ("", "0", "false"):
        return "Telemetry is off because DO_NOT_TRACK is set"
    if environ.get("ZEROCHAT_TELEMETRY", "").strip().lower() in ("0", "false", "off", "no"):
        return f"Telemetry is off because ZEROCHAT_TELEMETRY is {environ['ZEROCHAT_TELEMETRY'].strip()}"
    return "" if allowed else "Telemetry is off because the setting telemetry.allowed is false"


def read_consent(kept: bytes | None) -> Consent | None:
    """Decode the stored answer; None: none, or one to another version of the question."""
    if not kept:
        return None
    try:
        found = msgspec.json.decode(kept, type=Consent)
    except msgspec.DecodeError:
        return None
    return found if found.version == CONSENT_VERSION and len(found.observer) == 2 * OBSERVER_BYTES else None


def consents(kept: bytes | None) -> bool:
    found = read_consent(kept)
    return found is not None and found.on
