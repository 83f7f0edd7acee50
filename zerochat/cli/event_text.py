"""Events of a group as lines of text."""

from collections.abc import Callable

from zerochat.cli.formatting import ID_CHARS, local_time, name_of
from zerochat.presentation import tlog, upgrades
from zerochat.presentation.disputes import OUTCOME_CELLS_MAX
from zerochat.presentation.files import file_line
from zerochat.presentation.lookalikes import SUFFIX_CHARS, likenesses
from zerochat.rpc import Event
from zerochat.terminal_text import printable, printable_line

EXCERPT_CELLS_MAX = 48
"""Maximum width of an excerpt of a message that another one refers to."""
EMOJI_CELLS_MAX = 16
COMMAND_CELLS_MAX, COMMANDS_SHOWN = 32, 5
REMEMBERED_MAX = 1_000
"""Messages that are remembered to show an excerpt in later reactions and edits."""
FILE = "  > "
"""Prefix of an attached file; message lines are indented further, so that a message cannot imitate it."""
VOID = "  (void: not shown to all members)"
"""Mark of a void event (`Event.void`)."""
INDENT = "    "
"""Prefix of the continuation lines of a message, so that one message cannot look like two."""
_A_ROLE = {"reader": "a reader", "writer": "a writer", "admin": "an admin", "owner": "the owner"}


class EventText:
    """Renders events as lines of text. Names that look alike get the end of the key as a suffix."""

    def __init__(self, *, ids: bool = False, annotations: bool = False) -> None:
        """`ids`: start each event with a prefix of its id. `annotations`: also show replayed edits, deletions and
        reactions, which are otherwise contained in the current messages."""
        self._bearers: dict[str, set[str]] = {}
        """DIDs of members by each likeness of their names."""
        self._ids, self._annotations = ids, annotations
        self._messages: dict[str, str] = {}
        """Author and excerpt of recent messages, by id."""
        self._announced: dict[str, str] = {}
        """The last announcement of each bot, by DID."""

    def remember(self, event: Event) -> None:
        """Store the excerpt of a message for later annotations."""
        self._messages.pop(event.id, None)
        if len(self._messages) >= REMEMBERED_MAX:
            del self._messages[next(iter(self._messages))]
        self._messages[event.id] = message_name(event, self.nick(event.author.did, event.author.nick))

    def nick(self, did: str, nick: str) -> str:
        """A member's name, with the end of its key where another name that looks like it was seen."""
        shown, shared = name_of(nick), False
        for likeness in likenesses(shown, did):
            bearers = self._bearers.setdefault(likeness, set())
            bearers.add(did)
            shared = shared or len(bearers) > 1
        return f"{shown}·{printable_line(did[-SUFFIX_CHARS:])}" if shared else shown

    def lines(self, event: Event) -> list[str]:
        """The lines of one event; none for an unknown type, and for events of an ignored member."""
        lines = [] if event.ignored else self._lines(event)
        return [f"{printable_line(event.id[:ID_CHARS])}  {lines[0]}", *lines[1:]] if self._ids and lines else lines

    def _lines(self, event: Event) -> list[str]:
        was = event.author_nick_then or str(event.body.get("was", "")) or event.author.nick
        author = self.nick(event.author.did, was if event.type != "message" else event.author.nick)
        # The author's clock may be ahead; a message cannot have been sent after it arrived.
        when = local_time(min(event.sent_at, event.received_at))
        match event.type:
            case "message":
                return self._message(event, when, author)
            case "message_edited" | "message_deleted" | "reacted" if event.replayed and not self._annotations:
                return []
            case "message_edited":
                first, *rest = printable(str(event.body.get("text", "")).rstrip("\n")).split("\n")
                what = self._messages.get(str(event.body.get("target")), "an earlier message")
                edited = f"{when}  * {author} edited {what}: {first}{VOID * event.void}"
                return [edited, *(INDENT + line for line in rest)]
            case "message_deleted":
                what = "deleted a message"
            case "reacted":
                what = self._messages.get(str(event.body.get("target")), "an earlier message")
                emoji = printable_line(str(event.body.get("emoji", "")), EMOJI_CELLS_MAX)
                what = f"reacted {emoji} to {what}" if event.body.get("on") else f"removed {emoji} from {what}"
            case "topic_changed":
                topic = printable_line(str(event.body.get("text", "")))
                what = f"set the topic: {topic}" if topic else "removed the topic"
            case "pins_changed":
                what = "changed the pinned messages"
            case "commands_announced" if "commands" in event.body:
                what = _announced(event)
                if self._announced.get(event.author.did) == what:
                    return []  # repeated for new members
                self._announced[event.author.did] = what
            case "group_created":
                what = f"created {name_of(str(event.body.get('name', '')))}"
            case "member_joined":
                what = self._about(event, author, "joined", "admitted {}")
            case "member_left":
                what = self._about(event, author, "left", "removed {}")
            case "member_removed":
                what = self._about(event, author, "left", "removed {}")
            case "removal_voted":
                what = self._about(event, author, "left", "voted to remove {}")
            case "role_changed":
                new = _A_ROLE.get(str(event.body.get("role")), "something else")
                what = self._about(event, author, f"is now {new}", f"made {{}} {new}")
            case "terms_set":
                what = f"changed the transparency log: {terms_of(event, self.nick)}"
            case "keys_upgraded":
                what = upgrades.event_text(event.body)
            case "verdict_announced":
                outcome = printable_line(str(event.body.get("outcome", "")), OUTCOME_CELLS_MAX)
                accused = self.nick(str(event.body.get("did", "")), str(event.body.get("nick", "")))
                what = f"reports the outcome of a case against {accused}: {outcome}"
            case "member_renamed":
                what = f"is now called {self.nick(event.author.did, str(event.body.get('nick', '')))}"
            case _:
                return []
        return [f"{when}  * {author} {what}{VOID * event.void}"]

    def _message(self, event: Event, when: str, author: str) -> list[str]:
        """The current message; a reply starts with an excerpt of the original."""
        self.remember(event)
        start = f"~ {author} " if event.action else f"{author}: "
        shown = "(deleted)" if event.deleted else printable(str(event.body.get("text", "")).rstrip("\n"))
        lines = shown.split("\n")
        if event.reply_to is not None:
            lines = [self._original(event), *([start + lines[0]] if event.action else lines[:1]), *lines[1:]]
            start = f"{author} replied to "
        lines = [f"{when}  {start}{lines[0]}", *(INDENT + line for line in lines[1:])]
        lines[-1] += self._marks(event)
        return [*lines, *(f"{FILE}{file_line(one, event.self)}" for one in event.attachments)]

    def _original(self, event: Event) -> str:
        found = event.quoted
        if found is None or found.author is None:
            return "a missing message:"
        who = self.nick(found.author.did, found.author.nick)
        return f"{who}, (deleted):" if found.deleted else f"{who}, {_excerpt(found.text)}:"

    def _about(self, event: Event, author: str, alone: str, other: str) -> str:
        did = str(event.body.get("did", event.author.did))
        if did == event.author.did:
            return alone
        return other.format(self.nick(did, str(event.body.get("nick", ""))))

    def _marks(self, event: Event) -> str:
        marks = "  (edited)" if event.edited_at else ""
        if event.reactions:
            counts = [(printable_line(one.emoji, EMOJI_CELLS_MAX), one.count or len(one.by)) for one in event.reactions]
            counted = (f"{emoji} {count}" for emoji, count in counts)
            marks += f"  [{'  '.join(counted)}]"
        marks += "  (late)" if event.late else ""
        if event.relayed_by is not None:
            marks += f"  (relayed by {self.nick(event.relayed_by.did, event.relayed_by.nick)}, unconfirmed)"
        marks += VOID * event.void
        if event.self and event.replayed and event.delivery.of:
            marks += f"  ✓{event.delivery.delivered}/{event.delivery.of}"
        return marks


def terms_of(event: Event, label: Callable[[str, str], str]) -> str:
    """The operator and the witnesses that a `terms_set` names; any part of a peer's body may be missing."""
    return tlog.roles(*tlog.named_in(event.body, label))


def _announced(event: Event) -> str:
    """The bot announcement of a member."""
    commands = event.body.get("commands")
    names = [printable_line(str(one.get("name", "")), COMMAND_CELLS_MAX) for one in commands] if commands else []
    who = "is a bot" if event.body.get("bot") else "is not a bot"
    if not names:
        return who
    more = f" and {len(names) - COMMANDS_SHOWN} more" if len(names) > COMMANDS_SHOWN else ""
    return f"{who} with the commands {', '.join(f'!{name}' for name in names[:COMMANDS_SHOWN])}{more}"


def _excerpt(text: str) -> str:
    return f"“{printable_line(text.strip(), EXCERPT_CELLS_MAX)}”"


def message_name(event: Event, nick: str | None = None) -> str:
    """The author and an excerpt of a message. `nick`: the author's name, if it differs from the event's."""
    text = "(deleted)" if event.deleted else _excerpt(str(event.body.get("text", "")))
    return f"{name_of(event.author.nick) if nick is None else nick}: {text}"
