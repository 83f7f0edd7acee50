"""Dispute monitor: scans transparency logs, defends this profile, judges cases and announces verdicts.

Runs between batches, outside the core: its actions are ordinary commands, and its state is on disk before. A defence is
built once and reposted byte for byte after a restart, so the log deduplicates it.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from zerochat.agent.disputes import verdicts
from zerochat.agent.disputes.case_files import CaseFile, case_file_against_us, charge_of, stored_case
from zerochat.agent.disputes.defences import defences, parse_accusation
from zerochat.agent.disputes.tlog_reader import TlogReader, entries_from
from zerochat.agent.storage.disputes import MADE, POSTED, REFUSED, StoredCase, StoredDefence
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, RemoteError, ZerochatError
from zerochat.evidence.case import ENTRIES_MAX, Rules
from zerochat.evidence.judge import UPHELD
from zerochat.evidence.witness import entry_of, is_kind, parse_entry
from zerochat.group.effects import CommandDone, CommandFailed, Effect, Notify, StoreConflictingMessage, StoreEvent
from zerochat.group.event_log.event import VERDICT
from zerochat.group.inputs import CommandInput, SendContent, SubmitTlogEntry
from zerochat.group.notifications import TlogExtended
from zerochat.group.state import Agent, Group

REVIEW_MS: Final = 20_000
"""Interval at which open cases are reviewed: an acknowledgement may have arrived, or a defence window closed."""
FIRST_TICKET: Final = -1
"""Its commands have negative tickets, unlike those of clients."""


class DisputeMonitor:
    """Owned by the agent thread."""

    def __init__(self, journal: Journal, log: logging.Logger, tlog: TlogReader | None = None) -> None:
        self._journal, self._log = journal, log
        self._tlog: TlogReader = journal.tlog if tlog is None else tlog
        self._next_ticket = FIRST_TICKET
        self._pending: dict[int, tuple[str, str, str]] = {}
        """Pending commands by ticket: group, digest of the accusation, ground or verdict."""
        self._changed: set[str] = set()
        """Groups to review."""
        self._due_ms = 0
        self._started = False

    def observe(self, effects: Iterable[Effect]) -> None:
        """Note the groups that the core's effects concern."""
        for one in effects:
            match one:
                case Notify(TlogExtended(group)):
                    self._changed.add(group)
                case StoreConflictingMessage(group):
                    self._changed.add(group)
                case StoreEvent() if one.type == VERDICT:
                    self._changed.add(one.group)

    def schedule(self, group: str) -> None:
        """Review this group soon."""
        self._changed.add(group)

    def owns(self, ticket: int) -> bool:
        return ticket in self._pending

    def settle(self, effect: CommandDone | CommandFailed) -> None:
        """Store the result of an own command."""
        group, digest, content = self._pending.pop(effect.ticket)
        try:
            self._store_result(effect, group, digest, content)
        except LocalError as error:  # repeating the command is harmless
            self._log.error("the result of a dispute command could not be stored: %s", error.code)

    def rolled_back(self, ask: CommandInput) -> None:
        """The batch with this command was rolled back."""
        self._pending.pop(ask.ticket, None)

    def _store_result(self, effect: CommandDone | CommandFailed, group: str, digest: str, content: str) -> None:
        state = POSTED
        if isinstance(effect, CommandFailed):
            self._log.info("a dispute command was refused: %s", effect.error.code)
            state = REFUSED if effect.error.retry == "never" else MADE
        answer = next((one for one in self._journal.cases.defences(group, digest) if one.ground == content), None)
        if answer is not None:
            self._journal.cases.put_defence(group, digest, replace(answer, state=state))
        elif content and state == POSTED:
            self._journal.cases.set_announced(group, digest, content)

    def review(self, agent: Agent, now: int) -> list[CommandInput]:
        """Commands to execute now (`now`: UTC ms). A failure in one case does not affect the others; it is retried at
        the next review."""
        everything = not self._started or not 0 <= self._due_ms - now <= REVIEW_MS
        names = set(agent.groups) if everything else self._changed & set(agent.groups)
        self._changed = set()
        if everything:
            self._started, self._due_ms = True, now + REVIEW_MS
        commands: list[CommandInput] = []
        for name in sorted(names):
            group = agent.groups[name]
            if group.mode.signs and group.state == "active":
                commands += self._review_group(group, now)
        return commands

    @contextmanager
    def _isolated(self) -> Iterator[None]:
        """Contain failures of one case. Commands issued before still execute; their tickets would stay pending."""
        try:
            yield
        except ZerochatError as error:
            self._log.error("a case could not be reviewed: %s", error.code)
        except Exception:  # noqa: BLE001  # an accuser who triggers a bug must not prevent other defences
            self._log.exception("an internal error while reviewing a case")

    def _review_group(self, group: Group, now: int) -> Iterator[CommandInput]:
        with self._isolated():
            for rules in self._tlog.all_rules(group.id):
                with self._isolated():
                    self._scan(group, rules, now)
            announced = verdicts.received_verdicts(self._journal, group)
            for case in self._journal.cases.open_cases(group.id):
                with self._isolated():
                    yield from self._review_case(group, case, announced)
            yield from self._review_equivocations(group, announced, now)

    # --- accusations in the log -------------------------------------------------------------------------------------

    def _scan(self, group: Group, rules: Rules, now: int) -> None:
        """Scan new log entries. Stops at an accusation whose blob is missing, for at most ENTRIES_MAX entries."""
        read, size = self._journal.cases.entries_read(group.id, rules.origin), self._tlog.size(group.id, rules.origin)
        reached = read
        for place, record in entries_from(self._tlog, group.id, rules.origin, read, size):
            here = not is_kind(record, "accusation") or self._try_file(group, rules, record, now)
            if not here and size - place <= ENTRIES_MAX:
                break
            reached = place + 1
        if reached != read:
            self._journal.cases.set_entries_read(group.id, rules.origin, reached)

    def _try_file(self, group: Group, rules: Rules, record: bytes, now: int) -> bool:
        """Store a logged accusation; False: its blob is missing. A malformed one is skipped, so that it does not block
        later ones."""
        try:
            return self._file(group, rules, record, now)
        except RemoteError as error:
            self._log.error("a malformed accusation was skipped: %s", error.code)
            return True

    def _file(self, group: Group, rules: Rules, record: bytes, now: int) -> bool:
        entry = parse_entry(record)
        blob = self._tlog.blob(group.id, entry.hash)
        if blob is None:
            return False
        accusation = parse_accusation(blob)
        if accusation is not None and accusation.accuser == entry.author:
            charge, ours = (
                charge_of(self._journal, group, accusation),
                case_file_against_us(self._journal, group, accusation),
            )
            if charge is not None and charge.accept.rules != rules.digest:
                return True  # void in this log; it may still be filed in the right one, and is answered there
            receipt = self._tlog.receipt(group.id, rules.origin, record, accusation.log_size)
            if receipt is None:
                return True  # logged before its `since`: void, and it may be logged again later
            filed = receipt.posted_ms(entry, rules.quorum)
            case = replace(stored_case(accusation, rules.origin, ours, now), filed=filed)
            self._journal.cases.add(group.id, case if charge is None else replace(case, accused=group.me))
        return True

    # --- one case ---------------------------------------------------------------------------------------------------

    def _review_case(
        self, group: Group, case: StoredCase, announced: list[verdicts.ReceivedVerdict]
    ) -> Iterator[CommandInput]:
        case_file = verdicts.case_file_of(self._tlog, group.id, case, announced)
        rules = next((one for one in self._tlog.all_rules(group.id) if one.origin == case.origin), None)
        if rules is not None and case.accused == group.me and not case.verdict:
            yield from self._defend(group, rules, case)
        if case_file is None or rules is None:
            return
        if case.accuser == group.me and not case.verdict:
            yield from self._repost(group, rules, case_file)
        outcome = case.verdict or verdicts.judge_case_file(self._tlog, group.id, case_file)
        if outcome and not case.verdict:
            self._journal.cases.set_verdict(group.id, case.digest, outcome, case_file.accused)
            if outcome == UPHELD:
                self._log.warning("a case was upheld: a member withheld a message")
        if outcome and case.announced != outcome and case.accuser == group.me:
            yield self._command(
                group, case.digest, outcome, SendContent(group.id, verdicts.verdict_on(case_file, outcome))
            )
        elif outcome and case.announced != outcome:
            self._journal.cases.set_announced(group.id, case.digest, outcome)  # announced by the accuser

    def _defend(self, group: Group, rules: Rules, case: StoredCase) -> Iterator[CommandInput]:
        """Post the strongest defence that the log has not refused; a stored one is posted unchanged."""
        known = {one.ground: one for one in self._journal.cases.defences(group.id, case.digest)}
        if any(one.state == POSTED for one in known.values()) or self._is_pending(group.id, case.digest):
            return
        answer = next((one for one in known.values() if one.state == MADE), None)
        blob = self._tlog.blob(group.id, case.digest) if answer is None else None
        accusation = parse_accusation(blob) if blob is not None else None
        charge = charge_of(self._journal, group, accusation) if accusation is not None else None
        if charge is not None:
            for ground, encoded in defences(self._journal, self._tlog, group, rules, charge):
                if ground not in known:
                    answer = StoredDefence(ground, encoded, MADE)
                    self._journal.cases.put_defence(group.id, case.digest, answer)
                    break
        if answer is not None:
            command = SubmitTlogEntry(group.id, "defence", answer.blob, case.digest, rules.origin)
            yield self._command(group, case.digest, answer.ground, command)

    def _repost(self, group: Group, rules: Rules, case_file: CaseFile) -> Iterator[CommandInput]:
        """Post an own accusation that is not in the log yet."""
        accusation = case_file.accusation
        record = entry_of("accusation", accusation.accuser, accusation.serialize()).record()
        log = group.tlogs.by_name.get(rules.origin)
        waits = log is not None and b64url(sha256(record)) in log.pending
        here = self._tlog.receipt(group.id, rules.origin, record, accusation.log_size) is not None
        if not waits and not here and not self._is_pending(group.id, case_file.digest):
            command = SubmitTlogEntry(group.id, "accusation", accusation.serialize(), origin=rules.origin)
            yield self._command(group, case_file.digest, "", command)

    # --- equivocation -----------------------------------------------------------------------------------------------

    def _review_equivocations(
        self, group: Group, announced: list[verdicts.ReceivedVerdict], now: int
    ) -> Iterator[CommandInput]:
        """Verify equivocations announced by others and announce those that only this profile has seen."""
        known = {(one.accused, one.verdict) for one in self._journal.cases.all_cases(group.id) if not one.origin}
        for one in announced:
            conviction = one.verdict.member, one.verdict.outcome
            if conviction not in known and verdicts.conviction_in(one.verdict, group.id) == one.verdict.outcome:
                self._store_conviction(group, one.verdict.target, one.author, conviction, now)
                self._journal.cases.set_announced(group.id, one.verdict.target, one.verdict.outcome)
                known.add(conviction)
        for rivals in self._journal.signed_messages.equivocations(group.id):
            outcome, digest = verdicts.pair_outcome(rivals.pair), verdicts.pair_digest(rivals.pair)
            if (rivals.author, outcome) not in known:
                self._store_conviction(group, digest, group.me, (rivals.author, outcome), now)
                self._log.warning("a member equivocated: %s", outcome)
            case = self._journal.cases.find(group.id, digest)
            if case is None or case.announced or self._is_pending(group.id, digest):
                continue
            verdict = verdicts.equivocation_verdict(self._journal, group, rivals)
            if verdict is None:
                self._journal.cases.set_announced(group.id, digest, outcome)  # the user has the case as a file
            else:
                yield self._command(group, digest, outcome, SendContent(group.id, verdict))

    def _store_conviction(self, group: Group, digest: str, by: str, against: tuple[str, str], now: int) -> None:
        accused, outcome = against
        self._journal.cases.add(group.id, StoredCase(digest, "", by, accused, "", "", b"", now))
        self._journal.cases.set_verdict(group.id, digest, outcome, accused)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_pending(self, group: str, digest: str) -> bool:
        """Whether a command about this case is pending."""
        return any((one, of) == (group, digest) for one, of, _ in self._pending.values())

    def _command(self, group: Group, digest: str, content: str, command: SubmitTlogEntry | SendContent) -> CommandInput:
        ticket, self._next_ticket = self._next_ticket, self._next_ticket - 1
        self._pending[ticket] = group.id, digest, content
        return CommandInput(ticket, command)
