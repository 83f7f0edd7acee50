"""The grammar as plain data, for completion scripts and the man page; hidden verbs and options are left out."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["", "words", "groups", "members", "connections", "profiles", "sent-files", "bots", "files"]
"""Completion source of a value: nothing, its choices, or current names; `members`, `sent-files`: those of the group
given before it; `bots`: the named consumers of the profile, which have the names of its bots."""
KINDS: dict[str, Kind] = {
    "GROUP": "groups",
    "MEMBER": "members",
    "CONNECTION": "connections",
    "FILE": "files",
    "PATH": "files",
    "FOLDER": "files",
    "DIR": "files",
}
"""By metavar."""
OPTION_KINDS: dict[str, Kind] = {
    "--profile": "profiles",
    **dict.fromkeys(("--bot", "--consumer"), "bots"),
    **dict.fromkeys(("--from", "--by", "--operator", "--witness"), "members"),
}
"""By flag, where the metavar is a general one."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an option or a positional argument."""

    metavar: str
    kind: Kind
    choices: tuple[str, ...] = ()
    required: bool = True
    many: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    flags: tuple[str, ...]
    help: str
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Positional:
    """A positional argument."""

    value: Value
    help: str


@dataclass(frozen=True, slots=True)
class Verb:
    path: tuple[str, ...]
    """The words of the verb; empty for `zerochat` itself."""
    summary: str
    text: str
    examples: str
    """The epilog of the help."""
    options: tuple[Option, ...]
    positionals: tuple[Positional, ...]
    verbs: "tuple[Verb, ...]"
    usage: str
    """The usage line, including `zerochat`."""

    def all(self) -> "Iterator[Verb]":
        """This verb and all below it."""
        yield self
        for verb in self.verbs:
            yield from verb.all()


def command_tree(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), summary: str = "") -> Verb:
    """The tree of verbs that a parser accepts."""
    options: list[Option] = []
    positionals: list[Positional] = []
    verbs: list[Verb] = []
    for action in parser._actions:  # no public accessor
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            verbs += [command_tree(action.choices[name], (*path, name), help_) for name, help_ in summaries.items()]
        elif action.option_strings:
            value = None if action.nargs == 0 else _value(action)
            options.append(Option(tuple(action.option_strings), _help(action, parser), value))
        else:
            positionals.append(Positional(_value(action), _help(action, parser)))
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    text, examples = parser.description or "", parser.epilog or ""
    return Verb(path, summary, text, examples, tuple(options), tuple(positionals), tuple(verbs), usage)


def _value(action: argparse.Action) -> Value:
    choices = tuple(map(str, action.choices or ()))
    metavar = action.metavar if isinstance(action.metavar, str) else "|".join(choices) or action.dest.upper()
    kind: Kind = "words" if choices else KINDS.get(metavar, "")
    if metavar == "NAME":
        kind = next((OPTION_KINDS[flag] for flag in action.option_strings if flag in OPTION_KINDS), kind)
    if action.dest == "file_ref":
        kind = "sent-files"
    if metavar == "TOPIC":
        from zerochat.manual import topics

        kind, choices = "words", tuple(topics())
    if metavar == "NAME=VALUE":
        from zerochat.agent.settings.options import CHAT, OPTIONS

        names = [name.removeprefix(CHAT) for name in OPTIONS if name.startswith(CHAT)]
        kind, choices = "words", tuple(f"{name}=" for name in names)
    if metavar == "any|all|N":
        kind, choices = "words", ("any", "all")
    return Value(metavar, kind, choices, action.nargs not in ("?", "*"), action.nargs in ("*", "+"))


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help text with its placeholders filled in."""
    names = dict(vars(action), prog=parser.prog)
    return (action.help or "") % {name: value for name, value in names.items() if value is not argparse.SUPPRESS}
