"""What must hold of how messages stand: only their authors edit and delete them, the last word counts, and all who have
heard the same about one see it the same way."""

from collections.abc import Iterable, Sequence

from zerochat.errors import Malformed
from zerochat.group.effects import Remember
from zerochat.group.event_log.event import POST, REACT, Event
from zerochat.group.membership import may_post
from zerochat.group.messages.bodies import Delete, Edit, saying_of, target_of
from zerochat.group.messages.current import Remark, Standing, standing
from zerochat.group.state import Group
from zerochat.sim.crypto_cache import event_of
from zerochat.sim.node import Node, Violation


def check_remarks(seed: int, nodes: Sequence[Node]) -> None:
    """Raise Violation unless each message stands at each of these nodes as it must."""
    seen: dict[tuple[str, str, frozenset[str]], tuple[object, str]] = {}
    for node in nodes:
        for group in node.agent.groups.values():
            for post, remarks in _about(row for row in node.log if row.group == group.id):
                found = check_standing(f"seed {seed}: {node.name}", group, post, remarks)
                key = group.view.checksum, post.id, frozenset(one.id for one in remarks)
                first, other = seen.setdefault(key, (found, node.name))
                if first != found:
                    raise Violation(f"seed {seed}: a message stands otherwise at {node.name} than at {other}")


def check_standing(who: str, group: Group, post: Event, remarks: Sequence[Event]) -> Standing:
    """Raise Violation unless a post stands as its author has said last, and nobody's reaction longer than it holds. How
    it stands."""
    found = standing(group.view, post, [Remark(one) for one in remarks])
    if (found.text, found.deleted) != _by_its_author(group, post, remarks):
        raise Violation(f"{who} shows a message as its author has not said, or not any more")
    if found.reactions:
        last = {}
        for event in sorted(remarks, key=lambda one: one.seq):
            if event.type == REACT and may_post(group.view, event.author, event.seq):
                last[event.author, str(event.body.get("emoji"))] = event.body.get("on")
        shown = [(member, emoji) for emoji, members in found.reactions for member in members]
        if any(last.get(one) is not True for one in shown):
            raise Violation(f"{who} shows a reaction that its author has taken back")
    return found


def _about(rows: Iterable[Remember]) -> list[tuple[Event, list[Event]]]:
    """Each post with what is said about it, in the order in which that came."""
    posts: dict[str, Event] = {}
    about: dict[str, list[Event]] = {}
    for row in rows:
        event = event_of(row.record)
        assert row.target == target_of(event)
        if row.type == POST:
            posts[row.id] = event
        elif row.target:
            about.setdefault(row.target, []).append(event)
    return [(posts[name], remarks) for name, remarks in about.items() if name in posts]


def _by_its_author(group: Group, post: Event, remarks: Iterable[Event]) -> tuple[str, bool]:
    """The text that its author has last given a post (empty: none but the first), and whether it was taken back."""
    text = ""
    for event in sorted(remarks, key=lambda one: one.seq):
        if event.author != post.author or not may_post(group.view, event.author, event.seq):
            continue
        try:
            said = saying_of(event)
        except Malformed:
            continue
        if isinstance(said, Delete):
            return "", True
        if isinstance(said, Edit):
            text = said.text
    return text, False
