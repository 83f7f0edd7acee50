"""Telemetry exports: atomic, in the declared schema, without names or content."""

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, meet, until
from tests.support.telemetry_records import kept, record
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.telemetry import collection, handlers, recorder
from zerochat.agent.telemetry import export as export_module
from zerochat.agent.telemetry.export import (
    ExportExists,
    ExportSummary,
    NoParquet,
    NothingRecorded,
    Selection,
    Subject,
    dry_run,
    export,
)
from zerochat.agent.telemetry.pseudonyms import BadStudyPassphrase, Pseudonyms, new_passphrase
from zerochat.agent.telemetry.schema import KINDS, SCHEMA_VERSION, Ack, Join, Queue, Record, Span, View, columns
from zerochat.cli import main
from zerochat.cli.verbs.telemetry import meaning
from zerochat.crypto.safety_words import dictionary
from zerochat.rpc import AnnouncedCommand

people = agents.people
NOON = 1_795_348_800_000_000
"""2026-11-22T12:00 UTC, in microseconds."""
DAY = 86_400_000_000
NAMES = {
    1: Subject("", "me"),
    2: Subject("g", "did:a"),
    3: Subject("g", ""),
    4: Subject("g", "did:b"),
    5: Subject("h", ""),
}
README = Path(export_module.__file__).with_name("README.md")
PINNED = Path(__file__).parents[1] / "goldens" / f"telemetry-schema-{SCHEMA_VERSION}.txt"
"""The columns of this schema version; `GOLDENS=new` in the environment writes the file of a new version."""


@pytest.fixture(autouse=True)
def _may_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DO_NOT_TRACK", "ZEROCHAT_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def parquet() -> Any:
    pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `analytics`")
    import pyarrow.parquet

    return pyarrow.parquet


def exported(person: Person, out: Path, pseudonyms: Pseudonyms, wanted: Selection = Selection()) -> ExportSummary:  # noqa: B008
    call = person.client.call
    return export(
        out, collection.batches(call, collection.last_batch(call)), collection.names(call), pseudonyms, wanted
    )


def rows_of(parquet: Any, out: Path, kind: str) -> list[dict[str, Any]]:
    return [
        row for path in sorted(out.glob(f"{kind}/*/*.parquet")) for row in parquet.ParquetFile(path).read().to_pylist()
    ]


def acks(*times: int, group: int = 3) -> list[Record]:
    return [Ack(2, group, 4, number, at, "direct") for number, at in enumerate(times, 1)]


def dry(rows: list[Record], pseudonyms: Pseudonyms, wanted: Selection = Selection()) -> list[tuple[str, str, Any]]:  # noqa: B008
    """The rows of an export: kind, day and row."""
    told: list[tuple[str, str, Any]] = []

    def say(file: str, row: Any) -> None:
        kind, day, part = file.split("/")
        assert part == "part-00000.parquet"
        told.append((kind, day.removeprefix("date="), row))

    dry_run(say, [rows], NAMES, pseudonyms, wanted)
    return told


# --- the form ---------------------------------------------------------------------------------------------------------


def schema_text() -> str:
    """Every record kind with its tag, and its columns in order: name, type, `?` if optional, and vocabulary."""
    lines = []
    for kind, shape in KINDS.items():
        lines.append(f"{kind} {shape.__struct_config__.tag}")
        for column in columns(shape):
            words = f" {'|'.join(column.words)}" if column.words else ""
            lines.append(f"    {column.name} {column.type}{'?' if column.optional else ''}{words}")
    return "\n".join(lines) + "\n"


def test_the_schema_is_the_one_of_its_version():
    """Exports and the analysis derive their columns from one table, so both ends change with it: only this notices."""
    if os.environ.get("GOLDENS") == "new" and not PINNED.exists():
        PINNED.write_text(schema_text(), encoding="utf-8")
    assert PINNED.exists(), f"pin schema version {SCHEMA_VERSION}: run this test with GOLDENS=new, and commit {PINNED}"
    assert schema_text() == PINNED.read_text(encoding="utf-8"), (
        f"the telemetry schema is not that of version {SCHEMA_VERSION}: raise SCHEMA_VERSION in "
        "zerochat/agent/telemetry/schema.py, run this test with GOLDENS=new, and delete the file of the old version"
    )


def test_export_matches_its_manifest(people, tmp_path, parquet):
    alice, bob = people("alice", "bob")
    record(alice, bob)
    meet(alice, bob)
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "hello").id).complete
    out = tmp_path / "out"
    told = exported(alice, out, Pseudonyms.single())
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest == told.manifest
    assert (manifest["format"], manifest["schema_version"], manifest["study"]) == ("zerochat-telemetry", 1, "single")
    assert re.fullmatch("[0-9a-f]{16}", manifest["study_fingerprint"]) and int(manifest["observer"]) != 0
    assert manifest["time_unit_us"] == 1_000_000 and re.fullmatch(r"\d{4}-\d\d-\d\d", manifest["exported_at"])
    listed = {one["path"]: one for one in manifest["files"]}
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert there == {*listed, "manifest.json"}
    for path, one in listed.items():
        content = (out / path).read_bytes()
        assert (one["bytes"], one["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
        file = parquet.ParquetFile(out / path)
        assert file.metadata.metadata[b"zerochat_schema_version"] == b"1"
        assert file.metadata.num_rows == one["rows"]
        assert {file.metadata.row_group(0).column(0).compression} == {"ZSTD"}
        want = [(column.name, column.type, column.optional) for column in columns(KINDS[one["kind"]])]
        types = [(field.name, str(field.type).replace("element: ", ""), field.nullable) for field in file.schema_arrow]
        assert [(name, type_.replace("item: ", ""), null) for name, type_, null in types] == want
        for row in file.read().to_pylist():
            times = {name: value for name, value in row.items() if name.startswith("t_")}
            assert times and all(value % 1_000_000 == 0 for value in times.values()), "alone, times are rounded"
    assert {"send", "ack", "view", "join", "state", "link"} <= set(manifest["rows"])
    assert sum(manifest["rows"].values()) == sum(one["rows"] for one in listed.values()) == len(kept(alice))


def test_filtered_export_keeps_initial_views():
    key = Pseudonyms.single()
    rows: list[Record] = [
        View(2, 3, [2], 7, NOON - 3 * DAY),
        View(2, 3, [2, 4], 8, NOON - 2 * DAY),
        View(2, 5, [2], 9, NOON - DAY),
    ]
    rows += acks(NOON - 2 * DAY, NOON, NOON + DAY) + acks(NOON, group=5)
    rows.append(Queue(1, "reorder_buffer", 3, 0, NOON))
    everything = dry(rows, key)
    assert len(everything) == 8 and {day for _, day, _ in everything} == {f"2026-11-{n}" for n in (19, 20, 21, 22, 23)}
    late = dry(rows, key, Selection(since_us=NOON - DAY // 2))
    views = [row for kind, _, row in late if kind == "view"]
    assert [(len(row["roster"]), row["t_us"]) for row in views] == [(2, NOON - DAY // 2), (1, NOON - DAY // 2)]
    assert sum(kind == "ack" for kind, _, _ in late) == 3
    one = dry(rows, key, Selection(groups=frozenset({"h"})))
    assert {(kind, row["group"]) for kind, _, row in one} == {("view", key.group("h")), ("ack", key.group("h"))}
    with pytest.raises(NothingRecorded):
        dry(rows, key, Selection(since_us=NOON + 9 * DAY, groups=frozenset({"elsewhere"})))
    with pytest.raises(NothingRecorded, match="no telemetry records for this time and these groups"):
        dry(rows, key, Selection(since_us=NOON + 9 * DAY))
    spans: list[Record] = [Span(1, NOON - DAY, NOON), *acks(NOON)]
    cut = dry(spans, key, Selection(since_us=NOON - 5, groups=frozenset({"g"})))
    assert [(row["t_from_us"], row["t_us"]) for kind, _, row in cut if kind == "span"] == [(NOON - 1_000_000, NOON)]


def test_dry_run_names_the_same_files(tmp_path, parquet, monkeypatch):
    monkeypatch.setattr(export_module, "FILE_ROWS", 7)
    monkeypatch.setattr(export_module, "MEMORY_ROWS", 12)
    key, out = Pseudonyms.single(), tmp_path / "out"
    rows = acks(*(NOON + DAY * (number % 3) for number in range(40)))
    told = export(out, [rows], NAMES, key, Selection())
    said: dict[str, list[Any]] = {}
    dry_told = dry_run(lambda file, row: said.setdefault(file, []).append(row), [rows], NAMES, key, Selection())
    listed = {one["path"]: one["rows"] for one in told.manifest["files"]}
    assert listed == {one["path"]: one["rows"] for one in dry_told.manifest["files"]} and len(listed) > 5
    assert max(listed.values()) <= 7 and sum(listed.values()) == 40
    for file, those in said.items():
        assert parquet.ParquetFile(out / file).read().to_pylist() == those


def test_export_aborts_when_records_are_deleted(people, tmp_path, parquet, monkeypatch):
    monkeypatch.setattr(handlers, "PAGE_BATCHES", 1)
    monkeypatch.setattr(recorder, "FLUSH_US", 0)
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)
    for number in range(5):
        assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", f"{number}").id).complete
    call = alice.client.call
    end, names = collection.last_batch(call), collection.names(call)

    def meanwhile() -> Any:
        pages = collection.batches(call, end)
        yield next(pages)
        call("delete_telemetry")
        assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "goes on").id).complete
        yield from pages

    with pytest.raises(collection.DeletedMeanwhile):
        export(tmp_path / "out", meanwhile(), names, Pseudonyms.single(), Selection())
    assert list(tmp_path.glob("out")) == [] and list(tmp_path.glob(".out*")) == []


def test_forgotten_groups_are_not_exported():
    told: list[object] = []
    gone: list[Record] = [View(9, 8, [9], 1, NOON), Ack(9, 8, 7, 1, NOON, "direct")]
    done = dry_run(lambda file, row: told.append(row), [[*gone, *acks(NOON)]], NAMES, Pseudonyms.single(), Selection())
    assert (done.skipped, len(told)) == (2, 1)


# --- pseudonyms -------------------------------------------------------------------------------------------------------


def test_shared_pseudonyms_match_and_single_ones_do_not(people, tmp_path, parquet):
    alice, bob = people("alice", "bob")
    record(alice, bob)
    meet(alice, bob)
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "hello").id).complete
    assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "hello yourself").id).complete
    phrase = new_passphrase()
    for person in (alice, bob):
        told = exported(person, tmp_path / "out" / person.name, Pseudonyms.from_passphrase(phrase))
        assert told.manifest["study"] == "shared" and told.manifest["time_unit_us"] == 1
        assert "T" in told.manifest["exported_at"]
    sent = {(row["group"], row["observer"], row["seq"]) for row in rows_of(parquet, tmp_path / "out" / "alice", "send")}
    came = {(row["group"], row["sender"], row["seq"]) for row in rows_of(parquet, tmp_path / "out" / "bob", "recv")}
    assert sent & came and {row[:2] for row in sent} == {row[:2] for row in came}
    views = [rows_of(parquet, tmp_path / "out" / name, "view")[-1] for name in ("alice", "bob")]
    assert views[0]["roster"] == views[1]["roster"] and views[0]["checksum"] == views[1]["checksum"]
    assert views[0]["observer"] != views[1]["observer"] and {one["observer"] for one in views} == {*views[0]["roster"]}
    numbers = []
    for number in range(2):
        told = exported(alice, tmp_path / f"alone {number}", Pseudonyms.single())
        views_alone = rows_of(parquet, tmp_path / f"alone {number}", "view")[-1]
        numbers.append(
            {*views_alone["roster"], views_alone["group"], views_alone["checksum"], int(told.manifest["observer"])}
            | {row["attempt"] for row in rows_of(parquet, tmp_path / f"alone {number}", "join")}
        )
        assert rows_of(parquet, tmp_path / f"alone {number}", "join")
    assert not numbers[0] & numbers[1] and not numbers[0] & {*views[0]["roster"], views[0]["group"]}


def test_passphrase_errors_do_not_name_the_word():
    phrase = " ".join(dictionary()[7::256])
    same = [phrase.upper(), phrase.replace(" ", "-"), " ".join(word[:4] for word in phrase.split()) + "\n"]
    assert {Pseudonyms.from_passphrase(one).key for one in same} == {Pseudonyms.from_passphrase(phrase).key}
    assert Pseudonyms.from_passphrase(new_passphrase()).fingerprint != Pseudonyms.from_passphrase(phrase).fingerprint
    for wrong in ("", "hikers", phrase.rpartition(" ")[0], f"{phrase} once", "qqqqqq " * 8, "\0" * 100):
        with pytest.raises(BadStudyPassphrase) as caught:
            Pseudonyms.from_passphrase(wrong)
        assert not any(word in str(caught.value) for word in wrong.split() if len(word) > 4)


def test_a_pseudonym_needs_the_key():
    one, other = Pseudonyms.single(), Pseudonyms.single()
    assert one.member("g", "did:a") == one.member("g", "did:a") != one.member("h", "did:a")
    assert one.group("g") != one.member("g", "g") and one.group("g") != other.group("g")
    assert all(-(1 << 63) <= one.member("g", str(number)) < 1 << 63 for number in range(100))
    assert "key" not in repr(one) and one.key.hex() not in repr(one)


# --- whole or not there -----------------------------------------------------------------------------------------------


def test_an_export_that_is_interrupted_leaves_nothing(tmp_path, parquet):
    def rows(end: type[BaseException]) -> Iterator[list[Record]]:
        for number in range(30):
            yield acks(*range(NOON, NOON + 1_000))
            if number == 25:
                raise end

    for end in (KeyboardInterrupt, RuntimeError, OSError):
        with pytest.raises(BaseException):  # noqa: B017, PT011  # each its own
            export(tmp_path / "out", rows(end), NAMES, Pseudonyms.single(), Selection())
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(NothingRecorded, match="no telemetry records yet"):
        export(tmp_path / "out", [], NAMES, Pseudonyms.single(), Selection())
    assert list(tmp_path.iterdir()) == []


def test_staging_folders_of_killed_exports_are_deleted(tmp_path, parquet):
    left = tmp_path / ".out.abc.zerochat-unfinished"
    left.mkdir()
    (left / "half.parquet").write_bytes(b"PAR1")
    others: list[Path] = []

    def rows() -> Iterator[list[Record]]:
        yield acks(NOON)
        others.extend(tmp_path.iterdir())
        export(tmp_path / "out", [acks(NOON)], NAMES, Pseudonyms.single(), Selection())

    with pytest.raises(ExportExists):
        export(tmp_path / "out", rows(), NAMES, Pseudonyms.single(), Selection())
    assert len(others) == 1 and left not in others, "ours, and not what was left"
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "whoever is first has the name"
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with pytest.raises(ExportExists):
        export(tmp_path / "out", [acks(NOON)], NAMES, Pseudonyms.single(), Selection())
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}


def test_missing_pyarrow_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(NoParquet, match="pip install pyarrow"):
        export(tmp_path / "made" / "for" / "out", [acks(NOON)], NAMES, Pseudonyms.single(), Selection())
    assert list(tmp_path.iterdir()) == []
    assert len(dry(acks(NOON), Pseudonyms.single())) == 1


# --- no free text -----------------------------------------------------------------------------------------------------


def forms(secret: bytes) -> Iterator[bytes]:
    """Encodings of a word in a file, in any case, including prefixes of unkeyed hashes."""
    for word in {secret, secret.lower(), secret.upper()}:
        yield from _forms(word)


def _forms(word: bytes) -> Iterator[bytes]:
    yield from (word, word.hex().encode(), word.hex().upper().encode(), word[::-1])
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(bytes(shift) + word).rstrip(b"=")
            yield text[-(-shift * 8 // 6) : len(text) - (1 if (shift + len(word)) % 3 else 0)]
    digests = [hashlib.new(name, word).digest() for name in ("sha1", "sha256", "sha512", "sha3_256", "md5")]
    digests += [hashlib.new(name, word).digest() for name in ("blake2b", "blake2s")]
    digests += [hashlib.blake2b(word, digest_size=size).digest() for size in (8, 16, 32)]
    for digest in digests:
        for size in (8, 16, len(digest)):
            short = digest[:size]
            yield from (short, short[:8][::-1], short.hex().encode(), base64.b64encode(short).rstrip(b"=")[:-1])
        number = int.from_bytes(digest[:8], "big", signed=True)
        yield from (str(number).encode(), str(int.from_bytes(digest[:8], "little", signed=True)).encode())


def test_no_free_text_is_in_an_export(people, tmp_path, parquet):
    """Every text that a user can enter, and every name that the program assigns."""
    words = {
        name: f"canary{name}{secrets.token_hex(6)}" for name in ("nick", "other", "group", "text", "topic", "file")
    }
    words |= {
        name: f"canary-{name}-{secrets.token_hex(3)}"
        for name in ("command", "usage", "help", "edited", "key", "label", "guest", "draft", "refused")
    }
    alice, bob = people(words["nick"], words["other"])
    record(alice, bob)
    group = words["group"]
    meet(alice, bob, group=group)
    sent = alice.client.send_message(group, f"{words['text']} @{words['other']}")
    file = tmp_path / f"{words['file']}.txt"
    file.write_text(words["text"])
    alice.client.call("send_files", group=group, paths=[str(file)], text=words["text"])
    alice.client.edit_message(group, sent.id, words["edited"])
    alice.client.set_topic(group, words["topic"])
    alice.client.call("send_message", group=group, text="again", key=words["key"])
    alice.client.announce_bot(group, [AnnouncedCommand(words["command"], words["usage"], words["help"], "")])
    bob.client.react(group, sent.id, "👍")
    alice.client.set_display_name(group, words["label"])
    bob.client.call("save_draft", group=group, text=words["draft"])
    link = alice.client.create_invitation(group)
    (carol,) = people("carol")
    record(carol)
    carol.client.subscribe()
    carol.client.join_group(link.url, name=words["label"])  # taken, so it fails
    until(lambda: any(type(row) is Join for row in kept(carol)), "the failure")
    carol.client.join_group(link.url, name=words["guest"])
    until(lambda: [each.state for each in carol.client.list_groups()] == ["active"], "joining")
    with contextlib.suppress(AgentError):
        carol.client.send_message(words["refused"], words["refused"])
    until(lambda: all(m.connection in ("self", "connected") for m in bob.client.list_members(group)), "meeting her")
    last = bob.client.send_message(group, words["text"])
    assert bob.client.wait_for_delivery(group, last.id).complete
    until(lambda: len(alice.ids(group)) == len(bob.ids(group)), "everything everywhere")

    needles = {name: word.encode() for name, word in words.items()}
    needles |= {f"id {number}": event.encode() for number, event in enumerate(alice.ids(group))}
    needles |= {"link": link.url[-40:].encode(), "group id": alice.client.list_groups()[0].id.encode()}
    for person in (alice, bob, carol):
        needles |= {f"did {one.nick}": one.did.encode() for one in person.client.list_members(group)}
        needles |= {f"home {person.name}": str(person.places.data).encode()}
        needles |= {f"pair {person.name}": person.client.get_status().pair.encode()}
        needles |= {f"queue {person.name}": person.client.get_status().queue.encode()}
    phrase = new_passphrase()
    for number, pseudonyms in enumerate((Pseudonyms.single(), Pseudonyms.from_passphrase(phrase))):
        for which, person in enumerate((alice, bob, carol)):
            exported(person, tmp_path / "exports" / f"{number}-{which}", pseudonyms)
    printed = io.StringIO()
    printed.write(repr([kept(person) for person in (alice, bob, carol)]))
    found = {path: path.read_bytes() for path in (tmp_path / "exports").rglob("*") if path.is_file()}
    assert len(found) > 20
    for path in list(found):
        if path.suffix == ".parquet":  # compression would hide it
            table = parquet.ParquetFile(path).read()
            found[path.with_suffix(".plain")] = repr(table.to_pylist()).encode() + b"".join(
                bytes(buffer)
                for column in table.columns
                for chunk in column.chunks
                for buffer in chunk.buffers()
                if buffer
            )
    found[Path("as it is kept")] = printed.getvalue().encode()
    # A word of it alone may be the name of a column.
    secret = [pseudonyms.key, *(" ".join(pair).encode() for pair in pairwise(phrase.split()))]
    needles |= {f"study {number}": word for number, word in enumerate(secret)}
    leaks = [
        f"{name} in {path.name}"
        for name, needle in needles.items()
        for form in set(forms(needle))
        if len(form) > 5
        for path, content in found.items()
        if form in content
    ]
    assert leaks == []


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def run(
    people, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "hello").id).complete
    monkeypatch.setenv("ZEROCHAT_HOME", str(alice.places.data.parent.parent))
    monkeypatch.setenv("ZEROCHAT_PROFILE", "alice")
    capsys.readouterr()

    def command(*words: str, typed: str | None = None) -> tuple[int, str, str]:
        typing = io.StringIO(typed or "")
        typing.isatty = lambda: typed is not None  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", typing)
        code = main(["telemetry", *words])
        return (code, *capsys.readouterr())

    return command


def test_from_consent_to_export_and_deletion(run, tmp_path, parquet):
    code, out, _ = run("status")
    assert code == 0 and "off" in out
    code, _, err = run("on")
    assert code == 2 and "--yes" in err, "nobody there who could say yes"
    code, _, err = run("on", typed="n\n")
    assert code == 1 and "Nothing is ever sent" in err and "Telemetry stays off." in err
    assert "off" in run("status")[1]
    code, out, err = run("on", typed="y\n")
    assert code == 0 and "on" in out and "30 days" in err
    code, out, err = run("show", "-n", "3")
    assert code == 0 and "roster=[" in out and "checksum=" in out
    assert re.search(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z  view      observer=\d+ group=\d+ ", out, re.MULTILINE)
    assert "view: Membership of a group: at the start of recording, at every change, twice a day." in err
    for kind in KINDS.values():
        assert 20 < len(meaning(kind)) < 120 and meaning(kind).endswith("."), "a whole sentence"
    code, out, err = run("export", "--dry-run")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and rows[-1]["file"] == "manifest.json" and "dry run" in err
    assert [row["file"].partition("/")[0] for row in rows[:-1]] == ["view", "span"] and not list(tmp_path.glob("week*"))
    assert run("export")[0] == 2
    code, out, err = run("export", "--output", str(tmp_path / "week"), "--group", "friends")
    assert code == 0 and out.strip() == str(tmp_path / "week") and "without names" in err
    written = rows_of(parquet, tmp_path / "week", "view")
    assert len(written) == 1 and len(written[0]["roster"]) == 2
    assert set(rows[0]) - {"file"} == set(written[0]), "what the dry run has shown"
    assert run("export", "--output", str(tmp_path / "week"))[0] == 2
    (tmp_path / "file").touch()
    code, _, err = run("export", "--output", str(tmp_path / "file" / "week"))
    assert code == 1 and "Cannot write an export to" in err and "start zerochat again" not in err
    code, _, err = run("export", "--dry-run", "--since", "lastweek")
    assert code == 2 and "--since: 'lastweek' is not a date" in err
    assert run("show", "-n", "100000")[0] == 2
    assert run("off")[0] == 0
    assert "Telemetry stays off" in run("on", typed="n\n")[2]
    assert run("on", "--yes")[0] == 0
    assert run("delete")[0] == 2 and run("delete", typed="n\n")[0] == 1
    code, _, err = run("delete", "--yes")
    assert code == 0 and "rows deleted" in err and "Recording is still on" in err
    assert run("off")[0] == 0 and "0" in run("delete", "--yes")[1]
    assert run("export", "--dry-run")[0] == 1


def test_study_passphrase_comes_from_a_file(run, tmp_path, monkeypatch):
    code, phrase, _ = run("passphrase")
    assert code == 0 and len(phrase.split()) == 8
    run("on", "--yes")
    monkeypatch.setenv("ZEROCHAT_STUDY_FILE", str(tmp_path / "study"))
    assert run("export", "--dry-run", "--study")[0] == 2
    (tmp_path / "study").write_text(phrase)
    manifests = [json.loads(run("export", "--dry-run", "--study")[1].splitlines()[-1]) for _ in range(2)]
    assert manifests[0]["study"] == "shared"
    assert manifests[0]["study_fingerprint"] == manifests[1]["study_fingerprint"]
    assert manifests[0]["observer"] == manifests[1]["observer"]
    monkeypatch.delenv("ZEROCHAT_STUDY_FILE")
    code, _, err = run("export", "--dry-run", "--study")
    assert code != 0 and "ZEROCHAT_STUDY_FILE" in err
    with contextlib.suppress(OSError):
        assert "study" not in Path(f"/proc/{os.getpid()}/cmdline").read_text()


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [("DO_NOT_TRACK", "1", "DO_NOT_TRACK"), ("ZEROCHAT_TELEMETRY__ALLOWED", "false", "telemetry.allowed")],
)
def test_local_veto_refuses_with_its_name(run, monkeypatch, name, value, word):
    run("on", "--yes")
    monkeypatch.setenv(name, value)
    for words in (("on", "--yes"), ("export", "--dry-run")):
        code, out, err = run(*words)
        assert (code, out) == (3, "") and word in err
    code, out, err = run("status")
    assert code == 0 and word in err and "started without it" in err
