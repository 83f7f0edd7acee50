"""Private conversations: groups of two, begun by a member of a group with another one.

The two keys of a private conversation are new ones, as in every group; a voucher, signed with its member key in the
group from which the conversation was begun, binds the joiner to the invited member. The whole chain of the member that
began it is for the other one, so what was written before it joined is delivered and acknowledged as usual.

Where both have begun one, the conversation with the smaller id remains: the other member joins it, moves its posts
there, and forgets its own.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from zerochat.errors import LocalError, Retry
from zerochat.group.effects import Notify, ReadOwnEvents
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import DELETE, EDIT, POST, load_event
from zerochat.group.inputs import CreateGroup
from zerochat.group.joining import founding, vouchers
from zerochat.group.membership import Policy, leave
from zerochat.group.messages.bodies import Content, Post
from zerochat.group.notifications import ConversationMoved
from zerochat.group.state import Agent, Group, Join, PrivateWith, Profile
from zerochat.group.transaction import Transaction
from zerochat.names import NAME_CHARS_MAX

KEYS = "deniable"
"""The keys of a private conversation, whatever those of the group of both: they heal, and nothing is signed."""
NAME = "a private conversation"
"""The name in its first event; each member calls it by the other's name."""
WAITING_EVENTS_MAX = 256
"""Our own events in a conversation that the other member has not joined. They are read at once if they are moved."""


class NotJoinedYet(LocalError):
    """{member} has not joined this conversation yet: {why}."""


class BeingMoved(LocalError):
    """{member} has begun a conversation with you as well, and your messages are being moved there. Try again."""

    retry: ClassVar[Retry] = "now"


# --- finding ----------------------------------------------------------------------------------------------------------


def is_private(group: Group) -> bool:
    """Whether this is a private conversation: the other member may have admitted more, though its client should not."""
    return group.private is not None and len(group.view.members) <= 2


def conversations_with(agent: Agent, name: str, member: str) -> Iterator[Group]:
    """Our active private conversations with this member of this group."""
    for group in agent.groups.values():
        if is_private(group) and group.state == "active":
            private = _private(group)
            if (private.group, private.member) == (name, member):
                yield group


def is_waiting(group: Group) -> bool:
    """Whether the other member of this private conversation has never joined it."""
    return group.private is not None and not group.others and not group.view.former


def is_unused(group: Group) -> bool:
    """Whether we have never received anything in this private conversation, in which the other member still is."""
    return not is_over(group) and all(not peer.last_received_at for peer in group.links.peers.values())


def is_over(group: Group) -> bool:
    """Whether the other member of this private conversation has left it."""
    return group.private is not None and not group.others and bool(group.view.former)


def waiting_with(agent: Agent, name: str, member: str) -> Group | None:
    """The conversation that we have begun with this member, and that it has not joined."""
    found = (one for one in conversations_with(agent, name, member) if is_waiting(one) and not _private(one).moved_to)
    return next(found, None)


def _private(group: Group) -> PrivateWith:
    assert group.private is not None
    return group.private


def title(agent: Agent, label: str, within: str) -> str:
    """An unused group name for the conversation with a member of this name, in the group of the name `within`."""
    used = {group.name for group in agent.groups.values() if group.state != "left"}
    longer = f"{label} ({within})"
    names = [label, longer, *(f"{longer[: NAME_CHARS_MAX - 5].rstrip()} {number}" for number in range(2, 1_000))]
    return next((name for name in names if name not in used and len(name) <= NAME_CHARS_MAX), label)


# --- beginning and joining --------------------------------------------------------------------------------------------


def begin(tx: Transaction, shared: Group, member: str) -> Group:
    """Found the conversation with a member; no invitation is sent yet."""
    mine, theirs = shared.view.members[shared.me].label, shared.view.members[member].label
    policy = Policy(keep=shared.view.policy.keep)
    group = founding.found_group(tx, CreateGroup(NAME, mine, shared.profile.envelope, KEYS, policy))
    private = PrivateWith(shared.id, member, theirs)
    return tx.update_group(group.id, name=title(tx.agent, theirs, shared.name), private=private)


def fault_of(agent: Agent, join: Join, group: Group) -> tuple[str, str] | None:
    """Why we do not join this group as a private conversation, and what the user can do: it has other members than the
    inviter and us; its founder is not the member that has invited us; its messages could be proved to others, or are
    encrypted in another way than those of the group of both; or both members have admitted each other at once, and the
    other conversation remains."""
    assert join.voucher is not None
    if group.view.members.keys() != {join.me, join.relationship.member} or group.view.former:
        return "this is no private conversation: it has other members", "Ask the member about it."
    if not vouchers.is_founder(join.voucher, join.relationship.member, group.id):
        return "the member that has invited you has not begun this conversation", "Ask the member about it."
    shared = agent.groups.get(join.voucher.group)
    if group.profile != Profile(KEYS, envelope=(shared or group).profile.envelope):
        return "this is no private conversation: it has other keys, or another format", "Ask the member about it."
    known = conversations_with(agent, join.voucher.group, join.voucher.member)
    if any(one.others and one.id < join.group for one in known):
        return "the member has joined your own private conversation with it", "Use your own conversation."
    return None


def mark_joined(tx: Transaction, join: Join) -> None:
    """We have joined a member's conversation: name it after the member, and end those that we have begun with it."""
    voucher = join.voucher
    assert voucher is not None
    group = tx.group(join.group)
    theirs = group.view.members[join.relationship.member]
    shared = tx.agent.groups.get(voucher.group)
    known = shared.view.known(voucher.member) if shared is not None else None
    label = known.label if known is not None else theirs.label
    others = [one for one in conversations_with(tx.agent, voucher.group, voucher.member) if one.id != group.id]
    for one in others:
        if is_unused(one):
            tx.update_group(one.id, private=replace(_private(one), moved_to=group.id), name=one.id)
            read_posts(tx, one.id)
        else:
            leave.leave(tx, one)
    name = title(tx.agent, label, shared.name if shared is not None else group.name)
    tx.update_group(group.id, name=name, private=PrivateWith(voucher.group, voucher.member, label))
    if shared is not None:
        rest = {did: one for did, one in shared.joining.private.items() if did != voucher.member}
        tx.update_joining(shared.id, private=rest)


# --- posts before the other member has joined -------------------------------------------------------------------------


def check_content(group: Group, content: Content) -> None:
    """Raise NotJoinedYet for what cannot wait for the other member."""
    if group.private is None:
        return
    label = group.private.label
    if group.private.moved_to:
        raise BeingMoved(member=label)
    if not is_waiting(group):
        return
    if isinstance(content, Post) and content.files:
        raise NotJoinedYet(member=label, why="send files when it has")
    if group.seq >= WAITING_EVENTS_MAX:
        raise NotJoinedYet(member=label, why=f"{WAITING_EVENTS_MAX} messages are waiting, the maximum")


def read_posts(tx: Transaction, name: str) -> None:
    """Read our posts in this conversation, to move them."""
    group = tx.group(name)
    tx.emit(ReadOwnEvents(name, "", group.me, 0, WAITING_EVENTS_MAX + 1))


def move_posts(tx: Transaction, name: str, records: tuple[bytes, ...]) -> None:
    """Post our messages of this conversation, as they are after edits and deletions, in the one that remains, and
    forget this one."""
    group = tx.group(name)
    target = tx.agent.groups.get(_private(group).moved_to)
    if group.state != "active":
        return
    if target is None or target.state != "active":
        tx.update_group(name, private=replace(_private(group), moved_to=""))
        return
    posts: dict[str, dict[str, object]] = {}
    for event in map(load_event, records):
        about = event.body.get("target")
        if event.type == POST:
            posts[event.id] = {key: value for key, value in event.body.items() if key != "mentions"}
        elif event.type == EDIT and about in posts:
            posts[about] = {**posts[about], "text": event.body["text"]}
        elif event.type == DELETE and about in posts:
            del posts[about]
    moved: dict[object, str] = {}
    for id_, body in posts.items():
        reply = {"reply": moved[body["reply"]]} if body.get("reply") in moved else {}
        kept = {key: value for key, value in body.items() if key != "reply"}
        moved[id_] = own_events.append(tx, target.id, POST, {**kept, **reply}).id
    leave.close_group(tx, name)  # the other member has never been in it
    leave.forget_group(tx, tx.group(name))
    tx.emit(Notify(ConversationMoved(target.id, name)))
