"""What a person or a program at this machine may ask of the core, one command at a time."""

from typing import ClassVar, assert_never

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.errors import (
    GroupExists,
    LocalError,
    NotAMember,
    Retry,
)
from zerochat.group.effects import (
    Asked,
    Changed,
    Connected,
    FileChanged,
    Forgotten,
    GroupCreated,
    Imported,
    InvitationCreated,
    JoinEnded,
    JoinStarted,
    Left,
    Notify,
    Offered,
    Posted,
    Result,
    Shared,
)
from zerochat.group.event_log import log
from zerochat.group.event_log.event import GENESIS, Event
from zerochat.group.external import connections, mediators, questions
from zerochat.group.files import catalogue
from zerochat.group.inputs import (
    AcceptInvitation,
    AnswerRequest,
    AskFeatures,
    CancelJoin,
    ChangeLabel,
    ChangeRole,
    Command,
    Connect,
    CreateGroup,
    CreateInvitation,
    DismissDoubts,
    DropFile,
    EndConnection,
    ForgetGroup,
    GetFile,
    ImportEvents,
    LeaveGroup,
    OfferConnection,
    PingPeer,
    PostToLog,
    RemoveMember,
    ResumeGroup,
    RevokeInvitation,
    RotateDid,
    Say,
    SendPost,
    SetTerms,
    ShareRead,
    ShareTyping,
    Tell,
    VerifyMember,
)
from zerochat.group.joining import cancellation, invitations, joiner, requests, revocation
from zerochat.group.key_modes import MODES
from zerochat.group.links import mediator_mail, pairing
from zerochat.group.links.contact import new_identity, sign_possession, transport_name
from zerochat.group.lookup import find_connection, find_group, find_peer
from zerochat.group.membership import check_control, decisions, leave, may_post, resolve_view
from zerochat.group.messages import ephemeral
from zerochat.group.messages.bodies import Post, Saying, Topic, checked
from zerochat.group.messages.current import may_set_topic
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import Chain, Group, Profile
from zerochat.group.sync import acknowledgements, archive_import, stale_profile
from zerochat.group.tlog import submission, terms
from zerochat.group.transaction import Turn
from zerochat.names import checked_name


class NotReady(LocalError):
    """There is no relationship with {peer} yet, or it has ended. Try again when both are connected."""

    retry: ClassVar[Retry] = "later"


class RotationUnderWay(LocalError):
    """{peer} does not know the last DID yet. It hears of it as soon as it can be reached; then you can rotate again."""

    retry: ClassVar[Retry] = "later"


class UnknownKeys(LocalError):
    """There are no keys called {keys}. This version has: {known}."""


class UnknownAccountability(LocalError):
    """A group with the keys {keys} cannot have the accountability {accountability}. This version has `acks` with all
    keys, and `ledger` with those that sign (sender-key)."""


class UnfitPolicy(LocalError):
    """A group cannot have these rules together: {why}."""


class ReadOnly(LocalError):
    """You only read in {group}. To write there: `zerochat role {group} writer`, or, where that is not yours to decide,
    ask an admin."""


class AdminsOnly(LocalError):
    """What {group} is about, its owner and its admins say. `zerochat info {group}` shows who they are."""


def obey(turn: Turn, command: Command) -> Result:
    match command:
        case CreateGroup():
            return GroupCreated(_create(turn, command))
        case CreateInvitation(wanted, lifetime_s, uses, role, history):
            group = find_group(turn.agent, wanted)
            made = invitations.invite(turn, group, lifetime_s, uses, joiner.checked_role(role), history)
            return InvitationCreated(group.id, made)
        case RevokeInvitation(wanted, which):
            return revocation.revoke(turn, wanted, which)
        case AcceptInvitation(invitation, label, role):
            return JoinStarted(joiner.accept(turn, invitation, checked_name(label, "name"), role))
        case CancelJoin(wanted):
            return JoinEnded(cancellation.cancel(turn, wanted))
        case AnswerRequest():
            return requests.answer(turn, command)
        case SendPost(wanted, text, reply, action, mentions, files):
            group = find_group(turn.agent, wanted)
            catalogue.check_room(turn.agent, group, files)
            said = _say(turn, group, Post(text, reply, action, mentions, files))
            catalogue.attached(turn, turn.group(group.id), said.id, files)
            return said
        case GetFile(wanted, file, author, event):
            group = find_group(turn.agent, wanted)
            if group.state != "active":
                raise NotAMember(group=group.name)
            catalogue.get(turn, group, file, author, event)
            return FileChanged(group.id, file.id)
        case DropFile(wanted, key):
            group = find_group(turn.agent, wanted)
            catalogue.drop(turn, group, key)
            return FileChanged(group.id, key)
        case Say(wanted, what):
            return _say(turn, find_group(turn.agent, wanted), what)
        case LeaveGroup(wanted):
            return Left(leave.leave(turn, find_group(turn.agent, wanted)))
        case ForgetGroup(wanted):
            return Forgotten(leave.forget(turn, find_group(turn.agent, wanted)))
        case ResumeGroup(wanted):
            return Changed(stale_profile.resume(turn, find_group(turn.agent, wanted)))
        case ImportEvents(wanted, records, back):
            group = find_group(turn.agent, wanted)
            return Imported(group.id, archive_import.take(turn, group.id, records, back))
        case DismissDoubts(wanted, member):
            return decisions.dismiss(turn, wanted, member)
        case RemoveMember(wanted, member):
            return decisions.remove(turn, wanted, member)
        case ChangeRole(wanted, member, role):
            return decisions.change_role(turn, wanted, member, role)
        case ChangeLabel(wanted, label):
            return decisions.change_label(turn, wanted, checked_name(label, "name"))
        case VerifyMember(wanted, member, verified):
            return decisions.verify(turn, wanted, member, verified)
        case SetTerms():
            return terms.set_by_hand(turn, command)
        case PostToLog():
            return submission.post(turn, command)
        case ShareTyping(wanted):
            return Shared(ephemeral.tell_typing(turn, find_group(turn.agent, wanted)))
        case ShareRead(wanted, upto):
            return Shared(ephemeral.tell_read(turn, find_group(turn.agent, wanted), upto))
        case PingPeer(wanted):
            return Asked(questions.ask_ping(turn, find_peer(turn.agent, wanted)))
        case AskFeatures(wanted, match):
            return Asked(questions.ask_features(turn, find_peer(turn.agent, wanted), match))
        case RotateDid(wanted):
            return _rotate(turn, wanted)
        case Tell(wanted, text):
            return Asked(_tell(turn, wanted, text))
        case Connect(invitation, label, mediate):
            name = connections.accept(turn, invitation, label, mediate)
            if mediate:
                mediators.ask(turn, name)
            return Connected(name)
        case OfferConnection(envelope, label, lifetime_s):
            return Offered(*connections.offer(turn, envelope, label or turn.agent.label, lifetime_s))
        case EndConnection(wanted):
            name = find_connection(turn.agent, wanted)
            if turn.agent.connections[name].mediation is not None:
                mediators.end(turn, name)
            connections.end(turn, name)
            return Connected(name)
        case _:
            assert_never(command)


def _create(turn: Turn, wanted: CreateGroup) -> str:
    """Found a group: its genesis event is its name for ever."""
    name, label = checked_name(wanted.name, "group's name"), checked_name(wanted.label, "name")
    if any(group.name == name and group.state != "left" for group in turn.agent.groups.values()):
        raise GroupExists(group=name)
    assert turn.agent.reach is not None
    seed = turn.moment.random(32)
    profile = Profile(keys=wanted.keys, accountability=wanted.accountability, envelope=wanted.envelope)
    if not log.supported(profile):
        if wanted.keys in MODES:
            raise UnknownAccountability(accountability=wanted.accountability, keys=wanted.keys)
        raise UnknownKeys(keys=wanted.keys, known=", ".join(MODES))
    if wanted.policy.fault:
        raise UnfitPolicy(why=wanted.policy.fault)
    contact = new_identity(turn.moment.random, mediator_mail.own_reach(turn, seed), profile.envelope)
    now = max(1, turn.now)
    body = {
        "name": name,
        "keys": profile.keys,
        "path": profile.path,
        "accountability": profile.accountability,
        "envelope": profile.envelope,
        "nonce": b64url(turn.moment.random(16)),
        "label": label,
        "contact": contact.did,
        "policy": wanted.policy.body(),
        "transport": transport_name(seed),
        "possession": sign_possession(seed, "", did_key(ed25519_public(seed))),
    }
    genesis = Event("", GENESIS, did_key(ed25519_public(seed)), 1, "", (), (), now, now, body).signed(seed)
    check_control(genesis, {})
    control = {genesis.id: genesis}
    view = resolve_view(control)
    group = Group(
        id=genesis.id,
        name=name,
        profile=profile,
        state="active",
        me=genesis.author,
        seed=seed,
        contact=contact,
        control=control,
        view=view,
        created=genesis.time,
        chains={genesis.author: Chain(1, genesis.id, genesis.lamport)},
        lamport=genesis.lamport,
        heads=(genesis.id,),
        named=(genesis.id,),
    )
    turn.put(group)
    log.remember(turn, group.id, genesis, late=False)
    turn.timer("gossip", group.id, acknowledgements.GOSSIP_MS)
    if view.ledger:
        turn.timer("log", group.id, acknowledgements.RETRY_MS)
    turn.say(Notify(ViewChanged(group.id)))
    return group.id


def _say(turn: Turn, group: Group, what: Saying) -> Posted:
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not may_post(group.view, group.me, group.seq + 1):
        raise ReadOnly(group=group.name)
    if isinstance(what, Topic) and not may_set_topic(group.view, group.me, group.seq + 1):
        raise AdminsOnly(group=group.name)
    event = log.append(turn, group.id, what.kind, checked(what).body)
    return Posted(group.id, event.id, event.seq, event.lamport)


def _rotate(turn: Turn, wanted: str) -> Connected:
    """Replace our DID towards a peer, which hears of it at once or with our next message."""
    whom = find_peer(turn.agent, wanted)
    if whom.connection:
        relationship = turn.agent.connections[whom.connection].relationship
    else:
        found = turn.group(whom.group).relationships.get(whom.member)
        if found is None:
            raise NotReady(peer=wanted)
        relationship = found
    # Whoever has not answered to our first DID yet would not understand where the second one comes from.
    if relationship.handover is not None:
        raise RotationUnderWay(peer=wanted)
    if not relationship.established or (whom.member and not relationship.greeted):
        raise NotReady(peer=wanted)
    if whom.connection:
        reachable = connections.reachable(turn, whom.connection)
        if not reachable and turn.agent.connections[whom.connection].envelope == "didcomm/v1":
            raise questions.NotConnected(peer=wanted)  # v1 says it once, and not with every message that follows
        connections.rotated(turn, whom.connection)
        if reachable:
            questions.ask_ping(turn, whom)
    else:
        pairing.rotate(turn, whom.group, whom.member)
    return Connected(whom.connection)


def _tell(turn: Turn, wanted: str, text: str) -> str:
    name = find_connection(turn.agent, wanted)
    if not turn.agent.connections[name].relationship.established:
        raise NotReady(peer=wanted)
    return questions.tell(turn, name, text)
