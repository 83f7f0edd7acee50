"""Sentences about the completeness of a group's log and the delivery state of a message.

`Name` sanitises a display name, `Clock` formats a time.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from zerochat.rpc import (
    Author,
    BackfillNotification,
    ChainDifferenceNotification,
    Completeness,
    CompleteNotification,
    ConfirmedNotification,
    DeliveryReport,
    ForkNotification,
    GapInfo,
    GapNotification,
    LateNotification,
    MemberDelivery,
    MessageStatus,
    Obstacle,
    RefutedNotification,
    ValidityNotification,
)

Name: TypeAlias = Callable[[str], str]
Clock: TypeAlias = Callable[[str], str]

VOID_NOTE: Final = "Not all members are shown them, and new members do not receive them."
NAMES_MAX: Final = 4
"""Longer lists of members are shown as a number."""
ABSENT_TIMES_MAX: Final = 8
"""Times at which absent members were last seen; of more, the members are shown as a number."""
STATES: Final = {
    "delivered": "delivered",
    "sent": "sent",
    "stored": "stored by the mediator",
    "held": "over your daily quota there",
    "queued": "queued",
    "left": "left before delivery",
    "unknown": "unknown",
}
ROUTES: Final = {"link": "direct", "mail": "mediator", "mediator": "mediator", "web": "web"}


OBSTACLES: Final[Mapping[Obstacle, tuple[str, str]]] = {
    "no_mediator": (
        "no way to it: it has no mediator, and you are hidden",
        "you connect to your own mediators only (network.hidden = always), and it has no mediator. It can add one",
    ),
    "own_mediator": (
        "no way from it: it is hidden, and you have no mediator",
        "it is hidden (network.hidden) and has not connected to you, and you have no mediator. Add one",
    ),
}
"""Why a member's acknowledgement cannot come: in a few words, and the middle of the sentence."""
NO_WAY: Final = (
    "with /mediator LINK or `zerochat route add LINK`. Until then, members that are connected to both relay messages,"
    " but no acknowledgements."
)


def name_list(names: Iterable[str], most: int = NAMES_MAX, count: int = 0) -> str:
    """`a, b and c`; the number of members if there are more than `most`; empty for none. `count`: their number, if
    `names` are the first of more."""
    found = list(names)
    if (count := max(count, len(found))) > most:
        return f"{count:,} members"
    *first, last = found or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _messages(count: int, author: str) -> str:
    return f"{count} message{'s' * (count != 1)} from {author}"


# --- the log --------------------------------------------------------------------------------------------------------


def completeness_text(found: Completeness, name: Name, clock: Clock, *, fetching: bool = False) -> str:
    """The completeness of a log without a full stop: "complete with alice and bob as of 12:04; carol last seen 09:10".

    `fetching`: the history before our join is still being fetched and is not covered by the text.
    """
    if not found.members:
        return "no other members"
    parts = []
    whole = [name(member.nick) for member in found.members if member.present and not member.missing]
    if (whole or found.current) and found.at is not None:
        with_ = name_list(whole, count=found.current)
        parts.append(f"complete{' since you joined,' * fetching} with {with_} as of {clock(found.at)}")
    parts += [_missing(gap, name, clock) for gap in found.gaps[:NAMES_MAX]]
    if (more := len(found.gaps) - NAMES_MAX) > 0:
        parts.append(f"messages from {more} other authors missing")
    if found.waiting:
        parts.append("a membership event is missing")
    parts += _absent(found, name, clock)
    differing = [name(member.nick) for member in found.members if member.view_matches is False]
    if differing:
        verb = "has" if max(len(differing), found.differing) == 1 else "have"
        parts.append(f"{name_list(differing, count=found.differing)} {verb} a different member list")
    return "; ".join(parts)


def _absent(found: Completeness, name: Name, clock: Clock) -> list[str]:
    """The absent members by the time when they were last seen; if these times are many, their number."""
    absent = [member for member in found.members if not member.present]
    times = list(dict.fromkeys(member.at for member in absent))
    if max(len(absent), found.absent) > len(absent) or len(times) > ABSENT_TIMES_MAX:
        return [f"{max(len(absent), found.absent):,} members absent"]
    return [
        f"{name_list(name(member.nick) for member in absent if member.at == at)} "
        + (f"last seen {clock(at)}" if at else "not seen yet")
        for at in times
    ]


def _missing(gap: GapInfo, name: Name, clock: Clock) -> str:
    text = f"{_messages(gap.missing, name(gap.nick))} missing"
    match gap.state:
        case "asked":
            return f"{text} (requested since {clock(gap.since)})" if gap.since else f"{text} (requested)"
        case "held":
            return f"{_messages(gap.missing, name(gap.nick))} not accepted yet (daily quota)"
        case "lost":
            return f"{text} (not available from any member)"
        case _:
            return text


LogNotification: TypeAlias = (
    GapNotification
    | LateNotification
    | ForkNotification
    | CompleteNotification
    | ConfirmedNotification
    | RefutedNotification
    | ValidityNotification
    | ChainDifferenceNotification
    | BackfillNotification
)


def queued_sentence(of: int) -> str:
    """That a message for `of` other members waits because none is connected."""
    who = f"none of the {of} other members is" if of > 1 else "the other member is not"
    return f"Queued: {who} connected. It is sent when {'one' if of > 1 else 'it'} connects."


def notification_sentence(item: LogNotification, name: Name, clock: Clock) -> str:
    """A notification about a log as a sentence."""
    match item:
        case GapNotification():
            return _gap_sentence(item, name)
        case LateNotification():
            return f"A message from {name(item.nick)} of {clock(item.sent_at)} arrived late."
        case ForkNotification():
            return (
                f"Warning: {name(item.nick)} has sent two different events for one position (equivocation). Compare"
                " with the other members."
            )
        case CompleteNotification():
            return "The log is complete: no known messages are missing."
        case ConfirmedNotification():
            count = item.upto - item.after
            relayed = f"{_messages(count, name(item.nick))} relayed by others"
            return f"{relayed} {'is' if count == 1 else 'are'} now confirmed."
        case RefutedNotification(by=""):
            author, count = name(item.nick), item.upto - item.after
            relayed = f"{_messages(count, author)} relayed by others"
            return f"{relayed} {'is' if count == 1 else 'are'} hidden until {author} confirms the same."
        case RefutedNotification():
            author, relayer = name(item.nick), name(item.by_nick)
            return f"Warning: {relayer} relayed messages that {author} denies. They are no longer shown."
        case ValidityNotification(valid=False):
            whose = "Your last events here do" if item.mine else f"The last events of {name(item.nick)} here do"
            became = "removed" if item.author_removed else "made a reader"
            who = "you were" if item.mine else "the author was"
            return f"{whose} not count: {who} {became} before they were known to have reached others. {VOID_NOTE}"
        case ValidityNotification():
            whose = "Your last events" if item.mine else f"The last events of {name(item.nick)}"
            return f"{whose} here count after all."
        case ChainDifferenceNotification():
            return _difference_sentence(item, name)
        case BackfillNotification():
            return _backfill_sentence(item)


def _gap_sentence(item: GapNotification, name: Name) -> str:
    count = item.upto - item.after
    messages, verb = _messages(count, name(item.nick)), "is" if count == 1 else "are"
    match item.state:
        case "filled":
            return f"{messages} {'that was' if count == 1 else 'that were'} missing {verb} now here."
        case "held":
            return f"{messages} {verb} not accepted yet: {name(item.nick)} has used up its daily quota here."
        case "lost":
            return f"{messages} {verb} missing and not available from any member."
        case "asked":
            return f"{messages} {verb} missing; requesting {'it' if count == 1 else 'them'} from other members."
        case _:
            return f"{messages} {verb} missing."


def _difference_sentence(item: ChainDifferenceNotification, name: Name) -> str:
    author, other = name(item.nick), name(item.member_nick)
    if item.by:
        return (
            f"Warning: position {item.position} of {author}'s chain differs between {name(item.by_nick)}, who relayed"
            f" it, and {other}. One of the three is wrong or was deceived, and it cannot be proven which. Ask them all."
        )
    if item.mine:
        return (
            f"Warning: {other} has a different version of your chain from position {item.position} on. Either another"
            f" copy of your profile has posted, or {other} is wrong or was deceived."
        )
    return (
        f"Warning: {other} has a different version of {author}'s chain from position {item.position} on. Either"
        f" {author} equivocates, or {other} is wrong or was deceived; it cannot be proven which. Ask both."
    )


def _backfill_sentence(item: BackfillNotification) -> str:
    events = f"{item.received:,} event{'s' * (item.received != 1)}"
    if not item.done:
        left = f", about {item.remaining:,} remaining" if item.remaining else " so far"
        return f"Receiving earlier history: {events}{left}."
    return f"Earlier history received ({events})." if item.received else "There is no earlier history for you."


def own_quota_text(members: Iterable[Author], name: Name) -> str:
    """That these members accept no more of ours for now, without a full stop; empty for none."""
    names = name_list(name(one.nick) for one in members)
    if not names:
        return ""
    return f"your daily quota at {names} is used up; messages are tried again at least hourly, as room comes back"


# --- one message ----------------------------------------------------------------------------------------------------


def route_of(one: MemberDelivery, nicks: dict[str, str], name: Name) -> str:
    """The source of a member's delivery state, or the route to it; empty if unknown. `nicks`: display names by DID."""
    if one.via in nicks:
        return "itself" if one.via == one.did else name(nicks[one.via])
    return ROUTES.get(one.via, "another member" if one.via else "")


def status_sentences(status: MessageStatus, nicks: dict[str, str], name: Name, clock: Clock) -> list[str]:
    """All that is known about an event: author, provenance, position and delivery. `nicks`: display names by DID."""
    event = status.event
    who = "You" if event.self else name(event.author.nick)
    wrote = "wrote this" if event.type == "message" else "did this"
    received = "" if event.self else f"; received at {clock(event.received_at)}"
    late = ", after later events" if event.late else ""
    sentences = [
        f"{who} {wrote} at {clock(event.sent_at)}{received}{late}.",
        *_provenance(status, who, name),
        *_position(status, who),
    ]
    if event.void:
        whom, ticked = ("you were", ", even where it has a ✓,") if event.self else (f"{who} was", "")
        sentences.append(
            f"It does not count: {whom} removed, or made a reader, before it. Not all members are shown it{ticked} and"
            " new members do not receive it."
        )
    if status.forked:
        sentences.append(f"Warning: {who} has sent two different events for one position (equivocation).")
    if status.held:
        sentences.append(
            f"{who} has used up its daily quota here: its later messages are not accepted yet, and come as room comes"
            " back."
        )
    sentences += [notification_sentence(difference, name, clock) for difference in status.differs]
    return [*sentences, *_delivery(status, nicks, name, clock)]


def _provenance(status: MessageStatus, who: str, name: Name) -> list[str]:
    relayer = name(status.event.relayed_by.nick) if status.event.relayed_by else "another member"
    match status.provenance:
        case "own" if status.report.signed:
            return ["You have signed it; anyone can verify that it is yours."]
        case "signed":
            return [f"{who} has signed it; anyone can verify the author."]
        case "author":
            return [f"It is confirmed: received from {who}, or referenced by a later event of {who}."]
        case "relayed":
            also = f" {name(status.corroborated_by.nick)} has the same." if status.corroborated_by else ""
            return [f"It was relayed by {relayer}; {who} has not confirmed it yet.{also}"]
        case "refuted":
            return [f"It is refuted: {relayer} relayed it, but {who} has another event at its position."]
        case _:
            return []


def _position(status: MessageStatus, who: str) -> list[str]:
    """The position in the author's chain, and missing events around it."""
    at, whose = status.event.position, "your" if status.event.self else f"{who}'s"
    position = f"It has position {at} in {whose} chain"
    if at > status.here:
        return [f"{position}; the event before it is missing."]
    if at < status.first:
        return [f"{position}; the chain is complete here from position {status.first} on."]
    if not status.first:
        before = "it is unknown where the chain starts here"
    elif status.first == 1:
        before = "nothing before it is missing"
    elif at == status.first:
        before = "earlier events are not here"
    else:
        before = f"nothing before it is missing back to position {status.first}, where the chain starts here"
    after = status.known - status.here
    missing = f"; {after} after position {status.here} {'is' if after == 1 else 'are'} missing" * (after > 0)
    return [f"{position}; {before}{missing}."]


def _delivery(status: MessageStatus, nicks: dict[str, str], name: Name, clock: Clock) -> list[str]:
    report = status.report
    if not report.of:
        summary = "It has no other recipients."
    elif report.delivered == report.of:
        summary = "Delivered to everyone."
    else:
        summary = f"Delivered to {report.delivered} of {report.of} members."
    others = [one for one in (*report.members, *status.former_members) if one.connection != "self"]
    readers = name_list((name(one.nick) for one in others if one.read), len(others))
    read = [f"Read by {readers}, according to their clients."] if readers else []
    more = not_listed(report)
    return [summary, *(_member_sentence(one, nicks, name, clock) for one in others), *([more] if more else []), *read]


def not_listed(report: DeliveryReport) -> str:
    """That a report does not name all recipients, as a sentence; empty if it does."""
    if not report.next:
        return ""
    return f"{report.of - len(report.members):,} more recipients are not listed."


def signature(one: MemberDelivery, clock: Clock) -> str:
    """The end of a sentence about a delivery: that the member has signed for it; empty if not."""
    if not one.signed:
        return ""
    return ", and signed for it" + (f" at {clock(one.signed_at)}" if one.signed_at else "")


def obstacle_note(one: MemberDelivery) -> str:
    """Why no acknowledgement of a member can come, in a few words; empty: it can."""
    return OBSTACLES[one.obstacle][0] if one.obstacle else ""


def _obstacle_sentence(one: MemberDelivery, who: str) -> str:
    known = (
        f"It is unknown whether {who} has received it" if one.state == "unknown" else f"{who} has not acknowledged it"
    )
    return f"{known}: there is no way between you yet, as {OBSTACLES[one.obstacle][1]} {NO_WAY}"


def _member_sentence(one: MemberDelivery, nicks: dict[str, str], name: Name, clock: Clock) -> str:
    """The delivery state of one member."""
    if one.obstacle:
        return _obstacle_sentence(one, name(one.nick))
    who, seen = name(one.nick), f"last seen {clock(one.last_seen)}" if one.last_seen else "not seen yet"
    route = route_of(one, nicks, name)
    match one.state:
        case "delivered":
            at = f" at {clock(one.at)}" if one.at else ""
            if one.via in nicks:
                source = ", acknowledged directly" if route == "itself" else f", according to {route}"
            else:
                source = ", directly" if one.via == "link" else f", via {route}" * bool(route)
            return f"{who} received it{at}{source}{signature(one, clock)}."
        case "left":
            return f"{who} left before acknowledging it."
        case "unknown" if one.connection == "indirect":
            return f"No member has reported that {who} has received it."
        case "unknown":
            return f"It is unknown whether {who} has received it; {seen}."
        case "stored":
            until = f" until {clock(one.stored_until)}" if one.stored_until else ""
            return f"{who} has not acknowledged it yet: the mediator has confirmed that it stores it{until}; {seen}."
        case "held":
            again = f", next at {clock(one.next_try)}" if one.next_try else ""
            return (
                f"{who} has not accepted it yet: you have used up your daily quota there; {seen}. It is tried again at"
                f" least hourly{again}, and accepted as room comes back."
            )
        case "queued":
            return (
                f"{who} has not acknowledged it yet: not connected, {seen}. It is sent, or relayed by others, when"
                " possible."
            )
    sent = "sent"
    if one.tries:
        sent = f"retransmitted {'once' if one.tries == 1 else f'{one.tries} times'}"
    after = f", next at {clock(one.next_try)}" if one.tries and one.next_try else ""
    via = "via the mediator" if one.via == "mediator" else "directly"
    return f"{who} has not acknowledged it yet: {sent} {via}{after}; {seen}."
