"""The pipeline's work in DuckDB: an oracle for its results, and a peer for its speed.

The same files are verified (size, SHA-256, footer), no two exports may hold rows of one observer, the same rows are
accepted, and the tables that the pipeline calls DELIVERIES are written with all columns.

Only simulated exports are supported: all members export, no group exceeds 64 members, no file is set aside.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WINDOW_S, TIMES_MIN, PEERS_MIN, DAY_US = 21_600, 3, 2, 86_400_000_000
ALWAYS_US, SETTLE_US, MINUTE_US, APART_US = 946_684_800_000_000, 60_000_000, 60_000_000, 1_000_000

TIMES, LONG_US, SEQ_MAX, SIZE_MAX, MEMBERS_MAX = (ALWAYS_US, 7_258_118_400_000_000), 10**13, 2**53, 2**40, 4095
KEYS = ("pairwise-multi", "pairwise-single", "sender-key")
PATHS = ("direct", "retransmission", "history", "mediator")
BELIEVABLE = {
    "recv": f"""observer IS NOT NULL AND "group" IS NOT NULL AND sender IS NOT NULL AND seq BETWEEN 0 AND {SEQ_MAX}
        AND keys IS NOT NULL AND path IS NOT NULL AND dup IS NOT NULL AND late IS NOT NULL
        AND n BETWEEN 0 AND {MEMBERS_MAX} AND hold_us BETWEEN 0 AND {LONG_US}
        AND t_send_us BETWEEN {TIMES[0]} AND {TIMES[1]} AND t_recv_us BETWEEN {TIMES[0]} AND {TIMES[1]}""",
    "send": f"""observer IS NOT NULL AND "group" IS NOT NULL AND seq BETWEEN 0 AND {SEQ_MAX}
        AND keys IS NOT NULL AND path IS NOT NULL AND accountability IS NOT NULL
        AND n BETWEEN 0 AND {MEMBERS_MAX} AND batch BETWEEN 0 AND {MEMBERS_MAX}
        AND envelopes BETWEEN 0 AND {MEMBERS_MAX} AND queue_us BETWEEN 0 AND {LONG_US}
        AND plain_b BETWEEN 0 AND {SIZE_MAX} AND env_b BETWEEN 0 AND {SIZE_MAX}
        AND t_send_us BETWEEN {TIMES[0]} AND {TIMES[1]}""",
    "view": f"""observer IS NOT NULL AND "group" IS NOT NULL AND checksum IS NOT NULL
        AND len(roster) <= {MEMBERS_MAX} AND t_us BETWEEN {TIMES[0]} AND {TIMES[1]}""",
    "span": f"""observer IS NOT NULL
        AND t_from_us BETWEEN {TIMES[0]} AND {TIMES[1]} AND t_us BETWEEN {TIMES[0]} AND {TIMES[1]}""",
}
"""Which rows count: those in which nothing lacks and no number is out of its range."""

CLOCKS = f"""
CREATE TABLE pair AS
SELECT "group", sender, observer, w, count(*) FILTER (near) AS times,
       min(took * 32768 + t_send_us % {WINDOW_S}000000 // 1000000) FILTER (near) AS least,
       count(*) AS rows, count(*) FILTER (took < 0) AS before_sent,
       count(*) FILTER (keys NOT IN {KEYS} OR path NOT IN {PATHS}) AS unknown_words
FROM (SELECT *, t_send_us // {WINDOW_S}000000 AS w, t_recv_us - t_send_us AS took,
             path = 'direct' AND NOT dup AND abs(t_recv_us - t_send_us) <= {DAY_US} AS near FROM recv)
GROUP BY ALL;
CREATE TABLE heard_by AS
SELECT sender, observer, w, least >> 15 AS least_us, w * {WINDOW_S} + (least & 32767) AS at_s
FROM pair WHERE times >= {TIMES_MIN};
CREATE TABLE diff AS
SELECT a.observer AS member, a.sender AS peer, a.w, a.least_us - b.least_us AS y, a.at_s + b.at_s AS at2
FROM heard_by a JOIN heard_by b ON a.sender = b.observer AND a.observer = b.sender AND a.w = b.w;
CREATE TABLE said AS
WITH moved AS (
    SELECT *, (min(w) OVER () + max(w) OVER () + 1) * {WINDOW_S} AS start2, at2 - start2 AS x FROM diff
), sums AS (
    SELECT member, peer, start2, count(*)::DOUBLE AS n, sum(x)::DOUBLE AS sx, sum(y)::DOUBLE AS sy,
           sum(x::HUGEINT * x)::DOUBLE AS sxx, sum(x::HUGEINT * y)::DOUBLE AS sxy FROM moved GROUP BY ALL
), steps AS (
    SELECT *, CASE WHEN n * sxx - sx * sx <= 0 THEN 0
           ELSE (n * sxy - sx * sy) / (n * sxx - sx * sx) END AS step FROM sums
)
SELECT member, peer, floor((sy - step * sx) / n / 2.0 + 0.5)::BIGINT AS base_us,
       floor(step / 1e6 * 1e15 + 0.5)::BIGINT AS slope, start2 * 500000 AS start_us
FROM steps WHERE member < peer ORDER BY member, peer;
"""

PEOPLE = f"""
CREATE MACRO agreed(t, base_us, slope) AS
    t - floor(coalesce(base_us + slope * (t - getvariable('start_us'))::DOUBLE, 0) + 0.5)::BIGINT;
CREATE TABLE recorded AS
WITH ordered AS (
    SELECT *, max(t_us) OVER (PARTITION BY observer ORDER BY t_from_us, t_us
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM span
), numbered AS (
    SELECT *, sum(CASE WHEN t_from_us <= before + {APART_US} THEN 0 ELSE 1 END)
              OVER (PARTITION BY observer ORDER BY t_from_us, t_us) AS place FROM ordered
)
SELECT observer, min(t_from_us) AS from_us, max(t_us) AS to_us FROM numbered GROUP BY observer, place;
CREATE TABLE covered AS
WITH first AS (SELECT "group", observer, min(t_us) AS first_us FROM view GROUP BY ALL),
own AS (
    SELECT "group", observer AS member, greatest(first_us, e.from_us, r.from_us) AS from_us,
           least(e.to_us, r.to_us) AS to_us
    FROM first JOIN export e USING (observer) JOIN recorded r USING (observer)
)
SELECT "group", member, agreed(from_us, base_us, slope) AS from_us, agreed(to_us, base_us, slope) AS to_us
FROM own LEFT JOIN line USING (member) WHERE to_us > from_us;
CREATE TABLE sight AS
SELECT "group", observer, roster, agreed(t_us, base_us, slope) AS t_us
FROM view LEFT JOIN line ON line.member = observer;
CREATE TABLE person AS
SELECT "group", member, row_number() OVER (PARTITION BY "group" ORDER BY member) - 1 AS number
FROM (SELECT DISTINCT "group", unnest(roster) AS member FROM view);
CREATE TABLE edge_of AS
SELECT p."group", p.sender, p.observer, o.number, 1::UBIGINT << o.number AS bit,
       ls.base_us IS NOT NULL AS corrected,
       coalesce(lo.base_us - ls.base_us, 0) AS base_us, coalesce(lo.slope - ls.slope, 0) AS slope
FROM (SELECT DISTINCT "group", sender, observer FROM pair) p
JOIN person o ON o."group" = p."group" AND o.member = p.observer
LEFT JOIN line lo ON lo.member = p.observer LEFT JOIN line ls ON ls.member = p.sender AND ls.component = lo.component;
CREATE TABLE step AS
WITH viewer AS (SELECT DISTINCT "group", observer AS viewer FROM view),
ends AS (
    SELECT DISTINCT "group", unnest([from_us, to_us - {SETTLE_US}]) AS moment FROM covered
), moments AS (
    SELECT "group", observer AS viewer, t_us AS from_us, max(roster) AS roster FROM sight GROUP BY ALL
    UNION ALL SELECT "group", viewer, moment, NULL FROM viewer JOIN ends USING ("group")
    UNION ALL SELECT "group", viewer, {ALWAYS_US}, NULL FROM viewer
), once AS (
    SELECT "group", viewer, from_us, max(roster) AS roster FROM moments GROUP BY ALL
), filled AS (
    SELECT "group", viewer, from_us, coalesce(
        last_value(roster IGNORE NULLS) OVER (PARTITION BY "group", viewer ORDER BY from_us),
        first_value(roster IGNORE NULLS) OVER (PARTITION BY "group", viewer ORDER BY from_us
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)) AS roster
    FROM once
), each AS (SELECT "group", viewer, from_us, unnest(roster) AS member FROM filled)
SELECT e."group", viewer AS sender, e.from_us, bit_or(1::UBIGINT << number) AS everybody,
       bit_or(CASE WHEN c.from_us <= e.from_us AND e.from_us < c.to_us - {SETTLE_US}
              THEN 1::UBIGINT << number ELSE 0 END) AS known
FROM each e JOIN person p ON p."group" = e."group" AND p.member = e.member
LEFT JOIN covered c ON c."group" = e."group" AND c.member = e.member GROUP BY ALL;
"""

MESSAGES = """
CREATE VIEW delivery AS
SELECT r."group", r.sender, r.observer, seq, bit, n, keys, kind, path, dup, late, hold_us, corrected,
       CASE WHEN display_us BETWEEN 0 AND $long THEN display_us ELSE 0 END AS display_us,
       t_recv_us - t_send_us
       - floor(base_us + slope * (t_send_us - getvariable('start_us'))::DOUBLE + 0.5)::BIGINT AS took
FROM recv r JOIN edge_of USING ("group", sender, observer);
CREATE TABLE reach AS
WITH heard AS (
    SELECT "group", sender, seq, bit_or(CASE WHEN dup THEN 0 ELSE bit END) AS seen,
           bit_or(CASE WHEN NOT dup AND path = 'direct' THEN bit ELSE 0 END) AS direct,
           bit_or(CASE WHEN NOT dup AND took <= $within THEN bit ELSE 0 END) AS inside,
           bit_or(CASE WHEN NOT dup AND path = 'mediator' AND took <= $within THEN bit ELSE 0 END) AS mail,
           max(took + display_us) FILTER (NOT dup AND path <> 'history') AS shown_us,
           count(*) FILTER (NOT dup AND NOT corrected) AS uncorrected, max(kind) AS said_kind,
           max(took) FILTER (NOT dup) AS max_us, max(took) FILTER (NOT dup AND path <> 'history') AS max_then_us,
           min(took) FILTER (NOT dup) AS first_us, sum(took) FILTER (NOT dup) AS sum_us,
           count(*) FILTER (NOT dup) AS came,
           count(*) FILTER (dup) AS dups, count(*) FILTER (late AND NOT dup) AS late,
           sum(hold_us) FILTER (NOT dup) AS hold_us, max(hold_us) FILTER (NOT dup) AS hold_max_us
    FROM delivery GROUP BY ALL
), told AS (
    SELECT s."group", s.observer AS sender, s.seq, s.n, s.keys, s.path, s.batch, s.t_send_us,
           coalesce(s.kind, h.said_kind) AS kind, s.accountability, s.queue_us, s.plain_b, s.env_b, s.envelopes,
           h.* EXCLUDE ("group", sender, seq, seen, direct, inside, mail, said_kind), coalesce(seen, 0) AS seen,
           coalesce(direct, 0) AS direct, coalesce(inside, 0) AS inside,
           coalesce(mail, 0) AS mail, 1::UBIGINT << p.number AS self,
           agreed(s.t_send_us, l.base_us, l.slope) AS agreed_us
    FROM send s LEFT JOIN heard h ON h."group" = s."group" AND h.sender = s.observer AND h.seq = s.seq
    JOIN person p ON p."group" = s."group" AND p.member = s.observer
    LEFT JOIN line l ON l.member = s.observer
)
SELECT t.*, (s.known | (seen & everybody)) & ~self AS exp, exp & ~seen AS lost, exp & ~inside AS slow,
       exp & ~direct AS indirect, exp & mail AS mailed, seen & ~exp AS beyond, everybody & ~exp & ~self AS unheard,
       exp | (s.known & self) AS there
FROM told t ASOF JOIN step s ON s."group" = t."group" AND s.sender = t.sender AND t.agreed_us >= s.from_us;
CREATE TABLE lacking AS
SELECT "group", sender, seq, list(member ORDER BY member) AS missing
FROM (SELECT "group", sender, seq, unnest(range(64)) AS number, lost FROM reach WHERE lost <> 0)
JOIN person USING ("group", number) WHERE lost >> number & 1 = 1 GROUP BY ALL;
CREATE TABLE waiting AS
SELECT "group", sender, seq, list(member ORDER BY member) AS slow_for
FROM (SELECT "group", sender, seq, unnest(range(64)) AS number, slow FROM reach WHERE slow <> 0)
JOIN person USING ("group", number) WHERE slow >> number & 1 = 1 GROUP BY ALL;
CREATE TABLE message AS
SELECT r."group", r.sender, seq, t_send_us, kind, keys, path, accountability, n, batch, bit_count(exp)::INT AS expected,
       (bit_count(exp) - bit_count(lost))::INT AS delivered, (bit_count(exp) - bit_count(indirect))::INT AS direct,
       bit_count(beyond)::INT AS newcomers, bit_count(unheard)::INT AS unheard,
       exp <> 0 AND lost = 0 AS complete, slow = 0 AS in_time, first_us,
       CASE WHEN exp <> 0 AND lost = 0 AND CASE WHEN beyond = 0 THEN max_us ELSE max_then_us END IS NOT NULL
            THEN greatest(CASE WHEN beyond = 0 THEN max_us ELSE max_then_us END, 0) END AS whole_us,
       sum_us::BIGINT AS sum_us, came, coalesce(late, 0) AS late, coalesce(dups, 0) AS dups, hold_us::BIGINT AS hold_us,
       hold_max_us, coalesce(missing, []) AS missing, coalesce(slow_for, []) AS slow_for,
       CASE WHEN exp <> 0 AND lost = 0 AND shown_us IS NOT NULL THEN greatest(shown_us, 0) END AS shown_us,
       coalesce(uncorrected, 0) AS uncorrected, queue_us, plain_b, env_b, envelopes
FROM reach r LEFT JOIN lacking USING ("group", sender, seq) LEFT JOIN waiting USING ("group", sender, seq);
"""

PAIRS = f"""
CREATE TABLE edge_hist AS
SELECT "group", sender, observer, keys, path, n, dup, floor(ln(greatest(took, 1)) * 50)::INT AS bin, count(*) AS rows,
       count(*) FILTER (late) AS late, sum(hold_us)::BIGINT AS hold_us, max(hold_us) AS hold_max_us,
       max(took) AS max_us
FROM delivery GROUP BY ALL;
CREATE TABLE edge AS
WITH bins AS (
    SELECT "group", sender, observer, bin, sum(rows) AS rows
    FROM edge_hist WHERE NOT dup AND path = 'direct' GROUP BY ALL
), upto AS (
    SELECT *, sum(rows) OVER (PARTITION BY "group", sender, observer ORDER BY bin) AS upto,
           sum(rows) OVER (PARTITION BY "group", sender, observer) AS total FROM bins
), speed AS (
    SELECT "group", sender, observer, {{quantiles}} FROM upto GROUP BY ALL
), counts AS (
    SELECT "group", sender, observer, {{paths}},
           coalesce(sum(rows) FILTER (dup), 0)::BIGINT AS dups,
           coalesce(sum(late) FILTER (NOT dup), 0)::BIGINT AS late,
           coalesce(sum(hold_us) FILTER (NOT dup), 0)::BIGINT AS hold_us, max(hold_max_us) AS hold_max_us,
           max(max_us) FILTER (NOT dup AND path <> 'history') AS max_us
    FROM edge_hist GROUP BY ALL
), expected AS (
    SELECT "group", sender, number, sum(times) AS expected, sum(times * (lost >> number & 1)) AS lost
    FROM (SELECT "group", sender, exp, lost, count(*) AS times, unnest(range(64)) AS number
          FROM reach GROUP BY "group", sender, exp, lost)
    WHERE exp >> number & 1 = 1 GROUP BY ALL
)
SELECT e."group", e.sender, p.member AS observer, e.expected::BIGINT AS expected,
       (e.expected - e.lost)::BIGINT AS delivered, {{path_names}}, coalesce(dups, 0) AS dups, coalesce(late, 0) AS late,
       coalesce(hold_us, 0) AS hold_us, hold_max_us, coalesce(corrected, false) AS corrected,
       p50_us, p90_us, p99_us, max_us
FROM expected e JOIN person p USING ("group", number)
LEFT JOIN counts c ON c."group" = e."group" AND c.sender = e.sender AND c.observer = p.member
LEFT JOIN edge_of w ON w."group" = e."group" AND w.sender = e.sender AND w.observer = p.member
LEFT JOIN speed s ON s."group" = e."group" AND s.sender = e.sender AND s.observer = p.member;
CREATE TABLE minute AS
WITH timed AS (SELECT *, t_send_us // {MINUTE_US} AS minute FROM reach),
there AS (
    SELECT "group", minute, number, sum(times) AS rows
    FROM (SELECT "group", minute, there, count(*) AS times, unnest(range(64)) AS number
          FROM timed GROUP BY "group", minute, there)
    WHERE there >> number & 1 = 1 GROUP BY ALL
), own AS (
    SELECT "group", minute, sender AS observer, count(*) AS own FROM timed WHERE there <> exp GROUP BY ALL
), otherwise AS (
    SELECT "group", minute, number, sum(times) AS otherwise
    FROM (SELECT "group", minute, indirect, count(*) AS times, unnest(range(64)) AS number
          FROM timed WHERE indirect <> 0 GROUP BY "group", minute, indirect)
    WHERE indirect >> number & 1 = 1 GROUP BY ALL
), by_mail AS (
    SELECT "group", minute, number, sum(times) AS mailed
    FROM (SELECT "group", minute, mailed, count(*) AS times, unnest(range(64)) AS number
          FROM timed WHERE mailed <> 0 GROUP BY "group", minute, mailed)
    WHERE mailed >> number & 1 = 1 GROUP BY ALL
)
SELECT p.member AS observer, t.minute AS minute, sum(rows - coalesce(own, 0))::BIGINT AS expected,
       sum(rows - coalesce(own, 0) - coalesce(otherwise, 0))::BIGINT AS direct,
       sum(coalesce(mailed, 0))::BIGINT AS mailed
FROM there t JOIN person p USING ("group", number)
LEFT JOIN own o ON o."group" = t."group" AND o.minute = t.minute AND o.observer = p.member
LEFT JOIN otherwise w ON w."group" = t."group" AND w.minute = t.minute AND w.number = t.number
LEFT JOIN by_mail m ON m."group" = t."group" AND m.minute = t.minute AND m.number = t.number
WHERE rows - coalesce(own, 0) > 0 GROUP BY p.member, t.minute;
CREATE TABLE outage AS
WITH known AS (
    SELECT *, max(minute) FILTER ((direct + mailed) * 2 < expected) OVER before AS last_bad,
           max(minute) FILTER ((direct + mailed) * 2 >= expected) OVER before AS last_good
    FROM minute
    WINDOW before AS (PARTITION BY observer ORDER BY minute ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), bad AS (
    SELECT *, coalesce(
        minute - last_bad > 3 AND coalesce(last_good > last_bad, false) OR minute - last_bad > 15, true
    ) AS begins
    FROM known WHERE (direct + mailed) * 2 < expected
), numbered AS (SELECT *, sum(begins::INT) OVER (PARTITION BY observer ORDER BY minute) AS episode FROM bad)
SELECT observer, min(minute) * {MINUTE_US} AS t_from_us, (max(minute) + 1) * {MINUTE_US} AS t_to_us,
       count(*) AS bad_minutes,
       sum(expected)::BIGINT AS expected, sum(direct)::BIGINT AS direct, sum(mailed)::BIGINT AS mailed
FROM numbered GROUP BY observer, episode HAVING sum(expected - direct - mailed) >= 3;
"""
TABLES = ("message", "edge_hist", "edge", "minute", "outage")


def study(exports: Path, out: Path, within_us: int = 30_000_000, threads: int = 0) -> None:
    """Write the tables as OUT/NAME.parquet."""
    base = duckdb.connect()
    if threads:
        base.execute(f"SET threads = {threads}")
    spans, files = manifests(exports)
    base.execute("CREATE TABLE export (observer BIGINT, from_us BIGINT, to_us BIGINT)")
    base.executemany("INSERT INTO export VALUES (?, ?, ?)", spans)
    check_claims(exports, (claim for paths in files.values() for claim in claims(base, paths)))
    for kind in ("recv", "send", "view", "span"):
        what = f"SELECT * FROM read_parquet({listed(files[kind])}, hive_partitioning = false) WHERE {BELIEVABLE[kind]}"
        base.execute(f"CREATE VIEW {kind} AS {what}")
    run(base, CLOCKS)
    base.execute("CREATE TABLE line (member BIGINT, component BIGINT, base_us DOUBLE, slope DOUBLE, start_us BIGINT)")
    lines = fitted(base.execute("SELECT * FROM said").fetchall())
    if lines:
        base.executemany("INSERT INTO line VALUES (?, ?, ?, ?, ?)", lines)
    start = base.execute("SELECT coalesce(max(start_us), 0) FROM line").fetchone()
    base.execute("SET VARIABLE start_us = $1", [start[0] if start else 0])
    run(base, PEOPLE)
    run(base, MESSAGES.replace("$within", str(within_us)).replace("$long", str(LONG_US)))
    quantiles = ", ".join(
        f"floor(exp((min(bin) FILTER (upto >= ceil(total * {share})) + 0.5) / 50) + 0.5)::BIGINT AS {name}_us"
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    )
    paths = ", ".join(
        f"coalesce(sum(rows) FILTER (NOT dup AND path = '{path}'), 0)::BIGINT AS {path}" for path in PATHS
    )
    names = ", ".join(f"coalesce(c.{path}, 0) AS {path}" for path in PATHS)
    pairs = PAIRS.replace("{quantiles}", quantiles).replace("{paths}", paths).replace("{path_names}", names)
    run(base, pairs)
    out.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        base.execute(f"COPY {name} TO '{out / name}.parquet' (FORMAT parquet, COMPRESSION zstd)")
    base.close()


Line: TypeAlias = tuple[int, int, float, float, int]


def fitted(pairs: list[tuple[int, int, int, int, int]]) -> list[Line]:
    """The clock of each member, (member, component, base_us, slope, start_us), that best fits the pairs' offsets:
    (member, peer, base_us, slope, start_us)."""
    lines: list[Line] = []
    pairs = [pair for pair in pairs if abs(pair[3]) <= 10**13]
    peers: dict[int, set[int]] = {}
    for member, peer, *_ in pairs:
        peers.setdefault(member, set()).add(peer)
        peers.setdefault(peer, set()).add(member)
    while few := [member for member, others in peers.items() if len(others) < PEERS_MIN]:
        for member in few:
            for other in peers.pop(member):
                if other in peers:
                    peers[other].discard(member)
    left = sorted(peers)
    while left:
        component, waiting = set[int](), [left[0]]
        while waiting:
            member = waiting.pop()
            if member not in component:
                component.add(member)
                waiting += peers[member]
        left = [member for member in left if member not in component]
        place = {member: number for number, member in enumerate(sorted(component))}
        of_it = [pair for pair in pairs if pair[0] in place and pair[1] in place]
        normal = np.full((len(place), len(place)), 1 / len(place))
        right = np.zeros((len(place), 2))
        for member, peer, *ahead, _ in of_it:
            one, other = place[member], place[peer]
            normal[[one, other], [one, other]] += 1
            normal[[one, other], [other, one]] -= 1
            right[one] += ahead
            right[other] -= ahead
        clocks = np.linalg.solve(normal, right)
        for member, number in place.items():
            base, slope = np.rint(clocks[number] * (1_024, 64)) / (1_024, 64 * 1e15)
            lines.append((member, min(component), float(base), float(slope), of_it[0][4]))
    return lines


def run(base: Any, statements: str) -> None:
    for statement in statements.split(";\n"):
        if statement.strip():
            base.execute(statement)


def manifests(exports: Path) -> tuple[list[tuple[int, int, int]], dict[str, Sequence[str]]]:
    """During which time each observer's receipts are known, and the files of each kind; all of them are looked through
    first, as the pipeline does it. Raises Damaged."""
    from datetime import UTC, datetime, timedelta

    spans, files = [], dict[str, list[str]]()
    for path in sorted(exports.glob("*/manifest.json")):
        told = json.loads(path.read_text(encoding="utf-8"))
        begin = datetime.fromisoformat(told["from"]).replace(tzinfo=UTC)
        end = datetime.fromisoformat(told["to"]).replace(tzinfo=UTC) + timedelta(days=1)
        end = min(end, datetime.fromisoformat(told["exported_at"]))
        spans.append((int(told["observer"]), int(begin.timestamp()) * 1_000_000, int(end.timestamp() * 1_000_000)))
        for file in told["files"]:
            check(path.parent / file["path"], file, told["schema_version"])
            files.setdefault(file["kind"], []).append(str(path.parent / file["path"]))
    return spans, dict(files)


def listed(paths: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{path}'" for path in paths) + "]"


def claims(base: Any, paths: Sequence[str]) -> Iterable[tuple[str, int]]:
    """Whose rows are in each of these files."""
    what = f"read_parquet({listed(paths)}, hive_partitioning = false, filename = true)"
    found: list[tuple[str, int]] = base.execute(f"SELECT DISTINCT filename, observer FROM {what}").fetchall()
    return found


def check_claims(exports: Path, found: Iterable[tuple[str, int]]) -> None:
    """Whether each observer's rows are in one export alone. Raises Damaged."""
    whose: dict[int, str] = {}
    for path, observer in found:
        export = Path(path).relative_to(exports).parts[0]
        if whose.setdefault(observer, export) != export:
            raise Damaged(path)


class Damaged(Exception):
    """A file is not the one that its manifest names, or has rows that are another export's."""


def check(path: Path, told: dict[str, Any], version: int) -> None:
    """Size, SHA-256, and the rows and schema that the footer declares. Raises Damaged."""
    content = path.read_bytes()
    if len(content) != told["bytes"] or hashlib.sha256(content).hexdigest() != told["sha256"]:
        raise Damaged(path)
    footer = pq.ParquetFile(pa.BufferReader(content))
    said = (footer.schema_arrow.metadata or {}).get(b"zerochat_schema_version")
    if footer.metadata.num_rows != told["rows"] or said != str(version).encode():
        raise Damaged(path)
