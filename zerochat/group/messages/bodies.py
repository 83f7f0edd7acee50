"""Content of events: posts, annotations (edit, reaction, deletion), topics, pins, announcements and verdicts.

Each kind is one record with its limits; its JSON body is written and read only here. Our own content is validated
before it is sent (`validated`). Other members' events are stored whatever they contain; an invalid body is `Malformed`
and has no effect. Unknown fields are ignored.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

from msgspec import Struct

from zerochat.crypto.encoding import compact_json
from zerochat.errors import LocalError, Malformed, PostTooLong
from zerochat.group.event_log.event import (
    ANNOUNCE,
    DELETE,
    EDIT,
    HEADER_BYTES_MAX,
    PINS,
    POST,
    REACT,
    RECORD_BYTES_MAX,
    TOPIC,
    VERDICT,
    Event,
)
from zerochat.group.files.descriptor import File
from zerochat.group.membership.bot_announcement import (
    Announcement,
    BadAnnouncement,
    announcement_error,
    read_announcement,
)
from zerochat.group.tlog.verdicts import BadVerdict, Verdict, read_verdict, verdict_error
from zerochat.limits import HOPS_MAX, POST_BYTES_MAX
from zerochat.names import hidden_in

EMOJI_BYTES_MAX = 40
"""The longest emoji that Unicode recommends has 35: two people of two skin tones, and joiners."""
TOPIC_CHARS_MAX = 256
MENTIONS_MAX = 32
PINS_MAX = 20
"""The most pinned messages of a group. They are one event of at most 1 kB, and the last one counts."""

_ID = re.compile("[A-Za-z0-9_-]{43}")
_DID = re.compile("did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}")
_LINE_ENDS = re.compile("[\u0000-\u001f\u007f-\u009f\u2028\u2029\ud800-\udfff]")

_JOINERS = frozenset(map(chr, (0x200C, 0x200D, *range(0xE0020, 0xE0080))))
"""Invisible characters inside Persian words, emoji and flags."""


class NotAnEmoji(LocalError):
    """{emoji} cannot be a reaction. Use one emoji, or one sign that is not a letter."""


class BadTopic(LocalError):
    """Invalid topic: {why}."""


class TooManyPins(LocalError):
    """A group has at most {limit} pinned messages. Unpin one first."""


class Counted(Struct, frozen=True, kw_only=True):
    """Content that a bot may answer, with a hop count, so that loops between bots end."""

    hops: int = 0
    """0: it was sent by a person. A bot's answer has one more than what it answers."""

    @property
    def _count(self) -> dict[str, int]:
        return {"hops": self.hops} if self.hops else {}


class Post(Counted, frozen=True):
    """A message."""

    text: str
    reply: str = ""
    """The id of the post that it answers; empty: none."""
    action: bool = False
    """An action of its author, as `/me` sends it."""
    mentions: tuple[str, ...] = ()
    """The DIDs of the members that it mentions."""
    files: tuple[File, ...] = ()
    """Its attachments; those of received posts are read by `files/descriptor.py`."""

    kind = POST

    @property
    def body(self) -> dict[str, Any]:
        reply = {"reply": self.reply} if self.reply else {}
        action = {"action": True} if self.action else {}
        files = {"files": [file.body() for file in self.files]} if self.files else {}
        called = {"mentions": list(self.mentions)} if self.mentions else {}
        return {"text": self.text, **reply, **action, **called, **files, **self._count}


class Edit(Counted, frozen=True):
    """The author of a post replaces its text."""

    target: str
    """The id of the post."""
    text: str
    mentions: tuple[str, ...] = ()
    """The DIDs of the members that the new text mentions."""

    kind = EDIT

    @property
    def body(self) -> dict[str, Any]:
        called = {"mentions": list(self.mentions)} if self.mentions else {}
        return {"target": self.target, "text": self.text, **called, **self._count}


class Delete(Counted, frozen=True):
    """The author of a post deletes it."""

    target: str

    kind = DELETE

    @property
    def body(self) -> dict[str, Any]:
        return {"target": self.target, **self._count}


class React(Counted, frozen=True):
    """A member adds a reaction to a post, or removes it."""

    target: str
    emoji: str
    on: bool = True

    kind = REACT

    @property
    def body(self) -> dict[str, Any]:
        return {"target": self.target, "emoji": self.emoji, "on": self.on, **self._count}


class Topic(Counted, frozen=True):
    """The group's topic; empty: none."""

    text: str

    kind = TOPIC

    @property
    def body(self) -> dict[str, Any]:
        return {"text": self.text, **self._count}


class Pins(Counted, frozen=True):
    """The ids of the group's pinned messages, the last pinned first."""

    targets: tuple[str, ...]

    kind = PINS

    @property
    def body(self) -> dict[str, Any]:
        return {"targets": list(self.targets), **self._count}


Content: TypeAlias = Post | Edit | Delete | React | Topic | Pins | Announcement | Verdict


# --- our own --------------------------------------------------------------------------------------------------------


def validated(saying: Content) -> Content:
    """The content, if valid. Raises PostTooLong, NotAnEmoji, BadTopic, TooManyPins, BadAnnouncement or BadVerdict."""
    match saying:
        case Post(text) | Edit(text=text):
            _check_size(text, saying)
        case React(_, emoji) if fault := fault_of_emoji(emoji):
            raise NotAnEmoji(emoji=ascii(emoji[:16]) if fault == "hidden" else emoji[:16])
        case Topic(text) if why := fault_of_topic(text):
            raise BadTopic(why=why)
        case Topic(text) if hidden := hidden_in(text, _JOINERS):
            raise BadTopic(why=f"it contains the invisible character {hidden}")
        case Pins(targets) if len(targets) > PINS_MAX:
            raise TooManyPins(limit=PINS_MAX)
        case Announcement() if why := announcement_error(saying):
            raise BadAnnouncement(why=why)
        case Verdict() if why := verdict_error(saying):
            raise BadVerdict(why=why)
    return saying


def _check_size(text: str, saying: Content) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    # Line ends and control characters take two to six bytes each as JSON.
    if size > POST_BYTES_MAX or len(compact_json(saying.body)) > RECORD_BYTES_MAX - HEADER_BYTES_MAX:
        raise PostTooLong(size=size, limit=POST_BYTES_MAX)


def fault_of_topic(text: str) -> str:
    """Why a topic is invalid; empty: it is valid."""
    if len(text) > TOPIC_CHARS_MAX:
        return f"it has at most {TOPIC_CHARS_MAX} characters"
    if _LINE_ENDS.search(text):
        return "it is one line, without control characters"
    return ""


# --- emoji ----------------------------------------------------------------------------------------------------------

_JOINER, _KEYCAP = "\u200d", "\u20e3"
_PICTOGRAPHS = range(0x1F000, 0x1FB00)
"""Whole blocks, so that next year's pictographs need no newer Unicode tables."""
_FLAGS, _COLOURS, _TAGS = range(0x1F1E6, 0x1F200), range(0x1F3FB, 0x1F400), range(0xE0020, 0xE0080)
_SELECTORS = range(0xFE00, 0xFE10)
_LETTER_SIGNS = "\u2139"
"""The information sign: an emoji that Unicode classifies as a letter."""


def fault_of_emoji(text: str) -> str:
    """Why a reaction is invalid, as one word; empty: it is one sign with its modifiers."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "hidden"
    if not 0 < size <= EMOJI_BYTES_MAX:
        return "size"
    bases: list[str] = []
    marks, joined = 0, False
    for char in text:
        code = ord(char)
        if char == _JOINER:
            if not bases or joined:
                return "hidden"
            joined = True
        elif _follows(char, code):
            if not bases or joined:
                return "hidden"
            marks += char == _KEYCAP
        else:
            if not joined:
                bases.append(char)
            elif not _is_sign(char, code):
                return "letter"
            joined = False
    if joined:
        return "hidden"
    return "" if _is_one(bases, marks) else "letter"


def _follows(char: str, code: int) -> bool:
    """Whether this character modifies the one before it."""
    return char == _KEYCAP or any(code in one for one in (_COLOURS, _TAGS, _SELECTORS))


def _is_one(bases: list[str], keycaps: int) -> bool:
    if keycaps:
        return keycaps == 1 and len(bases) == 1 and bases[0] in "0123456789#*"
    if len(bases) == 2:  # a flag
        return all(ord(one) in _FLAGS for one in bases)
    return len(bases) == 1 and _is_sign(bases[0], ord(bases[0]))


def _is_sign(char: str, code: int) -> bool:
    if code in _FLAGS:
        return False  # a regional indicator, half a flag
    return code in _PICTOGRAPHS or char in _LETTER_SIGNS or unicodedata.category(char)[0] in "SP"


# --- content of other members -----------------------------------------------------------------------------------------


def content_of(event: Event) -> Content:
    """The content of an event. Raises Malformed, also for an event without content."""
    return event.memoised(_read)


def _read(event: Event) -> Content:
    body = event.body
    match event.type:
        case "post":
            return _post(body)
        case "edit":
            return Edit(_target(body), _text(body), _mentions(body), hops=_hops(body))
        case "delete":
            return Delete(_target(body), hops=_hops(body))
        case "react":
            emoji, on = body.get("emoji"), body.get("on")
            if not isinstance(emoji, str) or not isinstance(on, bool) or fault_of_emoji(emoji):
                raise Malformed(why="react: not an emoji")
            return React(_target(body), emoji, on, hops=_hops(body))
        case "topic":
            text = _text(body)
            if fault_of_topic(text):
                raise Malformed(why="topic: not one line of text")
            return Topic(text, hops=_hops(body))
        case "pins":
            return _pins(body)
        case "announce":
            return read_announcement(body)
        case "verdict":
            return read_verdict(body)
    raise Malformed(why="an event without content")


def _pins(body: Mapping[str, Any]) -> Pins:
    targets = body.get("targets")
    if not isinstance(targets, list) or len(targets) > PINS_MAX or not all(_is_id(one) for one in targets):
        raise Malformed(why="pins: not a list of events")
    return Pins(tuple(dict.fromkeys(targets)), hops=_hops(body))


def _post(body: Mapping[str, Any]) -> Post:
    """Invalid optional fields are ignored, except for the hop count: the text is worth showing anyway."""
    reply = body.get("reply")
    called = _mentions(body)
    return Post(_text(body), reply if _is_id(reply) else "", body.get("action") is True, called, hops=_hops(body))


def _hops(body: Mapping[str, Any]) -> int:
    hops = body.get("hops", 0)
    if type(hops) is not int or not 0 <= hops <= HOPS_MAX:
        raise Malformed(why="hops: not a small number")
    return hops


def _mentions(body: Mapping[str, Any]) -> tuple[str, ...]:
    mentions = body.get("mentions")
    called = mentions if isinstance(mentions, list) and len(mentions) <= MENTIONS_MAX else []
    return tuple(dict.fromkeys(one for one in called if isinstance(one, str) and _DID.fullmatch(one)))


def _text(body: Mapping[str, Any]) -> str:
    text = body.get("text")
    if not isinstance(text, str):
        raise Malformed(why="no text")
    return text


def _target(body: Mapping[str, Any]) -> str:
    target = body.get("target")
    if not _is_id(target):
        raise Malformed(why="no target event")
    return target


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def target_of(event: Event) -> str:
    """The key by which the log finds annotations: the id of a post, the digest of an accusation, `topic`, `pins` or
    `announce`; empty for other events."""
    if event.is_erased:
        return ""
    if event.type in (TOPIC, PINS, ANNOUNCE):
        try:
            content_of(event)
        except Malformed:
            return ""
        return event.type
    if event.type in (EDIT, DELETE, REACT, VERDICT):
        target = event.body.get("target")
        return target if _is_id(target) else ""
    return ""
