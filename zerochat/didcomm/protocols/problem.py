"""Problem reports 2.0 and v1, with a circuit breaker against report loops.

A code states severity, scope of the rollback and, increasingly precisely, the subject: `e.p.xfer.cant-use-endpoint`. An
unknown code is interpreted by its prefix. The comment is fixed per code; variable parts are in `args` and interpolated
by the reader.

A report is never answered with another, except with the final one of a circuit breaker (`Breaker`); acknowledgements
and forwards are never answered with a report.

Specified in: DIDComm v2.1, "Problem Reports" and "Cascading Problems"; Aries RFC 0035 (1.0), RFC 0023 ("Errors").
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id, same_type
from zerochat.didcomm.packer import Profile
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
"""zerochat's general codes with their comments."""


# --- codes ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Code(Struct, frozen=True):
    """A parsed problem code."""

    is_error: bool
    """False: a warning, whose consequences are up to the reader."""
    scope: str
    """Scope of the rollback: `p` (protocol), `m` (message), or the name of a state."""
    descriptors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join(("e" if self.is_error else "w", self.scope, *self.descriptors))


def parse_code(text: str) -> Code:
    """Parse a code: `sorter.scope.descriptors`, kebab-case. Raises Malformed."""
    sorter, *rest = text.split(".") if len(text) <= CODE_CHARS_MAX else [""]
    if sorter not in ("e", "w") or not 1 <= len(rest) <= 1 + DESCRIPTORS_MAX:
        raise Malformed(why="a problem code without sorter or scope, or too long")
    if not all(_TOKEN.fullmatch(token) for token in rest):
        raise Malformed(why="a problem code that is not in kebab-case")
    return Code(sorter == "e", rest[0], tuple(rest[1:]))


def begins_with(code: str, prefix: str) -> bool:
    """Whether a code has this prefix. Older codes have underscores instead of hyphens."""
    return f"{code}.".replace("_", "-").startswith(f"{prefix}.")


# --- the sentence ---------------------------------------------------------------------------------------------------

_PLACE = re.compile(r"\{([0-9]{1,3})\}")


def interpolate(comment: str, args: Sequence[object]) -> str:
    """Interpolate arguments into a comment, at most TEXT_CHARS_MAX characters; `{1}` is the first.

    A missing argument becomes a question mark, unused ones are appended. Arguments are not interpolated recursively.
    The result is untrusted text.
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
    """A parsed problem report of any version; its texts are untrusted."""

    code: str
    """In v1 free-form; may be empty."""
    text: str
    """The interpolated comment; may be empty."""
    thread: str | None
    """Thread of the problem (in v1 possibly a message id)."""
    version: Literal[1, 2]
    """Version of the code's grammar."""
    ack: tuple[str, ...] = ()
    escalate_to: str | None = None

    @property
    def parsed(self) -> Code | None:
        """The parsed code; None for one outside the grammar, like those of v1."""
        try:
            return parse_code(self.code.replace("_", "-")) if self.version == 2 else None
        except Malformed:
            return None

    @property
    def is_error(self) -> bool:
        """Whether this is an error rather than a warning; true if unknown."""
        parsed = self.parsed
        return parsed is None or parsed.is_error

    @property
    def ends_protocol(self) -> bool:
        """Whether the sender abandoned the whole protocol, as all v1 reports do."""
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
    """RFC 0023 and RFC 0160 have separate members for code and sentence."""
    explain: Text | None = None
    explain_ltxt: Text | None = msgspec.field(name="explain-ltxt", default=None)
    """Name in older editions of RFC 0035."""
    escalation_uri: Text | None = None


def is_problem(message: Message) -> bool:
    """Whether a message is a problem report, general or adopted by another protocol."""
    try:
        return same_type(message.type, PROBLEM) or parse_type(message.type).name == "problemreport"
    except Malformed:
        return False


def read_problem(message: Message) -> Report:
    """Decode a problem report of either version, including v1 reports of other protocols. Raises Malformed.

    The caller checks that the sender takes part in the thread.
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
    """A problem report about a message, in a new thread whose parent is the message's.

    The comment defaults to that of the code in COMMENTS.
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
    """A problem report in DIDComm v1, in the message's thread; `kind`: the type of the message's protocol.

    Code and sentence are duplicated, because RFC 0023 and its implementations use different members.
    """
    body = {"description": {"code": code, "en": text}, "problem-code": code, "explain": text}
    return Message(type=kind, id=new_id(random), thid=about.thread, pthid=about.pthid, body=body, lang="en")


def report(
    code: str, about: Message, random: Callable[[int], bytes], profile: Profile, comment: str | None = None
) -> Message:
    """A problem report in the version that goes with the envelope format `profile` of the message that it is about."""
    if profile == "didcomm/v2":
        return problem(code, about, random, comment=comment)
    return problem_v1(code, about, comment or COMMENTS.get(code, code), random)


# --- the circuit breaker --------------------------------------------------------------------------------------------

ERRORS_MAX = 5
"""Errors per thread and window."""
ERRORS_WINDOW_S = 3600
"""Threads may last for years; one error per hour is not a loop."""


class Breaker(Struct, frozen=True):
    """Circuit breaker of one thread: counts sent and received errors, and opens permanently above ERRORS_MAX.

    An open breaker sends one final report, TOO_MANY_ERRORS, and then nothing.
    """

    errors: int = 0
    since_s: int = 0
    """Time of the first error, in seconds of any clock."""

    @property
    def is_broken(self) -> bool:
        return self.errors > ERRORS_MAX

    def after(self, now_s: int) -> "Breaker":
        """Count one error. Warnings count too, because they can loop as well."""
        if self.is_broken:
            return self
        if self.errors and now_s - self.since_s < ERRORS_WINDOW_S:
            return replace(self, errors=self.errors + 1)
        return Breaker(1, now_s)

    def sending(self, code: str, now_s: int) -> tuple["Breaker", str | None]:
        """The code to report instead of `code`: itself, the final one, or None after that."""
        if self.is_broken:
            return self, None
        after = self.after(now_s)
        return after, TOO_MANY_ERRORS if after.is_broken else code

    def receiving(self, now_s: int) -> tuple["Breaker", str | None]:
        """The code to answer a peer's report with: None, or the final one."""
        after = self.after(now_s)
        return after, TOO_MANY_ERRORS if after.is_broken and not self.is_broken else None
