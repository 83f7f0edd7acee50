"""Who looks after cases for a profile, without being asked: reads the logs of its groups for accusations, answers those
against us, works out what comes of each, and tells that to the group where we are the one to tell it.

It runs between turns, beside the core: what it wants to say goes in as a command like any other, and what it has to
remember is on disk before. So a defence is made once, and posted with the same bytes after a restart: the log takes
the same entry only once.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from zerochat.agent.disputes import verdicts
from zerochat.agent.disputes.case_files import Docket, against_us, charge_of, kept
from zerochat.agent.disputes.defences import defences, parse_accusation
from zerochat.agent.disputes.tlog_reader import Book, entries_from
from zerochat.agent.storage.disputes import MADE, POSTED, REFUSED, Answer, KeptCase
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, RemoteError, ZerochatError
from zerochat.evidence.case import ENTRIES_MAX, Rules
from zerochat.evidence.judge import UPHELD
from zerochat.evidence.witness import entry_of, is_kind, parse_entry
from zerochat.group.effects import Answer as Answered
from zerochat.group.effects import Effect, KeepRival, Notify, Refuse, Remember
from zerochat.group.event_log.event import VERDICT
from zerochat.group.inputs import Ask, PostToLog, Say
from zerochat.group.notifications import Logged
from zerochat.group.state import Agent, Group

EVERY_MS: Final = 20_000
"""So often what is open is looked at anew: an acknowledgement may have come, or a window have closed."""
FIRST_TICKET: Final = -1
"""Its commands have tickets below zero, which no face has."""


class Counsel:
    """Owned by the agent thread."""

    def __init__(self, journal: Journal, log: logging.Logger, book: Book | None = None) -> None:
        self._journal, self._log = journal, log
        self._book: Book = journal.logbook if book is None else book
        self._next = FIRST_TICKET
        self._asked: dict[int, tuple[str, str, str]] = {}
        """By ticket: the group, the digest of the accusation, and the ground or verdict that was said."""
        self._fresh: set[str] = set()
        """Groups in which something has happened."""
        self._due_ms = 0
        self._begun = False

    def hear(self, effects: Iterable[Effect]) -> None:
        """What the core has said."""
        for one in effects:
            match one:
                case Notify(Logged(group)):
                    self._fresh.add(group)
                case KeepRival(group):
                    self._fresh.add(group)
                case Remember() if one.type == VERDICT:
                    self._fresh.add(one.group)

    def heed(self, group: str) -> None:
        """Look at this group soon."""
        self._fresh.add(group)

    def is_mine(self, ticket: int) -> bool:
        return ticket in self._asked

    def settle(self, effect: Answered | Refuse) -> None:
        """What has come of a command of ours."""
        group, digest, said = self._asked.pop(effect.ticket)
        try:
            self._note(effect, group, digest, said)
        except LocalError as error:  # it is done once more, which changes nothing
            self._log.error("what was said to a case could not be noted: %s", error.code)

    def fail(self, ask: Ask) -> None:
        """A turn could not be remembered: what we asked in it has not happened."""
        self._asked.pop(ask.ticket, None)

    def _note(self, effect: Answered | Refuse, group: str, digest: str, said: str) -> None:
        state = POSTED
        if isinstance(effect, Refuse):
            self._log.info("what was to be said to a case was refused: %s", effect.error.code)
            state = REFUSED if effect.error.retry == "never" else MADE
        answer = next((one for one in self._journal.cases.answers(group, digest) if one.ground == said), None)
        if answer is not None:
            self._journal.cases.answer(group, digest, replace(answer, state=state))
        elif said and state == POSTED:
            self._journal.cases.told(group, digest, said)

    def review(self, agent: Agent, now: int) -> list[Ask]:
        """What is to be said now (`now`: UTC ms). Where something stands in the way of one case, the others are looked
        after all the same, and that one is when its turn comes again."""
        everything = not self._begun or not 0 <= self._due_ms - now <= EVERY_MS
        wanted = set(agent.groups) if everything else self._fresh & set(agent.groups)
        self._fresh = set()
        if everything:
            self._begun, self._due_ms = True, now + EVERY_MS
        asks: list[Ask] = []
        for name in sorted(wanted):
            group = agent.groups[name]
            if group.mode.signs and group.state == "active":
                asks += self._group(group, now)
        return asks

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """What fails in here fails alone. What was asked before it is asked, or it would be waited for without end."""
        try:
            yield
        except ZerochatError as error:
            self._log.error("something in a case could not be looked at: %s", error.code)
        except Exception:  # noqa: BLE001  # a fault of ours, and whoever finds it should not be left unanswered
            self._log.exception("a fault while looking after a case")

    def _group(self, group: Group, now: int) -> Iterator[Ask]:
        with self._alone():
            for rules in self._book.origins(group.id):
                with self._alone():
                    self._read(group, rules, now)
            told = verdicts.told_in(self._journal, group)
            for case in self._journal.cases.open(group.id):
                with self._alone():
                    yield from self._case(group, case, told)
            yield from self._convict(group, told, now)

    # --- accusations in the log -------------------------------------------------------------------------------------

    def _read(self, group: Group, rules: Rules, now: int) -> None:
        """Look through what is new in a log. What has not come here yet is waited for, but not for ever."""
        read, size = self._journal.cases.read(group.id, rules.origin), self._book.size(group.id, rules.origin)
        reached = read
        for place, record in entries_from(self._book, group.id, rules.origin, read, size):
            here = not is_kind(record, "accusation") or self._file(group, rules, record, now)
            if not here and size - place <= ENTRIES_MAX:
                break
            reached = place + 1
        if reached != read:
            self._journal.cases.note_read(group.id, rules.origin, reached)

    def _file(self, group: Group, rules: Rules, record: bytes, now: int) -> bool:
        """Keep an accusation that is in the log; False: what it says has not come here yet. What cannot be read is
        passed over: it would keep us from those behind it."""
        try:
            return self._filed(group, rules, record, now)
        except RemoteError as error:
            self._log.error("an accusation could not be read: %s", error.code)
            return True

    def _filed(self, group: Group, rules: Rules, record: bytes, now: int) -> bool:
        entry = parse_entry(record)
        blob = self._book.blob(group.id, entry.hash)
        if blob is None:
            return False
        accusation = parse_accusation(blob)
        if accusation is not None and accusation.by == entry.author:
            charge, ours = charge_of(self._journal, group, accusation), against_us(self._journal, group, accusation)
            if charge is not None and charge.accept.rules != rules.digest:
                return True  # void here, and it may be filed where it counts yet: there we have to answer it
            receipt = self._book.receipt(group.id, rules.origin, record, accusation.since)
            if receipt is None:
                return True  # it stands before the place that it names: void, and it may stand there once more
            filed = receipt.posted_ms(entry, rules.quorum)
            case = replace(kept(accusation, rules.origin, ours, now), filed=filed)
            self._journal.cases.begin(group.id, case if charge is None else replace(case, accused=group.me))
        return True

    # --- one case ---------------------------------------------------------------------------------------------------

    def _case(self, group: Group, case: KeptCase, told: list[verdicts.Told]) -> Iterator[Ask]:
        docket = verdicts.docket_of(self._book, group.id, case, told)
        rules = next((one for one in self._book.origins(group.id) if one.origin == case.origin), None)
        if rules is not None and case.accused == group.me and not case.verdict:
            yield from self._defend(group, rules, case)
        if docket is None or rules is None:
            return
        if case.accuser == group.me and not case.verdict:
            yield from self._post_again(group, rules, docket)
        outcome = case.verdict or verdicts.worked_out(self._book, group.id, docket)
        if outcome and not case.verdict:
            self._journal.cases.decided(group.id, case.digest, outcome, docket.accused)
            if outcome == UPHELD:
                self._log.warning("a case was upheld: somebody has withheld a message")
        if outcome and case.told != outcome and case.accuser == group.me:
            yield self._ask(group, case.digest, outcome, Say(group.id, verdicts.verdict_on(docket, outcome)))
        elif outcome and case.told != outcome:
            self._journal.cases.told(group.id, case.digest, outcome)  # it is not for us to tell

    def _defend(self, group: Group, rules: Rules, case: KeptCase) -> Iterator[Ask]:
        """Answer with the best ground that goes into the log; one that was made goes there as it is."""
        known = {one.ground: one for one in self._journal.cases.answers(group.id, case.digest)}
        if any(one.state == POSTED for one in known.values()) or self._waits(group.id, case.digest):
            return
        answer = next((one for one in known.values() if one.state == MADE), None)
        blob = self._book.blob(group.id, case.digest) if answer is None else None
        accusation = parse_accusation(blob) if blob is not None else None
        charge = charge_of(self._journal, group, accusation) if accusation is not None else None
        if charge is not None:
            for ground, written in defences(self._journal, self._book, group, rules, charge):
                if ground not in known:
                    answer = Answer(ground, written, MADE)
                    self._journal.cases.answer(group.id, case.digest, answer)
                    break
        if answer is not None:
            command = PostToLog(group.id, "defence", answer.blob, case.digest, rules.origin)
            yield self._ask(group, case.digest, answer.ground, command)

    def _post_again(self, group: Group, rules: Rules, docket: Docket) -> Iterator[Ask]:
        """An accusation of ours that is not in the log, and that the core may never have heard of."""
        said = docket.accusation
        record = entry_of("accusation", said.by, said.written()).record()
        log = group.logs.get(rules.origin)
        waits = log is not None and b64url(sha256(record)) in log.mine
        here = self._book.receipt(group.id, rules.origin, record, said.since) is not None
        if not waits and not here and not self._waits(group.id, docket.digest):
            command = PostToLog(group.id, "accusation", said.written(), origin=rules.origin)
            yield self._ask(group, docket.digest, "", command)

    # --- two messages that cannot both be ---------------------------------------------------------------------------

    def _convict(self, group: Group, told: list[verdicts.Told], now: int) -> Iterator[Ask]:
        """Take in what others show, and tell what nobody has shown yet and we have seen ourselves."""
        known = {(one.accused, one.verdict) for one in self._journal.cases.all(group.id) if not one.origin}
        for one in told:
            against = one.verdict.against, one.verdict.outcome
            if against not in known and verdicts.convicted(one.verdict, group.id) == one.verdict.outcome:
                self._keep_convicted(group, one.verdict.of, one.author, against, now)
                self._journal.cases.told(group.id, one.verdict.of, one.verdict.outcome)
                known.add(against)
        for rivals in self._journal.signed.rivals(group.id):
            outcome, digest = verdicts.outcome_of(rivals.pair), verdicts.digest_of(rivals.pair)
            if (rivals.author, outcome) not in known:
                self._keep_convicted(group, digest, group.me, (rivals.author, outcome), now)
                self._log.warning("a member has signed two messages that cannot both be: %s", outcome)
            case = self._journal.cases.one(group.id, digest)
            if case is None or case.told or self._waits(group.id, digest):
                continue
            verdict = verdicts.verdict_of_two(self._journal, group, rivals)
            if verdict is None:
                self._journal.cases.told(group.id, digest, outcome)  # whoever wants to show it has a file
            else:
                yield self._ask(group, digest, outcome, Say(group.id, verdict))

    def _keep_convicted(self, group: Group, digest: str, by: str, against: tuple[str, str], now: int) -> None:
        accused, outcome = against
        self._journal.cases.begin(group.id, KeptCase(digest, "", by, accused, "", "", b"", now))
        self._journal.cases.decided(group.id, digest, outcome, accused)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _waits(self, group: str, digest: str) -> bool:
        """Whether something that was asked about this case is not settled."""
        return any((one, of) == (group, digest) for one, of, _ in self._asked.values())

    def _ask(self, group: Group, digest: str, said: str, command: PostToLog | Say) -> Ask:
        ticket, self._next = self._next, self._next - 1
        self._asked[ticket] = group.id, digest, said
        return Ask(ticket, command)
