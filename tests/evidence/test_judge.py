"""The judge: withholders are convicted and honest members never are, for any clocks and liars.

SUPRA's lemmas as properties: a subscriber can always accuse a cheating publisher (2), and an honest publisher can
always defend itself (3).
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import islice

import pytest
from msgspec.structs import replace

from tests.support.dispute_parties import Quarrel, Story, did_of
from zerochat.cli import main
from zerochat.errors import Malformed
from zerochat.evidence import messages
from zerochat.evidence.case import (
    DEFENCE_BYTES_MAX,
    DEFENCES_MAX,
    Acknowledged,
    Case,
    Defence,
    Ended,
    Posted,
    Repeated,
    Span,
    Withheld,
    parse_case,
    parse_defence,
)
from zerochat.evidence.handshake import Close
from zerochat.evidence.judge import DISMISSED, FALSE_ACCUSATION, OPEN, REPEATED, UPHELD, VOID, judge
from zerochat.evidence.messages import DATA_BYTES_MAX, Data, parse_data
from zerochat.evidence.note import cosignature
from zerochat.evidence.witness import RECEIPT_BYTES_MAX, checkpoint, entry_of, parse_entry, parse_receipt

EVERYDAY, SLICE = 40, 300
"""Histories; ten thousand of them with `--budget 34`."""

JUDGES = """
import json, sys
from pathlib import Path
from zerochat.evidence.case import parse_case
from zerochat.evidence.judge import judge
for path in sorted(Path(sys.argv[1]).iterdir()):
    found = judge(parse_case(path.read_bytes()))
    print(json.dumps([found.delivery, found.guilty]))
"""


def tried(seeds):
    """Judge all cases of these histories from their bytes. Returns the numbers of upheld cases and of all."""
    upheld = found = 0
    for seed in seeds:
        for quarrel in Story(seed).play():
            judgement = judge(parse_case(quarrel.case.serialize()))
            assert (judgement.delivery == UPHELD) == quarrel.cheated, (seed, judgement)
            assert tuple(judgement.guilty) == quarrel.counts, (seed, judgement)
            upheld, found = upheld + quarrel.cheated, found + 1
    return upheld, found


@pytest.mark.slow
def test_only_withholders_are_convicted():
    upheld, found = tried(range(EVERYDAY))
    assert upheld > EVERYDAY // 10 and found > 2 * EVERYDAY


@pytest.mark.sim
def test_many_histories_are_judged_as_they_were(budget, figures):
    count = budget(SLICE)
    upheld, found = tried(range(count))
    figures(f"{count:,} histories, {found:,} cases, {upheld:,} upheld, all as it really was")
    assert upheld


def test_seed_8335_obligations_before_a_dated_end():
    upheld, found = tried([8335])
    assert upheld and found > 4


@pytest.mark.slow
def test_another_process_reaches_the_same_verdict_from_the_file(tmp_path):
    quarrels = [quarrel for seed in range(12) for quarrel in Story(seed).play()]
    for number, quarrel in enumerate(quarrels):
        (tmp_path / f"{number:04}.zcase").write_bytes(quarrel.case.serialize())
    said = subprocess.run(
        [sys.executable, "-c", JUDGES, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    here = [judge(quarrel.case) for quarrel in quarrels]
    assert [json.loads(line) for line in said.stdout.splitlines()] == [[one.delivery, one.guilty] for one in here]
    assert len(here) > 20


@pytest.mark.slow
def test_judge_verb_exits_with_the_verdict(tmp_path, capsys, monkeypatch):
    """Guilty 7, not shown to the end 5, not guilty 0, no case 1; and no profile is made for that."""
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "nobody"))
    defended, file = defended_one(), tmp_path / "one.zcase"
    assert not judge(defended.case).guilty
    hidden = with_missing(defended, defences=())
    for case, code in ((upheld_ones()[0].case, 7), (hidden, 5), (defended.case, 0)):
        file.write_bytes(case.serialize())
        assert main(["judge", str(file), "--format", "jsonl"]) == code
        shown = json.loads(capsys.readouterr().out)
        assert shown["delivery"] == judge(case).delivery and shown["findings"]
    assert main(["verify-proof", str(file)]) == 1
    assert f"is a case file, not a proof: use `zerochat judge {file}`" in " ".join(capsys.readouterr().err.split())
    file.write_bytes(defended.case.serialize()[:-9])
    assert main(["judge", str(file)]) == 1
    assert "is not a valid case file" in capsys.readouterr().err
    assert not (tmp_path / "nobody").exists()


@cache
def upheld_ones() -> list[Quarrel]:
    stories = (quarrel for seed in range(400) for quarrel in Story(seed).play())
    return list(islice((one for one in stories if one.cheated), 3))


def defended_one() -> Quarrel:
    """A case that was dismissed because of a defence."""
    for seed in range(400):
        for quarrel in Story(seed).play():
            missing = quarrel.case.withheld
            if missing is not None and missing.defences and judge(quarrel.case).delivery not in (UPHELD, VOID, OPEN):
                return quarrel
    raise AssertionError("no case with a defence")


def missing_of(quarrel: Quarrel) -> Withheld:
    assert quarrel.case.withheld is not None
    return quarrel.case.withheld


def with_missing(quarrel: Quarrel, **changes):
    return replace(quarrel.case, withheld=replace(missing_of(quarrel), **changes))


def test_omitted_defence_is_detected():
    quarrel = defended_one()
    assert judge(with_missing(quarrel, defences=())).delivery == OPEN
    span = missing_of(quarrel).span
    shorter = replace(span, entries=span.entries[: filed_in(span, missing_of(quarrel)) + 1])
    assert judge(with_missing(quarrel, defences=(), span=shorter)).delivery == OPEN
    other = replace(span, before=span.before + 1, peaks=())
    assert judge(with_missing(quarrel, span=other)).delivery == VOID


def filed_in(span: Span, missing: Withheld) -> int:
    """At which of these entries the accusation was filed."""
    return parse_receipt(missing.filed.encode()).index - span.before


def test_a_defence_that_was_never_posted_does_not_count():
    for quarrel in upheld_ones():
        missing = missing_of(quarrel)
        defence = Defence(missing.accusation.digest, Acknowledged((missing.message,), b"x" * 192)).serialize()
        assert judge(with_missing(quarrel, defences=(*missing.defences, defence))).delivery == UPHELD


def test_nothing_is_upheld_once_any_part_of_the_file_was_changed():
    case, missing = upheld_ones()[0].case, missing_of(upheld_ones()[0])
    request, accept, confirm = case.subscription
    assert case.rules is not None
    changed = [
        replace(case, rules=None),
        replace(case, rules=replace(case.rules, skew_ms=case.rules.skew_ms - 1)),
        replace(case, rules=replace(case.rules, witnesses=case.rules.witnesses[1:] + case.rules.witnesses[:1])),
        replace(case, subscription=(request, replace(accept, time=accept.time + 1), confirm)),
        replace(case, subscription=(replace(request, nonce="AA"), accept, confirm)),
        replace(case, withheld=replace(missing, accusation=replace(missing.accusation, time=1))),
        replace(case, withheld=replace(missing, message=missing.message[:-1] + bytes([missing.message[-1] ^ 1]))),
        replace(case, withheld=replace(missing, filed=missing.filed.replace("index ", "index 1"))),
    ]
    assert judge(case).delivery == UPHELD
    assert [judge(one).delivery for one in changed] == [VOID] * len(changed)


@pytest.mark.parametrize(
    "written",
    [b"", b"{}", b"[]", b"\xff", b'{"zcase":2}', b'{"zcase":1,"rules":{}}', b'{"a":1' * 40_000],
    ids=["empty", "object", "list", "no text", "version", "no rules", "deep"],
)
def test_an_invalid_case_file_is_refused(written):
    with pytest.raises(Malformed):
        parse_case(written)


def spoilt(written: bytes) -> Iterator[Case]:
    """The decodable remains of a truncated or changed case."""
    for place in range(0, len(written) - 2, max(1, len(written) // 150)):
        for bytes_ in (written[:place], written[:place] + b"A" + written[place + 1 :]):
            with suppress(Malformed):
                yield parse_case(bytes_)


def test_a_damaged_file_reverses_no_verdict():
    """Some of it may be spoilt without harm: of more cosignatures than it takes, one."""
    upheld, dismissed = upheld_ones()[0].case, defended_one().case
    assert {judge(case).delivery for case in spoilt(upheld.serialize())} <= {UPHELD, VOID, OPEN}
    assert UPHELD not in {judge(case).delivery for case in spoilt(dismissed.serialize())}


def defended_story(witnesses: int, verdicts: tuple[str, ...] = (DISMISSED,)) -> tuple[Story, Quarrel]:
    """A history with so many witnesses, up to a case with a defence that came to one of these."""
    for seed in range(2000):
        story = Story(seed)
        if len(story.rules.witnesses) != witnesses or story.kind != "honest":
            continue
        for quarrel in story.play():
            missing = quarrel.case.withheld
            if missing is not None and missing.defences and judge(quarrel.case).delivery in verdicts:
                return story, quarrel
    raise AssertionError("no case with a defence")


def test_lying_and_lagging_witnesses_cannot_hide_a_defence():
    """The operator shows one honest witness nothing after the accusation until the defence window is over. With the
    liar's cosignature and an early honest one the count suffices, but no quorum cosigned so late."""
    story, quarrel = defended_story(witnesses=4)
    ledger, span = story.ledger, missing_of(quarrel).span
    filed = parse_receipt(missing_of(quarrel).filed.encode())
    place = filed.index - span.before
    filed_s = filed.posted_ms(parse_entry(span.entries[place]), story.rules.quorum) // 1000
    late_s = story.now // 1000
    note = checkpoint(ledger.origin, ledger.frontiers[filed.index + 1], ledger.operator)
    for seed, time_s in zip(ledger.witnesses, (filed_s, late_s, late_s), strict=False):
        note = note.with_line(cosignature(note.text, seed, time_s))
    assert story.rules.quorum.posted_by_ms(note) // 1000 == late_s >= filed_s + story.rules.window_ms // 1000
    hidden = replace(span, entries=span.entries[: place + 1], closing=note.serialize())
    assert judge(with_missing(quarrel, defences=(), span=hidden)).delivery == OPEN


def test_a_defence_that_was_posted_many_times_is_weighed_once():
    """Otherwise four thousand entries with chains of a thousand messages would keep a judge busy for minutes."""
    story, quarrel = defended_story(witnesses=4)
    ledger, missing = story.ledger, missing_of(quarrel)
    for _ in range(3):
        ledger.defend(story.now, story.publisher, missing.defences[0], missing.accusation.digest)
    span = replace(
        missing.span,
        entries=tuple(ledger.records[missing.span.before :]),
        closing=ledger.cosigned(story.now + 2 * 86_400_000).serialize(),
    )
    again = judge(with_missing(quarrel, span=span))
    assert again.delivery == judge(quarrel.case).delivery and again.findings == judge(quarrel.case).findings


def test_backdated_accusation_is_void():
    story, quarrel = defended_story(4, (FALSE_ACCUSATION,))
    ledger, missing = story.ledger, missing_of(quarrel)
    accuser = next(one for one in story.listeners if one.did == missing.accusation.accuser)
    before, said = ledger.frontier.size, parse_data(missing.message)
    older = replace(missing.accusation, time=said.time, log_size=before).signed(accuser.seed)
    filed = ledger.post(story.now, "accusation", older.accuser, older.serialize())
    defence = Defence(older.digest, parse_defence(missing.defences[-1]).ground).serialize()
    ledger.defend(story.now, story.publisher, defence, older.digest)
    closing = ledger.cosigned(story.now + 2 * 86_400_000).serialize()
    span = Span(before, ledger.frontiers[before].peaks, tuple(ledger.records[before:]), closing)
    case = with_missing(quarrel, accusation=older, filed=filed, span=span, defences=(defence,))
    assert judge(case).delivery == VOID


@pytest.mark.slow
def test_omitted_renewals_do_not_hurt_the_accuser():
    stories = (quarrel for seed in range(233, 400) for quarrel in Story(seed).play())
    found = (one for one in stories if one.cheated and missing_of(one).reopened and missing_of(one).defences)
    quarrels = list(islice(found, 3))
    assert len(quarrels) == 3
    for quarrel in quarrels:
        assert judge(quarrel.case).delivery == UPHELD
        assert judge(with_missing(quarrel, reopened=())).delivery == OPEN


# --- attacks of publishers, accusers and operators on the log -------------------------------------------------------


def upheld_story() -> tuple[Story, Quarrel]:
    """A history up to a case that is upheld, against a publisher that has posted nothing in its defence."""
    for seed in range(2000):
        story = Story(seed, exact=True)
        if story.kind == "withholds":
            for quarrel in story.play():
                if quarrel.cheated and not missing_of(quarrel).defences and not missing_of(quarrel).reopened:
                    return story, quarrel
    raise AssertionError("no case that is upheld")


def accused(story: Story, quarrel: Quarrel, **changes):
    """The same accusation once more by the same accuser, in the log of today. Returns it with its receipt."""
    missing = missing_of(quarrel)
    accuser = next(one for one in story.listeners if one.did == missing.accusation.accuser)
    fields = {"time": story.now, "log_size": story.ledger.frontier.size, **changes}
    accusation = replace(missing.accusation, **fields).signed(accuser.seed)
    return accusation, story.ledger.post(story.now, "accusation", accusation.accuser, accusation.serialize())


def judged(story: Story, quarrel: Quarrel, accusation, filed: str, defences: tuple[bytes, ...] = ()):
    """The outcome of an accusation after the defence window."""
    ledger, before = story.ledger, accusation.log_size
    closing = ledger.cosigned(story.now + 2 * 86_400_000).serialize()
    span = Span(before, ledger.frontiers[before].peaks, tuple(ledger.records[before:]), closing)
    case = with_missing(quarrel, accusation=accusation, filed=filed, span=span, defences=defences)
    return judge(parse_case(case.serialize()))


def test_publisher_cannot_keep_a_case_open():
    story, quarrel = upheld_story()
    accusation, filed = accused(story, quarrel)
    about, author = accusation.digest, did_of(story.publisher)
    long = bytes(DEFENCE_BYTES_MAX + 1)
    story.ledger.post_entry(story.now, entry_of("defence", author, long, about).signed(story.publisher))
    many = [b"%d" % number for number in range(40)]
    for blob in many:
        story.ledger.defend(story.now, story.publisher, blob, about)
    assert judged(story, quarrel, accusation, filed).delivery == OPEN
    assert judged(story, quarrel, accusation, filed, tuple(many[: DEFENCES_MAX - 1])).delivery == OPEN
    assert judged(story, quarrel, accusation, filed, tuple(many[:DEFENCES_MAX])).delivery == UPHELD


def test_only_the_accused_uses_defence_slots():
    story, quarrel = defended_story(witnesses=4)
    accusation, filed = accused(story, quarrel)
    defence = Defence(accusation.digest, parse_defence(missing_of(quarrel).defences[-1]).ground).serialize()
    stranger = bytes(32)
    for number in range(2 * DEFENCES_MAX):
        blob = b"%d" % number
        entry = entry_of("defence", did_of(story.publisher), blob, accusation.digest)
        story.ledger.post_entry(story.now, entry)
        story.ledger.post_entry(story.now, entry.signed(stranger))
        story.ledger.defend(story.now, stranger, blob, accusation.digest)
    story.ledger.defend(story.now, story.publisher, defence, accusation.digest)
    assert judged(story, quarrel, accusation, filed, (defence,)).delivery == DISMISSED


def test_the_largest_message_has_a_defence_that_counts():
    story, quarrel = upheld_story()
    said = story.said(story.last_time + 1, bytes(DATA_BYTES_MAX - 184), story.stream[-1].signature)
    receipt = "x" * RECEIPT_BYTES_MAX
    assert len(said.serialize()) == DATA_BYTES_MAX
    for ground in (Posted(said.serialize(), receipt), Acknowledged((said.serialize(),), bytes(192))):
        written = Defence(missing_of(quarrel).accusation.digest, ground).serialize()
        assert len(written) <= DEFENCE_BYTES_MAX and parse_defence(written).ground == ground


def test_end_excuses_later_messages_only():
    story, quarrel = upheld_story()
    accuser = next(one for one in story.listeners if one.did == missing_of(quarrel).accusation.accuser)
    accept, came = quarrel.case.subscription[1], parse_data(missing_of(quarrel).message)
    link = story.link_of(came)
    assert link is not None and link.time + 1000 < came.time
    ours = Close(time=accept.time, accept=accept.digest, author=did_of(story.publisher))
    another = replace(ours, accept=quarrel.case.subscription[0].digest)
    tried_ = [
        (ours.signed(story.publisher), link.time - 1000, DISMISSED),
        (ours.signed(story.publisher), link.time + 1000, UPHELD),
        (another.signed(story.publisher), link.time - 1000, UPHELD),
        (replace(ours, author=accuser.did).signed(accuser.seed), link.time - 1000, UPHELD),
        (ours.signed(accuser.seed), link.time - 1000, UPHELD),
    ]
    for close, posted_at, verdict in tried_:
        receipt = story.ledger.post(posted_at, "close", close.author, close.serialize())
        accusation, filed = accused(story, quarrel)
        defence = Defence(accusation.digest, Ended(link.serialize(), close, receipt)).serialize()
        story.ledger.defend(story.now, story.publisher, defence, accusation.digest)
        assert judged(story, quarrel, accusation, filed, (defence,)).delivery == verdict
        story.now += 1


def test_first_logged_accusation_counts():
    """Otherwise a publisher that answered would have to answer for ever."""
    story, quarrel = defended_story(witnesses=4)
    accusation, filed = accused(story, quarrel)
    defence = Defence(accusation.digest, parse_defence(missing_of(quarrel).defences[-1]).ground).serialize()
    story.ledger.defend(story.now, story.publisher, defence, accusation.digest)
    again = story.ledger.post(story.now, "accusation", accusation.accuser, accusation.serialize())
    assert judged(story, quarrel, accusation, filed, (defence,)).delivery == DISMISSED
    assert judged(story, quarrel, accusation, again, (defence,)).delivery == VOID
    assert judged(story, quarrel, accusation, again).delivery == VOID


def test_an_accusation_that_is_void_takes_nothing_from_the_next():
    story, quarrel = upheld_story()
    too_early, receipt = accused(story, quarrel, time=parse_data(missing_of(quarrel).message).time)
    first, first_receipt = accused(story, quarrel)
    verdicts = []
    for earlier, posted in ((too_early, receipt), (first, first_receipt)):
        accusation, filed = accused(story, quarrel, time=story.now + 1)
        defence = Defence(accusation.digest, Repeated(earlier, posted)).serialize()
        story.ledger.defend(story.now, story.publisher, defence, accusation.digest)
        verdicts.append(judged(story, quarrel, accusation, filed, (defence,)).delivery)
        story.now += 1
    assert verdicts == [UPHELD, REPEATED]


def test_repeated_accusation_has_no_own_verdict():
    story, quarrel = defended_story(witnesses=4)
    first = missing_of(quarrel)
    accusation, filed = accused(story, quarrel)
    grounds = parse_defence(first.defences[-1]).ground, Repeated(first.accusation, first.filed)
    defences = tuple(Defence(accusation.digest, ground).serialize() for ground in grounds)
    for defence in defences:
        story.ledger.defend(story.now, story.publisher, defence, accusation.digest)
    assert judged(story, quarrel, accusation, filed, defences).delivery == REPEATED


# --- attacks of publishers on the stream ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "earlier", "back"),
    [(False, False, False), (True, False, False), (False, True, False), (True, True, False), (False, True, True)],
    ids=["a fork", "dated ahead", "a fork, earlier", "dated ahead, earlier", "a fork, dated back"],
)
def test_chain_before_the_subscription_proves_nothing(ahead, earlier, back):
    """A message names a predecessor from before the subscription, unknown to the subscriber. It is not the stream's
    successor of that, or it is, with a time in the future. `earlier`: the chain ends in an earlier subscription;
    `back`: it ends after the claimed start of the later one."""
    story = Story(1, exact=True)
    story.kind, listener = "honest", story.listeners[0]

    def say(time: int) -> Data:
        story.stream.append(story.said(time, b"word", story.stream[-1].signature if story.stream else story.origin))
        story.owed[story.stream[-1].signature] = set()
        return story.stream[-1]

    def hear(said: Data) -> messages.Ack:
        assert said.before == listener.head
        listener.known[said.signature], listener.head = said.serialize(), said.signature
        return messages.ack(listener.signs, said, story.now, story.suite)

    link = say(story.next_time())
    came = say(story.now + 600_000)
    say(story.next_time())
    story.begin(listener)
    story.now += 60_000
    ack = hear(say(story.next_time()))
    if earlier:
        hear(say(story.next_time()))
        story.end(listener)
        if back:
            story.now, story.last_time = story.now - 30_000, 0
        story.begin(listener)
    story.now += 5_000 if back else 900_000
    if not ahead:
        came = story.said(story.next_time(), b"another word", link.signature)
    if not earlier:
        ack = hear(say(story.next_time()))
    subscription = listener.subscription
    assert subscription is not None and came.time > subscription.accept.time and came.before not in listener.known
    story.acks.append((subscription.accept.digest, ack))
    story.now = came.time + 2 * story.rules.ack_ms
    quarrel = story.accuse(listener, subscription, came)
    assert [type(parse_defence(one).ground) for one in missing_of(quarrel).defences] == [Acknowledged]
    assert judge(parse_case(quarrel.case.serialize())).delivery == UPHELD


def test_judge_needs_the_suite_of_the_rules():
    case = upheld_ones()[0].case
    assert case.rules is not None
    assert judge(replace(case, rules=replace(case.rules, suite="secp256k1"))).delivery == VOID
