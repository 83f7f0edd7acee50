"""Sentences about what signatures prove in a group, and to whom.

`Name` sanitises a display name, `Clock` formats a time.
"""

from collections.abc import Sequence
from typing import Final

from zerochat.presentation import group_kinds
from zerochat.presentation.delivery import Clock, Name, name_list
from zerochat.rpc import Evidence, MessageEvidence, SignedBy, SignedStream

NAMES_MAX: Final = 8
"""More members are shown as a number."""

DENIABLE: Final = (
    "Messages in this group are not signed: recipients know the author, but you can deny a message until you sign your"
    " next membership event (a new name, a role, a vote, an admission, leaving). That event references all your earlier"
    " messages and makes them provable. In groups of the kinds `private` and `signed` every message can be proven."
)
OLDER: Final = (
    "This message is older than the upgrade of the keys, and not signed: recipients know the author, but it can be"
    " denied until the author signs its next membership event."
)
UNDENIABLE: Final = (
    f"{group_kinds.SIGNED} You can prove what others have written, and who has signed for your messages."
)
SIGNED_EVENTS: Final = (
    f"{group_kinds.SIGNED} Every member has the signatures, and `zerochat export` includes them. Acknowledgements are"
    " not signed: you cannot prove who has received a message."
)
CLOCKS: Final = "Times in a proof are from the signers' own clocks. A proof never shows that a member lacks a message."
PASSED_ON: Final = "Anyone who receives a proof can pass it on."


def of_group(found: Evidence) -> list[str]:
    """The meaning of signatures in this group, as sentences."""
    if found.signs:
        return [UNDENIABLE, CLOCKS]
    return [SIGNED_EVENTS, CLOCKS] if found.keys in group_kinds.SIGNING_KEYS else [DENIABLE]


def of_streams(found: Evidence, clock: Clock) -> list[tuple[SignedStream, str]]:
    """What each member has signed, without a full stop; ourselves first."""
    posted = bool(found.streams and found.streams[0].messages)
    return [(one, _of_stream(one, number == 0 or not posted, clock)) for number, one in enumerate(found.streams)]


def _of_stream(one: SignedStream, alone: bool, clock: Clock) -> str:
    """`alone`: there are no messages of ours to sign for."""
    count = f"{one.messages:,} signed message{'s' * (one.messages != 1)}"
    if not one.messages or one.last is None:
        text = "no signed messages"
    else:
        text = f"{count}, the last of {clock(one.last)}"
    if alone or one.gone:
        return text + ("; no longer a member" if one.gone else "")
    if one.signed_at is None:
        return f"{text}; has signed for none of yours"
    last = "one" if one.behind == 1 else f"{one.behind:,}"
    upto = "for all of yours" if not one.behind else f"for all of yours except the last {last}"
    return f"{text}; has signed {upto}, at {clock(one.signed_at)}"


def of_message(found: MessageEvidence, name: Name, clock: Clock) -> list[str]:
    """Who has signed for a message, and what that proves, as sentences."""
    mine = found.event.self
    who = "You" if mine else name(found.event.author.nick)
    match found.why:
        case "keys":
            return [DENIABLE]
        case "upgraded":
            return [OLDER]
        case "itself":
            have = "have" if mine else "has"
            where = "every member has the signature, and `zerochat export` includes it"
            return [f"{who} {have} signed it: {where}."]
        case "unheard" if mine:
            return ["The signed envelope of your message is no longer stored. You cannot prove it."]
        case "unheard":
            how = f"{who} sent it before you subscribed to the signed stream, or another member relayed it"
            return [f"The signed envelope of this message is not stored: {how}. You cannot prove it."]
    log = []
    if found.logged and found.logged_at:
        log.append(
            f"It is entry {found.logged:,} of the transparency log, cosigned by {clock(found.logged_at)}: from then on"
            " all recipients could fetch it from there."
        )
    if not mine:
        proof = f"You and every member who has it can prove that {who} wrote it, and its text"
        return [
            f"{who} has signed it. {proof}. {who} cannot deny it.",
            f"You cannot prove who else has it: members sign that to {who} only.",
            *log,
            CLOCKS,
            PASSED_ON,
        ]
    sentences = ["You have signed it: every member who has it can prove that you wrote it. You cannot deny it."]
    signed = _who(found.members, "signed", name)
    if signed:
        sentences.append(f"You can prove that {signed} {_have(found.members, 'signed')} it, by their signatures.")
    elif _named(found.members, "unshown"):
        sentences.append("You cannot prove that any member has it.")
    else:
        sentences.append("You cannot prove that any member has it: no signatures for it are stored.")
    if unshown := _who(found.members, "unshown", name):
        has = _have(found.members, "unshown")
        too = " too" if signed else ""
        sentences.append(f"{unshown} {has} signed for it{too}, but the stored data no longer proves it.")
    if unsigned := _who(found.members, "told", name):
        has = _have(found.members, "told")
        sentences.append(f"{unsigned} {has} acknowledged it without a signature, which proves nothing to others.")
    if none := _who(found.members, "none", name):
        sentences.append(f"It is unknown whether {none} received it; a missing signature does not prove the opposite.")
    return [*sentences, *log, CLOCKS, PASSED_ON]


def grade_of(one: SignedBy, clock: Clock) -> str:
    """What is known and provable about a member's receipt of a message."""
    match one.grade:
        case "signed":
            return f"has signed for it, at {clock(one.at)} by its clock" if one.at else "has signed for it"
        case "unshown":
            return "has signed for it, but that can no longer be proven"
        case "told":
            return "has received it; no signature"
        case _:
            return "unknown"


def _named(members: Sequence[SignedBy], grade: str) -> list[SignedBy]:
    return [one for one in members if one.grade == grade]


def _who(members: Sequence[SignedBy], grade: str, name: Name) -> str:
    return name_list((name(one.nick) for one in _named(members, grade)), NAMES_MAX)


def _have(members: Sequence[SignedBy], grade: str) -> str:
    return "has" if len(_named(members, grade)) == 1 else "have"
