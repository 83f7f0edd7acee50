"""Command handlers: one `match` from each command of a client to the function that executes it."""

from typing import assert_never

from zerochat.errors import LocalError, NotAMember
from zerochat.group import did_rotation, retention
from zerochat.group.dcgka import publisher
from zerochat.group.effects import (
    ConnectionOffered,
    ConnectionUpdated,
    EventsImported,
    FileChanged,
    GroupChanged,
    GroupCreated,
    GroupForgotten,
    GroupLeft,
    IndicatorSent,
    InvitationCreated,
    JoinCancelled,
    JoinStarted,
    Posted,
    QuestionSent,
    Result,
)
from zerochat.group.event_log import own_events
from zerochat.group.external import connections, mediators, seclusion, short_links, standard_protocols
from zerochat.group.files import catalogue
from zerochat.group.inputs import (
    AcceptConnection,
    AcceptInvitation,
    AnswerJoinRequest,
    AnswerPrivateInvitation,
    CancelJoin,
    ChangeLabel,
    ChangeRole,
    ChooseRetention,
    Command,
    CreateGroup,
    CreateInvitation,
    DeleteFile,
    DismissDoubts,
    DownloadFile,
    EndConnection,
    ForgetGroup,
    IgnoreMember,
    ImportEvents,
    LeaveGroup,
    OfferConnection,
    OpenConversation,
    PingPeer,
    QueryFeatures,
    Rekey,
    RemoveMember,
    ResumeGroup,
    RevokeInvitation,
    RotateDid,
    SendBasicMessage,
    SendContent,
    SendPost,
    SendReadReceipt,
    SendTyping,
    SetTlogTerms,
    SubmitTlogEntry,
    UpgradeKeys,
    VerifyMember,
)
from zerochat.group.joining import (
    cancellation,
    founding,
    invitations,
    joiner,
    private_conversations,
    private_invitations,
    requests,
)
from zerochat.group.links.contact import join_link
from zerochat.group.lookup import find_connection, find_group, find_peer
from zerochat.group.membership import decisions, leave, may_post
from zerochat.group.messages import indicators
from zerochat.group.messages.bodies import Content, Pins, Post, Topic, validated
from zerochat.group.messages.current import may_set_topic
from zerochat.group.state import Group
from zerochat.group.sync import acknowledgements, archive_import, stale_profile
from zerochat.group.tlog import submission, terms
from zerochat.group.transaction import Transaction
from zerochat.names import checked_name


class KeysDoNotHeal(LocalError):
    """{group} has keys that cannot be renewed: only `dcgka` and `deniable` can. See `zerochat upgrade --help`."""


class ReadOnly(LocalError):
    """You are read-only in {group}. Type `zerochat role {group} writer` to post, or ask an admin."""


class AdminsOnly(LocalError):
    """Only the owner and the admins set the topic of {group} and pin messages. `zerochat info {group}` lists them."""


def handle_command(tx: Transaction, command: Command) -> Result:
    match command:
        case CreateGroup():
            return GroupCreated(founding.create_group(tx, command))
        case CreateInvitation(reference, lifetime_s, uses, role, history, name):
            group = find_group(tx.agent, reference)
            if group.private is not None:
                raise invitations.PrivateGroup
            made = invitations.invite(tx, group, lifetime_s, uses, joiner.checked_role(role), history, name)
            short_links.add(tx, join_link(made.id))
            return InvitationCreated(group.id, made)
        case RevokeInvitation(reference, which):
            return requests.revoke_invitation(tx, reference, which)
        case AcceptInvitation(invitation, label, role):
            seclusion.check_invitation(tx.agent, invitation)
            return JoinStarted(joiner.accept_invitation(tx, invitation, checked_name(label, "name"), role))
        case CancelJoin(reference):
            cancelled = cancellation.cancel(tx, reference)
            private_invitations.cancelled(tx, cancelled)
            return JoinCancelled(cancelled)
        case AnswerJoinRequest():
            return requests.answer_request(tx, command)
        case OpenConversation():
            return private_invitations.open_conversation(tx, command)
        case AnswerPrivateInvitation():
            return private_invitations.answer(tx, command)
        case SendPost(reference, text, reply, action, mentions, files, hops):
            group = find_group(tx.agent, reference)
            catalogue.check_room(tx.agent, group, files)
            posted = _send_content(tx, group, Post(text, reply, action, mentions, files, hops=hops))
            catalogue.add_own(tx, tx.group(group.id), posted.id, files)
            return posted
        case DownloadFile(reference, file, author, event):
            group = find_group(tx.agent, reference)
            if group.state != "active":
                raise NotAMember(group=group.name)
            catalogue.fetch_file(tx, group, file, author, event)
            return FileChanged(group.id, file.id)
        case DeleteFile(reference, key):
            group = find_group(tx.agent, reference)
            catalogue.remove_file(tx, group, key)
            return FileChanged(group.id, key)
        case SendContent(reference, content):
            return _send_content(tx, find_group(tx.agent, reference), content)
        case LeaveGroup(reference):
            return GroupLeft(leave.leave(tx, find_group(tx.agent, reference)))
        case ForgetGroup(reference):
            return GroupForgotten(leave.forget_group(tx, find_group(tx.agent, reference)))
        case ResumeGroup(reference):
            return GroupChanged(stale_profile.resume(tx, find_group(tx.agent, reference)))
        case ImportEvents(reference, records, back):
            group = find_group(tx.agent, reference)
            return EventsImported(group.id, archive_import.import_page(tx, group.id, records, back))
        case DismissDoubts(reference, member):
            return decisions.dismiss_warnings(tx, reference, member)
        case RemoveMember(reference, member):
            return decisions.remove(tx, reference, member)
        case UpgradeKeys(reference):
            return decisions.upgrade(tx, reference)
        case ChangeRole(reference, member, role):
            return decisions.change_role(tx, reference, member, role)
        case ChangeLabel(reference, label):
            return decisions.change_label(tx, reference, checked_name(label, "name"))
        case VerifyMember(reference, member, verified):
            return decisions.verify(tx, reference, member, verified)
        case IgnoreMember(reference, member, ignored):
            return decisions.ignore(tx, reference, member, ignored)
        case ChooseRetention(reference, rule):
            return GroupChanged(retention.choose(tx, find_group(tx.agent, reference), rule))
        case SetTlogTerms():
            return terms.set_terms(tx, command)
        case SubmitTlogEntry():
            return submission.submit_entry(tx, command)
        case SendTyping(reference):
            return IndicatorSent(indicators.send_typing(tx, find_group(tx.agent, reference)))
        case SendReadReceipt(reference, upto):
            return IndicatorSent(indicators.send_read_receipt(tx, find_group(tx.agent, reference), upto))
        case PingPeer(reference):
            return QuestionSent(standard_protocols.send_ping(tx, find_peer(tx.agent, reference)))
        case QueryFeatures(reference, match):
            return QuestionSent(standard_protocols.query_features(tx, find_peer(tx.agent, reference), match))
        case Rekey(reference):
            return GroupChanged(_rekey(tx, find_group(tx.agent, reference)))
        case RotateDid(reference, every_ms):
            return ConnectionUpdated(did_rotation.handle_command(tx, reference, every_ms).connection)
        case SendBasicMessage(reference, text):
            return QuestionSent(_send_basic_message(tx, reference, text))
        case AcceptConnection(invitation, label, mediate):
            if not mediate:
                seclusion.check_relay(tx.agent)
            name = connections.accept_invitation(tx, invitation, label, mediate)
            if mediate:
                mediators.request_mediation(tx, name)
            return ConnectionUpdated(name)
        case OfferConnection():
            return ConnectionOffered(*connections.create_invitation(tx, command))
        case EndConnection(reference):
            name = find_connection(tx.agent, reference)
            if tx.agent.connections[name].mediation is not None:
                mediators.end_mediation(tx, name)
            connections.end_connection(tx, name)
            return ConnectionUpdated(name)
        case _:
            assert_never(command)


def _send_content(tx: Transaction, group: Group, content: Content) -> Posted:
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not may_post(group.view, group.me, group.seq + 1):
        raise ReadOnly(group=group.name)
    if isinstance(content, Topic | Pins) and not may_set_topic(group.view, group.me, group.seq + 1):
        raise AdminsOnly(group=group.name)
    private_conversations.check_content(group, content)
    event = own_events.append(tx, group.id, content.kind, validated(content).body)
    return Posted(group.id, event.id, event.seq, event.lamport)


def _rekey(tx: Transaction, group: Group) -> str:
    """Make an update of our keys now: it heals those of all members that adopt it before their next message."""
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not group.mode.heals:
        raise KeysDoNotHeal(group=group.name)
    stale_profile.check_not_suspended(group)
    acknowledgements.expect_key_acks(tx, group.id, publisher.make(tx, group.id, update=True))
    return group.id


def _send_basic_message(tx: Transaction, reference: str, text: str) -> str:
    name = find_connection(tx.agent, reference)
    if not tx.agent.connections[name].relationship.established:
        raise did_rotation.NotReady(peer=reference)
    return standard_protocols.send_message(tx, name, text)
