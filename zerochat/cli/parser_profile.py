"""The grammar of the verbs about a profile and its agent: init, agent, status and locate."""

from zerochat.cli.grammar import Parser, Verbs, add_verb, network_options
from zerochat.cli.parser_operating import agent_options, status_options

PLACES = ("config", "data", "state", "cache", "log", "socket", "lock", "key")


def add_profile(verbs: "Verbs[Parser]") -> None:
    init = add_verb(
        verbs,
        "init",
        "make a profile",
        "Make a profile: its keys, its encrypted journal, and the name that others see. Prints its folder.",
        """
zerochat init --name alice
zerochat --profile work init --name "Alice B." --passphrase
ZEROCHAT_PASSPHRASE_FILE=~/.secret zerochat init --name ci
""",
    )
    init.add_argument(
        "--name", required=True, metavar="NAME", help="what others will call you, unless a join says else"
    )
    lock = init.add_mutually_exclusive_group()
    lock.add_argument(
        "--passphrase",
        action="store_true",
        help="ask for a passphrase that locks the profile (it is never taken from the command line)",
    )
    lock.add_argument("--keyring", action="store_true", help="keep the profile's key in the system's keyring")
    agent = add_verb(
        verbs,
        "agent",
        "run the profile's agent in the foreground",
        "Run the profile's agent until Ctrl+C or SIGTERM: it keeps the connections, answers invitations, and receives\n"
        "for you. Prints one line when it is ready, and ends with 0 when it was told to end: then it takes nothing\n"
        "new, and sends what waits, for at most agent.drain seconds; told twice, it ends at once. SIGHUP has it read\n"
        "the settings again, and it says which hold from now on. systemd is told when it is ready. Unless\n"
        "told otherwise it listens on all addresses of this machine, at ports that stay the same from start to start.\n"
        "What --listen and --advertise say holds for later starts too, also of the chat and of each verb, until they\n"
        "say something else (a new --listen takes the place of both). But where the settings file says one of them,\n"
        "that holds, and these are for one run: `zerochat locate config` says where that is.",
        """
zerochat agent
zerochat agent --listen 0.0.0.0:4242:4243 --advertise 203.0.113.7
zerochat agent --format jsonl >ready.json &
zerochat agent --log-format json
zerochat agent --print-unit >~/.config/systemd/user/zerochat.service
""",
    )
    network_options(agent)
    agent_options(agent)
    status = add_verb(
        verbs,
        "status",
        "say what the agent is doing",
        "The profile's agent, where peers reach it, and its groups. Ends with 6 when no agent is running.",
        """
zerochat status
zerochat status --format json | jq .groups[].name
zerochat status --check >/dev/null || echo "look after it"
""",
    )
    status_options(status)
    locate = add_verb(
        verbs,
        "locate",
        "print where things are kept",
        "Print where a profile keeps its things. Needs no agent, and makes nothing.",
        """
zerochat locate
tail -f "$(zerochat locate log)"
""",
    )
    locate.add_argument("place", nargs="?", choices=PLACES, metavar="|".join(PLACES), help="just this one")
