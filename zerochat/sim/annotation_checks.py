"""Invariants of annotations: only authors edit and delete, the last edit wins, equal inputs give equal messages."""

from collections.abc import Iterable, Sequence

from zerochat.errors import Malformed
from zerochat.group.effects import StoreEvent
from zerochat.group.event_log.event import POST, REACT, Event
from zerochat.group.membership import may_post
from zerochat.group.messages.bodies import Delete, Edit, content_of, target_of
from zerochat.group.messages.current import Annotation, CurrentMessage, current_message
from zerochat.group.state import Group
from zerochat.sim.fast_crypto import event_of
from zerochat.sim.node import Node, Violation


def check_annotations(seed: int, nodes: Sequence[Node]) -> None:
    """Raise Violation unless every message is in the right state, and in the same one at all these nodes."""
    seen: dict[tuple[str, str, frozenset[str]], tuple[object, str]] = {}
    for node in nodes:
        for group in node.agent.groups.values():
            for post, annotations in _about(row for row in node.log if row.group == group.id):
                found = check_current_message(f"seed {seed}: {node.name}", group, post, annotations)
                key = group.view.checksum, post.id, frozenset(one.id for one in annotations)
                first, other = seen.setdefault(key, (found, node.name))
                if first != found:
                    raise Violation(f"seed {seed}: {node.name} and {other} show a message differently")


def check_current_message(who: str, group: Group, post: Event, annotations: Sequence[Event]) -> CurrentMessage:
    """The current state of a post. Raises Violation unless it matches its author's last edit and the reactions' last
    state."""
    found = current_message(group.view, post, [Annotation(one) for one in annotations])
    if (found.text, found.deleted) != _expected_state(group, post, annotations):
        raise Violation(f"{who} shows a message in a state that its author did not create")
    if found.reactions:
        last = {}
        for event in sorted(annotations, key=lambda one: one.seq):
            if event.type == REACT and may_post(group.view, event.author, event.seq):
                last[event.author, str(event.body.get("emoji"))] = event.body.get("on")
        shown = [(member, emoji) for emoji, members in found.reactions for member in members]
        if any(last.get(one) is not True for one in shown):
            raise Violation(f"{who} shows a removed reaction")
    return found


def _about(rows: Iterable[StoreEvent]) -> list[tuple[Event, list[Event]]]:
    """Each post with its annotations, in order of arrival."""
    posts: dict[str, Event] = {}
    about: dict[str, list[Event]] = {}
    for row in rows:
        event = event_of(row.record)
        assert row.target == target_of(event)
        if row.type == POST:
            posts[row.id] = event
        elif row.target:
            about.setdefault(row.target, []).append(event)
    return [(posts[name], annotations) for name, annotations in about.items() if name in posts]


def _expected_state(group: Group, post: Event, annotations: Iterable[Event]) -> tuple[str, bool]:
    """The text of the author's last edit (empty: none), and whether the author deleted the post."""
    text = ""
    for event in sorted(annotations, key=lambda one: one.seq):
        if event.author != post.author or not may_post(group.view, event.author, event.seq):
            continue
        try:
            said = content_of(event)
        except Malformed:
            continue
        if isinstance(said, Delete):
            return "", True
        if isinstance(said, Edit):
            text = said.text
    return text, False
