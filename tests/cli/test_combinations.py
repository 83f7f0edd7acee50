"""Options that would be ignored are refused; every example of the help and every pair of options is tried."""

import argparse
import shlex
from collections.abc import Iterator

import pytest

from zerochat.cli.combinations import NOT_TOGETHER, ONLY_WITH, action_of
from zerochat.cli.parser import grammar, parse

REFUSED = [
    *((verb, one, other) for verb, pairs in NOT_TOGETHER.items() for one, other in pairs),
    *((verb, one, "") for verb, pairs in ONLY_WITH.items() for one, *_ in pairs),
]
NEEDED = [(verb, one, other) for verb, pairs in ONLY_WITH.items() for one, *others in pairs for other in others]
VALUES = {
    "--expires": "2h",
    "--history": "all",
    "--after": "today",
    "--members": "40",
    **dict.fromkeys(("--noise", "--loss", "--dead"), "0.5"),
}
"""By flag, where 3 is no valid value."""
ALSO = {"proof": ("MSG",)}
"""By verb: what its parser requires beside its positional arguments."""


def parser_of(verb: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = grammar(verb.split()[0])
    for word in verb.split():
        (verbs,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
        parser = verbs.choices[word]
    return parser


def value_of(action: argparse.Action) -> str:
    return str(list(action.choices)[-1]) if action.choices else VALUES.get((action.option_strings or [""])[0], "3")


def line_of(verb: str, *names: str) -> list[str]:
    """A command line with these arguments and those that the verb requires."""
    parser, options = parser_of(verb), list[str]()
    values = {name.partition("=")[0]: name.partition("=")[2] for name in names if name}
    for name in values:
        action = action_of(parser, name)
        if action.option_strings:
            options += [action.option_strings[-1], *([value_of(action)] if action.nargs != 0 else [])]
    places = [one for one in parser._actions if not one.option_strings]
    last = max((index for index, one in enumerate(places) if one.nargs is None or one.metavar in values), default=-1)
    words = [values.get(str(one.metavar)) or value_of(one) for one in places[: last + 1]]
    return [*verb.split(), *options, "--", *words] if words else [*verb.split(), *options]


@pytest.mark.parametrize(("verb", "one", "other"), REFUSED)
def test_an_option_that_would_be_ignored_is_refused(
    verb: str, one: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(line_of(verb, one, other, *(() if other else ALSO.get(verb, ()))))
    err = capsys.readouterr().err
    assert end.value.code == 2 and f"argument {one}: " in err and "allowed with argument" in err


@pytest.mark.parametrize(("verb", "one", "other"), NEEDED)
def test_an_option_is_accepted_with_the_one_that_it_needs(verb: str, one: str, other: str) -> None:
    assert parse(line_of(verb, one, other)).verb == verb.split()[0]


# --- examples ---------------------------------------------------------------------------------------------------------


def leaves(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    verbs = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not verbs and path:
        yield path.strip(), parser
    for one in verbs:
        for name, below in one.choices.items():
            if not name.startswith("_"):
                yield from leaves(below, f"{path} {name}")


def commands(line: str) -> Iterator[list[str]]:
    """The zerochat commands in a line of shell, without redirections."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    for word in [*lexer, ";"]:
        if set(word) <= set("|;&<>()") or word in ("$", "then", "do"):
            found, words = words, []
            while found and ("=" in found[0] or found[0] in ("until", "while", "if", "!")):
                del found[0]
            if found[:1] == ["zerochat"]:
                yield found[1:]
        else:
            words.append(word)


def examples() -> Iterator[tuple[str, str]]:
    for verb, parser in leaves(grammar()):
        for line in (parser.epilog or "").splitlines()[1:]:
            yield verb, line.strip()


def test_every_example_of_the_help_parses(capsys: pytest.CaptureFixture[str]) -> None:
    failed, tried = {}, set()
    for verb, line in examples():
        for words in commands(line):
            try:
                parse(words)
            except SystemExit as end:
                if end.code != 0:
                    failed[line] = capsys.readouterr().err.splitlines()[-2:]
            words = words[2:] if words[:1] == ["--profile"] else words
            tried |= {verb} if words[: len(verb.split())] == verb.split() else set()
    assert failed == {}
    assert {verb for verb, _ in leaves(grammar())} == tried, "each verb is in one of its examples"
