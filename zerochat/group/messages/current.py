"""Current messages: a post after its author's last edit or deletion, with the reactions of all members.

The log stores every event; the current message is a pure function of it, so members with the same log show the same.
Only its author edits or deletes a post, and a deletion is final. Of each member the last annotation in its own chain
counts. Annotations of readers are ignored.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from zerochat.errors import Malformed
from zerochat.group.event_log import lamport
from zerochat.group.event_log.event import Event
from zerochat.group.membership import View, may_post
from zerochat.group.membership.view import ADMIN, OWNER, READER, Member
from zerochat.group.messages.bodies import Content, Delete, Edit, React, content_of

Span = tuple[str, int, int]
"""A half-open range of an author's chain: author, after, up to."""
CHAIN_MAX = 2**53 - 1
EMOJI_MAX, REACTIONS_MAX = 32, 1_024
"""The most different emoji, and the most reactions, that are shown for a post, earliest first. They fit one line of the
control protocol."""


class Annotation(Struct, frozen=True):
    """An event about a post, as the log has it."""

    event: Event
    relayed_by: str = ""
    """The member that relayed it, until its author confirms it."""


class CurrentMessage(Struct, frozen=True):
    """A post after all its annotations."""

    text: str = ""
    """The text of its last edit."""
    edited_at: int = 0
    """When it was edited, by its author's clock (UTC milliseconds); 0: never."""
    deleted: bool = False
    reactions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Each emoji with the DIDs of the members that reacted, both by time. Includes unconfirmed relayed reactions."""
    mentions: tuple[str, ...] = ()
    """The DIDs that its last edit mentions."""
    relayed_by: str = ""
    """The member that relayed the edit or deletion, until the author confirms it."""


def current_message(view: View, post: Event, annotations: Iterable[Annotation]) -> CurrentMessage:
    """The current state of a post after these annotations, in any order."""
    contents = [
        (annotation, content)
        for annotation in annotations
        if (content := _valid_content(view, post, annotation.event)) is not None
    ]
    ordered = sorted(contents, key=lambda item: item[0].event.seq)
    author_contents = [
        (annotation, content) for annotation, content in ordered if annotation.event.author == post.author
    ]
    for annotation, content in author_contents:
        if isinstance(content, Delete):
            return CurrentMessage(deleted=True, relayed_by=annotation.relayed_by)
    reactions = CurrentMessage(
        reactions=_reactions(
            [(annotation.event, content) for annotation, content in ordered if isinstance(content, React)]
        )
    )
    for annotation, content in reversed(author_contents):
        if isinstance(content, Edit):
            return CurrentMessage(
                content.text, annotation.event.time, False, reactions.reactions, content.mentions, annotation.relayed_by
            )
    return reactions


def mentioned_before(view: View, post: Event, annotations: Iterable[Annotation], seq: int) -> frozenset[str]:
    """The DIDs that the edits of a post before place `seq` of its author's chain mention."""
    contents = [
        content
        for annotation in annotations
        if annotation.event.seq < seq and (content := _valid_content(view, post, annotation.event)) is not None
    ]
    return frozenset(did for content in contents if isinstance(content, Edit) for did in content.mentions)


def _valid_content(view: View, post: Event, event: Event) -> Content | None:
    """The content of an annotation if it is about this post and its author may send it."""
    try:
        content = content_of(event)
    except Malformed:
        return None
    about = isinstance(content, Edit | Delete | React) and content.target == post.id
    return content if about and may_post(view, event.author, event.seq) else None


def _reactions(contents: list[tuple[Event, React]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`contents`: ordered by each member's chain."""
    last = {(event.author, content.emoji): (event, content.on) for event, content in contents}
    reactions: dict[str, list[str]] = {}
    live = [(event, emoji) for (_, emoji), (event, on) in last.items() if on]
    for event, emoji in sorted(live, key=lambda item: lamport.sort_key(item[0]))[:REACTIONS_MAX]:
        if emoji in reactions or len(reactions) < EMOJI_MAX:
            reactions.setdefault(emoji, []).append(event.author)
    return tuple((emoji, tuple(members)) for emoji, members in reactions.items())


# --- the topic --------------------------------------------------------------------------------------------------------


def may_set_topic(view: View, author: str, seq: int) -> bool:
    """Whether a topic, or a list of pins, by this author at this place of its chain is valid."""
    member = view.known(author)
    return member is not None and may_post(view, author, seq) and _sets_topic(view, member.role_at(seq))


def _sets_topic(view: View, role: str) -> bool:
    return role in (ADMIN, OWNER) if view.policy.roles == "admins" else role != READER


def topic_spans(view: View) -> Iterator[Span]:
    """The ranges of all chains in which a topic, or a list of pins, is valid: the last one of each is a candidate."""
    for member in (*view.former.values(), *view.members.values()):
        for after, upto, role in _roles(member):
            if after < upto and _sets_topic(view, role):
                yield member.did, after, upto


def announcement_spans(view: View) -> Iterator[Span]:
    """The ranges of the members' chains in which an announcement is valid: of each member the last one counts."""
    for member in view.members.values():
        for after, upto, role in _roles(member):
            if after < upto and role != READER:
                yield member.did, after, upto


def _roles(member: Member) -> Iterator[tuple[int, int, str]]:
    """A member's roles, each with its range of the chain."""
    end = CHAIN_MAX if member.until is None else member.until
    ends = [*(after for after, _ in member.roles[1:]), end]
    for (after, role), upto in zip(member.roles, ends, strict=True):
        yield after, min(upto, end), role
