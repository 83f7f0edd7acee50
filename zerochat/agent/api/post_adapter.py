"""What a face wants to say in a group, as commands to the core: which message is meant is looked up in the log, and
whether this may be said of it."""

from typing import TypeAlias

from zerochat import rpc
from zerochat.agent.storage.journal import Row
from zerochat.agent.views import core_state, event_pages
from zerochat.agent.views.current_messages import Standings
from zerochat.agent.views.mentions import mentions
from zerochat.errors import LocalError
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import Say, SendPost
from zerochat.group.membership.bot_announcement import Announcement, BotCommand
from zerochat.group.messages.bodies import Delete, Edit, React, Topic
from zerochat.group.state import Group

Wish: TypeAlias = rpc.SendParams | rpc.EditParams | rpc.DeleteParams | rpc.ReactParams | rpc.TopicParams


class NotAMessage(LocalError):
    """{event} is no message that one could answer, edit or delete. `zerochat history --ids {group}` shows the ids."""


class NotYours(LocalError):
    """This message is {who}'s, and only who has written a message can edit or delete it."""


class Deleted(LocalError):
    """This message was deleted."""


class NothingToEdit(LocalError):
    """A message needs a text. `zerochat delete {group} {event}` asks everybody's zerochat to show it no
    more."""


class NoReaction(LocalError):
    """You have not reacted to this message with {emoji}."""


def command_of(log: Standings, group: Group, wish: Wish) -> SendPost | Say:
    """The command that this wish is. Raises a LocalError where it is none."""
    match wish:
        case rpc.SendParams(_, text, reply_to, action):
            reply = _message(log, group, reply_to).id if reply_to else ""
            return SendPost(group.id, text, reply, action, _called(group, text))
        case rpc.EditParams(_, wanted, text):
            row = _own(log, group, wanted)
            if not text.strip():
                raise NothingToEdit(group=group.name, event=row.id)
            return Say(group.id, Edit(row.id, text, _called(group, text)))
        case rpc.DeleteParams(_, wanted):
            return Say(group.id, Delete(_own(log, group, wanted).id))
        case rpc.ReactParams(_, wanted, emoji, on):
            row = _message(log, group, wanted)
            stands = log.of(group, row)
            if stands.deleted:
                raise Deleted
            if not on and group.me not in dict(stands.reactions).get(emoji, ()):
                raise NoReaction(emoji=emoji[:16])
            return Say(group.id, React(row.id, emoji, on))
        case rpc.TopicParams(_, text):
            return Say(group.id, Topic(text.strip()))


def announcement(log: Standings, group: Group, wish: rpc.AnnounceParams) -> Say | rpc.Announced:
    """The command that this wish is, or that it stands so already and everybody has been told."""
    commands = tuple(BotCommand(one.name, one.usage, one.help, one.role) for one in wish.commands)
    what = Announcement(wish.bot, commands)
    before = log.announced(group).get(group.me)
    if before is None:
        return rpc.Announced(group.id, again=True) if what == Announcement() else Say(group.id, what)
    told = all(group.peers[did].base < before.row.position for did in group.others if did in group.peers)
    if what == before.what and told:
        return rpc.Announced(group.id, before.row.id, again=True)
    return Say(group.id, what)


def _called(group: Group, text: str) -> tuple[str, ...]:
    others = {did: member.label for did, member in group.view.members.items() if did != group.me}
    return mentions(text, others)


def _message(log: Standings, group: Group, wanted: str) -> Row:
    row = event_pages.find_row(log.journal, group, wanted)
    if row.type != POST or row.refuted:
        raise NotAMessage(event=ascii(wanted[:64]), group=group.name)
    return row


def _own(log: Standings, group: Group, wanted: str) -> Row:
    """One of our own messages that is there still."""
    row = _message(log, group, wanted)
    if row.author != group.me:
        raise NotYours(who=core_state.labels(group).get(row.author, row.author))
    if log.of(group, row).deleted:
        raise Deleted
    return row
