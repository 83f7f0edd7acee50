"""The man page in roff, generated from the command tree."""

import re
from collections.abc import Iterator

from zerochat.cli.command_tree import Option, Verb
from zerochat.cli.grammar import FORMATS
from zerochat.version import __version__

FILES = """\
`zerochat paths` prints the paths of the settings (config.toml), the profile's
folder with its encrypted journal, the agent's log, and its socket."""
_SECTION = re.compile(r"^([a-z][a-z ]*):$", re.MULTILINE)
_COMMON = ("--help", "--profile", "--format")
"""Options of every verb; documented once."""


def man_page(tree: Verb) -> str:
    """The complete page."""
    lines: list[str] = []
    for line in _lines(tree):
        if line != ".PP" or not lines[-1].startswith((".SH", ".SS")):  # a heading starts a paragraph
            lines.append(line)
    return "\n".join(lines) + "\n"


def _lines(tree: Verb) -> Iterator[str]:
    yield f'.TH ZEROCHAT 1 "" "zerochat {roff(__version__)}" "User Commands"'
    yield ".SH NAME"
    yield roff(f"zerochat - {tree.text[0].lower()}{tree.text[1:].rstrip('.')}")
    yield ".SH SYNOPSIS"
    yield ".B zerochat"
    yield roff("[--profile NAME] [--format FORMAT] [COMMAND] ...")
    yield ".SH DESCRIPTION"
    before, sections = _sections(tree.examples)
    yield from _paragraphs(f"{tree.text}\n\n{before}")
    yield ".SH OPTIONS"
    for option in tree.options:
        yield from _option(option)
    yield ".SH COMMANDS"
    for verb in tree.verbs:
        for one in verb.all():
            yield from _verb(one)
    for title, body in sections:
        yield f".SH {roff(_title(title))}"
        yield from _verbatim(body)
    yield ".SH FILES"
    yield from _paragraphs(FILES)


def _verb(verb: Verb) -> Iterator[str]:
    yield f".SS {roff(' '.join(verb.path))}"
    yield from _paragraphs(f"{verb.summary[:1].upper()}{verb.summary[1:]}.")
    yield ".PP"
    yield roff(verb.usage)
    yield from _paragraphs(verb.text)
    for positional in verb.positionals:
        yield from (".TP", f".I {roff(positional.value.metavar)}", roff(positional.help) or r"\&")
    for option in verb.options:
        if not set(option.flags) & set(_COMMON) or _differs(option):
            yield from _option(option)
    if verb.verbs:
        yield from (".PP", roff(f"Actions: {', '.join(one.path[-1] for one in verb.verbs)}."))
    before, sections = _sections(verb.examples)
    yield from _paragraphs(before)
    for title, body in sections:
        yield from (".PP", roff(f"{title[:1].upper()}{title[1:]}:"))
        yield from _verbatim(body)


def _differs(option: Option) -> bool:
    """Whether this --format accepts other values than usual."""
    return "--format" in option.flags and option.value is not None and option.value.choices != FORMATS


def _option(option: Option) -> Iterator[str]:
    named = ", ".join(rf"\fB{roff(flag)}\fR" for flag in option.flags)
    value = ""
    if option.value is not None:
        value = rf" \fI{roff(option.value.metavar)}\fR"
    yield from (".TP", f"{named}{value}", roff(option.help) or r"\&")


def _sections(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text before the first heading of an epilog, and each heading with its text."""
    before, *rest = _SECTION.split(text)
    return before, list(zip(rest[::2], rest[1::2], strict=True))


def _title(heading: str) -> str:
    return {"exit codes": "EXIT STATUS"}.get(heading, heading.upper())


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph:
            yield from (".PP", roff(" ".join(paragraph.split())))


def _verbatim(text: str) -> Iterator[str]:
    yield from (".PP", ".nf")
    yield from (roff(line.rstrip()) or r"\&" for line in text.strip("\n").splitlines())
    yield ".fi"


def roff(text: str) -> str:
    """Text escaped for roff, in ASCII, with hyphens that can be copied; no line is a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
