"""Hostile exports: each is skipped and listed, or counted; the results of other exports do not change."""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark comes with the extra `analytics`: scripts/test --analytics")
pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `analytics`: scripts/test --analytics")

import pyarrow as pa
import pyarrow.parquet as pq

from analytics import cli, file_scan, plots, summary
from analytics.errors import InputUnreadable, NestedFolders
from analytics.notebook import markdown_list
from analytics.pipeline import messages, pairs, quality, read, run, scan, silver
from analytics.pipeline.read import Bronze, Export, ExportFile, scan_bronze
from analytics.pipeline.schema import VERSION
from analytics.pipeline.store import Store
from analytics.results import Results, check_disjoint, open_results, walk_files
from benchmarks.ours.exports import SECOND_US, START_US, Plan, write
from tests.support.analytics_study import gold_rows, make_study

pytestmark = pytest.mark.analytics

DAY = "date=2026-11-16/part-00000.parquet"
VICTIM = "export-03"


# --- what is said in a manifest, and at the end of a file -------------------------------------------------------------


def manifest(**other):
    file = {"path": f"queue/{DAY}", "kind": "queue", "rows": 5, "bytes": 900, "sha256": "0" * 64}
    file |= {name[5:]: other.pop(name) for name in list(other) if name.startswith("file_")}
    told = {"format": "zerochat-telemetry", "schema_version": 1, "software": "x", "study": "shared"}
    told |= {"study_fingerprint": "0" * 16, "observer": "7", "exported_at": "2026-11-17T00:00:00+00:00"}
    told |= {"from": "2026-11-16", "to": "2026-11-16", "time_unit_us": 1, "files": [file]}
    return json.dumps(told | other).encode()


def test_valid_manifest():
    export = read._parse_manifest("file:/x", manifest())
    assert (export.observer, export.files[0].path, export.files[0].day_us) == (7, f"file:/x/queue/{DAY}", START_US)


@pytest.mark.parametrize(
    "other",
    [
        {"schema_version": "\ud800"},
        {"schema_version": "2\n\x1b[2J"},
        {"schema_version": True},
        {"schema_version": [[[]]]},
        {"software": "\ud800"},
        {"software": 7},
        {"study_fingerprint": "a\nb"},
        {"study_fingerprint": "x" * 65},
        {"from": "2026-99-99"},
        {"to": "9999-12-31"},
        {"observer": "9" * 5_000},
        {"observer": str(2**63)},
        {"time_unit_us": 1e400},
        {"files": {"a": 1}},
        {"files": [7]},
        {"file_path": "queue/date=2026-99-99/part-00000.parquet"},
        {"file_path": f"queue/../queue/{DAY}"},
        {"file_path": f"recv/{DAY}"},
        {"file_path": f"queue/{DAY}\n"},
        {"file_path": "queue/date=2026-11-16/\ud800.parquet"},
        {"file_path": 7},
        {"file_kind": []},
        {"file_rows": 2**62},
        {"file_rows": -1},
        {"file_rows": 1.5},
        {"file_bytes": file_scan.FILE_BYTES_MAX + 1},
        {"file_sha256": "\ud800" * 64},
    ],
)
def test_invalid_manifests_are_refused(other):
    with pytest.raises(read._Invalid) as refused:
        read._parse_manifest("file:/x", manifest(**other))
    assert str(refused.value).isprintable() and len(str(refused.value)) < 300


QUEUE = pa.schema([("observer", pa.int64()), ("name", pa.string()), *((x, pa.int64()) for x in ("high", "drops"))])
QUEUE = QUEUE.append(pa.field("t_us", pa.int64())).with_metadata({"zerochat_schema_version": "1"})


def parquet(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def check(content, rows=3):
    read._check_footer(ExportFile("x", "queue", rows, len(content), "", 0), VERSION, content)


def test_invalid_footers_are_refused(monkeypatch):
    good = pa.table({name: pa.array([1, 2, 3]).cast(kind) for name, kind in zip(QUEUE.names, QUEUE.types, strict=True)})
    good = good.replace_schema_metadata(QUEUE.metadata)
    for codec in ("none", "snappy", "gzip", "zstd"):
        check(parquet(good, compression=codec))
    with pytest.raises(read._Invalid, match="duplicate columns"):
        check(parquet(good.append_column("high", good["high"])))
    with pytest.raises(read._Invalid, match="has additional ��Bob"):
        check(parquet(good.append_column("\n\x1bBob", good["high"])))
    with pytest.raises(read._Invalid, match="uses an unsupported codec: BROTLI"):
        check(parquet(good, compression="brotli"))
    monkeypatch.setattr(read, "UNPACKED_BYTES_MAX", 100)
    with pytest.raises(read._Invalid, match="is larger than 100 bytes decompressed"):
        check(parquet(good))
    monkeypatch.setattr(read, "ROW_GROUPS_MAX", 2)
    with pytest.raises(read._Invalid, match="has more than 2 row groups"):
        check(parquet(good, row_group_size=1))


# --- who speaks for whom ----------------------------------------------------------------------------------------------


def export(place, observer=1, begin=0, end=10):
    return Export(place, 2, "", True, "s", observer, begin, end, 1)


def test_overlapping_exports():
    whole, inside, after = export("whole"), export("inside", begin=2, end=3), export("after", begin=10, end=20)
    late, other = export("late", begin=5, end=8), export("other", observer=2)
    assert quality.overlapping(Bronze("", [whole, after, other])) == set()
    assert quality.overlapping(Bronze("", [late, whole, after, other, inside])) == {"whole", "inside", "late"}


def test_consecutive_profiles():
    first, second = ("s", 1), ("s", 2)
    begin = silver.TIME_US_MIN
    assert not quality._overlap({first: (begin, begin + 10), second: (begin + 10, begin + 20)})
    assert not quality._overlap({})
    late = begin + 10 + 2 * quality.SUCCESSION_US
    assert quality._overlap({first: (begin, late), second: (begin + 10, begin + 20)})


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_hostile_text_is_escaped_in_the_notebook():
    nasty = '<img src=x onerror="alert(1)"> **a** [b](javascript:c) `d` $\\href{javascript:e}{f}$ &lt;g\n# h \x1b[2J'
    said = markdown_list(["plain words, 30 s", nasty])
    first, second = said.splitlines()
    assert first == "- plain words&#44; 30 s"
    assert not set(second[2:].replace("&#", "").replace(";", "")) & set("<>\"'*[]()`$\\{}_#\x1b:=!")
    assert "onerror" in second and markdown_list([]) == "None."


def test_plot_states_omitted_members():
    many = plots.MEMBERS_SHOWN + 40
    edges = [(1, 0, other, "receipts", 1_000 - other, 0.5) for other in range(1, many)]
    columns = list(zip(*edges, strict=True))
    names = ("group", "sender", "observer", "evidence", "expected", "ratio")
    table = pa.table(dict(zip(names, columns, strict=True)))
    figure = plots.loss_heatmap(Results("", {}, lambda name: table))
    [axes, *_] = figure.axes
    assert axes.get_images()[0].get_array().shape == (plots.MEMBERS_SHOWN,) * 2
    assert axes.get_title().endswith("without 40 members with fewer messages")
    few = plots.loss_heatmap(Results("", {}, lambda name: table.slice(0, 9)))
    assert "without" not in few.axes[0].get_title()


def test_plot_interrupts_the_line_without_messages():
    table = pa.table({"minute": [0, 1, 2, 5_000, 20_000, 20_001], "expected": [4] * 6, "direct": [4, 2, 4, 4, 4, 4]})
    outage = pa.table({"t_from_us": [60_000_000], "t_to_us": [60_000_001]})
    figure = plots.over_time(Results("", {}, lambda name: {"minute": table, "outage": outage}[name]))
    [axes] = figure.axes
    assert [len(line.get_xdata()) for line in axes.get_lines()] == [1, 1, 1]
    table = table.set_column(0, "minute", pa.array([0, 1, 2, 100, 300, 301]))
    figure = plots.over_time(Results("", {}, lambda name: {"minute": table, "outage": outage}[name]))
    assert [len(line.get_xdata()) for line in figure.axes[0].get_lines()] == [3, 1, 2]
    assert figure is not None and plots.png(figure).startswith(b"\x89PNG")


def test_nested_folders_are_refused(tmp_path, capsys):
    exports = tmp_path / "exports"
    (tmp_path / "link").symlink_to(exports)
    for place, out in (
        (exports, exports),
        (exports, exports / "study"),
        (exports / "alice", exports),
        (tmp_path / "link", exports / "study"),
    ):
        with pytest.raises(NestedFolders):
            check_disjoint(str(place), str(out))
    check_disjoint(str(exports), str(tmp_path / "exports-study"))
    check_disjoint("s3a://bucket/exports", "s3a://bucket/study")
    with pytest.raises(NestedFolders):
        check_disjoint("s3a://bucket/exports/", "s3a://bucket/exports/study")
    asked = ["run", "--in", str(exports), "--out", str(exports / "study")]
    assert cli.main(asked) == cli.REFUSED and "are nested" in capsys.readouterr().err


# --- with Spark -------------------------------------------------------------------------------------------------------


def test_json_files_are_written_atomically(spark, tmp_path):
    folder = tmp_path / "a study %20"
    store = Store(spark, str(folder))
    folder.mkdir()
    (folder / "_run.json.new").write_text('{"a')  # killed with its first words
    assert store.is_empty() and store.read_json("run.json") is None
    for number in (1, 2):
        store.write_json("run.json", {"number": number})
        assert store.read_json("run.json") == {"number": number}
    assert [path.name for path in folder.iterdir()] == ["run.json"] and not store.is_empty()
    (folder / "run.json").rename(folder / "_run.json.new")  # killed when what was there had gone
    assert store.read_json("run.json") == {"number": 2}


def in_spark(monkeypatch):
    """Have Spark look at files, as on a cluster."""
    monkeypatch.setattr(scan, "local_folder", lambda spark, place: None)


def test_large_files_are_scanned_one_by_one(spark, tmp_path, monkeypatch):
    write(tmp_path / "exports", Plan(members=3, messages=60, hours=2))
    film = tmp_path / "exports" / "film"
    film.write_bytes(bytes(60_001))
    in_spark(monkeypatch)
    monkeypatch.setattr(scan, "TOGETHER_BYTES_MAX", 2_000)
    monkeypatch.setattr(scan, "FILE_BYTES_MAX", 60_000)
    found = scan_bronze(spark, str(tmp_path / "exports"))
    assert [(one.path.rpartition("/")[2], one.why) for one in found.rejected] == [
        ("film", "is larger than 60000 bytes")
    ]
    sizes = [file.size for export in found.exports for file in export.files]
    assert min(sizes) < 2_000 < max(sizes) and found.rows("send") == 60
    os.truncate(film, file_scan.FILE_BYTES_MAX + 1)
    assert look(film.parent)[1] == {f"file:{film}": f"is larger than {file_scan.FILE_BYTES_MAX} bytes"}


def look(folder):
    with file_scan.background_scan(folder) as ahead:
        return ahead.result()


def test_local_and_spark_scans_agree(spark, tmp_path, monkeypatch):
    tree = tmp_path / "of a study, 100 %25+ä"
    write(tree, Plan(members=4, messages=60, hours=2))
    (tree / "export-03").rename(tree / "_a=b")
    hidden = tree / "_temporary" / "0"
    hidden.mkdir(parents=True)
    for path, content in (
        (hidden / "part.parquet", b"x"),
        (tree / ".hidden", b"x"),
        (tree / "film._COPYING_", b"x"),
        (tree / "_metadata", b"x"),
        (tree / "short", b"PAR1"),
        (tree / "export-00" / "send" / "date=2026-11-16" / "manifest.json", b"{}"),
    ):
        path.write_bytes(content)
    broken = max((tree / "export-01" / "recv").rglob("*.parquet"))
    broken.write_bytes(broken.read_bytes()[:-1] + b"2")
    long = max((tree / "export-02" / "view").rglob("*.parquet"))
    about = {"zerochat_schema_version": "1", "x": "y" * 40_000}
    pq.write_table(pq.read_table(long, partitioning=None).replace_schema_metadata(about), long)
    anew(tree / "export-02", long)
    (tmp_path / "elsewhere").mkdir()
    (tree / "export-01").rename(tmp_path / "elsewhere" / "export-01")
    (tree / "export-01").symlink_to(tmp_path / "elsewhere" / "export-01")
    mine = scan_bronze(spark, str(tree))
    whose = quality._observers(spark, mine)
    assert scan.local_folder(spark, str(tree)) == tree and str(long) in {file.path[5:] for file in mine.files("view")}
    assert len(mine.exports) == 4 and {len(some) for some in whose.values()} == {1}
    told = {file.path for export in mine.exports for file in export.files}
    assert told and told <= mine.observers.keys()
    in_spark(monkeypatch)
    theirs = scan_bronze(spark, str(tree))
    assert theirs.observers == {} and quality._observers(spark, theirs) == whose
    mine.observers = {}
    assert theirs == mine


def anew(export, path):
    """Have a manifest name a file as it is now."""
    told = json.loads((export / "manifest.json").read_bytes())
    for file in told["files"]:
        if path == export / file["path"]:
            file |= {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (export / "manifest.json").write_text(json.dumps(told))


def test_ambiguous_columns_are_refused(spark, tmp_path):
    """`observer` by position and `checksum` by name would impersonate another observer."""
    write(tmp_path, Plan(members=3, messages=60, hours=2))
    view = max((tmp_path / "export-00" / "view").rglob("*.parquet"))
    content = view.read_bytes()
    one, other = b"\x19\x18\x08observer", b"\x19\x18\x08checksum"
    assert content.count(one) == content.count(other) == 1
    view.write_bytes(content.replace(one, b"?" * len(one)).replace(other, one).replace(b"?" * len(one), other))
    anew(tmp_path / "export-00", view)
    [aside] = scan_bronze(spark, str(tmp_path)).rejected
    assert aside.path == f"file:{view}" and "its row groups differ from it" in aside.why


def test_special_files_are_skipped(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    (tmp_path / "endless").symlink_to("/proc/self/pagemap")
    (tmp_path / "good").write_bytes(b"x")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1" + bytes(60) + b"\x10\0\0\0PAR1")
    for name in (b"\xfe", b"\xff"):
        os.close(os.open(os.fsencode(tmp_path) + b"/" + name, os.O_CREAT))
    deep = tmp_path
    for _ in range(1_100):
        deep = deep / "d"
        deep.mkdir()
    seen, unseen = look(tmp_path)
    for _ in range(1_100):  # whoever tidies up after the tests calls itself for each
        deep.rmdir()
        deep = deep.parent
    assert {path.rpartition("/")[2]: one.size for path, one in seen.items() if "/d/" not in path} == {
        "endless": 0,
        "good": 1,
        "rows.parquet": 72,
    }
    assert seen[f"file:{tmp_path}/rows.parquet"].observers is None
    assert {path.rpartition("/")[2]: why for path, why in unseen.items()} == {
        "pipe": "is not a regular file",
        "dead": "cannot be read: no such file or directory",
        "\\xfe": "has an undecodable name",
        "\\xff": "has an undecodable name",
    }


def test_links_do_not_hide_their_targets(tmp_path):
    for name in ("alice", "bob"):
        (tmp_path / name / "recv").mkdir(parents=True)
        (tmp_path / name / "recv" / "rows").write_bytes(b"x")
    for name in ("aa", "alice/recv/up", "zz"):
        (tmp_path / name).symlink_to(tmp_path / "bob" if "up" not in name else tmp_path)
    assert sorted(look(tmp_path)[0]) == [f"file:{tmp_path}/{name}/recv/rows" for name in ("alice", "bob")]
    assert [*walk_files(tmp_path / "alice" / "recv" / "rows")] == [tmp_path / "alice" / "recv" / "rows"]
    assert cli.is_small(str(tmp_path / "nowhere"))


def test_failed_scan_falls_back_to_spark(spark, tmp_path, monkeypatch):
    write(tmp_path, Plan(members=3, messages=60, hours=2))
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    found = scan_bronze(spark, str(tmp_path))
    assert len(found.exports) == 3 and found.observers == {} and found.rejected == []


def test_scanned_files_are_not_scanned_again(spark, tmp_path, monkeypatch):
    write(tmp_path / "exports", Plan(members=3, messages=60, hours=2))
    (tmp_path / "others").mkdir()
    place = f"{tmp_path}/others/../exports"
    again = []
    with file_scan.background_scan(tmp_path / "others" / ".." / "exports") as ahead:
        monkeypatch.setattr(
            scan, "background_scan", lambda folder: again.append(folder) or file_scan.background_scan(folder)
        )
        assert len(scan_bronze(spark, place, ahead).exports) == 3 and again == []
        assert scan_bronze(spark, str(tmp_path / "others"), ahead).exports == [] and again == [tmp_path / "others"]
        with pytest.raises(InputUnreadable, match="a:b"):
            scan_bronze(spark, "a:b", ahead)


def test_unknown_file_is_listed_once():
    named = file_scan.FileScan("file:/x/manifest.json", 9, "", manifest(file_sha256="ab" * 32))
    large, other = f"file:/x/queue/{DAY}", "file:/x/film"
    found = Bronze("/x")
    read._read_manifests({named.path: named}, {large: "is too large", other: "is hidden"}, found)
    assert sorted((one.path, one.why) for one in found.rejected) == [(other, "is hidden"), (large, "is too large")]


def test_overflowing_sums_are_null(spark):
    names = (
        "edge int, author int, place int, bit long, corrected boolean, seq long, n int, keys int, path int, kind int"
    )
    names += ", dup boolean, late boolean, hold_us long, display_us long, t_send_us long, took_us long"
    row = (1, 1, 0, 1, True, 5, 3, 0, 0, 0, False, False, 2**62, 0, START_US, 2**62)
    delivered = spark.createDataFrame([row] * 3, names)
    [told] = messages.receipts_by_message(delivered, silver.Masks(1), 1).collect()
    assert (told["came"], told["sum_us"], told["hold_us"], told["hold_max_us"]) == (3, None, None, 2**62)
    edges = spark.createDataFrame([(1, 7, 8, 9)], "edge int, group long, sender long, observer long")
    [told] = pairs.histogram(delivered, edges).collect()
    assert (told["rows"], told["hold_us"]) == (3, None)


def test_jumping_counter_is_no_loss(spark, monkeypatch):
    """The smallest gaps count first; beyond the limits, gaps are counted as jumps."""
    monkeypatch.setattr(messages, "GAPS_MAX", 10)
    monkeypatch.setattr(messages, "GAPS_EVER_MAX", 13)
    seqs = [(1, seq) for seq in (1, 3, 4, 8, 15, 15 + messages.GAP_MAX + 1)] + [(2, 1), (2, 4), (2, 20)]
    rows = [(author, seq, START_US + seq, 3, 0, 0, 5, 5, 5) for author, seq in seqs]
    told = "author int, seq long, said_us long, said_n int, said_keys int, kind int"
    heard = spark.createDataFrame(rows, f"{told}, first_us long, max_us long, max_then_us long")
    authors = spark.createDataFrame([(1, False, 9), (2, False, 9)], "author int, told boolean, group long")
    always = spark.createDataFrame([], "group long, place int, bit long, hole_from_us long, hole_to_us long")
    watch = quality.RowCounter()
    gaps = messages.inferred_losses(heard, authors, always, silver.Masks(1), watch.jumps)
    lost = {(row["author"], row["seq"]) for row in gaps.collect()}
    watch.gather()
    assert lost == {(1, 2), (1, 5), (1, 6), (1, 7), (2, 2), (2, 3), *((1, seq) for seq in range(9, 15))}
    assert watch.counts == {"recv.jumps": 2}


def put(table, name, values):
    kind = table.schema.field(name).type
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values, kind))


def hand_in(folder, donor, name, changes, **other):
    """An export with the donor's first file of some kinds, each changed, and a manifest that tells the truth of them:
    `changes` gives, by kind, a function from its table to another one or to a file's content."""
    place = folder / name
    place.mkdir()
    told = json.loads((donor / "manifest.json").read_text()) | other
    files = []
    for kind, change in changes.items():
        file = next(file for file in told["files"] if file["kind"] == kind)
        (place / file["path"]).parent.mkdir(parents=True)
        table = pq.read_table(donor / file["path"], partitioning=None)
        made = change(table)
        content = made if isinstance(made, bytes) else parquet(made.replace_schema_metadata(table.schema.metadata))
        (place / file["path"]).write_bytes(content)
        rows = len(table) if isinstance(made, bytes) else len(made)
        digest = hashlib.sha256(content).hexdigest()
        files.append(file | {"rows": rows, "bytes": len(content), "sha256": digest})
    (place / "manifest.json").write_text(json.dumps(told | {"files": files}))
    return place


def noise(table):
    """A file whose footer is right, and whose pages nobody can read."""
    content = parquet(table, compression="zstd")
    footer = int.from_bytes(content[-8:-4], "little") + 8
    middle = len(content) - 4 - footer
    return content[:4] + bytes(37 * number % 251 for number in range(middle)) + content[-footer:]


def test_hostile_exports_are_skipped_and_listed(spark, tmp_path, capsys):
    """All at once: each would stop the run, impersonate someone, count twice, or hide a group."""
    exports, tree = tmp_path / "exports", tmp_path / "tree"
    write(exports, Plan(members=5, messages=300, hours=3, lost=0.01))
    shutil.copytree(exports, tree)
    shutil.rmtree(exports / VICTIM)  # whose pseudonym somebody else claims, so that neither is believed
    donor = tree / "export-00"
    victim = int(json.loads((tree / VICTIM / "manifest.json").read_text())["observer"])
    said = {}

    def by(number):
        return lambda table: put(table, "observer", [number] * len(table))

    hand_in(tree, donor, "pages", {"recv": lambda table: noise(by(71)(table)), "queue": by(71)}, observer="71")
    said["pages"] = "cannot be read to its end: recv/"

    def forged(table):  # in the middle of what the other one tells: not before, as from another profile of the same
        return put(by(victim)(table), "t_us", [told + 3_600 * SECOND_US for told in table["t_us"].to_pylist()])

    hand_in(tree, donor, "forger", {"view": forged}, observer="72")
    said["forger"] = said[VICTIM] = "uses a pseudonym that an export of another profile uses"

    def crowd(table):
        many = table.take([0] * 20)
        return put(by(73)(many), "roster", [[1_000 * view + one for one in range(60)] for view in range(1, 21)])

    hand_in(tree, donor, "crowd", {"view": crowd}, observer="73")
    said["crowd"] = "names 1,201 members of a group"

    def unbelievable(name, value):
        return lambda table: put(by(74)(table), name, [value] * len(table))

    hand_in(
        tree,
        donor,
        "loud",
        {"view": unbelievable("roster", list(range(65))), "ack": unbelievable("upto", -1)},
        observer="74",
    )
    hand_in(
        tree, donor, "twice", {"ack": lambda table: by(75)(table).append_column("upto", table["upto"])}, observer="75"
    )
    said["twice/ack"] = "duplicate columns"
    for name, other in (
        ("date", {"file_path": "recv/date=2026-99-99/p.parquet", "file_kind": "recv"}),
        ("version", {"schema_version": "\ud800"}),
    ):
        (tree / name).mkdir()
        (tree / name / "manifest.json").write_bytes(manifest(**other))
        said[f"{name}/manifest.json"] = "month must be in" if name == "date" else "has schema version"
    shutil.copytree(tree / "export-01", tree / "the same again")

    make_study(spark, exports, tmp_path / "reference")
    told = make_study(spark, tree, tmp_path / "study", quiet=False)
    assert "Rebuilding everything without 1 unusable export" in capsys.readouterr().err
    aside = {one["path"].removeprefix(f"file:{tree}/"): one["why"] for one in told["aside"]}
    for where, why in said.items():
        assert any(path.startswith(where) and why in reason for path, reason in aside.items()), (where, why, aside)
    used = {one["place"].rpartition("/")[2] for one in told["exports"] if one["rows"]}
    assert used == {"export-00", "export-01", "export-02", "export-04", "loud", "the same again"}
    files = json.loads((tree / "loud" / "manifest.json").read_text())["files"]
    loud = {one["kind"]: one["rows"] for one in files}
    assert {kind: told["counts"][f"{kind}.unbelievable"] for kind in loud} == loud
    for name in run.GOLD:
        assert gold_rows(tmp_path / "study", name) == gold_rows(tmp_path / "reference", name), name
    doubts = summary.caveats(open_results(str(tmp_path / "study")))
    assert any(f"{loud['view']} of" in line and "view rows are incomplete or out of range" in line for line in doubts)
    make_study(spark, tree, tmp_path / "study", quiet=False)
    assert "Nothing has changed" in capsys.readouterr().err


def test_exports_before_and_after_a_renewal(spark, tmp_path):
    """Both are used and the two profiles are reported; in another study neither would be used."""
    write(tmp_path / "plan", Plan(members=3, messages=60, hours=2))
    donor, tree = tmp_path / "plan" / "export-00", tmp_path / "tree"
    tree.mkdir()
    half = START_US + 3_600 * SECOND_US

    def rows(wanted):
        return lambda table: table.filter(pa.array([wanted(at) for at in table["t_send_us"].to_pylist()]))

    hand_in(tree, donor, "before", {"send": rows(lambda at: at < half)}, observer="1")
    hand_in(tree, donor, "after", {"send": rows(lambda at: at >= half)}, observer="2")
    found = scan_bronze(spark, str(tree))
    assert quality.reject_conflicts(spark, found) == 1
    assert len(found.exports) == 2 and found.rejected == []
    [note] = [note for note in run._notes(found, 1) if "telemetry delete" in note]
    assert note.startswith("For 1 member ")
    hand_in(tree, donor, "else", {"send": rows(lambda at: at >= half)}, observer="2", study_fingerprint="another")
    found = scan_bronze(spark, str(tree))
    assert quality.reject_conflicts(spark, found) == 0
    assert found.exports == [] and len(found.rejected) == 3


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="who started whom is read from /proc")
def test_killed_java_gives_an_error_message(tmp_path):
    write(tmp_path / "exports", Plan(members=4, messages=50, hours=1))
    out = tmp_path / "study"
    command = [sys.executable, "-m", "analytics", "run", "--in", str(tmp_path / "exports"), "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as interrupted:
        assert interrupted.stderr is not None
        for line in interrupted.stderr:
            if "bronze/file" in line:
                for child in children(interrupted.pid):
                    os.kill(child, signal.SIGKILL)
                break
        said = interrupted.stderr.read()
    assert interrupted.returncode == 1
    assert "Java ended unexpectedly (Killed)" in said and "Traceback" not in said
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0 and "Continuing the interrupted run" in again.stderr


@pytest.mark.parametrize(
    ("verb", "under_way"), [("run", "bronze/file"), ("notebook", "Starting the notebook"), ("notebook", "bronze/file")]
)
def test_ctrl_c_gives_an_error_message(tmp_path, verb, under_way):
    write(tmp_path / "exports", Plan(members=4, messages=50, hours=1))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "analytics", verb, "--in", str(tmp_path / "exports"), "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as interrupted:
        assert interrupted.stderr is not None
        for line in interrupted.stderr:
            if under_way in line:
                interrupted.send_signal(signal.SIGINT)
                break
        said = interrupted.stderr.read()
    assert interrupted.returncode == cli.INTERRUPTED
    assert "Interrupted. Run the same command again to continue." in said
    assert "Traceback" not in said and "ERROR" not in said


def test_missing_results_hint(tmp_path, capsys):
    assert cli.main(["summary", "--in", str(tmp_path / "nowhere")]) == cli.REFUSED
    assert "the folder does not exist" in capsys.readouterr().err
    assert cli.main(["summary", "--in", str(tmp_path)]) == cli.REFUSED
    assert "no run has finished there" in capsys.readouterr().err
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "run.json").write_text("{}")
    assert cli.main(["summary", "--in", str(tmp_path)]) == cli.REFUSED
    assert "they are in its subfolder study/" in capsys.readouterr().err
    assert cli.main(["summary", "--in", str(tmp_path / "study" / "run.json")]) == cli.REFUSED
    assert "not a directory" in capsys.readouterr().err
    file, new = str(tmp_path / "study" / "run.json"), str(tmp_path / "new")
    assert cli.main(["run", "--in", file, "--out", new]) == cli.REFUSED
    assert "it is a file, not a folder" in capsys.readouterr().err
