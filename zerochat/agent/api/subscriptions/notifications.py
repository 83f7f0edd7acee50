"""What the core tells the faces besides the log, as happenings: those of its notices that a bot must not miss.

A happening is made before the turn that causes it is on disk, and told behind that. So it says how things stand at the
end of the turn, and what comes several times in one turn is said once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from zerochat.agent.api.subscriptions.store import Happening
from zerochat.agent.files import view
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views import core_state
from zerochat.group import notifications
from zerochat.group.state import Agent, Group

TYPES: Final = {
    "fork": "fork",
    "join": "join_state",
    "invitation": "invite_used",
    "request": "request",
    "removed": "removed",
}
"""What kinds of news happen under which name, but for gaps, receipts and files."""
AS_ITEMS: Final = frozenset({"event", "amended", "late", "receipt", "file", "gap", *TYPES})
"""News that a consumer is not told, because it comes as an item."""
NAMED_MAX: Final = 100
"""Messages that one `delivery` names."""

Labels = Callable[[Group], Mapping[str, str]]


def happenings_of(
    told: Iterable[notifications.Notice], before: Agent, after: Agent, labels: Labels, now: int
) -> list[Happening]:
    """What happened in a turn: the core's notices, and its state before and after. `labels` says what a group's members
    are called. `now`: UTC milliseconds."""
    found: list[Happening] = []
    receipts: dict[tuple[str, str], tuple[int, int]] = {}
    joins: dict[tuple[str, str], notifications.JoinProgress] = {}
    files: dict[tuple[str, str], None] = {}
    for notice in told:
        match notice:
            case notifications.Receipt(group, member, author, begin, upto):
                if group in after.groups and author == after.groups[group].me != member:
                    known = receipts.get((group, member), (begin, upto))
                    receipts[group, member] = min(known[0], begin), max(known[1], upto)
            case notifications.JoinProgress(join, phase):
                joins.pop((join, phase), None)
                joins[join, phase] = notice
            case notifications.FileMoved(group, file):
                files[group, file] = None
            case (
                notifications.Gap()
                | notifications.Forked()
                | notifications.InvitationUsed()
                | notifications.JoinAsked()
                | notifications.JoinAnswered()
                | notifications.Removed()
            ) if notice.group in after.groups:
                found.append(_told(notice, after, labels, now))
            case _:
                pass
    found += [_told(notice, after, labels, now) for notice in joins.values()]
    found += [_delivery(after.groups[g], member, *span, labels, now) for (g, member), span in receipts.items()]
    found += [one for g, file in files if (one := _file(before, after, g, file, labels, now)) is not None]
    return found


def _told(notice: notifications.Notice, agent: Agent, labels: Labels, now: int) -> Happening:
    """A notice with the body of the news that it becomes."""
    news = core_state.news(notice, agent, labels)
    assert news is not None
    method, group, shape = news
    body = msgspec.to_builtins(shape)
    body.pop("type", None)
    if method == "join":
        group = body["group"] if body["group"] in agent.groups else ""
    else:
        body.pop("group", None)
    kind = ("gap_filled" if body["state"] == "filled" else "gap") if method == "gap" else TYPES[method]
    return Happening(group, kind, now, _json(body))


def _delivery(group: Group, member: str, after: int, upto: int, labels: Labels, now: int) -> Happening:
    nick = labels(group).get(member, "")
    body = {"member": member, "nick": nick, "after": after, "upto": upto, "all": everybody_has(group)}
    return Happening(group.id, "delivery", now, _json(body))


def everybody_has(group: Group) -> int:
    """The position in our own chain up to which every member has what is for it."""
    held = (max(one.acked.get(group.me, 0), one.base) for did, one in group.peers.items() if did in group.view.members)
    return min(held, default=group.seq)


def _file(before: Agent, after: Agent, name: str, key: str, labels: Labels, now: int) -> Happening | None:
    """A file that was fetched: it is whole now, or nobody has it any more, or it cannot be fetched."""
    group = after.groups.get(name)
    one = group.files.get(key) if group is not None else None
    earlier = before.groups[name].files.get(key) if name in before.groups else None
    if group is None or one is None or earlier is None:
        return None
    ended = one.state in ("here", "gone") and one.state != earlier.state
    if not ended and not (one.fault and not earlier.fault):
        return None
    file = msgspec.to_builtins(view.attachment(group, one.file, one, labels(group)))
    return Happening(name, "file", now, _json({"event": one.event, "file": file}))


def body_of(journal: Journal, happening: Happening, group: Group | None) -> dict[str, Any]:
    """What an item says of a happening, with the messages that it is about."""
    body: dict[str, Any] = msgspec.json.decode(happening.body)
    if happening.type == "delivery" and group is not None:
        posts = journal.stream.posts_in(group.id, group.me, body["after"], body["upto"], NAMED_MAX)
        body["events"] = [{"id": event, "position": position} for event, position in posts]
    return body


def _json(body: object) -> str:
    return msgspec.json.encode(body).decode()
