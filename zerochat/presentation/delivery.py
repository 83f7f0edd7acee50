"""What is known of a group's log, in sentences: how much of it is here, and what has become of one message.

Only the vocabulary of the control protocol is needed for this, so every face can use it. `Name` makes a nick fit to be
shown, `Clock` a time.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from zerochat.rpc import (
    Completeness,
    CompleteNews,
    ConfirmedNews,
    DiffersNews,
    EarlierNews,
    Fate,
    ForkNews,
    GapInfo,
    GapNews,
    Heard,
    LateNews,
    MemberDelivery,
    RecountedNews,
    RefutedNews,
)

Name: TypeAlias = Callable[[str], str]
Clock: TypeAlias = Callable[[str], str]

NOT_FOR_ALL: Final = "Not everybody is shown them, and newcomers do not get them."

NAMES_MAX = 4
"""More members than these are counted and not named."""

STATES: Final = {
    "delivered": "delivered",
    "sent": "sent",
    "held": "held by its mediator",
    "queued": "queued",
    "left": "left without it",
    "unknown": "unknown",
}
WAYS: Final = {"link": "link", "mail": "mediator", "mediator": "mediator", "web": "web"}


# --- the log --------------------------------------------------------------------------------------------------------


def wholeness(found: Completeness, name: Name, clock: Clock, *, fetching: bool = False) -> str:
    """How complete a log is, without a full stop: "complete with alice and bob as of 12:04; carol not heard from since
    09:10". `fetching`: what was said before we joined is still on its way, and not meant here."""
    if not found.members:
        return "nobody else is here"
    parts = []
    whole = [one for one in found.members if one.present and not one.missing]
    if whole and found.at is not None:
        parts.append(f"complete{' since you joined,' * fetching} with {_names(whole, name)} as of {clock(found.at)}")
    parts += [_missing(gap, name, clock) for gap in found.gaps]
    if found.waiting:
        parts.append("something that changed who is a member is missing")
    for at in dict.fromkeys(one.at for one in found.members if not one.present):
        silent = [one for one in found.members if not one.present and one.at == at]
        parts.append(f"{_names(silent, name)} not heard from " + (f"since {clock(at)}" if at else "yet"))
    if differing := [one for one in found.members if one.agrees is False]:
        parts.append(f"{_names(differing, name)} {'sees' if len(differing) == 1 else 'see'} other members")
    return "; ".join(parts)


def _missing(gap: GapInfo, name: Name, clock: Clock) -> str:
    what = f"{gap.missing} message{'s' * (gap.missing != 1)} of {name(gap.nick)} missing"
    match gap.state:
        case "asked":
            return f"{what} (asked for since {clock(gap.since)})" if gap.since else f"{what} (asked for)"
        case "lost":
            return f"{what} (nobody who could be asked has {'it' if gap.missing == 1 else 'them'})"
        case _:
            return what


def _names(members: list[Heard], name: Name) -> str:
    if len(members) > NAMES_MAX:
        return f"{len(members)} members"
    *first, last = (name(one.nick) for one in members)
    return f"{', '.join(first)} and {last}" if first else last


LogNews: TypeAlias = (
    GapNews
    | LateNews
    | ForkNews
    | CompleteNews
    | ConfirmedNews
    | RefutedNews
    | RecountedNews
    | DiffersNews
    | EarlierNews
)


def news(item: LogNews, name: Name, clock: Clock) -> str:
    """What has become known of a log, in a sentence."""
    match item:
        case GapNews():
            count = item.upto - item.after
            what = f"{count} message{'s' * (count != 1)} of {name(item.nick)}"
            verb = "is" if count == 1 else "are"
            match item.state:
                case "filled":
                    return f"{what} that {'was' if count == 1 else 'were'} missing {verb} here now."
                case "lost":
                    return f"{what} {verb} missing, and nobody who could be asked has {'it' if count == 1 else 'them'}."
                case "asked":
                    return f"{what} {verb} missing; others are asked for {'it' if count == 1 else 'them'}."
                case _:
                    return f"{what} {verb} missing."
        case LateNews():
            return f"A message of {name(item.nick)} from {clock(item.sent_at)} has come late."
        case ForkNews():
            return (
                f"Careful: {name(item.nick)} has said two different things in one place. Ask the others what they see."
            )
        case CompleteNews():
            return "Nothing is missing any more of what anybody has told of."
        case ConfirmedNews():
            count = item.upto - item.after
            what = f"{count} message{'s' * (count != 1)} of {name(item.nick)}"
            return f"{what} that others had handed over {'is' if count == 1 else 'are'} confirmed."
        case RefutedNews(by=""):
            who, count = name(item.nick), item.upto - item.after
            what = f"{count} message{'s' * (count != 1)} of {who} that others had handed over"
            return f"{what} {'is' if count == 1 else 'are'} taken back, until {who} says the same."
        case RefutedNews():
            who, by = name(item.nick), name(item.by_nick)
            return f"Careful: {by} has handed over words of {who} that {who} has not said. They are not shown any more."
        case RecountedNews(counts=False):
            whose = "Your last words here do" if item.mine else f"What {name(item.nick)} said last here does"
            became = "put out" if item.out else "made a reader"
            who = "you were" if item.mine else "it was"
            return f"{whose} not count: {who} {became} as of before that. {NOT_FOR_ALL}"
        case RecountedNews():
            who = "you" if item.mine else name(item.nick)
            return f"What {who} said last here counts after all."
        case DiffersNews():
            who, other = name(item.nick), name(item.member_nick)
            if item.by:
                return (
                    f"Careful: what {name(item.by_nick)} has handed over of {who}'s chain is something else than what "
                    f"{other} has in place {item.position}: one of these three, or whoever they have it from, shows "
                    "what is not so, and nobody can prove which. Ask them all."
                )
            if item.mine:
                return (
                    f"Careful: {other} has something else than you from number {item.position} of your own chain on. "
                    f"Either another copy of your profile has spoken, or {other}, or whoever it has it from, shows "
                    "what is not so."
                )
            return (
                f"Careful: {other} has something else than you from number {item.position} of {who}'s chain on. Either "
                f"{who} has said two different things, or {other}, or whoever it has it from, shows what is not so: "
                "nobody can prove which. Ask them both."
            )
        case EarlierNews():
            events = f"{item.got} event{'s' * (item.got != 1)}"
            if not item.done:
                left = f"; about {item.left} more are on their way" if item.left else " so far"
                return f"{events} from before you joined {'is' if item.got == 1 else 'are'} here{left}."
            if not item.got:
                return "There is nothing for you from before you joined."
            return f"What there is for you from before you joined is here: {events}."


# --- one message ----------------------------------------------------------------------------------------------------


def way_of(one: MemberDelivery, nicks: dict[str, str], name: Name) -> str:
    """Over which way it is known that a member has an event, or the event goes there; empty: that is not known."""
    if one.via in nicks:
        return "itself" if one.via == one.did else name(nicks[one.via])
    return WAYS.get(one.via, "another member" if one.via else "")


def sentences(fate: Fate, nicks: dict[str, str], name: Name, clock: Clock) -> list[str]:
    """What is known of one event: who said it, whose word it is, where it stands, and who has it. `nicks`: by DID."""
    event = fate.event
    who = "You" if event.self else name(event.author.nick)
    wrote = "wrote this" if event.type == "message" else "did this"
    come = "" if event.self else f"; it came here at {clock(event.received_at)}"
    late = ", and it came to this log after what stands below it" if event.late else ""
    said = [f"{who} {wrote} at {clock(event.sent_at)}{come}{late}.", *_word(fate, who, name), *_place(fate, who)]
    if event.void:
        whom, ticked = ("you", ", even where it has a ✓,") if event.self else (who, "")
        said.append(
            f"It does not count: somebody has put {whom} out, or made a reader, as of before that. Not everybody is "
            f"shown it{ticked} and newcomers do not get it."
        )
    if fate.forked:
        said.append(f"Careful: {who} has said two different things in one place.")
    said += [news(one, name, clock) for one in fate.differs]
    return [*said, *_having(fate, nicks, name, clock)]


def _word(fate: Fate, who: str, name: Name) -> list[str]:
    by = name(fate.event.vouched.nick) if fate.event.vouched else "somebody else"
    match fate.word:
        case "mine" if fate.report.signed:
            return ["You have signed it, which proves to anybody that it is yours."]
        case "signed":
            return [f"{who} has signed it, which proves to anybody whose it is."]
        case "author":
            return [f"It is {who}'s own word: from {who} itself, or named by what {who} has said since."]
        case "vouched":
            beside = f" {name(fate.second.nick)} has the same." if fate.second else ""
            return [f"{by} has handed it over, and {who} has not confirmed it yet.{beside}"]
        case "refuted":
            return [f"It is nobody's word: {by} has handed it over, and {who} has said something else in its place."]
        case _:
            return []


def _place(fate: Fate, who: str) -> list[str]:
    """Where it stands in its author's chain, and what is missing there."""
    at, whose = fate.event.position, "your" if fate.event.self else f"{who}'s"
    stands = f"It is number {at} of {whose} chain"
    if at > fate.here:
        return [f"{stands}; what {who} said just before it is not here."]
    if at < fate.first:
        return [f"{stands}; what {who} said after it is here from number {fate.first} on."]
    if not fate.first:
        before = f"from where on {who}'s chain is here, is not known"
    elif fate.first == 1:
        before = "nothing before it is missing"
    elif at == fate.first:
        before = "what was before it is not here"
    else:
        before = f"nothing before it is missing since number {fate.first}, with which it begins here"
    after = fate.known - fate.here
    missing = f"; {after} after number {fate.here} {'is' if after == 1 else 'are'} known of and missing" * (after > 0)
    return [f"{stands}; {before}{missing}."]


def _having(fate: Fate, nicks: dict[str, str], name: Name, clock: Clock) -> list[str]:
    report = fate.report
    if not report.of:
        said = ["It is for nobody else."]
    elif report.delivered == report.of:
        said = ["Everybody whom it is for has it." if report.of > 1 else "The only other one whom it is for has it."]
    else:
        said = [f"{report.delivered} of {report.of} others are known to have it."]
    others = [one for one in (*report.members, *fate.gone) if one.connection != "self"]
    return said + [_one(one, nicks, name, clock) for one in others] + _reading(others, name)


def _reading(others: list[MemberDelivery], name: Name) -> list[str]:
    """Who says that it has read it, which is more than to have it; nothing where nobody says so."""
    *first, last = [name(one.nick) for one in others if one.read] or [""]
    who = f"{', '.join(first)} and {last}" if first else last
    return [f"Read by {who}, as {'they say' if first else 'it says'}."] if who else []


def signature(one: MemberDelivery, clock: Clock) -> str:
    """Behind the sentence that a member has something: that it has signed that, and when."""
    if not one.signed:
        return ""
    return ", and has signed that" + (f" at {clock(one.signed_at)}" if one.signed_at else "")


def _one(one: MemberDelivery, nicks: dict[str, str], name: Name, clock: Clock) -> str:
    """What has become of it at one member."""
    who, heard = name(one.nick), f"since {clock(one.last_heard)}" if one.last_heard else "yet"
    way = way_of(one, nicks, name)
    match one.state:
        case "delivered":
            since = f" since {clock(one.at)}" if one.at else ""
            how = f", as {'it' if way == 'itself' else way} said" if one.via in nicks else f", over a {way}" * bool(way)
            return f"{who} has it{since}{how}{signature(one, clock)}."
        case "left":
            return f"{who} has left, and was not known to have it."
        case "unknown":
            return f"{who} has not told whether it has it; not heard from {heard}."
        case "held":
            until = f" until {clock(one.held_until)}" if one.held_until else ""
            return (
                f"{who} has not said so yet: its mediator has signed that it holds it{until}; not heard from {heard}."
            )
        case "queued":
            return (
                f"{who} has not: not connected, and not heard from {heard}. It goes out as soon as there is a way, and "
                "whoever else reaches it hands it on."
            )
    again = f"repeated {'once' if one.tries == 1 else f'{one.tries} times'}" if one.tries else "sent"
    after = f", next at {clock(one.next_try)}" if one.tries and one.next_try else ""
    over = "over a mediator" if one.via == "mediator" else "over a link"
    return f"{who} has not said so yet: {again} {over}{after}; not heard from {heard}."
