"""What faces ask of the telemetry at the control socket."""

import base64
import os
import time
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.settings.reader import Settings
from zerochat.agent.storage.journal import Journal
from zerochat.agent.telemetry.consent import (
    CONSENT,
    KEPT,
    SELF_BYTES,
    Consent,
    ConsentNeeded,
    TelemetryForbidden,
    forbidden,
    question,
    read_consent,
)
from zerochat.agent.telemetry.recorder import Bounds, Outside, Recorder
from zerochat.agent.telemetry.store import Batch
from zerochat.group.state import Agent
from zerochat.rpc import telemetry as schema

PAGE_BYTES_MAX: Final = 384 * 1024
"""Of one answer, before Base64: it is one line of the control socket."""
PAGE_BATCHES: Final = 256
NAMES_MAX: Final = 4_000


def bounds(journal: Journal, settings: Settings) -> Bounds | None:
    """How much is kept of what is recorded; None: nothing is to be, for nobody has asked for it, or it is forbidden."""
    consent = read_consent(journal.meta_get(KEPT))
    if consent is None or not consent.on or forbidden(os.environ, settings.allowed):
        return None
    return Bounds(settings.megabytes, settings.days)


def recorder(journal: Journal, agent: Agent, bounds: Bounds, outside: Outside) -> Recorder:
    consent = read_consent(journal.meta_get(KEPT))
    assert consent is not None
    return Recorder(journal.telemetry(), agent, consent.self, bounds, outside)


def age(journal: Journal, settings: Settings, agent: Agent) -> None:
    """Drop what is older than was said when somebody was asked, though nothing is recorded now."""
    store = journal.telemetry()
    if store.sums().rows:
        store.age(time.time_ns() // 1000 - agent.leap * 1000, settings.days)


def answer(method: str, params: Struct, journal: Journal, settings: Settings) -> Struct:
    """Raises TelemetryForbidden, ConsentNeeded, or what the journal raises."""
    match params:
        case schema.TelemetrySetParams(on, consent):
            _set(journal, settings, on, consent)
        case schema.TelemetryRowsParams():
            return _rows(journal, params)
        case schema.TelemetryNamesParams(after):
            names = journal.telemetry().names(after, NAMES_MAX + 1)
            return schema.TelemetryNames(
                [schema.TelemetryName(*one) for one in names[:NAMES_MAX]], len(names) > NAMES_MAX
            )
        case _ if method == "telemetry_delete":
            deleted = journal.telemetry().delete()
            known = read_consent(journal.meta_get(KEPT))
            if known is not None and known.on:
                _keep(journal, replace(known, self=os.urandom(SELF_BYTES).hex()))
            else:
                journal.meta_drop(KEPT)
            return replace(status(journal, settings), deleted=deleted)
    return status(journal, settings)


def now_recording(found: Struct, recording: bool, fault: str) -> Struct:
    """The answer, after whatever it has changed. `fault`: why recording has ended by itself."""
    return replace(found, recording=recording, fault=fault) if isinstance(found, schema.TelemetryStatus) else found


def _set(journal: Journal, settings: Settings, on: bool, consent: int) -> None:
    known = read_consent(journal.meta_get(KEPT))
    if on:
        if why := forbidden(os.environ, settings.allowed):
            raise TelemetryForbidden(why=why)
        if consent != CONSENT:
            raise ConsentNeeded
        if known is None or not known.on:
            own = known.self if known is not None else os.urandom(SELF_BYTES).hex()
            _keep(journal, Consent(CONSENT, True, int(time.time() * 1000), own))
    elif known is not None and known.on:
        _keep(journal, replace(known, on=False))


def _keep(journal: Journal, consent: Consent) -> None:
    journal.meta_set(KEPT, msgspec.json.encode(consent))


def status(journal: Journal, settings: Settings) -> schema.TelemetryStatus:
    """Whether it is recorded, and how much there is."""
    known = read_consent(journal.meta_get(KEPT))
    on = known is not None and known.on
    sums = journal.telemetry().sums()
    return schema.TelemetryStatus(
        on=on,
        recording=False,
        forbidden=forbidden(os.environ, settings.allowed),
        question=list(question(settings.days, settings.megabytes)),
        consent=CONSENT,
        since=timestamp(known.at) if known is not None and on else None,
        rows=sums.rows,
        bytes=sums.bytes,
        first=timestamp(sums.first_us // 1000) if sums.rows else None,
        last=timestamp(sums.last_us // 1000) if sums.rows else None,
        mebibytes_max=settings.megabytes,
        days_max=settings.days,
    )


def _rows(journal: Journal, params: schema.TelemetryRowsParams) -> schema.TelemetryRows:
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
        return schema.TelemetryRows([_batch(one) for one in found[len(found) - enough :]], more=False)
    found = store.batches(params.after, PAGE_BATCHES + 1)
    taken, size = 0, 0
    for one in found[:PAGE_BATCHES]:
        size += len(one.data)
        if taken and size > PAGE_BYTES_MAX:
            break
        taken += 1
    return schema.TelemetryRows([_batch(one) for one in found[:taken]], more=taken < len(found))


def _batch(one: Batch) -> schema.TelemetryBatch:
    return schema.TelemetryBatch(one.number, one.rows, one.first_us, one.last_us, base64.b64encode(one.data).decode())
