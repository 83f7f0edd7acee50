"""What the events of a log say on the screen: a post by itself, everything else in a few words behind a name."""

from zerochat.rpc import Event
from zerochat.terminal_text import LINES_MAX, Printable, printable, printable_line
from zerochat.tui.style.text import name_of

TOPIC_CELLS_MAX = 400
"""Of a topic, in the line that tells of it."""
ROLES = {"reader": "a reader", "writer": "a writer", "admin": "an admin", "owner": "the owner"}
_ITSELF = {"reader": "only reads from now on", "writer": "writes from now on"}


def text_of(event: Event) -> Printable | None:
    """What to show of an event; None for a type that this version does not know, or that other events show."""
    if event.type == "message":
        return printable(str(event.body.get("text", "")), lines_max=LINES_MAX)
    said = _quiet(event)
    return None if said is None else printable_line(said)


def _quiet(event: Event) -> str | None:
    """What stands behind the author's name. Bodies are a peer's word: any of it may be missing."""
    body = event.body
    subject = name_of(str(body.get("nick", "")))
    by_itself = body.get("did", event.author.did) == event.author.did
    match event.type:
        case "group_created":
            return f"created {name_of(str(body.get('name', '')))}"
        case "member_joined" if by_itself:
            return "joined"
        case "member_joined":
            return f"let {subject} in" + (", to read" if body.get("role") == "reader" else "")
        case "member_left":
            return "left" if by_itself else f"put {subject} out"
        case "member_removed":
            return f"put {subject} out"
        case "removal_voted":
            return f"wants {subject} out"
        case "role_changed":
            role = str(body.get("role", ""))
            if by_itself:
                return _ITSELF.get(role, f"is {ROLES.get(role, name_of(role))} now")
            return f"made {subject} {ROLES.get(role, name_of(role))}"
        case "terms_set":
            from zerochat.presentation import tlog  # most groups keep no log

            return f"says: {tlog.kept_by(*tlog.keepers(body, lambda did, nick: name_of(nick)))}"
        case "member_renamed":
            return f"is called {subject} now"
        case "topic_changed":
            topic = printable_line(str(body.get("text", "")), TOPIC_CELLS_MAX)
            return f"changed the topic: {topic}" if topic.strip() else "took the topic away"
        case "verdict_told":
            outcome = printable_line(str(body.get("outcome", "")), TOPIC_CELLS_MAX)
            return f"says that a case against {subject} came to this: {outcome}"
    return None
