"""The grammar as plain data, for what is made from it: completions and the manual page.

Only what a person is told of: verbs and options without help are for zerochat itself.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["", "words", "groups", "profiles", "posted", "files"]
"""What a value can be completed from: nothing, its own choices, or what there is now; `posted`: the files that were
sent in the group that stands before it."""

KINDS: dict[str, Kind] = {"GROUP": "groups", "FILE": "files", "PATH": "files", "FOLDER": "files", "DIR": "files"}
"""By metavar."""


@dataclass(frozen=True, slots=True)
class Value:
    """What stands in one place of the command line."""

    metavar: str
    kind: Kind
    choices: tuple[str, ...] = ()
    needed: bool = True
    many: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    flags: tuple[str, ...]
    help: str
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A word without a flag."""

    value: Value
    help: str


@dataclass(frozen=True, slots=True)
class Verb:
    path: tuple[str, ...]
    """Its words; empty for zerochat itself."""
    summary: str
    text: str
    examples: str
    """What stands below the options, as it is."""
    options: tuple[Option, ...]
    places: tuple[Place, ...]
    verbs: "tuple[Verb, ...]"
    usage: str
    """With `zerochat` and all."""

    def all(self) -> "Iterator[Verb]":
        """This one, and those below it."""
        yield self
        for verb in self.verbs:
            yield from verb.all()


def outline(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), summary: str = "") -> Verb:
    """What a parser understands."""
    options: list[Option] = []
    places: list[Place] = []
    verbs: list[Verb] = []
    for action in parser._actions:  # no public way to ask
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            told = {one.dest: one.help or "" for one in action._choices_actions}
            verbs += [outline(action.choices[name], (*path, name), help_) for name, help_ in told.items()]
        elif action.option_strings:
            value = None if action.nargs == 0 else _value(action)
            options.append(Option(tuple(action.option_strings), _said(action, parser), value))
        else:
            places.append(Place(_value(action), _said(action, parser)))
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    text, examples = parser.description or "", parser.epilog or ""
    return Verb(path, summary, text, examples, tuple(options), tuple(places), tuple(verbs), usage)


def _value(action: argparse.Action) -> Value:
    choices = tuple(map(str, action.choices or ()))
    metavar = action.metavar if isinstance(action.metavar, str) else "|".join(choices) or action.dest.upper()
    kind: Kind = "words" if choices else KINDS.get(metavar, "")
    if "--profile" in action.option_strings:
        kind = "profiles"
    if action.dest == "wanted":
        kind = "posted"
    if metavar == "any|all|N":
        kind, choices = "words", ("any", "all")
    return Value(metavar, kind, choices, action.nargs not in ("?", "*"), action.nargs in ("*", "+"))


def _said(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help with its placeholders filled in."""
    names = dict(vars(action), prog=parser.prog)
    return (action.help or "") % {name: value for name, value in names.items() if value is not argparse.SUPPRESS}
