"""Durable notifications: the core's notifications that a consumer must not miss, in the order of the log.

They are made before the batch is committed and sent after it. They describe the state at the end of the batch; what
happens several times in one batch is reported once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from zerochat.agent.api.subscriptions.store import DurableNotification
from zerochat.agent.files import view
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.notifications import notification_of
from zerochat.group import notifications
from zerochat.group.state import Agent, Group
from zerochat.group.sync.aggregation import recipients, settled_upto
from zerochat.limits import MEMBER_PAGE_MAX

TYPES: Final = frozenset({"fork", "join_changed", "invitation_used", "join_request", "private_invitation", "removed"})
"""Notifications that are durable under the same name; gaps, receipts and files are converted."""
AS_ITEMS: Final = frozenset({"event", "message_changed", "late_event", "receipt", "file_changed", "gap", *TYPES})
"""Notifications that a consumer receives as items only."""
EVENTS_MAX: Final = 100
"""The maximum of messages in the list of a `delivery`."""

Names = Callable[[Group], Mapping[str, str]]
"""The display names of a group, by DID."""


def durable_notifications(
    changes: Iterable[notifications.Notification],
    before: Agent,
    after: Agent,
    names: Names,
    now: int,
    laggards: dict[str, str] | None = None,
) -> list[DurableNotification]:
    """The durable notifications of a batch, from the core's notifications and its state before and after. `now`: UTC
    milliseconds. `laggards`: by large group, a member that had least of our chain after an earlier batch; updated."""
    found: list[DurableNotification] = []
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    joins: dict[tuple[str, str], notifications.JoinProgress] = {}
    files: dict[tuple[str, str], None] = {}
    for change in changes:
        match change:
            case notifications.Receipt(group, member, author, start, upto):
                if group in after.groups and author == after.groups[group].me != member:
                    known = spans.get((group, member), (start, upto))
                    spans[group, member] = min(known[0], start), max(known[1], upto)
            case notifications.JoinProgress(join, phase):
                joins.pop((join, phase), None)
                joins[join, phase] = change
            case notifications.FileProgress(group, file):
                files[group, file] = None
            case (
                notifications.Gap()
                | notifications.ForkDetected()
                | notifications.InvitationUsed()
                | notifications.JoinRequested()
                | notifications.JoinRequestAnswered()
                | notifications.PrivateInvited()
                | notifications.PrivateInvitationAnswered()
                | notifications.RemovedFromGroup()
            ) if change.group in after.groups:
                found.append(_converted(change, after, names, now))
            case _:
                pass
    found += [_converted(change, after, names, now) for change in joins.values()]
    receipts = _few(spans, before, after, {} if laggards is None else laggards)
    found += [_delivery(after.groups[g], member, *span, names, now) for (g, member), span in receipts.items()]
    found += [one for g, file in files if (one := _file(before, after, g, file, names, now)) is not None]
    return found


Receipts = Mapping[tuple[str, str], tuple[int, int]]
"""By group and member: the positions after which, and up to which, it has now."""


def _few(receipts: Receipts, before: Agent, after: Agent, laggards: dict[str, str]) -> Receipts:
    """The receipts without those of large groups, except one where all members have more now: otherwise a message would
    make as many durable notifications as there are members. `laggards`: as in `durable_notifications`."""
    large = {group for group, _ in receipts if len(after.groups[group].view.members) > MEMBER_PAGE_MAX}
    grown = {
        name for name in large if name in before.groups and _all_have_more(name, receipts, before, after, laggards)
    }
    last = {group: (group, member) for group, member in receipts if group in grown}
    return {key: span for key, span in receipts.items() if key[0] not in large or key == last.get(key[0])}


def _all_have_more(name: str, receipts: Receipts, before: Agent, after: Agent, laggards: dict[str, str]) -> bool:
    """Whether all recipients have more of our chain than before. While the laggard has reported nothing, they have not;
    otherwise all are looked through for the next one."""
    group, laggard = after.groups[name], laggards.get(name, "")
    if laggard in recipients(group) and (name, laggard) not in receipts:
        return False
    had, laggards[name] = delivered_to_all(before.groups[name]), _laggard(group)
    return delivered_to_all(group) > had


def _laggard(group: Group) -> str:
    """A recipient that has least of our chain; empty: there is none."""
    places = _places(group)
    return min(places, key=places.__getitem__, default="")


def _places(group: Group) -> dict[str, int]:
    """By recipient: up to where it has our chain."""
    return {did: settled_upto(group, did) for did in recipients(group)}


def _converted(change: notifications.Notification, agent: Agent, names: Names, now: int) -> DurableNotification:
    """A notification with the body that live subscribers receive."""
    converted = notification_of(change, agent, names)
    assert converted is not None
    method, group, params = converted
    body = msgspec.to_builtins(params)
    body.pop("type", None)
    if method == "join_changed":
        group = body["group"] if body["group"] in agent.groups else ""
    else:
        body.pop("group", None)
    filled = method == "gap" and body["state"] == "filled"
    return DurableNotification(group, "gap_filled" if filled else method, now, _json(body))


def _delivery(group: Group, member: str, after: int, upto: int, names: Names, now: int) -> DurableNotification:
    nick = names(group).get(member, "")
    body = {"member": member, "nick": nick, "after": after, "upto": upto, "all": delivered_to_all(group)}
    return DurableNotification(group.id, "delivery", now, _json(body))


def delivered_to_all(group: Group) -> int:
    """The position in our own chain up to which every recipient has acknowledged."""
    return min(_places(group).values(), default=group.seq)


def _file(before: Agent, after: Agent, name: str, key: str, names: Names, now: int) -> DurableNotification | None:
    """A download that is complete or has failed."""
    group = after.groups.get(name)
    one = group.files.get(key) if group is not None else None
    earlier = before.groups[name].files.get(key) if name in before.groups else None
    if group is None or one is None or earlier is None:
        return None
    ended = one.state in ("here", "gone") and one.state != earlier.state
    if not ended and not (one.error and not earlier.error):
        return None
    file = msgspec.to_builtins(view.attachment(group, one.file, one, names(group)))
    return DurableNotification(name, "file_changed", now, _json({"event": one.event, "file": file}))


def body_of(journal: Journal, notification: DurableNotification, group: Group | None) -> dict[str, Any]:
    """The body of the item, with the messages that a `delivery` covers."""
    body: dict[str, Any] = msgspec.json.decode(notification.body)
    if notification.type == "delivery" and group is not None:
        posts = journal.stream.posts_in(group.id, group.me, body["after"], body["upto"], EVENTS_MAX)
        body["events"] = [{"id": event, "position": position} for event, position in posts]
    return body


def _json(body: object) -> str:
    return msgspec.json.encode(body).decode()
