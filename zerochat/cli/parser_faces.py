"""The grammar of the verbs that open a screen: chat and demo."""

import argparse

from zerochat.cli.grammar import Parser, Verbs, add_verb, network_options


def add_faces(verbs: "Verbs[Parser]") -> None:
    chat = add_verb(
        verbs,
        "chat",
        "open the chat in this terminal (the default)",
        "Open the chat in this terminal. It attaches to the profile's agent, or starts one that lives as long as the\n"
        "chat. Without a profile it helps to make one.",
        """
zerochat
zerochat --profile work chat hikers
zerochat chat --plain hikers
zerochat chat --listen 0.0.0.0:4242 --advertise 203.0.113.7
zerochat chat --set theme=light --set keymap=vim
""",
    )
    chat.add_argument("group", nargs="?", default="", metavar="GROUP", help="the group to begin with")
    chat.add_argument(
        "--plain",
        action="store_true",
        help="line by line, for screen readers, simple terminals and pipes (so it is where TERM is `dumb`)",
    )
    chat.add_argument(
        "--set",
        dest="said",
        type=_said,
        action="append",
        metavar="NAME=VALUE",
        help="a setting of the chat for this one run, such as theme=light (`zerochat config show` lists them)",
    )
    network_options(chat)
    add_verb(
        verbs,
        "demo",
        "see it work: real agents on this machine, no network needed",
        "Real agents on the loopback interface, in a folder that is removed afterwards. In a terminal: the chat, in a\n"
        "group with a small cast. Otherwise: a scripted conversation as text, and a table of who received what; the\n"
        "exit code is not 0 when a single message is missing.",
        """
zerochat demo
zerochat demo </dev/null
""",
    )


def _said(text: str) -> tuple[str, object]:
    from zerochat.agent.settings.config_file import value_of
    from zerochat.agent.settings.options import check_value, full_name
    from zerochat.agent.settings.reader import FACE

    name, _, value = text.partition("=")
    name = full_name(name.strip())
    try:
        check_value(name, value_of(value))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not name.startswith(FACE):
        raise argparse.ArgumentTypeError(f"{name} is for the agent, which may be running already: it goes in the file")
    return name, value_of(value)
