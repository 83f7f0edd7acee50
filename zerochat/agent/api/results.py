"""Results of core commands as results of the control protocol."""

from typing import TypeAlias

from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.handlers.context import Services
from zerochat.agent.api.server import Call
from zerochat.agent.files import view
from zerochat.agent.views import event_pages
from zerochat.agent.views.connections import connection_info
from zerochat.agent.views.delivery_counts import audience
from zerochat.agent.views.groups import cancelled_join, invitation_info
from zerochat.agent.views.members import ignored_member, vote
from zerochat.errors import LocalError
from zerochat.group import effects
from zerochat.group.inputs import ChangeRole, Command, IgnoreMember, ImportEvents, SetTlogTerms, VerifyMember
from zerochat.group.links.contact import join_link
from zerochat.group.state import Agent, Group
from zerochat.rpc.common import timestamp

Ticket: TypeAlias = tuple[Call, Command]


class Undone(LocalError):
    """The command was carried out, but another command undid it in the same moment."""


def result_of(services: Services, call: Call, command: Command, done: effects.CommandDone, agent: Agent) -> object:
    """The result of a command. Raises Undone where its subject is gone."""
    try:
        return _result_of(services, call, command, done, agent)
    except KeyError:
        raise Undone from None


def _result_of(services: Services, call: Call, command: Command, done: effects.CommandDone, agent: Agent) -> object:
    match done.result:
        case effects.GroupCreated(group) | effects.GroupLeft(group) | effects.ConversationOpened(group):
            return services.group_info(agent, agent.groups[group])
        case effects.InvitationCreated(_, invitation):
            return invitation_info(agent, agent.invitations[join_link(invitation.id)], services.shorten)
        case effects.Voted(group, member, votes, needed):
            return replace(vote(agent.groups[group], member), votes=votes, needed=needed)
        case effects.GroupChanged(group):
            return _changed(services, command, agent, agent.groups[group])
        case effects.JoinStarted(join):
            return rpc.JoinStatus(join=join, phase="dialling", text="Connecting to the inviter…")
        case effects.JoinCancelled(join):
            return cancelled_join(agent, join)
        case effects.GroupForgotten():
            return rpc.NoParams()
        case effects.FileChanged(group, key):
            found = agent.groups[group]
            return view.file_info(found, found.files[key].file, found.files[key], services.names(found))
        case effects.EventsImported(group, outcomes):
            assert isinstance(command, ImportEvents)
            return event_pages.imported(services.journal, group, command.records, outcomes)
        case effects.IndicatorSent(members):
            return rpc.EphemeralResult(members)
        case effects.Posted(group, event) if call.method == "announce_bot":
            return rpc.Announced(group, event)
        case effects.Posted(group, event, seq, lamport):
            recipients = audience(agent.groups[group], agent.groups[group].me, seq, lamport)
            return rpc.Sent(group, event, lamport, seq, len(recipients))
        case effects.QuestionSent(thread) if call.method == "send_connection_message":
            return rpc.SentConnectionMessage(thread)
        case effects.QuestionSent(thread):
            return rpc.PendingReply(thread)
        case effects.ConnectionUpdated(connection) if call.method == "open_connection":
            return connection_info(agent, agent.connections[connection])
        case effects.ConnectionUpdated():
            return rpc.NoParams()
        case effects.ConnectionOffered(connection, url, expires):
            short = services.shorten(url, expires)
            return rpc.ConnectionOffer(
                url=url, expires_at=timestamp(expires * 1000), connection=connection, short=short
            )


def _changed(services: Services, command: Command, agent: Agent, group: Group) -> object:
    """The changed part of a group."""
    if isinstance(command, SetTlogTerms):
        return services.tlog_info(group)
    if isinstance(command, IgnoreMember):
        return ignored_member(group, command.member)
    if isinstance(command, ChangeRole | VerifyMember):
        did = command.member or group.me
        return services.members(agent, group, [did])[0]  # KeyError: it is gone
    return services.group_info(agent, group)
