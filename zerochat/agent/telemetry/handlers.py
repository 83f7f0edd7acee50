"""Request handlers of delivery telemetry."""

import base64
import os
import time
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.settings.reader import Settings
from zerochat.agent.storage.journal import Journal
from zerochat.agent.telemetry.consent import (
    CONSENT_VERSION,
    META_KEY,
    OBSERVER_BYTES,
    Consent,
    ConsentNeeded,
    TelemetryForbidden,
    forbidden,
    question,
    read_consent,
)
from zerochat.agent.telemetry.recorder import QueueProbes, Recorder, RetentionLimits
from zerochat.agent.telemetry.store import Batch
from zerochat.group.state import Agent
from zerochat.rpc import telemetry
from zerochat.rpc.common import timestamp

PAGE_BYTES_MAX: Final = 384 * 1024
"""Size limit of one response before Base64; a response is one line of the control socket."""
PAGE_BATCHES: Final = 256
NAMES_MAX: Final = 4_000


def retention_limits(journal: Journal, settings: Settings) -> RetentionLimits | None:
    """The retention limits; None: recording is off or vetoed."""
    consent = read_consent(journal.meta_get(META_KEY))
    if consent is None or not consent.on or forbidden(os.environ, settings.allowed):
        return None
    return RetentionLimits(settings.megabytes, settings.days)


def new_recorder(journal: Journal, agent: Agent, bounds: RetentionLimits, outside: QueueProbes) -> Recorder:
    consent = read_consent(journal.meta_get(META_KEY))
    assert consent is not None
    return Recorder(journal.telemetry(), agent, consent.observer, bounds, outside)


def expire(journal: Journal, settings: Settings, agent: Agent) -> None:
    """Delete expired records while recording is off."""
    store = journal.telemetry()
    if store.sums().rows:
        store.expire(time.time_ns() // 1000 - agent.clock_offset_ms * 1000, settings.days)


def handle(method: str, params: Struct, journal: Journal, settings: Settings) -> Struct:
    """The response to a telemetry request. Raises TelemetryForbidden, ConsentNeeded, or a journal error."""
    match params:
        case telemetry.TelemetrySetParams(on, consent):
            _set(journal, settings, on, consent)
        case telemetry.TelemetryRowsParams():
            return _rows(journal, params)
        case telemetry.TelemetryNamesParams(after):
            names = journal.telemetry().names(after, NAMES_MAX + 1)
            return telemetry.TelemetryNames(
                [telemetry.TelemetryName(*one) for one in names[:NAMES_MAX]], len(names) > NAMES_MAX
            )
        case _ if method == "delete_telemetry":
            deleted = journal.telemetry().delete()
            known = read_consent(journal.meta_get(META_KEY))
            if known is not None and known.on:
                _store_consent(journal, replace(known, observer=os.urandom(OBSERVER_BYTES).hex()))
            else:
                journal.meta_delete(META_KEY)
            return replace(status(journal, settings), deleted=deleted)
    return status(journal, settings)


def with_recording(found: Struct, recording: bool, fault: str) -> Struct:
    """The response with the current state of recording. `fault`: why recording stopped by itself."""
    return replace(found, recording=recording, fault=fault) if isinstance(found, telemetry.TelemetryStatus) else found


def _set(journal: Journal, settings: Settings, on: bool, consent: int) -> None:
    known = read_consent(journal.meta_get(META_KEY))
    if on:
        if why := forbidden(os.environ, settings.allowed):
            raise TelemetryForbidden(why=why)
        if consent != CONSENT_VERSION:
            raise ConsentNeeded
        if known is None or not known.on:
            own = known.observer if known is not None else os.urandom(OBSERVER_BYTES).hex()
            _store_consent(journal, Consent(CONSENT_VERSION, True, int(time.time() * 1000), own))
    elif known is not None and known.on:
        _store_consent(journal, replace(known, on=False))


def _store_consent(journal: Journal, consent: Consent) -> None:
    journal.meta_set(META_KEY, msgspec.json.encode(consent))


def status(journal: Journal, settings: Settings) -> telemetry.TelemetryStatus:
    """State of recording and size of the stored records."""
    known = read_consent(journal.meta_get(META_KEY))
    on = known is not None and known.on
    sums = journal.telemetry().sums()
    return telemetry.TelemetryStatus(
        on=on,
        recording=False,
        forbidden=forbidden(os.environ, settings.allowed),
        question=list(question(settings.days, settings.megabytes)),
        consent=CONSENT_VERSION,
        since=timestamp(known.at) if known is not None and on else None,
        rows=sums.rows,
        bytes=sums.bytes,
        first=timestamp(sums.first_us // 1000) if sums.rows else None,
        last=timestamp(sums.last_us // 1000) if sums.rows else None,
        mebibytes_max=settings.megabytes,
        days_max=settings.days,
    )


def _rows(journal: Journal, params: telemetry.TelemetryRowsParams) -> telemetry.TelemetryRows:
    store = journal.telemetry()
    if params.newest:
        found = store.newest(PAGE_BATCHES)
        enough = rows = size = 0
        for one in reversed(found):
            rows, size = rows + one.rows, size + len(one.data)
            if enough and size > PAGE_BYTES_MAX:
                break
            enough += 1
            if rows >= params.newest:
                break
        return telemetry.TelemetryRows([_batch(one) for one in found[len(found) - enough :]], more=False)
    found = store.batches(params.after, PAGE_BATCHES + 1)
    taken, size = 0, 0
    for one in found[:PAGE_BATCHES]:
        size += len(one.data)
        if taken and size > PAGE_BYTES_MAX:
            break
        taken += 1
    return telemetry.TelemetryRows([_batch(one) for one in found[:taken]], more=taken < len(found))


def _batch(one: Batch) -> telemetry.TelemetryBatch:
    return telemetry.TelemetryBatch(
        one.number, one.rows, one.first_us, one.last_us, base64.b64encode(one.data).decode()
    )
