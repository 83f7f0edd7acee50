"""What the command line says: data on standard output, narration on standard error.

Data is either JSON lines, exact and in ASCII, or text for people. Whatever others wrote goes through the sanitiser on
its way into the text, and once more with the whole line.
"""

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from typing import TextIO

from msgspec import Struct, to_builtins

from zerochat import errors
from zerochat.agent.storage.paths import DEFAULT_PROFILE
from zerochat.errors import AmbiguousGroup, LocalError, UnknownGroup
from zerochat.presentation import group_rules, tlog
from zerochat.presentation.delivery import wholeness
from zerochat.presentation.disputes import OUTCOME_CELLS_MAX
from zerochat.presentation.files import line as file_line
from zerochat.presentation.history_rules import fetching, sentence
from zerochat.rpc import ConnectionInfo, DeliveryReport, Event, GroupInfo, JoinStatus, MemberInfo, ProblemNews, Status
from zerochat.terminal_text import Printable, cells, printable, printable_key, printable_line

NAME_CELLS_MAX = 32
"""A nick or a group's name in a table; the rest of it is in the JSON."""
WIDTH = 79
"""Of a terminal that does not say how wide it is."""
ID_CHARS = 8
"""Of an event's id: enough to find it by."""
EXCERPT_CELLS_MAX = 48
"""Of a message that another one is about."""
EMOJI_CELLS_MAX = 16
COMMAND_CELLS_MAX, COMMANDS_SHOWN = 32, 5
REMEMBERED_MAX = 1_000
"""Messages by whose words we can say what somebody reacts to."""
FILE = "  > "
"""Before a file that comes with a message: no line of a message stands so far to the left."""
VOID = "  (void: not everybody is shown it)"
"""Behind what does not count (`Event.void`)."""
INDENT = "    "
"""Before the second and further lines of a message, so that no message can look like two."""


class Output:
    """Standard output in one of the two formats."""

    def __init__(self, format_: str) -> None:
        self.jsonl = format_ in ("json", "jsonl")

    def data(self, value: Struct | dict[str, object], text: Iterable[str]) -> None:
        """One piece of data: as one line of JSON, or as these lines of text."""
        self.data_list([value], text)

    def data_list(self, values: Sequence[Struct | dict[str, object]], text: Iterable[str]) -> None:
        """Several pieces: one line of JSON each, or together these lines of text."""
        if self.jsonl:
            import json

            for value in values:
                print(json.dumps(to_builtins(value), ensure_ascii=True, separators=(",", ":")))
        else:
            for line in text:
                print(printable(line))
        sys.stdout.flush()

    @staticmethod
    def exactly(text: str) -> None:
        """Text of our own making that must stay as it is: an invitation, a QR code, a path."""
        print(text, flush=True)


def narrate(text: str) -> None:
    """Tell the person at the terminal, on standard error. Commands in it name the profile where they must. That nobody
    can hear it any more, because the terminal has gone or the disk of a log is full, changes nothing else."""
    shown = printable(_COMMAND.sub(_with_profile, text))
    try:
        print("\n".join(wrapped(shown, _width())) if sys.stderr.isatty() else shown, file=sys.stderr, flush=True)
    except OSError:
        to_nowhere(sys.stderr)


def to_nowhere(stream: TextIO) -> None:
    """What `stream` still holds, and whatever else is written to it, goes nowhere: the interpreter flushes it once more
    at its end, and would end with an error of its own."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, broken between words, and not inside a command that is to be typed."""
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), text)
    lines: list[str] = []
    for line in whole.split("\n"):
        lines += textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [line.replace("\0", " ") for line in lines]


def _width() -> int:
    """Of the terminal that standard error goes to. A script reads its lines whole."""
    try:
        return int(os.environ["COLUMNS"]) or WIDTH
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


# --- commands to type -----------------------------------------------------------------------------------------------

_COMMAND = re.compile(
    r"`zerochat(?! --help| demo| invite GROUP`| agent` running)(?: --profile (?P<profile>[^\s`]+))?(?=[ `])"
)
"""A command in a sentence. Left alone are those for which no profile matters, and the two that somebody else is to
type: whoever sent the invitation that one of our sentences is about."""

_profiles = ContextVar("_profiles", default=(DEFAULT_PROFILE, DEFAULT_PROFILE))
"""The profile that this command line is about, and the one that it would be about without `--profile`."""


def hints_for(profile: str | None, usual: str | None) -> None:
    """Make every command that is narrated from now on lead to the same profile as this one: `profile` is what
    `--profile` says, `usual` what ZEROCHAT_PROFILE does. Sentences come from all floors, and most of them cannot know
    how the profile was chosen."""
    usual = usual or DEFAULT_PROFILE
    _profiles.set((profile or usual, usual))


def _with_profile(command: re.Match[str]) -> str:
    """The command with `--profile`, if it needs one. A profile that is not ours (`--profile OTHER`) is meant so."""
    ours, usual = _profiles.get()
    if command["profile"] not in (None, ours):
        return command[0]
    return "`zerochat" if ours == usual else f"`zerochat --profile {ours}"


# --- text for people ------------------------------------------------------------------------------------------------


def name_of(text: str) -> Printable:
    """A nick or a group's name in one line; never empty, so that nobody is invisible."""
    shown = printable_line(text, NAME_CELLS_MAX)
    return shown if shown.strip() else Printable("?")


def quoted(*names: str) -> str:
    """Names in a command that is to be typed, the last ones in it (`errors.quoted`); what the terminal could not show
    is replaced all the same."""
    return errors.quoted(*(printable_line(name) for name in names))


def put_out_sentence(info: GroupInfo) -> str:
    """That others have put us out of a group, and who."""
    return group_rules.put_out(name_of(info.name), [name_of(nick) for nick in group_rules.removers_of(info)])


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as columns of equal width, two spaces apart."""
    widths = [max(cells(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def local_time(stamp: str) -> str:
    """An RFC 3339 time as a person at this machine reads it."""
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "????-??-?? ??:??"


def near_time(stamp: str) -> str:
    """A time of today without its date."""
    shown, today = local_time(stamp), datetime.now().astimezone().strftime("%Y-%m-%d ")
    return shown.removeprefix(today)


def whole(group: GroupInfo) -> str:
    """How much of a group's log is here, in a sentence without a full stop; empty where we are no longer in it."""
    if group.completeness is None:
        return ""
    begun = group.beginning
    return wholeness(group.completeness, name_of, near_time, fetching=begun is not None and begun.state == "fetching")


def wanted_out(group: GroupInfo) -> list[str]:
    """The members whom somebody wants out, and how far that is, without a full stop each."""
    return [
        f"{name_of(one.nick)} is to be put out: {group_rules.counted(one)}{', with yours' if one.mine else ''}"
        for one in (group.votes if group.state != "left" else ())
    ]


def earlier(group: GroupInfo) -> str:
    """What is here of what was said before one came into a group, without a full stop; empty where that is all."""
    found = group.beginning
    if found is None or found.state == "whole":
        return ""
    if found.state == "fetching":
        return fetching(found)
    return sentence(found, name_of(group.name)).removesuffix(".")


_A_ROLE = {"reader": "a reader", "writer": "a writer", "admin": "an admin"}


class EventText:
    """Events as lines of text. It remembers who uses which nick: a second person of the same name gets the end of its
    key beside it."""

    def __init__(self, *, ids: bool = False, remarks: bool = False) -> None:
        """`ids`: begin each event with the first letters of its id. `remarks`: tell also of edits and reactions that
        are no news, because the messages that they are about are shown as they stand now."""
        self._owner: dict[str, str] = {}
        self._ids, self._remarks = ids, remarks
        self._messages: dict[str, str] = {}
        """What the last messages are called, by id."""

    def remember(self, event: Event) -> None:
        """What a message is called when something is said about it."""
        self._messages.pop(event.id, None)
        if len(self._messages) >= REMEMBERED_MAX:
            del self._messages[next(iter(self._messages))]
        self._messages[event.id] = message_name(event, self.nick(event.author.did, event.author.nick))

    def nick(self, did: str, nick: str) -> str:
        shown = name_of(nick)
        return shown if self._owner.setdefault(shown, did) == did else f"{shown}#{printable_line(did[-4:])}"

    def lines(self, event: Event) -> list[str]:
        """One event; none at all for a kind that this version does not know."""
        lines = self._lines(event)
        return [f"{printable_line(event.id[:ID_CHARS])}  {lines[0]}", *lines[1:]] if self._ids and lines else lines

    def _lines(self, event: Event) -> list[str]:
        was = event.then or str(event.body.get("was", "")) or event.author.nick
        author = self.nick(event.author.did, was if event.type != "message" else event.author.nick)
        # An author's clock may be ahead; a message cannot have been written after it arrived.
        when = local_time(min(event.sent_at, event.received_at))
        match event.type:
            case "message":
                return self._message(event, when, author)
            case "message_edited" | "message_deleted" | "reacted" if event.replayed and not self._remarks:
                return []
            case "message_edited":
                first, *rest = printable(str(event.body.get("text", "")).rstrip("\n")).split("\n")
                what = self._messages.get(str(event.body.get("of")), "an earlier message")
                edited = f"{when}  * {author} edited {what}: {first}{VOID * event.void}"
                return [edited, *(INDENT + line for line in rest)]
            case "message_deleted":
                what = "deleted a message"
            case "reacted":
                what = self._messages.get(str(event.body.get("of")), "an earlier message")
                emoji = printable_line(str(event.body.get("emoji", "")), EMOJI_CELLS_MAX)
                what = f"reacted {emoji} to {what}" if event.body.get("on") else f"took {emoji} back from {what}"
            case "topic_changed":
                topic = printable_line(str(event.body.get("text", "")))
                what = f"says what this group is about: {topic}" if topic else "took away what this group is about"
            case "commands_announced" if "commands" in event.body:
                what = _announced(event)
            case "group_created":
                what = f"created the group {name_of(str(event.body.get('name', '')))}"
            case "member_joined":
                what = self._about(event, author, "joined", "let {} in")
            case "member_left":
                what = self._about(event, author, "left", "removed {}")
            case "member_removed":
                what = self._about(event, author, "left", "put {} out")
            case "removal_voted":
                what = self._about(event, author, "left", "wants {} out")
            case "role_changed":
                new = _A_ROLE.get(str(event.body.get("role")), "something else")
                what = self._about(event, author, f"is {new} now", f"made {{}} {new}")
            case "terms_set":
                what = f"says: {terms_of(event, lambda did, nick: self.nick(did, nick))}"
            case "verdict_told":
                outcome = printable_line(str(event.body.get("outcome", "")), OUTCOME_CELLS_MAX)
                whom = self.nick(str(event.body.get("did", "")), str(event.body.get("nick", "")))
                what = f"says that a case against {whom} came to this: {outcome}"
            case "member_renamed":
                what = f"is called {self.nick(event.author.did, str(event.body.get('nick', '')))} now"
            case _:
                return []
        return [f"{when}  * {author} {what}{VOID * event.void}"]

    def _message(self, event: Event, when: str, author: str) -> list[str]:
        """A message as it stands now; what it answers stands above it."""
        self.remember(event)
        said = f"~ {author} " if event.action else f"{author}: "
        shown = "(deleted)" if event.deleted else printable(str(event.body.get("text", "")).rstrip("\n"))
        lines = shown.split("\n")
        if event.reply_to is not None:
            lines = [self._answered(event), *([said + lines[0]] if event.action else lines[:1]), *lines[1:]]
            said = f"{author} answers "
        lines = [f"{when}  {said}{lines[0]}", *(INDENT + line for line in lines[1:])]
        lines[-1] += self._marks(event)
        return [*lines, *(f"{FILE}{file_line(one, event.self)}" for one in event.attachments)]

    def _answered(self, event: Event) -> str:
        found = event.quoted
        if found is None or found.author is None:
            return "a message that is not here:"
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
            counted = (f"{printable_line(one.emoji, EMOJI_CELLS_MAX)} {len(one.by)}" for one in event.reactions)
            marks += f"  [{'  '.join(counted)}]"
        marks += "  (late)" if event.late else ""
        if event.vouched is not None:
            marks += f"  (from {name_of(event.vouched.nick)}, not confirmed)"
        marks += VOID * event.void
        if event.self and event.replayed and event.delivery.of:
            marks += f"  ✓{event.delivery.delivered}/{event.delivery.of}"
        return marks


def terms_of(event: Event, label: Callable[[str, str], str]) -> str:
    """Who keeps a group's log from then on. Bodies are a peer's word: any of it may be missing."""
    return tlog.kept_by(*tlog.keepers(event.body, label))


def _announced(event: Event) -> str:
    """What a member says of itself, in a few words."""
    commands = event.body.get("commands")
    names = [printable_line(str(one.get("name", "")), COMMAND_CELLS_MAX) for one in commands] if commands else []
    who = "is a bot" if event.body.get("bot") else "is no bot"
    if not names:
        return who
    more = f" and {len(names) - COMMANDS_SHOWN} more" if len(names) > COMMANDS_SHOWN else ""
    return f"{who}, and listens to {', '.join(f'!{name}' for name in names[:COMMANDS_SHOWN])}{more}"


def command_lines(members: Sequence[MemberInfo]) -> list[str]:
    """What can be asked of those who are bots, as they say."""
    rows = [
        (
            name_of(member.nick),
            f"!{printable_line(one.name, COMMAND_CELLS_MAX)} {printable_line(one.usage)}".rstrip(),
            printable_line(one.role) or "-",
            printable_line(one.help) or "-",
        )
        for member in members
        for one in member.commands
    ]
    return ["", *table([("BOT", "LISTENS TO", "FROM", "AND DOES"), *rows])] if rows else []


def _excerpt(text: str) -> str:
    return f"“{printable_line(text.strip(), EXCERPT_CELLS_MAX)}”"


def message_name(event: Event, nick: str | None = None) -> str:
    """A message in a few words, in a sentence. `nick`: what its author is called, unless that is plain."""
    text = "(deleted)" if event.deleted else _excerpt(str(event.body.get("text", "")))
    return f"{name_of(event.author.nick) if nick is None else nick}: {text}"


def problem_sentence(problem: ProblemNews) -> str:
    why = f"{printable_line(problem.comment)} ({printable_line(problem.code)})"
    return f"{name_of(problem.peer)} reports a problem: {why}"


def delivery_lines(report: DeliveryReport) -> list[str]:
    rows = [
        (name_of(member.nick), "delivered" if member.delivered else "waiting", member.did) for member in report.members
    ]
    return [*(table(rows) if rows else []), f"delivered to {report.delivered} of {report.of}"]


TRUST = {"unverified": "-", "verified": "verified", "changed": "CHANGED"}


def member_lines(members: Sequence[MemberInfo]) -> list[str]:
    rows = [("NAME", "ROLE", "CONNECTION", "HEARD", "VIEW", "TRUST", "KEY")]
    for member in members:
        view = {True: "same", False: "differs", None: "-"}[member.view_agrees]
        mine = member.connection == "self"
        connection: str = member.connection
        if member.via == "mediator":  # which takes in what is for it, whether it is there or not
            connection = "over a mediator" if connection == "connected" else f"{connection} (mediator)"
        bot = " [bot]" if member.bot else ""
        rows.append(
            (
                name_of(member.nick) + bot,
                member.role + ", keeps the history" * member.keeper,
                "you" if mine else connection if member.arrived else group_rules.NEVER_ARRIVED,
                "-" if mine else _heard(member),
                "-" if mine else view,
                "-" if mine else _standing(member),
                member.did,
            )
        )
    return table(rows)


def _heard(member: MemberInfo) -> str:
    """When a member was last heard from, and what is known to be missing of what it has said."""
    when = near_time(member.last_heard) if member.last_heard else "never"
    return f"{when}, {member.missing} missing" if member.missing else when


def _standing(member: MemberInfo) -> str:
    """How far to trust a member; the worst first."""
    if member.forked:
        return "FORKED"
    if member.disputed:
        return "DISPUTED"
    if member.trust == "unverified" and member.unconfirmed:
        return "unconfirmed"
    return TRUST[member.trust]


def split_words(words: Sequence[str]) -> list[str]:
    """Words to compare, four in a line, as one reads them out."""
    return [" ".join(words[start : start + 4]) for start in range(0, len(words), 4)]


def find_group(known: Sequence[GroupInfo], wanted: str) -> GroupInfo:
    """The group with this name, this id, or an id that begins so, as the agent finds it. Raises UnknownGroup or
    AmbiguousGroup."""
    named = [one for one in known if one.name == wanted]
    found = [one for one in known if one.id == wanted] or [one for one in named if one.state != "left"] or named
    if not found and len(wanted) >= PREFIX_MIN:
        found = [one for one in known if one.id.startswith(wanted)]
    if not found:
        raise UnknownGroup(group=wanted)
    if len(found) > 1:
        raise AmbiguousGroup(group=wanted, ids=[one.id for one in found])
    return found[0]


class NoSuchMember(LocalError):
    """{why}. `zerochat members {group}` lists the members, with their keys."""


def find_member(members: Sequence[MemberInfo], wanted: str, group: str) -> MemberInfo:
    """The member of `group` with this name, this key, or one that begins so. Raises NoSuchMember."""
    found = [one for one in members if one.did == wanted]
    found = found or [one for one in members if one.nick.casefold() == wanted.casefold()]
    if not found and len(wanted) >= len("did:key:z6Mk") + PREFIX_MIN:
        found = [one for one in members if one.did.startswith(wanted)]
    if len(found) != 1:
        why = f"More than one member answers to {wanted}" if found else f"Nobody there is called {wanted}"
        raise NoSuchMember(why=why, group=group)
    return found[0]


def group_lines(groups: Sequence[GroupInfo]) -> list[str]:
    rows = [("GROUP", "STATE", "MEMBERS", "CONNECTED", "UNACKNOWLEDGED", "VIEW", "ID")]
    rows += [
        (
            name_of(group.name),
            "put out" if group.removed_by else group.state,
            *(_figures(group) if group.state != "left" else ("-", "-", "-", "-")),
            group.id,
        )
        for group in groups
    ]
    return table(rows)


def _figures(group: GroupInfo) -> tuple[str, str, str, str]:
    """What holds in a group as long as one is in it."""
    mailed = f", {group.mailed} by mail" if group.mailed else ""
    connected = f"{group.connected - group.mailed}/{max(group.members - 1, 0)}{mailed}"
    return str(group.members), connected, str(group.unacknowledged), group.view[:8]


def join_lines(joins: Sequence[JoinStatus]) -> list[str]:
    """One's own joins that are under way or have failed: the group, how far it is, until when, and what was said."""
    rows = [
        (
            f"joining {name_of(one.name)}" if one.name else "joining",
            _waiting(one),
            printable_line(one.text),
        )
        for one in joins
    ]
    return table(rows) if rows else []


def _waiting(one: JoinStatus) -> str:
    """How far a join is, and since when."""
    since = f" since {local_time(one.since)}" if one.since and one.phase != "failed" else ""
    return f"waits for an answer{since} until {local_time(one.until)}" if one.words else one.phase + since


def status_lines(status: Status) -> list[str]:
    rows = [
        ("profile", f"{status.profile} ({name_of(status.nick)})"),
        ("agent", f"zerochat {status.version}, process {status.pid}, up {duration(status.uptime_s)}"),
    ]
    if status.hidden:
        rows.append(("hidden", "this agent only dials; nobody is told of an address to dial it at"))
    else:
        rows += [("peers reach", status.pair), ("queues at", status.queue)]
    rows += [("web", uri) for uri in status.web]
    rows += [("mediator", f"{called(one)}: {mediation(one)}") for one in status.mediators]
    if status.closed:
        rows.append(("closed", "the gatekeeper has stopped, so nobody new gets in: start the agent again"))
    if status.warning:
        rows.append(("warning", status.warning))
    lines = table(rows)
    if status.joins:
        lines += ["", *join_lines(status.joins)]
    if not status.groups:
        return [*lines, "", "no groups yet"]
    told = [(f"{name_of(one.name)}:", whole(one)) for one in status.groups if one.completeness]
    told += [
        (f"{name_of(one.name)}:", fetching(one.beginning))
        for one in status.groups
        if one.beginning and one.beginning.state == "fetching"
    ]
    told += [(f"{name_of(one.name)}:", "nothing can be said there yet") for one in status.groups if one.suspended]
    told += [(f"{name_of(one.name)}:", line) for one in status.groups for line in wanted_out(one)]
    return [*lines, "", *group_lines(status.groups), *(["", *table(told)] if told else [])]


PREFIX_MIN = 4
"""The letters of an id that may stand for all of it, as `group/lookup.py` has it."""
MEDIATION = {"asking": "no answer yet", "granted": "takes in what is for you", "denied": "has said no"}


def mediation(one: ConnectionInfo) -> str:
    """What a mediator does for us, as far as it can be reached."""
    away = one.mediator == "granted" and one.reachable is False
    return "cannot be reached now" if away else MEDIATION[one.mediator or "asking"]


def called(one: ConnectionInfo) -> Printable:
    """What a connection is called; its key where it has no name but that."""
    return printable_key(one.did) if one.did and one.did.startswith(one.label) else name_of(one.label)


def find_connection(known: Sequence[ConnectionInfo], wanted: str) -> ConnectionInfo | None:
    """The connection with this name or id, or an id that begins so, as the agent finds it; None: none, or several."""
    found = [one for one in known if wanted == one.id] or [one for one in known if one.label == wanted != ""]
    if not found and len(wanted) >= PREFIX_MIN:
        found = [one for one in known if one.id.startswith(wanted)]
    return found[0] if len(found) == 1 else None


def duration(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
