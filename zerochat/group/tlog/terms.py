"""Who operates and who witnesses a group's log is said by itself, where nobody else says it.

Whoever may say it waits its turn: the eldest at once, the next one a minute later, and so on. By then it has mostly
heard that there are terms. Said too often, terms would fill the group's membership events, so everybody keeps a pause,
and who lets the log go on from another operator because an entry has no place waits twice as long each time that this
has led to nothing.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from zerochat.errors import LocalError, NotAMember, RemoteError
from zerochat.evidence.witness import WITNESSES_MIN
from zerochat.group.effects import Changed, Measure
from zerochat.group.event_log import log
from zerochat.group.event_log.event import TERMS
from zerochat.group.inputs import SetTerms
from zerochat.group.lookup import find_group, find_member
from zerochat.group.membership import ADMIN, OWNER, TermsBody, may_set_terms
from zerochat.group.state import Group, Log
from zerochat.group.tlog.adoption import current
from zerochat.group.transaction import Turn

RANK_MS = 60_000
"""So much longer than the one who is a little older in the group somebody waits."""
PAUSE_MS = 10 * 60_000
"""Between two terms of one author's that nobody has asked for."""
STALLED_MS, STALLED_MS_MAX = 5 * 60_000, 24 * 3_600_000
"""An entry that has had no place for so long needs another operator; twice as long after each time in vain."""


class NoLog(LocalError):
    """{group} keeps no log: it goes by acknowledgements alone. A group that shall keep one is made with
    `--kind accountable`."""


class NotTheseTerms(LocalError):
    """These cannot keep the log of {group}: {why}."""


def set_by_hand(turn: Turn, wanted: SetTerms) -> Changed:
    """Say who keeps the log from now on. Raises LocalError."""
    group = find_group(turn.agent, wanted.group)
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not group.view.ledger:
        raise NoLog(group=group.name)
    operator = find_member(group, wanted.operator)
    witnesses = tuple(dict.fromkeys(find_member(group, one) for one in wanted.witnesses))
    if len(witnesses) < WITNESSES_MIN:
        raise NotTheseTerms(group=group.name, why=f"it takes {WITNESSES_MIN} witnesses")
    ruled = group.view.policy.roles == "admins"
    body = TermsBody(operator, witnesses if ruled else group.view.eldest_witnesses)
    if not ruled and set(witnesses) != set(body.witnesses):
        these = ", ".join(group.view.members[one].label for one in body.witnesses) or "nobody yet"
        why = f"where all are equal, those witness who have been in it longest: {these}"
        raise NotTheseTerms(group=group.name, why=why)
    if not may_set_terms(group.view, group.me, body):
        why = "the owner and the admins say it" if ruled else "one of the witnesses operates it"
        raise NotTheseTerms(group=group.name, why=why)
    log.append(turn, group.id, TERMS, _as_json(body))
    return Changed(group.id)


def _as_json(body: TermsBody) -> dict[str, Any]:
    """As it is read back: with lists."""
    return {**to_builtins(body), "witnesses": list(body.witnesses)}


# --- by itself ------------------------------------------------------------------------------------------------------


def look(turn: Turn, name: str) -> None:
    """Say new terms if they are due, and it is our turn."""
    group = turn.group(name)
    why, body = _wanted(turn, group)
    if body is None or not may_set_terms(group.view, group.me, body):
        if group.terms_due != ("", 0):
            turn.edit(name, terms_due=("", 0))
        return
    if group.terms_due[0] != why or turn.now < group.terms_due[1]:  # a clock may have been set back
        turn.edit(name, terms_due=(why, turn.now))
        group = turn.group(name)
    said = [event.time for event in group.control.values() if event.type == TERMS and event.author == group.me]
    if turn.now < group.terms_due[1] + _rank(group) * RANK_MS or 0 <= turn.now - max(said, default=0) < PAUSE_MS:
        return
    before, effects = turn.agent, len(turn.effects)
    try:
        log.append(turn, name, TERMS, _as_json(body))
    except RemoteError as error:  # we may have said more than we know, or the group has too many such events
        turn.agent = before
        del turn.effects[effects:]
        turn.say(Measure("dropped", error.code))


def _rank(group: Group) -> int:
    """How many of those who may say it have been in the group for longer."""
    view = group.view
    able = [did for did in view.eldest if view.policy.roles != "admins" or view.members[did].role in (ADMIN, OWNER)]
    return able.index(group.me) if group.me in able else len(able)


def _wanted(turn: Turn, group: Group) -> tuple[str, TermsBody | None]:
    """Why there have to be new terms, and which; none where there need not be, or cannot."""
    view, terms = group.view, group.view.terms
    witnesses = view.eldest_witnesses
    if not witnesses:
        return "", None
    if terms is None:
        return "none", TermsBody(witnesses[0], witnesses)
    rules = terms.rules
    times = TermsBody(rules.operator, rules.witnesses, rules.ack_ms, rules.margin_ms, rules.skew_ms, rules.window_ms)
    if any(did not in view.members for did in rules.witnesses):
        return "gone", replace(times, witnesses=witnesses, operator=_still(rules.operator, witnesses))
    if view.policy.roles != "admins" and len(witnesses) > len(rules.witnesses):
        return "more", replace(times, witnesses=witnesses, operator=_still(rules.operator, witnesses))
    one = current(group)
    if one is not None and (one.split is not None or is_stalled(turn, group, one)):
        return f"operator {rules.operator}", replace(times, operator=_next(rules.operator, rules.witnesses))
    return "", None


def _still(operator: str, witnesses: Sequence[str]) -> str:
    return operator if operator in witnesses else witnesses[0]


def _next(operator: str, witnesses: Sequence[str]) -> str:
    """Whoever is behind the operator in the list of the witnesses."""
    place = witnesses.index(operator) + 1 if operator in witnesses else 0
    return witnesses[place % len(witnesses)]


def stalled_since(group: Group, one: Log) -> int | None:
    """Since when our oldest entry has had no place in this log, UTC ms; None: nothing of ours waits."""
    return min((mine.since for mine in one.mine.values()), default=None)


def is_stalled(turn: Turn, group: Group, one: Log) -> bool:
    """Whether it is for the operator to blame that an entry of ours has had no place for long: so many witnesses as it
    takes are there."""
    since = stalled_since(group, one)
    patience = min(STALLED_MS << min(group.stalls, 16), STALLED_MS_MAX)
    if since is None or turn.now < since + patience or one.rules.operator == group.me:
        return False
    there = sum(did == group.me or _is_there(turn, group, did) for did in one.rules.witnesses)
    return there >= one.rules.quorum.needed


def _is_there(turn: Turn, group: Group, member: str) -> bool:
    peer = group.peers.get(member)
    return peer is not None and (peer.link in turn.agent.up or 0 <= turn.now - peer.heard < STALLED_MS)
