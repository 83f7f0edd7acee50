"""Private invitations: sent to one member over its relationship, and answered by its user.

    member                                      the other one
      | founds a group of two                        |
      | -- private-invitation (pair link) ---------> |  its user decides; nothing is joined without consent
      |    again whenever a sync shows that it is    |
      |    in reach, until it has joined             |
      | <- didexchange, join-request with voucher -- |

Declining is not reported, as it is not if the inviter is ignored: the inviter keeps waiting until the invitation
expires.
"""

from msgspec.structs import replace

from zerochat.didcomm.invitation import Invitation, parse_invitation
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import LocalError, Malformed, NotAMember
from zerochat.group.backoff import Backoff
from zerochat.group.effects import ConversationOpened, GroupChanged, Measure, Notify
from zerochat.group.inputs import AnswerPrivateInvitation, OpenConversation
from zerochat.group.joining import invitations, joiner
from zerochat.group.joining.private_conversations import (
    begin,
    conversations_with,
    is_over,
    is_private,
    is_waiting,
    waiting_with,
)
from zerochat.group.links import mediator_mail, ring_links
from zerochat.group.links.contact import join_link, sign_founder
from zerochat.group.links.relationship import pack
from zerochat.group.lookup import find_group, find_member, find_member_anywhere
from zerochat.group.membership import leave
from zerochat.group.notifications import PrivateInvitationAnswered, PrivateInvited
from zerochat.group.state import Consent, Group, PrivateInvitation
from zerochat.group.state.joins import AWAITING_INVITER, ENDS, InvitationState
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import PRIVATE_INVITATION, PrivateInvitationBody

LIFETIME_S = 7 * 24 * 3600
"""How long a private invitation can be accepted; then the inviter asks again."""
LIFETIME_S_MIN = 3_600
"""A new one that expires before is ignored: with such ones, a member could ask again and again what was declined."""
LIFETIME_S_MAX = 31 * 24 * 3600
TRIES_MAX = 8
"""The keys with which the invited member can try to join: one that has lost its profile's state has others. It is
admitted once."""
RETRY = Backoff(10_000, 3_600_000)
"""Exponential backoff of an unanswered invitation over a link: it may have been lost."""
UNREACHABLE_MS = 60_000
"""When to try again where the member cannot be reached, unless it comes into reach before."""
RESEND_MS, RESEND_MAIL_MS = 30_000, 3_600_000
"""How often it is sent at most when the member comes into reach; more rarely over a mediator, which keeps every copy.
"""
CROSSING_RESEND_MS = 2_000
"""At most one answer to a crossing invitation in this time."""
NOTIFY_INTERVAL_MS = 10_000
"""A member that begins one conversation after the other notifies our user at most this often."""


class NotWithYourself(LocalError):
    """This is you. A private conversation is with another member: `zerochat members {group}` lists them."""


class MemberIgnored(LocalError):
    """You ignore {member}, so its answers would not reach you. Run `zerochat ignore --undo {group} {member}` first."""


class NoSuchPrivateInvitation(LocalError):
    """{member} does not invite you to a private conversation, or not any more. `zerochat msg {member}` begins one."""


# --- inviting ---------------------------------------------------------------------------------------------------------


def open_conversation(tx: Transaction, command: OpenConversation) -> ConversationOpened:
    """Find or begin the private conversation with a member, and invite it unless it has joined."""
    group, member = _named_member(tx, command)
    if group.private is not None and is_private(group):  # from inside, or by its title
        shared = tx.agent.groups.get(group.private.group)
        asked = group.private.member
        if group.others or shared is None or asked not in shared.view.members:
            return ConversationOpened(group.id)
        group, member = shared, asked
    if member == group.me:
        raise NotWithYourself(group=group.name)
    if group.state != "active":
        raise NotAMember(group=group.name)
    label = group.view.members[member].label
    if member in group.trust.ignored:
        raise MemberIgnored(member=label, group=group.name)
    known = list(conversations_with(tx.agent, group.id, member))
    current = next((one for one in known if one.others), None)
    if current is not None:
        return ConversationOpened(current.id)
    for one in known:
        if is_over(one):
            leave.leave(tx, one)  # it stays readable
    own = waiting_with(tx.agent, group.id, member) or begin(tx, group, member)
    own = _ensure_invitation(tx, own)
    assert own.private is not None
    tx.update_group(own.id, private=replace(own.private, tries=0))
    _retry(tx, tx.group(own.id))
    if (received := tx.group(group.id).joining.private.get(member)) is not None and received.until > tx.now:
        _resolve_crossing(tx, tx.group(own.id), group.id, member, received)
    return ConversationOpened(own.id)


def _named_member(tx: Transaction, command: OpenConversation) -> tuple[Group, str]:
    """The member that the user means, and its group; where that is a private conversation, the other member of it.
    Without a group: a conversation of this title, or the only member of this name."""
    if command.group:
        group = find_group(tx.agent, command.group)
        return group, "" if _is_titled(group, command.member) else find_member(group, command.member)
    known = [one for one in tx.agent.groups.values() if one.state == "active" and is_private(one)]
    titled = [one for one in known if one.name == command.member] or [
        one for one in known if _is_titled(one, command.member)
    ]
    return (titled[0], "") if len(titled) == 1 else find_member_anywhere(tx.agent, command.member)


def _is_titled(group: Group, reference: str) -> bool:
    private = group.private
    return (private is not None and is_private(group)) and (
        reference.casefold() in (group.name.casefold(), private.label.casefold()) or reference in group.others
    )


def _ensure_invitation(tx: Transaction, own: Group) -> Group:
    """An invitation that the other member can still use, to where we are reached now."""
    private = own.private
    assert private is not None
    open_ = tx.agent.invitations.get(private.link)
    if open_ is not None:
        reach = mediator_mail.own_reach_as(tx, open_.seed)
        usable = open_.state_at(tx.now) is InvitationState.OPEN
        if usable and (open_.invitation.endpoint, open_.invitation.mail) == (reach.pair, reach.routes):
            return own
        invitations.close_invitation(tx, private.link)
    made = invitations.invite(tx, own, LIFETIME_S, TRIES_MAX, name=private.label)
    return tx.update_group(own.id, private=replace(private, link=join_link(made.id), sent_at=0))


def _send(tx: Transaction, name: str) -> None:
    """Send the invitation to a waiting conversation, if the member can be reached."""
    own = tx.agent.groups.get(name)
    if own is None or own.private is None or own.private.link not in tx.agent.invitations:
        return
    private = own.private
    shared = tx.agent.groups.get(private.group)
    if shared is None or shared.state != "active" or private.member not in shared.view.members:
        return
    ring_links.choose(tx, shared.id, private.member)
    relationship = tx.group(shared.id).links.relationships.get(private.member)
    if relationship is None or not relationship.established:
        return
    if not mediator_mail.reachable(tx, shared.id, private.member):
        return
    url = tx.agent.invitations[private.link].invitation.url()
    founder = sign_founder(own.seed, shared.id, shared.me, name)
    body = {"group": shared.id, "conversation": name, "founder": founder, "invitation": url}
    message = Message(type=PRIVATE_INVITATION, id=new_id(tx.context.random), body=body)
    packed = pack(relationship, message, tx.packer_of(shared.id), tx.context.random)
    mediator_mail.send(tx, shared.id, private.member, packed)
    tx.update_group(name, private=replace(private, sent_at=tx.now, tries=private.tries + 1))
    by_mail = mediator_mail.goes_by_mail(tx, shared.id, private.member)
    tx.set_timer(TimerKind.PRIVATE_INVITATIONS, name, RESEND_MAIL_MS if by_mail else RETRY.delay_ms(private.tries))


def _retry(tx: Transaction, own: Group) -> None:
    """Send an unanswered invitation again."""
    private = own.private
    open_ = tx.agent.invitations.get(private.link) if private is not None else None
    if private is None or private.moved_to or not is_waiting(own) or open_ is None:
        return
    if open_.state_at(tx.now) is InvitationState.OPEN:
        tx.set_timer(TimerKind.PRIVATE_INVITATIONS, own.id, UNREACHABLE_MS)
        _send(tx, _ensure_invitation(tx, own).id)


def resend(tx: Transaction, name: str, member: str) -> None:
    """A member is in reach: send it our unanswered invitation again, unless we just did."""
    own = waiting_with(tx.agent, name, member)
    if own is None or own.private is None:
        return
    after = RESEND_MAIL_MS if mediator_mail.goes_by_mail(tx, name, member) else RESEND_MS
    if not 0 <= tx.now - own.private.sent_at < after:
        _retry(tx, own)


# --- receiving --------------------------------------------------------------------------------------------------------


def receive(tx: Transaction, name: str, member: str, body: PrivateInvitationBody) -> None:
    """A member invites us. Raises Malformed."""
    group = tx.group(name)
    if body.group != name:
        raise Malformed(why="private-invitation: another group")
    invitation = _parsed(tx, body.invitation)
    if group.state != "active" or member not in group.view.members or member in group.trust.ignored:
        return
    if body.conversation in tx.agent.groups or join_link(invitation.id) in tx.agent.invitations:
        return
    known = group.joining.private.get(member)
    if known is not None and known.until <= tx.now:
        known = None
    if known is not None and known.consent is Consent.DECLINED:
        return
    if invitation.expires < tx.now // 1000 + LIFETIME_S_MIN and (known is None or known.invitation != invitation):
        return
    same = known is not None and known.conversation == body.conversation
    news = known is None or (not same and tx.now >= known.at + NOTIFY_INTERVAL_MS)
    received = PrivateInvitation(
        body.conversation,
        body.founder,
        invitation,
        tx.now if known is None or news else known.at,
        known.consent if known is not None and same else Consent.PENDING,
    )
    _put(tx, name, member, received)
    own = waiting_with(tx.agent, name, member)
    if own is not None:
        _resolve_crossing(tx, own, name, member, received)
    elif received.consent is Consent.ACCEPTED:
        _try_to_join(tx, name, member, received)
    elif news:
        tx.emit(Notify(PrivateInvited(name, member)))
        tx.set_timer(TimerKind.PRIVATE_INVITATIONS, name, 1)


def _parsed(tx: Transaction, text: str) -> Invitation:
    now_s = tx.now // 1000
    try:
        invitation = parse_invitation(text, now_s, tx.packers)
    except LocalError as error:
        raise Malformed(why=f"private-invitation: {error.code}") from None
    if invitation.expires > now_s + LIFETIME_S_MAX:
        raise Malformed(why="private-invitation: it is valid for too long")
    return invitation


def _put(tx: Transaction, name: str, member: str, one: PrivateInvitation) -> None:
    tx.update_joining(name, private={**tx.group(name).joining.private, member: one})


def _drop(tx: Transaction, name: str, member: str) -> None:
    kept = {did: one for did, one in tx.group(name).joining.private.items() if did != member}
    tx.update_joining(name, private=kept)


def _resolve_crossing(tx: Transaction, own: Group, name: str, member: str, received: PrivateInvitation) -> None:
    """Both members have begun a conversation. That both want one is the consent: the one with the smaller id remains,
    and its other member joins it. Ours does not where its invitation has expired."""
    assert own.private is not None
    if own.private.link in tx.agent.invitations and own.id < received.conversation:
        _drop(tx, name, member)
        if not 0 <= tx.now - own.private.sent_at < CROSSING_RESEND_MS:
            _send(tx, own.id)  # it does not seem to have ours
    else:
        _try_to_join(tx, name, member, received)
    if received.consent is Consent.PENDING:
        tx.emit(Notify(PrivateInvitationAnswered(name, member, accepted=True)))


def _try_to_join(tx: Transaction, name: str, member: str, received: PrivateInvitation) -> None:
    """Join, unless we are about to with an invitation of this member; nothing happens where that is impossible now."""
    if any(
        one.voucher is not None
        and (one.voucher.group, one.voucher.member) == (name, member)
        and one.state in AWAITING_INVITER
        for one in tx.agent.joins.values()
    ):
        return
    try:
        with tx.savepoint():
            _join(tx, name, member, received)
    except LocalError as error:
        tx.emit(Measure("dropped", error.code))


def _join(tx: Transaction, name: str, member: str, received: PrivateInvitation) -> None:
    """Begin to join a member's conversation, unless we have."""
    _put(tx, name, member, replace(received, consent=Consent.ACCEPTED))
    join = tx.agent.joins.get(join_link(received.invitation.id))
    if join is not None and join.state not in ENDS:
        return
    group = tx.group(name)
    label = group.view.members[group.me].label
    joiner.accept_invitation(tx, received.invitation, label, private=(group, member, received.founder))


def answer(tx: Transaction, command: AnswerPrivateInvitation) -> GroupChanged:
    """Accept or decline a member's invitation. Raises NoSuchPrivateInvitation."""
    group = find_group(tx.agent, command.group)
    if group.state != "active":
        raise NotAMember(group=group.name)
    member = find_member(group, command.member)
    received = group.joining.private.get(member)
    label = group.view.members[member].label
    if received is None or received.until <= tx.now or received.consent is Consent.DECLINED:
        raise NoSuchPrivateInvitation(member=label)
    tx.emit(Notify(PrivateInvitationAnswered(group.id, member, command.accept)))
    if command.accept:
        _join(tx, group.id, member, received)
    elif received.consent is Consent.ACCEPTED:
        raise NoSuchPrivateInvitation(member=label)
    else:
        _put(tx, group.id, member, replace(received, consent=Consent.DECLINED))
    return GroupChanged(group.id)


def cancelled(tx: Transaction, join_id: str) -> None:
    """The user cancelled a join: it does not begin again by itself."""
    join = next((one for one in tx.agent.joins.values() if one.id == join_id), None)
    voucher = join.voucher if join is not None else None
    if voucher is not None and voucher.group in tx.agent.groups:
        _drop(tx, voucher.group, voucher.member)


def run_timer(tx: Transaction, name: str) -> None:
    """Send the unanswered invitation to this conversation again; or drop the invitations from members of this group
    that have expired, or whose senders are no members any more."""
    group = tx.group(name)
    if group.private is not None:
        _retry(tx, group)
    for member, one in group.joining.private.items():
        gone = member not in group.view.members or member in group.trust.ignored
        if one.until <= tx.now or gone:
            _drop(tx, name, member)
            if one.consent is Consent.PENDING:
                tx.emit(Notify(PrivateInvitationAnswered(name, member, accepted=False)))
    left = [one.until - tx.now for one in tx.group(name).joining.private.values()]
    if left:
        tx.set_timer(TimerKind.PRIVATE_INVITATIONS, name, min(left))
