"""How a post stands now: with its author's last edit, or taken back, and with everybody's reactions.

The log keeps everything that was said; what it comes to is worked out here, and so it is the same at everybody who has
the same. Only the author of a post edits it or takes it back, and a post that was taken back stays so. Of each member
the last word in its own chain counts. What somebody says who may not write counts as little as such a post.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from zerochat.errors import Malformed
from zerochat.group.event_log import lamport
from zerochat.group.event_log.event import Event
from zerochat.group.membership import View, may_post
from zerochat.group.membership.view import ADMIN, OWNER, READER, Member
from zerochat.group.messages.bodies import Delete, Edit, React, Saying, saying_of

Span = tuple[str, int, int]
"""Of an author's chain the places after the first number, up to the second."""
CHAIN_MAX = 2**53 - 1
EMOJI_MAX, REACTIONS_MAX = 32, 1_024
"""Different ones that are shown of a post, and all together: those that came first. All of it fits a line of the
control protocol."""


class Remark(Struct, frozen=True):
    """An event that is about a post, as the log has it."""

    event: Event
    vouched: str = ""
    """Who has handed it over, as long as its author has not confirmed it."""


class Standing(Struct, frozen=True):
    """What has become of a post."""

    text: str = ""
    """Its last text, where it was `edited`."""
    edited: int = 0
    """When, by its author's clock (UTC milliseconds); 0: never."""
    deleted: bool = False
    reactions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Each emoji with the DIDs of those who say it, both in the order in which that came; among them those whose word
    only others have brought so far. It goes when they turn out not to have said it."""
    mentions: tuple[str, ...] = ()
    """The DIDs of those whom its last text calls by name, where it was `edited`."""
    vouched: str = ""
    """Who has handed over the edit, or its author's taking it back, as long as the author has not confirmed that."""


def standing(view: View, post: Event, remarks: Iterable[Remark]) -> Standing:
    """What has become of a post, by what is said about it, in whatever order that is given."""
    said = [(one, what) for one in remarks if (what := _counts(view, post, one.event)) is not None]
    by_place = sorted(said, key=lambda item: item[0].event.seq)
    own = [(one, what) for one, what in by_place if one.event.author == post.author]
    for one, what in own:
        if isinstance(what, Delete):
            return Standing(deleted=True, vouched=one.vouched)
    found = Standing(reactions=_reactions([(one.event, what) for one, what in by_place if isinstance(what, React)]))
    for one, what in reversed(own):
        if isinstance(what, Edit):
            return Standing(what.text, one.event.time, False, found.reactions, what.mentions, one.vouched)
    return found


def named_before(view: View, post: Event, remarks: Iterable[Remark], seq: int) -> frozenset[str]:
    """The DIDs of those whom the author of a post had called by name in it before place `seq` of its chain."""
    said = [what for one in remarks if one.event.seq < seq and (what := _counts(view, post, one.event)) is not None]
    return frozenset(did for what in said if isinstance(what, Edit) for did in what.mentions)


def _counts(view: View, post: Event, event: Event) -> Saying | None:
    """What an event says, where it is about this post and its author may say so."""
    try:
        what = saying_of(event)
    except Malformed:
        return None
    about = isinstance(what, Edit | Delete | React) and what.of == post.id
    return what if about and may_post(view, event.author, event.seq) else None


def _reactions(said: list[tuple[Event, React]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`said`: in the order of each member's chain."""
    last = {(event.author, what.emoji): (event, what.on) for event, what in said}
    found: dict[str, list[str]] = {}
    live = [(event, emoji) for (_, emoji), (event, on) in last.items() if on]
    for event, emoji in sorted(live, key=lambda item: lamport.place(item[0]))[:REACTIONS_MAX]:
        if emoji in found or len(found) < EMOJI_MAX:
            found.setdefault(emoji, []).append(event.author)
    return tuple((emoji, tuple(members)) for emoji, members in found.items())


# --- what the group is about ----------------------------------------------------------------------------------------


def may_set_topic(view: View, author: str, seq: int) -> bool:
    """Whether a topic by this author in this place of its chain counts."""
    member = view.known(author)
    return member is not None and may_post(view, author, seq) and _sets_topic(view, member.role_at(seq))


def _sets_topic(view: View, role: str) -> bool:
    return role in (ADMIN, OWNER) if view.policy.roles == "admins" else role != READER


def topic_spans(view: View) -> Iterator[Span]:
    """The stretches of all chains in which a topic counts: the last one in each is worth a look."""
    for member in (*view.former.values(), *view.members.values()):
        for after, upto, role in _roles(member):
            if after < upto and _sets_topic(view, role):
                yield member.did, after, upto


def announcement_spans(view: View) -> Iterator[Span]:
    """The stretches of the members' chains in which they may write, and so what they announce of themselves counts: of
    each member the last one."""
    for member in view.members.values():
        for after, upto, role in _roles(member):
            if after < upto and role != READER:
                yield member.did, after, upto


def _roles(member: Member) -> Iterator[tuple[int, int, str]]:
    """What a member was, from after one place of its chain up to another."""
    end = CHAIN_MAX if member.until is None else member.until
    ends = [*(after for after, _ in member.roles[1:]), end]
    for (after, role), upto in zip(member.roles, ends, strict=True):
        yield after, min(upto, end), role
