"""Verb lan: finds members on the networks of this machine, without internet."""

from msgspec.structs import asdict

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import name_of, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.presentation import nearby
from zerochat.rpc.nearby import NearbyStatus, SetNearbyParams


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "lan",
        "find members on the networks of this machine, without internet",
        "Look for members of your groups on the networks that this machine is connected to, so that a group works in\n"
        "one room without internet, and when all addresses have changed. Off by default. While it is on, this machine\n"
        "shows on those networks that it runs zerochat, by a random key that changes each day; who you are is only\n"
        "learned by members of your groups. `zerochat help nearby` has details and limits.",
        """
zerochat lan on
zerochat lan on hikers --network wlan0
zerochat lan
zerochat lan off
""",
        run=_status,
    )
    actions = parser.add_subparsers(metavar="[ACTION]", title="actions")
    parser = add_verb(
        actions,
        "on",
        "look for members on the present networks",
        "Look for members of all groups, or of those named, on all networks that this machine is connected to now, or\n"
        "on those named, and there again on other days. A network is recognised by its gateway, or without one by its\n"
        "address range. What is on already stays on.",
        """
zerochat lan on
zerochat lan on hikers climbers
zerochat lan on --network wlan0
zerochat lan on --every-network
""",
        run=_on,
    )
    _choice(parser, "look there")
    parser.add_argument(
        "--every-network", action="store_true", help="look on every network, also on those of other days"
    )
    parser = add_verb(
        actions,
        "off",
        "look for members no longer",
        "Look for no members, or not on the networks and for the groups named. Links to members that were found stay\n"
        "up until they break.",
        """
zerochat lan off
zerochat lan off hikers
zerochat lan off --network wlan0
""",
        run=_off,
    )
    _choice(parser, "do not look there")
    add_verb(
        actions,
        "status",
        "show where members are looked for, and which were found (default)",
        "Show the networks of this machine, on which of them members are looked for, and the members found there.",
        """
zerochat lan status
zerochat lan status --format json | jq -r '.members[] | select(.linked) | .nick'
""",
        run=_status,
    )


def _choice(parser: Parser, use: str) -> None:
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="only these groups (default: all)")
    parser.add_argument(
        "--network",
        dest="networks",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{use}: an interface such as wlan0, or an id of `lan status`; repeatable (default: all)",
    )


def _on(options: Options, out: Output) -> ExitCode:
    every = options.every_network
    return _change(SetNearbyParams(True, options.networks, options.groups, every), options, out)


def _off(options: Options, out: Output) -> ExitCode:
    return _change(SetNearbyParams(False, options.networks, options.groups), options, out)


def _change(params: SetNearbyParams, options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        status: NearbyStatus = agent.client.call("set_nearby", **asdict(params))
    _print(status, out)
    if agent.own and status.on:
        narrate("The agent was started only for this command; `zerochat agent` or the chat keeps one that looks.")
    return ExitCode.OK


def _status(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        status: NearbyStatus = agent.client.call("get_nearby")
    _print(status, out)
    return ExitCode.OK


def _print(status: NearbyStatus, out: Output) -> None:
    rows = [("NETWORK", "ID", "STATE"), *((one.name, one.id, nearby.network_state(one)) for one in status.networks)]
    members = [
        ("MEMBER", "GROUP", "ADDRESS", "STATE"),
        *(
            (name_of(one.nick), one.group[:8], ", ".join(one.addresses), nearby.member_state(one))
            for one in status.members
        ),
    ]
    out.data(
        status,
        [
            nearby.sentence(status),
            *(["", *table(rows)] if status.networks else []),
            *(["", *table(members)] if status.members else []),
        ],
    )
