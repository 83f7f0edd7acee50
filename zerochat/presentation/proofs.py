"""What can be proven in a group, in sentences: to whom, and what not.

Only the vocabulary of the control protocol is needed for this, so every face can use it. `Name` makes a nick fit to be
shown, `Clock` a time.
"""

from collections.abc import Sequence
from typing import Final

from zerochat.presentation import group_rules
from zerochat.presentation.delivery import Clock, Name
from zerochat.rpc import Evidence, MessageEvidence, SignedBy, SignedStream

NAMES_MAX: Final = 8
"""More members than these are counted and not named."""

DENIABLE: Final = (
    "No message here is signed by itself: whoever reads one knows who wrote it, and you can deny it until you next sign"
    " something about who is in (a new name, a role, a vote, letting somebody in, leaving). That names all that you had"
    " said by then, and whoever has both can show it. Groups whose keys sign (`signed`) have proofs of each message."
)
UNDENIABLE: Final = (
    f"{group_rules.SIGNED} You can show what others have said, and who has signed that they have what you said."
)
CLOCKS: Final = "A proof says when only by the signers' own clocks, and never that somebody lacks a message."
PASSED_ON: Final = "Whoever is given a proof can pass it on."


def of_group(found: Evidence) -> list[str]:
    """What signatures mean here, in sentences."""
    return [UNDENIABLE, CLOCKS] if found.signs else [DENIABLE]


def of_streams(found: Evidence, clock: Clock) -> list[tuple[SignedStream, str]]:
    """What each member has signed, behind its name, without a full stop; ours is the first."""
    spoken = bool(found.streams and found.streams[0].messages)
    return [(one, _of_stream(one, number == 0 or not spoken, clock)) for number, one in enumerate(found.streams)]


def _of_stream(one: SignedStream, alone: bool, clock: Clock) -> str:
    """`alone`: there is nothing of ours that it could have signed for."""
    count = f"{one.messages:,} signed message{'s' * (one.messages != 1)} here"
    if not one.messages or one.last is None:
        said = "no signed message here"
    else:
        said = f"{count}, the last of {clock(one.last)}"
    if alone or one.gone:
        return said + ("; no longer a member" if one.gone else "")
    if one.signed_at is None:
        return f"{said}; has signed for nothing of yours"
    last = "one" if one.behind == 1 else f"{one.behind:,}"
    upto = "for all of yours" if not one.behind else f"for yours but the last {last}"
    return f"{said}; has signed {upto}, at {clock(one.signed_at)}"


def of_message(found: MessageEvidence, name: Name, clock: Clock) -> list[str]:
    """Who has signed for a message, and what that proves to whom, in sentences."""
    mine = found.event.self
    who = "You" if mine else name(found.event.author.nick)
    match found.why:
        case "keys":
            return [DENIABLE]
        case "itself":
            have = "have" if mine else "has"
            where = "every member has the signature, and `zerochat export` writes it"
            return [f"{who} {have} signed it by itself, as all that is said of who is in the group: {where}."]
        case "unheard" if mine:
            return ["The signed message in which you said it is not here any more. You can prove it to nobody."]
        case "unheard":
            how = f"{who} said it before you could hear what is signed, or somebody else has handed it over"
            return [f"The signed message that brought it is not here: {how}. You can prove it to nobody."]
    log = []
    if found.logged and found.logged_at:
        log.append(
            f"It stands in the group's log, in place {found.logged:,}, cosigned by {clock(found.logged_at)}: from then"
            " on everybody whom it is for could have it from there."
        )
    if not mine:
        shown = f"You can show anybody that {who} wrote it, and what it says; so can every member who has it"
        return [
            f"{who} has signed it. {shown}. {who} cannot deny it.",
            f"Who else has it, you cannot show: they sign that to {who} alone.",
            *log,
            CLOCKS,
            PASSED_ON,
        ]
    told = ["You have signed it: every member who has it can show anybody that you wrote it. You cannot deny it."]
    signed = _who(found.members, "signed", name)
    if signed:
        told.append(f"You can show anybody that {signed} {_have(found.members, 'signed')} it: by their signatures.")
    elif _named(found.members, "unshown"):
        told.append("You cannot show that anybody has it.")
    else:
        told.append("You cannot show that anybody has it: nobody's signature for it is here.")
    if unshown := _who(found.members, "unshown", name):
        has = _have(found.members, "unshown")
        too = " too" if signed else ""
        told.append(f"{unshown} {has} signed for it{too}, and what is kept here does not show it any more.")
    if heard := _who(found.members, "told", name):
        has = _have(found.members, "told")
        told.append(f"{heard} {has} it by an unsigned word, which you know and nobody else needs to believe.")
    if none := _who(found.members, "none", name):
        told.append(f"Of {none} it is not known, and a missing signature does not prove that they lack it.")
    return [*told, *log, CLOCKS, PASSED_ON]


def grade_of(one: SignedBy, clock: Clock) -> str:
    """How far it can be shown that a member has a message, behind its name."""
    match one.grade:
        case "signed":
            return f"has signed for it, at {clock(one.at)} by its clock" if one.at else "has signed for it"
        case "unshown":
            return "has signed for it, and that can no longer be shown"
        case "told":
            return "has it; no signature"
        case _:
            return "not known to have it"


def _named(members: Sequence[SignedBy], grade: str) -> list[SignedBy]:
    return [one for one in members if one.grade == grade]


def _who(members: Sequence[SignedBy], grade: str, name: Name) -> str:
    found = _named(members, grade)
    if len(found) > NAMES_MAX:
        return f"{len(found)} members"
    if not found:
        return ""
    *first, last = (name(one.nick) for one in found)
    return f"{', '.join(first)} and {last}" if first else last


def _have(members: Sequence[SignedBy], grade: str) -> str:
    return "has" if len(_named(members, grade)) == 1 else "have"
