"""Verb route: mediators that store incoming messages for this profile."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import PREFIX_MIN, connection_name, mediation_state, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, connection_argument, timeout_option
from zerochat.cli.invitation_input import invitation_text
from zerochat.cli.output import Output, narrate
from zerochat.cli.progress import POLL_S
from zerochat.cli.verbs.connections import all_connections, establish
from zerochat.errors import LocalError
from zerochat.presentation import mediation
from zerochat.rpc import ConnectionInfo, SettingInfo

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "route",
        "receive messages through a mediator",
        "A mediator stores messages for you while you are offline, and cannot read them; with one you need no address\n"
        "of your own. Without an action, list your mediators. `zerochat mediator` runs one.",
        """
zerochat route
zerochat route add "https://example.com/?_oob=eyJ0..."
zerochat route remove relay
""",
        run=route,
    )
    actions = parser.add_subparsers(metavar="[ACTION]", title="actions")
    parser = add_verb(
        actions,
        "add",
        "use a mediator",
        "Connect with a mediator by its link and request mediation. Prints the connection's id when it is granted;\n"
        "the members of your groups are notified. Without LINK it prompts for it.",
        """
zerochat route add
zerochat route add - --name relay <link.txt
""",
        run=_add,
    )
    parser.add_argument("invitation", nargs="?", metavar="LINK", help="the mediator's link, or - for standard input")
    parser.add_argument("--name", metavar="NAME", help="local name for the mediator")
    timeout_option(parser, 30.0, "seconds to wait for the answer (default: 30)")
    parser = add_verb(
        actions,
        "remove",
        "stop using a mediator",
        "End the connection with a mediator, and notify the members of your groups. With network.hidden = always\n"
        "nothing can be sent without a mediator.",
        """
zerochat route remove relay
""",
        run=_remove,
    )
    connection_argument(parser)
    parser = add_verb(
        actions,
        "delay",
        "have mediators delay and mix what you send",
        "Ask the mediators of other members to hold your messages for up to SECONDS, so that their times tell less of\n"
        "who writes to whom; 0 ends it. Each is held for a random time; with --exact, for all of it. With --mix,\n"
        "zerochat mediators send so many percent over another mediator first. Messages over a direct connection are\n"
        "not delayed. This writes `network.mail_delay`, `mail_delay_random` and `mail_mix` to the settings.",
        """
zerochat route delay 60
zerochat route delay 300 --exact --mix 50
zerochat route delay 0
""",
        run=_delay,
    )
    parser.add_argument("seconds", metavar="SECONDS", help="0 to 3600")
    parser.add_argument("--exact", action="store_true", help="hold all messages for the whole time")
    parser.add_argument("--mix", metavar="PERCENT", default="0", help="0 to 99 (default: 0)")


CONNECT_S_MAX = 2.0
"""How long a temporary agent waits for connections to the mediators."""


class NoMediator(LocalError):
    """You have no mediator {peer}. `zerochat route` lists them."""


def route(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = _mediators(agent.client, CONNECT_S_MAX if agent.own else 0.0)
    out.data_list(found, _mediator_lines(found) if found else ())
    if not found:
        narrate(mediation.none_yet("/mediator LINK" if options.in_chat else "`zerochat route add`"))
    return ExitCode.OK


def _delay(options: Options, out: Output) -> ExitCode:
    wanted = {
        "network.mail_mix": options.mix,
        "network.mail_delay_random": "false" if options.exact else "true",
        "network.mail_delay": options.seconds,
    }
    with attached(options) as agent:
        changed: list[SettingInfo] = [
            agent.client.call("change_setting", name=name, value=value) for name, value in wanted.items()
        ]
        agent.client.call("reload_settings")
    out.data_list(changed, [f"{one.name} = {one.value}" for one in changed])
    return ExitCode.OK


def _mediators(client: "Client", timeout_s: float) -> list[ConnectionInfo]:
    """The mediators, once all are reachable or the time is up."""
    client.subscribe()
    deadline = time.monotonic() + timeout_s
    while True:
        found = [one for one in all_connections(client) if one.mediator]
        left = deadline - time.monotonic()
        if left <= 0 or all(one.reachable is not False for one in found):
            return found
        client.next_notification(min(left, POLL_S))


def _mediator_lines(found: Sequence[ConnectionInfo]) -> list[str]:
    return table([("NAME", "STATE", "ID"), *((connection_name(one), mediation_state(one), one.id) for one in found)])


def _members_note(client: "Client") -> str:
    """End of a sentence: whether members of groups are notified."""
    return mediation.notified(_in_groups(client))


def _in_groups(client: "Client") -> bool:
    return any(group.state == "active" for group in client.list_groups())


def _add(options: Options, out: Output) -> ExitCode:
    text = invitation_text(options, "route add")
    with attached(options) as agent:
        one = establish(
            agent.client,
            options,
            text,
            lambda one: one.mediator != "requested" or one.state == "ended",
            mediate=True,
        )
        note = _members_note(agent.client)
    if one is None or one.state == "ended":
        narrate("The peer has ended the connection.")
        return ExitCode.REFUSED
    out.data(one, [one.id])
    who = connection_name(one)
    if one.mediator == "granted":
        narrate(f"{who} now stores messages for you while you are offline{note}.")
        return ExitCode.OK
    if one.mediator == "denied":
        narrate(f"{who} has denied mediation. Use `zerochat route remove {one.id}` to remove it.")
        return ExitCode.REFUSED
    narrate(mediation.no_answer(who, "/mediator" if options.in_chat else "`zerochat route`"))
    return ExitCode.TIMEOUT


def _remove(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        mediators = [one for one in all_connections(agent.client) if one.mediator]
        named = [one for one in mediators if options.peer in (one.label, one.id)]
        if not named and len(options.peer) >= PREFIX_MIN:
            named = [one for one in mediators if one.id.startswith(options.peer)]
        if not named:
            raise NoMediator(peer=options.peer)
        # If the name is ambiguous, the agent returns the error.
        agent.client.call("close_connection", peer=named[0].id if len(named) == 1 else options.peer)
        in_groups, status = _in_groups(agent.client), agent.client.get_status()
    out.data({"peer": options.peer}, ())
    narrate(mediation.removed(connection_name(named[0]), in_groups, status))
    return ExitCode.OK
