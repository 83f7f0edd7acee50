"""The grammar of what is for whoever runs zerochat on a machine: agent and status options, doctor, completions, man."""

import argparse

from zerochat.cli.grammar import Parser, Verbs, add_verb
from zerochat.cli.shells import SHELLS

COMPLETED = ("groups", "profiles", "posted")
LOG_FORMATS = ("text", "json")


def agent_options(agent: Parser) -> None:
    agent.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        help="write the log to standard error too, as lines of text or one JSON object a line; names, keys and what"
        " people say are in neither",
    )
    agent.add_argument(
        "--print-unit", action="store_true", help="start nothing: print a unit for systemd that runs this very agent"
    )


def status_options(status: Parser) -> None:
    status.add_argument(
        "--check",
        action="store_true",
        help="for health checks: end with 1 where the agent needs attention (nobody new gets in, a warning), and with 7"
        " where its journal is damaged",
    )


def add_operating(verbs: "Verbs[Parser]") -> None:
    """Declare the verbs doctor, completion, complete and man."""
    doctor = add_verb(
        verbs,
        "doctor",
        "look for what is wrong, and say what to do",
        "Look at everything that zerochat needs here: folders and who may read them, the control socket, settings,\n"
        "room on the disk, how many files may be open, versions, the journal, ports, whether this machine reaches\n"
        "its own addresses, and the clock, against what other members say. One line for each: ok, warn or fail, with\n"
        "what to do; skip where it could not be looked at, and why. It starts no agent, and changes nothing. Ends\n"
        "with 1 when anything has failed.",
        """
zerochat doctor
zerochat doctor journal disk
zerochat doctor --format json | jq '.checks[] | select(.state != "ok")'
""",
    )
    doctor.add_argument("checks", nargs="*", metavar="CHECK", help="only these (default: all)")
    completion = add_verb(
        verbs,
        "completion",
        "print what makes a shell complete zerochat's words",
        "Print a script that has a shell complete verbs, options, their values, profiles, and the groups and\n"
        "files of the agent that runs (it never starts one, and never asks for a passphrase).",
        """
zerochat completion bash >~/.local/share/bash-completion/completions/zerochat
zerochat completion zsh >~/.zfunc/_zerochat
zerochat completion fish >~/.config/fish/completions/zerochat.fish
""",
    )
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="which shell")
    # For the scripts above alone, so the help does not list it: no `help` of its own.
    complete = verbs.add_parser("__complete", add_help=False, allow_abbrev=False)
    complete.add_argument("--profile", default=argparse.SUPPRESS)
    complete.add_argument("what", choices=COMPLETED)
    complete.add_argument("group", nargs="?", default="")
    add_verb(
        verbs,
        "man",
        "print the manual page",
        "Print the manual page, made from this very help, as man(1) reads it.",
        """
zerochat man | man -l -
zerochat man >~/.local/share/man/man1/zerochat.1
""",
    )
