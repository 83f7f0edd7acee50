"""Cases as the control protocol tells them: accusing somebody, the list, and one as a file."""

from collections.abc import Iterable
from typing import ClassVar, Final

from zerochat import rpc
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.disputes import verdicts
from zerochat.agent.disputes.accusations import accuse
from zerochat.agent.disputes.case_builder import case_of
from zerochat.agent.disputes.case_files import kept
from zerochat.agent.disputes.tlog_reader import Book, rules_of
from zerochat.agent.storage.disputes import POSTED, KeptCase
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.core_state import labels
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, NotAMember
from zerochat.evidence.case import Case
from zerochat.group.lookup import find_author
from zerochat.group.state import Group
from zerochat.rpc import Author, CaseInfo, CasePart

CASES_MAX: Final = 256
"""In one answer: the newest."""
PART_CHARS: Final = 512 * 1024
ID_CHARS_MIN: Final = 4


class NoSuchCase(LocalError):
    """There is no case {case} in {group}. `zerochat cases {group}` lists them."""


class AmbiguousCase(LocalError):
    """More than one case in {group} begins with {case}. Give more letters of its id."""


class NotShown(LocalError):
    """Nobody has shown here yet what the case {case} is about, so it cannot be put together: whoever has accused tells
    that with the verdict."""

    retry: ClassVar = "later"


class Accusing(LocalError):
    """You cannot accuse yourself."""


def begin(journal: Journal, group: Group, params: rpc.AccuseParams, now: int) -> CaseInfo:
    """Accuse somebody who is a member, or has been one: the accusation is kept, and goes into the log as soon as the
    agent gets to it. Raises NotAMember, Accusing, or as `find_author` and `links.accuse` do."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    member = find_author(group, params.member)
    if member == group.me:
        raise Accusing
    docket = accuse(journal, journal.logbook, group, member, now)
    rules = rules_of(journal.logbook, group.id, docket.subscription[1].rules)
    assert rules is not None, "or it could not be accused"
    journal.cases.begin(group.id, kept(docket.accusation, rules.origin, docket, now))
    found = journal.cases.one(group.id, docket.digest)
    assert found is not None
    return _info(journal, journal.logbook, group, found, [])


def infos(journal: Journal, group: Group) -> list[CaseInfo]:
    """The cases of a group, the oldest first."""
    told = verdicts.told_in(journal, group)
    return [_info(journal, journal.logbook, group, one, told) for one in journal.cases.all(group.id)[-CASES_MAX:]]


def guilty(journal: Journal, group: Group) -> dict[str, list[str]]:
    """By member: what it was found guilty of, as we have worked it out."""
    found: dict[str, list[str]] = {}
    for one in journal.cases.guilty(group.id):
        of_one = found.setdefault(one.accused, [])
        if one.verdict not in of_one:
            of_one.append(one.verdict)
    return found


def part(journal: Journal, group: Group, params: rpc.CaseParams) -> CasePart:
    """A part of a case's file. Raises NoSuchCase, AmbiguousCase, NotShown, or as `making.case_of` does."""
    written = whole(journal, group, params.case).written().decode()
    digest = b64url(sha256(written.encode()))
    return CasePart(written[params.after : params.after + PART_CHARS], len(written), digest)


def whole(journal: Journal, group: Group, wanted: str) -> Case:
    """A case as a file has it. Raises as `part`."""
    cases = journal.cases.all(group.id)
    found = [one for one in cases if one.digest.startswith(wanted)] if len(wanted) >= ID_CHARS_MIN else []
    if not found:
        raise NoSuchCase(case=ascii(wanted[:43])[1:-1], group=group.name)
    if len(found) > 1:
        raise AmbiguousCase(case=wanted, group=group.name)
    case, book = found[0], journal.logbook
    made = _of_two(journal, group, case) if not case.origin else None
    told = verdicts.told_in(journal, group)
    docket = verdicts.docket_of(book, group.id, case, told) if case.origin else None
    rules = rules_of(book, group.id, docket.subscription[1].rules) if docket is not None else None
    if docket is not None and rules is not None:
        made = case_of(book, group.id, rules, docket)
    if made is None:
        raise NotShown(case=case.digest[:8])
    return made


def _of_two(journal: Journal, group: Group, case: KeptCase) -> Case | None:
    own = (one for one in journal.signed.rivals(group.id) if verdicts.digest_of(one.pair) == case.digest)
    found = next((made for one in own if (made := verdicts.case_of_two(journal, group, one)) is not None), None)
    told = (one.verdict for one in verdicts.told_in(journal, group) if one.verdict.of == case.digest)
    return found or next((made for one in told if (made := verdicts.case_told(one, group.id)) is not None), None)


def _info(journal: Journal, book: Book, group: Group, case: KeptCase, told: Iterable[verdicts.Told]) -> CaseInfo:
    rules = next((one for one in book.origins(group.id) if one.origin == case.origin), None)
    until = case.filed + rules.window_ms if case.filed and rules is not None else None
    state: rpc.CaseState = "decided" if case.verdict else "waiting"
    if not case.verdict and rules is not None and until is not None:
        state = "over" if book.note_after(group.id, rules.origin, until) is not None else "open"
    return CaseInfo(
        group=group.id,
        id=case.digest,
        accuser=_author(group, case.accuser),
        accused=_author(group, case.accused) if case.accused else None,
        mine="accused" if case.accused == group.me else "accuser" if case.accuser == group.me else "",
        state=state,
        filed_at=timestamp(case.filed) if case.filed else None,
        until=timestamp(until) if until is not None else None,
        answers=[one.ground for one in journal.cases.answers(group.id, case.digest) if one.state == POSTED],
        verdict=case.verdict,
        told=[
            rpc.ToldVerdict(_author(group, one.author), one.verdict.outcome, _agrees(case, one.verdict.outcome))
            for one in told
            if one.verdict.of == case.digest
        ],
    )


def _author(group: Group, did: str) -> Author:
    return Author(did, labels(group).get(did, ""))


def _agrees(case: KeptCase, outcome: str) -> bool | None:
    return outcome == case.verdict if case.verdict else None
