"""Simulated exports of telemetry: the records of a group's members, with known faults injected.

The files have the form of real exports, with "simulated" in the field `software`. One member is slow, one is away for a
while, one joins late, one of five or more does not record for a while, every clock is off and drifts, some messages
never arrive. `Truth` holds these faults. The same plan gives the same files.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SECOND_US, MINUTE_US, DAY_US = 1_000_000, 60_000_000, 86_400_000_000
START = datetime(2026, 11, 16, tzinfo=UTC)
START_US = int(START.timestamp()) * SECOND_US
QUIET_US = 3 * MINUTE_US
"""A quiet time at the end, so that all messages have arrived when the exports are made."""
VERSION = 1
SPAN_US = 10 * MINUTE_US
"""The length of the intervals for which an export declares complete recording."""
HISTORY = 20
"""Messages of the earlier history that a late member receives."""
WORDS = {
    "keys": ("pairwise-multi", "pairwise-single", "sender-key"),
    "path": ("direct", "retransmission", "history", "mediator"),
    "kind": ("message", "membership", "annotation"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters. `lost`: the share of deliveries that never arrive; `detour`: that arrive by retransmission."""

    members: int = 6
    messages: int = 2_000
    hours: float = 30.0
    seed: int = 1
    keys: str = "pairwise-multi"
    lost: float = 0.0005
    detour: float = 0.01
    dup: float = 0.003
    clock_s: float = 0.15
    drift_ppm: float = 20.0
    outage_minutes: int = 40
    pause_minutes: int = 45
    slow_us: int = 45 * SECOND_US
    """The extra delay of the slow member's messages."""
    slow_share: float = 0.02


@dataclass(slots=True)
class Truth:
    """The injected faults, by pseudonyms."""

    members: list[int]
    clock_us: dict[int, float]
    """By how much each clock is ahead at START, against the mean of all."""
    drift_ppm: dict[int, float]
    slow: int
    away: int
    away_us: tuple[int, int]
    newcomer: int
    came_us: int
    paused: int | None
    """The member whose recording pauses; it receives the others' messages meanwhile and sends none."""
    paused_us: tuple[int, int]
    lost: set[tuple[int, int, int]] = field(default_factory=set)
    """(sender, seq, observer)"""
    rows: int = 0


def write(folder: Path, plan: Plan) -> Truth:
    """Write one export for each member below a folder."""
    dice = np.random.default_rng(plan.seed)
    count = plan.members
    names = sorted(int(one) for one in dice.integers(-(2**62), 2**62, count))
    group = int(dice.integers(-(2**62), 2**62))
    span_us = int(plan.hours * 3_600) * SECOND_US
    off_us = dice.normal(0, plan.clock_s, count) * SECOND_US
    off_us -= off_us.mean()
    drift = dice.uniform(-plan.drift_ppm, plan.drift_ppm, count) * 1e-6
    drift -= drift.mean()
    slow, away, newcomer = 1, 2, count - 1
    came = START_US + span_us // 6
    away_from = START_US + int(span_us * 0.55) // MINUTE_US * MINUTE_US
    away_to = away_from + plan.outage_minutes * MINUTE_US
    paused = 3 if count > 4 else None
    paused_from = START_US + int(span_us * 0.3) // MINUTE_US * MINUTE_US
    paused_to = paused_from + plan.pause_minutes * MINUTE_US
    truth = Truth(
        names,
        {name: float(one) for name, one in zip(names, off_us, strict=True)},
        {name: float(one) * 1e6 for name, one in zip(names, drift, strict=True)},
        *(names[slow], names[away], (away_from, away_to), names[newcomer], came),
        *(None if paused is None else names[paused], (paused_from, paused_to)),
    )

    times = START_US + np.sort(dice.integers(MINUTE_US, span_us - QUIET_US, plan.messages))
    senders = dice.integers(0, count, plan.messages)
    # A member that has not joined yet, or is away, sends nothing.
    senders = np.where((times < came) & (senders == newcomer), 0, senders)
    senders = np.where((times >= away_from) & (times < away_to) & (senders == away), 0, senders)
    if paused is not None:
        senders = np.where((times >= paused_from) & (times < paused_to) & (senders == paused), 0, senders)
    seqs: Any = np.zeros(plan.messages, np.int64)
    for sender in range(count):
        mine = senders == sender
        seqs[mine] = np.arange(1, mine.sum() + 1)
    plain = np.minimum(dice.lognormal(4, 1, plan.messages).astype(np.int64) + 1, 4_000)
    batch = np.where(dice.random(plan.messages) < 0.9, 1, 10).astype(np.int32)
    base = dice.uniform(4_000, 75_000, (count, count))
    base = (base + base.T) / 2

    def by_clock(who: Any, when: Any) -> Any:
        """A true time by the clock of a member."""
        return (when + off_us[who] + drift[who] * (when - START_US)).astype(np.int64)

    stated = by_clock(senders, times)
    sizes = np.where(times < came, count - 2, count - 1).astype(np.int32)
    for observer in range(count):
        mine = senders == observer
        tables = {
            "send": _sends(
                plan, names[observer], group, dice, seqs[mine], stated[mine], sizes[mine], plain[mine], batch[mine]
            )
        }
        there = ~mine & ((times >= came) | (observer != newcomer))
        history = np.flatnonzero(times < came)[-HISTORY:] if observer == newcomer else np.empty(0, np.int64)
        rows = np.concatenate([history, np.flatnonzero(there)])
        late_joined = np.arange(len(rows)) < len(history)
        sent, who = times[rows], senders[rows]
        took = base[who, observer] + dice.exponential(8_000, len(rows))
        path: Any = np.zeros(len(rows), np.int8)
        detour = dice.random(len(rows)) < plan.detour
        took = np.where(detour, took + dice.uniform(2, 20, len(rows)) * SECOND_US, took)
        path[detour] = 1
        if observer == slow:
            crawling = dice.random(len(rows)) < plan.slow_share
            took = np.where(crawling, took + plan.slow_us, took)
        if observer == away:
            gone = (sent >= away_from) & (sent < away_to)
            took = np.where(gone, away_to - sent + dice.uniform(1, 5, len(rows)) * SECOND_US, took)
            path[gone] = 1
        took = np.where(late_joined, came - sent + SECOND_US, took)
        path[late_joined] = 2
        lost = (dice.random(len(rows)) < plan.lost) & ~late_joined
        if observer == paused:
            # Losses in that time cannot be judged.
            lost &= (sent < paused_from - 2 * MINUTE_US) | (sent >= paused_to + SECOND_US)
        truth.lost |= {
            (names[one], int(seq), names[observer]) for one, seq in zip(who[lost], seqs[rows][lost], strict=True)
        }
        kept = ~lost
        again = dice.random(int(kept.sum())) < plan.dup
        whole = np.concatenate([np.flatnonzero(kept), np.flatnonzero(kept)[again]])
        dup = np.arange(len(whole)) >= kept.sum()
        rows, took, path = rows[whole], took[whole] + np.where(dup, 50_000.0, 0.0), path[whole]
        if observer == paused:
            noted = (times[rows] + took < paused_from) | (times[rows] + took >= paused_to)
            rows, took, path, dup = rows[noted], took[noted], path[noted], dup[noted]
        got = by_clock(np.full(len(rows), observer), times[rows] + took)
        order = np.argsort(got, kind="stable")
        rows, path, dup, got = rows[order], path[order], dup[order], got[order]
        hold = np.where(dice.random(len(rows)) < 0.05, dice.exponential(30_000, len(rows)), 0).astype(np.int64)
        tables["recv"] = {
            "observer": _same(names[observer], len(rows)),
            "group": _same(group, len(rows)),
            "sender": np.array(names)[senders[rows]],
            "seq": seqs[rows],
            "keys": _words("keys", np.full(len(rows), WORDS["keys"].index(plan.keys))),
            "kind": _words("kind", np.zeros(len(rows), np.int8)),
            "n": sizes[rows],
            "t_send_us": stated[rows],
            "t_recv_us": got,
            "decrypt_us": dice.integers(150, 400, len(rows)),
            "hold_us": hold,
            "display_us": pa.array(dice.integers(500, 9_000, len(rows)), mask=dice.random(len(rows)) < 0.3),
            "path": _words("path", path),
            "dup": dup,
            "late": path == 1,
            "env_b": plain[rows] + 420,
            "plain_b": plain[rows],
        }
        truth.rows += len(rows)
        begun = came if observer == newcomer else START_US
        tables |= _small(plan, names, group, observer, begun, (came, newcomer), span_us, dice)
        tables["ack"]["upto"][:] = seqs[mine].max(initial=0)
        tables["view"]["t_us"] = by_clock(observer, tables["view"]["t_us"])
        recorded = [(begun, START_US + span_us)]
        if observer == paused:
            recorded = [(begun, paused_from), (paused_to, START_US + span_us)]
        tables["span"] = _spans(names[observer], [by_clock(observer, _ends(*part)) for part in recorded])
        _write_export(folder / f"export-{observer:02}", names[observer], plan, span_us, tables)
    return truth


def _sends(
    plan: Plan,
    name: int,
    group: int,
    dice: np.random.Generator,
    seq: Any,
    stated: Any,
    sizes: Any,
    plain: Any,
    batch: Any,
) -> dict[str, Any]:
    rows = len(seq)
    return {
        "observer": _same(name, rows),
        "group": _same(group, rows),
        "seq": seq,
        "keys": pa.array([plan.keys] * rows, pa.string()),
        "path": pa.array(["direct"] * rows, pa.string()),
        "accountability": pa.array(["acks"] * rows, pa.string()),
        "n": sizes,
        "batch": batch,
        "t_send_us": stated,
        "queue_us": dice.integers(100, 2_000, rows),
        "plain_b": plain,
        "env_b": (plain + 420) * sizes,
        "envelopes": sizes,
        "kind": pa.array(["message"] * rows, pa.string()),
    }


def _small(
    plan: Plan,
    names: list[int],
    group: int,
    me: int,
    begun: int,
    late: tuple[int, int],
    span_us: int,
    dice: np.random.Generator,
) -> dict[str, dict[str, Any]]:
    """Views, joins, states, links, gaps and queues of one member."""
    came, newcomer = late
    first = [name for place, name in enumerate(names) if place != newcomer]
    views = [(came, names)] if me == newcomer else [(START_US, first), (came, names)]
    name = names[me]
    tables: dict[str, dict[str, Any]] = {
        "view": {
            "observer": _same(name, len(views)),
            "group": _same(group, len(views)),
            "roster": pa.array([roster for _, roster in views], pa.list_(pa.int64())),
            "checksum": np.arange(len(views)),
            "t_us": np.array([when for when, _ in views]),
        },
        "state": {
            "observer": _same(name, 3),
            "group": _same(group, 3),
            "members": np.array([2, 4, 8], np.int32),
            "raw_b": np.array([1_700, 5_000, 11_600]),
            "zstd_b": np.array([900, 2_100, 4_000]),
            "t_us": np.full(3, begun + SECOND_US),
        },
        "ack": {
            "observer": _same(name, len(names) - 1),
            "group": _same(group, len(names) - 1),
            "member": np.array([other for other in names if other != name]),
            "upto": np.full(len(names) - 1, 3),
            "t_ack_us": np.full(len(names) - 1, START_US + span_us - 1),
            "path": pa.array(["direct"] * (len(names) - 1), pa.string()),
        },
        "gap": {
            "observer": _same(name, 2),
            "group": _same(group, 2),
            "sender": _same(names[0], 2),
            "peer": _same(names[-1], 2),
            "after": np.array([1, 5]),
            "upto": np.array([3, 6]),
            "t_us": np.full(2, begun + MINUTE_US),
            "us": pa.array([80_000, None], pa.int64()),
            "outcome": pa.array(["answered", "unanswered"], pa.string()),
        },
        "queue": {
            "observer": _same(name, 5),
            "name": pa.array(["outbox"] * 5, pa.string()),
            "high": dice.integers(0, 40, 5),
            "drops": np.zeros(5, np.int64),
            "t_us": begun + np.arange(5) * MINUTE_US,
        },
    }
    if me == newcomer:
        phases = ("request", "view", "exchanges", "subscriptions", "announce", "whole")
        took = np.array([150_000, 150_000, 310_000, 150_000, 80_000, 840_000])
        tables["join"] = {
            "observer": _same(name, 6),
            "group": _same(group, 6),
            "attempt": _same(1, 6),
            "role": pa.array(["joiner"] * 6, pa.string()),
            "connected": np.zeros(6, bool),
            "phase": pa.array(phases, pa.string()),
            "us": took,
            "members": np.full(6, plan.members - 1, np.int32),
            "outcome": pa.array(["joined"] * 6, pa.string()),
            "t_us": came - 840_000 + np.cumsum(took) % 840_000,
            "rtt_us": pa.array([150_000] * 6, pa.int64()),
        }
    return tables


def _ends(begin: int, end: int) -> Any:
    """Where spans meet, from the beginning to the end of a recording."""
    return np.append(np.arange(begin, end, SPAN_US), end)


def _spans(name: int, parts: list[Any]) -> dict[str, Any]:
    begins, ends = (np.concatenate([part[one] for part in parts]) for one in (slice(None, -1), slice(1, None)))
    return {"observer": _same(name, len(ends)), "t_from_us": begins, "t_us": ends}


def _same(value: int, rows: int) -> Any:
    return np.full(rows, value, np.int64)


def _words(column: str, codes: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(WORDS[column]))


def _write_export(folder: Path, name: int, plan: Plan, span_us: int, tables: Mapping[str, Mapping[str, Any]]) -> None:
    files = []
    for kind, columns in tables.items():
        if not len(next(iter(columns.values()))):
            continue
        table = pa.table(dict(columns)).replace_schema_metadata({"zerochat_schema_version": str(VERSION)})
        time = next(name for name in ("t_recv_us", "t_send_us", "t_ack_us", "t_us") if name in columns)
        days = np.asarray(table[time]) // DAY_US
        for day in np.unique(days):
            date = datetime.fromtimestamp(int(day) * 86_400, UTC).date().isoformat()
            path = f"{kind}/date={date}/part-00000.parquet"
            part = table.filter(pa.array(days == day))
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(part, folder / path, compression="zstd", compression_level=3)
            content = (folder / path).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files.append({"path": path, "kind": kind, "rows": part.num_rows, "bytes": len(content), "sha256": digest})
    end = START + timedelta(microseconds=span_us)
    write_manifest(folder, files, observer=name, end=end, study=f"{plan.seed:016x}")


def write_manifest(
    folder: Path, files: list[dict[str, Any]], *, observer: int, end: datetime, study: str = "0" * 16, **other: Any
) -> None:
    """The manifest of an export with these files; `other` replaces fields."""
    rows: dict[str, int] = {}
    for file in files:
        rows[file["kind"]] = rows.get(file["kind"], 0) + file["rows"]
    manifest = {
        "format": "zerochat-telemetry",
        "schema_version": VERSION,
        "software": "simulated",
        "study": "shared",
        "study_fingerprint": study,
        "observer": str(observer),
        "exported_at": (end + timedelta(minutes=10)).isoformat(),
        "from": START.date().isoformat(),
        "to": end.date().isoformat(),
        "time_unit_us": 1,
        "files": files,
        "rows": rows,
    } | other
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
