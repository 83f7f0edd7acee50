"""Notifications of the core as notifications of the control protocol."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.views import members as roster
from zerochat.agent.views import tlog_status
from zerochat.agent.views.connections import connection_info
from zerochat.agent.views.delivery import differs
from zerochat.agent.views.groups import join_details
from zerochat.group import notifications
from zerochat.group.joining import requests
from zerochat.group.state import Agent, Group
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import Author
from zerochat.rpc.common import timestamp

_MemberChange: TypeAlias = (
    notifications.JoinRequested
    | notifications.JoinRequestAnswered
    | notifications.PrivateInvited
    | notifications.PrivateInvitationAnswered
    | notifications.ConversationMoved
    | notifications.MemberConnections
    | notifications.RemovedFromGroup
    | notifications.VerificationChanged
    | notifications.IgnoredChanged
    | notifications.ViewDisagreement
)


def notification_of(
    change: notifications.Notification | rpc.ReceiptNotification,
    agent: Agent,
    names: Callable[[Group], Mapping[str, str]],
) -> tuple[str, str, Struct] | None:
    """A notification of the core as method, group (empty: none) and params; None where clients get the information
    otherwise. `names`: the display names of a group."""

    def nick(group: str, member: str) -> str:
        return names(agent.groups[group]).get(member, "")

    if isinstance(change, _MemberChange):
        method, params = _member_change(change, agent, nick)
        return method, change.group, params
    match change:
        case rpc.ReceiptNotification(group=group):
            return "receipt", group, change
        case notifications.Receipt(group, member, author, after, upto):
            return "receipt", group, rpc.ReceiptNotification(group, member, author, after, upto)
        case notifications.PeerUp(group, member) | notifications.PeerDown(group, member):
            up = isinstance(change, notifications.PeerUp)
            return "peer_changed", group, rpc.PeerNotification(group, member, nick(group, member), up)
        case notifications.ViewChanged(group) | notifications.RecoveryEnded(group):
            return "view_changed", group, rpc.ViewNotification(group)
        case notifications.JoinProgress():
            return "join_changed", "", _join_status(change, agent)
        case notifications.InvitationUsed(group, label, uses_left, link):
            open_ = agent.invitations.get(link)
            name = open_.name if open_ is not None else ""
            used = rpc.InvitationNotification(group, label, uses_left, requests.invitation_name(link), name)
            return "invitation_used", group, used
        case notifications.DidRotated(group, member, mine):
            return "did_rotated", group, rpc.RotatedNotification(group, member, nick(group, member), mine)
        case notifications.Typing(group, member):
            return "typing", group, rpc.TypingNotification(group, member, nick(group, member))
        case notifications.Delivered() | notifications.FileProgress() | notifications.TlogExtended():
            return None  # the file handlers send progress; clients request the state of the transparency log
        case notifications.ContentExpired(group):
            return "expired", group, rpc.ExpiredNotification(group, agent.groups[group].retention.erased_before)
        case notifications.TlogTermsChanged() | notifications.TlogStalled() | notifications.TlogSplit():
            method, params = _tlog_change(change, agent, nick)
            return method, change.group, params
        case (
            notifications.Gap()
            | notifications.GapsFilled()
            | notifications.ForkDetected()
            | notifications.EventsConfirmed()
            | notifications.EventsRefuted()
            | notifications.ValidityChanged()
            | notifications.DifferenceFound()
            | notifications.HistoryProgress()
        ):
            method, params = _log_change(change, agent, nick)
            return method, change.group, params
        case _:
            return _peer_change(change, agent)


def merged_receipts(
    changes: Iterable[notifications.Notification], agent: Agent
) -> Iterator[notifications.Notification | rpc.ReceiptNotification]:
    """The notifications of a batch. Of a group with more members than one answer names, receipts of own events only,
    and one for all members that have reported the same."""
    merged: dict[tuple[str, int, int], rpc.ReceiptNotification] = {}
    for change in changes:
        group = agent.groups.get(change.group) if isinstance(change, notifications.Receipt) else None
        if not isinstance(change, notifications.Receipt) or group is None or len(group.view.members) <= MEMBER_PAGE_MAX:
            yield change
        elif change.author == group.me:
            key = change.group, change.after, change.upto
            first = merged.get(key)
            merged[key] = (
                rpc.ReceiptNotification(change.group, change.member, change.author, change.after, change.upto)
                if first is None
                else replace(first, members=first.members + 1)
            )
    yield from merged.values()


def _join_status(change: notifications.JoinProgress, agent: Agent) -> rpc.JoinStatus:
    join = next((one for one in agent.joins.values() if one.id == change.join), None)
    error = rpc.CONTRADICTION if change.phase == "failed" and join and join.conflict else change.error
    status = rpc.JoinStatus(
        join=change.join,
        phase=change.phase,
        text=change.text,
        group=change.group,
        connected=change.connected,
        members=change.members,
        error=error,
    )
    return join_details(status, join) if join else status


def _tlog_change(
    change: notifications.TlogTermsChanged | notifications.TlogStalled | notifications.TlogSplit,
    agent: Agent,
    nick: Callable[[str, str], str],
) -> tuple[str, Struct]:
    """Changes of the transparency log."""

    def author(did: str) -> Author:
        return Author(did, nick(change.group, did))

    match change:
        case notifications.TlogTermsChanged(group, _, operator, witnesses, by):
            terms = rpc.TlogTermsNotification(
                group=group,
                operator=author(operator) if operator else None,
                witnesses=[author(witness) for witness in witnesses],
                by=author(by) if by else None,
                members_missing=tlog_status.lacking(agent.groups[group]),
            )
            return "tlog_terms", terms
        case notifications.TlogStalled(group, _, since):
            return "tlog_stalled", rpc.TlogStalledNotification(group, timestamp(since))
        case notifications.TlogSplit(group, _, operator):
            return "tlog_split", rpc.TlogSplitNotification(group, author(operator))


def _log_change(
    change: notifications.Gap
    | notifications.GapsFilled
    | notifications.ForkDetected
    | notifications.EventsConfirmed
    | notifications.EventsRefuted
    | notifications.ValidityChanged
    | notifications.DifferenceFound
    | notifications.HistoryProgress,
    agent: Agent,
    nick: Callable[[str, str], str],
) -> tuple[str, Struct]:
    """Gaps, confirmations, forks and differences."""
    match change:
        case notifications.Gap(group, author, after, upto, state):
            gap = rpc.GapNotification(
                group=group, author=author, nick=nick(group, author), after=after, upto=upto, state=state
            )
            return "gap", gap
        case notifications.GapsFilled(group, upto, at):
            return "complete", rpc.CompleteNotification(group=group, upto=upto, at=timestamp(at))
        case notifications.ForkDetected(group, author, seq):
            return "fork", rpc.ForkNotification(group=group, author=author, nick=nick(group, author), position=seq)
        case notifications.EventsConfirmed(group, author, after, upto):
            confirmed = rpc.ConfirmedNotification(
                group=group, author=author, nick=nick(group, author), after=after, upto=upto
            )
            return "confirmed", confirmed
        case notifications.EventsRefuted(group, author, by, after, upto):
            refuted = rpc.RefutedNotification(
                group=group,
                author=author,
                nick=nick(group, author),
                by=by,
                by_nick=nick(group, by) if by else "",
                after=after,
                upto=upto,
            )
            return "refuted", refuted
        case notifications.ValidityChanged(group, author, after, upto, counts):
            recounted = rpc.ValidityNotification(
                group=group,
                author=author,
                nick=nick(group, author),
                mine=author == agent.groups[group].me,
                author_removed=author not in agent.groups[group].view.members,
                after=after,
                upto=upto,
                valid=counts,
            )
            return "validity_changed", recounted
        case notifications.DifferenceFound(group, author, seq, member, by):
            return "chain_difference", differs(agent.groups[group], author, seq, member, by, partial(nick, group))
        case notifications.HistoryProgress(group, got, left, done):
            return "backfill", rpc.BackfillNotification(group=group, received=got, remaining=left, done=done)


def _member_change(
    change: _MemberChange,
    agent: Agent,
    nick: Callable[[str, str], str],
) -> tuple[str, Struct]:
    """Join requests, private invitations, removals, verification and warnings."""
    match change:
        case notifications.JoinRequested(group, member, label, role):
            asked = rpc.JoinRequestNotification(
                group=group, member=member, nick=label, role=roster.as_role(role), state="asked"
            )
            return "join_request", asked
        case notifications.JoinRequestAnswered(group, member, label, admitted):
            state: Literal["admitted", "refused"] = "admitted" if admitted else "refused"
            return "join_request", rpc.JoinRequestNotification(group=group, member=member, nick=label, state=state)
        case notifications.PrivateInvited(group, member):
            invited = rpc.PrivateInvitationNotification(
                group=group, member=member, nick=nick(group, member), state="asked"
            )
            return "private_invitation", invited
        case notifications.PrivateInvitationAnswered(group, member, accepted):
            answer: Literal["accepted", "declined"] = "accepted" if accepted else "declined"
            return "private_invitation", rpc.PrivateInvitationNotification(
                group=group, member=member, nick=nick(group, member), state=answer
            )
        case notifications.ConversationMoved(group, former):
            return "conversation_moved", rpc.ConversationMovedNotification(group, former)
        case notifications.MemberConnections(group, member, connected, members):
            return "member_connections", rpc.MemberConnectionsNotification(
                group, member, nick(group, member), connected, members
            )
        case notifications.RemovedFromGroup(group, by):
            voters = [nick(group, did) for did in roster.voters(agent.groups[group])]
            return "removed", rpc.RemovedNotification(group, by, nick(group, by), voters)
        case notifications.VerificationChanged(group, member):
            trust = roster.trust_level(agent.groups[group], member)
            return "trust_changed", rpc.TrustNotification(group, member, nick(group, member), trust)
        case notifications.IgnoredChanged(group, member):
            ignored = member in agent.groups[group].trust.ignored
            return "ignored_changed", rpc.IgnoredNotification(group, member, nick(group, member), ignored)
        case notifications.ViewDisagreement(group, member, text):
            return "warning", rpc.WarningNotification(group, member, nick(group, member), text)


def _peer_change(
    change: notifications.Pong
    | notifications.FeaturesDisclosed
    | notifications.ConnectionChanged
    | notifications.BasicMessageReceived
    | notifications.MessageSettled
    | notifications.ProblemReported,
    agent: Agent,
) -> tuple[str, str, Struct]:
    """Answers and messages from peers."""
    match change:
        case notifications.Pong():
            pong = rpc.PongNotification(
                thread=change.thread,
                peer=change.peer,
                rtt_ms=change.rtt_ms,
                envelope=change.envelope,
                their_key=change.their_key,
                my_key=change.my_key,
                channel=change.transport,
            )
            return "pong", "", pong
        case notifications.FeaturesDisclosed(thread, peer, found):
            features = [rpc.FeatureInfo(kind, name) for kind, name in found]
            return "features", "", rpc.FeaturesNotification(thread, peer, features)
        case notifications.ConnectionChanged(connection, text):
            one = agent.connections.get(connection)
            if one is None:
                return "connection_changed", "", rpc.ConnectionNotification(connection=connection, text=text)
            info = connection_info(agent, one)
            changed = rpc.ConnectionNotification(
                connection=connection, text=text, label=info.label, state=info.state, mediator=info.mediator
            )
            return "connection_changed", "", changed
        case notifications.BasicMessageReceived(connection, text, attachments):
            one = agent.connections.get(connection)
            label = one.label if one else ""
            received = rpc.ConnectionMessageNotification(connection, label, text, list(attachments))
            return "connection_message", "", received
        case notifications.MessageSettled(connection, identifier, status):
            one = agent.connections.get(connection)
            label = one.label if one else ""
            settled = rpc.MessageSettledNotification(connection, label, identifier, status)
            return "connection_message_settled", "", settled
        case notifications.ProblemReported(peer, code, comment):
            return "problem_report", "", rpc.ProblemNotification(peer, code, comment)
