"""Events of the log as the control protocol shows them."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct

from zerochat import rpc
from zerochat.agent.files.view import attachments
from zerochat.agent.storage.journal import Row
from zerochat.agent.views import members as roster
from zerochat.agent.views.delivery_counts import DeliveryCounts
from zerochat.agent.views.display_names import DisplayNames
from zerochat.errors import Malformed, RemoteError
from zerochat.group.event_log.event import (
    ADD,
    ANNOUNCE,
    DELETE,
    EDIT,
    GENESIS,
    LABEL,
    LEAVE,
    PINS,
    POST,
    REACT,
    REMOVE,
    ROLE,
    TERMS,
    TOPIC,
    UPGRADE,
    VERDICT,
    VOTE,
    load_event,
)
from zerochat.group.event_log.event import Event as Record
from zerochat.group.membership import (
    add_of,
    genesis_of,
    label_of,
    may_post,
    remove_of,
    role_of,
    terms_of,
    upgrade_of,
    vote_of,
)
from zerochat.group.membership.bot_announcement import Announcement
from zerochat.group.messages.bodies import Counted, Delete, Edit, Pins, Post, React, Topic, content_of
from zerochat.group.messages.current import CurrentMessage
from zerochat.group.state import Group
from zerochat.group.tlog.verdicts import Verdict
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import Author, Event, EventType, Quote
from zerochat.rpc.common import timestamp

_TYPES: Final[dict[str, EventType]] = {
    GENESIS: "group_created",
    ADD: "member_joined",
    LEAVE: "member_left",
    REMOVE: "member_removed",
    VOTE: "removal_voted",
    ROLE: "role_changed",
    LABEL: "member_renamed",
    TERMS: "terms_set",
    UPGRADE: "keys_upgraded",
    POST: "message",
    EDIT: "message_edited",
    DELETE: "message_deleted",
    REACT: "reacted",
    TOPIC: "topic_changed",
    PINS: "pins_changed",
    ANNOUNCE: "commands_announced",
    VERDICT: "verdict_announced",
}


class EventContext(Struct, frozen=True):
    """Information about an event besides its record."""

    current: CurrentMessage = CurrentMessage()
    """Of a message: its current state; of an edit: the current state of the message."""
    quoted: Quote | None = None
    """The message that it replies to."""
    record: Record | None = None
    """The decoded record, where it was decoded already."""
    named: frozenset[str] = frozenset()
    """Of an edit: the members that the message mentioned before."""
    bot: bool = False
    """Its author has announced that it is a bot."""
    counts: DeliveryCounts | None = None
    """Counts its recipients; None: it is shown alone."""


def event_view(
    group: Group, row: Row, replayed: bool, names: Mapping[str, str] | None = None, context: EventContext | None = None
) -> Event:
    """One row of the log."""
    context = context or EventContext()
    record = context.record or load_record(row)
    known = names if isinstance(names, DisplayNames) else DisplayNames(group)
    names = known if names is None else names
    post, stands = _post(record), context.current if row.type == POST else CurrentMessage()
    relayed_by = stands.relayed_by or row.relayed_by
    return Event(
        seq=row.seq,
        type=_TYPES.get(record.type, "unknown"),
        group=group.id,
        id=row.id,
        author=Author(
            record.author,
            names.get(record.author, ""),
            bot=context.bot,
            verified=roster.trust_level(group, record.author) == "verified",
        ),
        position=record.seq,
        lamport=record.lamport,
        parents=list(dict.fromkeys([*([record.pre] if record.pre else []), *record.deps, *record.conc])),
        sent_at=timestamp(record.time),
        received_at=timestamp(row.received),
        body=_body(record, known, context.current),
        author_nick_then=known.before(record.author, record.lamport) if record.is_control else "",
        reply_to=post.reply or None,
        quoted=context.quoted,
        mentions=[did for did in _called(record, post, context) if group.view.known(did) is not None],
        action=post.action,
        hops=_hops(record),
        edited_at=timestamp(stands.edited_at) if stands.edited_at else "",
        deleted=stands.deleted,
        reactions=[_reaction(emoji, members, group.me) for emoji, members in stands.reactions],
        attachments=[] if stands.deleted else attachments(group, record, names),
        self=record.author == group.me,
        replayed=replayed,
        late=row.late and not _has_waited(group, row),
        relayed_by=Author(relayed_by, names.get(relayed_by, "")) if relayed_by else None,
        refuted=row.refuted,
        void=is_void(group, record),
        ignored=record.author in group.trust.ignored and not record.is_control,
        delivery=(context.counts or DeliveryCounts(group)).of(record.author, record.seq, record.lamport),
    )


def _reaction(emoji: str, members: Collection[str], me: str) -> rpc.Reaction:
    """A reaction with as many members as one answer names, with this profile if it is one of them."""
    by = list(members)
    if len(by) > MEMBER_PAGE_MAX:
        by = [*([me] if me in members else []), *(did for did in by if did != me)][:MEMBER_PAGE_MAX]
    return rpc.Reaction(emoji, by, len(members))


def _has_waited(group: Group, row: Row) -> bool:
    """Whether this was written in a private conversation before we joined it: it waited for us and is not late."""
    me = group.view.known(group.me)
    return group.private is not None and me is not None and row.lamport < me.joined


def is_void(group: Group, record: Record) -> bool:
    """Whether an event is not valid in the current view."""
    known = group.view.known(record.author) is not None
    return known and not record.is_control and not may_post(group.view, record.author, record.seq)


def late_notification(event: Event) -> rpc.LateNotification:
    return rpc.LateNotification(
        group=event.group,
        id=event.id,
        author=event.author.did,
        nick=event.author.nick,
        sent_at=event.sent_at,
        received_at=event.received_at,
    )


def load_record(row: Row) -> Record:
    """The decoded event of a row. A malformed record becomes an event of an unknown type."""
    try:
        return load_event(row.record)
    except RemoteError:
        return Record(row.group, "unreadable", row.author, row.position, "", (), (), row.lamport, row.received, {})


def _post(record: Record) -> Post:
    """The content of a message; empty where it is none or malformed."""
    try:
        said = content_of(record) if record.type == POST else None
    except Malformed:
        said = None
    return said if isinstance(said, Post) else Post("")


def _hops(record: Record) -> int:
    """The hop count of an event; 0 where its content is malformed."""
    try:
        said = None if record.is_control else content_of(record)
    except Malformed:
        said = None
    return said.hops if isinstance(said, Counted) else 0


def _called(record: Record, post: Post, context: EventContext) -> list[str]:
    """The members that a message mentions; of an edit, those that it mentions first."""
    if context.current.deleted:
        return []
    if record.type == POST:
        return list(context.current.mentions if context.current.edited_at else post.mentions)
    try:
        said = content_of(record) if record.type == EDIT else None
    except Malformed:
        said = None
    return [did for did in said.mentions if did not in context.named] if isinstance(said, Edit) else []


def _body(record: Record, names: DisplayNames, stands: CurrentMessage) -> dict[str, Any]:
    """The body of an event in terms of the control protocol. `stands`: the current state of the message that it is, or
    edits.

    A record in the log is authentic, but its content may be malformed: it is then shown as unreadable.
    """

    def about(did: str) -> dict[str, Any]:
        return {"did": did, "nick": names.before(did, record.lamport)}

    try:
        match record.type:
            case "genesis":
                return {"name": genesis_of(record).name}
            case "add":
                added = add_of(record)
                return {"did": added.member, "nick": added.label, "role": added.role}
            case "leave":
                return {"did": record.author}
            case "remove":
                return about(remove_of(record).member)
            case "vote":
                return about(vote_of(record).member)
            case "role":
                changed = role_of(record)
                return {**about(changed.member), "role": changed.role}
            case "label":
                was = names.before(record.author, record.lamport)
                return {"did": record.author, "nick": label_of(record).label, "was": was}
            case "terms":
                keep = terms_of(record)
                return {"operator": about(keep.operator), "witnesses": [about(one) for one in keep.witnesses]}
            case "upgrade":
                upgraded = upgrade_of(record)
                return {"keys": upgraded.keys, "final": upgraded.final}
        return _said(record, stands, names)
    except Malformed:
        return {"text": "", "unreadable": True} if record.type == POST else {"unreadable": True}


def _said(record: Record, stands: CurrentMessage, names: DisplayNames) -> dict[str, Any]:
    """The body of a message, annotation, announcement or verdict. A deleted message has no text. Raises Malformed."""
    if record.type == POST and (stands.deleted or stands.edited_at):
        return {"text": stands.text}
    if record.type not in (POST, EDIT, DELETE, REACT, TOPIC, PINS, ANNOUNCE, VERDICT):
        return {}
    match content_of(record):
        case Post(text) | Topic(text):
            return {"text": text}
        case Edit(target, text):
            return {"target": target, "text": "" if stands.deleted else text}
        case Delete(target):
            return {"target": target}
        case React(target, emoji, on):
            return {"target": target, "emoji": emoji, "on": on}
        case Pins(targets):
            return {"targets": list(targets)}
        case Announcement() as announced:
            return announced.body
        case Verdict(target, outcome, member):
            return {"target": target, "outcome": outcome, "did": member, "nick": names.get(member, "")}
