"""Log audits: a sound log passes, every kind of tampering is found, and log files round-trip."""

import base64
import io
import json
import random
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import audited_logs, cli_harness
from tests.support.audited_logs import checked, found, kept, pages
from tests.support.dcgka_world import Healing
from tests.support.marks import others_slow
from tests.support.parted_world import Parted
from tests.support.ruled_world import Ruled
from tests.support.small_world import Small
from zerochat.agent.archive import log_file as archive
from zerochat.agent.archive.audit import AuditReport
from zerochat.agent.views import event_pages
from zerochat.cli.output import Output
from zerochat.cli.verbs import audit as audit_verb
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.errors import LocalError
from zerochat.group.event_log.event import LABEL, POST, Event, load_event
from zerochat.group.inputs import AcceptInvitation, ChangeLabel, ChangeRole, LeaveGroup, SendPost
from zerochat.group.state import Difference
from zerochat.rpc import ChainExtent, EventPage, EventPageParams, GroupInfo, LogRow, LogSummary
from zerochat.sim import play_history

log, played = audited_logs.log, audited_logs.played

run, agent, home = cli_harness.run, cli_harness.agent, cli_harness.home


class Growing(Ruled):
    """A group of three, and one more who is not in it yet."""

    def __init__(self) -> None:
        Small.__init__(self, 4)
        self.notices: dict[str, list[Any]] = {name: [] for name in self.nodes}
        self.id = self.found()
        for name in ("n1", "n2"):
            self.bring(name)

    def bring(self, name: str) -> None:
        self.run_command(name, AcceptInvitation(self.invite(self.id), name))
        self.run(for_ms=3_000)


def place(rows: list[LogRow], text: str) -> int:
    return next(n for n, row in enumerate(rows) if text.encode() in row.record)


# --- a sound one ------------------------------------------------------------------------------------------------------


def test_every_members_log_is_sound(tmp_path: Path, played: Ruled) -> None:
    for name in played.nodes:
        with kept(tmp_path, played, name) as journal:
            group = played.group(name)
            about = event_pages.log_summary(journal, group)
            rows = list(pages(journal, group, about))
            verdict = checked(about, rows)
            assert verdict.sound, (name, verdict.violations)
            assert verdict.view == group.view.checksum == about.view
            assert verdict.events == len(rows) == journal.count(group.id) > 15
            assert verdict.posts + verdict.membership == verdict.events
            assert verdict.membership == verdict.signed == len(group.control)


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single"])
def test_a_post_is_deniable_until_its_author_signs_something(keys: str) -> None:
    """Posts have no signature in pairwise groups, and nothing that is signed names them at first. But all that a member
    says hangs on one chain, by hashes: the next thing that it signs names the last post, and so every one before it."""
    world = Ruled(3, keys=keys)
    for text in ("one", "two"):
        world.says("n0", SendPost("friends", text))
    author = world.group("n0").me

    def heard() -> list[Event]:
        return [load_event(row.record) for row in world.nodes["n1"].log]

    posts = [event for event in heard() if event.type == POST]
    assert [event.body["text"] for event in posts] == ["one", "two"] and {event.author for event in posts} == {author}
    assert not [event for event in posts if event.sig]
    ids = {event.id for event in posts}
    signed = [event for event in heard() if event.sig]
    assert signed and not [event for event in signed if ids & {event.pre, *event.deps, *event.conc}]
    world.says("n0", ChangeLabel("friends", "somebody else"))
    (named,) = [event for event in heard() if event.type == LABEL]
    named.check_signature()
    assert named.author == author and named.pre == posts[1].id and posts[1].pre == posts[0].id


def test_posts_that_share_a_signature_are_verified_one_by_one(tmp_path: Path) -> None:
    world = Healing()
    world.burst("n0", *(f"post {number}" for number in range(9)))
    with kept(tmp_path, world, "n1") as journal:
        about = event_pages.log_summary(journal, world.group("n1"))
        rows = list(pages(journal, world.group("n1"), about))
    verdict = checked(about, rows)
    assert verdict.sound and verdict.posts == 9 and verdict.signed == verdict.events
    at, following = place(rows, "post 4"), load_event(rows[place(rows, "post 5")].record)
    spoilt = replace(load_event(rows[at].record), sig=following.sig)
    broken = [*rows[:at], replace(rows[at], record=spoilt.record), *rows[at + 1 :]]
    assert found((about, rows), broken) == ["its signature is invalid"]


@pytest.mark.parametrize("seed", others_slow([1, 5, 7, 11, 12, 28], 2))
def test_logs_of_faulty_histories_are_sound(tmp_path: Path, seed: int) -> None:
    """Whole histories over a bad network, behind mediators, with newcomers, leavers and processes that end: audited."""
    world = play_history(seed)
    for name, node in world.nodes.items():
        for group in node.agent.groups.values():
            with kept(tmp_path, world, name) as journal:
                about = event_pages.log_summary(journal, group)
                verdict = checked(about, pages(journal, group, about))
                assert verdict.sound, (name, verdict.violations, about.chains)


def test_relayed_events_are_counted(tmp_path: Path) -> None:
    world = Parted()
    world.part("n1", "n2")
    for text in ("one", "two"):
        world.run_command("n2", SendPost("friends", text))
    world.run(until=lambda: "two" in world.texts("n1"), for_ms=120_000)
    with kept(tmp_path, world, "n1") as journal:
        group = world.group("n1")
        about = event_pages.log_summary(journal, group)
        verdict = checked(about, pages(journal, group, about))
        assert verdict.sound, verdict.violations
        assert verdict.unconfirmed == 2
        height = next(one for one in about.chains if one.nick == "n2")
        assert height.confirmed == height.seq - 2


@pytest.mark.slow
def test_a_log_is_sound_during_backfill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The past of those who are there and of one who has left, before and after anybody has said something new."""
    monkeypatch.setattr("zerochat.group.sync.backfill.RUN_EVENTS_MAX", 10)
    world = Growing()
    for tx in range(30):
        for name in ("n0", "n1", "n2"):
            world.run_command(name, SendPost("friends", f"{name} says {tx}"))
        world.run(for_ms=300)
    world.settle()
    world.says("n2", LeaveGroup("friends"))
    world.says("n1", SendPost("friends", "one has left"))
    world.run_command("n3", AcceptInvitation(world.invite(world.id), "n3"))
    sound: list[tuple[int, int]] = []

    def look(step: str) -> None:
        with kept(tmp_path / step, world, "n3") as journal:
            group = world.group("n3")
            about = event_pages.log_summary(journal, group)
            verdict = checked(about, pages(journal, group, about))
            assert verdict.sound, (step, verdict.violations[:3], about.chains)
            sound.append((verdict.posts, verdict.unconfirmed))

    for step in range(200):
        world.run(for_ms=40)
        if world.nodes["n3"].agent.groups:
            (tmp_path / str(step)).mkdir()
            look(str(step))
        if sound and sound[-1][0] >= 91:
            break
    assert sound[-1][0] == 91, "all of the history is here"
    assert len({posts for posts, _ in sound}) > 1, "it was looked at while it came"
    for name in ("n1", "n0"):
        world.says(name, SendPost("friends", "welcome"))
    (tmp_path / "last").mkdir()
    look("last")
    assert sound[-1] == (93, 0), "everybody has confirmed what others had handed over"


def test_events_that_arrive_during_an_audit_are_ignored(tmp_path: Path, played: Ruled) -> None:
    with kept(tmp_path, played, "n1") as journal:
        group, node = played.group("n1"), played.nodes["n1"]
        about = event_pages.log_summary(journal, group)
        last = [row for row in node.log if row.type == POST][-1]
        journal.commit(node.agent, [replace(last, id="x" * 43, seq=last.seq + 1, lamport=last.lamport + 1)])
        assert checked(about, pages(journal, group, about)).sound
        again = event_pages.log_summary(journal, group)
        assert again.events == about.events + 1 and not checked(again, pages(journal, group, again)).sound


def test_pages_are_as_short_as_a_line_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, played: Ruled) -> None:
    with kept(tmp_path, played, "n1") as journal:
        group = played.group("n1")
        about = event_pages.log_summary(journal, group)
        whole = list(pages(journal, group, about))
        monkeypatch.setattr(event_pages, "ROWS_MAX", 3)
        assert list(pages(journal, group, about)) == whole
        monkeypatch.setattr(event_pages, "ROWS_BYTES_MAX", 1)
        one = event_pages.event_page(journal, group, EventPageParams(group.id, about.latest, None))
        assert len(one.rows) == 1 and one.last is not None
        assert list(pages(journal, group, about)) == whole


# --- spoilt ones ------------------------------------------------------------------------------------------------------


def test_a_changed_text_is_found(log: tuple[LogSummary, list[LogRow]]) -> None:
    rows = list(log[1])
    at = place(rows, "n2 says 1")
    rows[at] = replace(rows[at], record=rows[at].record.replace(b"n2 says 1", b"n2 says 7"))
    assert found(log, rows) == [
        "its id is not the hash of its record",
        "it does not refer to the event before it in its author's chain",
    ]
    rows[at] = replace(rows[at], id=load_event(rows[at].record).id)
    assert found(log, rows) == ["it does not refer to the event before it in its author's chain"]


def test_a_deleted_event_is_found(log: tuple[LogSummary, list[LogRow]]) -> None:
    about, rows = log
    gone = rows[place(rows, "n2 says 1")]
    without = [row for row in rows if row is not gone]
    assert found(log, without) == [f"1 event is missing before it in its author's chain, from position {gone.position}"]
    assert (
        found(log, without, events=len(rows))[-1]
        == f"the log has {len(without)} events, and the state expects {len(rows)}"
    )
    # At its end nothing follows; then the state knows.
    last = rows[place(rows, "two are left")]
    height = next(one for one in about.chains if one.author == last.author)
    assert found(log, [row for row in rows if row is not last]) == [
        f"its author's chain does not end at {last.position} with {height.head}"
    ]
    first = next(row for row in rows if row.type == "add")
    whys = found(log, [row for row in rows if row is not first])
    assert "a membership event that it depends on is missing" in whys


def test_an_inserted_event_is_found(log: tuple[LogSummary, list[LogRow]]) -> None:
    about, rows = log
    last = load_event(rows[place(rows, "two are left")].record)

    def row(event: Event, **fields: Any) -> LogRow:
        said = LogRow(
            seq=99,
            id=event.id,
            author=event.author,
            position=event.seq,
            lamport=event.lamport,
            type=event.type,
            record=event.record,
            received=1,
        )
        return replace(said, **fields)

    more = replace(last, seq=last.seq + 1, pre=last.id, lamport=last.lamport + 1)
    assert found(log, [*rows, row(more)])[0].startswith("the state knows its author's chain from 1 to ")
    assert found(log, [*rows, row(more, relayed_by=about.me)]) == [], "one that others have said may be there"
    other = replace(last, body={"text": "something else"})
    assert "its author has another event at this position (a fork)" in found(log, [*rows, row(other)])
    stranger = did_key(ed25519_public(bytes(32)))
    theirs = replace(last, author=stranger, seq=1, pre="")
    assert found(log, [*rows, row(theirs)]) == [
        "the state has no chain of its author",
        "an author was never a member",
    ]
    early = found(log, [*rows, row(replace(more, lamport=last.lamport))])
    assert {
        "its Lamport time is not greater than that of its author's previous event",
        "its position is smaller than that of the event before it",
    } & {*early}


def test_a_misfiled_event_is_found(log: tuple[LogSummary, list[LogRow]]) -> None:
    rows = list(log[1])
    at = place(rows, "n0 says 1")
    for fields in ({"position": 77}, {"type": "add"}, {"author": log[0].chains[1].author}):
        spoilt = [*rows[:at], replace(rows[at], **fields), *rows[at + 1 :]]
        assert "its row contradicts its record" in found(log, spoilt), fields
    unreadable = [*rows[:at], replace(rows[at], record=b"{"), *rows[at + 1 :]]
    assert "its record cannot be read" in found(log, unreadable)
    spaced = [*rows[:at], replace(rows[at], record=rows[at].record.replace(b'":', b'": ', 1)), *rows[at + 1 :]]
    assert found(log, spaced) == ["its record is not in canonical form"]
    turned = checked(log[0], reversed(rows))
    assert "it is not in the order of its Lamport time" in [one.what for one in turned.violations] and not turned.sound


def test_an_event_without_permission_is_found(log: tuple[LogSummary, list[LogRow]]) -> None:
    rows = list(log[1])
    at = next(n for n, row in enumerate(rows) if row.type == "remove")
    event = load_event(rows[at].record)
    spoilt = replace(event, sig=base64.urlsafe_b64encode(bytes(64)).decode().rstrip("="))
    broken = [*rows[:at], replace(rows[at], record=spoilt.record), *rows[at + 1 :]]
    verdict = checked(log[0], broken)
    (why,) = [one for one in verdict.violations if one.id == event.id]
    assert why.what.startswith("its author was not allowed to do this (Unauthentic") and verdict.view == ""


def test_the_state_must_follow_from_the_log(log: tuple[LogSummary, list[LogRow]]) -> None:
    about, rows = log
    assert found(log, rows) == []
    assert found(log, rows, view="another")[0].startswith(
        f"the membership events give the view {about.view}, and the state has"
    )
    heights = [replace(one, head="y" * 43) if one.nick == "n0" else one for one in about.chains]
    assert [what[:36] for what in found(log, rows, chains=heights)] == [
        "its author's chain does not end at 15 "[:36]
    ] or ("its author's chain does not end at" in found(log, rows, chains=heights)[0])


def test_an_equivocation_is_no_sound_log(tmp_path: Path, played: Ruled) -> None:
    group, other = played.group("n1"), played.group("n0").me
    chain = replace(group.chain(other), fork_seq=3)
    told = Difference(other, 2, played.group("n2").me, 1)
    group = replace(
        group,
        log=replace(group.log, chains={**group.log.chains, other: chain}),
        sync=replace(group.sync, differences=(told,)),
    )
    with kept(tmp_path, played, "n1") as journal:
        about = event_pages.log_summary(journal, group)
        verdict = checked(about, pages(journal, group, about))
    assert not verdict.sound
    assert [(one.author, one.position, one.what[:29]) for one in verdict.violations] == [
        (other, 3, "its author has signed another"),
        (other, 2, "a member has another event at"),
    ]


def test_a_discarded_post_of_a_reader_is_no_violation() -> None:
    world = Ruled(2)
    world.says("n1", SendPost("friends", "before"))
    world.says("n1", ChangeRole("friends", "", "reader"))
    group = world.group("n0")
    author = world.group("n1").me
    tip = group.chain(author)
    rows = sorted(
        (
            LogRow(
                seq=n,
                id=row.id,
                author=row.author,
                position=row.seq,
                lamport=row.lamport,
                type=row.type,
                record=row.record,
                received=1,
            )
            for n, row in enumerate(world.nodes["n0"].log)
        ),
        key=lambda row: (row.lamport, row.author, row.id),
    )
    heights = [
        ChainExtent(author=did, nick="", seq=chain.seq, head=chain.head_id) for did, chain in group.log.chains.items()
    ]
    about = LogSummary(
        group=group.id, name="", me=group.me, nick="", view=group.view.checksum, chains=heights, events=len(rows)
    )
    assert checked(about, rows).violations == []
    unkept = [replace(one, seq=tip.seq + 1, head="z" * 43) if one.author == author else one for one in heights]
    assert checked(replace(about, chains=unkept), rows).violations == [], "a reader's post has its place, and no row"
    writer = [replace(one, seq=one.seq + 1, head="z" * 43) if one.author == group.me else one for one in heights]
    assert len(checked(replace(about, chains=writer), rows).violations) == 1


# --- files ------------------------------------------------------------------------------------------------------------


def exported(log: tuple[LogSummary, list[LogRow]]) -> bytes:
    file = io.BytesIO()
    header = archive.Header(exported_at="2026-07-01T12:00:00.000Z", summary=log[0])
    assert archive.write(header, log[1], file) == len(log[1])
    return file.getvalue()


def test_a_file_has_everything(log: tuple[LogSummary, list[LogRow]]) -> None:
    data = exported(log)
    first, *lines = data.decode().splitlines()
    assert json.loads(first)["zerochat"] == "history" and json.loads(first)["summary"]["view"] == log[0].view
    assert json.loads(lines[-1])["record"]["body"]["text"] == "two are left"
    header, rows = archive.read(Path("x"), io.BytesIO(data))
    assert header.summary == log[0] and list(rows) == log[1]
    header, rows = archive.read(Path("x"), io.BytesIO(data))
    assert checked(header.summary, rows).sound
    spoilt = data.replace(b"n2 says 1", b"n2 says 8")
    header, rows = archive.read(Path("x"), io.BytesIO(spoilt))
    assert not checked(header.summary, rows).sound


def test_a_file_of_another_kind_is_reported(log: tuple[LogSummary, list[LogRow]]) -> None:
    data = exported(log)
    for strange in (b"", b"\n", b"hello\n", b'{"zerochat": "other", "v": 1}\n', b'{"zerochat": "history", "v": 1}\n'):
        with pytest.raises(archive.NotAnArchive):
            archive.read(Path("x"), io.BytesIO(strange))
    with pytest.raises(archive.NewerArchive):
        archive.read(Path("x"), io.BytesIO(b'{"zerochat":"history","v":2,"more":[]}\n'))
    for spoilt in (data[:-1], data + b"{}\n", data + b"[" * 5000 + b"\n", data + b"\xff\n"):
        _, rows = archive.read(Path("x"), io.BytesIO(spoilt))
        with pytest.raises(archive.ArchiveBroken):
            list(rows)
    bad = replace(log[1][0], record=b"\xff{")
    with pytest.raises(archive.Unexportable):
        archive.write(archive.Header(exported_at="", summary=log[0]), [bad], io.BytesIO())


NUMBERS = [-1, 2**53, 2**62, 2**63, 2**64, 10**30, 10**5000, 0.5, 1e300, True, None, "1", [], {}]
"""What may stand where zerochat writes a number of at least 0 and less than 2**53."""


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all whole numbers in a JSON value, records left out: those are checked as events."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name != "record":
                yield from numbers_in(each, (*path, name))
    elif isinstance(value, list):
        for place, each in enumerate(value[:2]):
            yield from numbers_in(each, (*path, place))
    elif type(value) is int:
        yield path


def put(value: Any, path: tuple[Any, ...], number: str) -> bytes:
    """A line of a file with something else in one place, as it is spelt here."""
    value = json.loads(json.dumps(value))
    place = value
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = "HERE"
    return json.dumps(value).replace('"HERE"', number).encode() + b"\n"


def spelt(number: Any) -> str:
    return "1" + "0" * 5000 if number == 10**5000 else json.dumps(number)


def test_numbers_in_a_file_must_be_in_range(log: tuple[LogSummary, list[LogRow]]) -> None:
    first, row, *rest = exported(log).splitlines(keepends=True)
    places = list(numbers_in(json.loads(first)))
    assert {path[-1] for path in places} == {"v", "seq", "first", "confirmed", "events", "refuted", "latest"}
    for path in places:
        for number in NUMBERS:
            with pytest.raises((archive.NotAnArchive, archive.NewerArchive)):
                archive.read(Path("x"), io.BytesIO(put(json.loads(first), path, spelt(number)) + row))
        for number in (0, 2**53 - 1):
            if path != ("v",):
                header, rows = archive.read(Path("x"), io.BytesIO(put(json.loads(first), path, spelt(number)) + row))
                checked(header.summary, rows)
    places = list(numbers_in(json.loads(row)))
    assert {path[-1] for path in places} == {"seq", "position", "lamport", "received"}
    for path in places:
        for number in NUMBERS:
            file = first + put(json.loads(row), path, spelt(number)) + b"".join(rest)
            with pytest.raises(archive.ArchiveBroken):
                list(archive.read(Path("x"), io.BytesIO(file))[1])


def mutated(dice: random.Random, data: bytes) -> bytes:
    """The same with a few bytes changed, taken out or said twice, or with another number somewhere."""
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(data))
        end = at + dice.choice((1, 1, 2, 20))
        match dice.randrange(5):
            case 0:
                data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:end] + data[at:]
            case 3:
                found = list(re.finditer(rb"(?<=:)\d+", data))
                if found:
                    one = dice.choice(found)
                    data = data[: one.start()] + spelt(dice.choice(NUMBERS)).encode() + data[one.end() :]
            case 4:
                data = (
                    data[:at] + dice.choice((b"\n", b"[", b'{"', b"\\u0000", b"\\ud800", b"\xff", b"null,")) + data[at:]
                )
        data = data or b"\n"
    return data


@pytest.mark.slow
@pytest.mark.parametrize("times", [3_000, pytest.param(60_000, marks=pytest.mark.long)])
def test_any_file_is_audited_or_refused(log: tuple[LogSummary, list[LogRow]], times: int) -> None:
    """A file is a stranger's: it comes to a verdict, or is refused as no history or as a damaged one."""
    about, rows = log
    good = exported((about, rows[:6]))
    head, body = good[: good.index(b"\n") + 1], good[good.index(b"\n") + 1 :]
    dice = random.Random(2**53)
    seen: Counter[str] = Counter()
    for n in range(times):
        file = mutated(dice, head) + body if n % 3 == 0 else head + mutated(dice, body)
        try:
            header, found = archive.read(Path("x"), io.BytesIO(file))
            taken = list(found)
            seen["sound" if checked(header.summary, taken).sound else "not sound"] += 1
            control = [row for row in taken if row.type != POST]
            seen["shown"] += len(list(archive.events(Path("x"), header.summary, taken, control))) > 0
        except LocalError as refused:
            seen[refused.code if refused.sentence() else "nothing is said"] += 1
    assert {"not sound", "shown", "NotAnArchive", "ArchiveBroken"} <= seen.keys(), seen
    assert "nothing is said" not in seen


@pytest.fixture
def served(agent: Any, log: tuple[LogSummary, list[LogRow]]) -> Any:
    """An agent whose one group has this log."""
    about, rows = log
    info = replace(cli_harness.HIKERS, id=about.group, name="friends", view=about.view)

    def page(params: EventPageParams) -> EventPage:
        start = 0
        if params.after is not None:
            start = next(n for n, row in enumerate(rows, 1) if (row.lamport, row.author, row.id) == params.after)
        bite = rows[start : start + 4]
        last = (bite[-1].lamport, bite[-1].author, bite[-1].id) if start + 4 < len(rows) else None
        return EventPage(bite, last)

    groups: list[GroupInfo] = [info]
    return agent(
        list_groups=lambda _: groups,
        get_log_summary=lambda _: about,
        get_event_page=page,
        get_status=lambda _: cli_harness.STATUS,
    )


def test_audit_and_export_on_the_command_line(
    run: Any, served: Any, log: tuple[LogSummary, list[LogRow]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("audit friends")
    assert (code, err) == (0, "") and out.rstrip().endswith("valid") and "as stored by the agent" in out
    assert "; all hash chains verified\n" in out and " verified\n" in out
    verdict = json.loads(run("audit friends --format jsonl")[1])
    assert verdict["sound"] and verdict["events"] == len(log[1]) and verdict["violations"] == []

    code, out, err = run("export friends")
    assert (code, out) == (0, "friends.jsonl\n") and "not encrypted" in err
    path = tmp_path / "friends.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_bytes().count(b"\n") == len(log[1]) + 1
    code, out, err = run("export friends")
    assert code == 1 and "exists already" in err
    served.stop()

    # From here on nobody serves the profile.
    code, out, _ = run("audit --file friends.jsonl")
    assert code == 0 and "exported by n1" in out and out.rstrip().endswith("valid")
    code, out, _ = run("history --file friends.jsonl -n 2")
    assert code == 0 and out.endswith("n0: two are left\n") and len(out.splitlines()) == 2
    assert "✓" not in run("history --file friends.jsonl --all")[1]
    ids = run("history --file friends.jsonl -n 1 --ids")[1]
    assert ids.startswith(log[1][-1].id[:8] + "  20")
    assert json.loads(run("history --file friends.jsonl -n 1 --format jsonl")[1])["id"] == log[1][-1].id

    path.write_bytes(path.read_bytes().replace(b"n2 says 1", b"n2 says \\u001b"))
    code, out, _ = run("audit --file friends.jsonl")
    assert code == 7 and "INVALID: 2 errors" in out and "verified" not in out
    assert "n2 " in out and "its id is not the hash of its record." in out
    assert "\x1b" not in run("history --file friends.jsonl --all")[1]
    path.write_bytes(path.read_bytes()[:-9])
    code, _, err = run("audit --file friends.jsonl")
    assert code == 7 and "is damaged: line" in err
    code, _, err = run("history --file nowhere.jsonl")
    assert code == 1 and "nowhere.jsonl" in err
    assert run("audit")[0] == run("audit friends --file friends.jsonl")[0] == run("history")[0] == 2


def test_a_broken_log_ends_with_7(
    run: Any, served: Any, log: tuple[LogSummary, list[LogRow]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.answers["get_log_summary"] = lambda _: replace(log[0], view="another")
    code, out, _ = run("audit friends")
    assert code == 7 and "INVALID: 1 error\n" in out and "the state has another" in out

    def unreadable(_: Any) -> EventPage:
        return EventPage([replace(log[1][0], record=b"\xff")], None)

    served.answers["get_event_page"] = unreadable
    code, _, err = run(f"export friends --output {tmp_path}/out.jsonl")
    assert code == 7 and "invalid record" in err and not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 message, 1 membership event"), (2, "2 messages, 2 membership events")]
)
def test_an_audit_counts_in_the_right_number(capsys: pytest.CaptureFixture[str], count: int, said: str) -> None:
    report = AuditReport(
        group="g", name="n", sound=True, events=2 * count, posts=count, membership=count, authors=1, signed=1,
        unconfirmed=count, late=0, refuted=0, view="v", violations=[],
    )  # fmt: skip
    audit_verb._print_verdict(
        report,
        LogSummary(group="g", name="n", me="m", nick="n", view="v", chains=[], events=0),
        Output("text"),
        "in a file",
    )
    out = capsys.readouterr().out
    assert f": {said}\n" in out and f"{count} relayed event{'s' * (count > 1)}, not confirmed by" in out
