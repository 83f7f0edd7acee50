"""The core's state, its news and the log's rows in the words of the control protocol, one function for each shape.

Who has what, and who can be reached, is worked out in `delivery.py`; what is missing, in `completeness.py`.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.archive.beginnings import beginning
from zerochat.agent.files.view import attachments
from zerochat.agent.storage.journal import Row
from zerochat.agent.views import members as roster
from zerochat.agent.views import tlog_status
from zerochat.agent.views.completeness import completeness
from zerochat.agent.views.delivery import counted, differs, reach
from zerochat.didcomm.did import short_form
from zerochat.didcomm.invitation import Invitation
from zerochat.errors import Malformed, RemoteError
from zerochat.group import notifications
from zerochat.group.event_log.event import (
    ADD,
    ANNOUNCE,
    DELETE,
    EDIT,
    GENESIS,
    LABEL,
    LEAVE,
    POST,
    REACT,
    REMOVE,
    ROLE,
    TERMS,
    TOPIC,
    VERDICT,
    VOTE,
    load_event,
)
from zerochat.group.event_log.event import Event as Record
from zerochat.group.external.mediators import live_uri
from zerochat.group.joining import member_connections, revocation
from zerochat.group.links.contact import knock_link
from zerochat.group.membership import (
    add_of,
    attestation,
    genesis_of,
    label_of,
    may_post,
    remove_of,
    role_of,
    terms_of,
    vote_of,
)
from zerochat.group.membership.bot_announcement import Announcement
from zerochat.group.messages.bodies import Delete, Edit, Post, React, Topic, saying_of
from zerochat.group.messages.current import Standing
from zerochat.group.state import Agent, Connection, Group, Join
from zerochat.group.sync import stale_profile
from zerochat.group.tlog.verdicts import Verdict
from zerochat.rpc import Author, ConnectionInfo, Event, GroupInfo, InvitationInfo, MemberInfo, Quote

_TYPES = {
    GENESIS: "group_created",
    ADD: "member_joined",
    LEAVE: "member_left",
    REMOVE: "member_removed",
    VOTE: "removal_voted",
    ROLE: "role_changed",
    LABEL: "member_renamed",
    TERMS: "terms_set",
    POST: "message",
    EDIT: "message_edited",
    DELETE: "message_deleted",
    REACT: "reacted",
    TOPIC: "topic_changed",
    ANNOUNCE: "commands_announced",
    VERDICT: "verdict_told",
}


def labels(group: Group) -> dict[str, str]:
    """What everybody who is or was a member is called."""
    return {did: member.label for did, member in (group.view.former | group.view.members).items()}


# --- shapes ---------------------------------------------------------------------------------------------------------


class Context(Struct, frozen=True):
    """What is known of an event beside its record."""

    standing: Standing = Standing()
    """Of a message: how it stands; of an edit: how the message stands that it is about."""
    quoted: Quote | None = None
    """The message that it answers."""
    record: Record | None = None
    """The record itself, where it was read already."""
    named: frozenset[str] = frozenset()
    """Of an edit: whom its message had called by name before."""
    bot: bool = False
    """Its author says of itself that it is a bot."""


def event(
    group: Group, row: Row, replayed: bool, names: Mapping[str, str] | None = None, context: Context | None = None
) -> Event:
    """One row of the log for a face."""
    context = context or Context()
    record = context.record or load(row)
    names = labels(group) if names is None else names
    post, stands = _post(record), context.standing if row.type == POST else Standing()
    vouched = stands.vouched or row.vouched
    return Event(
        seq=row.seq,
        type=_TYPES.get(record.type, "unknown"),
        group=group.id,
        id=row.id,
        author=Author(
            record.author,
            names.get(record.author, ""),
            bot=context.bot,
            verified=roster.trust(group, record.author) == "verified",
        ),
        position=record.seq,
        lamport=record.lamport,
        parents=list(dict.fromkeys([*([record.pre] if record.pre else []), *record.deps, *record.conc])),
        sent_at=timestamp(record.time),
        received_at=timestamp(row.received),
        body=_body(record, group, context.standing),
        then=roster.label_before(group, record.author, record.lamport) if record.is_control else "",
        reply_to=post.reply or None,
        quoted=context.quoted,
        mentions=[did for did in _called(record, post, context) if group.view.known(did) is not None],
        action=post.action,
        edited_at=timestamp(stands.edited) if stands.edited else "",
        deleted=stands.deleted,
        reactions=[rpc.Reaction(emoji, list(members)) for emoji, members in stands.reactions],
        attachments=[] if stands.deleted else attachments(group, record, names),
        self=record.author == group.me,
        replayed=replayed,
        late=row.late,
        vouched=Author(vouched, names.get(vouched, "")) if vouched else None,
        refuted=row.refuted,
        void=_is_void(group, record),
        delivery=counted(group, record.author, record.seq, record.lamport),
    )


def _is_void(group: Group, record: Record) -> bool:
    """Whether something that is said does not count, as the group stands now."""
    known = group.view.known(record.author) is not None
    return known and not record.is_control and not may_post(group.view, record.author, record.seq)


def late(event: Event) -> rpc.LateNews:
    """That this event has come late."""
    return rpc.LateNews(
        group=event.group,
        id=event.id,
        author=event.author.did,
        nick=event.author.nick,
        sent_at=event.sent_at,
        received_at=event.received_at,
    )


def load(row: Row) -> Record:
    """The event in a row. One that cannot be read any more stands there as something unknown, and stops nobody."""
    try:
        return load_event(row.record)
    except RemoteError:
        return Record(row.group, "unreadable", row.author, row.position, "", (), (), row.lamport, row.received, {})


def _post(record: Record) -> Post:
    """What a message says beside its text; nothing where it is none, or nonsense."""
    try:
        said = saying_of(record) if record.type == POST else None
    except Malformed:
        said = None
    return said if isinstance(said, Post) else Post("")


def _called(record: Record, post: Post, context: Context) -> list[str]:
    """Whom a message calls by name, as it was said and as it stands; whom an edit is the first to call."""
    if context.standing.deleted:
        return []
    if record.type == POST:
        return list(dict.fromkeys((*post.mentions, *context.standing.mentions)))
    try:
        said = saying_of(record) if record.type == EDIT else None
    except Malformed:
        said = None
    return [did for did in said.mentions if did not in context.named] if isinstance(said, Edit) else []


def _body(record: Record, group: Group, stands: Standing) -> dict[str, Any]:
    """What an event says, in the control protocol's words. `stands`: how the message stands that it is, or edits.

    A record of our log is authentic, but what an author put into a post may still be nonsense: it is shown as such and
    not as a failure.
    """

    def about(did: str) -> dict[str, Any]:
        return {"did": did, "nick": roster.label_before(group, did, record.lamport)}

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
                was = roster.label_before(group, record.author, record.lamport)
                return {"did": record.author, "nick": label_of(record).label, "was": was}
            case "terms":
                keep = terms_of(record)
                return {"operator": about(keep.operator), "witnesses": [about(one) for one in keep.witnesses]}
        return _said(record, stands, group)
    except Malformed:
        return {"text": "", "unreadable": True} if record.type == POST else {"unreadable": True}


def _said(record: Record, stands: Standing, group: Group) -> dict[str, Any]:
    """The same of what is said. Of a message that was taken back no text is shown, neither the first one nor a later
    one. Raises Malformed."""
    if record.type == POST and (stands.deleted or stands.edited):
        return {"text": stands.text}
    if record.type not in (POST, EDIT, DELETE, REACT, TOPIC, ANNOUNCE, VERDICT):
        return {}
    match saying_of(record):
        case Post(text) | Topic(text):
            return {"text": text}
        case Edit(of, text):
            return {"of": of, "text": "" if stands.deleted else text}
        case Delete(of):
            return {"of": of}
        case React(of, emoji, on):
            return {"of": of, "emoji": emoji, "on": on}
        case Announcement() as announced:
            return announced.body
        case Verdict(of, outcome, against):
            return {"of": of, "outcome": outcome, "did": against, "nick": labels(group).get(against, "")}


def group_info(agent: Agent, group: Group, topic: str = "") -> GroupInfo:
    ways = [reach(agent, group, member) for member in group.others]
    return GroupInfo(
        id=group.id,
        name=group.name,
        state=group.state,
        me=group.me,
        nick=labels(group).get(group.me, agent.label),
        members=len(group.view.members),
        connected=sum(connection == "connected" for connection, _ in ways),
        mailed=sum(way == ("connected", "mediator") for way in ways),
        keys=group.profile.keys,
        path=group.profile.path,
        accountability=group.profile.accountability,
        envelope=group.profile.envelope,
        view=group.view.checksum,
        unacknowledged=unacknowledged(group),
        created_at=timestamp(group.created),
        topic=topic,
        policy=roster.policy_info(group.view.policy),
        role=roster.role(group, group.me),
        log=tlog_status.state(group),
        removed_by=Author(group.removed_by, labels(group).get(group.removed_by, "")) if group.removed_by else None,
        voters=[Author(did, labels(group).get(did, "")) for did in roster.voters(group)],
        votes=roster.votes(group),
        requests=requests(group),
        forked=attestation.forked(group),
        disagreements=[
            rpc.DisagreementNews(group.id, one.member, labels(group).get(one.member, ""), one.text)
            for one in attestation.doubts(group)
        ],
        completeness=completeness(group, _near(agent, group), int(time.time() * 1000)),
        beginning=beginning(group),
        suspended=group.state == "active" and stale_profile.suspended(group),
    )


def _near(agent: Agent, group: Group) -> set[str]:
    """The members to whom there is a connection of our own now."""
    return {did for did, peer in group.peers.items() if peer.link in agent.up}


def requests(group: Group) -> list[rpc.RequestInfo]:
    """Who waits to be let in, the first that asked first."""
    return [
        rpc.RequestInfo(
            group=group.id,
            did=one.member,
            nick=one.label,
            role=roster.as_role(one.role),
            words=roster.key_words(one.member),
            asked_at=timestamp(one.at),
        )
        for one in sorted(group.requests.values(), key=lambda one: (one.at, one.member))
        if not one.refused
    ]


def unacknowledged(group: Group) -> int:
    """How many of our own events some member is not known to have."""
    behind = [
        group.seq - max(peer.acked.get(group.me, 0), peer.base)
        for member, peer in group.peers.items()
        if member in group.view.members
    ]
    return max(behind, default=0)


def member_infos(
    agent: Agent,
    group: Group,
    announced: Mapping[str, Announcement] | None = None,
    guilty: Mapping[str, list[str]] | None = None,
) -> list[MemberInfo]:
    """The members in the order in which they joined. By DID, `announced`: what each says of itself; `guilty`: what
    cases against it have come to."""
    found, now, forked, keepers = [], int(time.time() * 1000), attestation.forked(group), group.view.keepers
    whole = completeness(group, (), 0)
    missing = {gap.author: gap.missing for gap in whole.gaps} if whole else {}
    for did, member in sorted(group.view.members.items(), key=lambda item: (item[1].joined, item[0])):
        peer = group.peers.get(did)
        connection, via = reach(agent, group, did)
        agrees = heard = None
        if did != group.me and peer is not None and group.state == "active":
            agrees = peer.view == group.view.checksum if peer.view else None
        if did != group.me and peer is not None:
            heard = timestamp(peer.heard) if peer.heard else None
        trust = roster.trust(group, did)
        says = (announced or {}).get(did, Announcement())
        found.append(
            MemberInfo(
                did=did,
                nick=member.label,
                connection=connection,
                via=via,
                bot=says.bot,
                commands=[rpc.AnnouncedCommand(**one.body()) for one in says.commands],
                verified=trust == "verified",
                view_agrees=agrees,
                last_heard=heard,
                ahead_ms=peer.ahead_ms if did != group.me and peer is not None else None,
                missing=missing.get(did, 0),
                joined_at=timestamp(member.joined),
                added_by=member.added_by,
                role=roster.as_role(member.role),
                trust=trust,
                forked=did in forked,
                disputed=did in group.disputed,
                unconfirmed=did in group.quarantine,
                arrived=not member_connections.never_arrived(group, did, now),
                keeper=group.view.policy.keepers > 0 and did in keepers,
                guilty=(guilty or {}).get(did, []),
                may=roster.deeds(group, did),
            )
        )
    return found


def invitation_info(
    group: str, invitation: Invitation, uses: int, short: str = "", role: str = "writer", history: str = "all"
) -> InvitationInfo:
    return InvitationInfo(
        group=group,
        url=invitation.url(),
        code=invitation.code(),
        expires_at=timestamp(invitation.expires * 1000),
        uses=uses,
        endpoint=invitation.where,
        role=roster.as_role(role),
        short=short,
        history=history,
        id=revocation.name_of(knock_link(invitation.id)),
    )


def letters(agent: Agent, connection: str) -> list[rpc.LetterInfo]:
    """The last lines of text to and from a connection."""
    kept = agent.connections[connection].letters
    return [rpc.LetterInfo(each.id, timestamp(each.at), each.mine, each.text) for each in kept]


def connection_info(agent: Agent, one: Connection) -> ConnectionInfo:
    return ConnectionInfo(
        id=one.id,
        label=one.label,
        state=one.state,
        envelope=one.envelope,
        did=short_form(one.relationship.theirs) if one.relationship.theirs else "",
        my_did=one.relationship.mine.short,
        mediator=one.mediation.phase if one.mediation else None,
        reachable=live_uri(one) in agent.web_up if one.mediation else None,
        begun_at=timestamp(one.begun),
    )


def mediators(agent: Agent) -> list[ConnectionInfo]:
    return [connection_info(agent, one) for one in agent.connections.values() if one.mediation]


def hidden(agent: Agent) -> bool:
    """Whether this agent has no address that anybody could dial."""
    return agent.reach is not None and agent.reach.pair is None


# --- news -----------------------------------------------------------------------------------------------------------


def news(
    notice: notifications.Notice, agent: Agent, names: Callable[[Group], Mapping[str, str]]
) -> tuple[str, str, Struct] | None:
    """A notice of the core as the news that it becomes: its method, its group (empty: no group's), and its shape.

    None for what the faces hear in another way. `names` says what a group's members are called.
    """

    def nick(group: str, member: str) -> str:
        return names(agent.groups[group]).get(member, "")

    match notice:
        case notifications.Receipt(group, member, author, after, upto):
            return "receipt", group, rpc.ReceiptNews(group, member, author, after, upto)
        case notifications.PeerUp(group, member) | notifications.PeerDown(group, member):
            up = isinstance(notice, notifications.PeerUp)
            return "peer", group, rpc.PeerNews(group, member, nick(group, member), up)
        case notifications.ViewChanged(group) | notifications.Regained(group):
            return "view", group, rpc.ViewNews(group)
        case notifications.JoinProgress(join, phase, text, group, connected, members, error):
            # Nobody who waits for a join knows yet which group it will be.
            ours = next((one for one in agent.joins.values() if one.id == join), None)
            if phase == "failed" and ours and ours.contradiction:
                error = rpc.CONTRADICTION
            status = rpc.JoinStatus(
                join=join, phase=phase, text=text, group=group, connected=connected, members=members, error=error
            )
            return "join", "", _about_join(status, ours) if ours else status
        case notifications.InvitationUsed(group, label, uses_left, link):
            return "invitation", group, rpc.InvitationNews(group, label, uses_left, revocation.name_of(link))
        case notifications.Rotated(group, member, mine):
            return "rotated", group, rpc.RotatedNews(group, member, nick(group, member), mine)
        case notifications.Typing(group, member):
            return "typing", group, rpc.TypingNews(group, member, nick(group, member))
        case notifications.Delivered() | notifications.FileMoved():  # of files the desk tells, not too often
            return None
        case notifications.Logged():  # whoever wants to know asks how the log stands
            return None
        case notifications.TermsSet(group, _, operator, witnesses, by):
            kept = rpc.LogKeptNews(
                group=group,
                operator=Author(operator, nick(group, operator)) if operator else None,
                witnesses=[Author(one, nick(group, one)) for one in witnesses],
                by=Author(by, nick(group, by)) if by else None,
                members_lacking=tlog_status.lacking(agent.groups[group]),
            )
            return "log_kept", group, kept
        case notifications.LogStalled(group, _, since):
            return "log_stalled", group, rpc.LogStalledNews(group, timestamp(since))
        case notifications.LogSplit(group, _, operator):
            return "log_split", group, rpc.LogSplitNews(group, Author(operator, nick(group, operator)))
        case (
            notifications.Gap()
            | notifications.Completed()
            | notifications.Forked()
            | notifications.Confirmed()
            | notifications.Refuted()
            | notifications.Recounted()
            | notifications.Differs()
            | notifications.HistoryFetched()
        ):
            method, shape = _log_news(notice, agent, nick)
            return method, notice.group, shape
        case (
            notifications.JoinAsked()
            | notifications.JoinAnswered()
            | notifications.Seating()
            | notifications.Removed()
            | notifications.TrustChanged()
            | notifications.Disagreement()
        ):
            method, shape = _member_news(notice, agent, nick)
            return method, notice.group, shape
        case _:
            return _peer_news(notice, agent)


def _log_news(
    notice: notifications.Gap
    | notifications.Completed
    | notifications.Forked
    | notifications.Confirmed
    | notifications.Refuted
    | notifications.Recounted
    | notifications.Differs
    | notifications.HistoryFetched,
    agent: Agent,
    nick: Callable[[str, str], str],
) -> tuple[str, Struct]:
    """What is missing of a group's log, has come, or contradicts itself."""
    match notice:
        case notifications.Gap(group, author, after, upto, state):
            gap = rpc.GapNews(group=group, author=author, nick=nick(group, author), after=after, upto=upto, state=state)
            return "gap", gap
        case notifications.Completed(group, upto, at):
            return "complete", rpc.CompleteNews(group=group, upto=upto, at=timestamp(at))
        case notifications.Forked(group, author, seq):
            return "fork", rpc.ForkNews(group=group, author=author, nick=nick(group, author), position=seq)
        case notifications.Confirmed(group, author, after, upto):
            confirmed = rpc.ConfirmedNews(group=group, author=author, nick=nick(group, author), after=after, upto=upto)
            return "confirmed", confirmed
        case notifications.Refuted(group, author, by, after, upto):
            refuted = rpc.RefutedNews(
                group=group,
                author=author,
                nick=nick(group, author),
                by=by,
                by_nick=nick(group, by) if by else "",
                after=after,
                upto=upto,
            )
            return "refuted", refuted
        case notifications.Recounted(group, author, after, upto, counts):
            recounted = rpc.RecountedNews(
                group=group,
                author=author,
                nick=nick(group, author),
                mine=author == agent.groups[group].me,
                out=author not in agent.groups[group].view.members,
                after=after,
                upto=upto,
                counts=counts,
            )
            return "recounted", recounted
        case notifications.Differs(group, author, seq, member, by):
            return "differs", differs(agent.groups[group], author, seq, member, by, partial(nick, group))
        case notifications.HistoryFetched(group, got, left, done):
            return "earlier", rpc.EarlierNews(group=group, got=got, left=left, done=done)


def joins(agent: Agent, told: Mapping[str, rpc.JoinStatus]) -> list[rpc.JoinStatus]:
    """Our joins that are under way, and the last one that has failed, as it was `told` (by id)."""
    found, failed = [], None
    for one in agent.joins.values():
        last = told.get(one.id)
        if one.phase == "failed":
            failed = last if last is not None and last.phase == "failed" else failed
        elif one.phase != "done" or not one.seated:
            text = f"On the way into {one.name}." if one.name else "Looking for whoever invited you."
            begun = rpc.JoinStatus(
                join=one.id, phase="connecting" if one.phase == "done" else one.phase, text=text, group=one.group
            )
            found.append(_about_join(last if last is not None and last.phase != "failed" else begun, one))
    return [*found, failed] if failed is not None else found


def _about_join(status: rpc.JoinStatus, ours: Join) -> rpc.JoinStatus:
    """What is known of a join besides what it was told."""
    words = roster.key_words(ours.me) if ours.pending and ours.phase == "asking" and status.phase != "failed" else []
    # With everybody away a newcomer is in all the same, and waits for them for as long as that takes.
    until = timestamp(ours.deadline) if ours.phase in ("exchanging", "asking") else ""
    since = timestamp(ours.begun) if ours.begun else ""
    return replace(status, words=words, name=ours.name, since=since, until=until, parting=ours.parting > 0)


def ended(agent: Agent, join: str) -> rpc.JoinStatus:
    """A join that was given up."""
    ours = next(one for one in agent.joins.values() if one.id == join)
    status = rpc.JoinStatus(join=join, phase="failed", text="Given up.", group=ours.group)
    return _about_join(status, ours)


def _member_news(
    notice: notifications.JoinAsked
    | notifications.JoinAnswered
    | notifications.Seating
    | notifications.Removed
    | notifications.TrustChanged
    | notifications.Disagreement,
    agent: Agent,
    nick: Callable[[str, str], str],
) -> tuple[str, Struct]:
    """What happens to the members of a group, and to those who want to be."""
    match notice:
        case notifications.JoinAsked(group, member, label, role):
            asked = rpc.RequestNews(group=group, member=member, nick=label, role=roster.as_role(role), state="asked")
            return "request", asked
        case notifications.JoinAnswered(group, member, label, admitted):
            state: Literal["admitted", "refused"] = "admitted" if admitted else "refused"
            return "request", rpc.RequestNews(group=group, member=member, nick=label, state=state)
        case notifications.Seating(group, member, connected, members):
            return "seating", rpc.SeatingNews(group, member, nick(group, member), connected, members)
        case notifications.Removed(group, by):
            voters = [nick(group, did) for did in roster.voters(agent.groups[group])]
            return "removed", rpc.RemovedNews(group, by, nick(group, by), voters)
        case notifications.TrustChanged(group, member):
            trust = roster.trust(agent.groups[group], member)
            return "trust", rpc.TrustNews(group, member, nick(group, member), trust)
        case notifications.Disagreement(group, member, text):
            return "disagreement", rpc.DisagreementNews(group, member, nick(group, member), text)


def _peer_news(
    notice: notifications.Pong
    | notifications.FeaturesDisclosed
    | notifications.ConnectionChanged
    | notifications.Told
    | notifications.ProblemReported,
    agent: Agent,
) -> tuple[str, str, Struct]:
    """What peers say of themselves, and not to a group."""
    match notice:
        case notifications.Pong():
            pong = rpc.PongNews(
                thread=notice.thread,
                peer=notice.peer,
                rtt_ms=notice.rtt_ms,
                envelope=notice.envelope,
                their_key=notice.their_key,
                my_key=notice.my_key,
                way=notice.way,
            )
            return "pong", "", pong
        case notifications.FeaturesDisclosed(thread, peer, found):
            features = [rpc.FeatureInfo(kind, name) for kind, name in found]
            return "features", "", rpc.FeaturesNews(thread, peer, features)
        case notifications.ConnectionChanged(connection, text):
            one = agent.connections.get(connection)
            if one is None:
                return "connection", "", rpc.ConnectionNews(connection=connection, text=text)
            info = connection_info(agent, one)
            changed = rpc.ConnectionNews(
                connection=connection, text=text, label=info.label, state=info.state, mediator=info.mediator
            )
            return "connection", "", changed
        case notifications.Told(connection, text):
            one = agent.connections.get(connection)
            return "told", "", rpc.ToldNews(connection, one.label if one else "", text)
        case notifications.ProblemReported(peer, code, comment):
            return "problem", "", rpc.ProblemNews(peer, code, comment)
