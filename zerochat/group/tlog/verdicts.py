"""A verdict that a member tells the others: what comes of an accusation, or of two signed messages that cannot both be.

It is nobody's decision: everybody works it out again from the log and from what is shown here, and believes that
(`agent/disputes/verdicts.py`).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from zerochat.crypto.encoding import compact_json
from zerochat.errors import LocalError, Malformed
from zerochat.evidence.judge import DISMISSED, FALSE_ACCUSATION, FORKED, REPEATED, TURNED_BACK, UPHELD, VOID
from zerochat.group.event_log.event import HEADER_BYTES_MAX, RECORD_BYTES_MAX, VERDICT

OUTCOMES: Final = frozenset({UPHELD, DISMISSED, REPEATED, FALSE_ACCUSATION, VOID, FORKED, TURNED_BACK})
VERDICT_BYTES_MAX: Final = RECORD_BYTES_MAX - HEADER_BYTES_MAX
"""Of its body, as JSON."""
_DIGEST = re.compile("[A-Za-z0-9_-]{43}")
_DID = re.compile("did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}")


class BadVerdict(LocalError):
    """This cannot be told as a verdict: {why}."""


class Verdict(Struct, frozen=True):
    """What comes of a case."""

    of: str
    """The digest of the accusation; where there is none, that of the two messages."""
    outcome: str
    """One of OUTCOMES."""
    against: str
    """The DID of the member who was accused, or is convicted."""
    shown: Mapping[str, Any]
    """What others need to work it out and may not have: statements about the subscription, a message."""

    kind = VERDICT

    @property
    def body(self) -> dict[str, Any]:
        return {"of": self.of, "outcome": self.outcome, "against": self.against, "shown": dict(self.shown)}


def fault_of_verdict(what: Verdict) -> str:
    """What is wrong with it, or nothing."""
    if what.outcome not in OUTCOMES:
        return "there is no such outcome"
    if not _DIGEST.fullmatch(what.of) or not _DID.fullmatch(what.against):
        return "it is about nothing"
    if len(compact_json(what.body)) > VERDICT_BYTES_MAX:
        return f"it has at most {VERDICT_BYTES_MAX} bytes"
    return ""


def read_verdict(body: Mapping[str, Any]) -> Verdict:
    """What a member tells. Raises Malformed."""
    match body:
        case {"of": str(of), "outcome": str(outcome), "against": str(against), "shown": dict(shown)}:
            found = Verdict(of, outcome, against, shown)
            if not fault_of_verdict(found):
                return found
    raise Malformed(why="verdict: none that anybody could work out")
