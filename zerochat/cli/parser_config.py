"""The grammar of `zerochat config`."""

from zerochat.cli.grammar import Parser, Verbs, add_verb


def add_config(verbs: "Verbs[Parser]") -> None:
    """Declare the verb config."""
    config = add_verb(
        verbs,
        "config",
        "look at the settings, check them, or begin a file of them",
        "The settings: one file for all profiles, in TOML. What the command line says wins over the environment\n"
        "(ZEROCHAT_NETWORK__HIDDEN=true), that over what the file says under the profile's name, and that over the\n"
        "rest of the file. `show` prints what holds and where it was said, `path` where the file is, `check` what is\n"
        "wrong with it (then the exit code is 2), and `init` writes one with every setting, its meaning and its\n"
        "default, where there is none yet. In the chat, /set changes one.",
        """
zerochat config init
zerochat config check
zerochat --profile work config show
ZEROCHAT_CHAT__THEME=light zerochat config show --format jsonl
""",
    )
    config.add_argument(
        "config_action",
        nargs="?",
        choices=("show", "path", "check", "init"),
        default="show",
        metavar="show|path|check|init",
        help="what to do (default: show)",
    )
