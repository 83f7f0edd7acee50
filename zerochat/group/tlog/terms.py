"""Terms of the transparency log: its operator and witnesses, set by a command or proposed automatically.

Members propose in order of seniority: the eldest at once, the next one a minute later, and so on, by when it mostly has
the terms. Too frequent terms would fill the membership log, so each author pauses between them, and the delay before a
stalled operator is replaced doubles each time without success.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from zerochat.errors import LocalError, NotAMember
from zerochat.evidence.witness import WITNESSES_MIN
from zerochat.group.backoff import Backoff
from zerochat.group.effects import GroupChanged
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import TERMS
from zerochat.group.inputs import SetTlogTerms
from zerochat.group.lookup import find_group, find_member
from zerochat.group.membership import ADMIN, OWNER, TermsBody, may_set_terms
from zerochat.group.state import Group, TransparencyLog
from zerochat.group.tlog.adoption import current_tlog
from zerochat.group.transaction import Transaction

RANK_MS = 60_000
"""How much longer each next member in order of seniority waits."""
TERMS_INTERVAL_MS = 10 * 60_000
"""Between two automatic proposals of one author."""
STALLED = Backoff(5 * 60_000, 24 * 3_600_000)
"""An entry without a place for this long calls for another operator; doubled after each failure."""


class NoTlog(LocalError):
    """{group} has no transparency log: it uses acknowledgements only. To have one, create a group with `--kind
    accountable`."""


class InvalidTerms(LocalError):
    """These terms cannot be set in {group}: {why}."""


def set_terms(tx: Transaction, command: SetTlogTerms) -> GroupChanged:
    """Set the operator and the witnesses of the log from now on. Raises LocalError."""
    group = find_group(tx.agent, command.group)
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not group.view.has_tlog:
        raise NoTlog(group=group.name)
    operator = find_member(group, command.operator)
    witnesses = tuple(dict.fromkeys(find_member(group, one) for one in command.witnesses))
    if len(witnesses) < WITNESSES_MIN:
        raise InvalidTerms(group=group.name, why=f"at least {WITNESSES_MIN} witnesses are needed")
    ruled = group.view.policy.roles == "admins"
    body = TermsBody(operator, witnesses if ruled else group.view.eldest_witnesses)
    if not ruled and set(witnesses) != set(body.witnesses):
        these = ", ".join(group.view.members[one].label for one in body.witnesses) or "none yet"
        why = f"in a group without admins the longest-standing members are the witnesses: {these}"
        raise InvalidTerms(group=group.name, why=why)
    if not may_set_terms(group.view, group.me, body):
        why = "only the owner and the admins set the terms" if ruled else "the operator must be one of the witnesses"
        raise InvalidTerms(group=group.name, why=why)
    own_events.append(tx, group.id, TERMS, _as_json(body))
    return GroupChanged(group.id)


def _as_json(body: TermsBody) -> dict[str, Any]:
    """The JSON value that reads back equal: with lists."""
    return {**to_builtins(body), "witnesses": list(body.witnesses)}


# --- automatic proposals --------------------------------------------------------------------------------------------


def propose_terms(tx: Transaction, name: str) -> None:
    """Propose new terms if they are due, and it is our turn."""
    group = tx.group(name)
    why, body = _needed_terms(tx, group)
    if body is None or not may_set_terms(group.view, group.me, body):
        if group.tlogs.terms_due != ("", 0):
            tx.update_tlogs(name, terms_due=("", 0))
        return
    if group.tlogs.terms_due[0] != why or tx.now < group.tlogs.terms_due[1]:  # the clock may have been set back
        tx.update_tlogs(name, terms_due=(why, tx.now))
        group = tx.group(name)
    proposed_at = [event.time for event in group.control.values() if event.type == TERMS and event.author == group.me]
    if (
        tx.now < group.tlogs.terms_due[1] + _seniority(group) * RANK_MS
        or 0 <= tx.now - max(proposed_at, default=0) < TERMS_INTERVAL_MS
    ):
        return
    # We may have sent more than we remember, or the group may have too many membership events.
    with tx.attempt():
        own_events.append(tx, name, TERMS, _as_json(body))


def _seniority(group: Group) -> int:
    """How many permitted proposers have been in the group for longer."""
    view = group.view
    able = [did for did in view.eldest if view.policy.roles != "admins" or view.members[did].role in (ADMIN, OWNER)]
    return able.index(group.me) if group.me in able else len(able)


def _needed_terms(tx: Transaction, group: Group) -> tuple[str, TermsBody | None]:
    """The reason for new terms, and the terms; ("", None) where none are needed or possible."""
    view, terms = group.view, group.view.terms
    witnesses = view.eldest_witnesses
    if not witnesses:
        return "", None
    if terms is None:
        return "none", TermsBody(witnesses[0], witnesses)
    rules = terms.rules
    times = TermsBody(rules.operator, rules.witnesses, rules.ack_ms, rules.margin_ms, rules.skew_ms, rules.window_ms)
    if any(did not in view.members for did in rules.witnesses):
        return "gone", replace(times, witnesses=witnesses, operator=_operator_among(rules.operator, witnesses))
    if view.policy.roles != "admins" and len(witnesses) > len(rules.witnesses):
        return "more", replace(times, witnesses=witnesses, operator=_operator_among(rules.operator, witnesses))
    one = current_tlog(group)
    if one is not None and (one.split is not None or is_stalled(tx, group, one)):
        return f"operator {rules.operator}", replace(times, operator=_next_operator(rules.operator, rules.witnesses))
    return "", None


def _operator_among(operator: str, witnesses: Sequence[str]) -> str:
    return operator if operator in witnesses else witnesses[0]


def _next_operator(operator: str, witnesses: Sequence[str]) -> str:
    """The witness after the operator in the list."""
    place = witnesses.index(operator) + 1 if operator in witnesses else 0
    return witnesses[place % len(witnesses)]


def stalled_since(group: Group, one: TransparencyLog) -> int | None:
    """Since when our oldest pending entry has waited in this log, UTC ms; None: none is pending."""
    return min((mine.since for mine in one.pending.values()), default=None)


def is_stalled(tx: Transaction, group: Group, one: TransparencyLog) -> bool:
    """Whether the operator is to blame that an entry of ours has waited too long: a quorum of witnesses is present."""
    since = stalled_since(group, one)
    delay = STALLED.delay_ms(group.tlogs.stalled_terms)
    if since is None or tx.now < since + delay or one.rules.operator == group.me:
        return False
    there = sum(did == group.me or _is_present(tx, group, did) for did in one.rules.witnesses)
    return there >= one.rules.quorum.threshold


def _is_present(tx: Transaction, group: Group, member: str) -> bool:
    peer = group.links.peers.get(member)
    return peer is not None and (
        peer.link in tx.agent.links_up or 0 <= tx.now - peer.last_received_at < STALLED.base_ms
    )
