"""Problem reports 2.0, and those of v1: what went wrong, in a code for programs and a sentence for people.

A code says whether it is an error or a warning, how much of the conversation it undoes, and ever more precisely what it
is about: `e.p.xfer.cant-use-endpoint`. Whoever does not know a code goes by its beginning. The sentence belongs to the
code and never changes; what does change stands in `args`, and is put in by whoever reads it.

Two sides that answer each other's reports would do so for ever. So a report is never answered with another, except
with the last word of a circuit breaker (`Breaker`); neither are acknowledgements and forwards.

Specified in: DIDComm v2.1, "Problem Reports" and "Cascading Problems"; Aries RFC 0035 (1.0), RFC 0023 ("Errors").
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id, same_type
from zerochat.didcomm.protocols.ack import is_forward, is_pure_ack
from zerochat.didcomm.protocols.bodies import TEXT_CHARS_MAX, Name, Text, read_body
from zerochat.didcomm.uri import parse_type
from zerochat.errors import Malformed

PROTOCOL: Final = "https://didcomm.org/report-problem/2.0"
PROBLEM: Final = PROTOCOL + "/problem-report"
PROBLEM_V1: Final = "https://didcomm.org/notification/1.0/problem-report"

CODE_CHARS_MAX = 128
DESCRIPTORS_MAX = 8
ARGS_MAX = 16
LOCALES_MAX = 32

TOO_MANY_ERRORS: Final = "e.p.req.max-errors-exceeded"

COMMENTS: Mapping[str, str] = {
    "e.m.trust.crypto": "A cryptographic operation failed.",
    "e.m.trust.crypto.unsupported": "The algorithm is not supported.",
    "e.m.trust": "The sender is not trusted with this.",
    "e.m.did": "The DID cannot be used.",
    "e.m.msg": "The message cannot be read.",
    "e.m.msg.unsupported": "Messages of this type are not supported.",
    "e.m.req.time": "The message has expired.",
    "e.m.me.res.storage.message-too-big": "The message is longer than {1} bytes.",
    "w.m.xfer.cant-use-endpoint": "The endpoint {1} cannot be used.",
    TOO_MANY_ERRORS: "There have been too many errors.",
}
"""The codes that zerochat uses outside its own protocols, each with the sentence that belongs to it."""


# --- codes ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Code(Struct, frozen=True):
    """A problem code in its parts."""

    is_error: bool
    """If not, a warning: what follows from it, its reader has to judge."""
    scope: str
    """How much is undone: `p` (the protocol), `m` (the message), or else back to the state of this name."""
    descriptors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join(("e" if self.is_error else "w", self.scope, *self.descriptors))


def parse_code(text: str) -> Code:
    """A code's parts. Raises Malformed for what the grammar does not allow: `sorter.scope.descriptors`, kebab-case."""
    sorter, *rest = text.split(".") if len(text) <= CODE_CHARS_MAX else [""]
    if sorter not in ("e", "w") or not 1 <= len(rest) <= 1 + DESCRIPTORS_MAX:
        raise Malformed(why="a problem code without sorter or scope, or too long")
    if not all(_TOKEN.fullmatch(token) for token in rest):
        raise Malformed(why="a problem code that is not in kebab-case")
    return Code(sorter == "e", rest[0], tuple(rest[1:]))


def begins_with(code: str, prefix: str) -> bool:
    """Whether a code is this one or a more precise one. Older texts have underscores where hyphens belong."""
    return f"{code}.".replace("_", "-").startswith(f"{prefix}.")


# --- the sentence ---------------------------------------------------------------------------------------------------

_PLACE = re.compile(r"\{([0-9]{1,3})\}")


def interpolate(comment: str, args: Sequence[object]) -> str:
    """A comment with its arguments in it, at most TEXT_CHARS_MAX characters: `{1}` is the first.

    A missing one is a question mark, and those that no place asks for follow at the end. What an argument holds is not
    looked through for places again. The result is still a stranger's text.
    """
    texts = [_argument(arg)[:TEXT_CHARS_MAX] for arg in args]
    used: set[int] = set()

    def value(place: re.Match[str]) -> str:
        number = int(place[1])
        used.add(number)
        return texts[number - 1] if 0 < number <= len(texts) else "?"

    sentence = _PLACE.sub(value, comment[:TEXT_CHARS_MAX])
    extra = [text for number, text in enumerate(texts, 1) if number not in used]
    text = ", ".join([sentence, *extra] if sentence else extra)
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def _argument(value: object) -> str:
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else "?"


# --- reports --------------------------------------------------------------------------------------------------------


class Report(Struct, frozen=True):
    """A problem report of any version, as it was read. Its texts are the sender's."""

    code: str
    """In v1 any word; empty where there was none."""
    text: str
    """The sentence for people, arguments in their places; may be empty."""
    thread: str | None
    """The id of the thread (in v1 perhaps of the message) that the problem is in."""
    version: Literal[1, 2]
    """Whose rules the code follows."""
    ack: tuple[str, ...] = ()
    escalate_to: str | None = None

    @property
    def parsed(self) -> Code | None:
        """The parts of the code; None for one outside the grammar, as those of v1 are."""
        try:
            return parse_code(self.code.replace("_", "-")) if self.version == 2 else None
        except Malformed:
            return None

    @property
    def is_error(self) -> bool:
        """Whether this is no mere warning; so is what cannot be told."""
        parsed = self.parsed
        return parsed is None or parsed.is_error

    @property
    def ends_protocol(self) -> bool:
        """Whether its sender has given the whole protocol up. The problem reports of v1 all mean that."""
        parsed = self.parsed
        return self.version == 1 if parsed is None else parsed.is_error and parsed.scope == "p"


class _Body(msgspec.Struct, frozen=True):
    code: Annotated[str, msgspec.Meta(max_length=CODE_CHARS_MAX)]
    comment: Text | None = None
    args: Annotated[list[Any], msgspec.Meta(max_length=ARGS_MAX)] | None = None
    escalate_to: Text | None = None


class _BodyV1(msgspec.Struct, frozen=True):
    description: Annotated[dict[Name, Any], msgspec.Meta(max_length=LOCALES_MAX)] | Text | None = None
    problem_code: Name | None = msgspec.field(name="problem-code", default=None)
    """RFC 0023 and RFC 0160 have a code and a sentence beside each other."""
    explain: Text | None = None
    explain_ltxt: Text | None = msgspec.field(name="explain-ltxt", default=None)
    """The name in RFC 0035's older editions."""
    escalation_uri: Text | None = None


def is_problem(message: Message) -> bool:
    """Whether a message is a problem report: of the protocol for it, or one that another protocol has adopted."""
    try:
        return same_type(message.type, PROBLEM) or parse_type(message.type).name == "problemreport"
    except Malformed:
        return False


def read_problem(message: Message) -> Report:
    """A problem report of either version, and as other protocols adopt it in v1. Raises Malformed.

    Whether the sender has anything to do with the thread that it names is for the caller to see.
    """
    if "code" in message.body:
        body = read_body(message, _Body)
        text = interpolate(body.comment or "", body.args or ())
        return Report(body.code, text, message.pthid or message.thid, 2, message.ack, body.escalate_to)
    if same_type(message.type, PROBLEM):
        raise Malformed(why="a problem report without a code")
    return _read_v1(message)


def _read_v1(message: Message) -> Report:
    body = read_body(message, _BodyV1)
    described: dict[str, Any] = body.description if isinstance(body.description, dict) else {"en": body.description}
    texts = {name: value[:TEXT_CHARS_MAX] for name, value in described.items() if isinstance(value, str)}
    code = body.problem_code or texts.pop("code", "")[:CODE_CHARS_MAX]
    locale = next((name for name in ("en", "en-US", *texts) if name in texts and name != "code"), None)
    text = body.explain or body.explain_ltxt or (texts[locale] if locale else "")
    return Report(code, text, message.thid or message.pthid, 1, message.ack, body.escalation_uri)


def may_report(about: Message) -> bool:
    """Whether a message may be answered with a problem report."""
    return not (is_problem(about) or is_pure_ack(about) or is_forward(about))


def problem(
    code: str,
    about: Message,
    random: Callable[[int], bytes],
    args: Sequence[str] = (),
    comment: str | None = None,
    escalate_to: str | None = None,
) -> Message:
    """A report of a problem with a message: in a new thread, whose parent is the message's.

    The comment is that of the code in COMMENTS, unless the protocol has its own.
    """
    parse_code(code)
    body: dict[str, Any] = {"code": code}
    if sentence := comment or COMMENTS.get(code):
        body["comment"] = sentence
    if args:
        body["args"] = list(args)
    if escalate_to is not None:
        body["escalate_to"] = escalate_to
    return Message(type=PROBLEM, id=new_id(random), pthid=about.thread, ack=(about.id,), body=body)


def problem_v1(code: str, about: Message, text: str, random: Callable[[int], bytes], kind: str = PROBLEM_V1) -> Message:
    """A report in DIDComm v1, in the thread of the message; `kind`: the type that the message's protocol has for it.

    Code and sentence stand there twice, because RFC 0023 and the agents that speak it put them into different members.
    """
    body = {"description": {"code": code, "en": text}, "problem-code": code, "explain": text}
    return Message(type=kind, id=new_id(random), thid=about.thread, pthid=about.pthid, body=body, lang="en")


# --- the circuit breaker --------------------------------------------------------------------------------------------

ERRORS_MAX = 5
"""In one thread. An exchange that works has none, and one that could be mended has been mended by then."""
ERRORS_WINDOW_S = 3600
"""A thread may be as long as a friendship: an error an hour is no vicious circle."""


class Breaker(Struct, frozen=True):
    """The errors of one thread, those that were sent and those that came; it breaks for good when they are too many.

    A broken thread gets one last report, TOO_MANY_ERRORS, and after that no answer to anything.
    """

    errors: int = 0
    since_s: int = 0
    """When the first of them happened, in seconds of any clock."""

    @property
    def is_broken(self) -> bool:
        return self.errors > ERRORS_MAX

    def after(self, now_s: int) -> "Breaker":
        """After one more error. Warnings count too: two sides can warn each other for ever."""
        if self.is_broken:
            return self
        if self.errors and now_s - self.since_s < ERRORS_WINDOW_S:
            return replace(self, errors=self.errors + 1)
        return Breaker(1, now_s)

    def sending(self, code: str, now_s: int) -> tuple["Breaker", str | None]:
        """The code to report in place of `code`: itself, the last word, or None once that has been said."""
        if self.is_broken:
            return self, None
        after = self.after(now_s)
        return after, TOO_MANY_ERRORS if after.is_broken else code

    def hearing(self, now_s: int) -> tuple["Breaker", str | None]:
        """The code to answer a peer's report with: none, or the last word."""
        after = self.after(now_s)
        return after, TOO_MANY_ERRORS if after.is_broken and not self.is_broken else None
