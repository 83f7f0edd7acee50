"""Verdicts: the outcome of an accusation or of two conflicting messages, as a member announces it.

A verdict is not a decision: every member recomputes it from the log and the attached evidence
(`agent/disputes/verdicts.py`).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from zerochat.crypto.encoding import compact_json
from zerochat.errors import LocalError, Malformed
from zerochat.evidence.judge import DISMISSED, FALSE_ACCUSATION, FORKED, REPEATED, TIME_REVERSED, UPHELD, VOID
from zerochat.group.event_log.event import HEADER_BYTES_MAX, RECORD_BYTES_MAX, VERDICT

OUTCOMES: Final = frozenset({UPHELD, DISMISSED, REPEATED, FALSE_ACCUSATION, VOID, FORKED, TIME_REVERSED})
VERDICT_BYTES_MAX: Final = RECORD_BYTES_MAX - HEADER_BYTES_MAX
"""The body, as JSON."""
_DIGEST = re.compile("[A-Za-z0-9_-]{43}")
_DID = re.compile("did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}")


class BadVerdict(LocalError):
    """This verdict cannot be announced: {why}."""


class Verdict(Struct, frozen=True):
    """The outcome of a case."""

    target: str
    """The digest of the accusation, or else of the two messages."""
    outcome: str
    """One of OUTCOMES."""
    member: str
    """The DID of the accused or convicted member."""
    evidence: Mapping[str, Any]
    """Evidence that others need to recompute it and may lack: subscription statements, a message."""

    kind = VERDICT

    @property
    def body(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "outcome": self.outcome,
            "member": self.member,
            "evidence": dict(self.evidence),
        }


def verdict_error(verdict: Verdict) -> str:
    """The fault of a verdict, or an empty string."""
    if verdict.outcome not in OUTCOMES:
        return "the outcome is unknown"
    if not _DIGEST.fullmatch(verdict.target) or not _DID.fullmatch(verdict.member):
        return "the case or the member is invalid"
    if len(compact_json(verdict.body)) > VERDICT_BYTES_MAX:
        return f"it exceeds {VERDICT_BYTES_MAX} bytes"
    return ""


def read_verdict(body: Mapping[str, Any]) -> Verdict:
    """A received verdict. Raises Malformed."""
    match body:
        case {"target": str(target), "outcome": str(outcome), "member": str(member), "evidence": dict(evidence)}:
            found = Verdict(target, outcome, member, evidence)
            if not verdict_error(found):
                return found
    raise Malformed(why="verdict: invalid")
