"""Retention rules: how long messages are kept; parser and sentences."""

import re
from typing import ClassVar, Final

from zerochat.errors import LocalError
from zerochat.limits import KEEP_MS_MAX, KEEP_MS_MIN
from zerochat.rpc import GroupInfo

FOREVER: Final = "forever"
COPIES: Final = (
    "Others may keep copies: in backups, exports, bots and modified clients, or as pictures of their screens."
)
"""What no retention rule can prevent."""
EVIDENCE: Final = "The group has a transparency log, and keeps its messages as evidence."
"""Why no retention rule applies to an accountable group."""
_UNITS: Final = {"h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NAMES: Final = (("week", 604_800_000), ("day", 86_400_000), ("hour", 3_600_000), ("millisecond", 1))
_SPAN = re.compile(r"(\d{1,5})([hdw])", re.ASCII)


class BadKeep(LocalError):
    """Invalid retention {given}: {why}."""

    exit_code: ClassVar[int] = 2


def read_keep(text: str) -> int:
    """The retention in ms, from 12h, 30d or 4w; 0: `forever`. Raises BadKeep."""
    if text == FOREVER:
        return 0
    match = _SPAN.fullmatch(text)
    keep_ms = int(match[1]) * _UNITS[match[2]] if match else 0
    if not KEEP_MS_MIN <= keep_ms <= KEEP_MS_MAX:
        raise BadKeep(given=ascii(text[:32]), why=f"it is {forms_text()}")
    return keep_ms


def check_keep(keep_ms: int) -> None:
    """Raise BadKeep for a retention (ms) that no group may have."""
    if keep_ms and not KEEP_MS_MIN <= keep_ms <= KEEP_MS_MAX:
        raise BadKeep(given=f"{keep_ms} ms", why=f"it is {range_text()}")


def range_text() -> str:
    """The shortest and the longest retention."""
    return f"{span_text(KEEP_MS_MIN)} to {span_text(KEEP_MS_MAX)}"


def forms_text() -> str:
    """What a user may type for a retention."""
    return f"a whole number of hours, days or weeks such as 12h, 30d or 4w, {range_text()}, or {FOREVER}"


def span_text(keep_ms: int) -> str:
    """A retention (ms) in words: 30 days."""
    if not keep_ms:
        return FOREVER
    # 30 days and 2 weeks are usual, 5 weeks are not.
    name, unit = next(one for one in _NAMES if keep_ms % one[1] == 0 and (one[0] != "week" or keep_ms <= 4 * one[1]))
    count = keep_ms // unit
    return f"{count:,} {name}" + ("s" if count != 1 else "")


def state_sentence(info: GroupInfo) -> str:
    """How long messages of a conversation stay here, and which of the three times that is."""
    if not info.keep:
        return "Messages here do not disappear." + (f" {EVIDENCE}" if info.accountability == "tlog" else "")
    which = f"The shortest of three times counts: {times_text(info)}."
    if info.keep == info.policy.keep:
        return f"Messages here disappear after {span_text(info.keep)}, for all members. {which} {COPIES}"
    others = f"keep them for {span_text(info.policy.keep)}" if info.policy.keep else "keep theirs"
    return (
        f"Messages here disappear from this machine after {span_text(info.keep)}. {which} Other members may {others}."
    )


def times_text(info: GroupInfo) -> str:
    """The three times that may apply, and which of them counts: group's rule 1 hour (counts), choice here 2 days (no
    effect), setting storage.keep none. Of several that are equal, the first counts."""
    times = (
        ("group's rule", info.policy.keep),
        ("choice here", info.keep_choice),
        ("setting storage.keep", info.keep_setting),
    )
    counting = next((name for name, keep_ms in times if keep_ms and keep_ms == info.keep), "")

    def effect(name: str, keep_ms: int) -> str:
        if not keep_ms:
            return "none"
        what = "counts" if name == counting else "the same" if keep_ms == info.keep else "no effect"
        return f"{span_text(keep_ms)} ({what})"

    return ", ".join(f"{name} {effect(name, keep_ms)}" for name, keep_ms in times)


def short_text(info: GroupInfo) -> str:
    """The same for a header; empty: they do not disappear."""
    return f"disappear after {span_text(info.keep)}" if info.keep else ""


def policy_text(keep_ms: int, here_ms: int = 0) -> str:
    """A group's rule, without a full stop. `here_ms`: the time that counts on this machine; 0: none."""
    if not keep_ms:
        return (
            "the group has no rule: each member keeps messages as it chooses"
            if here_ms
            else "messages do not disappear"
        )
    return f"messages disappear after {span_text(keep_ms)}, for all members; others may keep copies"
