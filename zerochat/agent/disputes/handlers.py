"""Request handlers of disputes: accuse a member, list cases, export a case."""

from collections.abc import Iterable
from typing import ClassVar, Final

from zerochat import rpc
from zerochat.agent.disputes import verdicts
from zerochat.agent.disputes.accusations import accuse
from zerochat.agent.disputes.case_builder import case_of
from zerochat.agent.disputes.case_files import stored_case
from zerochat.agent.disputes.tlog_reader import TlogReader, rules_of
from zerochat.agent.storage.disputes import POSTED, StoredCase
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.members import display_names
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, NotAMember
from zerochat.evidence.case import Case
from zerochat.group.lookup import find_author
from zerochat.group.state import Group
from zerochat.rpc import Author, CaseInfo, CasePart
from zerochat.rpc.common import timestamp

CASES_MAX: Final = 256
"""Cases in one response: the newest."""
PART_CHARS: Final = 512 * 1024
ID_CHARS_MIN: Final = 4


class NoSuchCase(LocalError):
    """No case {case} in {group}. `zerochat cases {group}` lists the cases."""


class AmbiguousCase(LocalError):
    """Several cases in {group} begin with {case}. Give more characters of the id."""


class CaseFileUnavailable(LocalError):
    """The evidence of case {case} has not arrived yet, so the case cannot be exported. The accuser sends it with the
    verdict."""

    retry: ClassVar = "later"


class CannotAccuseSelf(LocalError):
    """You cannot accuse yourself."""


def accuse_member(journal: Journal, group: Group, params: rpc.AccuseParams, now: int) -> CaseInfo:
    """Accuse a current or former member: store the accusation, which the dispute monitor posts to the log; with
    `check` only say that it is possible. `now`: UTC ms. Raises NotAMember, CannotAccuseSelf, or like `find_author` and
    `accuse`."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    member = find_author(group, params.member)
    if member == group.me:
        raise CannotAccuseSelf
    case_file = accuse(journal, journal.tlog, group, member, now)
    rules = rules_of(journal.tlog, group.id, case_file.subscription[1].rules)
    assert rules is not None, "or it could not be accused"
    new = stored_case(case_file.accusation, rules.origin, case_file, now)
    if params.check:
        return _info(journal, journal.tlog, group, new, [])
    journal.cases.add(group.id, new)
    found = journal.cases.find(group.id, case_file.digest)
    assert found is not None
    return _info(journal, journal.tlog, group, found, [])


def case_infos(journal: Journal, group: Group) -> list[CaseInfo]:
    """The cases of a group, oldest first."""
    announced = verdicts.received_verdicts(journal, group)
    return [
        _info(journal, journal.tlog, group, one, announced) for one in journal.cases.all_cases(group.id)[-CASES_MAX:]
    ]


def convictions(journal: Journal, group: Group) -> dict[str, list[str]]:
    """Own guilty verdicts by member."""
    found: dict[str, list[str]] = {}
    for one in journal.cases.proven_cases(group.id):
        of_one = found.setdefault(one.accused, [])
        if one.verdict not in of_one:
            of_one.append(one.verdict)
    return found


def case_part(journal: Journal, group: Group, params: rpc.CaseParams) -> CasePart:
    """A part of an exported case. Raises NoSuchCase, AmbiguousCase, CaseFileUnavailable, or like `case_of`."""
    encoded = load_case(journal, group, params.case).serialize().decode()
    digest = b64url(sha256(encoded.encode()))
    return CasePart(encoded[params.after : params.after + PART_CHARS], len(encoded), digest)


def load_case(journal: Journal, group: Group, id_prefix: str) -> Case:
    """The complete case with this id prefix. Raises like `case_part`."""
    cases = journal.cases.all_cases(group.id)
    found = [one for one in cases if one.digest.startswith(id_prefix)] if len(id_prefix) >= ID_CHARS_MIN else []
    if not found:
        raise NoSuchCase(case=ascii(id_prefix[:43])[1:-1], group=group.name)
    if len(found) > 1:
        raise AmbiguousCase(case=id_prefix, group=group.name)
    case, tlog = found[0], journal.tlog
    made = _equivocation_case(journal, group, case) if not case.origin else None
    announced = verdicts.received_verdicts(journal, group)
    case_file = verdicts.case_file_of(tlog, group.id, case, announced) if case.origin else None
    rules = rules_of(tlog, group.id, case_file.subscription[1].rules) if case_file is not None else None
    if case_file is not None and rules is not None:
        made = case_of(tlog, group.id, rules, case_file)
    if made is None:
        raise CaseFileUnavailable(case=case.digest[:8])
    return made


def _equivocation_case(journal: Journal, group: Group, case: StoredCase) -> Case | None:
    own = (
        one for one in journal.signed_messages.equivocations(group.id) if verdicts.pair_digest(one.pair) == case.digest
    )
    found = next((made for one in own if (made := verdicts.equivocation_case(journal, group, one)) is not None), None)
    announced = (one.verdict for one in verdicts.received_verdicts(journal, group) if one.verdict.target == case.digest)
    return found or next(
        (made for one in announced if (made := verdicts.equivocation_case_in(one, group.id)) is not None), None
    )


def _info(
    journal: Journal, tlog: TlogReader, group: Group, case: StoredCase, announced: Iterable[verdicts.ReceivedVerdict]
) -> CaseInfo:
    rules = next((one for one in tlog.all_rules(group.id) if one.origin == case.origin), None)
    until = case.filed + rules.window_ms if case.filed and rules is not None else None
    state: rpc.CaseState = "decided" if case.verdict else "waiting"
    if not case.verdict and rules is not None and until is not None:
        state = "over" if tlog.checkpoint_after(group.id, rules.origin, until) is not None else "open"
    return CaseInfo(
        group=group.id,
        id=case.digest,
        accuser=_author(group, case.accuser),
        accused=_author(group, case.accused) if case.accused else None,
        mine="accused" if case.accused == group.me else "accuser" if case.accuser == group.me else "",
        state=state,
        filed_at=timestamp(case.filed) if case.filed else None,
        until=timestamp(until) if until is not None else None,
        answers=[one.ground for one in journal.cases.defences(group.id, case.digest) if one.state == POSTED],
        verdict=case.verdict,
        announced=[
            rpc.AnnouncedVerdict(_author(group, one.author), one.verdict.outcome, _agrees(case, one.verdict.outcome))
            for one in announced
            if one.verdict.target == case.digest
        ],
    )


def _author(group: Group, did: str) -> Author:
    return Author(did, display_names(group).get(did, ""))


def _agrees(case: StoredCase, outcome: str) -> bool | None:
    return outcome == case.verdict if case.verdict else None
