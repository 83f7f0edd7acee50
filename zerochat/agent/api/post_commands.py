"""Posts, annotations and announcements as commands: checks references, and finds the mentioned members."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias
from unicodedata import category, normalize

from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.storage.journal import Row
from zerochat.agent.views import event_pages
from zerochat.agent.views.current_messages import MaterialisedMessages
from zerochat.agent.views.members import display_names
from zerochat.errors import LocalError
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import SendContent, SendPost
from zerochat.group.membership.bot_announcement import Announcement, BadAnnouncement, BotCommand, announcement_error
from zerochat.group.messages.bodies import MENTIONS_MAX, Delete, Edit, Pins, React, Topic
from zerochat.group.state import Group
from zerochat.ink import has_ink
from zerochat.presentation.search_text import UNSPACED

PostParams: TypeAlias = (
    rpc.SendMessageParams
    | rpc.EditMessageParams
    | rpc.DeleteMessageParams
    | rpc.ReactParams
    | rpc.SetTopicParams
    | rpc.PinParams
)


class NotAMessage(LocalError):
    """{event} is not a message. `zerochat history --ids {group}` shows the ids of messages."""


class NotYours(LocalError):
    """This message is by {who}; only its author can edit or delete it."""


class Deleted(LocalError):
    """This message was deleted."""


class NothingToEdit(LocalError):
    """A message needs a text. To delete it, use `zerochat delete {group} {event}`."""


class AlreadyPinned(LocalError):
    """This message is {how} pinned."""


class NoReaction(LocalError):
    """You have not reacted to this message with {emoji}."""


def post_command(messages: MaterialisedMessages, group: Group, params: PostParams) -> SendPost | SendContent:
    """The command that sends this. Raises LocalError where the message that it refers to does not allow it."""
    match params:
        case rpc.SendMessageParams(_, text, reply_to, action):
            reply = _find_message(messages, group, reply_to).id if reply_to else ""
            return SendPost(group.id, text, reply, action, _mentioned(group, text), hops=params.hops)
        case rpc.EditMessageParams(_, event, text):
            row = _find_own(messages, group, event)
            if not has_ink(text):
                raise NothingToEdit(group=group.name, event=row.id)
            return SendContent(group.id, Edit(row.id, text, _mentioned(group, text), hops=params.hops))
        case rpc.DeleteMessageParams(_, event):
            return SendContent(group.id, Delete(_find_own(messages, group, event).id, hops=params.hops))
        case rpc.ReactParams(_, event, emoji, on):
            row = _find_message(messages, group, event)
            current = messages.current(group, row)
            if current.deleted:
                raise Deleted
            if not on and group.me not in dict(current.reactions).get(emoji, ()):
                raise NoReaction(emoji=emoji[:16])
            return SendContent(group.id, React(row.id, emoji, on, hops=params.hops))
        case rpc.SetTopicParams(_, text):
            return SendContent(group.id, Topic(text.strip(), hops=params.hops))
        case rpc.PinParams(_, event, pinned):
            return SendContent(group.id, replace(_pins(messages, group, event, pinned), hops=params.hops))


def _pins(messages: MaterialisedMessages, group: Group, event: str, pinned: bool) -> Pins:
    """The pins of a group with this message, or without it. Deleted messages make room."""
    row = _find_message(messages, group, event)
    here = messages.journal.events_by_id(group.id, messages.pins(group))
    gone = {one.id for one in here if one.type != POST or messages.current(group, one).deleted}
    before = [id for id in messages.pins(group) if id not in gone]
    if pinned == (row.id in before):
        raise AlreadyPinned(how="already" if pinned else "not")
    if pinned and messages.current(group, row).deleted:
        raise Deleted
    return Pins((row.id, *before) if pinned else tuple(id for id in before if id != row.id))


def combined(announced: Iterable[rpc.AnnounceParams]) -> Announcement:
    """The announcements of several consumers as one. Of commands with the same name, the first one is announced. Raises
    BadAnnouncement."""
    found, bot = dict[str, BotCommand](), False
    for each in announced:
        bot = bot or each.bot
        own = tuple(BotCommand(one.name, one.usage, one.help, one.role) for one in each.commands)
        if fault := announcement_error(Announcement(each.bot, own)):
            raise BadAnnouncement(why=fault)
        found |= {one.name: one for one in own if one.name not in found}
    new = Announcement(bot, tuple(found.values()))
    if fault := announcement_error(new):
        raise BadAnnouncement(why=f"with the other bots of this profile, {fault}")
    return new


def announcement(messages: MaterialisedMessages, group: Group, new: Announcement) -> SendContent | rpc.Announced:
    """The command that announces this; or the result where every member has the same announcement already."""
    before = messages.announced(group).get(group.me)
    if before is None:
        return rpc.Announced(group.id, unchanged=True) if new == Announcement() else SendContent(group.id, new)
    received = all(
        group.links.peers[did].start_seq < before.row.position for did in group.others if did in group.links.peers
    )
    if new == before.announcement and received:
        return rpc.Announced(group.id, before.row.id, unchanged=True)
    return SendContent(group.id, new)


def _find_message(messages: MaterialisedMessages, group: Group, event: str) -> Row:
    row = event_pages.find_row(messages.journal, group, event)
    if row.type != POST or row.refuted:
        raise NotAMessage(event=ascii(event[:64]), group=group.name)
    return row


def _find_own(messages: MaterialisedMessages, group: Group, event: str) -> Row:
    """An own message that is not deleted."""
    row = _find_message(messages, group, event)
    if row.author != group.me:
        raise NotYours(who=display_names(group).get(row.author, row.author))
    if messages.current(group, row).deleted:
        raise Deleted
    return row


def _mentioned(group: Group, text: str) -> tuple[str, ...]:
    return mentions(text, {did: member.label for did, member in group.view.members.items() if did != group.me})


def mentions(text: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """The DIDs of the members that a text mentions (`@Nick`; `Nick:` or `Nick,` at the start), at most MENTIONS_MAX.

    In a script without spaces between words, text may touch the mention: `請問@小明在嗎`, `@철수님`, `@Bobさん`.

    `names`: display names by DID. A name that two members share mentions neither. The author's agent resolves
    mentions, because only there the names are certain.
    """
    folded = {did: _comparable(name) for did, name in names.items()}
    uses = Counter(folded.values())
    dids = {name: did for did, name in folded.items() if name and uses[name] == 1}
    if not dids:
        return ()
    text = _comparable(text)
    begin, end = _boundaries(text)
    alternatives = "|".join(re.escape(name) for name in sorted(dids, key=len, reverse=True))
    pattern = re.compile(rf"{begin}@(?P<at>{alternatives}){end}|\A\s*(?P<first>{alternatives})\s*[:,、،]")
    found: dict[str, None] = {}
    for match in pattern.finditer(text):
        found.setdefault(dids[match["at"] or match["first"]])
        if len(found) == MENTIONS_MAX:
            break
    return tuple(found)


def _comparable(text: str) -> str:
    """Names as people type them: in any width and case, with or without the marks that phones put around them."""
    if text.isascii():
        return text.lower()
    folded = normalize("NFKC", normalize("NFKC", text).casefold())
    return "".join(char for char in folded if category(char) != "Cf")


def _boundaries(text: str) -> tuple[str, str]:
    """Patterns for the beginning and the end of a mention. Words without spaces between them may touch it, but no
    combining mark follows it, which would make it another name."""
    if text.isascii():
        return r"(?<!\w)", r"(?!\w)"
    marks = "".join({char for char in text if category(char)[0] == "M"})
    end = rf"(?:(?!\w)|(?<=[{UNSPACED}])|(?=[{UNSPACED}]))"
    return rf"(?:(?<!\w)|(?<=[{UNSPACED}]))", f"(?![{marks}]){end}" if marks else end
