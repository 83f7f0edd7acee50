"""Display text of events: a post's text, or a short sentence after the author's name."""

from dataclasses import dataclass

from zerochat.presentation import upgrades
from zerochat.rpc import Event
from zerochat.terminal_text import LINES_MAX, Printable, printable, printable_line
from zerochat.tui.style.text import name_of

TOPIC_CELLS_MAX = 400
"""Width of a topic in its row."""
ROLES = {"reader": "a reader", "writer": "a writer", "admin": "an admin", "owner": "the owner"}
_OWN_ROLE_CHANGE = {"reader": "is now a reader", "writer": "is now a writer"}
_PLACE = "\ue000"
"""Marks the place of a name in a sentence; no sanitised text has it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A member's name inside a sentence: drawn in its colour, and with its key suffix."""

    did: str
    nick: Printable
    """The name at the time."""
    at: int
    """Its place in the sentence, in characters."""


def text_of(event: Event) -> Printable | None:
    """The display text of an event; None: unknown type, or shown in another row."""
    if event.type == "message":
        return printable(str(event.body.get("text", "")), lines_max=LINES_MAX)
    text = _notice(event)
    return None if text is None else printable_line(text)


def subject_of(event: Event) -> Subject | None:
    """The member that a sentence is about, beside its author."""
    at = (_notice(event, _PLACE) or "").find(_PLACE)
    if at < 0:
        return None
    did = event.author.did if event.type == "member_renamed" else str(event.body.get("did", ""))
    return Subject(did, name_of(str(event.body.get("nick", ""))), at)


def _notice(event: Event, subject: str = "") -> str | None:
    """The text after the author's name. `subject`: replaces the name of the member that it is about. Event bodies come
    from peers: any field may be missing."""
    body = event.body
    subject = subject or name_of(str(body.get("nick", "")))
    by_itself = body.get("did", event.author.did) == event.author.did
    match event.type:
        case "group_created":
            return f"created {name_of(str(body.get('name', '')))}"
        case "member_joined" if by_itself:
            return "joined"
        case "member_joined":
            return f"admitted {subject}" + (" as a reader" if body.get("role") == "reader" else "")
        case "member_left":
            return "left" if by_itself else f"removed {subject}"
        case "member_removed":
            return f"removed {subject}"
        case "removal_voted":
            return f"voted to remove {subject}"
        case "role_changed":
            role = str(body.get("role", ""))
            if by_itself:
                return _OWN_ROLE_CHANGE.get(role, f"is now {ROLES.get(role, name_of(role))}")
            return f"made {subject} {ROLES.get(role, name_of(role))}"
        case "terms_set":
            from zerochat.presentation import tlog  # few groups have a transparency log

            return f"set the transparency log: {tlog.roles(*tlog.named_in(body, lambda did, nick: name_of(nick)))}"
        case "keys_upgraded":
            return upgrades.event_text(body)
        case "member_renamed":
            return f"is now called {subject}"
        case "topic_changed":
            topic = printable_line(str(body.get("text", "")), TOPIC_CELLS_MAX)
            return f"changed the topic: {topic}" if topic.strip() else "cleared the topic"
        case "pins_changed":
            return "changed the pinned messages"
        case "verdict_announced":
            outcome = printable_line(str(body.get("outcome", "")), TOPIC_CELLS_MAX)
            return f"reports the outcome of a case against {subject}: {outcome}"
    return None
