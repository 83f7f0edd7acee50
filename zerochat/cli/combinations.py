"""Combinations of arguments that have no meaning: one of the two would be ignored, so they are usage errors.

An argument is named by its flag, or by its metavar; `NAME=VALUE` is one with this value.
"""

import argparse
from collections.abc import Mapping
from typing import Final

NOT_TOGETHER: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "status": (("--bar", "--check"), ("--bar", "--max-behind")),
    "invite": tuple(
        (option, other)
        for option in ("--expires", "--uses", "--name", "--read-only", "--history")
        for other in ("--list", "--revoke")
    ),
    "join": (("--name", "--cancel"), ("--read-only", "--cancel"), ("--timeout", "--cancel")),
    "msg": (("TEXT", "--accept"), ("TEXT", "--decline")),
    "history": (("--unread", "--file"),),
    "files": (
        ("FILE", "list|get|save|remove=list"),
        ("--timeout", "list|get|save|remove=list"),
        ("--timeout", "list|get|save|remove=remove"),
    ),
    "connect": (("--timeout", "--invite"), ("--curve", "--envelope=didcomm/v1")),
    "sim": (
        ("--jobs", "--seed"),
        *(
            (option, kind)
            for kind in ("--overlay", "--large")
            for option in ("--histories", "--byzantine", "--accountable", "--retention", "--trace", "--repeat")
        ),
        ("--loss", "--overlay"),
        ("--overlay", "--large"),
    ),
    "bot container": (("--app", "--agent"),),
    "telemetry export": (("--output", "--dry-run"),),
}
"""By verb: arguments that exclude each other, beside the mutually exclusive groups of its parser."""
ONLY_WITH: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "status": (("--max-behind", "--check"),),
    "ignore": (("--undo", "MEMBER"),),
    "send": (("--timeout", "--wait"),),
    "msg": (("--group", "MEMBER"),),
    "files": (("--output", "list|get|save|remove=save"),),
    "proof": (("--by", "--history"),),
    "connect": (("--envelope", "--invite"), ("--curve", "--invite")),
    "mediator": (("--noise", "--mix-with"),),
    "sim": (
        *((option, "--overlay") for option in ("--nodes", "--fan-out", "--dead")),
        *((option, "--large") for option in ("--members", "--path", "--joins")),
        ("--messages", "--overlay", "--large"),
    ),
}
"""By verb: an argument, and those of which it needs one."""


def fault_of(parser: argparse.ArgumentParser, found: argparse.Namespace) -> str:
    """What is wrong with the combination of arguments that this parser has found; empty: nothing."""
    verb = parser.prog.partition(" ")[2]
    for one, other in NOT_TOGETHER.get(verb, ()):
        if _is_given(parser, found, one) and _is_given(parser, found, other):
            return f"argument {_shown(one)}: not allowed with argument {_shown(other)}"
    for one, *others in ONLY_WITH.get(verb, ()):
        if _is_given(parser, found, one) and not any(_is_given(parser, found, other) for other in others):
            return f"argument {_shown(one)}: only allowed with argument {' or '.join(map(_shown, others))}"
    return ""


def action_of(parser: argparse.ArgumentParser, name: str) -> argparse.Action:
    """The argument with this flag or metavar."""
    name = name.partition("=")[0]
    (action,) = (one for one in parser._actions if name in (one.metavar, *one.option_strings))
    return action


def _is_given(parser: argparse.ArgumentParser, found: argparse.Namespace, name: str) -> bool:
    action, value = action_of(parser, name), name.partition("=")[2]
    given = getattr(found, action.dest, action.default)
    if isinstance(action, argparse._StoreConstAction):  # several options may store in one place
        return bool(given == action.const)
    return bool(given == value) if value else given not in (None, action.default)


def _shown(name: str) -> str:
    return name.partition("=")[2] or name
